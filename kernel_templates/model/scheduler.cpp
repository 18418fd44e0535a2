// SPDX-License-Identifier: Apache-2.0
// A launch: clusters of the grid take their slots, lanes run one after another until they wait, operations in flight
// land in between. With `shuffle` the order of clusters, warps and lanes comes from the seed.
//   (1) A lane that waits hands over to the next ready lane of its warp, else to the scheduler.
//   (2) Nothing ready and nothing in flight, while lanes wait: a deadlock. Lanes that only poll for very long: the same.
//   (3) A fault leaves everything as it is; the next launch makes all of it anew.
#include "machine.h"

#include <algorithm>
#include <sys/mman.h>

namespace qm {

Self *self;
Launch launch;
Counts counts;
Fibre main_fibre;

enum { PAGE = 4096, MAX_RESIDENT_LANES = 16384 };
static unsigned stack_bits()
{
    return build == BUILD_PLAIN ? 16 : 18; // sanitizers add red zones
}
static size_t stack_size()
{
    return (size_t)1 << stack_bits();
}

static std::vector<Cluster> slots;
static std::vector<u32> order; // clusters of the grid, next last
static Warp *running_warp;
static char *stacks;
static size_t stack_count;
static bool stacks_dirty; // a fault left frames on them
static u64 polls;         // lanes that gave way since something last happened
static const u64 MOST_POLLS = 20000000;

std::vector<Cluster> &clusters()
{
    return slots;
}
const Limits &limits()
{
    return launch.limits;
}

// ---- switching

static void go(Lane *from, Lane *to, bool last)
{
    counts.switches++;
    self = to ? &to->me : nullptr;
    fibre_switch(from ? &from->fibre : &main_fibre, to ? &to->fibre : &main_fibre, last);
}

static Lane *pick(Warp *warp)
{
    u32 ready = warp->ready;
    if (!ready) return nullptr;
    if (!(ready & ~warp->gave_way)) warp->gave_way = 0; // all of them did: a new round
    ready &= ~warp->gave_way;
    if (launch.shuffle) {
        u32 upper = ready & ~0u << chance(32);
        if (upper) ready = upper;
    }
    return &warp->lane[__builtin_ctz(ready)];
}

void wait_at(Place at)
{
    Lane *a = current();
    a->state = BLOCKED;
    a->at = at;
    a->warp->ready &= ~(1u << a->me.lane);
    go(a, pick(running_warp), false);
}

void wake(Lane *lane)
{
    polls = 0;
    lane->state = READY;
    lane->warp->ready |= 1u << lane->me.lane;
}

void give_way()
{
    Lane *a = current();
    if (++polls > MOST_POLLS)
        fail(a->at,
             "all lanes poll, and nothing has happened for %llu polls (do they wait for a CTA that has not begun?)",
             (unsigned long long)MOST_POLLS);
    a->warp->gave_way |= 1u << a->me.lane; // a lane that polls must not starve the lane it waits for
    go(a, nullptr, false);
}

void leave_case()
{
    stacks_dirty = true;
    go(current(), nullptr, true);
}

// ---- lanes

static void cta_ended(Cta *cta)
{
    Place at = {"", 0, "end of the CTA"};
    for (int i = 0; i < 16; i++)
        if (cta->barrier[i].come)
            fail(cta->barrier[i].first, "%d threads have arrived at barrier %d when the CTA ends", cta->barrier[i].come,
                 i);
    async_end(cta);
    access_end(cta, at);
    for (auto &state : cta->states)
        if (state->end) state->end(state->bytes.data(), at);
    cta->states.clear();
    shared_end(cta);
}

static void lane_body()
{
    launch.entry(launch.parameters);
    Lane *a = current();
    a->at = {"", 0, "end"};
    a->state = DONE;
    u32 bit = 1u << a->me.lane;
    a->warp->ready &= ~bit;
    a->warp->live &= ~bit;
    polls = 0;
    a->cta->live--;
    a->cta->cluster->live--;
    if (a->cta->live == 0) cta_ended(a->cta);
    cluster_thread_ended(a->cta->cluster);
    go(a, pick(running_warp), true);
}

static void make_stacks(size_t count)
{
    if (count > stack_count) {
        if (stacks) munmap(stacks, stack_count * stack_size());
        stacks = static_cast<char *>(mmap(nullptr, count * stack_size(), PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (stacks == MAP_FAILED) {
            stacks = nullptr, stack_count = 0;
            fail({"", 0, "launch"}, "the model has no memory for %zu lanes' stacks", count);
        }
        stack_count = count;
        for (size_t i = 0; i < count; i++) mprotect(stacks + i * stack_size(), PAGE, PROT_NONE);
        stacks_dirty = true;
    }
    if (stacks_dirty) show(stacks, stack_count * stack_size());
    stacks_dirty = false;
}

size_t stack_of(const void *p)
{
    size_t offset = (size_t)(static_cast<const char *>(p) - stacks);
    size_t stack = offset >> stack_bits();
    return stack < stack_count ? 1 + stack : 0;
}

static void make_lane(Cluster *c, Lane *a, unsigned index, unsigned padded)
{
    unsigned thread = index % padded;
    a->cta = &c->ctas[index / padded];
    a->warp = &c->warps[index / 32];
    a->index = index;
    a->me.tid = {thread, 0, 0};
    a->me.bid = a->cta->block;
    a->me.bdim = {launch.threads, 1, 1};
    a->me.gdim = launch.grid;
    a->me.cdim = {launch.cluster, 1, 1};
    a->me.lane = thread % 32, a->me.warp = thread / 32, a->me.thread = thread;
    a->me.rank = a->cta->rank;
    a->me.cluster_id = a->cta->block.x / launch.cluster;
    if (thread >= launch.threads) return; // fills up the last warp: never runs
    a->state = READY;
    a->warp->ready |= 1u << a->me.lane;
    a->warp->live |= 1u << a->me.lane;
    // Stacks that begin at the same offset of a page group fight for the same cache set.
    size_t colour = (index % 29) * 192;
    char *stack = stacks + (c->slot * c->lanes.size() + index) * stack_size();
    a->fibre.stack = stack + PAGE;
    a->fibre.bytes = stack_size() - PAGE - colour;
    fibre_make(&a->fibre, lane_body);
}

static void make_cluster(Cluster *c, u32 number)
{
    unsigned per_row = launch.grid.x / launch.cluster, padded = (launch.threads + 31) / 32 * 32;
    unsigned slot = c->slot;
    *c = Cluster();
    c->slot = slot, c->number = number;
    c->ctas.resize(launch.cluster);
    c->warps.resize(padded / 32 * launch.cluster);
    c->lanes.resize((size_t)padded * launch.cluster);
    c->live = launch.threads * launch.cluster;
    for (unsigned r = 0; r < launch.cluster; r++) {
        Cta &cta = c->ctas[r];
        cta.cluster = c, cta.rank = r, cta.live = launch.threads, cta.arena = shared_arena(slot, r);
        cta.block = {number % per_row * launch.cluster + r, number / per_row % launch.grid.y,
                     number / per_row / launch.grid.y};
    }
    for (unsigned w = 0; w < c->warps.size(); w++) {
        Warp &warp = c->warps[w];
        warp.index = w, warp.cta = &c->ctas[w / (padded / 32)], warp.lane = &c->lanes[(size_t)w * 32];
        if (checking) warp.clock.here.assign(c->warps.size(), 0);
    }
    for (unsigned i = 0; i < c->lanes.size(); i++) make_lane(c, &c->lanes[i], i, padded);
    shared_begin(c);
    access_begin(c);
}

// ---- the loop

static void begin()
{
    u32 total = launch.grid.x / launch.cluster * launch.grid.y * launch.grid.z;
    unsigned padded = (launch.threads + 31) / 32 * 32;
    unsigned lanes = padded * launch.cluster;
    unsigned want = std::max(1u, launch.resident / launch.cluster);
    unsigned most = std::max(1u, std::min<unsigned>(MAX_SLOTS, MAX_RESIDENT_LANES / lanes));
    chance_seed(launch.seed);
    device_begin();
    async_reset();
    atomic_reset();
    order.resize(total);
    for (u32 i = 0; i < total; i++) order[i] = total - 1 - i;
    if (launch.shuffle)
        for (u32 i = total; i > 1; i--) std::swap(order[i - 1], order[chance(i)]);
    slots.clear();
    slots.resize(std::min(total, std::min(want, most)));
    make_stacks((size_t)lanes * slots.size());
    for (unsigned s = 0; s < slots.size(); s++) {
        slots[s].slot = s;
        make_cluster(&slots[s], order.back());
        order.pop_back();
    }
}

// Ended clusters make room; says whether lanes are left.
static bool refill()
{
    bool left = false;
    for (Cluster &c : slots) {
        if (!c.live && !order.empty()) {
            make_cluster(&c, order.back());
            order.pop_back();
        }
        left = left || c.live;
    }
    return left;
}

static void run()
{
    std::vector<Warp *> warps;
    begin();
    while (refill()) {
        warps.clear();
        for (Cluster &c : slots)
            for (Warp &w : c.warps)
                if (w.live) warps.push_back(&w);
        if (launch.shuffle)
            for (size_t i = warps.size(); i > 1; i--) std::swap(warps[i - 1], warps[chance((u32)i)]);
        bool moved = false;
        for (Warp *w : warps) {
            if (async_pending()) {
                async_step();
                moved = true; // time passes
            }
            if (!w->ready) continue;
            moved = true;
            running_warp = w;
            go(nullptr, pick(w), false);
            if (!fault_text.empty()) return;
        }
        if (!moved) fail({"", 0, "launch"}, "deadlock: no lane can go on");
    }
}

bool run_launch()
{
    fault_reset();
    counts = Counts();
    polls = 0;
    self = nullptr;
    try {
        if (launch.grid.x && launch.grid.y && launch.grid.z) run();
    } catch (const CaseOver &) {
    }
    self = nullptr;
    return fault_text.empty();
}

} // namespace qm
