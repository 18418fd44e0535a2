// SPDX-License-Identifier: Apache-2.0
// Reductions and scans over the 32 lanes of a warp. All lanes take part; results are the same in every lane unless said.
#pragma once

#include "device.cuh"

// Sum in a fixed order (a tree), so that its bits never vary.
QN_DEVICE float warp_sum(float x)
{
    for (int distance = kWarp / 2; distance; distance >>= 1) x += __shfl_xor_sync(kFullMask, x, distance);
    return x;
}

QN_DEVICE u32 warp_sum(u32 x)
{
    return __reduce_add_sync(kFullMask, x);
}
QN_DEVICE u32 warp_max(u32 x)
{
    return __reduce_max_sync(kFullMask, x);
}
// Over numbers; a NaN loses to them.
QN_DEVICE float warp_max(float x)
{
    for (int distance = kWarp / 2; distance; distance >>= 1) x = fmaxf(x, __shfl_xor_sync(kFullMask, x, distance));
    return x;
}
QN_DEVICE u32 warp_min(u32 x)
{
    return __reduce_min_sync(kFullMask, x);
}

// x, which is the same in every lane, in a form in which the compiler knows that: it may then lie in a uniform register.
QN_DEVICE u32 warp_uniform(u32 x)
{
    return warp_max(x);
}
QN_DEVICE float warp_uniform(float x)
{
    return __uint_as_float(warp_max(__float_as_uint(x)));
}

// Sum over this lane and those below it.
QN_DEVICE u32 warp_inclusive_sum(u32 x)
{
    const int lane = (int)threadIdx.x % kWarp;
    for (int distance = 1; distance < kWarp; distance <<= 1) {
        u32 below = __shfl_up_sync(kFullMask, x, distance);
        if (lane >= distance) x += below;
    }
    return x;
}

// How many lanes below this one have their bit set.
QN_DEVICE u32 lanes_below(u32 ballot)
{
    return (u32)__popc(ballot & ((1u << (threadIdx.x % kWarp)) - 1u));
}
