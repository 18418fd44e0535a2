// SPDX-License-Identifier: Apache-2.0
// mma.sync: one warp, one form, A, B and C from in, D to out. in: A's words, B's, C's, each word of all lanes together.
#include "case.cuh"

#include "../../../kernel_templates/common/mma.cuh"

#define FORM(number, name, T, nd, na, nb)                                                                              \
    case number: {                                                                                                     \
        u32 a[na], b[nb];                                                                                              \
        T c[nd], d[nd];                                                                                                \
        take(a, in);                                                                                                   \
        take(b, in + na * THREADS);                                                                                    \
        take(c, in + (na + nb) * THREADS);                                                                             \
        name(d, a, b, c);                                                                                              \
        give(out, d);                                                                                                  \
        break;                                                                                                         \
    }

extern "C" __global__ void __launch_bounds__(THREADS) QN_ENTRY(const __grid_constant__ Case test)
{
    const u32 *in = test.in;
    u32 *out = test.out;
    switch (test.which) {
        FORM(0, mma_m16n8k8_f32_f16, float, 4, 2, 1)
        FORM(1, mma_m16n8k16_f32_f16, float, 4, 4, 2)
        FORM(2, mma_m16n8k8_f16_f16, u32, 2, 2, 1)
        FORM(3, mma_m16n8k16_f16_f16, u32, 2, 4, 2)
        FORM(4, mma_m16n8k8_f32_bf16, float, 4, 2, 1)
        FORM(5, mma_m16n8k16_f32_bf16, float, 4, 4, 2)
        FORM(6, mma_m16n8k4_f32_tf32, float, 4, 2, 1)
        FORM(7, mma_m16n8k8_f32_tf32, float, 4, 4, 2)
        FORM(8, mma_m16n8k16_s32_s8_s8, i32, 4, 2, 1)
        FORM(9, mma_m16n8k16_s32_s8_u8, i32, 4, 2, 1)
        FORM(10, mma_m16n8k16_s32_u8_s8, i32, 4, 2, 1)
        FORM(11, mma_m16n8k16_s32_u8_u8, i32, 4, 2, 1)
        FORM(12, mma_m16n8k32_s32_s8_s8, i32, 4, 4, 2)
        FORM(13, mma_m16n8k32_s32_s8_u8, i32, 4, 4, 2)
        FORM(14, mma_m16n8k32_s32_u8_s8, i32, 4, 4, 2)
        FORM(15, mma_m16n8k32_s32_u8_u8, i32, 4, 4, 2)
        FORM(16, mma_m16n8k32_s32_s8_s8_sat, i32, 4, 4, 2)
        FORM(17, mma_m16n8k32_s32_u8_u8_sat, i32, 4, 4, 2)
#if QN_ARCH >= 89
        FORM(18, mma_m16n8k32_f32_e4m3_e4m3, float, 4, 4, 2)
        FORM(19, mma_m16n8k32_f32_e4m3_e5m2, float, 4, 4, 2)
        FORM(20, mma_m16n8k32_f32_e5m2_e4m3, float, 4, 4, 2)
        FORM(21, mma_m16n8k32_f32_e5m2_e5m2, float, 4, 4, 2)
        FORM(22, mma_m16n8k32_f16_e4m3_e4m3, u32, 2, 4, 2)
        FORM(23, mma_m16n8k32_f16_e5m2_e5m2, u32, 2, 4, 2)
        FORM(24, mma_m16n8k16_f32_e4m3_e4m3, float, 4, 2, 1)
        FORM(25, mma_m16n8k16_f32_e5m2_e5m2, float, 4, 2, 1)
#endif
    }
}
