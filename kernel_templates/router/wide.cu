// SPDX-License-Identifier: Apache-2.0
// router, plan "wide": tensor cores of sm_90a on 64 tokens at a time. For 17 to 64 tokens, 16-bit types, W [E, D].
//
//   logit[n, e] = Σ_d x[n, d] · w[e, d], then exchange.cuh and the gate
//
//   load      all blocks of 64 of D of the slice at once, by TMA, an mbarrier each; the first thread of each of GROUPS
//             warpgroups asks for the blocks that it multiplies: block % GROUPS
//   multiply  wgmma m64nEXPERTSk16, tokens on M (zeros beyond the last), each block when it is there
//   sum       over the warpgroups, in order, through shared memory; the sums are published
//
// By TMA and not by cp.async: what that writes needs a fence before wgmma may read it, and the fence waits for every copy
// that is still on its way.
//
// Prologue, besides problem.cuh's: TOKENS (64), GROUPS (warpgroups that multiply).
// ANALYSIS.md: work, bounds, measured figures.
#include "../common/fence.cuh"
#include "../common/mbarrier.cuh"
#include "exchange.cuh"
#include "maps.cuh"
#include "products_wgmma.cuh"

static_assert(TOKENS == 64, "TOKENS: 64");
static_assert(EXPERTS <= 64, "EXPERTS: 64 at most");
static_assert(GROUPS >= 1 && GROUPS <= 4 && GROUPS * 128 <= THREADS, "GROUPS: warpgroups of the CTA, 4 at most");

constexpr u32 kTokens = TOKENS;
constexpr u32 kBlocks = (kSlice + 63) / 64;
constexpr u32 kPatternsX = kTokens / 8; // of a block
constexpr u32 kPatternsW = kExperts / 8;
constexpr u32 kPatterns = kPatternsX + kPatternsW;
constexpr u32 kOtherSums = (GROUPS - 1) * kSums * 128;

static_assert(kBlocks >= GROUPS, "GROUPS: a block each");
static_assert(GATE_AT >= kBlocks * (kPatterns * 1024 + 8) + kOtherSums * 4, "the sizes of ops/router_shape.c");

struct Pieces {
    Pattern *blocks; // [kBlocks, kPatterns], of a block first x's
    u64 *full;       // [kBlocks]: all of a block is here
    float2 *sums;    // [GROUPS - 1, kSums / 2, 128]
};

QN_DEVICE Pieces pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(Pattern, blocks, kBlocks * kPatterns);
    QN_SHARED_ARRAY(u64, full, kBlocks);
    QN_SHARED_ARRAY(float2, sums, kOtherSums > 0 ? kOtherSums / 2 : 1);
    return Pieces{blocks, full, sums};
}

// ---- load

// Rows of a block of x that are loaded: zeros of rows outside the tensor would take longer than rows that are there.
QN_DEVICE u32 rows_of_x(const router_params &p)
{
    return min(p.tokens, kTokens);
}

// By one thread: the blocks of its warpgroup.
QN_DEVICE void load_own(const router_mapped_params &all, const Part &part, const Pieces &s, u32 group)
{
    const u32 rows = rows_of_x(all.p);
#pragma unroll 1
    for (u32 block = group; block < kBlocks; block += GROUPS) mbarrier_init(s.full + block, 1);
    fence_mbarrier_init();
#pragma unroll 1
    for (u32 block = group; block < kBlocks; block += GROUPS) {
        const u32 d = part.begin + block * 64;
        Pattern *patterns = s.blocks + block * kPatterns;
        mbarrier_arrive_expect_tx(s.full + block, (rows + kExperts) * 128);
        cp_async_bulk_tensor_2d_load(patterns + kPatternsX, map_of(all.w), s.full + block, (i32)d, (i32)part.expert);
        cp_async_bulk_tensor_2d_load(patterns, map_of(all.x), s.full + block, (i32)d, (i32)part.token);
    }
}

// By its 128 threads: zeros in the rows of x that are not loaded.
QN_DEVICE void clear_own(const router_params &p, const Pieces &s, u32 group)
{
    const u32 rows = rows_of_x(p);
    if (rows == kTokens) return;
#pragma unroll 1
    for (u32 block = group; block < kBlocks; block += GROUPS) {
        uint4 *x = s.blocks[block * kPatterns].unit;
        for (u32 i = rows * 8 + threadIdx.x % 128; i < kTokens * 8; i += 128) x[i] = make_uint4(0, 0, 0, 0);
    }
    fence_proxy_async_shared();
}

// ---- multiply

QN_DEVICE void multiply_block(float (&c)[kSums], const Pattern *patterns)
{
    const u64 x = descriptor_of(patterns->unit), w = descriptor_of(patterns[kPatternsX].unit);
    wgmma_fence();
    multiply_steps(c, x, w, true);
    wgmma_commit_group();
}

QN_DEVICE void wait_for_block(u64 *full)
{
    while (!mbarrier_try_wait_parity(full, 0)) {
    }
}

// The blocks of a warpgroup: group, group + GROUPS, … A loop, so that all warpgroups fetch the same few instructions.
QN_DEVICE void multiply_own(const router_mapped_params &all, const Part &part, const Pieces &s, u32 group,
                            float (&c)[kSums])
{
    if (threadIdx.x % 128 == 0) load_own(all, part, s, group);
    __syncwarp(kFullMask);
    clear_own(all.p, s, group);
    barrier_sync(1 + group, 128); // the mbarriers and the zeros are there
#pragma unroll 1
    for (u32 block = group; block < kBlocks; block += GROUPS) {
        wait_for_block(s.full + block);
        multiply_block(c, s.blocks + block * kPatterns);
        wgmma_wait_group<1>();
    }
    wgmma_wait_group<0>();
    wgmma_fence_operand(c);
}

QN_DEVICE float2 *sums_of_group(const Pieces &s, u32 group) // of one that is not the first: [kSums / 2, 128]
{
    return s.sums + (group - 1) * (kSums / 2 * 128) + threadIdx.x % 128;
}

QN_DEVICE void hand_over(const Pieces &s, u32 group, const float (&c)[kSums])
{
    float2 *to = sums_of_group(s, group);
#pragma unroll
    for (u32 i = 0; i < kSums / 2; i++) to[i * 128] = make_float2(c[2 * i], c[2 * i + 1]);
}

// By the first warpgroup: its own sums and those of the others, in order.
QN_DEVICE void put_sums(const router_params &p, const Part &part, const Pieces &s, float (&c)[kSums])
{
    const u32 thread = threadIdx.x, low = part.token + thread / 32 * 16 + thread % 32 / 4;
    const u32 expert = part.expert + thread % 4 * 2;
#pragma unroll
    for (u32 group = 1; group < GROUPS; group++) {
        const float2 *other = sums_of_group(s, group);
#pragma unroll
        for (u32 i = 0; i < kSums / 2; i++) {
            const float2 two = other[i * 128];
            c[2 * i] += two.x, c[2 * i + 1] += two.y;
        }
    }
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 *to = words_of(p, low + half * 8, part.slice) + expert;
        if (low + half * 8 >= p.tokens) continue;
#pragma unroll
        for (u32 j = 0; j < kSums / 4; j++)
            if (kWholeTiles || expert + j * 8 < kPitch)
                store_polled(reinterpret_cast<uint2 *>(to + j * 8),
                             make_uint2(publish(c[4 * j + 2 * half]), publish(c[4 * j + 2 * half + 1])));
    }
}

QN_DEVICE void multiply(const router_mapped_params &all)
{
    const Pieces s = pieces();
    const Part part = part_of_block<kTokens>();
    const u32 group = __shfl_sync(kFullMask, threadIdx.x / 128, 0);
    float c[kSums] = {};
    if (group < GROUPS) multiply_own(all, part, s, group, c);
    if (group > 0 && group < GROUPS) hand_over(s, group, c);
    __syncthreads();
    if (group == 0) put_sums(all.p, part, s, c);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
    QN_ENTRY(const __grid_constant__ router_mapped_params all)
{
    parts_kernel<kTokens>(all.p, [&] { multiply(all); });
}
