// SPDX-License-Identifier: Apache-2.0
// elect.sync and setmaxnreg: which lane works for its warp, and how many registers a warpgroup's threads have. sm_90
#pragma once

#include "types.cuh"

#ifndef QN_MODEL

// elect.sync: true in one lane of the mask, always the same for a mask; which one is not specified. sm_90
QN_DEVICE bool elect_sync(u32 mask)
{
    u32 elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, %1;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(elected)
                 : "r"(mask)
                 : "memory");
    return elected != 0;
}

// setmaxnreg.inc.sync.aligned.u32: waits until the CTA can give each thread of the warpgroup `Count` registers (24 …
// 256, a multiple of 8, at least the present count). All warps of the warpgroup together. sm_90a, sm_100a
template <int Count> QN_DEVICE void setmaxnreg_inc()
{
    static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0, "setmaxnreg takes 24 … 256, a multiple of 8");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

// setmaxnreg.dec.sync.aligned.u32: gives registers back, down to `Count` a thread. sm_90a, sm_100a
template <int Count> QN_DEVICE void setmaxnreg_dec()
{
    static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0, "setmaxnreg takes 24 … 256, a multiple of 8");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

#endif
