// SPDX-License-Identifier: Apache-2.0
// The case this kernel is made for: names for what the prologue's constants say, common to all plans.
//
// Prologue: V, K, IN (1 f32, 2 f16, 3 bf16), INDEX_BYTES (4, 8), VALUE (0 probability, 1 log-probability, 2 logit),
// NORM (0 over V, 1 over the K kept), TEMPERATURE, LSE, TOKEN, BATCH_INVARIANT (0, 1), LOCAL_K and the plan's own.
#pragma once

#include "../common/block.cuh"
#include "../common/elements.cuh"
#include "../common/numbers.cuh"
#include "args.h"

static_assert(V >= 1 && V <= (1 << 21), "V: 1 to 2^21");
static_assert(K >= 1 && K <= V && K <= 2048, "K: 1 to min(V, 2048)");
static_assert(INDEX_BYTES == 4 || INDEX_BYTES == 8, "INDEX_BYTES: 4 (i32) or 8 (i64)");
static_assert(VALUE >= 0 && VALUE <= 2 && NORM >= 0 && NORM <= 1, "VALUE: 0 to 2; NORM: 0 or 1");

typedef typename ElementOf<IN>::Type Element;
typedef typename Element::Raw Raw;
typedef typename Element::Packed Packed;

constexpr u32 kV = V;
constexpr u32 kK = K;
constexpr u32 kPerVector = Element::kPerVector;
constexpr bool kProbability = VALUE == 0;
constexpr bool kLogit = VALUE == 2;
constexpr bool kTopkNorm = NORM == 1 && !kLogit;                    // the normaliser is the sum over the winners
constexpr bool kNeedsSum = (!kLogit && !kTopkNorm) || LSE || TOKEN; // the sum over all V is used

QN_DEVICE u32 thread_index()
{
    return threadIdx.x;
}
QN_DEVICE u32 lane_index()
{
    return threadIdx.x % kWarp;
}
QN_DEVICE u32 warp_index()
{
    return threadIdx.x / kWarp;
}
