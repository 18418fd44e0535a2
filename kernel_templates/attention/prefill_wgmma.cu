// SPDX-License-Identifier: Apache-2.0
// attention, plan "wgmma" (sm_90a), 64 rows a computing warpgroup: all keys that
// the queries of a tile see in turn; TMA by a warpgroup of its own, products by wgmma.
//
//   out = softmax(mask(cap(q · k · scale))) · v
//
// wgmma_shared.cuh: who does what. wgmma_load.cuh: the loader. wgmma_rows.cuh: the schedule. A CTA takes every
// gridDim.x'th item of work. ANALYSIS.md: work, bounds, measured figures.
#include "wgmma_load.cuh"
#include "wgmma_rows.cuh"

static_assert(SHARED_BYTES == kWgmmaBytes, "the sizes of ops/attention_wgmma.c");

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
    QN_ENTRY(const __grid_constant__ attention_wgmma_params all)
{
    const i32 group = warp_index() / 4, loader = warp_index() % 4;
    const Pieces s = shared_of_wgmma(kLines == 1 ? 0 : group < kGroups ? group : min(loader, kLines - 1));
    if (thread_index() < kLines) start_barriers(shared_of_wgmma(thread_index()));
    write_ones(s);
    __syncthreads();
    if (group == kGroups) {
        setmaxnreg_dec<kLoaderRegisters>();
        if (loader < kLines) load_tiles(all, s, loader);
    } else {
        setmaxnreg_inc<kComputerRegisters>();
        compute_rows(all, s, group);
    }
}
