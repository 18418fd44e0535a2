// SPDX-License-Identifier: Apache-2.0
// router, plan "fragments": tensor cores with operands straight from memory into registers. For up to 64 tokens, 16-bit
// types, W [E, D].
//
//   logit[n, e] = Σ_d x[n, d] · w[e, d], then exchange.cuh and the gate
//
//   load      a warp has CHUNK elements of D of the tile's EXPERTS rows and of the tokens: 16 bytes a lane and row. The
//             order of d inside a block of 32 is what falls out of that: lane q of four has 8q … 8q + 7, which are taken
//             for k = 2q, 2q + 1, 2q + 8, 2q + 9 of two mma. It is the same for both operands, so nothing is shuffled.
//   multiply  mma m16n8k16, tokens on M, experts on N
//   sum       over the warps, one after another, through shared memory; the sums are published
//
// Prologue, besides problem.cuh's: TOKENS (8: half of an M tile, 16, 32, 64), CHUNK, MULTIPLY_WARPS (that multiply).
// ANALYSIS.md: work, bounds, measured figures.
#include "exchange.cuh"
#include "products_mma.cuh"

static_assert(EXPERTS % 8 == 0 && EXPERTS >= 8 && EXPERTS <= 32, "EXPERTS: 8, 16, 24, 32");
static_assert(TOKENS == 8 || TOKENS % 16 == 0, "TOKENS: 8, 16, 32, 48, 64");
static_assert(CHUNK % 32 == 0, "CHUNK: blocks of 32");
static_assert(MULTIPLY_WARPS * CHUNK >= SLICE && MULTIPLY_WARPS <= kWarps, "MULTIPLY_WARPS: a chunk each");

constexpr u32 kTokens = TOKENS;
constexpr u32 kBlocks = CHUNK / 32;
constexpr u32 kColumns = EXPERTS / 8; // tiles of N
constexpr bool kHalf = TOKENS == 8;
constexpr u32 kRows = kHalf ? 1 : TOKENS / 16;                               // tiles of M
constexpr u32 kSumPitch = EXPERTS == 32 ? 40 : EXPERTS == 16 ? 24 : EXPERTS; // rows of sums begin 8 banks apart
constexpr u32 kSumFloats = MULTIPLY_WARPS * kTokens * kSumPitch;

static_assert(GATE_AT >= kSumFloats * 4, "the sizes of ops/router_shape.c");

// One block of 32: two mma.
QN_DEVICE void multiply_block(float (&c)[4], const uint4 &low, const uint4 &high, const uint4 &w)
{
    const u32 a0[4] = {low.x, high.x, low.y, high.y}, b0[2] = {w.x, w.y};
    const u32 a1[4] = {low.z, high.z, low.w, high.w}, b1[2] = {w.z, w.w};
    multiply_add(c, a0, b0);
    multiply_add(c, a1, b1);
}

QN_DEVICE bool is_inside(u32 d, const Part &part)
{
    return (kWholeSlices && kSlice == MULTIPLY_WARPS * CHUNK) || d < part.end;
}

struct Weights {
    uint4 v[kBlocks][kColumns];
};

QN_DEVICE void load_weights(Weights &w, const router_params &p, const Part &part, u32 d)
{
#pragma unroll
    for (u32 j = 0; j < kColumns; j++) {
        const u32 expert = part.expert + j * 8 + lane_index() / 4;
        const RawW *row = static_cast<const RawW *>(p.w) + (i64)expert * p.w_stride;
#pragma unroll
        for (u32 k = 0; k < kBlocks; k++) {
            const bool exists = is_expert(expert) && is_inside(d + k * 32, part);
            w.v[k][j] = exists ? load_vector_once(row + d + k * 32) : make_uint4(0, 0, 0, 0);
        }
    }
}

// The tokens of M tile m: rows g and g + 8 of it.
QN_DEVICE void multiply_tokens(const Weights &w, const router_params &p, const Part &part, u32 d, u32 m, float *sums)
{
    const u32 low = m * 16 + lane_index() / 4;
    uint4 x[kBlocks][2];
    float c[kColumns][4] = {};
#pragma unroll
    for (u32 k = 0; k < kBlocks; k++) {
        const bool inside = is_inside(d + k * 32, part);
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const u32 token = part.token + low + 8 * half;
            const bool exists = inside && token < p.tokens && !(kHalf && half);
            x[k][half] = exists ? load_vector(row_of_x(p, token) + d + k * 32) : make_uint4(0, 0, 0, 0);
        }
    }
#pragma unroll
    for (u32 k = 0; k < kBlocks; k++) {
#pragma unroll
        for (u32 j = 0; j < kColumns; j++) multiply_block(c[j], x[k][0], x[k][1], w.v[k][j]);
    }
    float *to = sums + low * kSumPitch + lane_index() % 4 * 2;
#pragma unroll
    for (u32 j = 0; j < kColumns; j++) {
        *reinterpret_cast<float2 *>(to + j * 8) = make_float2(c[j][0], c[j][1]);
        if (!kHalf) *reinterpret_cast<float2 *>(to + 8 * kSumPitch + j * 8) = make_float2(c[j][2], c[j][3]);
    }
}

QN_DEVICE void multiply(const router_params &p)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(float4, all_sums, kSumFloats / 4);
    const Part part = part_of_block<kTokens>();
    const u32 left = min(p.tokens - part.token, kTokens);
    if (warp_index() < MULTIPLY_WARPS) {
        const u32 d = part.begin + warp_index() * CHUNK + lane_index() % 4 * 8;
        float *sums = reinterpret_cast<float *>(all_sums) + warp_index() * kTokens * kSumPitch;
        Weights w;
        load_weights(w, p, part, d);
#pragma unroll
        for (u32 m = 0; m < kRows; m++)
            if (m * 16 < left) multiply_tokens(w, p, part, d, m, sums);
    }
    __syncthreads();
    constexpr u32 kQuads = kExperts / 4; // of a token
    for (u32 i = threadIdx.x; i < left * kQuads; i += THREADS) {
        const u32 n = i / kQuads, e = i % kQuads * 4;
        if (part.expert + e >= kPitch) continue;
        const float4 *sum = all_sums + (n * kSumPitch + e) / 4;
        float4 whole = sum[0];
#pragma unroll
        for (u32 w = 1; w < MULTIPLY_WARPS; w++) whole = add(whole, sum[w * (kTokens * kSumPitch / 4)]);
        u32 *to = words_of(p, part.token + n, part.slice) + part.expert + e;
        store_polled(reinterpret_cast<uint4 *>(to),
                     make_uint4(publish(whole.x), publish(whole.y), publish(whole.z), publish(whole.w)));
    }
}

QN_PARTS_KERNEL(multiply)
