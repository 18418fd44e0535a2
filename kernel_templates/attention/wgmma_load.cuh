// SPDX-License-Identifier: Apache-2.0
// A loading warp of the plan "wgmma": queries, keys and values of one tile after another by TMA, as far ahead as there is
// room. Order: k0, q, k1, v0, k2, v1, …, so that scores of a block can be begun before the block before is used up.
//
// Positions past a dense tensor arrive as zeros. Where a sequence ends earlier (LENGTHS, varlen), what follows may be
// anything: scores are masked, but 0 · NaN is not 0, so the loader clears the last block's rows of v that are past the end.
#pragma once

#include "wgmma_shared.cuh"

constexpr bool kClears = kVarlen || LENGTHS;

QN_DEVICE void load_chunks(unsigned char *to, const attention_map &map, u64 *bar, i32 begin, i32 end, i32 bytes,
                           i32 position, i32 head, i32 batch)
{
    for (i32 c = begin; c < end; c++)
        cp_async_bulk_tensor_4d_load(to + c * bytes, map_of(map), bar, 64 * c, position, head, batch);
}

QN_DEVICE void load_query_tile(const attention_wgmma_params &all, const Tile &t, const Pieces &s, u32 number)
{
    wait_phase(s.query_empty, number + 1);
    if (lane_index() == 0) {
        mbarrier_arrive_expect_tx(s.query_full, kRowGroups * kChunks * kQueryChunkBytes);
#pragma unroll
        for (i32 g = 0; g < kRowGroups; g++)
            load_chunks(s.queries + g * kChunks * kQueryChunkBytes, all.q, s.query_full, 0, kChunks, kQueryChunkBytes,
                        (i32)t.sequence.first_query + t.row_begin + 64 * g, t.head, RAGGED ? 0 : t.sequence.index);
    }
    __syncwarp();
}

// Where a block of keys is: a page has whole blocks. Words of the table past a sequence's end are not read.
static_assert(!kPaged || kPage % KEYS == 0, "PAGE: whole blocks of KEYS");
struct Place {
    i32 position, batch;
};
QN_DEVICE Place place_of_keys(const attention_params &p, const Tile &t, i32 key)
{
    if constexpr (kPaged) {
        const int *table = p.block_table + (i64)t.sequence.index * p.table_stride;
        return {key % kPage, key < t.sequence.keys ? __ldg(table + key / kPage) : 0};
    }
    return {(i32)t.sequence.first_key + key, kVarlen ? 0 : t.sequence.index};
}

QN_DEVICE void load_key_block(const attention_wgmma_params &all, const Tile &t, const Pieces &s, i32 key, u32 number)
{
    const u32 stage = number % kStages, phase = number / kStages;
    const Place place = place_of_keys(all.p, t, key);
#pragma unroll
    for (i32 piece = 0; piece < kKeyPieces; piece++) {
        const i32 begin = piece_begin(kChunks, kKeyPieces, piece), end = piece_begin(kChunks, kKeyPieces, piece + 1);
        u64 *full = s.key_full + stage * kKeyPieces + piece;
        wait_phase(s.key_empty + stage * kKeyPieces + piece, phase + 1);
        if (lane_index() == 0) {
            mbarrier_arrive_expect_tx(full, (end - begin) * kKeyChunkBytes);
            load_chunks(s.keys + stage * kKeyStageBytes, all.k, full, begin, end, kKeyChunkBytes, place.position,
                        t.kv_head, place.batch);
        }
        __syncwarp();
    }
}

// Rows `valid` … KEYS - 1 of the chunks. A row's columns are moved about within it only.
QN_DEVICE void clear_rows(unsigned char *chunks, i32 begin, i32 end, i32 valid)
{
    for (i32 c = begin; c < end; c++)
        for (i32 at = valid * 8 + lane_index(); at < KEYS * 8; at += kWarp)
            *reinterpret_cast<uint4 *>(chunks + c * kKeyChunkBytes + 16 * at) = make_uint4(0, 0, 0, 0);
}

// tails: how many pieces have been cleared so far.
QN_DEVICE void load_value_block(const attention_wgmma_params &all, const Tile &t, const Pieces &s, i32 key, u32 number,
                                u32 &tails)
{
    const u32 stage = number % kStages, phase = number / kStages;
    const Place place = place_of_keys(all.p, t, key);
    const i32 valid = max(t.sequence.keys - key, 0);
    const bool is_tail = kClears && valid < KEYS;
    unsigned char *to = s.values + stage * kValueStageBytes;
#pragma unroll
    for (i32 piece = 0; piece < kValuePieces; piece++) {
        const i32 begin = value_begin(piece), end = value_begin(piece + 1);
        u64 *full = s.value_full + stage * kValuePieces + piece, *bar = is_tail ? s.tail : full;
        wait_phase(s.value_empty + stage * kValuePieces + piece, phase + 1);
        if (lane_index() == 0) {
            mbarrier_arrive_expect_tx(bar, (end - begin) * kKeyChunkBytes);
            load_chunks(to, all.v, bar, begin, end, kKeyChunkBytes, place.position, t.kv_head, place.batch);
        }
        __syncwarp();
        if constexpr (kClears) {
            if (!is_tail) continue;
            wait_phase(s.tail, tails++);
            clear_rows(to, begin, end, valid);
            fence_proxy_async_shared();
            warp_arrive(full);
        }
    }
}

QN_DEVICE void load_tiles(const attention_wgmma_params &all, const Pieces &s, i32 line)
{
    u32 tiles = 0, keys = 0, values = 0, tails = 0;
    for (i32 visit = 0, number; (number = next_tile(all, line, visit)) >= 0;) {
        const Tile t = tile_at(all.p, number);
        if (t.rows <= 0) continue;
        const Blocks blocks = blocks_of(t);
        load_key_block(all, t, s, blocks.first, keys++);
        load_query_tile(all, t, s, tiles++);
#pragma unroll 1
        for (i32 j = 0; j < blocks.count; j++) {
            if (j + 1 < blocks.count) load_key_block(all, t, s, blocks.first + (j + 1) * KEYS, keys++);
            load_value_block(all, t, s, blocks.first + j * KEYS, values++, tails);
        }
    }
}
