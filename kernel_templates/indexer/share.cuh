// SPDX-License-Identifier: Apache-2.0
// A share of a row, whatever scores it: candidates in shared memory, the record that goes to the CTA that ends the row, and
// what that one makes of all records. The plans "fused" and "wgmma"; run_row.cuh runs it.
//
// Prologue: SHARES, LOCAL_K, ROOM (places of a record), RECORD_BYTES (as the host counted them). Before this file:
// kUnitEntries, kEndsTogether (run_row.cuh).
#pragma once

#include "../common/async_copy.cuh"
#include "deal.cuh"
#include "finish.cuh"

static_assert(SHARES >= 1 && SHARES <= 128 && (SHARES & (SHARES - 1)) == 0, "SHARES: a power of two up to 128");
static_assert(SHARES == 1 || (LOCAL_K <= ROOM && SHARES * ROOM <= CAP && SHARES * LOCAL_K >= K && ROOM % 2 == 0),
              "LOCAL_K, ROOM, CAP");
static_assert(LOCAL_K <= 2048 && CAP >= LOCAL_K + 512 && CAP / 4 * 3 > K + 256, "LOCAL_K, CAP");

constexpr u32 kTickets = INDEXER_TICKETS;
constexpr u32 kShares = SHARES;
constexpr u32 kRoom = ROOM;
constexpr u64 kRecordBytes = 8 * (2 + (u64)ROOM); // bound, nothing, candidates
constexpr u32 kRawMost = INDEXER_RAW_SCORES;      // in order
static_assert(kRecordBytes == RECORD_BYTES, "the sizes of ops/indexer.c");
constexpr u64 kRowBytes = kShares * kRecordBytes > 4 * kRawMost ? kShares *kRecordBytes : 4 * kRawMost;
static_assert(SHARES == 1 || 4 * kRawMost <= 8 * CAP, "CAP: a short row's scores");

// ---- candidates

struct Scan {
    u64 last; // of those kept, 0: none were left out
    Extremes extremes;
    bool met;   // a short row whose CTAs end it together: its scores go to kRawAt, as words (row_together.cuh)
    bool whole; // all scores of the share stay where run_batch left them: one batch
    bool raw;   // a short row: its scores go to kRawAt, as bits_of has them; else candidates are kept here
};

// One candidate a lane, or 0. place: where it goes in the first batch.
QN_DEVICE void put_candidate(const Select &s, Scan &scan, bool mine, u32 place, u64 item)
{
    if (scan.raw) {
        u32 *to = reinterpret_cast<u32 *>((u64)s.word[kRawAtHigh] << 32 | s.word[kRawAt]);
        if (mine && item) to[candidate_index(item)] = bits_of(candidate_key(item));
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
    if (mine) extend(scan.extremes, candidate_key(item)); // an empty one is like NaN
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
    return p.workspace + STATE_BYTES + (u64)row * kRowBytes;
}
QN_DEVICE u64 *record_of(const indexer_params &p, i64 row, u32 share)
{
    return reinterpret_cast<u64 *>(row_memory(p, row) + share * kRecordBytes);
}

struct PutRecord {
    u64 *record;
    u32 *least; // of the keys that were put
    QN_DEVICE void operator()(u32 place, u64 item) const
    {
        record[2 + place] = item;
        *least = min(*least, candidate_key(item));
    }
};

// A share's first LOCAL_K or more of n candidates into its record, but for the bound of what is left out, `bound` so far: after
// a barrier bound_of_record has it. The extremes are in their words. Begins in a barrier.
QN_NOINLINE void store_record(u64 *record, u64 bound, u32 n)
{
    const Select s = select_pieces();
    const KeptItems items = {s.item};
    u32 least = 0xFFFFFFFFu;
    const Range range = range_of_extremes(s.word[kHigh], ~s.word[kLow]);
    clear_fine(s);
    pad_items(s, n);
    __syncthreads(); // n and the extremes are everyone's by now
    if (thread_index() == 0) s.word[kCount] = s.word[kLeast] = s.word[kCrowded] = 0;
    count_fine(s, range, items, n);
    __syncthreads();
    const u32 total = scan_fine(s, LOCAL_K), end = total ? s.word[kEnd] : 0;
    u32 count = end;
    if (end <= kRoom) {
        if (end) scatter_fine(s, range, items, n, PutRecord{record, &least});
    } else {
        count = min((u32)LOCAL_K, total);
        const u64 last = nth_of(items, n, count);
        __syncthreads();
#pragma unroll 1
        for (u32 i = thread_index(); i < n; i += THREADS)
            if (items(i) != 0 && items(i) >= last) record[2 + atomicAdd(&s.word[kCount], 1u)] = items(i);
        if (count < total && last > bound) bound = last;
    }
#pragma unroll 1
    for (u32 i = count + thread_index(); i < kRoom; i += THREADS) record[2 + i] = 0;
    least = warp_min(least);
    if (end <= kRoom && count < total && lane_index() == 0) atomicMax(&s.word[kLeast], ~least);
    if (thread_index() == 0)
        s.word[kRawAt] = (u32)bound, s.word[kRawAtHigh] = (u32)(bound >> 32); // not needed any more
}

QN_DEVICE u64 bound_of_record(const Select &s)
{
    const u64 bound = (u64)s.word[kRawAtHigh] << 32 | s.word[kRawAt];
    const u32 least = s.word[kLeast]; // of the keys that were put, the complement; 0: nothing else was left out
    return least ? max(bound, (u64)~least << 32) : bound; // above all keys of later bins
}

// True in the CTA that ends the row: all that the others left is then to be seen, and finish_row may follow. raw: a short row,
// else the share's record lacks its bound. Begins and ends in a barrier.
QN_DEVICE bool is_last_share(const indexer_params &p, i64 row, bool raw, const Select &s)
{
    if (thread_index() == 0) {
        if (!raw) record_of(p, row, blockIdx.x % kShares)[0] = bound_of_record(s);
        fence_device();
        s.word[kTicket] = atomic_increment_wrapped(reinterpret_cast<u32 *>(p.workspace) + row, kShares - 1);
        fence_device();
        clear_words(s);
    }
    clear_fine(s);
    __syncthreads();
    return s.word[kTicket] == kShares - 1;
}

// ---- what they left, into shared memory

// All copies are on their way at once. Ends in a barrier.
QN_DEVICE RawItems load_raw(const indexer_params &p, i64 row, u32 n)
{
    const u8 *from = row_memory(p, row);
    u8 *to = reinterpret_cast<u8 *>(select_pieces().item);
#pragma unroll 1
    for (u32 i = 4 * thread_index(); i < n; i += 4 * THREADS)
        cp_async_cg_zfill(to + 4 * i, from + 4 * i, 4 * min(n - i, 4u));
    cp_async_wait_all();
    __syncthreads();
    return RawItems{reinterpret_cast<const u32 *>(to)};
}

QN_DEVICE KeptItems load_records(const indexer_params &p, i64 row)
{
    u64 *to = select_pieces().item;
#pragma unroll 1
    for (u32 i = thread_index(); i < kShares * (kRoom / 2); i += THREADS)
        cp_async_cg(to + 2 * i, record_of(p, row, i / (kRoom / 2)) + 2 + i % (kRoom / 2) * 2);
    cp_async_wait_all();
    __syncthreads();
    return KeptItems{to};
}

// Whether no share left out what comes before the last of `found` winners. Every thread gets the same.
QN_DEVICE bool records_suffice(const indexer_params &p, i64 row, u32 found, u32 wanted)
{
    const Select s = select_pieces();
    __syncthreads();
    const u64 last = found ? (u64)s.word[kLast] << 32 | s.word[kLastLow] : 0;
    bool short_of = found < wanted;
    for (u32 i = thread_index(); i < kShares; i += THREADS) short_of |= load_l2(record_of(p, row, i)) > last;
    return !block_any(short_of);
}
