// SPDX-License-Identifier: Apache-2.0
// Counters of a module: whoever loads the module may read them by name; no kernel does.
#pragma once

#include "types.cuh"

#ifndef QN_MODEL

// Declares a counter, 0 when the module is loaded.
#define QN_TALLY(name)                                                                                                 \
    extern "C" {                                                                                                       \
    __device__ u32 name;                                                                                               \
    }

// red.global.add.u32: counts one. All.
QN_DEVICE void tally(u32 *counter)
{
    atomicAdd(counter, 1u);
}

#endif
