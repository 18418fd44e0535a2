// SPDX-License-Identifier: Apache-2.0
// softmax_topk, plan "cluster": one cluster of CLUSTER CTAs a row, the row in their registers. For few rows, where the
// number of dependent steps is the time. sm_90 on.
//
//   probability_k = e^(x_k - max) / Σ e^(x_i - max) for the K largest x in order
//
//   load       VECTORS vectors a thread, all in flight; their maxima, exponentials added as they arrive
//   maxima     of every group of GROUP threads, to all CTAs; at least 2K groups in the cluster
//   threshold  about the K-th largest of the group maxima: K elements reach it in every row, so it is always valid
//   survivors  elements at the threshold: whole vectors first, then their elements, into a list of the CTA's own
//   sort       the CTA's list, by counting; with it the CTA's maximum and sum, to all CTAs
//   merge      every CTA looks up the rank of its own survivors in all the sorted lists and stores them
//   repair     a list that was too small is known by its count; then the CTAs select the row again, together (exact.cuh)
//
// Data goes between CTAs as contiguous 16-byte stores that report to an mbarrier of the receiver (st.async), a warp a peer:
// no fence, no barrier of the cluster but one at the start, which only says that the peers exist. Every CTA waits for all
// that is sent to it, so none ends too early. Repairs use barriers of the cluster.
// LOOK_AGAIN: only the vectors' maxima stay in registers; the few vectors that reach the threshold are read again.
// LOCAL_K: entries a thread of the lists that each CTA holds, LOCAL_K * THREADS / CLUSTER from each peer.
// ANALYSIS.md: bytes, work, why it is exact, measured figures.
//
// Prologue, besides problem.cuh's: VECTORS, GROUP (lanes), LOOK_AGAIN, SEARCH (1: one warp searches the threshold; for
// few maxima), SLOTS, SORTED, BINS (of the exact selection).
#include "../common/cluster.cuh"
#include "finish.cuh"
#include "keybins.cuh"
#include "repairs.cuh"
#include "token.cuh"

constexpr u32 kMaxima = CLUSTER * THREADS / GROUP;
constexpr u32 kOwnMaxima = THREADS / GROUP;
constexpr u32 kListSlots = LOCAL_K * THREADS / CLUSTER; // of one CTA's list
constexpr u32 kListStride = kListSlots + 2;             // lists begin in different banks

static_assert(CLUSTER == 2 || CLUSTER == 4 || CLUSTER == 8 || CLUSTER == 16, "CLUSTER: 2, 4, 8 or 16");
static_assert(GROUP >= 1 && GROUP <= 32 && kOwnMaxima % 4 == 0, "GROUP: lanes, with at least 4 groups a CTA");
static_assert(kMaxima >= 2 * K, "GROUP: at least 2K group maxima are needed");
static_assert(VECTORS >= 1 && VECTORS <= 32, "VECTORS: 1 to 32");
static_assert((kV + 2 * kPerVector - 2) / kPerVector <= VECTORS * CLUSTER * THREADS, "VECTORS: the row does not fit");
static_assert(kListSlots % 2 == 0 && kListSlots >= 32, "LOCAL_K: at least 32 list entries a CTA");
static_assert(SLOTS * 2 <= CLUSTER * kListStride, "SLOTS: the exact selection's list lies in the lists' memory");
static_assert(BATCH_INVARIANT == 0, "batch_invariant is the stream plan's");

enum { kFull = 0x80000000u }; // in a count: the list was too small
enum { kMaximaHere, kRecordsHere, kListsHere, kArrivals };

struct Shared {
    uint4 *lists;    // [CLUSTER, kListStride / 2], two candidates each: sorted, from every CTA
    u64 *own;        // [kListSlots], this CTA's candidates, sorted
    u64 *loose;      // [kListSlots], the same before
    uint4 *vector;   // [kListSlots], vectors that reach the threshold
    u32 *number;     // [kListSlots], and which of the row they are
    u32 *maxima;     // [kMaxima], keys, from every CTA
    u32 *own_maxima; // [kOwnMaxima]
    uint4 *record;   // [CLUSTER]: count, largest key, sum, elements before the token; from every CTA
    u32 *edges;      // [2 * kWarps]
    u32 *top;        // [kWarps], largest key of a warp
    u32 *before;     // [kWarps]
    float *sums;     // [kWarps], relative to the warp's largest
    u32 *threshold;  // [1], a key
    u32 *vectors;    // [1], in vector, counted beyond its end
    u32 *candidates; // [1], in loose, counted beyond its end
    u64 *sorted;     // [kSorted], of the exact selection
    u64 *here;       // [kArrivals], mbarriers: what has come from all CTAs
    u32 *bins;       // [kKeyBinWords or kBins]
    u32 *scratch;    // [kWarps]
    u32 *count;      // [kWarps]
    u32 *word;       // [kListWords]
    Binning *binning;
    float *parts; // [CLUSTER], of a sum made again
};

constexpr u32 kBinWords = kBins > kKeyBinWords ? kBins : kKeyBinWords;

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, lists, CLUSTER * kListStride / 2);
    QN_SHARED_ARRAY(uint4, vector, kListSlots);
    QN_SHARED_ARRAY(uint4, record, CLUSTER);
    QN_SHARED_ARRAY(uint4, own, kListSlots / 2);
    QN_SHARED_ARRAY(uint4, maxima, kMaxima / 4);
    QN_SHARED_ARRAY(uint4, own_maxima, kOwnMaxima / 4);
    QN_SHARED_ARRAY(u64, loose, kListSlots);
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
    QN_SHARED_ARRAY(float, parts, CLUSTER);
    return Shared{lists,
                  reinterpret_cast<u64 *>(own),
                  loose,
                  vector,
                  number,
                  reinterpret_cast<u32 *>(maxima),
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
                  parts};
}
constexpr u32 kSharedBytes = CLUSTER * (kListStride * 8 + 16 + 4) + kListSlots * (16 + 8 + 8 + 4) +
                             (kMaxima + kOwnMaxima) * 4 + (kSorted + kArrivals) * 8 +
                             (kBinWords + 7 * kWarps + kListWords + 4) * 4 + (u32)sizeof(Binning);
static_assert(kSharedBytes <= SHARED_BYTES, "SHARED_BYTES is less than the pieces need");

// ---- load

// What a thread holds of the row: vectors, or with LOOK_AGAIN their maxima only.
struct Held {
    uint4 x[VECTORS];
    Packed max[VECTORS];
    Packed top; // of all of them
    float sum;  // relative to the offset of `exponent`
    Exponent exponent;
    u32 before; // elements before the token
};

constexpr u32 kStep = CLUSTER * THREADS; // vectors that the cluster loads at a time
// Steps that lie before the last vector of the row, wherever it starts.
constexpr u32 kInnerSteps = ((kV + kPerVector - 1) / kPerVector - 1) / kStep;

// Vector u of this thread: pieces of 16 vectors are dealt round the cluster, so that neighbouring winners (frequent
// tokens have low numbers) fall to different CTAs.
QN_DEVICE u32 held_vector(u32 u, u32 rank)
{
    const u32 piece = (u * kWarps + warp_index()) * 2 + lane_index() / 16;
    return (piece * CLUSTER + rank) * 16 + lane_index() % 16;
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

QN_DEVICE float vector_sum(const uint4 &x, const Exponent &exponent)
{
    float y[kPerVector], even = -0.f, odd = -0.f;
    Element::unpack(x, y);
#pragma unroll
    for (u32 q = 0; q < kPerVector; q += 2) even += weight(y[q], exponent), odd += weight(y[q + 1], exponent);
    return even + odd;
}

QN_DEVICE u32 vector_before(const uint4 &x, u32 v, const TokenBounds &token)
{
    float y[kPerVector];
    Element::unpack(x, y);
    return token_count(token, v, y);
}

// Vectors whose exponentials are added as they arrive, while later ones are on their way. Those of the others are added
// while the maxima travel.
constexpr u32 kEarly = LOOK_AGAIN ? VECTORS : VECTORS > 4 ? VECTORS - 2 : 0;

// Sums are relative to a thread's first vector, since its maximum is not known yet.
QN_DEVICE void hold_row(Held &h, u32 rank, float temperature, const TokenBounds &token)
{
    h.sum = 0.f, h.before = 0;
#pragma unroll
    for (u32 u = 0; u < VECTORS; u++) {
        h.max[u] = Element::vector_max(h.x[u]);
        h.top = u ? Element::larger(h.top, h.max[u]) : h.max[u];
        if (u >= kEarly) continue;
        if (u == 0) h.exponent = exponent_near(Element::value_of_packed(h.top), temperature);
        if constexpr (kNeedsSum) h.sum += vector_sum(h.x[u], h.exponent);
        if constexpr (TOKEN) h.before += vector_before(h.x[u], held_vector(u, rank), token);
    }
}

// The first vector was no guide to the thread's maximum: its sum again, against that.
QN_DEVICE void correct_sum(Held &h, const Row &r, u32 rank, float temperature)
{
    const float max = Element::value_of_packed(h.top);
    const bool wrong = is_finite(max) && h.exponent.scale != 0.f && !sum_is_usable(h.sum, max, h.exponent);
    if (!QN_UNLIKELY(wrong)) return;
    h.exponent = exponent_near(max, temperature);
    h.sum = 0.f;
#pragma unroll
    for (u32 u = 0; u < kEarly; u++)
        h.sum += vector_sum(LOOK_AGAIN ? mend_held(fetch_held(r, u, rank), r, u, rank) : h.x[u], h.exponent);
}

// The warp's sum of exponentials relative to its largest key, and its count before the token, in every lane.
QN_DEVICE float sum_of_warp(Held &h, u32 top, u32 rank, float temperature, const TokenBounds &token)
{
    const Exponent whole = exponent_near(key_value(top), temperature);
    if (kEarly && kNeedsSum) h.sum = h.sum == 0.f ? 0.f : h.sum * ex2(h.exponent.offset - whole.offset);
#pragma unroll
    for (u32 u = kEarly; u < VECTORS; u++) {
        if constexpr (kNeedsSum) h.sum += vector_sum(h.x[u], whole);
        if constexpr (TOKEN) h.before += vector_before(h.x[u], held_vector(u, rank), token);
    }
    if constexpr (TOKEN) h.before = warp_sum(h.before);
    return kNeedsSum ? warp_sum(h.sum) : 0.f;
}

// ---- what comes from other CTAs

// One thread, before it says that this CTA exists.
QN_DEVICE void expect_all(const Shared &s)
{
    for (u32 i = 0; i < kArrivals; i++) mbarrier_init(s.here + i, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(s.here + kMaximaHere, kMaxima * 4);
    mbarrier_arrive_expect_tx(s.here + kRecordsHere, CLUSTER * 16);
}

QN_DEVICE void wait_for(const Shared &s, u32 what)
{
    while (!mbarrier_try_wait_parity_cluster(s.here + what, 0)) {
    }
}

// ---- maxima

// Group maxima to all CTAs; the warp's largest key, its sum and its count before the token to shared memory.
QN_DEVICE void exchange_maxima(const Shared &s, Held &h, u32 rank, float temperature, const TokenBounds &token)
{
    u32 key = Element::key_of_packed(h.top);
    const u32 top = warp_max(key);
#pragma unroll
    for (u32 lanes = 1; lanes < GROUP; lanes *= 2) key = max(key, __shfl_xor_sync(kFullMask, key, lanes));
    if (thread_index() % GROUP == 0) s.own_maxima[thread_index() / GROUP] = key;
    __syncthreads();
    if constexpr (kEarly > 0) cluster_wait(); // the peers exist; exponentials did not have to wait for them
    cluster_send<CLUSTER>(reinterpret_cast<uint4 *>(s.maxima + rank * kOwnMaxima),
                          reinterpret_cast<const uint4 *>(s.own_maxima), kOwnMaxima / 4, s.here + kMaximaHere);
    const float sum = sum_of_warp(h, top, rank, temperature, token);
    if (lane_index() == 0) s.top[warp_index()] = top, s.sums[warp_index()] = sum, s.before[warp_index()] = h.before;
}

// One warp: this CTA's largest key, sum and count into *record. Count of candidates comes later.
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
        key[i] = maxima[i * kWarp + lane_index()];
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

// By bins, the whole CTA; warp 1 makes the record meanwhile.
QN_DEVICE void threshold_by_bins(const Shared &s, uint4 &record, float temperature)
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
    if (warp_index() == 0) {
        const u32 edge = key_bin_far_edge(key_bins_find(s.bins, key_bins_count(s.bins), kK).bin, shift);
        if (lane_index() == 0) *s.threshold = max(smallest, edge < largest ? largest - edge : 0u);
    } else if (warp_index() == 1) {
        record = record_of_block(s, temperature);
    }
}

// The record is in warp 1. Ends in a barrier.
QN_DEVICE u32 find_threshold(const Shared &s, uint4 &record, float temperature)
{
    if constexpr (SEARCH) __syncthreads(); // the warps' sums
    wait_for(s, kMaximaHere);
    if constexpr (SEARCH) {
        if (warp_index() == 0) {
            const u32 threshold = threshold_by_search(s.maxima);
            if (lane_index() == 0) *s.threshold = threshold;
        } else if (warp_index() == 1) {
            record = record_of_block(s, temperature);
        }
    } else {
        threshold_by_bins(s, record, temperature);
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
    for (u32 u = 0; u < VECTORS; u++)
        hits |= (Element::reaches(h.max[u], bound) && held_vector(u, rank) < r.count ? 1u : 0u) << u;
    if (!hits) return;
    u32 at = atomicAdd(s.vectors, (u32)__popc(hits));
#pragma unroll
    for (u32 u = 0; u < VECTORS; u++) {
        if (!(hits >> u & 1u)) continue;
        if (at < kListSlots) {
            if constexpr (!LOOK_AGAIN) s.vector[at] = h.x[u];
            s.number[at] = held_vector(u, rank);
        }
        at++;
    }
}

// Their elements at the threshold into s.loose, a vector a thread.
QN_DEVICE void list_elements(const Shared &s, const Row &r, u32 threshold)
{
    const Packed bound = Element::bound(threshold); // NaN: every element is listed
    const u32 vectors = min(*s.vectors, kListSlots);
    for (u32 i = thread_index(); i < vectors; i += THREADS) {
        const u32 v = s.number[i], first = v * kPerVector - r.lead;
        if constexpr (LOOK_AGAIN) s.vector[i] = row_load(r, v);
        u32 hits = Element::which_reach(s.vector[i], bound);
        if (QN_UNLIKELY(v == 0 || v == r.count - 1)) hits &= inside_row(r, v);
        const Raw *elements = reinterpret_cast<const Raw *>(s.vector + i); // [kPerVector]
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
    for (u32 i0 = 0; i0 < count; i0 += THREADS / 4) {
        const u32 i = i0 + thread_index() / 4;
        const u64 mine = i < count ? s.loose[i] : 0;
        u32 rank = 0;
#pragma unroll 4
        for (u32 j = thread_index() % 4; j < count; j += 4) rank += s.loose[j] > mine;
        rank += __shfl_xor_sync(kFullMask, rank, 1);
        rank += __shfl_xor_sync(kFullMask, rank, 2);
        if (i < count && thread_index() % 4 == 0) s.own[rank] = mine;
    }
}

// Sorted list and record to every CTA. The record is in warp 1. Returns this CTA's count.
QN_DEVICE u32 send_list(const Shared &s, uint4 record, u32 rank)
{
    const bool full = *s.vectors > kListSlots || *s.candidates > kListSlots;
    const u32 count = full ? 0 : *s.candidates;
    if (warp_index() == 1 && lane_index() < CLUSTER) {
        record.x = full ? (u32)kFull : count;
        st_async(s.record + rank, record, s.here + kRecordsHere, lane_index());
    }
    sort_own(s, count);
    if (thread_index() == 0 && count % 2) s.own[count] = 0; // the last 16 bytes are a pair
    __syncthreads();
    cluster_send<CLUSTER>(s.lists + rank * (kListStride / 2), reinterpret_cast<const uint4 *>(s.own), (count + 1) / 2,
                          s.here + kListsHere);
    return count;
}

// ---- merge

struct Totals {
    u32 top, candidates, before; // candidates has kFull if some list was too small
    float sum;                   // relative to the maximum; the same in every thread of the cluster
};

// A lane a record, every record in 32 / CLUSTER lanes. The lists' mbarrier learns how much to wait for.
QN_DEVICE Totals totals_of(const Shared &s, float temperature)
{
    constexpr u32 kTimes = kWarp / CLUSTER;
    wait_for(s, kRecordsHere);
    const uint4 record = s.record[lane_index() % CLUSTER];
    const u32 bytes = warp_sum(((record.x & ~(u32)kFull) + 1) / 2 * 16) / kTimes; // of all lists
    if (thread_index() == 0) mbarrier_arrive_expect_tx(s.here + kListsHere, bytes);
    const u32 full = __any_sync(kFullMask, (record.x & kFull) != 0) ? (u32)kFull : 0u;
    Totals t = {warp_max(record.y), warp_sum(record.x & ~(u32)kFull) / kTimes | full, 0, 0.f};
    if constexpr (TOKEN) t.before = warp_sum(record.w) / kTimes;
    if constexpr (kNeedsSum) {
        const Exponent whole = exponent_near(key_value(t.top), temperature);
        float sum = __uint_as_float(record.z);
        if (sum != 0.f) sum *= ex2(exponent_near(key_value(record.y), temperature).offset - whole.offset);
#pragma unroll
        for (u32 lanes = CLUSTER / 2; lanes; lanes /= 2) sum += __shfl_xor_sync(kFullMask, sum, lanes);
        t.sum = sum_from_offset(sum, key_value(t.top), whole);
    }
    return t;
}

QN_DEVICE const u64 *list_of(const Shared &s, u32 cta)
{
    return reinterpret_cast<const u64 *>(s.lists + cta * (kListStride / 2));
}

constexpr u32 kAtATime = THREADS / CLUSTER; // candidates
constexpr u32 kUsual = K * 5 / 4 / CLUSTER; // candidates of a CTA
constexpr u32 kBatch = kUsual <= kAtATime ? 1 : kUsual <= 2 * kAtATime || CLUSTER == 2 ? 2 : 3;

// larger[b] = how many of list[0 … length), which falls, are larger than mine[b]: searches that run side by side.
QN_DEVICE void count_larger(const u64 *list, u32 length, const u64 *mine, u32 *larger) // [kBatch]
{
#pragma unroll
    for (u32 b = 0; b < kBatch; b++) larger[b] = 0;
    for (u32 step = length ? 0x80000000u >> __clz((int)length) : 0; step; step /= 2) {
#pragma unroll
        for (u32 b = 0; b < kBatch; b++) {
            const u32 next = larger[b] + step;
            if (next <= length && list[next - 1] > mine[b]) larger[b] = next;
        }
    }
}

// Calls each(rank, candidate) for the winners among list `from` of `count` candidates: CLUSTER lanes look kBatch
// candidates up in the CLUSTER sorted lists.
template <class Each> QN_DEVICE void merge_list(const Shared &s, const u64 *from, u32 count, Each each)
{
    const u32 part = thread_index() % CLUSTER, length = s.record[part].x;
    for (u32 base = 0; base < count; base += kBatch * kAtATime) {
        const u32 first = base + thread_index() / CLUSTER;
        u64 mine[kBatch], one = 0;
        u32 rank[kBatch], place = kK;
#pragma unroll
        for (u32 b = 0; b < kBatch; b++) mine[b] = first + b * kAtATime < count ? from[first + b * kAtATime] : 0;
        count_larger(list_of(s, part), length, mine, rank);
#pragma unroll
        for (u32 b = 0; b < kBatch; b++) { // lane b takes candidate b
#pragma unroll
            for (u32 lanes = 1; lanes < CLUSTER; lanes *= 2) rank[b] += __shfl_xor_sync(kFullMask, rank[b], lanes);
            if (part == b && first + b * kAtATime < count) one = mine[b], place = rank[b];
        }
        if (place < kK) each(place, one);
    }
}

// Every CTA stores the winners among its own candidates.
QN_DEVICE void store_merged(const Shared &s, const softmax_topk_params &p, i64 row, const Row &r, const Totals &t,
                            u32 count, u32 rank, float temperature)
{
    const Softmax softmax = softmax_of(key_value(t.top), temperature, t.sum);
    merge_list(s, s.own, count, [&](u32 place, u64 winner) { store_winner(p, row, softmax, place, winner); });
    if (rank != 0 || !(LSE || TOKEN)) return;
    u32 before = 0;
    if constexpr (TOKEN) before = token_rank(p, row, r, t.before, s.scratch);
    if (thread_index() == 0) store_once(p, row, softmax, before);
}

// ---- rows that CTA 0 stores: full lists, a sum over the winners or to be made again

// The row has probabilities, but not from what was added: an odd temperature, or logits near f32's end.
QN_DEVICE bool needs_sum_again(const Totals &t, float temperature)
{
    if (!kNeedsSum || !softmax_is_defined(key_value(t.top), temperature)) return false;
    return !is_finite(t.sum) || exponent_near(0.f, temperature).scale == 0.f;
}

QN_DEVICE bool ends_together(const Totals &t, float temperature)
{
    return kTopkNorm || needs_sum_again(t, temperature) || t.candidates < kK || (t.candidates & kFull);
}

// This CTA's part of the row, for passes that all CTAs make together.
QN_DEVICE RowElements part_of(const Row &r, u32 rank)
{
    const u32 each = (r.count + CLUSTER - 1) / CLUSTER;
    return RowElements{r, min(rank * each, r.count), min((rank + 1) * each, r.count)};
}

QN_DEVICE List list_of(const Shared &s)
{
    return List{s.lists, s.count, s.sorted, s.bins, s.scratch, s.word, s.binning};
}

constexpr u32 kTogetherBins = 1024; // few: every CTA reads all histograms
static_assert(kTogetherBins <= kExactBins, "SLOTS: the histogram lies in the list's memory");

// Adds the histograms of all CTAs, in all of them. Begins and ends in a barrier of the cluster.
QN_DEVICE void add_histograms(u32 *histogram)
{
    constexpr u32 kEach = kTogetherBins / THREADS;
    u32 sum[kEach];
    cluster_sync();
#pragma unroll
    for (u32 i = 0; i < kEach; i++) {
        sum[i] = 0;
#pragma unroll 8
        for (u32 c = 0; c < CLUSTER; c++) sum[i] += cluster_map(histogram, c)[i * THREADS + thread_index()];
    }
    cluster_sync();
#pragma unroll
    for (u32 i = 0; i < kEach; i++) histogram[i * THREADS + thread_index()] = sum[i];
    __syncthreads();
}

// The exact selection by all CTAs, each over its part; the candidates go to CTA 0.
QN_DEVICE void exact_together(const softmax_topk_params &p, i64 row, u32 rank, bool full, u32 top)
{
    const Shared s = shared_pieces();
    const u32 hint = full ? *s.threshold : 0u;
    const Row r = row_of(p, row);
    const List list = list_of(s);
    const RowElements part = part_of(r, rank);
    const Cut cut = exact_cut<kTogetherBins>(part, kK, kExactRoom, hint, top, list_histogram(list), list.scratch,
                                             list.word, [](u32 *histogram) { add_histograms(histogram); });
    list_clear(list);
    cluster_sync();
    part.collect(cut, cluster_map(list.slot, 0), cluster_map(list.word, 0) + kListTotal);
    cluster_sync();
    if (rank == 0) list_take(list, cut.key, kK);
}

// The row's sum by all CTAs, each over its part; right in CTA 0. This and store_alone are functions of their own, for
// their registers.
QN_NOINLINE float sum_together(const softmax_topk_params &p, i64 row, u32 rank, float max)
{
    const Shared s = shared_pieces();
    const RowElements part = part_of(row_of(p, row), rank);
    const float sum = sum_against(part.row, part.begin, part.end, max, row_temperature(p, row), s.sums);
    if (thread_index() == 0) cluster_map(s.parts, 0)[rank] = sum;
    cluster_sync();
    return warp_sum(rank == 0 && lane_index() < CLUSTER ? s.parts[lane_index()] : 0.f);
}

// In CTA 0: the winners in order, from the lists or from the exact selection.
QN_DEVICE const u64 *winners_in_order(const Shared &s, bool exact)
{
    if (exact) {
        const List list = list_of(s);
        list_scatter(list, kK);
        return list_rank(list, *list.binning, kK);
    }
    for (u32 c = 0; c < CLUSTER; c++)
        merge_list(s, list_of(s, c), s.record[c].x, [&](u32 place, u64 winner) { s.sorted[place] = winner; });
    __syncthreads();
    return s.sorted;
}

// CTA 0 stores the row.
QN_NOINLINE void store_alone(const softmax_topk_params &p, i64 row, float sum, u32 before, bool exact)
{
    const Shared s = shared_pieces();
    const u64 *winner = winners_in_order(s, exact);
    if constexpr (TOKEN) before = token_rank(p, row, row_of(p, row), before, s.scratch);
    store_row(p, row, winner, sum, before, reinterpret_cast<float *>(s.top));
}

QN_DEVICE void finish_together(const softmax_topk_params &p, i64 row, const Totals &t, u32 rank, float temperature)
{
    const bool full = (t.candidates & kFull) != 0, exact = full || t.candidates < kK;
    float sum = t.sum;
    if (exact && rank == 0) count_repair();
    if (exact) exact_together(p, row, rank, full, t.top);
    if (needs_sum_again(t, temperature)) sum = sum_together(p, row, rank, key_value(t.top));
    if (rank == 0) store_alone(p, row, sum, t.before, exact);
}

// ---- a row

QN_DEVICE void do_row(const softmax_topk_params &p, i64 row, u32 rank)
{
    const Shared s = shared_pieces();
    const Row r = row_of(p, row);
    const float temperature = row_temperature(p, row);
    Held held;
#pragma unroll
    for (u32 u = 0; u < VECTORS; u++)
        held.x[u] = fetch_held(r, u, rank); // all loads leave at once, before anything else
    if (thread_index() == 0) expect_all(s);
    cluster_arrive_relaxed(); // this CTA exists and can be sent to
#pragma unroll
    for (u32 u = 0; u < VECTORS; u++) held.x[u] = mend_held(held.x[u], r, u, rank);
    TokenBounds token = {0, 0.f, 0.f};
    if constexpr (TOKEN) token = token_bounds(p, row, r);
    clear_words<kBinWords>(s.bins);
    if (thread_index() == 0) *s.vectors = 0, *s.candidates = 0;
    if constexpr (kEarly == 0) cluster_wait(); // so do the peers

    hold_row(held, rank, temperature, token);
    if constexpr (kNeedsSum && kEarly) correct_sum(held, r, rank, temperature);
    exchange_maxima(s, held, rank, temperature, token);
    uint4 record = make_uint4(0, 0, 0, 0);
    const u32 threshold = find_threshold(s, record, temperature);
    list_vectors(s, held, r, rank, threshold);
    __syncthreads();
    list_elements(s, r, threshold);
    __syncthreads();
    const u32 count = send_list(s, record, rank);
    const Totals totals = totals_of(s, temperature);
    wait_for(s, kListsHere);
    if (QN_UNLIKELY(ends_together(totals, temperature)))
        finish_together(p, row, totals, rank, temperature);
    else
        store_merged(s, p, row, r, totals, count, rank, temperature);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ softmax_topk_params p)
{
    const i64 row = (i64)blockIdx.y * (gridDim.x / CLUSTER) + blockIdx.x / CLUSTER;
    if (row < p.rows) do_row(p, row, cluster_rank()); // the same for the whole cluster
}
