// SPDX-License-Identifier: Apache-2.0
// Scores of entries for the rows of a prefill's group (group_score.cuh): a unit's keys are decoded once, one product a row
// (two where heads are few) follows the other. Where all rows have entries of the unit the next product runs while the
// accumulators of the one before it are clamped and weighed.
#pragma once

#include "group_score.cuh"

static_assert(ROWS == 8, "ROWS: of a prefill");

constexpr u32 kParts = kGroupRows / kPart;
constexpr u32 kRowPairs = kGroupRows / 2;
constexpr u32 kMostRows = kWide > 64 ? 1 : kWide > 32 ? 2 : kWide > 16 ? 4 : 8; // rows that have a word of Group::most
constexpr u32 kMosts = kGroupRows / kMostRows;

// The same of two rows: lane q gets row q / 2.
QN_DEVICE float share_rows(const float (&low)[2], const float (&up)[2])
{
    const bool odd = lane_index() & 1, high = lane_index() & 2;
    const float a = (odd ? low[1] : low[0]) + __shfl_xor_sync(kFullMask, odd ? low[0] : low[1], 1);
    const float b = (odd ? up[1] : up[0]) + __shfl_xor_sync(kFullMask, odd ? up[0] : up[1], 1);
    return (high ? b : a) + __shfl_xor_sync(kFullMask, high ? a : b, 2);
}

// ---- a unit

// Where scores go is the kernel's: a Sink has put(row, at, score, fits) and put_exact(row, at, score), of row `row` of the
// group and entry `at` of those being scored. What does not fit is put again, exactly, by the same lane.

// The entries of this warp that need the other way, one row after another. first: of the unit, from: its place among those
// being scored. wanted: bit 4g + r of entry g + 8 r.
template <class Sink>
QN_NOINLINE void mend_unit(const indexer_params &p, u32 first, u32 from, u32 wanted, const Sink sink)
{
    const Group s = group_pieces();
    __syncwarp();
#pragma unroll 1
    for (u32 row = 0; row < kGroupRows; row++) {
        const u32 length = s.length[row];
        u32 lanes = !s.odd[row] ? wanted : sink.wants_odd() ? 0x33333333u : 0u;
#pragma unroll 1
        for (; lanes; lanes &= lanes - 1) {
            const u32 lane = (u32)__ffs((i32)lanes) - 1, at = group_warp() * 16 + lane / 4 + lane % 4 * 8;
            if (first + at >= length) continue;
            const float score = score_exactly(p, (i64)*s.first + row, first + at);
            const u32 writer = lane + row % 2 * 2; // who put the other one
            if (lane_index() == writer) sink.put_exact(row, from + at, score);
        }
    }
    __syncwarp();
}

// Scores of a unit whose keys are here, entries `first` on, for every row that has some of them.
struct Decoded {
    u32 a[Operand::kSteps][4];
    float factor;               // of the entry that this lane puts
    u32 wanted;                 // of mend_unit
    QN_DEVICE bool fits() const // that entry
    {
        return (wanted >> (lane_index() & 29) & 1) == 0;
    }
};

QN_DEVICE void decode_unit(const Keys &keys, Decoded &unit)
{
    const u32 q = lane_index() % 4;
    float factors[2];
    const bool low = Operand::decode(keys.value[0], keys.scale[0], 0, factors[0], unit.a);
    const bool high = Operand::decode(keys.value[1], keys.scale[1], 1, factors[1], unit.a);
    unit.factor = q & 1 ? factors[1] : factors[0];
    unit.wanted = 0;
    if (QN_UNLIKELY(__any_sync(kFullMask, !(low && high)))) {
        const bool fits = q & 1 ? Operand::fits(keys.scale[1]) : Operand::fits(keys.scale[0]);
        unit.wanted = __ballot_sync(kFullMask, q < 2 && !fits);
    }
}

// Where all rows have entries of the unit a product runs while the one before it is weighed. Nothing may branch there.
constexpr bool kOverlap = kProduct <= 64; // two products' accumulators

// Part kIndex, which is on its way in `here`, and those after it. own: as share_rows makes it, of rows 2 i and 2 i + 1.
template <u32 kIndex>
QN_DEVICE void score_parts(const Group &s, Decoded &unit, Sum (&here)[kProduct / 2], Sum (&next)[kProduct / 2],
                           float (&before)[2], float (&own)[kRowPairs])
{
    float sum[kPart][2];
    if constexpr (kIndex + 1 < kParts) {
        begin_part(s, kIndex + 1, unit.a, next);
        wgmma_wait_group<1>();
    } else {
        wgmma_wait_group<0>();
    }
    wgmma_fence_operand(here);
    weigh_part(s, kIndex, here, sum);
    if constexpr (kPart == 2) {
        own[kIndex] = share_rows(sum[0], sum[kPart - 1]);
    } else if constexpr (kIndex % 2 == 0) {
        before[0] = sum[0][0], before[1] = sum[0][1];
    } else {
        own[kIndex / 2] = share_rows(before, sum[0]);
    }
    if constexpr (kIndex + 1 < kParts) score_parts<kIndex + 1>(s, unit, next, here, before, own);
}

QN_DEVICE void score_all_rows(const Group &s, Decoded &unit, float (&own)[kRowPairs])
{
    Sum here[kProduct / 2], next[kProduct / 2];
    float before[2] = {0.f, 0.f};
    begin_part(s, 0, unit.a, here);
    score_parts<0>(s, unit, here, next, before, own);
#pragma unroll
    for (u32 u = 0; u < Operand::kSteps; u++) wgmma_fence_operand(unit.a[u]);
#pragma unroll
    for (u32 i = 0; i < kRowPairs; i++) own[i] *= unit.factor;
}

QN_DEVICE bool all_rows_have(const Group &s, u32 first)
{
    bool all = kOverlap;
#pragma unroll
    for (u32 i = 0; i < kMosts; i++) all = all && first < s.most[i];
    return all;
}

QN_DEVICE u32 place_in_unit() // of the entry whose score this lane has
{
    return group_warp() * 16 + lane_index() / 4 + lane_index() % 2 * 8;
}

template <class Sink> QN_DEVICE void score_some_rows(const Group &s, Decoded &unit, u32 first, u32 at, const Sink &sink)
{
    const u32 h = lane_index() >> 1 & 1;
#pragma unroll 1
    for (u32 part = 0; part < kParts; part++) {
        Sum c[kProduct / 2];
        float sum[kPart][2];
        if (first >= s.most[part * kPart / kMostRows]) continue;
        multiply_part(s, part, unit.a, c);
        weigh_part(s, part, c, sum);
        if constexpr (kPart == 2) {
            sink.put(2 * part + h, at, share_rows(sum[0], sum[kPart - 1]) * unit.factor, unit.fits());
        } else {
            const float own = share_row(sum[0]);
            if (h == part % 2) sink.put(part, at, own * unit.factor, unit.fits());
        }
    }
}

// Scores of entries base … base + count - 1. row: of the sequence, as long as its longest row.
template <class Sink>
QN_DEVICE void score_entries(const indexer_params &p, const Group &s, const Row &row, u32 base, u32 count,
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
        float own[kRowPairs];
        const u32 at = unit * kUnit + place_in_unit();
        const bool all = all_rows_have(s, first);
        if (all)
            score_all_rows(s, here, own);
        else
            score_some_rows(s, here, first, at, sink);
        if (p.keys_aligned && unit + kWarpgroups < units) {
            fetch_unit(p, row, first + kWarpgroups * kUnit, page, keys);
            look_up_unit(row, first + 2 * kWarpgroups * kUnit, page);
        }
        if (all) sink.put_rows(lane_index() >> 1 & 1, at, own, here.fits());
        if (QN_UNLIKELY(here.wanted != 0 || s.odd[kGroupRows] != 0))
            mend_unit(p, first, unit * kUnit, here.wanted, sink);
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
        const u32 first = base + unit * kUnit * count / kCount, at = unit * kUnit + place_in_unit();
        if (all_rows_have(s, first)) {
            float own[kRowPairs];
            score_all_rows(s, here, own);
            sink.put_rows(lane_index() >> 1 & 1, at, own, here.fits());
        } else {
            score_some_rows(s, here, first, at, sink);
        }
    }
}
