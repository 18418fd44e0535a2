// SPDX-License-Identifier: Apache-2.0
// Counts the rows (with plan split: the shares of rows) that are selected again. Nothing reads it here: a tool that loads
// the module by itself does (`quern bench softmax_topk --repairs`).
#pragma once

#include "../common/tally.cuh"
#include "problem.cuh"

QN_TALLY(qn_repairs)

// Every thread of the CTA may call it; one counts.
QN_DEVICE void count_repair()
{
    if (thread_index() == 0) tally(&qn_repairs);
}
