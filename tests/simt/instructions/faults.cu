// SPDX-License-Identifier: Apache-2.0
// Uses of the copy and matrix instructions that the manual forbids, one a number, and the right use of each beside it
// (numbers below 10). For the model only: on a device most of them do anything. One warpgroup.
#include "case.cuh"

#include "../../../kernel_templates/common/async_copy.cuh"
#include "../../../kernel_templates/common/bulk.cuh"
#include "../../../kernel_templates/common/elect.cuh"
#include "../../../kernel_templates/common/fence.cuh"
#include "../../../kernel_templates/common/matrix.cuh"
#include "../../../kernel_templates/common/mbarrier.cuh"
#include "../../../kernel_templates/common/mma.cuh"
#include "../../../kernel_templates/common/wgmma.cuh"

struct alignas(1024) Operand {
    u32 words[2048]; // 64 rows of 128 bytes
};

QN_DEVICE void multiply(u32 which, Operand &a, Operand &b, u32 *out)
{
    const u32 t = threadIdx.x;
    for (u32 i = t; i < 2048; i += THREADS) a.words[i] = b.words[i] = 0;
    if (which != 10) fence_proxy_async_shared();
    __syncthreads();
    u64 da = wgmma_descriptor(&a, 16, 1024, kSwizzle128);
    u64 db = wgmma_descriptor(&b, 16, which == 11 ? 1024 * 16 : 1024, kSwizzle128);
    if (which == 12) da |= 1ull << 49;
    if (which == 13) da = wgmma_descriptor(a.words + 32, 16, 1024, kSwizzle128);
    if (which == 14) da += t / 32 == 2 ? 2 : 0;
    float d[32], e[4];
    for (int i = 0; i < 32; i++) d[i] = 0.f;
    for (int i = 0; i < 4; i++) e[i] = 0.f;
    if (which != 15) wgmma_fence();
    wgmma_f32_bf16<64>(d, da, db, true);
    if (which == 16) wgmma_f32_bf16<8>(reinterpret_cast<float(&)[4]>(d), da, db, true);
    if (which == 17) a.words[t] = 1;
    wgmma_commit_group();
    if (which == 18) out[t] = as_word(d[0]);
    if (which == 19) {
        wgmma_f32_bf16<8>(e, da, db, true);
        wgmma_commit_group();
        wgmma_wait_group<1>();
        e[0] += 1.f;
    }
    wgmma_wait_group<0>();
    if (which == 20) wgmma_f32_bf16<64>(d, da, db, true);
    wgmma_wait_group<0>();
    out[t] = as_word(d[0]);
    out[THREADS + t] = as_word(e[0]);
}

QN_DEVICE void copies(u32 which, Operand &a, u64 *bar, const Case &test)
{
    const u32 t = threadIdx.x;
    if (t == 0) {
        mbarrier_init(bar, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (t == 0) {
        const u32 bytes = which == 30 ? 24 : 32;
        mbarrier_arrive_expect_tx(bar, bytes);
        if (which == 31)
            cp_async_bulk_load(a.words + 1, test.in, bytes, bar);
        else if (which == 32)
            cp_async_bulk_tensor_2d_load(&a, reinterpret_cast<const TensorMap *>(test.in), bar, 0, 0);
        else if (which == 33)
            cp_async_bulk_tensor_2d_load(&a, &test.map, bar, 1, 0);
        else if (which == 34)
            cp_async_bulk_tensor_3d_load(&a, &test.map, bar, 0, 0, 0);
        else if (which == 35)
            cp_async_bulk_tensor_2d_load(a.words + 4, &test.map, bar, 0, 0);
        else if (which == 36)
            cp_async_bulk_tensor_2d_store(&test.map, &a, 0, -1);
        else
            cp_async_bulk_load(&a, test.in, bytes, bar);
        if (which == 37) test.out[0] = a.words[0];
        if (which == 38) cp_async_bulk_load(&a, test.in, bytes, bar);
    }
    if (which == 39) return;
    while (!mbarrier_try_wait_parity(bar, 0)) {
    }
    test.out[t] = a.words[t % 8];
}

QN_DEVICE void fragments(u32 which, Operand &a, u32 *out)
{
    const u32 t = threadIdx.x;
    u32 r[4] = {0, 0, 0, 0}, b[2] = {0, 0};
    float c[4] = {0.f, 0.f, 0.f, 0.f};
    for (u32 i = t; i < 128; i += THREADS) a.words[i] = i;
    __syncthreads();
    const u32 *row = a.words + 4 * (t % 32);
    if (which == 50) row++;
    if (which == 51) row += 2048;
    if (which == 52) row += 256;
    ldmatrix_x4(r, row);
    if (which == 53 && t % 32 < 16)
        mma_m16n8k16_f32_bf16(c, r, b, c);
    else if (which != 53)
        mma_m16n8k16_f32_bf16(c, r, b, c);
    if (which == 54) cp_async_ca<16>(a.words + 4 * t + 1, out);
    out[t] = r[0] + as_word(c[0]);
}

QN_DEVICE void registers(u32 which)
{
    setmaxnreg_dec<40>();
    if (which == 60)
        setmaxnreg_inc<32>();
    else
        setmaxnreg_inc<232>();
    if (which == 61 && elect_sync(1u << (threadIdx.x % 32 ? 0 : 1))) __syncwarp();
}

extern "C" __global__ void __launch_bounds__(THREADS) QN_ENTRY(const __grid_constant__ Case test)
{
    QN_SHARED_FIRST;
    QN_SHARED(Operand, a);
    QN_SHARED(Operand, b);
    QN_SHARED(u64, bar);
    const u32 which = test.which;
    if (which == 0 || (which >= 10 && which < 30)) multiply(which, a, b, test.out);
    if (which == 1 || (which >= 30 && which < 50)) copies(which, a, &bar, test);
    if (which == 2 || (which >= 50 && which < 60)) fragments(which, a, test.out);
    if (which == 3 || (which >= 60 && which < 70)) registers(which);
}
