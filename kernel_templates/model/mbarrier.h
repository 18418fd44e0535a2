// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/mbarrier.cuh and common/fence.cuh. Phases, counts and their faults are the engine's.
#pragma once
#include "engine.h"

static inline void mbarrier_init(unsigned long long *bar, unsigned count, QM_HERE)
{
    qm::need_arch(80, 0, false, QM_AT("mbarrier.init"));
    qm::mbarrier_init(bar, count, QM_AT("mbarrier.init"));
}
static inline void mbarrier_inval(unsigned long long *bar, QM_HERE)
{
    qm::mbarrier_inval(bar, QM_AT("mbarrier.inval"));
}

static inline void fence_mbarrier_init(QM_HERE)
{
    qm::need_arch(90, 0, false, QM_AT("fence.mbarrier_init"));
    qm::fence_proxy_async(QM_AT("fence.mbarrier_init"));
    qm::mbarrier_fence_init(QM_AT("fence.mbarrier_init"));
}

static inline unsigned long long mbarrier_arrive(unsigned long long *bar, QM_HERE)
{
    return qm::mbarrier_arrive(bar, 1, 0, false, QM_AT("mbarrier.arrive"));
}
static inline void mbarrier_arrive_in(unsigned long long *bar, unsigned rank, QM_HERE)
{
    qm::Place at = QM_AT("mbarrier.arrive.shared::cluster");
    qm::need_arch(90, 0, false, at);
    qm::mbarrier_arrive(qm::map_shared(bar, rank, at), 1, 0, false, at);
}
static inline void mbarrier_arrive_in_relaxed(unsigned long long *bar, unsigned rank, QM_HERE)
{
    qm::Place at = QM_AT("mbarrier.arrive.relaxed.cluster.shared::cluster");
    qm::need_arch(90, 0, false, at);
    qm::mbarrier_arrive(qm::map_shared(bar, rank, at), 1, 0, false, at);
}
static inline void mbarrier_arrive_expect_tx(unsigned long long *bar, unsigned bytes, QM_HERE)
{
    qm::need_arch(90, 0, false, QM_AT("mbarrier.arrive.expect_tx"));
    qm::mbarrier_arrive(bar, 1, bytes, false, QM_AT("mbarrier.arrive.expect_tx"));
}
static inline void mbarrier_arrive_expect_tx_in(unsigned long long *bar, unsigned bytes, unsigned rank, QM_HERE)
{
    qm::Place at = QM_AT("mbarrier.arrive.expect_tx.shared::cluster");
    qm::need_arch(90, 0, false, at);
    qm::mbarrier_arrive(qm::map_shared(bar, rank, at), 1, bytes, false, at);
}
static inline void mbarrier_expect_tx(unsigned long long *bar, unsigned bytes, QM_HERE)
{
    qm::need_arch(90, 0, false, QM_AT("mbarrier.expect_tx"));
    qm::mbarrier_expect_tx(bar, bytes, QM_AT("mbarrier.expect_tx"));
}

static inline bool mbarrier_test_wait(unsigned long long *bar, unsigned long long state, QM_HERE)
{
    bool done = qm::mbarrier_test_state(bar, state, false, QM_AT("mbarrier.test_wait"));
    if (!done) qm::spin(QM_AT("mbarrier.test_wait")); // a loop may have nothing else in it
    return done;
}
static inline bool mbarrier_test_wait_parity(unsigned long long *bar, unsigned parity, QM_HERE)
{
    bool done = qm::mbarrier_test_parity(bar, parity, false, QM_AT("mbarrier.test_wait.parity"));
    if (!done) qm::spin(QM_AT("mbarrier.test_wait.parity"));
    return done;
}
static inline bool mbarrier_try_wait_parity(unsigned long long *bar, unsigned parity, QM_HERE)
{
    qm::need_arch(90, 0, false, QM_AT("mbarrier.try_wait.parity"));
    return qm::mbarrier_test_parity(bar, parity, true, QM_AT("mbarrier.try_wait.parity"));
}
static inline bool mbarrier_try_wait_parity_cluster(unsigned long long *bar, unsigned parity, QM_HERE)
{
    qm::need_arch(90, 0, false, QM_AT("mbarrier.try_wait.parity.acquire.cluster"));
    return qm::mbarrier_test_parity(bar, parity, true, QM_AT("mbarrier.try_wait.parity.acquire.cluster"));
}

// ---- common/fence.cuh. The engine keeps one mark for all spaces: the narrower fences are modelled as the wide one.

static inline void fence_proxy_async(QM_HERE)
{
    qm::need_arch(90, 0, false, QM_AT("fence.proxy.async"));
    qm::fence_proxy_async(QM_AT("fence.proxy.async"));
}
static inline void fence_proxy_async_shared(QM_HERE)
{
    qm::need_arch(90, 0, false, QM_AT("fence.proxy.async.shared::cta"));
    qm::fence_proxy_async(QM_AT("fence.proxy.async.shared::cta"));
}
static inline void fence_proxy_async_global(QM_HERE)
{
    qm::need_arch(90, 0, false, QM_AT("fence.proxy.async.global"));
    qm::fence_proxy_async(QM_AT("fence.proxy.async.global"));
}
static inline void fence_cluster(QM_HERE)
{
    qm::need_arch(90, 0, false, QM_AT("fence.acq_rel.cluster"));
    qm::thread_fence(qm::SCOPE_CLUSTER, QM_AT("fence.acq_rel.cluster"));
}
