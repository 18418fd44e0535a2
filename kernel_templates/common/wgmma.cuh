// SPDX-License-Identifier: Apache-2.0
// wgmma: D = A * B + D for a tile of 64 x N (x K) by the 128 threads of a warpgroup together, asynchronously. sm_90a
// This file: descriptors, order and completion, and the forms with 16-bit inputs (K 16). Others: wgmma_tf32.cuh (K 8),
// wgmma_fp8.cuh and wgmma_int8.cuh (K 32).
//
//     wgmma_fence();                                   before the first wgmma, and after touching d or a
//     wgmma_f32_bf16<N>(d, desc_a, desc_b, false);     d = A * B; true: d += A * B
//     wgmma_commit_group(); wgmma_wait_group<0>();     only now may d, a and the operands' memory be touched
// d and a stay the same arrays, alive, from issue to wait; only wgmmas of one shape on one d may follow each other
// without a fence. Shared operands that threads wrote need fence_proxy_async_shared and a barrier first.
// The wait has to stand in the same stretch of code as the wgmma, not behind the jump back of a loop: ptxas (13.0) forgets
// there that the registers of a are still read, and gives them to something else at once (tools/wgmma_registers.py).
//
// Thread T of the warpgroup, warp w = T / 32, lane t, g = t / 4, q = t % 4:
//     d[r]                 row 16w + g + 8 (r / 2 % 2), column 2q + r % 2 + 8 (r / 4); f16: word j has d[2j], d[2j + 1]
//     a[i], 16-bit         row 16w + g + 8 (i / 2 % 2), k = 2q + i % 2 + 8 (i / 4); two to a word
//     a[i], 8-bit          row 16w + g + 8 (i / 4 % 2), k = 4q + i % 4 + 16 (i / 8); four to a word
//     a[i], tf32           row 16w + g + 8 (i % 2), k = q + 4 (i / 2)
#pragma once

#include "address.cuh"
#include "wgmma_operands.cuh"

// Where a matrix lies in shared memory. Byte offset of the element of row (A) or column (B) mn and of k, s bytes each,
// before the swizzle moves 16-byte units (address bits 4-6 ^= bits 7-9, as many as the pattern's width has):
//     K-major, swizzled     (mn / 8) stride + (mn % 8) width + k s                              (leading is not used)
//     K-major, none         (mn / 8) stride + (mn % 8) 16 + (k s / 16) leading + k s % 16
//     MN-major, swizzled    (mn s / width) leading + mn s % width + (k / 8) stride + (k % 8) width
//     MN-major, none        (mn s / 16) stride + mn s % 16 + (k / 8) leading + (k % 8) 16
// width is 128, 64 or 32 bytes; a swizzled matrix starts where its pattern of 8 rows starts (1024, 512, 256 bytes).
enum WgmmaSwizzle { kSwizzleNone = 0, kSwizzle128 = 1, kSwizzle64 = 2, kSwizzle32 = 3 };

// The 64-bit matrix descriptor: addresses and offsets in units of 16 bytes, 14 bits each.
QN_DEVICE u64 wgmma_descriptor(const void *start, u32 leading, u32 stride, WgmmaSwizzle swizzle)
{
    return (u64)((shared_address(start) & 0x3FFFF) >> 4) | (u64)((leading & 0x3FFFF) >> 4) << 16 |
           (u64)((stride & 0x3FFFF) >> 4) << 32 | (u64)swizzle << 62;
}

// The descriptor of the same matrix, `bytes` further on (a multiple of 16): the next K step.
QN_DEVICE u64 wgmma_descriptor_advance(u64 descriptor, u32 bytes)
{
    return descriptor + (bytes >> 4);
}

#ifndef QN_MODEL

// wgmma.fence.sync.aligned: orders this warp's register accesses with its wgmmas to come. sm_90a
QN_DEVICE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// wgmma.commit_group.sync.aligned: closes the group of this warp's wgmmas so far. sm_90a
QN_DEVICE void wgmma_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// wgmma.wait_group.sync.aligned: until at most the `Pending` latest groups of this warp are unfinished. sm_90a
template <int Pending> QN_DEVICE void wgmma_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving accesses to an accumulator across fence and wait; no instruction.
template <int Count> QN_DEVICE void wgmma_fence_operand(float (&d)[Count])
{
    for (int i = 0; i < Count; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int Count> QN_DEVICE void wgmma_fence_operand(u32 (&d)[Count])
{
    for (int i = 0; i < Count; i++) asm volatile("" : "+r"(d[i])::"memory");
}
template <int Count> QN_DEVICE void wgmma_fence_operand(i32 (&d)[Count])
{
    for (int i = 0; i < Count; i++) asm volatile("" : "+r"(d[i])::"memory");
}

// wgmma.mma_async.sync.aligned.m64nNk16.<D>.<A>.<B>, A from shared memory or from 4 registers. TransA, TransB: 1 for
// MN-major; ScaleA, ScaleB: 1, or -1 to negate. sm_90a
#define QN_WG_SS(n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8)                                                             \
    if constexpr (N == n)                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p2 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n QN_WG_TYPES " {" QN_WG_D##r "}, " p0 ", " p1 ", p, " p3    \
                                                                                        ", " p4 ", " p5 ", " p6 ";\n}" \
                     : QN_WG_R##r(QN_WG_KIND, d)                                                                       \
                     : "l"(a), "l"(b), "r"((u32)accumulate), "n"(ScaleA), "n"(ScaleB), "n"(TransA), "n"(TransB));
#define QN_WG_RS(n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8)                                                             \
    if constexpr (N == n)                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p5 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n QN_WG_TYPES " {" QN_WG_D##r                                \
                     "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4 ", p, " p6 ", " p7 ", " p8 ";\n}"                      \
                     : QN_WG_R##r(QN_WG_KIND, d)                                                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate), "n"(ScaleA),          \
                       "n"(ScaleB), "n"(TransB));

#define QN_WG_KIND  "+f"
#define QN_WG_TYPES "k16.f32.bf16.bf16"
template <int N, int TransA = 0, int TransB = 0, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_bf16(float (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_SS)
}
template <int N, int TransB = 0, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_bf16(float (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_RS)
}
#undef QN_WG_TYPES
#define QN_WG_TYPES "k16.f32.f16.f16"
template <int N, int TransA = 0, int TransB = 0, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_f16(float (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_SS)
}
template <int N, int TransB = 0, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_f16(float (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_RS)
}
#undef QN_WG_TYPES
#undef QN_WG_KIND
#define QN_WG_KIND  "+r"
#define QN_WG_TYPES "k16.f16.f16.f16"
template <int N, int TransA = 0, int TransB = 0, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f16_f16(u32 (&d)[N / 4], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_16(QN_WG_SS)
}
template <int N, int TransB = 0, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f16_f16(u32 (&d)[N / 4], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_16(QN_WG_RS)
}
#undef QN_WG_TYPES
#undef QN_WG_KIND
#undef QN_WG_SS
#undef QN_WG_RS

#endif
