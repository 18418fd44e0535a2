// SPDX-License-Identifier: Apache-2.0
// attention, plan "stream": up to 16 rows (queries times the heads of a KV head), many keys: bound by how fast keys and
// values come. The keys are cut into splits of a fixed size, a CTA some of them; within a split each warp has blocks of its
// own. A tile's splits are merged in order, by the CTA that ends last or, of few tiles, by merge.cu.
//
//   out = softmax(mask(cap(q · k · scale))) · v
//
// A warp's work: stream.cuh, its loads: stream_load.cuh. Splits, workspace and merge: split.cuh. ANALYSIS.md: work,
// bounds, figures.
#include "split.cuh"
#include "stream.cuh"

static_assert(SHARED_BYTES == kStreamBytes, "the sizes of ops/attention_stream.c");

// The CTA's first tile; with several heads a CTA, grid.x counts groups of these.
QN_DEVICE Tile first_tile(const attention_params &p)
{
    const i32 groups = p.Hkv / p.cta_heads, block = (i32)blockIdx.x, other = block / p.tiles;
    return tile_at(p, (other / groups * p.Hkv + other % groups * p.cta_heads) * p.tiles + block % p.tiles);
}

// A round's columns of a split's sums: to the workspace, or, if it is the only split, divided to out and lse.
QN_DEVICE void end_round(const attention_params &p, const Tile &first, const Shared &s, const Splits &splits, i32 split,
                         i32 begin)
{
    const i32 pairs = min(kRoundColumns, DV - begin) / 2;
#pragma unroll 1
    for (i32 at = thread_index(); at < p.cta_heads * first.rows * pairs; at += THREADS) {
        const i32 row = at / pairs % first.rows, head = at / pairs / first.rows, column = begin + at % pairs * 2;
        const Tile t = tile_of_head(p, first, head);
        const Pair r = add_sums(p, s, head, row, column - begin);
        if (splits.count > 1) {
            float *part = part_of(p, t, split);
            if (column == 0) *reinterpret_cast<float4 *>(part + 4 * row) = make_float4(r.base, r.total, r.sum, 0.f);
            *reinterpret_cast<float2 *>(part + 4 * ROWS + row * DV + column) = make_float2(r.out[0], r.out[1]);
            continue;
        }
        i32 see, until;
        const i32 query = query_of_row(p, t, row);
        key_range(p, t.sequence, query, query, &see, &until);
        const bool seen = see < until;
        const float weight = whole_weight(p, seen, head_of_row(p, t, row), r.base, r.total);
        store_pair(out_row(p, t, row) + column, p.aligned & 8, seen ? r.out[0] * weight : 0.f,
                   seen ? r.out[1] * weight : 0.f);
        if (LSE && column == 0) *lse_of_row(p, t, row) = whole_lse(seen, r.base, r.sum);
    }
    __syncthreads(); // the slots are free again
}

// Sends for queries and first blocks; the queries are there when it returns.
QN_DEVICE void begin_splits(const attention_params &p, const Tile &t, const Shared &s, const Stream &stream, i32 first,
                            i32 last, Ring &ring, Queries &q)
{
    unsigned char *slots = s.ring + warp_index() * SLOTS * kPartBytes, *own = slots + (SLOTS - 1) * kPartBytes;
    if constexpr (kKeepsQueries)
        load_own_queries(p, t, own); // the slot that is filled last
    else
        load_queries(p, t, s.queries);
    cp_async_commit_group();
    ring_start(p, t, stream, first, last, slots, ring);
    cp_async_wait_group<SLOTS - 1>();
    if constexpr (kKeepsQueries) {
        __syncwarp();
        keep_queries(own, q);
        __syncwarp();
    } else {
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ attention_params p)
{
    const Tile tile = first_tile(p);
    if (tile.rows <= 0) return;
    const Splits splits = splits_of(p, tile);
    if ((i32)blockIdx.y >= splits.ctas) return;
    const Shared s = shared_pieces();
    const Stream stream = stream_of_warp(p);
    const Tile t = tile_of_head(p, tile, stream.head);
    // This CTA's splits are neighbours: the rings run on from one to the next.
    const i32 begin = first_split(splits, (i32)blockIdx.y), end = first_split(splits, (i32)blockIdx.y + 1);
    i32 first, last, unused;
    Ring ring;
    Queries q;
    keys_of_split(p, t, splits, begin, &first, &unused);
    keys_of_split(p, t, splits, end - 1, &unused, &last);
    begin_splits(p, t, s, stream, first, last, ring, q);
#pragma unroll 1
    for (i32 i = begin; i < end; i++) {
        State state;
        state_clear(state);
        keys_of_split(p, t, splits, i, &first, &last);
        attend(p, t, s, q, stream, first, last, ring, state);
        gather_sums(state);
        put_sums<0>(s, ring, state);
        end_round(p, tile, s, splits, i, 0);
        if constexpr (kRounds > 1) {
            put_sums<1>(s, ring, state);
            end_round(p, tile, s, splits, i, kRoundColumns);
        }
    }
    cp_async_wait_all();
    if (splits.count == 1 || !p.merges) return;
    if (is_last(p, tile, splits, s.word))
        for (i32 head = 0; head < p.cta_heads; head++)
            merge < kPairs<4 ? kPairs : 4>(p, tile_of_head(p, tile, head), splits, warp_index(), kWarps);
}
