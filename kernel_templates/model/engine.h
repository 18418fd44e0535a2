// SPDX-License-Identifier: Apache-2.0
// The functional model's engine, as the bodies of instructions see it.
//
// Included before a kernel's text (shim.h) and by the instructions' own .cpp files, which become part of the runner.
// One OS thread runs everything. A lane is a fibre: it runs until it waits in one of the functions below, so nothing
// here needs a lock, and a run repeats exactly from its seed.
//   (1) Every function that can find a fault takes the place in the kernel's text, and reports it by fail().
//   (2) fail() does not return: the case is over, the runner goes on with the next.
//   (3) A pointer is an address of this process: shared memory, device memory and the lanes' stacks are all reachable
//       from any lane, which is how the last lane of a warp operation reads and writes the operands of the others.
// Knows no kernel and no family.
#ifndef QN_MODEL_ENGINE_H
#define QN_MODEL_ENGINE_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace qm {

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

// ---- places and failing

struct Place {
    const char *file; // as the text's #line says
    int line;
    const char *what; // the instruction: "shfl.sync.idx"
};

// Last parameters of every instruction's body, and the Place made of them:
//     static inline void bar_sync(int id, int threads, QM_HERE) { qm::barrier(id, threads, true, QM_AT("bar.sync")); }
#define QM_HERE     const char *qm_file = __builtin_FILE(), int qm_line = __builtin_LINE()
#define QM_PASS     qm_file, qm_line
#define QM_AT(what) (::qm::Place{qm_file, qm_line, what})

// Reports a fault of the kernel: text, place, block, warp, lane, the positions of all warps. Ends the case.
[[noreturn]] void fail(Place at, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The instruction exists from this compute capability × 10 on (and below `until`, when that is not 0); suffix 'a' means
// the target must have a suffix of its own ("sm_90a").
void need_arch(int from, int until, bool specific, Place at);

// ---- the running lane

struct Dim {
    unsigned x, y, z;
};

struct Self {
    Dim tid, bid, bdim, gdim, cdim; // threadIdx, blockIdx, blockDim, gridDim, CTAs of the cluster by axis
    unsigned lane, warp, thread;    // lane of the warp, warp of the CTA, thread of the CTA
    unsigned rank;                  // of the CTA in its cluster
    unsigned cluster_id;            // of the cluster in the grid
};
extern Self *self;

// The launch's architecture, for bodies whose result depends on it (tensor-core arithmetic, emulated conversions).
struct Limits {
    int cc;          // 90
    int suffix;      // 'a', 'f' or 0
    int shared_cta;  // most bytes of shared memory a CTA can have
    int max_cluster; // CTAs
};
const Limits &limits();

// ---- operations of a whole warp, or of four warps

// The operands of all lanes, for the function that carries the operation out: lane l gave the address operand[l] (null
// outside the mask). of<T>(l) reads and writes them in place; the lanes wait meanwhile.
struct Gather {
    u32 mask;       // lanes of the warp; a warpgroup has all of them
    unsigned lanes; // 32 or 128
    void *operand[128];
    Place at;
    bool has(unsigned lane) const { return operand[lane] != nullptr; }
    template <class T> T &of(unsigned lane) const { return *static_cast<T *>(operand[lane]); }
};
typedef void (*Carry)(Gather &);

// Waits for every lane of the mask at the same instruction and place, then the last to arrive carries it out, once for
// all (carry null: nothing). Reports a lane outside its own mask, ended lanes in it, lanes that are elsewhere.
void warp_op(u32 mask, void *operand, Carry carry, Place at);

// The same for the four warps 4n…4n+3 of a CTA, all lanes (wgmma, setmaxnreg).
void warpgroup_op(void *operand, Carry carry, Place at);

// Ready-made ones (collectives.cpp). A shuffle reads lane `from`, or keeps its own value; match: all or any.
enum AtomicOp {
    ATOMIC_ADD,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_INC,
    ATOMIC_EXCH,
    ATOMIC_CAS,
    ATOMIC_LOAD,
    ATOMIC_STORE
};
u64 shuffle(u32 mask, u64 value, unsigned from, bool own, Place at);
u32 ballot(u32 mask, bool value, Place at);
u32 reduce(AtomicOp op, bool is_signed, u32 mask, u32 value, Place at); // ATOMIC_ADD … ATOMIC_XOR
u32 match(bool all, u32 mask, u64 value, Place at);

// ---- CTA barriers, clusters

enum BarrierKind { BARRIER_SYNC, BARRIER_ARRIVE, BARRIER_OR };
// Named barrier 0…15; threads 0 means the whole CTA. BARRIER_OR returns whether any thread's `value` was true.
int barrier(int id, int threads, BarrierKind kind, int value, Place at);

void cluster_arrive(Place at, bool release = true); // release false: says that the thread exists, orders nothing
void cluster_wait(Place at);
void *map_shared(const void *p, unsigned rank, Place at); // the same offset in the shared memory of CTA `rank`

// ---- shared memory

// A piece of the CTA's shared memory at the running offset of its scope, which moves on: the same offset, size and
// alignment name the same piece for every thread, call and scope. Filled with 0xFF, hidden bytes on both sides. Offsets,
// which know nothing of those gaps, count against the launch's shared memory.
void *shared_take(size_t &offset, size_t bytes, size_t align, Place at);
bool is_shared(const void *p);
unsigned shared_rank(const void *p);         // the CTA of its cluster that owns these bytes
u32 shared_address(const void *p, Place at); // 32 bits, as instructions and descriptors have it: rank << 24 | offset
void *shared_pointer(u32 address, Place at); // the way back; reports an address that is in no piece

// ---- memory, from an instruction's body

enum Access { READ, WRITE, ATOMIC, ATOMIC_READ, ATOMIC_WRITE };
// Every check that a plain access at this place would get: bounds, inputs, unwritten bytes, data in flight, races.
void touch(const void *p, size_t bytes, Access access, Place at);
void load(void *to, const void *from, size_t bytes, Place at);  // touch(READ), then the copy; `to` is the body's own
void store(void *to, const void *from, size_t bytes, Place at); // touch(WRITE), then the copy
template <class T> T load(const T *from, Place at)
{
    T value;
    load(&value, from, sizeof value, at);
    return value;
}
void check_global(const void *p, size_t bytes, Access access, Place at); // device memory: bounds and inputs alone
void load_constant(const void *p, size_t bytes, Place at); // about to be read as what no thread of the launch stores
// Without any check, also of hidden bytes.
void raw_copy(void *to, const void *from, size_t bytes);
void raw_fill(void *to, int byte, size_t bytes);

// Hides bytes that are the kernel's but not its to use now: accumulators between issue and wait, reserved memory. Any
// access by the kernel's text is reported by the ASan build and by the access build, with the line.
void hide(void *p, size_t bytes, Place at);
void show(void *p, size_t bytes);

// ---- atomics, flags, fences

// Memory that a thread's accesses are ordered for: threads of its CTA, of its cluster, of the device.
enum Scope { SCOPE_CTA, SCOPE_CLUSTER, SCOPE_DEVICE, SCOPES };
enum Order { RELAXED = 0, ACQUIRE = 1, RELEASE = 2 }; // bits: both is acq_rel
// One atomic operation on a word; returns what it was. Other lanes may run before it, none in the middle.
u32 atomic(AtomicOp op, u32 *p, u32 value, u32 compare, Order order, Place at);
void relaxed_load(void *to, const void *from, size_t bytes, Place at);  // ld.relaxed.gpu of 4, 8 or 16 bytes; polls
void relaxed_store(void *to, const void *from, size_t bytes, Place at); // st.relaxed.gpu
// membar, fence.acq_rel: makes relaxed loads before it acquire and relaxed stores after it release, for that scope.
void thread_fence(Scope scope, Place at);
void fence_proxy_async(Place at); // generic accesses of this lane before it are seen by asynchronous readers after it
void spin(Place at);              // the step of a loop that polls: lets everyone else run

// ---- mbarriers (8 bytes of shared memory, own or a peer's; state in a table, the bytes hold a mark)

void mbarrier_init(void *bar, u32 count, Place at);
void mbarrier_fence_init(Place at); // fence.mbarrier_init: of all that this lane initialised
void mbarrier_inval(void *bar, Place at);
u64 mbarrier_arrive(void *bar, u32 count, u32 expect_tx, bool drop,
                    Place at); // expect-tx first; returns the state before
void mbarrier_expect_tx(void *bar, u32 bytes, Place at);
bool mbarrier_test_parity(void *bar, u32 parity, bool may_block, Place at); // try_wait blocks, and may fail by seed
bool mbarrier_test_state(void *bar, u64 state, bool may_block, Place at);

// ---- asynchronous operations: copies, tensor-core operations, their completion

// One operation in flight. begin, then its memory, then launch: it lands after a number of scheduler steps drawn by the
// seed, when `land` does the work with raw_copy and the engine completes what was asked for.
struct Async;
Async *async_begin(Place at);
// Read at landing. Shared bytes: stores to them before the landing are reported; their writers must have passed a
// fence.proxy.async when `proxy`. Device bytes: bounds are checked now.
void async_source(Async *op, const void *p, size_t bytes, bool proxy);
// Written at landing. Now: charged as a store of the issuing lane (so readers of the slot must be done), filled with
// 0xFF, hidden. After the landing the bytes are visible to who waited for the operation, to nobody else.
void async_target(Async *op, void *p, size_t bytes, bool proxy);
// Registers of a lane (any lane of the operation): hidden until that lane's wait for the group, which shows them.
void async_registers(Async *op, unsigned thread, void *p, size_t bytes);
void async_signal_tx(Async *op, void *bar, u32 bytes);     // complete_tx on landing; several mbarriers for multicast
void async_signal_arrive(Async *op, void *bar, u32 count); // arrive on landing
// Joins the open group of a thread of this CTA (the issuing one, or each lane of the warp operation).
enum GroupKind { GROUP_CP_ASYNC, GROUP_BULK, GROUP_WGMMA, GROUP_KINDS };
void async_join(Async *op, GroupKind kind, unsigned thread);
// Two steps when `read` is not null: read (the sources may be overwritten afterwards), later land. `state` is copied.
void async_launch(Async *op, void *state, size_t state_bytes, void (*read)(void *), void (*land)(void *));
template <class S> struct StateOf {
    typedef void (*Step)(S &);
};
template <class S>
void async_launch(Async *op, const S &state, typename StateOf<S>::Step read, typename StateOf<S>::Step land)
{
    static_assert(std::is_trivially_copyable<S>::value, "the state is copied as bytes");
    struct Held {
        S state;
        void (*read)(S &);
        void (*land)(S &);
        static void run_read(void *p) { static_cast<Held *>(p)->read(static_cast<Held *>(p)->state); }
        static void run_land(void *p) { static_cast<Held *>(p)->land(static_cast<Held *>(p)->state); }
    };
    Held held = {state, read, land};
    async_launch(op, &held, sizeof held, read ? Held::run_read : nullptr, Held::run_land);
}
// Of the running lane: closes its open group; waits until at most `pending` of its latest groups are unfinished
// (read_only: until their sources are read). An empty group counts. Registers of what is finished are shown.
void group_commit(GroupKind kind, Place at);
void group_wait(GroupKind kind, unsigned pending, bool read_only, Place at);
// Arrives on the mbarrier when everything this lane started so far in the kind's groups has landed
// (cp.async.mbarrier.arrive; noinc false adds one to the pending count first).
void group_signal(GroupKind kind, void *bar, bool noinc, Place at);
// In order: an operation lands after the earlier ones of the same key (wgmma of one accumulator, tcgen05 pipes); 0 none.
void async_after(Async *op, u64 key);

// ---- state of a CTA that an instruction family keeps (tensor memory), zeroed; `end` is called when the CTA has ended.
void *cta_state(const void *key, size_t bytes, void (*end)(void *state, Place at), Place at);

// ---- registers, approximations, chance

void set_max_registers(unsigned count, bool increase, Place at); // checked, has no effect
float approximate(float exact, u32 input,
                  unsigned ulps); // moved by at most ulps; depends on seed, input and nothing else
u32 choose(u32 count, u64 key);   // 0…count-1 by seed and key: where the manual leaves a choice to the hardware

template <class T> u64 bits(T value)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a register");
    u64 b = 0;
    memcpy(&b, &value, sizeof value);
    return b;
}
template <class T> T unbits(u64 b)
{
    T value;
    memcpy(&value, &b, sizeof value);
    return value;
}

} // namespace qm
#endif
