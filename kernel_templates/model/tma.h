// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/tma.cuh. The work is in tma.cpp; maps are made by tensor_map.h.
//
// TensorMap itself is declared by common/tma.cuh: the bodies are templates, so that they fit whichever comes first.
#pragma once
#include "engine.h"

namespace qm {

// ranks: the CTAs of the cluster that get the tile; 0 means the own one.
void tensor_load(void *to, const void *map, void *bar, u32 ranks, int dims, const int *coordinates, Place at);
void tensor_store(const void *map, const void *from, int dims, const int *coordinates, Place at);
void tensor_prefetch(const void *map, Place at);

} // namespace qm

#define QM_LOAD(n)  QM_AT("cp.async.bulk.tensor." #n "d.shared::cluster.global")
#define QM_STORE(n) QM_AT("cp.async.bulk.tensor." #n "d.global.shared::cta")

template <class Map> static inline void prefetch_tensormap(const Map *map, QM_HERE)
{
    qm::tensor_prefetch(map, QM_AT("prefetch.tensormap"));
}

template <class Map>
static inline void cp_async_bulk_tensor_1d_load(void *to, const Map *map, unsigned long long *bar, int c0, QM_HERE)
{
    const int c[] = {c0};
    qm::tensor_load(to, map, bar, 0, 1, c, QM_LOAD(1));
}
template <class Map>
static inline void cp_async_bulk_tensor_2d_load(void *to, const Map *map, unsigned long long *bar, int c0, int c1,
                                                QM_HERE)
{
    const int c[] = {c0, c1};
    qm::tensor_load(to, map, bar, 0, 2, c, QM_LOAD(2));
}
template <class Map>
static inline void cp_async_bulk_tensor_3d_load(void *to, const Map *map, unsigned long long *bar, int c0, int c1,
                                                int c2, QM_HERE)
{
    const int c[] = {c0, c1, c2};
    qm::tensor_load(to, map, bar, 0, 3, c, QM_LOAD(3));
}
template <class Map>
static inline void cp_async_bulk_tensor_4d_load(void *to, const Map *map, unsigned long long *bar, int c0, int c1,
                                                int c2, int c3, QM_HERE)
{
    const int c[] = {c0, c1, c2, c3};
    qm::tensor_load(to, map, bar, 0, 4, c, QM_LOAD(4));
}
template <class Map>
static inline void cp_async_bulk_tensor_5d_load(void *to, const Map *map, unsigned long long *bar, int c0, int c1,
                                                int c2, int c3, int c4, QM_HERE)
{
    const int c[] = {c0, c1, c2, c3, c4};
    qm::tensor_load(to, map, bar, 0, 5, c, QM_LOAD(5));
}

template <class Map>
static inline void cp_async_bulk_tensor_2d_load_multicast(void *to, const Map *map, unsigned long long *bar,
                                                          unsigned short ranks, int c0, int c1, QM_HERE)
{
    const int c[] = {c0, c1};
    if (!ranks) qm::fail(QM_LOAD(2), "the mask of ranks is empty");
    qm::tensor_load(to, map, bar, ranks, 2, c, QM_LOAD(2));
}
template <class Map>
static inline void cp_async_bulk_tensor_3d_load_multicast(void *to, const Map *map, unsigned long long *bar,
                                                          unsigned short ranks, int c0, int c1, int c2, QM_HERE)
{
    const int c[] = {c0, c1, c2};
    if (!ranks) qm::fail(QM_LOAD(3), "the mask of ranks is empty");
    qm::tensor_load(to, map, bar, ranks, 3, c, QM_LOAD(3));
}
template <class Map>
static inline void cp_async_bulk_tensor_4d_load_multicast(void *to, const Map *map, unsigned long long *bar,
                                                          unsigned short ranks, int c0, int c1, int c2, int c3, QM_HERE)
{
    const int c[] = {c0, c1, c2, c3};
    if (!ranks) qm::fail(QM_LOAD(4), "the mask of ranks is empty");
    qm::tensor_load(to, map, bar, ranks, 4, c, QM_LOAD(4));
}

template <class Map> static inline void cp_async_bulk_tensor_1d_store(const Map *map, const void *from, int c0, QM_HERE)
{
    const int c[] = {c0};
    qm::tensor_store(map, from, 1, c, QM_STORE(1));
}
template <class Map>
static inline void cp_async_bulk_tensor_2d_store(const Map *map, const void *from, int c0, int c1, QM_HERE)
{
    const int c[] = {c0, c1};
    qm::tensor_store(map, from, 2, c, QM_STORE(2));
}
template <class Map>
static inline void cp_async_bulk_tensor_3d_store(const Map *map, const void *from, int c0, int c1, int c2, QM_HERE)
{
    const int c[] = {c0, c1, c2};
    qm::tensor_store(map, from, 3, c, QM_STORE(3));
}
template <class Map>
static inline void cp_async_bulk_tensor_4d_store(const Map *map, const void *from, int c0, int c1, int c2, int c3,
                                                 QM_HERE)
{
    const int c[] = {c0, c1, c2, c3};
    qm::tensor_store(map, from, 4, c, QM_STORE(4));
}
template <class Map>
static inline void cp_async_bulk_tensor_5d_store(const Map *map, const void *from, int c0, int c1, int c2, int c3,
                                                 int c4, QM_HERE)
{
    const int c[] = {c0, c1, c2, c3, c4};
    qm::tensor_store(map, from, 5, c, QM_STORE(5));
}

#undef QM_LOAD
#undef QM_STORE
