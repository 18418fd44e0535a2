// SPDX-License-Identifier: Apache-2.0
// attention, plan "prefill": one CTA a tile of ROWS queries of one head, all keys that they see in turn, by mma.sync.
//
//   out = softmax(mask(cap(q · k · scale))) · v
//
// Tile, ring and warps: tile.cuh. ANALYSIS.md: work, bounds, measured figures.
#include "tile.cuh"

static_assert(SHARED_BYTES == kTileBytes, "the sizes of ops/attention_plan.c");

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ attention_params p)
{
    const Tile t = tile_of_block(p);
    if (t.rows <= 0) return;
    const Shared s = shared_pieces();
    State state;
    Ring ring;
    state_clear(state);
    ring_start(p, t, s, t.first_key, t.last_key, ring);
    attend(p, t, s, inner_of(p, t), ring.first, blocks_of(t.first_key, t.last_key), ring, state);
    ring_end();
    gather_sums(s, state);
    store_tile(p, t, state);
}
