// SPDX-License-Identifier: Apache-2.0
// Counts the rows (with plan split: the shares of rows) that are selected again. Nothing reads it here: a tool that loads
// the module by itself does (`quern bench softmax_topk --repairs`).
#pragma once

#include "problem.cuh"

#ifndef QN_MODEL
extern "C" {
__device__ u32 qn_repairs;
}
#endif

// Every thread of the CTA may call it; one counts.
QN_DEVICE void count_repair()
{
#ifndef QN_MODEL
    if (thread_index() == 0) atomicAdd(&qn_repairs, 1u);
#endif
}
