// SPDX-License-Identifier: Apache-2.0
// Faults that users of other caches reported, as tests: FR18 a busy database taken for a broken one, FR19 builds that
// share entries and images the loader refuses, FR20 the architecture of the wrong device, FR21 an NVRTC too old.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/key.h"
#include "base/path.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/fault_count.h"
#include "support/runtime_fixture.h"

enum { ASKERS = 12, WARM = 5, BUSY_MS = 200, PATIENCE_S = 100 };

static const char source[] = "extern \"C\" __global__ void mine(int n) { (void)n; }\n";
static char folder[64];
static char database[128];
static runtime_log lines;
static runtime_store store;
static _Atomic int *shared;

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true((void *)shared != MAP_FAILED);
    lines = (runtime_log)RUNTIME_LOG_INIT;
    store = (runtime_store)RUNTIME_STORE_INIT;
    fake_nvrtc_install(13, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_nvrtc_remove();
    runtime_log_fini(&lines);
    runtime_store_fini(&store);
    unsetenv("QUERN_TEMPLATES");
    munmap(shared, 4096);
    cache_folder_remove(folder);
    return 0;
}

static void warm_rows(int count)
{
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    const qn_image *image;
    for (int i = 0; i < count; i++) assert_int_equal(runtime_obtain(q, i, "sm_90a", &image), QUERN_OK);
    quern_close(q);
}

static ino_t inode(const char *file)
{
    struct stat info;
    assert_int_equal(stat(file, &info), 0);
    return info.st_ino;
}

// ---- FR18

enum { HELD = 0, ASKED = 1, LET_GO = 2 }; // words of shared

static int ask_three(quern *q, int me)
{
    const qn_image *image;
    int failed = 0;
    failed |= runtime_obtain(q, me % WARM, "sm_90a", &image) != QUERN_OK;
    failed |= runtime_obtain(q, (me + 1) % WARM, "sm_90a", &image) != QUERN_OK;
    failed |= runtime_obtain(q, 100 + me, "sm_90a", &image) != QUERN_OK;
    return failed;
}

static int ask_before_and_after(int me)
{
    quern_options options = runtime_options(database, &lines);
    quern *first = NULL, *second = NULL;
    alarm(PATIENCE_S);
    options.busy_timeout_ms = BUSY_MS;
    if (quern_open(&options, &first) != QUERN_OK || ask_three(first, me)) return 1;
    quern_counters counters = runtime_counters(first);
    if (!counters.get_failed || counters.bad_rows) return 2;
    if (lines.count[QUERN_LOG_WARNING] > 1) return 3;
    atomic_fetch_add(&shared[ASKED], 1);
    cache_wait_until(&shared[LET_GO], 1, PATIENCE_S);
    options.busy_timeout_ms = PATIENCE_S * 1000;
    if (ask_three(first, me) || quern_open(&options, &second) != QUERN_OK || ask_three(second, me)) return 4;
    counters = runtime_counters(second);
    if (counters.bad_rows || counters.get_failed || counters.hit_user < 2) return 5;
    quern_close(first);
    quern_close(second);
    return 0;
}

static void fr18_a_busy_database_is_not_a_broken_one(void **state)
{
    (void)state;
    pid_t children[ASKERS];
    sqlite3 *db;
    warm_rows(WARM);
    ino_t before = inode(database);
    for (int i = 0; i < ASKERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i]) continue;
        cache_wait_until(&shared[HELD], 1, PATIENCE_S);
        _exit(ask_before_and_after(i));
    }
    assert_int_equal(sqlite3_open(database, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    atomic_store(&shared[HELD], 1);

    cache_wait_until(&shared[ASKED], ASKERS, PATIENCE_S);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    atomic_store(&shared[LET_GO], 1);

    for (int i = 0; i < ASKERS; i++) assert_int_equal(cache_child_end(children[i]), 0);
    assert_int_equal(inode(database), before);
    assert_true(cache_sql_int(database, "SELECT count(*) FROM kernel") >= WARM);
    assert_int_equal(cache_sql_int(database, "SELECT (SELECT * FROM pragma_integrity_check) = 'ok'"), 1);
}

static void ask_broken(void)
{
    ino_t before = inode(database);
    int64_t size = cache_file_size(database);
    quern_options options = runtime_options(database, &lines);
    options.busy_timeout_ms = BUSY_MS;
    quern *q = runtime_open(&options);
    const qn_image *image;

    for (int i = 0; i < WARM + 1; i++) assert_int_equal(runtime_obtain(q, i, "sm_90a", &image), QUERN_OK);

    assert_int_equal(inode(database), before);
    assert_int_equal(cache_file_size(database), size);
    assert_true(lines.count[QUERN_LOG_WARNING] <= 1);
    quern_close(q);
}

static void fr18_a_file_that_is_no_database_is_left_where_it_is(void **state)
{
    (void)state;
    static const char zeros[100];
    warm_rows(WARM);
    cache_overwrite(database, 0, zeros, sizeof zeros);

    ask_broken();

    assert_true(lines.count[QUERN_LOG_WARNING] == 1);
}

static void fr18_half_a_database_is_left_where_it_is(void **state)
{
    (void)state;
    warm_rows(WARM);
    assert_int_equal(truncate(database, cache_file_size(database) / 2), 0);

    ask_broken();
}

// ---- FR19

static void make_build(const char *name, const char *text, char directory[160])
{
    char path[256];
    snprintf(directory, 160, "%s/%s", folder, name);
    assert_int_equal(mkdir(directory, 0700), 0);
    snprintf(path, sizeof path, "%s/common", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/common/types.cuh", directory);
    cache_write_file(path, text, strlen(text));
}

static long compiles_of_build(const char *directory)
{
    quern_options options = runtime_options(database, NULL);
    const qn_image *image;
    options.ignore_environment = 0;
    setenv("QUERN_TEMPLATES", directory, 1);
    long before = fake_nvrtc.compiles;
    quern *q = runtime_open(&options);
    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_OK);
    quern_close(q);
    return fake_nvrtc.compiles - before;
}

static void fr19_builds_that_differ_in_a_comment_share_no_entry(void **state)
{
    (void)state;
    char a[160], b[160];
    make_build("a", "extern \"C\" __global__ void QN_ENTRY(int) {} // one build\n", a);
    make_build("b", "extern \"C\" __global__ void QN_ENTRY(int) {} // and the other\n", b);

    assert_int_equal(compiles_of_build(a), 1);
    assert_int_equal(compiles_of_build(b), 1);
    assert_int_equal(compiles_of_build(a), 0);
    assert_int_equal(compiles_of_build(b), 0);

    assert_int_equal(cache_sql_int(database, "SELECT count(*) FROM kernel"), 2);
}

static void enter_device(int cc)
{
    fake_driver_install(1, &cc);
    fake_driver_enter(fake_driver_context(0));
}

static void leave_device(void)
{
    fake_driver_enter(NULL);
    fake_driver_remove();
}

static quern_status load_mine(quern *q)
{
    quern_source mine = QUERN_SOURCE_INIT;
    quern_kernel *kernel = NULL;
    mine.source = source, mine.entry = "mine", mine.threads = 32, mine.parameter_bytes = 4;
    quern_status status = quern_prepare_source(q, &mine, 0, &kernel);
    quern_kernel_release(kernel);
    return status;
}

static quern *open_on_store(void)
{
    quern_store callbacks = runtime_store_callbacks(&store);
    quern_options options = runtime_options("", &lines);
    options.store = &callbacks;
    return runtime_open(&options);
}

// A store with one row of an sm_90a kernel, whose image is an sm_80 cubin with size and sum made right.
static void store_wrong_image(void)
{
    qn_text wrong = QN_TEXT_INIT;
    quern *q = open_on_store();
    assert_int_equal(load_mine(q), QUERN_OK);
    quern_close(q);
    fake_cubin("mine", 80, source, &wrong);
    runtime_store_spoil(&store, 0, &wrong);
    qn_text_fini(&wrong);
    fake_nvrtc.compiles = 0;
    store.puts = store.removes = 0;
}

static void fr19_an_image_the_loader_refuses_is_dropped_and_made_once(void **state)
{
    (void)state;
    static const CUresult by_function[] = {CUDA_SUCCESS, CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_SOURCE};
    enter_device(90);
    for (size_t i = 0; i < QN_COUNT(by_function); i++) {
        store_wrong_image();
        fake_driver.call.cuLibraryLoadData.fail = by_function[i];
        fake_driver.call.cuLibraryLoadData.times =
            by_function[i] != CUDA_SUCCESS; // else the fake answers 209 by itself
        quern *q = open_on_store();

        assert_int_equal(load_mine(q), QUERN_OK);

        quern_counters counters = runtime_counters(q);
        assert_int_equal(counters.compiled, 1);
        assert_int_equal(counters.bad_rows, 1);
        assert_int_equal(store.removes, 1);
        assert_int_equal(store.rows, 1);
        assert_true(runtime_log_has(&lines, "load,warning,"));
        quern_close(q);
        q = open_on_store();
        assert_int_equal(load_mine(q), QUERN_OK);
        assert_int_equal(runtime_counters(q).compiled, 0);
        quern_close(q);
        runtime_store_fini(&store);
    }
    leave_device();
}

static void fr19_a_loader_that_refuses_everything_gets_one_compile_and_no_loop(void **state)
{
    (void)state;
    enter_device(90);
    store_wrong_image();
    fake_driver.call.cuLibraryLoadData.fail = CUDA_ERROR_INVALID_IMAGE;
    fake_driver.call.cuLibraryLoadData.times = -1;
    quern *q = open_on_store();

    assert_int_equal(load_mine(q), QUERN_LOAD_FAILED);

    assert_non_null(strstr(quern_message(), "made anew"));
    assert_non_null(strstr(quern_message(), "CUDA_ERROR_INVALID_IMAGE"));
    assert_int_equal(fake_nvrtc.compiles, 1);
    assert_int_equal(store.removes, 1);
    assert_int_equal(load_mine(q), QUERN_LOAD_FAILED); // what was made is kept: no further compile, no further delete
    assert_int_equal(fake_nvrtc.compiles, 1);
    assert_int_equal(store.removes, 1);
    quern_close(q);
    leave_device();
}

static void fr19_a_store_that_only_says_it_removed_makes_no_loop(void **state)
{
    (void)state;
    enter_device(90);
    store_wrong_image();
    store.lies_on_remove = true;
    quern *q = open_on_store();

    assert_int_equal(load_mine(q), QUERN_OK);

    assert_int_equal(fake_nvrtc.compiles, 1);
    assert_int_equal(store.removes, 1);
    quern_close(q);
    leave_device();
}

static int copy_wrong(void *user, const quern_record *record)
{
    qn_text wrong = QN_TEXT_INIT;
    quern_record changed = *record;
    fake_cubin("mine", 80, source, &wrong);
    qn_hash sum = qn_hash_bytes(wrong.bytes, wrong.length);
    changed.image = wrong.bytes, changed.image_bytes = wrong.length;
    memcpy(changed.sum, sum.bytes, sizeof changed.sum);
    quern_store *to = user;
    assert_int_equal(to->put(to->self, &changed), QUERN_OK);
    qn_text_fini(&wrong);
    return 0;
}

// A sealed database whose one row the loader refuses.
static void seal_wrong_image(const char *sealed)
{
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    assert_int_equal(load_mine(q), QUERN_OK);
    quern_close(q);
    quern_store from = cache_open_read(database), to = cache_open(sealed);
    assert_int_equal(from.list(from.self, 1, copy_wrong, &to), QUERN_OK);
    assert_int_equal(qn_sqlite_seal(&to), QUERN_OK);
    qn_sqlite_close(&from);
    qn_sqlite_close(&to);
    fake_nvrtc.compiles = 0;
}

static void fr19_a_refused_image_in_a_sealed_database_is_passed_over_for_good(void **state)
{
    (void)state;
    char sealed[160];
    qn_text before = QN_TEXT_INIT, after = QN_TEXT_INIT;
    snprintf(sealed, sizeof sealed, "%s/sealed.db", folder);
    enter_device(90);
    seal_wrong_image(sealed);
    assert_int_equal(qn_file_read(sealed, &before), QUERN_OK);
    quern_options options = runtime_options("", &lines);
    options.sealed_files = sealed;
    quern *q = runtime_open(&options);

    for (int i = 0; i < 3; i++) assert_int_equal(load_mine(q), QUERN_OK);

    assert_int_equal(fake_nvrtc.compiles, 1);
    assert_int_equal(runtime_counters(q).bad_rows, 1);
    assert_int_equal(lines.count[QUERN_LOG_WARNING], 1);
    quern_close(q);
    assert_int_equal(qn_file_read(sealed, &after), QUERN_OK);
    assert_int_equal(after.length, before.length);
    assert_memory_equal(after.bytes, before.bytes, before.length);
    qn_text_fini(&before);
    qn_text_fini(&after);
    leave_device();
}

static void fr19_a_good_row_of_the_users_stands_in_for_a_refused_sealed_one(void **state)
{
    (void)state;
    char sealed[160];
    snprintf(sealed, sizeof sealed, "%s/sealed.db", folder);
    enter_device(90);
    seal_wrong_image(sealed); // leaves the good row in the user's database
    quern_options options = runtime_options(database, &lines);
    options.sealed_files = sealed;
    quern *q = runtime_open(&options);

    assert_int_equal(load_mine(q), QUERN_OK);

    assert_int_equal(fake_nvrtc.compiles, 0);
    assert_int_equal(cache_sql_int(database, "SELECT count(*) FROM kernel"), 1);
    quern_close(q);
    leave_device();
}

// ---- FR20

typedef struct worker {
    quern *q;
    CUcontext context;
    int64_t V[2];
    const char *arch;
    _Atomic int *errors;
} worker;

static bool is_right(const worker *w, int64_t V)
{
    quern_softmax_topk_spec spec = runtime_spec(V, 8);
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_op *op = NULL;
    CUcontext before = fake_driver_current();
    bool right = quern_prepare(w->q, &spec.base, QUERN_DEVICE_CURRENT, &op) == QUERN_OK &&
                 quern_op_describe(op, 0, 0, &info) == QUERN_OK && !strcmp(info.arch, w->arch);
    quern_op_release(op);
    return right && fake_driver_current() == before;
}

static void *work(void *user)
{
    worker *w = user;
    fake_driver_enter(w->context);
    for (int turn = 0; turn < 4; turn++)
        if (!is_right(w, w->V[turn % 2])) atomic_fetch_add(w->errors, 1);
    fake_driver_enter(NULL);
    return NULL;
}

static void fr20_each_thread_gets_the_code_of_its_own_device(void **state)
{
    (void)state;
    static const int cc[] = {120, 86, 90};
    static const char *const names[] = {"sm_120a", "sm_86", "sm_90a"};
    quern_options options = runtime_options(database, NULL);
    _Atomic int errors = 0;
    pthread_t threads[3];
    worker workers[3];
    fake_driver_install(3, cc);
    quern *q = runtime_open(&options);
    for (int i = 0; i < 3; i++) {
        workers[i] = (worker){q, fake_driver_context(i), {1000 + (i & 1), 1001 - (i & 1)}, names[i], &errors};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_int_equal(errors, 0);
    long compiles = fake_nvrtc.compiles;
    assert_int_equal(compiles, runtime_counters(q).compiled);

    fake_driver_enter(fake_driver_context(1)); // one thread, from device 1 to device 2
    workers[1].context = fake_driver_context(1);
    assert_true(is_right(&workers[1], 1000));
    fake_driver_enter(fake_driver_context(2));
    assert_true(is_right(&workers[2], 1000));

    assert_int_equal(fake_nvrtc.compiles, compiles);
    fake_driver_enter(NULL);
    quern_close(q);
    fake_driver_remove();
}

static void fr20_one_kernel_on_three_devices_is_three_compiles(void **state)
{
    (void)state;
    static const int cc[] = {120, 86, 90};
    quern_source mine = QUERN_SOURCE_INIT;
    quern_options options = runtime_options(database, NULL);
    mine.source = source, mine.entry = "mine", mine.threads = 32, mine.parameter_bytes = 4;
    fake_driver_install(3, cc);
    quern *q = runtime_open(&options);

    for (int turn = 0; turn < 6; turn++) {
        quern_kernel *kernel = NULL;
        fake_driver_enter(fake_driver_context(turn * 2 % 3));
        assert_int_equal(quern_prepare_source(q, &mine, QUERN_DEVICE_CURRENT, &kernel), QUERN_OK);
        quern_kernel_release(kernel);
    }

    assert_int_equal(fake_nvrtc.compiles, 3);
    static const char *const archs[] = {"sm_120a", "sm_86", "sm_90a"};
    for (size_t i = 0; i < QN_COUNT(archs); i++) {
        char sql[96];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM kernel WHERE arch = '%s'", archs[i]);
        assert_int_equal(cache_sql_int(database, sql), 1);
    }
    fake_driver_enter(NULL);
    quern_close(q);
    fake_driver_remove();
}

// ---- FR21

static const int old_list[] = {75, 80, 86, 87, 89, 90};

static void install_old_nvrtc(void)
{
    fake_nvrtc_install(12, 0);
    fake_nvrtc.archs = old_list;
    fake_nvrtc.arch_count = QN_COUNT(old_list);
}

static void fr21_an_nvrtc_too_old_for_the_device_is_explained(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op = NULL;
    const qn_arch *targets[8];
    install_old_nvrtc();
    enter_device(100);
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);

    assert_int_equal(quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &op), QUERN_NVRTC_LACKS_ARCH);

    static const char *const parts[] = {"device 0", "10.0", "75, 80, 86, 87, 89, 90", "12.0",
                                        "/fake/lib/libnvrtc.so.13"};
    for (size_t i = 0; i < QN_COUNT(parts); i++) assert_non_null(strstr(quern_message(), parts[i]));
    size_t count = qn_arch_targets(100, targets);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) assert_non_null(strstr(quern_message(), targets[i]->name));
    assert_null(op);
    assert_int_equal(fake_nvrtc.compiles, 0);
    assert_int_equal(load_mine(q), QUERN_NVRTC_LACKS_ARCH);
    assert_int_equal(fake_nvrtc.compiles, 0);
    quern_close(q);
    if (access(database, F_OK) == 0) assert_int_equal(cache_sql_int(database, "SELECT count(*) FROM kernel"), 0);
    leave_device();
}

static void fr21_a_sealed_hit_needs_no_nvrtc_that_knows_the_device(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op = NULL;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    assert_int_equal(quern_warm(q, &spec.base, "sm_100a", NULL), QUERN_OK);
    quern_close(q);
    quern_store file = cache_open(database);
    assert_int_equal(qn_sqlite_seal(&file), QUERN_OK);
    qn_sqlite_close(&file);
    install_old_nvrtc();
    enter_device(100);
    options = runtime_options("", NULL);
    options.sealed_files = database;
    q = runtime_open(&options);

    assert_int_equal(quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &op), QUERN_OK);

    assert_int_equal(quern_op_describe(op, 0, 0, &info), QUERN_OK);
    assert_string_equal(info.arch, "sm_100a");
    assert_int_equal(info.origin, QUERN_ORIGIN_SEALED);
    assert_int_equal(fake_nvrtc.compiles, 0);
    quern_op_release(op);
    quern_close(q);
    leave_device();
}

static void fr21_a_real_nvrtc_is_not_asked_for_architectures_that_are_none(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    fake_nvrtc_remove();
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);

    assert_int_equal(quern_warm(q, &spec.base, "sm_60", NULL), QUERN_UNKNOWN_ARCH);
    assert_int_equal(quern_warm(q, &spec.base, "sm_131", NULL), QUERN_UNKNOWN_ARCH);

    assert_int_equal(runtime_counters(q).compiled, 0);
    quern_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(fr18_a_busy_database_is_not_a_broken_one),
        TEST(fr18_a_file_that_is_no_database_is_left_where_it_is),
        TEST(fr18_half_a_database_is_left_where_it_is),
        TEST(fr19_builds_that_differ_in_a_comment_share_no_entry),
        TEST(fr19_an_image_the_loader_refuses_is_dropped_and_made_once),
        TEST(fr19_a_loader_that_refuses_everything_gets_one_compile_and_no_loop),
        TEST(fr19_a_store_that_only_says_it_removed_makes_no_loop),
        TEST(fr19_a_refused_image_in_a_sealed_database_is_passed_over_for_good),
        TEST(fr19_a_good_row_of_the_users_stands_in_for_a_refused_sealed_one),
        TEST(fr20_each_thread_gets_the_code_of_its_own_device),
        TEST(fr20_one_kernel_on_three_devices_is_three_compiles),
        TEST(fr21_an_nvrtc_too_old_for_the_device_is_explained),
        TEST(fr21_a_sealed_hit_needs_no_nvrtc_that_knows_the_device),
        TEST(fr21_a_real_nvrtc_is_not_asked_for_architectures_that_are_none),
    };
    return fault_tests("faults reported by users of other caches", QN_COUNT(tests),
                       cmocka_run_group_tests(tests, NULL, NULL));
}
