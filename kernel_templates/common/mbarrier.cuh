// SPDX-License-Identifier: Apache-2.0
// mbarrier: 8 bytes of shared memory that count arrivals and bytes of copies, phase by phase.
//
// A phase ends when its arrivals are in and no byte is outstanding. parity is that of the phase waited for: 0 for the
// first, then 1, 0, …; a fresh mbarrier answers true to parity 1. A wait never lags two phases behind.
//     while (!mbarrier_try_wait_parity(bar, parity)) {}          // the wrapper is the loop's only body
#pragma once

#include "address.cuh"

#ifndef QN_MODEL

// mbarrier.init.shared::cta.b64: `count` arrivals a phase (1 … 2^20 - 1). One thread; others after a barrier. sm_80
QN_DEVICE void mbarrier_init(u64 *bar, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}

// mbarrier.inval.shared::cta.b64: ends the mbarrier; its bytes are ordinary memory again. sm_80
QN_DEVICE void mbarrier_inval(u64 *bar)
{
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
}

// fence.mbarrier_init.release.cluster: this thread's inits are seen by the cluster after the next cluster barrier, and
// by copies. sm_90
QN_DEVICE void fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// mbarrier.arrive.shared::cta.b64: one arrival (release.cta). Returns the state before it, for test_wait. sm_80
QN_DEVICE u64 mbarrier_arrive(u64 *bar)
{
    u64 state;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(bar)) : "memory");
    return state;
}

// mbarrier.arrive.release.cluster.shared::cluster.b64: one arrival on the mbarrier at this place of CTA `rank`. sm_90
QN_DEVICE void mbarrier_arrive_in(u64 *bar, u32 rank)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(shared_address_in(bar, rank))
                 : "memory");
}

// mbarrier.arrive.relaxed.cluster.shared::cluster.b64: the same where no store of this thread needs to be seen: "what I
// read by wgmma I have read". The release above waits for all of the thread's accesses, which takes most of a
// microsecond. sm_90
QN_DEVICE void mbarrier_arrive_in_relaxed(u64 *bar, u32 rank)
{
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(shared_address_in(bar, rank))
                 : "memory");
}

// mbarrier.arrive.expect_tx.shared::cta.b64: `bytes` more are awaited in this phase, and one arrival. sm_90
QN_DEVICE void mbarrier_arrive_expect_tx(u64 *bar, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
                 : "memory");
}

// mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64: the same on the mbarrier of CTA `rank`. sm_90
QN_DEVICE void mbarrier_arrive_expect_tx_in(u64 *bar, u32 bytes, u32 rank)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                     shared_address_in(bar, rank)),
                 "r"(bytes)
                 : "memory");
}

// mbarrier.expect_tx.relaxed.cta.shared::cta.b64: `bytes` more are awaited in this phase; no arrival. sm_90
QN_DEVICE void mbarrier_expect_tx(u64 *bar, u32 bytes)
{
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
                 : "memory");
}

// mbarrier.test_wait.shared::cta.b64: has the phase that `state` was taken in ended (acquire.cta)? sm_80
QN_DEVICE bool mbarrier_test_wait(u64 *bar, u64 state)
{
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(bar)), "l"(state)
                 : "memory");
    return done != 0;
}

// mbarrier.test_wait.parity.shared::cta.b64: has the phase of this parity ended (acquire.cta)? sm_80
QN_DEVICE bool mbarrier_test_wait_parity(u64 *bar, u32 parity)
{
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(bar)), "r"(parity)
                 : "memory");
    return done != 0;
}

// mbarrier.try_wait.parity.shared::cta.b64: the same, sleeping a while first; false means: ask again. sm_90
QN_DEVICE bool mbarrier_try_wait_parity(u64 *bar, u32 parity)
{
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(bar)), "r"(parity)
                 : "memory");
    return done != 0;
}

// mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64: the same for arrivals and data from other CTAs. sm_90
QN_DEVICE bool mbarrier_try_wait_parity_cluster(u64 *bar, u32 parity)
{
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 "
                 "%0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(bar)), "r"(parity)
                 : "memory");
    return done != 0;
}

#endif
