// SPDX-License-Identifier: Apache-2.0
// softmax_topk, plan "stream": one CTA a row, one read of the row, no temporary in memory. For every architecture, every
// V and many rows; the plan of batch_invariant.
//
//   probability_k = e^(x_k - max) / Σ e^(x_i - max) for the K largest x in order
//
//   sample     a threshold that a few more than K elements reach, from a sample of the row (sample.cuh)
//   stream     every warp runs through its vectors alone: adds exponentials, and pushes whole vectors that hold an
//              element at the threshold into a list of its own, by ballot, without atomics or barriers
//   candidates the elements in the listed vectors, each with a place in a bin (finish.cuh)
//   rank       scan, scatter, count inside the bins
//   repair     a list too short or too full is known by its exact count; the row is then selected again (exact.cuh)
//   store      values and indices, in order
//
// Thread t reads vectors t, t + THREADS, …; UNROLL of them are in flight. LOCAL_K list entries a thread, in shared
// memory. What comes after the stream is a function of its own, so that the stream has all the registers.
// ANALYSIS.md: bytes, work, why it is exact, measured figures.
//
// Prologue, besides problem.cuh's: UNROLL, SAMPLE (vectors a thread), RANK (0: no threshold, always the exact
// selection), SLOTS (= LOCAL_K * THREADS), SORTED, BINS.
#include "sample.cuh"
#include "finish.cuh"
#include "token.cuh"

static_assert(CLUSTER == 1, "the stream plan has no clusters");
static_assert(SLOTS == LOCAL_K * THREADS, "SLOTS must be LOCAL_K * THREADS");
static_assert(RANK >= 0 && RANK <= K && SAMPLE >= 1, "RANK: 0 to K; SAMPLE: at least a vector a thread");

constexpr u32 kMostVectors = (kV + kPerVector - 1 + kPerVector - 1) / kPerVector; // of a row with any lead
constexpr u32 kTile = THREADS * UNROLL;                                           // vectors
constexpr bool kLongRow = kMostVectors / kTile > 32; // so many sums of tiles that their rounding must be kept
constexpr u32 kBinWords = kBins > kKeyBinWords ? kBins : kKeyBinWords;

// A vector's number, as the list keeps it: 16 bits where they are enough.
template <bool kFits16> struct VectorNumber { typedef u16 Type; };
template <> struct VectorNumber<false> { typedef u32 Type; };
typedef typename VectorNumber<kMostVectors <= 65536>::Type Number;

struct Shared {
    List list;
    Number *vector; // [kSlots], of the row, for entries that still are vectors
    u32 *tail;   // [kWarps], candidates of a warp beyond the first of each vector
    u32 *edges;  // [2 * kWarps]
    u32 *found;  // [kFoundWords]
    u32 *top;    // [kWarps], largest key pushed
    u32 *before; // [kWarps], elements before the token
    float *sums; // [kWarps]
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
    QN_SHARED_ARRAY(u32, word, 4);
    QN_SHARED_ARRAY(u32, found, kFoundWords);
    QN_SHARED(Threshold, threshold);
    QN_SHARED_ARRAY(Number, vector, kSlots);
    return Shared{{slot, count, sorted, bins, scratch, word}, vector, tail, edges, found, top, before, sums, &threshold};
}
constexpr u32 kSharedBytes =
    kSlots * (16 + (u32)sizeof(Number)) + kSorted * 8 + (kBinWords + 8 * kWarps + 4 + kFoundWords) * 4 + (u32)sizeof(Threshold);
static_assert(kSharedBytes <= SHARED_BYTES, "SHARED_BYTES is less than the pieces need");

// ---- stream

struct Filter {
    Packed low, high; // bounds up to the cut and beyond it
    u32 cut;
};

struct Stream {
    LongSum sum;
    Packed max;
    u32 listed; // vectors this warp pushed
    u32 before; // elements before the token, as token_count counts them
};

// Pushes the vectors that the filter passes into the warp's list.
QN_DEVICE void push(const Shared &s, const Filter &filter, Packed bound, bool at_cut, bool inside, const uint4 &x, u32 v,
                    Stream &stream)
{
    const Packed max = Element::vector_max(x);
    bool hit = Element::reaches(max, bound) && inside;
    u32 ballot = __ballot_sync(kFullMask, hit);
    if (!ballot) return;
    if (at_cut) {
        hit = hit && (v <= filter.cut || Element::reaches(max, filter.high));
        ballot = __ballot_sync(kFullMask, hit);
    }
    const u32 at = stream.listed + lanes_below(ballot);
    if (hit && at < kWarpSlots) {
        s.list.slot[warp_index() * kWarpSlots + at] = x;
        s.vector[warp_index() * kWarpSlots + at] = (Number)v;
    }
    stream.max = Element::larger(stream.max, max);
    stream.listed += (u32)__popc(ballot);
}

// kEnds: the tile may hold the row's first vector, its last, or vectors beyond it.
template <bool kEnds>
QN_DEVICE void stream_tile(const Shared &s, const Row &r, u32 base, const Filter &filter, const Exponent &exponent,
                           const TokenBounds &token, Stream &stream)
{
    uint4 x[UNROLL];
#pragma unroll
    for (u32 u = 0; u < UNROLL; u++) {
        const u32 v = base + u * THREADS + thread_index();
        x[u] = !kEnds ? row_load_inner(r, v) : v < r.count ? row_load(r, v) : row_pad();
    }
    const bool at_cut = base + kTile > filter.cut;
    const Packed bound = base <= filter.cut ? filter.low : filter.high;
    float even = 0.f, odd = 0.f;
#pragma unroll
    for (u32 u = 0; u < UNROLL; u++) {
        const u32 v = base + u * THREADS + thread_index();
        float y[kPerVector];
        Element::unpack(x[u], y);
        if constexpr (kNeedsSum) {
#pragma unroll
            for (u32 q = 0; q < kPerVector; q += 2) even += weight(y[q], exponent), odd += weight(y[q + 1], exponent);
        }
        if constexpr (TOKEN) stream.before += token_count(token, v, y);
        if constexpr (RANK > 0) push(s, filter, bound, at_cut, !kEnds || v < r.count, x[u], v, stream);
    }
    if constexpr (kLongRow) long_sum_add(stream.sum, even + odd);
    else stream.sum.sum += even + odd;
}

// Leaves each warp's sum, largest pushed key and counts in shared memory.
QN_DEVICE void stream_row(const Shared &s, const softmax_topk_params &p, i64 row, const Row &r, const Threshold &t)
{
    const Exponent exponent = exponent_near(key_value(t.max), row_temperature(p, row));
    const Filter filter = {Element::bound(t.low), Element::bound(t.high), t.cut};
    TokenBounds token = {0, 0.f, 0.f};
    if constexpr (TOKEN) token = token_bounds(p, row, r);
    Stream stream = {{0.f, 0.f}, Element::packed_minus_infinity(), 0, 0};
    for (u32 base = 0; base < r.count; base += kTile) {
        if ((base || !r.lead) && base + kTile < r.count) stream_tile<false>(s, r, base, filter, exponent, token, stream);
        else stream_tile<true>(s, r, base, filter, exponent, token, stream);
    }
    const float sum = warp_sum(long_sum(stream.sum));
    const u32 top = warp_max(Element::key_of_packed(stream.max)), before = TOKEN ? warp_sum(stream.before) : 0;
    if (lane_index() != 0) return;
    s.sums[warp_index()] = sum;
    s.top[warp_index()] = top;
    s.list.count[warp_index()] = stream.listed;
    s.before[warp_index()] = before;
    s.tail[warp_index()] = 0;
}

// ---- candidates

// Entry i of the warp's list, a vector, becomes its first candidate; further ones go to the list's end.
QN_DEVICE void candidates_of_vector(const Shared &s, const Threshold &t, const Row &r, const Binning &binning, u32 i)
{
    uint4 *list = s.list.slot + warp_index() * kWarpSlots;
    const uint4 x = list[i];
    const u32 v = s.vector[warp_index() * kWarpSlots + i];
    const u32 low = v <= t.cut ? t.low : t.high, first = v * kPerVector - r.lead;
    u32 raw[kPerVector], hits = 0;
    Element::unpack_raw(x, raw);
#pragma unroll
    for (u32 q = 0; q < kPerVector; q++) hits |= (Element::key(raw[q]) >= low && first + q < kV ? 1u : 0u) << q;
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
    bool fits = s.list.count[warp_index()] <= kWarpSlots;
    if (fits) {
        for (u32 i = lane_index(); i < listed; i += kWarp) candidates_of_vector(s, t, r, binning, i);
    }
    __syncwarp();
    const u32 entries = s.list.count[warp_index()] + s.tail[warp_index()];
    fits = fits && entries <= kWarpSlots;
    __syncwarp();
    if (lane_index() == 0) s.list.count[warp_index()] = entries;
    return !block_any(!fits);
}

// Puts the row's candidates into bins and scans them, from the list or, if that failed, by the exact selection.
QN_DEVICE Binning select_row(const Shared &s, const Row &r)
{
    const RowElements elements = {r, 0, r.count};
    if constexpr (RANK == 0) return list_exact(s.list, elements, kK, 0);
    const Threshold t = *s.threshold;
    const Binning binning = binning_over(t.low, max(t.low, warp_max(s.top[lane_index() % kWarps])));
    u32 hint = t.low;
    if (candidates_of_list(s, t, r, binning)) {
        list_scan(s.list, kK);
        if (s.list.word[kListTotal] < kK) hint = t.spare;
        else if (s.list.word[kListEnd] <= kSorted) return binning;
    }
    return list_exact(s.list, elements, kK, hint);
}

// ---- the end of a row

// What was added in the stream, against the maximum.
QN_DEVICE float row_sum(const Shared &s, const softmax_topk_params &p, i64 row, const Row &r, float max)
{
    if constexpr (!kNeedsSum) return 1.f;
    const float temperature = row_temperature(p, row);
    if (!softmax_is_defined(max, temperature)) return not_a_number();
    const Exponent exponent = exponent_near(key_value(s.threshold->max), temperature);
    float sum = 0.f;
    for (int warp = 0; warp < kWarps; warp++) sum += s.sums[warp];
    if (sum_is_usable(sum, max, exponent)) return sum_from_offset(sum, max, exponent);
    __syncthreads();
    return sum_against(r, 0, r.count, max, temperature, s.sums);
}

QN_NOINLINE void finish_row(const softmax_topk_params &p, i64 row)
{
    const Shared s = shared_pieces();
    const Row r = row_of(p, row);
    const Binning binning = select_row(s, r);
    list_scatter(s.list, kK);
    const u64 *winner = list_rank(s.list, binning, kK);
    const float sum = row_sum(s, p, row, r, key_value(candidate_key(winner[0])));
    u32 before = 0;
    if constexpr (TOKEN) {
        for (int warp = 0; warp < kWarps; warp++) before += s.before[warp];
        before = token_rank(p, row, r, before, s.list.scratch);
    }
    store_row(p, row, winner, sum, before, reinterpret_cast<float *>(s.tail));
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ softmax_topk_params p)
{
    const Shared s = shared_pieces();
    const i64 row = blockIdx.x;
    for (u32 i = thread_index(); i < kBinWords; i += THREADS) s.list.bins[i] = 0;
    if (thread_index() < kFoundWords) s.found[thread_index()] = 0;
    __syncthreads();

    const Row r = row_of(p, row);
    const Threshold t = sample_threshold(r, 0, r.count, s.list.bins, s.edges, s.found);
    if (thread_index() == 0) *s.threshold = t;
    stream_row(s, p, row, r, t);
    __syncthreads();
    finish_row(p, row);
}
