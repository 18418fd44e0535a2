// SPDX-License-Identifier: Apache-2.0
// The two computing groups that share 64 rows (COLUMNS 2), for head_dims whose output does not fit one group's registers.
// The first computes scores and probabilities and the output's first columns, the second the other columns. Per block
// the second gets the probabilities, and the factors of its sums so far, through shared memory (two buffers in turn);
// at the end of a tile the weights in place of the factors.
//
// Probabilities of a block are handed over after the scores of the next: the second group's products then fill the time
// of the first one's softmax, and do not delay those scores. Each lane arrives for what it has itself written or read: an
// order by __syncwarp and one arrival a warp is one that racecheck does not follow.
#pragma once

#include "wgmma_math.cuh"

constexpr i32 kFirstColumns = columns_before(1), kSecondColumns = DV - kFirstColumns;
static_assert(COLUMNS == 2 && kFirstColumns <= 256 && kSecondColumns >= 8, "COLUMNS 2: at most 256 columns a group");

struct Counts {
    u32 tiles, keys, values, steps; // so far; a step: a block, or a tile's weights
};

// ---- the first group

// Waits until the second group has used up the buffer's content of two steps ago.
QN_DEVICE void put_factors(const Pieces &s, u32 step, const float (&factor)[2])
{
    wait_phase(s.probability_empty + step % 2, step / 2 + 1);
    if (lane_index() % 4 == 0) {
        s.factors[step % 2 * 64 + group_row()] = factor[0];
        s.factors[step % 2 * 64 + group_row() + 8] = factor[1];
    }
}

QN_DEVICE void put_probabilities(const Pieces &s, u32 step, const u32 (&p)[KEYS / 16][4])
{
    const i32 lane = lane_index(), row = group_warp() * 16 + lane % 16;
    unsigned char *to = s.probabilities + step % 2 * kProbabilityBytes + row * 128;
#pragma unroll
    for (i32 i = 0; i < KEYS / 16; i++) stmatrix_x4(to + (((2 * i + lane / 16) ^ (row % 8)) << 4), p[i]);
    fence_proxy_async_shared();
    __syncwarp();
}

QN_DEVICE void begin_first_values(const Pieces &s, const Counts &n, const u32 (&p)[KEYS / 16][4], bool accumulate,
                                  float (&out)[kFirstColumns / 2])
{
    const u32 stage = n.values % kStages;
    wait_phase(s.value_full + stage * kValuePieces, n.values / kStages);
    wgmma_fence_operand(out);
    wgmma_fence();
    issue_values<kFirstColumns>(out, p, low_of_values(s, stage, 0), accumulate);
    wgmma_commit_group();
}

QN_DEVICE void end_first_values(const Pieces &s, Counts &n, float (&out)[kFirstColumns / 2])
{
    wgmma_wait_group<0>();
    wgmma_fence_operand(out);
    warp_arrive(s.value_empty + n.values++ % kStages * kValuePieces);
}

// The products of a round end in it, as in wgmma_rows.cuh.
QN_DEVICE void attend_first(const attention_params &p, const Blocks &blocks, const Pieces &s, const Seen &seen,
                            Counts &n, Running &r, float (&out)[kFirstColumns / 2])
{
    float x[KEYS / 2], factor[2];
    u32 probabilities[KEYS / 16][4];
    running_clear(r);
    wait_phase(s.query_full, n.tiles++);
    begin_scores(s, 0, n.keys, x);
    wgmma_wait_group<0>();
    wgmma_fence_operand(x);
    release_keys(s, n.keys++, blocks.count == 1);
    exponentials(x, raise<kMasksAll>(p, seen, blocks.first, x, r, factor), r.sum);
    pack_probabilities<true>(x, probabilities, r.total);
    factor[0] = factor[1] = 1.f; // there is no output yet
    put_factors(s, n.steps, factor);
    put_probabilities(s, n.steps, probabilities);
#pragma unroll 1
    for (i32 j = 1; j < blocks.count; j++) {
        begin_scores(s, 0, n.keys, x);
        begin_first_values(s, n, probabilities, j > 1, out);
        wgmma_wait_group<1>();
        wgmma_fence_operand(x);
        release_keys(s, n.keys++, j + 1 == blocks.count);
        mbarrier_arrive(s.probability_full + n.steps++ % 2);
        exponentials(x, raise<kMasksAll>(p, seen, blocks.first + j * KEYS, x, r, factor), r.sum);
        put_factors(s, n.steps, factor);
        wgmma_fence_operand(x);
        end_first_values(s, n, out);
        pack_probabilities<true>(x, probabilities, r.total);
        put_probabilities(s, n.steps, probabilities);
        rescale(out, factor);
    }
    mbarrier_arrive(s.probability_full + n.steps++ % 2);
    begin_first_values(s, n, probabilities, blocks.count > 1, out);
    end_first_values(s, n, out);
}

QN_DEVICE void compute_first(const attention_wgmma_params &all, const Pieces &s)
{
    const attention_params &p = all.p;
    const u32 zero = zero_of_lane();
    Counts n = {zero, zero, zero, zero};
    for (i32 visit = 0, number; (number = next_tile(all, visit)) >= 0;) {
        const Tile t = tile_at(p, number);
        if (t.rows <= 0) continue;
        const Seen seen = seen_of(p, t, 0);
        Running r;
        float out[kFirstColumns / 2], weight[2];
        attend_first(p, blocks_of(t), s, seen, n, r, out);
        const Tile same = tile_again(p, number);
        finish_rows<false>(p, same, seen, r, weight);
        put_factors(s, n.steps, weight);
        mbarrier_arrive(s.probability_full + n.steps++ % 2);
        const bool sees[2] = {is_seen(seen.limits, 0), is_seen(seen.limits, 1)};
        store_columns<kFirstColumns>(p, same, seen.row, sees, 0, out, weight);
    }
}

// ---- the second group

// Waits for a step and takes its factors.
QN_DEVICE void take_factors(const Pieces &s, u32 step, float (&factor)[2])
{
    wait_phase(s.probability_full + step % 2, step / 2);
    factor[0] = s.factors[step % 2 * 64 + group_row()];
    factor[1] = s.factors[step % 2 * 64 + group_row() + 8];
}

QN_DEVICE void attend_second(const Blocks &blocks, const Pieces &s, Counts &n, float (&out)[kSecondColumns / 2],
                             float (&weight)[2])
{
#pragma unroll 1
    for (i32 j = 0; j < blocks.count; j++) {
        const u32 stage = n.values % kStages, buffer = n.steps % 2;
        float factor[2];
        take_factors(s, n.steps++, factor);
        wait_phase(s.value_full + stage * kValuePieces + 1, n.values++ / kStages);
        if (j > 0) rescale(out, factor);
        wgmma_fence_operand(out);
        wgmma_fence();
        issue_values<kSecondColumns>(out, low_of(s.probabilities + buffer * kProbabilityBytes, 0),
                                     low_of_values(s, stage, 1), j > 0);
        wgmma_commit_group();
        wgmma_wait_group<0>();
        wgmma_fence_operand(out);
        warp_arrive(s.value_empty + stage * kValuePieces + 1);
        mbarrier_arrive(s.probability_empty + buffer);
    }
    take_factors(s, n.steps, weight);
    mbarrier_arrive(s.probability_empty + n.steps++ % 2);
}

QN_DEVICE void compute_second(const attention_wgmma_params &all, const Pieces &s)
{
    const attention_params &p = all.p;
    const u32 zero = zero_of_lane();
    Counts n = {zero, zero, zero, zero};
    for (i32 visit = 0, number; (number = next_tile(all, visit)) >= 0;) {
        const Tile t = tile_at(p, number);
        if (t.rows <= 0) continue;
        float out[kSecondColumns / 2], weight[2];
        attend_second(blocks_of(t), s, n, out, weight);
        const Tile same = tile_again(p, number);
        const Seen seen = seen_of(p, same, 0);
        const bool sees[2] = {is_seen(seen.limits, 0), is_seen(seen.limits, 1)};
        store_columns<kSecondColumns>(p, same, seen.row, sees, kFirstColumns, out, weight);
    }
}
