// SPDX-License-Identifier: Apache-2.0
// One compile a key among processes, and what happens when the process that compiles is killed or stopped.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/private.h"
#include "support/cache_fixture.h"
#include "support/fake_nvrtc.h"
#include "support/fault_count.h"
#include "support/runtime_fixture.h"

enum { PROCESSES = 32, KEYS = 20, FOREVER_MS = 600000, PATIENCE_S = 120 };

// What processes tell each other.
typedef struct board {
    _Atomic int compiles, begun, waits, timeouts, warnings, hits;
} board;

static char folder[64];
static char database[128];
static board *shared;

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    fake_nvrtc_install(13, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_nvrtc_remove();
    munmap(shared, sizeof *shared);
    cache_folder_remove(folder);
    return 0;
}

static int say_begun(void *user) // polled while a compile runs, and while another's is waited for
{
    atomic_store((_Atomic int *)user, 1);
    return 0;
}

static void add_up(const quern *q, const runtime_log *log)
{
    quern_counters counters = runtime_counters(q);
    atomic_fetch_add(&shared->compiles, (int)fake_nvrtc.compiles);
    atomic_fetch_add(&shared->waits, (int)counters.flight_waits);
    atomic_fetch_add(&shared->timeouts, (int)counters.flight_timeouts);
    atomic_fetch_add(&shared->hits, (int)counters.hit_user);
    atomic_fetch_add(&shared->warnings, log->count[QUERN_LOG_WARNING]);
}

typedef struct job {
    int first, count; // kernels
    int compile_ms, flight_ms;
    _Atomic int *begun;
} job;

static int run_job(const job *j)
{
    runtime_log log = RUNTIME_LOG_INIT;
    quern_options options = runtime_options(database, &log);
    const qn_image *image;
    int failed = 0;
    alarm(PATIENCE_S);
    fake_nvrtc_install(13, 0);
    fake_nvrtc.delay_ms = j->compile_ms;
    options.flight_timeout_ms = j->flight_ms;
    options.busy_timeout_ms = PATIENCE_S * 1000;
    options.cancel = j->begun ? say_begun : NULL;
    options.cancel_user = j->begun;
    quern *q = NULL;
    if (quern_open(&options, &q) != QUERN_OK) return 2;
    for (int i = 0; i < j->count; i++) {
        int number = (j->first + i) % KEYS;
        if (runtime_obtain(q, number, "sm_90a", &image) != QUERN_OK) failed = 1;
    }
    add_up(q, &log);
    quern_close(q);
    runtime_log_fini(&log);
    return failed;
}

static pid_t start(const job *j)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(run_job(j));
    return child;
}

static int rows(void)
{
    quern_store store = cache_open_read(database);
    int count = cache_count(&store);
    qn_sqlite_close(&store);
    return count;
}

static void thirty_two_processes_and_twenty_keys_make_twenty_compiles(void **state)
{
    (void)state;
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        job j = {.first = i * 3, .count = KEYS, .compile_ms = 10, .flight_ms = PATIENCE_S * 1000};
        children[i] = start(&j);
    }
    for (int i = 0; i < PROCESSES; i++) assert_int_equal(cache_child_end(children[i]), 0);

    assert_int_equal(shared->compiles, KEYS);
    assert_int_equal(shared->hits, PROCESSES * KEYS - KEYS);
    assert_int_equal(shared->warnings, 0);
    assert_int_equal(shared->timeouts, 0);
    assert_int_equal(rows(), KEYS);
}

static void one_who_waits_is_served_what_the_other_compiled(void **state)
{
    (void)state;
    job first = {.first = 1, .count = 1, .compile_ms = 300, .flight_ms = FOREVER_MS, .begun = &shared->begun};
    pid_t child = start(&first);
    cache_wait_until(&shared->begun, 1, PATIENCE_S);
    job second = {.first = 1, .count = 1, .flight_ms = FOREVER_MS};
    pid_t other = start(&second);

    assert_int_equal(cache_child_end(child), 0);
    assert_int_equal(cache_child_end(other), 0);

    assert_int_equal(shared->compiles, 1);
    assert_int_equal(shared->hits, 1);
    assert_int_equal(shared->waits, 1);
}

static void a_compile_of_another_key_is_not_waited_for(void **state)
{
    (void)state;
    job first = {.first = 1, .count = 1, .compile_ms = FOREVER_MS, .flight_ms = FOREVER_MS, .begun = &shared->begun};
    pid_t child = start(&first);
    cache_wait_until(&shared->begun, 1, PATIENCE_S);
    job second = {.first = 2, .count = 1, .flight_ms = FOREVER_MS};

    assert_int_equal(cache_child_end(start(&second)), 0);

    assert_int_equal(shared->waits, 0);
    kill(child, SIGKILL);
    cache_child_end(child);
}

// The second one waits with hardly any limit, so that only the first one's death can set it free.
static void the_death_of_the_compiling_process_frees_the_others(void **state)
{
    (void)state;
    _Atomic int *second_waits = &shared->hits; // free in this test
    job first = {.first = 1, .count = 1, .compile_ms = FOREVER_MS, .flight_ms = FOREVER_MS, .begun = &shared->begun};
    pid_t holder = start(&first);
    cache_wait_until(&shared->begun, 1, PATIENCE_S);
    job second = {.first = 1, .count = 1, .flight_ms = FOREVER_MS, .begun = second_waits};
    pid_t other = start(&second);
    cache_wait_until(second_waits, 1, PATIENCE_S);

    kill(holder, SIGKILL);

    assert_int_equal(cache_child_end(holder), 128 + SIGKILL);
    assert_int_equal(cache_child_end(other), 0);
    assert_int_equal(shared->compiles, 1); // the dead one did not live to count its own
    assert_int_equal(shared->waits, 1);
    assert_int_equal(shared->timeouts, 0);
    assert_int_equal(rows(), 1);
}

static void a_stopped_process_is_waited_for_up_to_the_limit(void **state)
{
    (void)state;
    job first = {.first = 1, .count = 1, .compile_ms = FOREVER_MS, .flight_ms = FOREVER_MS, .begun = &shared->begun};
    pid_t holder = start(&first);
    cache_wait_until(&shared->begun, 1, PATIENCE_S);
    kill(holder, SIGSTOP);
    job second = {.first = 1, .count = 1, .flight_ms = 150};

    assert_int_equal(cache_child_end(start(&second)), 0);

    assert_int_equal(shared->compiles, 1);
    assert_int_equal(shared->timeouts, 1);
    assert_int_equal(shared->warnings, 1);
    assert_int_equal(rows(), 1);
    kill(holder, SIGKILL);
    cache_child_end(holder);
}

static void without_a_flight_limit_nobody_waits(void **state)
{
    (void)state;
    job first = {.first = 1, .count = 1, .compile_ms = FOREVER_MS, .flight_ms = FOREVER_MS, .begun = &shared->begun};
    pid_t holder = start(&first);
    cache_wait_until(&shared->begun, 1, PATIENCE_S);
    job second = {.first = 1, .count = 1, .flight_ms = -1};

    assert_int_equal(cache_child_end(start(&second)), 0);

    assert_int_equal(shared->waits, 0);
    kill(holder, SIGKILL);
    cache_child_end(holder);
}

// A store that takes nothing: waiting for it would only make the processes take turns.
static void after_a_failed_put_nobody_takes_a_lock_until_one_works(void **state)
{
    (void)state;
    qn_hash hash = qn_hash_bytes("key", 3);
    qn_lock lock;
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    qn_process *process = qn_process_of(q);
    qn_process_open_stores(q, process);

    atomic_store(&process->put_fails, true);
    assert_int_equal(qn_lock_take(q, process, &hash, "key", &lock), QUERN_OK);
    assert_int_equal(lock.fd, -1);

    const qn_image *image;
    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_OK); // is put, and that works
    assert_int_equal(qn_lock_take(q, process, &hash, "key", &lock), QUERN_OK);
    assert_true(lock.fd >= 0);
    qn_lock_drop(q, &lock);
    quern_close(q);
}

static int cancel_once_waiting(void *user)
{
    return atomic_fetch_add((_Atomic int *)user, 1) > 3;
}

static void a_wait_for_another_process_can_be_cancelled(void **state)
{
    (void)state;
    const qn_image *image;
    job first = {.first = 1, .count = 1, .compile_ms = FOREVER_MS, .flight_ms = FOREVER_MS, .begun = &shared->begun};
    pid_t holder = start(&first);
    cache_wait_until(&shared->begun, 1, PATIENCE_S);
    _Atomic int asked = 0;
    quern_options options = runtime_options(database, NULL);
    options.flight_timeout_ms = FOREVER_MS;
    options.cancel = cancel_once_waiting;
    options.cancel_user = &asked;
    quern *q = runtime_open(&options);

    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_CANCELLED);

    assert_int_equal(fake_nvrtc.compiles, 0);
    kill(holder, SIGKILL);
    cache_child_end(holder);
    quern_close(q);
}

static void the_lock_file_is_private_and_empty_whatever_the_umask(void **state)
{
    (void)state;
    static const mode_t masks[] = {0, 0777};
    for (size_t i = 0; i < QN_COUNT(masks); i++) {
        char name[160];
        struct stat info;
        mode_t old = umask(masks[i]);
        job j = {.first = (int)i, .count = 1, .flight_ms = FOREVER_MS};
        int result = cache_child_end(start(&j));
        umask(old);

        assert_int_equal(result, 0);
        snprintf(name, sizeof name, "%s.lock", database);
        assert_int_equal(stat(name, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        assert_int_equal(info.st_size, 0);
        unlink(name);
    }
}

static void a_lock_file_that_cannot_be_opened_stops_nothing(void **state)
{
    (void)state;
    char name[160];
    job j = {.first = 1, .count = 2, .flight_ms = FOREVER_MS};
    snprintf(name, sizeof name, "%s.lock", database);
    assert_int_equal(symlink("/nowhere/else", name), 0);

    assert_int_equal(cache_child_end(start(&j)), 0);

    assert_int_equal(rows(), 2);
    assert_int_equal(access("/nowhere/else", F_OK), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(thirty_two_processes_and_twenty_keys_make_twenty_compiles),
        TEST(one_who_waits_is_served_what_the_other_compiled),
        TEST(a_compile_of_another_key_is_not_waited_for),
        TEST(the_death_of_the_compiling_process_frees_the_others),
        TEST(a_stopped_process_is_waited_for_up_to_the_limit),
        TEST(without_a_flight_limit_nobody_waits),
        TEST(after_a_failed_put_nobody_takes_a_lock_until_one_works),
        TEST(a_wait_for_another_process_can_be_cancelled),
        TEST(the_lock_file_is_private_and_empty_whatever_the_umask),
        TEST(a_lock_file_that_cannot_be_opened_stops_nothing),
    };
    return fault_tests("compiles of other processes: killed, stopped, cancelled, locks refused", QN_COUNT(tests),
                       cmocka_run_group_tests(tests, NULL, NULL));
}
