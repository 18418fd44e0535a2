// SPDX-License-Identifier: Apache-2.0
// router, plan "wide": tensor cores of sm_90a on 64 tokens at a time. For 17 to 64 tokens, 16-bit types, W [E, D].
//
//   logit[n, e] = Σ_d x[n, d] · w[e, d], then exchange.cuh and the gate
//
//   load      all blocks of 64 of D of the slice at once, by asynchronous copies into shared memory with the 128-byte
//             swizzle; each of GROUPS warpgroups loads the blocks that it multiplies: block % GROUPS
//   multiply  wgmma m64nEXPERTSk16, tokens on M (zeros beyond the last), two blocks a wait
//   sum       over the warpgroups, in order, through shared memory; the sums are published
//
// Prologue, besides problem.cuh's: TOKENS (64), GROUPS (warpgroups that multiply).
// ANALYSIS.md: work, bounds, measured figures.
#include "../common/async_copy.cuh"
#include "../common/fence.cuh"
#include "../common/wgmma.cuh"
#include "exchange.cuh"

static_assert(X_TYPE == W_TYPE && X_TYPE != 1, "X_TYPE, W_TYPE: the same, of 16 bits");
static_assert(TOKENS == 64, "TOKENS: 64");
static_assert(EXPERTS % 8 == 0 && EXPERTS <= 64, "EXPERTS: a multiple of 8, 64 at most");
static_assert(GROUPS >= 1 && GROUPS <= 4 && GROUPS * 128 <= THREADS, "GROUPS: warpgroups of the CTA, 4 at most");

constexpr u32 kTokens = TOKENS;
constexpr u32 kBlocks = (kSlice + 63) / 64;
constexpr u32 kAtOnce = 2;              // blocks a wait
constexpr u32 kPatternsX = kTokens / 8; // of a block
constexpr u32 kPatternsW = kExperts / 8;
constexpr u32 kPatterns = kPatternsX + kPatternsW;
constexpr u32 kSums = kExperts / 2; // a thread
constexpr u32 kOtherSums = (GROUPS - 1) * kSums * 128;

struct alignas(1024) Pattern { // 8 rows of 64 elements; unit u of row r lies at u ^ r
    uint4 unit[64];
};

static_assert(kBlocks >= GROUPS, "GROUPS: a block each");
static_assert(GATE_AT >= kBlocks * kPatterns * 1024 + kOtherSums * 4, "the sizes of ops/router.c");

struct Pieces {
    Pattern *blocks; // [kBlocks, kPatterns], of a block first x's
    float *sums;     // [GROUPS - 1, kSums, 128]
};

QN_DEVICE Pieces pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(Pattern, blocks, kBlocks * kPatterns);
    QN_SHARED_ARRAY(float, sums, kOtherSums > 0 ? kOtherSums : 1);
    return Pieces{blocks, sums};
}

// ---- load

QN_DEVICE uint4 *place_of(Pattern *patterns, u32 row, u32 unit)
{
    return &patterns[row / 8].unit[row % 8 * 8 + (unit ^ (row % 8))];
}

QN_DEVICE bool is_inside(u32 d, const Part &part)
{
    return (kWholeSlices && kSlice % 64 == 0) || d < part.end;
}

// By the 128 threads of a warpgroup.
QN_DEVICE void load_block(const router_params &p, const Part &part, Pattern *patterns, u32 block)
{
    const u32 d = part.begin + block * 64, thread = threadIdx.x % 128;
    const RawW *w = static_cast<const RawW *>(p.w);
#pragma unroll
    for (u32 i = thread; i < kExperts * 8; i += 128) {
        const u32 row = i / 8, unit = i % 8, e = part.expert + row, at = d + unit * 8;
        const bool exists = is_expert(e) && is_inside(at, part);
        cp_async_cg_zfill(place_of(patterns + kPatternsX, row, unit), exists ? w + (i64)e * p.w_stride + at : w,
                          exists ? 16 : 0);
    }
#pragma unroll
    for (u32 i = thread; i < kTokens * 8; i += 128) {
        const u32 row = i / 8, unit = i % 8, at = d + unit * 8;
        const bool exists = part.token + row < p.gate.N && is_inside(at, part);
        cp_async_cg_zfill(place_of(patterns, row, unit), exists ? row_of_x(p, part.token + row) + at : row_of_x(p, 0),
                          exists ? 16 : 0);
    }
}

// Until at most so many of this thread's groups of copies are unfinished.
QN_DEVICE void wait_for_copies(u32 pending)
{
    if (pending == 0) cp_async_wait_group<0>();
    if (pending == 1) cp_async_wait_group<1>();
    if (pending == 2) cp_async_wait_group<2>();
    if (pending == 3) cp_async_wait_group<3>();
    if (pending >= 4) cp_async_wait_group<4>();
}

// ---- multiply

QN_DEVICE void multiply_add(float (&c)[kSums], u64 x, u64 w, bool accumulate)
{
    if constexpr (X_TYPE == 3)
        wgmma_f32_bf16<EXPERTS>(c, x, w, accumulate);
    else
        wgmma_f32_f16<EXPERTS>(c, x, w, accumulate);
}

QN_DEVICE void multiply_block(float (&c)[kSums], const Pattern *patterns, bool accumulate)
{
    const u64 x = wgmma_descriptor(patterns, 16, 1024, kSwizzle128);
    const u64 w = wgmma_descriptor(patterns + kPatternsX, 16, 1024, kSwizzle128);
#pragma unroll
    for (u32 k = 0; k < 4; k++)
        multiply_add(c, wgmma_descriptor_advance(x, k * 32), wgmma_descriptor_advance(w, k * 32), accumulate || k);
}

// The blocks of warpgroup kGroup: kGroup, kGroup + GROUPS, …
template <u32 kGroup>
QN_DEVICE void multiply_own(const router_params &p, const Part &part, const Pieces &s, float (&c)[kSums])
{
    constexpr u32 kOwn = (kBlocks - kGroup + GROUPS - 1) / GROUPS, kWaits = (kOwn + kAtOnce - 1) / kAtOnce;
#pragma unroll
    for (u32 i = 0; i < kOwn; i++) {
        const u32 block = i * GROUPS + kGroup;
        load_block(p, part, s.blocks + block * kPatterns, block);
        if ((i + 1) % kAtOnce == 0 || i + 1 == kOwn) cp_async_commit_group();
    }
#pragma unroll
    for (u32 wait = 0; wait < kWaits; wait++) {
        wait_for_copies(kWaits - 1 - wait);
        fence_proxy_async_shared();
        barrier_sync(1 + kGroup, 128);
        wgmma_fence();
#pragma unroll
        for (u32 i = wait * kAtOnce; i < (wait + 1) * kAtOnce && i < kOwn; i++)
            multiply_block(c, s.blocks + (i * GROUPS + kGroup) * kPatterns, i > 0);
        wgmma_commit_group();
    }
    wgmma_wait_group<0>();
    wgmma_fence_operand(c);
}

// Sums of a warpgroup that is not the first.
template <u32 kGroup> QN_DEVICE void hand_over(const router_params &p, const Part &part, const Pieces &s)
{
    float c[kSums];
    multiply_own<kGroup>(p, part, s, c);
#pragma unroll
    for (u32 i = 0; i < kSums; i++) s.sums[((kGroup - 1) * kSums + i) * 128 + threadIdx.x % 128] = c[i];
}

QN_DEVICE void put_sums(const router_params &p, const Part &part, const Pieces &s, const float (&own)[kSums])
{
    const u32 thread = threadIdx.x, low = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (u32 i = 0; i < kSums; i += 2) {
        float a = own[i], b = own[i + 1];
#pragma unroll
        for (u32 group = 1; group < GROUPS; group++) {
            const float *other = s.sums + ((group - 1) * kSums + i) * 128 + thread;
            a += other[0], b += other[128];
        }
        const i64 token = part.token + low + i / 2 % 2 * 8;
        const u32 expert = part.expert + thread % 4 * 2 + i / 4 * 8;
        if (token >= p.gate.N || expert >= kPitch) continue;
        store_polled(reinterpret_cast<uint2 *>(words_of(p, token, part.slice) + expert),
                     make_uint2(publish(a), publish(b)));
    }
}

QN_DEVICE void multiply(const router_params &p)
{
    const Pieces s = pieces();
    const Part part = part_of_block<kTokens>();
    const u32 group = __shfl_sync(kFullMask, threadIdx.x / 128, 0);
    float own[kSums] = {};
    if (group == 0) multiply_own<0>(p, part, s, own);
    if constexpr (GROUPS > 1) {
        if (group == 1) hand_over<1>(p, part, s);
    }
    if constexpr (GROUPS > 2) {
        if (group == 2) hand_over<2>(p, part, s);
    }
    if constexpr (GROUPS > 3) {
        if (group == 3) hand_over<3>(p, part, s);
    }
    __syncthreads();
    if (group == 0) put_sums(p, part, s, own);
}

QN_PARTS_KERNEL(multiply)
