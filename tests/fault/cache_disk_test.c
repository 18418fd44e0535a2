// SPDX-License-Identifier: Apache-2.0
// Promises (1), (4), (5): a disk that is full, or fails, at any call of any operation; a file size limit. What was in the
// database stays, what was being written is there whole or not at all, and both this process and the next go on.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/cache_fixture.h"
#include "support/fault_count.h"
#include "support/fault_vfs.h"

static char folder[64], file[128], second[128], third[128];

static int set_up(void **state)
{
    (void)state;
    fault_vfs_install();
    fault_vfs_set((fault_plan){0});
    cache_folder_make(folder);
    strcpy(file, cache_path(folder, "quern-v1.db"));
    strcpy(second, cache_path(folder, "second.db"));
    strcpy(third, cache_path(folder, "third.db"));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fault_vfs_set((fault_plan){0});
    cache_folder_remove(folder);
    return 0;
}

// ---- the operations: rows 1, 2, 3 are in the golden database, 4 and on are new

static quern_status do_put(quern_store *store)
{
    return cache_put(store, 4);
}

static quern_status do_remove(quern_store *store)
{
    cache_sample sample;

    cache_sample_make(&sample, 3, 5000);
    quern_status status = store->remove(store->self, &sample.record);
    cache_sample_free(&sample);
    return status;
}

static quern_status do_import(quern_store *store)
{
    quern_store from = cache_open_read(second);
    int64_t added, present, bad;
    quern_status status = qn_sqlite_import(store, &from, &added, &present, &bad);

    qn_sqlite_close(&from);
    return status;
}

static quern_status do_prune(quern_store *store)
{
    int64_t removed, bytes;

    return qn_sqlite_prune(store, 10000, 0, &removed, &bytes);
}

static quern_status do_export(quern_store *store)
{
    return qn_sqlite_export(store, third);
}

static quern_status do_seal(quern_store *store)
{
    return qn_sqlite_seal(store);
}

static const struct {
    const char *name;
    quern_status (*run)(quern_store *store);
    int kept;   // rows 1 … kept are there, whatever happened
    int fewest; // calls that the operation makes at least: the loop has found them
} operations[] = {
    {"put", do_put, 3, 6},     {"remove", do_remove, 2, 5}, {"import", do_import, 3, 6},
    {"prune", do_prune, 0, 5}, {"export", do_export, 3, 8}, {"seal", do_seal, 3, 5},
};

static const struct {
    const char *name;
    unsigned kinds;
    int code, error;
    bool for_ever, torn;
} faults[] = {
    {"disk full", FAULT_WRITE, SQLITE_FULL, ENOSPC, true, false},
    {"disk full once", FAULT_WRITE, SQLITE_FULL, ENOSPC, false, false},
    {"disk full in the middle of a write", FAULT_WRITE, SQLITE_FULL, ENOSPC, true, true},
    {"quota", FAULT_WRITE, SQLITE_IOERR_WRITE, EDQUOT, true, false},
    {"write error", FAULT_WRITE, SQLITE_IOERR_WRITE, EIO, false, true},
    {"sync error", FAULT_SYNC, SQLITE_IOERR_FSYNC, EIO, false, false},
    {"truncate error", FAULT_TRUNCATE, SQLITE_IOERR_TRUNCATE, EIO, true, false},
    {"delete error", FAULT_DELETE, SQLITE_IOERR_DELETE, EIO, false, false},
    {"open error", FAULT_OPEN, SQLITE_CANTOPEN, EMFILE, true, false},
    {"anything", FAULT_EVERY, SQLITE_IOERR, EIO, false, false},
    {"anything from then on", FAULT_EVERY, SQLITE_IOERR, EIO, true, false},
};

static bool is_expected(quern_status status)
{
    return status == QUERN_OK || status == QUERN_STORE_FULL || status == QUERN_STORE_IO || status == QUERN_STORE_OPEN;
}

static void check(const char *what, int64_t n, bool right, const char *claim)
{
    if (!right) fail_msg("%s, call %lld: not so: %s (%s)", what, (long long)n, claim, quern_message());
}

// The database after a fault: the next process opens it, sound, and stores.
static void check_next_process(const char *what, int64_t n, int kept, bool sealed)
{
    quern_store next = cache_open(file);
    qn_verify_report report;

    check(what, n, qn_sqlite_probe(&next) == QUERN_OK, "the next process opens it");
    for (int i = 1; i <= kept; i++) check(what, n, cache_get(&next, i) == QUERN_OK, "rows that existed are there");
    check(what, n, qn_sqlite_verify(&next, NULL, NULL, &report) == QUERN_OK, "the next process verifies");
    check(what, n, report.structure_ok, "the structure is sound");
    check(what, n, report.bad_key + report.bad_sum + report.bad_image == 0, "every row is whole");
    if (!sealed) check(what, n, cache_put(&next, 77) == QUERN_OK, "the next process stores");
    if (!sealed) check(what, n, cache_get(&next, 77) == QUERN_OK, "and finds it");
    qn_sqlite_close(&next);
}

static bool run_with_fault(size_t operation, size_t fault, int64_t n)
{
    fault_plan plan = {.kinds = faults[fault].kinds,
                       .at = n,
                       .for_ever = faults[fault].for_ever,
                       .torn = faults[fault].torn,
                       .code = faults[fault].code,
                       .error = faults[fault].error};
    char what[128];

    snprintf(what, sizeof what, "%s, %s", operations[operation].name, faults[fault].name);
    unlink(file), unlink(third);
    cache_copy_file(cache_golden("good-v1.db"), file);
    quern_store store = cache_open(file);
    check(what, n, cache_get(&store, 1) == QUERN_OK, "the database is open"); // so that faults hit the operation
    fault_vfs_set(plan);
    quern_status status = operations[operation].run(&store);
    bool reached = fault_vfs_count() >= n;
    fault_vfs_set((fault_plan){0});

    check(what, n, is_expected(status), "the status is of a failing disk");
    check(what, n, reached || status == QUERN_OK, "without a fault it succeeds");
    bool sealed = qn_sqlite_is_sealed(&store);
    if (!sealed) check(what, n, cache_put(&store, 5) == QUERN_OK, "this process goes on storing");
    if (operations[operation].run == do_put && status == QUERN_OK) {
        check(what, n, cache_get(&store, 4) == QUERN_OK, "what was stored is there");
    }
    if (operations[operation].run == do_export && status != QUERN_OK) {
        check(what, n, access(third, F_OK) != 0, "a failed export leaves no file");
    }
    qn_sqlite_close(&store);
    check_next_process(what, n, operations[operation].kept, sealed);
    return reached;
}

static void no_failing_call_of_any_operation_harms_the_database(void **state)
{
    (void)state;
    quern_store from = cache_open(second);
    for (int i = 11; i <= 14; i++) assert_int_equal(cache_put(&from, i), QUERN_OK);
    qn_sqlite_close(&from);

    for (size_t o = 0; o < QN_COUNT(operations); o++) {
        for (size_t f = 0; f < QN_COUNT(faults); f++) {
            int64_t n = 1;
            for (bool reached = true; reached; n += reached) {
                fault_tried("a file system call that fails, in each operation of the cache");
                reached = run_with_fault(o, f, n);
                fault_survived("a file system call that fails, in each operation of the cache");
            }
            if (faults[f].kinds == FAULT_EVERY) {
                check(operations[o].name, n, n > operations[o].fewest, "the faults reached the operation");
            }
        }
    }
}

static void no_failing_call_while_a_database_is_made_harms_it(void **state)
{
    (void)state;
    for (size_t f = 0; f < QN_COUNT(faults); f++) {
        for (int64_t n = 1;; n++) {
            unlink(file);
            fault_tried("a file system call that fails while a database is made");
            fault_vfs_set((fault_plan){.kinds = faults[f].kinds,
                                       .at = n,
                                       .for_ever = faults[f].for_ever,
                                       .torn = faults[f].torn,
                                       .code = faults[f].code,
                                       .error = faults[f].error});
            quern_store store = cache_open(file);
            quern_status status = cache_put(&store, 4);
            bool reached = fault_vfs_count() >= n;
            fault_vfs_set((fault_plan){0});
            check(faults[f].name, n, is_expected(status), "the status is of a failing disk");
            check(faults[f].name, n, cache_put(&store, 5) == QUERN_OK, "this process goes on storing");
            qn_sqlite_close(&store);
            check_next_process(faults[f].name, n, 0, false);
            fault_survived("a file system call that fails while a database is made");
            if (!reached) break;
        }
    }
}

static quern_status repair_it(int64_t *saved)
{
    qn_sqlite_options options = cache_options(file);
    qn_text aside = QN_TEXT_INIT;
    quern_status status = qn_sqlite_repair(&options, saved, &aside);

    if (aside.length) unlink(aside.bytes);
    qn_text_fini(&aside);
    return status;
}

static void a_repair_that_fails_can_be_repeated(void **state)
{
    const char zeros[100] = {0};
    (void)state;

    for (size_t f = 0; f < QN_COUNT(faults); f++) {
        bool reached = true;
        for (int64_t n = 1; reached; n++) {
            int64_t saved = 0;
            fault_tried("a file system call that fails in a repair");
            unlink(cache_path(folder, "quern-v1.db.broken-1")); // what a repair that failed set aside
            cache_copy_file(cache_golden("good-v1.db"), file);
            cache_overwrite(file, 0, zeros, sizeof zeros);
            fault_vfs_set((fault_plan){.kinds = faults[f].kinds,
                                       .at = n,
                                       .for_ever = faults[f].for_ever,
                                       .torn = faults[f].torn,
                                       .code = faults[f].code,
                                       .error = faults[f].error});
            quern_status status = repair_it(&saved);
            reached = fault_vfs_count() >= n;
            fault_vfs_set((fault_plan){0});
            check(faults[f].name, n, is_expected(status), "the status is of a failing disk");
            check(faults[f].name, n, reached || (status == QUERN_OK && saved == 3),
                  "without a fault all rows are saved");
            check(faults[f].name, n, status == QUERN_OK || repair_it(&saved) == QUERN_OK, "it can be repeated");
            check_next_process(faults[f].name, n, 0, false);
            fault_survived("a file system call that fails in a repair");
        }
    }
}

static void a_full_disk_is_called_full_and_an_error_an_error(void **state)
{
    (void)state;
    cache_copy_file(cache_golden("good-v1.db"), file);
    quern_store store = cache_open(file);

    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    fault_vfs_set((fault_plan){.kinds = FAULT_WRITE, .at = 1, .for_ever = true, .code = SQLITE_FULL, .error = ENOSPC});
    assert_int_equal(cache_put(&store, 4), QUERN_STORE_FULL);
    assert_non_null(strstr(quern_message(), file));
    fault_vfs_set(
        (fault_plan){.kinds = FAULT_WRITE, .at = 1, .for_ever = true, .code = SQLITE_IOERR_WRITE, .error = EDQUOT});
    assert_int_equal(cache_put(&store, 4), QUERN_STORE_FULL);
    fault_vfs_set(
        (fault_plan){.kinds = FAULT_WRITE, .at = 1, .for_ever = true, .code = SQLITE_IOERR_WRITE, .error = EIO});
    assert_int_equal(cache_put(&store, 4), QUERN_STORE_IO);
    assert_int_equal(cache_get(&store, 1), QUERN_OK); // and reading goes on all the while
    fault_vfs_set((fault_plan){0});
    qn_sqlite_close(&store);
}

static void a_file_system_that_became_read_only_is_read_only(void **state)
{
    (void)state;
    cache_copy_file(cache_golden("good-v1.db"), file);
    quern_store store = cache_open(file);

    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    fault_vfs_set(
        (fault_plan){.kinds = FAULT_OPEN, .at = 1, .for_ever = true, .code = SQLITE_CANTOPEN, .error = EROFS});
    assert_int_equal(cache_put(&store, 4), QUERN_STORE_READ_ONLY);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    fault_vfs_set((fault_plan){0});
    assert_int_equal(cache_put(&store, 4), QUERN_OK);
    qn_sqlite_close(&store);
}

// ---- RLIMIT_FSIZE, with SIGXFSZ as it is in every process: deadly

static int put_under_a_size_limit(void *user)
{
    struct rlimit limit, before;
    sigset_t pending, mask;
    (void)user;

    quern_store store = cache_open(file);
    if (cache_put(&store, 1)) return 10;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 200000;
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 11;
    quern_status status = QUERN_OK;
    for (int i = 2; i < 200 && !status; i++) status = cache_put(&store, i);
    if (status != QUERN_STORE_FULL) return 12;
    if (sigpending(&pending) || sigismember(&pending, SIGXFSZ)) return 13;
    if (pthread_sigmask(SIG_SETMASK, NULL, &mask) || sigismember(&mask, SIGXFSZ)) return 14;
    if (cache_get(&store, 1) || cache_get(&store, 2)) return 15;
    setrlimit(RLIMIT_FSIZE, &before);
    if (cache_put(&store, 500) || cache_get(&store, 500)) return 16;
    qn_sqlite_close(&store);
    return 0;
}

static void a_file_size_limit_is_a_status_and_no_signal(void **state)
{
    (void)state;
    fault_tried("a limit on the file size, with SIGXFSZ deadly");
    assert_int_equal(cache_in_child(put_under_a_size_limit, NULL), 0);
    check_next_process("size limit", 0, 2, false);
    fault_survived("a limit on the file size, with SIGXFSZ deadly");
}

static volatile sig_atomic_t handled;
static void handle(int number)
{
    (void)number;
    handled = handled + 1;
}

static int put_with_the_hosts_signal_pending(void *user)
{
    struct sigaction action = {.sa_handler = handle};
    sigset_t block, pending;
    (void)user;

    sigaction(SIGXFSZ, &action, NULL);
    sigemptyset(&block);
    sigaddset(&block, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &block, NULL);
    raise(SIGXFSZ);                                           // the host's own, which it wants to see later
    int result = put_under_a_size_limit(NULL) == 13 ? 0 : 20; // 13: still pending, as it should be here
    if (sigpending(&pending) || !sigismember(&pending, SIGXFSZ) || handled) return 21;
    pthread_sigmask(SIG_UNBLOCK, &block, NULL);
    return handled == 1 ? result : 22;
}

static void a_signal_that_was_the_hosts_stays_the_hosts(void **state)
{
    (void)state;
    assert_int_equal(cache_in_child(put_with_the_hosts_signal_pending, NULL), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_is_called_full_and_an_error_an_error),
        TEST(a_file_system_that_became_read_only_is_read_only),
        TEST(no_failing_call_of_any_operation_harms_the_database),
        TEST(no_failing_call_while_a_database_is_made_harms_it),
        TEST(a_repair_that_fails_can_be_repeated),
        TEST(a_file_size_limit_is_a_status_and_no_signal),
        TEST(a_signal_that_was_the_hosts_stays_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
