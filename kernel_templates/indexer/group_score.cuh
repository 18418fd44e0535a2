// SPDX-License-Identifier: Apache-2.0
// Scores of a group of ROWS rows of queries by wgmma, mxfp4 by mxfp4: keys are decoded once for all rows of the group.
//
// A warpgroup takes a unit of 64 entries: each warp 16 of them, lane 4g + q of rows g and g + 8 the elements q * C / 4 up to
// (q + 1) * C / 4. They become s8 (2v << s, s the group's exponent above the entry's least) in registers, the A operand of
// all products of the unit. B is q of kPart rows at a time: kPart * kWide columns, a head each, made once a group of rows and
// kept in shared memory. A product's accumulators are clamped, weighed and summed over heads as in score.cuh, in the same
// order, so that an entry has the same score here and there.
#pragma once

#include "../common/fence.cuh"
#include "../common/wgmma_int8.cuh"
#include "score.cuh"

static_assert(kInteger && C <= 128 && !BLOCKS, "prefill: mxfp4 by mxfp4, C up to 128, entries");

constexpr u32 kGroupRows = ROWS;
constexpr u32 kWide = (H + 15) / 16 * 16; // columns a row
constexpr u32 kPart = kWide > 64 ? 1 : kWide > 32 ? 2 : kWide > 16 ? 4 : 8; // rows a product
constexpr u32 kParts = kGroupRows / kPart;
constexpr u32 kProduct = kPart * kWide; // columns of a product
constexpr u32 kUnit = 64;               // entries of a warpgroup
constexpr u32 kGroups = THREADS / 128;  // warpgroups
constexpr u32 kScaleGroups = C / 32;
constexpr u32 kMostSignedSpread = 3;    // 12 << 3 is below 128

static_assert(ROWS == 8 && THREADS == 256, "ROWS, THREADS: a warp selects for a row");

struct Group { // in shared memory
    uint4 *query;   // [kGroupRows * kWide * C / 16], the B operand without swizzle: 8 columns by 16 bytes a core matrix
    float4 *weight; // [kGroupRows][kWide / 16][4]: of lane q, columns 2q, 2q + 1, 2q + 8, 2q + 9 of each 16
    u32 *length;    // [kGroupRows], 0 for rows that are not computed now
    u32 *most;      // [kParts], the largest length of a part's rows
    u32 *odd;       // [kGroupRows], 1: every entry of the row needs score_exactly
};

QN_DEVICE u32 group_warp()
{
    return warp_index() % 4;
}

// ---- queries

constexpr u32 kColumnBytes = 8 * C; // from eight columns to the next

// One head of a row, by one thread: its s8 in the operand's order, its weight.
QN_DEVICE void prepare_column(const indexer_params &p, const Group &s, i64 number, u32 row, u32 head)
{
    constexpr u32 kHeadWords = C / 8;
    u32 x[kHeadWords];
    Span span = {127, 127};
    float w = 0.f, small = 0.f;
    u8 scale[kScaleGroups];
    const bool exists = head < H && number < p.rows;
#pragma unroll
    for (u32 i = 0; i < kHeadWords; i++) x[i] = 0;
#pragma unroll
    for (u32 i = 0; i < kScaleGroups; i++) scale[i] = 127;
    if (exists) {
        const Row at = {number, 0, nullptr, 0, 0};
        load_words(head_bytes(p, at, head), p.q_aligned, x);
        const u8 *scales = p.q_scale + number * p.q_scale_stride_T + head * p.q_scale_stride_H;
        span = Span{255, 0};
#pragma unroll
        for (u32 i = 0; i < kScaleGroups; i++) {
            scale[i] = (u8)load_byte(scales + i);
            span.least = min(span.least, (u32)scale[i]), span.most = max(span.most, (u32)scale[i]);
        }
        w = __ldg(reinterpret_cast<const float *>(reinterpret_cast<const u8 *>(p.w) + number * p.w_stride_T) + head);
        small = w * power_of(min(span.least, 254u));
        const bool fits = span.least >= kLeastScale && span.most <= kMostScale && span.most - span.least <= 3 &&
                          (w == 0.f || (fabsf(small) >= 0x1p-60f && fabsf(small) <= 0x1p20f));
        if (!fits) atomicMax(&s.odd[row], 1u);
    }
    float *weight = reinterpret_cast<float *>(s.weight + (row * (kWide / 16) + head / 16) * 4 + head % 8 / 2);
    weight[head / 8 % 2 * 2 + head % 2] = small * 0x1p99f;
    const u32 column = row * kWide + head;
    u32 *to = reinterpret_cast<u32 *>(s.query) + (column / 8 * kColumnBytes + column % 8 * 16) / 4;
#pragma unroll
    for (u32 unit = 0; unit < kHeadWords; unit++) {
        const u32 shift = min((u32)scale[unit / 4] - span.least, 3u);
        const u32 low = 0x03020100u << shift, high = 0x0C080604u << shift;
        const u32 minus_low = (0x80808080u - low) ^ 0x80808080u, minus_high = (0x80808080u - high) ^ 0x80808080u;
        const u32 magnitude = x[unit] & 0x77777777u, pick = (x[unit] >> 1 & 0x44444444u) | 0x32103210u;
        const u32 q = unit / kUnits, u = unit % kUnits; // bytes 32 u + 4 q and 16 further on
        to[(2 * u * 128 + 4 * q) / 4] = permute_bytes(permute_bytes(low, high, magnitude),
                                                      permute_bytes(minus_low, minus_high, magnitude), pick);
        to[((2 * u + 1) * 128 + 4 * q) / 4] =
            permute_bytes(permute_bytes(low, high, magnitude >> 16),
                          permute_bytes(minus_low, minus_high, magnitude >> 16), pick >> 16);
    }
}

// Of rows first … first + kGroupRows - 1. A barrier before (the operand is free) and one after are the caller's.
QN_DEVICE void prepare_group(const indexer_params &p, const Group &s, i64 first)
{
#pragma unroll 1
    for (u32 i = thread_index(); i < kGroupRows * kWide; i += THREADS)
        prepare_column(p, s, first + i / kWide, i / kWide, i % kWide);
    fence_proxy_async_shared();
}

// ---- keys

struct Keys { // of this lane: two entries
    u32 value[2][kRawWords];
    u32 scale[2][kScaleWords];
};

constexpr bool kPageOfUnit = PAGE > 0 && PAGE % kUnit == 0; // then all entries of a page are there to be read
constexpr u32 kUnitPages = PAGE == 0 || kPageOfUnit ? 1 : 2;

QN_DEVICE u32 unit_entry(const Row &row, u32 first, u32 r)
{
    const u32 s = first + group_warp() * 16 + lane_index() / 4 + 8 * r;
    return kPageOfUnit ? s : min(s, row.length - 1);
}

QN_DEVICE void look_up_unit(const Row &row, u32 first, u32 (&page)[kUnitPages])
{
#pragma unroll
    for (u32 r = 0; r < kUnitPages; r++)
        page[r] = page_of(row, kPageOfUnit ? min(first, row.length - 1) : unit_entry(row, first, r));
}

QN_DEVICE void fetch_unit(const indexer_params &p, const Row &row, u32 first, const u32 (&page)[kUnitPages], Keys &keys)
{
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        const Entry e = entry_at(p, row, unit_entry(row, first, r), page[r % kUnitPages]);
        load_words(e.values + lane_index() % 4 * (kRawWords * 4), true, keys.value[r]);
        fetch_scales(e.scales, 0, keys.scale[r]);
    }
}

// Row r of the operand: one k step a unit of eight elements. False: the entry needs score_exactly.
QN_DEVICE bool decode_signed(const u32 (&value)[kRawWords], const u32 (&scale)[kScaleWords], u32 r, u32 &least,
                             u32 (&a)[kUnits][4])
{
    const Span span = span_of(scale);
    least = span.least;
#pragma unroll
    for (u32 u = 0; u < kUnits; u++) {
        const u32 shift = min(unit_scale(scale, u) - least, kMostSignedSpread);
        const u32 low = 0x03020100u << shift, high = 0x0C080604u << shift;
        const u32 minus_low = (0x80808080u - low) ^ 0x80808080u, minus_high = (0x80808080u - high) ^ 0x80808080u;
        const u32 x = value[u % kRawWords], magnitude = x & 0x77777777u, pick = (x >> 1 & 0x44444444u) | 0x32103210u;
        a[u][r] = permute_bytes(permute_bytes(low, high, magnitude), permute_bytes(minus_low, minus_high, magnitude),
                                pick);
        a[u][2 + r] = permute_bytes(permute_bytes(low, high, magnitude >> 16),
                                    permute_bytes(minus_low, minus_high, magnitude >> 16), pick >> 16);
    }
    return span.most - span.least <= kMostSignedSpread && span.least >= kLeastScale && span.most <= kMostScale;
}

// ---- products

QN_DEVICE void multiply_part(const Group &s, u32 part, u32 (&a)[kUnits][4], i32 (&c)[kProduct / 2])
{
    const u64 b =
        wgmma_descriptor(reinterpret_cast<const u8 *>(s.query) + part * kProduct * C, 128, kColumnBytes, kSwizzleNone);
    wgmma_fence_operand(c);
    wgmma_fence();
#pragma unroll
    for (u32 u = 0; u < kUnits; u++) wgmma_s32_s8_s8<kProduct>(c, a[u], wgmma_descriptor_advance(b, u * 256), u > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_fence_operand(c);
#pragma unroll
    for (u32 u = 0; u < kUnits; u++) wgmma_fence_operand(a[u]);
}

// This lane's sums: entry g + 8 r, row t of the part, over its columns.
QN_DEVICE void weigh_part(const Group &s, u32 part, const i32 (&c)[kProduct / 2], float (&sum)[kPart][2])
{
#pragma unroll
    for (u32 t = 0; t < kPart; t++) {
        sum[t][0] = sum[t][1] = 0.f;
#pragma unroll
        for (u32 j = 0; j < kWide / 16; j++) {
            const float4 w = s.weight[((part * kPart + t) * (kWide / 16) + j) * 4 + lane_index() % 4];
            const u32 at = (t * kWide + 16 * j) / 2;
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                float &to = sum[t][r];
                to = fmaf(__int_as_float(max(c[at + 2 * r], 0)), w.x, to);
                to = fmaf(__int_as_float(max(c[at + 2 * r + 1], 0)), w.y, to);
                to = fmaf(__int_as_float(max(c[at + 4 + 2 * r], 0)), w.z, to);
                to = fmaf(__int_as_float(max(c[at + 4 + 2 * r + 1], 0)), w.w, to);
            }
        }
    }
}

// Over the four lanes of an entry. Lane q gets entry g + 8 (q % 2), and rows q / 2, q / 2 + 2, … of the part (one row: 0).
constexpr u32 kOwn = kPart > 1 ? kPart / 2 : 1;
QN_DEVICE void share_sums(const float (&sum)[kPart][2], float (&own)[kOwn])
{
    const bool odd = lane_index() & 1, high = lane_index() & 2;
    float half[kPart];
#pragma unroll
    for (u32 t = 0; t < kPart; t++) {
        half[t] = odd ? sum[t][1] : sum[t][0];
        half[t] += __shfl_xor_sync(kFullMask, odd ? sum[t][0] : sum[t][1], 1);
    }
#pragma unroll
    for (u32 i = 0; i < kOwn; i++) {
        if constexpr (kPart == 1) {
            own[i] = half[0] + __shfl_xor_sync(kFullMask, half[0], 2);
        } else {
            const float low = half[2 * i], up = half[(2 * i + 1) % kPart];
            own[i] = (high ? up : low) + __shfl_xor_sync(kFullMask, high ? low : up, 2);
        }
    }
}

// ---- a unit

// The entries of this warp that need the other way, one row after another. wanted: bit 4g + r of entry g + 8 r.
QN_NOINLINE void mend_unit(const indexer_params &p, const Group &s, i64 number, u32 first, u32 wanted, float *to)
{
    __syncwarp();
#pragma unroll 1
    for (u32 row = 0; row < kGroupRows; row++) {
        const u32 length = s.length[row];
        u32 lanes = s.odd[row] ? 0x33333333u : wanted;
#pragma unroll 1
        for (; lanes; lanes &= lanes - 1) {
            const u32 lane = (u32)__ffs((i32)lanes) - 1, at = group_warp() * 16 + lane / 4 + lane % 4 * 8;
            if (first + at >= length) continue;
            const float score = score_exactly(p, number + row, first + at);
            const u32 writer = kPart == 1 ? lane : lane + row % kPart % 2 * 2; // who wrote the other one
            if (lane_index() == writer) to[row * p.chunk + at] = score;
        }
    }
    __syncwarp();
}

// Scores of entries base … base + count - 1 into the tile, row after row, `p.chunk` floats each. row: of the sequence, as long
// as its longest row. number: the group's first row.
QN_DEVICE void score_entries(const indexer_params &p, const Group &s, const Row &row, i64 number, u32 base, u32 count,
                             float *tile)
{
    const u32 units = (count + kUnit - 1) / kUnit, q = lane_index() % 4;
    Keys keys = {};
    u32 page[kUnitPages], odd_rows = 0;
    u32 unit = thread_index() / 128;
    if (unit >= units) return;
#pragma unroll
    for (u32 i = 0; i < kGroupRows; i++) odd_rows |= s.odd[i];
    look_up_unit(row, base + unit * kUnit, page);
    if (p.keys_aligned) fetch_unit(p, row, base + unit * kUnit, page, keys);
    look_up_unit(row, base + (unit + kGroups) * kUnit, page);
#pragma unroll 1
    for (; unit < units; unit += kGroups) {
        const u32 first = base + unit * kUnit;
        u32 a[kUnits][4], least[2];
        const bool fits_low = decode_signed(keys.value[0], keys.scale[0], 0, least[0], a);
        const bool fits_high = decode_signed(keys.value[1], keys.scale[1], 1, least[1], a);
        if (p.keys_aligned && unit + kGroups < units) {
            fetch_unit(p, row, first + kGroups * kUnit, page, keys);
            look_up_unit(row, first + 2 * kGroups * kUnit, page);
        }
        const float factor = __uint_as_float((min(q & 1 ? least[1] : least[0], kMostScale) + 48) << 23);
        const u32 wanted = __ballot_sync(kFullMask, q < 2 && !(q & 1 ? fits_high : fits_low));
        float *to = tile + unit * kUnit + group_warp() * 16 + lane_index() / 4 + (q & 1) * 8;
#pragma unroll 1
        for (u32 part = 0; part < kParts; part++) {
            i32 c[kProduct / 2];
            float sum[kPart][2], own[kOwn];
            if (first >= s.most[part]) continue;
            multiply_part(s, part, a, c);
            weigh_part(s, part, c, sum);
            share_sums(sum, own);
#pragma unroll
            for (u32 i = 0; i < kOwn; i++) {
                const u32 at = part * kPart + (kPart == 1 ? 0 : 2 * i + (q >> 1));
                if (kPart > 1 || q < 2) to[at * (u32)p.chunk] = own[i] * factor;
            }
        }
        if (QN_UNLIKELY(wanted != 0 || odd_rows != 0)) mend_unit(p, s, number, first, wanted, tile + unit * kUnit);
    }
}
