// SPDX-License-Identifier: Apache-2.0
// Scores to probabilities, block after block of keys: cap, mask, running maximum, exponentials, sums. Works on the
// accumulators of the matrix instructions, of which a thread has, of each tile of 16 rows and 8 keys,
//
//     x[j][i]   row g + 8 (i / 2), key 8 j + 2 q + i % 2        g = lane / 4, q = lane % 4
//
// so a row's scores are with four lanes (and with COLUMNS warps, if these share its keys).
//
// A block that a row does not see changes no bit of it: its base stays, so the factor is exactly 1, and it adds zeros.
#pragma once

#include "../common/convert.cuh"
#include "../common/numbers.cuh"
#include "problem.cuh"

// ---- the unit: what a score is multiplied with, for powers of 2

QN_DEVICE float unit_log2(const attention_params &p)
{
    return SOFTCAP ? kLog2E : p.scale_log2;
}

// tanh within a few ulp: the difference of two near numbers is avoided by a series.
QN_DEVICE float tanh_accurate(float x)
{
    const float a = fabsf(x), s = a * a;
    const float series =
        fmaf(a * s, fmaf(s, fmaf(s, fmaf(s, 62.f / 2835.f, -17.f / 315.f), 2.f / 15.f), -1.f / 3.f), a);
    const float large = 1.f - 2.f * reciprocal(ex2(a * (2.f * kLog2E)) + 1.f);
    const float t = a < 0.3f ? series : large;
    return x < 0.f ? -t : t;
}

QN_DEVICE float score_of(const attention_params &p, float x)
{
    if constexpr (NEGATIVE) x = -x;
    if constexpr (SOFTCAP) x = p.softcap * tanh_accurate(x * (p.scale / p.softcap));
    return x;
}

// ---- mask

// Keys that a thread's two rows of a tile of 16 see: first … last - 1.
struct Limits {
    i32 first[2], last[2];
};

QN_DEVICE Limits limits_of(const attention_params &p, const Tile &tile, i32 row)
{
    Limits l;
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 query = query_of_row(p, tile, min(row + 8 * half, tile.rows - 1));
        key_range(p, tile.sequence, query, query, &l.first[half], &l.last[half]);
    }
    return l;
}

QN_DEVICE bool is_seen(const Limits &l, i32 half)
{
    return l.first[half] < l.last[half];
}

// Keys that every row of the tile sees: blocks inside need no mask.
struct Inner {
    i32 first, last;
};

QN_DEVICE Inner inner_of(const attention_params &p, const Tile &tile)
{
    Inner inner;
    i32 unused;
    key_range(p, tile.sequence, query_of_row(p, tile, tile.rows - 1), 0, &inner.first, &unused);
    key_range(p, tile.sequence, 0, query_of_row(p, tile, 0), &unused, &inner.last);
    return inner;
}

// key: of this thread's first score.
template <int kTiles> QN_DEVICE void mask_scores(float (&x)[kTiles][4], const Limits &l, i32 key)
{
#pragma unroll
    for (i32 j = 0; j < kTiles; j++) {
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            const i32 at = key + 8 * j + i % 2;
            const bool seen = (!WINDOW_LEFT || at >= l.first[i / 2]) && at < l.last[i / 2];
            x[j][i] = seen ? x[j][i] : -infinity();
        }
    }
}

// ---- maximum

// Over the four lanes of a row.
QN_DEVICE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(kFullMask, x, 1));
    return fmaxf(x, __shfl_xor_sync(kFullMask, x, 2));
}
QN_DEVICE float quad_sum(float x)
{
    x += __shfl_xor_sync(kFullMask, x, 1);
    return x + __shfl_xor_sync(kFullMask, x, 2);
}

// Of each of the two rows, in every lane of the row. A NaN is passed over: it stays in the sums.
template <int kTiles> QN_DEVICE void max_of_scores(const float (&x)[kTiles][4], float (&most)[2])
{
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        float m = -infinity();
#pragma unroll
        for (i32 j = 0; j < kTiles; j++) m = fmaxf(m, fmaxf(x[j][2 * half], x[j][2 * half + 1]));
        most[half] = quad_max(m);
    }
}

// ---- probabilities, relative to 2^base, base a whole number not below the maximum (in units of log2)
//
// What is done to sums when the maximum rises is then a change of exponent, exact; and a probability's bits, rounded to 16
// bits, do not depend on which maximum was known, so that decode and prefill, cut and uncut, agree to the last place.
// Sums of the rounded probabilities make up for a largest one that is not 1.

// -inf for a row that has seen no score.
QN_DEVICE float whole_base(float top, float unit)
{
    return whole_above(__fmul_rn(top, unit));
}
QN_DEVICE float base_or_zero(float base)
{
    return base == -infinity() ? 0.f : base;
}

// 2^e of a whole e up to 127; below 2^-126: 0.
QN_DEVICE float power_of_two(float e)
{
    if (!(e >= -126.f)) return is_nan(e) ? e : 0.f;
    return __uint_as_float((__float_as_uint(__fadd_rn(e, 0x1.8p23f)) << 23) + 0x3F800000u); // e in the sum's low bits
}
QN_DEVICE float whole_factor(float before, float base)
{
    return power_of_two(__fadd_rn(before, -base_or_zero(base)));
}

// Scores become probabilities; with LSE the thread's part of each row's sum is added to sum. The product with the unit is
// fused into the difference unless it is so large that its own rounding counts.
template <int kTiles>
QN_DEVICE void whole_exponentials(float (&x)[kTiles][4], const float (&bases)[2], float unit, float (&sum)[2])
{
    float base[2] = {base_or_zero(bases[0]), base_or_zero(bases[1])};
    if (QN_UNLIKELY(__any_sync(kFullMask, !(fabsf(base[0]) < 0x1p21f && fabsf(base[1]) < 0x1p21f)))) {
#pragma unroll
        for (i32 j = 0; j < kTiles; j++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) x[j][i] = __fadd_rn(__fmul_rn(x[j][i], unit), -base[i / 2]);
        unit = 1.f, base[0] = base[1] = 0.f;
    }
#pragma unroll
    for (i32 j = 0; j < kTiles; j++)
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            x[j][i] = ex2_ftz(fmaf(x[j][i], unit, -base[i / 2]));
            if constexpr (LSE) sum[i / 2] += x[j][i];
        }
}

// What a row's sums are multiplied with at its end. total: of the rounded probabilities.
QN_DEVICE float whole_weight(const attention_params &p, bool seen, i32 head, float base, float total)
{
    if (!seen) return 0.f;
    if constexpr (SINK) total += ex2(__fadd_rn(__fmul_rn(__ldg(p.sink + head), kLog2E), -base_or_zero(base)));
    return 1.f / total;
}

constexpr float kLn2Rest = -1.904654323148236e-9f; // ln 2 - kLn2

QN_DEVICE float whole_lse(bool seen, float base, float sum)
{
    if (!seen || base == -infinity()) return is_nan(sum) ? sum : -infinity();
    return fmaf(base, kLn2, fmaf(base, kLn2Rest, log_natural(sum)));
}
