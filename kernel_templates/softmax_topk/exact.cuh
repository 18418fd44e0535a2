// SPDX-License-Identifier: Apache-2.0
// The exact selection: which elements are the `need` first in order, for every input, whatever ties it has. It serves
// the rows that the fast way could not (a full list, a threshold that was too high) and those too small for it.
//
// It narrows the range that holds the need-th element, by a histogram over the range a pass: half of the bins over the
// keys above the range's lowest, half over the indices of the elements that have that lowest key, because it is there
// that ties by the thousand sit. A pass divides keys (or, once a single key is left, indices) by kExactBins / 2.
// Passes end when everything from the top down to the current bin fits into `room` entries.
//
// Bound: keys have 16 or 32 bits, indices 21, so passes are at most 2 + 2 for 16-bit types and 4 + 2 for f32 (1024
// bins); a row whose ties share the hint's key takes one, any row with `room` or fewer elements at the hint or above too.
#pragma once

#include "softmax.cuh"

QN_DEVICE constexpr u32 exact_bins(u32 words)
{
    u32 bins = 1024;
    while (bins * 2 <= words && bins < 8192) bins *= 2;
    return bins;
}

// Elements with a larger key, and those with this key and a lower index.
struct Cut {
    u32 key, index;
};
QN_DEVICE bool cut_has(const Cut &c, u32 key, u32 index) { return key > c.key || (key == c.key && index < c.index); }

// Calls each(key, index) for the elements of vectors [begin, end) that fall to this thread.
struct RowElements {
    Row row;
    u32 begin, end;
    template <class Each> QN_DEVICE void for_each(Each each) const
    {
        row_for_each_vector(row, begin, end, [&](const uint4 &vector, u32 v) {
            u32 raw[kPerVector];
            Element::unpack_raw(vector, raw);
#pragma unroll
            for (u32 q = 0; q < kPerVector; q++) {
                const u32 index = v * kPerVector + q - row.lead;
                if (index < kV) each(Element::key(raw[q]), index);
            }
        });
    }
};

// The range that holds the need-th element: keys in (low, high], and key low with indices in [first, last).
struct ExactRange {
    u32 low, high, first, last;
    u32 before; // elements that come before all of the range
};

// Least shift that brings numbers below `count` below `bins`.
QN_DEVICE u32 exact_shift(u32 count, u32 bins)
{
    u32 shift = 0;
    while (count && (count - 1) >> shift >= bins) shift++;
    return shift;
}

// Bin of the histogram that holds the need-th element, and what lies before it; three words in found. Two barriers.
template <u32 kBins> QN_DEVICE u32 exact_find(const u32 *histogram, u32 need, u32 *scratch, u32 *found)
{
    constexpr u32 kEach = kBins / THREADS;
    u32 mine = 0, total;
    for (u32 i = 0; i < kEach; i++) mine += histogram[thread_index() * kEach + i];
    u32 before = block_exclusive_sum(mine, scratch, &total);
    if (before < need && before + mine >= need) {
        u32 bin = thread_index() * kEach;
        while (before + histogram[bin] < need) before += histogram[bin++];
        found[0] = bin, found[1] = before, found[2] = histogram[bin];
    }
    __syncthreads();
    return total;
}

// histogram: kBins words; scratch: kWarps words; found: 3 words. All threads get the same cut, which `room` entries
// hold: room >= need. hint: a key at or above which at least `need` elements are expected; 0 = nothing is known.
template <u32 kBins, class Source>
QN_DEVICE Cut exact_cut(const Source &source, u32 need, u32 room, u32 hint, u32 *histogram, u32 *scratch, u32 *found)
{
    static_assert(kBins % THREADS == 0, "the exact histogram needs a multiple of THREADS bins");
    constexpr u32 kHalf = kBins / 2;
    ExactRange r = {hint, Element::kKeyNaN, 0, kV, 0};
    for (;;) {
        const u32 key_shift = exact_shift(r.high - r.low, kHalf), index_shift = exact_shift(r.last - r.first, kHalf);
        __syncthreads();
        for (u32 i = thread_index(); i < kBins; i += THREADS) histogram[i] = 0;
        __syncthreads();
        source.for_each([&](u32 key, u32 index) {
            if (key > r.low && key <= r.high) atomicAdd(&histogram[(r.high - key) >> key_shift], 1u);
            else if (key == r.low && index >= r.first && index < r.last)
                atomicAdd(&histogram[kHalf + ((index - r.first) >> index_shift)], 1u);
        });
        __syncthreads();
        const u32 total = exact_find<kBins>(histogram, need - r.before, scratch, found);
        if (total < need - r.before) { // the hint was too high: the rest is below it
            r = ExactRange{0, r.low - 1, 0, kV, r.before + total};
            continue;
        }
        const u32 bin = found[0], until = r.before + found[1] + found[2];
        r.before += found[1];
        if (bin < kHalf) {
            const u32 top = r.high - (bin << key_shift), width = (1u << key_shift) - 1;
            r = ExactRange{top - r.low > width ? top - width : r.low + 1, top, 0, kV, r.before};
            if (until <= room) return Cut{r.low, kV};
        } else {
            r.high = r.low;
            r.first += (bin - kHalf) << index_shift;
            r.last = min(r.last, r.first + (1u << index_shift));
            if (until <= room) return Cut{r.low, r.last};
        }
    }
}

// Puts the candidates that the cut has into list, in any order; *count (0 before) counts them.
template <class Source> QN_DEVICE void exact_collect(const Source &source, const Cut &cut, uint4 *list, u32 *count)
{
    source.for_each([&](u32 key, u32 index) {
        if (!cut_has(cut, key, index)) return;
        list[atomicAdd(count, 1u)] = make_uint4(~index, key, 0u, 0u);
    });
}
