// SPDX-License-Identifier: Apache-2.0
// What the files of src/runtime share: the quern itself, the part of it that belongs to one process, images in memory,
// work on a kernel, ops. Outside src/runtime only tests include this.
//
//   quern ──► qn_process   locks, flights: made anew in a forked child, which takes over the stores (state.c)
//         ──► qn_table     descriptor → op; readers take no lock (table.c)
//         ──► qn_entry     images, lists that only grow; readers take no lock (memory.c)
//
//   (1) A quern is counted: one for the handle, one for each reference to an op or a kernel. The last one frees.
//   (2) Locks are held for list and table work only: never around a store, a compile, a log line or a caller's callback.
//       load_lock is the one exception: it is held around the driver's loading calls.
//   (3) No lock of a quern is outside qn_process, so a fork at any moment leaves the child with whole data.
#ifndef QN_RUNTIME_PRIVATE_H
#define QN_RUNTIME_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/key.h"
#include "cache/store.h"
#include "cuda/driver.h"
#include "cuda/nvtx.h"
#include "ops/args_glance.h"
#include "runtime/runtime.h"
#include "runtime/table.h"

enum {
    QN_KIND_CUBIN = 1,
    QN_DEFAULT_SHARED = 48 * 1024, // a CTA may use this much shared memory without opting in
    QN_PORTABLE_CLUSTER = 8,       // a larger cluster needs the non-portable attribute
    QN_WORKSPACE_ALIGN = 256,
    QN_MAX_CONTEXTS = 4, // of a device, that an op knows it is ready in
    QN_MAX_ALIASES = 16, // of an op: bytes that differ and mean the same, such as padding
    QN_RECENT = 64,      // a power of 2
    QN_LOCK_SLOTS = 64,
    QN_MEMORY_LISTS = 16384,
    QN_MAX_SEALED = 16
};

// ---- one quern

typedef enum qn_warning { // one warning of each kind, later ones are debug lines
    QN_WARN_CACHE,        // no usable cache directory
    QN_WARN_STORE,        // the user's store fails
    QN_WARN_SEALED,       // a sealed one fails
    QN_WARN_BAD_ROW,
    QN_WARN_REFUSED,
    QN_WARN_FLIGHT,
    QN_WARN_DUMP,
    QN_WARN_TUNED, // tuning results that could never be used
    QN_WARN_KINDS
} qn_warning;

typedef struct qn_tally { // quern_counters, counted from several threads
    _Atomic uint64_t hit_table, hit_memory, hit_sealed, hit_user, miss, compiled, compile_us;
    _Atomic uint64_t put_failed, get_failed, bad_rows, flight_waits, flight_timeouts;
    _Atomic uint64_t miss_absent, miss_damaged, miss_failed, miss_refused, miss_no_store, would_compile;
    _Atomic uint64_t compile_failed, bytes_found, bytes_compiled, bytes_stored;
} qn_tally;

typedef struct qn_lock_slot {
    _Atomic uint64_t owner; // pid << 32 | descriptor + 1; 0: free
    _Atomic uint64_t device, inode;
} qn_lock_slot;

typedef struct qn_process qn_process;
typedef struct qn_entry qn_entry;

struct quern {
    _Atomic uint64_t references; // and from bit QN_HIT_BIT on, hits of the table: a hit changes one number
    qn_log log;
    qn_sink sink;        // log.sink points here
    bool log_launch;     // launches are log lines
    const qn_nvtx *nvtx; // NULL: no tool asks for ranges
    quern_cancel_fn cancel;
    void *cancel_user;

    // settings, fixed by quern_open
    quern_mode mode; // never DEFAULT
    quern_toolchain toolchain;
    quern_tuning tuning;                                        // never DEFAULT
    int busy_timeout_ms, flight_timeout_ms, compile_timeout_ms; // -1: none
    int compile_threads;
    int64_t cap_bytes;
    bool line_info, allow_network_fs, ignore_environment;
    char *cache_file; // absolute; NULL: none
    char *sealed[QN_MAX_SEALED];
    size_t sealed_count;
    char *nvrtc_file, *driver_file, *template_dir; // NULL: the default
    char *dump_dir;                                // NULL: no dumps
    bool has_custom_store;
    quern_store custom_store;

    _Atomic(qn_process *) process;
    _Atomic(const qn_driver *) driver; // set once it is loaded
    qn_table table;                    // the complete spec and the device → op, which it owns
    qn_table aliases; // the caller's bytes of a spec and the device → an op of table: a hit without checks
    _Atomic(const qn_table_entry *)
        recent[QN_RECENT];                        // of aliases, by where the caller's structure was: a guess to check
    _Atomic(qn_entry *) entries[QN_MEMORY_LISTS]; // by hash
    qn_lock_slot lock_slots[QN_LOCK_SLOTS];       // flight locks in use, for a forked child to close
    qn_tally tally;
    atomic_bool warned[QN_WARN_KINDS];
};

// References of a quern and hits of its table in one number. Hits beyond their 24 bits go over into the tally; 2^40
// references are more than a process can take.
enum { QN_HIT_BIT = 40 };
#define QN_REFERENCES(word) ((word) & (((uint64_t)1 << QN_HIT_BIT) - 1))

#define QN_TALLY(q, name, n) atomic_fetch_add_explicit(&(q)->tally.name, (uint64_t)(n), memory_order_relaxed)

void qn_quern_retain(quern *q);
void qn_quern_retain_hit(quern *q); // and counts a hit of the table
void qn_quern_release(quern *q);    // frees everything at the last reference

// The first of a kind is a warning, the rest are debug lines. text is one line.
void qn_warn_once(quern *q, qn_warning kind, const char *part, const char *format, ...) QN_PRINTF(4, 5);

int64_t qn_now_ms(void); // monotonic

// Whether a caller's structure has a size that some header may have given it, with a member behind it; else BAD_ARGUMENT.
quern_status qn_check_sized(const char *what, const void *structure);
// Copies a result into the caller's structure, which may be of an older, shorter kind; its size member stays.
// BAD_ARGUMENT for a size that is none.
quern_status qn_copy_sized(const char *what, void *to, const void *from, size_t bytes);
// Brings a caller's structure into one of `bytes` (zeroed, larger or equal in an older header's case). BAD_ARGUMENT for
// a size that is none and for a newer structure that sets members unknown here.
quern_status qn_take_sized(const char *what, const void *from, void *to, size_t bytes);

// ---- one process of it (state.c)

typedef struct qn_flight qn_flight;
typedef struct qn_bad {
    qn_hash hash;
    size_t store; // which tier has the bad row
    struct qn_bad *next;
} qn_bad;

struct qn_process {
    pid_t pid;
    pthread_mutex_t lock;      // flights, bad, opening of stores, writes to the table
    pthread_cond_t landed;     // a flight ended, the stores are open
    pthread_mutex_t load_lock; // libraries of entries
    qn_flight *flights;
    qn_bad *bad;
    enum { QN_STORES_CLOSED, QN_STORES_OPENING, QN_STORES_OPEN } stores;
    quern_store sealed[QN_MAX_SEALED];
    quern_store user;
    bool user_is_sqlite, user_is_writable;
    char *lock_file;                        // NULL: no locks between processes
    atomic_bool is_open[QN_MAX_SEALED + 1]; // by tier (1 + sealed: user); what is said of the store above is fixed then
    _Atomic int64_t retry_ms;               // when to try what could not be opened again; 0: never
    _Atomic int64_t closed_until_ms[QN_MAX_SEALED + 1]; // a store that was busy is not asked before (1 + sealed: user)
    atomic_bool put_fails; // the last put failed: others' waiting for our puts is of no use
};

// The state of the calling process; made anew after a fork. NULL only when out of memory (and message set).
qn_process *qn_process_of(quern *q);
void qn_process_free(quern *q, qn_process *process);
void qn_process_open_stores(quern *q, qn_process *process); // what is not open yet; any failure is a warning

// ---- images in memory (memory.c)

struct qn_entry {
    qn_image image; // first: handed out as const qn_image *
    qn_hash hash;
    qn_text key;
    char toolchain[96];
    size_t store;        // the tier it came from: a sealed one's index, sealed_count = user; unused when compiled
    atomic_bool dropped; // refused by the loader: not found any more, kept for whoever holds it
    qn_entry *next;
    // guarded by load_lock
    CUlibrary library;
    CUkernel kernel;
    size_t uses; // by ops and kernels
};

qn_entry *qn_memory_find(quern *q, const qn_hash *hash, const qn_text *key);
qn_entry *qn_memory_publish(quern *q, qn_entry *entry); // the entry, or the equal one that was first (entry is freed)
void qn_entry_free(qn_entry *entry);

// ---- one kernel to obtain (obtain.c, stores.c, flight.c)

#define QN_SOURCE_ROOT "/quern/source/" // of the names that callers' texts have for the compiler
enum { QN_MAX_OPTIONS = 64, QN_MAX_OWN_OPTIONS = 48, QN_MAX_HEADERS = 256, QN_MAX_DIGEST = 4096 };

// What a caller's source has beside its text; part of the key. Headers are in the order of their names.
typedef struct qn_extras {
    const char *const *options;
    size_t option_count;
    const char *const *header_names, *const *header_texts;
    size_t header_count;
    const void *digest;
    size_t digest_bytes;
} qn_extras;

typedef struct qn_work {
    const qn_arch *arch;
    const qn_extras *extras; // NULL: one of Quern's own kernels
    char entry_name[QN_MAX_ENTRY];
    const char *spec_text;
    qn_text key;
    bool key_is_lent;   // by the entry
    const char *source; // in the key, whose last item it is; ends with 0
    size_t source_bytes;
    qn_hash hash;
    // results
    qn_entry *entry;
    quern_origin origin;
    bool compiled, stored;
    bool saw_damaged, saw_failure, was_refused; // on the way: the reason of a miss
    quern_status status;
    char *message; // of a failure, to be raised in the calling thread
} qn_work;

quern_status qn_work_init(quern *q, qn_work *work, const qn_kernel_plan *plan, const qn_arch *arch,
                          const char *spec_text);
// source is copied, extras are not.
quern_status qn_work_init_source(quern *q, qn_work *work, const char *source, const char *entry,
                                 const qn_extras *extras, const qn_arch *arch, const char *spec_text);
void qn_work_fini(qn_work *work);

// Memory and stores only. NOT_FOUND without a message; other failures are those of EXACT without an NVRTC.
quern_status qn_work_find(quern *q, qn_work *work);
// Memory, stores, then compiles (or WOULD_COMPILE).
quern_status qn_work_obtain(quern *q, qn_work *work);
// After the loader refused work->entry, which came from a store: drops the row, then takes another store's or compiles.
quern_status qn_work_replace(quern *q, qn_work *work, const char *why);
// Counts and logs a miss with its reason.
void qn_work_missed(quern *q, const qn_process *process, const qn_work *work);
// The failure of a miss where compiling is not allowed: WOULD_COMPILE, naming the parts of the key.
quern_status qn_work_would_compile(quern *q, const qn_work *work);
// Files of a kernel in the dump folder, if there is one (dump.c). log: the compiler's; NULL when it was not asked.
void qn_work_dump(quern *q, const qn_work *work, const char *log);

// Options of the compiler, in the order that the key holds them (key.c).
typedef struct qn_options {
    char arch[40];
    const char *item[QN_MAX_OPTIONS];
    size_t count;
} qn_options;
void qn_compile_options(const quern *q, const qn_arch *arch, const qn_extras *extras, qn_options *options);
bool qn_is_line_info(const char *option); // in either of its spellings
// Writes work's key, with the plan's source or else this one, and the hash.
quern_status qn_work_key(const quern *q, qn_work *work, const qn_kernel_plan *plan, const char *source);

// The limits and rules of a caller's source (custom_check.c): BAD_ARGUMENT names the member and what is wrong with it.
quern_status qn_source_check(const quern_source *source, bool line_info);

// All of a plan's distinct kernels.
typedef struct qn_batch {
    qn_work *work;
    size_t count;
    unsigned char of[QN_MAX_VARIANTS][QN_MAX_STAGES]; // variant, stage → work
} qn_batch;
quern_status qn_batch_init(quern *q, qn_batch *batch, const qn_variants *variants, const qn_arch *arch,
                           const char *spec_text);
void qn_batch_fini(qn_batch *batch);
quern_status qn_batch_find(quern *q, qn_batch *batch);   // NOT_FOUND at the first that is missing
quern_status qn_batch_obtain(quern *q, qn_batch *batch); // in parallel; the first failure by order of work

// Every store a kernel may be in (stores.c). OK: work->entry is set.
quern_status qn_stores_find(quern *q, qn_process *process, qn_work *work, bool *failed);
bool qn_stores_put(quern *q, qn_process *process, const qn_work *work, const qn_entry *entry);
void qn_stores_drop(quern *q, qn_process *process, const qn_work *work, const qn_entry *entry); // a bad row

// Appends the winners of a spec from the tables in use: sealed databases, and unless frozen the user's. Never fails.
void qn_stores_tuned(quern *q, qn_process *process, const char *spec_text, qn_tune_list *list);

// Flights (flight.c). In this process: true = the caller leads and must land; false = another's flight ended meanwhile,
// with *status (OK: look in memory again).
bool qn_flight_join(quern *q, qn_process *process, const qn_hash *hash, quern_status *status);
void qn_flight_land(qn_process *process, const qn_hash *hash, quern_status status);
// Between processes. Never fails: without the lock the compile goes on all the same.
typedef struct qn_lock {
    int fd, slot; // fd -1: not held
    off_t offset;
    bool waited;
} qn_lock;
quern_status qn_lock_take(quern *q, qn_process *process, const qn_hash *hash, const char *what, qn_lock *lock);
void qn_lock_drop(quern *q, qn_lock *lock);
void qn_locks_inherited(quern *q); // in a forked child: closes what other threads of the parent held

// ---- devices, loading (load.c)

typedef struct qn_device {
    CUdevice handle;
    int cc;
    char name[192]; // for messages
    qn_device_limits limits;
    const qn_arch *targets[8];
    size_t target_count;
} qn_device;

// Where a call is made: the driver, the current context and its device.
typedef struct qn_here {
    const qn_driver *driver;
    CUcontext context;
    CUdevice handle;
} qn_here;

// NO_CONTEXT, WRONG_CONTEXT, NO_DEVICE and the driver's statuses.
quern_status qn_device_current(quern *q, int ordinal, qn_here *here);
quern_status qn_device_read(const qn_driver *driver, CUdevice handle, qn_device *device);
quern_status qn_lacks_arch(const qn_nvrtc *nvrtc, const char *who, const qn_arch *const *targets, size_t count);

typedef struct qn_shape {
    int cluster, dynamic_shared;
} qn_shape;
// Loads work's image and makes it ready on the device; a stored image that the loader refuses is compiled anew, once.
quern_status qn_load(quern *q, const qn_driver *driver, CUdevice device, qn_work *work, qn_shape shape,
                     CUkernel *kernel);
// An image that is loaded, made ready in another context of its device. LOAD_FAILED.
quern_status qn_load_here(quern *q, const qn_driver *driver, const qn_entry *entry);
void qn_unload(quern *q, qn_entry *entry); // gives one use back; the last one unloads
void qn_entry_unload_all(quern *q);        // at the end: every library that is left

// Which target serves: the first whose kernels are all there, else the first that the NVRTC compiles for.
// make fills a batch for a target; what it refuses (NO_PLAN) is passed over unless all are.
typedef quern_status (*qn_make_batch_fn)(void *user, const qn_arch *arch, qn_batch *batch);
quern_status qn_obtain_targets(quern *q, const qn_device *device, qn_make_batch_fn make, void *user, qn_batch *batch,
                               const qn_arch **arch);

// ---- ops

typedef struct qn_stage {
    CUfunction function; // a CUkernel: valid in every context
    const qn_entry *entry;
    quern_origin origin;
    unsigned threads, cluster, dynamic_shared;
    bool overlaps; // of its plan
} qn_stage;

typedef struct qn_op_variant {
    _Alignas(64) size_t stage_count; // of the plan, which is large
    bool has_workspace;              // at some sizes
    qn_config config;
    qn_stage stage[QN_MAX_STAGES];
    qn_plan plan;
    char sizes_text[96];
    char config_text[256];
    char chosen[48];
} qn_op_variant;

typedef struct qn_size_range {
    int64_t last; // of the sizes that it serves
    unsigned char variant;
} qn_size_range;

struct quern_op {
    // what a launch reads, in its order: few cache lines, for the driver leaves none of them in the nearest cache
    const char *family_name;
    size_t args_bytes;
    void (*launch)(const quern_spec *spec, const qn_config *config, const qn_plan *plan, const qn_device_limits *limits,
                   const quern_args *args, size_t stage, qn_launch *launch);
    CUresult (*launch_kernel)(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra);
    size_t size_offset, range_count; // of a family of one size: where it is, and its ranges in order; else 0
    bool log_launch;                 // of the quern
    bool in_table;                   // freed with the quern; else by its own last reference
    qn_args_glance glance;
    qn_size_range range[QN_MAX_BUCKETS];
    qn_device_limits limits;
    quern_any_spec spec;

    quern *q;
    const qn_driver *driver;
    const qn_family *family;
    const qn_arch *arch;
    _Atomic size_t references; // of an op outside the table
    _Atomic int aliases;       // entries of quern.aliases
    // The contexts in which its kernels are ready: the last few that asked. A destroyed one's handle may be another's later,
    // where the first launch then loads.
    _Atomic(CUcontext) ready_in[QN_MAX_CONTEXTS];
    _Atomic unsigned next_ready;
    unsigned char of_bucket[QN_MAX_BUCKETS];
    size_t variant_count;
    qn_op_variant variant[];
};

void qn_op_at_hand(quern_op *op); // fills what a launch reads from the rest (at_hand.c)
void qn_op_free(quern_op *op);    // memory only

// What a stage is, into the caller's structures: of an op's variant and of a caller's kernel alike (describe.c).
// BAD_ARGUMENT for a structure without INIT.
quern_status qn_stage_describe(const qn_stage *stage, const qn_arch *arch, const char *sizes, const char *config,
                               const char *chosen, quern_kernel_info *info);
quern_status qn_stage_image(const qn_stage *stage, size_t parameter_bytes, quern_image *image);

// quern_launch_args, by its name inside the library: no call goes through the table that other libraries could change.
quern_status qn_launch_args(const quern_op *op, const quern_args *given, CUstream stream);

// Sizes structures of any family on the stack.
typedef union qn_any_sizes {
    int64_t align;
    unsigned char bytes[128];
} qn_any_sizes;
typedef union qn_any_args {
    quern_args base;
    int64_t align;
    unsigned char bytes[1024];
} qn_any_args;

// The caller's sizes structure, of whatever length, with each size brought into its range.
void qn_sizes_take(const qn_family *family, const void *given, qn_any_sizes *sizes);

// A range of sizes: two sizes structures of the caller's, both inclusive; and the buckets that serve it, 1 << bucket, 0 when
// they are all. BAD_SIZE names a size that falls, BAD_ARGUMENT a structure without INIT.
typedef struct qn_range {
    const void *from, *to;
} qn_range;
quern_status qn_range_buckets(const qn_family *family, const quern_spec *spec, const qn_range *range,
                              uint32_t *buckets);

#endif
