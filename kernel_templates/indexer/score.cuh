// SPDX-License-Identifier: Apache-2.0
// Scores of a tile by a warp: matrix instructions, ReLU and the weighted sum over heads. An entry's score depends on
// its own bytes and the row's query only: which of two ways it takes, and every order of sums.
//
// Integers: the sum of a head is exact and below 2^21. Clamped at 0 it is a non-negative i32, whose bits are those of the
// f32 sum * 2^-149, so it goes into the multiply-add with the weight as it is.
//
// score_exactly: what the matrix instructions' operands cannot hold (scales too far apart or out of range, NaN): products
// and sums in f64, each dot rounded to f32 once, so that one that f32 cannot hold is an infinity; ReLU keeps NaN.
#pragma once

#include "../common/mma.cuh"
#include "query.cuh"

constexpr u32 kTilesAtATime = kColumnTiles % 2 ? 1 : 2; // two chains of sums for each matrix

static_assert(QUERY_SHARED || !kInteger, "QUERY_SHARED: integers' fragments always fit");

QN_DEVICE void multiply_float(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    if constexpr (kF16)
        mma_m16n8k16_f32_f16(c, a, b, c);
    else
        mma_m16n8k16_f32_bf16(c, a, b, c);
}

// ---- one key an entry: all heads of it

QN_DEVICE void sum_integers(const Query &s, const u32 (&a)[kMatrices][kSteps][4], float (&sum)[kRows])
{
    const u32 column = lane_index() % 4 * 2;
#pragma unroll 1
    for (u32 first = 0; first < kColumnTiles; first += kTilesAtATime) {
        i32 c[kTilesAtATime][kMatrices][4];
#pragma unroll
        for (u32 j = 0; j < kTilesAtATime; j++) {
            const uint4 start = *reinterpret_cast<const uint4 *>(s.scale + 2 * ((first + j) * 8 + column));
#pragma unroll
            for (u32 m = 0; m < kMatrices; m++) {
                c[j][m][0] = (i32)start.x, c[j][m][1] = (i32)start.y;
                c[j][m][2] = (i32)start.z, c[j][m][3] = (i32)start.w;
            }
        }
#pragma unroll
        for (u32 k = 0; k < kSteps; k += kPaired ? 2 : 1) {
            u32 b[kTilesAtATime][kPaired ? 2 : 1][2];
#pragma unroll
            for (u32 j = 0; j < kTilesAtATime; j++) load_fragments(s, first + j, k, b[j]);
#pragma unroll
            for (u32 i = 0; i < (kPaired ? 2 : 1); i++) {
#pragma unroll
                for (u32 j = 0; j < kTilesAtATime; j++) {
#pragma unroll
                    for (u32 m = 0; m < kMatrices; m++) mma_m16n8k32_s32_u8_s8(c[j][m], a[m][k + i], b[j][i], c[j][m]);
                }
            }
        }
#pragma unroll
        for (u32 j = 0; j < kTilesAtATime; j++) {
            const float2 w = *reinterpret_cast<const float2 *>(s.weight + (first + j) * 8 + column);
#pragma unroll
            for (u32 r = 0; r < kRows; r++) {
                sum[r] = fmaf(__int_as_float(max(c[j][r / 2][r % 2 * 2], 0)), w.x, sum[r]);
                sum[r] = fmaf(__int_as_float(max(c[j][r / 2][r % 2 * 2 + 1], 0)), w.y, sum[r]);
            }
        }
    }
}

QN_DEVICE float weighted(float sum, float dot, float factor, float scale, float w)
{
    const float x = kHeadScale ? dot * factor * scale : dot * factor;
    return fmaf(max_or_nan(x, 0.f), w, sum);
}

QN_DEVICE void sum_floats(const indexer_params &p, const Row &row, const Query &s, const u32 (&a)[kMatrices][kSteps][4],
                          const float (&factor)[kRows], float (&sum)[kRows])
{
    const u32 column = lane_index() % 4 * 2;
#pragma unroll 1
    for (u32 first = 0; first < kColumnTiles; first += kTilesAtATime) {
        float c[kTilesAtATime][kMatrices][4];
#pragma unroll
        for (u32 j = 0; j < kTilesAtATime; j++) {
#pragma unroll
            for (u32 m = 0; m < kMatrices; m++) c[j][m][0] = c[j][m][1] = c[j][m][2] = c[j][m][3] = 0.f;
        }
#pragma unroll
        for (u32 u = 0; u < kUnits; u++) {
#pragma unroll
            for (u32 j = 0; j < kTilesAtATime; j++) {
                u32 b[2][2];
                unit_fragments(p, row, s, first + j, u, b);
#pragma unroll
                for (u32 m = 0; m < kMatrices; m++) {
                    multiply_float(c[j][m], a[m][2 * u % kSteps], b[0]);
                    multiply_float(c[j][m], a[m][(2 * u + 1) % kSteps], b[1]);
                }
            }
        }
#pragma unroll
        for (u32 j = 0; j < kTilesAtATime; j++) {
            const float2 w = *reinterpret_cast<const float2 *>(s.weight + (first + j) * 8 + column);
            const float2 scale = *reinterpret_cast<const float2 *>(s.scale + (first + j) * 8 + column);
#pragma unroll
            for (u32 r = 0; r < kRows; r++) {
                sum[r] = weighted(sum[r], c[j][r / 2][r % 2 * 2], factor[r], scale.x, w.x);
                sum[r] = weighted(sum[r], c[j][r / 2][r % 2 * 2 + 1], factor[r], scale.y, w.y);
            }
        }
    }
}

// Which of its rows a lane ends up with: row g + 8 q of 32, or g + 8 (q % 2) of 16, where lanes 2 and 3 repeat 0 and 1.
QN_DEVICE u32 own_part()
{
    return lane_index() % kRows;
}
template <class T> QN_DEVICE T own_of(const T (&each)[kRows])
{
    const u32 q = own_part();
    if constexpr (kRows == 2) return q ? each[1] : each[0];
    return q & 2 ? (q & 1 ? each[kRows - 1] : each[kRows - 2]) : q & 1 ? each[1] : each[0];
}

// Sums over the four lanes of a row, each lane its own row's.
QN_DEVICE float row_sum(const float (&sum)[kRows])
{
    const bool odd = lane_index() & 1, high = lane_index() & 2;
    float kept = odd ? sum[1] : sum[0];
    kept += __shfl_xor_sync(kFullMask, odd ? sum[0] : sum[1], 1);
    if constexpr (kRows == 2) return kept + __shfl_xor_sync(kFullMask, kept, 2);
    float other = odd ? sum[kRows - 1] : sum[kRows - 2];
    other += __shfl_xor_sync(kFullMask, odd ? sum[kRows - 2] : sum[kRows - 1], 1);
    return (high ? other : kept) + __shfl_xor_sync(kFullMask, high ? kept : other, 2);
}

// ---- keys of their own for each head: one head; all columns are equal

QN_DEVICE void add_head(const indexer_params &p, const Row &row, const Query &s, const u32 (&a)[kMatrices][kSteps][4],
                        u32 head, float factor, float (&sum)[kRows])
{
    float c[kMatrices][2][4]; // two chains each, so that one need not wait for the other
#pragma unroll
    for (u32 m = 0; m < kMatrices; m++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) c[m][0][i] = c[m][1][i] = 0.f;
    }
#pragma unroll
    for (u32 u = 0; u < kUnits; u++) {
        u32 b[2][2];
        unit_fragments(p, row, s, head, u, b);
#pragma unroll
        for (u32 m = 0; m < kMatrices; m++) {
            multiply_float(c[m][0], a[m][2 * u % kSteps], b[0]);
            multiply_float(c[m][1], a[m][(2 * u + 1) % kSteps], b[1]);
        }
    }
#pragma unroll
    for (u32 r = 0; r < kRows; r++) {
        const float dot = c[r / 2][0][r % 2 * 2] + c[r / 2][1][r % 2 * 2];
        sum[r] = weighted(sum[r], dot, factor, s.scale[head], s.weight[head]);
    }
}

// ---- the other way

QN_DEVICE double query_element(const indexer_params &p, const u8 *bytes, const u8 *scales, u32 i)
{
    if constexpr (Q == kQBf16) {
        return (double)__uint_as_float((load_byte(bytes + 2 * i) | load_byte(bytes + 2 * i + 1) << 8) << 16);
    } else if constexpr (Q == kQF16) {
        return (double)f32_from_f16((u16)(load_byte(bytes + 2 * i) | load_byte(bytes + 2 * i + 1) << 8));
    } else if constexpr (Q == kQFp8) {
        return (double)f32_of_e4m3(load_byte(bytes + i)) * (double)__uint_as_float(load_word_bytes(scales));
    } else {
        const u32 byte = load_byte(scales + i / 32);
        const double size = (double)f32_of_e2m1(load_byte(bytes + i / 2) >> 4 * (i & 1) & 15u) * (double)power_of(byte);
        return byte == 255 ? (double)not_a_number() : size;
    }
}

QN_DEVICE double key_element(const indexer_params &p, const Entry &e, u32 head, u32 i)
{
    if constexpr (LAYOUT == kFp8Shared) {
        return (double)f32_of_e4m3(load_byte(e.values + i)) * (double)__uint_as_float(load_word_bytes(e.scales));
    } else {
        const u8 *values = e.values + (kHeads ? head * (C / 2) : 0);
        const double value = (double)f32_of_e2m1(load_byte(values + i / 2) >> 4 * (i & 1) & 15u);
        if constexpr (kHeads)
            return value * (double)f32_of_e4m3(load_byte(e.scales + head * (C / 16) + i / 16)) *
                   (double)__ldg(p.tensor_scale);
        const u32 byte = load_byte(e.scales + i / 32);
        return byte == 255 ? (double)not_a_number() : value * (double)power_of(byte);
    }
}

// Four nibbles as signed bytes, twice their values: numbers below 0 are taken from 0, byte by byte.
QN_DEVICE u32 twice_of(u32 x)
{
    const u32 above = permute_bytes(0x03020100u, 0x0C080604u, x);
    const u32 below = permute_bytes(0x03020100u, 0x0C080604u, x ^ 0x8888u);
    return ((above | 0x80808080u) - below) ^ 0x80808080u;
}

// FP4 by FP4: a group's sum is an integer, so f64 is needed for the powers of two only.
QN_DEVICE double dot_of_codes(const indexer_params &p, const Entry &e, const u8 *bytes, const u8 *scales)
{
    double dot = 0;
#pragma unroll 1
    for (u32 g = 0; g < kGroups; g++) {
        const u32 key_scale = load_byte(e.scales + g), scale = load_byte(scales + g);
        i32 sum = 0;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 k = load_word(e.values + 16 * g + 4 * i, p.keys_aligned);
            const u32 x = load_word(bytes + 16 * g + 4 * i, p.q_aligned);
            sum = dot_s8x4(twice_of(k), twice_of(x), sum);
            sum = dot_s8x4(twice_of(k >> 16), twice_of(x >> 16), sum);
        }
        const double power = (double)power_of(key_scale) * (double)power_of(scale) * 0.25;
        dot += key_scale == 255 || scale == 255 ? (double)not_a_number() : (double)sum * power;
    }
    return dot;
}

QN_DEVICE double dot_of_elements(const indexer_params &p, const Entry &e, u32 head, const u8 *bytes, const u8 *scales)
{
    double dot = 0;
#pragma unroll 1
    for (u32 i = 0; i < C; i++) dot += query_element(p, bytes, scales, i) * key_element(p, e, head, i);
    return dot;
}

// The score of entry s, by the whole warp: a lane a head, then a tree.
QN_NOINLINE float score_exactly(const indexer_params &p, i64 number, u32 s)
{
    const Row row = row_of(p, number);
    const Entry e = entry_at(p, row, s, page_of(row, s));
    const float *w = reinterpret_cast<const float *>(reinterpret_cast<const u8 *>(p.w) + row.number * p.w_stride_T);
    float sum = 0.f;
#pragma unroll 1
    for (u32 head = lane_index(); head < H; head += kWarp) {
        const u8 *bytes = head_bytes(p, row, head);
        const u8 *scales = p.q_scale + row.number * p.q_scale_stride_T + head * p.q_scale_stride_H;
        const double dot = kInteger ? dot_of_codes(p, e, bytes, scales) : dot_of_elements(p, e, head, bytes, scales);
        sum = fmaf(max_or_nan((float)dot, 0.f), __ldg(w + head), sum);
    }
    return warp_sum(sum);
}
