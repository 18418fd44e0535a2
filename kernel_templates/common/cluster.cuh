// SPDX-License-Identifier: Apache-2.0
// Exchange between the CTAs of a cluster (sm_90). A cluster barrier is two halves: arrive says "my stores are done",
// wait "so are everyone's". Quicker where the receiver knows how much will come: cluster_send and an mbarrier.
#pragma once

#include "mbarrier.cuh"
#include "send.cuh"
#include "warp.cuh"

QN_DEVICE void cluster_sync()
{
    cluster_arrive();
    cluster_wait();
}

// Copies `vectors` 16-byte vectors of this CTA's shared memory to the place `to` of every CTA of the cluster, a warp a
// peer: contiguous stores, since scattered small ones to a peer are several times slower. Counted on the mbarrier at the
// place `bar` of every CTA: 16 * vectors bytes each.
template <int kCluster> QN_DEVICE void cluster_send(uint4 *to, const uint4 *from, u32 vectors, u64 *bar)
{
    const u32 lane = threadIdx.x % kWarp;
#pragma unroll 1
    for (u32 peer = threadIdx.x / kWarp; peer < kCluster; peer += THREADS / kWarp) {
#pragma unroll 1
        for (u32 i = lane; i < vectors; i += kWarp) st_async(to + i, from[i], bar, peer);
    }
}
