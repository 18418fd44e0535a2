// SPDX-License-Identifier: Apache-2.0
// mbarriers: a table in each cluster; the object's 8 bytes hold a mark, so that overwriting it shows.
//   (1) A phase completes when no arrival is pending and the transaction count is 0; then the next one begins.
//   (2) A wait by parity is over when the phase of that parity has just completed.
//   (3) init, inval and waits are for the CTA's own mbarriers; arrivals may come from the whole cluster.
//   (4) An init is known to who is ordered after it, and, once fence.mbarrier_init has been passed, to who has waited for a
//       barrier of the cluster at which the initialising thread arrived afterwards, relaxed or not.
#include "machine.h"

namespace qm {

enum { MOST = (1 << 20) - 1 };

static u64 mark(const void *bar)
{
    return 0x6D62617272696572ull ^ (u64)(uintptr_t)bar;
}

Mbarrier *mbarrier_find(Cluster *cluster, void *bar)
{
    auto found = cluster->mbarriers.find(bar);
    return found == cluster->mbarriers.end() ? nullptr : &found->second;
}

// The mbarrier that an instruction names; own: it must be this CTA's.
static Mbarrier &named(void *bar, bool own, Place at)
{
    Lane *a = current();
    a->at = at;
    if (!is_shared(bar)) fail(at, "the mbarrier is not in shared memory");
    Cta *owner = shared_cta(bar);
    if (!owner || !owner->live) fail(at, "the mbarrier is in a CTA that has ended");
    if (owner->cluster != a->cta->cluster) fail(at, "the mbarrier is in another cluster");
    if (own && owner != a->cta)
        fail(at, "the mbarrier is in CTA %u of the cluster: only arrivals may be remote", owner->rank);
    Mbarrier *m = mbarrier_find(owner->cluster, bar);
    if (!m) fail(at, "no mbarrier was initialised at this address");
    u64 bytes;
    raw_copy(&bytes, bar, 8);
    if (bytes != mark(bar)) fail(at, "the mbarrier's bytes were overwritten");
    const bool known = m->known && a->cluster_waited >= m->known;
    if (checking && !known && !event_ordered(m->made, event_now(a, false), a))
        fail(at, "the mbarrier's init (thread %u of the cluster) is not ordered before this use", event_lane(m->made));
    return *m;
}

void mbarrier_init(void *bar, u32 count, Place at)
{
    Lane *a = current();
    Cluster *c = a->cta->cluster;
    a->at = at;
    if ((size_t)bar % 8) fail(at, "the mbarrier is not aligned to 8 bytes");
    if (!count || count > MOST) fail(at, "count %u: 1 to %d", count, MOST);
    if (!is_shared(bar) || shared_cta(bar) != a->cta || !shared_piece(bar, 8))
        fail(at, "the mbarrier is not in this CTA's shared memory");
    if (mbarrier_find(c, bar)) fail(at, "a live mbarrier is initialised again");
    access_checked(bar, 8, WRITE, at, nullptr);
    Mbarrier m;
    m.expected = m.pending = count;
    m.index = c->warp_count() + c->mbarriers_made++;
    m.made = event_now(a, false);
    c->mbarriers[bar] = m;
    u64 bytes = mark(bar);
    raw_copy(bar, &bytes, 8);
    access_mbarrier(bar, true);
}

void mbarrier_fence_init(Place at)
{
    Lane *a = current();
    Cluster *c = a->cta->cluster;
    a->at = at;
    const bool arrived =
        a->cluster_arrived && a->cluster_phase == c->phase; // then the next barrier is the first after it
    for (auto &entry : c->mbarriers)
        if (event_lane(entry.second.made) == a->index) entry.second.known = c->phase + 1 + (arrived ? 1 : 0);
}

void mbarrier_inval(void *bar, Place at)
{
    Mbarrier &m = named(bar, true, at);
    if (!m.waiting.empty()) fail(at, "%zu lanes wait on the mbarrier", m.waiting.size());
    current()->cta->cluster->mbarriers.erase(bar);
    access_mbarrier(bar, false);
}

// ---- phases

static void complete_if_due(Mbarrier &m)
{
    if (m.pending || m.tx) return;
    m.phase++;
    m.pending = m.expected;
    if (checking) {
        join(m.done, m.gathering);
        if (m.done.here.size() <= m.index) m.done.here.resize(m.index + 1);
        m.done.here[m.index] = (u32)m.phase;
    }
    for (Lane *l : m.waiting) wake(l);
    m.waiting.clear();
}

static void expect(Mbarrier &m, u32 bytes, Place at)
{
    if (bytes > MOST || m.tx + bytes > MOST) fail(at, "the transaction count would pass %d", MOST);
    m.tx += bytes;
}

static void arrive(Mbarrier &m, u32 count, bool drop, Place at)
{
    if (!count) fail(at, "an arrival of 0");
    if (count > m.pending)
        fail(at, "more arrivals than the mbarrier's count %u: %u are pending in phase %llu, %u arrive", m.expected,
             m.pending, (unsigned long long)m.phase, count);
    if (drop) {
        if (count >= m.expected) fail(at, "drops %u of %u expected arrivals", count, m.expected);
        m.expected -= count;
    }
    m.pending -= count;
    complete_if_due(m);
}

u64 mbarrier_arrive(void *bar, u32 count, u32 expect_tx, bool drop, Place at)
{
    Mbarrier &m = named(bar, false, at);
    u64 before = m.phase << 32 | m.pending;
    release_into(current()->warp, m.gathering);
    if (expect_tx) expect(m, expect_tx, at);
    arrive(m, count, drop, at);
    return before;
}

void mbarrier_expect_tx(void *bar, u32 bytes, Place at)
{
    expect(named(bar, false, at), bytes, at);
}

static void complete_tx(Mbarrier &m, u32 bytes, Place at)
{
    if (bytes > MOST || m.tx - (int64_t)bytes < -MOST) fail(at, "the transaction count would pass -%d", MOST);
    m.tx -= bytes;
    complete_if_due(m);
}

void mbarrier_signal(void *bar, u32 arrivals, u32 bytes, Place at)
{
    Cta *owner = shared_cta(bar);
    if (!owner || !owner->live) fail(at, "completes on an mbarrier of a CTA that has ended");
    Mbarrier *m = mbarrier_find(owner->cluster, bar);
    if (!m) fail(at, "completes on an mbarrier that was invalidated");
    if (bytes) complete_tx(*m, bytes, at);
    if (arrivals) arrive(*m, arrivals, false, at);
}

bool mbarrier_raise(void *bar, u32 count, Place at)
{
    Mbarrier &m = named(bar, true, at);
    if (m.pending + count > MOST) return false;
    m.pending += count;
    return true;
}

void mbarrier_check(void *bar, Place at)
{
    named(bar, false, at);
}

// ---- waiting

static bool test(void *bar, u64 phase, bool may_block, Place at)
{
    Lane *a = current();
    Mbarrier *m = &named(bar, true, at);
    if (m->phase == phase && may_block) {
        if (shuffled_one_in(8)) { // a try may fail for no reason
            give_way();
            return false;
        }
        m->waiting.push_back(a);
        wait_at(at);
        m = &named(bar, true, at);
    }
    if (m->phase == phase) {
        if (!may_block) give_way(); // a test is the body of a polling loop
        return false;
    }
    acquire_from(a->warp, m->done);
    return true;
}

bool mbarrier_test_parity(void *bar, u32 parity, bool may_block, Place at)
{
    if (parity > 1) fail(at, "parity %u: 0 or 1", parity);
    u64 now = named(bar, true, at).phase;
    return test(bar, (now & 1) == parity ? now : now - 1, may_block, at);
}

bool mbarrier_test_state(void *bar, u64 state, bool may_block, Place at)
{
    u64 now = named(bar, true, at).phase, phase = state >> 32;
    if (phase != now && phase + 1 != now)
        fail(at, "the state is of phase %llu, the mbarrier is in phase %llu", (unsigned long long)phase,
             (unsigned long long)now);
    return test(bar, phase, may_block, at);
}

} // namespace qm
