// SPDX-License-Identifier: Apache-2.0
// The case a router kernel is made for: names for what the prologue's constants say, on top of gate/problem.cuh; and how
// 16 bytes of an input are read.
//
// Prologue, besides gate/problem.cuh's (IN is 1: logits are f32): D, X_TYPE, W_TYPE (1 f32, 2 f16, 3 bf16), PITCH (words of a
// token and slice, as the host counted them), GIVEN (0, 1), EXPERTS (of a tile), SLICES (of D), SLICE (elements of a slice),
// LOGITS (1: logits are stored), FUSED (1: with the gate).
#pragma once

#include "../gate/block.cuh"
#include "../gate/given.cuh"
#include "args.h"

static_assert(D >= 8 && D % 8 == 0, "D: a multiple of 8");
static_assert(IN == 1, "IN: logits are f32");
static_assert(!FUSED || THREADS >= kE, "THREADS: at least one an expert, for the gate");
static_assert(SLICES >= 1 && SLICES <= 16, "SLICES: 1 to 16");
static_assert((long long)SLICES * SLICE >= D && SLICE % 8 == 0, "SLICE: SLICES of them make D, in vectors of 8");

typedef typename ElementOf<X_TYPE>::Type ElementX;
typedef typename ElementOf<W_TYPE>::Type ElementW;
typedef typename ElementX::Raw RawX;
typedef typename ElementW::Raw RawW;

constexpr u32 kD = D;
constexpr u32 kPitch = (kE + 3) / 4 * 4; // words of a token and slice
static_assert(kPitch == PITCH, "the sizes of ops/router.c");
constexpr u32 kSlices = SLICES;
constexpr u32 kSlice = SLICE;
constexpr u32 kExperts = EXPERTS;                                // of a tile
constexpr u32 kExpertTiles = (kPitch + kExperts - 1) / kExperts; // every word of a token is some tile's

constexpr bool kWholeTiles = kExpertTiles * kExperts == kE; // no tile has experts beyond the last
constexpr bool kWholeSlices = (long long)SLICES * SLICE == D;

QN_DEVICE bool is_expert(u32 expert)
{
    return kWholeTiles || expert < kE;
}

// ---- 16 bytes of an input

// Elements of any alignment, `count` of them, put together; zeros after them.
template <class Raw> QN_DEVICE uint4 gather_vector(const Raw *from, u32 count)
{
    constexpr u32 kPer = 16 / sizeof(Raw), kInWord = 4 / sizeof(Raw);
    u32 word[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 i = 0; i < kPer; i++)
        if (i < count) word[i / kInWord] |= (u32)__ldg(from + i) << (i % kInWord * 16);
    return make_uint4(word[0], word[1], word[2], word[3]);
}

// A whole vector that begins at a multiple of 16 bytes; weights are read once.
template <class Raw> QN_DEVICE uint4 load_vector(const Raw *from)
{
    return __ldg(reinterpret_cast<const uint4 *>(from));
}
template <class Raw> QN_DEVICE uint4 load_vector_once(const Raw *from)
{
    return load_once(reinterpret_cast<const uint4 *>(from));
}

QN_DEVICE const RawX *row_of_x(const router_params &p, u32 token)
{
    return static_cast<const RawX *>(p.x) + (i64)token * p.x_stride;
}

// ---- which part of the work a CTA has: experts fastest, then slices, then tokens

struct Part {
    u32 expert; // first of the tile
    u32 slice;
    u32 begin, end; // of D
    u32 token;      // first of the tile
};

template <u32 kTokens> QN_DEVICE Part part_of_block()
{
    const u32 tile = blockIdx.x / kExpertTiles, slice = tile % kSlices;
    return Part{blockIdx.x % kExpertTiles * kExperts, slice, slice * kSlice, min(kD, (slice + 1) * kSlice),
                tile / kSlices * kTokens};
}
