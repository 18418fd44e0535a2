// SPDX-License-Identifier: Apache-2.0
// A tile's blocks of x and W on their way through shared memory: a ring of STAGES blocks of BLOCK elements of D, filled by
// asynchronous copies, 16 bytes each. What begins at any other address goes through registers; what lies outside the
// tensors is zero.
//
//   x   [TOKENS, BLOCK], rows of kUnitsX units of 16 bytes
//   W   [EXPERTS, BLOCK], or with W_LAYOUT 1 [BLOCK, EXPERTS], rows of kUnitsW units
//
// A row's units are exchanged by the row's number, so that eight rows at one place of D lie in different banks.
//
// Prologue: TOKENS, BLOCK, STAGES, W_LAYOUT (0 [E, D], 1 [D, E]), LOGITS (1: the whole of D in turn, logits stored; 0: one
// slice, partial sums published).
#pragma once

#include "../common/async_copy.cuh"
#include "pattern.cuh"
#include "put.cuh"

static_assert(STAGES >= 2 && STAGES <= 32, "STAGES: 2 to 32");
static_assert(W_LAYOUT == 0 || (EXPERTS & (EXPERTS - 1)) == 0, "EXPERTS: a power of two with W [D, E]");
static_assert(SLICES == 1 || SLICE % BLOCK == 0, "SLICE: whole blocks");

constexpr u32 kTokens = TOKENS;
constexpr u32 kBlock = BLOCK;
constexpr bool kTransposed = W_LAYOUT == 1;
constexpr u32 kUnitsX = kBlock * sizeof(RawX) / 16;
constexpr u32 kUnitsW = (kTransposed ? kExperts : kBlock) * sizeof(RawW) / 16;
constexpr u32 kRowsW = kTransposed ? kBlock : kExperts;
constexpr u32 kStageX = kTokens * kUnitsX; // units
constexpr u32 kStageW = kRowsW * kUnitsW;
constexpr u32 kRingUnits = STAGES * (kStageX + kStageW);
constexpr u32 kBlocksOfSlice = (kSlice + kBlock - 1) / kBlock;

static_assert(GATE_AT >= (kRingUnits + 63) / 64 * 1024 && SHARED_BYTES >= GATE_AT, "the sizes of ops/router_shape.c");

// Where a unit of a row lies. Rows of 8 units are those of a Pattern.
template <u32 kUnits> QN_DEVICE u32 place_of(u32 row, u32 unit)
{
    const u32 key = kUnits >= 8 ? row % 8 : kUnits == 4 ? row / 2 % 4 : kUnits == 2 ? row / 4 % 2 : 0;
    return row * kUnits + (unit ^ key);
}

struct Stage {
    uint4 *x, *w;
};

struct Ring {
    uint4 *units;
    QN_DEVICE Stage stage(u32 block) const
    {
        uint4 *first = units + block % STAGES * (kStageX + kStageW);
        return Stage{first, first + kStageX};
    }
};

QN_DEVICE Ring ring_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(Pattern, patterns, (kRingUnits + 63) / 64);
    return Ring{patterns->unit};
}

// ---- filling

// How the threads of the CTA share rows of kUnits units: each has one unit of every kStep-th row.
template <u32 kUnits, u32 kRows> struct Share {
    static constexpr u32 kStep = THREADS / kUnits;
    static constexpr u32 kCount = (kRows + kStep - 1) / kStep;
    static_assert(THREADS % kUnits == 0, "whole rows of units");

    static QN_DEVICE u32 unit() { return threadIdx.x % kUnits; }
    static QN_DEVICE u32 row(u32 i) { return threadIdx.x / kUnits + i * kStep; }
    static QN_DEVICE bool has(u32 i) { return kCount * kStep == kRows || row(i) < kRows; }
};
typedef Share<kUnitsX, kTokens> ShareX;
typedef Share<kUnitsW, kRowsW> ShareW;

// Where this thread's units of a tile begin, at d = 0.
struct Sources {
    const RawX *x;
    const RawW *w;
    u32 tokens; // of this thread that exist
    u32 valid;  // elements of a unit of w that exist; with [E, D] none or all, of its first expert
};

QN_DEVICE Sources sources_of(const router_params &p, const Part &part)
{
    constexpr u32 kPer = ElementW::kPerVector;
    Sources s = {};
    const u32 token = part.token + ShareX::row(0);
    s.x = row_of_x(p, token) + ShareX::unit() * ElementX::kPerVector;
#pragma unroll
    for (u32 i = 0; i < ShareX::kCount; i++) s.tokens += token + i * ShareX::kStep < p.tokens ? 1 : 0;
    const RawW *w = static_cast<const RawW *>(p.w);
    if constexpr (kTransposed) {
        const u32 e = part.expert + ShareW::unit() * kPer;
        s.w = w + (i64)ShareW::row(0) * p.w_stride + e;
        s.valid = e >= kE ? 0 : min(kPer, kE - e);
    } else {
        s.w = w + (i64)(part.expert + ShareW::row(0)) * p.w_stride + ShareW::unit() * kPer;
        s.valid = kPer;
    }
    return s;
}

// `valid` elements from `from`, zeros after them.
template <bool kAligned, class Raw> QN_DEVICE void fill_unit(uint4 *to, const Raw *from, u32 valid, const void *base)
{
    if constexpr (kAligned)
        cp_async_cg_zfill(to, valid ? from : static_cast<const Raw *>(base), valid * (u32)sizeof(Raw));
    else
        *to = gather_vector(from, valid);
}

template <bool kAligned> QN_DEVICE void fill_x(const router_params &p, const Sources &s, uint4 *to, u32 d, u32 end)
{
    const u32 unit = ShareX::unit(), most = d + unit * ElementX::kPerVector < end ? s.tokens : 0;
#pragma unroll(kAligned ? ShareX::kCount : 1)
    for (u32 i = 0; i < ShareX::kCount; i++)
        if (ShareX::has(i))
            fill_unit<kAligned>(to + place_of<kUnitsX>(ShareX::row(i), unit),
                                s.x + (i64)(i * ShareX::kStep) * p.x_stride + d,
                                i < most ? (u32)ElementX::kPerVector : 0u, p.x);
}

template <bool kAligned>
QN_DEVICE void fill_w(const router_params &p, const Part &part, const Sources &s, uint4 *to, u32 d, u32 end)
{
    const u32 unit = ShareW::unit();
#pragma unroll(kAligned ? ShareW::kCount : 1)
    for (u32 i = 0; i < ShareW::kCount; i++) {
        const u32 row = ShareW::row(i);
        const bool exists =
            kTransposed ? d + row < end : is_expert(part.expert + row) && d + unit * ElementW::kPerVector < end;
        const RawW *from = s.w + (i64)(i * ShareW::kStep) * p.w_stride + (kTransposed ? (i64)d * p.w_stride : (i64)d);
        if (ShareW::has(i)) fill_unit<kAligned>(to + place_of<kUnitsW>(row, unit), from, exists ? s.valid : 0, p.w);
    }
}

QN_DEVICE void fill_stage(const router_params &p, const Part &part, const Sources &s, const Stage &stage, u32 d,
                          u32 end)
{
    if (p.w_aligned)
        fill_w<true>(p, part, s, stage.w, d, end);
    else
        fill_w<false>(p, part, s, stage.w, d, end);
    if (p.x_aligned)
        fill_x<true>(p, s, stage.x, d, end);
    else
        fill_x<false>(p, s, stage.x, d, end);
}

// ---- going round

// Calls multiply(stage) for each block of D from begin to end in order, and fold(block) after it.
template <class Multiply, class Fold>
QN_DEVICE void go_round(const router_params &p, const Part &part, u32 begin, u32 end, Multiply multiply, Fold fold)
{
    const Ring ring = ring_pieces();
    const u32 blocks = (end - begin + kBlock - 1) / kBlock;
    const Sources sources = sources_of(p, part);
    auto fill = [&](u32 block) {
        if (block < blocks) fill_stage(p, part, sources, ring.stage(block), begin + block * kBlock, end);
        cp_async_commit_group();
    };
#pragma unroll 1
    for (u32 block = 0; block < STAGES - 1; block++) fill(block);
#pragma unroll 1
    for (u32 block = 0; block < blocks; block++) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        fill(block + STAGES - 1);
        multiply(ring.stage(block));
        fold(block);
    }
    cp_async_wait_all();
}

// ---- sums of slices, in the order of exchange.cuh

template <u32 kCount> struct Sums {
    float sum[kCount]; // of the slice
    float team[kSlices > 1 && LOGITS ? kCount : 1];
    float all[kSlices > 1 && LOGITS ? kCount : 1];

    QN_DEVICE void clear()
    {
#pragma unroll
        for (u32 i = 0; i < kCount; i++) sum[i] = 0.f;
    }
    // After a block of a tile that goes through all slices: closes the slice, its team, and at the end leaves the whole.
    QN_DEVICE void fold(u32 block)
    {
        if constexpr (kSlices > 1 && LOGITS) {
            const bool ends = (block + 1) * kBlock >= kD;
            if ((block + 1) % kBlocksOfSlice && !ends) return;
            const u32 slice = block / kBlocksOfSlice;
            const bool opens = slice % kEach == 0, closes = slice % kEach == kEach - 1 || ends, first = slice < kEach;
#pragma unroll
            for (u32 i = 0; i < kCount; i++) {
                team[i] = opens ? sum[i] : team[i] + sum[i];
                if (closes) all[i] = first ? team[i] : all[i] + team[i];
                sum[i] = ends ? all[i] : 0.f;
            }
        } else {
            (void)block;
        }
    }
};

// ---- tiles

// The tile of this CTA: of one slice, or with LOGITS through all of D.
QN_DEVICE Part part_of_tile()
{
    if constexpr (LOGITS)
        return Part{blockIdx.x % kExpertTiles * kExperts, 0, 0, kD, blockIdx.x / kExpertTiles * kTokens};
    else
        return part_of_block<kTokens>();
}

// What every kernel of the ring is.
#define QN_RING_KERNEL(multiply)                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ router_params p)  \
    {                                                                                                                  \
        if (LOGITS || p.part == ROUTER_PARTS) launch_dependents();                                                     \
        multiply(p);                                                                                                   \
        if constexpr (FUSED) gate_tokens(p);                                                                           \
    }
