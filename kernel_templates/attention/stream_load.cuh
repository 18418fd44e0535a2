// SPDX-License-Identifier: Apache-2.0
// A warp's own ring of blocks of keys and values, filled by its own cp.async: nobody else reads or waits for it.
//
// A CTA works on `heads` KV heads that follow one another, warp w on head w % heads. Where heads lie beside each other in
// memory (more than one), warps that read the same positions of all of them read whole stretches of it. The warps of a
// head are its streams: block number n (of KEYS keys, counted from the sequence's first) is that of stream n % streams.
//
// Rows of more than 256 columns (without ALIAS) come in parts, a slot each, so that more warps find room.
#pragma once

#include "load.cuh"

constexpr i32 kWarps = THREADS / kWarp;
constexpr i32 kMostColumns = ALIAS ? 1024 : 256; // of a part
QN_DEVICE constexpr i32 parts_of(i32 padded)
{
    return (padded + kMostColumns - 1) / kMostColumns;
}
QN_DEVICE constexpr i32 columns_of(i32 padded) // of a part, but for the last
{
    return padded < kMostColumns ? padded : kMostColumns;
}
constexpr i32 kKeyParts = parts_of(kDPadded), kValueParts = ALIAS ? 0 : parts_of(kDVPadded);
constexpr i32 kKeyRow = pitch_of(columns_of(kDPadded)); // bytes in a slot
constexpr i32 kValueRow = ALIAS ? kKeyRow : pitch_of(columns_of(kDVPadded));
constexpr i32 kPartBytes = KEYS * (kKeyRow > kValueRow ? kKeyRow : kValueRow); // of a slot

static_assert(KEYS % 16 == 0, "KEYS: multiples of 16");
static_assert(SLOTS >= 2, "SLOTS: 2 at least");

// Which of the CTA's warps this one is.
struct Stream {
    i32 head;          // among the CTA's
    i32 number, count; // of the head's streams
};

QN_DEVICE Stream stream_of_warp(const attention_params &p)
{
    return {warp_index() % p.cta_heads, warp_index() / p.cta_heads, kWarps / p.cta_heads};
}

// The tile of one of the CTA's heads, of that of the first.
QN_DEVICE Tile tile_of_head(const attention_params &p, const Tile &first, i32 head)
{
    Tile t = first;
    t.head += head * p.pack, t.kv_head += head;
    return t;
}

// The key that a stream's first block begins with, of those from the block of `key` on.
QN_DEVICE i32 first_of_stream(const Stream &stream, i32 key)
{
    const i32 block = key / KEYS;
    return (block + (stream.number - block % stream.count + stream.count) % stream.count) * KEYS;
}

// ---- a block

// Rows that are all there, of whole pieces: nothing to be asked.
template <int kColumns, int kPitch> QN_DEVICE void load_whole(const u16 *block, i64 stride, unsigned char *to)
{
    constexpr i32 kPieces = kColumns / 8; // of 16 bytes, a row
    if constexpr (kPieces >= kWarp) {
        const u16 *from = block + 8 * lane_index();
        unsigned char *place = to + 16 * lane_index();
#pragma unroll 4
        for (i32 row = 0; row < KEYS; row++, from += stride, place += kPitch)
#pragma unroll
            for (i32 i = 0; i < kPieces / kWarp; i++) cp_async_cg(place + 16 * kWarp * i, from + 8 * kWarp * i);
    } else {
        constexpr i32 kRows = kWarp / kPieces; // at a time
        const i32 row = lane_index() / kPieces, piece = lane_index() % kPieces;
        const u16 *from = block + row * stride + 8 * piece;
        unsigned char *place = to + row * kPitch + 16 * piece;
        stride *= kRows;
#pragma unroll 8
        for (i32 i = 0; i < KEYS / kRows; i++, from += stride, place += kRows * kPitch) cp_async_cg(place, from);
    }
}

// kColumns of each row from `source` on, up to kPadded as zeros; rows from `valid` on are zeros.
template <int kColumns, int kPadded, int kPitch>
QN_DEVICE void load_block(const Source &source, i32 key, i32 valid, bool aligned, const void *anywhere,
                          unsigned char *to)
{
    constexpr i32 kPieces = kPadded / 8; // of 16 bytes, a row
    constexpr bool kOnePage = !kPaged || kPage % KEYS == 0;
    constexpr bool kEven = kColumns == kPadded && (kPieces % kWarp == 0 || kWarp % kPieces == 0);
    const u16 *block = (const u16 *)anywhere;
    if (kOnePage && valid > 0) block = row_of_key(source, key);
    if (kOnePage && kEven && aligned && valid >= KEYS) {
        load_whole<kEven ? kColumns : 8 * kWarp, kPitch>(block, source.stride, to);
        return;
    }
#pragma unroll 1
    for (i32 at = lane_index(); at < KEYS * kPieces; at += kWarp) {
        const i32 row = at / kPieces, piece = at % kPieces;
        const bool is_data = row < valid && piece < kColumns / 8;
        const u16 *from = (const u16 *)anywhere;
        if (is_data) from = (kOnePage ? block + row * source.stride : row_of_key(source, key + row)) + 8 * piece;
        if (aligned) {
            cp_async_cg_zfill(to + row * kPitch + 16 * piece, from, is_data ? 16u : 0u);
        } else {
            u32 word[4] = {0, 0, 0, 0};
            if (is_data) {
#pragma unroll
                for (i32 i = 0; i < 8; i++) word[i / 2] |= (u32)from[i] << 16 * (i % 2);
            }
            *reinterpret_cast<uint4 *>(to + row * kPitch + 16 * piece) = make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

// Part `part` of the rows.
template <int kColumns, int kPadded, int kPitch>
QN_DEVICE void load_part(Source source, i32 part, i32 key, i32 valid, bool aligned, const void *anywhere,
                         unsigned char *to)
{
    constexpr i32 kParts = parts_of(kPadded), kBefore = (kParts - 1) * kMostColumns;
    constexpr i32 kWhole = kParts > 1 ? kMostColumns : 16;
    source.base += part * kMostColumns;
    if (kParts > 1 && part + 1 < kParts)
        load_block<kWhole, kWhole, kPitch>(source, key, valid, aligned, anywhere, to);
    else
        load_block<kColumns - kBefore, kPadded - kBefore, kPitch>(source, key, valid, aligned, anywhere, to);
}

// ---- the ring: parts of k0, of v0, of k1, … (k0, k1, … with ALIAS) of one warp

struct Ring {
    unsigned char *slots; // [SLOTS] of kPartBytes
    i32 key, end;         // the next block to be sent for; keys end here
    i32 step;             // keys from a block to the next
    i32 part;             // of it, the next: of keys, then of values
    i32 fill, use;        // slots
};

QN_DEVICE void load_next(const attention_params &p, const Tile &t, Ring &ring)
{
    if (ring.key < ring.end) {
        unsigned char *to = ring.slots + ring.fill * kPartBytes;
        const i32 valid = t.sequence.keys - ring.key;
        if (ALIAS || ring.part < kKeyParts)
            load_part<D, kDPadded, kKeyRow>(source_of(p, t, p.k, p.k_stride), ring.part, ring.key, valid, p.aligned & 2,
                                            p.k, to);
        else
            load_part<DV, kDVPadded, kValueRow>(source_of(p, t, p.v, p.v_stride), ring.part - kKeyParts, ring.key,
                                                valid, p.aligned & 4, p.v, to);
        if (++ring.part == kKeyParts + kValueParts) ring.part = 0, ring.key += ring.step;
        ring.fill = ring.fill + 1 == SLOTS ? 0 : ring.fill + 1;
    }
    cp_async_commit_group(); // also an empty one: groups are counted
}

QN_DEVICE void ring_start(const attention_params &p, const Tile &t, const Stream &stream, i32 first_key, i32 last_key,
                          unsigned char *slots, Ring &ring)
{
    ring.slots = slots, ring.key = first_of_stream(stream, first_key), ring.end = last_key;
    ring.step = stream.count * KEYS, ring.part = ring.fill = ring.use = 0;
#pragma unroll 1
    for (i32 i = 0; i < SLOTS - 1; i++) load_next(p, t, ring);
}

// Waits for the warp's next part and sends for another, into the slot of the part before.
QN_DEVICE const unsigned char *next_part(const attention_params &p, const Tile &t, Ring &ring)
{
    cp_async_wait_group<SLOTS - 2>();
    __syncwarp();
    load_next(p, t, ring);
    const unsigned char *slot = ring.slots + ring.use * kPartBytes;
    ring.use = ring.use + 1 == SLOTS ? 0 : ring.use + 1;
    return slot;
}

// The slot that nothing is on its way to.
QN_DEVICE unsigned char *free_slot(const Ring &ring)
{
    return ring.slots + ring.fill * kPartBytes;
}

// ---- queries

// Sends for the rows of a warp's head.
QN_DEVICE void load_own_queries(const attention_params &p, const Tile &t, unsigned char *to)
{
    constexpr i32 kPieces = kDPadded / 8;
#pragma unroll 1
    for (i32 at = lane_index(); at < ROWS * kPieces; at += kWarp) {
        const i32 row = at / kPieces, piece = at % kPieces;
        const bool is_data = row < t.rows && piece < D / 8;
        const u16 *from = (const u16 *)p.q;
        if (is_data) from = query_row(p, t, row) + 8 * piece;
        if (p.aligned & 1) {
            cp_async_cg_zfill(to + row * kQueryPitch + 16 * piece, from, is_data ? 16u : 0u);
        } else {
            u32 word[4] = {0, 0, 0, 0};
            if (is_data) {
#pragma unroll
                for (i32 i = 0; i < 8; i++) word[i / 2] |= (u32)from[i] << 16 * (i % 2);
            }
            *reinterpret_cast<uint4 *>(to + row * kQueryPitch + 16 * piece) =
                make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}
