// SPDX-License-Identifier: Apache-2.0
// Promises (1), (2), (3): many processes and threads on one database, one that holds it locked, and fork.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cache_fixture.h"
#include "support/fault_count.h"
#include "support/fault_vfs.h"

static char folder[64], file[128];

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    strcpy(file, cache_path(folder, "quern-v1.db"));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

static void check_sound(int rows)
{
    assert_int_equal(cache_sql_int(file, "SELECT integrity_check='ok' FROM pragma_integrity_check"), 1);
    assert_int_equal(cache_sql_int(file, "SELECT count(*) FROM kernel"), rows);
}

// ---- many at once

enum { PROCESSES = 32, THREADS = 8, ROWS_A_THREAD = 12 };

static int open_fresh(int number, int start)
{
    qn_sqlite_options options = cache_options(file);
    quern_store store;
    char byte;

    options.busy_timeout_ms = 30000;
    if (read(start, &byte, 1) != 0) return 1; // the parent closes the other end: everybody at once
    if (qn_sqlite_open(&options, &store)) return 2;
    if (cache_get(&store, 100 + number) != QUERN_NOT_FOUND) return fprintf(stderr, "%s\n", quern_message()), 3;
    if (cache_put(&store, 7) || cache_put(&store, 100 + number)) return fprintf(stderr, "%s\n", quern_message()), 4;
    if (cache_get(&store, 7) || cache_get(&store, 100 + number)) return fprintf(stderr, "%s\n", quern_message()), 5;
    qn_sqlite_close(&store);
    return 0;
}

static void processes_that_open_a_fresh_database_at_once_all_store(void **state)
{
    pid_t children[PROCESSES];
    int start[2];
    (void)state;

    assert_int_equal(pipe(start), 0);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (!children[i]) {
            close(start[1]);
            _exit(open_fresh(i, start[0]));
        }
    }
    close(start[0]);
    close(start[1]);
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    check_sound(PROCESSES + 1);
    assert_int_equal(cache_folder_count(folder), 1);
}

typedef struct work {
    quern_store *store;
    int number, failures;
} work;

static void *work_on_it(void *user)
{
    work *w = user;

    for (int i = 0; i < ROWS_A_THREAD; i++) {
        int row = 1000 * (w->number + 1) + i;
        w->failures += cache_put(w->store, row) != QUERN_OK;
        w->failures += cache_get(w->store, row) != QUERN_OK;
        w->failures += cache_put(w->store, i) != QUERN_OK;
        w->failures += cache_get(w->store, i) != QUERN_OK;
        w->failures += cache_get(w->store, -row) != QUERN_NOT_FOUND || !strstr(quern_message(), file);
    }
    return NULL;
}

static void threads_share_one_store(void **state)
{
    pthread_t threads[THREADS];
    work works[THREADS];
    (void)state;

    quern_store store = cache_open(file);
    for (int i = 0; i < THREADS; i++) {
        works[i] = (work){.store = &store, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work_on_it, &works[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(works[i].failures, 0);
    }
    qn_sqlite_close(&store);
    check_sound(THREADS * ROWS_A_THREAD + ROWS_A_THREAD);
}

// ---- a database that is held locked (FR18)

typedef struct holder {
    pid_t pid;
    int release;
} holder;

static void hold(int ready, int release)
{
    sqlite3 *db = NULL;
    char byte = 1;

    if (sqlite3_open(file, &db) || sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL)) _exit(1);
    if (write(ready, &byte, 1) != 1 || read(release, &byte, 1) != 0) _exit(2);
    _exit(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) ? 3 : 0);
}

static holder start_holder(void)
{
    int ready[2], release[2];
    holder h;
    char byte;

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(release), 0);
    h.pid = fork();
    assert_true(h.pid >= 0);
    if (!h.pid) {
        close(release[1]);
        hold(ready[1], release[0]);
    }
    close(ready[1]), close(release[0]);
    h.release = release[1];
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return h;
}

static void end_holder(holder h)
{
    int status;

    close(h.release);
    assert_int_equal(waitpid(h.pid, &status, 0), h.pid);
    assert_int_equal(status, 0);
}

static void make_five_rows(void)
{
    quern_store store = cache_open(file);

    for (int i = 1; i <= 5; i++) assert_int_equal(cache_put(&store, i), QUERN_OK);
    qn_sqlite_close(&store);
}

// One process of FR18: two kernels that are there and one that is not, while the database is held and after.
static int ask_while_held(int release, int ready, int go)
{
    qn_sqlite_options options = cache_options(file);
    quern_store store;
    char byte = 1;

    close(release);
    options.busy_timeout_ms = 60;
    if (qn_sqlite_open(&options, &store)) return 1;
    if (cache_get(&store, 1) != QUERN_STORE_BUSY || cache_get(&store, 2) != QUERN_STORE_BUSY) return 2;
    if (cache_put(&store, 6) != QUERN_STORE_BUSY || !strstr(quern_message(), "another process holds it")) return 3;
    if (qn_sqlite_probe(&store) != QUERN_STORE_BUSY) return 4;
    if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 0) return 5;
    qn_sqlite_close(&store);
    options.busy_timeout_ms = 30000;
    if (qn_sqlite_open(&options, &store)) return 6;
    if (cache_get(&store, 1) || cache_get(&store, 2) || cache_put(&store, 6) || cache_get(&store, 6)) return 7;
    qn_sqlite_close(&store);
    return 0;
}

static void a_held_database_is_busy_and_not_broken(void **state)
{
    enum { ASKING = 12 };
    pid_t children[ASKING];
    struct stat before, after;
    int ready[2], go[2], status;
    char byte;
    (void)state;

    make_five_rows();
    assert_int_equal(stat(file, &before), 0);
    holder h = start_holder();
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    for (int i = 0; i < ASKING; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (!children[i]) {
            close(go[1]);
            _exit(ask_while_held(h.release, ready[1], go[0]));
        }
    }
    close(ready[1]), close(go[0]);
    for (int i = 0; i < ASKING; i++) assert_int_equal(read(ready[0], &byte, 1), 1);
    end_holder(h);
    close(go[1]), close(ready[0]);
    for (int i = 0; i < ASKING; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(stat(file, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(after.st_dev, before.st_dev);
    check_sound(6);
    assert_int_equal(cache_folder_count(folder), 1);
}

static void the_same_store_goes_on_when_the_lock_is_gone(void **state)
{
    qn_sqlite_options options = cache_options(file);
    quern_store opened, unopened;
    (void)state;

    make_five_rows();
    options.busy_timeout_ms = -1; // no waiting
    assert_int_equal(qn_sqlite_open(&options, &opened), QUERN_OK);
    assert_int_equal(qn_sqlite_open(&options, &unopened), QUERN_OK);
    assert_int_equal(cache_get(&opened, 1), QUERN_OK);
    holder h = start_holder();
    assert_int_equal(cache_get(&opened, 1), QUERN_STORE_BUSY);
    assert_int_equal(cache_get(&unopened, 1), QUERN_STORE_BUSY);
    assert_int_equal(cache_put(&unopened, 6), QUERN_STORE_BUSY);
    assert_int_equal(cache_count(&opened), -1);
    end_holder(h);
    assert_int_equal(cache_get(&opened, 1), QUERN_OK);
    assert_int_equal(cache_put(&opened, 6), QUERN_OK);
    assert_int_equal(cache_get(&unopened, 6), QUERN_OK);
    qn_sqlite_close(&opened);
    qn_sqlite_close(&unopened);
}

static void a_hit_whose_use_cannot_be_noted_is_a_hit_without_waiting(void **state)
{
    qn_sqlite_options options = cache_options(file);
    quern_store store;
    sqlite3 *db = NULL;
    (void)state;

    make_five_rows();
    cache_sql(file, "UPDATE kernel SET used=1000");
    options.busy_timeout_ms = 3600000; // who waits at all waits for the alarm, which ends the program
    assert_int_equal(qn_sqlite_open(&options, &store), QUERN_OK);
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK); // readers may, writers not
    alarm(60);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    alarm(0);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(cache_sql_int(file, "SELECT max(used) FROM kernel"), 1000);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    assert_true(cache_sql_int(file, "SELECT max(used) FROM kernel") > 1000);
    qn_sqlite_close(&store);
}

// ---- fork

// Descriptors of this process that are the database.
static int count_descriptors(void)
{
    struct stat wanted, found;
    int count = 0;

    if (stat(file, &wanted)) return -1;
    for (int fd = 3; fd < 256; fd++)
        count += !fstat(fd, &found) && found.st_ino == wanted.st_ino && found.st_dev == wanted.st_dev;
    return count;
}

static int use_after_fork(void *user)
{
    quern_store *store = user;

    if (count_descriptors() != 1) return 1;
    if (cache_get(store, 1) || cache_put(store, 6) || cache_get(store, 6)) return 2;
    if (count_descriptors() != 2) return 3; // its own; and the parent's, which it must not close
    qn_sqlite_close(store);
    return count_descriptors() == 1 ? 0 : 4;
}

static int close_after_fork(void *user)
{
    qn_sqlite_close(user);
    return count_descriptors() == 1 ? 0 : 1; // what it did not open it does not close
}

static void a_child_has_a_connection_of_its_own_and_leaves_the_parents_alone(void **state)
{
    (void)state;
    make_five_rows();
    quern_store store = cache_open(file);

    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    assert_int_equal(cache_in_child(use_after_fork, &store), 0);
    assert_int_equal(cache_in_child(close_after_fork, &store), 0);
    assert_int_equal(cache_get(&store, 6), QUERN_OK);
    assert_int_equal(cache_put(&store, 7), QUERN_OK);
    qn_sqlite_close(&store);
    check_sound(7);
}

// Forks inside SQLite, in the middle of a transaction, as another thread of the host might.
typedef struct forking {
    quern_store *store;
    int result;
} forking;

static int use_of_a_torn_session(void *user)
{
    quern_store *store = user;

    if (cache_get(store, 1) != QUERN_STORE_OPEN) return 1;
    if (!strstr(quern_message(), "forked")) return 2;
    if (cache_put(store, 9) != QUERN_STORE_OPEN) return 3;
    qn_sqlite_close(store);
    return 0;
}

static void fork_now(void *user)
{
    forking *f = user;

    f->result = cache_in_child(use_of_a_torn_session, f->store);
}

static void a_child_forked_inside_a_transaction_goes_without_a_database(void **state)
{
    forking f = {.result = -1};
    (void)state;

    fault_vfs_install();
    fault_vfs_set((fault_plan){0});
    make_five_rows();
    quern_store store = cache_open(file);
    f.store = &store;
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    fault_vfs_set((fault_plan){.kinds = FAULT_WRITE, .at = 3, .hook = fork_now, .user = &f});
    assert_int_equal(cache_put(&store, 6), QUERN_OK);
    fault_vfs_set((fault_plan){0});
    assert_int_equal(f.result, 0);
    assert_int_equal(cache_get(&store, 6), QUERN_OK);
    qn_sqlite_close(&store);
    check_sound(6);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(processes_that_open_a_fresh_database_at_once_all_store),
        TEST(threads_share_one_store),
        TEST(a_held_database_is_busy_and_not_broken),
        TEST(the_same_store_goes_on_when_the_lock_is_gone),
        TEST(a_hit_whose_use_cannot_be_noted_is_a_hit_without_waiting),
        TEST(a_child_has_a_connection_of_its_own_and_leaves_the_parents_alone),
        TEST(a_child_forked_inside_a_transaction_goes_without_a_database),
    };
    return fault_tests("a database held or made by others, a fork inside it", QN_COUNT(tests),
                       cmocka_run_group_tests(tests, NULL, NULL));
}
