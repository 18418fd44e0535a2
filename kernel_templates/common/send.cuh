// SPDX-License-Identifier: Apache-2.0
// st.async: a store to the shared memory of a CTA of the cluster that reports to an mbarrier there. Who waits on that
// mbarrier (mbarrier_try_wait_parity_cluster) sees what was stored; no fence and no barrier of the cluster is needed, which
// is what makes it quicker than a store and a barrier: a barrier's release waits for every access of the CTA. sm_90
#pragma once

#include "address.cuh"

#ifndef QN_MODEL

// st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32: 16 bytes to the place `to` of CTA `rank`, which may
// be this one; 16 bytes are counted on that CTA's mbarrier at the place `bar`. sm_90
QN_DEVICE void st_async(uint4 *to, const uint4 &value, u64 *bar, u32 rank)
{
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
            shared_address_in(to, rank)),
        "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(shared_address_in(bar, rank))
        : "memory");
}

#endif
