// SPDX-License-Identifier: Apache-2.0
// router, plan "multicast": tensor cores of sm_90a on tiles that the CTAs of a cluster share. For more than 64 tokens,
// 16-bit types, W [E, D].
//
//   logit[n, e] = Σ_d x[n, d] · w[e, d]
//
//   cluster   CLUSTER_N × CLUSTER_E CTAs, TOKENS × EXPERTS of the cluster's tile each, which has all experts: CTAs of one
//             row have the same tokens, those of one column the same experts
//   work      the blocks of 64 of D of all tiles in turn, dealt to the clusters in runs of equal length: so no SM is idle
//             because tiles are few, and a tile has up to SLICES parts, each the sum of a run. With one slice whole tiles
//             are dealt.
//   load      a warp. A block of x goes by TMA to all CTAs of the row, of W to all of the column; they take turns at
//             asking for it. A ring of STAGES blocks, with an mbarrier each that says it is full, and one that says that
//             all who share it have done with it.
//   multiply  warpgroups of TOKENS / 64 / kMultiplyGroups · 64 tokens and all experts of the CTA: wgmma m64nEXPERTSk16
//   sums      parts for a launch of the gate that adds them, or (LOGITS) logits
//
// Prologue, besides problem.cuh's: TOKENS, STAGES, LOGITS, CLUSTER_N, CLUSTER_E.
// ANALYSIS.md: work, bounds, measured figures.
#include "../common/bulk.cuh"
#include "../common/cluster.cuh"
#include "../common/elect.cuh"
#include "../common/fence.cuh"
#include "maps.cuh"
#include "products_wgmma.cuh"
#include "put.cuh"

constexpr u32 kTokens = TOKENS;
constexpr u32 kGroupThreads = 128;
constexpr u32 kMultiplyGroups = THREADS / kGroupThreads - 1; // that multiply; one more loads
constexpr u32 kMultipliers = kMultiplyGroups * kGroupThreads;
constexpr u32 kRows = TOKENS / 64 / kMultiplyGroups; // tiles of M a warpgroup
constexpr u32 kAcross = CLUSTER_E, kDown = CLUSTER_N;
constexpr u32 kBlock = 64;
constexpr u32 kRowUnits = kBlock / 8;
constexpr u32 kStageUnits = (TOKENS + EXPERTS) * kRowUnits;
constexpr u32 kBlocks = (kD + kBlock - 1) / kBlock;                     // of a tile
constexpr bool kAllExperts = EXPERTS * CLUSTER_E == kE && kE == kPitch; // no CTA has any beyond the last
constexpr u32 kAlone = CLUSTER > 1 ? 2 : STAGES; // blocks that a CTA asks for before the cluster has met
// Registers a thread, where the launch gives each 64 Ki / THREADS: those that load need few.
constexpr int kLoaderRegisters = kMultiplyGroups == 3 ? 32 : 40;
constexpr int kMultiplierRegisters = kMultiplyGroups == 3 ? 160 : 232;

static_assert(kMultiplyGroups >= 1 && kMultiplyGroups <= 3 && TOKENS == 64 * kRows * kMultiplyGroups,
              "THREADS: whole tiles of M a warpgroup");
static_assert(TOKENS <= 256, "TOKENS: a box of TMA, 256 at most");
static_assert(CLUSTER == CLUSTER_E * CLUSTER_N && CLUSTER <= 8, "CLUSTER_E, CLUSTER_N: 8 at most");
static_assert(STAGES >= 2 && STAGES <= 16, "STAGES: 2 to 16");
static_assert(EXPERTS * CLUSTER_E >= kPitch, "CLUSTER_E: all experts");
static_assert(!LOGITS || SLICES == 1, "SLICES: 1 where logits are stored");
static_assert(GATE_AT == (STAGES * (kStageUnits * 16 + 24) + 15) / 16 * 16, "the sizes of ops/router_shape.c");

struct Pieces {
    uint4 *blocks; // [STAGES, kStageUnits], of a block first x's
    u64 *full;     // [STAGES]: all of a block is here
    u64 *free_x;   // [STAGES]: all of the row have done with what lay there, for this CTA to ask for more of x
    u64 *free_w;   // [STAGES]: the same of the column and W
};

QN_DEVICE Pieces pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(Pattern, blocks, STAGES * kStageUnits / 64);
    QN_SHARED_ARRAY(u64, barriers, 3 * STAGES);
    return Pieces{blocks->unit, barriers, barriers + STAGES, barriers + 2 * STAGES};
}

QN_DEVICE uint4 *block_of(const Pieces &s, u32 block)
{
    return s.blocks + block % STAGES * kStageUnits;
}

// ---- the cluster and its work

struct Place {
    u32 across, down; // in the cluster
};

QN_DEVICE Place place_of_cta()
{
    const u32 rank = blockIdx.x % CLUSTER;
    return Place{rank % kAcross, rank / kAcross};
}

// Blocks in turn: of a tile from `first` on, then of the tiles after it.
struct Run {
    u32 tile, first;
    u32 left;
};

QN_DEVICE Run run_of_cluster(const router_multicast_params &all)
{
    const u32 worker = blockIdx.x / CLUSTER;
    if (all.parts.blocks) {
        const u32 begin = first_block_of(all.parts, worker);
        return Run{begin / kBlocks, begin % kBlocks, first_block_of(all.parts, worker + 1) - begin};
    }
    return Run{worker * all.tiles_each + min(worker, all.tiles_more), 0,
               (all.tiles_each + (worker < all.tiles_more ? 1 : 0)) * kBlocks};
}

// What of a run is of one tile.
struct Piece {
    Part part;  // of this CTA
    u32 blocks; // of D
};

QN_DEVICE Part part_at(const Place &place, const Run &run)
{
    return Part{place.across * kExperts, 0, run.first * kBlock, kD, (run.tile * kDown + place.down) * kTokens};
}

QN_DEVICE Piece next_piece(const router_multicast_params &all, const Place &place, const Run &run)
{
    Piece piece = {part_at(place, run), min(kBlocks - run.first, run.left)};
    if (kSlices > 1 && run.first) piece.part.slice = blockIdx.x / CLUSTER - worker_of(all.parts, run.tile * kBlocks);
    return piece;
}

QN_DEVICE void go_on(Run &run, u32 blocks) // of the tile that it is at
{
    run.left -= blocks;
    run.first += blocks;
    if (run.first == kBlocks) run.first = 0, run.tile++;
}

// What the thread that loads needs itself comes first.
QN_DEVICE void start_full(const Pieces &s)
{
    for (u32 i = 0; i < STAGES; i++) mbarrier_init(s.full + i, 1);
    fence_mbarrier_init();
}
QN_DEVICE void start_free(const Pieces &s)
{
    constexpr u32 kReaders = kMultiplyGroups * 4; // warps of a CTA
    for (u32 i = 0; i < STAGES; i++) {
        mbarrier_init(s.free_x + i, kAcross * kReaders);
        mbarrier_init(s.free_w + i, kDown * kReaders);
    }
    fence_mbarrier_init();
}

// All of the cluster have started their barriers.
QN_DEVICE void meet()
{
    if constexpr (CLUSTER > 1) {
        cluster_arrive_relaxed(); // behind fence.mbarrier_init
        cluster_wait();
    } else {
        __syncthreads();
    }
}

// The phase'th time that the barrier's phase ends, from 0 on. What is awaited is bytes of copies, or that others have
// read: no store of another CTA, so the scope of the CTA is enough.
QN_DEVICE void wait_phase(u64 *bar, u32 phase)
{
    while (!mbarrier_try_wait_parity(bar, phase & 1)) {
    }
}

// ---- load

template <bool kShared> QN_DEVICE void load_box(uint4 *to, const router_map &map, u64 *bar, u32 ranks, u32 d, u32 row)
{
    if constexpr (kShared)
        cp_async_bulk_tensor_2d_load_multicast(to, map_of(map), bar, (u16)ranks, (i32)d, (i32)row);
    else
        cp_async_bulk_tensor_2d_load(to, map_of(map), bar, (i32)d, (i32)row);
}

// Waits for a barrier of a stage whose phases this thread has counted: bit `stage` of turns.
QN_DEVICE void wait_turn(u64 *bars, u32 stage, u32 &turns)
{
    wait_phase(bars + stage, turns >> stage);
    turns ^= 1u << stage;
}

// The thread that loads.
struct Loader {
    Run run;
    u32 block; // of all pieces
    u32 turns_x, turns_w;
};

// Up to `blocks` blocks. Who asks for a block of x or W waits for all who had what lies in its place; the others say no more
// than how much will come, once what came before is here. Before the cluster has met, each asks for its own.
template <bool kMet>
QN_DEVICE void load_blocks(const router_multicast_params &all, const Place &place, const Pieces &s, Loader &l,
                           u32 blocks)
{
    const u32 row = ((1u << kAcross) - 1) << (place.down * kAcross);
    u32 column = 0;
#pragma unroll
    for (u32 i = 0; i < kDown; i++) column |= 1u << (i * kAcross + place.across);
#pragma unroll 1
    for (; blocks && l.run.left; blocks--, l.block++, go_on(l.run, 1)) {
        const u32 stage = l.block % STAGES;
        const Part part = part_at(place, l.run);
        const bool again = kMet && l.block >= STAGES;
        uint4 *to = block_of(s, l.block);
        if (again) wait_phase(s.full + stage, l.block / STAGES - 1);
        mbarrier_arrive_expect_tx(s.full + stage, kStageUnits * 16);
        if (!kMet || l.block % kAcross == place.across) {
            if (again) wait_turn(s.free_x, stage, l.turns_x);
            load_box<kMet && (kAcross > 1)>(to, all.x, s.full + stage, row, part.begin, part.token);
        }
        if (!kMet || l.block % kDown == place.down) {
            if (again) wait_turn(s.free_w, stage, l.turns_w);
            load_box<kMet && (kDown > 1)>(to + kTokens * kRowUnits, all.w, s.full + stage, column, part.begin,
                                          part.expert);
        }
    }
}

// ---- multiply

struct Sums {
    float c[kRows][kSums];
};

QN_DEVICE void multiply_block(Sums &sums, const uint4 *block, u32 group)
{
    const u64 w = descriptor_of(block + kTokens * kRowUnits);
    wgmma_fence();
#pragma unroll
    for (u32 r = 0; r < kRows; r++)
        multiply_steps(sums.c[r], descriptor_of(block + (group * kRows + r) * 64 * kRowUnits), w, true);
    wgmma_commit_group();
}

// This warp has done with a block: so it says to those who will ask for what follows in its place, if anything does. Every
// arrival is awaited, and all copies into a CTA are: so CTAs may end at different times.
QN_DEVICE void release(const Pieces &s, const Place &place, u32 block, u32 blocks)
{
    const u32 stage = block % STAGES, next = block + STAGES, lane = lane_index();
    if (next >= blocks || lane > 1) return;
    const u32 rank = lane ? next % kDown * kAcross + place.across : place.down * kAcross + next % kAcross;
    u64 *bar = (lane ? s.free_w : s.free_x) + stage;
    if constexpr (CLUSTER > 1)
        mbarrier_arrive_in_relaxed(bar, rank);
    else
        mbarrier_arrive(bar);
}

// Blocks `block` to `end`, of `blocks` that this CTA has.
QN_DEVICE void multiply_blocks(Sums &sums, const Place &place, const Pieces &s, u32 group, u32 block, u32 end,
                               u32 blocks)
{
    const u32 first = block;
#pragma unroll 1
    for (; block < end; block++) {
        wait_phase(s.full + block % STAGES, block / STAGES);
        multiply_block(sums, block_of(s, block), group);
        wgmma_wait_group<1>();
        if (block > first) release(s, place, block - 1, blocks);
    }
    wgmma_wait_group<0>();
    release(s, place, end - 1, blocks);
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

QN_DEVICE void gather_blocks(Sums &sums, const router_params &p, const Piece &piece, const Pieces &s, u32 group)
{
    const Part &part = piece.part;
    const RawW *w = static_cast<const RawW *>(p.w) + (i64)part.expert * p.w_stride;
#pragma unroll 1
    for (u32 i = 0; i < piece.blocks; i++) {
        const u32 d = part.begin + i * kBlock;
        fill(s.blocks, row_of_x(p, part.token), p.x_stride, kTokens, (i64)p.tokens - part.token, d, part.end);
        fill(s.blocks + kTokens * kRowUnits, w, p.w_stride, kExperts, (i64)kE - part.expert, d, part.end);
        fence_proxy_async_shared();
        barrier_sync(1, kMultipliers);
        multiply_block(sums, s.blocks, group);
        wgmma_wait_group<0>();
        barrier_sync(1, kMultipliers);
    }
}

// ---- sums

// Of a token: this thread's pairs, eight experts from one to the next, from `first` of c on. Parts are for another launch,
// which is told by its end that they are there.
QN_DEVICE void put_token(const router_params &p, const Part &part, u32 token, const float (&c)[kSums], u32 first)
{
    const u32 expert = part.expert + threadIdx.x % 4 * 2;
    if (token >= p.tokens) return;
    if (!LOGITS || (kAllExperts && p.logits_are == ROUTER_LOGITS_PAIRS)) {
        float *to = LOGITS ? p.logits + (i64)token * p.logits_stride
                           : reinterpret_cast<float *>(words_of(p, token, part.slice));
        float2 *pairs = reinterpret_cast<float2 *>(to + expert);
#pragma unroll
        for (u32 j = 0; j < kSums / 4; j++)
            if (kAllExperts || expert + j * 8 < kPitch)
                pairs[j * 4] = make_float2(c[4 * j + first], c[4 * j + first + 1]);
    } else {
#pragma unroll
        for (u32 j = 0; j < kSums / 4; j++)
            put_pair(p, part, token, expert + j * 8, c[4 * j + first], c[4 * j + first + 1]);
    }
}

QN_DEVICE void put_sums(const router_params &p, const Part &part, const Sums &sums, u32 group)
{
    const u32 thread = threadIdx.x % kGroupThreads;
#pragma unroll
    for (u32 r = 0; r < kRows; r++) {
        const u32 low = part.token + (group * kRows + r) * 64 + thread / 32 * 16 + thread % 32 / 4;
        put_token(p, part, low, sums.c[r], 0);
        put_token(p, part, low + 8, sums.c[r], 2);
    }
}

// The same of all a warp's tokens by way of shared memory, where the ring is not needed any more: stores of whole rows, since
// a warp's pairs lie in eight lines each time. Every multiplying thread.
constexpr u32 kRowFloats = EXPERTS + 8; // rows begin 8 banks apart
constexpr bool kCopies = !LOGITS && TOKENS * kRowFloats <= STAGES * kStageUnits * 4;

QN_DEVICE void copy_sums(const router_params &p, const Part &part, const Pieces &s, const Sums &sums, u32 group)
{
    barrier_sync(1, kMultipliers); // all have done with the last block
#pragma unroll
    for (u32 r = 0; r < kRows; r++) {
        const u32 row = (group * kRows + r) * 64 + threadIdx.x % kGroupThreads / 32 * 16;
        float *rows = reinterpret_cast<float *>(s.blocks) + row * kRowFloats;
        float *to = rows + lane_index() / 4 * kRowFloats + lane_index() % 4 * 2;
#pragma unroll
        for (u32 j = 0; j < kSums / 4; j++) {
            const float *c = sums.c[r] + 4 * j;
            *reinterpret_cast<float2 *>(to + j * 8) = make_float2(c[0], c[1]);
            *reinterpret_cast<float2 *>(to + 8 * kRowFloats + j * 8) = make_float2(c[2], c[3]);
        }
        fence_proxy_async_shared();
        __syncwarp(kFullMask);
        const u32 token = part.token + row + lane_index();
        if (lane_index() < 16 && token < p.tokens && part.expert < kPitch)
            cp_async_bulk_store(words_of(p, token, part.slice) + part.expert, rows + lane_index() * kRowFloats,
                                min(kExperts, kPitch - part.expert) * 4);
    }
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group<0>(); // the launch of the gate is told by the end of this one
}

template <bool kMapped>
QN_DEVICE void multiply(const router_multicast_params &all, const Place &place, const Pieces &s, u32 group)
{
    Run run = run_of_cluster(all);
    const u32 blocks = run.left;
    u32 block = 0;
#pragma unroll 1
    while (run.left) {
        const Piece piece = next_piece(all, place, run);
        Sums sums = {};
        if constexpr (kMapped)
            multiply_blocks(sums, place, s, group, block, block + piece.blocks, blocks);
        else
            gather_blocks(sums, all.p, piece, s, group);
#pragma unroll
        for (u32 r = 0; r < kRows; r++) wgmma_fence_operand(sums.c[r]);
        if (kCopies && piece.blocks == run.left)
            copy_sums(all.p, piece.part, s, sums, group);
        else
            put_sums(all.p, piece.part, sums, group);
        block += piece.blocks, go_on(run, piece.blocks);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
    QN_ENTRY(const __grid_constant__ router_multicast_params all)
{
    const Pieces s = pieces();
    const Place place = place_of_cta();
    const u32 group = __shfl_sync(kFullMask, threadIdx.x / kGroupThreads, 0);
    Loader loader = {run_of_cluster(all), 0, 0, 0};
    const bool loads = threadIdx.x == kMultipliers;
    if (loads) {
        start_full(s);
        if (all.mapped) load_blocks<false>(all, place, s, loader, kAlone);
        start_free(s);
    } else if (threadIdx.x == 0 && all.mapped) {
        prefetch_tensormap(map_of(all.x));
        prefetch_tensormap(map_of(all.w));
    }
    __syncwarp(kFullMask);
    launch_dependents();
    meet();
    if (group == kMultiplyGroups) {
        if constexpr (kMultiplyGroups > 1) setmaxnreg_dec<kLoaderRegisters>();
        if (loads && all.mapped) load_blocks<true>(all, place, s, loader, ~0u);
        __syncwarp(kFullMask);
    } else {
        if constexpr (kMultiplyGroups > 1) setmaxnreg_inc<kMultiplierRegisters>();
        if (all.mapped)
            multiply<true>(all, place, s, group);
        else
            multiply<false>(all, place, s, group);
    }
}
