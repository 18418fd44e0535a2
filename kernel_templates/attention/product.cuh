// SPDX-License-Identifier: Apache-2.0
// The product of mma.sync for the element type of the spec, probabilities as its operand, and results in pairs.
#pragma once

#include "../common/convert.cuh"
#include "../common/mma.cuh"
#include "problem.cuh"

// d[16, 8] += a[16, 16] · b[16, 8]
QN_DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    const u32 b[2] = {b0, b1};
    if constexpr (IN == 3)
        mma_m16n8k16_f32_bf16(d, a, b, d);
    else
        mma_m16n8k16_f32_f16(d, a, b, d);
}

constexpr u32 kOnes = IN == 3 ? 0x3F803F80u : 0x3C003C00u; // two ones

QN_DEVICE u32 pack(float low, float high)
{
    return IN == 3 ? pack_bf16x2(low, high) : pack_f16x2(low, high);
}

// Two neighbouring columns; out may begin at any element.
QN_DEVICE void store_pair(u16 *to, bool aligned, float low, float high)
{
    const u32 pair = pack(low, high);
    if (aligned)
        *reinterpret_cast<u32 *>(to) = pair;
    else
        to[0] = (u16)(pair & 0xFFFFu), to[1] = (u16)(pair >> 16);
}
