// SPDX-License-Identifier: Apache-2.0
// wgmma with fp8 inputs (K 32): see wgmma.cuh for order, layout and descriptors. Both operands are K-major. sm_90a
#pragma once

#include "wgmma.cuh"

#ifndef QN_MODEL

// wgmma.mma_async.sync.aligned.m64nNk32.<D>.<A>.<B>, A from shared memory or from 4 registers. ScaleA, ScaleB: 1, or
// -1 to negate. f32 sums keep 13 fraction bits only (model/INSTRUCTIONS.md). sm_90a
#define QN_WG_SS(n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8)                                                             \
    if constexpr (N == n)                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p2 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n QN_WG_TYPES " {" QN_WG_D##r "}, " p0 ", " p1 ", p, " p3    \
                                                                                        ", " p4 ";\n}"                 \
                     : QN_WG_R##r(QN_WG_KIND, d)                                                                       \
                     : "l"(a), "l"(b), "r"((u32)accumulate), "n"(ScaleA), "n"(ScaleB));
#define QN_WG_RS(n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8)                                                             \
    if constexpr (N == n)                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p5 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n QN_WG_TYPES " {" QN_WG_D##r                                \
                     "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4 ", p, " p6 ", " p7 ";\n}"                              \
                     : QN_WG_R##r(QN_WG_KIND, d)                                                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate), "n"(ScaleA),          \
                       "n"(ScaleB));

#define QN_WG_KIND  "+f"
#define QN_WG_TYPES "k32.f32.e4m3.e4m3"
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_e4m3_e4m3(float (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_SS)
}
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_e4m3_e4m3(float (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_RS)
}
#undef QN_WG_TYPES
#define QN_WG_TYPES "k32.f32.e4m3.e5m2"
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_e4m3_e5m2(float (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_SS)
}
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_e4m3_e5m2(float (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_RS)
}
#undef QN_WG_TYPES
#define QN_WG_TYPES "k32.f32.e5m2.e4m3"
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_e5m2_e4m3(float (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_SS)
}
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_e5m2_e4m3(float (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_RS)
}
#undef QN_WG_TYPES
#define QN_WG_TYPES "k32.f32.e5m2.e5m2"
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_e5m2_e5m2(float (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_SS)
}
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_e5m2_e5m2(float (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_RS)
}
#undef QN_WG_TYPES
#undef QN_WG_KIND
#define QN_WG_KIND  "+r"
#define QN_WG_TYPES "k32.f16.e4m3.e4m3"
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f16_e4m3_e4m3(u32 (&d)[N / 4], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_16(QN_WG_SS)
}
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f16_e4m3_e4m3(u32 (&d)[N / 4], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_16(QN_WG_RS)
}
#undef QN_WG_TYPES
#define QN_WG_TYPES "k32.f16.e5m2.e5m2"
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f16_e5m2_e5m2(u32 (&d)[N / 4], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_16(QN_WG_SS)
}
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f16_e5m2_e5m2(u32 (&d)[N / 4], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_16(QN_WG_RS)
}
#undef QN_WG_TYPES
#undef QN_WG_KIND
#undef QN_WG_SS
#undef QN_WG_RS

#endif
