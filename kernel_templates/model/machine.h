// SPDX-License-Identifier: Apache-2.0
// The model's machine as the engine's own files see it: lanes, warps, CTAs, clusters, the launch, and what each file
// gives the others. Instructions' bodies see engine.h only.
//
//   scheduler.cpp  a launch: which clusters are resident, which lane runs; waiting and waking
//   report.cpp     fail(): the text, positions of all warps, leaving the case
//   warp.cpp       warp and warpgroup operations         barrier.cpp  CTA and cluster barriers
//   shared.cpp     pieces and addresses of shared memory  device.cpp   buffers of device memory
//   access.cpp     the checks of an access to shared memory: written, in flight, raced (the access build)
//   global.cpp     those of an access to device memory: raced      hooks.cpp    what the access build's text calls
//   clock.cpp      who has seen what: vector clocks        atomic.cpp   atomics, flags, fences
//   mbarrier.cpp   mbarriers                               async.cpp    operations that land late
//   chance.cpp     everything drawn from the seed          runner.cpp   the program around it all
#ifndef QN_MODEL_MACHINE_H
#define QN_MODEL_MACHINE_H

#include "engine.h"
#include "fibre.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace qm {

// ---- clocks: who has seen what

typedef std::vector<u32> Seen; // releases of each warp of a cluster, then phases of each of its mbarriers
typedef std::unordered_map<u32, std::shared_ptr<const Seen>> Elsewhere; // by the cluster's number in the grid
struct Clock {
    Seen here;                                  // of the own cluster
    std::shared_ptr<const Elsewhere> elsewhere; // of others; null: nothing. Shared, so never changed in place
    bool empty() const { return here.empty() && !elsewhere; }
    void clear() { here.clear(), elsewhere.reset(); }
};
// By the address of a word: what stores and atomics have left there, for who reads it.
typedef std::unordered_map<const void *, Clock> Released;

// One access or one other thing that a lane did, small enough to be kept for every byte: the lane (of the cluster), its
// warp's count of synchronisations then (which orders lanes of one warp), the warp's count of releases then (which
// orders warps), atomic or not. 0 is no event.
typedef u64 Event;

// ---- the machine

struct Warp;
struct Cta;
struct Cluster;
struct AsyncGroups;

enum LaneState { READY, BLOCKED, DONE };

// Of a lane, by scope: what its later stores publish, since its last fence of that scope or a wider one; what its
// relaxed loads have found, for a later fence. Of the device, where no cluster is the own one, all is `elsewhere`.
struct Fences {
    Clock fenced[SCOPES], found[SCOPES];
};

struct Lane {
    Self me; // first: `self` points here
    Fibre fibre;
    LaneState state = DONE;
    Place at = {nullptr, 0, nullptr}; // where it was last seen
    Warp *warp = nullptr;
    Cta *cta = nullptr;
    u32 index = 0;                  // of the cluster
    int result = 0;                 // of its last barrier with a reduction
    bool cluster_arrived = false;   // arrived and not yet waited
    u64 cluster_phase = 0;          // of that arrival
    u64 cluster_waited = 0;         // barriers of the cluster up to the last one it waited for
    u32 proxy_fence = 0;            // its warp's synchronisation count at its last fence.proxy.async; 0 none
    std::unique_ptr<Fences> fences; // null: none yet
    std::shared_ptr<AsyncGroups> groups;
};

struct WarpOp { // one operation of a warp or warpgroup that is being gathered
    Gather gather;
    u32 arrived;
    Carry carry;
};

struct Warp {
    Cta *cta = nullptr;
    Lane *lane = nullptr; // its 32
    unsigned index = 0;   // of the cluster
    u32 ready = 0, live = 0;
    u32 gave_way = 0;          // lanes that have polled since the others could go on
    std::vector<WarpOp *> ops; // incomplete ones
    u32 synchronised = 1, released = 1;
    Clock clock;
};

struct Barrier {
    int want = 0, come = 0; // threads, counted by whole warps
    BarrierKind kind = BARRIER_SYNC;
    int value = 0; // of a reduction, so far
    std::vector<Lane *> waiting;
    std::vector<u32> arrived; // lanes of each warp
    Clock clock;
    Place first = {nullptr, 0, nullptr};
};

struct Piece {
    size_t offset; // as the kernel's text counts: without gaps
    size_t bytes, align;
    size_t at; // in the arena
};

struct CtaState {
    const void *key;
    std::vector<char> bytes;
    void (*end)(void *, Place);
};

struct Cta {
    Cluster *cluster = nullptr;
    Dim block = {0, 0, 0};
    unsigned rank = 0;
    unsigned live = 0; // threads that have not ended
    char *arena = nullptr;
    size_t used = 0; // of the arena
    std::vector<Piece> pieces;
    Barrier barrier[16];
    WarpOp *group[8] = {}; // the operation that each warpgroup gathers
    u32 group_come[8] = {};
    unsigned group_registers[8] = {};
    Released released; // to the CTA
    std::vector<std::unique_ptr<CtaState>> states;
};

struct Mbarrier {
    u32 index = 0; // in clocks, after the warps
    u32 expected = 0, pending = 0;
    int64_t tx = 0;
    u64 phase = 0;
    Event made = 0;
    u64 known = 0; // after fence.mbarrier_init: to who has waited for so many barriers of the cluster; 0 without
    std::vector<Lane *> waiting;
    Clock gathering, done; // of arrivals of this phase, and of all completed ones
};

struct Cluster { // a slot: clusters of the grid follow each other in it
    std::vector<Cta> ctas;
    std::vector<Warp> warps;
    std::vector<Lane> lanes;
    unsigned slot = 0;
    u32 number = 0;    // in the grid
    unsigned live = 0; // threads
    unsigned arrived = 0;
    u64 phase = 0;
    std::vector<Lane *> waiting;
    Clock gathering, done;
    std::unordered_map<void *, Mbarrier> mbarriers;
    u32 mbarriers_made = 0;
    Released released; // to the cluster
    unsigned warp_count() const { return (unsigned)warps.size(); }
};

// What the host asks for (runner.cpp reads it).
struct Marks; // of the access build (global.cpp)
struct Buffer {
    std::string name;
    char *begin, *end;
    bool input;
    Marks *marks; // null: an input, which nobody stores to, or no access build
};
struct Launch {
    void (*entry)(const void *parameters) = nullptr;
    const void *parameters = nullptr;
    Dim grid = {1, 1, 1};
    unsigned threads = 0, cluster = 1;
    size_t shared_bytes = 0;
    unsigned resident = 1; // CTAs at a time, at least one cluster's
    Limits limits = {80, 0, 0, 1};
    bool shuffle = false;
    u32 seed = 1;
    std::vector<Buffer> buffers;
};
extern Launch launch;
enum Build { BUILD_PLAIN, BUILD_ASAN, BUILD_MSAN };
extern Build build;   // by the sanitizer that is linked in
extern bool checking; // races, unwritten bytes, data in flight: the access build

struct Counts {
    u64 switches, operations, barriers, landings, accesses;
};
extern Counts counts;

// ---- scheduler.cpp
bool run_launch();     // false: a fault, in fault_text
inline Lane *current() // the running lane
{
    return reinterpret_cast<Lane *>(self);
}
std::vector<Cluster> &clusters(); // resident ones
void wait_at(Place at);           // this lane blocks until wake()
void wake(Lane *lane);
void give_way();                // this lane stays ready, others go first
void leave_case();              // this lane goes to the main stack and is never come back to
size_t stack_of(const void *p); // 1 and more: the number of the stack that these bytes are on; 0: on none
extern Fibre main_fibre;

// ---- report.cpp
struct CaseOver {}; // thrown by fail() on the main stack
extern std::string fault_text;
extern void **crash_frame; // the frame pointer where a signal came
void fault_reset();
[[noreturn]] void fail_pc(void *pc, const char *what, const char *format, ...) __attribute__((format(printf, 3, 4)));
std::string positions();
std::string position_of_lane();

// ---- barrier.cpp
void cluster_thread_ended(Cluster *cluster);

// ---- chance.cpp
void chance_seed(u32 seed);
u32 chance(u32 count); // 0…count-1
bool shuffled_one_in(u32 count);

// ---- clock.cpp
void release_into(Warp *warp, Clock &clock);
void acquire_from(Warp *warp, const Clock &clock);
void join(Clock &into, const Clock &from);
Clock as_elsewhere(const Clock &clock, u32 cluster); // the clock of a warp of this cluster, as others see it

enum { SYNC_BITS = 20, RELEASE_BITS = 28 };
// lane 14 bits | synchronisations 20 | releases 28 | atomic | valid
inline Event event_now(const Lane *lane, bool atomic)
{
    const Warp *warp = lane->warp;
    return (u64)lane->index << 50 | (u64)(warp->synchronised & ((1u << SYNC_BITS) - 1)) << (RELEASE_BITS + 2) |
           (u64)(warp->released & ((1u << RELEASE_BITS) - 1)) << 2 | (atomic ? 2 : 0) | 1;
}
inline unsigned event_lane(Event e)
{
    return (unsigned)(e >> 50);
}
inline u32 event_synchronised(Event e)
{
    return (u32)(e >> (RELEASE_BITS + 2)) & ((1u << SYNC_BITS) - 1);
}
inline u32 event_released(Event e)
{
    return (u32)(e >> 2) & ((1u << RELEASE_BITS) - 1);
}
// Did e, of the lane's cluster, happen before the lane's `mine`, or do both atomically?
inline bool event_ordered(Event e, Event mine, const Lane *lane)
{
    if (!e || (e & mine & 2)) return true;
    unsigned by = event_lane(e);
    if (by == lane->index) return true;
    if (by / 32 == lane->warp->index) return event_synchronised(e) != event_synchronised(mine);
    return event_released(e) <= lane->warp->clock.here[by / 32];
}
bool event_ordered_across(Event e, u32 cluster, Event mine, const Lane *lane); // e: of any cluster of the grid

// ---- shared.cpp
extern char *arenas;
enum { ARENA_BYTES = 512 << 10, MAX_CLUSTER = 16, MAX_SLOTS = 80 };
const size_t SHARED_RANGE = (size_t)MAX_SLOTS * MAX_CLUSTER * ARENA_BYTES; // of all slots
void *shared_marks(size_t bytes_each); // zeros for each byte of that range, which take memory when they are used
void shared_begin(Cluster *cluster);   // arenas of a slot, hidden
void shared_end(Cta *cta);
inline size_t shared_offset(const void *p) // in the slots' whole range
{
    return (size_t)(static_cast<const char *>(p) - arenas);
}
inline bool in_shared(const void *p)
{
    return arenas && shared_offset(p) < SHARED_RANGE;
}
Cta *shared_cta(const void *p);
const Piece *shared_piece(const void *p, size_t bytes); // null: not inside one
char *shared_arena(unsigned slot, unsigned rank);
const char *shared_check(const void *p, size_t bytes); // null, or what is wrong

// ---- memory.cpp
void hidden_reset();
bool hidden_check(const void *p, size_t bytes, Place *by); // false: hidden, by what

// ---- device.cpp
void device_window(char *begin, size_t bytes);
void device_begin();
const char *device_check(const void *p, size_t bytes, Access access, std::string &text); // null, or what is wrong
const Buffer &device_buffer(); // that of the last check that found nothing wrong
bool is_device(const void *p);

// ---- global.cpp
Marks *marks_make(const char *begin, const char *end);
void marks_forget(Marks *marks);
void global_checked(const Buffer &b, const void *p, size_t bytes, Access access, Place at, void *pc);
void global_target(const Buffer &b, const void *p, size_t bytes); // of a store in flight, from now on
void global_claimed(const void *p, size_t bytes);                 // this lane waited for it

// ---- atomic.cpp
void atomic_reset();

// ---- access.cpp
void access_begin(Cluster *cluster);
void access_piece(const void *p, size_t bytes);
void access_end(Cta *cta, Place at);
void access_mbarrier(const void *p, bool live);
void access_source(const void *p, size_t bytes, bool begins, bool proxy, Place at);
void access_target(const void *p, size_t bytes, bool proxy, Place at);          // in flight from now on
void access_landed(const void *p, size_t bytes, const Mbarrier *by, u64 phase); // by null: until access_claimed
void access_tracked(const void *p, size_t bytes, const Mbarrier *by); // until claimed: by waiters of this mbarrier too
void access_claimed(const void *p, size_t bytes);                     // this lane waited for them: as if it wrote them
void access_checked(const void *p, size_t bytes, Access access, Place at, void *pc);

// ---- mbarrier.cpp
void mbarrier_signal(void *bar, u32 arrivals, u32 bytes, Place at); // by the copy engine
Mbarrier *mbarrier_find(Cluster *cluster, void *bar);
bool mbarrier_raise(void *bar, u32 count, Place at); // more pending arrivals; false: too many
void mbarrier_check(void *bar, Place at);            // it is one, and alive

// ---- async.cpp
bool async_pending();
void async_step(); // one step of time: what is due moves
void async_end(Cta *cta);
void async_reset();

} // namespace qm
#endif
