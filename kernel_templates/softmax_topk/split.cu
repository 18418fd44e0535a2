// SPDX-License-Identifier: Apache-2.0
// softmax_topk, plan "split": SHARES CTAs a row, each of which streams a share of it; the one that ends last merges. For
// few rows where there are no clusters, and for rows that are too long for one.
//
//   share   sample, stream, candidates, rank as in plan "stream", over the share's vectors: its K first elements in
//           order, its maximum and sum → a record in the workspace
//   ticket  store, barrier, fence, count: whoever counts SHARES - 1 is last and sees every record
//   merge   the K first of SHARES * K elements by the exact selection, sums in the order of the shares
//
// The workspace: kTickets words, 0 between launches (a ticket wraps to 0 by itself, so that a captured graph may be
// replayed), then for each row SHARES records. Tickets lie at the same place whatever the plan's numbers are: kernels of
// other sizes use the same workspace. Launches of more than kTickets rows give each row to one CTA.
// ANALYSIS.md: bytes, work, why it is exact.
//
// Prologue, besides stream.cuh's: SHARES, RECORD_BYTES (of a share, as the host counted them).
#include "stream.cuh"

static_assert(SHARES >= 2 && SHARES <= 256, "SHARES: 2 to 256");

constexpr u32 kTickets = SOFTMAX_TOPK_TICKETS;
constexpr u64 kRecordBytes = 16 + 16 * (u64)((kK + 1) / 2); // count, largest key, sum, before the token; candidates[K]
constexpr u64 kRowBytes = SHARES * kRecordBytes;
static_assert(kRecordBytes == RECORD_BYTES, "the sizes of ops/softmax_topk.c");

struct Record {
    uint4 *head;
    u64 *candidates; // [K], in order
};

QN_DEVICE Record record_of(const softmax_topk_params &p, i64 row, u32 share)
{
    unsigned char *bytes = p.workspace + kTickets * 4 + (u64)row * kRowBytes + share * kRecordBytes;
    return Record{reinterpret_cast<uint4 *>(bytes), reinterpret_cast<u64 *>(bytes + 16)};
}

QN_DEVICE u32 shares_of(const softmax_topk_params &p)
{
    return p.rows > kTickets ? 1u : SHARES;
}

QN_DEVICE Share share_of(const softmax_topk_params &p, i64 row, u32 share)
{
    const Row r = row_of(p, row);
    const u32 each = (r.count + shares_of(p) - 1) / shares_of(p);
    return Share{r, min(share * each, r.count), min((share + 1) * each, r.count)};
}

// Elements of the row in these vectors.
QN_DEVICE u32 elements_of(const Share &share)
{
    const u32 first = share.begin ? share.begin * kPerVector - share.row.lead : 0;
    const u32 last = min(kV, share.end * kPerVector - share.row.lead);
    return share.begin < share.end ? last - first : 0;
}

// ---- share

struct Result { // of a share
    const u64 *winner;
    u32 count, top, before;
    float sum;
};

QN_DEVICE Result result_of(const Shared &s, const softmax_topk_params &p, i64 row, const Share &share)
{
    Result result = {nullptr, min(kK, elements_of(share)), 0, 0, 0.f};
    if (result.count == 0) return result;
    result.winner = winners_of_share(s, result.count);
    result.top = candidate_key(result.winner[0]);
    result.before = before_of_share(s);
    result.sum = sum_of_share(s, p, row, share, key_value(result.top));
    return result;
}

// True in the CTA that ends the row: every record is then to be seen.
QN_DEVICE bool publish(const Shared &s, const softmax_topk_params &p, i64 row, u32 share, const Result &result)
{
    const Record record = record_of(p, row, share);
    for (u32 i = thread_index(); i < result.count; i += THREADS) record.candidates[i] = result.winner[i];
    if (thread_index() == 0)
        *record.head = make_uint4(result.count, result.top, __float_as_uint(result.sum), result.before);
    __syncthreads();
    if (thread_index() == 0) {
        fence_device();
        s.list.word[0] = atomic_increment_wrapped(reinterpret_cast<u32 *>(p.workspace) + row, SHARES - 1);
        fence_device();
    }
    __syncthreads();
    const bool is_last = s.list.word[0] == SHARES - 1;
    __syncthreads();
    return is_last;
}

// ---- merge

struct Head {
    u32 count, top, before;
    float sum;
};

QN_DEVICE Head load_head(const Record &record)
{
    const u32 *word = reinterpret_cast<const u32 *>(record.head);
    return Head{load_l2(word), load_l2(word + 1), load_l2(word + 3), __uint_as_float(load_l2(word + 2))};
}

// The candidates in all records of a row, as a source for the exact selection.
struct RecordElements {
    const softmax_topk_params &p;
    i64 row;

    // Calls each(key, index) for those that fall to this thread.
    template <class Each> QN_DEVICE void for_each(Each each) const
    {
        for (u32 i = thread_index(); i < SHARES * kK; i += THREADS) {
            const Record record = record_of(p, row, i / kK);
            if (i % kK >= load_l2(reinterpret_cast<const u32 *>(record.head))) continue;
            const u64 one = load_l2(record.candidates + i % kK);
            each(candidate_key(one), candidate_index(one));
        }
    }
    QN_DEVICE void count(const ExactPass &pass, u32 *histogram) const
    {
        for_each([&](u32 key, u32 index) { count_element(pass, key, index, histogram); });
    }
    QN_DEVICE void collect(const Cut &cut, uint4 *list, u32 *count) const
    {
        for_each([&](u32 key, u32 index) { collect_element(cut, key, index, list, count); });
    }
};

// The row from its records: a lane a record, sums in a fixed order. Also a key that K candidates reach.
QN_DEVICE Result totals_of(const softmax_topk_params &p, i64 row, u32 *reached)
{
    constexpr u32 kEach = (SHARES + kWarp - 1) / kWarp;
    Result t = {nullptr, kK, 0, 0, 0.f};
    Head head[kEach];
    u32 last = 0;
#pragma unroll
    for (u32 i = 0; i < kEach; i++) {
        const u32 share = i * kWarp + lane_index();
        head[i] = share < SHARES ? load_head(record_of(p, row, share)) : Head{0, 0, 0, 0.f};
        t.top = max(t.top, head[i].top);
        t.before += head[i].before;
        if (head[i].count == kK) last = max(last, candidate_key(load_l2(record_of(p, row, share).candidates + kK - 1)));
    }
    t.top = warp_max(t.top), t.before = warp_sum(t.before), *reached = warp_max(last);
    const float max = key_value(t.top), temperature = row_temperature(p, row);
#pragma unroll
    for (u32 i = 0; i < kEach; i++) {
        if (head[i].count == 0 || head[i].top == Element::kKeyMinusInfinity) continue;
        t.sum += head[i].sum * exp_accurate(exponent_of(key_value(head[i].top), max, temperature));
    }
    t.sum = warp_sum(t.sum);
    return t;
}

QN_DEVICE Result merge(const Shared &s, const softmax_topk_params &p, i64 row)
{
    u32 reached;
    Result t = totals_of(p, row, &reached);
    list_exact(s.list, RecordElements{p, row}, kK, reached, t.top);
    list_scatter(s.list, kK);
    t.winner = list_rank(s.list, *s.list.binning, kK);
    return t;
}

QN_DEVICE void keep_token(const Shared &s, const softmax_topk_params &p, i64 row, const Row &r)
{
    const i32 index = token_index(p, row);
    if (thread_index() == 0) *s.token = token_of(r, index, row_load(r, token_vector(r, index)));
    __syncthreads();
}

QN_NOINLINE void finish_share(const softmax_topk_params &p, i64 row, u32 number)
{
    const Shared s = shared_pieces();
    const Share share = share_of(p, row, number);
    if (TOKEN && share.begin == share.end) keep_token(s, p, row, share.row); // else do_share has
    Result result = result_of(s, p, row, share);
    if (shares_of(p) > 1) {
        if (!publish(s, p, row, number, result)) return;
        result = merge(s, p, row);
    }
    u32 before = result.before;
    if constexpr (TOKEN) before = token_rank(p, row, share.row, *s.token, before, s.list.scratch);
    store_row(p, row, result.winner, result.sum, s.token, before, reinterpret_cast<float *>(s.tail));
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ softmax_topk_params p)
{
    const i64 row = blockIdx.x / shares_of(p);
    const u32 number = blockIdx.x % shares_of(p);
    const Shared s = shared_pieces();
    const Share share = share_of(p, row, number);
    if (share.begin < share.end) do_share(s, p, row, share, min(kK, elements_of(share)));
    finish_share(p, row, number);
}
