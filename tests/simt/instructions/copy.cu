// SPDX-License-Identifier: Apache-2.0
// cp.async, mbarriers, cp.async.bulk: one warp a CTA. in: 512 words, the first 32 also a number a lane. out: what
// shared memory holds afterwards (128 words a CTA), or what the case says.
#include "case.cuh"

#include "../../../kernel_templates/common/async_copy.cuh"
#include "../../../kernel_templates/common/bulk.cuh"
#include "../../../kernel_templates/common/elect.cuh"
#include "../../../kernel_templates/common/fence.cuh"
#include "../../../kernel_templates/common/mbarrier.cuh"
#include "../../../kernel_templates/common/send.cuh"

// cp.async of every size: lane t copies its `Bytes` bytes; with zfill only the first in[t] of them.
template <int Bytes> QN_DEVICE void copy_lane(u32 *memory, const u32 *in, bool fill)
{
    const int t = threadIdx.x, words = Bytes / 4;
    if (fill)
        cp_async_ca_zfill<Bytes>(memory + t * words, in + t * words, in[t]);
    else
        cp_async_ca<Bytes>(memory + t * words, in + t * words);
    cp_async_wait_all();
}

QN_DEVICE void asynchronous(u32 which, u32 *memory, u64 *bar, const u32 *in)
{
    const int t = threadIdx.x;
    switch (which) {
    case 0:
        copy_lane<4>(memory, in, false);
        break;
    case 1:
        copy_lane<8>(memory, in, false);
        break;
    case 2:
        copy_lane<16>(memory, in, false);
        break;
    case 3:
        copy_lane<4>(memory, in, true);
        break;
    case 4:
        copy_lane<8>(memory, in, true);
        break;
    case 5:
        copy_lane<16>(memory, in, true);
        break;
    case 6:
        cp_async_cg(memory + 4 * t, in + 4 * t);
        cp_async_wait_all();
        break;
    case 7:
        cp_async_cg_zfill(memory + 4 * t, in + 4 * t, in[t]);
        cp_async_wait_all();
        break;
    case 8: // the first of two groups is waited for and used, then the second
        cp_async_ca<4>(memory + t, in + t);
        cp_async_commit_group();
        cp_async_ca<4>(memory + 32 + t, in + 64 + t);
        cp_async_commit_group();
        cp_async_wait_group<1>();
        memory[64 + t] = memory[t] + 1;
        cp_async_wait_group<0>();
        memory[96 + t] = memory[32 + t] + 1;
        break;
    case 9: // an arrival of each lane when its copy is there
        if (t == 0) mbarrier_init(bar, THREADS);
        __syncwarp();
        cp_async_ca<4>(memory + t, in + t);
        cp_async_mbarrier_arrive_noinc(bar);
        while (!mbarrier_test_wait_parity(bar, 0)) {
        }
        memory[32 + t] = memory[31 - t];
        break;
    }
}

// One thread asks a fresh mbarrier of two arrivals, after each step, whether the phases of both parities are over.
QN_DEVICE void phases(u64 *bar, u32 *out)
{
    mbarrier_init(bar, 2);
    out[0] = mbarrier_test_wait_parity(bar, 0);
    out[1] = mbarrier_test_wait_parity(bar, 1);
    mbarrier_arrive(bar);
    out[2] = mbarrier_test_wait_parity(bar, 0);
    mbarrier_arrive(bar);
    out[3] = mbarrier_test_wait_parity(bar, 0);
    out[4] = mbarrier_test_wait_parity(bar, 1);
    const u64 state = mbarrier_arrive(bar);
    out[5] = mbarrier_test_wait(bar, state);
    mbarrier_arrive(bar);
    out[6] = mbarrier_test_wait(bar, state);
    out[7] = mbarrier_test_wait_parity(bar, 1);
    mbarrier_inval(bar);
}

#if QN_ARCH >= 90
QN_DEVICE void await(u64 *bar, u32 parity)
{
    while (!mbarrier_try_wait_parity(bar, parity)) {
    }
}

// Bytes awaited before and after they come, with arrivals before and after the bytes.
QN_DEVICE void transactions(u32 *memory, u64 *bar, const u32 *in, u32 *out)
{
    mbarrier_init(bar, 2);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(bar, 64);
    out[0] = mbarrier_test_wait_parity(bar, 0);
    cp_async_bulk_load(memory, in, 32, bar);
    mbarrier_expect_tx(bar, 32);
    mbarrier_arrive(bar);
    out[1] = mbarrier_test_wait_parity(bar, 0); // 64 bytes are still to come, whatever has landed
    cp_async_bulk_load(memory + 8, in + 16, 64, bar);
    await(bar, 0);
    out[2] = memory[0];
    out[3] = memory[23];
    out[4] = mbarrier_test_wait_parity(bar, 1);
}

QN_DEVICE void bulk(u32 which, u32 *memory, u64 *bar, const u32 *in, u32 *out)
{
    const u32 t = threadIdx.x;
    if (which == 12) {
        if (t == 0) {
            mbarrier_init(bar, 1);
            fence_mbarrier_init();
            mbarrier_arrive_expect_tx(bar, 512);
            cp_async_bulk_load(memory, in, 512, bar);
        }
        __syncwarp();
        await(bar, 0);
        return;
    }
    for (int i = 0; i < 4; i++) {
        memory[32 * i + t] = in[256 + 32 * i + t];
        out[128 + 32 * i + t] = in[384 + 32 * i + t];
    }
    fence_proxy_async();
    __syncwarp();
    if (t == 0) {
        if (which == 13) cp_async_bulk_store(out + 128, memory, 512);
        if (which == 14)
            cp_reduce_async_bulk_add_f32(reinterpret_cast<float *>(out + 128), reinterpret_cast<float *>(memory), 512);
        if (which == 15) cp_reduce_async_bulk_add_u32(out + 128, memory, 512);
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();
        memory[0] = 7; // the source is read: it may change
        cp_async_bulk_wait_group<0>();
    }
    __syncwarp();
}

// What the threads store to global memory is read by a bulk copy.
QN_DEVICE void stored_then_copied(u32 *memory, u64 *bar, const u32 *in, u32 *out)
{
    const u32 t = threadIdx.x;
    for (int i = 0; i < 4; i++) out[32 * i + t] = in[256 + 32 * i + t];
    fence_proxy_async_global();
    __syncwarp();
    if (t == 0) {
        mbarrier_init(bar, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(bar, 512);
        cp_async_bulk_prefetch_l2(out, 512);
        cp_async_bulk_load(memory, out, 512, bar);
    }
    __syncwarp();
    await(bar, 0);
}

// st.async of 16 bytes a lane to the other CTA; in CTA 1 to itself as well.
QN_DEVICE void store_async(u32 *memory, u64 *bar, u32 rank)
{
    const u32 t = threadIdx.x;
    uint4 *vectors = reinterpret_cast<uint4 *>(memory);
    if (t < 8) st_async(vectors + 24 + t, vectors[t], bar, 1 - rank);
    if (rank == 1 && t >= 8 && t < 16) st_async(vectors + 8 + t, vectors[t], bar, 1);
    while (!mbarrier_try_wait_parity_cluster(bar, 0)) {
    }
}

// A cluster of two: CTA 0 sends, both wait.
QN_DEVICE void in_cluster(u32 which, u32 *memory, u64 *bar, const u32 *in)
{
    const u32 t = threadIdx.x, rank = cluster_rank();
    for (int i = 0; i < 4; i++) memory[32 * i + t] = in[256 + 128 * rank + 32 * i + t];
    fence_proxy_async_shared();
    if (t == 0) {
        mbarrier_init(bar, which == 18 || which == 22 ? 2 : 1);
        fence_mbarrier_init();
        if (which == 16) mbarrier_arrive_expect_tx(bar, 256);
        if (which == 20) mbarrier_arrive_expect_tx(bar, 128 + 128 * rank);
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    if (which == 16) { // one load for both
        if (rank == 0 && t == 0) cp_async_bulk_load_multicast(memory + 32, in, 256, bar, 3);
        await(bar, 0);
    }
    if (which == 17) { // from CTA 0 to CTA 1, which awaits the bytes by a remote expectation
        if (rank == 0 && t == 0) {
            mbarrier_arrive_expect_tx_in(bar, 128, 1);
            cp_async_bulk_send(memory + 64, memory + 32, 128, bar, 1);
        }
        if (rank == 1)
            while (!mbarrier_try_wait_parity_cluster(bar, 0)) {
            }
    }
    if (which == 18 || which == 22) { // an arrival of each CTA on both mbarriers, then each reads what the other wrote
        cluster_map(memory, 1 - rank)[t] = 1000 * rank + t;
        if (which == 22) fence_cluster();
        __syncwarp();
        if (t == 0) {
            mbarrier_arrive_in(bar, 0);
            mbarrier_arrive_in(bar, 1);
        }
        while (!mbarrier_try_wait_parity_cluster(bar, 0)) {
        }
    }
    if (which == 20) store_async(memory, bar, rank);
    cluster_arrive();
    cluster_wait();
}

// elect.sync: how many lanes of the mask it is true for, and whether again the same one.
QN_DEVICE u32 elect(u32 mask)
{
    u32 first = 0, second = 0;
    if (mask >> threadIdx.x & 1) {
        first = __ballot_sync(mask, elect_sync(mask));
        second = __ballot_sync(mask, elect_sync(mask));
    }
    __syncwarp();
    first = __reduce_max_sync(~0u, first);
    second = __reduce_max_sync(~0u, second);
    return (first & ~mask) || first != second ? 99 : (u32)__popc(first);
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) QN_ENTRY(const __grid_constant__ Case test)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, vectors, 32);
    QN_SHARED(u64, bar);
    u32 *memory = reinterpret_cast<u32 *>(vectors), *out = test.out;
    const u32 t = threadIdx.x, which = test.which;
    for (int i = 0; i < 4; i++) memory[32 * i + t] = 0xEEEEEEEEu;
    __syncwarp();
    if (which < 10) asynchronous(which, memory, &bar, test.in);
    if (which == 10 && t == 0) phases(&bar, out + 128);
#if QN_ARCH >= 90
    fence_proxy_async_shared();
    __syncwarp();
    if (which == 11 && t == 0) transactions(memory, &bar, test.in, out + 128);
    if (which > 11 && which < 16) bulk(which, memory, &bar, test.in, out);
    if (which == 21) stored_then_copied(memory, &bar, test.in, out + 128);
    if ((which > 15 && which < 19) || which == 20 || which == 22) {
        in_cluster(which, memory, &bar, test.in);
        out += 128 * cluster_rank();
    }
    if (which == 19)
        for (int i = 0; i < 4; i++) {
            const u32 lanes = elect(test.in[i]);
            if (t == 0) memory[i] = lanes;
        }
#endif
    __syncwarp();
    for (int i = 0; i < 4; i++) out[32 * i + t] = memory[32 * i + t];
}
