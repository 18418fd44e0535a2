// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix, movmatrix: carried out once for the warp, by the last lane to arrive.
#include "matrix.h"

namespace qm {
namespace {

struct Move {
    void *row; // of this lane: used when it addresses a row
    u32 *r;
    int count;
    bool trans;
};

void check_row(const void *row, unsigned lane, Place at)
{
    if (!is_shared(row)) fail(at, "the row of lane %u is not in shared memory", lane);
    if (reinterpret_cast<uintptr_t>(row) % 16)
        fail(at, "the row of lane %u, %p, is not aligned to 16 bytes", lane, row);
}

// Row and column of the low (half 0) and the high element of lane t's word.
struct Spot {
    unsigned row, column;
};
Spot spot_of(unsigned t, unsigned half, bool trans)
{
    unsigned g = t >> 2, k = 2 * (t & 3) + half;
    return trans ? Spot{k, g} : Spot{g, k};
}

void carry_load(Gather &gather)
{
    for (int j = 0; j < gather.of<Move>(0).count; j++) {
        u16 matrix[8][8];
        for (unsigned i = 0; i < 8; i++) {
            const void *row = gather.of<Move>(8 * j + i).row;
            check_row(row, 8 * j + i, gather.at);
            load(matrix[i], row, 16, gather.at);
        }
        for (unsigned t = 0; t < 32; t++) {
            Move &move = gather.of<Move>(t);
            Spot low = spot_of(t, 0, move.trans), high = spot_of(t, 1, move.trans);
            move.r[j] = matrix[low.row][low.column] | static_cast<u32>(matrix[high.row][high.column]) << 16;
        }
    }
}

void carry_store(Gather &gather)
{
    for (int j = 0; j < gather.of<Move>(0).count; j++) {
        u16 matrix[8][8];
        for (unsigned t = 0; t < 32; t++) {
            const Move &move = gather.of<Move>(t);
            Spot low = spot_of(t, 0, move.trans), high = spot_of(t, 1, move.trans);
            matrix[low.row][low.column] = static_cast<u16>(move.r[j]);
            matrix[high.row][high.column] = static_cast<u16>(move.r[j] >> 16);
        }
        for (unsigned i = 0; i < 8; i++) {
            void *row = gather.of<Move>(8 * j + i).row;
            check_row(row, 8 * j + i, gather.at);
            store(row, matrix[i], 16, gather.at);
        }
    }
}

void carry_transpose(Gather &gather)
{
    u16 matrix[8][8];
    for (unsigned t = 0; t < 32; t++) {
        u32 word = gather.of<u32>(t);
        matrix[t >> 2][2 * (t & 3)] = static_cast<u16>(word);
        matrix[t >> 2][2 * (t & 3) + 1] = static_cast<u16>(word >> 16);
    }
    for (unsigned t = 0; t < 32; t++)
        gather.of<u32>(t) = matrix[2 * (t & 3)][t >> 2] | static_cast<u32>(matrix[2 * (t & 3) + 1][t >> 2]) << 16;
}

} // namespace

void ldmatrix(u32 *r, const void *row, int count, bool trans, Place at)
{
    need_arch(75, 0, false, at);
    u32 words[4];
    Move move{const_cast<void *>(row), words, count, trans};
    warp_op(~0u, &move, carry_load, at);
    for (int j = 0; j < count; j++) r[j] = words[j];
}

void stmatrix(void *row, const u32 *r, int count, bool trans, Place at)
{
    need_arch(90, 0, false, at);
    u32 words[4];
    for (int j = 0; j < count; j++) words[j] = r[j];
    Move move{row, words, count, trans};
    warp_op(~0u, &move, carry_store, at);
}

u32 movmatrix(u32 word, Place at)
{
    need_arch(75, 0, false, at);
    warp_op(~0u, &word, carry_transpose, at);
    return word;
}

} // namespace qm
