// SPDX-License-Identifier: Apache-2.0
// Out of memory at every allocation of a quern's life: open, warm, prepare, launch, close. The first is refused, then
// the second, … once only, and from there on. Of the many allocations of SQLite each n-th is tried, with QUERN_TEST_LONG each.
// What must hold each time:
//   (1) A call succeeds with the right result, or says OUT_OF_MEMORY and gives nothing.
//   (2) The same quern does it all once memory is there again, and closing it leaves nothing allocated or open.
//   (3) The database is sound, and the next process is served from it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/tuned.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/fault_count.h"
#include "support/fault_memory.h"
#include "support/fault_vfs.h"
#include "support/runtime_fixture.h"
#include "tune/take.h"

// ---- a life

static char folder[64], database[128];
static unsigned char expected[16]; // the launched kernel's image, as it is without a fault
static bool is_known;

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90};
    fault_vfs_install();
    runtime_machine_make(folder, database, cc, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runtime_machine_remove(folder);
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
    fault_memory_end();
    fail_msg("%s: not so: %s (%s)", fault_memory_name(), claim, quern_message());
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
    int64_t count = fault_memory_restore();
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
    fault_memory_begin(whose, at, for_ever);
    int64_t count = live();
    check(fault_memory_end() == 0, "nothing stays allocated");
    check(sqlite3_memory_used() == sqlite_bytes, "SQLite has nothing allocated");
    check(open_files() == files, "no descriptor stays open");
    check(fake_nvrtc.programs == 0 && fake_driver.live_libraries == 0, "no program or library is left");
    check_next_process();
    return count;
}

static void an_allocation_that_fails_harms_nothing(void **state)
{
    (void)state;
    fault_memory_each(live_with, FAULT_LIBRARY, false, 1, "out of memory at one allocation of the library");
}

static void an_allocation_of_sqlite_that_fails_harms_nothing(void **state)
{
    (void)state;
    fault_memory_each(live_with, FAULT_SQLITE, false, 11, "out of memory at one allocation of SQLite");
}

static void no_memory_from_an_allocation_on_harms_nothing(void **state)
{
    (void)state;
    fault_memory_each(live_with, FAULT_LIBRARY, true, 1, "out of memory from one allocation of the library on");
    fault_memory_each(live_with, FAULT_LIBRARY | FAULT_SQLITE, true, 17, "out of memory from one allocation on");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
// A row is left out for what it is, not for lack of memory. Both lists are of the test's process, rows and all.
static int64_t sift_with(unsigned whose, int64_t at, bool for_ever)
{
    static const qn_tune_row row = {.device = {"NVIDIA H200", 90, 132, 233472, 62914560, 13},
                                    .arch = "sm_90a",
                                    .spec = "softmax_topk V=5000 K=8 in=f32",
                                    .bucket = "rows 5..14",
                                    .sizes = "rows=8",
                                    .config = "plan=stream block=128 ctas=1 local_k=4 unroll=2",
                                    .status = QN_TUNE_BEST,
                                    .note = "",
                                    .ns = 1000,
                                    .created = 1};
    qn_tune_row current = row;
    qn_tune_list all = {&current, 1, 1}, good = QN_TUNE_LIST_INIT;
    qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
    current.library = qn_tuned_library();
    fault_memory_begin(whose, at, for_ever);
    const quern_status status = qn_tune_sift(&all, 2, &taken, &good);
    const int64_t count = fault_memory_restore();
    check(taken.left_out == 0, "no row is left out for lack of memory");
    check(status == (good.count ? QUERN_OK : QUERN_OUT_OF_MEMORY), "rows are judged, or OUT_OF_MEMORY");
    qn_tune_list_fini(&good);
    qn_text_fini(&taken.first);
    check(fault_memory_end() == 0, "nothing stays allocated");
    return count;
}

static void an_allocation_that_fails_while_rows_are_judged_leaves_none_out(void **state)
{
    (void)state;
    fault_memory_each(sift_with, FAULT_LIBRARY, false, 1, "out of memory at one allocation of the judgement of rows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_allocation_that_fails_harms_nothing),
        TEST(an_allocation_of_sqlite_that_fails_harms_nothing),
        TEST(no_memory_from_an_allocation_on_harms_nothing),
        TEST(an_allocation_that_fails_while_rows_are_judged_leaves_none_out),
    };
    fault_memory_hook_sqlite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
