// SPDX-License-Identifier: Apache-2.0
// From a list of candidates to outputs in order, without sorting: bins that fall with the order → scan → scatter, bin
// by bin → rank inside the bin, by counting → winners at their rank in shared memory → values and indices, in one piece.
//
// A list entry is 16 bytes: x = ~index, y = key (together a candidate), z = bin << 16 | place in the bin, or kNoBin.
// Every warp owns kWarpSlots entries and uses the first count[warp] of them.
#pragma once

#include "exact.cuh"
#include "token.cuh"

constexpr u32 kSlots = SLOTS; // entries of the list
constexpr u32 kWarpSlots = kSlots / kWarps;
constexpr u32 kSorted = SORTED; // candidates down to the end of the bin that holds the last winner
constexpr u32 kBins = BINS;
constexpr u32 kNoBin = 0xFFFFFFFFu;

static_assert(kSlots % kWarps == 0 && kSlots < 65536, "SLOTS: a multiple of the warps, places in a bin have 16 bits");
static_assert(kSlots >= 256 && kSlots * 2 >= kK, "SLOTS: the list must hold the exact histogram, later the winners");
static_assert(kSorted >= kK + 1 && kBins % THREADS == 0 && kBins <= 32768, "SORTED, BINS: out of range");

// list.word: candidates; those down to the end of the bin that holds the last winner; largest key. The first three serve
// the exact selection too.
enum { kListTotal, kListEnd, kListSpare, kListTop, kListWords };

// Keys from `top` down to the lowest. A narrow range gives each key a bin, or several by index; a wide one is scaled.
struct Binning {
    u32 top, pieces, piece_scale;
    float scale;
};

// The part of shared memory that this file works on.
struct List {
    uint4 *slot;  // [kSlots]
    u32 *count;   // [kWarps], entries a warp
    u64 *sorted;  // [kSorted], candidates bin by bin
    u32 *bins;    // [kBins], 0 before: counts, then first places
    u32 *scratch; // [kWarps]
    u32 *word;    // [kListWords]
    Binning *binning;
};

// ---- bins

QN_DEVICE Binning binning_over(u32 low, u32 top)
{
    Binning b = {top, 0, 0, 0.f};
    const u32 range = top - low;
    if (range < kBins) {
        b.pieces = min(kV, u32_saturated((float)kBins / (float)(range + 1))); // exact: both are small
        b.piece_scale =
            u32_saturated((float)b.pieces * (float)(4294963200.0 / kV)); // a little less than 2^32 pieces / V
    } else {
        b.scale = (float)(kBins - 1) / (float)range;
    }
    return b;
}

QN_DEVICE u32 bin_of(const Binning &b, u32 key, u32 index)
{
    const u32 distance = b.top - key;
    if (b.pieces) return distance * b.pieces + __umulhi(index, b.piece_scale);
    return min(kBins - 1, u32_saturated((float)distance * b.scale));
}

QN_DEVICE u32 take_place(const List &list, const Binning &binning, u32 key, u32 index)
{
    const u32 bin = bin_of(binning, key, index);
    return bin << 16 | atomicAdd(&list.bins[bin], 1u);
}

// Entries of this warp; a uniform number.
QN_DEVICE u32 entries_of_warp(const List &list)
{
    return min(list.count[warp_index()], kWarpSlots);
}

// Gives every entry its place. For lists of candidates whose places are not taken yet.
QN_DEVICE void list_place(const List &list, const Binning &binning)
{
    for (u32 i = lane_index(); i < entries_of_warp(list); i += kWarp) {
        uint4 &entry = list.slot[warp_index() * kWarpSlots + i];
        entry.z = take_place(list, binning, entry.y, ~entry.x);
    }
}

// ---- scan, scatter, rank

// Turns counts into first places. word[kListTotal] = candidates, word[kListEnd] = those down to the end of the bin that
// holds the need-th. Ends in a barrier.
QN_DEVICE void list_scan(const List &list, u32 need)
{
    constexpr u32 kEach = kBins / THREADS;
    u32 *bins = list.bins + thread_index() * kEach, count[kEach], mine = 0, total;
#pragma unroll
    for (u32 i = 0; i < kEach; i++) mine += count[i] = bins[i];
    const u32 before = block_exclusive_sum(mine, list.scratch, &total);
    u32 first = before;
#pragma unroll
    for (u32 i = 0; i < kEach; i++) bins[i] = first, first += count[i];
    if (before < need && first >= need) { // one thread
        u32 end = before;
#pragma unroll
        for (u32 i = 0; i < kEach; i++) end += end < need ? count[i] : 0;
        list.word[kListEnd] = end;
    }
    if (thread_index() == 0) list.word[kListTotal] = total;
    __syncthreads();
}

// Bin by bin into sorted; bins that begin after the last winner are left out. word[kListEnd] <= kSorted. One barrier.
QN_DEVICE void list_scatter(const List &list, u32 need)
{
    const u32 entries = entries_of_warp(list);
#pragma unroll 1
    for (u32 i = lane_index(); i < entries; i += kWarp) {
        const uint4 entry = list.slot[warp_index() * kWarpSlots + i];
        if (entry.z == kNoBin) continue;
        const u32 first = list.bins[entry.z >> 16];
        if (first < need) list.sorted[first + (entry.z & 0xFFFFu)] = (u64)entry.y << 32 | entry.x;
    }
    __syncthreads();
}

// Winners at their rank, in the list's own memory, which nobody reads any more. Ends in a barrier.
QN_DEVICE u64 *list_rank(const List &list, const Binning &binning, u32 need)
{
    u64 *winner = reinterpret_cast<u64 *>(list.slot); // [need]
    const u32 total = list.word[kListTotal], end = list.word[kListEnd];
#pragma unroll 1
    for (u32 j = thread_index(); j < end; j += THREADS) {
        const u64 mine = list.sorted[j];
        const u32 bin = bin_of(binning, candidate_key(mine), candidate_index(mine));
        const u32 first = list.bins[bin], last = bin + 1 < kBins ? list.bins[bin + 1] : total;
        u32 rank = first;
#pragma unroll 1
        for (u32 q = first; q < last; q++) rank += list.sorted[q] > mine;
        if (rank < need) winner[rank] = mine;
    }
    __syncthreads();
    return winner;
}

// ---- the exact selection in place of a list that failed. Its histogram lies in the list's memory.

constexpr u32 kExactBins = exact_bins(kSlots * 4);
constexpr u32 kExactRoom = kSlots < kSorted ? kSlots : kSorted;
static_assert(kExactRoom >= kK, "SLOTS, SORTED: the exact selection needs room for the winners");

// Nothing is in the list, the bins are 0. Holds a barrier at its start and one at its end.
QN_DEVICE void list_clear(const List &list)
{
    __syncthreads();
    for (u32 i = thread_index(); i < kBins; i += THREADS) list.bins[i] = 0;
    if (thread_index() == 0) list.word[kListTotal] = 0, list.word[kListTop] = 0;
    __syncthreads();
}

// Gives the word[kListTotal] candidates that were collected from slot 0 on their places, and scans the bins. They are of
// keys from low on. Ends in a barrier.
QN_DEVICE void list_take(const List &list, u32 low, u32 need)
{
    const u32 count = list.word[kListTotal], before = warp_index() * kWarpSlots;
    if (lane_index() == 0) list.count[warp_index()] = count > before ? min(count - before, kWarpSlots) : 0;
    u32 top = 0;
    for (u32 i = thread_index(); i < count; i += THREADS) top = max(top, list.slot[i].y);
    top = warp_max(top);
    if (lane_index() == 0) atomicMax(&list.word[kListTop], top);
    __syncthreads();
    const Binning binning = binning_over(low, list.word[kListTop]);
    if (thread_index() == 0) *list.binning = binning;
    list_place(list, binning);
    __syncthreads();
    list_scan(list, need);
}

QN_DEVICE u32 *list_histogram(const List &list)
{
    return reinterpret_cast<u32 *>(list.slot);
} // [kExactBins]

// Fills the list with at most kExactRoom candidates, the `need` first among them, and takes them.
template <class Source> QN_DEVICE void list_exact(const List &list, const Source &source, u32 need, u32 hint, u32 top)
{
    const Cut cut = exact_cut<kExactBins>(source, need, kExactRoom, hint, top, list_histogram(list), list.scratch,
                                          list.word, [](u32 *) {});
    list_clear(list);
    source.collect(cut, list.slot, &list.word[kListTotal]);
    __syncthreads();
    list_take(list, cut.key, need);
}

// ---- outputs

// The winners' logit as it is stored: the key has lost the sign of zero and the payload of NaN.
QN_DEVICE float winner_logit(const softmax_topk_params &p, i64 row, u64 winner)
{
    const u32 key = candidate_key(winner);
    const bool lost = key == Element::kKeyZero || key == Element::kKeyNaN;
    return Element::value(lost ? row_raw(p, row, candidate_index(winner)) : Element::raw_of_key(key));
}

QN_DEVICE float key_value(u32 key)
{
    return Element::value(Element::raw_of_key(key));
}

QN_DEVICE void store_index(const softmax_topk_params &p, i64 row, u32 rank, u32 index)
{
    const i64 at = row * p.indices_stride + rank;
    if constexpr (INDEX_BYTES == 8)
        static_cast<i64 *>(p.indices)[at] = index;
    else
        static_cast<i32 *>(p.indices)[at] = (i32)index;
}

QN_DEVICE void store_winner(const softmax_topk_params &p, i64 row, const Softmax &softmax, u32 rank, u64 winner)
{
    p.values[row * p.values_stride + rank] =
        kLogit ? winner_logit(p, row, winner) : softmax_value(softmax, key_value(candidate_key(winner)));
    store_index(p, row, rank, candidate_index(winner));
}

// Sum of the winners' weights, in order of rank. One barrier.
QN_DEVICE float winners_sum(const u64 *winner, float max, float temperature, float *scratch)
{
    float sum = 0.f;
    for (u32 rank = thread_index(); rank < kK; rank += THREADS)
        sum += exp_accurate(exponent_of(key_value(candidate_key(winner[rank])), max, temperature));
    return block_sum(sum, scratch);
}

// What a row has once, by the thread that calls it: log-sum-exp, the token.
QN_DEVICE void store_once(const softmax_topk_params &p, i64 row, const Softmax &whole, const Token *token, u32 before)
{
    if constexpr (LSE) p.lse[row] = softmax_lse(whole);
    if constexpr (TOKEN) {
        const bool exists = token_exists(token->index);
        p.token_rank[row] = exists ? (i32)before : -1;
        p.token_value[row] = exists ? softmax_log_probability(whole, Element::value(token->raw)) : not_a_number();
    }
}

// All of a row's outputs, from its winners in order; sum is over all V, before: how many elements are before the token.
QN_DEVICE void store_row(const softmax_topk_params &p, i64 row, const u64 *winner, float sum, const Token *token,
                         u32 before, float *scratch)
{
    const float max = key_value(candidate_key(winner[0])), temperature = row_temperature(p, row);
    const Softmax whole = softmax_of(max, temperature, sum);
    Softmax kept = whole;
    if constexpr (kTopkNorm) kept = softmax_of(max, temperature, winners_sum(winner, max, temperature, scratch));
    for (u32 rank = thread_index(); rank < kK; rank += THREADS) store_winner(p, row, kept, rank, winner[rank]);
    if (thread_index() == 0) store_once(p, row, whole, token, before);
}
