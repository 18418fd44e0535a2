// SPDX-License-Identifier: Apache-2.0
// The end of a row by one CTA: the first K of up to CAP candidates in shared memory, in order, to the outputs.
#pragma once

#include "bins.cuh"

struct PutSorted {
    u64 *sorted;
    QN_DEVICE void operator()(u32 place, u64 item) const { sorted[place] = item; }
};

struct Output { // of a row
    i32 *indices;
    float *scores;
};
QN_DEVICE Output output_of(const indexer_params &p, i64 number)
{
    return Output{p.indices + number * p.indices_stride, SCORES ? p.scores + number * p.scores_stride : nullptr};
}
QN_DEVICE void store_winner(const Output &to, u32 rank, u64 winner)
{
    to.indices[rank] = (i32)candidate_index(winner);
    if (SCORES) to.scores[rank] = score_of(candidate_key(winner));
}

// Candidates in `sorted`, bin by bin, to their places in the outputs: `end` of them, of which `need` win. After them kMostInBin
// zeros: what follows a bin is smaller, so that who reads too far counts nothing.
template <class Out> QN_DEVICE void rank_sorted(const Out &to, const Select &s, const Range &range, u32 end, u32 need)
{
    constexpr u32 kMost = (kEndsTogether ? LOCAL_K + kMostInBin : kSorted) + THREADS - 1; // that are usual
    constexpr u32 kAtOnce = kMost / THREADS < 5 ? kMost / THREADS : 5;
#pragma unroll 1
    for (u32 begin = thread_index(); begin < end; begin += kAtOnce * THREADS) {
        u64 mine[kAtOnce];
        u32 first[kAtOnce], rank[kAtOnce] = {}, most = 0;
#pragma unroll
        for (u32 j = 0; j < kAtOnce; j++) {
            mine[j] = s.sorted[min(begin + j * THREADS, end - 1)];
            const u32 bin = fine_bin(range, KeptItems::score(mine[j]));
            const u32 above = s.bins[bin + 1], last = s.bins[bin]; // where the higher one ends, where this one ends
            first[j] = bin < kFineBins - 1 ? above : 0;
            most = max(most, last - first[j]);
        }
#pragma unroll 1
        for (u32 step = 0; step < most; step += 2)
#pragma unroll
            for (u32 j = 0; j < kAtOnce; j++) {
                const u64 *others = s.sorted + first[j] + step;
                rank[j] += (u32)(others[0] > mine[j]) + (u32)(others[1] > mine[j]);
            }
#pragma unroll
        for (u32 j = 0; j < kAtOnce; j++) {
            const u32 at = first[j] + rank[j];
            if (begin + j * THREADS >= end || at >= need) continue;
            store_winner(to, at, mine[j]);
            if (at == need - 1) note_last(s, mine[j]);
        }
    }
}

// The first `need` of n items, of which there are so many, by their digits.
template <class Out, class Items> QN_NOINLINE void put_slowly(Out to, Items items, u32 n, u32 need)
{
    const Select s = select_pieces();
    const u64 last = nth_of(items, n, need);
    sort_first(s, items, n, need, last);
#pragma unroll 1
    for (u32 i = thread_index(); i < need; i += THREADS) store_winner(to, i, s.sorted[i]);
    if (thread_index() == 0) note_last(s, last);
}

// The first `need` of n items, which are counted and scanned for that, in order.
template <class Out, class Items>
QN_DEVICE void put_winners(const Out &to, const Items &items, const Range &range, u32 n, u32 need)
{
    const Select s = select_pieces();
    const u32 end = s.word[kEnd];
    if (QN_UNLIKELY(end > kSorted || s.word[kCrowded])) {
        put_slowly(to, items, n, need);
    } else {
        if (thread_index() < kMostInBin) s.sorted[end + thread_index()] = 0;
        scatter_fine(s, range, items, n, PutSorted{s.sorted});
        __syncthreads();
        rank_sorted(to, s, range, end, need);
    }
}

QN_DEVICE void pad_winners(const Output &to, u32 from)
{
#pragma unroll 1
    for (u32 i = from + thread_index(); i < K; i += THREADS) {
        to.indices[i] = -1;
        if (SCORES) to.scores[i] = -infinity();
    }
}

// The first `wanted` of n items, in order, and padding after them. Returns how many winners there were; their last one is in
// kLast, kLastLow after a barrier. Before it, since a barrier: bins are clear, and words as clear_words has them.
template <class Out, class Items> QN_NOINLINE u32 finish_row(Out to, Items items, u32 n, u32 wanted)
{
    const Select s = select_pieces();
    Range range;
    const u32 need = min(wanted, count_first(s, items, n, wanted, range));
    if (need > 0) put_winners(to, items, range, n, need);
    pad_winners(to, need);
    return need;
}

QN_DEVICE void clear_words(const Select &s) // one thread
{
    s.word[kHigh] = s.word[kLow] = s.word[kCut] = s.word[kMid] = s.word[kCrowded] = 0;
}

// What finish_row asks for, of n kept items. Begins and ends in a barrier.
QN_NOINLINE void begin_finish(u32 n)
{
    const Select s = select_pieces();
    __syncthreads();
    pad_items(s, n);
    clear_fine(s);
    if (thread_index() == 0) clear_words(s);
    __syncthreads();
}
