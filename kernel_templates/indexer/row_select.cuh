// SPDX-License-Identifier: Apache-2.0
// A warp's exact selection for one row of those that were scored together: what was found above a cut, and the
// `kept_count` winners of what came before them. No barrier of the CTA.
//
//   range    512 scores spread over the row, made beforehand, tell what lies surely below the last winner, and where bins
//            begin and end. Scores from the cut on are listed as they are made
//   count    into bins of equal width, 16 bits each
//   scan     first places of the bins, up to the one that holds the last winner
//   scatter  candidates to their bin's places in the list
//   rank     inside the bin by counting
//
// Where this does not serve (too few or too many above the cut, a bin with too many: ties by the thousand, infinities, NaN)
// the row's scores are made again, all of them, and select_slowly does it: the whole CTA, by digits, for every input.
#pragma once

#include "select.cuh"

constexpr u32 kRowBins = 2048;
constexpr u32 kSamples = 512, kSamplesEach = kSamples / kWarp;
constexpr u32 kFlight = 16; // candidates a lane whose loads are in flight together
constexpr u32 kPiece = 512; // of the list, in shared memory: ranked ones, kMostInBin on each side
constexpr u32 kPieceRanked = kPiece - 2 * kMostInBin;
constexpr u32 kRanked = 4;                     // candidates a lane at a time, in the rank
constexpr u32 kListPlaces = (K + 129) / 2 * 2; // candidates down to the end of the last winner's bin

static_assert(kPiece * 8 <= kRowBins * 2 && kPieceRanked % (kRanked * kWarp) == 0, "a piece");

struct RowTask {
    const float *score;  // [n], where they were made again
    const u64 *found;    // [found_count], the same memory
    const float *sample; // [kSamples]: of entry i * sampled / kSamples, NaN where it is not known
    u64 *kept;           // [K]
    u64 *list;           // [kListPlaces]
    u32 *bins;           // [kRowBins / 2], two a word
    u32 base, n;         // first entry; entries
    u32 sampled;         // entries that the sample is spread over, n or more
    u32 found_count;
    u32 kept_count; // 0, or K
    u32 need;       // winners of all of them
    bool last;      // winners are the row's
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
    Scale by;  // scale 0: what was found tells it
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
    const Range nothing = {infinity(), Scale{0.f, 1.f}}, all = {-infinity(), Scale{0.f, 0.f}};
    u32 key[kSamplesEach], finite = 0;
    Extremes e = {0u, 0xFFFFFFFFu};
    if (t.kept_count == 0 && t.need * 5 > t.n * 2) return all; // most of the row wins
#pragma unroll
    for (u32 i = 0; i < kSamplesEach; i++) {
        const u32 place = i * kWarp + lane_index();
        key[i] = place * t.sampled / kSamples < t.n ? key_of(t.sample[place]) : kKeyNaN;
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
        return nothing;
    }
    const float share = (float)t.need * (float)kSamples / (float)t.sampled;
    const u32 wanted = (u32)(share + 4.f * sqrt_approximate(share) + 4.f);
    if (finite < wanted) return nothing;
    const float cut = score_of(sampled_cut(key, least, most, wanted));
    return make_range(score_of(most), cut, cut);
}

// ---- passes over what was found and what was kept

template <class Function> QN_DEVICE void for_each_item(const u64 *item, u32 n, const Function &f)
{
#pragma unroll 1
    for (u32 first = lane_index(); first < n; first += kFlight * kWarp) {
        u64 some[kFlight];
#pragma unroll
        for (u32 i = 0; i < kFlight; i++) some[i] = first + i * kWarp < n ? item[first + i * kWarp] : 0;
        f(some);
    }
}

template <class Function> QN_DEVICE void for_each_candidate(const RowTask &t, const Function &f)
{
    for_each_item(t.found, t.found_count, f);
    for_each_item(t.kept, t.kept_count, f);
}

struct CountCandidate {
    Range range;
    u32 *bins;
    QN_DEVICE void operator()(const u64 (&some)[kFlight]) const
    {
#pragma unroll
        for (u32 i = 0; i < kFlight; i++) {
            const u32 bin = row_bin(range, score_of(candidate_key(some[i])));
            if (some[i] != 0) atomicAdd(&bins[bin / 2], 1u << 16 * (bin % 2));
        }
    }
};

constexpr u32 kNowhere = 0xFFFFFFFFu;

struct ScatterCandidate {
    Range range;
    u32 *bins;
    u64 *list;
    u32 end_bin;
    QN_DEVICE void operator()(const u64 (&some)[kFlight]) const
    {
        u32 to[kFlight];
#pragma unroll
        for (u32 i = 0; i < kFlight; i++) { // all places are on their way before one is waited for
            const u32 bin = row_bin(range, score_of(candidate_key(some[i])));
            to[i] = kNowhere;
            if (some[i] != 0 && bin <= end_bin)
                to[i] = atomicAdd(&bins[bin / 2], 1u << 16 * (bin % 2)) >> 16 * (bin % 2) & 0xFFFFu;
        }
#pragma unroll
        for (u32 i = 0; i < kFlight; i++)
            if (to[i] != kNowhere) list[to[i]] = some[i];
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

struct ExtendBy {
    Extremes *e;
    QN_DEVICE void operator()(const u64 (&some)[kFlight]) const
    {
#pragma unroll
        for (u32 i = 0; i < kFlight; i++)
            if (some[i] != 0) extend(*e, candidate_key(some[i]));
    }
};

QN_DEVICE Range range_of_found(const RowTask &t)
{
    Extremes e = {0u, 0xFFFFFFFFu};
    for_each_candidate(t, ExtendBy{&e});
    return Range{-infinity(), scale_between(warp_max(e.high), warp_min(e.low), kRowBins)};
}

// Winners of the list, of which the first `end` places stand bin by bin, to their places; no bin has more than `most`. A rank
// differs from the place by what lies before it and is smaller, and behind it and is larger: less than `most` places away.
// Those are read again and again, so a piece of the list at a time is copied to where the bins were.
QN_DEVICE void rank_list(const indexer_params &p, const Row &row, const RowTask &t, u32 end, u32 most)
{
    u64 *piece = reinterpret_cast<u64 *>(t.bins); // [kPiece]: places begin - kMostInBin and on
    const u32 lane = lane_index();
#pragma unroll 1
    for (u32 begin = 0; begin < end; begin += kPieceRanked) {
        u64 some[kPiece / kWarp];
#pragma unroll
        for (u32 i = 0; i < kPiece / kWarp; i++) {
            const u32 at = begin + i * kWarp + lane; // kMostInBin more than the place
            some[i] = at < kMostInBin ? ~0ull : at < end + kMostInBin ? t.list[at - kMostInBin] : 0;
        }
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < kPiece / kWarp; i++) piece[i * kWarp + lane] = some[i];
        __syncwarp();
#pragma unroll 1
        for (u32 from = kMostInBin + lane; from < kMostInBin + kPieceRanked; from += kRanked * kWarp) {
            u64 mine[kRanked];
            u32 rank[kRanked];
#pragma unroll
            for (u32 k = 0; k < kRanked; k++)
                mine[k] = piece[from + k * kWarp], rank[k] = begin + from + k * kWarp - kMostInBin;
#pragma unroll 2
            for (u32 d = 1; d < most; d++) {
#pragma unroll
                for (u32 k = 0; k < kRanked; k++) {
                    const u64 *at = piece + from + k * kWarp;
                    rank[k] += (u32)(at[d] > mine[k]) - (u32)(*(at - d) < mine[k]);
                }
            }
#pragma unroll
            for (u32 k = 0; k < kRanked; k++)
                if (rank[k] < t.need && begin + from + k * kWarp - kMostInBin < end)
                    put_winner(p, row, t, rank[k], mine[k]);
        }
        __syncwarp();
    }
}

// Row `which` of the group that begins at row `first`, which is `length` long, at the chunk that begins at entry `base`;
// `range` is what the cut was, `found` how many reached it. False: the row is left to select_slowly, and nothing but the
// list is written.
QN_NOINLINE bool select_row(const indexer_params &p, i64 first, u32 which, u32 length, u32 base, u32 found, Range range)
{
    const Row row = row_named(first + which, length);
    RowTask t = task_of(p, which, length, base);
    t.found_count = found;
    const u32 lane = lane_index();
    if (t.found_count + t.kept_count < t.need) return false;
    if (range.by.scale == 0.f) range = range_of_found(t);
#pragma unroll 4
    for (u32 i = lane; i < kRowBins / 2; i += kWarp) t.bins[i] = 0;
    __syncwarp();
    for_each_candidate(t, CountCandidate{range, t.bins});
    __syncwarp();
    const RowScan scan = scan_row(t);
    __syncwarp();
    if (scan.end == 0 || scan.end > kListPlaces || scan.most > kMostInBin) return false;
    for_each_candidate(t, ScatterCandidate{range, t.bins, t.list, scan.end_bin});
    __syncwarp();
    rank_list(p, row, t, scan.end, scan.most);
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
