// SPDX-License-Identifier: Apache-2.0
// What a CTA works on: which queries of which sequence and heads are its rows, which keys they may see. Shared by all
// attention kernels; knows nothing of how tiles are loaded and multiplied.
//
// Row r of a tile is query r / pack of the tile's first one on, head r % pack of the tile's heads. A query's position is
// its number + Sk - Sq, and it sees the keys first … last - 1 of its own.
//
// Prologue: D, DV, IN (elements.cuh), LAYOUT (0 dense, 1 varlen, 2 paged), PAGE, RAGGED, LENGTHS, WINDOW_LEFT,
// WINDOW_RIGHT, SOFTCAP, NEGATIVE, SINK, ALIAS, LSE, ROWS, KEYS, COLUMNS, SLOTS.
#pragma once

#include "../common/elements.cuh"
#include "../common/warp.cuh"
#include "args.h"

static_assert(D >= 8 && D <= 576 && D % 8 == 0, "D: a multiple of 8, 8 to 576");
static_assert(DV >= 8 && DV <= 512 && DV % 8 == 0, "DV: a multiple of 8, 8 to 512");
static_assert(IN == 2 || IN == 3, "IN: 2 f16, 3 bf16");
static_assert(LAYOUT >= 0 && LAYOUT <= 2 && (LAYOUT == 2) == (PAGE > 0), "PAGE: with LAYOUT 2");
static_assert(!ALIAS || DV <= D, "ALIAS: v is the first DV columns of k");

constexpr bool kPaged = LAYOUT == 2, kVarlen = LAYOUT == 1;
constexpr i32 kPage = kPaged ? PAGE : 1;
typedef ElementOf<IN>::Type Element;

QN_DEVICE i32 thread_index()
{
    return (i32)threadIdx.x;
}
QN_DEVICE i32 lane_index()
{
    return (i32)threadIdx.x % kWarp;
}
QN_DEVICE i32 warp_index()
{
    return (i32)threadIdx.x / kWarp;
}

QN_DEVICE i32 ceil_div(i32 a, i32 b)
{
    return (a + b - 1) / b;
}

// ---- a sequence

struct Sequence {
    i32 index;
    i32 queries, keys;
    i32 first_query; // ragged: its place in q
    i32 first_key;   // varlen: its place in k
};

// A bound of a ragged axis, no further than the tensor.
QN_DEVICE i32 bound_at(const int *cu, i32 at, i32 most)
{
    return min(max(__ldg(cu + at), 0), most);
}

QN_DEVICE i32 keys_of(const attention_params &p, i32 b, i32 *first)
{
    *first = 0;
    if constexpr (kVarlen) {
        const i32 begin = bound_at(p.cu_k, b, p.Sk);
        *first = begin;
        return max(bound_at(p.cu_k, b + 1, p.Sk) - begin, 0);
    } else if constexpr (LENGTHS) {
        return min(max(__ldg(p.length_k + b), 0), p.Sk);
    } else {
        return p.Sk;
    }
}

// ---- a tile

struct Tile {
    Sequence sequence;
    i32 head; // the first query head of its rows
    i32 kv_head;
    i32 number;              // in the sequence
    i32 row_begin;           // the tile's first row, among the sequence's queries times pack
    i32 rows;                // 1 … ROWS; 0: nothing to do
    i32 first_key, last_key; // keys that some row sees: first_key … last_key - 1
};

// Which sequence a tile of a ragged batch falls into: tiles are counted through all sequences, a lane a sequence. False: it
// is past the last. Every warp does the same.
QN_DEVICE bool find_ragged(const attention_params &p, i32 number, Tile *tile)
{
    i32 before = 0;
    for (i32 base = 0; base < p.B; base += kWarp) {
        const i32 b = base + lane_index(), valid = b < p.B;
        const i32 begin = valid ? __ldg(p.cu_q + b) : 0, end = valid ? __ldg(p.cu_q + b + 1) : 0;
        const i32 tiles = end > begin ? (i32)(((i64)(end - begin) * p.pack + ROWS - 1) / ROWS) : 0;
        const i32 until = before + (i32)warp_inclusive_sum((u32)tiles);
        const u32 past = __ballot_sync(kFullMask, until > number);
        if (past) {
            const i32 lane = __ffs((i32)past) - 1;
            tile->sequence.index = base + lane;
            tile->sequence.first_query = __shfl_sync(kFullMask, begin, lane);
            tile->sequence.queries = __shfl_sync(kFullMask, end - begin, lane);
            tile->number = number - __shfl_sync(kFullMask, until - tiles, lane);
            return true;
        }
        before = __shfl_sync(kFullMask, until, kWarp - 1);
    }
    return false;
}

// Keys that the queries a … b of a sequence see, as bounds of the union.
QN_DEVICE void key_range(const attention_params &p, const Sequence &s, i32 a, i32 b, i32 *first, i32 *last)
{
    const i64 shift = (i64)s.keys - s.queries;
    *first = 0, *last = s.keys;
    if constexpr (WINDOW_LEFT) *first = (i32)min(max(a + shift - p.window_left, (i64)0), (i64)s.keys);
    if constexpr (WINDOW_RIGHT) *last = (i32)min(max(b + shift + p.window_right + 1, (i64)0), (i64)s.keys);
}

QN_DEVICE i32 query_of_row(const attention_params &p, const Tile &tile, i32 row)
{
    return p.pack == 1 ? tile.row_begin + row : (tile.row_begin + row) / p.pack;
}
QN_DEVICE i32 head_of_row(const attention_params &p, const Tile &tile, i32 row)
{
    return p.pack == 1 ? tile.head : tile.head + (tile.row_begin + row) % p.pack;
}

// Tiles of one head (or packed heads) and sequence are neighbours, so that they find its keys in L2; the last one, which
// sees most keys when there is a causal limit, comes first.
QN_DEVICE Tile tile_at(const attention_params &p, i32 block)
{
    Tile t;
    t.rows = 0;
    const i32 groups = p.Hq / p.pack;
    const i32 number = p.tiles - 1 - block % p.tiles, group = block / p.tiles % groups;
    if constexpr (RAGGED) {
        if (!find_ragged(p, number, &t)) return t;
    } else {
        t.sequence.index = block / p.tiles / groups;
        t.sequence.first_query = 0;
        t.sequence.queries = p.Sq;
        t.number = number;
    }
    t.sequence.keys = keys_of(p, t.sequence.index, &t.sequence.first_key);
    t.head = group * p.pack;
    t.kv_head = t.head / (p.Hq / p.Hkv);
    t.row_begin = t.number * ROWS;
    t.rows = (i32)min((i64)t.sequence.queries * p.pack - t.row_begin, (i64)ROWS);
    key_range(p, t.sequence, query_of_row(p, t, 0), query_of_row(p, t, t.rows - 1), &t.first_key, &t.last_key);
    return t;
}

QN_DEVICE Tile tile_of_block(const attention_params &p)
{
    return tile_at(p, (i32)blockIdx.x);
}

// ---- addresses

QN_DEVICE const u16 *query_row(const attention_params &p, const Tile &t, i32 row)
{
    const i64 batch = RAGGED ? 0 : t.sequence.index * p.q_stride.batch;
    const i64 position = (i64)t.sequence.first_query + query_of_row(p, t, row);
    return (const u16 *)p.q + batch + position * p.q_stride.position + head_of_row(p, t, row) * p.q_stride.head;
}

QN_DEVICE u16 *out_row(const attention_params &p, const Tile &t, i32 row)
{
    const i64 batch = RAGGED ? 0 : t.sequence.index * p.out_stride.batch;
    const i64 position = (i64)t.sequence.first_query + query_of_row(p, t, row);
    return (u16 *)p.out + batch + position * p.out_stride.position + head_of_row(p, t, row) * p.out_stride.head;
}

QN_DEVICE float *lse_of_row(const attention_params &p, const Tile &t, i32 row)
{
    const i64 batch = RAGGED ? 0 : t.sequence.index * p.lse_stride_batch;
    const i64 position = (i64)t.sequence.first_query + query_of_row(p, t, row);
    return p.lse + batch + position * p.lse_stride_position + head_of_row(p, t, row);
}

// The keys (or values) of a tile's sequence and KV head.
struct Source {
    const u16 *base;
    i64 stride;       // from a position to the next (paged: in a page)
    i64 page_stride;  // paged
    const int *table; // paged
};

QN_DEVICE Source source_of(const attention_params &p, const Tile &t, const void *tensor, const attention_strides &s)
{
    Source source;
    source.base = (const u16 *)tensor + t.kv_head * s.head;
    source.stride = s.position, source.page_stride = s.batch, source.table = nullptr;
    if constexpr (kPaged)
        source.table = p.block_table + t.sequence.index * p.table_stride;
    else if constexpr (kVarlen)
        source.base += (i64)t.sequence.first_key * s.position;
    else
        source.base += t.sequence.index * s.batch;
    return source;
}

QN_DEVICE const u16 *row_of_key(const Source &s, i32 key)
{
    if constexpr (kPaged) return s.base + (i64)__ldg(s.table + key / kPage) * s.page_stride + key % kPage * s.stride;
    return s.base + key * s.stride;
}
