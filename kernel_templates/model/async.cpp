// SPDX-License-Identifier: Apache-2.0
// Operations in flight: they land some scheduler steps after their issue, by the seed, so that whoever does not wait for
// them sees it. Two steps: the sources are read, the effects land (one step for those without a read of their own).
//   (1) Until it lands, its targets are hidden, filled with 0xFF and marked; its sources must not be stored to.
//   (2) What waits for it: mbarriers, or groups of the threads that joined it.
#include "machine.h"

#include <algorithm>

namespace qm {

struct Range {
    char *p;
    size_t bytes;
    bool proxy;
};
struct Registers {
    unsigned thread;
    char *p;
    size_t bytes;
};
struct Signal {
    void *bar;
    u32 bytes, arrivals;
};
enum Step { BUILDING, FLYING, SOURCES_READ, LANDED_STEP };

struct Async : std::enable_shared_from_this<Async> {
    Place at;
    Cta *cta;
    Step step = BUILDING;
    int delay = 0;
    std::vector<Range> sources, targets; // in shared memory
    std::vector<Range> stored;           // targets in device memory
    std::vector<Registers> registers;
    std::vector<Signal> signals;
    std::vector<Lane *> waiting;
    bool grouped = false;
    u64 key = 0;                                 // lands after the earlier ones of the same key
    std::vector<std::shared_ptr<Async>> follows; // and after these
    std::vector<u64> state;                      // words: aligned
    void (*read)(void *) = nullptr, (*land)(void *) = nullptr;
};

typedef std::vector<std::shared_ptr<Async>> Group;
struct AsyncGroups {
    Group open[GROUP_KINDS];
    std::vector<Group> closed[GROUP_KINDS]; // oldest first
};

static std::vector<std::shared_ptr<Async>> flying; // in order of issue
static std::vector<std::shared_ptr<Async>> building;
static u8 *landing; // of each byte of shared memory: is it a target of one of them?

static void mark_landing(const Range &r, bool is)
{
    memset(landing + shared_offset(r.p), is, r.bytes);
}

void async_reset()
{
    if (!landing) landing = static_cast<u8 *>(shared_marks(1));
    for (const auto *list : {&flying, &building})
        for (const auto &op : *list)
            for (const Range &r : op->targets) mark_landing(r, false);
    flying.clear(), building.clear(), hidden_reset();
}
bool async_pending()
{
    return !flying.empty();
}

static int delay()
{
    return launch.shuffle ? (int)chance(40) : 4;
}

// ---- making one

Async *async_begin(Place at)
{
    auto op = std::make_shared<Async>();
    op->at = at;
    op->cta = current()->cta;
    building.push_back(op);
    return op.get();
}

static void check_range(const void *p, size_t bytes, Place at)
{
    const char *wrong = shared_check(p, bytes);
    if (wrong) fail(at, "%s (%zu bytes)", wrong, bytes);
}

void async_source(Async *op, const void *p, size_t bytes, bool proxy)
{
    if (!is_shared(p)) {
        touch(p, bytes, READ, op->at);
        return;
    }
    check_range(p, bytes, op->at);
    access_source(p, bytes, true, proxy, op->at);
    op->sources.push_back({static_cast<char *>(const_cast<void *>(p)), bytes, proxy});
}

[[noreturn]] static void fail_landing(const char *p, size_t bytes, Place at)
{
    for (const auto *list : {&flying, &building})
        for (const auto &other : *list)
            for (const Range &r : other->targets)
                if (p < r.p + r.bytes && r.p < p + bytes)
                    fail(at, "the destination is that of an operation in flight, issued at %s:%d", other->at.file,
                         other->at.line);
    fail(at, "the destination is that of an operation in flight");
}

void async_target(Async *op, void *p, size_t bytes, bool proxy)
{
    if (!is_shared(p)) {
        touch(p, bytes, WRITE, op->at);
        if (checking && is_device(p)) global_target(device_buffer(), p, bytes);
        op->stored.push_back({static_cast<char *>(p), bytes, proxy});
        return;
    }
    check_range(p, bytes, op->at);
    char *q = static_cast<char *>(p);
    if (memchr(landing + shared_offset(p), true, bytes)) fail_landing(q, bytes, op->at);
    access_target(p, bytes, proxy, op->at);
    raw_fill(p, 0xFF, bytes);
    hide(p, bytes, op->at);
    op->targets.push_back({q, bytes, proxy});
    mark_landing(op->targets.back(), true);
}

void async_registers(Async *op, unsigned thread, void *p, size_t bytes)
{
    hide(p, bytes, op->at);
    op->registers.push_back({thread, static_cast<char *>(p), bytes});
}

void async_signal_tx(Async *op, void *bar, u32 bytes)
{
    mbarrier_check(bar, op->at);
    op->signals.push_back({bar, bytes, 0});
}

void async_signal_arrive(Async *op, void *bar, u32 count)
{
    mbarrier_check(bar, op->at);
    op->signals.push_back({bar, 0, count});
}

static Lane *lane_of(Cta *cta, unsigned thread)
{
    size_t padded = cta->cluster->lanes.size() / cta->cluster->ctas.size();
    return &cta->cluster->lanes[cta->rank * padded + thread];
}

static AsyncGroups &groups_of(Lane *lane)
{
    if (!lane->groups) lane->groups = std::make_shared<AsyncGroups>();
    return *lane->groups;
}

void async_join(Async *op, GroupKind kind, unsigned thread)
{
    op->grouped = true;
    groups_of(lane_of(op->cta, thread)).open[kind].push_back(op->shared_from_this());
}

void async_after(Async *op, u64 key)
{
    op->key = key;
}

void async_launch(Async *op, void *state, size_t bytes, void (*read)(void *), void (*land)(void *))
{
    op->state.resize((bytes + 7) / 8);
    memcpy(op->state.data(), state, bytes);
    op->read = read, op->land = land;
    op->delay = delay();
    op->step = FLYING;
    flying.push_back(op->shared_from_this());
    for (size_t i = 0; i < building.size(); i++)
        if (building[i].get() == op) {
            building.erase(building.begin() + (long)i);
            break;
        }
}

// ---- landing

static void wake_waiting(Async *op)
{
    for (Lane *l : op->waiting) wake(l);
    op->waiting.clear();
}

static void read_sources(Async *op)
{
    if (op->read) op->read(op->state.data());
    op->step = SOURCES_READ;
    for (const Range &r : op->sources) access_source(r.p, r.bytes, false, r.proxy, op->at);
    wake_waiting(op);
}

// The mbarrier whose waiters may use a target: that in the same CTA's memory, else the first.
static const Mbarrier *completer(const Async *op, const Range &target)
{
    if (op->signals.empty()) return nullptr;
    void *bar = op->signals[0].bar;
    for (const Signal &s : op->signals)
        if (shared_cta(s.bar) == shared_cta(target.p)) bar = s.bar;
    return mbarrier_find(op->cta->cluster, bar);
}

static void finish(Async *op)
{
    for (const Range &r : op->targets) {
        show(r.p, r.bytes);
        mark_landing(r, false);
    }
    op->land(op->state.data());
    op->step = LANDED_STEP;
    counts.landings++;
    for (const Range &r : op->targets) {
        const Mbarrier *by = completer(op, r);
        access_landed(r.p, r.bytes, by, by ? by->phase : 0);
    }
    for (const auto &before : op->follows) // cp.async.mbarrier.arrive: who waits on the mbarrier may use their bytes
        for (const Range &r : before->targets) access_tracked(r.p, r.bytes, completer(op, r));
    for (const Signal &s : op->signals) mbarrier_signal(s.bar, s.arrivals, s.bytes, op->at);
    wake_waiting(op);
}

// before: how many of those that were issued earlier still fly; they stand first.
static bool held_back(const Async *op, size_t before)
{
    for (const auto &other : op->follows)
        if (other->step != LANDED_STEP) return true;
    for (size_t i = 0; i < before && op->key; i++)
        if (flying[i]->key == op->key && flying[i]->cta == op->cta) return true;
    return false;
}

// Says whether it has landed.
static bool advance(Async *op, size_t before)
{
    if (op->delay-- > 0 || held_back(op, before)) return false;
    if (op->step == FLYING) {
        read_sources(op);
        if (op->read) { // a step of its own between reading and landing
            op->delay = delay();
            return false;
        }
    }
    finish(op);
    return true;
}

void async_step()
{
    size_t kept = 0;
    for (size_t i = 0; i < flying.size(); i++)
        if (!advance(flying[i].get(), kept)) {
            if (kept != i) std::swap(flying[kept], flying[i]);
            kept++;
        }
    flying.resize(kept);
}

void async_end(Cta *cta)
{
    auto inside = [cta](const char *p) { return is_shared(p) && shared_cta(p) == cta; };
    for (const auto &op : flying) {
        for (const Range &r : op->targets)
            if (inside(r.p)) fail(op->at, "a copy into the CTA's shared memory is in flight when the CTA ends");
        for (const Range &r : op->sources)
            if (inside(r.p) && op->step == FLYING)
                fail(op->at, "an operation still reads the CTA's shared memory when the CTA ends");
        if (op->cta == cta && !op->registers.empty())
            fail(op->at, "an operation on registers is in flight when the CTA ends");
    }
}

// ---- groups

void group_commit(GroupKind kind, Place at)
{
    Lane *a = current();
    a->at = at;
    AsyncGroups &g = groups_of(a);
    g.closed[kind].push_back(std::move(g.open[kind]));
    g.open[kind].clear();
}

static Async *unfinished(const Group &group, bool read_only)
{
    for (const auto &op : group)
        if (op->step < (read_only ? SOURCES_READ : LANDED_STEP)) return op.get();
    return nullptr;
}

// What this lane may use from now on.
static void claim(Lane *a, const Group &group)
{
    for (const auto &op : group) {
        for (const Registers &r : op->registers)
            if (r.thread == a->me.thread) show(r.p, r.bytes);
        for (const Range &r : op->targets)
            if (op->signals.empty()) access_claimed(r.p, r.bytes);
        for (const Range &r : op->stored) global_claimed(r.p, r.bytes);
    }
}

void group_wait(GroupKind kind, unsigned pending, bool read_only, Place at)
{
    Lane *a = current();
    a->at = at;
    std::vector<Group> &closed = groups_of(a).closed[kind];
    size_t due = closed.size() > pending ? closed.size() - pending : 0;
    for (size_t i = 0; i < due; i++)
        for (Async *op = unfinished(closed[i], read_only); op; op = unfinished(closed[i], read_only)) {
            op->waiting.push_back(a); // of one at a time: a lane that goes on is in no list
            wait_at(at);
        }
    a->warp->synchronised++;
    if (read_only) return;
    for (size_t i = 0; i < due; i++) claim(a, closed[i]);
    closed.erase(closed.begin(), closed.begin() + (long)due);
}

// An arrival that follows everything of these groups: an operation without memory of its own.
void group_signal(GroupKind kind, void *bar, bool noinc, Place at)
{
    AsyncGroups &g = groups_of(current());
    if (!noinc && !mbarrier_raise(bar, 1, at)) fail(at, "too many pending arrivals");
    Async *op = async_begin(at);
    async_signal_arrive(op, bar, 1);
    op->follows = g.open[kind];
    for (const Group &closed : g.closed[kind]) op->follows.insert(op->follows.end(), closed.begin(), closed.end());
    char nothing = 0;
    async_launch(op, &nothing, sizeof nothing, nullptr, [](void *) {});
}

} // namespace qm
