// SPDX-License-Identifier: Apache-2.0
// cp.async: copies of 4, 8 or 16 bytes from global to shared memory without registers. sm_80
//
// Both addresses are aligned to the size. What was copied is visible to the issuing thread after its wait, to others
// after a barrier that follows it; to wgmma and TMA only after fence.proxy.async as well.
#pragma once

#include "address.cuh"

#ifndef QN_MODEL

// cp.async.ca.shared.global, 4, 8 or 16 bytes: through L1. to: shared, from: global. sm_80
template <int Bytes> QN_DEVICE void cp_async_ca(void *to, const void *from)
{
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async.ca copies 4, 8 or 16 bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(Bytes)
                 : "memory");
}

// The same; only the first `valid` bytes are read (0 … Bytes), the others become zero. sm_80
template <int Bytes> QN_DEVICE void cp_async_ca_zfill(void *to, const void *from, u32 valid)
{
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async.ca copies 4, 8 or 16 bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(Bytes),
                 "r"(valid)
                 : "memory");
}

// cp.async.cg.shared.global, 16 bytes: past L1. sm_80
QN_DEVICE void cp_async_cg(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// The same; only the first `valid` bytes are read (0 … 16), the others become zero. sm_80
QN_DEVICE void cp_async_cg_zfill(void *to, const void *from, u32 valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid)
                 : "memory");
}

// cp.async.commit_group: closes the group of this thread's copies so far (which may be empty). sm_80
QN_DEVICE void cp_async_commit_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// cp.async.wait_group: until at most the `Pending` latest groups of this thread are unfinished. sm_80
template <int Pending> QN_DEVICE void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// cp.async.wait_all: until all copies of this thread are finished, those in no group too. sm_80
QN_DEVICE void cp_async_wait_all()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// cp.async.mbarrier.arrive.noinc.shared::cta.b64: one arrival on the mbarrier, counted by its init, when all
// cp.async of this thread so far are finished. sm_80
QN_DEVICE void cp_async_mbarrier_arrive_noinc(u64 *bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
}

#endif
