// SPDX-License-Identifier: Apache-2.0
// The exact selection: which of the candidates in shared memory are the first in order, for every input; and the winners
// in order to the outputs. A candidate of 0 is an empty place; it comes after every other.
//
//   usual   bins over the values → scan → scatter, bin by bin → rank inside the bin by counting (bins.cuh, finish.cuh)
//   else    (a bin with too many: ties by the thousand, infinities) digits of the candidates themselves, 11 bits a pass,
//           until the last winner is known; then a sorting network
#pragma once

#include "../common/block.cuh"
#include "problem.cuh"

QN_DEVICE constexpr u32 power_above(u32 n)
{
    u32 power = 32;
    while (power < n) power *= 2;
    return power;
}

constexpr u32 kCapacity = CAP; // candidates
constexpr u32 kBinsEach = (2048 + THREADS - 1) / THREADS;
constexpr u32 kBins = kBinsEach * THREADS;
constexpr u32 kMostInBin = 64; // that the rank by counting is let have
constexpr u32 kPower = power_above(K);
constexpr u32 kSorted = kPower + kMostInBin; // candidates down to the end of the last winner's bin
constexpr u32 kSortedRoom = kSorted + kMostInBin + 2;

static_assert(kCapacity >= kPower && kCapacity % 32 == 0, "CAP: at least K, in steps of 32");

// Shared words. kLow and kLeast hold complements, so that all of them grow. kHigh, kLow: the finite keys' extremes.
enum {
    kHigh,
    kLow,
    kEndBin,
    kEnd,
    kCount,
    kLeast,
    kTicket,
    kLast, // of the last winner
    kLastLow,
    kScaleHigh,
    kScaleFactor,
    kCut,
    kMid,
    kCrowded,
    kShareUnits,
    kResults,
    kRawAt,
    kRawAtHigh,
    kWords
};

struct Select {
    u64 *item;    // [kCapacity]
    u64 *sorted;  // [kSortedRoom]
    u32 *bins;    // [kBins]; where bins.cuh is used [kFineBins + kWarp], the last kWarp for what does not count
    u32 *scratch; // [kWarps]
    u32 *word;    // [kWords]
};

struct Extremes { // of finite keys
    u32 high, low;
};

QN_DEVICE void extend(Extremes &e, u32 key)
{
    if (key >= kKeyLeastFinite && key <= kKeyMostFinite) e.high = max(e.high, key), e.low = min(e.low, key);
}

QN_DEVICE void share_extremes(const Select &s, const Extremes &e)
{
    const u32 high = warp_max(e.high), low = warp_min(e.low);
    if (lane_index() == 0) atomicMax(&s.word[kHigh], high), atomicMax(&s.word[kLow], ~low);
}

QN_DEVICE Select select_pieces(); // the kernel's

// ---- bins over values

struct Scale {
    float high, scale;
};

// Equal values share a bin and larger ones never lie in a later one, whatever the rounding: infinities and NaN fall to
// the ends.
QN_DEVICE Scale scale_between(u32 most, u32 least, u32 bins)
{
    if (most == 0) return Scale{0.f, 1.f}; // no finite score
    const float high = score_of(most), low = score_of(least);
    const float half = high * 0.5f - low * 0.5f;
    return Scale{high, half > 0.f ? fminf((float)(bins - 1) * 0.5f / half, 0x1p100f) : 1.f};
}

QN_DEVICE Scale make_scale(const Select &s)
{
    return scale_between(s.word[kHigh], ~s.word[kLow], kBins);
}

QN_DEVICE Scale scale_of(const Select &s) // after bin_items
{
    return Scale{__uint_as_float(s.word[kScaleHigh]), __uint_as_float(s.word[kScaleFactor])};
}

QN_DEVICE u32 bin_of(const Scale &by, u32 key)
{
    return u32_saturated(fminf((by.high - score_of(key)) * by.scale, (float)(kBins - 1)));
}

// One to the bin of each lane; lanes that share lane 0's add together.
QN_DEVICE void add_to_bins(const Select &s, u32 bin, bool valid)
{
    const u32 first = __shfl_sync(kFullMask, bin, 0);
    const u32 same = __ballot_sync(kFullMask, valid && bin == first);
    if (lane_index() == 0 && same) atomicAdd(&s.bins[first], (u32)__popc(same));
    if (valid && bin != first) atomicAdd(&s.bins[bin], 1u);
}

// Turns counts into first places. kEndBin: the bin that holds the last of the first `wanted`, kEnd: candidates down to its
// end. Returns how many candidates there are. Ends in a barrier.
QN_DEVICE u32 scan_bins(const Select &s, u32 wanted)
{
    u32 count[kBinsEach], mine = 0, total;
#pragma unroll
    for (u32 i = 0; i < kBinsEach; i++) mine += count[i] = s.bins[thread_index() * kBinsEach + i];
    u32 before = block_exclusive_sum(mine, s.scratch, &total);
    const u32 need = min(wanted, total);
#pragma unroll
    for (u32 i = 0; i < kBinsEach; i++) {
        s.bins[thread_index() * kBinsEach + i] = before;
        if (before < need && before + count[i] >= need) {
            s.word[kEndBin] = thread_index() * kBinsEach + i;
            s.word[kEnd] = before + count[i];
        }
        before += count[i];
    }
    __syncthreads();
    return total;
}

QN_DEVICE void clear_bins(const Select &s)
{
#pragma unroll
    for (u32 i = 0; i < kBinsEach; i++) s.bins[i * THREADS + thread_index()] = 0;
}

// Counts n items into bins and scans them for the first `wanted`; returns how many are not empty. The extremes are in
// their words. Begins and ends in a barrier. Not inlined: a share and the merge run the same instructions, which are then
// there already when the merge comes.
QN_NOINLINE u32 bin_items(u32 n, u32 wanted)
{
    const Select s = select_pieces();
    __syncthreads();
    const Scale by = make_scale(s);
    clear_bins(s);
    if (thread_index() == 0) {
        s.word[kCount] = s.word[kLeast] = 0;
        s.word[kScaleHigh] = __float_as_uint(by.high), s.word[kScaleFactor] = __float_as_uint(by.scale);
    }
    __syncthreads();
#pragma unroll 2
    for (u32 i = warp_index() * kWarp; i < n; i += THREADS) {
        const u64 item = i + lane_index() < n ? s.item[i + lane_index()] : 0;
        add_to_bins(s, bin_of(by, candidate_key(item)), item != 0);
    }
    __syncthreads();
    return scan_bins(s, wanted);
}

// ---- the last winner by its digits; items(i): candidate i, wherever it lies

struct SharedItems {
    const u64 *item;
    QN_DEVICE u64 operator()(u32 i) const { return item[i]; }
};

// The need-th candidate of n (1 <= need <= those that are not empty), exactly. Uses the bins.
template <class Items> QN_DEVICE u64 nth_of(const Items &items, u32 n, u32 need)
{
    const Select s = select_pieces();
    u64 prefix = 0; // of the bits above `shift`
#pragma unroll 1
    for (u32 shift = 53, width = 11;; width = shift < 11 ? shift : 11, shift -= width) {
        __syncthreads();
#pragma unroll 1
        for (u32 i = thread_index(); i < kBins; i += THREADS) s.bins[i] = 0;
        __syncthreads();
        const u32 digits = (1u << width) - 1;
#pragma unroll 1
        for (u32 i = warp_index() * kWarp; i < n; i += THREADS) {
            const u64 item = i + lane_index() < n ? items(i + lane_index()) : 0;
            const bool inside = item != 0 && (shift + width == 64 || item >> (shift + width) == prefix);
            add_to_bins(s, digits - ((u32)(item >> shift) & digits), inside);
        }
        __syncthreads();
        (void)scan_bins(s, need);
        const u32 bin = s.word[kEndBin], end = s.word[kEnd], first = s.bins[bin];
        prefix = prefix << width | (digits - bin);
        if (shift == 0 || end == need) return prefix << shift;
        need -= first;
    }
}

QN_NOINLINE u64 nth_candidate(u32 n, u32 need)
{
    return nth_of(SharedItems{select_pieces().item}, n, need);
}

// Those from `last` on into sorted, in any order; kCount counts. Two barriers.
template <class Items> QN_DEVICE void gather_sorted(const Select &s, const Items &items, u32 n, u64 last)
{
    if (thread_index() == 0) s.word[kCount] = 0;
    __syncthreads();
#pragma unroll 1
    for (u32 i = thread_index(); i < n; i += THREADS) {
        const u64 item = items(i);
        if (item != 0 && item >= last) s.sorted[atomicAdd(&s.word[kCount], 1u)] = item;
    }
    __syncthreads();
}

// Keeps the first `need` of n, at the front; returns the last of them. Ends in a barrier.
QN_DEVICE u64 keep_first(const Select &s, u32 n, u32 need)
{
    const u64 last = nth_candidate(n, need);
    gather_sorted(s, SharedItems{s.item}, n, last);
#pragma unroll 1
    for (u32 i = thread_index(); i < need; i += THREADS) s.item[i] = s.sorted[i];
    __syncthreads();
    return last;
}

// ---- winners in order

QN_DEVICE void store_winner(const indexer_params &p, const Row &row, u32 rank, u64 winner)
{
    p.indices[row.number * p.indices_stride + rank] = (i32)candidate_index(winner);
    if (SCORES) p.scores[row.number * p.scores_stride + rank] = score_of(candidate_key(winner));
}

QN_DEVICE void note_last(const Select &s, u64 last)
{
    s.word[kLast] = (u32)(last >> 32), s.word[kLastLow] = (u32)last;
}

// The first `need` of n into sorted, in order; `last` is the last of them. Ends in a barrier.
template <class Items> QN_DEVICE void sort_first(const Select &s, const Items &items, u32 n, u32 need, u64 last)
{
    gather_sorted(s, items, n, last);
#pragma unroll 1
    for (u32 i = need + thread_index(); i < kPower; i += THREADS) s.sorted[i] = 0;
#pragma unroll 1
    for (u32 size = 2; size <= kPower; size *= 2) {
#pragma unroll 1
        for (u32 stride = size / 2; stride; stride /= 2) {
            __syncthreads();
#pragma unroll 1
            for (u32 t = thread_index(); t < kPower / 2; t += THREADS) {
                const u32 i = 2 * t - (t & (stride - 1)), j = i + stride;
                const u64 a = s.sorted[i], b = s.sorted[j];
                if ((a < b) == ((i & size) == 0)) s.sorted[i] = b, s.sorted[j] = a;
            }
        }
    }
    __syncthreads();
}
