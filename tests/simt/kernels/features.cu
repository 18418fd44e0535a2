// SPDX-License-Identifier: Apache-2.0
// One small kernel a feature of the model's engine, chosen by `which`; each writes what model_engine_test.c expects.
// Not for a GPU: features without a wrapper in common/ are called by the engine's own names.
#define QN_ENTRY   features
#define QM_AT_TEST (qm::Place{__FILE__, __LINE__, __func__})

struct Params {
    const unsigned *in; // 64 words: 1000 + i
    unsigned *out;      // [threads of the grid]
    unsigned *flags;    // [16], zero
    int which;
};

static inline void bar_sync(int id, int threads, QM_HERE)
{
    qm::barrier(id, threads, qm::BARRIER_SYNC, 0, QM_AT("bar.sync"));
}
static inline void bar_arrive(int id, int threads, QM_HERE)
{
    qm::barrier(id, threads, qm::BARRIER_ARRIVE, 0, QM_AT("bar.arrive"));
}

struct Copy {
    void *to;
    const void *from;
    unsigned bytes;
    static void land(Copy &c) { qm::raw_copy(c.to, c.from, c.bytes); }
};
// A copy that completes on an mbarrier, or, with bar null, joins the thread's group.
static inline void copy(void *to, const void *from, unsigned bytes, unsigned long long *bar, QM_HERE)
{
    qm::Async *op = qm::async_begin(QM_AT("copy"));
    qm::async_source(op, from, bytes, false);
    qm::async_target(op, to, bytes, false);
    if (bar)
        qm::async_signal_tx(op, bar, bytes);
    else
        qm::async_join(op, qm::GROUP_CP_ASYNC, qm::self->thread);
    qm::async_launch(op, Copy{to, from, bytes}, nullptr, Copy::land);
}

static unsigned shuffles(unsigned t)
{
    unsigned a = __shfl_sync(0xFFFFFFFFu, t, 3), b = __shfl_up_sync(0xFFFFFFFFu, t, 1u);
    unsigned c = __shfl_down_sync(0xFFFFFFFFu, t, 2u, 8), d = __shfl_xor_sync(0xFFFFFFFFu, t, 16);
    unsigned e = 0;
    if (t % 32 < 8) e = __shfl_sync(0xFFu, t, 9, 8); // lane 1 of the segment of 8
    unsigned long long wide = __shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)t << 40, 1);
    return a + 3 * b + 5 * c + 7 * d + 11 * e + 13 * (unsigned)(wide >> 40);
}

static unsigned votes(unsigned t)
{
    unsigned lane = t % 32, low = 0;
    int all = 0;
    if (lane < 16) low = __ballot_sync(0xFFFFu, lane & 1);
    unsigned same = __match_any_sync(0xFFFFFFFFu, lane / 4), equal = __match_all_sync(0xFFFFFFFFu, 5u, &all);
    unsigned sum = __reduce_add_sync(0xFFFFFFFFu, lane),
             least = (unsigned)__reduce_min_sync(0xFFFFFFFFu, (int)lane - 5);
    unsigned most = __reduce_max_sync(0xFFFFFFFFu, (unsigned)((int)lane - 5)),
             mixed = __reduce_xor_sync(0xFFFFFFFFu, lane);
    return low ^ same * 3 ^ equal * 5 ^ sum << 3 ^ least * 7 ^ most * 11 ^ mixed << 20 ^ (unsigned)all << 30 ^
           (unsigned)__any_sync(0xFFFFFFFFu, lane == 31) << 29 ^ (unsigned)__all_sync(0xFFFFFFFFu, lane < 31) << 28;
}

// Warp 0 fills the slot that warp 1 empties, three times: full is barrier 1, empty is barrier 2.
static unsigned named_barriers(unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned, slot, 32);
    unsigned sum = 0;
    for (unsigned i = 0; i < 3; i++) {
        if (t < 32) {
            if (i) bar_sync(2, 64);
            slot[t] = 100 * i + t;
            bar_arrive(1, 64);
        } else if (t < 64) {
            bar_sync(1, 64);
            sum += slot[(t + 1) % 32];
            if (i < 2) bar_arrive(2, 64);
        }
    }
    return sum;
}

static unsigned reductions(unsigned t)
{
    return (unsigned)block_any(t == 77) + 1000 * (unsigned)block_any(t == 1000);
}

static unsigned atomics(unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned, s, 8);
    if (t == 0) {
        for (int i = 0; i < 8; i++) s[i] = i == 2 ? 0xFFFFFFFFu : 0;
    }
    __syncthreads();
    atomicAdd(&s[0], t);
    atomicMax(&s[1], t);
    atomicMin(&s[2], t + 7);
    atomicOr(&s[3], 1u << t % 32);
    atomicXor(&s[4], t);
    atomic_increment_wrapped(&s[5], 9u);
    if (atomicCAS(&s[6], 0u, t + 1) == 0) atomicAdd(&s[7], 1u);
    __syncthreads();
    return s[0] + 3 * s[1] + 5 * s[2] + 7 * s[3] + 11 * s[4] + 13 * s[5] + 17 * s[7];
}

// The same place of a scope is the same piece; two pieces do not overlap.
static unsigned pieces(unsigned t)
{
    {
        QN_SHARED_FIRST;
        QN_SHARED_ARRAY(unsigned short, a, 129);
        QN_SHARED_ARRAY(unsigned long long, b, 128);
        a[t] = (unsigned short)t;
        b[t] = 1000 + t;
    }
    __syncthreads();
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned short, a, 129);
    QN_SHARED_ARRAY(unsigned long long, b, 128);
    return a[127 - t] + (unsigned)b[127 - t];
}

// Every CTA writes its word into its right neighbour's memory.
static unsigned clusters(unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned, s, 128);
    unsigned rank = cluster_rank(), count = qm::self->cdim.x;
    cluster_arrive_relaxed();
    cluster_wait();
    cluster_map(s, (rank + 1) % count)[t] = 1000 * rank + t;
    cluster_arrive();
    cluster_wait();
    return s[127 - t];
}

// A ring of two slots: thread 0 copies, the others add up.
static unsigned ring(const Params &p, unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned long long, full, 2);
    QN_SHARED_ARRAY(unsigned long long, empty, 2);
    QN_SHARED_ARRAY(unsigned, slot, 2 * 16);
    if (t == 0)
        for (int i = 0; i < 2; i++)
            qm::mbarrier_init(full + i, 1, QM_AT_TEST), qm::mbarrier_init(empty + i, 3, QM_AT_TEST);
    __syncthreads();
    unsigned sum = 0;
    for (unsigned n = 0; n < 4; n++) {
        unsigned i = n % 2, phase = n / 2 & 1;
        if (t < 32) {
            if (t) continue;
            while (!qm::mbarrier_test_parity(empty + i, phase ^ 1, true, QM_AT_TEST)) {
            }
            qm::mbarrier_arrive(full + i, 1, 64, false, QM_AT_TEST);
            copy(slot + 16 * i, p.in + 16 * n, 64, full + i);
        } else {
            while (!qm::mbarrier_test_parity(full + i, phase, true, QM_AT_TEST)) {
            }
            for (unsigned k = 0; k < 16; k++) sum += slot[16 * i + k];
            __syncwarp();
            if (t % 32 == 0) qm::mbarrier_arrive(empty + i, 1, 0, false, QM_AT_TEST);
        }
    }
    return sum;
}

// Two groups of copies by each thread; the first is waited for while the second is in flight.
static unsigned groups(const Params &p, unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(unsigned, a, 128);
    QN_SHARED_ARRAY(unsigned, b, 128);
    copy(a + t, p.in + t % 64, 4, nullptr);
    qm::group_commit(qm::GROUP_CP_ASYNC, QM_AT_TEST);
    copy(b + t, p.in + (t + 1) % 64, 4, nullptr);
    qm::group_commit(qm::GROUP_CP_ASYNC, QM_AT_TEST);
    qm::group_wait(qm::GROUP_CP_ASYNC, 1, false, QM_AT_TEST);
    unsigned own = a[t];
    qm::group_wait(qm::GROUP_CP_ASYNC, 0, false, QM_AT_TEST);
    __syncthreads();
    return own + b[127 - t];
}

// An operation on registers of a warpgroup: every lane's pair is exchanged with that of lane ^ 1, some time later.
struct Exchange {
    unsigned *of[128];
    static void land(Exchange &e)
    {
        for (int l = 0; l < 128; l += 2) {
            unsigned keep[2];
            qm::raw_copy(keep, e.of[l], 8), qm::raw_copy(e.of[l], e.of[l + 1], 8), qm::raw_copy(e.of[l + 1], keep, 8);
        }
    }
};
static unsigned registers(unsigned t)
{
    unsigned pair[2] = {t, 1000 + t};
    qm::warpgroup_op(
        pair,
        [](qm::Gather &g) {
            qm::Async *op = qm::async_begin(g.at);
            Exchange e;
            for (unsigned l = 0; l < 128; l++) {
                e.of[l] = &g.of<unsigned>(l);
                qm::async_registers(op, l, e.of[l], 8);
                qm::async_join(op, qm::GROUP_WGMMA, l);
            }
            qm::async_launch(op, e, nullptr, Exchange::land);
        },
        QM_AT_TEST);
    qm::group_commit(qm::GROUP_WGMMA, QM_AT_TEST);
    qm::group_wait(qm::GROUP_WGMMA, 0, false, QM_AT_TEST);
    return pair[0] + pair[1];
}

// CTA 0 waits for what the last CTA writes.
static unsigned across_the_grid(const Params &p)
{
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        p.flags[1] = 4711;
        fence_device();
        atomicExch(&p.flags[0], 1u);
    }
    if (blockIdx.x) return 0;
    while (!load_polled(&p.flags[0])) {
    }
    fence_device();
    return load_l2(&p.flags[1]);
}

// A flag in shared memory: release by warp 0, acquire by the others.
static unsigned flag(unsigned t)
{
    QN_SHARED_FIRST;
    QN_SHARED(unsigned, ready);
    QN_SHARED(unsigned, data);
    if (t == 0) ready = 0;
    __syncthreads();
    if (t == 0) {
        data = 17;
        qm::atomic(qm::ATOMIC_STORE, &ready, 1, 0, qm::RELEASE, QM_AT_TEST);
    }
    while (!qm::atomic(qm::ATOMIC_LOAD, &ready, 0, 0, qm::ACQUIRE, QM_AT_TEST)) {
    }
    return data;
}

static unsigned others(const Params &p, unsigned t)
{
    qm::set_max_registers(40, true, QM_AT_TEST);
    float x = 1.5f + (float)t / 8, y = ex2(x);
    bool close = fabsf(y - (float)exp2((double)x)) <= 4 * 0x1p-24f * y;
    return p.in[63] + (close ? 10000 : 0) + (ex2(0.f) == 1.f ? 20000 : 0) + u32_saturated(-3.f) +
           (u32_saturated(1e30f) == 0xFFFFFFFFu ? 40000 : 0);
}

extern "C" __global__ void __launch_bounds__(128) features(const Params p)
{
    const unsigned t = threadIdx.x;
    unsigned result = 0;
    switch (p.which) {
    case 0:
        result = shuffles(t);
        break;
    case 1:
        result = votes(t);
        break;
    case 2:
        result = named_barriers(t);
        break;
    case 3:
        result = reductions(t);
        break;
    case 4:
        result = atomics(t);
        break;
    case 5:
        result = pieces(t);
        break;
    case 6:
        result = clusters(t);
        break;
    case 7:
        result = ring(p, t);
        break;
    case 8:
        result = groups(p, t);
        break;
    case 9:
        result = registers(t);
        break;
    case 10:
        result = across_the_grid(p);
        break;
    case 11:
        result = flag(t);
        break;
    case 12:
        result = others(p, t);
        break;
    }
    p.out[blockIdx.x * blockDim.x + t] = result;
}
