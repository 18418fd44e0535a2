// SPDX-License-Identifier: Apache-2.0
// Where a tile's sums go: to the workspace as words for the gate of exchange.cuh, or with LOGITS 1 to the logits.
#pragma once

#include "exchange.cuh"

// One sum, of a token and expert that may not exist.
QN_DEVICE void put_sum(const router_params &p, const Part &part, u32 token, u32 expert, float sum)
{
    if (token >= p.tokens) return;
    if constexpr (LOGITS) {
        if (expert < kE) p.logits[(i64)token * p.logits_stride + expert] = sum;
    } else {
        if (expert < kPitch) store_polled(words_of(p, token, part.slice) + expert, publish(sum));
    }
}

// Two neighbours; expert is even.
QN_DEVICE void put_pair(const router_params &p, const Part &part, u32 token, u32 expert, float a, float b)
{
    if (token >= p.tokens) return;
    if constexpr (LOGITS) {
        float *to = p.logits + (i64)token * p.logits_stride + expert;
        if (p.logits_are == ROUTER_LOGITS_PAIRS && expert + 1 < kE) {
            *reinterpret_cast<float2 *>(to) = make_float2(a, b);
        } else {
            if (expert < kE) to[0] = a;
            if (expert + 1 < kE) to[1] = b;
        }
    } else {
        u32 *to = words_of(p, token, part.slice) + expert;
        if (expert < kPitch) store_polled(reinterpret_cast<uint2 *>(to), make_uint2(publish(a), publish(b)));
    }
}
