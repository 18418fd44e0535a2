// SPDX-License-Identifier: Apache-2.0
// Narrow number formats: bytes looked up and joined, pairs of 16-bit floats multiplied, FP8 made wider.
#pragma once

#include "types.cuh"

#ifndef QN_MODEL

// prmt.b32: byte i is the byte of b:a that nibble i of the selector's low half names by its low three bits; with the
// nibble's high bit, eight copies of that byte's sign instead. All.
QN_DEVICE u32 permute_bytes(u32 a, u32 b, u32 selector)
{
    u32 bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(selector));
    return bytes;
}

// dp4a.s32.s32: c and the four products of signed bytes, modulo 2^32. sm_61
QN_DEVICE i32 dot_s8x4(u32 a, u32 b, i32 c)
{
    i32 sum;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}

// mul.rn.f16x2: both products to nearest even, subnormals kept. sm_53
QN_DEVICE u32 multiply_f16x2(u32 a, u32 b)
{
    u32 product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

// fma.rn.bf16x2 with -0 added: both products to nearest even, subnormals kept. sm_80
QN_DEVICE u32 multiply_bf16x2(u32 a, u32 b)
{
    u32 product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
}

// cvt.rn.f16x2.e4m3x2: the two E4M3 bytes of the low half, exactly; NaN stays NaN. sm_89; by bits before.
QN_DEVICE u32 f16x2_of_e4m3x2(u32 pair)
{
    if constexpr (QN_ARCH >= 89) {
        u32 wide;
        asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, low;\n}"
            : "=r"(wide)
            : "r"(pair));
        return wide;
    } else {
        const u32 spread = (pair & 0xFFu) | (pair & 0xFF00u) << 8;                   // a byte in each half
        const u32 small = (spread & 0x00800080u) << 8 | (spread & 0x007F007Fu) << 7; // value · 2^-8
        const u32 is_nan = ((spread & 0x007F007Fu) + 0x00010001u) >> 7 & 0x00010001u;
        return multiply_f16x2(small, 0x5C005C00u) | is_nan * 0x7FFFu; // 2^8
    }
}

#endif
