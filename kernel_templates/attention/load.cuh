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

// Of wide rows of keys and values, of which few queries make nothing but traffic: whole lines of 128 bytes. A line of a row
// then goes into one line of shared memory, which is one request to L2; where it meets two it is two.
QN_DEVICE constexpr int block_pitch(int columns)
{
    return ROWS == 16 && columns > 256 && columns % 64 == 0 ? 2 * columns : pitch_of(columns);
}

// In rows of whole lines, pieces of 16 bytes change places within a line, so that ldmatrix meets every bank once there too:
// what the place of a row's pieces is exclusive-ored with.
template <int kPitch> QN_DEVICE i32 turn_of(i32 row)
{
    return kPitch % 128 == 0 ? 16 * (row % 8) : 0;
}

// Where ldmatrix finds bytes at + side of a row, at being a multiple of 32 and side 0 or 16: what is added to the row's
// address, once and for each `at`. turn: turn_of's ^ side.
template <int kPitch> QN_DEVICE i32 side_in_row(i32 side)
{
    return kPitch % 128 == 0 ? 0 : side;
}
template <int kPitch> QN_DEVICE i32 place_in_row(i32 at, i32 turn)
{
    return kPitch % 128 == 0 ? at / 128 * 128 + (at % 128 ^ turn) : at;
}

constexpr int kDPadded = padded16(D), kDVPadded = padded16(DV);
constexpr int kQueryPitch = pitch_of(kDPadded);
constexpr int kKeyPitch = block_pitch(kDPadded);
constexpr int kValuePitch = ALIAS ? kKeyPitch : block_pitch(kDVPadded);
constexpr int kSlotBytes = KEYS * (kKeyPitch > kValuePitch ? kKeyPitch : kValuePitch);

// Addresses that are worked out before their copies go: fewer where the output leaves few registers.
constexpr int kLoadsAtOnce = (kDVPadded / 16 + COLUMNS - 1) / COLUMNS >= 16 ? 2 : 4;

// Rows of whole lines that are all there, at multiples of 16 bytes, `stride` elements apart: nothing to decide row by row. Of
// every kThreads / 8'th row a thread copies 16 bytes of each line.
template <int kRows, int kThreads, int kPadded, int kPitch>
QN_DEVICE void load_lines(unsigned char *to, const u16 *from, i64 stride, i32 thread)
{
    constexpr i32 kStep = kThreads / 8;
    const i32 row = thread / 8, piece = thread % 8, at = (16 * piece) ^ turn_of<kPitch>(row);
    from += row * stride + 8 * piece, to += row * kPitch;
#pragma unroll 2
    for (i32 i = 0; i < kRows / kStep; i++, from += kStep * stride)
#pragma unroll
        for (i32 line = 0; line < kPadded / 64; line++)
            cp_async_cg(to + i * kStep * kPitch + 128 * line + (at ^ turn_of<kPitch>(i * kStep)), from + 64 * line);
}

// Whether load_lines can load blocks, kThreads / 8 rows at a time.
template <int kColumns, int kPitch, int kThreads> QN_DEVICE constexpr bool has_lines()
{
    return kColumns % 64 == 0 && kPitch % 128 == 0 && KEYS % (kThreads / 8) == 0 && (!kPaged || kPage % KEYS == 0);
}

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
            cp_async_cg_zfill(to + row * kPitch + ((16 * piece) ^ turn_of<kPitch>(row)), from, is_data ? 16u : 0u);
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
            *reinterpret_cast<uint4 *>(to + row * kPitch + ((16 * piece) ^ turn_of<kPitch>(row))) =
                make_uint4(word[0], word[1], word[2], word[3]);
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
    if constexpr (has_lines<D, kKeyPitch, THREADS>()) {
        if (p.aligned & 2 && t.sequence.keys - key >= KEYS) {
            load_lines<KEYS, THREADS, kDPadded, kKeyPitch>(to, row_of_key(k, key), k.stride, thread_index());
            return;
        }
    }
    load_rows<KEYS, D, kDPadded, kKeyPitch>(to, t.sequence.keys - key, p.aligned & 2, p.k,
                                            [&](i32 row) { return row_of_key(k, key + row); });
}

QN_DEVICE void load_values(const attention_params &p, const Tile &t, const Source &v, i32 key, unsigned char *to)
{
    if constexpr (has_lines<DV, kValuePitch, THREADS>()) {
        if (p.aligned & 4 && t.sequence.keys - key >= KEYS) {
            load_lines<KEYS, THREADS, kDVPadded, kValuePitch>(to, row_of_key(v, key), v.stride, thread_index());
            return;
        }
    }
    load_rows<KEYS, DV, kDVPadded, kValuePitch>(to, t.sequence.keys - key, p.aligned & 4, p.v,
                                                [&](i32 row) { return row_of_key(v, key + row); });
}
