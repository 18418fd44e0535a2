// SPDX-License-Identifier: Apache-2.0
// Everything the library and its cache do, mixed at random, over and over: after each round all is closed, and neither
// the heap nor the descriptors nor the folder may have grown since the first rounds. A few seconds; with
// QUERN_TEST_SOAK=SECONDS for as long as that. QUERN_TEST_SEED repeats a run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <malloc.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/tune.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/fault_vfs.h"
#include "support/load.h"
#include "support/runtime_fixture.h"

enum { SECONDS = 4, STEPS = 40, KEYS = 200, FIRST_ROUNDS = 8, CAP_BYTES = 60000, MOST_MORE_BYTES = 64 * 1024 };

static char folder[64], database[128], other[128], sealed[128];
static uint64_t seed = 1;

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90, 86};
    const char *wish = getenv("QUERN_TEST_SEED");
    seed = wish ? strtoull(wish, NULL, 10) : (uint64_t)time(NULL);
    runtime_machine_make(folder, database, cc, 2);
    snprintf(other, sizeof other, "%s/other.db", folder);
    snprintf(sealed, sizeof sealed, "%s/sealed.db", folder);
    fault_vfs_install();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runtime_machine_remove(folder);
    return 0;
}

static int draw(int below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)below);
}

// ---- what is done to a quern

static void do_obtain(quern *q)
{
    const qn_image *image;
    assert_int_equal(runtime_obtain(q, draw(KEYS), draw(2) ? "sm_90a" : "sm_100a", &image), QUERN_OK);
}

static void do_failed_compile(quern *q)
{
    const qn_image *image;
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = 1;
    quern_status status = runtime_obtain(q, draw(KEYS), "sm_90a", &image);
    fake_nvrtc.fail = 0;
    fake_nvrtc.times = 0;
    assert_true(status == QUERN_OK || status == QUERN_COMPILE_FAILED); // a hit needs no compile
}

static quern_gate_spec draw_spec(void)
{
    quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
    spec.E = 16 + 8 * draw(8), spec.K = 1 + draw(4), spec.in = draw(2) ? QUERN_F32 : QUERN_BF16;
    return spec;
}

static void do_prepare(quern *q)
{
    quern_gate_spec spec = draw_spec();
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    static float logits[4096], weights[64];
    static int32_t ids[64];
    quern_op *op = NULL;

    fake_driver_enter(fake_driver_context(draw(2)));
    assert_int_equal(quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &op), QUERN_OK);
    args.N = 1 + draw(4), args.logits = logits, args.weights = weights, args.ids = ids;
    assert_int_equal(quern_gate(op, &args, NULL), QUERN_OK);
    quern_op_release(op);
}

static void do_prepare_refused(quern *q)
{
    fake_driver.call.cuLibraryLoadData.fail = CUDA_ERROR_INVALID_IMAGE;
    fake_driver.call.cuLibraryLoadData.times = 1;
    quern_gate_spec spec = draw_spec();
    quern_op *op = NULL;
    if (quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &op) == QUERN_OK) quern_op_release(op);
    fake_driver.call.cuLibraryLoadData.fail = 0;
    fake_driver.call.cuLibraryLoadData.times = 0;
}

static void do_source(quern *q)
{
    quern_source mine = QUERN_SOURCE_INIT;
    const quern_geometry grid = QUERN_GEOMETRY_INIT;
    quern_kernel *kernel = NULL;
    char source[96];

    snprintf(source, sizeof source, "extern \"C\" __global__ void mine() { /* %d */ }", draw(20));
    mine.source = source, mine.entry = "mine", mine.threads = 32;
    assert_int_equal(quern_prepare_source(q, &mine, QUERN_DEVICE_CURRENT, &kernel), QUERN_OK);
    assert_int_equal(quern_launch_packed(kernel, &grid, NULL, 0, NULL), QUERN_OK);
    quern_kernel_release(kernel);
}

static void do_warm(quern *q)
{
    quern_gate_spec spec = draw_spec();
    assert_int_equal(quern_warm(q, &spec.base, draw(2) ? "sm_90a" : "sm_80", NULL), QUERN_OK);
}

static void do_bad_spec(quern *q)
{
    quern_any_spec spec;
    (void)q;
    assert_int_not_equal(quern_spec_parse("gate E=4096 K=nine in=f64 of=all", &spec), QUERN_OK);
}

static void do_fork(quern *q)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        const qn_image *image;
        _exit(runtime_obtain(q, draw(KEYS), "sm_90a", &image) != QUERN_OK);
    }
    assert_int_equal(cache_child_end(child), 0);
}

// ---- what is done to the files beside it

static void do_merge(quern *q)
{
    int64_t added, present, bad;
    (void)q;
    quern_store into = cache_open(other), from = cache_open_read(database);
    if (qn_sqlite_probe(&from) == QUERN_OK)
        assert_int_equal(qn_sqlite_import(&into, &from, &added, &present, &bad), QUERN_OK);
    qn_sqlite_close(&from);
    qn_sqlite_close(&into);
}

static void do_prune(quern *q)
{
    int64_t removed, bytes;
    (void)q;
    quern_store store = cache_open(draw(2) ? other : database);
    assert_int_equal(qn_sqlite_prune(&store, CAP_BYTES / 4, 0, &removed, &bytes), QUERN_OK);
    qn_sqlite_close(&store);
}

static void do_ship(quern *q)
{
    (void)q;
    quern_store store = cache_open(database);
    unlink(sealed);
    assert_int_equal(qn_sqlite_export(&store, sealed), QUERN_OK);
    qn_sqlite_close(&store);
    store = cache_open(sealed);
    quern_status status = qn_sqlite_seal(&store);
    assert_true(status == QUERN_OK || status == QUERN_STORE_CORRUPT); // a damaged row was copied
    qn_sqlite_close(&store);
}

static void do_tune_row(quern *q)
{
    qn_tune_row row = {
        .device =
            {.name = "a device", .cc = 90, .sm_count = 132, .shared_bytes = 233472, .l2_bytes = 52428800, .driver = 13},
        .library = "0",
        .arch = "sm_90a",
        .spec = "gate E=16 K=1 in=f32",
        .bucket = "N 1..1024",
        .config = "plan=block ctas=12",
        .status = QN_TUNE_BEST,
        .sizes = "N=1",
        .note = "",
        .created = draw(1000)};
    (void)q;
    quern_store store = cache_open(database);
    assert_int_equal(qn_sqlite_tune_put(&store, &row, 1, false, NULL), QUERN_OK);
    qn_sqlite_close(&store);
}

static void do_damage(quern *q)
{
    (void)q;
    quern_store store = cache_open(database);
    if (qn_sqlite_probe(&store) == QUERN_OK)
        cache_sql(database, "UPDATE kernel SET image=zeroblob(300) WHERE id=(SELECT max(id) FROM kernel)");
    qn_sqlite_close(&store);
}

static void (*const actions[])(quern *q) = {
    do_obtain,  do_obtain,          do_obtain, do_obtain, do_failed_compile, do_prepare,
    do_prepare, do_prepare_refused, do_source, do_source, do_warm,           do_bad_spec,
    do_fork,    do_merge,           do_prune,  do_ship,   do_tune_row,       do_damage};

// ---- rounds

static quern *open_any(void)
{
    quern_options options = runtime_options(database, NULL);

    options.compile_threads = 1 + draw(3);
    options.cache_cap_bytes = CAP_BYTES;
    options.sealed_files = draw(2) && !access(sealed, F_OK) ? sealed : NULL;
    return runtime_open(&options);
}

static void run_round(void)
{
    quern *q[2] = {open_any(), open_any()};

    for (int i = 0; i < STEPS; i++) actions[draw((int)QN_COUNT(actions))](q[draw(2)]);
    quern_close(q[0]);
    quern_close(q[1]);
    assert_int_equal(fake_driver.live_libraries, 0);
    assert_int_equal(fake_nvrtc.programs, 0);
}

static int64_t heap_bytes(void)
{
    return load_is_sanitized() ? 0 : (int64_t)mallinfo2().uordblks; // leaks are a sanitizer's to find
}

static void mixed_operations_make_nothing_grow(void **state)
{
    (void)state;
    const char *wish = getenv("QUERN_TEST_SOAK");
    int64_t until = load_now_ns() + (int64_t)(wish ? atoi(wish) : SECONDS) * 1000000000;
    int64_t heap = 0, most_heap = 0, resident = 0;
    int files = 0, rounds = 0;

    print_message("QUERN_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (; rounds < 2 * FIRST_ROUNDS || load_now_ns() < until; rounds++) {
        run_round();
        if (rounds == FIRST_ROUNDS) heap = heap_bytes(), resident = load_resident_kib(), files = load_open_files();
        if (rounds > FIRST_ROUNDS && heap_bytes() > most_heap) most_heap = heap_bytes();
    }
    print_message(
        "%d rounds of %d operations: heap %lld bytes, at most %lld later; resident %lld KiB, %lld at the end; "
        "%d descriptors; databases %lld and %lld bytes\n",
        rounds, STEPS, (long long)heap, (long long)most_heap, (long long)resident, (long long)load_resident_kib(),
        files, (long long)cache_file_size(database), (long long)cache_file_size(other));
    assert_true(most_heap <= heap + MOST_MORE_BYTES);
    assert_int_equal(load_open_files(), files);
    assert_true(cache_folder_count(folder) <= 8); // databases, lock files: nothing piles up
    assert_true(cache_file_size(database) < 20 * 1024 * 1024);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(mixed_operations_make_nothing_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
