// SPDX-License-Identifier: Apache-2.0
// indexer, plan "wgmma": as the plan "fused" (fused.cu), the scores by wgmma: a warpgroup takes a unit of 64 entries, the bytes
// of the next two on their way to its registers (group_score.cuh, one row). Few rows; mxfp4 by mxfp4,
// or fp8_shared by fp8 or f16.
//
// Prologue, besides problem.cuh's: ROWS (1), SHARES, LOCAL_K, ROOM (places of a record), CAP (candidates in shared memory).
#include "group_score.cuh"

constexpr u32 kUnitEntries = kUnit;
constexpr u32 kUnitResults = kUnit;

#include "share.cuh"

static_assert(ROWS == 1, "ROWS: a CTA is for one row");

constexpr u32 kAhead = THREADS > 384 || !kInteger ? 1 : 2; // units whose bytes are on their way

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
    QN_SHARED_ARRAY(u64, sorted, kSorted);
    QN_SHARED_ARRAY(u32, bins, kBins);
    QN_SHARED_ARRAY(u32, odd, 2);
    QN_SHARED_ARRAY(u32, scratch, kWarps);
    QN_SHARED_ARRAY(u32, word, kWords);
    return Shared{{reinterpret_cast<u64 *>(item), sorted, bins, scratch, word}, {query, weight, nullptr, nullptr, odd}};
}
QN_DEVICE Select select_pieces()
{
    return shared_pieces().select;
}
QN_DEVICE Group group_pieces()
{
    return shared_pieces().group;
}

static_assert(SHARED_BYTES ==
                  16 * (kQueryVectors + kWeightVectors) + 8 * (kCapacity + kSorted) + 4 * (kBins + 2 + kWarps + kWords),
              "SHARED_BYTES: as ops/indexer.c counts it");

// ---- a batch: local units [begin, end), dealt to the warpgroups

struct Flow { // what is on its way
    Keys keys[kAhead];
    u32 page[kAhead][kUnitPages];
    u32 units;
};

QN_DEVICE u32 local_unit(u32 begin, u32 i)
{
    return begin + thread_index() / 128 + i * kWarpgroups;
}
QN_DEVICE u32 first_of(const Share &share, u32 begin, u32 i)
{
    return unit_of(share, local_unit(begin, i)) * kUnit;
}

QN_DEVICE void begin_flow(const indexer_params &p, const Share &share, u32 begin, u32 end, Flow &flow)
{
    const u32 mine = begin + thread_index() / 128;
    flow.units = end > mine ? (end - mine + kWarpgroups - 1) / kWarpgroups : 0;
#pragma unroll
    for (u32 a = 0; a < kAhead; a++)
        if (a < flow.units) look_up_unit(share.row, first_of(share, begin, a), flow.page[a]);
#pragma unroll
    for (u32 a = 0; a < kAhead; a++) {
        if (a < flow.units && p.keys_aligned)
            fetch_unit(p, share.row, first_of(share, begin, a), flow.page[a], flow.keys[a]);
        if (a + kAhead < flow.units) look_up_unit(share.row, first_of(share, begin, a + kAhead), flow.page[a]);
    }
}

QN_DEVICE void advance_flow(const indexer_params &p, const Share &share, u32 begin, u32 i, u32 a, Flow &flow)
{
    if (i + kAhead < flow.units && p.keys_aligned)
        fetch_unit(p, share.row, first_of(share, begin, i + kAhead), flow.page[a], flow.keys[a]);
    if (i + 2 * kAhead < flow.units) look_up_unit(share.row, first_of(share, begin, i + 2 * kAhead), flow.page[a]);
}

// The entries of this warp that need the other way, one after another; lanes q < 2 (and their doubles) hold scores.
QN_DEVICE float mend_scores(const indexer_params &p, const Share &share, u32 first, u32 at, bool odd, float score)
{
    u32 lanes = __ballot_sync(kFullMask, odd && lane_index() % 4 < 2 && first + at < share.row.length);
#pragma unroll 1
    for (; lanes; lanes &= lanes - 1) {
        const u32 lane = (u32)__ffs((i32)lanes) - 1, which = __shfl_sync(kFullMask, at, (i32)lane);
        const float exact = score_exactly(p, share.row.number, first + which);
        if (at == which) score = exact;
    }
    return score;
}

QN_DEVICE void do_unit(const indexer_params &p, const Shared &s, const Share &share, u32 begin, u32 i, u32 a,
                       const float4 (&weight)[kWide / 16], Flow &flow, Scan &scan)
{
    const u32 first = first_of(share, begin, i), q = lane_index() % 4;
    u32 operand[Operand::kSteps][4];
    Sum c[kProduct / 2];
    float factor[2], sum[1][2] = {{0.f, 0.f}}, own[1];
    const bool fits_low = Operand::decode(flow.keys[a].value[0], flow.keys[a].scale[0], 0, factor[0], operand);
    const bool fits_high = Operand::decode(flow.keys[a].value[1], flow.keys[a].scale[1], 1, factor[1], operand);
    advance_flow(p, share, begin, i, a, flow);
    multiply_part(s.group, 0, operand, c);
#pragma unroll
    for (u32 j = 0; j < kWide / 16; j++) {
        weigh_four(c, 8 * j, weight[j], sum[0][0]);
        weigh_four(c, 8 * j + 2, weight[j], sum[0][1]);
    }
    share_sums(sum, own);
    const u32 at = group_warp() * 16 + lane_index() / 4 + (q & 1) * 8;
    float score = own[0] * (q & 1 ? factor[1] : factor[0]);
    const bool odd = !(q & 1 ? fits_high : fits_low) || s.group.odd[0];
    if (QN_UNLIKELY(__any_sync(kFullMask, odd))) score = mend_scores(p, share, first, at, odd, score);
    const bool valid = first + at < share.row.length;
    put_candidate(s.select, scan, q < 2, local_unit(begin, i) * kUnit + at,
                  valid ? candidate(key_of(score), first + at) : 0);
}

QN_DEVICE void run_batch(const indexer_params &p, const Shared &s, const Share &share, u32 begin, Flow &flow,
                         Scan &scan)
{
    float4 weight[kWide / 16];
#pragma unroll
    for (u32 j = 0; j < kWide / 16; j++) weight[j] = weight_of(s.group, 0, j);
#pragma unroll 1
    for (u32 i = 0; i < flow.units; i += kAhead) {
#pragma unroll
        for (u32 a = 0; a < kAhead; a++) {
            if (i + a >= flow.units) break;
            do_unit(p, s, share, begin, i + a, a, weight, flow, scan);
        }
    }
}

QN_DEVICE void prepare_row(const indexer_params &p, const Shared &s, i64 number)
{
    if (thread_index() < 2) s.group.odd[thread_index()] = p.keys_aligned ? 0u : 1u;
    __syncthreads();
    prepare_group(p, s.group, number);
}

// All of a share. Returns the candidates that lie in shared memory: all of it, or its first `wanted` or more.
// Begins and ends in a barrier.
QN_DEVICE u32 run_share(const indexer_params &p, const Shared &s, const Share &share, u32 wanted, bool prepare,
                        Scan &scan)
{
    Flow flow = {};
    u32 n = 0, begin = 0;
    scan.last = 0;
    scan.extremes = Extremes{0u, 0xFFFFFFFFu};
    for (;;) {
        const u32 end = min(share.units, begin + (kCapacity - n) / kUnitResults);
        begin_flow(p, share, begin, end, flow);
        if (prepare) {
            prepare_row(p, s, share.row.number);
            prepare = false;
        }
        if (thread_index() == 0) {
            s.select.word[kCount] = n;
            if (begin == 0) s.select.word[kHigh] = s.select.word[kLow] = 0;
        }
        __syncthreads();
        run_batch(p, s, share, begin, flow, scan);
        share_extremes(s.select, scan.extremes);
        __syncthreads();
        n = scan.raw ? 0 : scan.last ? s.select.word[kCount] : end * kUnitResults;
        begin = end;
        if (begin >= share.units) return n;
        __syncthreads();
        if (kCapacity - n >= kCapacity / 4) continue;
        n = compact(s.select, scan, n, wanted);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ indexer_params p)
{
    const Shared s = shared_pieces();
    do_row(p, s, s.select);
}
