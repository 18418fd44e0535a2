// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor. in: 5 coordinates, the words that the tile spans in shared memory, its bytes, 64 words in all;
// then the tensor (loads, where the map points) or the tile (stores; the map points to out). out: what the tile
// spans, in shared memory, or the tensor.
#include "case.cuh"

#include "../../../kernel_templates/common/bulk.cuh"
#include "../../../kernel_templates/common/fence.cuh"
#include "../../../kernel_templates/common/mbarrier.cuh"

constexpr int kTileWords = 4096;

QN_DEVICE void load(u32 which, u32 *tile, const TensorMap *map, u64 *bar, const i32 *c)
{
    if (which == 1) cp_async_bulk_tensor_1d_load(tile, map, bar, c[0]);
    if (which == 2) cp_async_bulk_tensor_2d_load(tile, map, bar, c[0], c[1]);
    if (which == 3) cp_async_bulk_tensor_3d_load(tile, map, bar, c[0], c[1], c[2]);
    if (which == 4) cp_async_bulk_tensor_4d_load(tile, map, bar, c[0], c[1], c[2], c[3]);
    if (which == 5) cp_async_bulk_tensor_5d_load(tile, map, bar, c[0], c[1], c[2], c[3], c[4]);
    if (which == 12) cp_async_bulk_tensor_2d_load_multicast(tile, map, bar, 3, c[0], c[1]);
    if (which == 13) cp_async_bulk_tensor_3d_load_multicast(tile, map, bar, 3, c[0], c[1], c[2]);
    if (which == 14) cp_async_bulk_tensor_4d_load_multicast(tile, map, bar, 3, c[0], c[1], c[2], c[3]);
}

QN_DEVICE void store(u32 which, const TensorMap *map, const u32 *tile, const i32 *c)
{
    if (which == 6) cp_async_bulk_tensor_1d_store(map, tile, c[0]);
    if (which == 7) cp_async_bulk_tensor_2d_store(map, tile, c[0], c[1]);
    if (which == 8) cp_async_bulk_tensor_3d_store(map, tile, c[0], c[1], c[2]);
    if (which == 9) cp_async_bulk_tensor_4d_store(map, tile, c[0], c[1], c[2], c[3]);
    if (which == 10) cp_async_bulk_tensor_5d_store(map, tile, c[0], c[1], c[2], c[3], c[4]);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group<0>();
}

extern "C" __global__ void __launch_bounds__(THREADS) QN_ENTRY(const __grid_constant__ Case test)
{
    QN_SHARED_FIRST;
    struct alignas(1024) Tile {
        u32 words[kTileWords];
    };
    QN_SHARED(Tile, tile);
    QN_SHARED(u64, bar);
    const u32 t = threadIdx.x, which = test.which, words = test.in[5];
    const i32 *c = reinterpret_cast<const i32 *>(test.in);
    u32 rank = 0;
    if (which >= 6 && which <= 10) {
        for (u32 i = t; i < words; i += THREADS) tile.words[i] = test.in[64 + i];
        fence_proxy_async_shared();
        __syncwarp();
        if (t == 0) store(which, &test.map, tile.words, c);
        return;
    }
    for (u32 i = t; i < words; i += THREADS) tile.words[i] = 0xEEEEEEEEu;
    fence_proxy_async_shared();
    if (t == 0) {
        prefetch_tensormap(&test.map);
        mbarrier_init(&bar, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(&bar, test.in[6]);
    }
    __syncwarp();
    if (which > 11) {
        rank = cluster_rank();
        cluster_arrive();
        cluster_wait();
    }
    if (t == 0 && rank == 0) load(which, tile.words, &test.map, &bar, c);
    while (!mbarrier_try_wait_parity(&bar, 0)) {
    }
    for (u32 i = t; i < words; i += THREADS) test.out[rank * words + i] = tile.words[i];
    if (which > 11) {
        cluster_arrive();
        cluster_wait();
    }
}
