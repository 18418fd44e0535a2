// SPDX-License-Identifier: Apache-2.0
// The exact selection: which elements are the `need` first in order, for every input, whatever ties it has. It serves
// the rows that the fast way could not (a full list, a threshold that was too high) and those too small for it.
//
// It narrows the range that holds the need-th element, by a histogram over the range a pass: half of the bins over the
// keys above the range's lowest, half over the indices of the elements that have that lowest key, because it is there
// that ties by the thousand sit. A pass divides keys (or, once a single key is left, indices) by kExactBins / 2.
// Passes end when everything from the top down to the current bin fits into `room` entries.
//
// Bound: with b = log2(bins / 2) bits a pass (9 to 12), keys need at most ceil(16 / b) or ceil(32 / b) passes and ties of
// one key ceil((21 - 8) / b) more. One pass is enough where the ties share the hint's key, or where no more than `room`
// elements lie at the hint or above it and the key bins tell them apart. ANALYSIS.md counts reads of the row.
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

// The range that holds the need-th element: keys in (low, high], and key low with indices in [first, last).
struct ExactRange {
    u32 low, high, first, last;
    u32 before; // elements that come before all of the range
};

// What a pass counts. kHalf bins over the keys, then kHalf over the indices.
struct ExactPass {
    ExactRange range;
    u32 key_shift, index_shift, half;
};

// Least shift that brings numbers below `count` below `bins`.
QN_DEVICE u32 exact_shift(u32 count, u32 bins)
{
    u32 shift = 0;
    while (count && (count - 1) >> shift >= bins) shift++;
    return shift;
}

// ---- one element

QN_DEVICE void count_element(const ExactPass &pass, u32 key, u32 index, u32 *histogram)
{
    const ExactRange &r = pass.range;
    if (key > r.low && key <= r.high)
        atomicAdd(&histogram[(r.high - key) >> pass.key_shift], 1u);
    else if (key == r.low && index >= r.first && index < r.last)
        atomicAdd(&histogram[pass.half + ((index - r.first) >> pass.index_shift)], 1u);
}

// Appends it to list if the cut has it; *count counts.
QN_DEVICE void collect_element(const Cut &cut, u32 key, u32 index, uint4 *list, u32 *count)
{
    if (key > cut.key || (key == cut.key && index < cut.index))
        list[atomicAdd(count, 1u)] = make_uint4(~index, key, 0u, 0u);
}

// Loads in flight a thread. 16-bit types unpack to twice the registers, 1024 threads have few; a cluster's parts are short.
constexpr u32 kExactBatch = CLUSTER > 1 ? 1 : sizeof(Raw) == 4 && THREADS < 1024 ? 4 : 2;

// ---- vectors [begin, end) of a row. Most vectors are passed over by their maximum; f32 compares serve for keys.

struct RowElements {
    Row row;
    u32 begin, end;

    static constexpr u32 kBelowZero = Element::kKeyZero - 1; // no element's; as a number it would be zero

    QN_DEVICE u32 first_index(u32 v) const { return v * kPerVector - row.lead; } // wraps in a row's lead

    QN_DEVICE void count(const ExactPass &pass, u32 *histogram) const
    {
        const Packed bound = Element::bound(pass.range.low);
        row_for_each_vector<kExactBatch>(row, begin, end, [&](const uint4 &x, u32 v) {
            if (!Element::reaches(Element::vector_max(x), bound)) return;
            if (pass.range.low > Element::kKeyInfinity || pass.range.low == kBelowZero)
                count_by_key(pass, x, first_index(v), histogram);
            else
                count_by_value(pass, x, first_index(v), histogram);
        });
    }

    QN_DEVICE void collect(const Cut &cut, uint4 *list, u32 *count) const
    {
        const Packed at = Element::bound(cut.key), above = Element::bound(min(cut.key + 1, Element::kKeyNaN));
        row_for_each_vector<kExactBatch>(row, begin, end, [&](const uint4 &x, u32 v) {
            const u32 first = first_index(v);
            if (!Element::reaches(Element::vector_max(x), first < kV && first >= cut.index ? above : at)) return;
            u32 raw[kPerVector];
            Element::unpack_raw(x, raw);
#pragma unroll
            for (u32 q = 0; q < kPerVector; q++)
                if (first + q < kV) collect_element(cut, Element::key(raw[q]), first + q, list, count);
        });
    }

    static QN_DEVICE void count_by_key(const ExactPass &pass, const uint4 &x, u32 first, u32 *histogram)
    {
        u32 raw[kPerVector];
        Element::unpack_raw(x, raw);
#pragma unroll
        for (u32 q = 0; q < kPerVector; q++)
            if (first + q < kV) count_element(pass, Element::key(raw[q]), first + q, histogram);
    }

    // low as a number: NaN where it is below every element's key, and then all are above it.
    static QN_DEVICE void count_by_value(const ExactPass &pass, const uint4 &x, u32 first, u32 *histogram)
    {
        const ExactRange &r = pass.range;
        const float low = Element::value(Element::raw_of_key(r.low));
        float y[kPerVector];
        u32 raw[kPerVector], above = 0, at = 0;
        Element::unpack(x, y);
        Element::unpack_raw(x, raw);
#pragma unroll
        for (u32 q = 0; q < kPerVector; q++) {
            const u32 inside = first + q < kV ? 1u : 0u;
            above |= (y[q] <= low ? 0u : inside) << q;
            at |= (y[q] < low ? 0u : inside) << q;
        }
        at &= ~above;
        if (above) {
#pragma unroll
            for (u32 q = 0; q < kPerVector; q++)
                if (above >> q & 1u) count_element(pass, Element::key(raw[q]), first + q, histogram);
        }
        const u32 bin = (first - r.first) >> pass.index_shift;
        const bool one_bin = bin == (first + kPerVector - 1 - r.first) >> pass.index_shift;
        if (at && one_bin && first < kV && first >= r.first && first + kPerVector <= r.last) {
            atomicAdd(&histogram[pass.half + bin], (u32)__popc(at));
        } else if (at) {
#pragma unroll
            for (u32 q = 0; q < kPerVector; q++)
                if (at >> q & 1u) count_element(pass, r.low, first + q, histogram);
        }
    }
};

// ---- the search

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
// hold: room >= need. hint: a key at or above which at least `need` elements are expected; 0 = nothing is known. top: the
// largest key, or one above it.
// combine(histogram), called after a barrier and ending in one, adds other CTAs' histograms.
template <u32 kBins, class Source, class Combine>
QN_DEVICE Cut exact_cut(const Source &source, u32 need, u32 room, u32 hint, u32 top, u32 *histogram, u32 *scratch,
                        u32 *found, Combine combine)
{
    static_assert(kBins % THREADS == 0, "the exact histogram needs a multiple of THREADS bins");
    constexpr u32 kHalf = kBins / 2;
    ExactRange r = {hint, top, 0, kV, 0};
    for (;;) {
        const ExactPass pass = {r, exact_shift(r.high - r.low, kHalf), exact_shift(r.last - r.first, kHalf), kHalf};
        __syncthreads();
        for (u32 i = thread_index(); i < kBins; i += THREADS) histogram[i] = 0;
        __syncthreads();
        source.count(pass, histogram);
        __syncthreads();
        combine(histogram);
        const u32 total = exact_find<kBins>(histogram, need - r.before, scratch, found);
        if (total < need - r.before) { // the hint was too high: the rest is below it
            r = ExactRange{0, r.low - 1, 0, kV, r.before + total};
            continue;
        }
        const u32 bin = found[0], until = r.before + found[1] + found[2];
        r.before += found[1];
        if (bin < kHalf) {
            const u32 top = r.high - (bin << pass.key_shift), width = (1u << pass.key_shift) - 1;
            r = ExactRange{top - r.low > width ? top - width : r.low + 1, top, 0, kV, r.before};
            if (until <= room) return Cut{r.low, kV};
        } else {
            r.high = r.low;
            r.first += (bin - kHalf) << pass.index_shift;
            r.last = min(r.last, r.first + (1u << pass.index_shift));
            if (until <= room) return Cut{r.low, r.last};
        }
    }
}
