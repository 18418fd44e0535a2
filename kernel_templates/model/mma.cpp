// SPDX-License-Identifier: Apache-2.0
// mma.sync: the fragments of 32 lanes become matrices, the product goes back into fragments. Carried out once for the
// warp, by the last lane to arrive.
#include "mma.h"

namespace qm {
namespace {

struct Operands {
    const MmaForm *form;
    const u32 *a, *b, *c;
    u32 *d;
};

// An element of a register array: `bits` wide, elements packed from the lowest bits up.
u32 element(const u32 *r, unsigned i, unsigned bits)
{
    if (bits == 32) return r[i];
    unsigned in_word = 32 / bits;
    return r[i / in_word] >> (i % in_word * bits) & ((1u << bits) - 1);
}

struct Fragment {
    unsigned row, k;
};

// Element i of A's fragment in lane t. per: elements to a register pair of columns (1: tf32, 2: 16-bit, 4: 8-bit).
Fragment a_fragment(unsigned t, unsigned i, unsigned per)
{
    unsigned g = t >> 2, q = t & 3;
    return {g + 8 * (i / per & 1), per * q + i % per + 4 * per * (i / (2 * per))};
}
Fragment b_fragment(unsigned t, unsigned i, unsigned per)
{
    unsigned g = t >> 2, q = t & 3;
    return {g, per * q + i % per + 4 * per * (i / per)};
}

struct Matrices {
    u32 a[16][32], b[8][32];
};

void gather_inputs(Gather &gather, const MmaForm &form, unsigned bits, Matrices &m)
{
    unsigned per = 32 / bits;
    for (unsigned t = 0; t < 32; t++) {
        const Operands &o = gather.of<Operands>(t);
        for (unsigned i = 0; i < static_cast<unsigned>(form.k) / 2; i++) {
            Fragment f = a_fragment(t, i, per);
            m.a[f.row][f.k] = element(o.a, i, bits);
        }
        for (unsigned i = 0; i < static_cast<unsigned>(form.k) / 4; i++) {
            Fragment f = b_fragment(t, i, per);
            m.b[f.row][f.k] = element(o.b, i, bits);
        }
    }
}

void carry_mma(Gather &gather)
{
    const MmaForm &form = *gather.of<Operands>(0).form;
    Matrices m;
    gather_inputs(gather, form, form.integer ? 8 : static_cast<unsigned>(bits_of(form.a)), m);
    Number a[16][32], b[8][32];
    if (!form.integer) {
        for (int r = 0; r < 16; r++) numbers_of(form.a, m.a[r], form.k, a[r]);
        for (int r = 0; r < 8; r++) numbers_of(form.b, m.b[r], form.k, b[r]);
    }
    unsigned width = !form.integer && form.sum == Format::f16 ? 16 : 32;
    for (unsigned t = 0; t < 32; t++) {
        Operands &o = gather.of<Operands>(t);
        u32 out[4] = {0, 0, 0, 0};
        for (unsigned i = 0; i < 4; i++) {
            unsigned row = (t >> 2) + 8 * (i >> 1), column = 2 * (t & 3) + (i & 1);
            u32 c = element(o.c, i, width), d;
            if (form.integer)
                d = static_cast<u32>(integer_dot(form.a_signed, m.a[row], form.b_signed, m.b[column], form.k,
                                                 static_cast<int32_t>(c), form.saturate));
            else
                d = mma_dot(limits().cc, form.a, a[row], b[column], form.k, c, form.sum);
            out[width == 16 ? i / 2 : i] |= width == 16 ? d << (16 * (i & 1)) : d;
        }
        for (unsigned i = 0; i < (width == 16 ? 2u : 4u); i++) o.d[i] = out[i];
    }
}

} // namespace

void mma_sync(const MmaForm &form, void *d, const u32 *a, const u32 *b, const void *c, Place at)
{
    need_arch(form.since, 0, false, at);
    // what the kernel's arrays hold is copied: registers, not memory, and d may be c
    unsigned words = !form.integer && form.sum == Format::f16 ? 2 : 4;
    unsigned per = form.integer ? 4 : 32 / static_cast<unsigned>(bits_of(form.a));
    u32 ra[4], rb[2], rc[4], rd[4];
    memcpy(ra, a, form.k / 2 / per * 4);
    memcpy(rb, b, form.k / 4 / per * 4);
    memcpy(rc, c, words * 4);
    Operands operands{&form, ra, rb, rc, rd};
    warp_op(~0u, &operands, carry_mma, at);
    memcpy(d, rd, words * 4);
}

} // namespace qm
