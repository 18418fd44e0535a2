// SPDX-License-Identifier: Apache-2.0
// See again.h.
#include "support/again.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"

const char *test_source(void)
{
    static char built[512];
    const char *given = getenv("QUERN_TEST_SOURCE");
    if (given) return given;
    snprintf(built, sizeof built, "%s", __FILE__); // tests/support/again.c
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(built, '/');
        if (slash) *slash = 0;
    }
    return qn_file_exists(built) ? built : ".";
}

// As a shell reads it.
static void put_word(qn_text *text, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:%@";
    if (*word && !word[strspn(word, plain)]) {
        qn_text_puts(text, word);
        return;
    }
    qn_text_puts(text, "'");
    for (; *word; word++) {
        if (*word == '\'')
            qn_text_puts(text, "'\\''");
        else
            qn_text_put(text, word, 1);
    }
    qn_text_puts(text, "'");
}

void test_again(const char *name, qn_text *report)
{
    static const char *const variables[] = {
        "QUERN_TEST_SOURCE", "QUERN_TEST_BUILD", "QUERN_TEMPLATES", "QUERN_NVRTC", "CXX",
        "QUERN_TEST_SEED",   "QUERN_TEST_QUICK", "QUERN_TEST_MSAN"};
    qn_text line = QN_TEXT_INIT;
    qn_text_puts(report, "    again: ");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        if (!value) continue;
        qn_text_putf(report, "%s=", variables[i]);
        put_word(report, value);
        qn_text_puts(report, " ");
    }
    qn_text_puts(report, "QUERN_TEST_CASE=");
    put_word(report, name);
    if (qn_file_read("/proc/self/cmdline", &line) == QUERN_OK)
        for (size_t at = 0; at < line.length; at += strlen(line.bytes + at) + 1) {
            qn_text_puts(report, " ");
            put_word(report, line.bytes + at);
        }
    qn_text_puts(report, "\n");
    qn_text_fini(&line);
}
