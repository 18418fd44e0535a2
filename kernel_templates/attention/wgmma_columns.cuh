// SPDX-License-Identifier: Apache-2.0
// The two computing groups that share 64 rows (COLUMNS 2), for head_dims whose output does not fit one group's registers.
// The first computes scores and probabilities and the output's first columns, the second the other columns. Per block
// the second gets the probabilities, and the factors of its sums so far, through shared memory (two buffers in turn);
// at the end of a tile it gives back the sums of the probabilities, and gets the weights in place of the factors.
//
// A block takes as long as what the first group does for it one after another: products are issued as they are worked on,
// so the softmax begins when all are, and the next scores when it has ended. So this group has few of the columns, no
// maxima (group.cuh) and no sums.
//
// Probabilities of a block are handed over after the scores of the next: the second group's products then fill the time
// of the first one's softmax, and do not delay those scores. Each lane arrives for what it has itself written or read: an
// order by __syncwarp and one arrival a warp is one that racecheck does not follow.
#pragma once

#include "wgmma_math.cuh"

constexpr i32 kFirstColumns = columns_before(1), kSecondColumns = DV - kFirstColumns;
static_assert(COLUMNS == 2 && kFirstColumns <= 128 && kSecondColumns >= 8 && kSecondColumns <= 384,
              "COLUMNS 2: what registers hold");

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

// Hands the factors and probabilities of a step over.
QN_DEVICE void announce(const Pieces &s, Counts &n)
{
    mbarrier_arrive(s.probability_full + n.steps++ % 2);
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

// Block j of a tile, and the output of the block before. The products of a round end in it, as in wgmma_rows.cuh.
QN_DEVICE void attend_first_block(const attention_params &p, const Blocks &blocks, const Pieces &s, const Seen &seen,
                                  i32 j, Counts &n, Running &r, float (&x)[KEYS / 2], const u32 (&before)[KEYS / 16][4],
                                  u32 (&probabilities)[KEYS / 16][4], float (&out)[kFirstColumns / 2])
{
    float factor[2] = {1.f, 1.f};
    bool same = false;
    begin_scores(s, 0, n.keys, x);
    begin_first_values(s, n, before, j > 1, out);
    wgmma_wait_group<1>();
    wgmma_fence_operand(x);
    release_keys(s, n.keys++, j + 1 == blocks.count);
    announce(s, n);
    prepare_scores<kMasksAll>(p, seen, blocks.first + j * KEYS, x);
    if constexpr (kBasesStay) {
        same = soften<false>(p, x, r, probabilities, factor);
    } else {
        BlockSums sums;
        probabilities_of<false>(x, raise_bases<false>(p, x, r, factor), probabilities, sums);
        add_sums(r, sums);
    }
    end_first_values(s, n, out);
    put_factors(s, n.steps, factor);
    put_probabilities(s, n.steps, probabilities);
    if (!same) rescale(out, factor);
}

QN_DEVICE void attend_first(const attention_params &p, const Blocks &blocks, const Pieces &s, const Seen &seen,
                            Counts &n, Running &r, float (&out)[kFirstColumns / 2])
{
    float x[KEYS / 2], factor[2];
    u32 even[KEYS / 16][4], odd[KEYS / 16][4];
    running_clear(r);
    wait_phase(s.query_full, n.tiles++);
    begin_scores(s, 0, n.keys, x);
    wgmma_wait_group<0>();
    wgmma_fence_operand(x);
    release_keys(s, n.keys++, blocks.count == 1);
    prepare_scores<kMasksAll>(p, seen, blocks.first, x);
    soften_by_maxima<false>(p, x, r, even, factor);
    factor[0] = factor[1] = 1.f; // there is no output yet
    put_factors(s, n.steps, factor);
    put_probabilities(s, n.steps, even);
    i32 j = 1;
#pragma unroll 1
    for (; j + 1 < blocks.count; j += 2) {
        attend_first_block(p, blocks, s, seen, j, n, r, x, even, odd, out);
        attend_first_block(p, blocks, s, seen, j + 1, n, r, x, odd, even, out);
    }
    if (j < blocks.count) {
        attend_first_block(p, blocks, s, seen, j, n, r, x, even, odd, out);
        copy_probabilities(odd, even, (u32)(p.B >> 31));
    }
    announce(s, n);
    begin_first_values(s, n, even, blocks.count > 1, out);
    end_first_values(s, n, out);
}

QN_DEVICE void compute_first(const attention_wgmma_params &all, const Pieces &s)
{
    const attention_params &p = all.p;
    const u32 zero = zero_of_lane();
    Counts n = {zero, zero, zero, zero};
    for (i32 visit = 0, number; (number = next_tile(all, 0, visit)) >= 0;) {
        const Tile t = tile_at(p, number);
        if (t.rows <= 0) continue;
        const Seen seen = seen_of(p, t, 0);
        Running r;
        float out[kFirstColumns / 2], weight[2];
        attend_first(p, blocks_of(t), s, seen, n, r, out);
        const Tile same = tile_again(p, number);
        wait_phase(s.total_full, n.tiles - 1);
        r.total[0] = s.totals[group_row()], r.total[1] = s.totals[group_row() + 8];
        finish_rows<true>(p, same, seen, r, weight);
        put_factors(s, n.steps, weight);
        announce(s, n);
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

// Products with the second group's values; an instruction has 256 columns at most.
template <i32 kColumns>
QN_DEVICE void issue_second(const Pieces &s, u32 stage, u32 buffer, bool accumulate, float (&out)[kColumns / 2])
{
    constexpr i32 kEarly = kColumns > 256 ? 192 : kColumns, kLate = kColumns - kEarly;
    const u32 probabilities = low_of(s.probabilities + buffer * kProbabilityBytes, 0);
    const u32 values = low_of_values(s, stage, 1);
    wgmma_fence_operand(out);
    wgmma_fence();
    issue_values<kEarly>(reinterpret_cast<float(&)[kEarly / 2]>(out), probabilities, values, accumulate);
    if constexpr (kLate > 0) {
        wgmma_fence();
        issue_values<kLate>(reinterpret_cast<float(&)[kLate / 2]>(out[kEarly / 2]), probabilities,
                            values + (kEarly / 64 * kKeyChunkBytes >> 4), accumulate);
    }
    wgmma_commit_group();
}

// This thread's part of its rows' sums of a block's rounded probabilities: of 16 keys, while products are worked on.
QN_DEVICE void add_totals(const Pieces &s, u32 buffer, const float (&factor)[2], float (&total)[2])
{
    const i32 quad = lane_index() % 4;
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const i32 row = group_row() + 8 * half;
        const unsigned char *from = s.probabilities + buffer * kProbabilityBytes + row * 128;
        float parts[2] = {0.f, 0.f};
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const uint4 w = *reinterpret_cast<const uint4 *>(from + (((2 * quad + i) ^ (row % 8)) << 4));
            parts[0] += (low_value(w.x) + low_value(w.y)) + (low_value(w.z) + low_value(w.w));
            parts[1] += (high_value(w.x) + high_value(w.y)) + (high_value(w.z) + high_value(w.w));
        }
        total[half] = fmaf(total[half], factor[half], parts[0] + parts[1]);
    }
}

QN_DEVICE void attend_second(const Blocks &blocks, const Pieces &s, Counts &n, float (&out)[kSecondColumns / 2],
                             float (&weight)[2])
{
    float total[2] = {0.f, 0.f};
#pragma unroll 1
    for (i32 j = 0; j < blocks.count; j++) {
        const u32 stage = n.values % kStages, buffer = n.steps % 2;
        float factor[2];
        take_factors(s, n.steps++, factor);
        wait_phase(s.value_full + stage * kValuePieces + 1, n.values++ / kStages);
        if (j > 0) rescale(out, factor);
        issue_second<kSecondColumns>(s, stage, buffer, j > 0, out);
        add_totals(s, buffer, factor, total);
        wgmma_wait_group<0>();
        wgmma_fence_operand(out);
        warp_arrive(s.value_empty + stage * kValuePieces + 1);
        mbarrier_arrive(s.probability_empty + buffer);
    }
#pragma unroll
    for (i32 half = 0; half < 2; half++) {
        const float sum = quad_sum(total[half]);
        if (lane_index() % 4 == 0) s.totals[group_row() + 8 * half] = sum;
    }
    mbarrier_arrive(s.total_full);
    take_factors(s, n.steps, weight);
    mbarrier_arrive(s.probability_empty + n.steps++ % 2);
}

QN_DEVICE void compute_second(const attention_wgmma_params &all, const Pieces &s)
{
    const attention_params &p = all.p;
    const u32 zero = zero_of_lane();
    Counts n = {zero, zero, zero, zero};
    for (i32 visit = 0, number; (number = next_tile(all, 0, visit)) >= 0;) {
        const Tile t = tile_at(p, number);
        if (t.rows <= 0) continue;
        float out[kSecondColumns / 2], weight[2];
        attend_second(blocks_of(t), s, n, out, weight);
        const Tile same = tile_again(p, number);
        const bool sees[2] = {weight[0] != 0.f, weight[1] != 0.f}; // a row that sees no key has no weight
        store_columns<kSecondColumns>(p, same, group_row(), sees, kFirstColumns, out, weight);
    }
}
