// SPDX-License-Identifier: Apache-2.0
// attention, plan "stream": up to 16 rows (queries times the heads of a KV head), many keys: bound by how fast keys and
// values come. The keys are cut into splits of a fixed size, a CTA some of them, which are parts of their own or one; within
// a part each warp has blocks of its own. A tile's parts are merged in order, by the CTA that ends last or, of few tiles, by
// merge.cu.
//
//   out = softmax(mask(cap(q · k · scale))) · v
//
// A warp's work: stream.cuh, its loads: stream_load.cuh. Splits, workspace and merge: split.cuh. ANALYSIS.md: work,
// bounds, figures.
#include "split.cuh"
#include "stream.cuh"

static_assert(SHARED_BYTES == kStreamBytes, "the sizes of ops/attention_plan.c");

// The sums of a part: to the workspace, or, if it is the only one, divided to out and lse.
QN_DEVICE void end_part(const attention_params &p, const Tile &t, const Shared &s, const Splits &splits, i32 number)
{
#pragma unroll 1
    for (i32 at = thread_index(); at < t.rows * (DV / 2); at += THREADS) {
        const i32 row = at / (DV / 2), column = at % (DV / 2) * 2;
        const Pair r = add_sums(s, row, column);
        if (splits.parts > 1) {
            float *part = part_of(p, t, number);
            if (column == 0) *reinterpret_cast<float4 *>(part + 4 * row) = make_float4(r.base, r.total, r.sum, 0.f);
            *reinterpret_cast<float2 *>(part + 4 * ROWS + row * DV + column) = make_float2(r.out[0], r.out[1]);
            continue;
        }
        i32 first, last;
        const i32 query = query_of_row(p, t, row);
        key_range(p, t.sequence, query, query, &first, &last);
        const bool seen = first < last;
        const float weight = whole_weight(p, seen, head_of_row(p, t, row), r.base, r.total);
        store_pair(out_row(p, t, row) + column, p.aligned & 8, seen ? r.out[0] * weight : 0.f,
                   seen ? r.out[1] * weight : 0.f);
        if (LSE && column == 0) *lse_of_row(p, t, row) = whole_lse(seen, r.base, r.sum);
    }
    __syncthreads(); // the slots are free again
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ attention_params p)
{
    const Tile t = tile_of_packed_block(p);
    launch_dependents(); // merge.cu waits for the end of this launch
    if (t.rows <= 0) return;
    const Splits splits = splits_of(p, t);
    if ((i32)blockIdx.y >= splits.ctas) return;
    const Shared s = shared_pieces();
    // This CTA's parts are neighbours: the rings run on from one to the next.
    const i32 begin = first_part(p, splits, (i32)blockIdx.y), end = first_part(p, splits, (i32)blockIdx.y + 1);
    i32 first, last, unused;
    Ring ring;
    Queries q;
    keys_of_part(p, t, splits, begin, &first, &unused);
    keys_of_part(p, t, splits, end - 1, &unused, &last);
    load_queries(p, t, s.queries);
    cp_async_commit_group();
    ring_start(p, t, first, last, s.ring + warp_index() * SLOTS * kRingSlot, ring);
    cp_async_wait_group<SLOTS - 1>();
    __syncthreads();
    keep_queries(s, q);
#pragma unroll 1
    for (i32 i = begin; i < end; i++) {
        State state;
        state_clear(state);
        keys_of_part(p, t, splits, i, &first, &last);
        attend(p, t, s, q, first, last, ring, state);
        put_sums(s, ring, state);
        end_part(p, t, s, splits, i);
    }
    cp_async_wait_all();
    if (splits.parts == 1 || !p.merges) return;
    if (is_last(p, t, splits, s.word)) merge_tile(p, t, splits);
}
