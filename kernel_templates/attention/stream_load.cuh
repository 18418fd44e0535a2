// SPDX-License-Identifier: Apache-2.0
// A warp's own ring of blocks of keys and values, filled by its own cp.async: nobody else reads or waits for it. Of the
// CTA's keys, block number n (of KEYS keys, counted from the sequence's first) is that of warp n % kStreams.
#pragma once

#include "load.cuh"

constexpr i32 kStreams = THREADS / kWarp;
constexpr i32 kStride = kStreams * KEYS; // keys from a block of a warp to its next

// Bytes of a row in a slot: whole lines, as in load.cuh, or whole sectors of 32 bytes, since a row that begins in the middle
// of one has each of its sectors read twice from L2, once for each half. An odd number of sectors, so that ldmatrix meets a
// bank twice at most. (Turns take registers, of which 16 rows of 256 columns leave none.)
QN_DEVICE constexpr i32 row_bytes(i32 padded)
{
    return padded % 64 == 0 && (ROWS == 8 || padded < 256) ? padded * 2 : (padded / 16 | 1) * 32;
}
constexpr i32 kKeyRow = row_bytes(kDPadded), kValueRow = ALIAS ? kKeyRow : row_bytes(kDVPadded);
// A block, and room for what a warp's sums take besides (stream.cuh).
constexpr i32 kRingSlot = KEYS * (kKeyRow > kValueRow ? kKeyRow : kValueRow) + 16 * ROWS;

static_assert(KEYS % 16 == 0, "KEYS: multiples of 16");
static_assert(SLOTS >= 2, "SLOTS: 2 at least");

// The key that this warp's first block begins with, of those from the block of `key` on.
QN_DEVICE i32 first_of_warp(i32 key)
{
    const i32 block = key / KEYS;
    return (block + (warp_index() - block % kStreams + kStreams) % kStreams) * KEYS;
}

// As load_lines, of short rows.
template <int kPadded, int kPitch>
QN_DEVICE void load_whole_block(const Source &source, const u16 *block, unsigned char *to)
{
    constexpr i32 kPieces = kPadded / 8, kRows = kWarp / kPieces; // pieces of 16 bytes; rows a step
    const u16 *from = block + lane_index() / kPieces * source.stride + lane_index() % kPieces * 8;
    unsigned char *place = to + lane_index() / kPieces * kPitch + lane_index() % kPieces * 16;
#pragma unroll
    for (i32 i = 0; i < KEYS / kRows; i++, from += kRows * source.stride) cp_async_cg(place + i * kRows * kPitch, from);
}

// Rows of a block: kColumns of each, up to kPadded as zeros; rows from `valid` on are zeros.
template <int kColumns, int kPadded, int kPitch>
QN_DEVICE void load_block(const Source &source, i32 key, i32 valid, bool aligned, const void *anywhere,
                          unsigned char *to)
{
    constexpr i32 kPieces = kPadded / 8, kEach = KEYS * kPieces / kWarp; // pieces of 16 bytes; a lane
    constexpr bool kOnePage = !kPaged || kPage % KEYS == 0;
    const u16 *block = (const u16 *)anywhere;
    if (kOnePage && valid > 0) block = row_of_key(source, key);
    if constexpr (has_lines<kColumns, kPitch, kWarp>()) {
        if (aligned && valid >= KEYS) {
            load_lines<KEYS, kWarp, kPadded, kPitch>(to, block, source.stride, lane_index());
            return;
        }
    } else if constexpr (kOnePage && kColumns == kPadded && kWarp % kPieces == 0 && KEYS % (kWarp / kPieces) == 0) {
        if (aligned && valid >= KEYS) {
            load_whole_block<kPadded, kPitch>(source, block, to);
            return;
        }
    }
    i32 row = lane_index() / kPieces, piece = lane_index() % kPieces;
    if (aligned) {
        unsigned char *place = to + row * kPitch;
        // Steps, not products, as in load_rows.
#pragma unroll 4
        for (i32 i = 0; i < kEach; i++) {
            const bool is_data = row < valid && (kColumns == kPadded || piece < kColumns / 8);
            const void *from = anywhere;
            if (is_data) from = (kOnePage ? block + row * source.stride : row_of_key(source, key + row)) + 8 * piece;
            cp_async_cg_zfill(place + ((16 * piece) ^ turn_of<kPitch>(row)), from, is_data ? 16u : 0u);
            row += kWarp / kPieces, piece += kWarp % kPieces, place += kWarp / kPieces * kPitch;
            if (kWarp % kPieces && piece >= kPieces) piece -= kPieces, row++, place += kPitch;
        }
    } else {
#pragma unroll 1
        for (i32 at = lane_index(); at < KEYS * kPieces; at += kWarp) {
            row = at / kPieces, piece = at % kPieces;
            u32 word[4] = {0, 0, 0, 0};
            if (row < valid && piece < kColumns / 8) {
                const u16 *from = (kOnePage ? block + row * source.stride : row_of_key(source, key + row)) + 8 * piece;
#pragma unroll
                for (i32 i = 0; i < 8; i++) word[i / 2] |= (u32)from[i] << 16 * (i % 2);
            }
            *reinterpret_cast<uint4 *>(to + row * kPitch + ((16 * piece) ^ turn_of<kPitch>(row))) =
                make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

// Blocks k0, v0, k1, v1, … (k0, k1, … with ALIAS) of one warp.
struct Ring {
    unsigned char *slots; // [SLOTS] of kRingSlot
    i32 key, end;         // the next block to be sent for; keys end here
    bool values;          // it is one of values
    i32 fill, use;        // slots
    Source source[2];     // of keys, of values
};

QN_DEVICE void load_next(const attention_params &p, const Tile &t, Ring &ring)
{
    if (ring.key < ring.end) {
        unsigned char *to = ring.slots + ring.fill * kRingSlot;
        const i32 valid = t.sequence.keys - ring.key;
        if (!ring.values)
            load_block<D, kDPadded, kKeyRow>(ring.source[0], ring.key, valid, p.aligned & 2, p.k, to);
        else
            load_block<DV, kDVPadded, kValueRow>(ring.source[1], ring.key, valid, p.aligned & 4, p.v, to);
        if (ALIAS || ring.values) ring.key += kStride;
        ring.values = !ALIAS && !ring.values;
        ring.fill = ring.fill + 1 == SLOTS ? 0 : ring.fill + 1;
    }
    cp_async_commit_group(); // also an empty one: groups are counted
}

QN_DEVICE void ring_start(const attention_params &p, const Tile &t, i32 first_key, i32 last_key, unsigned char *slots,
                          Ring &ring)
{
    ring.slots = slots, ring.key = first_of_warp(first_key), ring.end = last_key, ring.values = false;
    ring.fill = ring.use = 0;
    ring.source[0] = source_of(p, t, p.k, p.k_stride);
    if constexpr (!ALIAS) ring.source[1] = source_of(p, t, p.v, p.v_stride);
#pragma unroll
    for (i32 i = 0; i < SLOTS - 1; i++) load_next(p, t, ring);
}

// Waits for the warp's next block and sends for another, into the slot of the block before.
QN_DEVICE const unsigned char *next_block(const attention_params &p, const Tile &t, Ring &ring)
{
    cp_async_wait_group<SLOTS - 2>();
    __syncwarp();
    load_next(p, t, ring);
    const unsigned char *slot = ring.slots + ring.use * kRingSlot;
    ring.use = ring.use + 1 == SLOTS ? 0 : ring.use + 1;
    return slot;
}

// The slot that nothing is on its way to.
QN_DEVICE unsigned char *free_slot(const Ring &ring)
{
    return ring.slots + ring.fill * kRingSlot;
}
