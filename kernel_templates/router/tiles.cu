// SPDX-License-Identifier: Apache-2.0
// router, plan "tiles": tensor cores, operands through shared memory. For 16-bit types of one kind, any layout, any
// alignment, any number of tokens.
//
//   logit[n, e] = Σ_d x[n, d] · w[e, d]
//
//   ring      blocks of 64 of D (ring.cuh)
//   multiply  ldmatrix and mma m16n8k16: WARPS_M × WARPS_N warps, each TOKENS / WARPS_M × EXPERTS / WARPS_N of the tile
//   sums      published for the gate of exchange.cuh, or (LOGITS) stored as logits for a launch of the gate
//
// A sum's order is that of D in each slice, then that of the slices, in both forms and for every size of tile: with the
// same SLICES and SLICE a token's logits are the same bits.
//
// Prologue, besides problem.cuh's and ring.cuh's: WARPS_M, WARPS_N.
// ANALYSIS.md: work, bounds, measured figures.
#include "../common/matrix.cuh"
#include "products_mma.cuh"
#include "ring.cuh"

static_assert(BLOCK == 64, "BLOCK: 64");
static_assert(TOKENS % (16 * WARPS_M) == 0 && EXPERTS % (8 * WARPS_N) == 0, "WARPS_M, WARPS_N: whole tiles of mma");
static_assert(WARPS_M * WARPS_N <= kWarps, "WARPS_M, WARPS_N: warps of the CTA");

constexpr u32 kRows = TOKENS / WARPS_M / 16;    // tiles of M a warp
constexpr u32 kColumns = EXPERTS / WARPS_N / 8; // tiles of N a warp
constexpr u32 kSums = kRows * kColumns * 4;

static_assert(kColumns == 1 || kColumns % 2 == 0, "WARPS_N: one tile of N a warp, or pairs");

QN_DEVICE void multiply_tile(float *sum, const u32 (&a)[4], const u32 (&b)[2])
{
    float c[4] = {sum[0], sum[1], sum[2], sum[3]};
    multiply_add(c, a, b);
#pragma unroll
    for (u32 i = 0; i < 4; i++) sum[i] = c[i];
}

QN_DEVICE void load_tokens(u32 (&a)[4], const Stage &stage, u32 row, u32 k)
{
    ldmatrix_x4(a, stage.x + place_of<kUnitsX>(row + lane_index() % 16, k / 8 + lane_index() / 16));
}

// The 8 experts from `first` on.
QN_DEVICE void load_experts(u32 (&b)[2], const Stage &stage, u32 first, u32 k)
{
    const u32 row = lane_index() % 8, half = lane_index() / 8 % 2;
    if constexpr (kTransposed)
        ldmatrix_x2_trans(b, stage.w + place_of<kUnitsW>(k + half * 8 + row, first / 8));
    else
        ldmatrix_x2(b, stage.w + place_of<kUnitsW>(first + row, k / 8 + half));
}

// The 16 experts from `first` on, two tiles of N.
QN_DEVICE void load_expert_pair(u32 (&b)[4], const Stage &stage, u32 first, u32 k)
{
    const u32 row = lane_index() % 8, half = lane_index() / 8 % 2, column = lane_index() / 16;
    if constexpr (kTransposed)
        ldmatrix_x4_trans(b, stage.w + place_of<kUnitsW>(k + half * 8 + row, first / 8 + column));
    else
        ldmatrix_x4(b, stage.w + place_of<kUnitsW>(first + column * 8 + row, k / 8 + half));
}

QN_DEVICE void load_columns(u32 (&b)[kColumns][2], const Stage &stage, u32 first, u32 k)
{
    if constexpr (kColumns == 1) {
        load_experts(b[0], stage, first, k);
    } else {
#pragma unroll
        for (u32 j = 0; j < kColumns; j += 2) {
            u32 pair[4];
            load_expert_pair(pair, stage, first + j * 8, k);
            b[j][0] = pair[0], b[j][1] = pair[1], b[j + 1][0] = pair[2], b[j + 1][1] = pair[3];
        }
    }
}

// left: tokens of the warp's rows that exist.
QN_DEVICE void multiply_block(Sums<kSums> &sums, const Stage &stage, u32 row, u32 column, u32 left)
{
#pragma unroll
    for (u32 k = 0; k < kBlock; k += 16) {
        u32 b[kColumns][2];
        load_columns(b, stage, column, k);
#pragma unroll
        for (u32 m = 0; m < kRows; m++) {
            if (m * 16 >= left) continue;
            u32 a[4];
            load_tokens(a, stage, row + m * 16, k);
#pragma unroll
            for (u32 j = 0; j < kColumns; j++) multiply_tile(sums.sum + (m * kColumns + j) * 4, a, b[j]);
        }
    }
}

QN_DEVICE void put_sums(const router_params &p, const Part &part, const Sums<kSums> &sums, u32 row, u32 column)
{
#pragma unroll
    for (u32 m = 0; m < kRows; m++) {
#pragma unroll
        for (u32 j = 0; j < kColumns; j++) {
            const float *c = sums.sum + (m * kColumns + j) * 4;
            const u32 token = part.token + row + m * 16 + lane_index() / 4;
            const u32 expert = part.expert + column + j * 8 + lane_index() % 4 * 2;
            put_pair(p, part, token, expert, c[0], c[1]);
            put_pair(p, part, token + 8, expert, c[2], c[3]);
        }
    }
}

QN_DEVICE void multiply(const router_params &p)
{
    const Part part = part_of_tile();
    const bool multiplies = warp_index() < WARPS_M * WARPS_N;
    const u32 row = warp_index() / WARPS_N * (kRows * 16), column = warp_index() % WARPS_N * (kColumns * 8);
    const i64 rest = (i64)p.tokens - part.token - row;
    const u32 left = rest < 0 ? 0 : (u32)min(rest, (i64)kTokens);
    Sums<kSums> sums;
    sums.clear();
    go_round(
        p, part, part.begin, part.end,
        [&](const Stage &stage) {
            if (multiplies) multiply_block(sums, stage, row, column, left);
        },
        [&](u32 block) { sums.fold(block); });
    if (multiplies) put_sums(p, part, sums, row, column);
}

QN_RING_KERNEL(multiply)
