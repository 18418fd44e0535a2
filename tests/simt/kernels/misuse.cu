// SPDX-License-Identifier: Apache-2.0
// One misuse of the model's engine for each value of `which`, with the number that model_engine_test.c names it by.
#define QN_ENTRY misuse
#define HERE     (qm::Place{__FILE__, __LINE__, __func__})

struct Params {
    const unsigned *in; // 64 words
    unsigned *out;      // 128 words
    int which;
    int zero; // 0, which the compiler does not know
};

static inline void bar_sync(int id, int threads, QM_HERE)
{
    qm::barrier(id, threads, qm::BARRIER_SYNC, 0, QM_AT("bar.sync"));
}

struct Copy {
    void *to;
    const void *from;
    unsigned bytes;
    static void land(Copy &c) { qm::raw_copy(c.to, c.from, c.bytes); }
    static void read(Copy &) {}
};
static inline void copy(void *to, const void *from, unsigned bytes, unsigned long long *bar, bool proxy, QM_HERE)
{
    qm::Async *op = qm::async_begin(QM_AT("copy"));
    qm::async_source(op, from, bytes, proxy);
    qm::async_target(op, to, bytes, false);
    if (bar)
        qm::async_signal_tx(op, bar, bytes);
    else
        qm::async_join(op, qm::GROUP_CP_ASYNC, qm::self->thread);
    qm::async_launch(op, Copy{to, from, bytes}, Copy::read, Copy::land);
}

static void masks(const Params &p, unsigned t)
{
    const unsigned lane = t % 32;
    switch (p.which) {
    case 0:
        __shfl_sync(0xFFFFu, t, 0);
        break; // lanes 16…31 are not in it
    case 1:
        if (lane != 5) __syncwarp();
        break; // lane 5 ends instead
    case 2:
        if (lane)
            __ballot_sync(0xFFFFFFFFu, 1);
        else
            __syncthreads();
        break;
    case 3:
        if (lane < 16)
            __syncwarp(0xFFFFu);
        else
            __syncwarp(0xFFFFFF00u);
        break;
    case 4:
        if (lane < 16) __shfl_sync(0xFFFFu, t, 20);
        break; // a lane outside the mask
    case 5:
        if (lane < 16)
            __syncwarp();
        else
            __shfl_sync(0xFFFFFFFFu, t, 1);
        break;
    }
}

static void barriers(const Params &p, unsigned t)
{
    switch (p.which) {
    case 10:
        if (t >= 32) __syncthreads();
        break; // warp 0 ends
    case 11:
        if (t / 32 != 1)
            bar_sync(1, 128);
        else
            bar_sync(2, 128);
        break;
    case 12:
        bar_sync(1, t < 32 ? 64 : 128);
        break;
    case 13:
        bar_sync(1, 50);
        break;
    case 14:
        if (t < 64)
            __syncthreads();
        else
            block_any(true);
        break;
    case 15:
        bar_sync(16, 128);
        break;
    case 16:
        if (t < 32) qm::barrier(3, 64, qm::BARRIER_ARRIVE, 0, HERE);
        break;
    case 17:
        if (t) {
            cluster_arrive();
            cluster_wait();
        } else {
            cluster_arrive();
            cluster_arrive();
        }
        break;
    case 18:
        cluster_wait();
        break;
    case 19:
        qm::set_max_registers(t < 64 ? 40 : 48, true, HERE);
        break;
    }
}

static void shared_memory(const Params &p, unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned, a, 128);
    QN_SHARED_ARRAY(unsigned, b, 128);
    if (p.which != 22) a[t] = t;
    switch (p.which) {
    case 20: {
        QN_SHARED_ARRAY(unsigned, c, 4096);
        c[t] = 0;
        break;
    }
    case 21:
        if (t == 127) a[t + 1 + p.zero] = 1;
        break; // leaves the piece
    case 22:
        p.out[t] = b[t];
        break; // nothing wrote it
    case 23:
        p.out[t] = a[127 - t];
        break; // another warp's, without a barrier
    case 24:
        __syncthreads();
        b[t] = a[127 - t];
        a[t] = 0;
        break; // written while others read
    case 25:
        __syncthreads();
        a[0] = t;
        break; // all write one word
    case 26:
        b[t ^ 1] = 0;
        p.out[t] = b[t];
        break; // another lane's, without a warp operation
    }
}

static void device_memory(const Params &p, unsigned t)
{
    switch (p.which) {
    case 30:
        p.out[t] = p.in[64 + p.zero];
        break;
    case 31:
        p.out[-1 - p.zero] = 0;
        break;
    case 32:
        const_cast<unsigned *>(p.in)[t % 64] = 0;
        break;
    case 33:
        p.out[t] = *(volatile unsigned *)(size_t)(p.zero + 16);
        break;
    case 34:
        atomicAdd((unsigned *)((char *)p.out + 2 + p.zero), 1u);
        break;
    case 36:
        atomicAdd(p.out + 4096 + p.zero, 1u);
        break;
    }
}

static void mbarriers(const Params &p, unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned long long, bar, 4);
    if (t == 0) qm::mbarrier_init(bar, 2, HERE);
    if (p.which != 46) __syncthreads();
    switch (p.which) {
    case 40:
        if (t < 3) qm::mbarrier_arrive(bar, 1, 0, false, HERE);
        if (t < 3) qm::mbarrier_arrive(bar, 2, 0, false, HERE);
        break;
    case 41:
        if (t == 0) bar[0] = 5;
        __syncthreads();
        qm::mbarrier_test_parity(bar, 0, true, HERE);
        break;
    case 42:
        qm::mbarrier_arrive(bar + 1, 1, 0, false, HERE);
        break;
    case 43:
        if (t == 0) qm::mbarrier_init(bar, 2, HERE);
        break;
    case 44:
        if (t == 0) qm::mbarrier_arrive(bar, 1, 0, false, HERE);
        while (!qm::mbarrier_test_parity(bar, 0, true, HERE)) {
        }
        break;
    case 45:
        cluster_arrive();
        cluster_wait();
        qm::mbarrier_test_parity(cluster_map(bar, cluster_rank() ^ 1), 0, true, HERE);
        break;
    case 46:
        if (t == 32) qm::mbarrier_arrive(bar, 1, 0, false, HERE);
        break; // not ordered after init
    case 47:
        if (t == 0) qm::mbarrier_arrive(bar, 1, 1 << 21, false, HERE);
        break;
    case 48:
        qm::mbarrier_test_parity(bar, 2, true, HERE);
        break;
    }
}

static void in_flight(const Params &p, unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned long long, bar, 1);
    QN_SHARED_ARRAY(unsigned, a, 64);
    QN_SHARED_ARRAY(unsigned, b, 64);
    unsigned value = 0;
    if (t == 0) qm::mbarrier_init(bar, 1, HERE);
    if (t < 64) a[t] = t;
    if (p.which != 56) qm::fence_proxy_async(HERE);
    __syncthreads();
    if (t == 0) {
        qm::mbarrier_arrive(bar, 1, 256, false, HERE);
        copy(b, p.which == 53 || p.which == 56 ? (const void *)a : p.in, 256, bar, p.which == 56);
        if (p.which == 50) value = b[3];                     // at once
        if (p.which == 53) a[5] = 1;                         // the source
        if (p.which == 54) copy(b + 8, p.in, 4, bar, false); // the destination again
        if (p.which == 55) return;                           // and the others too: nobody waits
        while (p.which != 51 && !qm::mbarrier_test_parity(bar, 0, true, HERE)) {
        }
    }
    if (p.which == 55) return;
    if (p.which == 51)
        for (int i = 0; i < 200; i++) qm::spin(HERE); // long enough to land
    if (p.which == 51) value = b[3];
    if (p.which == 52) value = t == 64 ? b[3] : 0; // another warp, which did not wait
    if (t >= 64 && p.which != 51)
        while (!qm::mbarrier_test_parity(bar, 0, true, HERE)) {
        }
    __syncthreads();
    p.out[t] = value;
}

static void groups(const Params &p, unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned, a, 128);
    copy(a + t, p.in + t % 64, 4, nullptr, false);
    qm::group_commit(qm::GROUP_CP_ASYNC, HERE);
    if (p.which == 60) {
        qm::group_wait(qm::GROUP_CP_ASYNC, 1, false, HERE);
    }
    if (p.which == 61) {
        qm::group_wait(qm::GROUP_CP_ASYNC, 0, false, HERE);
        p.out[t] = a[127 - t];
        return;
    }
    for (int i = 0; i < 200; i++) qm::spin(HERE);
    p.out[t] = a[t];
}

static void registers(const Params &p, unsigned t)
{
    unsigned pair[2] = {t, t};
    qm::warpgroup_op(
        pair,
        [](qm::Gather &g) {
            qm::Async *op = qm::async_begin(g.at);
            for (unsigned l = 0; l < 128; l++) {
                qm::async_registers(op, l, &g.of<unsigned>(l), 8);
                qm::async_join(op, qm::GROUP_WGMMA, l);
            }
            qm::async_launch(op, 0, nullptr, [](int &) {});
        },
        HERE);
    qm::group_commit(qm::GROUP_WGMMA, HERE);
    p.out[t] = pair[p.zero]; // before the wait
    qm::group_wait(qm::GROUP_WGMMA, 0, false, HERE);
}

static void clusters(const Params &p, unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned, s, 128);
    unsigned rank = cluster_rank();
    s[t] = 0;
    cluster_arrive();
    cluster_wait();
    switch (p.which) {
    case 80:
        if (rank == 1) cluster_map(s, 0u)[t] = 1;
        break; // CTA 0 may have ended
    case 81:
        cluster_map(s, 2u)[t] = 1;
        break;
    case 82:
        cluster_map(s, 0u)[t] = rank;
        cluster_arrive();
        cluster_wait();
        break;
    case 83:
        if (rank == 0) return;
        for (int i = 0; i < 2000; i++) qm::spin(HERE);
        cluster_map(s, 0u)[t] = 1;
        break;
    }
}

static __attribute__((noinline)) unsigned deep(unsigned n, volatile unsigned *keep)
{
    volatile unsigned room[64];
    room[n % 64] = n;
    return n ? deep(n - 1, room) + room[n % 64] : keep[0];
}

static void programs(const Params &p, unsigned t)
{
    volatile unsigned stop = 0;
    switch (p.which) {
    case 90: {
        volatile unsigned k = 1;
        p.out[t] = deep(1000000, &k);
        break;
    }
    case 91:
        if (t == 0)
            while (!stop) {
            }
        break;
    case 92:
        p.out[t] = 1u << (32 + p.zero);
        break;
    case 93:
        p.out[t] = (unsigned)(-1.f - (float)p.zero);
        break;
    case 94:
        assert(t < 100);
        break;
    case 95: {
        int local[4] = {1, 2, 3, 4};
        p.out[t] = (unsigned)local[t % 5];
        break;
    }
    case 96:
        p.out[t] = 7u / (unsigned)p.zero;
        break;
    case 97: {
        unsigned never[2];
        never[p.zero] = 1;
        if (never[1 - p.zero] > 5) p.out[t] = 1;
        break;
    } // a register nobody set
    }
}

extern "C" __global__ void __launch_bounds__(128) misuse(const Params p)
{
    const unsigned t = threadIdx.x;
    switch (p.which / 10) {
    case 0:
        masks(p, t);
        break;
    case 1:
        barriers(p, t);
        break;
    case 2:
        shared_memory(p, t);
        break;
    case 3:
        device_memory(p, t);
        break;
    case 4:
        mbarriers(p, t);
        break;
    case 5:
        in_flight(p, t);
        break;
    case 6:
        groups(p, t);
        break;
    case 7:
        registers(p, t);
        break;
    case 8:
        clusters(p, t);
        break;
    case 9:
        programs(p, t);
        break;
    default:
        p.out[t] = 1;
        break; // no fault
    }
}
