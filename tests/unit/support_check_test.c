// SPDX-License-Identifier: Apache-2.0
// The judge itself (tests/support/check.h): each kind of wrong output is found, what the rules allow is let pass. And
// the list of cases: names are unique, the same case gives the same data.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/check.h"

static hostile_data data;
static qn_text report;

// Right outputs, to be spoilt.
static void make(const char *name)
{
    const hostile_case *c = hostile_case_named(name);
    assert_true(hostile_data_make(c, &data));
    assert_int_equal(quern_reference(&c->spec.base, &data.args.base), QUERN_OK);
    assert_int_equal(check_case(&data, &report), 0);
    assert_int_equal(report.length, 0);
}

static int cleanup(void **state)
{
    (void)state;
    hostile_data_free(&data);
    qn_text_fini(&report);
    report = (qn_text)QN_TEXT_INIT;
    return 0;
}

static void assert_found(const char *what)
{
    assert_true(check_case(&data, &report) > 0);
    if (!strstr(qn_text_string(&report), what)) fail_msg("'%s' is not in:\n%s", what, qn_text_string(&report));
    assert_non_null(strstr(qn_text_string(&report), data.c->text));
    assert_non_null(strstr(qn_text_string(&report), "QUERN_TEST_CASE="));
}

static void two_winners_in_the_wrong_order_are_found(void **state)
{
    (void)state;
    make("m1_normal");
    int32_t *indices = data.args.indices, first = indices[3 * 256 + 7];
    indices[3 * 256 + 7] = indices[3 * 256 + 8], indices[3 * 256 + 8] = first;
    assert_found("row 3: indices[7]");
}

static void a_probability_off_by_more_than_the_rule_is_found(void **state)
{
    (void)state;
    make("m1_two_values_k");
    data.args.values[5] *= 1 + 2e-6f;
    assert_found("row 0: values[5]");
}

static void a_probability_within_the_rule_passes(void **state)
{
    (void)state;
    make("m1_normal");
    for (int i = 0; i < 256; i++) data.args.values[i] *= 1 + 1.1e-6f;
    assert_int_equal(check_case(&data, &report), 0);
}

static void a_number_where_a_nan_belongs_is_found(void **state)
{
    (void)state;
    make("m1_nan_1");
    data.args.values[0] = 0;
    assert_found("row 0: values[0]");
}

static void a_nan_where_a_number_belongs_is_found(void **state)
{
    (void)state;
    make("m1_normal");
    data.args.lse[1] = NAN;
    assert_found("row 1: lse");
}

static void a_wrong_rank_or_token_value_is_found(void **state)
{
    (void)state;
    make("m1_tie_group");
    data.args.token_rank[1]++; // row 0's token is none, by its seed
    assert_found("row 1: token_rank");
    data.args.token_rank[1]--;
    data.args.token_value[1] -= 1e-4f;
    assert_found("token_value");
}

static void a_row_that_was_not_written_is_found(void **state)
{
    (void)state;
    make("m1_normal");
    memset(data.args.values + 2 * 256, HOSTILE_GUARD, 1024);
    memset((int32_t *)data.args.indices + 2 * 256, HOSTILE_GUARD, 1024);
    assert_found("row 2: indices[0]");
}

static void a_literal_that_the_reference_shares_the_error_of_is_found(void **state)
{
    (void)state;
    make("fr05_v512_5_256_k1_rows1");
    *(int32_t *)data.args.indices = 256;
    assert_found("the case says 5");
}

static void bytes_outside_the_outputs_are_found_on_either_side_and_between_rows(void **state)
{
    (void)state;
    make("fr02_v13_f32_base1_stride14"); // values_stride K + 1
    float *row_end = data.args.values + 13;
    for (int i = 0; i < 3; i++) {
        unsigned char *byte = i == 0   ? (unsigned char *)data.args.values - 1
                              : i == 1 ? (unsigned char *)row_end + 3
                                       : data.buffer[HOSTILE_INDICES].bytes + data.buffer[HOSTILE_INDICES].count - 1;
        *byte = 0;
        assert_found("was written");
        *byte = HOSTILE_GUARD;
        assert_int_equal(check_case(&data, &report), 0);
    }
}

static void names_are_unique_and_every_kind_of_run_has_cases(void **state)
{
    (void)state;
    size_t count, with[4] = {0};
    const hostile_case *cases = hostile_cases(&count);
    for (size_t i = 0; i < count; i++) {
        for (int tag = 0; tag < 4; tag++) with[tag] += cases[i].tags >> tag & 1;
        for (size_t j = 0; j < i; j++)
            if (strcmp(cases[i].name, cases[j].name) == 0) fail_msg("two cases are called %s", cases[i].name);
        assert_true(cases[i].tags != 0);
        assert_true(cases[i].tags != HOSTILE_LARGE || cases[i].period > 0);
    }
    for (int tag = 0; tag < 4; tag++) assert_true(with[tag] > 0);
}

static void the_same_case_gives_the_same_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        hostile_case first = hostile_draw(seed, false), second = hostile_draw(seed, false);
        hostile_data other;
        assert_string_equal(first.text, second.text);
        assert_true(hostile_data_make(&first, &data) && hostile_data_make(&second, &other));
        assert_int_equal(data.buffer[HOSTILE_LOGITS].count, other.buffer[HOSTILE_LOGITS].count);
        assert_memory_equal(data.buffer[HOSTILE_LOGITS].bytes, other.buffer[HOSTILE_LOGITS].bytes,
                            data.buffer[HOSTILE_LOGITS].count);
        hostile_data_free(&other);
        hostile_data_free(&data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(two_winners_in_the_wrong_order_are_found, cleanup),
        cmocka_unit_test_teardown(a_probability_off_by_more_than_the_rule_is_found, cleanup),
        cmocka_unit_test_teardown(a_probability_within_the_rule_passes, cleanup),
        cmocka_unit_test_teardown(a_number_where_a_nan_belongs_is_found, cleanup),
        cmocka_unit_test_teardown(a_nan_where_a_number_belongs_is_found, cleanup),
        cmocka_unit_test_teardown(a_wrong_rank_or_token_value_is_found, cleanup),
        cmocka_unit_test_teardown(a_row_that_was_not_written_is_found, cleanup),
        cmocka_unit_test_teardown(a_literal_that_the_reference_shares_the_error_of_is_found, cleanup),
        cmocka_unit_test_teardown(bytes_outside_the_outputs_are_found_on_either_side_and_between_rows, cleanup),
        cmocka_unit_test(names_are_unique_and_every_kind_of_run_has_cases),
        cmocka_unit_test(the_same_case_gives_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
