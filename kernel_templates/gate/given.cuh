// SPDX-License-Identifier: Apache-2.0
// Weights of the experts that are given (hash routing): one warp a token, one lane an expert given; for softmax the warp
// reads the whole row, else only the K logits.
//
// An id outside [0, E) has weight NaN and leaves the others alone, a NaN logit has weight 0; the ids may repeat.
#pragma once

#include "rounds.cuh"

// load(expert): its logit.
template <class Load> QN_DEVICE void given_by_warp(const gate_params &p, i64 token, Load load)
{
    const Row row = row_of_warp(load);
    const bool given = lane_index() < kK;
    const i32 id = given ? __ldg(p.given_ids + token * p.given_ids_stride + lane_index()) : -1;
    const bool exists = id >= 0 && id < (i32)kE;
    float a = 0.f;
    if (exists) {
        a = activation(load((u32)id), row);
        a = contribution(a, is_nan(a) ? kKeyNaN : kKeyMinusInfinity);
    }
    float sum = 0.f;
    if constexpr (RENORMALIZE) {
#pragma unroll
        for (u32 r = 0; r < kK; r++) sum += __shfl_sync(kFullMask, a, (int)r);
    }
    if (given) store_weight(p, token, lane_index(), exists ? weight_of(p, a, sum) : not_a_number());
}
