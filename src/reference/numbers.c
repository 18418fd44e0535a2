// SPDX-License-Identifier: Apache-2.0
// Stored 16-bit numbers to f32 and back, to nearest even, by bits: no compiler extension, no rounding mode.
// Called by the host references, the command and tests. Subnormals are kept in both directions; a NaN stays a NaN of
// its sign, quiet when it is made narrower.
#include <string.h>

#include "reference/reference.h"

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float qn_bf16_to_f32(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t qn_f32_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40); // a NaN whose payload may sit below
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16); // a carry out of the fraction is the right rounding
}

float qn_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 0x1F, fraction = bits & 0x3FF;
    if (exponent == 0x1F) return float_of(sign | 0x7F800000 | fraction << 13);
    if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; // exact: a subnormal f16 is a normal f32
    return float_of(sign | bits_of(magnitude));
}

// Shifts right by count (1 … 31) and rounds to nearest, ties to even.
static uint32_t round_shift(uint32_t value, unsigned count)
{
    uint32_t kept = value >> count, rest = value & ((1u << count) - 1), half = 1u << (count - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t qn_f32_to_f16(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
    if (magnitude >= 0x477FF000) return (uint16_t)(sign | 0x7C00); // 65520 and above, and infinity
    if (magnitude >= 0x38800000) return (uint16_t)(sign | round_shift(magnitude - (112u << 23), 13)); // 2^-14 and above
    if (magnitude <= 0x33000000) return (uint16_t)sign; // half of the smallest subnormal, 2^-25, is a tie to even: 0
    unsigned exponent = magnitude >> 23;                // 102 … 112: the result is a subnormal f16
    return (uint16_t)(sign | round_shift((magnitude & 0x7FFFFF) | 0x800000, 126 - exponent));
}
