// SPDX-License-Identifier: Apache-2.0
// The case this kernel is made for: names for what the prologue's constants say, common to all plans; and the order of
// experts as integers.
//
// Prologue: E, K, IN (1 f32, 2 f16, 3 bf16), INDEX_BYTES (4, 8), ACT (0 sqrt_softplus, 1 sigmoid, 2 softmax), BIAS (0, 1),
// N_GROUP, TOPK_GROUP, RENORMALIZE (0, 1), DEPENDENT (1: the launch may begin before the one that writes its logits has
// ended), PARTS (most parts that logits come in, which are to be added: 1 but in the router), PART_STRIDE (elements from a
// part to the next) and the plan's own.
//
// A key grows with the score. 0: of no expert, or of one in a dropped group, which never wins; 1: a NaN, below every
// number; -inf and up from there. A candidate is a key with its expert, lowest expert first among equal keys.
#pragma once

#include "../common/elements.cuh"
#include "../common/numbers.cuh"
#include "../common/warp.cuh"
#include "args.h"

static_assert(E >= 1 && E <= 1024, "E: 1 to 1024");
static_assert(N_GROUP >= 1 && E % N_GROUP == 0, "N_GROUP: divides E");
static_assert(TOPK_GROUP >= 1 && TOPK_GROUP <= N_GROUP, "TOPK_GROUP: 1 to N_GROUP");
static_assert(K >= 1 && K <= 32 && K <= E / N_GROUP * TOPK_GROUP, "K: 1 to 32, and to the experts of the groups kept");
static_assert(INDEX_BYTES == 4 || INDEX_BYTES == 8, "INDEX_BYTES: 4 (i32) or 8 (i64)");
static_assert(ACT >= 0 && ACT <= 2, "ACT: 0 to 2");

typedef typename ElementOf<IN>::Type Element;
typedef typename Element::Raw Raw;

constexpr u32 kE = E;
constexpr u32 kK = K;
constexpr u32 kPerVector = Element::kPerVector;
constexpr bool kSoftmax = ACT == 2;
constexpr bool kGrouped = TOPK_GROUP < N_GROUP; // else no group is dropped
constexpr u32 kGroups = N_GROUP;
constexpr u32 kGroupSize = E / N_GROUP;
constexpr u32 kParts = PARTS;

constexpr u32 kKeyNone = 0;
constexpr u32 kKeyNaN = 1;
constexpr u32 kKeyMinusInfinity = F32::kKeyMinusInfinity;

QN_DEVICE u32 lane_index()
{
    return threadIdx.x % kWarp;
}
QN_DEVICE u32 warp_index()
{
    return threadIdx.x / kWarp;
}

// Scores are never -0: an activation is at least +0.
QN_DEVICE u32 key_of(float score)
{
    const u32 bits = __float_as_uint(score);
    const u32 key = bits ^ ((u32)((i32)bits >> 31) | 0x80000000u);
    return is_nan(score) ? kKeyNaN : key;
}
QN_DEVICE float value_of(u32 key)
{
    return __uint_as_float(F32::raw_of_key(key));
}

// Of a group, by the keys of its two best: the sum of the numbers among them; a NaN when there is none.
QN_DEVICE u32 group_key(u32 best, u32 second)
{
    if (best <= kKeyNaN) return kKeyNaN;
    return key_of(second <= kKeyNaN ? value_of(best) : __fadd_rn(value_of(best), value_of(second)));
}

// ---- logits, and the parts that they may come in

// Who has a block: w has those from w · blocks / workers on.
QN_DEVICE u32 first_block_of(const gate_parts &parts, u32 worker)
{
    return worker * parts.blocks / (u32)parts.workers;
}
QN_DEVICE u32 worker_of(const gate_parts &parts, u32 block)
{
    return ((block + 1) * (u32)parts.workers - 1) / parts.blocks;
}

struct Logits { // of a token
    const Raw *row;
    u32 parts;
};

QN_DEVICE Logits logits_of(const gate_params &p, i64 token)
{
    Logits logits = {static_cast<const Raw *>(p.logits) + token * p.logits_stride, 1};
    if constexpr (PARTS > 1) {
        const gate_parts &parts = p.parts;
        if (!parts.blocks) return logits;
        const u32 first = (u32)token / (u32)parts.tile_tokens * (u32)parts.tile_blocks;
        logits.parts = worker_of(parts, first + (u32)parts.tile_blocks - 1) - worker_of(parts, first) + 1;
    }
    return logits;
}
QN_DEVICE float bias_of(const gate_params &p, u32 expert)
{
    return BIAS ? __ldg(p.bias + expert) : 0.f;
}

// Of logits; a launch that waits for them in the middle may not say that they never change (ld.global.nc).
template <class T> QN_DEVICE T load_input(const T *place)
{
    if constexpr (DEPENDENT)
        return *place;
    else
        return __ldg(place);
}
// The parts of a logit are added in their order; those that are not there are 0, so that all loads are on their way at once.
QN_DEVICE float load_logit(const Logits &logits, u32 expert)
{
    const Raw *from = logits.row + expert;
    float x = Element::value(load_input(from));
#pragma unroll
    for (u32 part = 1; part < kParts; part++)
        x += part < logits.parts ? Element::value(load_input(from + part * PART_STRIDE)) : 0.f;
    return x;
}
// Of logits in parts, where the sums are wanted too.
QN_DEVICE void store_sum(const gate_params &p, i64 token, u32 expert, float x)
{
    if constexpr (PARTS > 1) {
        if (p.sums) p.sums[token * p.sums_stride + expert] = x;
    }
}
// Of a vector of experts that begins at a multiple of 16 bytes.
QN_DEVICE void load_vector_of_logits(const Logits &logits, u32 expert, float *x) // [kPerVector]
{
    const uint4 *from = reinterpret_cast<const uint4 *>(logits.row + expert);
    uint4 part[kParts];
#pragma unroll
    for (u32 i = 0; i < kParts; i++)
        part[i] = i < logits.parts ? load_input(from + i * PART_STRIDE / kPerVector) : make_uint4(0, 0, 0, 0);
    Element::unpack(part[0], x);
#pragma unroll
    for (u32 i = 1; i < kParts; i++) {
        float y[kPerVector];
        Element::unpack(part[i], y);
#pragma unroll
        for (u32 j = 0; j < kPerVector; j++) x[j] += y[j];
    }
}
