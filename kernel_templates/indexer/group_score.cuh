// SPDX-License-Identifier: Apache-2.0
// Scores of a group of ROWS rows of queries (1 or 8) by wgmma: keys are decoded once for all rows (group_operand.cuh).
// group_rows.cuh has what only 8 rows need.
//
// A warpgroup takes a unit of 64 entries: each warp 16 of them, lane 4g + q of rows g and g + 8 the elements q * C / 4 up to
// (q + 1) * C / 4. Decoded, they are the A operand of all products of the unit, in registers. B is q of kPart rows at a time:
// kPart * kWide columns, a head each, made once a group of rows and kept in shared memory. A product's accumulators are
// clamped, weighed and summed over heads in the order of score.cuh.
#pragma once

#include "../common/fence.cuh"
#include "group_operand.cuh"

constexpr u32 kPart = ROWS == 1 || kWide > 16 ? 1 : 2; // rows a product
constexpr u32 kProduct = kPart * kWide;                // columns of a product
constexpr u32 kUnit = 64;                              // entries of a warpgroup
constexpr u32 kWarpgroups = THREADS / 128;             // warpgroups

static_assert(THREADS % 128 == 0, "THREADS: whole warpgroups");

QN_DEVICE Group group_pieces(); // the kernel's

QN_DEVICE u32 group_warp()
{
    return warp_index() % 4;
}

// ---- queries

constexpr u32 kGroupColumns = kGroupRows * kWide * kHeadThreads; // parts of columns, as a thread makes them

QN_DEVICE void load_part(const indexer_params &p, i64 first, u32 i, Column &column)
{
    const u32 head = i / kHeadThreads;
    load_column(p, first + head / kWide, head % kWide, i % kHeadThreads * kThreadUnits, column);
}
QN_DEVICE void store_part(const Group &s, u32 i, const Column &column)
{
    const u32 head = i / kHeadThreads;
    store_column(s, head / kWide, head % kWide, i % kHeadThreads * kThreadUnits, column);
}

// Of rows first … first + kGroupRows - 1. A barrier before (the operand is free) and one after are the caller's.
QN_DEVICE void prepare_group(const indexer_params &p, const Group &s, i64 first)
{
#pragma unroll 1
    for (u32 i = thread_index(); i < kGroupColumns; i += THREADS) {
        if constexpr (ROWS == 1) { // of the two the one that the compiler has the registers for
            const u32 head = i / kHeadThreads;
            prepare_column(p, s, first, 0, head, i % kHeadThreads * kThreadUnits);
        } else {
            Column column = {}; // else what it held in the round before would have to be kept
            load_part(p, first, i, column);
            store_part(s, i, column);
        }
    }
    fence_proxy_async_shared();
}

// The same in two halves, for one row: all loads at first, so that they are on their way beside others. Where a thread has
// many they are left to the second half, since registers would not do.
constexpr u32 kThreadColumns = (kGroupColumns + THREADS - 1) / THREADS;
constexpr u32 kEarlyColumns = ROWS == 1 && kThreadColumns <= 2 ? kThreadColumns : 0;

struct Queries {
    Column column[kEarlyColumns ? kEarlyColumns : 1];
};
QN_DEVICE void load_queries(const indexer_params &p, i64 number, Queries &queries)
{
#pragma unroll
    for (u32 j = 0; j < kEarlyColumns; j++) {
        const u32 i = j * THREADS + thread_index();
        if (i < kGroupColumns) load_part(p, number, i, queries.column[j]);
    }
}
QN_DEVICE void store_queries(const indexer_params &p, const Group &s, i64 number, const Queries &queries)
{
    if (kEarlyColumns == 0) return prepare_group(p, s, number);
#pragma unroll
    for (u32 j = 0; j < kEarlyColumns; j++) {
        const u32 i = j * THREADS + thread_index();
        if (i < kGroupColumns) store_part(s, i, queries.column[j]);
    }
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
    if constexpr (kPageOfUnit) {
        const u32 inside = (PAGE == kUnit ? 0 : first % (PAGE ? PAGE : 1)) + group_warp() * 16 + lane_index() / 4;
        const u8 *base = p.keys + (i64)page[0] * p.keys_stride;
        const u8 *values = base + (inside * kValueBytes + lane_index() % 4 * (kRawWords * 4));
        const u8 *scales = base + (PAGE * kValueBytes + inside * kScaleBytes);
        load_words(values, true, keys.value[0]);
        load_words(values + 8 * kValueBytes, true, keys.value[1]);
        fetch_scales(scales, 0, keys.scale[0]);
        fetch_scales(scales + 8 * kScaleBytes, 0, keys.scale[1]);
    } else {
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            const Entry e = entry_at(p, row, unit_entry(row, first, r), page[r % kUnitPages]);
            load_words(e.values + lane_index() % 4 * (kRawWords * 4), true, keys.value[r]);
            fetch_scales(e.scales, 0, keys.scale[r]);
        }
    }
}

// ---- products

// The descriptor of a step of B; only its low word depends on the place.
QN_DEVICE u64 step_descriptor(u32 low, u32 step)
{
    constexpr u64 kHigh = (u64)(kColumnBytes >> 4) << 32 | (u64)kSwizzleNone << 62;
    return kHigh | (low + step * 16);
}

// A product on its way; a and c are not to be touched before the wait for it.
QN_DEVICE void begin_part(const Group &s, u32 part, u32 (&a)[Operand::kSteps][4], Sum (&c)[kProduct / 2])
{
    const u32 low = (u32)wgmma_descriptor(s.query, 128, 0, kSwizzleNone) + part * (kProduct / 8 * kColumnBytes / 16);
    wgmma_fence_operand(c);
    wgmma_fence();
#pragma unroll
    for (u32 u = 0; u < Operand::kSteps; u++) Operand::multiply<kProduct>(c, a[u], step_descriptor(low, u), u > 0);
    wgmma_commit_group();
}

QN_DEVICE void multiply_part(const Group &s, u32 part, u32 (&a)[Operand::kSteps][4], Sum (&c)[kProduct / 2])
{
    begin_part(s, part, a, c);
    wgmma_wait_group<0>();
    wgmma_fence_operand(c);
#pragma unroll
    for (u32 u = 0; u < Operand::kSteps; u++) wgmma_fence_operand(a[u]);
}

QN_DEVICE float4 weight_of(const Group &s, u32 row, u32 j) // of columns 16 j … 16 j + 15
{
    return s.weight[(row * (kWide / 16) + j) * 4 + lane_index() % 4];
}

QN_DEVICE void weigh_four(const Sum (&c)[kProduct / 2], u32 at, const float4 &w, float &to)
{
    to = fmaf(Operand::positive(c[at]), w.x, to);
    to = fmaf(Operand::positive(c[at + 1]), w.y, to);
    to = fmaf(Operand::positive(c[at + 4]), w.z, to);
    to = fmaf(Operand::positive(c[at + 5]), w.w, to);
}

// This lane's sums: entry g + 8 r, row t of the part, over its columns.
QN_DEVICE void weigh_part(const Group &s, u32 part, const Sum (&c)[kProduct / 2], float (&sum)[kPart][2])
{
#pragma unroll
    for (u32 t = 0; t < kPart; t++) {
        sum[t][0] = sum[t][1] = 0.f;
#pragma unroll
        for (u32 j = 0; j < kWide / 16; j++) {
            const float4 w = weight_of(s, part * kPart + t, j);
            const u32 at = (t * kWide + 16 * j) / 2;
            weigh_four(c, at, w, sum[t][0]);
            weigh_four(c, at + 2, w, sum[t][1]);
        }
    }
}

// Over the four lanes of an entry: lane q gets that of entry g + 8 (q % 2).
QN_DEVICE float share_row(const float (&sum)[2])
{
    const bool odd = lane_index() & 1;
    const float half = (odd ? sum[1] : sum[0]) + __shfl_xor_sync(kFullMask, odd ? sum[0] : sum[1], 1);
    return half + __shfl_xor_sync(kFullMask, half, 2);
}
