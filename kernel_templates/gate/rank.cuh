// SPDX-License-Identifier: Apache-2.0
// A token's candidates, a short list in shared memory, ranked by one warp: each against all; sum, weights, store. Used by the
// plans that have a CTA a token.
#pragma once

#include "rounds.cuh"

constexpr u32 kLists = kK <= 8 ? 1 : kK <= 16 ? 2 : 4; // candidates a lane
constexpr u32 kSlots = kLists * kWarp;
constexpr u32 kFew = 16; // as many as there usually are for K to 8

struct Slots {
    u64 *slot;     // [kSlots] candidates, 0 past the last
    float *a;      // [kSlots] their contributions
    float *ranked; // [kRanked] contributions in rank order
};

// The usual number of candidates, 16 at most: each by two lanes, against half of them a lane. Of no use where they are more,
// which may be known later than this can begin.
struct Few {
    u64 mine;
    float a;
    u32 rank;
    bool wins;
};

QN_DEVICE Few rank_few(const Slots &s)
{
    const ulonglong2 *pairs = reinterpret_cast<const ulonglong2 *>(s.slot) + lane_index() / kFew * 4;
    Few few = {s.slot[lane_index() % kFew], 0.f, 0, false};
    ulonglong2 two[4];
    u32 before[4] = {};
#pragma unroll
    for (u32 u = 0; u < 4; u++) two[u] = pairs[u];
#pragma unroll
    for (u32 u = 0; u < 4; u++) before[u % 2] += two[u].x > few.mine, before[2 + u % 2] += two[u].y > few.mine;
    const u32 half = before[0] + before[1] + (before[2] + before[3]);
    if (few.mine) few.a = s.a[lane_index() % kFew];
    few.rank = half + __shfl_xor_sync(kFullMask, half, 16);
    few.wins = lane_index() < kFew && few.mine && few.rank < kK;
    if (lane_index() >= kK && lane_index() < kRanked) s.ranked[lane_index()] = 0.f;
    if (few.wins) s.ranked[few.rank] = few.a;
    __syncwarp(kFullMask);
    return few;
}

template <class To> QN_DEVICE void store_few(const gate_params &p, const Slots &s, const Few &few, const To &to)
{
    const float sum = sum_in_order(s.ranked);
    if (!few.wins) return;
    store_id(to, few.rank, candidate_index(few.mine));
    store_weight(to, few.rank, weight_of(p, few.a, sum));
}

// A lane kLists of them, against 2 kBatch at a time: 16 where they usually are no more, else fewer, for fewer registers.
template <u32 kBatch, class To>
QN_DEVICE void rank_many_and_store(const gate_params &p, const Slots &s, const To &to, u32 count)
{
    u64 mine[kLists];
    u32 rank[kLists];
#pragma unroll
    for (u32 i = 0; i < kLists; i++) mine[i] = s.slot[i * kWarp + lane_index()], rank[i] = 0;
    const ulonglong2 *pairs = reinterpret_cast<const ulonglong2 *>(s.slot);
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
        if (mine[i] && rank[i] < kK) s.ranked[rank[i]] = s.a[i * kWarp + lane_index()];
    __syncwarp(kFullMask);
    const float sum = sum_in_order(s.ranked);
#pragma unroll
    for (u32 i = 0; i < kLists; i++) {
        if (!mine[i] || rank[i] >= kK) continue;
        store_id(to, rank[i], candidate_index(mine[i]));
        store_weight(to, rank[i], weight_of(p, s.a[i * kWarp + lane_index()], sum));
    }
}
