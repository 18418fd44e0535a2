// SPDX-License-Identifier: Apache-2.0
// See tensor_core.h. Sums are held in 64-bit integers in units of 2^(E-F): 33 terms below 2^(2+35) never overflow.
#include "tensor_core.h"

namespace qm {
namespace {

constexpr uint32_t kNanF32 = 0x7FFFFFFF, kNanF16 = 0x7FFF;

struct Shape {
    int bits, exponent_bits, fraction, bias;
    bool has_infinity, has_nan;
};

Shape shape_of(Format format)
{
    switch (format) {
    case Format::f16:
        return {16, 5, 10, 15, true, true};
    case Format::bf16:
        return {16, 8, 7, 127, true, true};
    case Format::tf32:
        return {32, 8, 10, 127, true, true};
    case Format::f32:
        return {32, 8, 23, 127, true, true};
    case Format::e4m3:
        return {8, 4, 3, 7, false, true};
    case Format::e5m2:
        return {8, 5, 2, 15, true, true};
    case Format::e3m2:
        return {6, 3, 2, 3, false, false};
    case Format::e2m3:
        return {6, 2, 3, 1, false, false};
    case Format::e2m1:
        return {4, 2, 1, 1, false, false};
    case Format::ue4m3:
        return {8, 4, 3, 7, false, true};
    default:
        return {8, 8, 0, 127, false, true}; // ue8m0: number_of has a case of its own
    }
}

// A sum of terms with a common exponent: value = total * 2^(exponent - fraction).
struct Total {
    int64_t total;
    int exponent, fraction;
};

struct Term {
    bool negative;
    int exponent;
    uint64_t significand; // in units of 2^(exponent - fraction)
    int fraction;
};

// Cut toward zero to a multiple of 2^(exponent - fraction).
int64_t cut(const Term &term, int exponent, int fraction)
{
    int shift = term.exponent - exponent + fraction - term.fraction;
    uint64_t magnitude = shift >= 0 ? term.significand << shift : shift > -64 ? term.significand >> -shift : 0;
    return term.negative ? -(int64_t)magnitude : (int64_t)magnitude;
}

int top_bit(uint64_t v)
{
    return 63 - __builtin_clzll(v);
}

// |total| * 2^scale as a binary float of the given fraction and least exponent; toward zero or to nearest even.
uint32_t pack(int64_t total, int scale, int fraction, int least, int greatest, int exponent_bits, bool nearest)
{
    if (!total) return 0;
    bool negative = total < 0;
    uint64_t magnitude = negative ? 0 - (uint64_t)total : (uint64_t)total;
    int exponent = top_bit(magnitude) + scale;
    if (exponent < least) exponent = least;
    int drop = exponent - fraction - scale; // bits below the last one kept
    uint64_t kept = drop <= 0 ? magnitude << -drop : drop < 64 ? magnitude >> drop : 0;
    if (nearest && drop > 0 && drop <= 64) {
        uint64_t rest = drop == 64 ? magnitude : magnitude & ((1ull << drop) - 1), half = 1ull << (drop - 1);
        if (rest > half || (rest == half && (kept & 1))) kept++;
        if (kept >> (fraction + 1)) kept >>= 1, exponent++;
    }
    uint32_t sign = negative ? 1u << (exponent_bits + fraction) : 0;
    if (exponent > greatest) return sign | ((1u << exponent_bits) - 1) << fraction;
    bool subnormal = !(kept >> fraction);
    uint32_t field = subnormal ? 0 : (uint32_t)(exponent - least + 1);
    return sign | field << fraction | ((uint32_t)kept & ((1u << fraction) - 1));
}

// What vanishes in rounding is +0.
uint32_t pack_sum(int64_t total, int scale, Sum sum)
{
    uint32_t bits =
        sum == Sum::f16 ? pack(total, scale, 10, -14, 15, 5, true) : pack(total, scale, 23, -126, 127, 8, false);
    if (sum == Sum::e8m13) bits &= ~0x3FFu;
    return bits & (sum == Sum::f16 ? 0x7FFFu : 0x7FFFFFFFu) ? bits : 0;
}

Format sum_format(Sum sum)
{
    return sum == Sum::f16 ? Format::f16 : Format::f32;
}
uint32_t nan_of(Sum sum)
{
    return sum == Sum::f16 ? kNanF16 : kNanF32;
}
uint32_t infinity_of(Sum sum, bool negative)
{
    return sum == Sum::f16 ? 0x7C00u | (negative ? 0x8000u : 0) : 0x7F800000u | (negative ? 0x80000000u : 0);
}

// NaN and infinities met among the terms.
struct Special {
    bool nan = false, plus = false, minus = false;
    void infinite(bool negative) { (negative ? minus : plus) = true; }
    bool any() const { return nan || plus || minus; }
    uint32_t result(Sum sum) const { return nan || (plus && minus) ? nan_of(sum) : infinity_of(sum, minus); }
};

Term product(const Number &x, const Number &y, Special &special)
{
    if (x.nan || y.nan)
        special.nan = true;
    else if (x.infinite || y.infinite) {
        bool zero = (!x.infinite && !x.significand) || (!y.infinite && !y.significand);
        if (zero)
            special.nan = true;
        else
            special.infinite(x.negative != y.negative);
    }
    return {x.negative != y.negative, x.exponent + y.exponent, (uint64_t)x.significand * y.significand,
            x.fraction + y.fraction};
}

Term addend(uint32_t bits, Sum sum, Special &special)
{
    Number c = number_of(sum_format(sum), bits);
    if (c.nan)
        special.nan = true;
    else if (c.infinite)
        special.infinite(c.negative);
    return {c.negative, c.exponent, c.significand, c.fraction};
}

uint32_t sum_terms(const Term *terms, int n, const Rule &rule)
{
    int exponent = rule.floor;
    for (int i = 0; i < n; i++)
        if (terms[i].significand && terms[i].exponent > exponent) exponent = terms[i].exponent;
    int64_t total = 0;
    for (int i = 0; i < n; i++) total += cut(terms[i], exponent, rule.fraction);
    return pack_sum(total, exponent - rule.fraction, rule.sum);
}

} // namespace

int bits_of(Format format)
{
    return shape_of(format).bits;
}

Number number_of(Format format, uint32_t bits)
{
    if (format == Format::ue8m0) return {bits == 0xFF, false, false, (int)bits - 127, 1, 0};
    if (format == Format::tf32) bits >>= 13; // the low bits of the register are cut off
    Shape s = shape_of(format);
    uint32_t fraction_mask = (1u << s.fraction) - 1, exponent_mask = (1u << s.exponent_bits) - 1;
    uint32_t field = bits >> s.fraction & exponent_mask, fraction = bits & fraction_mask;
    bool negative = format != Format::ue4m3 && (bits >> (s.fraction + s.exponent_bits) & 1);
    Number n = {false,
                false,
                negative,
                field ? (int)field - s.bias : 1 - s.bias,
                field ? fraction | 1u << s.fraction : fraction,
                s.fraction};
    if (field != exponent_mask || !s.has_nan) return n;
    if (s.has_infinity) {
        n.nan = fraction != 0;
        n.infinite = fraction == 0;
    } else {
        n.nan = fraction == fraction_mask; // e4m3: only 0x7F and 0xFF
    }
    return n;
}

Rule rule_of(Unit unit, int arch, Format input, Format accumulator)
{
    Sum sum = accumulator == Format::f16 ? Sum::f16 : Sum::f32;
    bool wide = input == Format::tf32, half = input == Format::f16 || input == Format::bf16;
    int floor = sum == Sum::f16 ? -21 : -133;
    if (unit == Unit::tcgen05) return {wide ? 8 : half ? 16 : 32, 25, floor, sum};
    if (wide || half) {
        bool hopper = arch >= 90;
        return {(wide ? 4 : 8) * (hopper ? 2 : 1), hopper ? 25 : 24, hopper ? floor : floor + 1, sum};
    }
    if (unit == Unit::mma && arch >= 120) return {32, 25, floor, sum};
    // fp8 of wgmma, and of mma on 89 (two halves of 16)
    return {unit == Unit::mma ? 16 : 32, 13, floor, sum == Sum::f32 ? Sum::e8m13 : Sum::f16};
}

void numbers_of(Format format, const uint32_t *bits, int n, Number *numbers)
{
    for (int i = 0; i < n; i++) numbers[i] = number_of(format, bits[i]);
}

uint32_t dot_add(const Number *a, const Number *b, int n, uint32_t c, const Rule &rule)
{
    Term terms[65];
    Special special;
    for (int i = 0; i < n; i++) terms[i] = product(a[i], b[i], special);
    terms[n] = addend(c, rule.sum, special);
    return special.any() ? special.result(rule.sum) : sum_terms(terms, n + 1, rule);
}

uint32_t dot_chain(const Number *a, const Number *b, int k, uint32_t c, const Rule &rule)
{
    for (int at = 0; at < k; at += rule.terms) {
        int n = k - at < rule.terms ? k - at : rule.terms;
        c = dot_add(a + at, b + at, n, c, rule);
    }
    return c;
}

uint32_t mma_dot(int arch, Format input, const Number *a, const Number *b, int k, uint32_t c, Format accumulator)
{
    bool fp8 = input == Format::e4m3 || input == Format::e5m2;
    if (!fp8 || arch == 89 || arch >= 120) return dot_chain(a, b, k, c, rule_of(Unit::mma, arch, input, accumulator));
    Rule rule = {16, 25, accumulator == Format::f16 ? -21 : -133, accumulator == Format::f16 ? Sum::f16 : Sum::f32};
    uint32_t sum = 0;
    for (int half = 0; half < 2; half++) {
        Number x[16], y[16];
        int n = 0;
        for (int i = 0; i < k; i++)
            if ((i % 4 < 2) == (half == 0)) x[n] = a[i], y[n++] = b[i];
        sum = dot_add(x, y, n, sum, rule);
    }
    return accumulator == Format::f16 ? add_rn_f16((uint16_t)c, (uint16_t)sum) : add_rn_f32(c, sum);
}

uint32_t scaled_dot_mxf8f6f4(const Number *a, uint32_t scale_a, const Number *b, uint32_t scale_b, uint32_t c)
{
    const Rule rule = {32, 25, -133, Sum::f32};
    Number sa = number_of(Format::ue8m0, scale_a), sb = number_of(Format::ue8m0, scale_b);
    if (sa.nan || sb.nan) return kNanF32;
    Term terms[33];
    Special special;
    for (int i = 0; i < 32; i++) {
        terms[i] = product(a[i], b[i], special);
        terms[i].exponent += sa.exponent + sb.exponent;
    }
    terms[32] = addend(c, Sum::f32, special);
    return special.any() ? special.result(Sum::f32) : sum_terms(terms, 33, rule);
}

uint32_t scaled_dot_mxf4(const Number *a, const uint32_t *scale_a, const Number *b, const uint32_t *scale_b, int k,
                         int block, Format scale, uint32_t c)
{
    const Rule rule = {64, 35, -133, Sum::f32};
    Term terms[8];
    Special special;
    int groups = k / 16;
    for (int g = 0; g < groups; g++) {
        int64_t sum = 0; // of e2m1 products: quarters
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            int64_t p = ((int64_t)a[i].significand << a[i].exponent) * ((int64_t)b[i].significand << b[i].exponent);
            sum += a[i].negative != b[i].negative ? -p : p;
        }
        Number sa = number_of(scale, scale_a[16 * g / block]), sb = number_of(scale, scale_b[16 * g / block]);
        if (sa.nan || sb.nan) special.nan = true;
        uint64_t magnitude = (uint64_t)(sum < 0 ? -sum : sum);
        terms[g] = {sum < 0, sa.exponent + sb.exponent, magnitude * sa.significand * sb.significand,
                    2 + sa.fraction + sb.fraction};
    }
    terms[groups] = addend(c, Sum::f32, special);
    return special.any() ? special.result(Sum::f32) : sum_terms(terms, groups + 1, rule);
}

int32_t integer_dot(bool a_signed, const uint32_t *a, bool b_signed, const uint32_t *b, int k, int32_t c, bool saturate)
{
    int64_t sum = c;
    for (int i = 0; i < k; i++) {
        int64_t x = a_signed ? (int8_t)a[i] : (int64_t)(uint8_t)a[i],
                y = b_signed ? (int8_t)b[i] : (int64_t)(uint8_t)b[i];
        sum += x * y;
    }
    if (saturate) return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : (int32_t)sum;
    return (int32_t)(uint32_t)sum;
}

// Exact two-term sums through the same integers: 277 bits would be needed in general, so the smaller operand is reduced
// to a sticky bit once it lies far below the larger.
static uint32_t add_rn(uint32_t a, uint32_t b, Format format)
{
    Number x = number_of(format, a), y = number_of(format, b);
    Sum sum = format == Format::f16 ? Sum::f16 : Sum::f32;
    Special special;
    if (x.nan || y.nan) special.nan = true;
    if (x.infinite) special.infinite(x.negative);
    if (y.infinite) special.infinite(y.negative);
    if (special.any()) return special.result(sum);
    if (!x.significand && !y.significand)
        return x.negative && y.negative ? (format == Format::f16 ? 0x8000u : 0x80000000u) : 0;
    const Number &large = x.exponent >= y.exponent ? x : y, &small = x.exponent >= y.exponent ? y : x;
    int extra = 30, shift = large.exponent - small.exponent - extra;
    int64_t total = (int64_t)large.significand << extra, rest = (int64_t)small.significand;
    if (shift <= 0)
        rest <<= -shift;
    else if (rest)
        rest = (shift < 40 && rest >> shift ? rest >> shift : 0) | 1;
    total = (large.negative ? -total : total) + (small.negative ? -rest : rest);
    int scale = large.exponent - large.fraction - extra;
    return format == Format::f16 ? pack(total, scale, 10, -14, 15, 5, true)
                                 : pack(total, scale, 23, -126, 127, 8, true);
}

uint32_t add_rn_f32(uint32_t a, uint32_t b)
{
    return add_rn(a, b, Format::f32);
}
uint16_t add_rn_f16(uint16_t a, uint16_t b)
{
    return (uint16_t)add_rn(a, b, Format::f16);
}

} // namespace qm
