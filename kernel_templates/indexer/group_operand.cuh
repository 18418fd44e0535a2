// SPDX-License-Identifier: Apache-2.0
// Operands of the products in group_score.cuh: one row of q is a head's column, one row of keys an entry.
//
// The contraction may run in any order: in step u lane q of a row of A has four elements of its C / 4 at bytes 4q (8-bit) or
// 4q and on (16-bit) of a piece of 16 bytes, and four or two and two more in the next piece. So the u-th words of a lane's
// keys are one step, and a column of B has the same words of q at the same places: 16 bytes by 8 columns a core matrix, no
// swizzle, two of them a step.
//
//   integers  mxfp4 by mxfp4: 2v << s as s8, s the group's exponent above the entry's (head's) least, up to 3. A head's power of
//             two goes into its weight, an entry's into its factor. Sums are exact; a clamped one is used as the bits of a
//             subnormal f32 (score.cuh)
//   floats    fp8_shared by fp8 or f16: f16, exact. The scale of a head goes into its weight, an entry's is its factor: both
//             are at least 0, or the entry takes the other way
#pragma once

#include "../common/wgmma_int8.cuh"
#include "score.cuh"

static_assert(C <= 128 && !BLOCKS && (kInteger || (LAYOUT == kFp8Shared && kF16)), "wgmma: what the plans serve");
static_assert(ROWS == 1 || ROWS == 8, "ROWS: 1, or 8 of a prefill");

constexpr u32 kGroupRows = ROWS;
constexpr u32 kWide = (H + 15) / 16 * 16; // columns a row

struct Group {      // in shared memory
    uint4 *query;   // the B operand
    float4 *weight; // [kGroupRows][kWide / 16][4]: of lane q, columns 2q, 2q + 1, 2q + 8, 2q + 9 of each 16
    u32 *length;    // [kGroupRows], 0 for rows that are not computed now
    u32 *most;      // the largest length of the rows of each product
    u32 *first;     // the number of row 0
    u32 *odd;       // [kGroupRows], 1: every entry of the row needs score_exactly; then 1: one of them is so
};

struct Head { // of a row of queries
    const u8 *bytes, *scales;
    float w;
    bool exists;
};

QN_DEVICE Head head_of(const indexer_params &p, i64 number, u32 head)
{
    Head h = {p.q, p.q_scale, 0.f, head < H && number < p.rows};
    if (!h.exists) return h;
    h.bytes += number * p.q_stride_T + head * p.q_stride_H;
    if (p.q_scale) h.scales += number * p.q_scale_stride_T + head * p.q_scale_stride_H;
    h.w = __ldg(reinterpret_cast<const float *>(reinterpret_cast<const u8 *>(p.w) + number * p.w_stride_T) + head);
    return h;
}

// ---- integers

constexpr u32 kMostSignedSpread = 3; // 12 << 3 is below 128

// Eight FP4 codes as s8, 2v << shift: of the first four, of the others. Two look-ups by the size, and a mask of the signs.
QN_DEVICE void signed_bytes(u32 x, u32 shift, u32 (&two)[2])
{
    const u32 low = 0x03020100u << shift, high = 0x0C080604u << shift;
    const u32 minus_low = 0x01010000u - low, minus_high = 0x01010100u - high; // a borrow from each byte but a 0
    const u32 size = x & 0x77777777u, up = size >> 16, even = x << 4;
    const u32 sign[2] = {permute_bytes(even, x, 0xD9C8u), permute_bytes(even, x, 0xFBEAu)};
    two[0] = (permute_bytes(low, high, size) & ~sign[0]) | (permute_bytes(minus_low, minus_high, size) & sign[0]);
    two[1] = (permute_bytes(low, high, up) & ~sign[1]) | (permute_bytes(minus_low, minus_high, up) & sign[1]);
}

// The least scale of an mxfp4 entry.
QN_DEVICE u32 least_scale(const u32 (&scale)[kScaleWords])
{
    if constexpr (kGroups == 4) { // each byte once at the top
        const u32 x = scale[0];
        return min(min(x, x << 8), min(x << 16, x << 24)) >> 24;
    } else {
        return span_of(scale).least;
    }
}

struct IntegerOperand {
    typedef i32 Sum;
    static constexpr u32 kSteps = C / 32, kElementBytes = 1;
    static constexpr u32 kUnitWords = 1; // of q's bytes: eight elements

    typedef u32 RawScale; // a byte a group
    struct HeadScale {
        u32 bytes, least;
    };

    QN_DEVICE static RawScale load_scale(const u8 *at, bool aligned)
    {
        if (kGroups == 4) return load_word(at, aligned);
        u32 bytes = 0;
#pragma unroll
        for (u32 i = 0; i < kGroups; i++) bytes |= load_byte(at + i) << 8 * (i % 4);
        return bytes;
    }
    // The head's weight, and what its units need. False: entries of the row need score_exactly.
    QN_DEVICE static bool scale_head(RawScale raw, float w, HeadScale &scale, float &weight)
    {
        Span span = {255, 0};
        scale.bytes = raw;
#pragma unroll
        for (u32 i = 0; i < kGroups; i++)
            span.least = min(span.least, byte_of(raw, i)), span.most = max(span.most, byte_of(raw, i));
        scale.least = span.least;
        const float small = w * power_of(min(span.least, 254u));
        weight = small * 0x1p99f;
        return span.least >= kLeastScale && span.most <= kMostScale && span.most - span.least <= 3 &&
               (w == 0.f || (fabsf(small) >= 0x1p-60f && fabsf(small) <= 0x1p20f));
    }
    QN_DEVICE static void unit_of_head(const u32 (&x)[kUnitWords], u32 unit, const HeadScale &scale, u32 (&two)[2])
    {
        signed_bytes(x[0], min(byte_of(scale.bytes, unit / 4) - scale.least, 3u), two);
    }

    // Row r of A, and what the entry's sums are multiplied by. False: this lane's part of the entry needs score_exactly.
    QN_DEVICE static bool decode(const u32 (&value)[kRawWords], const u32 (&scale)[kScaleWords], u32 r, float &factor,
                                 u32 (&a)[kSteps][4])
    {
        const u32 least = least_scale(scale);
        u32 spread = 0;
        factor = __uint_as_float((least + 48) << 23);
#pragma unroll
        for (u32 u = 0; u < kSteps; u++) {
            u32 two[2];
            const u32 byte = unit_scale(scale, u);
            if (u == 0 || kGroups != 4) spread = max(spread, byte - least); // else it is one group
            signed_bytes(value[u % kRawWords], min(byte - least, kMostSignedSpread), two);
            a[u][r] = two[0], a[u][2 + r] = two[1];
        }
        return spread <= kMostSignedSpread && least - kLeastScale <= kMostScale - kMostSignedSpread - kLeastScale;
    }
    QN_DEVICE static bool fits(const u32 (&scale)[kScaleWords])
    {
        const Span span = span_of(scale);
        return span.most - span.least <= kMostSignedSpread && span.least >= kLeastScale && span.most <= kMostScale;
    }

    template <u32 kCount> QN_DEVICE static void multiply(i32 (&c)[kCount / 2], const u32 (&a)[4], u64 b, bool add)
    {
        wgmma_s32_s8_s8<kCount>(c, a, b, add);
    }
    QN_DEVICE static float positive(i32 sum)
    {
        return saturate(__int_as_float(sum));
    }
};

// ---- floats

struct FloatOperand {
    typedef float Sum;
    static constexpr u32 kSteps = C / 16, kElementBytes = 2;
    static constexpr u32 kUnitWords = Q == kQF16 ? 2 : 1; // of q's bytes: four elements

    typedef u32 RawScale;
    struct HeadScale {};

    QN_DEVICE static RawScale load_scale(const u8 *at, bool)
    {
        return Q == kQFp8 ? load_word(at, false) : __float_as_uint(1.f);
    }
    QN_DEVICE static bool scale_head(RawScale raw, float w, HeadScale &, float &weight)
    {
        const float scale = __uint_as_float(raw);
        weight = w * scale;
        return scale >= 0.f && scale <= 0x1p60f && (scale == 0.f || scale >= 0x1p-60f) && fabsf(weight) <= 0x1p40f &&
               (w == 0.f || scale == 0.f || fabsf(weight) >= 0x1p-60f);
    }
    QN_DEVICE static void unit_of_head(const u32 (&x)[kUnitWords], u32, const HeadScale &, u32 (&two)[2])
    {
        if constexpr (Q == kQF16)
            two[0] = x[0], two[1] = x[kUnitWords - 1];
        else
            two[0] = f16x2_of_e4m3x2(x[0]), two[1] = f16x2_of_e4m3x2(x[0] >> 16);
    }

    QN_DEVICE static bool decode(const u32 (&value)[kRawWords], const u32 (&scale)[kScaleWords], u32 r, float &factor,
                                 u32 (&a)[kSteps][4])
    {
        factor = __uint_as_float(scale[0]);
#pragma unroll
        for (u32 u = 0; u < kSteps; u++) {
            a[u][r] = f16x2_of_e4m3x2(value[u % kRawWords]);
            a[u][2 + r] = f16x2_of_e4m3x2(value[u % kRawWords] >> 16);
        }
        return fits(scale);
    }
    QN_DEVICE static bool fits(const u32 (&scale)[kScaleWords])
    {
        const float factor = __uint_as_float(scale[0]);
        return factor == 0.f || (factor >= 0x1p-60f && factor <= 0x1p60f);
    }

    template <u32 kCount> QN_DEVICE static void multiply(float (&c)[kCount / 2], const u32 (&a)[4], u64 b, bool add)
    {
        wgmma_f32_f16<kCount>(c, a, b, add);
    }
    QN_DEVICE static float positive(float sum)
    {
        return max_or_nan(sum, 0.f);
    }
};

template <bool kIntegers> struct OperandOf {
    typedef FloatOperand Type;
};
template <> struct OperandOf<true> {
    typedef IntegerOperand Type;
};
typedef OperandOf<kInteger>::Type Operand;
typedef Operand::Sum Sum;

// ---- a column of B

constexpr u32 kColumnBytes = 8 * C * Operand::kElementBytes; // from eight columns to the next
constexpr u32 kHeadUnits = 4 * Operand::kSteps;              // of q's bytes a head, each two words of B
constexpr u32 kThreadUnits = ROWS == 1 ? 1 : kHeadUnits / 4; // of them a thread
constexpr u32 kHeadThreads = kHeadUnits / kThreadUnits;
constexpr u32 kQueryVectors = kGroupRows * kWide / 8 * kColumnBytes / 16, kWeightVectors = kGroupRows * kWide / 4;

struct Column { // of B, or a part of it: bytes as they lie in memory
    u32 x[kThreadUnits * Operand::kUnitWords];
    Operand::RawScale scale;
    float w;
    bool exists;
};

// Units `from` on of a head of a row. Nothing here waits for what it loads.
QN_DEVICE void load_column(const indexer_params &p, i64 number, u32 head, u32 from, Column &column)
{
    const Head h = head_of(p, number, head);
    column.exists = h.exists, column.w = h.w;
    if (!h.exists) return;
    load_words(h.bytes + 4 * Operand::kUnitWords * from, p.q_aligned, column.x);
    column.scale = Operand::load_scale(h.scales, p.q_aligned);
}

// The head's numbers. Where it does not fit, entries of the row need score_exactly.
QN_DEVICE void scale_column(const Group &s, u32 row, const Column &column, Operand::HeadScale &scale, float &weight)
{
    if (!Operand::scale_head(column.scale, column.w, scale, weight))
        atomicMax(&s.odd[row], 1u), atomicMax(&s.odd[kGroupRows], 1u);
}

// A column's units in the operand's order, and its weight: all 0 where there is no such head.
QN_DEVICE void place_column(const Group &s, u32 row, u32 head, u32 from, const Column &column,
                            const Operand::HeadScale &scale, float weight)
{
    constexpr u32 kEach = Operand::kUnitWords;
    if (from == 0) {
        float *to = reinterpret_cast<float *>(s.weight + (row * (kWide / 16) + head / 16) * 4 + head % 8 / 2);
        to[head / 8 % 2 * 2 + head % 2] = weight;
    }
    const u32 at = row * kWide + head;
    u32 *to = reinterpret_cast<u32 *>(s.query) + (at / 8 * kColumnBytes + at % 8 * 16) / 4;
#pragma unroll
    for (u32 i = 0; i < kThreadUnits; i++) {
        const u32 unit = from + i, q = unit / Operand::kSteps, u = unit % Operand::kSteps;
        u32 one[kEach], two[2] = {0, 0};
#pragma unroll
        for (u32 k = 0; k < kEach; k++) one[k] = column.x[i * kEach + k];
        if (column.exists) Operand::unit_of_head(one, unit, scale, two);
        to[2 * u * 32 + q] = two[0];
        to[(2 * u + 1) * 32 + q] = two[1];
    }
}

// What was loaded, into shared memory.
QN_DEVICE void store_column(const Group &s, u32 row, u32 head, u32 from, const Column &column)
{
    Operand::HeadScale scale = {};
    float weight = 0.f;
    if (column.exists) scale_column(s, row, column, scale, weight);
    place_column(s, row, head, from, column, scale, weight);
}

// Both at once.
QN_DEVICE void prepare_column(const indexer_params &p, const Group &s, i64 number, u32 row, u32 head, u32 from)
{
    const Head h = head_of(p, number, head);
    Column column = {};
    Operand::HeadScale scale = {};
    float weight = 0.f;
    column.exists = h.exists, column.w = h.w;
    if (h.exists) {
        load_words(h.bytes + 4 * Operand::kUnitWords * from, p.q_aligned, column.x);
        column.scale = Operand::load_scale(h.scales, p.q_aligned);
        scale_column(s, row, column, scale, weight);
    }
    place_column(s, row, head, from, column, scale, weight);
}
