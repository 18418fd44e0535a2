// SPDX-License-Identifier: Apache-2.0
// 1024 bins over a range of keys, to find about where the n-th largest of some maxima lies. Bins are as wide as a power
// of two; their far edge is then a threshold.
#pragma once

#include "softmax.cuh"

constexpr u32 kKeyBins = 1024;
constexpr u32 kKeyBinWords = kKeyBins + kKeyBins / 32; // a word of padding after 32, for the banks of the search

QN_DEVICE u32 key_bin_word(u32 bin) { return bin + bin / 32; }

// Least shift that brings distances up to `range` below kKeyBins.
QN_DEVICE u32 key_bin_shift(u32 range) { return (u32)max(0, 22 - __clz((int)range)); }

// Largest distance from the top in a bin.
QN_DEVICE u32 key_bin_far_edge(u32 bin, u32 shift) { return ((bin + 1) << shift) - 1; }

struct FoundBin {
    u32 bin, before, count; // before: how many lie in nearer bins; count 0: none holds the n-th
};

// One warp: the bin that holds the n-th, n >= 1. The same in every lane.
QN_DEVICE FoundBin key_bins_find(const u32 *bins, u32 n)
{
    constexpr u32 kEach = kKeyBins / kWarp;
    const u32 first = lane_index() * kEach;
    u32 sum = 0;
#pragma unroll
    for (u32 i = 0; i < kEach; i++) sum += bins[key_bin_word(first + i)];
    const u32 until = warp_inclusive_sum(sum);
    FoundBin found = {first, until - sum, 0};
    const bool mine = until - sum < n && until >= n;
    if (mine) {
        while (found.before + bins[key_bin_word(found.bin)] < n) found.before += bins[key_bin_word(found.bin++)];
        found.count = bins[key_bin_word(found.bin)];
    }
    const u32 owner = __ballot_sync(kFullMask, mine);
    const int lane = owner ? __ffs((int)owner) - 1 : 0;
    found.bin = __shfl_sync(kFullMask, found.bin, lane);
    found.before = __shfl_sync(kFullMask, found.before, lane);
    found.count = __shfl_sync(kFullMask, found.count, lane);
    return found;
}
