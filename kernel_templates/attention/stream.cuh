// SPDX-License-Identifier: Apache-2.0
// Few queries against many keys, a stream of blocks of keys a warp. Keys are the rows of the matrix instructions and
// queries their eight columns, so that a tile of 8 queries wastes nothing:
//
//   scores   x[16 keys, 8 queries] = k · q       k by ldmatrix
//   softmax  along the keys: in a thread, then, only when a maximum rises, over the eight lanes of a query
//   values   out[16 columns, 8 queries] += v · p  v by ldmatrix.trans, p turned by movmatrix
//
// A warp keeps sums of its own over its blocks (stream_load.cuh) and waits for no other until a split ends; then all
// warps' sums are put into their slots of the ring and added in the order of the warps.
//
// Of a tile of 16 x 8 a thread has x[i]: key (or column of v) g + 8 (i / 2), query 2 q + i % 2; g = lane / 4, q = lane % 4.
#pragma once

#include "../common/matrix.cuh"
#include "product.cuh"
#include "softmax.cuh"
#include "stream_load.cuh"

constexpr i32 kRowTiles = ROWS / 8;                      // of 8 queries
constexpr i32 kKeyTiles = KEYS / 16;                     // of 16 keys
constexpr i32 kOutTiles = kDVPadded / 16;                // of 16 columns of v
constexpr i32 kSteps = kDPadded / 16;                    // of 16 columns of q and k
constexpr bool kKeepsQueries = kSteps * kRowTiles <= 16; // in registers
constexpr i32 kPartPitch = DV + 4;                       // floats a row: base, total, sum, -, the sums of p · v

static_assert(ROWS == 8 || ROWS == 16, "ROWS: one or two tiles of 8 queries");
static_assert(ROWS * kPartPitch * 4 <= kRingSlot, "KEYS: a slot takes a warp's sums");

struct Shared {
    unsigned char *queries; // [ROWS] of kQueryPitch bytes
    unsigned char *ring;    // [kStreams][SLOTS] of kRingSlot
    u32 *places;            // [kStreams]: where in the ring a warp's sums are
    u32 *word;              // [4]
};

constexpr int kStreamBytes = ROWS * kQueryPitch + kStreams * SLOTS * kRingSlot + kStreams * 4 + 16;

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, queries, ROWS * kQueryPitch / 16);
    QN_SHARED_ARRAY(uint4, ring, kStreams * SLOTS * kRingSlot / 16);
    QN_SHARED_ARRAY(u32, places, kStreams);
    QN_SHARED_ARRAY(u32, word, 4);
    return {reinterpret_cast<unsigned char *>(queries), reinterpret_cast<unsigned char *>(ring), places, word};
}

// What a warp keeps, relative to 2^base of each query.
struct State {
    float out[kOutTiles][kRowTiles][4];
    float total[kRowTiles][4]; // of p as rounded for the product: [0] of the first query, [1] of the second
    float base[kRowTiles][2];  // -inf while no score was seen
    float sum[kRowTiles][2];   // LSE: of p not rounded, this thread's part
};

QN_DEVICE void state_clear(State &state)
{
#pragma unroll
    for (i32 n = 0; n < kRowTiles; n++) {
#pragma unroll
        for (i32 e = 0; e < 2; e++) state.base[n][e] = -infinity(), state.sum[n][e] = 0.f;
#pragma unroll
        for (i32 i = 0; i < 4; i++) state.total[n][i] = 0.f;
#pragma unroll
        for (i32 j = 0; j < kOutTiles; j++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) state.out[j][n][i] = 0.f;
    }
}

// The first of this thread's two queries of a tile; the other is the next.
QN_DEVICE i32 thread_row(i32 n)
{
    return 8 * n + 2 * (lane_index() % 4);
}

// ---- matrix products

// Queries as operand b of a step, of one tile or of two.
QN_DEVICE void load_query_step(const Shared &s, i32 step, u32 (&b)[2])
{
    const i32 lane = lane_index();
    ldmatrix_x2(b, s.queries + lane % 8 * kQueryPitch + lane / 8 % 2 * 16 + 32 * step);
}
QN_DEVICE void load_query_step(const Shared &s, i32 step, u32 (&b)[4])
{
    const i32 lane = lane_index();
    ldmatrix_x4(b, s.queries + (lane / 16 * 8 + lane % 8) * kQueryPitch + lane / 8 % 2 * 16 + 32 * step);
}

struct Queries {
    u32 step[kKeepsQueries ? kSteps : 1][2 * kRowTiles];
};

QN_DEVICE void keep_queries(const Shared &s, Queries &q)
{
    if constexpr (kKeepsQueries) {
#pragma unroll
        for (i32 step = 0; step < kSteps; step++) load_query_step(s, step, q.step[step]);
    }
}

QN_DEVICE void score_tiles(const Shared &s, const Queries &q, const unsigned char *keys,
                           float (&x)[kKeyTiles][kRowTiles][4])
{
    const i32 lane = lane_index(), side = lane / 8 % 2 * 16, turn = turn_of<kKeyRow>(lane) ^ side;
    // As in value_tiles: so the same registers serve both.
    const unsigned char *k = keys + (lane / 16 * 8 + lane % 8) * kKeyRow + side_in_row<kKeyRow>(side);
#pragma unroll
    for (i32 m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (i32 n = 0; n < kRowTiles; n++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) x[m][n][i] = 0.f;
#pragma unroll
    for (i32 step = 0; step < kSteps; step++) {
        u32 b[2 * kRowTiles];
        if constexpr (kKeepsQueries) {
#pragma unroll
            for (i32 i = 0; i < 2 * kRowTiles; i++) b[i] = q.step[step][i];
        } else {
            load_query_step(s, step, b);
        }
#pragma unroll
        for (i32 m = 0; m < kKeyTiles; m++) {
            u32 a[4];
            ldmatrix_x4(a, k + 16 * m * kKeyRow + place_in_row<kKeyRow>(32 * step, turn));
            const u32 turned[4] = {a[0], a[2], a[1], a[3]};
#pragma unroll
            for (i32 n = 0; n < kRowTiles; n++) multiply(x[m][n], turned, b[2 * n], b[2 * n + 1]);
        }
    }
}

// out[columns, queries] += v · p, total += 1 · p
QN_DEVICE void value_tiles(const unsigned char *values, const float (&x)[kKeyTiles][kRowTiles][4], State &state)
{
    const i32 lane = lane_index(), side = lane / 8 % 2 * 16, turn = turn_of<kValueRow>(lane) ^ side;
    const unsigned char *v = values + (lane / 16 * 8 + lane % 8) * kValueRow + side_in_row<kValueRow>(side);
    const u32 ones[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
    for (i32 m = 0; m < kKeyTiles; m++) {
        u32 b[kRowTiles][2];
#pragma unroll
        for (i32 n = 0; n < kRowTiles; n++) {
#pragma unroll
            for (i32 half = 0; half < 2; half++)
                b[n][half] = movmatrix_trans(pack(x[m][n][2 * half], x[m][n][2 * half + 1]));
            multiply(state.total[n], ones, b[n][0], b[n][1]);
        }
#pragma unroll
        for (i32 j = 0; j < kOutTiles; j++) {
            u32 a[4];
            ldmatrix_x4_trans(a, v + 16 * m * kValueRow + place_in_row<kValueRow>(32 * j, turn));
#pragma unroll
            for (i32 n = 0; n < kRowTiles; n++) multiply(state.out[j][n], a, b[n][0], b[n][1]);
        }
    }
}

// ---- softmax

QN_DEVICE void mask_keys(const attention_params &p, const Tile &t, i32 key, float (&x)[kKeyTiles][kRowTiles][4])
{
#pragma unroll
    for (i32 n = 0; n < kRowTiles; n++)
#pragma unroll
        for (i32 e = 0; e < 2; e++) {
            const i32 query = query_of_row(p, t, min(thread_row(n) + e, t.rows - 1));
            i32 first, last;
            key_range(p, t.sequence, query, query, &first, &last);
#pragma unroll
            for (i32 m = 0; m < kKeyTiles; m++)
#pragma unroll
                for (i32 half = 0; half < 2; half++) {
                    const i32 at = key + 16 * m + 8 * half + lane_index() / 4;
                    const bool seen = (!WINDOW_LEFT || at >= first) && at < last;
                    x[m][n][2 * half + e] = seen ? x[m][n][2 * half + e] : -infinity();
                }
        }
}

// Brings the sums to bases that are not below `top`, this thread's part of the maxima.
QN_DEVICE void raise(float (&top)[kRowTiles][2], State &state)
{
#pragma unroll
    for (i32 n = 0; n < kRowTiles; n++)
#pragma unroll
        for (i32 e = 0; e < 2; e++) {
#pragma unroll
            for (i32 distance = 4; distance < kWarp; distance *= 2)
                top[n][e] = fmaxf(top[n][e], __shfl_xor_sync(kFullMask, top[n][e], distance));
            const float base = fmaxf(state.base[n][e], top[n][e]);
            const float factor = whole_factor(state.base[n][e], base);
            state.base[n][e] = base;
            state.sum[n][e] *= factor;
            state.total[n][e] *= factor, state.total[n][2 + e] *= factor;
#pragma unroll
            for (i32 j = 0; j < kOutTiles; j++) state.out[j][n][e] *= factor, state.out[j][n][2 + e] *= factor;
        }
}

// 2^(x · unit - base), as whole_exponentials.
QN_DEVICE void exponentials(float (&x)[kKeyTiles][kRowTiles][4], float unit, State &state)
{
#pragma unroll
    for (i32 n = 0; n < kRowTiles; n++) {
        float base[2] = {base_or_zero(state.base[n][0]), base_or_zero(state.base[n][1])}, by = unit;
        if (QN_UNLIKELY(__any_sync(kFullMask, !(fabsf(base[0]) < 0x1p21f && fabsf(base[1]) < 0x1p21f)))) {
#pragma unroll
            for (i32 m = 0; m < kKeyTiles; m++)
#pragma unroll
                for (i32 i = 0; i < 4; i++) x[m][n][i] = __fadd_rn(__fmul_rn(x[m][n][i], unit), -base[i % 2]);
            by = 1.f, base[0] = base[1] = 0.f;
        }
#pragma unroll
        for (i32 m = 0; m < kKeyTiles; m++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                x[m][n][i] = ex2_ftz(fmaf(x[m][n][i], by, -base[i % 2]));
                if constexpr (LSE) state.sum[n][i % 2] += x[m][n][i];
            }
    }
}

// Scores of the block at `key` to probabilities; the state's sums are brought to the new bases.
QN_DEVICE void soften(const attention_params &p, const Tile &t, const Inner &inner, i32 key,
                      float (&x)[kKeyTiles][kRowTiles][4], State &state)
{
    const float unit = unit_log2(p);
    float top[kRowTiles][2];
    bool rises = false;
    if constexpr (SOFTCAP || NEGATIVE) {
#pragma unroll
        for (i32 m = 0; m < kKeyTiles; m++)
#pragma unroll
            for (i32 n = 0; n < kRowTiles; n++)
#pragma unroll
                for (i32 i = 0; i < 4; i++) x[m][n][i] = score_of(p, x[m][n][i]);
    }
    if (key < inner.first || key + KEYS > inner.last) mask_keys(p, t, key, x);
#pragma unroll
    for (i32 n = 0; n < kRowTiles; n++)
#pragma unroll
        for (i32 e = 0; e < 2; e++) {
            float most = -infinity();
#pragma unroll
            for (i32 m = 0; m < kKeyTiles; m++) most = fmaxf(most, fmaxf(x[m][n][e], x[m][n][2 + e]));
            top[n][e] = whole_base(most, unit);
            rises |= top[n][e] > state.base[n][e];
        }
    if (__any_sync(kFullMask, rises)) raise(top, state);
    exponentials(x, unit, state);
}

// This warp's blocks among the keys first … last - 1.
QN_DEVICE void attend(const attention_params &p, const Tile &t, const Shared &s, const Queries &q, i32 first, i32 last,
                      Ring &ring, State &state)
{
    const Inner inner = inner_of(p, t);
#pragma unroll 1
    for (i32 key = first_of_warp(first); key < last; key += kStride) {
        float x[kKeyTiles][kRowTiles][4];
        const unsigned char *slot = next_block(p, t, ring);
        score_tiles(s, q, slot, x);
        soften(p, t, inner, key, x, state);
        if constexpr (!ALIAS) slot = next_block(p, t, ring);
        value_tiles(slot, x, state);
    }
}

// ---- the end of a split

// Puts the warp's sums into its free slot. Holds a barrier of the CTA.
QN_DEVICE void put_sums(const Shared &s, const Ring &ring, State &state)
{
    float *part = reinterpret_cast<float *>(free_slot(ring));
    const i32 lane = lane_index();
    __syncwarp();
#pragma unroll
    for (i32 n = 0; n < kRowTiles; n++)
#pragma unroll
        for (i32 e = 0; e < 2; e++) {
            float *row = part + (thread_row(n) + e) * kPartPitch;
            if constexpr (LSE) {
#pragma unroll
                for (i32 distance = 4; distance < kWarp; distance *= 2)
                    state.sum[n][e] += __shfl_xor_sync(kFullMask, state.sum[n][e], distance);
            }
            if (lane < 4)
                *reinterpret_cast<float4 *>(row) =
                    make_float4(state.base[n][e], state.total[n][e], state.sum[n][e], 0.f);
#pragma unroll
            for (i32 j = 0; j < kOutTiles; j++)
#pragma unroll
                for (i32 half = 0; half < 2; half++) {
                    const i32 column = 16 * j + 8 * half + lane / 4;
                    if (kDVPadded == DV || column < DV) row[4 + column] = state.out[j][n][2 * half + e];
                }
        }
    if (lane == 0) s.places[warp_index()] = (u32)(free_slot(ring) - s.ring);
    __syncthreads();
}

struct Pair {
    float base, total, sum, out[2];
};

// All warps' sums of two columns of a row.
QN_DEVICE Pair add_sums(const Shared &s, i32 row, i32 column)
{
    Pair r = {-infinity(), 0.f, 0.f, {0.f, 0.f}};
    const float *part[kStreams];
#pragma unroll
    for (i32 w = 0; w < kStreams; w++) {
        part[w] = reinterpret_cast<const float *>(s.ring + s.places[w]) + row * kPartPitch;
        r.base = fmaxf(r.base, part[w][0]);
    }
#pragma unroll
    for (i32 w = 0; w < kStreams; w++) {
        const float4 head = *reinterpret_cast<const float4 *>(part[w]);
        const float2 out = *reinterpret_cast<const float2 *>(part[w] + 4 + column);
        const float factor = whole_factor(head.x, r.base);
        r.total = fmaf(head.y, factor, r.total), r.sum = fmaf(head.z, factor, r.sum);
        r.out[0] = fmaf(out.x, factor, r.out[0]), r.out[1] = fmaf(out.y, factor, r.out[1]);
    }
    return r;
}
