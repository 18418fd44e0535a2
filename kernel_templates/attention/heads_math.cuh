// SPDX-License-Identifier: Apache-2.0
// What the computing groups of the plan "heads" do with a block of keys: products by wgmma, what the first group hands to
// the second, the end of a split. What a group does with scores: group.cuh.
//
// Scores, softmax and output of a block follow each other in the first group: what keeps the SM busy meanwhile is another
// CTA, or the second group. Every wait for products stands right behind them.
#pragma once

#include "../common/matrix.cuh"
#include "group.cuh"
#include "heads_load.cuh"

// With a cap there are no registers for the bounds between which blocks need no mask.
constexpr bool kMasksAll = SOFTCAP && COLUMNS == 2;

// ---- products

// x[64 rows, KEYS] = q · k: waits for each piece of the keys, begins with it, and waits for the products.
QN_DEVICE void score_block(const Pieces &s, u32 number, float (&x)[KEYS / 2])
{
    const u32 stage = number % kStages, phase = number / kStages;
    const u32 queries = low_of(s.queries, 0), keys = low_of(s.keys + stage * kKeyStageBytes, 0);
#pragma unroll
    for (i32 piece = 0; piece < kKeyPieces; piece++) {
        wait_phase(s.key_full + stage * kKeyPieces + piece, phase);
        wgmma_fence_operand(x);
        wgmma_fence();
#pragma unroll
        for (i32 step = 4 * key_piece(piece); step < min(4 * key_piece(piece + 1), kSteps); step++) {
            const u64 a = descriptor_at(queries, step / 4 * kQueryChunkBytes + step % 4 * 32);
            const u64 b = descriptor_at(keys, step / 4 * kChunkBytes + step % 4 * 32);
            if constexpr (IN == 3)
                wgmma_f32_bf16<KEYS>(x, a, b, step > 0);
            else
                wgmma_f32_f16<KEYS>(x, a, b, step > 0);
        }
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_fence_operand(x);
}

// out[64 rows, kColumns] (+)= p · v with p in registers, and the wait for it.
template <i32 kColumns>
QN_DEVICE void add_values(float (&out)[kColumns / 2], u32 (&p)[KEYS / 16][4], u32 values, bool accumulate)
{
    wgmma_fence_operand(out);
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++) wgmma_fence_operand(p[step]);
    wgmma_fence();
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++) {
        const u64 b = descriptor_at(values, step * 16 * 128);
        if constexpr (IN == 3)
            wgmma_f32_bf16<kColumns, 1>(out, p[step], b, accumulate || step > 0);
        else
            wgmma_f32_f16<kColumns, 1>(out, p[step], b, accumulate || step > 0);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_fence_operand(out);
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++) wgmma_fence_operand(p[step]);
}

// The same with p in shared memory.
template <i32 kColumns>
QN_DEVICE void add_values(float (&out)[kColumns / 2], u32 probabilities, u32 values, bool accumulate)
{
    wgmma_fence_operand(out);
    wgmma_fence();
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++) {
        const u64 a = descriptor_at(probabilities, step * 32), b = descriptor_at(values, step * 16 * 128);
        if constexpr (IN == 3)
            wgmma_f32_bf16<kColumns, 0, 1>(out, a, b, accumulate || step > 0);
        else
            wgmma_f32_f16<kColumns, 0, 1>(out, a, b, accumulate || step > 0);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_fence_operand(out);
}

// ---- a group's values of a block

constexpr bool kClears = kVarlen || LENGTHS;

QN_DEVICE unsigned char *values_of(const Pieces &s, u32 number, i32 piece)
{
    const i32 stage_bytes = ALIAS ? kKeyStageBytes : kValueStageBytes;
    return s.values + number % kStages * stage_bytes + value_piece(piece) * kChunkBytes;
}

// Waits until a group's piece is there, and clears its rows past the sequence's end: 0 · NaN is not 0. With ALIAS the
// scores are done with it: the second group comes here after the first one's probabilities.
QN_DEVICE void take_values(const Tile &t, const Pieces &s, i32 key, u32 number, i32 piece)
{
    const u32 stage = number % kStages, phase = number / kStages;
    wait_phase(ALIAS ? s.key_full + stage * kKeyPieces + piece : s.value_full + stage * COLUMNS + piece, phase);
    if constexpr (kClears) {
        const i32 valid = max(t.sequence.keys - key, 0);
        if (valid < KEYS) {
            if constexpr (ALIAS) barrier_sync((u32)(1 + piece), kGroupThreads); // other warps' scores too
            unsigned char *chunks = values_of(s, number, piece);
            const i32 count = value_piece(piece + 1) - value_piece(piece);
            for (i32 c = 0; c < count; c++)
                for (i32 at = valid * 8 + thread_index() % kGroupThreads; at < KEYS * 8; at += kGroupThreads)
                    *reinterpret_cast<uint4 *>(chunks + c * kChunkBytes + 16 * at) = make_uint4(0, 0, 0, 0);
            fence_proxy_async_shared();
            barrier_sync((u32)(1 + piece), kGroupThreads);
        }
    }
}

QN_DEVICE void release_values(const Pieces &s, u32 number, i32 piece)
{
    const u32 stage = number % kStages;
    warp_arrive(ALIAS ? s.key_empty + stage * kKeyPieces + piece : s.value_empty + stage * COLUMNS + piece);
}

// The first group's arrivals for the scores. With ALIAS its own piece is still needed.
QN_DEVICE void release_keys(const Pieces &s, u32 number)
{
#pragma unroll
    for (i32 piece = ALIAS ? 1 : 0; piece < kKeyPieces; piece++)
        warp_arrive(s.key_empty + number % kStages * kKeyPieces + piece);
}

// ---- from the first group to the second. A step is a block, or the weights at the end of a tile that is not cut. Each lane
// arrives for what it has itself written or read: an order by __syncwarp and one arrival a warp racecheck does not follow.

// Waits until the second group has used up the step before.
QN_DEVICE void put_factors(const Pieces &s, u32 step, const float (&factor)[2])
{
    wait_phase(s.probability_empty, step + 1);
    if (lane_index() % 4 == 0) s.factors[group_row()] = factor[0], s.factors[group_row() + 8] = factor[1];
}

QN_DEVICE void put_probabilities(const Pieces &s, const u32 (&p)[KEYS / 16][4])
{
    const i32 lane = lane_index(), row = group_warp() * 16 + lane % 16;
#pragma unroll
    for (i32 i = 0; i < KEYS / 16; i++)
        stmatrix_x4(s.probabilities + row * 128 + (((2 * i + lane / 16) ^ (row % 8)) << 4), p[i]);
    fence_proxy_async_shared();
}

QN_DEVICE void announce(const Pieces &s)
{
    mbarrier_arrive(s.probability_full);
}

QN_DEVICE void take_factors(const Pieces &s, u32 step, float (&factor)[2])
{
    wait_phase(s.probability_full, step);
    factor[0] = s.factors[group_row()], factor[1] = s.factors[group_row() + 8];
}

QN_DEVICE void release_step(const Pieces &s)
{
    mbarrier_arrive(s.probability_empty);
}

// ---- the end of a split

// The group's columns of a split's output, not divided by the rows' totals, to the split's part of the workspace.
template <i32 kColumns>
QN_DEVICE void store_sums(const Tile &t, float *part, i32 first_column, const float (&out)[kColumns / 2])
{
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 row = group_row() + 8 * half;
        if (row >= t.rows) continue;
        float *to = part + 4 * ROWS + row * DV + first_column + 2 * (lane_index() % 4);
#pragma unroll
        for (i32 j = 0; j < kColumns / 8; j++)
            *reinterpret_cast<float2 *>(to + 8 * j) = make_float2(out[4 * j + 2 * half], out[4 * j + 2 * half + 1]);
    }
}

// The rows' other numbers, to the same part: base, total and LSE's sum.
QN_DEVICE void store_heads(const Tile &t, float *part, const Running &r)
{
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 row = group_row() + 8 * half;
        const float total = quad_sum(r.total[half]), sum = LSE ? quad_sum(r.sum[half]) : 0.f;
        if (row < t.rows && lane_index() % 4 == 0)
            *reinterpret_cast<float4 *>(part + 4 * row) = make_float4(r.base[half], total, sum, 0.f);
    }
}
