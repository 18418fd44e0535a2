// SPDX-License-Identifier: Apache-2.0
// What the plan "heads" loads: keys and values by TMA, by one thread, as far ahead as there is room, in the order k0, v0,
// k1, v1, …; queries, whose rows are heads of any number of positions, by cp.async of the computing threads.
//
// Positions past a dense tensor arrive as zeros. Where a sequence ends earlier, what follows may be anything: scores are
// masked, and whoever multiplies with the last block's values clears the rows past the end first (heads_math.cuh).
#pragma once

#include "heads_shared.cuh"
#include "split.cuh"

// Where a box is. Words of the block table past a sequence's end are not read.
struct Place {
    i32 position, batch;
};
QN_DEVICE Place place_of_box(const attention_params &p, const Tile &t, i32 key)
{
    if constexpr (kPaged) {
        const int *table = p.block_table + (i64)t.sequence.index * p.table_stride;
        return {key % kPage, key < t.sequence.keys ? __ldg(table + key / kPage) : 0};
    }
    return {(i32)t.sequence.first_key + key, kVarlen ? 0 : t.sequence.index};
}

// Chunks begin … end - 1 of a block.
QN_DEVICE void load_piece(const attention_heads_params &all, const Tile &t, const attention_map &map, i32 key,
                          i32 begin, i32 end, unsigned char *to, u64 *full)
{
    mbarrier_arrive_expect_tx(full, (u32)((end - begin) * kChunkBytes));
#pragma unroll 1
    for (i32 row = 0; row < KEYS; row += BOX) {
        const Place place = place_of_box(all.p, t, key + row);
        for (i32 c = begin; c < end; c++)
            cp_async_bulk_tensor_4d_load(to + c * kChunkBytes + row * 128, reinterpret_cast<const TensorMap *>(&map),
                                         full, 64 * c, place.position, t.kv_head, place.batch);
    }
}

// number: of the block among all that this CTA loads.
QN_DEVICE void load_block(const attention_heads_params &all, const Tile &t, const Pieces &s, i32 key, u32 number)
{
    const u32 stage = number % kStages, phase = number / kStages;
#pragma unroll
    for (i32 piece = 0; piece < kKeyPieces; piece++) {
        const u32 at = stage * kKeyPieces + piece;
        wait_phase(s.key_empty + at, phase + 1);
        load_piece(all, t, all.k, key, key_piece(piece), key_piece(piece + 1), s.keys + stage * kKeyStageBytes,
                   s.key_full + at);
    }
    if constexpr (!ALIAS) {
#pragma unroll
        for (i32 piece = 0; piece < COLUMNS; piece++) {
            const u32 at = stage * COLUMNS + piece;
            wait_phase(s.value_empty + at, phase + 1);
            load_piece(all, t, all.v, key, value_piece(piece), value_piece(piece + 1),
                       s.values + stage * kValueStageBytes, s.value_full + at);
        }
    }
}

// Goes through the blocks of the CTA's splits.
struct Loader {
    i32 split, end; // the next block's, and where the CTA's end
    i32 block;      // in it
    u32 number;     // among all of the CTA
};

QN_DEVICE bool has_next(const Loader &loader)
{
    return loader.split < loader.end;
}

QN_DEVICE void load_next(const attention_heads_params &all, const Tile &t, const Pieces &s, const Splits &splits,
                         Loader &loader)
{
    i32 first, last;
    keys_of_part<false>(all.p, t, splits, loader.split, &first, &last);
    const Blocks blocks = blocks_between(first, last);
    load_block(all, t, s, blocks.first + loader.block * KEYS, loader.number++);
    if (++loader.block == blocks.count) loader.block = 0, loader.split++;
}

// Sends for this thread's part of the queries; rows past the tile's and columns past the head_dim become zeros.
QN_DEVICE void load_queries(const attention_params &p, const Tile &t, const Pieces &s)
{
    constexpr i32 kPieces = kChunks * 8; // of 16 bytes, a row
#pragma unroll 4
    for (i32 at = thread_index(); at < 64 * kPieces; at += kGroups * kGroupThreads) {
        const i32 row = at / kPieces, piece = at % kPieces;
        const bool is_data = row < t.rows && piece < D / 8;
        const void *from = p.q;
        if (is_data) from = query_row(p, t, row) + 8 * piece;
        cp_async_cg_zfill(s.queries + piece / 8 * kQueryChunkBytes + row * 128 + ((piece % 8) ^ (row % 8)) * 16, from,
                          is_data ? 16u : 0u);
    }
}
