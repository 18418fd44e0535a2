// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/matrix.cuh. The work is in matrix.cpp.
#pragma once
#include "engine.h"

namespace qm {
void ldmatrix(u32 *r, const void *row, int count, bool trans, Place at); // r: `count` words of this lane
void stmatrix(void *row, const u32 *r, int count, bool trans, Place at);
u32 movmatrix(u32 word, Place at);
} // namespace qm

static inline void ldmatrix_x1(unsigned (&r)[1], const void *row, QM_HERE)
{
    qm::ldmatrix(r, row, 1, false, QM_AT("ldmatrix.x1"));
}
static inline void ldmatrix_x2(unsigned (&r)[2], const void *row, QM_HERE)
{
    qm::ldmatrix(r, row, 2, false, QM_AT("ldmatrix.x2"));
}
static inline void ldmatrix_x4(unsigned (&r)[4], const void *row, QM_HERE)
{
    qm::ldmatrix(r, row, 4, false, QM_AT("ldmatrix.x4"));
}
static inline void ldmatrix_x1_trans(unsigned (&r)[1], const void *row, QM_HERE)
{
    qm::ldmatrix(r, row, 1, true, QM_AT("ldmatrix.x1.trans"));
}
static inline void ldmatrix_x2_trans(unsigned (&r)[2], const void *row, QM_HERE)
{
    qm::ldmatrix(r, row, 2, true, QM_AT("ldmatrix.x2.trans"));
}
static inline void ldmatrix_x4_trans(unsigned (&r)[4], const void *row, QM_HERE)
{
    qm::ldmatrix(r, row, 4, true, QM_AT("ldmatrix.x4.trans"));
}

static inline void stmatrix_x1(void *row, const unsigned (&r)[1], QM_HERE)
{
    qm::stmatrix(row, r, 1, false, QM_AT("stmatrix.x1"));
}
static inline void stmatrix_x2(void *row, const unsigned (&r)[2], QM_HERE)
{
    qm::stmatrix(row, r, 2, false, QM_AT("stmatrix.x2"));
}
static inline void stmatrix_x4(void *row, const unsigned (&r)[4], QM_HERE)
{
    qm::stmatrix(row, r, 4, false, QM_AT("stmatrix.x4"));
}
static inline void stmatrix_x1_trans(void *row, const unsigned (&r)[1], QM_HERE)
{
    qm::stmatrix(row, r, 1, true, QM_AT("stmatrix.x1.trans"));
}
static inline void stmatrix_x2_trans(void *row, const unsigned (&r)[2], QM_HERE)
{
    qm::stmatrix(row, r, 2, true, QM_AT("stmatrix.x2.trans"));
}
static inline void stmatrix_x4_trans(void *row, const unsigned (&r)[4], QM_HERE)
{
    qm::stmatrix(row, r, 4, true, QM_AT("stmatrix.x4.trans"));
}

static inline unsigned movmatrix_trans(unsigned word, QM_HERE)
{
    return qm::movmatrix(word, QM_AT("movmatrix.trans"));
}
