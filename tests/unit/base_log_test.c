// SPDX-License-Identifier: Apache-2.0
// Log lines: their form, and silence when nobody listens.
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_part_level_text),
        cmocka_unit_test(a_line_has_no_newline),
        cmocka_unit_test(a_very_long_line_is_cut_not_lost),
        cmocka_unit_test(nobody_listening_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
