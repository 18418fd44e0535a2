/* SPDX-License-Identifier: Apache-2.0
 * Tensor memory of sm_100: where everything lies in it, and who may have it. The part of the tcgen05 model that is
 * fixed before its instructions' bodies: they will keep one qm_tensor_memory a CTA (engine.h: cta_state) and call
 * what follows. C and C++, no engine, no allocation. INSTRUCTIONS.md has the design of the bodies; the sources of the maps
 * are the PTX manual and CUTLASS's layouts, none of it checked on hardware.
 *
 *     128 lanes x 512 columns of 32 bits; address = lane << 16 | column
 *     ld, st: warp w of the CTA reaches the lanes 32 (w % 4) ... + 31 and all columns
 *
 *  (1) Columns are had by power-of-two pieces of 32 ... 512, none larger than an earlier one; what does not fit waits.
 *  (2) Every instruction of a CTA uses one cta_group.
 *  (3) A piece is given back whole; nothing is left when the CTA ends; after relinquish_alloc_permit there is no
 *      alloc. */
#ifndef QM_TENSOR_MEMORY_H
#define QM_TENSOR_MEMORY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { QM_TMEM_LANES = 128, QM_TMEM_COLUMNS = 512, QM_TMEM_UNIT = 32 };
enum { QM_TMEM_WAIT = -1, QM_TMEM_FAULT = -2 };

typedef struct qm_tmem_fault {
    char text[160];
} qm_tmem_fault;

typedef struct qm_tensor_memory {
    uint32_t cell[QM_TMEM_LANES][QM_TMEM_COLUMNS];
    uint16_t piece[QM_TMEM_COLUMNS / QM_TMEM_UNIT]; /* of each 32 columns: columns of its piece, 0 free */
    uint16_t first[QM_TMEM_COLUMNS / QM_TMEM_UNIT]; /* and the piece's first column */
    uint32_t smallest;                              /* of the allocations so far; 0 none */
    int cta_group;                                  /* 1, 2; 0: no instruction yet */
    bool relinquished;
} qm_tensor_memory;

static inline int __attribute__((format(printf, 2, 3))) qm_tmem_fail(qm_tmem_fault *fault, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
    return QM_TMEM_FAULT;
}

/* ---- allocation */

static inline int qm_tmem_group(qm_tensor_memory *m, int cta_group, qm_tmem_fault *fault)
{
    if (cta_group != 1 && cta_group != 2) return qm_tmem_fail(fault, "cta_group::%d: there are 1 and 2", cta_group);
    if (m->cta_group && m->cta_group != cta_group)
        return qm_tmem_fail(fault, "cta_group::%d after cta_group::%d: a kernel uses one", cta_group, m->cta_group);
    m->cta_group = cta_group;
    return 0;
}

static inline bool qm_tmem_is_free(const qm_tensor_memory *m, uint32_t column, uint32_t columns)
{
    for (uint32_t u = column / QM_TMEM_UNIT; u < (column + columns) / QM_TMEM_UNIT; u++)
        if (m->piece[u]) return false;
    return true;
}

/* The first column of the piece, QM_TMEM_WAIT when it must wait for a dealloc, or QM_TMEM_FAULT. */
static inline int qm_tmem_alloc(qm_tensor_memory *m, uint32_t columns, int cta_group, qm_tmem_fault *fault)
{
    if (qm_tmem_group(m, cta_group, fault)) return QM_TMEM_FAULT;
    if (columns < 32 || columns > 512 || (columns & (columns - 1)))
        return qm_tmem_fail(fault, "%u columns: a power of two, 32 to 512", columns);
    if (m->relinquished) return qm_tmem_fail(fault, "alloc after relinquish_alloc_permit");
    if (m->smallest && columns > m->smallest)
        return qm_tmem_fail(fault, "%u columns after an allocation of %u: later ones must not be larger", columns,
                            m->smallest);
    for (uint32_t c = 0; c < QM_TMEM_COLUMNS; c += columns) {
        if (!qm_tmem_is_free(m, c, columns)) continue;
        for (uint32_t u = c / QM_TMEM_UNIT; u < (c + columns) / QM_TMEM_UNIT; u++)
            m->piece[u] = (uint16_t)columns, m->first[u] = (uint16_t)c;
        m->smallest = columns;
        return (int)c;
    }
    return QM_TMEM_WAIT;
}

static inline int qm_tmem_dealloc(qm_tensor_memory *m, uint32_t address, uint32_t columns, int cta_group,
                                  qm_tmem_fault *fault)
{
    uint32_t column = address & 0xFFFF, u = column / QM_TMEM_UNIT;
    if (qm_tmem_group(m, cta_group, fault)) return QM_TMEM_FAULT;
    if (address >> 16 || column >= QM_TMEM_COLUMNS || !m->piece[u] || m->first[u] != column)
        return qm_tmem_fail(fault, "dealloc of %08x: no piece begins there", address);
    if (m->piece[u] != columns)
        return qm_tmem_fail(fault, "dealloc of %u columns at %u, where a piece of %u is", columns, column, m->piece[u]);
    for (uint32_t i = 0; i < columns / QM_TMEM_UNIT; i++) m->piece[u + i] = 0;
    return 0;
}

static inline int qm_tmem_relinquish(qm_tensor_memory *m, int cta_group, qm_tmem_fault *fault)
{
    m->relinquished = true;
    return qm_tmem_group(m, cta_group, fault);
}

static inline int qm_tmem_end(const qm_tensor_memory *m, qm_tmem_fault *fault)
{
    for (int u = 0; u < QM_TMEM_COLUMNS / QM_TMEM_UNIT; u++)
        if (m->piece[u])
            return qm_tmem_fail(fault, "the CTA ends with %u columns of tensor memory at %u not given back",
                                m->piece[u], m->first[u]);
    return 0;
}

/* ---- tcgen05.ld and st: which cell a register is */

typedef enum qm_tmem_shape { QM_32X32B, QM_16X64B, QM_16X128B, QM_16X256B, QM_16X32BX2, QM_TMEM_SHAPES } qm_tmem_shape;

typedef struct qm_tmem_cell { /* from the instruction's address */
    uint32_t lane, column;
} qm_tmem_cell;

static inline uint32_t qm_tmem_registers(qm_tmem_shape shape, uint32_t repeat)
{
    return shape == QM_16X128B ? 2 * repeat : shape == QM_16X256B ? 4 * repeat : repeat;
}
static inline uint32_t qm_tmem_columns(qm_tmem_shape shape, uint32_t repeat) /* of 16x32bx2: of each half */
{
    return repeat * (shape == QM_16X64B ? 2 : shape == QM_16X128B ? 4 : shape == QM_16X256B ? 8 : 1);
}

/* Register r of lane t of the warp. split: the column offset of the second half of 16x32bx2. */
static inline qm_tmem_cell qm_tmem_place(qm_tmem_shape shape, uint32_t t, uint32_t r, uint32_t split)
{
    qm_tmem_cell cell = {t, r};
    switch (shape) {
    case QM_16X64B:
        cell.lane = (t >> 2) + 8 * (t & 1), cell.column = (t >> 1 & 1) + 2 * r;
        break;
    case QM_16X128B:
        cell.lane = (t >> 2) + 8 * (r & 1), cell.column = (t & 3) + 4 * (r >> 1);
        break;
    case QM_16X256B:
        cell.lane = (t >> 2) + 8 * (r >> 1 & 1), cell.column = 2 * (t & 3) + (r & 1) + 8 * (r >> 2);
        break;
    case QM_16X32BX2:
        cell.lane = t & 15, cell.column = (t >> 4) * split + r;
        break;
    default:
        break;
    }
    return cell;
}

/* May warp `warp` of the CTA use this address with this shape? 0 or QM_TMEM_FAULT. */
static inline int qm_tmem_check(const qm_tensor_memory *m, uint32_t address, uint32_t warp, qm_tmem_shape shape,
                                uint32_t repeat, uint32_t split, qm_tmem_fault *fault)
{
    uint32_t lane = address >> 16, column = address & 0xFFFF, own = 32 * (warp % 4);
    uint32_t columns = qm_tmem_columns(shape, repeat) + (shape == QM_16X32BX2 ? split : 0),
             registers = qm_tmem_registers(shape, repeat);
    if (!repeat || (repeat & (repeat - 1)) || registers > 128)
        return qm_tmem_fail(fault, "x%u: a power of two, and at most 128 registers", repeat);
    if (lane != own && (shape == QM_32X32B || lane != own + 16))
        return qm_tmem_fail(fault, "lane %u: warp %u reaches lanes %u to %u", lane, warp, own, own + 31);
    if (column + columns > QM_TMEM_COLUMNS)
        return qm_tmem_fail(fault, "columns %u to %u of 512", column, column + columns - 1);
    for (uint32_t c = column; c < column + columns; c++)
        if (!m->piece[c / QM_TMEM_UNIT]) return qm_tmem_fail(fault, "column %u is not allocated", c);
    return 0;
}

/* ---- tcgen05.mma: where D's element (row, column) lies */

typedef enum qm_tmem_layout {
    QM_LAYOUT_A, /* M 256, cta_group::2 */
    QM_LAYOUT_B, /* M 128, cta_group::2, dense */
    QM_LAYOUT_D, /* M 128, cta_group::1, .ws too */
    QM_LAYOUT_E, /* M 64, .ws */
    QM_LAYOUT_F, /* M 64, cta_group::1; lane 0 or 16 of the address chooses the half of each 32 lanes */
    QM_LAYOUT_G, /* M 32, .ws */
    QM_LAYOUTS
} qm_tmem_layout;

typedef struct qm_tmem_element {
    uint32_t cta, lane, column; /* of the pair; from the address's column */
} qm_tmem_element;

static inline int qm_tmem_layout_of(uint32_t rows, int cta_group, bool ws)
{
    if (cta_group == 2) return ws ? -1 : rows == 256 ? QM_LAYOUT_A : rows == 128 ? QM_LAYOUT_B : -1;
    if (rows == 128) return QM_LAYOUT_D;
    if (rows == 64) return ws ? QM_LAYOUT_E : QM_LAYOUT_F;
    return rows == 32 && ws ? QM_LAYOUT_G : -1;
}

static inline qm_tmem_element qm_tmem_d_place(qm_tmem_layout layout, uint32_t m, uint32_t n, uint32_t columns)
{
    qm_tmem_element at = {0, m, n};
    switch (layout) {
    case QM_LAYOUT_A:
        at.cta = m / 128, at.lane = m % 128;
        break;
    case QM_LAYOUT_B:
        at.cta = m / 64, at.lane = m % 64 + 64 * (n >= columns / 2), at.column = n % (columns / 2);
        break;
    case QM_LAYOUT_E:
        at.lane = m + 64 * (n >= columns / 2), at.column = n % (columns / 2);
        break;
    case QM_LAYOUT_F:
        at.lane = 32 * (m / 16) + m % 16;
        break;
    case QM_LAYOUT_G:
        at.lane = m + 32 * (n / (columns / 4)), at.column = n % (columns / 4);
        break;
    default:
        break;
    }
    return at;
}

/* ---- block scales: the byte of the scale of row (A) or column (B) mn and scale group j, in each 32-lane partition */

typedef struct qm_tmem_scale {
    uint32_t lane, column, byte; /* lane 0 ... 31 of every partition; column from the address's */
} qm_tmem_scale;

static inline qm_tmem_scale qm_tmem_scale_place(uint32_t mn, uint32_t group, uint32_t id)
{
    qm_tmem_scale at = {mn % 32, mn / 32, group + id};
    return at;
}

/* ---- descriptors */

typedef enum qm_tcgen05_kind {
    QM_KIND_F16,
    QM_KIND_TF32,
    QM_KIND_F8F6F4,
    QM_KIND_I8,
    QM_KIND_MXF8F6F4,
    QM_KIND_MXF4
} qm_tcgen05_kind;

typedef struct qm_tcgen05_instruction { /* the 32-bit instruction descriptor, fields as the manual names them */
    uint32_t rows, columns;             /* M, N of the pair */
    uint32_t a_type, b_type, d_type;    /* d_type of unscaled kinds */
    bool saturate, negate_a, negate_b, a_mn_major, b_mn_major, sparse;
    uint32_t scale_type; /* 1 ue8m0, 0 ue4m3 */
    uint32_t a_scale_id, b_scale_id;
    uint32_t k; /* mxf4: 64 or 96 */
} qm_tcgen05_instruction;

static inline qm_tcgen05_instruction qm_tcgen05_decode(uint32_t bits, qm_tcgen05_kind kind)
{
    bool scaled = kind == QM_KIND_MXF8F6F4 || kind == QM_KIND_MXF4, four = kind == QM_KIND_MXF4;
    qm_tcgen05_instruction d;
    memset(&d, 0, sizeof d);
    d.sparse = bits >> 2 & 1;
    d.saturate = !scaled && (bits >> 3 & 1);
    d.d_type = scaled ? 1 : bits >> 4 & 3;
    d.b_scale_id = scaled ? bits >> 4 & 3 : 0;
    d.a_type = bits >> 7 & 7;
    d.b_type = four ? bits >> 10 & 3 : bits >> 10 & 7;
    d.negate_a = bits >> 13 & 1, d.negate_b = bits >> 14 & 1;
    d.a_mn_major = bits >> 15 & 1, d.b_mn_major = bits >> 16 & 1;
    d.columns = (bits >> 17 & 63) << 3;
    d.scale_type = bits >> 23 & 1;
    d.rows = scaled ? (bits >> 27 & 3) << 7 : (bits >> 24 & 31) << 4;
    d.a_scale_id = scaled ? bits >> 29 & 3 : 0;
    d.k = four ? (bits >> 31 ? 96 : 64) : 0;
    return d;
}

/* Does the instruction's shape exist? 0 or QM_TMEM_FAULT. */
static inline int qm_tcgen05_check_shape(qm_tcgen05_kind kind, uint32_t rows, uint32_t columns, int cta_group, bool ws,
                                         qm_tmem_fault *fault)
{
    bool scaled = kind == QM_KIND_MXF8F6F4 || kind == QM_KIND_MXF4, rows_ok, columns_ok;
    uint32_t step = (uint32_t)cta_group * 8;
    if (ws) {
        rows_ok = cta_group == 1 && !scaled && (rows == 32 || rows == 64 || rows == 128);
        columns_ok = columns == 64 || columns == 128 || columns == 256;
    } else {
        rows_ok = cta_group == 2 ? rows == 128 || rows == 256 : rows == 128 || (rows == 64 && !scaled);
        if (kind == QM_KIND_I8)
            columns_ok = cta_group == 2 ? columns % 32 == 0 : columns == 8 || columns == 24 || columns % 16 == 0;
        else
            columns_ok = columns % step == 0;
        columns_ok = columns_ok && columns >= step && columns <= 256;
    }
    if (!rows_ok)
        return qm_tmem_fail(fault, "M %u does not exist here (cta_group::%d%s)", rows, cta_group, ws ? ", .ws" : "");
    if (!columns_ok)
        return qm_tmem_fail(fault, "N %u does not exist here (cta_group::%d%s)", columns, cta_group, ws ? ", .ws" : "");
    return 0;
}

#endif
