// SPDX-License-Identifier: Apache-2.0
// Log lines: their form, where they go, and silence when nobody listens.
#include "base/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct heard {
    char line[8192];
    quern_log_level level;
    int count;
} heard;

static void hear(void *user, quern_log_level level, const char *line)
{
    heard *h = user;
    snprintf(h->line, sizeof h->line, "%s", line);
    h->level = level;
    h->count++;
}

static void a_line_is_part_level_text(void **state)
{
    heard h = {"", QUERN_LOG_ERROR, 0};
    qn_log log = {hear, &h};

    (void)state;
    qn_log_line(&log, "cache", QUERN_LOG_WARNING, "busy for %d ms", 5000);
    assert_string_equal(h.line, "cache,warning,busy for 5000 ms");
    assert_int_equal(h.level, QUERN_LOG_WARNING);
    qn_log_line(&log, "load", QUERN_LOG_DEBUG, "x");
    assert_string_equal(h.line, "load,debug,x");
    assert_int_equal(h.count, 2);
}

static void a_line_has_no_newline(void **state)
{
    heard h = {"", QUERN_LOG_ERROR, 0};
    qn_log log = {hear, &h};

    (void)state;
    qn_log_line(&log, "compile", QUERN_LOG_INFO, "tried:\n  a\r\n  b");
    assert_null(strpbrk(h.line, "\r\n"));
    assert_non_null(strstr(h.line, "tried:"));
}

static void a_very_long_line_is_cut_not_lost(void **state)
{
    static char text[20000];
    heard h = {"", QUERN_LOG_ERROR, 0};
    qn_log log = {hear, &h};

    (void)state;
    memset(text, 'z', sizeof text - 1);
    qn_log_line(&log, "compile", QUERN_LOG_INFO, "%s", text);
    assert_int_equal(h.count, 1);
    assert_true(strlen(h.line) > 1000 && strlen(h.line) < 8192);
}

static void nobody_listening_is_fine(void **state)
{
    qn_log log = {NULL, NULL};

    (void)state;
    qn_log_line(&log, "cache", QUERN_LOG_ERROR, "%s", "unheard");
    qn_log_line(NULL, "cache", QUERN_LOG_ERROR, "%s", "unheard");
}

// A sink whose reader went away, or whose file may not grow, costs the line and nothing else.
static void a_sink_that_fails_raises_no_signal(void **state)
{
    int ends[2];
    struct rlimit small = {16, RLIM_INFINITY};
    char name[] = "/tmp/quern-log-XXXXXX";

    (void)state;
    pid_t child = fork();
    if (child == 0) { // SIGPIPE and SIGXFSZ end a process
        qn_sink sink = {-1, 1u << QN_LOG_cache};
        qn_log log = {NULL, NULL, &sink};
        if (pipe(ends) || close(ends[0]) || close(STDERR_FILENO)) _exit(2);
        sink.fd = ends[1];
        qn_log_line(&log, "cache", QUERN_LOG_INFO, "nobody reads this");
        sink.fd = mkstemp(name);
        unlink(name);
        if (sink.fd < 0 || setrlimit(RLIMIT_FSIZE, &small)) _exit(3);
        for (int i = 0; i < 3; i++) qn_log_line(&log, "cache", QUERN_LOG_INFO, "this is longer than the file may be");
        sigset_t pending;
        _exit(sigpending(&pending) || !sigisemptyset(&pending) ? 4 : 0);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

// The lines of a file that takes none go to standard error; that is told once: here to the callback, else there too.
static void a_sink_that_fails_is_told_once_and_loses_nothing(void **state)
{
    (void)state;
    for (int has_callback = 0; has_callback < 2; has_callback++) {
        int ends[2], error = dup(STDERR_FILENO);
        char text[2048] = "";
        heard h = {"", QUERN_LOG_ERROR, 0};
        qn_sink sink = {open("/dev/full", O_WRONLY | O_CLOEXEC), 1u << QN_LOG_cache};
        qn_log log = {has_callback ? hear : NULL, &h, &sink};
        assert_true(sink.fd >= 0 && error >= 0 && !pipe(ends));
        fflush(stderr);
        dup2(ends[1], STDERR_FILENO);
        qn_log_line(&log, "cache", QUERN_LOG_INFO, "first");
        int told = h.count;
        qn_log_line(&log, "cache", QUERN_LOG_INFO, "second");
        dup2(error, STDERR_FILENO);
        close(ends[1]);
        assert_true(read(ends[0], text, sizeof text - 1) > 0);

        assert_non_null(strstr(text, ",cache,info,first\n"));
        assert_non_null(strstr(text, ",cache,info,second\n"));
        const char *warning = strstr(text, "log file: No space left on device");
        assert_true(has_callback ? !warning : warning && !strstr(warning + 1, "log file:"));
        assert_int_equal(told, has_callback ? 2 : 0); // the warning, then the line itself
        assert_int_equal(h.count, has_callback ? 3 : 0);
        close(ends[0]), close(sink.fd), close(error);
    }
}

static void a_sink_gets_the_parts_it_names_as_one_line_each(void **state)
{
    int ends[2];
    char text[512] = "";
    qn_sink sink = {-1, 1u << QN_LOG_cache | 1u << QN_LOG_launch};
    qn_log log = {NULL, NULL, &sink};

    (void)state;
    assert_int_equal(pipe(ends), 0);
    sink.fd = ends[1];
    assert_true(qn_log_wants(&log, "cache"));
    assert_false(qn_log_wants(&log, "compile"));
    qn_log_line(&log, "compile", QUERN_LOG_ERROR, "not this");
    qn_log_line(&log, "cache", QUERN_LOG_INFO, "this\nand that");
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_memory_equal(text, "quern,", 6);
    assert_non_null(strstr(text, ",cache,info,this and that\n"));
    assert_null(strstr(text, "not this"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void parts_are_parsed_and_a_bad_one_is_named(void **state)
{
    unsigned parts = 77;

    (void)state;
    assert_int_equal(qn_log_parse_parts("x", "cache,,launch,", &parts), QUERN_OK);
    assert_int_equal(parts, 1u << QN_LOG_cache | 1u << QN_LOG_launch);
    assert_int_equal(qn_log_parse_parts("x", "all", &parts), QUERN_OK);
    assert_int_equal(parts, 31);
    assert_int_equal(qn_log_parse_parts("x", NULL, &parts), QUERN_OK);
    assert_int_equal(parts, 0);
    parts = 77;
    assert_int_equal(qn_log_parse_parts("options.x", "cache,caches", &parts), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "options.x: \"caches\""));
    assert_int_equal(parts, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_part_level_text),
        cmocka_unit_test(a_line_has_no_newline),
        cmocka_unit_test(a_very_long_line_is_cut_not_lost),
        cmocka_unit_test(nobody_listening_is_fine),
        cmocka_unit_test(a_sink_gets_the_parts_it_names_as_one_line_each),
        cmocka_unit_test(a_sink_that_fails_raises_no_signal),
        cmocka_unit_test(a_sink_that_fails_is_told_once_and_loses_nothing),
        cmocka_unit_test(parts_are_parsed_and_a_bad_one_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
