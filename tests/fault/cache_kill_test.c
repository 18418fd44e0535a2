// SPDX-License-Identifier: Apache-2.0
// Promises (4), (5): a process that is killed at any call of any operation. The next process opens the database, finds
// what was there, finds the new row whole or not at all, and stores.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/cache_fixture.h"
#include "support/fault_count.h"
#include "support/fault_vfs.h"

static char folder[64], file[128], second[128];

static int set_up(void **state)
{
    (void)state;
    fault_vfs_install();
    fault_vfs_set((fault_plan){0});
    cache_folder_make(folder);
    strcpy(file, cache_path(folder, "quern-v1.db"));
    strcpy(second, cache_path(folder, "second.db"));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

typedef struct attempt {
    quern_status (*run)(quern_store *store);
    int64_t at;
    bool torn;
    int64_t cap;
} attempt;

static int die_in_it(void *user)
{
    const attempt *a = user;
    qn_sqlite_options options = cache_options(file);
    quern_store store;

    options.cap_bytes = a->cap;
    fault_vfs_set((fault_plan){.kinds = FAULT_EVERY, .at = a->at, .torn = a->torn, .signal = SIGKILL});
    if (qn_sqlite_open(&options, &store) || a->run(&store)) return 1;
    qn_sqlite_close(&store);
    return 0;
}

static void check(int64_t n, bool right, const char *claim)
{
    if (!right) fail_msg("killed at call %lld: not so: %s (%s)", (long long)n, claim, quern_message());
}

// One that only reads, and comes before any writer: what was left half done is rolled back for it.
static void check_reader(int64_t n, int kept)
{
    quern_store reader = cache_open_read(file);
    for (int i = 1; i <= kept; i++) check(n, cache_get(&reader, i) == QUERN_OK, "who only reads is served");
    check(n, cache_count(&reader) >= kept, "who only reads can list");
    qn_sqlite_close(&reader);
}

// kept: rows 1 … kept are there. Row 4 may be; if it is, it is whole (cache_get compares every byte).
static void check_next_process(int64_t n, int kept, bool finished)
{
    quern_store next = cache_open(file);
    qn_verify_report report;

    if (kept) check_reader(n, kept);
    check(n, qn_sqlite_probe(&next) == QUERN_OK, "the next process opens it");
    for (int i = 1; i <= kept; i++) check(n, cache_get(&next, i) == QUERN_OK, "rows that existed are there");
    quern_status row = cache_get(&next, 4);
    check(n, row == QUERN_OK || (row == QUERN_NOT_FOUND && !finished), "the new row is whole or absent");
    check(n, qn_sqlite_verify(&next, NULL, NULL, &report) == QUERN_OK && report.structure_ok, "the structure is sound");
    check(n, report.bad_key + report.bad_sum + report.bad_image == 0, "every row is whole");
    if (!qn_sqlite_is_sealed(&next)) {
        check(n, cache_put(&next, 4) == QUERN_OK && cache_get(&next, 4) == QUERN_OK, "the next process stores");
    }
    qn_sqlite_close(&next);
}

// Kills at the first call, the second … until the operation is through. Returns how many calls there were.
static int64_t kill_at_every_call(attempt a, const char *golden, int kept)
{
    for (a.at = 1;; a.at++) {
        unlink(file);
        unlink(cache_path(folder, "quern-v1.db-journal"));
        if (golden) cache_copy_file(cache_golden(golden), file);
        fault_tried("SIGKILL at a file system call of the cache");
        int result = cache_in_child(die_in_it, &a);
        check(a.at, result == 0 || result == 128 + SIGKILL, "the child was killed or came through");
        check_next_process(a.at, kept, result == 0);
        fault_survived("SIGKILL at a file system call of the cache");
        if (!result) return a.at - 1;
    }
}

static quern_status put_4(quern_store *store)
{
    return cache_put(store, 4);
}

static void killed_while_storing(void **state)
{
    (void)state;
    assert_true(kill_at_every_call((attempt){.run = put_4, .cap = -1}, "good-v1.db", 3) >= 6);
}

static void killed_in_the_middle_of_a_write_while_storing(void **state)
{
    (void)state;
    assert_true(kill_at_every_call((attempt){.run = put_4, .cap = -1, .torn = true}, "good-v1.db", 3) >= 6);
}

static void killed_while_the_database_is_made(void **state)
{
    (void)state;
    assert_true(kill_at_every_call((attempt){.run = put_4, .cap = -1, .torn = true}, NULL, 0) >= 12);
}

static void killed_while_evicting(void **state)
{
    (void)state;
    assert_true(kill_at_every_call((attempt){.run = put_4, .cap = 12000, .torn = true}, "good-v1.db", 0) >= 6);
}

static quern_status import_from_second(quern_store *store)
{
    quern_store from = cache_open_read(second);
    int64_t added, present, bad;
    quern_status status = qn_sqlite_import(store, &from, &added, &present, &bad);

    qn_sqlite_close(&from);
    return status;
}

static void killed_while_importing(void **state)
{
    (void)state;
    quern_store from = cache_open(second);
    for (int i = 4; i <= 6; i++) assert_int_equal(cache_put(&from, i), QUERN_OK);
    qn_sqlite_close(&from);
    assert_true(kill_at_every_call((attempt){.run = import_from_second, .cap = -1}, "good-v1.db", 3) >= 6);
}

static quern_status prune_all(quern_store *store)
{
    int64_t removed, bytes;

    return qn_sqlite_prune(store, 0, 0, &removed, &bytes) ? QUERN_INTERNAL : cache_put(store, 4);
}

static void killed_while_pruning(void **state)
{
    (void)state;
    assert_true(kill_at_every_call((attempt){.run = prune_all, .cap = -1}, "good-v1.db", 0) >= 10);
}

static quern_status put_and_seal(quern_store *store)
{
    quern_status status = cache_put(store, 4);

    return status ? status : qn_sqlite_seal(store);
}

static void killed_while_sealing(void **state)
{
    (void)state;
    assert_true(kill_at_every_call((attempt){.run = put_and_seal, .cap = -1}, "good-v1.db", 3) >= 10);
}

// ---- repair: the file is what it was (and can be repaired again), or a sound database that may lack rows

static int die_in_a_repair(void *user)
{
    const attempt *a = user;
    qn_sqlite_options options = cache_options(file);
    qn_text aside = QN_TEXT_INIT;
    int64_t saved = 0;

    fault_vfs_set((fault_plan){.kinds = FAULT_EVERY, .at = a->at, .torn = a->torn, .signal = SIGKILL});
    if (qn_sqlite_repair(&options, &saved, &aside)) return 1;
    qn_text_fini(&aside);
    return saved == 3 ? 0 : 2;
}

static void check_after_a_repair(int64_t n)
{
    qn_sqlite_options options = cache_options(file);
    qn_text aside = QN_TEXT_INIT;
    int64_t saved = 0;
    quern_store next = cache_open(file);

    quern_status status = qn_sqlite_probe(&next);
    qn_sqlite_close(&next);
    if (status) {
        check(n, status == QUERN_STORE_CORRUPT, "a file that was not repaired is still called damaged");
        check(n, qn_sqlite_repair(&options, &saved, &aside) == QUERN_OK, "it can be repaired again");
        check(n, saved == 3, "with all its rows");
        qn_text_fini(&aside);
    }
    check_next_process(n, 0, false);
}

static void killed_while_repairing(void **state)
{
    const char zeros[100] = {0};
    attempt a = {.torn = true};
    int result = -1;
    (void)state;

    for (a.at = 1; result; a.at++) {
        cache_folder_remove(folder);
        cache_folder_make(folder);
        strcpy(file, cache_path(folder, "quern-v1.db"));
        cache_copy_file(cache_golden("good-v1.db"), file);
        cache_overwrite(file, 0, zeros, sizeof zeros);
        fault_tried("SIGKILL at a file system call of a repair");
        result = cache_in_child(die_in_a_repair, &a);
        check(a.at, result == 0 || result == 128 + SIGKILL, "the child was killed or came through");
        check_after_a_repair(a.at);
        fault_survived("SIGKILL at a file system call of a repair");
    }
    assert_true(a.at > 15);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(killed_while_storing),
        TEST(killed_in_the_middle_of_a_write_while_storing),
        TEST(killed_while_the_database_is_made),
        TEST(killed_while_evicting),
        TEST(killed_while_importing),
        TEST(killed_while_pruning),
        TEST(killed_while_sealing),
        TEST(killed_while_repairing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
