// SPDX-License-Identifier: Apache-2.0
// A row by the plans "fused" and "wgmma": its share scored in batches, its record, and the end of the row by the last CTA.
//
// Before this file, the kernel's: Shared with `select` in it; Early (what is loaded before anything is waited for) and
// load_early; prepare_row (of q, from Early; ends before a barrier); Flow, begin_flow and run_batch (units begin … end - 1 of
// a share); kEndsInParts (row_end.cuh, else one CTA ends the row); kAgainApart (do_row).
#pragma once

#include "row_end.cuh"

constexpr bool kUnitsTold = kAgainApart || kEndsInParts;

// All of a share. Returns the candidates that lie in shared memory: all of it, or its first `wanted` or more.
// Begins and ends in a barrier.
QN_DEVICE u32 run_share(const indexer_params &p, const Shared &s, const Share &share, u32 wanted, const Early &early,
                        bool prepare, Scan &scan)
{
    Flow flow = {};
    u32 n = 0, begin = 0, end = min(share.units, kCapacity / kUnitResults);
    scan.last = 0;
    scan.extremes = Extremes{0u, 0xFFFFFFFFu};
    begin_flow(p, share, begin, end, flow);
    if (prepare) prepare_row(p, s, share.row, early);
    if (thread_index() == 0) s.select.word[kHigh] = s.select.word[kLow] = 0, s.select.word[kShareUnits] = share.units;
    for (;;) {
        if (thread_index() == 0) s.select.word[kCount] = n;
        __syncthreads();
        run_batch(p, s, share, begin, flow, scan);
        share_extremes(s.select, scan.extremes);
        __syncthreads();
        n = scan.raw ? 0 : scan.last ? s.select.word[kCount] : end * kUnitResults;
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
QN_DEVICE void tell_row(const indexer_params &p, const Select &s, const Row &row)
{
    const u64 raw = reinterpret_cast<u64>(row_memory(p, row.number));
    s.word[kResults] = row.results;
    s.word[kRawAt] = (u32)raw, s.word[kRawAtHigh] = (u32)(raw >> 32);
}

QN_DEVICE i64 row_number(const indexer_params &p) // SHARES is a power of two, or there is one CTA a row
{
    return p.shares == 1 ? blockIdx.x : blockIdx.x / kShares;
}

// What follows the share's scores: n candidates, and the last of those kept. True: the row is done, or another CTA ends it.
// Begins in a barrier.
QN_DEVICE bool end_share(const indexer_params &p, u32 shares, u32 n, u64 last)
{
    const Select s = select_pieces();
    const u32 results = s.word[kResults], wanted = min((u32)K, results);
    const i64 number = row_number(p);
    const Output to = output_of(p, number);
    if (shares == 1) {
        begin_finish(s, n);
        (void)finish_row(to, KeptItems{s.item}, n, wanted);
        return true;
    }
    const bool raw = results <= kRawMost;
    if (!raw) {
        store_record(record_of(p, number, blockIdx.x % kShares), last, n);
        __syncthreads();
    }
    if constexpr (kEndsInParts) {
        const u32 parts = (u32)p.parts;
        take_ticket(p, number, parts, raw, s);
        const u32 mine = s.word[kTicket];
        const u8 *left = row_memory(p, number);
        if (mine == 0) return true;
        if (raw) return end_parts(to, ShortRow{reinterpret_cast<const u32 *>(left), results}, mine, parts, wanted);
        return end_parts(to, KeptRow{left}, mine, parts, wanted);
    } else {
        if (!is_last_share(p, number, raw, s)) return true;
        if (raw) {
            (void)finish_row(to, load_raw(p, number, results), results, wanted);
            return true;
        }
        const u32 found = finish_row(to, load_records(p, number), kShares * kRoom, wanted);
        return records_suffice(p, number, found, wanted);
    }
}

// A share from its first load on; `again`: all of the row, whose query is prepared already. True: as end_share.
QN_DEVICE bool do_share(const indexer_params &p, const Shared &s, bool again)
{
    const u32 most = kShares > 1 ? (u32)p.shares : 1u, shares = again ? 1u : most;
    const Row row = row_of(p, row_number(p));
    Early early = {};
    if (!again) early = load_early(p, row);
    Scan scan = {};
    scan.raw = shares > 1 && row.results <= kRawMost;
    if (thread_index() == 0) tell_row(p, s.select, row);
    const Share share = share_of(row, again || most == 1 ? 0u : blockIdx.x % kShares, shares);
    const u32 n = run_share(p, s, share, shares > 1 ? (u32)LOCAL_K : (u32)K, early, !again, scan);
    return end_share(p, shares, n, scan.last);
}

QN_NOINLINE void do_row_again(const indexer_params &p)
{
    (void)do_share(p, shared_pieces(), true);
}

// A second time, alone, if a share held more winners than it kept. kAgainApart: as a function of its own, which needs fewer
// registers, but in which wgmma's products would be waited for one by one.
QN_DEVICE void do_row(const indexer_params &p, const Shared &s)
{
    if constexpr (kAgainApart) {
        if (!do_share(p, s, false)) do_row_again(p);
    } else {
#pragma unroll 1
        for (bool again = false; !do_share(p, s, again); again = true) {
        }
    }
}
