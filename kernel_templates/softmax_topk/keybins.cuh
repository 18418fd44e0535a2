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

struct FoundBin {
    u32 bin, before, count; // before: how many lie in nearer bins; count 0: none holds the n-th
};

// How many keys the bins hold, a lane 32 neighbouring bins.
struct KeyCounts {
    u32 mine, before; // before: in nearer lanes
};

QN_DEVICE KeyCounts key_bins_count(const u32 *bins)
{
    static_assert(kKeyBins == kWarp * kWarp, "a lane counts a warp's width of bins");
    KeyCounts c = {0, 0};
#pragma unroll
    for (u32 i = 0; i < kWarp; i++) c.mine += bins[key_bin_word(lane_index() * kWarp + i)];
    c.before = warp_inclusive_sum(c.mine) - c.mine;
    return c;
}

// The lane whose number makes `here` true; at most one does, 32 if none.
QN_DEVICE u32 only_lane(bool here)
{
    const u32 ballot = __ballot_sync(kFullMask, here);
    return ballot ? (u32)__ffs((int)ballot) - 1u : (u32)kWarp;
}

// One warp: the bin that holds the n-th, n >= 1. The same in every lane. First the lane, then its bins, a lane a bin.
QN_DEVICE FoundBin key_bins_find(const u32 *bins, const KeyCounts &c, u32 n)
{
    const u32 owner = only_lane(c.before < n && c.before + c.mine >= n);
    if (owner == kWarp) return FoundBin{0, 0, 0};
    const u32 count = bins[key_bin_word(owner * kWarp + lane_index())];
    const u32 before = __shfl_sync(kFullMask, c.before, (int)owner) + warp_inclusive_sum(count) - count;
    const int bin = (int)only_lane(before < n && before + count >= n);
    return FoundBin{owner * kWarp + (u32)bin, __shfl_sync(kFullMask, before, bin), __shfl_sync(kFullMask, count, bin)};
}
