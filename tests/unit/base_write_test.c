// SPDX-License-Identifier: Apache-2.0
// Writes raise no signal: a closed pipe and a file size limit are errors, and signals that are the host's stay the host's.
#include "base/write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/signals.h"
#include "support/cache_fixture.h"

static char folder[64];
static volatile sig_atomic_t caught;

static void note(int number)
{
    caught = number;
}

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    caught = 0;
    signal(SIGPIPE, note);
    signal(SIGXFSZ, note);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    cache_folder_remove(folder);
    return 0;
}

static bool is_pending(int number)
{
    sigset_t pending;
    assert_int_equal(sigpending(&pending), 0);
    return sigismember(&pending, number) == 1;
}

static bool is_blocked(int number)
{
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    return sigismember(&mask, number) == 1;
}

static void what_is_written_is_whole(void **state)
{
    (void)state;
    char back[16] = "";
    int fd = open(cache_path(folder, "file"), O_RDWR | O_CREAT, 0600);
    assert_true(qn_write_all(fd, "twelve bytes", 12));
    assert_true(qn_write_all(fd, "", 0));
    assert_int_equal(pread(fd, back, sizeof back, 0), 12);
    assert_memory_equal(back, "twelve bytes", 12);
    close(fd);
    assert_false(is_blocked(SIGPIPE) || is_blocked(SIGXFSZ));
}

static void a_closed_pipe_is_an_error(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_false(qn_write_all(ends[1], "x", 1));
    assert_int_equal(errno, EPIPE);
    assert_int_equal(caught, 0);
    assert_false(is_pending(SIGPIPE));
    close(ends[1]);
}

static void a_file_size_limit_is_an_error(void **state)
{
    (void)state;
    struct rlimit before, small;
    char block[64] = {0};
    int fd = open(cache_path(folder, "file"), O_WRONLY | O_CREAT, 0600);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before, small.rlim_cur = 32;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool done = qn_write_all(fd, block, sizeof block);
    int error = errno;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_false(done);
    assert_int_equal(error, EFBIG);
    assert_int_equal(caught, 0);
    assert_false(is_pending(SIGXFSZ));
    close(fd);
}

// One that was pending before, blocked by the host, is not taken away; nor is one that is not ours to hold.
static void the_hosts_own_signals_stay(void **state)
{
    (void)state;
    sigset_t ours, old;
    qn_held_signals held;
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE), sigaddset(&ours, SIGXFSZ);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &ours, &old), 0);
    assert_int_equal(pthread_kill(pthread_self(), SIGXFSZ), 0);

    qn_signals_hold(&held, false);
    assert_int_equal(pthread_kill(pthread_self(), SIGPIPE), 0);
    errno = ENOENT;
    qn_signals_release(&held);

    assert_int_equal(errno, ENOENT);
    assert_true(is_pending(SIGXFSZ) && is_pending(SIGPIPE));
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0); // now they come
    assert_true(caught == SIGXFSZ || caught == SIGPIPE);
    assert_false(is_pending(SIGXFSZ) || is_pending(SIGPIPE));
}

static void a_signal_that_was_raised_meanwhile_is_taken_away(void **state)
{
    (void)state;
    qn_held_signals held;
    qn_signals_hold(&held, true);
    assert_true(is_blocked(SIGPIPE) && is_blocked(SIGXFSZ));
    assert_int_equal(pthread_kill(pthread_self(), SIGPIPE), 0);
    assert_int_equal(pthread_kill(pthread_self(), SIGXFSZ), 0);
    qn_signals_release(&held);
    assert_int_equal(caught, 0);
    assert_false(is_pending(SIGXFSZ) || is_pending(SIGPIPE));
    assert_false(is_blocked(SIGPIPE) || is_blocked(SIGXFSZ));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_whole),
        TEST(a_closed_pipe_is_an_error),
        TEST(a_file_size_limit_is_an_error),
        TEST(the_hosts_own_signals_stay),
        TEST(a_signal_that_was_raised_meanwhile_is_taken_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
