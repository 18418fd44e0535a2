// SPDX-License-Identifier: Apache-2.0
// A tile of bf16 by TMA and wgmma: out[64, 8] = a[64, 64] b[8, 64]^T and weighted sums of a's rows, by one warpgroup. FAULT
// plants what planted_faults_test.c looks for:
//   1  the mbarrier expects one arrival too many
//   2  a's rows are read without the swizzle
//   3  the accumulators are read before their wait
//   4  a's descriptor has the stride of another tile
//   5  a's tile is read without a wait on its mbarrier
#include "../../../kernel_templates/common/fence.cuh"
#include "../../../kernel_templates/common/mbarrier.cuh"
#include "../../../kernel_templates/common/tma.cuh"
#include "../../../kernel_templates/common/wgmma.cuh"

#define QN_ENTRY tile

struct Params {
    TensorMap a, b; // boxes of 64 x 64 and 64 x 8, swizzle 128 B
    float *out;     // [64, 8]
    float *sums;    // [64]
};
struct alignas(1024) TileA {
    u16 x[64 * 64];
};
struct alignas(1024) TileB {
    u16 x[8 * 64];
};

QN_DEVICE float row_sum(const TileA &a, u32 row)
{
    float sum = 0.f;
    for (u32 column = 0; column < 64; column++) {
        u32 byte = row * 128 + column * 2;
        if (FAULT != 2) byte ^= (byte >> 7 & 7) << 4;
        sum += (float)(column + 1) * __uint_as_float((u32)a.x[byte / 2] << 16);
    }
    return sum;
}

QN_DEVICE void store(float *out, const float (&d)[4], u32 t)
{
    const u32 row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    for (u32 r = 0; r < 4; r++) out[(row + r / 2 * 8) * 8 + column + r % 2] = d[r];
}

extern "C" __global__ void __launch_bounds__(128) tile(const __grid_constant__ Params p)
{
    QN_SHARED_FIRST;
    QN_SHARED(TileA, a);
    QN_SHARED(TileB, b);
    QN_SHARED(u64, full);
    const u32 t = threadIdx.x;
    if (t == 0) {
        mbarrier_init(&full, FAULT == 1 ? 2 : 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (t == 0) {
        mbarrier_arrive_expect_tx(&full, sizeof a + sizeof b);
        cp_async_bulk_tensor_2d_load(&a, &p.a, &full, 0, 0);
        cp_async_bulk_tensor_2d_load(&b, &p.b, &full, 0, 0);
    }
    if (FAULT == 5 && t == 64) p.sums[0] = row_sum(a, 0);
    while (!mbarrier_try_wait_parity(&full, 0)) {
    }
    if (t < 64) p.sums[t] = row_sum(a, t);
    float d[4];
    const u64 first_a = wgmma_descriptor(&a, 0, 1024, kSwizzle128);
    const u64 first_b = wgmma_descriptor(&b, 0, 1024, kSwizzle128);
    wgmma_fence_operand(d);
    wgmma_fence();
    for (u32 k = 0; k < 4; k++) {
        const u64 desc_a = FAULT == 4 ? wgmma_descriptor(&a, 0, 2048, kSwizzle128) : first_a;
        wgmma_f32_bf16<8>(d, wgmma_descriptor_advance(desc_a, 32 * k), wgmma_descriptor_advance(first_b, 32 * k),
                          k != 0);
    }
    wgmma_commit_group();
    if (FAULT == 3) store(p.out, d, t);
    wgmma_wait_group<0>();
    wgmma_fence_operand(d);
    if (FAULT != 3) store(p.out, d, t);
}
