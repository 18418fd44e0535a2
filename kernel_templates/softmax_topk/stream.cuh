// SPDX-License-Identifier: Apache-2.0
// One CTA streams a row, or a share of it (vectors [begin, end)), once: adds exponentials, lists the vectors that hold an
// element at the threshold, and makes candidates of them. What plans stream and split have in common.
//
// Every warp runs through its vectors alone: no barrier, no atomic, a list of its own. Thread t reads vectors t,
// t + THREADS, …; UNROLL of them are in flight. LOCAL_K list entries a thread, in shared memory.
//
// Prologue, besides problem.cuh's: UNROLL, SAMPLE (vectors a thread), RANK (0: no threshold, always the exact
// selection), SLOTS (= LOCAL_K * THREADS), SORTED, BINS; ahead.cuh's.
#pragma once

#include "ahead.cuh"
#include "finish.cuh"
#include "repairs.cuh"
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
    Token *token;
    Ahead ahead;
};

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, ahead, kAhead);
    QN_SHARED_ARRAY(uint4, slot, kSlots);
    QN_SHARED_ARRAY(u64, sorted, kSorted);
    QN_SHARED_ARRAY(u64, here, AHEAD);
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
    QN_SHARED(Token, token);
    QN_SHARED_ARRAY(Number, vector, kSlots);
    return Shared{{slot, count, sorted, bins, scratch, word, &binning},
                  vector,
                  tail,
                  edges,
                  found,
                  top,
                  before,
                  sums,
                  &threshold,
                  &token,
                  {ahead, here}};
}
constexpr u32 kSharedBytes = AHEAD * (THREADS * 16 + 8) + kSlots * (16 + (u32)sizeof(Number)) + kSorted * 8 +
                             (kBinWords + 8 * kWarps + kListWords + kFoundWords) * 4 + (u32)sizeof(Threshold) +
                             (u32)sizeof(Binning) + (u32)sizeof(Token);
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

QN_DEVICE Filter filter_of(const Threshold &t)
{
    return Filter{Element::bound(t.low), Element::bound(t.high), t.cut};
}

// What a vector's elements are compared with.
struct Bounds {
    Packed filter, token;
};

QN_DEVICE Bounds bounds_at(const Filter &filter, const TokenBounds &token, u32 v)
{
    return Bounds{v <= filter.cut ? filter.low : filter.high, token_bound(token, v)};
}

// The warp's own part of the list.
struct WarpList {
    uint4 *slot;    // [kWarpSlots]
    Number *vector; // [kWarpSlots]
    u32 below;      // a bit for each lane below this one
};

struct Stream {
    LongSum sum;
    Packed max;
    u32 count;  // entries of the warp's list; goes on beyond its end
    u32 before; // sum of Element::reaching: before the token
};

// Pushes the vectors that reach the bound into the warp's list.
QN_DEVICE void push(const WarpList &list, Packed bound, bool inside, const uint4 &x, u32 v, Stream &stream)
{
    const Packed max = Element::vector_max(x);
    const bool hit = Element::reaches(max, bound) && inside;
    const u32 ballot = __ballot_sync(kFullMask, hit);
    if (!ballot) return;
    const u32 at = stream.count + (u32)__popc(ballot & list.below);
    if (hit && at < kWarpSlots) {
        list.slot[at] = x;
        list.vector[at] = (Number)v;
    }
    stream.max = Element::larger(stream.max, max);
    stream.count += (u32)__popc(ballot);
}

// The exponentials of a tile, two chains of them.
struct TileSum {
    float even, odd;
};

QN_DEVICE void stream_vector(const WarpList &list, const Bounds &bounds, bool inside, const uint4 &x, u32 v,
                             const Exponent &exponent, TileSum &sum, Stream &stream)
{
    float y[kPerVector];
    Element::unpack(x, y);
    if constexpr (kNeedsSum) {
#pragma unroll
        for (u32 q = 0; q < kPerVector; q += 2)
            sum.even += weight(y[q], exponent), sum.odd += weight(y[q + 1], exponent);
    }
    if constexpr (TOKEN) stream.before += inside ? Element::reaching(x, bounds.token) : 0u;
    if constexpr (RANK > 0) push(list, bounds.filter, inside, x, v, stream);
}

QN_DEVICE void end_tile(const TileSum &sum, Stream &stream)
{
    if constexpr (kLongRow)
        long_sum_add(stream.sum, sum.even + sum.odd);
    else
        stream.sum.sum += sum.even + sum.odd;
}

// Whether a vector's successor is asked for before the work on it (more registers move, more loads are in flight) or
// after: measured better with one or two CTAs an SM, and with more.
constexpr bool kAskFirst = MIN_CTAS <= 2 && UNROLL <= 4;

// A stretch of a share: `steps` times THREADS vectors from `base` on, all whole and with the same bounds.
struct Run {
    const uint4 *vector; // this thread's next one
    u32 v, steps, shift;
    Bounds bounds;
};

// Whether a run may begin with the row's first vector where that is cut: it is mended as it is loaded. Where there are no
// registers for it (many vectors in flight, long rows, f32 vectors put together from two), it is left to stream_rest.
constexpr bool kCutInRun = UNROLL <= 4 && !kLongRow && !(BATCH_INVARIANT && sizeof(Raw) == 4);

// Vector u of a run's first tile.
QN_DEVICE uint4 run_fetch(const Row &row, const Run &run, u32 u)
{
    if (kCutInRun && u == 0 && run.v == 0) return row_load(row, 0);
    return row_fetch_inner(run.vector + u * THREADS, run.shift);
}

// Whole tiles of a run, the first of which is in x. A vector's successor is loaded while other vectors of the tile are
// worked on, also those of the tile that the run's last steps make.
QN_DEVICE void stream_tiles(const WarpList &list, Run &run, uint4 (&x)[UNROLL], const Exponent &exponent,
                            Stream &stream)
{
#pragma unroll 1
    for (; run.steps >= UNROLL; run.steps -= UNROLL, run.v += kTile) {
        run.vector += kTile;
        TileSum sum = {-0.f, -0.f};
#pragma unroll
        for (u32 u = 0; u < UNROLL; u++) {
            const uint4 now = x[u];
            if (kAskFirst && run.steps > UNROLL + u) x[u] = row_fetch_inner(run.vector + u * THREADS, run.shift);
            stream_vector(list, run.bounds, true, now, run.v + u * THREADS, exponent, sum, stream);
            if (!kAskFirst && run.steps > UNROLL + u) x[u] = row_fetch_inner(run.vector + u * THREADS, run.shift);
        }
        end_tile(sum, stream);
    }
}

// Whether the tile that follows is asked for first, if registers hold it.
constexpr bool kAheadLater = AHEAD > 0 && UNROLL <= 4;

// What was copied ahead, a step of THREADS vectors after the other, with bounds of each one's own.
QN_DEVICE void stream_ahead(const Ahead &ahead, const WarpList &list, const Share &share, const Filter &filter,
                            const TokenBounds &token, const Exponent &exponent, Stream &stream)
{
    constexpr u32 kTogether = 2; // steps
#pragma unroll 1
    for (u32 first = 0; first < AHEAD; first += kTogether) {
        TileSum sum = {-0.f, -0.f};
#pragma unroll
        for (u32 step = first; step < first + kTogether; step++) {
            if (AHEAD % kTogether != 0 && step >= AHEAD) break;
            const uint4 x = ahead_vector(ahead, step);
            const u32 v = share.begin + step * THREADS + thread_index();
            stream_vector(list, bounds_at(filter, token, v), true, x, v, exponent, sum, stream);
        }
        end_tile(sum, stream);
    }
}

// The last steps of a run, fewer than a tile's, and THREADS vectors more, which need care: the row's ends, the share's
// end, the cut or the token may lie among them.
QN_DEVICE void stream_rest(const WarpList &list, const Share &share, const Run &run, uint4 (&x)[UNROLL],
                           const Filter &filter, const TokenBounds &token, const Exponent &exponent, Stream &stream)
{
    const u32 v = run.v + run.steps * THREADS;
    const bool inside = v < share.end;
    uint4 last = inside ? row_fetch(share.row, v) : row_pad();
    TileSum sum = {-0.f, -0.f};
#pragma unroll
    for (u32 u = 0; u + 1 < UNROLL; u++)
        if (u < run.steps) stream_vector(list, run.bounds, true, x[u], run.v + u * THREADS, exponent, sum, stream);
    if (inside) last = row_mend(last, share.row, v);
    if (v - thread_index() < share.end)
        stream_vector(list, bounds_at(filter, token, v), inside, last, v, exponent, sum, stream);
    end_tile(sum, stream);
}

// The share in runs of whole vectors with the same bounds. Where a row is to be cut into them must not depend on its
// address with BATCH_INVARIANT, since that decides which exponentials are added first.
QN_DEVICE void stream_run(const Ahead &ahead, const WarpList &list, const Share &share, const Filter &filter,
                          const Exponent &exponent, const TokenBounds &token, Stream &stream)
{
    const Row &row = share.row;
    const u32 whole = BATCH_INVARIANT ? row.count - min(row.count, 2u) : row_whole_end(row);
    const bool begins_whole = kCutInRun || (!BATCH_INVARIANT && row.lead == 0);
    if (AHEAD > 0 && !kAheadLater) stream_ahead(ahead, list, share, filter, token, exponent, stream);
    for (u32 base = share.begin + kAhead; base < share.end;) {
        const bool is_first = base == share.begin + kAhead;
        u32 until = min(share.end, whole); // up to here the same bounds serve
        if (base <= filter.cut) until = min(until, filter.cut + 1);
        if (TOKEN && base < token.vector) until = min(until, token.vector);
        const u32 v = base + thread_index();
        Run run = {row.vectors + v, v, 0, row.shift, bounds_at(filter, token, base)};
        if ((base || begins_whole) && base < until) run.steps = (until - base) / THREADS;
        base += (run.steps + 1) * THREADS;
        uint4 x[UNROLL];
        if (run.steps >= UNROLL) {
#pragma unroll
            for (u32 u = 0; u < UNROLL; u++) x[u] = run_fetch(row, run, u);
            if (kAheadLater && is_first) stream_ahead(ahead, list, share, filter, token, exponent, stream);
            stream_tiles(list, run, x, exponent, stream);
        } else {
#pragma unroll
            for (u32 u = 0; u + 1 < UNROLL; u++)
                if (u < run.steps) x[u] = run_fetch(row, run, u);
            if (kAheadLater && is_first) stream_ahead(ahead, list, share, filter, token, exponent, stream);
        }
        stream_rest(list, share, run, x, filter, token, exponent, stream);
    }
}

// Leaves each warp's sum, largest pushed key and counts in shared memory.
QN_DEVICE void stream_share(const Shared &s, const Share &share, const Threshold &t, float temperature,
                            const TokenBounds &token)
{
    Filter filter = filter_of(t);
    Exponent exponent = exponent_near(key_value(t.max), temperature);
    filter.cut = warp_uniform(filter.cut);
    if constexpr (TOKEN) { // registers would spill
        filter.low = warp_uniform(filter.low), filter.high = warp_uniform(filter.high);
        exponent.scale = warp_uniform(exponent.scale);
    }
    const u32 first = warp_uniform(warp_index()) * kWarpSlots;
    const WarpList list = {s.list.slot + first, s.vector + first, lane_mask_below()};
    Stream stream = {{0.f, 0.f}, Element::packed_minus_infinity(), 0, 0};
    stream_run(s.ahead, list, share, filter, exponent, token, stream);
    const float sum = warp_sum(long_sum(stream.sum));
    const u32 top = warp_max(Element::key_of_packed(stream.max)),
              before = TOKEN ? warp_sum(Element::reaching_count(stream.before)) : 0;
    if (lane_index() != 0) return;
    s.sums[warp_index()] = sum;
    s.top[warp_index()] = top;
    s.list.count[warp_index()] = stream.count;
    s.before[warp_index()] = before;
    s.tail[warp_index()] = 0;
}

// ---- candidates

// Entry i of the warp's list, a vector, becomes its first candidate; further ones go to the list's end.
QN_DEVICE void candidates_of_vector(const Shared &s, const Filter &filter, const Row &r, const Binning &binning, u32 i)
{
    uint4 *list = s.list.slot + warp_index() * kWarpSlots;
    const u32 v = s.vector[warp_index() * kWarpSlots + i];
    const u32 first = v * kPerVector - r.lead;
    u32 hits = Element::which_reach(list[i], v <= filter.cut ? filter.low : filter.high);
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
    const Filter filter = filter_of(t);
    bool fits = s.list.count[warp_index()] <= kWarpSlots && t.low < Element::kKeyNaN;
    if (fits) {
#pragma unroll 1
        for (u32 i = lane_index(); i < listed; i += kWarp) candidates_of_vector(s, filter, r, binning, i);
    }
    __syncwarp();
    const u32 entries = s.list.count[warp_index()] + s.tail[warp_index()];
    fits = fits && entries <= kWarpSlots;
    __syncwarp();
    if (lane_index() == 0) s.list.count[warp_index()] = entries;
    return !block_any(!fits);
}

enum Binned { kBinned, kTooFew, kTooMany };

// Puts the share's candidates into bins and scans them. This and exact_share are functions of their own, for their
// registers; neither calls the other. The same in every thread; ends in a barrier.
QN_NOINLINE Binned bin_share(Row row, u32 need)
{
    const Shared s = shared_pieces();
    const Threshold t = *s.threshold;
    const Binning binning = binning_over(t.low, max(t.low, warp_max(s.top[lane_index() % kWarps])));
    if (thread_index() == 0) *s.list.binning = binning;
    if (!candidates_of_list(s, t, row, binning)) return kTooMany;
    list_scan(s.list, need);
    if (s.list.word[kListTotal] < need) return kTooFew;
    return s.list.word[kListEnd] <= kSorted ? kBinned : kTooMany;
}

// The same by the exact selection.
QN_NOINLINE void exact_share(Row row, u32 begin, u32 end, u32 need, Binned why)
{
    const Shared s = shared_pieces();
    if constexpr (RANK > 0) count_repair();
    u32 hint = 0, top = Element::kKeyNaN;
    if constexpr (RANK > 0) { // what was pushed has the largest; nothing may have been
        hint = why == kTooFew ? s.threshold->spare : s.threshold->low;
        top = max(s.threshold->max, warp_max(s.top[lane_index() % kWarps]));
    }
    list_exact(s.list, RowElements{row, begin, end}, need, hint, top);
}

// The candidates of the share, in bins: ready for winners_of_share.
QN_DEVICE void select_share(const Share &share, u32 need)
{
    Binned binned = kTooMany;
    if constexpr (RANK > 0) binned = bin_share(share.row, need);
    if (QN_UNLIKELY(binned != kBinned)) exact_share(share.row, share.begin, share.end, need, binned);
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

// Threshold, stream, candidates; what winners_of_share, sum_of_share and before_of_share need is then in shared memory.
QN_DEVICE void do_share(const Shared &s, const softmax_topk_params &p, i64 row, const Share &share, u32 need)
{
    const float temperature = row_temperature(p, row); // this and the token are asked for early, to be here in time
    const i32 index = token_index(p, row);
    Sample sample = sample_fetch(share.row, share.begin, share.end);
    if constexpr (AHEAD > 0) ahead_begin(s.ahead, share.row, share.begin);
    const u32 vector = token_vector(share.row, index);
    const uint4 own = TOKEN && warp_index() == 1 ? row_load(share.row, vector) : row_pad();
    const auto arrived = [&] {
        if constexpr (AHEAD > 0) ahead_ask(s.ahead, share.row, share.begin);
    };
    const auto meanwhile = [&] {
        if (TOKEN && lane_index() == 0) *s.token = token_of(share.row, index, own);
    };
    const Threshold t = sample_threshold<kBinWords>(sample, share.row, share.begin, share.end, s.list.bins, s.edges,
                                                    s.found, arrived, meanwhile);
    if (thread_index() == 0) *s.threshold = t;
    const TokenBounds bounds = TOKEN ? token_bounds(*s.token) : TokenBounds{0, 0, 0};
    stream_share(s, share, t, temperature, bounds);
    __syncthreads();
    select_share(share, need);
}
