// SPDX-License-Identifier: Apache-2.0
// attention, the second kernel of the plans "heads" and "stream": adds the splits of each tile in order (split.cuh), divides, writes out
// and lse. A warp some columns of a row; the CTAs of a tile are blockIdx.y.
#include "split.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ attention_params p)
{
    const Tile t = tile_of_block(p);
    if (t.rows <= 0) return;
    const Splits splits = splits_of(p, t);
    if (splits.count == 1) return;
    constexpr i32 kOwn = THREADS / kWarp;
    wait_for_previous_launch();
    merge<1>(p, t, splits, (i32)blockIdx.y * kOwn + warp_index(), (i32)gridDim.y * kOwn);
}
