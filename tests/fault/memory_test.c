// SPDX-License-Identifier: Apache-2.0
// Out of memory at every allocation of a quern's life: open, warm, prepare, launch, close. The first is refused, then
// the second, … once only, and from there on. Linked with --wrap: malloc, calloc, realloc and free of the library come
// through here, and SQLite's by its own hook; of the many of SQLite's each n-th is tried, with QUERN_TEST_LONG each. What
// must hold each time:
//   (1) A call succeeds with the right result, or says OUT_OF_MEMORY and gives nothing.
//   (2) The same quern does it all once memory is there again, and closing it leaves nothing allocated or open.
//   (3) The database is sound, and the next process is served from it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/fault_count.h"
#include "support/fault_vfs.h"
#include "support/load.h"
#include "support/runtime_fixture.h"

// ---- the allocator

enum { MAX_LIVE = 1 << 16, LIBRARY = 1, SQLITE = 2 };

static struct {
    bool armed, for_ever;
    unsigned whose;    // allocations that count
    int64_t at, count; // the one that is refused, from 1; those that were asked for
    size_t live;       // made while armed and not freed
    const void *block[MAX_LIVE];
} memory;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void __wrap_free(void *block);

// True inside SQLite's allocator, whose malloc comes through here too where SQLite is linked statically.
static bool in_sqlite;

static bool is_refused(unsigned whose)
{
    if (in_sqlite) return false;
    if (!memory.armed || !(memory.whose & whose)) return false;
    memory.count++;
    if (memory.count != memory.at && !(memory.for_ever && memory.count > memory.at)) return false;
    errno = ENOMEM;
    return true;
}

static void *note(const void *block)
{
    if (!memory.armed || in_sqlite || !block) return (void *)(uintptr_t)block;
    if (memory.live == MAX_LIVE) abort();
    memory.block[memory.live++] = block;
    return (void *)(uintptr_t)block;
}

static void forget(const void *block)
{
    for (size_t i = memory.live; block && i-- > 0;) {
        if (memory.block[i] != block) continue;
        memory.block[i] = memory.block[--memory.live];
        return;
    }
}

void *__wrap_malloc(size_t bytes)
{
    return is_refused(LIBRARY) ? NULL : note(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return is_refused(LIBRARY) ? NULL : note(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *block, size_t bytes)
{
    if (is_refused(LIBRARY)) return NULL;
    forget(block);
    return note(__real_realloc(block, bytes));
}

void __wrap_free(void *block)
{
    forget(block);
    __real_free(block);
}

// SQLite's are tracked by SQLite itself (sqlite3_memory_used).
static sqlite3_mem_methods sqlite_methods;

static void *sqlite_malloc(int bytes)
{
    if (is_refused(SQLITE)) return NULL;
    in_sqlite = true;
    void *block = sqlite_methods.xMalloc(bytes);
    in_sqlite = false;
    return block;
}

static void *sqlite_realloc(void *old, int bytes)
{
    if (is_refused(SQLITE)) return NULL;
    in_sqlite = true;
    void *block = sqlite_methods.xRealloc(old, bytes);
    in_sqlite = false;
    return block;
}

static void hook_sqlite(void)
{
    sqlite3_mem_methods mine;

    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_methods)) abort();
    mine = sqlite_methods;
    mine.xMalloc = sqlite_malloc;
    mine.xRealloc = sqlite_realloc;
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &mine)) abort();
}

// ---- a life

static char folder[64], database[128];
static unsigned char expected[16]; // the launched kernel's image, as it is without a fault
static bool is_known;

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90};
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    fault_vfs_install();
    fake_nvrtc_install(13, 0);
    fake_driver_install(1, cc);
    fake_driver_enter(fake_driver_context(0));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_driver_enter(NULL);
    fake_driver_remove();
    fake_nvrtc_remove();
    cache_folder_remove(folder);
    return 0;
}

static quern_status prepare_and_launch(quern *q)
{
    quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    static float logits[64], weights[8];
    static int32_t ids[8];
    quern_op *op = NULL;

    spec.E = 64, spec.K = 8, spec.in = QUERN_F32;
    quern_status status = quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &op);
    if (status) return op ? QUERN_INTERNAL : status;
    args.N = 1, args.logits = logits, args.weights = weights, args.ids = ids;
    status = quern_gate(op, &args, NULL);
    quern_op_release(op);
    if (status) return status;
    if (!is_known) memcpy(expected, fake_driver.last.image, sizeof expected);
    is_known = true;
    return memcmp(fake_driver.last.image, expected, sizeof expected) ? QUERN_INTERNAL : QUERN_OK;
}

static quern_status warm(quern *q)
{
    quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
    quern_warm_report report = QUERN_WARM_REPORT_INIT;

    spec.E = 64, spec.K = 8, spec.in = QUERN_F32;
    quern_status status = quern_warm(q, &spec.base, "sm_90a", &report);
    return !status && report.kernels < 1 ? QUERN_INTERNAL : status;
}

static quern_status custom(quern *q)
{
    const quern_geometry grid = QUERN_GEOMETRY_INIT;
    quern_source mine = QUERN_SOURCE_INIT;
    quern_kernel *kernel = NULL;

    mine.source = "extern \"C\" __global__ void mine() {}", mine.entry = "mine", mine.threads = 32;
    quern_status status = quern_prepare_source(q, &mine, QUERN_DEVICE_CURRENT, &kernel);
    if (status) return kernel ? QUERN_INTERNAL : status;
    status = quern_launch_packed(kernel, &grid, NULL, 0, NULL);
    quern_kernel_release(kernel);
    return status;
}

static quern_status (*const steps[])(quern *q) = {warm, prepare_and_launch, custom};

static quern_status open_one(quern **q)
{
    quern_options options = runtime_options(database, NULL);

    options.compile_threads = 1; // the order of allocations is the same each time
    return quern_open(&options, q);
}

// ---- one fault

static void check(bool right, const char *claim)
{
    if (right) return;
    memory.armed = false;
    fail_msg("allocation %lld%s: not so: %s (%s)", (long long)memory.at, memory.for_ever ? " and on" : "", claim,
             quern_message());
}

// The driver's own lack of memory is told as what it refused, with its reason.
static bool is_clean(quern_status status)
{
    return status == QUERN_OK || status == QUERN_OUT_OF_MEMORY ||
           (status == QUERN_LOAD_FAILED && strstr(quern_message(), "CUDA_ERROR_OUT_OF_MEMORY"));
}

static void run_steps(quern *q, bool must_succeed)
{
    for (size_t i = 0; i < QN_COUNT(steps); i++) {
        quern_status status = steps[i](q);
        if (!is_clean(status)) print_message("step %zu: %s\n", i, quern_status_name(status));
        check(is_clean(status), "a call is right or says OUT_OF_MEMORY");
        check(!must_succeed || status == QUERN_OK, "with memory, the same quern does it");
    }
}

// Returns how many allocations were asked for before memory was there again.
static int64_t live(void)
{
    quern *q = NULL;
    quern_status status = open_one(&q);

    check(is_clean(status) && (status == QUERN_OK) == (q != NULL), "opening is right or says OUT_OF_MEMORY");
    if (q) run_steps(q, false);
    int64_t count = memory.count;
    memory.at = INT64_MAX - 1; // memory is there again
    if (!q) check(open_one(&q) == QUERN_OK, "with memory, it opens");
    run_steps(q, true);
    quern_close(q);
    return count;
}

static int open_files(void)
{
    return cache_folder_count("/proc/self/fd");
}

// The next process: a sound database, and no more than what could not be stored is compiled.
static void check_next_process(void)
{
    quern_store store = cache_open(database);
    qn_verify_report report;
    quern *q = NULL;

    check(qn_sqlite_verify(&store, NULL, NULL, &report) == QUERN_OK && report.structure_ok, "the database is sound");
    check(report.bad_key + report.bad_sum + report.bad_image == 0, "every row is whole");
    qn_sqlite_close(&store);
    check(open_one(&q) == QUERN_OK, "the next process opens");
    run_steps(q, true);
    check(runtime_counters(q).bad_rows == 0, "no row is passed over");
    quern_close(q);
}

// Returns how many allocations there were; the fault was reached if that is at least `at`.
static int64_t live_with(unsigned whose, int64_t at, bool for_ever)
{
    int files = open_files();
    sqlite3_int64 sqlite_bytes = sqlite3_memory_used();

    unlink(database);
    memory.whose = whose, memory.at = at, memory.for_ever = for_ever, memory.count = 0, memory.live = 0;
    memory.armed = true;
    int64_t count = live();
    memory.armed = false;
    memory.at = at;
    check(memory.live == 0, "nothing stays allocated");
    check(sqlite3_memory_used() == sqlite_bytes, "SQLite has nothing allocated");
    check(open_files() == files, "no descriptor stays open");
    check(fake_nvrtc.programs == 0 && fake_driver.live_libraries == 0, "no program or library is left");
    check_next_process();
    return count;
}

static void out_of_memory(unsigned whose, bool for_ever, int64_t stride, const char *kind)
{
    int64_t total = live_with(whose, INT64_MAX - 1, for_ever); // and what is made once a process is made
    bool reached = true;

    assert_true(total > 200);
    if (load_is_sanitized()) stride *= 7;
    if (getenv("QUERN_TEST_LONG")) stride = 1;
    for (int64_t at = 1; reached; at += stride) {
        fault_tried(kind);
        reached = live_with(whose, at, for_ever) >= at;
        fault_survived(kind);
    }
}

static void an_allocation_that_fails_harms_nothing(void **state)
{
    (void)state;
    out_of_memory(LIBRARY, false, 1, "out of memory at one allocation of the library");
}

static void an_allocation_of_sqlite_that_fails_harms_nothing(void **state)
{
    (void)state;
    out_of_memory(SQLITE, false, 11, "out of memory at one allocation of SQLite");
}

static void no_memory_from_an_allocation_on_harms_nothing(void **state)
{
    (void)state;
    out_of_memory(LIBRARY, true, 1, "out of memory from one allocation of the library on");
    out_of_memory(LIBRARY | SQLITE, true, 17, "out of memory from one allocation on");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_allocation_that_fails_harms_nothing),
        TEST(an_allocation_of_sqlite_that_fails_harms_nothing),
        TEST(no_memory_from_an_allocation_on_harms_nothing),
    };
    hook_sqlite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
