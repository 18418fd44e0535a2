// SPDX-License-Identifier: Apache-2.0
// Scores of a group of ROWS rows of queries (1 or 8) by wgmma: keys are decoded once for all rows (group_operand.cuh).
//
// A warpgroup takes a unit of 64 entries: each warp 16 of them, lane 4g + q of rows g and g + 8 the elements q * C / 4 up to
// (q + 1) * C / 4. Decoded, they are the A operand of all products of the unit, in registers. B is q of kPart rows at a time:
// kPart * kWide columns, a head each, made once a group of rows and kept in shared memory. A product's accumulators are
// clamped, weighed and summed over heads in the order of score.cuh.
#pragma once

#include "../common/fence.cuh"
#include "group_operand.cuh"

constexpr u32 kPart = ROWS == 1 || kWide > 64 ? 1 : kWide > 32 ? 2 : kWide > 16 ? 4 : 8; // rows a product
constexpr u32 kParts = kGroupRows / kPart;
constexpr u32 kProduct = kPart * kWide;    // columns of a product
constexpr u32 kUnit = 64;                  // entries of a warpgroup
constexpr u32 kWarpgroups = THREADS / 128; // warpgroups

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
            Column column;
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
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        const Entry e = entry_at(p, row, unit_entry(row, first, r), page[r % kUnitPages]);
        load_words(e.values + lane_index() % 4 * (kRawWords * 4), true, keys.value[r]);
        fetch_scales(e.scales, 0, keys.scale[r]);
    }
}

// ---- products

// The descriptor of a step of B; only its low word depends on the place.
QN_DEVICE u64 step_descriptor(u32 low, u32 step)
{
    constexpr u64 kHigh = (u64)(kColumnBytes >> 4) << 32 | (u64)kSwizzleNone << 62;
    return kHigh | (low + step * 16);
}

QN_DEVICE void multiply_part(const Group &s, u32 part, u32 (&a)[Operand::kSteps][4], Sum (&c)[kProduct / 2])
{
    const u32 low = (u32)wgmma_descriptor(s.query, 128, 0, kSwizzleNone) + part * (kProduct / 8 * kColumnBytes / 16);
    wgmma_fence_operand(c);
    wgmma_fence();
#pragma unroll
    for (u32 u = 0; u < Operand::kSteps; u++) Operand::multiply<kProduct>(c, a[u], step_descriptor(low, u), u > 0);
    wgmma_commit_group();
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

// Where scores go is the kernel's: a Sink has put(row, at, score, fits) and put_exact(row, at, score), of row `row` of the
// group and entry `at` of those being scored. What does not fit is put again, exactly, by the same lane.

// The entries of this warp that need the other way, one row after another. first: of the unit, from: its place among those
// being scored. wanted: bit 4g + r of entry g + 8 r.
template <class Sink>
QN_NOINLINE void mend_unit(const indexer_params &p, u32 number, u32 first, u32 from, u32 wanted, const Sink sink)
{
    const Group s = group_pieces();
    __syncwarp();
#pragma unroll 1
    for (u32 row = 0; row < kGroupRows; row++) {
        const u32 length = s.length[row];
        u32 lanes = s.odd[row] ? 0x33333333u : wanted;
#pragma unroll 1
        for (; lanes; lanes &= lanes - 1) {
            const u32 lane = (u32)__ffs((i32)lanes) - 1, at = group_warp() * 16 + lane / 4 + lane % 4 * 8;
            if (first + at >= length) continue;
            const float score = score_exactly(p, (i64)number + row, first + at);
            const u32 writer = kPart == 1 ? lane : lane + row % kPart % 2 * 2; // who put the other one
            if (lane_index() == writer) sink.put_exact(row, from + at, score);
        }
    }
    __syncwarp();
}

// Scores of a unit whose keys are here, entries `first` on, for every row that has some of them.
struct Decoded {
    u32 a[Operand::kSteps][4];
    float factor; // of the entry that this lane puts
    bool fits;    // that entry
    u32 wanted;   // of mend_unit
};

QN_DEVICE void decode_unit(const Keys &keys, Decoded &unit)
{
    const u32 q = lane_index() % 4;
    float factors[2];
    const bool fits_low = Operand::decode(keys.value[0], keys.scale[0], 0, factors[0], unit.a);
    const bool fits_high = Operand::decode(keys.value[1], keys.scale[1], 1, factors[1], unit.a);
    unit.factor = q & 1 ? factors[1] : factors[0];
    unit.fits = q & 1 ? fits_high : fits_low;
    unit.wanted = __ballot_sync(kFullMask, q < 2 && !unit.fits);
}

template <class Sink>
QN_DEVICE void score_unit_rows(const Group &s, Decoded &unit, u32 first, u32 from, const Sink &sink)
{
    const u32 q = lane_index() % 4, at = from + group_warp() * 16 + lane_index() / 4 + (q & 1) * 8;
#pragma unroll 1
    for (u32 part = 0; part < kParts; part++) {
        Sum c[kProduct / 2];
        float sum[kPart][2], own[kOwn];
        if (first >= s.most[part]) continue;
        multiply_part(s, part, unit.a, c);
        weigh_part(s, part, c, sum);
        share_sums(sum, own);
#pragma unroll
        for (u32 i = 0; i < kOwn; i++) {
            const u32 row = part * kPart + (kPart == 1 ? 0 : 2 * i + (q >> 1));
            if (kPart > 1 || q < 2) sink.put(row, at, own[i] * unit.factor, unit.fits);
        }
    }
}

// Scores of entries base … base + count - 1. row: of the sequence, as long as its longest row. number: the group's first row.
template <class Sink>
QN_DEVICE void score_entries(const indexer_params &p, const Group &s, const Row &row, u32 number, u32 base, u32 count,
                             const Sink &sink)
{
    const u32 units = (count + kUnit - 1) / kUnit;
    Keys keys = {};
    u32 page[kUnitPages];
    u32 unit = thread_index() / 128;
    if (unit >= units) return;
    look_up_unit(row, base + unit * kUnit, page);
    if (p.keys_aligned) fetch_unit(p, row, base + unit * kUnit, page, keys);
    look_up_unit(row, base + (unit + kWarpgroups) * kUnit, page);
#pragma unroll 1
    for (; unit < units; unit += kWarpgroups) {
        const u32 first = base + unit * kUnit;
        Decoded here;
        decode_unit(keys, here);
        if (p.keys_aligned && unit + kWarpgroups < units) {
            fetch_unit(p, row, first + kWarpgroups * kUnit, page, keys);
            look_up_unit(row, first + 2 * kWarpgroups * kUnit, page);
        }
        score_unit_rows(s, here, first, unit * kUnit, sink);
        if (QN_UNLIKELY(here.wanted != 0 || s.odd[kGroupRows] != 0))
            mend_unit(p, number, first, unit * kUnit, here.wanted, sink);
    }
}

// Scores of `kCount` entries spread over base … base + count - 1: place i has entry base + i * count / kCount. What does not
// fit is put, and said to be so, and not put again.
template <u32 kCount, class Sink>
QN_DEVICE void score_spread(const indexer_params &p, const Group &s, const Row &row, u32 base, u32 count,
                            const Sink &sink)
{
    static_assert(kCount % kUnit == 0, "whole units");
#pragma unroll 1
    for (u32 unit = thread_index() / 128; unit < kCount / kUnit; unit += kWarpgroups) {
        Keys keys = {};
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            const u32 place = unit * kUnit + group_warp() * 16 + lane_index() / 4 + 8 * r;
            const u32 entry = base + place * count / kCount;
            const Entry e = entry_at(p, row, entry, page_of(row, entry));
            if (!p.keys_aligned) continue;
            load_words(e.values + lane_index() % 4 * (kRawWords * 4), true, keys.value[r]);
            fetch_scales(e.scales, 0, keys.scale[r]);
        }
        Decoded here;
        decode_unit(keys, here);
        score_unit_rows(s, here, base + unit * kUnit * count / kCount, unit * kUnit, sink);
    }
}
