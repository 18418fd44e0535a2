// SPDX-License-Identifier: Apache-2.0
// Barriers of a CTA (16, counted by whole warps) and of a cluster.
//   (1) A warp counts as 32 once all its lanes have come that have not ended; a lane comes once a phase.
//   (2) No thread of the CTA may have ended at a barrier that is for all of them.
//   (3) A cluster's barrier counts ended threads as arrived; each thread alternates arrive and wait.
#include "machine.h"

namespace qm {

static void check_barrier(const Barrier &b, int id, int want, BarrierKind kind, Place at)
{
    if (!b.come) return;
    if (b.want != want)
        fail(at, "barrier %d for %d threads, which %d have reached as one for %d at %s:%d", id, want, b.come, b.want,
             b.first.file, b.first.line);
    if ((b.kind == BARRIER_OR || kind == BARRIER_OR) && b.kind != kind)
        fail(at, "barrier %d: a reduction mixed with another kind of arrival at %s:%d", id, b.first.file, b.first.line);
}

static void complete(Barrier &b, int id, Lane *last, bool waits, Place at)
{
    const Warp *first = &last->cta->cluster->warps[last->cta->rank * b.arrived.size()];
    for (size_t w = 0; w < b.arrived.size(); w++)
        if (b.arrived[w] && (first[w].live & ~b.arrived[w])) fail(at, "barrier %d is full with parts of warps", id);
    Warp *joined = nullptr;
    for (Lane *l : b.waiting) {
        if (l->warp != joined) acquire_from(joined = l->warp, b.clock);
        l->result = b.value;
        wake(l);
    }
    if (waits) acquire_from(last->warp, b.clock);
    last->result = b.value;
    b.come = 0;
    b.waiting.clear();
    b.clock.clear();
    b.arrived.assign(b.arrived.size(), 0);
}

int barrier(int id, int threads, BarrierKind kind, int value, Place at)
{
    Lane *a = current();
    Cta *cta = a->cta;
    int warps = (int)(launch.threads + 31) / 32, want = threads ? threads : warps * 32;
    if (id < 0 || id > 15) fail(at, "barrier %d: 0 to 15", id);
    if (want % 32 || want < 32 || want > warps * 32)
        fail(at, "barrier %d for %d threads: a multiple of 32 up to the CTA's %d", id, threads, warps * 32);
    if (want == warps * 32 && cta->live != launch.threads)
        fail(at, "barrier %d for the whole CTA, %u of whose %u threads have ended", id, launch.threads - cta->live,
             launch.threads);
    Barrier &b = cta->barrier[id];
    check_barrier(b, id, want, kind, at);
    if (b.arrived.empty()) b.arrived.assign((size_t)warps, 0);
    bool first = true;
    for (u32 m : b.arrived) first = first && !m;
    if (first) {
        b.want = want, b.kind = kind, b.first = at;
    }
    u32 bit = 1u << a->me.lane, &mine = b.arrived[a->me.warp];
    if (mine & bit) fail(at, "the thread comes to barrier %d twice in one phase", id);
    mine |= bit;
    b.value = (!first && b.value) || value;
    a->at = at;
    counts.barriers++;
    if (!(a->warp->live & ~mine)) {
        release_into(a->warp, b.clock);
        b.come += 32;
    }
    bool waits = kind != BARRIER_ARRIVE;
    if (b.come == want) {
        complete(b, id, a, waits, at);
        if (waits && launch.shuffle) give_way(); // the last to come is not the first to go
    } else if (waits) {
        b.waiting.push_back(a);
        wait_at(at);
    }
    return a->result;
}

// ---- clusters

static void cluster_complete(Cluster *c)
{
    c->phase++;
    c->arrived = 0;
    c->done = c->gathering;
    for (Lane *l : c->waiting) wake(l);
    c->waiting.clear();
}

void cluster_thread_ended(Cluster *c)
{
    if (c->arrived && c->arrived == c->live) cluster_complete(c);
}

void cluster_arrive(Place at, bool release)
{
    need_arch(90, 0, false, at);
    Lane *a = current();
    Cluster *c = a->cta->cluster;
    if (a->cluster_arrived) fail(at, "arrives a second time without a wait");
    a->cluster_arrived = true;
    a->cluster_phase = c->phase;
    a->at = at;
    if (release) release_into(a->warp, c->gathering);
    if (++c->arrived == c->live) cluster_complete(c);
}

void cluster_wait(Place at)
{
    need_arch(90, 0, false, at);
    Lane *a = current();
    Cluster *c = a->cta->cluster;
    if (!a->cluster_arrived) fail(at, "waits without an arrive");
    if (c->phase == a->cluster_phase) {
        c->waiting.push_back(a);
        wait_at(at);
    }
    a->cluster_arrived = false;
    a->cluster_waited = a->cluster_phase + 1;
    acquire_from(a->warp, c->done);
    if (launch.shuffle) give_way();
}

} // namespace qm
