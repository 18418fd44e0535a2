// SPDX-License-Identifier: Apache-2.0
// Atomics, flags and fences. An operation is carried out at once, no lane comes in its middle; with `shuffle` others may
// run before it. Orders matter to the access build alone: a release leaves the warp's clock at the address, an acquire
// joins it; a relaxed operation does either together with a thread fence on its side. A fence's scope says for whom: the
// CTA, the cluster, or the device, whose other clusters see nothing else. A fence speaks for what its warp has seen before
// it: one before the barrier that gathers a CTA's stores does not publish them.
#include "machine.h"

#include <algorithm>

namespace qm {

static u32 result(AtomicOp op, u32 old, u32 value, u32 compare)
{
    switch (op) {
    case ATOMIC_ADD:
        return old + value;
    case ATOMIC_MIN:
        return std::min(old, value);
    case ATOMIC_MAX:
        return std::max(old, value);
    case ATOMIC_AND:
        return old & value;
    case ATOMIC_OR:
        return old | value;
    case ATOMIC_XOR:
        return old ^ value;
    case ATOMIC_INC:
        return old >= value ? 0 : old + 1;
    case ATOMIC_EXCH:
    case ATOMIC_STORE:
        return value;
    case ATOMIC_CAS:
        return old == compare ? value : old;
    default:
        return old;
    }
}

// ---- what stores leave at an address, by scope, for who reads it

static Released device_released; // to the device

void atomic_reset()
{
    device_released.clear();
}

static Released &released_to(Lane *a, int scope)
{
    return scope == SCOPE_CTA ? a->cta->released : scope == SCOPE_CLUSTER ? a->cta->cluster->released : device_released;
}

static Fences &fences_of(Lane *a)
{
    if (!a->fences) a->fences.reset(new Fences);
    return *a->fences;
}

// A warp's clock as a scope takes it.
static Clock for_scope(const Clock &clock, int scope, const Lane *a)
{
    return scope == SCOPE_DEVICE ? as_elsewhere(clock, a->cta->cluster->number) : clock;
}

static void take(Lane *a, const void *p, int scope, bool acquire)
{
    const Released &released = released_to(a, scope);
    if (released.empty()) return;
    auto left = released.find(p);
    if (left == released.end()) return;
    if (acquire)
        acquire_from(a->warp, left->second);
    else
        join(fences_of(a).found[scope], left->second);
}

// replaces: a store, which ends what those before it left; an atomic adds to it.
static void leave(Released &released, const void *p, bool replaces, const Clock &clock)
{
    if (replaces && !released.empty()) released.erase(p);
    if (!clock.empty()) join(released[p], clock);
}

static void order(Lane *a, const void *p, bool reads, bool writes, Order order)
{
    const int scopes = is_shared(p) ? SCOPE_DEVICE : SCOPES; // other clusters do not get there
    for (int s = 0; reads && s < scopes; s++) take(a, p, s, order & ACQUIRE);
    if (!writes) return;
    Clock now;
    if (order & RELEASE) release_into(a->warp, now);
    for (int s = 0; s < scopes; s++) {
        if (order & RELEASE)
            leave(released_to(a, s), p, !reads, for_scope(now, s, a));
        else
            leave(released_to(a, s), p, !reads, a->fences ? a->fences->fenced[s] : now);
    }
}

static void check_relaxed(const void *p, size_t bytes, Place at)
{
    if (!is_shared(p) && !is_device(p)) fail(at, "the address %p is neither in shared nor in device memory", p);
    if ((size_t)p % bytes) fail(at, "the address is not aligned to %zu bytes", bytes);
}

u32 atomic(AtomicOp op, u32 *p, u32 value, u32 compare, Order how, Place at)
{
    Lane *a = current();
    a->at = at;
    check_relaxed(p, sizeof *p, at);
    if (op == ATOMIC_LOAD)
        give_way();
    else if (shuffled_one_in(4))
        give_way();
    bool reads = op != ATOMIC_STORE, writes = op != ATOMIC_LOAD;
    u32 old = 0;
    touch(p, sizeof *p, op == ATOMIC_LOAD ? ATOMIC_READ : op == ATOMIC_STORE ? ATOMIC_WRITE : ATOMIC, at);
    raw_copy(&old, p, sizeof old);
    u32 now = result(op, old, value, compare);
    if (writes) raw_copy(p, &now, sizeof now);
    if (checking) order(a, p, reads, writes, how);
    return old;
}

void relaxed_load(void *to, const void *from, size_t bytes, Place at)
{
    spin(at);
    check_relaxed(from, bytes, at);
    touch(from, bytes, ATOMIC_READ, at);
    raw_copy(to, from, bytes);
    for (size_t i = 0; checking && i < bytes; i += 4)
        order(current(), static_cast<const char *>(from) + i, true, false, RELAXED);
}

void relaxed_store(void *to, const void *from, size_t bytes, Place at)
{
    current()->at = at;
    check_relaxed(to, bytes, at);
    touch(to, bytes, ATOMIC_WRITE, at);
    raw_copy(to, from, bytes);
    for (size_t i = 0; checking && i < bytes; i += 4)
        order(current(), static_cast<char *>(to) + i, false, true, RELAXED);
}

void thread_fence(Scope scope, Place at)
{
    Lane *a = current();
    a->at = at;
    if (!checking) return;
    Fences &f = fences_of(a);
    for (int s = 0; s <= scope; s++) {
        acquire_from(a->warp, f.found[s]);
        f.found[s].clear();
    }
    Clock now;
    release_into(a->warp, now);
    for (int s = 0; s <= scope; s++) join(f.fenced[s], for_scope(now, s, a));
}

void fence_proxy_async(Place at)
{
    need_arch(90, 0, false, at);
    Lane *a = current();
    a->at = at;
    a->proxy_fence = ++a->warp->synchronised;
}

void spin(Place at)
{
    current()->at = at;
    give_way();
}

} // namespace qm
