// SPDX-License-Identifier: Apache-2.0
// The text builder, and numbers as text in any locale.
#include "base/text.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void an_empty_text_is_an_empty_string(void **state)
{
    qn_text text = QN_TEXT_INIT;

    (void)state;
    assert_string_equal(qn_text_string(&text), "");
    assert_int_equal(qn_text_check(&text), QUERN_OK);
    qn_text_put(&text, "", 0);
    assert_string_equal(text.bytes, "");
    qn_text_fini(&text);
}

static void puts_append_and_end_in_a_zero(void **state)
{
    qn_text text = QN_TEXT_INIT;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        qn_text_putf(&text, "%d,", i);
        assert_int_equal(strlen(text.bytes), text.length);
    }
    assert_int_equal(text.length, 10 * 2 + 90 * 3 + 900 * 4);
    assert_memory_equal(text.bytes + text.length - 8, "998,999,", 8);
    qn_text_clear(&text);
    assert_string_equal(qn_text_string(&text), "");
    qn_text_put(&text, "a\0b", 3);
    assert_int_equal(text.length, 3);
    assert_memory_equal(text.bytes, "a\0b", 4);
    qn_text_fini(&text);
    assert_null(text.bytes);
}

static void a_failed_put_is_remembered_and_checked_once(void **state)
{
    qn_text text = QN_TEXT_INIT;

    (void)state;
    qn_text_puts(&text, "kept");
    text.length = SIZE_MAX - 2; // no room can be made for more than that
    qn_text_puts(&text, "12345");
    assert_true(text.failed);
    text.length = 4;
    qn_text_puts(&text, "more");
    assert_string_equal(text.bytes, "kept");
    assert_int_equal(qn_text_check(&text), QUERN_OUT_OF_MEMORY);
    assert_non_null(strstr(quern_message(), "memory"));
    qn_text_fini(&text);
}

static void strdup_copies_and_keeps_null(void **state)
{
    (void)state;
    assert_null(qn_strdup(NULL));
    char *copy = qn_strdup("abc");
    assert_string_equal(copy, "abc");
    free(copy);
}

// ---- integers

static void integers_are_read_whole_or_not_at_all(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"42", 42},
        {"-7", -7},
        {"0x1f", 31},
        {"-0xFF", -255},
        {"007", 7},
        {"2097152", 2097152},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"0x7fffffffffffffff", INT64_MAX},
        {"-0x8000000000000000", INT64_MIN},
    };
    static const char *const bad[] = {"",
                                      "-",
                                      "--1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "1e3",
                                      "0x",
                                      "0xg",
                                      "12a",
                                      "0b1",
                                      "１",
                                      "1_0",
                                      "1,0",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "0x8000000000000000",
                                      "99999999999999999999999"};
    int64_t value;

    (void)state;
    for (size_t i = 0; i < QN_COUNT(good); i++) {
        assert_true(qn_parse_int(good[i].text, &value));
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < QN_COUNT(bad); i++) {
        value = 77;
        if (qn_parse_int(bad[i], &value)) fail_msg("'%s' was read as %lld", bad[i], (long long)value);
        assert_true(value == 77);
    }
}

// ---- reals

static void assert_written(double value, const char *wanted)
{
    qn_text text = QN_TEXT_INIT;
    qn_text_put_real(&text, value);
    assert_string_equal(qn_text_string(&text), wanted);
    qn_text_fini(&text);
}

static void reals_are_written_as_short_as_they_read_back(void **state)
{
    (void)state;
    assert_written(0.1, "0.1");
    assert_written(1, "1");
    assert_written(-2.5, "-2.5");
    assert_written(0.0, "0");
    assert_written(-0.0, "-0");
    assert_written(1.0 / 3, "0.3333333333333333");
    assert_written(0.1 + 0.2, "0.30000000000000004");
    assert_written(1e300, "1e+300");
    assert_written(DBL_MAX, "1.7976931348623157e+308");
    assert_written(5e-324, "5e-324");
    assert_written((double)INFINITY, "inf");
    assert_written(-(double)INFINITY, "-inf");
    assert_written((double)NAN, "nan");
}

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void every_real_reads_back_to_its_bits(void **state)
{
    uint64_t seed = 0x9E3779B97F4A7C15u;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = next_random(&seed);
        double value, back = 0;
        qn_text text = QN_TEXT_INIT;
        if (i % 4 == 0) bits &= 0x800FFFFFFFFFFFFFu; // subnormals
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        qn_text_put_real(&text, value);
        assert_true(qn_parse_real(text.bytes, &back));
        if (memcmp(&back, &value, sizeof value)) fail_msg("%s (seed step %d) does not read back", text.bytes, i);
        qn_text_fini(&text);
    }
}

static void reals_are_read_whole_or_not_at_all(void **state)
{
    static const char *const bad[] = {"",         "-",     ".",      "e5",     "1e",    "1e+",    "+1",  " 1",
                                      "1 ",       "0x1p3", "1,5",    "1.2.3",  "1e5.0", "nan(1)", "NAN", "INF",
                                      "infinity", "1e999", "-1e999", "1e-999", "1f",    "--1"};
    double value;

    (void)state;
    assert_true(qn_parse_real("1.5e-3", &value) && value == 1.5e-3);
    assert_true(qn_parse_real(".5", &value) && value == .5);
    assert_true(qn_parse_real("5.", &value) && value == 5);
    assert_true(qn_parse_real("-0", &value) && value == 0 && signbit(value));
    assert_true(qn_parse_real("0e-999", &value) && value == 0);
    assert_true(qn_parse_real("inf", &value) && isinf(value) && value > 0);
    assert_true(qn_parse_real("-inf", &value) && isinf(value) && value < 0);
    assert_true(qn_parse_real("nan", &value) && isnan(value));
    for (size_t i = 0; i < QN_COUNT(bad); i++) {
        value = 77;
        if (qn_parse_real(bad[i], &value)) fail_msg("'%s' was read as a real", bad[i]);
        assert_true(value == 77);
    }
}

// A locale whose decimal point is no '.'; LOCPATH may name the folder of one that was made by localedef.
static const char *set_comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",  "fr_FR.UTF-8", "fr_FR.utf8",
                                        "ru_RU.UTF-8", "es_ES.UTF-8", "de_DE"};

    for (size_t i = 0; i < QN_COUNT(names); i++) {
        if (setlocale(LC_ALL, names[i]) && strcmp(localeconv()->decimal_point, ".")) return names[i];
    }
    setlocale(LC_ALL, "C");
    return NULL;
}

static void reals_do_not_depend_on_the_locale(void **state)
{
    double value = 0;
    char shown[32];
    const char *name = set_comma_locale();

    (void)state;
    if (!name) {
        print_message("no locale with a decimal comma is installed: nothing to test\n");
        skip();
    }
    snprintf(shown, sizeof shown, "%.1f", 0.5);
    assert_string_equal(shown, "0,5");
    assert_written(0.5, "0.5");
    assert_written(-1234567.25, "-1234567.25");
    assert_written(5e-324, "5e-324");
    assert_true(qn_parse_real("0.30000000000000004", &value) && value == 0.1 + 0.2);
    assert_false(qn_parse_real("0,5", &value));
    assert_string_equal(setlocale(LC_ALL, NULL), name);
    setlocale(LC_ALL, "C");
}

static void what_is_no_text_becomes_a_question_mark(void **state)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"", ""},
        {"plain, \n and \t", "plain, \n and \t"},
        {"é … 😀 \xC2\xA0", "é … 😀 \xC2\xA0"}, // of two, three and four bytes; a blank that is no control
        {"a\x1b[2Jb\rc\x01\x7F", "a?[2Jb?c??"},
        {"\xC2\x80 \xC2\x9B"
         "31m \xC2\x9F",
         "? ?31m ?"}, // controls of two bytes
        {"\xFF\xFE \x80 \xBF", "?? ? ?"},
        {"\xC0\x80 \xC1\xBF", "?? ??"},             // longer than needed
        {"\xE0\x80\xAF", "???"},                    //
        {"\xF0\x80\x80\x80", "????"},               //
        {"\xED\xA0\x80", "???"},                    // a surrogate
        {"\xF4\x90\x80\x80", "????"},               // beyond U+10FFFF
        {"\xF8\x88\x80\x80\x80", "?????"},          //
        {"cut \xE2\x80", "cut ??"},                 // at its end
        {"\xE2\x80\xE2\x80\xA6", "??\xE2\x80\xA6"}, // a good one behind it is kept
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i].from);
        qn_make_printable(text);
        if (strcmp(text, cases[i].to)) fail_msg("case %zu: '%s' is not '%s'", i, text, cases[i].to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_text_is_an_empty_string),
        cmocka_unit_test(puts_append_and_end_in_a_zero),
        cmocka_unit_test(a_failed_put_is_remembered_and_checked_once),
        cmocka_unit_test(strdup_copies_and_keeps_null),
        cmocka_unit_test(integers_are_read_whole_or_not_at_all),
        cmocka_unit_test(reals_are_written_as_short_as_they_read_back),
        cmocka_unit_test(every_real_reads_back_to_its_bits),
        cmocka_unit_test(reals_are_read_whole_or_not_at_all),
        cmocka_unit_test(reals_do_not_depend_on_the_locale),
        cmocka_unit_test(what_is_no_text_becomes_a_question_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
