// SPDX-License-Identifier: Apache-2.0
// The rank of a given token: how many elements come before it. It is counted in the stream with one f32 compare an
// element: larger ones everywhere, equal ones too in the vectors before the token's own. Its own vector's equal elements
// are added at the end. A token that is NaN has no f32 compare; its rank is counted again, with keys.
#pragma once

#include "exact.cuh"

struct TokenBounds {
    u32 vector;    // the token's own
    float earlier; // in vectors before it, elements that are not <= this come first: the number next below the token's
    float later;   // in others, those that are not <= this: the token's own value
};

// The f32 next below x; NaN for -inf, which everything is above.
QN_DEVICE float next_below(float x)
{
    const u32 key = F32::key(__float_as_uint(x));
    return __uint_as_float(F32::raw_of_key(key == F32::kKeyZero ? key - 2 : key - 1));
}

QN_DEVICE bool token_exists(i32 token)
{
    return token >= 0 && token < V;
}

QN_DEVICE TokenBounds token_bounds(const softmax_topk_params &p, i64 row, const Row &r)
{
    const i32 token = p.token[row];
    if (!token_exists(token)) return TokenBounds{0, infinity(), infinity()};
    const float x = Element::value(row_raw(p, row, (u32)token));
    return TokenBounds{((u32)token + r.lead) / kPerVector, next_below(x), x};
}

// Elements of vector v that come before the token, but for equal ones in its own vector.
QN_DEVICE u32 token_count(const TokenBounds &t, u32 v, const float *x) // [kPerVector]
{
    const float bound = v < t.vector ? t.earlier : t.later;
    u32 count = 0;
#pragma unroll
    for (u32 q = 0; q < kPerVector; q++) count += !(x[q] <= bound);
    return count;
}

// The rank, from the sum of token_count over the row's vectors. Every thread of the CTA calls it; it may hold a barrier.
QN_DEVICE u32 token_rank(const softmax_topk_params &p, i64 row, const Row &r, u32 counted, u32 *scratch)
{
    const i32 token = p.token[row];
    if (!token_exists(token)) return 0;
    const u32 index = (u32)token, key = Element::key(row_raw(p, row, index));
    if (key == Element::kKeyNaN) {
        u32 before = 0;
        for (u32 i = thread_index(); i < index; i += THREADS) before += Element::key(row_raw(p, row, i)) == key;
        return block_sum(before, scratch);
    }
    const u32 vector = (index + r.lead) / kPerVector, first = vector * kPerVector;
    for (u32 i = first > r.lead ? first - r.lead : 0; i < index; i++)
        counted += Element::key(row_raw(p, row, i)) == key;
    if (key == Element::kKeyMinusInfinity && vector > 0) counted -= r.lead; // what lies before the row counted as -inf
    return counted;
}
