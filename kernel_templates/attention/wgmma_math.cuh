// SPDX-License-Identifier: Apache-2.0
// The products of the plan "wgmma", by wgmma, and which rows a computing group has. What it does with scores: group.cuh.
//
// Accumulators stay in one array each, from the first product to the wait; the empty fences keep the compiler from
// touching them between.
#pragma once

#include "../common/matrix.cuh"
#include "group.cuh"
#include "wgmma_shared.cuh"

// ---- products

// x[64 rows, KEYS] (+)= q · k over the columns of a piece of the keys.
QN_DEVICE void issue_scores(float (&x)[KEYS / 2], u32 queries, u32 keys, i32 piece)
{
    const i32 begin = 4 * piece_begin(kChunks, kKeyPieces, piece);
    const i32 end = min(4 * piece_begin(kChunks, kKeyPieces, piece + 1), kSteps);
#pragma unroll
    for (i32 step = begin; step < end; step++) {
        const u64 a = descriptor_at(queries, step / 4 * kQueryChunkBytes + step % 4 * 32);
        const u64 b = descriptor_at(keys, step / 4 * kKeyChunkBytes + step % 4 * 32);
        if constexpr (IN == 3)
            wgmma_f32_bf16<KEYS>(x, a, b, step > 0);
        else
            wgmma_f32_f16<KEYS>(x, a, b, step > 0);
    }
}

// out[64 rows, kColumns] (+)= p · v with p in registers. At DV 64 the chunk of ones stays where it is from step to step, so
// its distance, the upper half of the word, becomes less.
template <i32 kColumns>
QN_DEVICE void issue_values(float (&out)[kColumns / 2], const u32 (&p)[KEYS / 16][4], u32 values, bool accumulate)
{
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++) {
        const u32 nearer = kOnesBytes > 0 ? (u32)(step * 16 * 128 >> 4) << 16 : 0;
        const u64 b = descriptor_at(values - nearer, step * 16 * 128);
        if constexpr (IN == 3)
            wgmma_f32_bf16<kColumns, 1>(out, p[step], b, accumulate || step > 0);
        else
            wgmma_f32_f16<kColumns, 1>(out, p[step], b, accumulate || step > 0);
    }
}

// The same with p in shared memory.
template <i32 kColumns>
QN_DEVICE void issue_values(float (&out)[kColumns / 2], u32 probabilities, u32 values, bool accumulate)
{
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++) {
        const u64 a = descriptor_at(probabilities, step * 32), b = descriptor_at(values, step * 16 * 128);
        if constexpr (IN == 3)
            wgmma_f32_bf16<kColumns, 0, 1>(out, a, b, accumulate || step > 0);
        else
            wgmma_f32_f16<kColumns, 0, 1>(out, a, b, accumulate || step > 0);
    }
}

QN_DEVICE u32 low_of_values(const Pieces &s, u32 stage, i32 piece)
{
    const unsigned char *values = s.values + stage * kValueStageBytes + columns_before(piece) / 64 * kKeyChunkBytes;
    return low_of(values, kOnesBytes > 0 ? (u32)(s.ones - values) : (u32)kKeyChunkBytes);
}

// Waits for each piece of the keys and begins with it; the piece before is given back as soon as it is used up.
QN_DEVICE void begin_scores(const Pieces &s, i32 row_group, u32 number, float (&x)[KEYS / 2])
{
    const u32 stage = number % kStages, phase = number / kStages;
    const u32 queries = low_of(s.queries + row_group * kChunks * kQueryChunkBytes, 0);
    const u32 keys = low_of(s.keys + stage * kKeyStageBytes, 0);
#pragma unroll
    for (i32 piece = 0; piece < kKeyPieces; piece++) {
        wait_phase(s.key_full + stage * kKeyPieces + piece, phase);
        wgmma_fence_operand(x);
        wgmma_fence();
        issue_scores(x, queries, keys, piece);
        wgmma_commit_group();
        if (piece == 0) continue;
        wgmma_wait_group<1>();
        warp_arrive(s.key_empty + stage * kKeyPieces + piece - 1);
    }
}

// After a block's scores, its last piece; after a tile's last ones the queries are used up too.
QN_DEVICE void release_keys(const Pieces &s, u32 number, bool is_last)
{
    __syncwarp();
    if (lane_index() != 0) return;
    mbarrier_arrive(s.key_empty + (number % kStages + 1) * kKeyPieces - 1);
    if (is_last) mbarrier_arrive(s.query_empty);
}

// ---- softmax

QN_DEVICE Seen seen_of(const attention_params &p, const Tile &t, i32 row_group)
{
    Seen seen;
    i32 unused;
    const i32 first = min(64 * row_group, t.rows - 1), last = min(64 * row_group + 63, t.rows - 1);
    seen.row = 64 * row_group + group_row();
    seen.limits = limits_of(p, t, seen.row);
    key_range(p, t.sequence, query_of_row(p, t, last), 0, &seen.inner.first, &unused);
    key_range(p, t.sequence, 0, query_of_row(p, t, first), &unused, &seen.inner.last);
    return seen;
}

// With all of these there are no registers for the bounds between which blocks need no mask.
constexpr bool kMasksAll = SOFTCAP && (kVarlen || LENGTHS) && COLUMNS == 2;

// Whether a block's probabilities are made before the wait for the products of the block before, in registers of their own:
// two blocks take turns in these. With more features there are none left for it.
constexpr i32 kFeatureRegisters = LSE && (kVarlen || kPaged || LENGTHS || WINDOW_LEFT) ? 16 : 0;
constexpr bool kPacksEarly =
    COLUMNS == 1 && kGroups == 2 && kBasesStay && (DV + kSumColumns) / 2 + KEYS + kFeatureRegisters <= 200;

// zero: 0, which the compiler cannot know. A plain copy it would do away with, by making `from` in the place of `to`
// while wgmma still reads that.
QN_DEVICE void copy_probabilities(const u32 (&from)[KEYS / 16][4], u32 (&to)[KEYS / 16][4], u32 zero)
{
#pragma unroll
    for (i32 i = 0; i < KEYS / 4; i++) to[i / 4][i % 4] = from[i / 4][i % 4] | zero;
}

// ---- the end of a tile

// The tile again: computed anew rather than kept in registers while its blocks are worked on.
QN_DEVICE Tile tile_again(const attention_params &p, i32 number)
{
    u32 hidden[1] = {(u32)number};
    wgmma_fence_operand(hidden);
    return tile_at(p, (i32)hidden[0]);
}
