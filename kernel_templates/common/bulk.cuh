// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk: copies of a whole run of bytes by the copy engine, issued by one thread. sm_90
//
// Addresses and sizes are multiples of 16. Loads complete on an mbarrier (its phase must await the bytes: expect_tx);
// stores belong to this thread's bulk groups. Shared memory that other threads wrote is read only after their
// fence_proxy_async_shared and a barrier.
#pragma once

#include "address.cuh"

#ifndef QN_MODEL

// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes: to and bar: this CTA's shared memory, from:
// global. sm_90
QN_DEVICE void cp_async_bulk_load(void *to, const void *from, u32 bytes, u64 *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(bar))
                 : "memory");
}

// The same with .multicast::cluster: to the same place of every CTA whose rank is in the mask, counted on its mbarrier.
// sm_90
QN_DEVICE void cp_async_bulk_load_multicast(void *to, const void *from, u32 bytes, u64 *bar, u16 ranks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(bar)), "h"(ranks)
                 : "memory");
}

// cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes: from this CTA's shared memory to the place
// `to` of CTA `rank` (another one), counted on that CTA's mbarrier at the place `bar`. sm_90
QN_DEVICE void cp_async_bulk_send(void *to, const void *from, u32 bytes, u64 *bar, u32 rank)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address_in(to, rank)),
                 "r"(shared_address(from)), "r"(bytes), "r"(shared_address_in(bar, rank))
                 : "memory");
}

// cp.async.bulk.global.shared::cta.bulk_group: to: global, from: this CTA's shared memory. sm_90
QN_DEVICE void cp_async_bulk_store(void *to, const void *from, u32 bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group "
                 "[%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

// cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32: adds to global memory, to nearest even. sm_90
QN_DEVICE void cp_reduce_async_bulk_add_f32(float *to, const float *from, u32 bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

// cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32: adds to global memory. sm_90
QN_DEVICE void cp_reduce_async_bulk_add_u32(u32 *to, const u32 *from, u32 bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

// cp.async.bulk.commit_group: closes the group of this thread's bulk stores so far (bulk.cuh and tma.cuh). sm_90
QN_DEVICE void cp_async_bulk_commit_group()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// cp.async.bulk.wait_group: until at most the `Pending` latest bulk groups of this thread are unfinished. sm_90
template <int Pending> QN_DEVICE void cp_async_bulk_wait_group()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

// cp.async.bulk.wait_group.read: until at most the `Pending` latest bulk groups still have their source to read. sm_90
template <int Pending> QN_DEVICE void cp_async_bulk_wait_group_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// cp.async.bulk.prefetch.L2.global: a hint; address and size are multiples of 16, inside the tensor. sm_90
QN_DEVICE void cp_async_bulk_prefetch_l2(const void *from, u32 bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

#endif
