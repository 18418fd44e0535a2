// SPDX-License-Identifier: Apache-2.0
// A warp's exact selection for one row: from `n` scores that lie in memory one after another, and the `kept_count` winners
// of what came before them. No barrier of the CTA.
//
//   range    512 scores spread over the row tell what lies surely below the last winner, and where bins begin and end
//   count    into bins of equal width, 16 bits each; scores below the range are left out
//   scan     first places of the bins, up to the one that holds the last winner
//   scatter  candidates to their bin's places in the list
//   rank     inside the bin by counting
//
// Where this does not serve (too few in the range, a bin with too many: ties by the thousand, infinities, NaN) the row is
// left to select_slowly: the whole CTA, by digits, for every input.
#pragma once

#include "select.cuh"

constexpr u32 kRowBins = 2048;
constexpr u32 kSamples = 512, kSamplesEach = kSamples / kWarp;
constexpr u32 kListPlaces = (K + 129) / 2 * 2; // candidates down to the end of the last winner's bin

struct RowTask {
    const float *score; // [n], up to the next multiple of 64 there to be read
    u64 *kept;          // [K]
    u64 *list;          // [kListPlaces]
    u32 *bins;          // [kRowBins / 2], two a word
    u32 base, n;        // first entry; entries
    u32 kept_count;     // 0, or K
    u32 need;           // winners of all of them
    bool last;          // winners are the row's
};

QN_DEVICE RowTask task_of(const indexer_params &p, u32 row, u32 length, u32 base); // the kernel's

struct RowItems {
    RowTask t;
    QN_DEVICE u64 operator()(u32 i) const
    {
        return i < t.n ? candidate(key_of(t.score[i]), t.base + i) : t.kept[i - t.n];
    }
};

QN_DEVICE void put_winner(const indexer_params &p, const Row &row, const RowTask &t, u32 rank, u64 winner)
{
    if (t.last)
        store_winner(p, row, rank, winner);
    else
        t.kept[rank] = winner;
}

// ---- range

struct Range {
    float low; // below it lies no winner
    Scale by;
};

QN_DEVICE u32 row_bin(const Range &range, float score)
{
    return u32_saturated(fminf((range.by.high - score) * range.by.scale, (float)(kRowBins - 1)));
}

QN_DEVICE Range make_range(float high, float low, float bottom)
{
    const float above = high + (high * 0.5f - bottom * 0.5f); // what no sample reached
    const float top = above <= score_of(kKeyMostFinite) ? above : high;
    const float half = top * 0.5f - bottom * 0.5f;
    return Range{low, Scale{top, half > 0.f ? fminf((float)(kRowBins - 1) * 0.5f / half, 0x1p100f) : 1.f}};
}

// The extremes of all scores: for rows most of which wins.
QN_DEVICE Range whole_range(const RowTask &t)
{
    Extremes e = {0u, 0xFFFFFFFFu};
#pragma unroll 4
    for (u32 i = lane_index(); i < t.n; i += kWarp) extend(e, key_of(t.score[i]));
    const u32 high = warp_max(e.high), low = warp_min(e.low);
    if (high == 0) return Range{-infinity(), Scale{0.f, 1.f}};
    const float most = score_of(high), least = score_of(low), half = most * 0.5f - least * 0.5f;
    return Range{-infinity(), Scale{most, half > 0.f ? fminf((float)(kRowBins - 1) * 0.5f / half, 0x1p100f) : 1.f}};
}

// The largest key that at least `wanted` of the samples reach, or one that a few more do.
QN_DEVICE u32 sampled_cut(const u32 (&key)[kSamplesEach], u32 least, u32 most, u32 wanted)
{
    u32 low = least, high = most + 1; // `wanted` reach low, fewer reach high
#pragma unroll 1
    while (high - low > 1) {
        const u32 middle = low + (high - low) / 2;
        u32 count = 0;
#pragma unroll
        for (u32 i = 0; i < kSamplesEach; i++) count += key[i] >= middle;
        count = warp_sum(count);
        if (count < wanted) {
            high = middle;
        } else {
            low = middle;
            if (count <= wanted + wanted / 8) break;
        }
    }
    return low;
}

QN_DEVICE Range find_range(const RowTask &t)
{
    u32 key[kSamplesEach], finite = 0;
    Extremes e = {0u, 0xFFFFFFFFu};
    if (t.kept_count == 0 && t.need * 5 > t.n * 2) return whole_range(t);
#pragma unroll
    for (u32 i = 0; i < kSamplesEach; i++) {
        key[i] = key_of(t.score[(i * kWarp + lane_index()) * t.n / kSamples]);
        extend(e, key[i]);
        finite += key[i] >= kKeyLeastFinite;
    }
    u32 most = warp_max(e.high);
    const u32 least = warp_min(e.low);
    finite = warp_sum(finite);
    if (t.kept_count) {
        const u32 best = candidate_key(t.kept[0]), worst = candidate_key(t.kept[t.kept_count - 1]);
        if (best <= kKeyMostFinite && worst >= kKeyLeastFinite)
            return make_range(score_of(max(most, best)), score_of(worst), score_of(worst));
        return Range{infinity(), Scale{0.f, 1.f}}; // nothing lies in it
    }
    const float share = (float)t.need * (float)kSamples / (float)t.n;
    const u32 wanted = (u32)(share + 4.f * sqrt_approximate(share) + 4.f);
    if (finite < wanted) return Range{infinity(), Scale{0.f, 1.f}};
    const float cut = score_of(sampled_cut(key, least, most, wanted));
    return make_range(score_of(most), cut, cut);
}

// ---- passes over the scores and what was kept

// f(score, entry or place) for each of them; places of what was kept are n, n + 1, …
template <class Function> QN_DEVICE void for_each_score(const RowTask &t, const Function &f)
{
    constexpr u32 kVectors = 4, kStep = kVectors * 4 * kWarp;
    const float4 *vector = reinterpret_cast<const float4 *>(t.score);
    const u32 lane = lane_index(), whole = t.n / kStep * kStep;
#pragma unroll 1
    for (u32 first = 0; first < whole; first += kStep) {
        float4 v[kVectors];
#pragma unroll
        for (u32 i = 0; i < kVectors; i++) v[i] = vector[first / 4 + i * kWarp + lane];
#pragma unroll
        for (u32 i = 0; i < kVectors; i++) {
            const u32 at = first + (i * kWarp + lane) * 4;
            f(v[i].x, at), f(v[i].y, at + 1), f(v[i].z, at + 2), f(v[i].w, at + 3);
        }
    }
#pragma unroll 1
    for (u32 i = whole + lane; i < t.n; i += kWarp) f(t.score[i], i);
}

struct CountScore {
    Range range;
    u32 *bins;
    QN_DEVICE void operator()(float score, u32) const
    {
        if (score >= range.low) {
            const u32 bin = row_bin(range, score);
            atomicAdd(&bins[bin / 2], 1u << 16 * (bin % 2));
        }
    }
};

QN_DEVICE u32 bin_word(const u32 *bins, u32 bin)
{
    return bins[bin / 2] >> 16 * (bin % 2) & 0xFFFFu;
}

struct ScatterScore {
    Range range;
    u32 *bins;
    u64 *list;
    u32 base, end_bin;
    QN_DEVICE void put(u32 bin, u64 item) const
    {
        const u32 before = atomicAdd(&bins[bin / 2], 1u << 16 * (bin % 2));
        list[before >> 16 * (bin % 2) & 0xFFFFu] = item;
    }
    QN_DEVICE void operator()(float score, u32 at) const
    {
        if (score >= range.low) {
            const u32 bin = row_bin(range, score);
            if (bin <= end_bin) put(bin, candidate(key_of(score), base + at));
        }
    }
};

struct RowScan {
    u32 end_bin, end, most; // end: candidates down to the end of the last winner's bin; 0: there are too few
};

// Counts to first places, up to the bin that holds the last winner.
QN_DEVICE RowScan scan_row(const RowTask &t)
{
    RowScan scan = {0, 0, 0};
    u32 total = 0;
    const u32 lane = lane_index();
#pragma unroll 1
    for (u32 round = 0; round < kRowBins / 2 / kWarp && total < t.need; round++) {
        const u32 word = t.bins[round * kWarp + lane], low = word & 0xFFFFu, high = word >> 16;
        const u32 until = total + warp_inclusive_sum(low + high), first = until - low - high, second = first + low;
        t.bins[round * kWarp + lane] = first | second << 16;
        if (first < t.need) scan.most = max(scan.most, low);
        if (second < t.need) scan.most = max(scan.most, high);
        const u32 ends = __ballot_sync(kFullMask, first < t.need && until >= t.need);
        if (ends) {
            const u32 which = (u32)__ffs((i32)ends) - 1;
            const bool in_low = second >= t.need;
            scan.end = __shfl_sync(kFullMask, in_low ? second : until, which);
            scan.end_bin = (round * kWarp + which) * 2 + __shfl_sync(kFullMask, in_low ? 0u : 1u, which);
        }
        total = __shfl_sync(kFullMask, until, kWarp - 1);
    }
    scan.most = warp_max(scan.most);
    return scan;
}

// ---- the row

QN_DEVICE Row row_named(i64 number, u32 length)
{
    return Row{number, 0, nullptr, length, length};
}

// Row `which` of the group that begins at row `first`, which is `length` long, at the chunk that begins at entry `base`. False:
// the row is left to select_slowly. Nothing is written then but the list.
QN_NOINLINE bool select_row(const indexer_params &p, i64 first, u32 which, u32 length, u32 base)
{
    const Row row = row_named(first + which, length);
    const RowTask t = task_of(p, which, length, base);
    const u32 lane = lane_index();
    const Range range = find_range(t);
#pragma unroll 4
    for (u32 i = lane; i < kRowBins / 2; i += kWarp) t.bins[i] = 0;
    __syncwarp();
    const CountScore count = {range, t.bins};
    for_each_score(t, count);
#pragma unroll 2
    for (u32 i = lane; i < t.kept_count; i += kWarp) count(score_of(candidate_key(t.kept[i])), i);
    __syncwarp();
    const RowScan scan = scan_row(t);
    __syncwarp();
    if (scan.end == 0 || scan.end > kListPlaces || scan.most > kMostInBin) return false;
    const ScatterScore scatter = {range, t.bins, t.list, t.base, scan.end_bin};
    for_each_score(t, scatter);
#pragma unroll 2
    for (u32 i = lane; i < t.kept_count; i += kWarp) {
        const u64 item = t.kept[i];
        const u32 bin = row_bin(range, score_of(candidate_key(item)));
        if (bin <= scan.end_bin) scatter.put(bin, item);
    }
    __syncwarp();
#pragma unroll 1
    for (u32 i = lane; i < scan.end; i += kWarp) { // a bin's word is now its end
        const u64 mine = t.list[i];
        const u32 bin = row_bin(range, score_of(candidate_key(mine))), end = bin_word(t.bins, bin);
        u32 rank = bin ? bin_word(t.bins, bin - 1) : 0;
#pragma unroll 4
        for (u32 j = rank; j < end; j++) rank += t.list[j] > mine;
        if (rank < t.need) put_winner(p, row, t, rank, mine);
    }
    __syncwarp();
    return true;
}

QN_DEVICE void pad_row(const indexer_params &p, const Row &row, u32 from)
{
#pragma unroll 1
    for (u32 i = from + lane_index(); i < K; i += kWarp) {
        p.indices[row.number * p.indices_stride + i] = -1;
        if (SCORES) p.scores[row.number * p.scores_stride + i] = -infinity();
    }
}

// The same for every input, by the whole CTA. Begins and ends in a barrier.
QN_NOINLINE void select_slowly(const indexer_params &p, i64 first, u32 which, u32 length, u32 base)
{
    const Row row = row_named(first + which, length);
    const RowTask t = task_of(p, which, length, base);
    const Select s = select_pieces();
    const RowItems items = {t};
    const u32 n = t.n + t.kept_count;
    __syncthreads();
    if (thread_index() < kWords) s.word[thread_index()] = 0;
    const u64 last = nth_of(items, n, t.need);
    sort_first(s, items, n, t.need, last);
#pragma unroll 1
    for (u32 i = thread_index(); i < t.need; i += THREADS) put_winner(p, row, t, i, s.sorted[i]);
    __syncthreads();
}
