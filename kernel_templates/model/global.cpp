// SPDX-License-Identifier: Apache-2.0
// The access build's marks of device memory: of each buffer that is no input, a cell for every word, and one for every
// byte of the words that some access did not take whole.
//   (1) What the launch finds there is for everybody. After that, an access must be ordered after the store that it
//       meets, and a store after the loads before it: within a cluster by barriers, mbarriers and warp operations, across
//       clusters by a fence of the device and a store or atomic on one side, a load or atomic and a fence on the other.
//   (2) Atomics and relaxed accesses of a word do not race. Who reads such a store (a witness), and what is ordered after
//       that, may use this word plainly; nothing else is ordered by it.
//   (3) Bytes of a bulk store are nobody's until the thread that issued it has waited for its group.
// Known limits: two readers and one witness are kept, not all.
#include "machine.h"

#include <algorithm>
#include <cstdio>
#include <sys/mman.h>

namespace qm {

enum : u32 { SPLIT = 1, UNWAITED = 2 }; // of a word: its bytes have cells; of a cell's writer: a bulk store

struct Mark {
    Event event;
    u32 cluster, state;
};
struct Cell {
    Mark writer, witness, reader, reader_before;
};
struct Marks {
    uintptr_t begin; // a multiple of 4
    size_t words;
    Cell *word, *byte;
};

static Cell *map_cells(size_t count)
{
    void *p =
        mmap(nullptr, count * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail({"", 0, "launch"}, "the model has no memory for its marks of device memory");
    return static_cast<Cell *>(p);
}

Marks *marks_make(const char *begin, const char *end)
{
    if (begin == end) return nullptr;
    Marks *m = new Marks;
    m->begin = reinterpret_cast<uintptr_t>(begin) & ~uintptr_t(3);
    m->words = (reinterpret_cast<uintptr_t>(end) - m->begin + 3) / 4;
    m->word = map_cells(m->words);
    m->byte = map_cells(4 * m->words);
    return m;
}

void marks_forget(Marks *m)
{
    if (!m) return;
    munmap(static_cast<void *>(m->word), m->words * sizeof(Cell));
    munmap(static_cast<void *>(m->byte), 4 * m->words * sizeof(Cell));
    delete m;
}

// ---- what is wrong with an access

struct Attempt { // one access that is being checked
    const Buffer &buffer;
    const char *p;
    size_t bytes;
    Place at;
    void *pc;
    const Lane *lane;
    Mark mine;
    bool reads, writes;
};

static const char *kind_of(const Attempt &a)
{
    return a.reads && a.writes ? "atomic" : a.writes ? "store" : "load";
}

[[noreturn]] static void wrong(const Attempt &a, const char *what, const Mark &by)
{
    char other[96], where[96];
    const char *kind = kind_of(a);
    snprintf(other, sizeof other, "thread %u of %s %u", event_lane(by.event), launch.cluster == 1 ? "CTA" : "cluster",
             by.cluster);
    snprintf(where, sizeof where, "byte %td of '%s'", a.p - a.buffer.begin, a.buffer.name.c_str());
    const char *text = "%s: %s of %zu bytes, %s (the other: %s)";
    if (a.pc) fail_pc(a.pc, kind, text, what, kind, a.bytes, where, other);
    fail(a.at, text, what, kind, a.bytes, where, other);
}

[[noreturn]] static void race(const Attempt &a, const char *other, const Mark &by)
{
    char what[160];
    if (by.state & UNWAITED)
        snprintf(what, sizeof what, "bytes of a bulk store whose group was not waited for");
    else if (by.cluster == a.mine.cluster)
        snprintf(what, sizeof what, "race: a %s of another thread is not ordered before this %s", other, kind_of(a));
    else
        snprintf(what, sizeof what,
                 "race: a %s of another %s is not ordered before this %s by fences of the device and an atomic", other,
                 launch.cluster == 1 ? "CTA" : "cluster", kind_of(a));
    wrong(a, what, by);
}

// ---- one cell

static bool ordered(const Attempt &a, const Mark &m)
{
    return event_ordered_across(m.event, m.cluster, a.mine.event, a.lane);
}

static bool same(const Mark &a, const Mark &b)
{
    return a.event == b.event && a.cluster == b.cluster;
}

static void check_cell(const Attempt &a, Cell &c)
{
    if ((c.writer.state & UNWAITED) || !(ordered(a, c.writer) || (c.witness.event && ordered(a, c.witness))))
        race(a, "store", c.writer);
    if (a.writes) {
        for (const Mark &m : {c.reader, c.reader_before})
            if (!ordered(a, m)) race(a, "load", m);
        c = Cell{a.mine, {}, {}, {}};
        return;
    }
    if (a.mine.event & c.writer.event & 2) c.witness = a.mine;
    if (same(c.reader, a.mine)) return;
    if (event_lane(c.reader.event) / 32 != event_lane(a.mine.event) / 32 || c.reader.cluster != a.mine.cluster)
        c.reader_before = c.reader;
    c.reader = a.mine;
}

// ---- the cells of an access

static void split(Marks *m, size_t word)
{
    for (size_t i = 0; i < 4; i++) m->byte[4 * word + i] = m->word[word];
    m->word[word].writer.state |= SPLIT;
}

// Calls each(cell) for every cell of these bytes.
template <class Each> static void each_cell(Marks *m, const void *p, size_t bytes, Each each)
{
    size_t at = reinterpret_cast<uintptr_t>(p) - m->begin, end = at + bytes;
    while (at < end) {
        size_t word = at / 4, next = std::min(end, 4 * word + 4);
        bool whole = next - at == 4 && !(m->word[word].writer.state & SPLIT);
        if (!whole && !(m->word[word].writer.state & SPLIT)) split(m, word);
        if (whole)
            each(m->word[word]);
        else
            for (size_t i = at; i < next; i++) each(m->byte[i]);
        at = next;
    }
}

void global_checked(const Buffer &b, const void *p, size_t bytes, Access access, Place at, void *pc)
{
    if (!b.marks) return;
    const Lane *lane = current();
    bool atomic = access != READ && access != WRITE;
    Attempt a = {b,
                 static_cast<const char *>(p),
                 bytes,
                 at,
                 pc,
                 lane,
                 {event_now(lane, atomic), lane->cta->cluster->number, 0},
                 access == READ || access == ATOMIC || access == ATOMIC_READ,
                 access != READ && access != ATOMIC_READ};
    each_cell(b.marks, p, bytes, [&](Cell &c) { check_cell(a, c); });
}

void load_constant(const void *p, size_t bytes, Place at)
{
    if (!checking || !is_device(p)) return;
    check_global(p, bytes, READ, at);
    const Buffer &b = device_buffer();
    if (!b.marks) return;
    Attempt a = {b, static_cast<const char *>(p), bytes, at, nullptr, current(), {}, true, false};
    each_cell(b.marks, p, bytes, [&](Cell &c) {
        if (c.writer.event) wrong(a, "the launch stores what is loaded as constant", c.writer);
    });
}

// ---- bulk stores

void global_target(const Buffer &b, const void *p, size_t bytes)
{
    if (b.marks) each_cell(b.marks, p, bytes, [](Cell &c) { c.writer.state |= UNWAITED; });
}

void global_claimed(const void *p, size_t bytes)
{
    if (!checking) return;
    check_global(p, bytes, READ, current()->at);
    const Buffer &b = device_buffer();
    Mark mine = {event_now(current(), false), current()->cta->cluster->number, 0};
    if (!b.marks) return;
    each_cell(b.marks, p, bytes, [&](Cell &c) {
        if (c.writer.state & UNWAITED) c.writer = mine;
    });
}

} // namespace qm
