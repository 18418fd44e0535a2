// SPDX-License-Identifier: Apache-2.0
// router, the second launch after one of partial sums: a token's slices are added and it is gated, a CTA a token
// (exchange.cuh). For more than 64 tokens, and where the CTAs of one launch would not be resident together.
//
// The launch may begin before the first has ended.
#include "exchange.cuh"

static_assert(GATE_AT == 0 && LOGITS == 0, "GATE_AT, LOGITS: 0");

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ router_params p)
{
    wait_for_previous_launch();
    gate_tokens(p);
}
