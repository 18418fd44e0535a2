// SPDX-License-Identifier: Apache-2.0
// indexer, plan "wgmma": as the plan "fused" (fused.cu), the scores by wgmma, a unit of 64 entries a warpgroup (unit_flow.cuh).
// Few rows; mxfp4 by mxfp4, or fp8_shared by fp8 or f16.
//
// Prologue, besides problem.cuh's: ROWS (1), SHARES, LOCAL_K, ROOM (places of a record), CAP (candidates in shared memory).
#include "unit_flow.cuh"

#include "share.cuh"

struct Shared {
    Select select;
    Group group;
};

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, query, kQueryVectors);
    QN_SHARED_ARRAY(float4, weight, kWeightVectors);
    QN_SHARED_ARRAY(uint4, item, kCapacity / 2);
    QN_SHARED_ARRAY(u64, sorted, kSortedRoom);
    QN_SHARED_ARRAY(u32, bins, kFineBins + kWarp);
    QN_SHARED_ARRAY(u32, odd, 2);
    QN_SHARED_ARRAY(u32, scratch, kWarps);
    QN_SHARED_ARRAY(u32, word, kWords);
    return Shared{{reinterpret_cast<u64 *>(item), sorted, bins, scratch, word},
                  {query, weight, nullptr, nullptr, nullptr, odd}};
}
QN_DEVICE Select select_pieces()
{
    return shared_pieces().select;
}
QN_DEVICE Group group_pieces()
{
    return shared_pieces().group;
}

static_assert(SHARED_BYTES == 16 * (kQueryVectors + kWeightVectors) + 8 * (kCapacity + kSortedRoom) +
                                  4 * (kFineBins + kWarp + 2 + kWarps + kWords),
              "SHARED_BYTES: as ops/indexer.c counts it");

// ---- a batch: local units [begin, end), dealt to the warpgroups

QN_DEVICE void do_unit(const indexer_params &p, const Shared &s, const Share &share, u32 begin, u32 i, u32 a,
                       const float4 (&weight)[kWide / 16], Flow &flow, Scan &scan)
{
    const u32 first = first_of(share, begin, i);
    const Scored one = score_unit(p, s.group, share, begin, i, a, weight, flow);
    put_candidate(s.select, scan, one.mine, local_unit(begin, i) * kUnit + one.at,
                  one.valid ? candidate(key_of(one.score), first + one.at) : 0);
}

QN_DEVICE void run_batch(const indexer_params &p, const Shared &s, const Share &share, u32 begin, Flow &flow,
                         Scan &scan)
{
    float4 weight[kWide / 16];
    load_weights(s.group, weight);
#pragma unroll 1
    for (u32 i = 0; i < flow.units; i += kAhead) {
#pragma unroll
        for (u32 a = 0; a < kAhead; a++) {
            if (i + a >= flow.units) break;
            do_unit(p, s, share, begin, i + a, a, weight, flow, scan);
        }
    }
}

typedef Queries Early;
QN_DEVICE Early load_early(const indexer_params &p, const Row &row)
{
    Early early = {};
    load_queries(p, row.number, early);
    return early;
}

QN_DEVICE void prepare_row(const indexer_params &p, const Shared &s, const Row &row, const Early &early)
{
    if (thread_index() < 2) s.group.odd[thread_index()] = p.keys_aligned ? 0u : 1u;
    __syncthreads();
    store_queries(p, s.group, row.number, early);
}

constexpr bool kAgainApart = false;
constexpr bool kEndsInParts = SHARES >= 16; // ops/indexer.c: LEAST_IN_PARTS

#include "run_row.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ indexer_params p)
{
    do_row(p, shared_pieces());
}
