// SPDX-License-Identifier: Apache-2.0
// indexer, plan "wgmma": as the plan "fused" (fused.cu), the scores by wgmma, a unit of 64 entries a warpgroup (unit_flow.cuh),
// and a row ended by all of its CTAs at once (row_together.cuh).
// Few rows; mxfp4 by mxfp4, or fp8_shared by fp8 or f16.
//
// Prologue, besides problem.cuh's: ROWS (1), SHARES, LOCAL_K, ROOM (places of a record), CAP (candidates in shared memory).
#include "unit_flow.cuh"

constexpr bool kEndsTogether = SHARES > 1;
constexpr u32 kWhole = 2 * CAP;            // scores of a batch
constexpr bool kScoresMeet = SHARES >= 16; // ops/indexer.c: LEAST_IN_SCORES
#include "share.cuh"

struct Shared {
    Select select;
    Group group;
    u32 *raw;  // [kWhole]: a batch's scores, unit by unit
    u32 *left; // of row_together.cuh
};

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, query, kQueryVectors);
    QN_SHARED_ARRAY(float4, weight, kWeightVectors);
    QN_SHARED_ARRAY(uint4, item, kCapacity / 2);
    QN_SHARED_ARRAY(uint4, raw, kWhole / 4);
    QN_SHARED_ARRAY(u64, sorted, kSortedRoom);
    QN_SHARED_ARRAY(u32, bins, kFineBins + kWarp);
    QN_SHARED_ARRAY(u32, odd, 2);
    QN_SHARED_ARRAY(u32, left, 2);
    QN_SHARED_ARRAY(u32, scratch, kWarps);
    QN_SHARED_ARRAY(u32, word, kWords);
    return Shared{{reinterpret_cast<u64 *>(item), sorted, bins, scratch, word},
                  {query, weight, nullptr, nullptr, nullptr, odd},
                  reinterpret_cast<u32 *>(raw),
                  left};
}
QN_DEVICE Select select_pieces()
{
    return shared_pieces().select;
}
QN_DEVICE Group group_pieces()
{
    return shared_pieces().group;
}

static_assert(SHARED_BYTES == 16 * (kQueryVectors + kWeightVectors) + 8 * (kCapacity + kSortedRoom) + 4 * kWhole +
                                  4 * (kFineBins + kWarp + 4 + kWarps + kWords),
              "SHARED_BYTES: as ops/indexer.c counts it");

QN_DEVICE u32 *batch_scores()
{
    return shared_pieces().raw;
}
QN_DEVICE u32 *all_rows_word()
{
    return shared_pieces().left;
}

QN_DEVICE u32 *again_word()
{
    return shared_pieces().left + 1;
}

// ---- a batch: local units [begin, end), dealt to the warpgroups

// A score of a row that meets by scores, to all who wait for it.
QN_DEVICE void publish_score(const indexer_params &p, const Shared &s, const Share &share, u32 place, u32 entry,
                             float score)
{
    const Select &t = s.select;
    const u32 word = entry < share.row.length ? key_of(score) + 1 : 1; // 0 is none
    u32 *to = reinterpret_cast<u32 *>((u64)t.word[kRawAtHigh] << 32 | t.word[kRawAt]);
    reinterpret_cast<u32 *>(t.item)[place] = word; // Own::word
    store_polled(to + place, word);
}

QN_DEVICE void run_batch(const indexer_params &p, const Shared &s, const Share &share, u32 begin, Flow &flow, Scan &)
{
    float4 weight[kWide / 16];
    load_weights(s.group, weight);
    const bool odd = s.group.odd[0] != 0;
    const bool met = kScoresMeet && s.select.word[kResults] <= kRawMost && share.shares > 1;
    u32 *raw = s.raw + thread_index() / 128 * kUnit;
#pragma unroll 1
    for (u32 i = 0; i < flow.units; i += kAhead) {
#pragma unroll
        for (u32 a = 0; a < kAhead; a++) {
            if (i + a >= flow.units) break;
            const Scored one = score_unit(p, s.group, share, begin, i + a, a, weight, odd, flow);
            if (!one.mine) continue;
            if (met)
                publish_score(p, s, share, local_unit(begin, i + a) * kUnit + one.at,
                              first_of(share, begin, i + a) + one.at, one.score);
            else
                raw[(i + a) * (kWarpgroups * kUnit) + one.at] = __float_as_uint(one.score);
        }
    }
}

// What run_batch left, of units begin … end - 1. Begins with a barrier.
QN_DEVICE void take_batch(const indexer_params &p, const Shared &s, const Share &share, u32 begin, u32 end, Scan &scan)
{
    __syncthreads();
#pragma unroll 1
    for (u32 i = thread_index(); i < (end - begin) * kUnit; i += THREADS) {
        const u32 place = begin * kUnit + i, entry = unit_of(share, place / kUnit) * kUnit + place % kUnit;
        const u32 key = key_of(__uint_as_float(s.raw[i]));
        put_candidate(s.select, scan, true, place, entry < share.row.length ? candidate(key, entry) : 0);
    }
}

typedef Guess Early;
QN_DEVICE Early load_early(const indexer_params &p, i64 number)
{
    Early early = {};
    guess_pages(p, number, early);
    return early;
}
QN_DEVICE void begin_early(const indexer_params &p, const Share &share, u32 end, const Early &early, Flow &flow)
{
    begin_first(p, share, end, early, flow);
}

// The queries' loads are beside those of the first keys, which wait for the row only.
QN_DEVICE void prepare_row(const indexer_params &p, const Shared &s, const Row &row, const Early &)
{
    Queries queries = {};
    load_queries(p, row.number, queries);
    if (thread_index() < 2) s.group.odd[thread_index()] = p.keys_aligned ? 0u : 1u;
    __syncthreads();
    store_queries(p, s.group, row.number, queries);
}

constexpr bool kAgainApart = false;

#include "run_row.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ indexer_params p)
{
    do_row(p, shared_pieces());
}
