// SPDX-License-Identifier: Apache-2.0
// Fences between this thread's accesses and asynchronous ones, and within a cluster. sm_90
//
// wgmma, TMA and bulk copies read and write through the async proxy: what a thread stored to shared memory (st,
// stmatrix, cp.async) is theirs to read only after the thread's fence_proxy_async and a barrier.
#pragma once

#include "types.cuh"

#ifndef QN_MODEL

// fence.proxy.async: orders this thread's accesses, to all memory, with those of the async proxy. sm_90
QN_DEVICE void fence_proxy_async()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

// fence.proxy.async.shared::cta: the same, for this CTA's shared memory only. sm_90
QN_DEVICE void fence_proxy_async_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// fence.proxy.async.global: the same, for global memory only. sm_90
QN_DEVICE void fence_proxy_async_global()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

// fence.acq_rel.cluster: this thread's earlier accesses come before its later ones for the whole cluster. sm_90
QN_DEVICE void fence_cluster()
{
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
}

#endif
