// SPDX-License-Identifier: Apache-2.0
// Reductions and scans over a CTA of THREADS threads (a multiple of 32). Every thread takes part. Scratch is passed in:
// one word a warp; the caller puts a barrier between two uses of the same scratch.
#pragma once

#include "warp.cuh"

constexpr int kWarps = THREADS / kWarp;
static_assert(THREADS % kWarp == 0 && THREADS >= 32 && THREADS <= 1024, "THREADS: whole warps, 32 to 1024");

// Sum in a fixed order: a tree in each warp, then one over the warps. Holds one barrier.
QN_DEVICE float block_sum(float x, float *scratch) // [kWarps]
{
    x = warp_sum(x);
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = x;
    __syncthreads();
    return warp_sum(threadIdx.x % kWarp < kWarps ? scratch[threadIdx.x % kWarp] : 0.f);
}

QN_DEVICE u32 block_sum(u32 x, u32 *scratch) // [kWarps]
{
    x = warp_sum(x);
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = x;
    __syncthreads();
    return warp_sum(threadIdx.x % kWarp < kWarps ? scratch[threadIdx.x % kWarp] : 0u);
}

// Sum over the threads before this one; *total is over all. Holds one barrier.
QN_DEVICE u32 block_exclusive_sum(u32 x, u32 *scratch, u32 *total) // [kWarps]
{
    const u32 lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, inclusive = warp_inclusive_sum(x);
    if (lane == kWarp - 1) scratch[warp] = inclusive;
    __syncthreads();
    const u32 whole = lane < kWarps ? scratch[lane] : 0u; // of a warp
    *total = warp_sum(whole);
    return inclusive - x + warp_sum(lane < warp ? whole : 0u);
}
