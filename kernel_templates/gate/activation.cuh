// SPDX-License-Identifier: Apache-2.0
// Activations of a logit and the scores made of them.
//
//   sqrt_softplus  sqrt(max(x, 0) + log1p(e^-|x|)), which for x < 0 is e^(x/2) · sqrt(log1p(e^x) / e^x)
//   sigmoid        1 / (1 + e^-x), which for x < 0 is e^x / (1 + e^x)
//   softmax        e^(x - max) / Σ e^(x - max)
//
// Each in two forms. `activation` is the number the contract is about: within 8 ulp for every logit, subnormals kept.
// `activation_near` is for the one look at every expert of a token that decides which few are worth the first form; how
// far it may be off is known (kNearError, kNearLeast), and ANALYSIS.md says where the bound comes from.
#pragma once

#include "problem.cuh"

// e^(scale · y) for y <= 0 within about 2 ulp, subnormals kept; NaN stays. As exp_accurate without the case of an infinite y.
// scale: a power of two, known at compile time.
QN_DEVICE float exp_below_one(float y, float scale = 1.f)
{
    y = max_or_nan(y, -120.f / scale); // 0 from there on
    const float high = __fmul_rn(y, scale * kLog2E);
    const float low = fmaf(y, scale * kLog2ERest, fmaf(y, scale * kLog2E, -high));
    const float power = ex2(high);
    return fmaf(power, __fmul_rn(low, kLn2), power);
}

// ---- softmax: what an activation needs of its row

struct Row {
    float max;
    float inverse; // 1 / Σ e^(x - max); NaN where the row has no softmax: a NaN or +inf in it, or nothing but -inf
};

// e^(x - max) with what the difference lost put back.
QN_DEVICE float exp_below(float x, float max)
{
    const float difference = __fsub_rn(x, max);
    if (difference == -infinity()) return 0.f;
    const float back = __fsub_rn(difference, x);
    const float lost = __fsub_rn(__fsub_rn(x, __fsub_rn(difference, back)), __fadd_rn(max, back));
    const float power = exp_below_one(difference);
    return fmaf(power, lost, power);
}

// The same for a sum: the error of the difference counts only where the term does not.
QN_DEVICE float exp_near(float x, float max)
{
    return ex2_ftz((x - max) * kLog2E);
}

QN_DEVICE Row row_of_sums(float max, float sum)
{
    return Row{max, is_finite(max) ? reciprocal(sum) : not_a_number()};
}

// ---- the exact form

// log1p(e) / e on [0, 1], relative error 3e-8, in even and odd powers: few instructions, and not one chain.
QN_DEVICE float log1p_over(float e)
{
    const float e2 = __fmul_rn(e, e);
    const float even =
        fmaf(e2, fmaf(e2, fmaf(e2, fmaf(e2, 0.00523269409f, 0.0782259554f), 0.191060066f), 0.333190978f), 0.99999994f);
    const float odd = fmaf(e2, fmaf(e2, fmaf(e2, -0.0295052379f, -0.136632457f), -0.24842982f), -0.499994934f);
    return fmaf(e, odd, even);
}

// The root's and the reciprocal's arguments are far from subnormal.
QN_DEVICE float sqrt_softplus(float x)
{
    const float half_power = exp_below_one(-fabsf(x), 0.5f); // its square would underflow long before it does
    const float e = __fmul_rn(half_power, half_power), p = log1p_over(e);
    const float root = sqrt_approximate_ftz(x > 0.f ? fmaf(e, p, x) : p);
    return x > 0.f ? root : __fmul_rn(half_power, root);
}

QN_DEVICE float sigmoid(float x)
{
    const float e = exp_below_one(-fabsf(x)), r = reciprocal_ftz(__fadd_rn(1.f, e));
    return x >= 0.f ? r : __fmul_rn(e, r);
}

QN_DEVICE float activation(float x, const Row &row)
{
    if constexpr (kSoftmax) return __fmul_rn(exp_below(x, row.max), row.inverse);
    return ACT == 0 ? sqrt_softplus(x) : sigmoid(x);
}

// The activation is a number of its own, so that equal ones are ties: it is never fused into the sum.
QN_DEVICE float score_of(float activation, float bias)
{
    return BIAS ? __fadd_rn(activation, bias) : activation;
}

// ---- the near form

// |near - activation| <= kNearError · activation + kNearLeast.
constexpr float kNearError = ACT == 0 ? 0x1p-12f : 0x1p-16f;
constexpr float kNearLeast = ACT == 0 ? 0x1p-60f : 0x1p-120f;

// A relative error of 3.9e-4 in the logarithm is half of that in its root.
QN_DEVICE float sqrt_softplus_near(float x)
{
    const float e = ex2_ftz(-fabsf(x) * kLog2E);
    float p = -0.0743431002f;
    p = fmaf(p, e, 0.254025012f);
    p = fmaf(p, e, -0.486414135f);
    p = fmaf(p, e, 0.999607027f);
    return sqrt_approximate_ftz(fmaf(e, p, fmaxf(x, 0.f)));
}

QN_DEVICE float activation_near(float x, const Row &row)
{
    if constexpr (kSoftmax) return exp_near(x, row.max) * row.inverse;
    return ACT == 0 ? sqrt_softplus_near(x) : reciprocal_ftz(1.f + ex2_ftz(-x * kLog2E));
}
