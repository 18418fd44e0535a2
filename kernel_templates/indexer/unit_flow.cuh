// SPDX-License-Identifier: Apache-2.0
// A share's units of 64 entries scored for one row, a unit a warpgroup at a time, the bytes of the next ones on their way to
// its registers. The plan "wgmma".
#pragma once

#include "group_score.cuh"

constexpr u32 kUnitEntries = kUnit;
constexpr u32 kShareCount = SHARES;
constexpr u32 kUnitResults = kUnit;

#include "deal.cuh"

static_assert(ROWS == 1, "ROWS: a CTA is for one row");

// Units whose bytes are on their way; with 16 warps there are registers for two where a unit has one page.
constexpr u32 kAhead = !kInteger || kWide > 64 || (THREADS > 384 && kUnitPages > 1) ? 1 : 2;

// ---- a batch: local units [begin, end), dealt to the warpgroups

struct Flow { // what is on its way
    Keys keys[kAhead];
    u32 page[kAhead][kUnitPages];
    u32 units;
};

QN_DEVICE u32 local_unit(u32 begin, u32 i)
{
    return begin + thread_index() / 128 + i * kWarpgroups;
}
QN_DEVICE u32 first_of(const Share &share, u32 begin, u32 i)
{
    return unit_of(share, local_unit(begin, i)) * kUnit;
}

QN_DEVICE void look_up_page(const Row &row, u32 first, u32 (&page)[kUnitPages]) // of a unit that has entries
{
    if constexpr (kPageOfUnit)
        page[0] = page_of(row, first);
    else
        look_up_unit(row, first, page);
}

QN_DEVICE void begin_flow(const indexer_params &p, const Share &share, u32 begin, u32 end, Flow &flow)
{
    const u32 mine = begin + thread_index() / 128;
    flow.units = end > mine ? (end - mine + kWarpgroups - 1) / kWarpgroups : 0;
#pragma unroll
    for (u32 a = 0; a < kAhead; a++)
        if (a < flow.units) look_up_page(share.row, first_of(share, begin, a), flow.page[a]);
#pragma unroll
    for (u32 a = 0; a < kAhead; a++) {
        if (a < flow.units && p.keys_aligned)
            fetch_unit(p, share.row, first_of(share, begin, a), flow.page[a], flow.keys[a]);
        if (a + kAhead < flow.units) look_up_page(share.row, first_of(share, begin, a + kAhead), flow.page[a]);
    }
}

// The first units' pages, looked up before the row is known: that of row i is sequence i's, if there are so many.
struct Guess {
    const int *table;
    u32 page[kAhead];
};
constexpr bool kGuesses = kPageOfUnit;

QN_DEVICE void guess_pages(const indexer_params &p, i64 number, Guess &guess)
{
    guess.table = nullptr;
    if constexpr (kGuesses) {
        if (p.sequences == 0) return;
        guess.table = p.block_table;
        if (ROW_SEQ) guess.table += min(number, (i64)p.sequences - 1) * p.block_table_stride;
        const Share share = {{}, p.shares == 1 ? 0u : blockIdx.x % kShareCount, (u32)p.shares, 0};
#pragma unroll
        for (u32 a = 0; a < kAhead; a++)
            guess.page[a] =
                (u32)__ldg(guess.table + min(first_of(share, 0, a), (u32)p.capacity - 1) / (PAGE ? PAGE : 1));
    }
}

// As begin_flow, of the first batch.
QN_DEVICE void begin_first(const indexer_params &p, const Share &share, u32 end, const Guess &guess, Flow &flow)
{
    if (!kGuesses) return begin_flow(p, share, 0, end, flow);
    const u32 mine = thread_index() / 128;
    flow.units = end > mine ? (end - mine + kWarpgroups - 1) / kWarpgroups : 0;
#pragma unroll
    for (u32 a = 0; a < kAhead; a++) {
        flow.page[a][0] = guess.page[a];
        if (QN_UNLIKELY(guess.table != share.row.table) && a < flow.units)
            look_up_page(share.row, first_of(share, 0, a), flow.page[a]);
    }
#pragma unroll
    for (u32 a = 0; a < kAhead; a++) {
        if (a < flow.units && p.keys_aligned)
            fetch_unit(p, share.row, first_of(share, 0, a), flow.page[a], flow.keys[a]);
        if (a + kAhead < flow.units) look_up_page(share.row, first_of(share, 0, a + kAhead), flow.page[a]);
    }
}

QN_DEVICE void advance_flow(const indexer_params &p, const Share &share, u32 begin, u32 i, u32 a, Flow &flow)
{
    if (i + kAhead < flow.units && p.keys_aligned)
        fetch_unit(p, share.row, first_of(share, begin, i + kAhead), flow.page[a], flow.keys[a]);
    if (i + 2 * kAhead < flow.units) look_up_page(share.row, first_of(share, begin, i + 2 * kAhead), flow.page[a]);
}

QN_DEVICE void load_weights(const Group &group, float4 (&weight)[kWide / 16])
{
#pragma unroll
    for (u32 j = 0; j < kWide / 16; j++) weight[j] = weight_of(group, 0, j);
}

// The entries of this warp that need the other way, one after another; lanes q < 2 (and their doubles) hold scores.
QN_DEVICE float mend_scores(const indexer_params &p, const Share &share, u32 first, u32 at, bool odd, float score)
{
    u32 lanes = __ballot_sync(kFullMask, odd && lane_index() % 4 < 2 && first + at < share.row.length);
#pragma unroll 1
    for (; lanes; lanes &= lanes - 1) {
        const u32 lane = (u32)__ffs((i32)lanes) - 1, which = __shfl_sync(kFullMask, at, (i32)lane);
        const float exact = score_exactly(p, share.row.number, first + which);
        if (at == which) score = exact;
    }
    return score;
}

struct Scored {
    float score;
    u32 at;    // of the unit
    bool mine; // else another lane has it too
};

// Unit i of this warpgroup, whose bytes are in place a of the flow.
QN_DEVICE Scored score_unit(const indexer_params &p, const Group &group, const Share &share, u32 begin, u32 i, u32 a,
                            const float4 (&weight)[kWide / 16], bool row_odd, Flow &flow)
{
    const u32 first = first_of(share, begin, i), q = lane_index() % 4;
    u32 operand[Operand::kSteps][4];
    Sum c[kProduct / 2];
    float factor[2], sum[2] = {0.f, 0.f};
    const Keys &keys = flow.keys[a];
    const bool fits_low = Operand::decode(keys.value[0], keys.scale[0], 0, factor[0], operand);
    const bool fits_high = Operand::decode(keys.value[1], keys.scale[1], 1, factor[1], operand);
    bool odd = row_odd;
    const bool some = __any_sync(kFullMask, odd || !(fits_low && fits_high));
    if (QN_UNLIKELY(some)) odd = odd || !(q & 1 ? Operand::fits(keys.scale[1]) : Operand::fits(keys.scale[0]));
    advance_flow(p, share, begin, i, a, flow);
    multiply_part(group, 0, operand, c);
#pragma unroll
    for (u32 j = 0; j < kWide / 16; j++) {
        weigh_four(c, 8 * j, weight[j], sum[0]);
        weigh_four(c, 8 * j + 2, weight[j], sum[1]);
    }
    const u32 at = group_warp() * 16 + lane_index() / 4 + (q & 1) * 8;
    float score = share_row(sum) * (q & 1 ? factor[1] : factor[0]);
    if (QN_UNLIKELY(some)) score = mend_scores(p, share, first, at, odd, score);
    return Scored{score, at, q < 2};
}
