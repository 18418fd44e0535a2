// SPDX-License-Identifier: Apache-2.0
// attention, the second kernel of the plans "heads", "stream" and "decode": adds the parts of each tile in order
// (split.cuh), divides, writes out and lse. A warp some columns of a row; the CTAs of a tile are blockIdx.y.
#include "split.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ attention_params p)
{
    const Tile t = tile_of_packed_block(p);
    const Splits splits = t.rows > 0 ? splits_of(p, t) : uncut();
    wait_for_previous_launch(); // also where nothing is to be done: what follows waits for the end of this grid alone
    if (splits.parts == 1) return;
    constexpr i32 kOwn = THREADS / kWarp;
    const i32 warp = (i32)blockIdx.y * kOwn + warp_index(), warps = (i32)gridDim.y * kOwn;
    // Of 64 rows few registers: so CTAs find room beside those of the first kernel, before that ends.
    constexpr bool kMany = ROWS > 16;
    if (splits.parts <= 16)
        merge<1, 8>(p, t, splits, warp, warps);
    else
        merge<1, kMany ? 16 : 32, kMany ? 1 : 2>(p, t, splits, warp, warps);
}
