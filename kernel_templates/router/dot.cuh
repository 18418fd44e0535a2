// SPDX-License-Identifier: Apache-2.0
// Products of 8 elements in f32, whatever the types: what plans "rows" and "exact" are made of. No TF32, no rounding but
// that of fmaf.
#pragma once

#include "problem.cuh"

// 8 elements as they lie in memory: one vector of 16 bits, or two of 32.
template <class Element> struct Eight {
    static constexpr u32 kCount = 8 / Element::kPerVector;
    uint4 part[kCount];

    QN_DEVICE void unpack(float *y) const // [8]
    {
#pragma unroll
        for (u32 i = 0; i < kCount; i++) Element::unpack(part[i], y + i * Element::kPerVector);
    }
    QN_DEVICE void clear()
    {
#pragma unroll
        for (u32 i = 0; i < kCount; i++) part[i] = make_uint4(0, 0, 0, 0);
    }
};

QN_DEVICE void load_eight(Eight<ElementX> &to, const RawX *from)
{
#pragma unroll
    for (u32 i = 0; i < Eight<ElementX>::kCount; i++) to.part[i] = load_vector(from + i * ElementX::kPerVector);
}

QN_DEVICE float dot_of_eight(const float *w, const float *x, float sum)
{
#pragma unroll
    for (u32 i = 0; i < 8; i++) sum = fmaf(w[i], x[i], sum);
    return sum;
}
