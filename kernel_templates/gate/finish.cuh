// SPDX-License-Identifier: Apache-2.0
// From the winners' activations to what is stored.
//
//   weight_r = sum > 0 ? a_r / sum · scale : 0        (or a_r · scale without renormalisation)
//
// The sum goes through the winners in rank order in every plan, so that a token's weights do not depend on the plan.
#pragma once

#include "activation.cuh"

// What a winner contributes: a NaN score has weight 0; a row without a softmax has NaN throughout.
QN_DEVICE float contribution(float activation, u32 key)
{
    return key == kKeyNaN && !(kSoftmax && is_nan(activation)) ? 0.f : activation;
}

// a / sum, rounded like a division in all but the last cases of a tie. Subnormals are lifted for the reciprocal.
QN_DEVICE float share_of(float a, float sum)
{
    const float lift = sum < 0x1p-60f ? 0x1p90f : 1.f;
    const float x = a * lift, y = sum * lift, r = reciprocal_ftz(y), q = __fmul_rn(x, r);
    return is_finite(y) ? fmaf(fmaf(-q, y, x), r, q) : q;
}

QN_DEVICE float weight_of(const gate_params &p, float a, float sum)
{
    if constexpr (!RENORMALIZE) return __fmul_rn(a, p.scale);
    return sum <= 0.f ? 0.f : __fmul_rn(share_of(a, sum), p.scale); // a NaN stays one
}

QN_DEVICE void store_id(const gate_params &p, i64 token, u32 rank, u32 expert)
{
    if constexpr (INDEX_BYTES == 8)
        static_cast<i64 *>(p.ids)[token * p.ids_stride + rank] = expert;
    else
        static_cast<i32 *>(p.ids)[token * p.ids_stride + rank] = (i32)expert;
}

QN_DEVICE void store_weight(const gate_params &p, i64 token, u32 rank, float weight)
{
    p.weights[token * p.weights_stride + rank] = weight;
}

// Where the results of a token go: addresses that are computed when they are needed ...
struct Token {
    const gate_params &p;
    i64 token;
};

QN_DEVICE void store_id(const Token &to, u32 rank, u32 expert)
{
    store_id(to.p, to.token, rank, expert);
}
QN_DEVICE void store_weight(const Token &to, u32 rank, float weight)
{
    store_weight(to.p, to.token, rank, weight);
}

// ... or ahead, by who has to wait for something first.
struct Results {
    float *weights;
    char *ids;
};

QN_DEVICE Results results_ahead(const gate_params &p, i64 token)
{
    return Results{computed_here(p.weights + token * p.weights_stride),
                   computed_here(static_cast<char *>(p.ids) + token * p.ids_stride * INDEX_BYTES)};
}

QN_DEVICE void store_id(const Results &to, u32 rank, u32 expert)
{
    if constexpr (INDEX_BYTES == 8)
        reinterpret_cast<i64 *>(to.ids)[rank] = expert;
    else
        reinterpret_cast<i32 *>(to.ids)[rank] = (i32)expert;
}
QN_DEVICE void store_weight(const Results &to, u32 rank, float weight)
{
    to.weights[rank] = weight;
}

constexpr u32 kRanked = (kK + 3) / 4 * 4; // words for K contributions, whole vectors

// Of the contributions in rank order, [kRanked], at a multiple of 16 bytes.
QN_DEVICE float sum_in_order(const float *a)
{
    float sum = 0.f;
    if constexpr (!RENORMALIZE) return sum;
#pragma unroll
    for (u32 r = 0; r < kK; r += 4) {
        const float4 four = *reinterpret_cast<const float4 *>(a + r);
        sum = r ? sum + four.x : four.x; // never -0
        if (r + 1 < kK) sum += four.y;
        if (r + 2 < kK) sum += four.z;
        if (r + 3 < kK) sum += four.w;
    }
    return sum;
}
