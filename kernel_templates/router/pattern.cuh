// SPDX-License-Identifier: Apache-2.0
// How blocks of 64 elements of D lie in shared memory for wgmma and TMA.
#pragma once

#include "../common/types.cuh"

// 8 rows with the 128-byte swizzle: unit u of row r lies at u ^ r.
struct alignas(1024) Pattern {
    uint4 unit[64];
};
