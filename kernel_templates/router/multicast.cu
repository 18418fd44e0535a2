// SPDX-License-Identifier: Apache-2.0
// router, plan "multicast": tensor cores of sm_90a on tiles that the CTAs of a cluster share. For more than 64 tokens,
// 16-bit types, W [E, D].
//
//   logit[n, e] = Σ_d x[n, d] · w[e, d]
//
//   cluster   CLUSTER_N × CLUSTER_E CTAs, a tile of TOKENS × EXPERTS each: CTAs of one row have the same tokens, those of
//             one column the same experts
//   load      a warp. A block of 64 of D of x goes by TMA to all CTAs of the row, of W to all of the column; they take
//             turns at asking for it. A ring of STAGES blocks, with an mbarrier each that says it is full, and one that
//             says that all who share it have done with it.
//   multiply  warpgroups of TOKENS / 64 / kMultiplyGroups · 64 tokens and all experts of the tile: wgmma m64nEXPERTSk16
//   sums      published for gather.cu, or (LOGITS) stored as logits for a launch of the gate
//
// Prologue, besides problem.cuh's: TOKENS, STAGES, LOGITS, CLUSTER_N, CLUSTER_E.
// ANALYSIS.md: work, bounds, measured figures.
#include "../common/cluster.cuh"
#include "../common/elect.cuh"
#include "../common/fence.cuh"
#include "../common/tma.cuh"
#include "../common/wgmma.cuh"
#include "args_multicast.h"
#include "put.cuh"

constexpr u32 kTokens = TOKENS;
constexpr u32 kGroupThreads = 128;
constexpr u32 kMultiplyGroups = THREADS / kGroupThreads - 1; // that multiply; one more loads
constexpr u32 kMultipliers = kMultiplyGroups * kGroupThreads;
constexpr u32 kRows = TOKENS / 64 / kMultiplyGroups; // tiles of M a warpgroup
constexpr u32 kSums = EXPERTS / 2;                   // a thread and tile of M
constexpr u32 kAcross = CLUSTER_E, kDown = CLUSTER_N;
constexpr u32 kBlock = 64;
constexpr u32 kRowUnits = kBlock / 8;
constexpr u32 kStageUnits = (TOKENS + EXPERTS) * kRowUnits;
constexpr u32 kWide = (kExpertTiles + kAcross - 1) / kAcross; // clusters for all experts
// Registers a thread, where the launch gives each 64 Ki / THREADS: those that load need few.
constexpr int kLoaderRegisters = kMultiplyGroups == 3 ? 32 : 40;
constexpr int kMultiplierRegisters = kMultiplyGroups == 3 ? 160 : 232;

static_assert(X_TYPE == W_TYPE && X_TYPE != 1, "X_TYPE, W_TYPE: the same, of 16 bits");
static_assert(kMultiplyGroups >= 1 && kMultiplyGroups <= 3 && TOKENS == 64 * kRows * kMultiplyGroups,
              "THREADS: whole tiles of M a warpgroup");
static_assert(TOKENS <= 256 && EXPERTS % 8 == 0 && EXPERTS <= 256, "TOKENS, EXPERTS: a box of TMA, 256 at most");
static_assert(CLUSTER == CLUSTER_E * CLUSTER_N && CLUSTER <= 8, "CLUSTER_E, CLUSTER_N: 8 at most");
static_assert(STAGES >= 2 && STAGES <= 16, "STAGES: 2 to 16");
static_assert(SLICES == 1 || SLICE % 64 == 0, "SLICE: whole blocks");
static_assert(!LOGITS || SLICES == 1, "SLICES: 1 where logits are stored");
static_assert(GATE_AT == STAGES * (kStageUnits * 16 + 16), "the sizes of ops/router_shape.c");

struct alignas(1024) Pattern { // 8 rows of 64 elements; unit u of row r lies at u ^ r
    uint4 unit[64];
};

struct Pieces {
    uint4 *blocks;     // [STAGES, kStageUnits], of a block first x's
    u64 *full, *empty; // [STAGES]
};

QN_DEVICE Pieces pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(Pattern, blocks, STAGES * kStageUnits / 64);
    QN_SHARED_ARRAY(u64, barriers, 2 * STAGES);
    return Pieces{blocks->unit, barriers, barriers + STAGES};
}

QN_DEVICE uint4 *block_of(const Pieces &s, u32 block)
{
    return s.blocks + block % STAGES * kStageUnits;
}

// ---- the cluster

struct Place {
    u32 across, down; // in the cluster
    u32 blocks;       // of D
    Part part;
};

QN_DEVICE Place place_of_cta()
{
    const u32 cluster = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER;
    Place place;
    place.across = rank % kAcross, place.down = rank / kAcross;
    Part &part = place.part;
    part.expert = (cluster % kWide * kAcross + place.across) * kExperts;
    part.slice = cluster / kWide % kSlices;
    part.begin = part.slice * kSlice;
    part.end = kSlices == 1 ? kD : min(kD, part.begin + kSlice);
    part.token = (i64)(cluster / kWide / kSlices * kDown + place.down) * kTokens;
    place.blocks = (part.end - part.begin + kBlock - 1) / kBlock;
    return place;
}

QN_DEVICE void start_barriers(const Pieces &s)
{
    for (u32 i = 0; i < STAGES; i++) {
        mbarrier_init(s.full + i, 1);
        mbarrier_init(s.empty + i,
                      (kAcross + kDown - 1) * kMultiplyGroups * 4); // every warp that reads what this CTA asks for
    }
    fence_mbarrier_init();
}

// All of the cluster have started, or will touch each other's memory no more.
QN_DEVICE void arrive()
{
    if constexpr (CLUSTER > 1) cluster_arrive();
}
QN_DEVICE void wait()
{
    if constexpr (CLUSTER > 1) cluster_wait();
}

// The phase'th time that the barrier's phase ends, from 0 on.
QN_DEVICE void wait_phase(u64 *bar, u32 phase)
{
    while (!mbarrier_try_wait_parity_cluster(bar, phase & 1)) {
    }
}

// ---- load

QN_DEVICE const TensorMap *map_of(const router_map &map)
{
    return reinterpret_cast<const TensorMap *>(&map);
}

template <u32 kShares> QN_DEVICE void load_box(uint4 *to, const router_map &map, u64 *bar, u32 ranks, u32 d, u32 row)
{
    if constexpr (kShares > 1)
        cp_async_bulk_tensor_2d_load_multicast(to, map_of(map), bar, (u16)ranks, (i32)d, (i32)row);
    else
        cp_async_bulk_tensor_2d_load(to, map_of(map), bar, (i32)d, (i32)row);
}

// By one thread.
QN_DEVICE void load_blocks(const router_multicast_params &all, const Place &place, const Pieces &s)
{
    u32 column = 0;
#pragma unroll
    for (u32 i = 0; i < kDown; i++) column |= 1u << (i * kAcross + place.across);
    const u32 row = ((1u << kAcross) - 1) << (place.down * kAcross);
#pragma unroll 1
    for (u32 block = 0; block < place.blocks; block++) {
        const u32 stage = block % STAGES, d = place.part.begin + block * kBlock;
        uint4 *to = block_of(s, block);
        if (block >= STAGES) wait_phase(s.empty + stage, block / STAGES - 1);
        mbarrier_arrive_expect_tx(s.full + stage, kStageUnits * 16);
        if (block % kAcross == place.across)
            load_box<kAcross>(to, all.x, s.full + stage, row, d, (u32)place.part.token);
        if (block % kDown == place.down)
            load_box<kDown>(to + kTokens * kRowUnits, all.w, s.full + stage, column, d, place.part.expert);
    }
}

// ---- multiply

QN_DEVICE void multiply_add(float (&c)[kSums], u64 x, u64 w, bool accumulate)
{
    if constexpr (X_TYPE == 3)
        wgmma_f32_bf16<EXPERTS>(c, x, w, accumulate);
    else
        wgmma_f32_f16<EXPERTS>(c, x, w, accumulate);
}

struct Sums {
    float c[kRows][kSums];
};

QN_DEVICE void multiply_block(Sums &sums, const uint4 *block, u32 group, bool accumulate)
{
    const u64 w = wgmma_descriptor(block + kTokens * kRowUnits, 16, 1024, kSwizzle128);
    wgmma_fence();
#pragma unroll
    for (u32 r = 0; r < kRows; r++) {
        const u64 x = wgmma_descriptor(block + (group * kRows + r) * 64 * kRowUnits, 16, 1024, kSwizzle128);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            multiply_add(sums.c[r], wgmma_descriptor_advance(x, k * 32), wgmma_descriptor_advance(w, k * 32),
                         accumulate || k);
    }
    wgmma_commit_group();
}

// This warp has done with a block: so it says to all who may ask for the next one in its place.
QN_DEVICE void release(const Pieces &s, const Place &place, u32 block)
{
    const u32 lane = lane_index();
    if (block + STAGES >= place.blocks || lane >= kAcross + kDown - 1) return;
    const u32 other = lane - kAcross + (lane - kAcross >= place.down ? 1 : 0); // of the column
    const u32 rank = lane < kAcross ? place.down * kAcross + lane : other * kAcross + place.across;
    if constexpr (CLUSTER > 1)
        mbarrier_arrive_in(s.empty + block % STAGES, rank);
    else
        mbarrier_arrive(s.empty + block % STAGES);
}

QN_DEVICE void multiply_blocks(Sums &sums, const Place &place, const Pieces &s, u32 group)
{
#pragma unroll 1
    for (u32 block = 0; block < place.blocks; block++) {
        wait_phase(s.full + block % STAGES, block / STAGES);
        multiply_block(sums, block_of(s, block), group, block > 0);
        wgmma_wait_group<1>();
        if (block > 0) release(s, place, block - 1);
    }
    wgmma_wait_group<0>();
}

// ---- inputs that do not begin at multiples of 16 bytes: the multiplying threads load, element by element

template <class Raw> QN_DEVICE void fill(uint4 *to, const Raw *from, i64 stride, u32 rows, i64 left, u32 d, u32 end)
{
#pragma unroll 1
    for (u32 i = threadIdx.x; i < rows * kRowUnits; i += kMultipliers) {
        const u32 row = i / kRowUnits, unit = i % kRowUnits, at = d + unit * 8;
        to[row * kRowUnits + (unit ^ (row % 8))] =
            gather_vector(from + (row < left ? row * stride + at : 0), row < left && at < end ? 8u : 0u);
    }
}

QN_DEVICE void gather_blocks(Sums &sums, const router_params &p, const Place &place, const Pieces &s, u32 group)
{
    const Part &part = place.part;
    const RawW *w = static_cast<const RawW *>(p.w) + (i64)part.expert * p.w_stride;
#pragma unroll 1
    for (u32 block = 0; block < place.blocks; block++) {
        const u32 d = part.begin + block * kBlock;
        fill(s.blocks, row_of_x(p, part.token), p.x_stride, kTokens, p.gate.N - part.token, d, part.end);
        fill(s.blocks + kTokens * kRowUnits, w, p.w_stride, kExperts, (i64)kE - part.expert, d, part.end);
        fence_proxy_async_shared();
        barrier_sync(1, kMultipliers);
        multiply_block(sums, s.blocks, group, block > 0);
        wgmma_wait_group<0>();
        barrier_sync(1, kMultipliers);
    }
}

// ---- sums

QN_DEVICE void put_sums(const router_params &p, const Part &part, const Sums &sums, u32 group)
{
    const u32 thread = threadIdx.x % kGroupThreads;
#pragma unroll
    for (u32 r = 0; r < kRows; r++) {
        const i64 low = part.token + (group * kRows + r) * 64 + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
        for (u32 i = 0; i < kSums; i += 2)
            put_pair(p, part, low + i / 2 % 2 * 8, part.expert + thread % 4 * 2 + i / 4 * 8, sums.c[r][i],
                     sums.c[r][i + 1]);
    }
}

QN_DEVICE void multiply(const router_multicast_params &all, const Place &place, const Pieces &s, u32 group)
{
    Sums sums;
    if (all.mapped)
        multiply_blocks(sums, place, s, group);
    else
        gather_blocks(sums, all.p, place, s, group);
#pragma unroll
    for (u32 r = 0; r < kRows; r++) wgmma_fence_operand(sums.c[r]);
    arrive();
    put_sums(all.p, place.part, sums, group);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
    QN_ENTRY(const __grid_constant__ router_multicast_params all)
{
    const Pieces s = pieces();
    const Place place = place_of_cta();
    const u32 group = __shfl_sync(kFullMask, threadIdx.x / kGroupThreads, 0);
    launch_dependents();
    if (threadIdx.x == 0) start_barriers(s);
    arrive();
    if constexpr (CLUSTER == 1) __syncthreads();
    wait();
    if (group == kMultiplyGroups) {
        if constexpr (kMultiplyGroups > 1) setmaxnreg_dec<kLoaderRegisters>();
        if (warp_index() % 4 == 0 && all.mapped && elect_sync(kFullMask)) load_blocks(all, place, s);
        __syncwarp(kFullMask);
        arrive();
    } else {
        if constexpr (kMultiplyGroups > 1) setmaxnreg_inc<kMultiplierRegisters>();
        multiply(all, place, s, group);
    }
    wait();
}
