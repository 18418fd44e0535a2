// SPDX-License-Identifier: Apache-2.0
// router, plan "exact": every product an f32 fma, for f32 inputs and for two different types; any layout, any alignment,
// any number of tokens.
//
//   logit[n, e] = Σ_d x[n, d] · w[e, d]
//
//   ring      blocks of 32 of D as they are stored (ring.cuh)
//   multiply  a thread has TOKENS / (8 · WARPS_M) tokens, 8 apart, and EXPERTS / (4 · WARPS_N) experts, 4 apart; one chain
//             of fma for each pair, through D in order: no TF32, and the same bits for every size of tile
//   sums      published for the gate of exchange.cuh, or (LOGITS) stored as logits for a launch of the gate
//
// Prologue, besides problem.cuh's and ring.cuh's: WARPS_M, WARPS_N.
// ANALYSIS.md: work, bounds, measured figures.
#include "dot.cuh"
#include "ring.cuh"

static_assert(BLOCK % 8 == 0, "BLOCK: eights");
static_assert(TOKENS % (8 * WARPS_M) == 0 && EXPERTS % (4 * WARPS_N) == 0, "WARPS_M, WARPS_N: whole tiles of a warp");
static_assert(WARPS_M * WARPS_N <= kWarps, "WARPS_M, WARPS_N: warps of the CTA");

constexpr u32 kRows = TOKENS / WARPS_M / 8;
constexpr u32 kColumns = EXPERTS / WARPS_N / 4;
constexpr u32 kSums = kRows * kColumns;

// 8 elements of a token, from unit k / kPerVector on.
QN_DEVICE void load_token(float *y, const Stage &stage, u32 row, u32 k)
{
    constexpr u32 kPer = ElementX::kPerVector;
#pragma unroll
    for (u32 i = 0; i < 8; i += kPer) ElementX::unpack(stage.x[place_of<kUnitsX>(row, (k + i) / kPer)], y + i);
}

QN_DEVICE void load_expert(float *y, const Stage &stage, u32 row, u32 k)
{
    constexpr u32 kPer = ElementW::kPerVector;
    if constexpr (kTransposed) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            const uint4 *unit = stage.w + place_of<kUnitsW>(k + i, row / kPer);
            y[i] = ElementW::value(reinterpret_cast<const RawW *>(unit)[row % kPer]);
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < 8; i += kPer) ElementW::unpack(stage.w[place_of<kUnitsW>(row, (k + i) / kPer)], y + i);
    }
}

QN_DEVICE void multiply_block(Sums<kSums> &sums, const Stage &stage, u32 row, u32 column, u32 left)
{
#pragma unroll 1
    for (u32 k = 0; k < kBlock; k += 8) {
        float w[kColumns][8];
#pragma unroll
        for (u32 j = 0; j < kColumns; j++) load_expert(w[j], stage, column + j * 4, k);
#pragma unroll
        for (u32 m = 0; m < kRows; m++) {
            if (m * 8 >= left) continue;
            float x[8];
            load_token(x, stage, row + m * 8, k);
#pragma unroll
            for (u32 j = 0; j < kColumns; j++)
                sums.sum[m * kColumns + j] = dot_of_eight(w[j], x, sums.sum[m * kColumns + j]);
        }
    }
}

QN_DEVICE void multiply(const router_params &p)
{
    const Part part = part_of_tile();
    const bool multiplies = warp_index() < WARPS_M * WARPS_N;
    const u32 first = warp_index() / WARPS_N * (kRows * 8);
    const u32 row = first + lane_index() % 8, column = warp_index() % WARPS_N * (kColumns * 4) + lane_index() / 8;
    const i64 rest = (i64)p.tokens - part.token - first;
    const u32 left = rest < 0 ? 0 : (u32)min(rest, (i64)kTokens);
    Sums<kSums> sums;
    sums.clear();
    go_round(
        p, part, part.begin, part.end,
        [&](const Stage &stage) {
            if (multiplies) multiply_block(sums, stage, row, column, left);
        },
        [&](u32 block) { sums.fold(block); });
    if (!multiplies) return;
#pragma unroll
    for (u32 m = 0; m < kRows; m++) {
#pragma unroll
        for (u32 j = 0; j < kColumns; j++)
            put_sum(p, part, part.token + row + m * 8, part.expert + column + j * 4, sums.sum[m * kColumns + j]);
    }
}

QN_RING_KERNEL(multiply)
