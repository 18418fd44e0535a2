// SPDX-License-Identifier: Apache-2.0
// Plan "cluster" up to the exchange of lists: shared memory, the row in registers, group maxima, the threshold, survivors,
// the CTA's own list. What it is made of and why: cluster.cu, which merges and stores.
#pragma once

#include "../common/async_copy.cuh"
#include "../common/cluster.cuh"
#include "finish.cuh"
#include "keybins.cuh"
#include "repairs.cuh"
#include "token.cuh"

constexpr u32 kOwnMaxima = THREADS / GROUP;
constexpr u32 kMaxima = OWN_BOUND ? kOwnMaxima : CLUSTER * kOwnMaxima; // that the threshold is found among
constexpr u32 kListSlots = LOCAL_K * THREADS / CLUSTER;                // of one CTA's list
constexpr u32 kListStride = kListSlots + 2;                            // lists begin in different banks

// Long lists travel as they are and every CTA puts them all into bins; short ones are sorted, and ranks are looked up.
constexpr bool kByBins = K >= 64 * CLUSTER && !OWN_BOUND;
constexpr u32 kLooseSlots = kByBins ? 2 : kListSlots;

constexpr u32 kRowSlots = IN_SHARED ? VECTORS * THREADS : 0;              // this CTA's vectors
constexpr u32 kVectorSlots = IN_SHARED ? 0 : LOCAL_K * THREADS / CLUSTER; // copies of listed ones

static_assert(CLUSTER == 2 || CLUSTER == 4 || CLUSTER == 8 || CLUSTER == 16, "CLUSTER: 2, 4, 8 or 16");
static_assert(GROUP >= 1 && GROUP <= 32 && kOwnMaxima % 4 == 0, "GROUP: lanes, with at least 4 groups a CTA");
static_assert(kMaxima >= 2 * K, "GROUP: at least 2K group maxima are needed");
static_assert(SEARCH || !OWN_BOUND, "OWN_BOUND: one warp searches");
static_assert(VECTORS >= 1 && VECTORS <= 32, "VECTORS: 1 to 32");
static_assert((kV + 2 * kPerVector - 2) / kPerVector <= VECTORS * CLUSTER * THREADS, "VECTORS: the row does not fit");
static_assert(kListSlots % 2 == 0 && kListSlots >= 32, "LOCAL_K: at least 32 list entries a CTA");
static_assert(SLOTS * 2 <= CLUSTER * kListStride, "SLOTS: the exact selection's list lies in the lists' memory");
static_assert(!(IN_SHARED && LOOK_AGAIN), "IN_SHARED: nothing is read again");
static_assert(BATCH_INVARIANT == 0, "batch_invariant is the stream plan's");

enum { kFull = 0x80000000u }; // in a count: the list was too small
enum { kMaximaHere, kRecordsHere, kListsHere, kArrivals };

struct Shared {
    uint4 *row;      // [kRowSlots], vector u of thread t at u * THREADS + t
    uint4 *lists;    // [CLUSTER, kListStride / 2], two candidates each, from every CTA: sorted unless kByBins
    u64 *own;        // [kListSlots], this CTA's candidates, sorted unless kByBins
    u64 *loose;      // [kListSlots], the same as they come; with kByBins the same place
    uint4 *vector;   // [kVectorSlots], vectors that reach the threshold
    u32 *number;     // [kListSlots], and which of the row they are, with IN_SHARED their place in s.row
    u32 *maxima;     // [kMaxima], keys, from every CTA, or with OWN_BOUND this one's
    u32 *own_maxima; // [kOwnMaxima]
    uint4 *record;   // [CLUSTER]: count, largest key, sum, elements before the token; from every CTA
    u32 *edges;      // [2 * kWarps]
    u32 *top;        // [kWarps], largest key of a warp
    u32 *before;     // [kWarps]
    float *sums;     // [kWarps], relative to the warp's largest
    u32 *threshold;  // [1], a key
    u32 *vectors;    // [1], in vector, counted beyond its end
    u32 *candidates; // [1], in loose, counted beyond its end
    u64 *sorted;     // [kSorted], of the exact selection; kByBins: the candidates in order of bins
    u64 *here;       // [kArrivals], mbarriers: what has come from all CTAs
    u32 *bins;       // [kKeyBinWords or kBins]
    u32 *scratch;    // [kWarps]
    u32 *count;      // [kWarps]
    u32 *word;       // [kListWords]
    Binning *binning;
    Token *token;
    float *parts; // [CLUSTER], of a sum made again
};

constexpr u32 kBinWords = kBins > kKeyBinWords ? kBins : kKeyBinWords;

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, row, kRowSlots);
    QN_SHARED_ARRAY(uint4, lists, CLUSTER * kListStride / 2);
    QN_SHARED_ARRAY(uint4, vector, kVectorSlots);
    QN_SHARED_ARRAY(uint4, record, CLUSTER);
    QN_SHARED_ARRAY(uint4, own, kListSlots / 2);
    QN_SHARED_ARRAY(uint4, maxima, kMaxima / 4);
    QN_SHARED_ARRAY(uint4, own_maxima, kOwnMaxima / 4);
    QN_SHARED_ARRAY(u64, loose, kLooseSlots);
    QN_SHARED_ARRAY(u64, sorted, kSorted);
    QN_SHARED_ARRAY(u64, here, kArrivals);
    QN_SHARED_ARRAY(u32, number, kListSlots);
    QN_SHARED_ARRAY(u32, bins, kBinWords);
    QN_SHARED_ARRAY(u32, edges, 2 * kWarps);
    QN_SHARED_ARRAY(u32, top, kWarps);
    QN_SHARED_ARRAY(u32, before, kWarps);
    QN_SHARED_ARRAY(float, sums, kWarps);
    QN_SHARED_ARRAY(u32, scratch, kWarps);
    QN_SHARED_ARRAY(u32, count, kWarps);
    QN_SHARED_ARRAY(u32, word, kListWords);
    QN_SHARED_ARRAY(u32, single, 4);
    QN_SHARED(Binning, binning);
    QN_SHARED(Token, token);
    QN_SHARED_ARRAY(float, parts, CLUSTER);
    return Shared{row,
                  lists,
                  reinterpret_cast<u64 *>(own),
                  kByBins ? reinterpret_cast<u64 *>(own) : loose,
                  vector,
                  number,
                  reinterpret_cast<u32 *>(OWN_BOUND ? own_maxima : maxima),
                  reinterpret_cast<u32 *>(own_maxima),
                  record,
                  edges,
                  top,
                  before,
                  sums,
                  single,
                  single + 1,
                  single + 2,
                  sorted,
                  here,
                  bins,
                  scratch,
                  count,
                  word,
                  &binning,
                  &token,
                  parts};
}
constexpr u32 kSharedBytes = (kRowSlots + kVectorSlots) * 16 + CLUSTER * (kListStride * 8 + 16 + 4) +
                             kListSlots * (8 + 4) + kLooseSlots * 8 + (kMaxima + kOwnMaxima) * 4 +
                             (kSorted + kArrivals) * 8 + (kBinWords + 7 * kWarps + kListWords + 4) * 4 +
                             (u32)sizeof(Binning) + (u32)sizeof(Token);
static_assert(kSharedBytes <= SHARED_BYTES, "SHARED_BYTES is less than the pieces need");

// ---- load

// What a thread holds of the row: vectors, with LOOK_AGAIN their maxima, with IN_SHARED neither.
struct Held {
    uint4 x[VECTORS];
    Packed max[VECTORS];
    Packed top; // of all of them
    float sum;  // relative to the offset of `exponent`
    Exponent exponent;
    u32 before; // sum of token_count; then of the warp, a number of elements
};

constexpr u32 kStep = CLUSTER * THREADS; // vectors that the cluster loads at a time
// Steps that lie before the last vector of the row, wherever it starts.
constexpr u32 kInnerSteps = ((kV + kPerVector - 1) / kPerVector - 1) / kStep;

// Vector u of this thread: pieces of 16 vectors are dealt round the cluster, so that neighbouring winners (frequent
// tokens have low numbers) fall to different CTAs.
QN_DEVICE u32 vector_at(u32 place, u32 rank)
{
    return (place / 16 * CLUSTER + rank) * 16 + place % 16;
}
QN_DEVICE u32 held_place(u32 u)
{
    return u * THREADS + thread_index();
}
QN_DEVICE u32 held_vector(u32 u, u32 rank)
{
    return vector_at(held_place(u), rank);
}

QN_DEVICE uint4 fetch_held(const Row &r, u32 u, u32 rank)
{
    const u32 v = held_vector(u, rank);
    if (u > 0 && u < kInnerSteps) return __ldg(r.vectors + v);
    return u < kInnerSteps || v < r.count ? row_fetch(r, v) : row_pad();
}

QN_DEVICE uint4 mend_held(const uint4 &x, const Row &r, u32 u, u32 rank)
{
    const u32 v = held_vector(u, rank);
    if (u > 0 && u < kInnerSteps) return x;
    return u < kInnerSteps || v < r.count ? row_mend(x, r, v) : x;
}

// Whether vector u of this thread lies in the row and is not cut.
QN_DEVICE bool held_is_whole(const Row &r, u32 u, u32 rank)
{
    const u32 v = held_vector(u, rank);
    return (u > 0 && u < kInnerSteps) || (v < r.count && row_has_whole(r, v));
}

// Asks for all vectors of this thread, before anything else.
QN_DEVICE void ask_row(const Shared &s, Held &h, const Row &r, u32 rank)
{
#pragma unroll
    for (u32 u = 0; u < VECTORS; u++) {
        if constexpr (IN_SHARED) {
            if (held_is_whole(r, u, rank)) cp_async_cg(s.row + held_place(u), r.vectors + held_vector(u, rank));
            cp_async_commit_group();
        } else {
            h.x[u] = fetch_held(r, u, rank);
        }
    }
}

// Those that an end of the row cuts, and what lies beyond it.
QN_DEVICE void mend_row(const Shared &s, Held &h, const Row &r, u32 rank)
{
#pragma unroll
    for (u32 u = 0; u < VECTORS; u++) {
        if constexpr (IN_SHARED) {
            const u32 v = held_vector(u, rank);
            if (held_is_whole(r, u, rank)) continue;
            s.row[held_place(u)] = v < r.count ? row_load_cut(r, v) : row_pad();
        } else {
            h.x[u] = mend_held(h.x[u], r, u, rank);
        }
    }
}

// Vector u, which has come.
QN_DEVICE uint4 held(const Shared &s, const Held &h, u32 u)
{
    return IN_SHARED ? s.row[held_place(u)] : h.x[u];
}

QN_DEVICE float vector_sum(const uint4 &x, const Exponent &exponent)
{
    float y[kPerVector], even = -0.f, odd = -0.f;
    Element::unpack(x, y);
#pragma unroll
    for (u32 q = 0; q < kPerVector; q += 2) even += weight(y[q], exponent), odd += weight(y[q + 1], exponent);
    return even + odd;
}

// Vectors whose exponentials are added as they arrive, while later ones are on their way. Those of the others are added
// while the maxima travel.
constexpr u32 kEarly = LOOK_AGAIN ? VECTORS : VECTORS > 4 ? VECTORS - 2 : 0;

// Vectors u and on, as they come. The wait for a copy has its number as a constant: hence no loop.
template <u32 u>
QN_DEVICE void hold_from(const Shared &s, Held &h, u32 rank, float temperature, const TokenBounds &token)
{
    if constexpr (u < VECTORS) {
        if constexpr (IN_SHARED) cp_async_wait_group<VECTORS - 1 - u>();
        const uint4 x = held(s, h, u);
        h.max[u] = Element::vector_max(x);
        h.top = u ? Element::larger(h.top, h.max[u]) : h.max[u];
        if constexpr (u == 0) h.exponent = exponent_near(Element::value_of_packed(h.top), temperature);
        if constexpr (u < kEarly && kNeedsSum) h.sum += vector_sum(x, h.exponent);
        if constexpr (u < kEarly && TOKEN) h.before += token_count(token, held_vector(u, rank), x);
        hold_from<u + 1>(s, h, rank, temperature, token);
    }
}

// Sums are relative to a thread's first vector, since its maximum is not known yet.
QN_DEVICE void hold_row(const Shared &s, Held &h, u32 rank, float temperature, const TokenBounds &token)
{
    h.sum = 0.f, h.before = 0;
    hold_from<0>(s, h, rank, temperature, token);
}

// The first vector was no guide to the thread's maximum: its sum again, against that.
QN_DEVICE void correct_sum(const Shared &s, Held &h, const Row &r, u32 rank, float temperature)
{
    const float max = Element::value_of_packed(h.top);
    const bool wrong = is_finite(max) && h.exponent.scale != 0.f && !sum_is_usable(h.sum, max, h.exponent, 32.f);
    if (!QN_UNLIKELY(wrong)) return;
    h.exponent = exponent_near(max, temperature);
    h.sum = 0.f;
#pragma unroll
    for (u32 u = 0; u < kEarly; u++)
        h.sum += vector_sum(LOOK_AGAIN ? mend_held(fetch_held(r, u, rank), r, u, rank) : held(s, h, u), h.exponent);
}

// The warp's sum of exponentials relative to its largest key, and its count before the token, in every lane.
QN_DEVICE float sum_of_warp(const Shared &s, Held &h, u32 top, u32 rank, float temperature, const TokenBounds &token)
{
    const Exponent whole = exponent_near(key_value(top), temperature);
    if (kEarly && kNeedsSum) h.sum = h.sum == 0.f ? 0.f : h.sum * ex2(h.exponent.offset - whole.offset);
#pragma unroll
    for (u32 u = kEarly; u < VECTORS; u++) {
        const uint4 x = held(s, h, u);
        if constexpr (kNeedsSum) h.sum += vector_sum(x, whole);
        if constexpr (TOKEN) h.before += token_count(token, held_vector(u, rank), x);
    }
    if constexpr (TOKEN) h.before = warp_sum(Element::reaching_count(h.before));
    return kNeedsSum ? warp_sum(h.sum) : 0.f;
}

// ---- what comes from other CTAs

// One thread, before it says that this CTA exists.
QN_DEVICE void expect_all(const Shared &s)
{
    for (u32 i = 0; i < kArrivals; i++) mbarrier_init(s.here + i, 1);
    fence_mbarrier_init();
    if constexpr (!OWN_BOUND) mbarrier_arrive_expect_tx(s.here + kMaximaHere, kMaxima * 4);
    mbarrier_arrive_expect_tx(s.here + kRecordsHere, CLUSTER * 16);
}

QN_DEVICE void wait_for(const Shared &s, u32 what)
{
    while (!mbarrier_try_wait_parity_cluster(s.here + what, 0)) {
    }
}

// ---- maxima

// Group maxima to all CTAs that want them; the warp's largest key, its sum and its count before the token to shared memory.
QN_DEVICE void exchange_maxima(const Shared &s, Held &h, u32 rank, float temperature, const TokenBounds &token)
{
    u32 key = Element::key_of_packed(h.top);
    const u32 top = warp_max(key);
#pragma unroll
    for (u32 lanes = 1; lanes < GROUP; lanes *= 2) key = max(key, __shfl_xor_sync(kFullMask, key, lanes));
    if (thread_index() % GROUP == 0) s.own_maxima[thread_index() / GROUP] = key;
    if constexpr (!OWN_BOUND) {
        __syncthreads();
        if constexpr (kEarly > 0) cluster_wait(); // the peers exist; exponentials did not have to wait for them
        cluster_send<CLUSTER>(reinterpret_cast<uint4 *>(s.maxima + rank * kOwnMaxima),
                              reinterpret_cast<const uint4 *>(s.own_maxima), kOwnMaxima / 4, s.here + kMaximaHere);
    }
    const float sum = sum_of_warp(s, h, top, rank, temperature, token);
    if (lane_index() == 0) s.top[warp_index()] = top, s.sums[warp_index()] = sum, s.before[warp_index()] = h.before;
}

// A warp's: this CTA's largest key, sum and count before the token; the count of candidates comes later. It is the warp
// that has the least to do when the survivors are listed.
constexpr u32 kRecordWarp = kWarps - 1;

QN_DEVICE uint4 record_of_block(const Shared &s, float temperature)
{
    const bool mine = lane_index() < kWarps;
    const u32 key = mine ? s.top[lane_index()] : 0, top = warp_max(key);
    float sum = mine ? s.sums[lane_index()] : 0.f;
    const float offset = exponent_near(key_value(key), temperature).offset;
    if (sum != 0.f) sum *= ex2(offset - exponent_near(key_value(top), temperature).offset);
    const u32 before = warp_sum(mine ? s.before[lane_index()] : 0);
    return make_uint4(0, top, __float_as_uint(warp_sum(sum)), before);
}

// ---- threshold: a key that at least K of the group maxima reach

// By bisection, one warp; stops when hardly more than K reach it.
QN_DEVICE u32 threshold_by_search(const u32 *maxima)
{
    constexpr u32 kEach = (kMaxima + kWarp - 1) / kWarp;
    u32 key[kEach], low = Element::kKeyNaN, high = 0;
#pragma unroll
    for (u32 i = 0; i < kEach; i++) {
        key[i] = kMaxima % kWarp == 0 || lane_index() < kMaxima ? maxima[i * kWarp + lane_index()] : 0;
        low = min(low, key[i]), high = max(high, key[i]);
    }
    low = warp_min(low), high = warp_max(high); // K reach low; fewer than K reach high + 1
    while (low < high) {
        const u32 middle = low + (high - low) / 2 + 1;
        u32 reach = 0;
#pragma unroll
        for (u32 i = 0; i < kEach; i++) reach += key[i] >= middle;
        reach = warp_sum(reach);
        if (reach >= kK)
            low = middle;
        else
            high = middle - 1;
        if (reach >= kK && reach <= kK + kK / 8 + 2) break;
    }
    return low;
}

// A key that at least K maxima reach, to start the bins at: the least of K or more maxima of maxima.
QN_DEVICE u32 threshold_floor(const u32 *key) // [kMaxima / THREADS]
{
    constexpr u32 kEach = kMaxima / THREADS;
    u32 floor = key[0];
    if constexpr (kEach * THREADS >= 2 * K && THREADS < K) {
#pragma unroll
        for (u32 i = 1; i < kEach; i++) floor = min(floor, key[i]);
    } else {
#pragma unroll
        for (u32 i = 1; i < kEach; i++) floor = max(floor, key[i]);
#pragma unroll
        for (u32 lanes = 1; lanes < kWarp && THREADS / (2 * lanes) >= K; lanes *= 2)
            floor = max(floor, __shfl_xor_sync(kFullMask, floor, lanes));
    }
    return floor;
}

// By bins, the whole CTA.
QN_DEVICE void threshold_by_bins(const Shared &s)
{
    constexpr u32 kEach = kMaxima / THREADS > 0 ? kMaxima / THREADS : 1;
    u32 key[kEach], top = 0;
    const bool mine = kMaxima >= THREADS || thread_index() < kMaxima;
#pragma unroll
    for (u32 i = 0; i < kEach; i++) {
        key[i] = mine ? s.maxima[i * THREADS + thread_index()] : 0;
        top = max(top, key[i]);
    }
    u32 floor = mine ? key[0] : Element::kKeyNaN;
    if constexpr (kMaxima >= THREADS) floor = threshold_floor(key);
    top = warp_max(top), floor = warp_min(floor);
    if (lane_index() == 0) s.edges[warp_index()] = top, s.edges[kWarps + warp_index()] = floor;
    __syncthreads();
    const u32 largest = warp_max(s.edges[lane_index() % kWarps]);
    const u32 smallest = warp_min(s.edges[kWarps + lane_index() % kWarps]);
    const u32 shift = key_bin_shift(largest - smallest);
#pragma unroll
    for (u32 i = 0; i < kEach; i++)
        if (mine && key[i] >= smallest) atomicAdd(&s.bins[key_bin_word((largest - key[i]) >> shift)], 1u);
    __syncthreads();
    const KeyCounts counts = key_bins_count(s.bins, s.edges);
    key_bins_find(s.bins, counts, kK, [&](u32 bin, u32, u32) {
        const u32 edge = key_bin_far_edge(bin, shift);
        *s.threshold = max(smallest, edge < largest ? largest - edge : 0u);
    });
}

// Ends in a barrier.
QN_DEVICE u32 find_threshold(const Shared &s)
{
    if constexpr (OWN_BOUND) __syncthreads(); // the maxima
    if constexpr (!OWN_BOUND) wait_for(s, kMaximaHere);
    if constexpr (SEARCH) {
        if (warp_index() == 0) {
            const u32 threshold = threshold_by_search(s.maxima);
            if (lane_index() == 0) *s.threshold = threshold;
        }
    } else {
        threshold_by_bins(s);
    }
    __syncthreads();
    return *s.threshold;
}

// ---- survivors

// Vectors at the threshold into s.vector: one counter update a thread.
QN_DEVICE void list_vectors(const Shared &s, const Held &h, const Row &r, u32 rank, u32 threshold)
{
    const Packed bound = Element::bound(threshold);
    if (!Element::reaches(h.top, bound)) return;
    u32 hits = 0;
#pragma unroll
    for (u32 u = 0; u < VECTORS; u++) {
        const Packed max = IN_SHARED ? Element::vector_max(held(s, h, u)) : h.max[u];
        hits |= (Element::reaches(max, bound) && held_vector(u, rank) < r.count ? 1u : 0u) << u;
    }
    if (!hits) return;
    u32 at = atomicAdd(s.vectors, (u32)__popc(hits));
#pragma unroll
    for (u32 u = 0; u < VECTORS; u++) {
        if (!(hits >> u & 1u)) continue;
        if (at < kListSlots) {
            if constexpr (!LOOK_AGAIN && !IN_SHARED) s.vector[at] = h.x[u];
            s.number[at] = IN_SHARED ? held_place(u) : held_vector(u, rank);
        }
        at++;
    }
}

// Their elements at the threshold into s.loose, a vector a thread.
QN_DEVICE void list_elements(const Shared &s, const Row &r, u32 rank, u32 threshold)
{
    const Packed bound = Element::bound(threshold); // NaN: every element is listed
    const u32 vectors = min(*s.vectors, kListSlots);
    for (u32 i = thread_index(); i < vectors; i += THREADS) {
        const u32 number = s.number[i], v = IN_SHARED ? vector_at(number, rank) : number;
        const u32 first = v * kPerVector - r.lead;
        if constexpr (LOOK_AGAIN) s.vector[i] = row_load(r, v);
        const uint4 *vector = IN_SHARED ? s.row + number : s.vector + i;
        u32 hits = Element::which_reach(*vector, bound);
        if (QN_UNLIKELY(v == 0 || v == r.count - 1)) hits &= inside_row(r, v);
        const Raw *elements = reinterpret_cast<const Raw *>(vector); // [kPerVector]
        u32 at = hits ? atomicAdd(s.candidates, (u32)__popc(hits)) : 0;
        for (; hits; hits &= hits - 1u) {
            const u32 q = (u32)__ffs((int)hits) - 1u;
            if (at < kListSlots) s.loose[at] = candidate(Element::key(elements[q]), first + q);
            at++;
        }
    }
}

// ---- sort and send

// s.loose in order into s.own: four lanes count for one candidate.
QN_DEVICE void sort_own(const Shared &s, u32 count)
{
    for (u32 i0 = warp_index() * (kWarp / 4); i0 < count; i0 += THREADS / 4) { // the same for a warp
        const u32 i = i0 + lane_index() / 4;
        const u64 mine = i < count ? s.loose[i] : 0;
        u32 rank = 0;
#pragma unroll 4
        for (u32 j = thread_index() % 4; j < count; j += 4) rank += s.loose[j] > mine;
        rank += __shfl_xor_sync(kFullMask, rank, 1);
        rank += __shfl_xor_sync(kFullMask, rank, 2);
        if (i < count && thread_index() % 4 == 0) s.own[rank] = mine;
    }
}

// List and record to every CTA. The record is in warp kRecordWarp. Returns this CTA's count.
QN_DEVICE u32 send_list(const Shared &s, uint4 record, u32 rank)
{
    const bool full = *s.vectors > kListSlots || *s.candidates > kListSlots;
    const u32 count = full ? 0 : *s.candidates;
    if constexpr (OWN_BOUND) cluster_wait(); // the peers exist
    if (warp_index() == kRecordWarp && lane_index() < CLUSTER) {
        record.x = full ? (u32)kFull : count;
        st_async(s.record + rank, record, s.here + kRecordsHere, lane_index());
    }
    if constexpr (!kByBins) sort_own(s, count);
    if (thread_index() == 0 && count % 2) s.own[count] = 0; // the last 16 bytes are a pair
    __syncthreads();
    cluster_send<CLUSTER>(s.lists + rank * (kListStride / 2), reinterpret_cast<const uint4 *>(s.own), (count + 1) / 2,
                          s.here + kListsHere);
    return count;
}
