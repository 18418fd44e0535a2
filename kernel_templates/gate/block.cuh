// SPDX-License-Identifier: Apache-2.0
// A token by a whole CTA, one thread an expert: from its logits in registers to ids and weights.
//
//   score    activation, bias; the row's softmax or its groups first where the spec has them
//   bound    maxima of units of kUnit experts; an expert stays when fewer than K of them exceed it (all winners do)
//   list     the few that stay, by one shared counter
//   rank     one warp, each against all; sum, weights, store
//
// A list too short for its ties is known by its count: then the first warp goes K rounds over all keys (rounds.cuh).
// Used by plan "block" and by the router's kernels, whose CTAs may have more threads than experts need.
//
// Prologue, besides problem.cuh's: GATE_AT, where in shared memory its pieces begin, a multiple of 16.
#pragma once

#include "../common/block.cuh"
#include "rounds.cuh"

// Units so many that winners seldom share one, also among the groups that are kept.
constexpr u32 kWanted = (kK + kK / 4 + 1) * ((kGroups + TOPK_GROUP - 1) / TOPK_GROUP);
constexpr u32 kUnit = THREADS / 32 >= kWanted   ? 32
                      : THREADS / 16 >= kWanted ? 16
                      : THREADS / 8 >= kWanted  ? 8
                      : THREADS / 4 >= kWanted  ? 4
                                                : 2;
constexpr u32 kUnits = THREADS / kUnit;
constexpr u32 kUnitVectors = (kUnits + 3) / 4;
constexpr u32 kLists = kK <= 8 ? 1 : kK <= 16 ? 2 : 4; // candidates a lane
constexpr u32 kSlots = kLists * kWarp;
constexpr u32 kFailure = 4096; // more than there are experts: a count that says that something failed

constexpr u32 kBlockBytes =
    kUnitVectors * 16 + kRanked * 4 + kSlots * 12 + THREADS * 8 + (1 + kGroups + 2 * kWarps) * 4;

struct Shared {
    u64 *slot;     // [kSlots] candidates
    float *slot_a; // [kSlots] their contributions
    float *ranked; // [kRanked] contributions in rank order
    u32 *maxima;   // [4 * kUnitVectors], 0 past the last unit
    u32 *key;      // [THREADS]
    float *a;      // [THREADS]
    u32 *count;
    u32 *group;  // [kGroups]
    u32 *words;  // [kWarps]
    float *sums; // [kWarps]
};

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FROM(GATE_AT);
    QN_SHARED_ARRAY(uint4, maxima, kUnitVectors);
    QN_SHARED_ARRAY(uint4, ranked, kRanked / 4);
    QN_SHARED_ARRAY(uint4, slot, kSlots / 2);
    QN_SHARED_ARRAY(float, slot_a, kSlots);
    QN_SHARED_ARRAY(u32, key, THREADS);
    QN_SHARED_ARRAY(float, a, THREADS);
    QN_SHARED_ARRAY(u32, count, 1);
    QN_SHARED_ARRAY(u32, group, kGroups);
    QN_SHARED_ARRAY(u32, words, kWarps);
    QN_SHARED_ARRAY(float, sums, kWarps);
    return Shared{reinterpret_cast<u64 *>(slot),
                  slot_a,
                  reinterpret_cast<float *>(ranked),
                  reinterpret_cast<u32 *>(maxima),
                  key,
                  a,
                  count,
                  group,
                  words,
                  sums};
}

// ---- softmax

QN_DEVICE Row row_of_block(const Shared &s, float x)
{
    Row row = {0.f, 0.f};
    if constexpr (kSoftmax) {
        const u32 top = warp_max(F32::key(__float_as_uint(x)));
        if (lane_index() == 0) s.words[warp_index()] = top;
        __syncthreads();
        const u32 all = warp_max(lane_index() < kWarps ? s.words[lane_index()] : 0u);
        const float most = value_of(all);
        row = row_of_sums(most, block_sum(exp_near(x, most), s.sums));
    }
    return row;
}

// ---- groups

// The two best of a warp's keys, best first: one lane at most gives both.
QN_DEVICE u32 group_key_of_warp(u32 best, u32 second)
{
    const u32 most = warp_max(best), owners = __ballot_sync(kFullMask, best == most);
    const bool gives = best == most && lanes_below(owners) == 0;
    return group_key(most, warp_max(gives ? second : best));
}

// Whether this thread's expert is in a group that is kept. Holds barriers.
QN_DEVICE bool group_is_kept(const Shared &s, u32 key)
{
    if constexpr (kGroupSize == kWarp) {
        const u32 own = group_key_of_warp(key, kKeyNone);
        if (lane_index() == 0 && warp_index() < kGroups) s.group[warp_index()] = own;
    } else {
        s.key[threadIdx.x] = key;
        __syncthreads();
        for (u32 g = warp_index(); g < kGroups; g += kWarps) {
            u32 best = 0, second = 0;
            for (u32 i = lane_index(); i < kGroupSize; i += kWarp) {
                const u32 other = s.key[g * kGroupSize + i];
                second = max(second, min(best, other));
                best = max(best, other);
            }
            const u32 own = group_key_of_warp(best, second);
            if (lane_index() == 0) s.group[g] = own;
        }
    }
    __syncthreads();
    return threadIdx.x < kE && is_kept(s.group, threadIdx.x / kGroupSize);
}

// ---- bound

QN_DEVICE void store_maxima(const Shared &s, u32 key)
{
    if constexpr (kUnit == kWarp) {
        key = warp_max(key);
    } else {
#pragma unroll
        for (u32 lanes = kUnit / 2; lanes; lanes /= 2) key = max(key, __shfl_xor_sync(kFullMask, key, (int)lanes));
    }
    if (lane_index() % kUnit == 0) s.maxima[threadIdx.x / kUnit] = key;
    if (threadIdx.x < 4 * kUnitVectors - kUnits) s.maxima[kUnits + threadIdx.x] = 0;
}

QN_DEVICE u32 maxima_above(const Shared &s, u32 key)
{
    const uint4 *maxima = reinterpret_cast<const uint4 *>(s.maxima);
    u32 above[4] = {0, 0, 0, 0}; // not one sum: each is a chain of dependent additions
#pragma unroll
    for (u32 i = 0; i < kUnitVectors; i++) {
        const uint4 four = maxima[i];
        above[0] += four.x > key, above[1] += four.y > key, above[2] += four.z > key, above[3] += four.w > key;
    }
    return above[0] + above[1] + (above[2] + above[3]);
}

// ---- rank

// Ranks `count` candidates, a lane kLists of them, and stores the winners.
QN_DEVICE void rank_and_store(const gate_params &p, const Shared &s, i64 token, u32 count)
{
    u64 mine[kLists];
    u32 rank[kLists];
#pragma unroll
    for (u32 i = 0; i < kLists; i++) mine[i] = s.slot[i * kWarp + lane_index()], rank[i] = 0;
    const ulonglong2 *pairs = reinterpret_cast<const ulonglong2 *>(s.slot);
    constexpr u32 kBatch = 8; // most tokens have no more than 16 candidates
#pragma unroll 1
    for (u32 j = 0; j < kSlots / 2 && (j == 0 || 2 * j < count); j += kBatch) {
        ulonglong2 two[kBatch];
        u32 before[kLists][4] = {};
#pragma unroll
        for (u32 u = 0; u < kBatch; u++) two[u] = pairs[j + u];
#pragma unroll
        for (u32 u = 0; u < kBatch; u++) {
#pragma unroll
            for (u32 i = 0; i < kLists; i++)
                before[i][u % 2] += two[u].x > mine[i], before[i][2 + u % 2] += two[u].y > mine[i];
        }
#pragma unroll
        for (u32 i = 0; i < kLists; i++) rank[i] += before[i][0] + before[i][1] + (before[i][2] + before[i][3]);
    }
    if (lane_index() >= kK && lane_index() < kRanked) s.ranked[lane_index()] = 0.f;
#pragma unroll
    for (u32 i = 0; i < kLists; i++)
        if (mine[i] && rank[i] < kK) s.ranked[rank[i]] = s.slot_a[i * kWarp + lane_index()];
    __syncwarp(kFullMask);
    const float sum = sum_in_order(s.ranked);
#pragma unroll
    for (u32 i = 0; i < kLists; i++) {
        if (!mine[i] || rank[i] >= kK) continue;
        store_id(p, token, rank[i], candidate_index(mine[i]));
        store_weight(p, token, rank[i], weight_of(p, s.slot_a[i * kWarp + lane_index()], sum));
    }
}

// The first warp over the keys of all: many ties.
QN_NOINLINE void rounds_and_store(const gate_params &p, i64 token)
{
    const Shared s = shared_pieces();
    const Winner winner = select_in_rounds(s.key);
    store_by_lanes(p, token, winner, lane_index() < kK ? s.a[winner.expert] : 0.f);
}

// ---- a token

// x, bias: of the thread's expert; -inf and 0 where there is none. Everything of s is free before; the first warp may
// still be at work when the others return. With kMayFail, `failed` in any thread: false for the first warp, and nothing is
// stored.
template <bool kMayFail = false>
QN_DEVICE bool gate_by_block(const gate_params &p, const Shared &s, i64 token, float x, float bias, bool failed = false)
{
    const u32 expert = threadIdx.x;
    const bool exists = THREADS == kE || expert < kE;
#pragma unroll
    for (u32 i = 0; i < kSlots; i += THREADS)
        if (kSlots % THREADS == 0 || i + expert < kSlots) s.slot[i + expert] = 0;
    if (expert == THREADS - 1) *s.count = 0;

    const Row row = row_of_block(s, x);
    float a = activation(x, row);
    u32 key = exists ? key_of(score_of(a, bias)) : kKeyNone;
    a = contribution(a, key, row);
    if constexpr (kGrouped) {
        if (!group_is_kept(s, key)) key = kKeyNone;
    }
    store_maxima(s, key);
    s.key[expert] = key, s.a[expert] = a;
    __syncthreads();
    if (kMayFail && QN_UNLIKELY(failed)) atomicAdd(s.count, kFailure);
    if (key != kKeyNone && maxima_above(s, key) < kK) {
        const u32 place = atomic_count_shared(s.count, key);
        if (place < kSlots) s.slot[place] = candidate(key, expert), s.slot_a[place] = a;
    }
    __syncthreads();
    if (warp_index() != 0) return true;
    const u32 count = *s.count;
    if (QN_UNLIKELY(count > kSlots)) {
        if (kMayFail && count >= kFailure) return false;
        rounds_and_store(p, token);
    } else {
        rank_and_store(p, s, token, count);
    }
    return true;
}
