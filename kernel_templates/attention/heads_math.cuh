// SPDX-License-Identifier: Apache-2.0
// What the computing groups of the plan "heads" do with a block of keys. A group is 128 threads, four warps of 16 rows; a
// thread has rows lane / 4 and eight more of its warp's, and of each eight columns (keys) 2 (lane % 4) and the next.
//
// Scores, softmax and output of a block follow each other in the first group: what keeps the SM busy meanwhile is another
// CTA, or the second group. Every wait for products stands right behind them.
#pragma once

#include "../common/matrix.cuh"
#include "../common/wgmma.cuh"
#include "heads_load.cuh"
#include "product.cuh"
#include "softmax.cuh"

constexpr i32 kSteps = (D + 15) / 16; // of 16 columns of q and k

QN_DEVICE i32 group_warp()
{
    return warp_index() % 4;
}
// The first of this thread's two rows.
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

// ---- softmax

// What a thread keeps of its two rows. Sums are this thread's parts, relative to 2^base.
struct Running {
    float base[2];  // -inf while no score was seen
    float total[2]; // of p as rounded for the product
    float sum[2];   // LSE: of p not rounded
};

// Which keys this thread's rows see.
struct Seen {
    Limits limits;
    Inner inner; // of all rows
};

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
    if (key < seen.inner.first || key + KEYS > seen.inner.last)
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

template <i32 kCount> QN_DEVICE void rescale(float (&out)[kCount], const float (&factor)[2])
{
    if (!__any_sync(kFullMask, factor[0] != 1.f || factor[1] != 1.f)) return;
#pragma unroll
    for (i32 i = 0; i < kCount; i++) out[i] *= factor[i % 4 / 2];
}

// ---- from the first group to the second. A step is a block, or the weights at the end of a tile that is not cut.

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
    __syncwarp();
    warp_arrive(s.probability_full);
}

QN_DEVICE void take_factors(const Pieces &s, u32 step, float (&factor)[2])
{
    wait_phase(s.probability_full, step);
    factor[0] = s.factors[group_row()], factor[1] = s.factors[group_row() + 8];
}

QN_DEVICE void release_step(const Pieces &s)
{
    __syncwarp();
    warp_arrive(s.probability_empty);
}

// ---- the end of a split

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

// The group's columns of its rows, divided: eight of them, 16 bytes, a lane.
template <i32 kColumns>
QN_DEVICE void store_columns(const attention_params &p, const Tile &t, i32 first_column,
                             const float (&out)[kColumns / 2], const float (&weight)[2])
{
    constexpr i32 kTiles = kColumns / 8;
    const i32 quad = lane_index() % 4;
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 row = group_row() + 8 * half;
        u16 *to = out_row(p, t, min(row, t.rows - 1)) + first_column + 8 * quad;
#pragma unroll
        for (i32 begin = 0; begin < kTiles; begin += 4) {
            u32 w[4];
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                const i32 at = 4 * min(begin + i, kTiles - 1) + 2 * half;
                w[i] = weight[half] != 0.f ? pack(out[at] * weight[half], out[at + 1] * weight[half]) : 0u;
            }
            transpose_quad(w);
            if (row < t.rows && begin + quad < kTiles)
                *reinterpret_cast<uint4 *>(to + 8 * begin) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

// The same, not divided, to the workspace.
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

// The rows' other numbers: to the workspace.
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

// What the rows' sums are multiplied with at the end; also writes lse.
QN_DEVICE void finish_rows(const attention_params &p, const Tile &t, const Seen &seen, const Running &r,
                           float (&weight)[2])
{
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 row = group_row() + 8 * half, at = min(row, t.rows - 1);
        const bool sees = is_seen(seen.limits, half);
        const float total = quad_sum(r.total[half]), sum = LSE ? quad_sum(r.sum[half]) : 0.f;
        weight[half] = whole_weight(p, sees, head_of_row(p, t, at), r.base[half], total);
        if (LSE && row < t.rows && lane_index() % 4 == 0) *lse_of_row(p, t, row) = whole_lse(sees, r.base[half], sum);
    }
}
