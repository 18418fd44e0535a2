// SPDX-License-Identifier: Apache-2.0
// A threshold from a sample, before the stream. The maxima of SAMPLE vectors a thread, spread over the row in pieces of
// 16 neighbours, are put into bins by key; the RANK-th largest of them bounds the candidates. RANK is chosen (ops) so
// that rows whose winners lie anywhere come short of K candidates about once in 10^5; the stream counts, and such rows
// take the exact selection. Shares of no more than SAMPLE * THREADS vectors are sampled whole; with RANK = K the
// threshold is then valid for certain: K vectors hold K elements that reach it.
//
// Ties: where the RANK-th maximum shares its key with many others, elements of that key are candidates only up to a
// vector, the cut, by which about as many are expected as are wanted. Equal elements further on come later in order, so
// the winners among them lie before the cut or the count shows it.
#pragma once

#include "keybins.cuh"

constexpr u32 kPiece = 16;

struct Threshold {
    u32 low;   // candidates have this key or a larger one …
    u32 high;  // … in vectors after `cut`, this one or a larger one
    u32 cut;   // a vector of the row
    u32 spare; // the same as low at twice the rank: where to look if low brings too few. 0: nothing known
    u32 max;   // largest key of the sample
};

enum { kFoundBin, kFoundBefore, kFoundCount, kFoundSpare, kFoundLargest, kFoundSmallest, kFoundWords };

QN_DEVICE u32 sample_vector(u32 i, u32 begin, u32 vectors)
{
    if (vectors <= SAMPLE * THREADS) return begin + i * THREADS + thread_index();
    const u32 piece = (i * THREADS + thread_index()) / kPiece;
    return begin + piece * (vectors / (SAMPLE * THREADS / kPiece)) + thread_index() % kPiece;
}

struct Sample {
    uint4 x[SAMPLE]; // of this thread
};

// Asks for the sample; the vectors are [begin, end) of the row. sample_threshold waits for it.
QN_DEVICE Sample sample_fetch(const Row &row, u32 begin, u32 end)
{
    Sample s;
#pragma unroll
    for (u32 i = 0; i < SAMPLE; i++) {
        const u32 v = sample_vector(i, begin, end - begin);
        s.x[i] = v < end ? row_fetch(row, v) : row_pad();
    }
    return s;
}

// A key that at least 2 * RANK of the sampled maxima reach, as high as is easily had: the smallest of group maxima.
QN_DEVICE u32 sample_floor(const u32 *keys, u32 mine, u32 vectors)
{
    constexpr bool kByThread = 2 * RANK <= THREADS;
    u32 floor = mine ? mine : Element::kKeyNaN;
    if constexpr (kByThread) {
        if (vectors >= THREADS) {
#pragma unroll
            for (u32 lanes = 1; lanes < kWarp && THREADS / (2 * lanes) >= 2 * RANK; lanes *= 2)
                floor = max(floor, __shfl_xor_sync(kFullMask, floor, lanes));
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < SAMPLE; i++) floor = keys[i] ? min(floor, keys[i]) : floor;
    }
    return floor;
}

// The bin that holds the RANK-th of the sampled maxima, and where the 2 * RANK-th lies. found is 0 before. Holds a barrier.
QN_DEVICE void sample_search(const u32 *bins, u32 *totals, u32 *found)
{
    const KeyCounts counts = key_bins_count(bins, totals);
    key_bins_find(bins, counts, RANK, [&](u32 bin, u32 before, u32 count) {
        found[kFoundBin] = bin, found[kFoundBefore] = before, found[kFoundCount] = count;
    });
    key_bins_find(bins, counts, 2 * RANK, [&](u32 bin, u32, u32) { found[kFoundSpare] = bin + 1; });
}

// Last vector in which elements of the tied key are taken: tied_before of the sampled maxima are larger, `tied` equal.
QN_DEVICE u32 sample_cut(u32 begin, u32 vectors, u32 larger, u32 tied)
{
    const float sampled = (float)min(vectors, (u32)(SAMPLE * THREADS));
    const float share = (float)tied / sampled; // of vectors that hold the key; a vector holds this many on average:
    const float a_vector = fminf((float)kPerVector, -log_natural(fmaxf(1.f - share, 1e-4f)));
    const float taken = (float)vectors * ((float)(RANK - larger) / sampled) / fmaxf(a_vector, share);
    return begin + u32_saturated(fminf(taken, (float)vectors));
}

// bins: at least kKeyBinWords words; edges: 2 * kWarps words; found: kFoundWords words. All `words` bins are 0 afterwards.
// The same in every thread. Calls arrived() when the sample is there; warp 1 calls meanwhile() before the last barrier.
template <u32 kWords, class Arrived, class Meanwhile>
QN_DEVICE Threshold sample_threshold(Sample &sample, const Row &row, u32 begin, u32 end, u32 *bins, u32 *edges,
                                     u32 *found, Arrived arrived, Meanwhile meanwhile)
{
    const u32 vectors = end - begin;
    uint4(&x)[SAMPLE] = sample.x;
    u32 keys[SAMPLE], mine = 0; // 0 is no element's key
#pragma unroll
    for (u32 i = 0; i < SAMPLE; i++) {
        const u32 v = sample_vector(i, begin, vectors);
        if (v < end) x[i] = row_mend(x[i], row, v);
    }
    clear_words<kWords>(bins);
    if (thread_index() < kFoundWords) found[thread_index()] = 0;
#pragma unroll
    for (u32 i = 0; i < SAMPLE; i++) {
        keys[i] = sample_vector(i, begin, vectors) < end ? Element::key_of_packed(Element::vector_max(x[i])) : 0u;
        mine = max(mine, keys[i]);
    }
    const u32 top = warp_max(mine), bottom = warp_min(sample_floor(keys, mine, vectors));
    if (lane_index() == 0) edges[warp_index()] = top, edges[kWarps + warp_index()] = bottom;
    __syncthreads();
    arrived();
    const u32 largest = warp_max(edges[lane_index() % kWarps]);
    if constexpr (RANK == 0) {
        if (warp_index() == 1) meanwhile();
        __syncthreads();
        return Threshold{0, 0, end, 0, largest};
    }
    const u32 smallest = max(1u, warp_min(edges[kWarps + lane_index() % kWarps]));
    const u32 shift = key_bin_shift(largest - smallest);
#pragma unroll
    for (u32 i = 0; i < SAMPLE; i++)
        if (keys[i] >= smallest) atomicAdd(&bins[key_bin_word((largest - keys[i]) >> shift)], 1u);
    __syncthreads();
    sample_search(bins, edges, found);
    if (warp_index() == 1) meanwhile();
    __syncthreads();
    const u32 bin = found[kFoundBin], count = found[kFoundCount];
    const u32 spare = found[kFoundSpare] ? min(largest - 1, key_bin_far_edge(found[kFoundSpare] - 1, shift)) : largest;
    clear_words<kKeyBinWords>(bins);
    u32 low = largest - bin, high = low; // the keys in the bin, at both ends
    if (shift) {
#pragma unroll
        for (u32 i = 0; i < SAMPLE; i++) {
            if (keys[i] < smallest || (largest - keys[i]) >> shift != bin) continue;
            atomicMax(&found[kFoundLargest], keys[i]);
            atomicMax(&found[kFoundSmallest], ~keys[i]);
        }
        __syncthreads();
        low = ~found[kFoundSmallest], high = found[kFoundLargest];
    }
    Threshold t = {low, low, end, largest - spare, largest};
    if (low >= Element::kKeyInfinity) return t; // no number is above it: such ties have no cut
    t.high = low + 1;
    if (low == high && count >= 8) t.cut = sample_cut(begin, vectors, found[kFoundBefore], count);
    return t;
}
