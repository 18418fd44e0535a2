// SPDX-License-Identifier: Apache-2.0
// What the files of the family indexer share: indexer.c (lists, checks, the plan "fused", launch) and indexer_prefill.c.
#ifndef QN_OPS_INDEXER_H
#define QN_OPS_INDEXER_H

#include "ops/family.h"

// Plans are numbered for ever: tables of tuning results name them.
enum { QN_INDEXER_FUSED = 1, QN_INDEXER_PREFILL, QN_INDEXER_WGMMA };

// ---- plan=prefill (indexer_prefill.c)

struct indexer_params;
bool qn_indexer_has_wgmma(const quern_indexer_spec *spec, const qn_arch *arch); // plan=wgmma serves it
bool qn_indexer_prefill_serves(const quern_indexer_spec *spec, const qn_arch *arch);
quern_status qn_indexer_prefill_plan(const quern_indexer_spec *spec, const qn_arch *arch, qn_kernel_plan *kernel);
size_t qn_indexer_prefill_workspace(const quern_indexer_spec *spec, int64_t rows, int64_t max_length);
// The rest of the parameters, and the grid.
void qn_indexer_prefill_launch(int64_t rows, int64_t max_length, const qn_device_limits *limits,
                               const qn_kernel_plan *kernel, struct indexer_params *params, uint32_t *grid);

#endif
