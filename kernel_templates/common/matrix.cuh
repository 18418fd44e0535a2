// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix, movmatrix: 8x8 matrices of 16-bit elements between shared memory and the fragments of a warp.
// All 32 lanes of the warp together.
//
// Memory: lane 8j + r gives the address of row r of matrix j: 8 elements, 16 bytes, 16-byte aligned; the addresses of
// the lanes beyond 8 times the number of matrices are not used. Registers: word j of lane t holds matrix j, row t / 4,
// columns 2 (t % 4), low half, and 2 (t % 4) + 1. With _trans, rows and columns change places.
#pragma once

#include "address.cuh"

#ifndef QN_MODEL

// ldmatrix.sync.aligned.m8n8.xN[.trans].shared.b16. sm_75
QN_DEVICE void ldmatrix_x1(u32 (&r)[1], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(shared_address(row))
                 : "memory");
}
QN_DEVICE void ldmatrix_x2(u32 (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}
QN_DEVICE void ldmatrix_x4(u32 (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
QN_DEVICE void ldmatrix_x1_trans(u32 (&r)[1], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(shared_address(row))
                 : "memory");
}
QN_DEVICE void ldmatrix_x2_trans(u32 (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}
QN_DEVICE void ldmatrix_x4_trans(u32 (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// stmatrix.sync.aligned.m8n8.xN[.trans].shared.b16. sm_90
QN_DEVICE void stmatrix_x1(void *row, const u32 (&r)[1])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(shared_address(row)), "r"(r[0])
                 : "memory");
}
QN_DEVICE void stmatrix_x2(void *row, const u32 (&r)[2])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)), "r"(r[0]),
                 "r"(r[1])
                 : "memory");
}
QN_DEVICE void stmatrix_x4(void *row, const u32 (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
QN_DEVICE void stmatrix_x1_trans(void *row, const u32 (&r)[1])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(shared_address(row)), "r"(r[0])
                 : "memory");
}
QN_DEVICE void stmatrix_x2_trans(void *row, const u32 (&r)[2])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)), "r"(r[0]),
                 "r"(r[1])
                 : "memory");
}
QN_DEVICE void stmatrix_x4_trans(void *row, const u32 (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

// movmatrix.sync.aligned.m8n8.trans.b16: transposes a matrix held in fragments: one word a lane. sm_75
QN_DEVICE u32 movmatrix_trans(u32 word)
{
    u32 moved;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(moved) : "r"(word));
    return moved;
}

#endif
