// SPDX-License-Identifier: Apache-2.0
// 1024 bins over a range of keys, to find about where the n-th largest of some maxima lies. Bins are as wide as a power
// of two; their far edge is then a threshold.
#pragma once

#include "softmax.cuh"

constexpr u32 kKeyBins = 1024;
constexpr u32 kKeyBinWords = kKeyBins + kKeyBins / 32; // a word of padding after 32, for the banks of the search

QN_DEVICE u32 key_bin_word(u32 bin)
{
    return bin + bin / 32;
}

// Sets words to 0, spread over the CTA.
template <u32 kWords> QN_DEVICE void clear_words(u32 *words)
{
#pragma unroll
    for (u32 i = 0; i < kWords; i += THREADS)
        if (kWords % THREADS == 0 || i + thread_index() < kWords) words[i + thread_index()] = 0;
}

// Least shift that brings distances up to `range` below kKeyBins.
QN_DEVICE u32 key_bin_shift(u32 range)
{
    return (u32)max(0, 22 - __clz((int)range));
}

// Largest distance from the top in a bin.
QN_DEVICE u32 key_bin_far_edge(u32 bin, u32 shift)
{
    return ((bin + 1) << shift) - 1;
}

// How many keys the bins hold: this thread's neighbouring ones, all of its warp, those of the warps before.
constexpr u32 kKeyBinsEach = kKeyBins / THREADS;
static_assert(kKeyBins % THREADS == 0, "every bin is some thread's");

struct KeyCounts {
    u32 mine, warp, before;
};

// The whole CTA counts; holds a barrier. totals: kWarps words.
QN_DEVICE KeyCounts key_bins_count(const u32 *bins, u32 *totals)
{
    KeyCounts c = {0, 0, 0};
#pragma unroll
    for (u32 i = 0; i < kKeyBinsEach; i++) c.mine += bins[key_bin_word(thread_index() * kKeyBinsEach + i)];
    c.warp = warp_sum(c.mine);
    if (lane_index() == 0) totals[warp_index()] = c.warp;
    __syncthreads();
    c.before = warp_sum(lane_index() < warp_index() ? totals[lane_index()] : 0u);
    return c;
}

// Calls found(bin, before, count) in the thread whose bin holds the n-th, n >= 1; before: how many lie in nearer bins.
// Nobody calls if there are fewer than n.
template <class Found> QN_DEVICE void key_bins_find(const u32 *bins, const KeyCounts &c, u32 n, Found found)
{
    if (c.before >= n || c.before + c.warp < n) return; // the same for a warp
    u32 before = c.before + warp_inclusive_sum(c.mine) - c.mine, bin = thread_index() * kKeyBinsEach;
    if (before >= n || before + c.mine < n) return;
    u32 count = bins[key_bin_word(bin)];
#pragma unroll 1
    for (; before + count < n; count = bins[key_bin_word(++bin)]) before += count;
    found(bin, before, count);
}
