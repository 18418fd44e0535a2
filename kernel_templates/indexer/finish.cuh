// SPDX-License-Identifier: Apache-2.0
// The end of a row by one CTA: the first K of up to CAP candidates, in order, to the outputs. Each thread has its part of
// them in registers, all loads in flight at once: what they cost is latency.
#pragma once

#include "select.cuh"

// Where candidates are. Each has: kMost, the most there can be; of(p, row, n); load(item): this thread's part, 0 for none;
// operator()(i): any of them, in shared or global memory.

QN_DEVICE constexpr u32 each_of(u32 most)
{
    return (most + THREADS - 1) / THREADS;
}

struct SharedSource {
    static constexpr u32 kMost = kCapacity;
    u32 n;
    QN_DEVICE static SharedSource of(const indexer_params &, i64, u32 n) { return SharedSource{n}; }
    QN_DEVICE u64 operator()(u32 i) const { return select_pieces().item[i]; }
    template <u32 kEach> QN_DEVICE void load(u64 (&item)[kEach]) const
    {
        const u64 *items = select_pieces().item;
#pragma unroll
        for (u32 j = 0; j < kEach; j++) {
            const u32 i = j * THREADS + thread_index();
            item[j] = i < n ? items[i] : 0;
        }
    }
};

template <u32 kEach> QN_DEVICE void extend_by(const u64 (&item)[kEach], Extremes &e)
{
#pragma unroll
    for (u32 j = 0; j < kEach; j++)
        if (item[j] != 0) extend(e, candidate_key(item[j]));
}

// Candidates in `sorted`, bin by bin, to their places. last: where the last bin ends.
QN_DEVICE void rank_sorted(const indexer_params &p, const Row &row, const Select &s, const Scale &by, u32 end, u32 need)
{
    const u32 end_bin = s.word[kEndBin];
#pragma unroll 2
    for (u32 i = thread_index(); i < end; i += THREADS) {
        const u64 mine = s.sorted[i];
        const u32 bin = bin_of(by, candidate_key(mine)), first = s.bins[bin];
        const u32 last = bin == end_bin ? end : s.bins[bin + 1];
        u32 rank = first;
#pragma unroll 4
        for (u32 j = first; j < last; j++) rank += s.sorted[j] > mine;
        if (rank < need) store_winner(p, row, rank, mine);
        if (rank == need - 1) note_last(s, mine);
    }
}

// The first `wanted` of the source's n, in order, and padding after them. Returns how many winners there were; their last
// one is in kLast, kLastLow after a barrier. Before it, since a barrier: bins are clear, kHigh, kLow and kMost are 0.
template <class Source> QN_NOINLINE u32 finish_from(const indexer_params &p, i64 number, u32 n, u32 wanted)
{
    const Select s = select_pieces();
    const Source source = Source::of(p, number, n);
    const Row row = {number, 0, nullptr, 0, 0};
    u64 item[each_of(Source::kMost)];
    u32 place[each_of(Source::kMost)];
    Extremes e = {0u, 0xFFFFFFFFu};
    source.load(item);
    extend_by(item, e);
    share_extremes(s, e);
    __syncthreads();
    const Scale by = count_items(s, item, place);
    __syncthreads();
    const u32 need = min(wanted, scan_bins(s, wanted));
    if (need > 0) {
        const u32 end = s.word[kEnd], end_bin = s.word[kEndBin];
        if (QN_UNLIKELY(end > kSorted || s.word[kMost] > kMostInBin)) {
            const u64 last = nth_of(source, n, need);
            sort_first(s, source, n, need, last);
#pragma unroll 1
            for (u32 i = thread_index(); i < need; i += THREADS) store_winner(p, row, i, s.sorted[i]);
            if (thread_index() == 0) note_last(s, last);
        } else {
#pragma unroll
            for (u32 j = 0; j < each_of(Source::kMost); j++) {
                const u32 bin = place[j] >> 16;
                if (item[j] != 0 && bin <= end_bin) s.sorted[s.bins[bin] + (place[j] & 0xFFFFu)] = item[j];
            }
            __syncthreads();
            rank_sorted(p, row, s, by, end, need);
        }
    }
    store_padding(p, row, need);
    return need;
}

// What finish_from asks for. Begins and ends in a barrier.
QN_DEVICE void begin_finish(const Select &s)
{
    __syncthreads();
    clear_bins(s);
    if (thread_index() == 0) s.word[kHigh] = s.word[kLow] = s.word[kMost] = 0;
    __syncthreads();
}
