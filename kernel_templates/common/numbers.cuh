// SPDX-License-Identifier: Apache-2.0
// Floating-point helpers in plain C++: constants, tests, exponentials to full f32 accuracy.
#pragma once

#include "device.cuh"

constexpr float kLog2E = 1.4426950216293335f;       // log2(e), rounded to f32
constexpr float kLog2ERest = 1.925963033500011e-8f; // log2(e) - kLog2E
constexpr float kLn2 = 0.693147182464599609375f;

QN_DEVICE float infinity()
{
    return __uint_as_float(0x7F800000u);
}
QN_DEVICE float not_a_number()
{
    return __uint_as_float(0x7FC00000u);
}
QN_DEVICE bool is_nan(float x)
{
    return x != x;
}
QN_DEVICE bool is_finite(float x)
{
    return (__float_as_uint(x) & 0x7F800000u) != 0x7F800000u;
}

// e^x within about 2 ulp for every x: the product with log2(e) in two parts, so that its rounding does not grow with |x|.
// -inf gives 0, NaN gives NaN, subnormal results are kept.
QN_DEVICE float exp_accurate(float x)
{
    float high = x * kLog2E;
    float low = fmaf(x, kLog2E, -high) + x * kLog2ERest; // what the product lost; NaN for x = ±inf
    float power = ex2(high);
    return is_finite(high) ? fmaf(power, low * kLn2, power) : power;
}

// 2^x, to the last ulp where x is next to 0: there the approximation's error is larger than what x stands for.
QN_DEVICE float ex2_near_zero(float x)
{
    const float y = x * kLn2;
    return fabsf(y) < 0x1p-8f ? fmaf(y, fmaf(y, 0.5f + y * (1.f / 6.f), 1.f), 1.f) : ex2(x);
}
