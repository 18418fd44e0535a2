// SPDX-License-Identifier: Apache-2.0
// A token by one warp, in K rounds: the largest key, the lowest expert that has it, out with that one. Right for every
// row, whatever its ties, NaNs and groups; the faster ways of the plans fall back on it.
#pragma once

#include "finish.cuh"

constexpr u32 kRoundsWords = kE + (kGrouped ? kGroups : 0); // scratch of a warp: keys, and those of the groups

// ---- a row's softmax

// Loads the row twice rather than keep it. load(expert): its logit.
template <class Load> QN_DEVICE Row row_of_warp(Load load)
{
    Row row = {0.f, 0.f};
    if constexpr (kSoftmax) {
        u32 top = 0;
#pragma unroll 4
        for (u32 i = lane_index(); i < kE; i += kWarp) top = max(top, F32::key(__float_as_uint(load(i))));
        const float most = value_of(warp_max(top));
        float sum = 0.f;
#pragma unroll 4
        for (u32 i = lane_index(); i < kE; i += kWarp) sum += exp_near(load(i), most);
        row = row_of_sums(most, warp_sum(sum));
    }
    return row;
}

// ---- groups

// Two best keys of a group whose keys lie one after another.
QN_DEVICE u32 group_key_of(const u32 *keys)
{
    u32 best = 0, second = 0;
    for (u32 i = 0; i < kGroupSize; i++) {
        second = max(second, min(best, keys[i]));
        best = max(best, keys[i]);
    }
    return group_key(best, second);
}

// Whether group g is among the TOPK_GROUP best: lowest group first among equals.
QN_DEVICE bool is_kept(const u32 *group_keys, u32 g)
{
    const u32 own = group_keys[g];
    u32 before = 0;
    for (u32 h = 0; h < kGroups; h++) before += group_keys[h] > own || (group_keys[h] == own && h < g);
    return before < TOPK_GROUP;
}

// Keys of dropped groups become kKeyNone.
QN_DEVICE void drop_groups(u32 *keys) // [kRoundsWords]
{
    u32 *group_keys = keys + kE;
    __syncwarp(kFullMask);
    for (u32 g = lane_index(); g < kGroups; g += kWarp) group_keys[g] = group_key_of(keys + g * kGroupSize);
    __syncwarp(kFullMask);
    for (u32 i = lane_index(); i < kE; i += kWarp)
        if (!is_kept(group_keys, i / kGroupSize)) keys[i] = kKeyNone;
    __syncwarp(kFullMask);
}

// ---- rounds

struct Winner {
    u32 expert, key; // of rank lane_index(), in lanes below K
};

// The first in order of the keys of this lane's experts: lane, lane + 32, …
QN_DEVICE Winner first_of_lane(const u32 *keys)
{
    Winner first = {~0u, kKeyNone};
#pragma unroll 4
    for (u32 i = lane_index(); i < kE; i += kWarp)
        if (keys[i] > first.key) first = Winner{i, keys[i]};
    return first;
}

// Takes the winners out of keys, [kE]; each lane reads and writes its own experts' only.
QN_DEVICE Winner select_in_rounds(u32 *keys)
{
    Winner mine = {0, kKeyNone}, first = first_of_lane(keys);
#pragma unroll 1
    for (u32 k = 0; k < kK; k++) {
        const u32 best = warp_max(first.key), expert = warp_min(first.key == best ? first.expert : ~0u);
        if (lane_index() == k) mine = Winner{expert, best};
        if (first.expert != expert) continue;
        keys[expert] = kKeyNone;
        first = first_of_lane(keys);
    }
    return mine;
}

// Stores the winners, one a lane: a is each one's contribution.
QN_DEVICE void store_by_lanes(const gate_params &p, i64 token, const Winner &winner, float a)
{
    float sum = 0.f;
    if constexpr (RENORMALIZE) {
#pragma unroll
        for (u32 r = 0; r < kK; r++) sum += __shfl_sync(kFullMask, a, (int)r);
    }
    if (lane_index() >= kK) return;
    store_id(p, token, lane_index(), winner.expert);
    store_weight(p, token, lane_index(), weight_of(p, a, sum));
}

// A whole token from its logits. keys: kRoundsWords of this warp.
QN_NOINLINE void token_in_rounds(const gate_params &p, i64 token, u32 *keys)
{
    const Logits logits = logits_of(p, token);
    const Row row = row_of_warp([&](u32 expert) { return load_logit(logits, expert); });
#pragma unroll 1
    for (u32 i = lane_index(); i < kE; i += kWarp)
        keys[i] = key_of(score_of(activation(load_logit(logits, i), row), bias_of(p, i)));
    if constexpr (kGrouped) drop_groups(keys);
    const Winner winner = select_in_rounds(keys);
    float a = 0.f;
    if (lane_index() < kK) a = contribution(activation(load_logit(logits, winner.expert), row), winner.key);
    store_by_lanes(p, token, winner, a);
}
