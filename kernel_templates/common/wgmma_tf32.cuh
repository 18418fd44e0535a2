// SPDX-License-Identifier: Apache-2.0
// wgmma with tf32 (f32 words whose low 13 bits are cut off) inputs (K 8): see wgmma.cuh for order, layout and
// descriptors. Both operands are K-major. sm_90a
#pragma once

#include "wgmma.cuh"

#ifndef QN_MODEL

// wgmma.mma_async.sync.aligned.m64nNk8.<D>.<A>.<B>, A from shared memory or from 4 registers. ScaleA, ScaleB: 1, or
// -1 to negate. sm_90a
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
#define QN_WG_TYPES "k8.f32.tf32.tf32"
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_tf32(float (&d)[N / 2], u64 a, u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_SS)
}
template <int N, int ScaleA = 1, int ScaleB = 1>
QN_DEVICE void wgmma_f32_tf32(float (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate)
{
    QN_WG_EACH_32(QN_WG_RS)
}
#undef QN_WG_TYPES
#undef QN_WG_KIND
#undef QN_WG_SS
#undef QN_WG_RS

#endif
