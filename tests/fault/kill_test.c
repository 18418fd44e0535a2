// SPDX-License-Identifier: Apache-2.0
// SIGKILL at every step of opening, looking up, compiling and storing. Between two system calls a process changes only
// its own memory, which dies with it: so a kill before each system call is a kill at every point. A tracing parent counts
// the calls and kills at the first, the second, … (what is torn within a call: cache_kill_test.c). Then the next process
// waits for nobody, finds a sound database and every row that was committed, and stores what is missing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/fault_count.h"
#include "support/fault_vfs.h"
#include "support/load.h"
#include "support/runtime_fixture.h"

enum { OLD = 1, NEW = 2, COMPILE_MS = 5, SYSCALL_STOP = SIGTRAP | 0x80, UNTRACEABLE = 77 };

static char folder[64], database[128];

static int set_up(void **state)
{
    (void)state;
    fault_vfs_install(); // without a plan, only for its sync that costs nothing
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

static void clear_folder(void)
{
    cache_folder_remove(folder);
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
}

// ---- the life that ends early

static int live(void *user)
{
    quern_options options = runtime_options(database, NULL);
    const qn_image *image;
    quern *q = NULL;
    (void)user;

    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) return UNTRACEABLE;
    raise(SIGSTOP);
    fake_nvrtc.delay_ms = COMPILE_MS; // it polls meanwhile: system calls in the middle of a compile
    if (quern_open(&options, &q)) return 1;
    if (runtime_obtain(q, OLD, "sm_90a", &image)) return 2; // where it exists, its last use is written
    if (runtime_obtain(q, NEW, "sm_90a", &image)) return 3;
    quern_close(q);
    return 0;
}

// Runs a child up to its n-th system call and kills it there. Its result: 0 when it came through first, 128 + SIGKILL.
static int kill_at(int64_t n)
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (!child) _exit(live(NULL));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status)) return WEXITSTATUS(status);
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
    for (int64_t stops = 0; WIFSTOPPED(status); stops++) { // a call stops twice, before and after
        if (stops == 2 * n) kill(child, SIGKILL);
        int pass = WSTOPSIG(status) == SYSCALL_STOP || WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
        if (pass) stops--;
        ptrace(PTRACE_SYSCALL, child, NULL, (void *)(intptr_t)pass);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// ---- afterwards

static void check(int64_t n, bool right, const char *claim)
{
    if (!right) fail_msg("killed at system call %lld: not so: %s (%s)", (long long)n, claim, quern_message());
}

static void check_next_process(int64_t n, bool had_old)
{
    quern_options options = runtime_options(database, NULL);
    quern_store store = cache_open(database);
    qn_verify_report report;
    const qn_image *image;

    check(n, qn_sqlite_verify(&store, NULL, NULL, &report) == QUERN_OK && report.structure_ok, "the database is sound");
    check(n, report.bad_key + report.bad_sum + report.bad_image == 0, "every row is whole");
    check(n, !had_old || report.entries >= 1, "rows that were committed are there");
    qn_sqlite_close(&store);
    long before = fake_nvrtc.compiles;
    quern *q = runtime_open(&options);
    check(n, runtime_obtain(q, OLD, "sm_90a", &image) == QUERN_OK, "the next process gets its kernel");
    check(n, runtime_obtain(q, NEW, "sm_90a", &image) == QUERN_OK, "and the other");
    check(n, fake_nvrtc.compiles - before == 2 - report.entries, "what was stored is not compiled again");
    quern_counters counters = runtime_counters(q);
    check(n, counters.flight_waits == 0, "it waits for nobody: the dead hold no lock");
    check(n, counters.put_failed + counters.get_failed + counters.bad_rows == 0, "it stores what was missing");
    quern_close(q);
}

static void begin_with_an_old_row(void)
{
    quern_options options = runtime_options(database, NULL);
    const qn_image *image;
    quern *q = runtime_open(&options);

    assert_int_equal(runtime_obtain(q, OLD, "sm_90a", &image), QUERN_OK);
    quern_close(q);
    cache_sql(database, "UPDATE kernel SET used=1"); // so that a hit writes
}

static void kill_everywhere(bool with_old_row, const char *kind)
{
    int64_t stride = load_is_sanitized() ? 17 : 1; // there a process costs much
    int result = -1;
    int64_t n = 1;

    for (; result; n += stride) {
        clear_folder();
        if (with_old_row) begin_with_an_old_row();
        fault_tried(kind);
        result = kill_at(n);
        if (result == UNTRACEABLE) {
            print_message("skipped: this system lets no process trace its child\n");
            skip();
        }
        check(n, result == 0 || result == 128 + SIGKILL, "the child was killed or came through");
        check_next_process(n, with_old_row);
        fault_survived(kind);
    }
    assert_true(n > 100);
}

static void killed_at_every_system_call_on_a_new_database(void **state)
{
    (void)state;
    kill_everywhere(false, "SIGKILL at a system call of open, compile, store; no database yet");
}

static void killed_at_every_system_call_on_a_database_in_use(void **state)
{
    (void)state;
    kill_everywhere(true, "SIGKILL at a system call of open, look-up, compile, store");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(killed_at_every_system_call_on_a_new_database),
        TEST(killed_at_every_system_call_on_a_database_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
