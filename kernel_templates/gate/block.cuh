// SPDX-License-Identifier: Apache-2.0
// A token by a whole CTA, one thread an expert: from its logits in registers to ids and weights.
//
//   score    activation, bias; the row's softmax or its groups first where the spec has them
//   bound    some keys of other experts: the best of each warp, or the maxima of units of kUnit experts; an expert stays when
//            fewer than K of them exceed it (all winners do)
//   list     the few that stay, by one shared counter
//   rank     one warp, each against all; sum, weights, store
//
// A list too short for its ties is known by its count: then the first warp goes K rounds over all keys (rounds.cuh).
// Used by plan "block" and by the router's kernels, whose CTAs may have more threads than experts need.
//
// Prologue, besides problem.cuh's: GATE_AT, where in shared memory its pieces begin, a multiple of 16.
#pragma once

#include "../common/block.cuh"
#include "rank.cuh"

// Keys to compare with: so many that few experts stay, also when their groups are dropped but the fewest. Of warps that have
// experts, since others have nothing to give.
constexpr u32 kWanted = (kK + kK / 4 + 1) * ((kGroups + TOPK_GROUP - 1) / TOPK_GROUP);
constexpr u32 kExpertWarps = (kE + kWarp - 1) / kWarp;
constexpr u32 kBest = (kWanted + kExpertWarps - 1) / kExpertWarps; // of a warp, one after another
constexpr bool kByBest = kBest <= 3;                               // else of units, all at once
constexpr u32 kUnit = kExpertWarps * 2 >= kWanted   ? 16
                      : kExpertWarps * 4 >= kWanted ? 8
                      : kExpertWarps * 8 >= kWanted ? 4
                                                    : 2;
constexpr u32 kUnits = kExpertWarps * (kByBest ? kBest : kWarp / kUnit);
constexpr u32 kUnitVectors = (kUnits + 3) / 4;
static_assert(kUnits >= kWanted || kUnit == 2, "keys enough to compare with");
constexpr u32 kFailure = 4096; // more than there are experts: a count that says that something failed

constexpr u32 kBlockBytes =
    kUnitVectors * 16 + kRanked * 4 + 16 + kSlots * 12 + THREADS * 8 + (kGroups + 2 * kWarps) * 4;

struct Shared {
    Slots list;
    u32 *maxima; // [kUnits] half the keys, 0 past the last to whole vectors
    u32 *key;    // [THREADS]
    float *a;    // [THREADS]
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
    QN_SHARED_ARRAY(uint4, slot, kSlots / 2 + 1); // and the count
    QN_SHARED_ARRAY(float, slot_a, kSlots);
    QN_SHARED_ARRAY(u32, key, THREADS);
    QN_SHARED_ARRAY(float, a, THREADS);
    QN_SHARED_ARRAY(u32, group, kGroups);
    QN_SHARED_ARRAY(u32, words, kWarps);
    QN_SHARED_ARRAY(float, sums, kWarps);
    return Shared{{reinterpret_cast<u64 *>(slot), slot_a, reinterpret_cast<float *>(ranked)},
                  reinterpret_cast<u32 *>(maxima),
                  key,
                  a,
                  &slot[kSlots / 2].x,
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

// Keys are compared by half, so that the sign of a difference tells which is more. Who stays may then be one more, never one
// less. Every lane stores, those that have nothing to give to where their key will be: that is less than to ask who does.
QN_DEVICE void store_maxima(const Shared &s, u32 half)
{
    const bool gives = THREADS == kExpertWarps * kWarp || warp_index() < kExpertWarps;
    if constexpr (kByBest) {
#pragma unroll
        for (u32 i = 0; i < kBest; i++) {
            const u32 best = warp_max(half);
            *(lane_index() == i && gives ? s.maxima + warp_index() * kBest + i : s.key + threadIdx.x) = best;
            if (half == best) half = 0; // equal ones leave together: the bound is lower then
        }
    } else {
#pragma unroll
        for (u32 lanes = kUnit / 2; lanes; lanes /= 2) half = max(half, __shfl_xor_sync(kFullMask, half, (int)lanes));
        if (lane_index() % kUnit == 0 && gives) s.maxima[threadIdx.x / kUnit] = half;
    }
    if (kUnits % 4 && threadIdx.x < 4 * kUnitVectors - kUnits) s.maxima[kUnits + threadIdx.x] = 0;
}

QN_DEVICE u32 maxima_above(const Shared &s, u32 half)
{
    const uint4 *maxima = reinterpret_cast<const uint4 *>(s.maxima);
    u32 above[2] = {0, 0}; // not one sum: each is a chain of dependent additions
#pragma unroll
    for (u32 i = 0; i < kUnitVectors; i++) {
        const uint4 four = maxima[i];
        above[0] += (half - four.x) >> 31, above[1] += (half - four.y) >> 31;
        above[0] += (half - four.z) >> 31, above[1] += (half - four.w) >> 31;
    }
    return above[0] + above[1];
}

// The first warp over the keys of all: many ties.
QN_NOINLINE void rounds_and_store(const gate_params &p, i64 token)
{
    const Shared s = shared_pieces();
    const Winner winner = select_in_rounds(s.key);
    store_by_lanes(p, token, winner, lane_index() < kK ? contribution(s.a[winner.expert], winner.key) : 0.f);
}

// ---- a token

// No candidates yet: before a token, while its logits are on their way.
QN_DEVICE void clear_list(const Shared &s)
{
    uint4 *both = reinterpret_cast<uint4 *>(s.list.slot); // and the count behind them
#pragma unroll
    for (u32 i = 0; i <= kSlots / 2; i += THREADS)
        if (i + threadIdx.x <= kSlots / 2) both[i + threadIdx.x] = make_uint4(0, 0, 0, 0);
}

// Whether candidates are ranked as few before their number is known. Not in the gate by itself where one token in fifty has
// more: then some of 64 nearly always has, and all wait for it.
template <bool kMayFail> constexpr bool kAhead = kLists == 1 && (kMayFail || kUnits >= kK + kK / 4 + 3);

// x, bias: of the thread's expert; -inf and 0 where there is none. The list is clear and everything else of s free before; the
// first warp may still be at work when the others return. With kMayFail, `failed` in any thread: false for the first warp, and
// nothing is stored.
template <bool kMayFail = false, class To>
QN_DEVICE bool gate_by_block(const gate_params &p, const Shared &s, i64 token, const To &to, float x, float bias,
                             bool failed = false)
{
    const u32 expert = threadIdx.x;
    const bool exists = THREADS == kE || expert < kE;
    const Row row = row_of_block(s, x);
    const float a = activation(x, row);
    u32 key = exists ? key_of(score_of(a, bias)) : kKeyNone;
    if constexpr (kGrouped) {
        if (!group_is_kept(s, key)) key = kKeyNone;
    }
    store_maxima(s, key / 2);
    s.key[expert] = key, s.a[expert] = a;
    __syncthreads();
    if (kMayFail && QN_UNLIKELY(failed)) atomicAdd(s.count, kFailure);
    const bool competes = (THREADS == kE && !kGrouped) || key != kKeyNone;
    if (competes && maxima_above(s, key / 2) < kK) {
        const u32 place = atomic_increment_wrapped(s.count, 2 * kFailure * THREADS);
        if (place < kSlots) s.list.slot[place] = candidate(key, expert), s.list.a[place] = contribution(a, key);
    }
    __syncthreads();
    if (warp_index() != 0) return true;
    const u32 count = *s.count;
    Few few = {};
    if (kAhead<kMayFail>) few = rank_few(s.list);
    if (kLists > 1 || QN_UNLIKELY(count > kFew)) {
        if (kMayFail && count >= kFailure) return false;
        if (QN_UNLIKELY(count > kSlots))
            rounds_and_store(p, token);
        else
            rank_many_and_store<kAhead<kMayFail> ? 4 : 8>(p, s.list, to, count);
    } else {
        if (!kAhead<kMayFail>) few = rank_few(s.list);
        store_few(p, s.list, few, to);
    }
    return true;
}
