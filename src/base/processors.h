// SPDX-License-Identifier: Apache-2.0
// How many threads are worth starting.
#ifndef QN_BASE_PROCESSORS_H
#define QN_BASE_PROCESSORS_H

#include <stddef.h>

// The processors that this process may use, however many the machine has: at least 1, also where it cannot be told.
size_t qn_processors(void);

#endif
