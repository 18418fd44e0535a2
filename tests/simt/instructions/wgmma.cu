// SPDX-License-Identifier: Apache-2.0
// wgmma: one warpgroup, one form. in: 16 words: words of A's and of B's image in shared memory, leading, stride and
// swizzle of A and of B, byte offset of A's and of B's start, accumulate, shape repeats; then the two images, then
// A's 4 registers, then D's. out: D's registers.
#include "case.cuh"

#include "../../../kernel_templates/common/fence.cuh"
#include "../../../kernel_templates/common/wgmma.cuh"
#include "../../../kernel_templates/common/wgmma_fp8.cuh"
#include "../../../kernel_templates/common/wgmma_int8.cuh"
#include "../../../kernel_templates/common/wgmma_tf32.cuh"

struct alignas(1024) ImageA {
    u32 words[2048];
};
struct alignas(1024) ImageB {
    u32 words[8192];
};
struct Inputs {
    const u32 *d; // registers
    u32 *out;
    u64 a, b; // descriptors
    u32 registers[4];
    bool accumulate;
    u32 repeats; // of the same wgmma on the same accumulators
};

#define FORM(number, T, count, call_a, call)                                                                           \
    case number: {                                                                                                     \
        T d[count];                                                                                                    \
        take(d, inputs.d);                                                                                             \
        wgmma_fence_operand(d);                                                                                        \
        wgmma_fence();                                                                                                 \
        call(d, inputs.call_a, inputs.b, inputs.accumulate);                                                           \
        for (u32 i = 1; i < inputs.repeats; i++) call(d, inputs.call_a, inputs.b, true);                               \
        wgmma_commit_group();                                                                                          \
        wgmma_wait_group<0>();                                                                                         \
        wgmma_fence_operand(d);                                                                                        \
        give(inputs.out, d);                                                                                           \
        break;                                                                                                         \
    }

extern "C" __global__ void __launch_bounds__(THREADS) QN_ENTRY(const __grid_constant__ Case test)
{
    QN_SHARED_FIRST;
    QN_SHARED(ImageA, image_a);
    QN_SHARED(ImageB, image_b);
    const u32 *in = test.in, *images = in + 16, t = threadIdx.x;
    for (u32 i = t; i < in[0]; i += THREADS) image_a.words[i] = images[i];
    for (u32 i = t; i < in[1]; i += THREADS) image_b.words[i] = images[in[0] + i];
    fence_proxy_async_shared();
    __syncthreads();
    Inputs inputs;
    const char *start_a = reinterpret_cast<const char *>(&image_a) + in[8],
               *start_b = reinterpret_cast<const char *>(&image_b) + in[9];
    inputs.a = wgmma_descriptor(start_a, in[2], in[3], (WgmmaSwizzle)in[4]);
    inputs.b = wgmma_descriptor(start_b, in[5], in[6], (WgmmaSwizzle)in[7]);
    inputs.accumulate = in[10] != 0;
    inputs.repeats = in[11];
    const u32 *registers = images + in[0] + in[1];
    take(inputs.registers, registers);
    inputs.d = registers + 4 * THREADS;
    inputs.out = test.out;
    switch (test.which) {
        FORM(0, float, 4, a, wgmma_f32_bf16<8>)
        FORM(1, float, 12, a, wgmma_f32_bf16<24>)
        FORM(2, float, 32, a, wgmma_f32_bf16<64>)
        FORM(3, float, 128, a, wgmma_f32_bf16<256>)
        FORM(4, float, 32, a, (wgmma_f32_bf16<64, 0, 1>))
        FORM(5, float, 32, a, (wgmma_f32_bf16<64, 1, 0>))
        FORM(6, float, 64, a, (wgmma_f32_bf16<128, 1, 1>))
        FORM(7, float, 8, registers, wgmma_f32_bf16<16>)
        FORM(8, float, 16, registers, (wgmma_f32_bf16<32, 1>))
        FORM(9, float, 8, a, (wgmma_f32_bf16<16, 0, 0, -1, 1>))
        FORM(10, float, 8, registers, (wgmma_f32_bf16<16, 0, 1, -1>))
        FORM(11, float, 8, a, wgmma_f32_f16<16>)
        FORM(12, float, 8, registers, wgmma_f32_f16<16>)
        FORM(13, u32, 4, a, wgmma_f16_f16<16>)
        FORM(14, u32, 2, registers, wgmma_f16_f16<8>)
        FORM(15, u32, 16, a, (wgmma_f16_f16<64, 1, 1>))
        FORM(16, float, 8, a, wgmma_f32_tf32<16>)
        FORM(17, float, 8, registers, wgmma_f32_tf32<16>)
        FORM(18, float, 8, a, wgmma_f32_e4m3_e4m3<16>)
        FORM(19, float, 8, a, wgmma_f32_e4m3_e5m2<16>)
        FORM(20, float, 8, a, wgmma_f32_e5m2_e4m3<16>)
        FORM(21, float, 8, registers, wgmma_f32_e5m2_e5m2<16>)
        FORM(22, float, 8, registers, wgmma_f32_e4m3_e4m3<16>)
        FORM(23, u32, 4, a, wgmma_f16_e4m3_e4m3<16>)
        FORM(24, u32, 4, registers, wgmma_f16_e5m2_e5m2<16>)
        FORM(25, i32, 8, a, wgmma_s32_s8_s8<16>)
        FORM(26, i32, 8, a, wgmma_s32_s8_u8<16>)
        FORM(27, i32, 8, registers, wgmma_s32_u8_s8<16>)
        FORM(28, i32, 12, a, wgmma_s32_u8_u8<24>)
    }
}
