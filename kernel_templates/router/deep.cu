// SPDX-License-Identifier: Apache-2.0
// router, plan "deep": tensor cores of sm_90a on a ring of blocks. For more than 64 tokens, 16-bit types, W [E, D].
//
//   logit[n, e] = Σ_d x[n, d] · w[e, d]
//
//   ring      blocks of 64 of D with the 128-byte swizzle (ring.cuh)
//   multiply  wgmma m64nEXPERTSk16: a warpgroup 64 tokens and all experts of the tile. A block's products run while the
//             threads ask for the block that follows the ring; they are waited for before its place is filled again.
//   sums      published for the gate of exchange.cuh, or (LOGITS) stored as logits for a launch of the gate
//
// Prologue, besides problem.cuh's and ring.cuh's: GROUPS (warpgroups that multiply).
// ANALYSIS.md: work, bounds, measured figures.
#include "../common/fence.cuh"
#include "products_wgmma.cuh"
#include "ring.cuh"

static_assert(BLOCK == 64 && W_LAYOUT == 0, "BLOCK: 64, W_LAYOUT: [E, D]");
static_assert(TOKENS == 64 * GROUPS && GROUPS * 128 <= THREADS, "TOKENS: 64 a warpgroup");

QN_DEVICE void multiply_block(float (&c)[kSums], const Stage &stage, u32 group, bool accumulate)
{
    const u64 x = descriptor_of(stage.x + group * 512), w = descriptor_of(stage.w);
    wgmma_fence();
    multiply_steps(c, x, w, accumulate);
    wgmma_commit_group();
}

// All threads fill; `multiplies` holds for whole warpgroups.
QN_DEVICE void multiply_blocks(float (&c)[kSums], const router_params &p, const Part &part, u32 group, bool multiplies)
{
    const Ring ring = ring_pieces();
    const Sources sources = sources_of(p, part);
    const u32 blocks = (part.end - part.begin + kBlock - 1) / kBlock;
    auto fill = [&](u32 block) {
        if (block < blocks) fill_stage(p, part, sources, ring.stage(block), part.begin + block * kBlock, part.end);
        cp_async_commit_group();
    };
#pragma unroll 1
    for (u32 block = 0; block < STAGES - 1; block++) fill(block);
#pragma unroll 1
    for (u32 block = 0; block < blocks; block++) {
        cp_async_wait_group<STAGES - 2>();
        if (multiplies) wgmma_wait_group<0>(); // the block before: its place is the next to be filled
        fence_proxy_async_shared();
        __syncthreads();
        if (multiplies) multiply_block(c, ring.stage(block), group, block > 0);
        fill(block + STAGES - 1);
    }
    if (multiplies) wgmma_wait_group<0>();
    cp_async_wait_all();
}

QN_DEVICE void multiply(const router_params &p)
{
    const Part part = part_of_tile();
    const u32 group = __shfl_sync(kFullMask, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    float c[kSums];
    multiply_blocks(c, p, part, group, group < GROUPS);
    if (group >= GROUPS) return;
    wgmma_fence_operand(c);
    const u32 low = part.token + group * 64 + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (u32 i = 0; i < kSums; i += 2)
        put_pair(p, part, low + i / 2 % 2 * 8, part.expert + thread % 4 * 2 + i / 4 * 8, c[i], c[i + 1]);
}

QN_RING_KERNEL(multiply)
