// SPDX-License-Identifier: Apache-2.0
// attention, plan "wgmma" (sm_90a), 64 rows for two computing warpgroups: all keys that
// the queries of a tile see in turn; TMA by a warpgroup of its own, products by wgmma.
//
//   out = softmax(mask(cap(q · k · scale))) · v
//
// wgmma_shared.cuh: who does what. wgmma_load.cuh: the loader. wgmma_columns.cuh: the schedule. A CTA takes every
// gridDim.x'th item of work. ANALYSIS.md: work, bounds, measured figures.
#include "wgmma_columns.cuh"
#include "wgmma_load.cuh"

static_assert(SHARED_BYTES == kWgmmaBytes, "the sizes of ops/attention_wgmma.c");

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
    QN_ENTRY(const __grid_constant__ attention_wgmma_params all)
{
    const Pieces s = shared_of_wgmma(0);
    const i32 group = __shfl_sync(kFullMask, warp_index() / 4, 0); // known to be the same for a warp: no other paths
    if (thread_index() == 0) start_barriers(s);
    __syncthreads();
    if (group == kGroups) {
        setmaxnreg_dec<kLoaderRegisters>();
        if (warp_index() % 4 == 0) load_tiles(all, s, 0);
    } else if (group == 0) {
        setmaxnreg_inc<kFirstRegisters>();
        compute_first(all, s);
    } else {
        setmaxnreg_inc<kSecondRegisters>();
        compute_second(all, s);
    }
}
