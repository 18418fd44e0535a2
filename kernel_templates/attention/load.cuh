// SPDX-License-Identifier: Apache-2.0
// Rows of q, k and v to shared memory by cp.async, 16 bytes at a time. Rows and columns past the end become zeros, so that
// nothing beyond a sequence reaches a sum. A tensor whose rows do not begin at multiples of 16 bytes is read element by
// element.
#pragma once

#include "../common/async_copy.cuh"
#include "problem.cuh"

QN_DEVICE constexpr int padded16(int columns)
{
    return (columns + 15) / 16 * 16;
}
// An odd number of 16-byte pieces: eight rows, read at a time by ldmatrix, meet every bank once.
QN_DEVICE constexpr int pitch_of(int columns)
{
    return (columns / 8 | 1) * 16;
}

constexpr int kDPadded = padded16(D), kDVPadded = padded16(DV);
constexpr int kQueryPitch = pitch_of(kDPadded);
constexpr int kKeyPitch = pitch_of(kDPadded);
constexpr int kValuePitch = ALIAS ? kKeyPitch : pitch_of(kDVPadded);
constexpr int kSlotBytes = KEYS * (kKeyPitch > kValuePitch ? kKeyPitch : kValuePitch);

// Addresses that are worked out before their copies go: fewer where the output leaves few registers.
constexpr int kLoadsAtOnce = (kDVPadded / 16 + COLUMNS - 1) / COLUMNS >= 16 ? 2 : 4;

// kColumns of each row are read, up to kPadded follow as zeros. row_at(r) is asked for rows below `valid` only. anywhere:
// an address of the tensor, for copies that read nothing.
template <int kRows, int kColumns, int kPadded, int kPitch, class RowAt>
QN_DEVICE void load_rows(unsigned char *to, i32 valid, bool aligned, const void *anywhere, RowAt row_at)
{
    constexpr i32 kPieces = kPadded / 8, kAll = kRows * kPieces;
    if (aligned) {
        i32 row = thread_index() / kPieces, piece = thread_index() % kPieces;
        // Steps, not products: of unrolled products the compiler would keep each in a register across all blocks.
#pragma unroll kLoadsAtOnce
        for (i32 begin = 0; begin < kAll; begin += THREADS) {
            if (begin + THREADS > kAll && begin + thread_index() >= kAll) break;
            const bool is_data = row < valid && (kColumns == kPadded || piece < kColumns / 8);
            const void *from = anywhere;
            if (is_data) from = row_at(row) + 8 * piece;
            cp_async_cg_zfill(to + row * kPitch + 16 * piece, from, is_data ? 16u : 0u);
            row += THREADS / kPieces, piece += THREADS % kPieces;
            if (piece >= kPieces) piece -= kPieces, row++;
        }
    } else {
#pragma unroll 1
        for (i32 at = thread_index(); at < kAll; at += THREADS) {
            const i32 row = at / kPieces, piece = at % kPieces;
            u32 word[4] = {0, 0, 0, 0};
            if (row < valid && piece < kColumns / 8) {
                const u16 *from = row_at(row) + 8 * piece;
#pragma unroll
                for (i32 i = 0; i < 8; i++) word[i / 2] |= (u32)from[i] << 16 * (i % 2);
            }
            *reinterpret_cast<uint4 *>(to + row * kPitch + 16 * piece) = make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

QN_DEVICE void load_queries(const attention_params &p, const Tile &t, unsigned char *to)
{
    load_rows<ROWS, D, kDPadded, kQueryPitch>(to, t.rows, p.aligned & 1, p.q,
                                              [&](i32 row) { return query_row(p, t, row); });
}

QN_DEVICE void load_keys(const attention_params &p, const Tile &t, const Source &k, i32 key, unsigned char *to)
{
    load_rows<KEYS, D, kDPadded, kKeyPitch>(to, t.sequence.keys - key, p.aligned & 2, p.k,
                                            [&](i32 row) { return row_of_key(k, key + row); });
}

QN_DEVICE void load_values(const attention_params &p, const Tile &t, const Source &v, i32 key, unsigned char *to)
{
    load_rows<KEYS, DV, kDVPadded, kValuePitch>(to, t.sequence.keys - key, p.aligned & 4, p.v,
                                                [&](i32 row) { return row_of_key(v, key + row); });
}
