// SPDX-License-Identifier: Apache-2.0
// Sums of exponentials and the values made of them.
//
//   weight(x) = e^((x - max) / T)      sum = Σ weight over V (or over the winners)
//   probability = weight / sum         log-probability = (x - max) / T - ln(sum)      lse = max / T + ln(sum)
//
// A stream can't know the maximum before its end, so it adds 2^(x·scale - offset), scale = log2(e)/T, with an offset
// near max·scale. The offset is an exact f32 number: whatever rounding made it is undone by the one factor
// 2^(offset - max·scale), whose exponent an fma gives almost exactly. So a large common offset of the logits costs no
// accuracy. Rows where this can't work (T odd, a spread beyond f32's exponents) are added again against the maximum.
#pragma once

#include "row.cuh"

// ---- the stream's form

struct Exponent {
    float scale;  // log2(e) / T; 0 where the row must be added again (`sum_is_usable` says so)
    float offset; // near max * scale
};

QN_DEVICE float row_temperature(const softmax_topk_params &p, i64 row)
{
    return TEMPERATURE ? p.temperature[row] : 1.f;
}

// reference: about the row's maximum; NaN and infinities are replaced.
QN_DEVICE Exponent exponent_near(float reference, float temperature)
{
    Exponent e;
    e.scale = kLog2E;
    if (TEMPERATURE) {
        const bool ordinary = temperature >= 0x1p-60f && temperature <= 0x1p60f;
        e.scale = ordinary ? kLog2E / temperature : 0.f;
    }
    e.offset = is_finite(reference) ? reference * e.scale : 0.f;
    return e;
}

QN_DEVICE float weight(float x, const Exponent &e)
{
    return ex2_ftz(fmaf(x, e.scale, -e.offset));
}

// The sum relative to the maximum, of one relative to the offset; furthest: how far that may be from the maximum, in bits.
// The exponents of large terms are rounded to 2^-24 of it.
QN_DEVICE bool sum_is_usable(float sum, float max, const Exponent &e, float furthest = 60.f)
{
    return fabsf(fmaf(max, e.scale, -e.offset)) <= furthest && is_finite(sum) && e.scale != 0.f;
}
QN_DEVICE float sum_from_offset(float sum, float max, const Exponent &e)
{
    return sum * ex2_near_zero(-fmaf(max, e.scale, -e.offset));
}

// A running sum of many terms whose rounding errors are kept aside, so that its length does not matter.
struct LongSum {
    float sum, lost;
};
QN_DEVICE void long_sum_add(LongSum &s, float x)
{
    const float next = s.sum + x, part = next - s.sum;
    s.lost += (s.sum - (next - part)) + (x - part);
    s.sum = next;
}
QN_DEVICE float long_sum(const LongSum &s)
{
    return is_finite(s.sum) ? s.sum + s.lost : s.sum;
}

// ---- against the maximum

// (x - max) / T for a finite max and T >= 0: 0 for the maximum and -inf for -inf whatever T; NaN for T < 0 and NaN.
QN_DEVICE float exponent_of(float x, float max, float temperature)
{
    if (!TEMPERATURE) return x - max;
    if (!(temperature >= 0.f)) return not_a_number();
    if (x == max) return 0.f;
    if (x == -infinity() || temperature == 0.f) return -infinity();
    const float distance = x - max;
    return is_finite(distance) ? distance / temperature : x / temperature - max / temperature;
}

// Sum of weights over vectors [begin, end), the same in every thread; for rows whose stream is not usable. One barrier.
QN_DEVICE float sum_against(const Row &r, u32 begin, u32 end, float max, float temperature, float *scratch)
{
    LongSum total = {0.f, 0.f};
    row_for_each_vector<2>(r, begin, end, [&](const uint4 &vector, u32) {
        float x[kPerVector];
        Element::unpack(vector, x);
        for (u32 q = 0; q < kPerVector; q++) long_sum_add(total, exp_accurate(exponent_of(x[q], max, temperature)));
    });
    return block_sum(long_sum(total), scratch);
}

struct Softmax {
    float max, temperature, sum, log_sum; // sum is NaN where the row has no probabilities
};

QN_DEVICE bool softmax_is_defined(float max, float temperature)
{
    return is_finite(max) && temperature >= 0.f;
}

QN_DEVICE Softmax softmax_of(float max, float temperature, float sum)
{
    if (!softmax_is_defined(max, temperature)) sum = not_a_number();
    if (fabsf(sum - 1.f) < 6e-7f) sum = 1.f; // the maximum's own weight and nothing else: its rounding shall not show
    return Softmax{max, temperature, sum, log_natural(sum)};
}

QN_DEVICE float softmax_log_probability(const Softmax &s, float x)
{
    return exponent_of(x, s.max, s.temperature) - s.log_sum;
}

QN_DEVICE float softmax_value(const Softmax &s, float x)
{
    return kProbability ? exp_accurate(exponent_of(x, s.max, s.temperature)) / s.sum : softmax_log_probability(s, x);
}

// Of x / T over all V: NaN at T <= 0 and with a NaN, ±inf for a row whose maximum is infinite.
QN_DEVICE float softmax_lse(const Softmax &s)
{
    if (is_nan(s.max) || !(s.temperature > 0.f)) return not_a_number();
    if (!is_finite(s.max)) return s.max;
    return s.max / s.temperature + s.log_sum;
}
