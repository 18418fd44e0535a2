// SPDX-License-Identifier: Apache-2.0
// Atomics, flags and fences. An operation is carried out at once, no lane comes in its middle; with `shuffle` others may
// run before it. Orders matter to the access build alone: a release leaves the warp's clock at the address, an acquire
// joins it; a relaxed operation does either together with a thread fence on its side.
#include "machine.h"

#include <algorithm>

namespace qm {

static size_t bytes_of(AtomicType type)
{
    return type == TYPE_U16 ? 2 : type == TYPE_U64 || type == TYPE_S64 ? 8 : 4;
}

template <class T> static T apply(AtomicOp op, T old, T value, T compare)
{
    switch (op) {
    case ATOMIC_ADD:
        return (T)(old + value);
    case ATOMIC_MIN:
        return std::min(old, value);
    case ATOMIC_MAX:
        return std::max(old, value);
    case ATOMIC_INC:
        return old >= value ? (T)0 : (T)(old + 1);
    case ATOMIC_DEC:
        return old == (T)0 || old > value ? value : (T)(old - 1);
    case ATOMIC_EXCH:
    case ATOMIC_STORE:
        return value;
    case ATOMIC_CAS:
        return old == compare ? value : old;
    default:
        return old;
    }
}

static u64 apply_bits(AtomicOp op, u64 old, u64 value)
{
    return op == ATOMIC_AND ? old & value : op == ATOMIC_OR ? old | value : old ^ value;
}

static u64 result(AtomicOp op, AtomicType type, u64 old, u64 value, u64 compare)
{
    if (op == ATOMIC_AND || op == ATOMIC_OR || op == ATOMIC_XOR) return apply_bits(op, old, value);
    switch (type) {
    case TYPE_U16:
        return apply<u16>(op, (u16)old, (u16)value, (u16)compare);
    case TYPE_U32:
        return apply<u32>(op, (u32)old, (u32)value, (u32)compare);
    case TYPE_S32:
        if (op == ATOMIC_ADD) return (u32)old + (u32)value; // wraps
        return (u32)apply<int32_t>(op, (int32_t)old, (int32_t)value, (int32_t)compare);
    case TYPE_S64:
        if (op == ATOMIC_ADD) return old + value;
        return (u64)apply<int64_t>(op, (int64_t)old, (int64_t)value, (int64_t)compare);
    case TYPE_F32:
        if (op == ATOMIC_EXCH || op == ATOMIC_STORE || op == ATOMIC_CAS)
            return apply<u32>(op, (u32)old, (u32)value, (u32)compare);
        return bits(apply<float>(op, unbits<float>(old), unbits<float>(value), 0.f));
    default:
        return apply<u64>(op, old, value, compare);
    }
}

static void order(Lane *a, void *p, bool reads, bool writes, Order order)
{
    Cluster *c = a->cta->cluster;
    if (reads) {
        auto found = c->released.find(p);
        if (found != c->released.end()) {
            if (order & ACQUIRE)
                acquire_from(a->warp, found->second);
            else
                join(a->seen, found->second);
        }
    }
    if (!writes) return;
    Clock &left = c->released[p];
    if (order & RELEASE)
        release_into(a->warp, left);
    else
        join(left, a->fenced);
}

u64 atomic(AtomicOp op, AtomicType type, void *p, u64 value, u64 compare, Order how, Place at)
{
    Lane *a = current();
    size_t bytes = bytes_of(type);
    a->at = at;
    if (!is_shared(p) && !is_device(p)) fail(at, "the address %p is neither in shared nor in device memory", p);
    if ((size_t)p % bytes) fail(at, "the address is not aligned to %zu bytes", bytes);
    if (op == ATOMIC_LOAD)
        give_way();
    else if (shuffled_one_in(4))
        give_way();
    bool reads = op != ATOMIC_STORE, writes = op != ATOMIC_LOAD;
    u64 old = 0;
    touch(p, bytes, op == ATOMIC_LOAD ? ATOMIC_READ : op == ATOMIC_STORE ? ATOMIC_WRITE : ATOMIC, at);
    raw_copy(&old, p, bytes);
    u64 now = result(op, type, old, value, compare);
    if (writes) raw_copy(p, &now, bytes);
    if (checking) order(a, p, reads, writes, how);
    return old;
}

void thread_fence(Place at)
{
    Lane *a = current();
    a->at = at;
    if (!checking) return;
    acquire_from(a->warp, a->seen);
    a->seen.clear();
    release_into(a->warp, a->fenced);
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
