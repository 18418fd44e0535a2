// SPDX-License-Identifier: Apache-2.0
// wgmma with 8-bit integer inputs (K 32): see wgmma.cuh for order, layout and descriptors. Both operands are
// K-major. sm_90a
#pragma once

#include "wgmma.cuh"

#ifndef QN_MODEL

// wgmma.mma_async.sync.aligned.m64nNk32.<D>.<A>.<B>, A from shared memory or from 4 registers. Sums are exact,
// modulo 2^32. sm_90a
#define QN_WG_SS(n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8)                                                             \
    if constexpr (N == n)                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p2 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n QN_WG_TYPES " {" QN_WG_D##r "}, " p0 ", " p1 ", p;\n}"     \
                     : QN_WG_R##r(QN_WG_KIND, d)                                                                       \
                     : "l"(a), "l"(b), "r"((u32)accumulate));
#define QN_WG_RS(n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8)                                                             \
    if constexpr (N == n)                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p5 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n QN_WG_TYPES " {" QN_WG_D##r "}, {" p0 ", " p1 ", " p2      \
                                                                                        ", " p3 "}, " p4 ", p;\n}"     \
                     : QN_WG_R##r(QN_WG_KIND, d)                                                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate));

#define QN_WG_KIND  "+r"
#define QN_WG_TYPES "k32.s32.s8.s8"
template <int N> QN_DEVICE void wgmma_s32_s8_s8(i32 (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");
    QN_WG_EACH_INT(QN_WG_SS)
}
template <int N> QN_DEVICE void wgmma_s32_s8_s8(i32 (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");
    QN_WG_EACH_INT(QN_WG_RS)
}
#undef QN_WG_TYPES
#define QN_WG_TYPES "k32.s32.s8.u8"
template <int N> QN_DEVICE void wgmma_s32_s8_u8(i32 (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");
    QN_WG_EACH_INT(QN_WG_SS)
}
template <int N> QN_DEVICE void wgmma_s32_s8_u8(i32 (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");
    QN_WG_EACH_INT(QN_WG_RS)
}
#undef QN_WG_TYPES
#define QN_WG_TYPES "k32.s32.u8.s8"
template <int N> QN_DEVICE void wgmma_s32_u8_s8(i32 (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");
    QN_WG_EACH_INT(QN_WG_SS)
}
template <int N> QN_DEVICE void wgmma_s32_u8_s8(i32 (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");
    QN_WG_EACH_INT(QN_WG_RS)
}
#undef QN_WG_TYPES
#define QN_WG_TYPES "k32.s32.u8.u8"
template <int N> QN_DEVICE void wgmma_s32_u8_u8(i32 (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");
    QN_WG_EACH_INT(QN_WG_SS)
}
template <int N> QN_DEVICE void wgmma_s32_u8_u8(i32 (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    static_assert(N == 8 || N == 24 || N % 16 == 0, "integer wgmma has N of 8, 24 and the multiples of 16");
    QN_WG_EACH_INT(QN_WG_RS)
}
#undef QN_WG_TYPES
#undef QN_WG_KIND
#undef QN_WG_SS
#undef QN_WG_RS

#endif
