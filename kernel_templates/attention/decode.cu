// SPDX-License-Identifier: Apache-2.0
// attention, plan "decode": few queries, many keys. A tile's rows are the queries of all heads that share a KV head, so
// that its keys are read once; the keys are cut into splits of a fixed size, a CTA some, and the CTA that ends last, or of
// few tiles merge.cu, merges them in order. A sequence of more than ATTENTION_SPLIT_QUERIES queries is not cut: then this
// is plan "prefill".
//
//   out = softmax(mask(cap(q · k · scale))) · v
//
// Which splits, workspace and merge: split.cuh. Tile, ring and warps: tile.cuh. ANALYSIS.md: work, bounds, figures.
#include "split.cuh"
#include "tile.cuh"

static_assert(SHARED_BYTES == kTileBytes + 16, "the sizes of ops/attention_plan.c");

// The state's sums are those of gather_sums.
QN_DEVICE void store_part(const attention_params &p, const Tile &t, i32 number, const State &state)
{
    float *part = part_of(p, t, number);
#pragma unroll
    for (i32 m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (i32 half = 0; half < 2; half++) {
            const i32 row = thread_row(m) + 8 * half;
            if (row >= t.rows) continue;
            if (warp_part() == 0 && lane_index() % 4 == 0)
                *reinterpret_cast<float4 *>(part + 4 * row) =
                    make_float4(state.base[m][half], state.total[m][2 * half], state.sum[m][half], 0.f);
            float *out = part + 4 * ROWS + row * DV;
#pragma unroll
            for (i32 j = 0; j < kOutTiles; j++)
#pragma unroll
                for (i32 side = 0; side < 2; side++) {
                    const i32 column = (warp_part() * kOutTiles + j) * 16 + 8 * side + 2 * (lane_index() % 4);
                    if ((kOutTiles * COLUMNS * 16 != DV) && column >= DV) continue;
                    const float *o = &state.out[m][j][side][2 * half];
                    *reinterpret_cast<float2 *>(out + column) = make_float2(o[0], o[1]);
                }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ attention_params p)
{
    const Tile t = tile_of_packed_block(p);
    launch_dependents(); // merge.cu waits for the end of this launch
    if (t.rows <= 0) return;
    const Splits splits = splits_of(p, t);
    if ((i32)blockIdx.y >= splits.ctas) return;
    const Shared s = shared_pieces();
    // This CTA's parts are neighbours: the ring runs on from one to the next.
    const i32 begin = first_part(p, splits, (i32)blockIdx.y), end = first_part(p, splits, (i32)blockIdx.y + 1);
    i32 first, last, unused;
    Ring ring;
    keys_of_part(p, t, splits, begin, &first, &unused);
    keys_of_part(p, t, splits, end - 1, &unused, &last);
    ring_start(p, t, s, first, last, ring);
#pragma unroll 1
    for (i32 i = begin; i < end; i++) {
        State state;
        const Inner inner = inner_of(p, t); // again for each: kept, it would take registers
        state_clear(state);
        keys_of_part(p, t, splits, i, &first, &last);
        attend(p, t, s, inner, first / KEYS * KEYS, blocks_of(first, last), ring, state);
        gather_sums(s, state);
        if (splits.parts == 1)
            store_tile(p, t, state);
        else
            store_part(p, t, i, state);
    }
    ring_end();
    if (splits.parts == 1 || !p.merges) return;
    if (is_last(p, t, splits, s.word)) merge_tile(p, t, splits);
}
