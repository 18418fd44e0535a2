// SPDX-License-Identifier: Apache-2.0
// One CTA streams a row, or a share of it (vectors [begin, end)), once: adds exponentials, lists the vectors that hold an
// element at the threshold, and makes candidates of them. What plans stream and split have in common.
//
// Every warp runs through its vectors alone: no barrier, no atomic, a list of its own. Thread t reads vectors t,
// t + THREADS, …; UNROLL of them are in flight. LOCAL_K list entries a thread, in shared memory.
//
// Prologue, besides problem.cuh's: UNROLL, SAMPLE (vectors a thread), RANK (0: no threshold, always the exact
// selection), SLOTS (= LOCAL_K * THREADS), SORTED, BINS.
#pragma once

#include "finish.cuh"
#include "sample.cuh"
#include "token.cuh"

static_assert(CLUSTER == 1, "plans that stream have no clusters");
static_assert(SLOTS == LOCAL_K * THREADS, "SLOTS must be LOCAL_K * THREADS");
static_assert(RANK >= 0 && RANK <= K && SAMPLE >= 1, "RANK: 0 to K; SAMPLE: at least a vector a thread");

constexpr u32 kMostVectors = (kV + 2 * kPerVector - 2) / kPerVector; // of a row with any lead
constexpr u32 kTile = THREADS * UNROLL;                              // vectors
constexpr bool kLongRow = kMostVectors / kTile > 32; // so many sums of tiles that their rounding must be kept
constexpr u32 kBinWords = kBins > kKeyBinWords ? kBins : kKeyBinWords;

// A vector's number, as the list keeps it: 16 bits where they are enough.
template <bool kFits16> struct VectorNumber {
    typedef u16 Type;
};
template <> struct VectorNumber<false> {
    typedef u32 Type;
};
typedef typename VectorNumber<kMostVectors <= 65536>::Type Number;

struct Shared {
    List list;
    Number *vector; // [kSlots], of the row, for entries that still are vectors
    u32 *tail;      // [kWarps], candidates of a warp beyond the first of each vector
    u32 *edges;     // [2 * kWarps]
    u32 *found;     // [kFoundWords]
    u32 *top;       // [kWarps], largest key pushed
    u32 *before;    // [kWarps], elements before the token
    float *sums;    // [kWarps]
    Threshold *threshold;
};

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, slot, kSlots);
    QN_SHARED_ARRAY(u64, sorted, kSorted);
    QN_SHARED_ARRAY(u32, bins, kBinWords);
    QN_SHARED_ARRAY(u32, count, kWarps);
    QN_SHARED_ARRAY(u32, scratch, kWarps);
    QN_SHARED_ARRAY(u32, tail, kWarps);
    QN_SHARED_ARRAY(u32, edges, 2 * kWarps);
    QN_SHARED_ARRAY(u32, top, kWarps);
    QN_SHARED_ARRAY(u32, before, kWarps);
    QN_SHARED_ARRAY(float, sums, kWarps);
    QN_SHARED_ARRAY(u32, word, kListWords);
    QN_SHARED_ARRAY(u32, found, kFoundWords);
    QN_SHARED(Threshold, threshold);
    QN_SHARED(Binning, binning);
    QN_SHARED_ARRAY(Number, vector, kSlots);
    return Shared{{slot, count, sorted, bins, scratch, word, &binning},
                  vector,
                  tail,
                  edges,
                  found,
                  top,
                  before,
                  sums,
                  &threshold};
}
constexpr u32 kSharedBytes = kSlots * (16 + (u32)sizeof(Number)) + kSorted * 8 +
                             (kBinWords + 8 * kWarps + kListWords + kFoundWords) * 4 + (u32)sizeof(Threshold) +
                             (u32)sizeof(Binning);
static_assert(kSharedBytes <= SHARED_BYTES, "SHARED_BYTES is less than the pieces need");

// ---- stream

// Vectors [begin, end) of a row.
struct Share {
    Row row;
    u32 begin, end;
};

struct Filter {
    Packed low, high; // bounds up to the cut and beyond it
    u32 cut;
};

struct Stream {
    LongSum sum;
    Packed max;
    u32 next;   // the warp's next list entry; goes on beyond `last`
    u32 last;   // end of the warp's entries
    u32 before; // elements before the token, as token_count counts them
};

// Pushes the vectors that reach the bound into the warp's list.
QN_DEVICE void push(const Shared &s, Packed bound, bool inside, const uint4 &x, u32 v, Stream &stream)
{
    const Packed max = Element::vector_max(x);
    const bool hit = Element::reaches(max, bound) && inside;
    const u32 ballot = __ballot_sync(kFullMask, hit);
    if (!ballot) return;
    const u32 at = stream.next + lanes_below(ballot);
    if (hit && at < stream.last) {
        s.list.slot[at] = x;
        s.vector[at] = (Number)v;
    }
    stream.max = Element::larger(stream.max, max);
    stream.next += (u32)__popc(ballot);
}

// kInner: every vector lies inside the share, neither the row's first (if that has a lead) nor its last is among them,
// nor is the cut.
template <bool kInner>
QN_DEVICE void stream_tile(const Shared &s, const Share &share, u32 base, const Filter &filter,
                           const Exponent &exponent, const TokenBounds &token, Stream &stream)
{
    uint4 x[UNROLL];
#pragma unroll
    for (u32 u = 0; u < UNROLL; u++) {
        const u32 v = base + u * THREADS + thread_index();
        x[u] = kInner ? row_load_inner(share.row, v) : v < share.end ? row_load(share.row, v) : row_pad();
    }
    float even = 0.f, odd = 0.f;
#pragma unroll
    for (u32 u = 0; u < UNROLL; u++) {
        const u32 v = base + u * THREADS + thread_index();
        const bool inside = kInner || v < share.end;
        float y[kPerVector];
        Element::unpack(x[u], y);
        if constexpr (kNeedsSum) {
#pragma unroll
            for (u32 q = 0; q < kPerVector; q += 2) even += weight(y[q], exponent), odd += weight(y[q + 1], exponent);
        }
        if constexpr (TOKEN) stream.before += inside ? token_count(token, v, y) : 0u;
        if constexpr (RANK > 0)
            push(s, (kInner ? base : v) <= filter.cut ? filter.low : filter.high, inside, x[u], v, stream);
    }
    if constexpr (kLongRow)
        long_sum_add(stream.sum, even + odd);
    else
        stream.sum.sum += even + odd;
}

// Leaves each warp's sum, largest pushed key and counts in shared memory.
QN_DEVICE void stream_share(const Shared &s, const softmax_topk_params &p, i64 row, const Share &share,
                            const Threshold &t)
{
    const Exponent exponent = exponent_near(key_value(t.max), row_temperature(p, row));
    const Filter filter = {Element::bound(t.low), Element::bound(t.high), t.cut};
    TokenBounds token = {0, 0.f, 0.f};
    if constexpr (TOKEN) token = token_bounds(p, row, share.row);
    const u32 first = warp_index() * kWarpSlots;
    Stream stream = {{0.f, 0.f}, Element::packed_minus_infinity(), first, first + kWarpSlots, 0};
    const u32 inner = min(share.end, share.row.count - 1); // tiles up to here hold no last vector
    for (u32 base = share.begin; base < share.end; base += kTile) {
        const bool is_cut = base <= filter.cut && base + kTile > filter.cut + 1;
        const bool is_inner = (base || !share.row.lead) && base + kTile <= inner && !is_cut;
        if (is_inner)
            stream_tile<true>(s, share, base, filter, exponent, token, stream);
        else
            stream_tile<false>(s, share, base, filter, exponent, token, stream);
    }
    const float sum = warp_sum(long_sum(stream.sum));
    const u32 top = warp_max(Element::key_of_packed(stream.max)), before = TOKEN ? warp_sum(stream.before) : 0;
    if (lane_index() != 0) return;
    s.sums[warp_index()] = sum;
    s.top[warp_index()] = top;
    s.list.count[warp_index()] = stream.next - first;
    s.before[warp_index()] = before;
    s.tail[warp_index()] = 0;
}

// ---- candidates

// The threshold as numbers: an element is a candidate if it is not less. Not for a threshold that is NaN.
struct Bounds {
    float low, high;
};

// Entry i of the warp's list, a vector, becomes its first candidate; further ones go to the list's end.
QN_DEVICE void candidates_of_vector(const Shared &s, const Threshold &t, const Bounds &bounds, const Row &r,
                                    const Binning &binning, u32 i)
{
    uint4 *list = s.list.slot + warp_index() * kWarpSlots;
    const u32 v = s.vector[warp_index() * kWarpSlots + i];
    const u32 first = v * kPerVector - r.lead;
    const float low = v <= t.cut ? bounds.low : bounds.high;
    u32 hits = elements_at(list[i], low);
    if (QN_UNLIKELY(v == 0 || v == r.count - 1)) hits &= inside_row(r, v);
    const Raw *elements = reinterpret_cast<const Raw *>(list + i); // [kPerVector]
    const u32 extra = hits & (hits - 1u);                          // all but the first
    u32 at = extra ? s.list.count[warp_index()] + atomicAdd(&s.tail[warp_index()], (u32)__popc(extra)) : 0;
    for (u32 rest = extra; rest; rest &= rest - 1u) {
        const u32 q = (u32)__ffs((int)rest) - 1u, key = Element::key(elements[q]);
        if (at < kWarpSlots) list[at] = make_uint4(~(first + q), key, take_place(s.list, binning, key, first + q), 0u);
        at++;
    }
    if (hits == 0) {
        list[i].z = kNoBin;
        return;
    }
    const u32 q = (u32)__ffs((int)hits) - 1u, key = Element::key(elements[q]);
    list[i] = make_uint4(~(first + q), key, take_place(s.list, binning, key, first + q), 0u);
}

// False if some warp's list was too small. The same in every thread; ends in a barrier.
QN_DEVICE bool candidates_of_list(const Shared &s, const Threshold &t, const Row &r, const Binning &binning)
{
    const u32 listed = entries_of_warp(s.list);
    const Bounds bounds = {key_value(max(t.low, Element::kKeyMinusInfinity)),
                           key_value(max(t.high, Element::kKeyMinusInfinity))};
    bool fits = s.list.count[warp_index()] <= kWarpSlots && !is_nan(bounds.low);
    if (fits) {
        for (u32 i = lane_index(); i < listed; i += kWarp) candidates_of_vector(s, t, bounds, r, binning, i);
    }
    __syncwarp();
    const u32 entries = s.list.count[warp_index()] + s.tail[warp_index()];
    fits = fits && entries <= kWarpSlots;
    __syncwarp();
    if (lane_index() == 0) s.list.count[warp_index()] = entries;
    return !block_any(!fits);
}

// Puts the share's candidates into bins and scans them; false if the list failed, and then the hint for exact_share is in
// word[kListLow]. Functions of their own, for their registers; none calls another.
QN_NOINLINE bool bin_share(const softmax_topk_params &p, i64 row, u32 begin, u32 end, u32 need)
{
    const Shared s = shared_pieces();
    const Share share = {row_of(p, row), begin, end};
    const Threshold t = *s.threshold;
    const Binning binning = binning_over(t.low, max(t.low, warp_max(s.top[lane_index() % kWarps])));
    bool works = candidates_of_list(s, t, share.row, binning);
    u32 low = t.low;
    if (works) {
        list_scan(s.list, need);
        const bool short_of = s.list.word[kListTotal] < need;
        works = !short_of && s.list.word[kListEnd] <= kSorted;
        if (short_of) low = t.spare;
    }
    if (thread_index() == 0) s.list.word[kListLow] = low, *s.list.binning = binning;
    __syncthreads();
    return works;
}

// The same by the exact selection.
QN_NOINLINE void exact_share(const softmax_topk_params &p, i64 row, u32 begin, u32 end, u32 need)
{
    const List list = shared_pieces().list;
    const u32 hint = RANK ? list.word[kListLow] : 0;
    __syncthreads();
    list_exact(list, RowElements{row_of(p, row), begin, end}, need, hint);
}

// The candidates of the share, in bins: ready for winners_of_share.
QN_DEVICE void select_share(const softmax_topk_params &p, i64 row, const Share &share, u32 need)
{
    bool works = false;
    if constexpr (RANK > 0) works = bin_share(p, row, share.begin, share.end, need);
    if (QN_UNLIKELY(!works)) exact_share(p, row, share.begin, share.end, need);
}

// The `need` first elements of the share, in order.
QN_DEVICE const u64 *winners_of_share(const Shared &s, u32 need)
{
    const Binning binning = *s.list.binning;
    list_scatter(s.list, need);
    return list_rank(s.list, binning, need);
}

// ---- the sum

// Sum of the share's weights against max, its own maximum; NaN if that is no number or infinite.
QN_DEVICE float sum_of_share(const Shared &s, const softmax_topk_params &p, i64 row, const Share &share, float max)
{
    if constexpr (!kNeedsSum) return 1.f;
    const float temperature = row_temperature(p, row);
    if (!softmax_is_defined(max, temperature)) return not_a_number();
    const Exponent exponent = exponent_near(key_value(s.threshold->max), temperature);
    const float sum = warp_sum(lane_index() < kWarps ? s.sums[lane_index()] : 0.f);
    if (sum_is_usable(sum, max, exponent)) return sum_from_offset(sum, max, exponent);
    __syncthreads();
    return sum_against(share.row, share.begin, share.end, max, temperature, s.sums);
}

// Elements before the token, as token_count counts them.
QN_DEVICE u32 before_of_share(const Shared &s)
{
    return TOKEN ? warp_sum(lane_index() < kWarps ? s.before[lane_index()] : 0u) : 0u;
}

// ---- both together

QN_DEVICE void shared_clear(const Shared &s)
{
    for (u32 i = thread_index(); i < kBinWords; i += THREADS) s.list.bins[i] = 0;
    if (thread_index() < kFoundWords) s.found[thread_index()] = 0;
    __syncthreads();
}

// Threshold, stream, candidates; what winners_of_share, sum_of_share and before_of_share need is then in shared memory.
QN_DEVICE void do_share(const Shared &s, const softmax_topk_params &p, i64 row, const Share &share, u32 need)
{
    const Threshold t = sample_threshold(share.row, share.begin, share.end, s.list.bins, s.edges, s.found);
    if (thread_index() == 0) *s.threshold = t;
    stream_share(s, p, row, share, t);
    __syncthreads();
    select_share(p, row, share, need);
}
