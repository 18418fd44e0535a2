// SPDX-License-Identifier: Apache-2.0
// A computing group that has 64 rows for itself (COLUMNS 1), tile after tile. While the tensor cores work on the scores
// of a block and the output of the block before, the group's own arithmetic is the softmax of the former. Groups take
// turns in giving work to the tensor cores, so that one group's softmax falls into another's products. Under a causal
// limit, where the groups' masked blocks differ, turns cost more than they bring, but not where rows of v are short. Groups
// with tiles of their own keep no step with each other, and take no turns.
#pragma once

#include "wgmma_math.cuh"

constexpr i32 kOut = DV + kSumColumns; // columns of the accumulators
constexpr bool kTotals = kSumColumns == 0;
constexpr bool kTurns = !kOwnTiles && (!WINDOW_RIGHT || (DV <= 64 && !SOFTCAP)); // the cap takes the registers

// Barriers 1 … kGroups: the turn of each group.
QN_DEVICE void turn_wait(i32 group)
{
    if constexpr (kTurns) barrier_sync((u32)(1 + group), 2 * kGroupThreads);
}
QN_DEVICE void turn_pass(i32 group)
{
    if constexpr (kTurns) barrier_arrive((u32)(group + 1 == kGroups ? 1 : group + 2), 2 * kGroupThreads);
}

struct Counts {
    u32 tiles, values; // so far; of keys there is one block more while a tile is worked on
};

QN_DEVICE void begin_values(const Pieces &s, const Counts &n, const u32 (&p)[KEYS / 16][4], bool accumulate,
                            float (&out)[kOut / 2])
{
    const u32 stage = n.values % kStages;
    wait_phase(s.value_full + stage, n.values / kStages);
    wgmma_fence_operand(out);
    wgmma_fence();
    issue_values<kOut>(out, p, low_of_values(s, stage, 0), accumulate);
    wgmma_commit_group();
}

QN_DEVICE void end_values(const Pieces &s, Counts &n, float (&out)[kOut / 2])
{
    wgmma_wait_group<0>();
    wgmma_fence_operand(out);
    warp_arrive(s.value_empty + n.values++ % kStages);
}

// Block j of a tile, and the output of the block before. The products of a round end in it: only up to a wait that stands
// in the same stretch of code does the compiler keep its hands off registers that wgmma still reads (wgmma.cuh).
QN_DEVICE void attend_block(const attention_params &p, const Blocks &blocks, const Pieces &s, i32 group,
                            const Seen &seen, i32 j, Counts &n, Running &r, float (&x)[KEYS / 2],
                            const u32 (&before)[KEYS / 16][4], u32 (&probabilities)[KEYS / 16][4],
                            float (&out)[kOut / 2])
{
    float factor[2];
    turn_wait(group);
    begin_scores(s, group, n.values + 1, x);
    begin_values(s, n, before, j > 1, out);
    turn_pass(group);
    wgmma_wait_group<1>();
    wgmma_fence_operand(x);
    release_keys(s, n.values + 1, j + 1 == blocks.count);
    prepare_scores<kMasksAll>(p, seen, blocks.first + j * KEYS, x);
    if constexpr (kPacksEarly) {
        const bool same = soften<kTotals>(p, x, r, probabilities, factor);
        end_values(s, n, out);
        if (!same) rescale(out, factor);
    } else if constexpr (kBasesStay) {
        end_values(s, n, out);
        if (!soften<kTotals>(p, x, r, probabilities, factor)) rescale(out, factor);
    } else {
        const Power power = raise_bases<false>(p, x, r, factor);
        BlockSums sums;
        end_values(s, n, out);
        rescale(out, factor);
        probabilities_of<kTotals>(x, power, probabilities, sums);
        add_sums(r, sums);
    }
}

QN_DEVICE void attend_rows(const attention_params &p, const Blocks &blocks, const Pieces &s, i32 group,
                           const Seen &seen, Counts &n, Running &r, float (&out)[kOut / 2])
{
    float x[KEYS / 2], factor[2];
    u32 even[KEYS / 16][4], odd[KEYS / 16][4];
    running_clear(r);
    wait_phase(s.query_full, n.tiles++);
    begin_scores(s, group, n.values, x);
    wgmma_wait_group<0>();
    wgmma_fence_operand(x);
    release_keys(s, n.values, blocks.count == 1);
    prepare_scores<kMasksAll>(p, seen, blocks.first, x);
    soften_by_maxima<kTotals>(p, x, r, even, factor);
    if constexpr (kPacksEarly) {
        i32 j = 1;
#pragma unroll 1
        for (; j + 1 < blocks.count; j += 2) {
            attend_block(p, blocks, s, group, seen, j, n, r, x, even, odd, out);
            attend_block(p, blocks, s, group, seen, j + 1, n, r, x, odd, even, out);
        }
        if (j < blocks.count) {
            attend_block(p, blocks, s, group, seen, j, n, r, x, even, odd, out);
            copy_probabilities(odd, even, (u32)(p.B >> 31));
        }
    } else {
#pragma unroll 1
        for (i32 j = 1; j < blocks.count; j++) attend_block(p, blocks, s, group, seen, j, n, r, x, even, even, out);
    }
    begin_values(s, n, even, blocks.count > 1, out);
    end_values(s, n, out);
}

QN_DEVICE void compute_rows(const attention_wgmma_params &all, const Pieces &s, i32 group)
{
    const attention_params &p = all.p;
    const u32 zero = zero_of_lane();
    const i32 line = kOwnTiles ? group : 0, row_group = kOwnTiles ? 0 : group;
    Counts n = {zero, zero};
    if (group == kGroups - 1) turn_pass(group);
    for (i32 visit = 0, number; (number = next_tile(all, line, visit)) >= 0;) {
        const Tile t = tile_at(p, number);
        if (t.rows <= 0) continue;
        const Seen seen = seen_of(p, t, row_group);
        Running r;
        float out[kOut / 2], weight[2];
        attend_rows(p, blocks_of(t), s, row_group, seen, n, r, out);
        const Tile same = tile_again(p, number);
        if constexpr (!kTotals) r.total[0] = out[DV / 2], r.total[1] = out[DV / 2 + 2];
        finish_rows<!kTotals>(p, same, seen, r, weight);
        const bool sees[2] = {is_seen(seen.limits, 0), is_seen(seen.limits, 1)};
        store_columns<DV>(p, same, seen.row, sees, 0, out, weight);
    }
    if (group == 0) turn_wait(group); // the last group's last pass
}
