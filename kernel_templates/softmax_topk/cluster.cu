// SPDX-License-Identifier: Apache-2.0
// softmax_topk, plan "cluster": one cluster of CLUSTER CTAs a row, the row in their registers or shared memory. For few
// rows, where the number of dependent steps is the time. sm_90 on.
//
//   probability_k = e^(x_k - max) / Σ e^(x_i - max) for the K largest x in order
//
//   load       VECTORS vectors a thread, all in flight; their maxima, exponentials added as they arrive
//   maxima     of every group of GROUP threads, to all CTAs; at least 2K groups in the cluster
//   threshold  about the K-th largest of the group maxima: K elements reach it in every row, so it is always valid
//   survivors  elements at the threshold: whole vectors first, then their elements, into a list of the CTA's own
//   lists      a short one sorted, by counting; with the CTA's maximum and sum, to all CTAs
//   merge      every CTA finds the rank of its own survivors and stores them: it looks them up in all the sorted lists, or,
//              where lists are long, puts those of all CTAs into bins and counts inside the bins of its own
//   repair     a list that was too small is known by its count; then the CTAs select the row again, together (exact.cuh)
//
// Data goes between CTAs as contiguous 16-byte stores that report to an mbarrier of the receiver (st.async), a warp a peer:
// no fence, no barrier of the cluster but one at the start, which only says that the peers exist. Every CTA waits for all
// that is sent to it, so none ends too early. Repairs use barriers of the cluster.
// OWN_BOUND: each CTA bounds its own K first by its own group maxima; nothing has to travel before the lists. For small K.
// LOOK_AGAIN: only the vectors' maxima stay in registers; the few vectors that reach the threshold are read again.
// IN_SHARED: the row is copied to shared memory, past registers, and stays there.
// LOCAL_K: entries a thread of the lists that each CTA holds, LOCAL_K * THREADS / CLUSTER from each peer.
// ANALYSIS.md: bytes, work, why it is exact, measured figures.
//
// Prologue, besides problem.cuh's: VECTORS, GROUP (lanes), LOOK_AGAIN, IN_SHARED, SEARCH (1: one warp searches the
// threshold; for few maxima), OWN_BOUND, SLOTS, SORTED, BINS (of the exact selection).
#include "cluster_row.cuh"

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

constexpr u32 kAtATime = THREADS / CLUSTER;                   // candidates
constexpr u32 kUsual = K * 5 / 4 / (OWN_BOUND ? 1 : CLUSTER); // candidates of a CTA
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

// ---- long lists

QN_DEVICE List list_of(const Shared &s)
{
    return List{s.lists, s.count, s.sorted, s.bins, s.scratch, s.word, s.binning};
}

// Calls each(candidate) for the candidates of all CTAs, a warp or several a list.
template <class Each> QN_DEVICE void for_each_listed(const Shared &s, Each each)
{
    constexpr u32 kParts = kWarps > CLUSTER ? kWarps / CLUSTER : 1; // of a list
    for (u32 part = warp_index(); part < CLUSTER * kParts; part += kWarps) {
        const u64 *list = list_of(s, part % CLUSTER);
        const u32 length = s.record[part % CLUSTER].x & ~(u32)kFull;
        for (u32 i = part / CLUSTER * kWarp + lane_index(); i < length; i += kParts * kWarp) each(list[i]);
    }
}

// All candidates bin by bin into s.sorted; bins that begin after the last winner are left out. s.bins then holds where
// each bin ends. False if there is no room for them, or they are fewer than K. The same in every thread of the cluster.
QN_DEVICE bool bin_lists(const Shared &s, const Binning &binning)
{
    const auto bin = [&](u64 c) { return s.bins + bin_of(binning, candidate_key(c), candidate_index(c)); };
    if (thread_index() == 0) *s.binning = binning;
    for_each_listed(s, [&](u64 c) { atomicAdd(bin(c), 1u); });
    __syncthreads();
    list_scan(list_of(s), kK);
    if (s.word[kListTotal] < kK) return false;
    const u32 end = s.word[kListEnd];
    if (end > kSorted) return false;
    for_each_listed(s, [&](u64 c) {
        const u32 at = atomicAdd(bin(c), 1u);
        if (at < end) s.sorted[at] = c;
    });
    __syncthreads();
    return true;
}

// Calls each(rank, candidate) for the winners among list `from` of `count` candidates.
template <class Each>
QN_DEVICE void rank_list(const Shared &s, const Binning &binning, const u64 *from, u32 count, Each each)
{
    for (u32 i = thread_index(); i < count; i += THREADS) {
        const u64 mine = from[i];
        const u32 bin = bin_of(binning, candidate_key(mine), candidate_index(mine));
        const u32 first = bin ? s.bins[bin - 1] : 0, last = s.bins[bin];
        if (first >= kK) continue;
        u32 rank = first;
#pragma unroll 1
        for (u32 q = first; q < last; q++) rank += s.sorted[q] > mine;
        if (rank < kK) each(rank, mine);
    }
}

// Every CTA stores the winners among its own candidates.
QN_DEVICE void store_merged(const Shared &s, const softmax_topk_params &p, i64 row, const Row &r, const Totals &t,
                            const Binning &binning, u32 count, u32 rank, float temperature)
{
    const Softmax softmax = softmax_of(key_value(t.top), temperature, t.sum);
    const auto store = [&](u32 place, u64 winner) { store_winner(p, row, softmax, place, winner); };
    if constexpr (kByBins)
        rank_list(s, binning, s.own, count, store);
    else
        merge_list(s, s.own, count, store);
    if (rank != 0 || !(LSE || TOKEN)) return;
    u32 before = 0;
    if constexpr (TOKEN) before = token_rank(p, row, r, *s.token, t.before, s.scratch);
    if (thread_index() == 0) store_once(p, row, softmax, s.token, before);
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
    u32 hint = full ? *s.threshold : 0u;
    if (OWN_BOUND && full) { // any of the thresholds is reached by K elements
        cluster_sync();
        hint = warp_max(*cluster_map(s.threshold, lane_index() % CLUSTER));
    }
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
    u64 *winners = kByBins ? reinterpret_cast<u64 *>(s.lists) : s.sorted;
    const auto take = [&](u32 place, u64 winner) { winners[place] = winner; };
    if constexpr (kByBins)
        rank_list(s, *s.binning, s.sorted, s.word[kListEnd], take);
    else
        for (u32 c = 0; c < CLUSTER; c++) merge_list(s, list_of(s, c), s.record[c].x, take);
    __syncthreads();
    return winners;
}

// CTA 0 stores the row.
QN_NOINLINE void store_alone(const softmax_topk_params &p, i64 row, float sum, u32 before, bool exact)
{
    const Shared s = shared_pieces();
    const u64 *winner = winners_in_order(s, exact);
    if constexpr (TOKEN) before = token_rank(p, row, row_of(p, row), *s.token, before, s.scratch);
    store_row(p, row, winner, sum, s.token, before, reinterpret_cast<float *>(s.top));
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
    Held h;
    ask_row(s, h, r, rank);
    if (thread_index() == 0) expect_all(s);
    cluster_arrive_relaxed(); // this CTA exists and can be sent to
    mend_row(s, h, r, rank);
    TokenBounds bounds = {0, 0, 0};
    if constexpr (TOKEN) {
        const i32 index = token_index(p, row);
        const Token token = token_of(r, index, row_load(r, token_vector(r, index)));
        if (thread_index() == 0) *s.token = token;
        bounds = token.bounds;
    }
    clear_words<kBinWords>(s.bins);
    if (thread_index() == 0) *s.vectors = 0, *s.candidates = 0;
    if constexpr (kEarly == 0 && !OWN_BOUND) cluster_wait(); // so do the peers

    hold_row(s, h, rank, temperature, bounds);
    if constexpr (kNeedsSum && kEarly) correct_sum(s, h, r, rank, temperature);
    exchange_maxima(s, h, rank, temperature, bounds);
    const u32 threshold = find_threshold(s);
    if constexpr (kByBins) clear_words<kBins>(s.bins);
    uint4 record = make_uint4(0, 0, 0, 0);
    list_vectors(s, h, r, rank, threshold);
    __syncthreads();
    list_elements(s, r, rank, threshold);
    if (warp_index() == kRecordWarp) record = record_of_block(s, temperature);
    __syncthreads();
    const u32 count = send_list(s, record, rank);
    Totals totals = totals_of(s, temperature);
    wait_for(s, kListsHere);
    const Binning binning = binning_over(threshold, max(threshold, totals.top));
    if constexpr (kByBins)
        if (!bin_lists(s, binning)) totals.candidates |= kFull;
    if (QN_UNLIKELY(ends_together(totals, temperature)))
        finish_together(p, row, totals, rank, temperature);
    else
        store_merged(s, p, row, r, totals, binning, count, rank, temperature);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ softmax_topk_params p)
{
    const i64 row = (i64)blockIdx.y * (gridDim.x / CLUSTER) + blockIdx.x / CLUSTER;
    if (row < p.rows) do_row(p, row, cluster_rank()); // the same for the whole cluster
}
