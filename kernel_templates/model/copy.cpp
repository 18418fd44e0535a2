// SPDX-License-Identifier: Apache-2.0
// cp.async and cp.async.bulk: operands are checked and handed to the engine, which lets them land late.
#include "copy.h"

#include "tensor_core.h"

#include <memory>
#include <vector>

namespace qm {
namespace {

struct Copy {
    const void *from;
    u8 *staged; // stores: the data after the first step
    u32 bytes, valid;
    Reduce reduce;
    int targets;
    void *to[16];
};

void land_copy(Copy &copy)
{
    for (int i = 0; i < copy.targets; i++) {
        raw_copy(copy.to[i], copy.from, copy.valid);
        if (copy.valid < copy.bytes) raw_fill(static_cast<char *>(copy.to[i]) + copy.valid, 0, copy.bytes - copy.valid);
    }
}

// Subnormals are kept, as the H200 does it; the manual says that they become zero.
void add_to(void *to, const u8 *from, u32 bytes, Reduce reduce)
{
    for (u32 i = 0; i < bytes; i += 4) {
        u32 old, value;
        raw_copy(&old, static_cast<char *>(to) + i, 4);
        raw_copy(&value, from + i, 4);
        u32 sum = old + value;
        if (reduce == Reduce::add_f32) sum = add_rn_f32(old, value);
        raw_copy(static_cast<char *>(to) + i, &sum, 4);
    }
}

void read_store(Copy &copy)
{
    copy.staged = staging_take(copy.bytes);
    raw_copy(copy.staged, copy.from, copy.bytes);
}

void land_store(Copy &copy)
{
    if (copy.reduce == Reduce::none)
        raw_copy(copy.to[0], copy.staged, copy.bytes);
    else
        add_to(copy.to[0], copy.staged, copy.bytes, copy.reduce);
    staging_give_back(copy.staged);
}

void (*const no_read)(Copy &) = nullptr;

void check_bulk(const void *to, const void *from, u32 bytes, Place at)
{
    need_arch(90, 0, false, at);
    if (bytes % 16) fail(at, "%u bytes: the size must be a multiple of 16", bytes);
    if (reinterpret_cast<uintptr_t>(to) % 16) fail(at, "the destination %p is not aligned to 16 bytes", to);
    if (reinterpret_cast<uintptr_t>(from) % 16) fail(at, "the source %p is not aligned to 16 bytes", from);
}

void need_shared(const void *p, const char *which, Place at)
{
    if (!is_shared(p)) fail(at, "the %s %p is not in shared memory", which, p);
}
void need_global(const void *p, const char *which, Place at)
{
    if (is_shared(p)) fail(at, "the %s is in shared memory; this form takes global memory", which);
}

std::vector<std::unique_ptr<u8[]>> staging; // owns what is on its way, also after a case that failed

} // namespace

u8 *staging_take(size_t bytes)
{
    staging.emplace_back(new u8[bytes ? bytes : 1]);
    return staging.back().get();
}

void staging_give_back(u8 *bytes)
{
    for (size_t i = 0; i < staging.size(); i++)
        if (staging[i].get() == bytes) {
            staging[i].swap(staging.back());
            staging.pop_back();
            return;
        }
}

void cp_async(void *to, const void *from, u32 bytes, u32 valid, Place at)
{
    need_arch(80, 0, false, at);
    if (valid > bytes) fail(at, "%u valid bytes of a copy of %u", valid, bytes);
    if (reinterpret_cast<uintptr_t>(to) % bytes || reinterpret_cast<uintptr_t>(from) % bytes)
        fail(at, "an address is not aligned to the copy's %u bytes", bytes);
    need_shared(to, "destination", at);
    need_global(from, "source", at);
    Async *op = async_begin(at);
    if (valid) async_source(op, from, valid, false);
    async_target(op, to, bytes, false);
    async_join(op, GROUP_CP_ASYNC, self->thread);
    async_launch(op, Copy{from, nullptr, bytes, valid, Reduce::none, 1, {to}}, no_read, land_copy);
}

void bulk_load(void *to, const void *from, u32 bytes, void *bar, u32 ranks, Place at)
{
    check_bulk(to, from, bytes, at);
    need_shared(to, "destination", at);
    need_global(from, "source", at);
    Async *op = async_begin(at);
    Copy copy{from, nullptr, bytes, bytes, Reduce::none, 0, {}};
    async_source(op, from, bytes, true);
    for (u32 r = 0; r < 16; r++) {
        if (ranks ? !(ranks >> r & 1) : r != self->rank) continue;
        void *target = ranks ? map_shared(to, r, at) : to;
        async_target(op, target, bytes, true);
        async_signal_tx(op, ranks ? map_shared(bar, r, at) : bar, bytes);
        copy.to[copy.targets++] = target;
    }
    async_launch(op, copy, no_read, land_copy);
}

void bulk_send(void *to, const void *from, u32 bytes, void *bar, u32 rank, Place at)
{
    check_bulk(to, from, bytes, at);
    need_shared(to, "destination", at);
    need_shared(from, "source", at);
    if (rank == self->rank)
        fail(at, "the destination is the own CTA %u; this form goes to another of the cluster", rank);
    void *target = map_shared(to, rank, at);
    Async *op = async_begin(at);
    async_source(op, from, bytes, true);
    async_target(op, target, bytes, true);
    async_signal_tx(op, map_shared(bar, rank, at), bytes);
    async_launch(op, Copy{from, nullptr, bytes, bytes, Reduce::none, 1, {target}}, no_read, land_copy);
}

void bulk_store(void *to, const void *from, u32 bytes, Reduce reduce, Place at)
{
    check_bulk(to, from, bytes, at);
    need_global(to, "destination", at);
    need_shared(from, "source", at);
    Async *op = async_begin(at);
    async_source(op, from, bytes, true);
    if (reduce == Reduce::none)
        async_target(op, to, bytes, true);
    else
        check_global(to, bytes, ATOMIC, at); // adding leaves the bytes readable: nothing is hidden
    async_join(op, GROUP_BULK, self->thread);
    async_launch(op, Copy{from, nullptr, bytes, bytes, reduce, 1, {to}}, read_store, land_store);
}

struct Stored {
    u8 value[16];
    u32 bytes;
    void *to;
};

static void land_stored(Stored &stored)
{
    raw_copy(stored.to, stored.value, stored.bytes);
}

void store_async(void *to, const void *value, u32 bytes, void *bar, u32 rank, Place at)
{
    if (reinterpret_cast<uintptr_t>(to) % bytes) fail(at, "the destination is not aligned to %u bytes", bytes);
    need_shared(to, "destination", at);
    Stored stored = {{}, bytes, map_shared(to, rank, at)};
    raw_copy(stored.value, value, bytes);
    Async *op = async_begin(at);
    async_target(op, stored.to, bytes, false);
    async_signal_tx(op, map_shared(bar, rank, at), bytes);
    async_launch(op, stored, nullptr, land_stored);
}

void bulk_prefetch(const void *from, u32 bytes, Place at)
{
    check_bulk(from, from, bytes, at);
    need_global(from, "source", at);
    check_global(from, bytes, READ, at);
}

} // namespace qm
