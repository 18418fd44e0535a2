// SPDX-License-Identifier: Apache-2.0
// mma.sync: D = A * B + C for a tile of 16 x 8 (x K), by the 32 lanes of a warp together. A is row-major, B
// column-major.
//
// One function a form, named mma_<shape>_<accumulator>_<A>[_<B>]; d may be c. Who holds what (t the lane, g = t / 4,
// q = t % 4; the elements of an array count from its first register's lowest bits):
//     C, D   every form            c[i]: row g + 8 (i / 2), column 2q + i % 2; f16: word j holds c[2j] and c[2j + 1]
//     A      16-bit, K 8, 16       a[i]: row g + 8 (i / 2 % 2), k = 2q + i % 2 + 8 (i / 4)
//            tf32, K 4, 8          a[i]: row g + 8 (i % 2), k = q + 4 (i / 2)
//            8-bit, K 16, 32       a[i]: row g + 8 (i / 4 % 2), k = 4q + i % 4 + 16 (i / 8)
//     B      16-bit                b[i]: column g, k = 2q + i % 2 + 8 (i / 2)
//            tf32                  b[i]: column g, k = q + 4i
//            8-bit                 b[i]: column g, k = 4q + i % 4 + 16 (i / 4)
// The sums' order and rounding are the architecture's own: model/INSTRUCTIONS.md. fp8 forms exist from sm_89 on; sm_90a
// and sm_100a carry them out with f16 instructions.
#pragma once

#include "types.cuh"

#ifndef QN_MODEL

// mma.sync.aligned.<ptx> with 2 and 1 or 4 and 2 registers of A and B, and C and D of 4 f32, 2 f16x2 or 4 s32.
#define QN_MMA_F32_21(name, ptx)                                                                                       \
    QN_DEVICE void name(float(&d)[4], const u32(&a)[2], const u32(&b)[1], const float(&c)[4])                          \
    {                                                                                                                  \
        asm volatile("mma.sync.aligned." ptx " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"                   \
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));                   \
    }
#define QN_MMA_F32_42(name, ptx)                                                                                       \
    QN_DEVICE void name(float(&d)[4], const u32(&a)[4], const u32(&b)[2], const float(&c)[4])                          \
    {                                                                                                                  \
        asm volatile("mma.sync.aligned." ptx " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"    \
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),         \
                       "f"(c[2]), "f"(c[3]));                                                                          \
    }
#define QN_MMA_F16_21(name, ptx)                                                                                       \
    QN_DEVICE void name(u32(&d)[2], const u32(&a)[2], const u32(&b)[1], const u32(&c)[2])                              \
    {                                                                                                                  \
        asm volatile("mma.sync.aligned." ptx " {%0, %1}, {%2, %3}, {%4}, {%5, %6};"                                    \
                     : "=r"(d[0]), "=r"(d[1])                                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]));                                         \
    }
#define QN_MMA_F16_42(name, ptx)                                                                                       \
    QN_DEVICE void name(u32(&d)[2], const u32(&a)[4], const u32(&b)[2], const u32(&c)[2])                              \
    {                                                                                                                  \
        asm volatile("mma.sync.aligned." ptx " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"                        \
                     : "=r"(d[0]), "=r"(d[1])                                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]));        \
    }
#define QN_MMA_S32_21(name, ptx)                                                                                       \
    QN_DEVICE void name(i32(&d)[4], const u32(&a)[2], const u32(&b)[1], const i32(&c)[4])                              \
    {                                                                                                                  \
        asm volatile("mma.sync.aligned." ptx " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"                   \
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));                   \
    }
#define QN_MMA_S32_42(name, ptx)                                                                                       \
    QN_DEVICE void name(i32(&d)[4], const u32(&a)[4], const u32(&b)[2], const i32(&c)[4])                              \
    {                                                                                                                  \
        asm volatile("mma.sync.aligned." ptx " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"    \
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),         \
                       "r"(c[2]), "r"(c[3]));                                                                          \
    }

// 16-bit inputs. k8 f16: sm_75; all others: sm_80
QN_MMA_F32_21(mma_m16n8k8_f32_f16, "m16n8k8.row.col.f32.f16.f16.f32")
QN_MMA_F32_42(mma_m16n8k16_f32_f16, "m16n8k16.row.col.f32.f16.f16.f32")
QN_MMA_F16_21(mma_m16n8k8_f16_f16, "m16n8k8.row.col.f16.f16.f16.f16")
QN_MMA_F16_42(mma_m16n8k16_f16_f16, "m16n8k16.row.col.f16.f16.f16.f16")
QN_MMA_F32_21(mma_m16n8k8_f32_bf16, "m16n8k8.row.col.f32.bf16.bf16.f32")
QN_MMA_F32_42(mma_m16n8k16_f32_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")

// tf32: f32 registers whose low 13 bits are cut off. sm_80
QN_MMA_F32_21(mma_m16n8k4_f32_tf32, "m16n8k4.row.col.f32.tf32.tf32.f32")
QN_MMA_F32_42(mma_m16n8k8_f32_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")

// 8-bit integers: exact, modulo 2^32; _sat clamps. sm_80
QN_MMA_S32_21(mma_m16n8k16_s32_s8_s8, "m16n8k16.row.col.s32.s8.s8.s32")
QN_MMA_S32_21(mma_m16n8k16_s32_s8_u8, "m16n8k16.row.col.s32.s8.u8.s32")
QN_MMA_S32_21(mma_m16n8k16_s32_u8_s8, "m16n8k16.row.col.s32.u8.s8.s32")
QN_MMA_S32_21(mma_m16n8k16_s32_u8_u8, "m16n8k16.row.col.s32.u8.u8.s32")
QN_MMA_S32_42(mma_m16n8k32_s32_s8_s8, "m16n8k32.row.col.s32.s8.s8.s32")
QN_MMA_S32_42(mma_m16n8k32_s32_s8_u8, "m16n8k32.row.col.s32.s8.u8.s32")
QN_MMA_S32_42(mma_m16n8k32_s32_u8_s8, "m16n8k32.row.col.s32.u8.s8.s32")
QN_MMA_S32_42(mma_m16n8k32_s32_u8_u8, "m16n8k32.row.col.s32.u8.u8.s32")
QN_MMA_S32_42(mma_m16n8k32_s32_s8_s8_sat, "m16n8k32.row.col.satfinite.s32.s8.s8.s32")
QN_MMA_S32_42(mma_m16n8k32_s32_u8_u8_sat, "m16n8k32.row.col.satfinite.s32.u8.u8.s32")

#if QN_ARCH >= 89
// fp8, each operand e4m3 or e5m2. sm_89
QN_MMA_F32_42(mma_m16n8k32_f32_e4m3_e4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
QN_MMA_F32_42(mma_m16n8k32_f32_e4m3_e5m2, "m16n8k32.row.col.f32.e4m3.e5m2.f32")
QN_MMA_F32_42(mma_m16n8k32_f32_e5m2_e4m3, "m16n8k32.row.col.f32.e5m2.e4m3.f32")
QN_MMA_F32_42(mma_m16n8k32_f32_e5m2_e5m2, "m16n8k32.row.col.f32.e5m2.e5m2.f32")
QN_MMA_F16_42(mma_m16n8k32_f16_e4m3_e4m3, "m16n8k32.row.col.f16.e4m3.e4m3.f16")
QN_MMA_F16_42(mma_m16n8k32_f16_e5m2_e5m2, "m16n8k32.row.col.f16.e5m2.e5m2.f16")
QN_MMA_F32_21(mma_m16n8k16_f32_e4m3_e4m3, "m16n8k16.row.col.f32.e4m3.e4m3.f32")
QN_MMA_F32_21(mma_m16n8k16_f32_e5m2_e5m2, "m16n8k16.row.col.f32.e5m2.e5m2.f32")
#endif

#undef QN_MMA_F32_21
#undef QN_MMA_F32_42
#undef QN_MMA_F16_21
#undef QN_MMA_F16_42
#undef QN_MMA_S32_21
#undef QN_MMA_S32_42

#endif
