// SPDX-License-Identifier: Apache-2.0
// Splits of a tile's keys: which there are, their parts in the workspace, and the merge by whoever ends last.
//
//   workspace  ATTENTION_TICKETS words, 0 between launches (a ticket wraps to 0 by itself, so that a captured graph may be
//              replayed), then for each tile that may be cut and each part: [ROWS] of (base, total, sum, -), [ROWS][DV] sums
//              of p · v: what was kept of a tile
//
// Splits begin at multiples of p.split, whatever the batch. A part is one split or, with p.joins, those of a CTA; parts are
// added in the order of their keys. One that a row does not see has base -inf and adds exactly nothing.
#pragma once

#include "product.cuh"
#include "softmax.cuh"

constexpr i32 kPartFloats = ROWS * (DV + 4);

struct Splits {
    i32 first; // number of the first one
    i32 count;
    i32 parts; // of one split each, or of a CTA's; 1: the tile is not cut
    i32 ctas;  // that share them
    i32 longs; // of those
};

QN_DEVICE Splits uncut()
{
    return {0, 1, 1, 1, 1};
}

// By the sequence alone. More splits than the workspace has room for (the caller's bound of the keys was too low): one.
QN_DEVICE Splits splits_of(const attention_params &p, const Tile &t)
{
    Splits s = uncut();
    if (p.split_most <= 1 || t.sequence.queries > ATTENTION_SPLIT_QUERIES || t.last_key <= t.first_key) return s;
    const i32 first = t.first_key / p.split, count = (t.last_key - 1) / p.split - first + 1;
    if (count > p.split_most) return s;
    s.first = first, s.count = count, s.ctas = min(count, p.split_ctas);
    s.longs = min(s.ctas, p.split_long);
    s.parts = p.joins ? s.ctas : s.count;
    return s;
}

// The first of the splits of CTA `cta`. The first CTAs of all tiles take most of the splits, the last ones one each: the
// device hands these out as SMs get free, and so makes up for SMs of which some get more of the memory's bandwidth.
QN_DEVICE i32 first_split(const Splits &s, i32 cta)
{
    if (cta >= s.longs) return s.count - (s.ctas - cta);
    const i32 shared = s.count - (s.ctas - s.longs), each = shared == s.longs ? 1 : shared / s.longs;
    return cta * each + min(cta, shared - each * s.longs);
}

// The first of the parts of CTA `cta`. kMayJoin: false where the plan never joins splits, which saves registers.
template <bool kMayJoin = true> QN_DEVICE i32 first_part(const attention_params &p, const Splits &s, i32 cta)
{
    return kMayJoin && p.joins ? cta : first_split(s, cta);
}

// Keys of part i of a tile, as far as some row sees them.
template <bool kMayJoin = true>
QN_DEVICE void keys_of_part(const attention_params &p, const Tile &t, const Splits &s, i32 i, i32 *first, i32 *last)
{
    *first = t.first_key, *last = t.last_key;
    if ((kMayJoin ? s.parts : s.count) == 1) return;
    const bool joins = kMayJoin && p.joins;
    const i32 from = joins ? first_split(s, i) : i, to = joins ? first_split(s, i + 1) : i + 1;
    *first = (i32)max((i64)t.first_key, (i64)(s.first + from) * p.split);
    *last = (i32)min((i64)t.last_key, (i64)(s.first + to) * p.split);
}

// The tile of a CTA: as tile_of_block has it, where all heads of a KV head are packed, with one division: a CTA's start is a
// good part of the time of short launches.
QN_DEVICE Tile tile_of_packed_block(const attention_params &p)
{
    if constexpr (RAGGED) return tile_of_block(p);
    Tile t;
    i32 group = (i32)blockIdx.x;
    t.number = 0;
    if (p.tiles > 1) group /= p.tiles, t.number = p.tiles - 1 - ((i32)blockIdx.x - group * p.tiles);
    t.sequence.index = group / p.Hkv;
    t.kv_head = group - t.sequence.index * p.Hkv, t.head = t.kv_head * p.pack;
    t.sequence.first_query = 0, t.sequence.queries = p.Sq;
    t.sequence.keys = keys_of(p, t.sequence.index, &t.sequence.first_key);
    t.row_begin = t.number * ROWS;
    t.rows = (i32)min((i64)p.Sq * p.pack - t.row_begin, (i64)ROWS);
    key_range(p, t.sequence, query_of_row(p, t, 0), query_of_row(p, t, t.rows - 1), &t.first_key, &t.last_key);
    return t;
}

// ---- parts

QN_DEVICE i64 place_of(const attention_params &p, const Tile &t)
{
    return ((i64)t.sequence.index * p.Hkv + t.kv_head) * p.split_tiles + t.number;
}

QN_DEVICE float *part_of(const attention_params &p, const Tile &t, i32 i)
{
    float *parts = reinterpret_cast<float *>(p.workspace + ATTENTION_TICKETS * 4);
    return parts + (place_of(p, t) * p.split_most + i) * kPartFloats;
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

// ---- merge: a warp some columns of a row

// What a lane has of a part's row beside its sums of p · v.
struct Head {
    float base, total, sum;
};

QN_DEVICE Head head_of_part(const attention_params &p, const Tile &t, const Splits &splits, i32 i, i32 row)
{
    Head head = {-infinity(), 0.f, 0.f};
    if (i >= splits.parts) return head;
    const float *at = part_of(p, t, i) + 4 * row;
    head.base = load_l2(at), head.total = load_l2(at + 1);
    if constexpr (LSE) head.sum = load_l2(at + 2);
    return head;
}

// One column or two neighbouring ones; 0 where there are none.
QN_DEVICE void load_columns(const float *at, bool are_there, float (&value)[1])
{
    value[0] = are_there ? load_l2(at) : 0.f;
}
QN_DEVICE void load_columns(const float *at, bool are_there, float (&value)[2])
{
    const u64 pair = are_there ? load_l2(reinterpret_cast<const u64 *>(at)) : 0;
    value[0] = __uint_as_float((u32)(pair & 0xFFFFFFFFu)), value[1] = __uint_as_float((u32)(pair >> 32));
}

// kAtOnce times kWidth neighbouring columns a lane, and kParts parts: what is on its way at a time. A lane has the head of a
// part. Sums are relative to the largest base so far; to bring them to another one changes no digit.
template <i32 kAtOnce, i32 kParts, i32 kWidth>
QN_DEVICE void merge_piece(const attention_params &p, const Tile &t, const Splits &splits, i32 row, i32 piece)
{
    constexpr i32 kStep = kWidth * kWarp; // columns
    constexpr bool kWhole = DV % (kStep * kAtOnce) == 0;
    const i32 first = kWidth * lane_index() + kStep * kAtOnce * piece;
    float out[kAtOnce][kWidth] = {}, base = -infinity(), total = 0.f, sum = 0.f;
#pragma unroll 1
    for (i32 begin = 0; begin < splits.parts; begin += kParts) {
        float value[kParts][kAtOnce][kWidth];
        const Head head = head_of_part(p, t, splits, lane_index() < kParts ? begin + lane_index() : splits.parts, row);
#pragma unroll
        for (i32 i = 0; i < kParts; i++)
#pragma unroll
            for (i32 j = 0; j < kAtOnce; j++) {
                const i32 column = first + kStep * j;
                load_columns(part_of(p, t, begin + i) + 4 * ROWS + row * DV + column,
                             begin + i < splits.parts && (kWhole || column < DV), value[i][j]);
            }
        const float top = fmaxf(base, warp_max(head.base)), keeps = whole_factor(base, top);
        const float factors = whole_factor(head.base, top);
        base = top, total *= keeps, sum *= keeps;
#pragma unroll
        for (i32 j = 0; j < kAtOnce; j++)
#pragma unroll
            for (i32 e = 0; e < kWidth; e++) out[j][e] *= keeps;
#pragma unroll
        for (i32 i = 0; i < kParts; i++) {
            const float factor = __shfl_sync(kFullMask, factors, i);
            total = fmaf(__shfl_sync(kFullMask, head.total, i), factor, total);
            if constexpr (LSE) sum = fmaf(__shfl_sync(kFullMask, head.sum, i), factor, sum);
#pragma unroll
            for (i32 j = 0; j < kAtOnce; j++)
#pragma unroll
                for (i32 e = 0; e < kWidth; e++) out[j][e] = fmaf(value[i][j][e], factor, out[j][e]);
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
        const i32 column = first + kStep * j;
        if (!kWhole && column >= DV) continue;
        if constexpr (kWidth == 2)
            store_pair(to + column, p.aligned & 8, seen ? out[j][0] * weight : 0.f, seen ? out[j][1] * weight : 0.f);
        else
            to[column] = (u16)(pack(seen ? out[j][0] * weight : 0.f, 0.f) & 0xFFFFu);
    }
    if (LSE && piece == 0 && lane_index() == 0) *lse_of_row(p, t, row) = whole_lse(seen, base, sum);
}

// Warp `warp` of `warps`.
template <i32 kAtOnce, i32 kParts, i32 kWidth = 2>
QN_DEVICE void merge(const attention_params &p, const Tile &t, const Splits &splits, i32 warp, i32 warps)
{
    constexpr i32 kColumns = kWidth * kWarp * kAtOnce, kPieces = (DV + kColumns - 1) / kColumns;
#pragma unroll 1
    for (i32 unit = warp; unit < t.rows * kPieces; unit += warps)
        merge_piece<kAtOnce, kParts, kWidth>(p, t, splits, unit / kPieces, unit % kPieces);
}

// By the warps of the CTA that ends the tile.
QN_DEVICE void merge_tile(const attention_params &p, const Tile &t, const Splits &splits)
{
    constexpr i32 kPairs = (DV + 2 * kWarp - 1) / (2 * kWarp), kAtOnce = kPairs < 4 ? kPairs : 4;
    merge<kAtOnce, 16 / kAtOnce>(p, t, splits, warp_index(), THREADS / kWarp);
}
