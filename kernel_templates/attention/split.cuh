// SPDX-License-Identifier: Apache-2.0
// Splits of a tile's keys: which there are, a split's part in the workspace, and the merge by whoever ends last.
//
//   workspace  ATTENTION_TICKETS words, 0 between launches (a ticket wraps to 0 by itself, so that a captured graph may be
//              replayed), then for each tile that may be cut and each split: [ROWS] of (base, total, sum, -), [ROWS][DV] sums
//              of p · v: what was kept of a tile
//
// Splits begin at multiples of p.split, whatever the batch; parts are added in the order of their keys. A split that a
// row does not see has base -inf and adds exactly nothing.
#pragma once

#include "product.cuh"
#include "softmax.cuh"

constexpr i32 kPartFloats = ROWS * (DV + 4);

struct Splits {
    i32 first; // number of the first one
    i32 count; // 1: the tile is not cut
    i32 ctas;  // that share them
    i32 longs; // of those
};

// By the sequence alone. More splits than the workspace has room for (the caller's bound of the keys was too low): one.
QN_DEVICE Splits splits_of(const attention_params &p, const Tile &t)
{
    Splits s = {0, 1, 1, 1};
    if (p.split_most <= 1 || t.sequence.queries > ATTENTION_SPLIT_QUERIES || t.last_key <= t.first_key) return s;
    const i32 first = t.first_key / p.split, count = (t.last_key - 1) / p.split - first + 1;
    if (count > p.split_most) return s;
    s.first = first, s.count = count, s.ctas = min(count, p.split_ctas);
    s.longs = min(s.ctas, p.split_long);
    return s;
}

// The first of the splits of CTA `cta`. The first CTAs of all tiles take most of the splits, the last ones one each: the
// device hands these out as SMs get free, and so makes up for SMs of which some get more of the memory's bandwidth.
QN_DEVICE i32 first_split(const Splits &s, i32 cta)
{
    if (cta >= s.longs) return s.count - (s.ctas - cta);
    return (i32)((i64)cta * (s.count - (s.ctas - s.longs)) / s.longs);
}

// Keys of split i of a tile, as far as some row sees them.
QN_DEVICE void keys_of_split(const attention_params &p, const Tile &t, const Splits &s, i32 i, i32 *first, i32 *last)
{
    *first = t.first_key, *last = t.last_key;
    if (s.count == 1) return;
    const i64 begin = (i64)(s.first + i) * p.split;
    *first = (i32)max((i64)t.first_key, begin), *last = (i32)min((i64)t.last_key, begin + p.split);
}

// ---- parts

QN_DEVICE i64 place_of(const attention_params &p, const Tile &t)
{
    return ((i64)t.sequence.index * p.Hkv + t.kv_head) * p.split_tiles + t.number;
}

QN_DEVICE float *part_of(const attention_params &p, const Tile &t, i32 split)
{
    float *parts = reinterpret_cast<float *>(p.workspace + ATTENTION_TICKETS * 4);
    return parts + (place_of(p, t) * p.split_most + split) * kPartFloats;
}

// True in the CTA that ends the tile: every part is then to be seen.
// word: of shared memory.
QN_DEVICE bool is_last(const attention_params &p, const Tile &t, const Splits &splits, u32 *word)
{
    __syncthreads();
    if (thread_index() == 0 && splits.ctas > 1) {
        fence_device();
        u32 *ticket = reinterpret_cast<u32 *>(p.workspace) + place_of(p, t);
        *word = atomic_increment_wrapped(ticket, (u32)splits.ctas - 1);
        fence_device();
    }
    __syncthreads();
    return splits.ctas == 1 || *word == (u32)splits.ctas - 1;
}

// ---- merge: a warp some columns of a row, two of them a lane at a time

constexpr i32 kPairs = (DV + 2 * kWarp - 1) / (2 * kWarp); // of columns, a lane and row
constexpr i32 kPairsAtOnce = kPairs < 4 ? kPairs : 4;      // of a CTA that merges its own tile

QN_DEVICE float base_of_parts(const attention_params &p, const Tile &t, const Splits &splits, i32 row)
{
    float base = -infinity();
    for (i32 i = lane_index(); i < splits.count; i += kWarp) base = fmaxf(base, load_l2(part_of(p, t, i) + 4 * row));
#pragma unroll
    for (i32 distance = kWarp / 2; distance; distance /= 2)
        base = fmaxf(base, __shfl_xor_sync(kFullMask, base, distance));
    return base;
}

// kAtOnce pairs a lane, and kParts parts: what is on its way at a time.
template <i32 kAtOnce, i32 kParts>
QN_DEVICE void merge_piece(const attention_params &p, const Tile &t, const Splits &splits, i32 row, i32 piece)
{
    const i32 first = 2 * (lane_index() + kWarp * kAtOnce * piece);
    const float base = base_of_parts(p, t, splits, row);
    float out[kAtOnce][2] = {}, total = 0.f, sum = 0.f;
#pragma unroll kParts
    for (i32 i = 0; i < splits.count; i++) {
        const float *part = part_of(p, t, i);
        const float factor = whole_factor(load_l2(part + 4 * row), base);
        total = fmaf(load_l2(part + 4 * row + 1), factor, total);
        if constexpr (LSE) sum = fmaf(load_l2(part + 4 * row + 2), factor, sum);
#pragma unroll
        for (i32 j = 0; j < kAtOnce; j++) {
            const i32 column = first + 2 * kWarp * j;
            if (DV % (2 * kWarp * kAtOnce) && column >= DV) continue;
            const u64 pair = load_l2(reinterpret_cast<const u64 *>(part + 4 * ROWS + row * DV + column));
            out[j][0] = fmaf(__uint_as_float((u32)(pair & 0xFFFFFFFFu)), factor, out[j][0]);
            out[j][1] = fmaf(__uint_as_float((u32)(pair >> 32)), factor, out[j][1]);
        }
    }
    const i32 query = query_of_row(p, t, row);
    i32 see, until;
    key_range(p, t.sequence, query, query, &see, &until);
    const bool seen = see < until;
    const float weight = whole_weight(p, seen, head_of_row(p, t, row), base, total);
    u16 *to = out_row(p, t, row);
#pragma unroll
    for (i32 j = 0; j < kAtOnce; j++) {
        const i32 column = first + 2 * kWarp * j;
        if (DV % (2 * kWarp * kAtOnce) && column >= DV) continue;
        store_pair(to + column, p.aligned & 8, seen ? out[j][0] * weight : 0.f, seen ? out[j][1] * weight : 0.f);
    }
    if (LSE && piece == 0 && lane_index() == 0) *lse_of_row(p, t, row) = whole_lse(seen, base, sum);
}

// Warp `warp` of `warps`, kAtOnce pairs of columns a lane.
template <i32 kAtOnce>
QN_DEVICE void merge(const attention_params &p, const Tile &t, const Splits &splits, i32 warp, i32 warps)
{
    constexpr i32 kPieces = (kPairs + kAtOnce - 1) / kAtOnce;
#pragma unroll 1
    for (i32 unit = warp; unit < t.rows * kPieces; unit += warps)
        merge_piece<kAtOnce, 16 / kAtOnce>(p, t, splits, unit / kPieces, unit % kPieces);
}
