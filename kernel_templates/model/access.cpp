// SPDX-License-Identifier: Apache-2.0
// The access build's marks, one cell for every byte of shared memory, and what an access finds there. The other builds
// call these functions too, and they do nothing then (`checking` is false).
//   (1) A byte is in a piece or not; written or not; in flight, landed but not yet waited for, or an mbarrier's.
//   (2) Its last writer, its last two readers of different warps, and its last user from another CTA are known; an
//       access that is not ordered after those that conflict with it is a race.
//   (3) Bytes of a copy belong to whoever waited for it: on its mbarrier (by clock), or on its group (as if that lane
//       wrote them then).
// Known limit: two readers are kept, not all.
#include "machine.h"

#include <cstdio>

namespace qm {

enum : u8 { PIECE = 1, WRITTEN = 2, FLIGHT = 4, MBARRIER = 8, LANDED = 16, CLAIMABLE = 32 };

struct Cell {
    Event writer, reader, reader_before, remote; // writer of LANDED bytes: mbarrier's index << 32 | its phase
};
static Cell *cells;
static u8 *flags;
static u8 *sources; // how many operations in flight will still read the byte
struct Span {
    size_t begin, bytes;
};
static std::vector<Span> taken[MAX_SLOTS];

void access_begin(Cluster *cluster)
{
    if (!checking) return;
    if (!cells) {
        cells = static_cast<Cell *>(shared_marks(sizeof(Cell)));
        flags = static_cast<u8 *>(shared_marks(1)), sources = static_cast<u8 *>(shared_marks(1));
    }
    for (const Span &s : taken[cluster->slot]) {
        memset(static_cast<void *>(cells + s.begin), 0, s.bytes * sizeof(Cell));
        memset(flags + s.begin, 0, s.bytes);
        memset(sources + s.begin, 0, s.bytes);
    }
    taken[cluster->slot].clear();
}

void access_piece(const void *p, size_t bytes)
{
    if (!checking) return;
    size_t at = shared_offset(p);
    taken[at / ARENA_BYTES / MAX_CLUSTER].push_back({at, bytes});
    memset(flags + at, PIECE, bytes);
}

void access_mbarrier(const void *p, bool live)
{
    if (checking) memset(flags + shared_offset(p), live ? PIECE | WRITTEN | MBARRIER : PIECE, 8);
}

// ---- what is wrong with an access

[[noreturn]] static void wrong(Place at, void *pc, const char *what, const void *p, size_t bytes, Access access,
                               Event by)
{
    const char *kind = access == READ || access == ATOMIC_READ ? "load" : access == WRITE ? "store" : "atomic";
    char other[80] = "";
    if (by) snprintf(other, sizeof other, " (the other: thread %u of the cluster)", event_lane(by));
    const Piece *piece = shared_piece(p, 1);
    char where[96];
    if (piece)
        snprintf(where, sizeof where, "byte %zu of the %zu bytes of shared memory at offset %zu",
                 shared_offset(p) % ARENA_BYTES - piece->at, piece->bytes, piece->offset);
    else
        snprintf(where, sizeof where, "no piece of shared memory");
    const char *text = "%s: %s of %zu bytes, %s%s";
    if (pc) fail_pc(pc, kind, text, what, kind, bytes, where, other);
    fail(at, text, what, kind, bytes, where, other);
}

struct Attempt { // one access that is being checked
    const char *p;
    size_t bytes;
    Access access;
    Place at;
    void *pc;
    const Lane *lane;
    Event mine;
    bool reads, writes;
};

[[noreturn]] static void wrong(const Attempt &a, const char *what, Event by = 0)
{
    wrong(a.at, a.pc, what, a.p, a.bytes, a.access, by);
}

static void check_state(const Attempt &a, u8 f)
{
    if (!(f & PIECE)) wrong(a, "outside every piece of shared memory");
    if (f & FLIGHT) wrong(a, "bytes of a copy in flight");
    if (f & CLAIMABLE) wrong(a, "bytes of a copy whose group was not waited for");
    if (f & MBARRIER) wrong(a, "bytes of an mbarrier");
    if (a.reads && !(f & WRITTEN)) wrong(a, "bytes that nothing has written");
}

static bool landed_seen(const Attempt &a, Event writer)
{
    const Seen &seen = a.lane->warp->clock.here;
    u32 index = (u32)(writer >> 32);
    return index < seen.size() && seen[index] >= (u32)writer;
}

static void check_byte(const Attempt &a, size_t at)
{
    u8 &f = flags[at];
    Cell &c = cells[at];
    if (f == (PIECE | WRITTEN) && !sources[at] && c.writer == a.mine && (a.writes || c.reader == a.mine)) return;
    check_state(a, f);
    if (a.writes && sources[at]) wrong(a, "bytes that an operation in flight still reads");
    if (f & LANDED) {
        if (!landed_seen(a, c.writer)) wrong(a, "bytes of a copy without a wait on its mbarrier");
        if (a.writes) f &= (u8)~LANDED, c.writer = 0;
    } else if (!event_ordered(c.writer, a.mine, a.lane)) {
        wrong(a,
              a.writes ? "race: a store of another thread is not ordered before this store"
                       : "race: a store of another thread is not ordered before this load",
              c.writer);
    }
    if (at / ARENA_BYTES % MAX_CLUSTER != a.lane->me.rank) c.remote = a.mine;
    if (a.writes) {
        for (Event e : {c.reader, c.reader_before})
            if (!event_ordered(e, a.mine, a.lane))
                wrong(a, "race: a load of another thread is not ordered before this store", e);
        c.writer = a.mine, c.reader = c.reader_before = 0;
        f |= WRITTEN;
    } else if (c.reader != a.mine) {
        if (event_lane(c.reader) / 32 != event_lane(a.mine) / 32) c.reader_before = c.reader;
        c.reader = a.mine;
    }
}

void access_checked(const void *p, size_t bytes, Access access, Place at, void *pc)
{
    if (!checking) return;
    const Lane *lane = current();
    bool atomic = access != READ && access != WRITE,
         reads = access == READ || access == ATOMIC || access == ATOMIC_READ;
    bool writes = access != READ && access != ATOMIC_READ;
    Attempt a = {(const char *)p, bytes, access, at, pc, lane, event_now(lane, atomic), reads, writes};
    const Cta *owner = shared_cta(p);
    if (!owner || !owner->live) wrong(a, "shared memory of a CTA that has ended");
    if (owner->cluster != lane->cta->cluster) wrong(a, "shared memory of another cluster");
    size_t first = shared_offset(p);
    for (size_t i = 0; i < bytes; i++) check_byte(a, first + i);
}

// ---- a CTA's end

void access_end(Cta *cta, Place at)
{
    if (!checking || cta->cluster->ctas.size() == 1) return;
    const Lane *lane = current();
    Event mine = event_now(lane, false);
    size_t arena = shared_offset(cta->arena);
    for (const Span &s : taken[cta->cluster->slot]) {
        if (s.begin < arena || s.begin >= arena + ARENA_BYTES) continue;
        for (size_t i = s.begin; i < s.begin + s.bytes; i++) {
            Event e = cells[i].remote;
            if (e && !event_ordered(e, mine, lane))
                wrong(at, nullptr, "the CTA ends while another of its cluster still uses its shared memory",
                      cta->arena + (i - arena), 1, READ, e);
        }
    }
}

// ---- operations in flight

static void check_proxy(size_t at, Place place)
{
    Event writer = cells[at].writer;
    if ((flags[at] & (LANDED | MBARRIER)) || !writer) return;
    const Cluster &c = *current()->cta->cluster;
    u32 fence = c.lanes[event_lane(writer)].proxy_fence;
    u32 since = (event_synchronised(writer) - fence) & 0xFFFFF; // small: written after the fence
    if (!fence || since < 0x80000)
        fail(place,
             "reads through the asynchronous proxy what thread %u of the cluster stored without a "
             "fence.proxy.async since",
             event_lane(writer));
}

void access_source(const void *p, size_t bytes, bool begins, bool proxy, Place at)
{
    if (!checking || !bytes) return;
    size_t first = shared_offset(p);
    if (begins) {
        access_checked(p, bytes, READ, at, nullptr);
        for (size_t i = 0; proxy && i < bytes; i++) check_proxy(first + i, at);
    }
    for (size_t i = 0; i < bytes; i++) sources[first + i] = (u8)(sources[first + i] + (begins ? 1 : -1));
}

void access_target(const void *p, size_t bytes, bool proxy, Place at)
{
    if (!checking || !bytes) return;
    size_t first = shared_offset(p);
    for (size_t i = 0; proxy && i < bytes; i++)
        if (flags[first + i] & WRITTEN) check_proxy(first + i, at);
    access_checked(p, bytes, WRITE, at, nullptr);
    memset(flags + first, PIECE | FLIGHT, bytes);
}

void access_landed(const void *p, size_t bytes, const Mbarrier *by, u64 phase)
{
    if (!checking) return;
    size_t first = shared_offset(p);
    memset(flags + first, by ? PIECE | WRITTEN | LANDED : PIECE | WRITTEN | CLAIMABLE, bytes);
    Event writer = by ? (u64)by->index << 32 | (u32)(phase + 1) : 0;
    for (size_t i = 0; i < bytes; i++) cells[first + i] = {writer, 0, 0, 0};
}

void access_tracked(const void *p, size_t bytes, const Mbarrier *by)
{
    if (!checking || !by) return;
    size_t first = shared_offset(p);
    for (size_t i = 0; i < bytes; i++) {
        if (!(flags[first + i] & CLAIMABLE)) continue;
        flags[first + i] = PIECE | WRITTEN | LANDED;
        cells[first + i].writer = (u64)by->index << 32 | (u32)(by->phase + 1);
    }
}

void access_claimed(const void *p, size_t bytes)
{
    if (!checking) return;
    size_t first = shared_offset(p);
    Event mine = event_now(current(), false);
    for (size_t i = 0; i < bytes; i++) {
        if (!(flags[first + i] & CLAIMABLE)) continue;
        flags[first + i] &= (u8)~CLAIMABLE;
        cells[first + i].writer = mine;
    }
}

} // namespace qm
