// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/async_copy.cuh, common/bulk.cuh and common/send.cuh. The work is in copy.cpp.
#pragma once
#include "engine.h"

namespace qm {

// cp.async of one lane: `valid` of `bytes` bytes are read, the others become zero.
void cp_async(void *to, const void *from, u32 bytes, u32 valid, Place at);

// cp.async.bulk. ranks: the CTAs of the cluster that get the data, bit by bit; 0 means the own one.
void bulk_load(void *to, const void *from, u32 bytes, void *bar, u32 ranks, Place at);
void bulk_send(void *to, const void *from, u32 bytes, void *bar, u32 rank, Place at);

enum class Reduce : u8 { none, add_f32, add_u32 };
void bulk_store(void *to, const void *from, u32 bytes, Reduce reduce, Place at);
void bulk_prefetch(const void *from, u32 bytes, Place at);

// st.async: `bytes` bytes, 4, 8 or 16, to the same place of CTA `rank`.
void store_async(void *to, const void *value, u32 bytes, void *bar, u32 rank, Place at);

// Memory for data on its way from shared to global memory, between the two steps of a store. give_back: once used.
u8 *staging_take(size_t bytes);
void staging_give_back(u8 *bytes);

} // namespace qm

// ---- common/async_copy.cuh

template <int Bytes> static inline void cp_async_ca(void *to, const void *from, QM_HERE)
{
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async.ca copies 4, 8 or 16 bytes");
    qm::cp_async(to, from, Bytes, Bytes, QM_AT("cp.async.ca"));
}
template <int Bytes> static inline void cp_async_ca_zfill(void *to, const void *from, unsigned valid, QM_HERE)
{
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async.ca copies 4, 8 or 16 bytes");
    qm::cp_async(to, from, Bytes, valid, QM_AT("cp.async.ca"));
}
static inline void cp_async_cg(void *to, const void *from, QM_HERE)
{
    qm::cp_async(to, from, 16, 16, QM_AT("cp.async.cg"));
}
static inline void cp_async_cg_zfill(void *to, const void *from, unsigned valid, QM_HERE)
{
    qm::cp_async(to, from, 16, valid, QM_AT("cp.async.cg"));
}
static inline void cp_async_commit_group(QM_HERE)
{
    qm::group_commit(qm::GROUP_CP_ASYNC, QM_AT("cp.async.commit_group"));
}
template <int Pending> static inline void cp_async_wait_group(QM_HERE)
{
    qm::group_wait(qm::GROUP_CP_ASYNC, Pending, false, QM_AT("cp.async.wait_group"));
}
static inline void cp_async_wait_all(QM_HERE)
{
    qm::group_commit(qm::GROUP_CP_ASYNC, QM_AT("cp.async.wait_all"));
    qm::group_wait(qm::GROUP_CP_ASYNC, 0, false, QM_AT("cp.async.wait_all"));
}
static inline void cp_async_mbarrier_arrive_noinc(unsigned long long *bar, QM_HERE)
{
    qm::group_signal(qm::GROUP_CP_ASYNC, bar, true, QM_AT("cp.async.mbarrier.arrive.noinc"));
}

// ---- common/bulk.cuh

static inline void cp_async_bulk_load(void *to, const void *from, unsigned bytes, unsigned long long *bar, QM_HERE)
{
    qm::bulk_load(to, from, bytes, bar, 0, QM_AT("cp.async.bulk.shared::cluster.global"));
}
static inline void cp_async_bulk_load_multicast(void *to, const void *from, unsigned bytes, unsigned long long *bar,
                                                unsigned short ranks, QM_HERE)
{
    qm::Place at = QM_AT("cp.async.bulk.multicast::cluster");
    if (!ranks) qm::fail(at, "the mask of ranks is empty");
    qm::bulk_load(to, from, bytes, bar, ranks, at);
}
static inline void cp_async_bulk_send(void *to, const void *from, unsigned bytes, unsigned long long *bar,
                                      unsigned rank, QM_HERE)
{
    qm::bulk_send(to, from, bytes, bar, rank, QM_AT("cp.async.bulk.shared::cluster.shared::cta"));
}
static inline void cp_async_bulk_store(void *to, const void *from, unsigned bytes, QM_HERE)
{
    qm::bulk_store(to, from, bytes, qm::Reduce::none, QM_AT("cp.async.bulk.global.shared::cta"));
}
static inline void cp_reduce_async_bulk_add_f32(float *to, const float *from, unsigned bytes, QM_HERE)
{
    qm::bulk_store(to, from, bytes, qm::Reduce::add_f32, QM_AT("cp.reduce.async.bulk.add.f32"));
}
static inline void cp_reduce_async_bulk_add_u32(unsigned *to, const unsigned *from, unsigned bytes, QM_HERE)
{
    qm::bulk_store(to, from, bytes, qm::Reduce::add_u32, QM_AT("cp.reduce.async.bulk.add.u32"));
}
static inline void cp_async_bulk_commit_group(QM_HERE)
{
    qm::group_commit(qm::GROUP_BULK, QM_AT("cp.async.bulk.commit_group"));
}
template <int Pending> static inline void cp_async_bulk_wait_group(QM_HERE)
{
    qm::group_wait(qm::GROUP_BULK, Pending, false, QM_AT("cp.async.bulk.wait_group"));
}
template <int Pending> static inline void cp_async_bulk_wait_group_read(QM_HERE)
{
    qm::group_wait(qm::GROUP_BULK, Pending, true, QM_AT("cp.async.bulk.wait_group.read"));
}
static inline void cp_async_bulk_prefetch_l2(const void *from, unsigned bytes, QM_HERE)
{
    qm::bulk_prefetch(from, bytes, QM_AT("cp.async.bulk.prefetch.L2"));
}

// ---- common/send.cuh

template <class Vector> // uint4; the runner knows no vectors
static inline void st_async(Vector *to, const Vector &value, unsigned long long *bar, unsigned rank, QM_HERE)
{
    static_assert(sizeof value == 16, "st.async of four words");
    qm::need_arch(90, 0, false, QM_AT("st.async"));
    qm::store_async(to, &value, sizeof value, bar, rank, QM_AT("st.async"));
}
