// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the tensor cores, bit for bit: number formats, the fused dot-and-add, and what each instruction
// makes of it on each architecture. Called by the model's bodies of mma, wgmma and tcgen05 (model/mma.h,
// model/wgmma.h) and by their tests. Knows no lanes, no memory and no engine; it never fails and keeps no state.
//
// dot-add(a[0..L), b[0..L), c), as two public models agree on it (INSTRUCTIONS.md says what was checked where):
//   (1) A term is a product, exact, with the exponent e_a + e_b; its significand, below 4, is not normalised. A
//       subnormal operand has its format's least exponent. c is a term too.
//   (2) E is the largest exponent of the terms that are not zero, at least a floor; each term is cut toward zero to
//       a multiple of 2^(E-F); the cut terms are added exactly.
//   (3) The sum is rounded once: f32 toward zero, f16 to nearest even, "e8m13" toward zero to 13 fraction bits.
//   (4) A NaN operand, inf * 0 and inf - inf give the canonical NaN; any other infinity gives an infinity.
// L, F and the output follow from the instruction and the architecture: rule_of() below is the whole table.
#pragma once
#include <cstdint>

namespace qm {

enum class Format : uint8_t { f16, bf16, tf32, f32, e4m3, e5m2, e3m2, e2m3, e2m1, ue8m0, ue4m3 };
enum class Sum : uint8_t { f32, f16, e8m13 };
enum class Unit : uint8_t { mma, wgmma, tcgen05 };

// A number taken apart: (-1)^negative * significand * 2^(exponent - fraction). fraction is the format's.
struct Number {
    bool nan, infinite, negative;
    int exponent;         // never below the format's least
    uint32_t significand; // 0 for zero; at most fraction + 1 bits
    int fraction;
};
Number number_of(Format format, uint32_t bits);
void numbers_of(Format format, const uint32_t *bits, int n, Number *numbers);
int bits_of(Format format); // width of an element: 4, 6, 8, 16, 32 (tf32 and f32: 32)

struct Rule {
    int terms;    // L: products in one dot-add; longer dot products are chained through c in order of k
    int fraction; // F
    int floor;    // of E
    Sum sum;
};
// arch: 80, 86, 89, 90, 100 …; accumulator is f32 or f16. fp8 through mma on 90 and 100 is not in this table: mma_dot.
Rule rule_of(Unit unit, int arch, Format input, Format accumulator);

// One dot-add of n terms. c and the result are bits of f32, or of f16 when rule.sum is f16.
uint32_t dot_add(const Number *a, const Number *b, int n, uint32_t c, const Rule &rule);

// A dot product of K terms in the blocks of its rule: wgmma, tcgen05 (dense, without block scales), mma but for fp8.
uint32_t dot_chain(const Number *a, const Number *b, int k, uint32_t c, const Rule &rule);

// One element of mma.sync's D. On architectures without the instruction in hardware (fp8 on 90 and 100) the assembler's
// emulation: the k with k % 4 < 2 first, the others next, both from c = 0, then one rounded addition of c.
uint32_t mma_dot(int arch, Format input, const Number *a, const Number *b, int k, uint32_t c, Format accumulator);

// One element of tcgen05.mma with block scales. Each scale covers `block` consecutive k.
// mxf8f6f4: K 32, one scale an operand, its exponent joins the products'. mxf4 and mxf4nvf4: K 64, products summed
// exactly in groups of 16, each group scaled.
uint32_t scaled_dot_mxf8f6f4(const Number *a, uint32_t scale_a, const Number *b, uint32_t scale_b, uint32_t c);
uint32_t scaled_dot_mxf4(const Number *a, const uint32_t *scale_a, const Number *b, const uint32_t *scale_b, int k,
                         int block, Format scale, uint32_t c);

// Integer forms: exact; wraps modulo 2^32, or clamps when saturate.
int32_t integer_dot(bool a_signed, const uint32_t *a, bool b_signed, const uint32_t *b, int k, int32_t c,
                    bool saturate);

uint32_t add_rn_f32(uint32_t a, uint32_t b); // one addition, to nearest even; NaN results are canonical
uint16_t add_rn_f16(uint16_t a, uint16_t b);

} // namespace qm
