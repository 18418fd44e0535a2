// SPDX-License-Identifier: Apache-2.0
// What a warpgroup does with 64 rows of scores, in the plans "wgmma" and "heads": descriptors of the products' operands,
// softmax, probabilities as an operand, the end of the rows. A group is 128 threads, four warps of 16 rows; a thread has
// rows lane / 4 and eight more of its warp's, and of each eight columns (keys) 2 (lane % 4) and the next: the layout that
// softmax.cuh works on.
#pragma once

#include "../common/wgmma.cuh"
#include "product.cuh"
#include "softmax.cuh"

constexpr i32 kSteps = (D + 15) / 16; // of 16 columns of q and k

QN_DEVICE i32 group_warp()
{
    return warp_index() % 4;
}
// The first of this thread's two rows, among the group's 64.
QN_DEVICE i32 group_row()
{
    return group_warp() * 16 + lane_index() / 4;
}

// ---- descriptors

// The low word of a matrix' descriptor; the high word is the same for all: 1024 bytes from eight rows to the next, and
// the swizzle. A low word never carries, and it is hidden from the compiler where it is used, which would otherwise keep
// dozens of sums of it, one a product, in registers. Read from lane 0 it is known to be the same for all: then it is in a
// uniform register, where products take it from, and so are its sums.
QN_DEVICE u64 descriptor_at(u32 low, i32 bytes)
{
    constexpr u64 kHigh = (u64)(1024 >> 4) << 32 | (u64)kSwizzle128 << 62;
    return kHigh | (low + (u32)(bytes >> 4));
}
QN_DEVICE u32 low_of(const unsigned char *start, u32 leading)
{
    u32 low[1] = {(u32)wgmma_descriptor(start, leading, 1024, kSwizzle128)};
    wgmma_fence_operand(low);
    return __shfl_sync(kFullMask, low[0], 0);
}

// 0, which the compiler takes for different in each lane: what is counted from it is too, and so low_of keeps its shuffle.
QN_DEVICE u32 zero_of_lane()
{
    u32 hidden[1] = {(u32)thread_index()};
    wgmma_fence_operand(hidden);
    return hidden[0] >> 16;
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

// A group's rows, and which keys they see.
struct Seen {
    i32 row; // this thread's first, among the tile's
    Limits limits;
    Inner inner; // of all 64 rows
};

// The largest score of each row, in every lane of the row. A NaN is passed over. Several chains of maxima a row at first,
// and both rows side by side: instructions that wait for each other were half of a block's time at head_dim 64.
QN_DEVICE void max_of_block(const float (&x)[KEYS / 8][4], float (&most)[2])
{
    constexpr i32 kChains = KEYS / 8 < 4 ? KEYS / 8 : 4;
    float m[2][kChains];
#pragma unroll
    for (i32 j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (i32 half = 0; half < 2; half++) {
            const float next = fmaxf(x[j][2 * half], x[j][2 * half + 1]);
            m[half][j % kChains] = j < kChains ? next : fmaxf(m[half][j % kChains], next);
        }
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        most[half] = m[half][0];
#pragma unroll
        for (i32 i = 1; i < kChains; i++) most[half] = fmaxf(most[half], m[half][i]);
    }
#pragma unroll
    for (i32 distance = 1; distance < 4; distance *= 2) {
        const float other[2] = {__shfl_xor_sync(kFullMask, most[0], distance),
                                __shfl_xor_sync(kFullMask, most[1], distance)};
        most[0] = fmaxf(most[0], other[0]), most[1] = fmaxf(most[1], other[1]);
    }
}

// The next whole number above, of numbers below 2^21, and -inf of that; sooner than whole_above, which shares a unit with
// the exponentials.
QN_DEVICE float whole_above_near(float x)
{
    const float whole = __fadd_rn(__fadd_rn(x, 0x1.8p23f), -0x1.8p23f);
    return whole < x ? __fadd_rn(whole, 1.f) : whole;
}

// A score's probability: 2^(score · unit - base).
struct Power {
    float unit, base[2];
};

// Caps and masks the scores of the block at `key`. kAlways: also mask where all rows see all.
template <bool kAlways>
QN_DEVICE void prepare_scores(const attention_params &p, const Seen &seen, i32 key, float (&scores)[KEYS / 2])
{
    float(&x)[KEYS / 8][4] = reinterpret_cast<float(&)[KEYS / 8][4]>(scores);
    if constexpr (SOFTCAP || NEGATIVE) {
#pragma unroll
        for (i32 i = 0; i < KEYS / 2; i++) scores[i] = score_of(p, scores[i]);
    }
    if (kAlways || key < seen.inner.first || key + KEYS > seen.inner.last)
        mask_scores(x, seen.limits, key + 2 * (lane_index() % 4));
}

// Whether a row's base stays where it is while none of a block's probabilities reaches 2. Their bits are the same at any
// base, as long as they are not too small for 16 bits: so it is first put some way above the largest score, further for
// bf16, which has the exponents for it. With a cap there are no registers to keep the scores for a second try.
constexpr bool kBasesStay = !SOFTCAP;
constexpr float kHeadroom = IN == 3 ? 6.f : 0.f; // f16: more, and subnormal probabilities would lose a bit each

// The base of a row for scores up to `whole`.
template <bool kStays> QN_DEVICE float base_for(float base, float whole)
{
    if constexpr (kStays) return whole > __fadd_rn(base, 1.f) ? __fadd_rn(whole, kHeadroom) : base;
    return fmaxf(base, whole);
}

// Raises the bases to a block's scores; factor: for sums so far. Where bases are so large that the rounding of scores times
// the unit counts, scores become their differences from the base.
template <bool kStays>
QN_DEVICE Power raise_bases(const attention_params &p, float (&scores)[KEYS / 2], Running &r, float (&factor)[2])
{
    const float unit = unit_log2(p);
    float(&x)[KEYS / 8][4] = reinterpret_cast<float(&)[KEYS / 8][4]>(scores);
    float most[2], base[2];
    Power power = {unit, {0.f, 0.f}};
    max_of_block(x, most);
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        base[half] = base_for<kStays>(r.base[half], whole_above_near(__fmul_rn(most[half], unit)));
        power.base[half] = base_or_zero(base[half]);
    }
    if (QN_UNLIKELY(__any_sync(kFullMask, !(fabsf(power.base[0]) < 0x1p21f && fabsf(power.base[1]) < 0x1p21f)))) {
#pragma unroll
        for (i32 half = 0; half < 2; half++) {
            base[half] = fmaxf(r.base[half], whole_base(most[half], unit));
            power.base[half] = base_or_zero(base[half]);
        }
#pragma unroll
        for (i32 i = 0; i < KEYS / 2; i++) scores[i] = __fadd_rn(__fmul_rn(scores[i], unit), -power.base[i % 4 / 2]);
        power.unit = 1.f, power.base[0] = power.base[1] = 0.f;
    }
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        factor[half] = whole_factor(r.base[half], base[half]);
        r.base[half] = base[half];
        r.total[half] *= factor[half];
        if constexpr (LSE) r.sum[half] *= factor[half];
    }
    return power;
}

template <bool kAlways>
QN_DEVICE Power raise(const attention_params &p, const Seen &seen, i32 key, float (&scores)[KEYS / 2], Running &r,
                      float (&factor)[2])
{
    prepare_scores<kAlways>(p, seen, key, scores);
    return raise_bases<false>(p, scores, r, factor);
}

// Scores become probabilities; with LSE the thread's part of each row's sum is added to sum.
QN_DEVICE void exponentials(float (&scores)[KEYS / 2], const Power &power, float (&sum)[2])
{
#pragma unroll
    for (i32 i = 0; i < KEYS / 2; i++) {
        scores[i] = ex2_ftz(fmaf(scores[i], power.unit, -power.base[i % 4 / 2]));
        if constexpr (LSE) sum[i % 4 / 2] += scores[i];
    }
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

// Probabilities as the operand of the next product; what was rounded away does not count in the totals either. kTotals: if
// these are not a product too.
template <bool kTotals>
QN_DEVICE void pack_probabilities(const float (&x)[KEYS / 2], u32 (&p)[KEYS / 16][4], float (&total)[2])
{
    float parts[2][2] = {{0.f, 0.f}, {0.f, 0.f}};
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++)
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            p[step][i] = pack(x[8 * step + 2 * i], x[8 * step + 2 * i + 1]);
            if constexpr (kTotals) parts[i % 2][0] += low_value(p[step][i]), parts[i % 2][1] += high_value(p[step][i]);
        }
#pragma unroll
    for (i32 half = 0; half < 2; half++) total[half] += parts[half][0] + parts[half][1];
}

// What a block adds to a thread's parts of its rows' sums.
struct BlockSums {
    float total[2], sum[2];
};

// Scores to probabilities as the operand of the next product; the scores stay. True: none is 2 or more, nor NaN.
template <bool kTotals>
QN_DEVICE bool probabilities_of(const float (&x)[KEYS / 2], const Power &power, u32 (&p)[KEYS / 16][4], BlockSums &sums)
{
    constexpr u32 kTwoOrMore = 0x40004000u; // the highest bits of the exponents, in bf16 and in f16
    float parts[2][2] = {{0.f, 0.f}, {0.f, 0.f}};
    u32 bits[4] = {0, 0, 0, 0};
    sums.sum[0] = sums.sum[1] = 0.f;
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++)
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            const float a = ex2_ftz(fmaf(x[8 * step + 2 * i], power.unit, -power.base[i % 2]));
            const float b = ex2_ftz(fmaf(x[8 * step + 2 * i + 1], power.unit, -power.base[i % 2]));
            if constexpr (LSE) sums.sum[i % 2] += a, sums.sum[i % 2] += b;
            p[step][i] = pack(a, b);
            bits[i] |= p[step][i];
            if constexpr (kTotals) parts[i % 2][0] += low_value(p[step][i]), parts[i % 2][1] += high_value(p[step][i]);
        }
#pragma unroll
    for (i32 half = 0; half < 2; half++) sums.total[half] = parts[half][0] + parts[half][1];
    return !((bits[0] | bits[1] | bits[2] | bits[3]) & kTwoOrMore);
}

QN_DEVICE void add_sums(Running &r, const BlockSums &sums)
{
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        r.total[half] += sums.total[half];
        if constexpr (LSE) r.sum[half] += sums.sum[half];
    }
}

// The softmax of a block whose scores are prepared; factor: for sums so far. With the block's maxima, as a first one needs.
template <bool kTotals>
QN_DEVICE void soften_by_maxima(const attention_params &p, float (&x)[KEYS / 2], Running &r,
                                u32 (&probabilities)[KEYS / 16][4], float (&factor)[2])
{
    BlockSums sums;
    probabilities_of<kTotals>(x, raise_bases<kBasesStay>(p, x, r, factor), probabilities, sums);
    add_sums(r, sums);
}

// The same, without: nearly always the bases so far do, and whether they do is seen from the probabilities in a few
// instructions, where maxima are a long chain in front of the exponentials. True: they did, and there is no factor.
template <bool kTotals>
QN_DEVICE bool soften(const attention_params &p, float (&x)[KEYS / 2], Running &r, u32 (&probabilities)[KEYS / 16][4],
                      float (&factor)[2])
{
    BlockSums sums;
    const Power power = {unit_log2(p), {r.base[0], r.base[1]}};
    const bool fits = probabilities_of<kTotals>(x, power, probabilities, sums);
    if (!__any_sync(kFullMask, !(fits && fabsf(r.base[0]) < 0x1p21f && fabsf(r.base[1]) < 0x1p21f))) {
        add_sums(r, sums);
        return true;
    }
    soften_by_maxima<kTotals>(p, x, r, probabilities, factor);
    return false;
}

template <i32 kCount> QN_DEVICE void rescale(float (&out)[kCount], const float (&factor)[2])
{
    if (!__any_sync(kFullMask, factor[0] != 1.f || factor[1] != 1.f)) return;
#pragma unroll
    for (i32 i = 0; i < kCount; i++) out[i] *= factor[i % 4 / 2];
}

// ---- the end of the rows

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

// The group's columns of its rows, times the weights: eight of them, 16 bytes, a lane. Rows that see no key are 0.
template <i32 kColumns, i32 kCount>
QN_DEVICE void store_columns(const attention_params &p, const Tile &t, i32 first_row, const bool (&sees)[2],
                             i32 first_column, const float (&out)[kCount], const float (&weight)[2])
{
    constexpr i32 kTiles = kColumns / 8;
    const i32 quad = lane_index() % 4;
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 row = first_row + 8 * half;
        const bool is_row = row < t.rows;
        u16 *to = out_row(p, t, min(row, t.rows - 1)) + first_column + 8 * quad;
#pragma unroll
        for (i32 begin = 0; begin < kTiles; begin += 4) {
            u32 w[4];
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                const i32 at = 4 * min(begin + i, kTiles - 1) + 2 * half;
                w[i] = sees[half] ? pack(out[at] * weight[half], out[at + 1] * weight[half]) : 0u;
            }
            transpose_quad(w);
            if (is_row && begin + quad < kTiles)
                *reinterpret_cast<uint4 *>(to + 8 * begin) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

// What the rows' sums are multiplied with at the end; also writes lse. kWhole: every lane of a row has its total.
template <bool kWhole>
QN_DEVICE void finish_rows(const attention_params &p, const Tile &t, const Seen &seen, const Running &r,
                           float (&weight)[2])
{
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 row = seen.row + 8 * half, at = min(row, t.rows - 1);
        const bool sees = is_seen(seen.limits, half);
        const float total = kWhole ? r.total[half] : quad_sum(r.total[half]);
        const float sum = LSE ? quad_sum(r.sum[half]) : 0.f;
        weight[half] = whole_weight(p, sees, head_of_row(p, t, at), r.base[half], total);
        if (LSE && row < t.rows && lane_index() % 4 == 0) *lse_of_row(p, t, row) = whole_lse(sees, r.base[half], sum);
    }
}
