// SPDX-License-Identifier: Apache-2.0
// A share of a row, whatever scores it: candidates in shared memory, the record that goes to the CTA that ends the row, and
// what that one makes of all records. The plans "fused" and "wgmma"; run_row.cuh runs it.
//
// Prologue: SHARES, LOCAL_K, ROOM (places of a record). Before this file: kUnitEntries.
#pragma once

#include "deal.cuh"
#include "finish.cuh"

static_assert(SHARES >= 1 && SHARES <= 128 && (SHARES & (SHARES - 1)) == 0, "SHARES: a power of two up to 128");
static_assert(SHARES == 1 || (LOCAL_K <= ROOM && SHARES * ROOM <= CAP && SHARES * LOCAL_K >= K && ROOM % 2 == 0),
              "LOCAL_K, ROOM, CAP");
static_assert(LOCAL_K <= 2048 && CAP >= LOCAL_K + 512 && CAP / 4 * 3 > K + 256, "LOCAL_K, CAP");

constexpr u32 kTickets = 1024; // ops/indexer.c: TICKETS
constexpr u32 kShares = SHARES;
constexpr u32 kRoom = ROOM;
constexpr u64 kRecordBytes = 8 * (2 + (u64)ROOM); // bound, nothing, candidates
constexpr u32 kRawMost =
    8192; // results of a row whose keys all go to the CTA that ends it, in order, instead of records
constexpr u64 kRowBytes = kShares * kRecordBytes > 4 * kRawMost ? kShares *kRecordBytes : 4 * kRawMost;

// ---- candidates

struct Scan {
    u64 last; // of those kept, 0: none were left out
    Extremes extremes;
    u32 *raw; // keys of a short row; null: candidates are kept here
};

// One candidate a lane, or 0. place: where it goes in the first batch.
QN_DEVICE void put_candidate(const Select &s, Scan &scan, bool mine, u32 place, u64 item)
{
    if (scan.raw) {
        if (mine && item) scan.raw[candidate_index(item)] = candidate_key(item);
        return;
    }
    if (scan.last == 0) {
        if (mine) s.item[place] = item;
    } else {
        const bool wins = mine && item > scan.last;
        const u32 ballot = __ballot_sync(kFullMask, wins);
        u32 first = 0;
        if (ballot && lane_index() == 0) first = atomicAdd(&s.word[kCount], (u32)__popc(ballot));
        first = __shfl_sync(kFullMask, first, 0);
        if (wins) s.item[first + lanes_below(ballot)] = item;
    }
    if (mine && item) extend(scan.extremes, candidate_key(item));
}

// Keeps the first `wanted` candidates, or a few more where bins tell them from the rest; from then on only what comes
// after scan.last counts. Returns how many. Begins and ends in a barrier.
QN_DEVICE u32 compact(const Select &s, Scan &scan, u32 n, u32 wanted)
{
    share_extremes(s, scan.extremes);
    (void)bin_items(n, wanted);
    const u32 end = s.word[kEnd], end_bin = s.word[kEndBin];
    if (QN_UNLIKELY(end > wanted + kMostInBin)) {
        scan.last = keep_first(s, n, wanted);
        return wanted;
    }
    const Scale by = scale_of(s);
    u32 least = 0xFFFFFFFFu;
    for (u32 i = thread_index(); i < n; i += THREADS) {
        const u64 item = s.item[i];
        if (item == 0 || bin_of(by, candidate_key(item)) > end_bin) continue;
        least = min(least, candidate_key(item));
        s.sorted[atomicAdd(&s.word[kCount], 1u)] = item;
    }
    least = warp_min(least);
    if (lane_index() == 0) atomicMax(&s.word[kLeast], ~least);
    __syncthreads();
#pragma unroll 1
    for (u32 i = thread_index(); i < end; i += THREADS) s.item[i] = s.sorted[i];
    scan.last = ((u64)~s.word[kLeast] << 32) - 1; // all that was left out has a smaller key
    __syncthreads();
    return end;
}

// ---- records: what CTAs leave for the one that ends the row

QN_DEVICE u8 *row_memory(const indexer_params &p, i64 row)
{
    return p.workspace + kTickets * 4 + (u64)row * kRowBytes;
}
QN_DEVICE u64 *record_of(const indexer_params &p, i64 row, u32 share)
{
    return reinterpret_cast<u64 *>(row_memory(p, row) + share * kRecordBytes);
}

// The share's first LOCAL_K or more of n candidates into its record, with the bound of what is left out, `bound` so far. A
// thread has up to kEach of them. Begins in a barrier.
template <u32 kEach> QN_NOINLINE void store_record(const indexer_params &p, i64 row, u32 share, u64 bound, u32 n)
{
    const Select s = select_pieces();
    u64 *record = record_of(p, row, share);
    u64 item[kEach];
    u32 place[kEach], least = 0xFFFFFFFFu;
    __syncthreads(); // n is everyone's by now
    clear_bins(s);
    if (thread_index() == 0) s.word[kMost] = s.word[kCount] = s.word[kLeast] = 0;
    __syncthreads();
    SharedSource{n}.load(item);
    (void)count_items(s, item, place);
    __syncthreads();
    const u32 total = scan_bins(s, LOCAL_K), end = total ? s.word[kEnd] : 0, end_bin = total ? s.word[kEndBin] : 0;
    u32 count = end;
    if (end <= kRoom) {
#pragma unroll
        for (u32 j = 0; j < kEach; j++) {
            const u32 bin = place[j] >> 16;
            if (item[j] == 0 || end == 0 || bin > end_bin) continue;
            record[2 + s.bins[bin] + (place[j] & 0xFFFFu)] = item[j];
            least = min(least, candidate_key(item[j]));
        }
    } else {
        const u64 last = nth_of(SharedItems{s.item}, n, min((u32)LOCAL_K, total));
        __syncthreads();
        count = min((u32)LOCAL_K, total);
#pragma unroll
        for (u32 j = 0; j < kEach; j++)
            if (item[j] != 0 && item[j] >= last) record[2 + atomicAdd(&s.word[kCount], 1u)] = item[j];
        if (count < total && last > bound) bound = last;
    }
#pragma unroll 1
    for (u32 i = count + thread_index(); i < kRoom; i += THREADS) record[2 + i] = 0;
    least = warp_min(least);
    if (lane_index() == 0) atomicMax(&s.word[kLeast], ~least);
    __syncthreads();
    const u64 left_out = (u64)~s.word[kLeast] << 32; // above all keys of later bins
    if (end <= kRoom && count < total && left_out > bound) bound = left_out;
    if (thread_index() == 0) record[0] = bound;
}

// True in the CTA that ends the row: all that the others left is then to be seen, and finish_from may follow.
QN_DEVICE bool is_last_share(const indexer_params &p, i64 row, const Select &s)
{
    __syncthreads();
    if (thread_index() == 0) {
        fence_device();
        s.word[kTicket] = atomic_increment_wrapped(reinterpret_cast<u32 *>(p.workspace) + row, kShares - 1);
        fence_device();
        s.word[kHigh] = s.word[kLow] = s.word[kMost] = 0;
    }
    clear_bins(s);
    __syncthreads();
    return s.word[kTicket] == kShares - 1;
}

struct RecordSource {
    static constexpr u32 kPairs = kRoom / 2, kMost = (kShares * kPairs + THREADS - 1) / THREADS * THREADS * 2;
    const indexer_params *p;
    i64 row;
    QN_DEVICE static RecordSource of(const indexer_params &p, i64 row, u32) { return RecordSource{&p, row}; }
    QN_DEVICE u64 operator()(u32 i) const { return load_l2(record_of(*p, row, i / kRoom) + 2 + i % kRoom); }
    template <u32 kEach> QN_DEVICE void load(u64 (&item)[kEach]) const
    {
#pragma unroll
        for (u32 j = 0; j < kEach; j += 2) {
            const u32 i = j / 2 * THREADS + thread_index();
            item[j] = item[j + 1] = 0;
            if (i >= kShares * kPairs) continue;
            const u64 *at = record_of(*p, row, i / kPairs) + 2 + i % kPairs * 2;
            const uint4 two = load_polled(reinterpret_cast<const uint4 *>(at));
            item[j] = (u64)two.y << 32 | two.x, item[j + 1] = (u64)two.w << 32 | two.z;
        }
    }
};

struct RawSource { // keys of a short row, one after another
    static constexpr u32 kMost = (kRawMost + 4 * THREADS - 1) / (4 * THREADS) * (4 * THREADS);
    const u32 *key;
    u32 n;
    QN_DEVICE static RawSource of(const indexer_params &p, i64 row, u32 n)
    {
        return RawSource{reinterpret_cast<const u32 *>(row_memory(p, row)), n};
    }
    QN_DEVICE u64 operator()(u32 i) const { return candidate(load_l2(key + i), i); }
    template <u32 kEach> QN_DEVICE void load(u64 (&item)[kEach]) const
    {
#pragma unroll
        for (u32 j = 0; j < kEach; j += 4) {
            const u32 i = j * THREADS + 4 * thread_index();
            if (i + 3 < n) {
                const uint4 four = load_polled(reinterpret_cast<const uint4 *>(key + i));
                item[j] = candidate(four.x, i), item[j + 1] = candidate(four.y, i + 1);
                item[j + 2] = candidate(four.z, i + 2), item[j + 3] = candidate(four.w, i + 3);
            } else {
#pragma unroll
                for (u32 k = 0; k < 4; k++) item[j + k] = i + k < n ? (*this)(i + k) : 0;
            }
        }
    }
};

// Whether no share left out what comes before the last of `found` winners. Every thread gets the same.
QN_DEVICE bool records_suffice(const indexer_params &p, i64 row, const Select &s, u32 found, u32 wanted)
{
    __syncthreads();
    const u64 last = found ? (u64)s.word[kLast] << 32 | s.word[kLastLow] : 0;
    bool short_of = found < wanted;
    for (u32 i = thread_index(); i < kShares; i += THREADS) short_of |= load_l2(record_of(p, row, i)) > last;
    return !block_any(short_of);
}
