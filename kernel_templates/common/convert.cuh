// SPDX-License-Identifier: Apache-2.0
// f32 rounded: to whole numbers, and in pairs to 16-bit floats in one word, low half first, which is what a 16-bit
// operand of the matrix instructions is made of.
#pragma once

#include "types.cuh"

#ifndef QN_MODEL

// cvt.rpi.f32.f32: the next whole number up; infinities and NaN stay. All.
QN_DEVICE float whole_above(float x)
{
    float y;
    asm("cvt.rpi.f32.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// cvt.rn.bf16x2.f32: both to nearest even; a NaN becomes 0x7FFF. sm_80
QN_DEVICE u32 pack_bf16x2(float low, float high)
{
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// cvt.rn.f16x2.f32: the same for f16; beyond 65519 it is an infinity. sm_80
QN_DEVICE u32 pack_f16x2(float low, float high)
{
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#endif
