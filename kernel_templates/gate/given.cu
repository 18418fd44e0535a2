// SPDX-License-Identifier: Apache-2.0
// gate, plan "given": the experts are given, only their weights are computed (given.cuh). One warp a token.
#include "given.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ gate_params p)
{
    const i64 token = (i64)blockIdx.x * (THREADS / kWarp) + warp_index();
    if (token >= p.N) return;
    if constexpr (DEPENDENT) wait_for_previous_launch();
    const Logits logits = logits_of(p, token);
    if constexpr (PARTS > 1) {
        for (u32 expert = lane_index(); p.sums && expert < kE; expert += kWarp)
            store_sum(p, token, expert, load_logit(logits, expert));
    }
    given_by_warp(p, token, [&](u32 expert) { return load_logit(logits, expert); });
}
