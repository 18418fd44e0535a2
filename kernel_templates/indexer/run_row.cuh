// SPDX-License-Identifier: Apache-2.0
// A row by the plans "fused" and "wgmma": its share scored in batches, its record, and the end of the row by the last CTA.
//
// Before this file, the kernel's: Shared with `select` in it; Early (what is loaded before anything is waited for) and
// load_early; prepare_row (of q, from Early; ends before a barrier); Flow, begin_flow and run_batch (units begin … end - 1 of
// a share).
#pragma once

#include "share.cuh"

// All of a share. Returns the candidates that lie in shared memory: all of it, or its first `wanted` or more.
// Begins and ends in a barrier.
QN_DEVICE u32 run_share(const indexer_params &p, const Shared &s, const Share &share, u32 wanted, const Early &early,
                        bool prepare, Scan &scan)
{
    Flow flow = {};
    u32 n = 0, begin = 0;
    scan.last = 0;
    scan.extremes = Extremes{0u, 0xFFFFFFFFu};
    for (;;) {
        const u32 end = min(share.units, begin + (kCapacity - n) / kUnitResults);
        begin_flow(p, share, begin, end, flow);
        if (prepare && begin == 0) prepare_row(p, s, share.row, early);
        if (thread_index() == 0) {
            s.select.word[kCount] = n;
            if (begin == 0) s.select.word[kHigh] = s.select.word[kLow] = 0;
        }
        __syncthreads();
        run_batch(p, s, share, begin, flow, scan);
        share_extremes(s.select, scan.extremes);
        __syncthreads();
        n = scan.raw ? 0 : scan.last ? s.select.word[kCount] : end * kUnitResults;
        begin = end;
        if (begin >= share.units) return n;
        __syncthreads();
        if (kCapacity - n >= kCapacity / 4) continue;
        n = compact(s.select, scan, n, wanted);
    }
}

QN_DEVICE void do_row(const indexer_params &p, const Shared &s)
{
    const u32 most = kShares > 1 ? (u32)p.shares : 1u;
    const Row row = row_of(p, blockIdx.x / most);
    const Early early = load_early(p, row);
    const u32 wanted = min((u32)K, row.results);
    const bool raw = most > 1 && row.results <= kRawMost;
    Scan scan = {};
    if (raw) scan.raw = reinterpret_cast<u32 *>(row_memory(p, row.number));
#pragma unroll 1
    for (u32 shares = most;; shares = 1) {
        const bool again = shares != most;
        const Share share = share_of(row, again ? 0u : blockIdx.x % most, shares);
        const u32 n = run_share(p, s, share, shares > 1 ? (u32)LOCAL_K : (u32)K, early, !again, scan);
        if (shares == 1) {
            begin_finish(s.select);
            (void)finish_from<SharedSource>(p, row.number, n, wanted);
            return;
        }
        if (!raw && n <= 4 * THREADS)
            store_record<4>(p, row.number, share.number, scan.last, n);
        else if (!raw)
            store_record<each_of(kCapacity)>(p, row.number, share.number, scan.last, n);
        if (!is_last_share(p, row.number, s.select)) return;
        if (raw) {
            (void)finish_from<RawSource>(p, row.number, row.results, wanted);
            return;
        }
        const u32 found = finish_from<RecordSource>(p, row.number, kShares * kRoom, wanted);
        if (records_suffice(p, row.number, s.select, found, wanted)) return;
    }
}
