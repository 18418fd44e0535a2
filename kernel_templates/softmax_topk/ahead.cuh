// SPDX-License-Identifier: Apache-2.0
// The first vectors of a row, copied to shared memory while the threshold is found, when the memory would be idle. They
// are asked for once the sample is there: before, they would be in its way.
//
// Prologue, besides problem.cuh's: AHEAD, vectors a thread (0: none; more from sm_90 on).
#pragma once

#include "../common/bulk.cuh"
#include "../common/mbarrier.cuh"
#include "row.cuh"

constexpr u32 kAhead = AHEAD * THREADS; // vectors
static_assert(AHEAD == 0 || (!BATCH_INVARIANT && kAhead < kV / kPerVector), "AHEAD: less than a row");

struct Ahead {
    uint4 *vector; // [kAhead], from the row's (share's) first one on
    u64 *here;     // [AHEAD], mbarriers: a step of THREADS vectors has come
};

// The thread that asks.
QN_DEVICE bool ahead_asks()
{
    return thread_index() == THREADS - kWarp;
}

// Before the sample is waited for. A first vector that the row's start cuts is put together by hand; it is there after the
// next barrier.
QN_DEVICE void ahead_begin(const Ahead &ahead, const Row &row, u32 begin)
{
    if (thread_index() == 0 && !row_has_whole(row, begin)) ahead.vector[0] = row_load_cut(row, begin);
    if (!ahead_asks()) return;
#pragma unroll 1
    for (u32 step = 0; step < AHEAD; step++) mbarrier_init(ahead.here + step, 1);
    fence_mbarrier_init();
}

// A barrier comes between this and ahead_vector.
QN_DEVICE void ahead_ask(const Ahead &ahead, const Row &row, u32 begin)
{
    if (!ahead_asks()) return;
    u32 first = row_has_whole(row, begin) ? 0 : 1;
#pragma unroll 1
    for (u32 step = 0; step < AHEAD; step++) {
        const u32 end = (step + 1) * THREADS, bytes = (end - first) * 16;
        mbarrier_arrive_expect_tx(ahead.here + step, bytes);
        cp_async_bulk_load(ahead.vector + first, row.vectors + begin + first, bytes, ahead.here + step);
        first = end;
    }
}

// This thread's vector of a step; waits for it.
QN_DEVICE uint4 ahead_vector(const Ahead &ahead, u32 step)
{
    while (!mbarrier_try_wait_parity(ahead.here + step, 0)) {
    }
    return ahead.vector[step * THREADS + thread_index()];
}
