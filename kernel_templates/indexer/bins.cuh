// SPDX-License-Identifier: Apache-2.0
// The first few of many candidates in shared memory, in order, by bins over their scores: so fine that most bins down to
// the last winner's have one or two.
//
//   probes   64 of the candidates, spread evenly and ranked by counting, tell a cut that lies 3 deviations below the last
//            winner; where that is none of them, every candidate counts
//   count    those from the cut on into bins
//   scan     counts become places, from the highest bin down
//   scatter  those down to the last winner's bin to their places; a place, once taken, moves the bin's on
//   rank     inside a bin, by counting (finish.cuh)
//
// A cut that was too high is told by the count, and all is done again without. Nothing but speed depends on the probes.
// One SM does this for thousands of candidates, so each instruction a candidate counts, and so does each wait: a thread has
// four candidates at a time, and none of the four waits for another or for a branch.
#pragma once

#include "select.cuh"

constexpr u32 kFineBins = BINS;
constexpr u32 kFineEach = kFineBins / THREADS; // of a thread
constexpr u32 kProbes = 64;
constexpr u32 kBatch = 4; // candidates of a thread at a time, neighbours

QN_DEVICE constexpr u32 whole_log2(u32 n)
{
    u32 log = 0;
    while (n >> (log + 1)) log++;
    return log;
}
constexpr u32 kEvenShift = 23 - whole_log2(kFineBins); // all bins from 1 to 2
constexpr u32 kOctaveShift = kEvenShift + 3;           // 8 octaves

static_assert(BINS % THREADS == 0 && BINS >= kBins, "BINS: some for each thread, and room for select.cuh's");
static_assert(THREADS >= kProbes && kProbes <= kSorted, "a thread a probe; they lie where winners do later");

// ---- how scores become bins

// By the bits of 1 + (score - base) · inverse, which grow evenly up to 2 and then by octaves, so that far outliers take a
// few bins only. Each step is monotone: equal scores share a bin, and no larger score lies in a lower one.
struct Range {
    float cut; // what is not below it counts: NaN too, in the lowest bin; -inf: everything
    float inverse, offset;
    u32 shift; // of the bits
};

QN_DEVICE Range make_range(float cut, float base, float inverse, u32 shift)
{
    return Range{cut, inverse, 1.f - base * inverse, shift};
}
QN_DEVICE Range range_unknown()
{
    return Range{-infinity(), 0.f, 0.f, 0u};
}

QN_DEVICE u32 fine_bin(const Range &range, float score)
{
    const float x = fmaxf(fmaf(score, range.inverse, range.offset), 1.f); // NaN: 1
    return min((__float_as_uint(x) >> range.shift) - (0x3F800000u >> range.shift), kFineBins - 1);
}

// Every candidate counts; bins of equal width between the finite ones' extremes.
QN_DEVICE Range range_of_extremes(u32 most, u32 least)
{
    if (most == 0) return make_range(-infinity(), 0.f, 1.f, kEvenShift); // no finite score
    const float low = score_of(least), width = score_of(most) - low;
    return make_range(-infinity(), low, width > 0.f ? 0.9999f * reciprocal_ftz(width) : 1.f, kEvenShift);
}

// ---- candidates: words of memory; what they stand for

struct KeptItems {
    typedef u64 Word; // 0: an empty place
    const u64 *kept;  // pad_items
    QN_DEVICE u64 operator()(u32 i) const { return kept[i]; }
    QN_DEVICE void load(u32 begin, u64 (&word)[kBatch]) const
    {
#pragma unroll
        for (u32 j = 0; j < kBatch; j += 2) {
            const uint4 two = *reinterpret_cast<const uint4 *>(kept + begin + j);
            word[j] = (u64)two.y << 32 | two.x, word[j + 1] = (u64)two.w << 32 | two.z;
        }
    }
    QN_DEVICE static float score(u64 word)
    {
        return __uint_as_float(bits_of(candidate_key(word)));
    }
    QN_DEVICE static bool is_there(u64 word)
    {
        return word != 0;
    }
    QN_DEVICE static u64 item(u64 word, u32)
    {
        return word;
    }
};

struct RawItems { // scores of a short row, one after another, as bits_of has them
    typedef u32 Word;
    const u32 *raw;
    QN_DEVICE u64 operator()(u32 i) const { return item(raw[i], i); }
    QN_DEVICE void load(u32 begin, u32 (&word)[kBatch]) const
    {
        const uint4 four = *reinterpret_cast<const uint4 *>(raw + begin);
        word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
    }
    QN_DEVICE static float score(u32 word) { return __uint_as_float(word); }
    QN_DEVICE static bool is_there(u32) { return true; }
    QN_DEVICE static u64 item(u32 word, u32 i) { return candidate(key_of_bits(word), i); }
};

template <class Items> QN_DEVICE Range range_of_all(const Items &items, u32 n) // begins before a barrier
{
    const Select s = select_pieces();
    Extremes e = {0u, 0xFFFFFFFFu};
#pragma unroll 4
    for (u32 i = thread_index(); i < n; i += THREADS) extend(e, candidate_key(items(i))); // an empty place is like NaN
    share_extremes(s, e);
    __syncthreads();
    return range_of_extremes(s.word[kHigh], ~s.word[kLow]);
}

// ---- probes

// Which of n places probe i looks at: the i-th part, somewhere in it, since entries may differ by their place in a page.
QN_DEVICE u32 probed(u32 i, u32 n)
{
    const u32 turn = i * 40503u & 0xFFFFu;
    return min((i * n + (turn * n >> 16)) / kProbes, n - 1);
}

// The rank among the probes that lies 3 deviations below that of the last winner; near enough.
QN_DEVICE u32 rank_of_cut(u32 n, u32 wanted)
{
    const float mean = (float)(wanted * kProbes) * reciprocal_ftz((float)n);
    return (u32)(mean + 3.f * sqrt_approximate(fmaxf(mean - mean * mean / kProbes, 0.f))) + 3;
}

// Begins and ends in a barrier; there is none where the cut would lie below all probes.
template <class Items> QN_DEVICE Range range_of_probes(const Select &s, const Items &items, u32 n, u32 wanted)
{
    constexpr u32 kParts = THREADS / kProbes; // of the probes that a thread compares its own with
    u32 *probes = reinterpret_cast<u32 *>(s.sorted), *ranks = probes + kProbes;
    const u32 target = rank_of_cut(n, wanted), which = thread_index() % kProbes, part = thread_index() / kProbes;
    if (target >= kProbes) return range_unknown();
    const u32 mine = candidate_key(items(probed(which, n))) / kProbes * kProbes | which; // each another
    if (part == 0) probes[which] = mine, ranks[which] = 0;
    __syncthreads();
    if (part < kParts) {
        u32 rank[4] = {};
#pragma unroll
        for (u32 i = 0; i < (kProbes / 4 + kParts - 1) / kParts; i++) {
            const u32 at = i * kParts + part;
            const uint4 four = reinterpret_cast<const uint4 *>(probes)[at % (kProbes / 4)];
            if (kProbes / 4 % kParts && at >= kProbes / 4) continue;
            rank[0] += four.x > mine, rank[1] += four.y > mine, rank[2] += four.z > mine, rank[3] += four.w > mine;
        }
        atomicAdd(&ranks[which], rank[0] + rank[1] + rank[2] + rank[3]);
    }
    __syncthreads();
    if (part == 0) {
        if (ranks[which] == target) s.word[kCut] = mine / kProbes * kProbes;
        if (ranks[which] == target / 4 * 3) s.word[kMid] = mine;
    }
    __syncthreads();
    const u32 cut = s.word[kCut];
    if (cut < kKeyLeastFinite) return range_unknown();
    const float base = score_of(cut), step = score_of(s.word[kMid]) - base;
    return make_range(base, base, step > 0.f ? reciprocal_ftz(step) : 1.f, kOctaveShift);
}

// ---- count, scan

// kBatch neighbours from `begin` on: their words, and the place of their bin's count, or of a word of nothing's where they do
// not count. An atomic under a condition would be a branch, which waits for its result.
template <class Items> struct Batch {
    typename Items::Word word[kBatch];
    u32 at[kBatch];
};

template <class Items>
QN_DEVICE void load_batch(const Range &range, const Items &items, u32 begin, u32 n, u32 end_bin, Batch<Items> &batch)
{
    items.load(begin, batch.word);
#pragma unroll
    for (u32 j = 0; j < kBatch; j++) {
        const float score = Items::score(batch.word[j]);
        const u32 bin = fine_bin(range, score);
        const bool counts = !(score < range.cut) && Items::is_there(batch.word[j]) && begin + j < n && bin >= end_bin;
        batch.at[j] = counts ? bin : kFineBins + lane_index();
    }
}

template <class Items> QN_DEVICE void count_fine(const Select &s, const Range &range, const Items &items, u32 n)
{
#pragma unroll 1
    for (u32 begin = kBatch * thread_index(); begin < n; begin += kBatch * THREADS) {
        Batch<Items> batch;
        load_batch(range, items, begin, n, 0, batch);
#pragma unroll
        for (u32 j = 0; j < kBatch; j++) atomicAdd(&s.bins[batch.at[j]], 1u);
    }
}

// Turns counts of kFineEach bins a thread into first places, the highest bin's first. kEndBin: a bin, less than kFineEach below
// the one that holds the last of the first `wanted`; kEnd: candidates down to it; kCrowded: not 0 if a bin down to it has more
// than kMostInBin. Returns how many candidates there are. Ends in a barrier.
QN_DEVICE u32 scan_fine(const Select &s, u32 wanted)
{
    constexpr u32 kEach = kFineEach;
    const u32 lowest = (THREADS - 1 - thread_index()) * kEach;
    u32 count[kEach], mine = 0, most = 0, total;
#pragma unroll
    for (u32 i = 0; i < kEach; i++) {
        mine += count[i] = s.bins[lowest + i];
        most = max(most, count[i]);
    }
    u32 before = block_exclusive_sum(mine, s.scratch, &total);
    const u32 need = min(wanted, total);
    if (before < need) {
        if (before + mine >= need) s.word[kEndBin] = lowest, s.word[kEnd] = before + mine;
        if (most > kMostInBin) (void)atomicMax(&s.word[kCrowded], 1u);
    }
#pragma unroll
    for (u32 i = kEach; i-- > 0;) {
        s.bins[lowest + i] = before;
        before += count[i];
    }
    __syncthreads();
    return total;
}

QN_DEVICE void clear_fine(const Select &s)
{
#pragma unroll 4
    for (u32 i = thread_index(); i < kFineBins; i += THREADS) s.bins[i] = 0;
    if (thread_index() < kWarp) s.bins[kFineBins + thread_index()] = 0;
}

// A batch reads whole vectors: what lies behind the last of n kept items does not count, but is to be initialised.
QN_DEVICE void pad_items(const Select &s, u32 n)
{
    if (thread_index() < kBatch && n + thread_index() < kCapacity) s.item[n + thread_index()] = 0;
}

struct Counted {
    Range range;
    u32 total; // items that were counted
};

// All of them, whatever the probes said. Begins and ends in a barrier.
template <class Items> QN_NOINLINE Counted count_all(Items items, u32 n, u32 wanted)
{
    const Select s = select_pieces();
    const Range range = range_of_all(items, n);
    count_fine(s, range, items, n);
    __syncthreads();
    return Counted{range, scan_fine(s, wanted)};
}

// Bins that tell the first `wanted` of n items. Returns how many were counted: at least `wanted`, or all there are. Bins are
// clear before, and words as clear_words has them. Begins and ends in a barrier.
template <class Items> QN_DEVICE u32 count_first(const Select &s, const Items &items, u32 n, u32 wanted, Range &range)
{
    if (n == 0) return 0;
    range = range_of_probes(s, items, n, wanted);
    if (range.cut != -infinity()) {
        count_fine(s, range, items, n);
        __syncthreads();
        const u32 total = scan_fine(s, wanted);
        if (total >= wanted && s.word[kEndBin] > 0) return total;
        clear_fine(s); // the cut was too high, or as good as: NaN may be in the lowest bins
        if (thread_index() == 0) s.word[kCrowded] = 0;
        __syncthreads();
    }
    const Counted all = count_all(items, n, wanted);
    range = all.range;
    return all.total;
}

// ---- scatter

// put(place, item) for each item down to kEndBin; the place of a bin is then where the next lower one's begins.
template <class Items, class Put>
QN_DEVICE void scatter_fine(const Select &s, const Range &range, const Items &items, u32 n, Put put)
{
    const u32 end_bin = s.word[kEndBin];
#pragma unroll 1
    for (u32 begin = kBatch * thread_index(); begin < n; begin += kBatch * THREADS) {
        Batch<Items> batch;
        u32 place[kBatch];
        load_batch(range, items, begin, n, end_bin, batch);
#pragma unroll
        for (u32 j = 0; j < kBatch; j++) place[j] = atomicAdd(&s.bins[batch.at[j]], 1u);
#pragma unroll
        for (u32 j = 0; j < kBatch; j++)
            if (batch.at[j] < kFineBins) put(place[j], Items::item(batch.word[j], begin + j));
    }
}
