// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor: tiles of tensors of 1 … 5 dimensions, by way of a tensor map, issued by one thread. sm_90
//
// The map is a kernel parameter (const __grid_constant__ TensorMap, or inside such a structure) that the host made with
// cuTensorMapEncodeTiled. Coordinates are in elements, the innermost dimension first; loads may start outside the
// tensor (what is outside becomes the map's fill value) and always count the whole box on the mbarrier. Coordinate 0 times
// the element's size is a multiple of 16 bytes (an illegal instruction otherwise). The place in shared memory is aligned
// to 128 bytes, swizzled ones to the pattern (1024, 512, 256 bytes for 128, 64, 32 B); with a swizzle, rows of the box
// that are narrower than the pattern still take its width.
#pragma once

#include "address.cuh"

// A CUtensorMap: 128 bytes that only instructions read.
struct alignas(64) TensorMap {
    u64 words[16];
};

#ifndef QN_MODEL

// prefetch.tensormap: a hint. sm_90
QN_DEVICE void prefetch_tensormap(const TensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// cp.async.bulk.tensor.Nd.shared::cluster.global.tile.mbarrier::complete_tx::bytes: to and bar: this CTA's shared
// memory. sm_90
QN_DEVICE void cp_async_bulk_tensor_1d_load(void *to, const TensorMap *map, u64 *bar, i32 c0)
{
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(bar)), "r"(c0)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_2d_load(void *to, const TensorMap *map, u64 *bar, i32 c0, i32 c1)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(bar)), "r"(c0), "r"(c1)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_3d_load(void *to, const TensorMap *map, u64 *bar, i32 c0, i32 c1, i32 c2)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(bar)), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_4d_load(void *to, const TensorMap *map, u64 *bar, i32 c0, i32 c1, i32 c2, i32 c3)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_5d_load(void *to, const TensorMap *map, u64 *bar, i32 c0, i32 c1, i32 c2, i32 c3,
                                            i32 c4)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}

// The same with .multicast::cluster: to the same place of every CTA whose rank is in the mask, counted on its mbarrier.
// sm_90
QN_DEVICE void cp_async_bulk_tensor_2d_load_multicast(void *to, const TensorMap *map, u64 *bar, u16 ranks, i32 c0,
                                                      i32 c1)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(bar)), "h"(ranks), "r"(c0), "r"(c1)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_3d_load_multicast(void *to, const TensorMap *map, u64 *bar, u16 ranks, i32 c0,
                                                      i32 c1, i32 c2)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(bar)), "h"(ranks), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_4d_load_multicast(void *to, const TensorMap *map, u64 *bar, u16 ranks, i32 c0,
                                                      i32 c1, i32 c2, i32 c3)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(bar)), "h"(ranks), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}

// cp.async.bulk.tensor.Nd.global.shared::cta.tile.bulk_group: from: this CTA's shared memory; what lies outside the
// tensor is not written; coordinates are not negative. Groups: bulk.cuh. sm_90
QN_DEVICE void cp_async_bulk_tensor_1d_store(const TensorMap *map, const void *from, i32 c0)
{
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(c0)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_2d_store(const TensorMap *map, const void *from, i32 c0, i32 c1)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(c0), "r"(c1)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_3d_store(const TensorMap *map, const void *from, i32 c0, i32 c1, i32 c2)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_4d_store(const TensorMap *map, const void *from, i32 c0, i32 c1, i32 c2, i32 c3)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}
QN_DEVICE void cp_async_bulk_tensor_5d_store(const TensorMap *map, const void *from, i32 c0, i32 c1, i32 c2, i32 c3,
                                             i32 c4)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}

#endif
