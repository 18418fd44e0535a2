// SPDX-License-Identifier: Apache-2.0
// softmax_topk, plan "stream": one CTA a row, one read of the row, no temporary in memory. For every architecture, every
// V and many rows; the plan of batch_invariant.
//
//   probability_k = e^(x_k - max) / Σ e^(x_i - max) for the K largest x in order
//
//   sample     a threshold that a few more than K elements reach, from a sample of the row (sample.cuh)
//   stream     adds exponentials; lists the vectors that hold an element at the threshold (stream.cuh)
//   candidates the elements in the listed vectors, each with a place in a bin
//   rank       scan, scatter, count inside the bins (finish.cuh)
//   repair     a list too short or too full is known by its exact count; the row is then selected again (exact.cuh)
//   store      values and indices, in order
//
// What comes after the stream is a function of its own, so that the stream has all the registers.
// ANALYSIS.md: bytes, work, why it is exact, measured figures.
#include "stream.cuh"

QN_DEVICE Share whole_row(const softmax_topk_params &p, i64 row)
{
    const Row r = row_of(p, row);
    return Share{r, 0, r.count};
}

QN_NOINLINE void finish_row(const softmax_topk_params &p, i64 row)
{
    const Shared s = shared_pieces();
    const Share share = whole_row(p, row);
    const u64 *winner = winners_of_share(s, kK);
    const float sum = sum_of_share(s, p, row, share, key_value(candidate_key(winner[0])));
    u32 before = before_of_share(s);
    if constexpr (TOKEN) before = token_rank(p, row, share.row, *s.token, before, s.list.scratch);
    store_row(p, row, winner, sum, s.token, before, reinterpret_cast<float *>(s.tail));
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ softmax_topk_params p)
{
    const i64 row = blockIdx.x;
    const Shared s = shared_pieces();
    do_share(s, p, row, whole_row(p, row), kK);
    finish_row(p, row);
}
