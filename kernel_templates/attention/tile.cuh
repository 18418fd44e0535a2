// SPDX-License-Identifier: Apache-2.0
// A tile of queries against a range of keys by mma.sync, for every architecture: out += softmax part, block after block.
//
//   ring     SLOTS slots of shared memory take blocks k0, v0, k1, v1, … (k0, k1, … with ALIAS) by cp.async; a block is
//            loaded SLOTS - 1 blocks ahead
//   scores   x = q · k of 16 rows and KEYS / COLUMNS keys a warp, q and k by ldmatrix
//   softmax  running maximum (over COLUMNS warps through shared memory), probabilities rounded to 16 bits; the base that
//            exponents are relative to is a whole number not below the maximum
//   values   out += p · v of 16 rows and 1 / COLUMNS of the columns a warp; p stays in registers when COLUMNS is 1
//
// Warp w has rows w / COLUMNS and part w % COLUMNS. Barriers: one a block, which says that the block has landed and that
// the one before is used up; with COLUMNS > 1 one more between the maxima.
#pragma once

#include "../common/matrix.cuh"
#include "load.cuh"
#include "product.cuh"
#include "softmax.cuh"

constexpr i32 kWarpsOfRows = THREADS / kWarp / COLUMNS;
constexpr i32 kRowTiles = ROWS / 16 / kWarpsOfRows;                 // of 16 rows, a warp
constexpr i32 kKeyTiles = KEYS / 8 / COLUMNS;                       // of 8 keys, a warp
constexpr i32 kOutTiles = (kDVPadded / 16 + COLUMNS - 1) / COLUMNS; // of 16 columns, a warp
constexpr i32 kBlocksOfKeys = ALIAS ? 1 : 2;                        // slots that a block of keys takes
constexpr i32 kProbabilityPitch = pitch_of(KEYS);

static_assert(ROWS % (16 * kWarpsOfRows) == 0 && THREADS % (kWarp * COLUMNS) == 0, "ROWS: whole tiles of 16 a warp");
static_assert(KEYS % 16 == 0 && KEYS % (8 * COLUMNS) == 0, "KEYS: multiples of 16, whole tiles of 8 a warp");
static_assert(SLOTS >= 2, "SLOTS: 2 at least");

struct Shared {
    unsigned char *queries;       // [ROWS] of kQueryPitch bytes
    unsigned char *ring;          // [SLOTS] of kSlotBytes
    unsigned char *probabilities; // COLUMNS > 1: [ROWS] of kProbabilityPitch
    float *maxima;                // COLUMNS > 1: [COLUMNS][ROWS]
    float *sums;                  // COLUMNS > 1: [COLUMNS][ROWS]
    u32 *word;                    // decode: [4]
};

constexpr int kTileBytes =
    ROWS * kQueryPitch + SLOTS * kSlotBytes + (COLUMNS > 1 ? ROWS * kProbabilityPitch + 2 * COLUMNS * ROWS * 4 : 0);

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, queries, ROWS * kQueryPitch / 16);
    QN_SHARED_ARRAY(uint4, ring, SLOTS * kSlotBytes / 16);
    Shared s = {reinterpret_cast<unsigned char *>(queries), reinterpret_cast<unsigned char *>(ring), 0, 0, 0, 0};
    if constexpr (COLUMNS > 1) {
        QN_SHARED_ARRAY(uint4, probabilities, ROWS * kProbabilityPitch / 16);
        QN_SHARED_ARRAY(float, maxima, COLUMNS *ROWS);
        QN_SHARED_ARRAY(float, sums, COLUMNS *ROWS);
        s.probabilities = reinterpret_cast<unsigned char *>(probabilities), s.maxima = maxima, s.sums = sums;
    }
    if constexpr (SHARED_BYTES > kTileBytes) {
        QN_SHARED_ARRAY(u32, word, 4);
        s.word = word;
    }
    return s;
}

// ---- who has what

QN_DEVICE i32 warp_part()
{
    return COLUMNS == 1 ? 0 : warp_index() % COLUMNS;
}
// The first row of this warp's tile of 16.
QN_DEVICE i32 warp_row(i32 tile)
{
    return (warp_index() / COLUMNS * kRowTiles + tile) * 16;
}
// The first of this thread's two rows, eight apart.
QN_DEVICE i32 thread_row(i32 tile)
{
    return warp_row(tile) + lane_index() / 4;
}

// What a thread keeps of its rows. Everything is relative to 2^base.
struct State {
    float out[kRowTiles][kOutTiles][2][4]; // sums of p · v: two tiles of 8 columns side by side
    float total[kRowTiles][4]; // sums of p as rounded for the product: [0] of the first row, [2] of the second
    float base[kRowTiles][2];  // -inf while no score was seen
    float sum[kRowTiles][2];   // LSE: sums of p not rounded, this thread's part
};

QN_DEVICE void state_clear(State &state)
{
#pragma unroll
    for (i32 m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (i32 half = 0; half < 2; half++) state.base[m][half] = -infinity(), state.sum[m][half] = 0.f;
#pragma unroll
        for (i32 i = 0; i < 4; i++) state.total[m][i] = 0.f;
#pragma unroll
        for (i32 j = 0; j < kOutTiles; j++) {
#pragma unroll
            for (i32 i = 0; i < 8; i++) state.out[m][j][i / 4][i % 4] = 0.f;
        }
    }
}

// ---- matrix products

// x[16 rows, 8 keys] += q · k
QN_DEVICE void score_tiles(const Shared &s, const unsigned char *keys, float (&x)[kRowTiles][kKeyTiles][4])
{
    const i32 lane = lane_index();
    const unsigned char *q = s.queries + (warp_row(0) + lane % 16) * kQueryPitch + lane / 16 * 16;
    const i32 side = lane / 8 % 2 * 16, turn = turn_of<kKeyPitch>(lane) ^ side;
    const unsigned char *k =
        keys + (warp_part() * 8 * kKeyTiles + lane / 16 * 8 + lane % 8) * kKeyPitch + side_in_row<kKeyPitch>(side);
#pragma unroll
    for (i32 m = 0; m < kRowTiles; m++)
#pragma unroll
        for (i32 j = 0; j < kKeyTiles; j++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) x[m][j][i] = 0.f;
#pragma unroll
    for (i32 step = 0; step < kDPadded / 16; step++) {
        u32 a[kRowTiles][4];
#pragma unroll
        for (i32 m = 0; m < kRowTiles; m++) ldmatrix_x4(a[m], q + m * 16 * kQueryPitch + 32 * step);
#pragma unroll
        for (i32 j = 0; j + 1 < kKeyTiles; j += 2) {
            u32 b[4];
            ldmatrix_x4(b, k + 8 * j * kKeyPitch + place_in_row<kKeyPitch>(32 * step, turn));
#pragma unroll
            for (i32 m = 0; m < kRowTiles; m++) {
                multiply(x[m][j], a[m], b[0], b[1]);
                multiply(x[m][j + 1], a[m], b[2], b[3]);
            }
        }
        if constexpr (kKeyTiles % 2) {
            u32 b[2];
            ldmatrix_x2(b, k + 8 * (kKeyTiles - 1) * kKeyPitch + place_in_row<kKeyPitch>(32 * step, turn));
#pragma unroll
            for (i32 m = 0; m < kRowTiles; m++) multiply(x[m][kKeyTiles - 1], a[m], b[0], b[1]);
        }
    }
}

// Probabilities of 16 rows and 16 keys as operand a: from the warp's own scores, or from shared memory.
QN_DEVICE void probability_operand(const Shared &s, const float (&x)[kRowTiles][kKeyTiles][4], i32 m, i32 step,
                                   u32 (&a)[4])
{
    if constexpr (COLUMNS == 1) {
        a[0] = pack(x[m][2 * step][0], x[m][2 * step][1]), a[1] = pack(x[m][2 * step][2], x[m][2 * step][3]);
        a[2] = pack(x[m][2 * step + 1][0], x[m][2 * step + 1][1]);
        a[3] = pack(x[m][2 * step + 1][2], x[m][2 * step + 1][3]);
    } else {
        const i32 lane = lane_index();
        ldmatrix_x4(a, s.probabilities + (warp_row(m) + lane % 16) * kProbabilityPitch + lane / 16 * 16 + 32 * step);
    }
}

// out[16 rows, 16 columns] += p · v, total += p · 1
QN_DEVICE void value_tiles(const Shared &s, const unsigned char *values, const float (&x)[kRowTiles][kKeyTiles][4],
                           State &state)
{
    const i32 lane = lane_index(), part = warp_part();
    const i32 side = lane / 16 * 16, turn = turn_of<kValuePitch>(lane) ^ side;
    // Of rows that turn, a part of the columns that does not begin at a line counts for where pieces lie.
    constexpr bool kCounts = kValuePitch % 128 == 0 && kOutTiles % 4 != 0;
    const i32 begin = part * kOutTiles * 32, counts = kCounts ? begin : 0;
    const unsigned char *v = values + lane % 16 * kValuePitch + (kCounts ? 0 : begin) + side_in_row<kValuePitch>(side);
#pragma unroll
    for (i32 step = 0; step < KEYS / 16; step++) {
        u32 a[kRowTiles][4];
#pragma unroll
        for (i32 m = 0; m < kRowTiles; m++) {
            probability_operand(s, x, m, step, a[m]);
            multiply(state.total[m], a[m], kOnes, kOnes);
        }
#pragma unroll
        for (i32 j = 0; j < kOutTiles; j++) {
            if (kOutTiles * COLUMNS * 16 != kDVPadded && (part * kOutTiles + j) * 16 >= kDVPadded) break;
            u32 b[4];
            ldmatrix_x4_trans(b, v + 16 * step * kValuePitch + place_in_row<kValuePitch>(counts + 32 * j, turn));
#pragma unroll
            for (i32 m = 0; m < kRowTiles; m++) {
                multiply(state.out[m][j][0], a[m], b[0], b[1]);
                multiply(state.out[m][j][1], a[m], b[2], b[3]);
            }
        }
    }
}

// ---- softmax over the warps of a row

// The largest of each row's scores in this block, over all warps that share the row. Holds a barrier if there are several.
QN_DEVICE void share_maxima(const Shared &s, float (&most)[kRowTiles][2])
{
    if constexpr (COLUMNS > 1) {
#pragma unroll
        for (i32 m = 0; m < kRowTiles; m++)
#pragma unroll
            for (i32 half = 0; half < 2; half++)
                if (lane_index() % 4 == 0) s.maxima[warp_part() * ROWS + thread_row(m) + 8 * half] = most[m][half];
        __syncthreads();
#pragma unroll
        for (i32 m = 0; m < kRowTiles; m++)
#pragma unroll
            for (i32 half = 0; half < 2; half++)
#pragma unroll
                for (i32 part = 0; part < COLUMNS; part++)
                    most[m][half] = fmaxf(most[m][half], s.maxima[part * ROWS + thread_row(m) + 8 * half]);
    }
}

QN_DEVICE void share_probabilities(const Shared &s, const float (&x)[kRowTiles][kKeyTiles][4])
{
    if constexpr (COLUMNS > 1) {
#pragma unroll
        for (i32 m = 0; m < kRowTiles; m++)
#pragma unroll
            for (i32 j = 0; j < kKeyTiles; j++)
#pragma unroll
                for (i32 half = 0; half < 2; half++) {
                    const i32 key = warp_part() * 8 * kKeyTiles + 8 * j + 2 * (lane_index() % 4);
                    *reinterpret_cast<u32 *>(s.probabilities + (thread_row(m) + 8 * half) * kProbabilityPitch +
                                             2 * key) = pack(x[m][j][2 * half], x[m][j][2 * half + 1]);
                }
    }
}

QN_DEVICE void rescale(State &state, i32 m, const float (&factor)[2])
{
    if (!__any_sync(kFullMask, factor[0] != 1.f || factor[1] != 1.f)) return;
#pragma unroll
    for (i32 i = 0; i < 4; i++) state.total[m][i] *= factor[i / 2];
#pragma unroll
    for (i32 half = 0; half < 2; half++) state.sum[m][half] *= factor[half];
#pragma unroll
    for (i32 j = 0; j < kOutTiles; j++)
#pragma unroll
        for (i32 i = 0; i < 8; i++) state.out[m][j][i / 4][i % 4] *= factor[i % 4 / 2];
}

// Scores of a block to probabilities; the state's sums are brought to the new bases.
QN_DEVICE void soften(const attention_params &p, const Shared &s, float (&x)[kRowTiles][kKeyTiles][4], State &state)
{
    const float unit = unit_log2(p);
    float most[kRowTiles][2];
#pragma unroll
    for (i32 m = 0; m < kRowTiles; m++) max_of_scores(x[m], most[m]);
    share_maxima(s, most);
#pragma unroll
    for (i32 m = 0; m < kRowTiles; m++) {
        float factor[2];
#pragma unroll
        for (i32 half = 0; half < 2; half++) {
            const float base = fmaxf(state.base[m][half], whole_base(most[m][half], unit));
            factor[half] = whole_factor(state.base[m][half], base);
            state.base[m][half] = base;
        }
        rescale(state, m, factor);
        whole_exponentials(x[m], state.base[m], unit, state.sum[m]);
    }
    share_probabilities(s, x);
}

// ---- the ring

struct Ring {
    i32 first;     // the first block's first key
    i32 count;     // slots' worth of blocks in all
    i32 loaded;    // of these, on their way or there
    i32 fill, use; // slots
};

QN_DEVICE void load_next(const attention_params &p, const Tile &t, const Shared &s, Ring &ring)
{
    if (ring.loaded < ring.count) {
        const i32 key = ring.first + ring.loaded / kBlocksOfKeys * KEYS;
        unsigned char *slot = s.ring + ring.fill * kSlotBytes;
        if (ALIAS || ring.loaded % 2 == 0)
            load_keys(p, t, source_of(p, t, p.k, p.k_stride), key, slot);
        else
            load_values(p, t, source_of(p, t, p.v, p.v_stride), key, slot);
        ring.loaded++;
        ring.fill = ring.fill + 1 == SLOTS ? 0 : ring.fill + 1;
    }
    cp_async_commit_group(); // also an empty one: groups are counted
}

// Waits for the next block in the ring and sends for another, into the slot of the block before.
QN_DEVICE const unsigned char *next_block(const attention_params &p, const Tile &t, const Shared &s, Ring &ring)
{
    cp_async_wait_group<SLOTS - 2>();
    __syncthreads();
    load_next(p, t, s, ring);
    const unsigned char *slot = s.ring + ring.use * kSlotBytes;
    ring.use = ring.use + 1 == SLOTS ? 0 : ring.use + 1;
    return slot;
}

// ---- the tile

QN_DEVICE void score_block(const attention_params &p, const Tile &t, const Inner &inner, i32 key,
                           float (&x)[kRowTiles][kKeyTiles][4])
{
    const bool whole = key >= inner.first && key + KEYS <= inner.last;
#pragma unroll
    for (i32 m = 0; m < kRowTiles; m++) {
        if constexpr (SOFTCAP || NEGATIVE) {
#pragma unroll
            for (i32 j = 0; j < kKeyTiles; j++)
#pragma unroll
                for (i32 i = 0; i < 4; i++) x[m][j][i] = score_of(p, x[m][j][i]);
        }
        // Limits are worked out again for each of the few blocks that need them: kept, they would take registers.
        if (!whole)
            mask_scores(x[m], limits_of(p, t, thread_row(m)),
                        key + warp_part() * 8 * kKeyTiles + 2 * (lane_index() % 4));
    }
}

// Keys first_key … last_key - 1, of which a first block may begin earlier.
QN_DEVICE i32 blocks_of(i32 first_key, i32 last_key)
{
    return last_key > first_key ? ceil_div(last_key - first_key / KEYS * KEYS, KEYS) : 0;
}

// Sends for the queries and the first blocks. Every thread of the CTA comes here and to each block.
QN_DEVICE void ring_start(const attention_params &p, const Tile &t, const Shared &s, i32 first_key, i32 last_key,
                          Ring &ring)
{
    ring.first = first_key / KEYS * KEYS;
    ring.count = blocks_of(first_key, last_key) * kBlocksOfKeys;
    ring.loaded = ring.fill = ring.use = 0;
    load_queries(p, t, s.queries);
#pragma unroll
    for (i32 i = 0; i < SLOTS - 1; i++) load_next(p, t, s, ring);
}

// Adds the next `blocks` blocks of the ring, the first of which begins at key `begin`, to the state.
QN_DEVICE void attend(const attention_params &p, const Tile &t, const Shared &s, const Inner &inner, i32 begin,
                      i32 blocks, Ring &ring, State &state)
{
#pragma unroll 1
    for (i32 block = 0; block < blocks; block++) {
        float x[kRowTiles][kKeyTiles][4];
        const unsigned char *slot = next_block(p, t, s, ring);
        score_tiles(s, slot, x);
        score_block(p, t, inner, begin + block * KEYS, x);
        soften(p, s, x, state);
        if constexpr (!ALIAS)
            slot = next_block(p, t, s, ring);
        else if constexpr (COLUMNS > 1)
            __syncthreads();
        value_tiles(s, slot, x, state);
    }
}

// Every copy has landed, also those that nobody waited for.
QN_DEVICE void ring_end()
{
    cp_async_wait_all();
}

// LSE: sums over all lanes and warps of a row, in a fixed order. Holds a barrier if there are several warps.
QN_DEVICE void gather_sums(const Shared &s, State &state)
{
    if constexpr (LSE) {
#pragma unroll
        for (i32 m = 0; m < kRowTiles; m++)
#pragma unroll
            for (i32 half = 0; half < 2; half++) {
                state.sum[m][half] = quad_sum(state.sum[m][half]);
                if (COLUMNS > 1 && lane_index() % 4 == 0)
                    s.sums[warp_part() * ROWS + thread_row(m) + 8 * half] = state.sum[m][half];
            }
    }
    if constexpr (LSE && COLUMNS > 1) {
        __syncthreads();
#pragma unroll
        for (i32 m = 0; m < kRowTiles; m++)
#pragma unroll
            for (i32 half = 0; half < 2; half++) {
                float sum = 0.f;
#pragma unroll
                for (i32 part = 0; part < COLUMNS; part++) sum += s.sums[part * ROWS + thread_row(m) + 8 * half];
                state.sum[m][half] = sum;
            }
    }
}

// ---- results

// Divides by the sums and writes out and lse. The state's sums are those of gather_sums.
QN_DEVICE void store_tile(const attention_params &p, const Tile &t, const State &state)
{
#pragma unroll
    for (i32 m = 0; m < kRowTiles; m++) {
        const Limits limits = limits_of(p, t, thread_row(m));
#pragma unroll
        for (i32 half = 0; half < 2; half++) {
            const i32 row = thread_row(m) + 8 * half;
            if (row >= t.rows) continue;
            const bool seen = is_seen(limits, half);
            const float base = state.base[m][half];
            const float weight = whole_weight(p, seen, head_of_row(p, t, row), base, state.total[m][2 * half]);
            u16 *to = out_row(p, t, row);
#pragma unroll
            for (i32 j = 0; j < kOutTiles; j++)
#pragma unroll
                for (i32 side = 0; side < 2; side++) {
                    const i32 column = (warp_part() * kOutTiles + j) * 16 + 8 * side + 2 * (lane_index() % 4);
                    if ((kOutTiles * COLUMNS * 16 != DV) && column >= DV) continue;
                    const float *o = &state.out[m][j][side][2 * half];
                    store_pair(to + column, p.aligned & 8, seen ? o[0] * weight : 0.f, seen ? o[1] * weight : 0.f);
                }
            if (LSE && warp_part() == 0 && lane_index() % 4 == 0)
                *lse_of_row(p, t, row) = whole_lse(seen, base, state.sum[m][half]);
        }
    }
}
