// SPDX-License-Identifier: Apache-2.0
// A row by the plans "fused" and "wgmma": its share scored in batches, its record, and the end of the row: by the
// last CTA ("fused") or by all at once ("wgmma", row_together.cuh).
//
// Before this file, the kernel's: Shared with `select` in it; Early (what is loaded before anything is waited for), load_early
// and begin_early (the first units, with its help); prepare_row (of q, from Early; ends before a barrier); Flow, begin_flow,
// run_batch (units begin … end - 1 of a share) and take_batch (its scores, where run_batch has not put them);
// kEndsTogether (row_together.cuh, else one CTA ends the row), batch_scores and all_rows_word for that; kAgainApart (do_row).
#pragma once

#include "row_together.cuh"

constexpr bool kUnitsTold = kAgainApart || kEndsTogether;

// Where scores go.
QN_DEVICE void set_mode(const indexer_params &p, u32 results, u32 units, bool again, Scan &scan)
{
    const bool shared = kShares > 1 && !again && p.shares > 1;
    scan.met = shared && kScoresMeet && results <= kRawMost;
    scan.whole = shared && kEndsTogether && !scan.met && units <= kWhole / kUnitResults;
    scan.raw = shared && !kEndsTogether && results <= kRawMost;
}

// Before the first batch, after a barrier.
QN_DEVICE void begin_meeting(const indexer_params &p, const Select &s, bool met)
{
    if (p.shares == 1) return;
    clear_other_area(p, s);
    if (met)
        begin_scores(own_pieces(), s.word[kShareUnits],
                     reinterpret_cast<u32 *>((u64)s.word[kRawAtHigh] << 32 | s.word[kRawAt]));
}

// All of a share. Returns the candidates that lie in shared memory: all of it, or its first `wanted` or more.
// Begins and ends in a barrier.
QN_DEVICE u32 run_share(const indexer_params &p, const Shared &s, const Share &share, u32 wanted, const Early &early,
                        bool prepare, Scan &scan)
{
    Flow flow = {};
    u32 n = 0, begin = 0, end = min(share.units, (scan.whole ? kWhole : kCapacity) / kUnitResults);
    scan.last = 0;
    scan.extremes = Extremes{0u, 0xFFFFFFFFu};
    if (prepare)
        begin_early(p, share, end, early, flow);
    else
        begin_flow(p, share, begin, end, flow);
    if (prepare || kEndsTogether) prepare_row(p, s, share.row, early);
    if (thread_index() == 0) s.select.word[kHigh] = s.select.word[kLow] = 0, s.select.word[kShareUnits] = share.units;
    for (;;) {
        if (thread_index() == 0) s.select.word[kCount] = n, s.select.word[kEnd] = end;
        __syncthreads();
        if (kEndsTogether && begin == 0) begin_meeting(p, s.select, scan.met);
        run_batch(p, s, share, begin, flow, scan);
        if (kEndsTogether) { // not kept where registers are short
            end = s.select.word[kEnd];
            set_mode(p, s.select.word[kResults], s.select.word[kShareUnits], !prepare, scan);
        }
        if (!scan.met && !scan.whole) {
            take_batch(p, s, share, begin, end, scan);
            share_extremes(s.select, scan.extremes);
        }
        __syncthreads();
        n = scan.raw || scan.met ? 0
            : scan.whole         ? end * kUnitResults
            : scan.last          ? s.select.word[kCount]
                                 : end * kUnitResults;
        begin = end;
        const u32 units = kUnitsTold ? s.select.word[kShareUnits] : share.units; // not kept where registers are short
        if (begin >= units) return n;
        __syncthreads();
        if (kCapacity - n < kCapacity / 4) n = compact(s.select, scan, n, wanted);
        end = min(units, begin + (kCapacity - n) / kUnitResults);
        begin_flow(p, share, begin, end, flow);
    }
}

// What is needed of a row again lies in shared memory: the scores' loop has no register to spare for it.
QN_DEVICE void tell_row(const indexer_params &p, const Select &s, const Row &row, bool shared, const uint4 &meeting)
{
    u64 raw = 0;
    s.word[kResults] = row.results;
    if constexpr (kEndsTogether) {
        s.word[kLast] = 0;
        if (shared) {
            tell_meeting(s, meeting);
            raw = reinterpret_cast<u64>(meeting_row(p, s.word[kTicket], row.number)) +
                  blockIdx.x % kShares * (kScoresMeet && row.results <= kRawMost ? kOwn * 4 : kList * 8);
        }
    } else {
        raw = reinterpret_cast<u64>(row_memory(p, row.number));
    }
    s.word[kRawAt] = (u32)raw, s.word[kRawAtHigh] = (u32)(raw >> 32);
}

QN_DEVICE i64 row_number(const indexer_params &p) // SHARES is a power of two, or there is one CTA a row
{
    return p.shares == 1 ? blockIdx.x : blockIdx.x / kShares;
}

QN_DEVICE i64 number_of(const indexer_params &p, bool again)
{
    return kEndsTogether && again ? (i64)*again_word() : row_number(p);
}

constexpr i64 kNoRow = -1;

// By the last CTA of a launch that others left: what they would have done, of rows from `first` on. The number of a row that is
// to be gone through, if there is one.
QN_NOINLINE i64 end_left_rows(const indexer_params &p, i64 first)
{
    const u32 launch = (load_meeting(p).w >> 16) - 1; // the words are the next launch's
    u32 *left = left_words(meeting_words(p));
    if (first == 0) wait_for_left(left, *all_rows_word());
#pragma unroll 1
    for (i64 number = first; number < gridDim.x / kShares; number++)
        if (!end_left_row(p, launch, number, row_of(p, number).results)) return number;
    __syncthreads();
    for (u32 i = thread_index(); i < gridDim.x; i += THREADS) store_polled(left + i, 0u);
    return kNoRow;
}

// What follows the share's scores where all CTAs end the row: the row to go through by itself. Numbers are made again rather than
// kept, as registers are short.
QN_DEVICE i64 end_share_together(const indexer_params &p, u32 n, const Scan &scan)
{
    const Select s = select_pieces();
    if (!scan.met) publish_list(n, scan.whole);
    const Met m = met_of(p, s, row_number(p));
    const Ended ended = scan.met ? end_by_scores(m) : end_by_lists(m, scan.whole);
    if (ended == kLeft) return kNoRow;
    const bool first = blockIdx.x % kShares == 0;
    if (first) pad_winners(output_of(p, row_number(p)), min((u32)K, s.word[kResults]));
    if (QN_UNLIKELY(*all_rows_word() != 0)) return end_left_rows(p, 0);
    return first && ended == kShort ? row_number(p) : kNoRow;
}

// What follows the share's scores: n candidates, and the last of those kept. kNoRow: the row is done, or another CTA ends it;
// else the number of one that is to be gone through again. Begins in a barrier.
QN_DEVICE i64 end_share(const indexer_params &p, u32 shares, u32 n, const Scan &scan, bool again)
{
    if constexpr (kEndsTogether)
        if (shares > 1) return end_share_together(p, n, scan);
    const Select s = select_pieces();
    const i64 number = number_of(p, again);
    const u32 results = s.word[kResults], wanted = min((u32)K, results);
    const Output to = output_of(p, number);
    if (shares == 1) {
        begin_finish(n);
        (void)finish_row(to, KeptItems{s.item}, n, wanted);
        if constexpr (kEndsTogether)
            if (again && *all_rows_word() != 0) return end_left_rows(p, number + 1);
        return kNoRow;
    }
    if constexpr (!kEndsTogether) {
        if (!scan.raw) {
            store_record(record_of(p, number, blockIdx.x % kShares), scan.last, n);
            __syncthreads();
        }
        if (!is_last_share(p, number, scan.raw, s)) return kNoRow;
        if (scan.raw) {
            (void)finish_row(to, load_raw(p, number, results), results, wanted);
            return kNoRow;
        }
        const u32 found = finish_row(to, load_records(p, number), kShares * kRoom, wanted);
        if (!records_suffice(p, number, found, wanted)) return number;
    }
    return kNoRow;
}

// A share from its first load on; `again`: all of the row that is told in again_word, by this CTA alone. Returns as end_share.
QN_DEVICE i64 do_share(const indexer_params &p, const Shared &s, bool again)
{
    const u32 most = kShares > 1 ? (u32)p.shares : 1u, shares = again ? 1u : most;
    const i64 number = number_of(p, again);
    uint4 meeting = {};
    if (kEndsTogether && shares > 1 && thread_index() == 0) meeting = load_meeting(p);
    Early early = {};
    if (!again) early = load_early(p, number);
    const Row row = row_of(p, number);
    const Share share = share_of(row, again || most == 1 ? 0u : blockIdx.x % kShares, shares);
    Scan scan = {};
    set_mode(p, row.results, share.units, again, scan);
    if (thread_index() == 0) tell_row(p, s.select, row, shares > 1, meeting);
    const u32 n = run_share(p, s, share, shares > 1 ? (u32)LOCAL_K : (u32)K, early, !again, scan);
    return end_share(p, shares, n, scan, again);
}

QN_NOINLINE void do_row_again(const indexer_params &p)
{
    (void)do_share(p, shared_pieces(), true);
}

QN_DEVICE bool tell_again(const Shared &s, i64 number)
{
    if (number == kNoRow) return false;
    if constexpr (!kEndsTogether) return true; // its own
    __syncthreads();
    if (thread_index() == 0) *again_word() = (u32)number;
    __syncthreads();
    return true;
}

// A second time, alone, if a share held more winners than it kept. kAgainApart: as a function of its own, which needs fewer
// registers, but in which wgmma's products would be waited for one by one.
QN_DEVICE void do_row(const indexer_params &p, const Shared &s)
{
    if constexpr (kAgainApart) {
        if (tell_again(s, do_share(p, s, false))) do_row_again(p);
    } else {
#pragma unroll 1
        for (bool again = false; tell_again(s, do_share(p, s, again)); again = true) {
        }
    }
}
