// SPDX-License-Identifier: Apache-2.0
// One CTA hands to another what it has stored in device memory, right (below 20) and with one mistake (20 and more), chosen
// by `which`. A CTA is two warps; out[0] is what the last one to read has found.
#define QN_ENTRY publish

typedef unsigned u32;

struct Params {
    u32 *data;  // [CTAs, 64]
    u32 *flags; // [16], zero
    u32 *out;   // [64]
    int which;
};

// A flag that is not yet to be seen is waited for.
static u32 poll(const u32 *flag, u32 until = 1)
{
    u32 value = load_polled(flag);
    while (value < until) value = load_polled(flag);
    return value;
}

// CTA 0 stores and sets the flag, CTA 1 waits for it and loads.
static void message(const Params &p, u32 t)
{
    if (t) return;
    if (blockIdx.x == 0) {
        p.data[0] = 11;
        if (p.which == 21)
            __threadfence_block();
        else if (p.which == 22)
            fence_cluster();
        else if (p.which != 20)
            fence_device();
        if (p.which == 29)
            p.flags[0] = 1;
        else
            atomicExch(&p.flags[0], 1u);
        if (p.which == 34) { // the word is stored anew, with nothing behind it
            p.data[1] = 12;
            store_polled(&p.flags[0], 2);
        }
    } else if (blockIdx.x == 1) {
        if (p.which == 30)
            while (!load_l2(&p.flags[0])) {
            }
        poll(&p.flags[0], p.which == 34 ? 2 : 1);
        if (p.which == 24)
            __threadfence_block();
        else if (p.which != 23)
            fence_device();
        p.out[0] = p.which == 32 ? __ldg(p.data) : p.which == 34 ? p.data[1] : p.data[0];
    }
}

// Every CTA stores a row; the last to take a ticket adds all rows up.
static void tickets(const Params &p, u32 t)
{
    QN_SHARED_FIRST;
    QN_SHARED(u32, ticket);
    QN_SHARED(u32, sum);
    p.data[64 * blockIdx.x + t] = 1 + t;
    if (p.which == 25 && t == 0) fence_device(); // before the other threads' stores are known
    if (p.which != 26) __syncthreads();
    if (t == 0) {
        if (p.which != 25) fence_device();
        ticket = atomic_increment_wrapped(&p.flags[0], gridDim.x - 1);
        fence_device();
        sum = 0;
    }
    __syncthreads();
    if (ticket != gridDim.x - 1) return;
    for (u32 i = 0; i < gridDim.x; i++) atomicAdd(&sum, load_l2(&p.data[64 * i + t]));
    __syncthreads();
    if (t == 0) p.out[0] = sum;
}

// Words that are message and flag in one, and are put back plainly by who has read them.
static void words(const Params &p, u32 t)
{
    if (blockIdx.x == 0) {
        store_polled(p.data + t, 5);
    } else if (blockIdx.x == 1) {
        u32 found = poll(p.data + t);
        if (p.which != 36) __syncthreads();
        p.data[t ^ 32] = 0; // the other warp's
        if (t == 0) p.out[0] = found;
    }
}

// CTA 0 tells CTA 1, which tells CTA 2, which reads what CTA 0 stored.
static void chain(const Params &p, u32 t)
{
    if (t) return;
    if (blockIdx.x == 0) {
        p.data[0] = 13;
        fence_device();
        store_polled(&p.flags[0], 1);
    } else if (blockIdx.x == 1) {
        poll(&p.flags[0]);
        fence_device();
        store_polled(&p.flags[1], 1);
    } else if (blockIdx.x == 2) {
        poll(&p.flags[1]);
        fence_device();
        p.out[0] = p.data[0];
    }
}

// Bytes of one word belong to different CTAs.
static void bytes(const Params &p, u32 t)
{
    unsigned char *byte = reinterpret_cast<unsigned char *>(p.data);
    if (t == 0 && blockIdx.x < 3) byte[blockIdx.x] = (unsigned char)(1 + blockIdx.x);
    if (p.which == 35 && t == 0 && blockIdx.x == 1) p.data[0] = 0;
    if (t == 0 && blockIdx.x == 2) p.out[0] = byte[2];
}

// A bulk store is waited for, then published.
static void bulk(const Params &p, u32 t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, row, 4);
    if (t) return;
    if (blockIdx.x == 0) {
        for (u32 i = 0; i < 4; i++) row[i] = make_uint4(17, 17, 17, 17);
        fence_proxy_async();
        cp_async_bulk_store(p.data, row, 64);
        cp_async_bulk_commit_group();
        if (p.which == 31)
            cp_async_bulk_wait_group_read<0>();
        else
            cp_async_bulk_wait_group<0>();
        fence_device();
        atomicExch(&p.flags[0], 1u);
        cp_async_bulk_wait_group<0>();
    } else if (blockIdx.x == 1) {
        poll(&p.flags[0]);
        fence_device();
        p.out[0] = p.data[3];
    }
}

// Between threads of a CTA: barriers, a warp's own operations, flags with a fence of the CTA.
static void inside(const Params &p, u32 t)
{
    if (blockIdx.x) return;
    p.data[t] = t;
    if (p.which != 33) __syncthreads();
    const u32 other = p.data[63 - t];
    if (t == 0) {
        p.data[64] = other;
        __threadfence_block();
        atomicExch(&p.flags[0], 1u);
    } else if (t == 32) {
        poll(&p.flags[0]);
        __threadfence_block();
        p.out[0] = p.data[64];
    }
}

// CTA 1 has read the word, CTA 0 stores to it again.
static void reuse(const Params &p, u32 t)
{
    if (t) return;
    if (blockIdx.x == 0) {
        poll(&p.flags[0]);
        fence_device();
        p.data[0] = 21;
    } else if (blockIdx.x == 1) {
        p.out[0] = p.data[0];
        if (p.which != 27) fence_device();
        store_polled(&p.flags[0], 1);
    }
}

// CTAs of one cluster: its barrier, and a fence for the cluster, order device memory too.
static void cluster(const Params &p, u32 t)
{
    if (t == 0 && cluster_rank() == 0 && blockIdx.x == 0) {
        p.data[0] = 23;
        fence_cluster();
        store_polled(&p.flags[0], 1);
        p.data[1] = 1;
    }
    u32 found = 0;
    if (t == 0 && blockIdx.x == 1) {
        poll(&p.flags[0]);
        fence_cluster();
        found = p.data[0];
    }
    cluster_arrive();
    cluster_wait();
    if (t == 0 && blockIdx.x == 1) p.out[0] = found + p.data[1];
}

static void same_word(const Params &p, u32 t)
{
    if (t == 0 && blockIdx.x < 2) p.out[0] = 25;
}

extern "C" __global__ void __launch_bounds__(64) publish(const Params p)
{
    const u32 t = threadIdx.x;
    switch (p.which) {
    case 1:
    case 25:
    case 26:
        tickets(p, t);
        break;
    case 2:
    case 36:
        words(p, t);
        break;
    case 3:
        chain(p, t);
        break;
    case 4:
    case 35:
        bytes(p, t);
        break;
    case 5:
    case 31:
        bulk(p, t);
        break;
    case 6:
    case 33:
        inside(p, t);
        break;
    case 7:
    case 27:
        reuse(p, t);
        break;
    case 8:
        cluster(p, t);
        break;
    case 28:
        same_word(p, t);
        break;
    default:
        message(p, t);
        break;
    }
}
