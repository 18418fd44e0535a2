// SPDX-License-Identifier: Apache-2.0
// Keys: 16 entries' bytes from memory to the A operand of the matrix instructions.
//
// Integer operand, for FP4 with one scale exponent an entry and up to 2 above it: 64 + 2v << s as u8, s the group's
// exponent above the entry's least. Two look-ups of four bytes: one holds 64 + 2v and is asked by the nibbles, one 64 - 2v
// and is asked by the nibbles with their sign turned; a nibble with its high bit set makes the look-up give the sign of
// the byte, 0 since all are below 128. So each is blank where the other is not, and OR joins them. What the 64 adds, 64
// times the sum of q, is taken off by the accumulator's first value.
//
// Float operand (f16 or bf16, both exact for every value of every layout): FP4 bits put where exponent and fraction
// begin, which is the value times a power of two that the factor takes back, together with the scale.
#pragma once

#include "problem.cuh"

struct Raw { // of this lane
    u32 value[kRows][kRawWords];
    u32 scale[kRows][kScaleWords]; // mxfp4: all bytes of the entry; fp8: the f32; nvfp4: a byte a unit
};

QN_DEVICE u32 row_in_tile(u32 r)
{
    return lane_index() / 4 + 8 * r;
}

// Whether a tile lies in one page; then all entries of it are there to be read, those past the length too. Else rows
// past the last entry stand for the last one.
constexpr bool kOnePage = PAGE > 0 && PAGE % kTile == 0 && (!BLOCKS || EPB % kTile == 0 || kTile % EPB == 0);
constexpr u32 kPages = PAGE == 0 || kOnePage ? 1 : kRows; // a lane looks up

QN_DEVICE u32 entry_of(const Row &row, u32 first, u32 r)
{
    const u32 s = first + row_in_tile(r);
    return kOnePage ? s : min(s, row.length - 1);
}

QN_DEVICE void look_up(const Row &row, u32 first, u32 (&page)[kPages])
{
#pragma unroll
    for (u32 r = 0; r < kPages; r++)
        page[r] = page_of(row, kOnePage ? min(first, row.length - 1) : entry_of(row, first, r));
}

QN_DEVICE void fetch_scales(const u8 *scales, u32 head, u32 (&word)[kScaleWords])
{
    const u32 q = lane_index() % 4;
    if constexpr (LAYOUT == kFp8Shared) {
        word[0] = load_word(scales, true);
    } else if constexpr (kHeads) {
#pragma unroll
        for (u32 i = 0; i < kScaleWords; i++) word[i] = 0;
#pragma unroll
        for (u32 u = 0; u < kUnits; u++)
            word[u / 4] |= load_byte(scales + head * (C / 16) + (q * kUnits + u) / 2) << 8 * (u % 4);
    } else if constexpr (kGroups % 4 == 0) {
        load_words(scales, true, word);
    } else {
#pragma unroll
        for (u32 i = 0; i < kScaleWords; i++) word[i] = 0;
#pragma unroll
        for (u32 i = 0; i < kGroups; i++) word[i / 4] |= load_byte(scales + i) << 8 * (i % 4);
    }
}

// Keys that do not lie where a lane's vectors may (p.keys_aligned = 0) are not fetched: their entries all take the other
// way, which reads bytes. A load that waited for its bytes to be put together would make every step wait.
QN_DEVICE void fetch(const indexer_params &p, const Row &row, u32 first, u32 head, const u32 (&page)[kPages], Raw &raw)
{
#pragma unroll
    for (u32 r = 0; r < kRows; r++) {
        const Entry e = entry_at(p, row, entry_of(row, first, r), page[r % kPages]);
        load_words(e.values + head * (C / 2) * kHeads + lane_index() % 4 * (kRawWords * 4), true, raw.value[r]);
        fetch_scales(e.scales, head, raw.scale[r]);
    }
}

// ---- scales of an mxfp4 entry

struct Span {
    u32 least, most;
};

QN_DEVICE Span span_of(const u32 (&scale)[kScaleWords])
{
    Span span = {255, 0};
#pragma unroll
    for (u32 i = 0; i < kGroups; i++) {
        const u32 byte = byte_of(scale[i / 4 % kScaleWords], i % 4);
        span.least = min(span.least, byte), span.most = max(span.most, byte);
    }
    return span;
}

// The scale byte of a unit of this lane.
QN_DEVICE u32 unit_scale(const u32 (&scale)[kScaleWords], u32 unit)
{
    const u32 group = (lane_index() % 4 * kUnits + unit) / 4;
    return byte_of(kScaleWords > 1 && group >= 4 ? scale[kScaleWords - 1] : scale[0], group % 4);
}

// ---- integer operand

constexpr u32 kMostSpread = 2;                    // of exponents in an entry: 64 + 12 << 2 is below 128
constexpr u32 kLeastScale = 64, kMostScale = 180; // of q and keys: no product of powers leaves the range of f32

// The operand of unit u: rows' elements 0 to 3 and 4 to 7. False: the entry needs score_exactly.
QN_DEVICE bool decode_integer(const u32 (&value)[kRawWords], const u32 (&scale)[kScaleWords], u32 r, u32 &least,
                              u32 (&a)[kMatrices][kSteps][4])
{
    const Span span = span_of(scale);
    least = span.least;
#pragma unroll
    for (u32 u = 0; u < kUnits; u++) {
        const u32 shift = min(unit_scale(scale, u) - least, kMostSpread);
        const u32 low = 0x40404040u + (0x03020100u << shift), high = 0x40404040u + (0x0C080604u << shift);
        const u32 minus_low = 0x80808080u - low, minus_high = 0x80808080u - high;
        const u32 x = value[u], turned = x ^ 0x88888888u;
        u32(&to)[4] = a[r / 2][u % kSteps];
        to[r % 2] = permute_bytes(low, high, x) | permute_bytes(minus_low, minus_high, turned);
        to[2 + r % 2] = permute_bytes(low, high, x >> 16) | permute_bytes(minus_low, minus_high, turned >> 16);
    }
    return span.most - span.least <= kMostSpread && span.least >= kLeastScale && span.most <= kMostScale;
}

// ---- float operand

constexpr u32 kMostFloatSpread = kF16 ? 23 : 100; // what stays exact below the entry's largest scale

QN_DEVICE u32 multiply_pairs(u32 a, u32 b)
{
    if constexpr (kF16)
        return multiply_f16x2(a, b);
    else
        return multiply_bf16x2(a, b);
}
QN_DEVICE u32 pair_of(float a, float b) // both exact in 16 bits
{
    if constexpr (kF16)
        return pack_f16x2(a, b);
    else
        return permute_bytes(__float_as_uint(a), __float_as_uint(b), 0x7632u);
}

// Elements i and i + 4 of 8 nibbles as floats times 2^-14 (f16) or 2^-126 (bf16).
QN_DEVICE u32 small_pair(u32 x, u32 i)
{
    constexpr u32 kFraction = kF16 ? 9 : 6;
    const u32 sign = x << (12 - 4 * i) & 0x80008000u;
    const u32 at = 4 * i <= kFraction ? x << ((kFraction - 4 * i) & 31) : x >> ((4 * i - kFraction) & 31);
    return sign | (at & (0x00070007u << kFraction));
}

// What pairs of a unit are multiplied by: 2^14 or 2^126 and the group's scale below the entry's largest.
QN_DEVICE u32 shared_factor(u32 most, u32 byte)
{
    const u32 below = min(most - byte, kMostFloatSpread);
    return (kF16 ? 29 - below << 10 : 253 - below << 7) * 0x00010001u;
}

// The same with an E4M3 scale: 2^14 or 2^126 for the bits, the scale, and kHeadsUnit for the range.
constexpr float kHeadsUnit = kF16 ? 0x1p7f : 0x1p16f; // what the dot is then multiplied by
QN_DEVICE u32 heads_factor(u32 byte)
{
    const float scale = f32_of_e4m3(byte);
    return kF16 ? pair_of(scale * 0x1p7f, scale * 0x1p7f) : pair_of(scale * 0x1p110f, scale * 0x1p110f);
}

// Two steps' operand of unit u. FP8 NaNs that bf16 cannot show are told by the result, as in decode_float.
QN_DEVICE bool decode_fp8_unit(u32 low, u32 high, u32 (&pair)[4])
{
    if constexpr (kF16) {
        pair[0] = f16x2_of_e4m3x2(low), pair[1] = f16x2_of_e4m3x2(low >> 16);
        pair[2] = f16x2_of_e4m3x2(high), pair[3] = f16x2_of_e4m3x2(high >> 16);
        return true;
    } else {
        const u32 word[2] = {low, high};
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 two = permute_bytes(word[i / 2], 0, i % 2 ? 0x4342u : 0x4140u); // a byte in each half
            const u32 small = (two & 0x00800080u) << 8 | (two & 0x007F007Fu) << 4;    // value · 2^-120
            pair[i] = multiply_bf16x2(small, 0x7B807B80u);
        }
        return !((((low & 0x7F7F7F7Fu) + 0x01010101u) | ((high & 0x7F7F7F7Fu) + 0x01010101u)) & 0x80808080u);
    }
}

// What the dots of a row are multiplied by goes into factor. False: the entry needs score_exactly.
QN_DEVICE bool decode_float(const u32 (&value)[kRawWords], const u32 (&scale)[kScaleWords], u32 r, float &factor,
                            u32 (&a)[kMatrices][kSteps][4])
{
    bool fits = true;
    u32 most = 0;
    if constexpr (LAYOUT == kMxfp4Shared) {
        const Span span = span_of(scale);
        most = span.most;
        fits = span.most - span.least <= kMostFloatSpread && span.most >= kLeastScale && span.most <= kMostScale;
        factor = power_of(min(most, 254u));
    } else if constexpr (LAYOUT == kFp8Shared) {
        factor = __uint_as_float(scale[0]);
        fits = factor == 0.f || (fabsf(factor) >= 0x1p-60f && fabsf(factor) <= 0x1p60f);
    } else {
        factor = kHeadsUnit;
    }
#pragma unroll
    for (u32 u = 0; u < kUnits; u++) {
        u32 pair[4];
        if constexpr (LAYOUT == kFp8Shared) {
            fits &= decode_fp8_unit(value[2 * u % kRawWords], value[(2 * u + 1) % kRawWords], pair);
        } else {
            const u32 by = kHeads ? heads_factor(byte_of(scale[u / 4 % kScaleWords], u % 4))
                                  : shared_factor(most, unit_scale(scale, u));
#pragma unroll
            for (u32 i = 0; i < 4; i++) pair[i] = multiply_pairs(small_pair(value[u], i), by);
        }
        u32(&first)[4] = a[r / 2][2 * u % kSteps], (&second)[4] = a[r / 2][(2 * u + 1) % kSteps];
        first[r % 2] = pair[0], first[2 + r % 2] = pair[1];
        second[r % 2] = pair[2], second[2 + r % 2] = pair[3];
    }
    return fits;
}
