// SPDX-License-Identifier: Apache-2.0
// One mma m16n8k16 of the router's 16-bit type. Used by the plans fragments and tiles.
//
// Prologue: problem.cuh's.
#pragma once

#include "../common/mma.cuh"
#include "problem.cuh"

static_assert(X_TYPE == W_TYPE && X_TYPE != 1, "X_TYPE, W_TYPE: the same, of 16 bits");

QN_DEVICE void multiply_add(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    if constexpr (X_TYPE == 3)
        mma_m16n8k16_f32_bf16(c, a, b, c);
    else
        mma_m16n8k16_f32_f16(c, a, b, c);
}
