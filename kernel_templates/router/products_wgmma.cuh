// SPDX-License-Identifier: Apache-2.0
// wgmma m64nEXPERTSk16 over a block of 64 of D, both operands in shared memory as patterns (pattern.cuh). Used by the plans
// wide, deep and multicast.
//
// Prologue: problem.cuh's.
#pragma once

#include "../common/wgmma.cuh"
#include "pattern.cuh"
#include "problem.cuh"

static_assert(X_TYPE == W_TYPE && X_TYPE != 1, "X_TYPE, W_TYPE: the same, of 16 bits");
static_assert(EXPERTS % 8 == 0 && EXPERTS <= 256, "EXPERTS: a multiple of 8, 256 at most");

constexpr u32 kSums = EXPERTS / 2; // a thread and 64 tokens

// Descriptor of 64 tokens, or of all experts of the tile.
QN_DEVICE u64 descriptor_of(const uint4 *patterns)
{
    return wgmma_descriptor(patterns, 16, 1024, kSwizzle128);
}

QN_DEVICE void multiply_add(float (&c)[kSums], u64 x, u64 w, bool accumulate)
{
    if constexpr (X_TYPE == 3)
        wgmma_f32_bf16<EXPERTS>(c, x, w, accumulate);
    else
        wgmma_f32_f16<EXPERTS>(c, x, w, accumulate);
}

// The block's four steps of 16. accumulate: false where c has nothing yet.
QN_DEVICE void multiply_steps(float (&c)[kSums], u64 x, u64 w, bool accumulate)
{
#pragma unroll
    for (u32 k = 0; k < 4; k++)
        multiply_add(c, wgmma_descriptor_advance(x, k * 32), wgmma_descriptor_advance(w, k * 32), accumulate || k);
}
