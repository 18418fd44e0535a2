// SPDX-License-Identifier: Apache-2.0
// What a computing group of the plan "wgmma" does with a block of keys: products by wgmma, scores to probabilities, the
// end of a tile. A group is 128 threads, four warps of 16 rows; a thread has rows lane / 4 and eight more of its warp's,
// and of each eight columns (keys) 2 (lane % 4) and the next: the layout that softmax.cuh works on.
//
// Accumulators stay in one array each, from the first product to the wait; the empty fences keep the compiler from
// touching them between.
#pragma once

#include "../common/convert.cuh"
#include "../common/matrix.cuh"
#include "../common/wgmma.cuh"
#include "softmax.cuh"
#include "wgmma_shared.cuh"

constexpr i32 kSteps = (D + 15) / 16; // of 16 columns of q and k

QN_DEVICE u32 pack(float low, float high)
{
    return IN == 3 ? pack_bf16x2(low, high) : pack_f16x2(low, high);
}

QN_DEVICE i32 group_warp()
{
    return warp_index() % 4;
}
// The first of this thread's two rows, among the group's 64.
QN_DEVICE i32 group_row()
{
    return group_warp() * 16 + lane_index() / 4;
}

// ---- products

// The low word of a matrix' descriptor; the high word is the same for all: 1024 bytes from eight rows to the next, and
// the swizzle. A low word never carries, and it is hidden from the compiler where it is used, which would otherwise keep
// dozens of sums of it, one a product, in registers.
QN_DEVICE u64 descriptor_at(u32 low, i32 bytes)
{
    constexpr u64 kHigh = (u64)(1024 >> 4) << 32 | (u64)kSwizzle128 << 62;
    return kHigh | (low + (u32)(bytes >> 4));
}
QN_DEVICE u32 low_of(const unsigned char *start, u32 leading)
{
    u32 low[1] = {(u32)wgmma_descriptor(start, leading, 1024, kSwizzle128)};
    wgmma_fence_operand(low);
    return low[0];
}

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

// out[64 rows, kColumns] (+)= p · v with p in registers.
template <i32 kColumns>
QN_DEVICE void issue_values(float (&out)[kColumns / 2], const u32 (&p)[KEYS / 16][4], u32 values, bool accumulate)
{
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++) {
        const u64 b = descriptor_at(values, step * 16 * 128);
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
    return low_of(s.values + stage * kValueStageBytes + columns_before(piece) / 64 * kKeyChunkBytes, kKeyChunkBytes);
}

// Waits for each piece of the keys and begins with it.
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
    }
    wgmma_commit_group();
}

// Until the keys of a block are there: sooner than begin_scores needs them, for the sake of where this stands. The compiler
// moves arithmetic behind the wait for other products that follows, where it would overlap with nothing, but not behind a
// jump that depends on it; and `totals` depend on all of it. (They are never negative; with a NaN this does not wait.)
QN_DEVICE void finish_softmax(const Pieces &s, bool is_next, u32 number, const float (&totals)[2])
{
    if (!__any_sync(kFullMask, is_next && totals[0] + totals[1] >= 0.f)) return;
#pragma unroll
    for (i32 piece = 0; piece < kKeyPieces; piece++)
        wait_phase(s.key_full + number % kStages * kKeyPieces + piece, number / kStages);
}

QN_DEVICE void release_keys(const Pieces &s, u32 number)
{
#pragma unroll
    for (i32 piece = 0; piece < kKeyPieces; piece++) warp_arrive(s.key_empty + number % kStages * kKeyPieces + piece);
}

// ---- softmax

// What a thread keeps of its two rows. Sums are this thread's parts, relative to 2^base.
struct Running {
    float base[2];  // -inf while no score was seen
    float total[2]; // of p as rounded for the product
    float sum[2];   // LSE: of p not rounded
};

QN_DEVICE void running_clear(Running &r)
{
    r.base[0] = r.base[1] = -infinity();
    r.total[0] = r.total[1] = r.sum[0] = r.sum[1] = 0.f;
}

// A row group's rows, and which keys they see.
struct Seen {
    i32 row; // this thread's first, among the tile's
    Limits limits;
    Inner inner; // of all 64 rows
};

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

// The largest score of each row, in every lane of the row. A NaN is passed over. Four maxima a row at first: a single one
// would be a chain of instructions that wait for each other.
QN_DEVICE void max_of_block(const float (&x)[KEYS / 8][4], float (&most)[2])
{
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        float m[4] = {-infinity(), -infinity(), -infinity(), -infinity()};
#pragma unroll
        for (i32 j = 0; j < KEYS / 8; j++) m[j % 4] = fmaxf(m[j % 4], fmaxf(x[j][2 * half], x[j][2 * half + 1]));
        most[half] = quad_max(fmaxf(fmaxf(m[0], m[1]), fmaxf(m[2], m[3])));
    }
}

// With all of these there are no registers for the bounds between which blocks need no mask.
constexpr bool kMasksAll = SOFTCAP && (kVarlen || LENGTHS) && COLUMNS == 2;

// Scores of the block at `key` become probabilities; factor: for sums so far.
QN_DEVICE void soften(const attention_params &p, const Seen &seen, i32 key, float (&scores)[KEYS / 2], Running &r,
                      float (&factor)[2])
{
    const float unit = unit_log2(p);
    float(&x)[KEYS / 8][4] = reinterpret_cast<float(&)[KEYS / 8][4]>(scores);
    if constexpr (SOFTCAP || NEGATIVE) {
#pragma unroll
        for (i32 i = 0; i < KEYS / 2; i++) scores[i] = score_of(p, scores[i]);
    }
    if (kMasksAll || key < seen.inner.first || key + KEYS > seen.inner.last)
        mask_scores(x, seen.limits, key + 2 * (lane_index() % 4));
    float most[2];
    max_of_block(x, most);
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const float base = fmaxf(r.base[half], whole_base(most[half], unit));
        factor[half] = whole_factor(r.base[half], base);
        r.base[half] = base;
        r.total[half] *= factor[half];
        if constexpr (LSE) r.sum[half] *= factor[half];
    }
    whole_exponentials(x, r.base, unit, r.sum);
}

// The two halves of a word of probabilities, as numbers.
QN_DEVICE float low_value(u32 pair)
{
    return IN == 3 ? __uint_as_float(pair << 16) : f32_from_f16((u16)(pair & 0xFFFFu));
}
QN_DEVICE float high_value(u32 pair)
{
    return IN == 3 ? __uint_as_float(pair & 0xFFFF0000u) : f32_from_f16((u16)(pair >> 16));
}

// Probabilities as the operand of the next product; what was rounded away does not count in the totals either.
QN_DEVICE void pack_probabilities(const float (&x)[KEYS / 2], u32 (&p)[KEYS / 16][4], float (&total)[2])
{
    float parts[2][2] = {{0.f, 0.f}, {0.f, 0.f}};
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++)
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            p[step][i] = pack(x[8 * step + 2 * i], x[8 * step + 2 * i + 1]);
            parts[i % 2][0] += low_value(p[step][i]), parts[i % 2][1] += high_value(p[step][i]);
        }
#pragma unroll
    for (i32 half = 0; half < 2; half++) total[half] += parts[half][0] + parts[half][1];
}

// Whether a block's probabilities are packed before the wait for the products of the block before. That overlaps more, and
// costs a copy: it pays for wide outputs, where products take long. With a cap there are no registers for it.
constexpr bool kPacksEarly = COLUMNS == 1 && DV > 192 && !SOFTCAP;

// zero: 0, which the compiler cannot know. A plain copy it would do away with, by making `from` in the place of `to`
// while wgmma still reads that.
QN_DEVICE void copy_probabilities(const u32 (&from)[KEYS / 16][4], u32 (&to)[KEYS / 16][4], u32 zero)
{
#pragma unroll
    for (i32 i = 0; i < KEYS / 4; i++) to[i / 4][i % 4] = from[i / 4][i % 4] | zero;
}

template <i32 kCount> QN_DEVICE void rescale(float (&out)[kCount], const float (&factor)[2])
{
    if (!__any_sync(kFullMask, factor[0] != 1.f || factor[1] != 1.f)) return;
#pragma unroll
    for (i32 i = 0; i < kCount; i++) out[i] *= factor[i % 4 / 2];
}

// ---- the end of a tile

// The tile again: computed anew rather than kept in registers while its blocks are worked on.
QN_DEVICE Tile tile_again(const attention_params &p, i32 number)
{
    u32 hidden[1] = {(u32)number};
    wgmma_fence_operand(hidden);
    return tile_at(p, (i32)hidden[0]);
}

// Word i of lane q of each four lanes goes to lane i as word q.
QN_DEVICE void transpose_quad(u32 (&w)[4])
{
    const bool odd = lane_index() & 1, high = lane_index() & 2;
#pragma unroll
    for (i32 i = 0; i < 4; i += 2) {
        const u32 got = __shfl_xor_sync(kFullMask, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? got : w[i], w[i + 1] = odd ? w[i + 1] : got;
    }
#pragma unroll
    for (i32 i = 0; i < 2; i++) {
        const u32 got = __shfl_xor_sync(kFullMask, high ? w[i] : w[i + 2], 2);
        w[i] = high ? got : w[i], w[i + 2] = high ? w[i + 2] : got;
    }
}

// The group's columns of its rows: eight of them, 16 bytes, a lane.
template <i32 kColumns>
QN_DEVICE void store_columns(const attention_params &p, const Tile &t, const Seen &seen, i32 first_column,
                             const float (&out)[kColumns / 2], const float (&weight)[2])
{
    constexpr i32 kTiles = kColumns / 8;
    const i32 quad = lane_index() % 4;
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 row = seen.row + 8 * half;
        const bool is_row = row < t.rows, sees = is_seen(seen.limits, half);
        u16 *to = out_row(p, t, min(row, t.rows - 1)) + first_column + 8 * quad;
#pragma unroll
        for (i32 begin = 0; begin < kTiles; begin += 4) {
            u32 w[4];
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                const i32 at = 4 * min(begin + i, kTiles - 1) + 2 * half;
                w[i] = sees ? pack(out[at] * weight[half], out[at + 1] * weight[half]) : 0u;
            }
            transpose_quad(w);
            if (is_row && begin + quad < kTiles)
                *reinterpret_cast<uint4 *>(to + 8 * begin) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

// What the rows' sums are multiplied with at the end; also writes lse.
QN_DEVICE void finish_rows(const attention_params &p, const Tile &t, const Seen &seen, const Running &r,
                           float (&weight)[2])
{
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 row = seen.row + 8 * half, at = min(row, t.rows - 1);
        const bool sees = is_seen(seen.limits, half);
        const float total = quad_sum(r.total[half]), sum = LSE ? quad_sum(r.sum[half]) : 0.f;
        weight[half] = whole_weight(p, sees, head_of_row(p, t, at), r.base[half], total);
        if (LSE && row < t.rows && lane_index() % 4 == 0) *lse_of_row(p, t, row) = whole_lse(sees, r.base[half], sum);
    }
}
