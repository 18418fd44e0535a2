// SPDX-License-Identifier: Apache-2.0
// What a process may run out of or wait for: file descriptors, a lock whose holder is stopped; and a clock that was set
// back or forward. The call gives the right result within its time limits, and goes on storing once it can.
// Linked with --wrap=time: the cache's clock comes through here.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/private.h"
#include "support/cache_fixture.h"
#include "support/fake_nvrtc.h"
#include "support/fault_count.h"
#include "support/runtime_fixture.h"

enum { BUSY_MS = 150, ROOM_MS = 20000, DAY_S = 86400 };

static char folder[64], database[128];

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    fake_nvrtc_install(13, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_nvrtc_remove();
    cache_folder_remove(folder);
    return 0;
}

static quern *open_here(void)
{
    quern_options options = runtime_options(database, NULL);
    quern *q = NULL;

    options.busy_timeout_ms = BUSY_MS;
    return quern_open(&options, &q) ? NULL : q;
}

static quern_status obtain(quern *q, int number)
{
    const qn_image *image;

    return runtime_obtain(q, number, "sm_90a", &image);
}

static int64_t stored(void)
{
    quern_store store = cache_open(database);
    qn_verify_report report;

    assert_int_equal(qn_sqlite_verify(&store, NULL, NULL, &report), QUERN_OK);
    assert_true(report.structure_ok);
    assert_int_equal(report.bad_key + report.bad_sum + report.bad_image, 0);
    qn_sqlite_close(&store);
    return report.entries;
}

// ---- file descriptors

// Leaves `count` descriptors to be opened; -1: as many as before.
static void leave_descriptors(int count)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (count < 0) return;
    int next = dup(0); // the lowest that is free, and all above it are
    close(next);
    limit.rlim_cur = (rlim_t)(next + count);
    setrlimit(RLIMIT_NOFILE, &limit);
}

typedef struct shortage {
    int left;
    bool is_late; // the databases are open already
} shortage;

// The same quern, within a few of its time limits: what could not be opened is tried again.
static bool stores_again(quern *q)
{
    for (int n = 3; n < 100; n++) {
        if (obtain(q, n)) return false;
        quern_store store = cache_open(database);
        int rows = cache_count(&store);
        qn_sqlite_close(&store);
        if (rows > 0) return true;
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    return false;
}

static int live_without_descriptors(void *user)
{
    const shortage *s = user;

    for (int fd = 3; fd < 256; fd++) close(fd);
    quern *q = open_here();
    if (s->is_late && (!q || obtain(q, 1))) return 1;
    leave_descriptors(s->left);
    if (!q || obtain(q, 1) || obtain(q, 2)) return 2;
    if (obtain(q, 2)) return 3;
    leave_descriptors(-1);
    return stores_again(q) ? (quern_close(q), 0) : 4;
}

static void without_descriptors_kernels_are_made_and_later_stored_again(void **state)
{
    static const char kind[] = "out of file descriptors";
    (void)state;

    for (int i = 0; i < 16; i++) {
        shortage s = {.left = i / 2, .is_late = i % 2};
        fault_tried(kind);
        unlink(database);
        int result = cache_in_child(live_without_descriptors, &s);
        if (result) fail_msg("%d descriptors left%s: ended with %d", s.left, s.is_late ? ", late" : "", result);
        assert_true(stored() >= 1);
        int64_t rows =
            cache_sql_int(database, "SELECT count(*) FROM kernel WHERE entry IN ('kernel_1','kernel_2','kernel_3')");
        quern *q = open_here();
        for (int n = 1; n <= 3; n++) assert_int_equal(obtain(q, n), QUERN_OK);
        assert_int_equal(fake_nvrtc.compiles, 3 - rows);
        fake_nvrtc.compiles = 0;
        quern_close(q);
        fault_survived(kind);
    }
}

// ---- a lock whose holder is stopped

static _Atomic int *held;

static void hold_and_stop(const char *begin)
{
    sqlite3 *db = NULL;

    if (sqlite3_open(database, &db) || sqlite3_exec(db, begin, NULL, NULL, NULL)) _exit(1);
    atomic_store(held, 1);
    raise(SIGSTOP);
    _exit(0); // the journal goes with the transaction
}

static pid_t start_holder(const char *begin)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (!child) hold_and_stop(begin);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status) && atomic_load(held));
    return child;
}

static void behind_a_stopped_process(const char *begin, bool reads)
{
    int status;
    quern *q = open_here();
    assert_int_equal(obtain(q, 1), QUERN_OK);
    quern_close(q);
    pid_t holder = start_holder(begin);

    q = open_here();
    int64_t from = qn_now_ms();
    assert_int_equal(obtain(q, 1), QUERN_OK);
    assert_int_equal(obtain(q, 2), QUERN_OK);
    assert_true(qn_now_ms() - from < ROOM_MS); // each wait has its limit, whatever the machine's load
    assert_int_equal(runtime_counters(q).hit_user, reads ? 1 : 0);
    assert_true(runtime_counters(q).put_failed > 0 || !reads);
    assert_int_equal(runtime_counters(q).bad_rows, 0);
    kill(holder, SIGCONT);
    assert_int_equal(waitpid(holder, &status, 0), holder);

    while (obtain(q, 3) == QUERN_OK && runtime_counters(q).put_failed &&
           stored() < 2) { // left alone for its time limit
        nanosleep(&(struct timespec){0, BUSY_MS * 1000000L}, NULL);
        quern_close(q);
        q = open_here();
    }
    quern_close(q);
    assert_true(stored() >= 2);
    q = open_here();
    long before = fake_nvrtc.compiles;
    assert_int_equal(obtain(q, 1), QUERN_OK);
    assert_int_equal(fake_nvrtc.compiles, before);
    quern_close(q);
}

static void a_stopped_process_that_holds_the_database_is_waited_for_up_to_the_limit(void **state)
{
    static const char kind[] = "a database locked by a stopped process";
    (void)state;

    held = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true((void *)held != MAP_FAILED);
    fault_tried(kind);
    behind_a_stopped_process("BEGIN IMMEDIATE; UPDATE kernel SET used=used", true);
    fault_survived(kind);
    unlink(database);
    fault_tried(kind);
    behind_a_stopped_process("BEGIN EXCLUSIVE", false);
    fault_survived(kind);
    munmap((void *)held, 4096);
}

// ---- the clock

static time_t shift; // what the clock is wrong by
static bool is_set;
static time_t set_to;

time_t __real_time(time_t *out);
time_t __wrap_time(time_t *out);
time_t __wrap_time(time_t *out)
{
    time_t now = is_set ? set_to : __real_time(NULL) + shift;

    if (out) *out = now;
    return now;
}

static int64_t used_of(int number)
{
    char sql[96];

    snprintf(sql, sizeof sql, "SELECT used FROM kernel WHERE entry='kernel_%d'", number);
    return cache_sql_int(database, sql);
}

static void after_a_change_of_the_clock(time_t by)
{
    quern *q = open_here();
    assert_int_equal(obtain(q, 1), QUERN_OK);
    quern_close(q);

    shift = by;
    long before = fake_nvrtc.compiles;
    q = open_here();
    assert_int_equal(obtain(q, 1), QUERN_OK); // old rows are hits
    assert_int_equal(fake_nvrtc.compiles, before);
    assert_int_equal(obtain(q, 2), QUERN_OK); // new ones are stored
    assert_int_equal(runtime_counters(q).put_failed, 0);
    quern_close(q);
    int64_t now = __wrap_time(NULL);
    assert_in_range((uint64_t)(used_of(1) - now + DAY_S), 0, 2 * DAY_S); // and "last used" follows the clock that is
    assert_in_range((uint64_t)(used_of(2) - now + DAY_S), 0, 2 * DAY_S);

    quern_store store = cache_open(database);
    int64_t removed, bytes;
    assert_int_equal(qn_sqlite_prune(&store, -1, now - 30 * DAY_S, &removed, &bytes), QUERN_OK);
    assert_int_equal(removed, 0); // what was just used is not old
    qn_sqlite_close(&store);
    assert_int_equal(stored(), 2);

    shift = 0; // and back again
    q = open_here();
    before = fake_nvrtc.compiles;
    assert_int_equal(obtain(q, 1), QUERN_OK);
    assert_int_equal(obtain(q, 2), QUERN_OK);
    assert_int_equal(fake_nvrtc.compiles, before);
    quern_close(q);
}

static void a_clock_set_back_or_forward_costs_no_row(void **state)
{
    static const char kind[] = "a clock set back or forward";
    static const time_t by[] = {-3600, -2 * DAY_S,  -365 * DAY_S,        -20LL * 365 * DAY_S,
                                3600,  400 * DAY_S, 5000LL * 365 * DAY_S};
    (void)state;

    for (size_t i = 0; i < QN_COUNT(by); i++) {
        fault_tried(kind);
        unlink(database);
        after_a_change_of_the_clock(by[i]);
        fault_survived(kind);
    }
}

// A machine without a battery starts at 0, and time() may say -1.
static void a_clock_that_was_never_set_costs_no_row(void **state)
{
    static const char kind[] = "a clock that was never set";
    static const time_t times[] = {0, 1, -1, INT64_MIN / 2, INT64_MAX / 2};
    (void)state;

    for (size_t i = 0; i < QN_COUNT(times); i++) {
        fault_tried(kind);
        unlink(database);
        fake_nvrtc.compiles = 0;
        is_set = true, set_to = times[i];
        quern *q = open_here();
        assert_int_equal(obtain(q, 1), QUERN_OK);
        assert_int_equal(runtime_counters(q).put_failed, 0);
        quern_close(q);
        q = open_here();
        assert_int_equal(obtain(q, 1), QUERN_OK);
        quern_close(q);
        is_set = false;
        q = open_here();
        assert_int_equal(obtain(q, 1), QUERN_OK);
        quern_close(q);
        assert_int_equal(fake_nvrtc.compiles, 1);
        assert_int_equal(stored(), 1);
        fault_survived(kind);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_descriptors_kernels_are_made_and_later_stored_again),
        TEST(a_stopped_process_that_holds_the_database_is_waited_for_up_to_the_limit),
        TEST(a_clock_set_back_or_forward_costs_no_row),
        TEST(a_clock_that_was_never_set_costs_no_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
