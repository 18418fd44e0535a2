// SPDX-License-Identifier: Apache-2.0
// Configurations that compile ahead, on threads of their own, in the order announced. Used by measure.c.
#ifndef QN_TUNE_COMPILES_H
#define QN_TUNE_COMPILES_H

#include "runtime/runtime.h"
#include "tune/space.h"

typedef struct qn_compiles qn_compiles;

// threads ≥ 1; fewer that start only take longer, and none at all is OUT_OF_MEMORY.
quern_status qn_compiles_open(quern *q, const qn_space *space, int threads, qn_compiles **out);
// What waits and is not begun is forgotten; these are next.
quern_status qn_compiles_announce(qn_compiles *c, const qn_config *configs, size_t count);
// Waits until a configuration is compiled (announced or not); its kernels are in q's memory then. The compile's status,
// and its message in this thread.
quern_status qn_compiles_wait(qn_compiles *c, const qn_config *config);
void qn_compiles_close(qn_compiles *c); // waits for those that are under way

#endif
