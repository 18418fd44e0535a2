// SPDX-License-Identifier: Apache-2.0
// Statuses and this thread's message.
#include "base/status.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void every_status_has_a_name_and_a_text(void **state)
{
    (void)state;
#define X(name, code, text)                                                                                            \
    assert_int_equal(QUERN_##name, code);                                                                              \
    assert_string_equal(quern_status_name(QUERN_##name), #name);                                                       \
    assert_string_equal(quern_status_text(QUERN_##name), text);
    QUERN_STATUS_LIST(X)
#undef X
}

static void a_number_that_is_no_status_is_unknown(void **state)
{
    (void)state;
    assert_string_equal(quern_status_name((quern_status)68), "UNKNOWN");
    assert_string_equal(quern_status_name((quern_status)-1), "UNKNOWN");
    assert_non_null(quern_status_text((quern_status)12345));
}

static void the_version_is_the_headers(void **state)
{
    char wanted[32];

    (void)state;
    snprintf(wanted, sizeof wanted, "%d.%d.%d", QUERN_VERSION_MAJOR, QUERN_VERSION_MINOR, QUERN_VERSION_PATCH);
    assert_string_equal(quern_version(), wanted);
}

static void fail_returns_the_status_and_sets_the_message(void **state)
{
    (void)state;
    assert_int_equal(qn_fail(QUERN_BAD_VALUE, "K = %d: allowed are 1 … 5", 7), QUERN_BAD_VALUE);
    assert_string_equal(quern_message(), "K = 7: allowed are 1 … 5");
}

static void fail_in_puts_its_text_before_the_message(void **state)
{
    (void)state;
    qn_fail(QUERN_BAD_VALUE, "K = 7");
    assert_int_equal(qn_fail_in(QUERN_CONFLICT, "spec '%s'", "x"), QUERN_CONFLICT);
    assert_string_equal(quern_message(), "spec 'x': K = 7");
}

static void a_new_message_may_quote_the_old_one(void **state)
{
    (void)state;
    qn_fail(QUERN_FILE_ERROR, "inner");
    qn_fail(QUERN_BAD_TEMPLATE, "outer (%s) and %s", quern_message(), quern_message());
    assert_string_equal(quern_message(), "outer (inner) and inner");
}

static void a_long_message_is_cut_at_a_whole_character(void **state)
{
    static char text[3 * QN_MESSAGE_BYTES];

    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', shift);
        for (size_t at = shift; at + 3 < sizeof text; at += 3) memcpy(text + at, "…", 4);
        qn_fail(QUERN_INTERNAL, "%s", text);
        size_t length = strlen(quern_message());
        assert_true(length < QN_MESSAGE_BYTES && length > QN_MESSAGE_BYTES - 8);
        assert_string_equal(quern_message() + length - 3, "…");
        assert_memory_equal(quern_message(), text, shift);
        assert_int_equal((length - shift) % 3, 0); // whole characters only
        qn_fail_in(QUERN_INTERNAL, "prefix");
        assert_memory_equal(quern_message(), "prefix: ", 8);
        assert_true(strlen(quern_message()) < QN_MESSAGE_BYTES);
    }
}

static void a_message_steers_no_terminal_and_is_utf8(void **state)
{
    (void)state;
    qn_fail(QUERN_UNKNOWN_FIELD, "no field '%s' in\n\t…", "\xff\x1b[31m\x7f");
    assert_string_equal(quern_message(), "no field '??[31m?' in\n\t…");
    qn_fail_in(QUERN_BAD_FILE, "%s", "b\xff\r.txt");
    assert_string_equal(quern_message(), "b??.txt: no field '??[31m?' in\n\t…");
}

static void a_saved_message_comes_back_whole(void **state)
{
    static char text[3000];
    qn_message_mark mark;

    (void)state;
    memset(text, 'y', sizeof text - 1);
    qn_fail(QUERN_COMPILE_FAILED, "%s", text);
    qn_message_save(&mark);
    qn_fail(QUERN_STORE_BUSY, "not the caller's");
    qn_message_restore(&mark);
    assert_string_equal(quern_message(), text);
}

static void *other_thread(void *user)
{
    *(int *)user = quern_message()[0] == 0;
    qn_fail(QUERN_INTERNAL, "the other thread's");
    return NULL;
}

static void a_message_is_its_threads_own(void **state)
{
    pthread_t thread;
    int empty = 0;

    (void)state;
    qn_fail(QUERN_BAD_VALUE, "mine");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &empty), 0);
    pthread_join(thread, NULL);

    assert_true(empty);
    assert_string_equal(quern_message(), "mine");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_a_text),
        cmocka_unit_test(a_number_that_is_no_status_is_unknown),
        cmocka_unit_test(the_version_is_the_headers),
        cmocka_unit_test(fail_returns_the_status_and_sets_the_message),
        cmocka_unit_test(fail_in_puts_its_text_before_the_message),
        cmocka_unit_test(a_new_message_may_quote_the_old_one),
        cmocka_unit_test(a_long_message_is_cut_at_a_whole_character),
        cmocka_unit_test(a_message_steers_no_terminal_and_is_utf8),
        cmocka_unit_test(a_saved_message_comes_back_whole),
        cmocka_unit_test(a_message_is_its_threads_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
