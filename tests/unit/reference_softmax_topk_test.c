// SPDX-License-Identifier: Apache-2.0
// src/reference/softmax_topk.c against results worked out by hand: field reports, and each sentence of the contract
// (quern.h section 7) that has a number in it. And its refusals.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "support/check.h"

enum { MOST = 16 };

// One call on up to MOST rows of up to MOST f32 logits, with room for every output.
typedef struct call {
    quern_softmax_topk_spec spec;
    quern_softmax_topk_args args;
    float logits[MOST * MOST], temperature[MOST], values[MOST * MOST], lse[MOST], token_value[MOST];
    int32_t token[MOST], indices[MOST * MOST], token_rank[MOST];
} call;

static call make_call(int64_t V, int64_t K, const float *row)
{
    call c = {.spec = QUERN_SOFTMAX_TOPK_SPEC_INIT, .args = QUERN_SOFTMAX_TOPK_ARGS_INIT};
    c.spec.V = V, c.spec.K = K, c.spec.in = QUERN_F32, c.spec.lse = 1;
    c.args.rows = 1;
    memcpy(c.logits, row, (size_t)V * sizeof *row);
    return c;
}

static void run(call *c)
{
    c->args.logits = c->logits, c->args.temperature = c->temperature, c->args.token = c->token;
    c->args.values = c->values, c->args.indices = c->indices, c->args.lse = c->lse;
    c->args.token_value = c->token_value, c->args.token_rank = c->token_rank;
    if (quern_reference(&c->spec.base, &c->args.base) != QUERN_OK) fail_msg("%s", quern_message());
}

static void assert_floats(const float *got, const float *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool same =
            isnan(want[i]) ? isnan(got[i]) : got[i] == want[i] || fabsf(got[i] - want[i]) <= 1.2e-7f * fabsf(want[i]);
        if (!same) fail_msg("[%zu] = %.9g, must be %.9g", i, got[i], want[i]);
    }
}

#define FLOATS(...) (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float)

static void the_field_reports_have_their_right_values(void **state)
{
    (void)state;
    size_t count, literal = 0;
    const hostile_case *cases = hostile_cases(&count);
    qn_text report = QN_TEXT_INIT;
    for (size_t i = 0; i < count; i++) {
        const hostile_case *c = &cases[i];
        if (!c->expect || !hostile_wanted(c, HOSTILE_MODEL | HOSTILE_GPU)) continue;
        hostile_data data;
        assert_true(hostile_data_make(c, &data));
        assert_int_equal(quern_reference(&c->spec.base, &data.args.base), QUERN_OK);
        literal++;
        if (check_case(&data, &report)) fail_msg("%s", qn_text_string(&report));
        hostile_data_free(&data);
    }
    if (!getenv("QUERN_TEST_CASE")) assert_true(literal > 60);
}

// FR04 needs 4 GB as it stands: its rows one at a time here.
static void rows_past_2_31_elements_have_their_right_values(void **state)
{
    (void)state;
    size_t count;
    const hostile_case *cases = hostile_cases(&count);
    for (size_t i = 0; i < count; i++) {
        const hostile_case *c = &cases[i];
        if (strcmp(c->name, "fr04_stride_past_2_31") != 0) continue;
        uint16_t logits[1024];
        float values[4];
        int32_t indices[4];
        qn_text report = QN_TEXT_INIT;
        quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
        args.rows = 1, args.logits = logits, args.values = values, args.indices = indices;
        for (int64_t row = 0; row < 3; row++) {
            hostile_row(c, row, logits);
            assert_int_equal(quern_reference(&c->spec.base, &args.base), QUERN_OK);
            assert_float_equal(values[3], 96 + row, 0);
            if (check_case_row(c, row, &args, &report)) fail_msg("%s", qn_text_string(&report));
        }
        return;
    }
    fail_msg("the case is gone from the list");
}

// exp(0), exp(-1), exp(-2) over 1 + e^-1 + e^-2 = 1.5032147244080551
static void probabilities_and_lse_of_three_logits(void **state)
{
    (void)state;
    call c = make_call(3, 3, (const float[]){1, 3, 2});
    run(&c);
    assert_memory_equal(c.indices, ((const int32_t[]){1, 2, 0}), 12);
    assert_floats(c.values, FLOATS(0.66524096f, 0.24472847f, 0.090030573f));
    assert_floats(c.lse, FLOATS(3.4076059f));
}

static void norm_topk_shares_the_mass_among_the_kept(void **state)
{
    (void)state;
    call c = make_call(3, 2, (const float[]){1, 3, 2});
    c.spec.norm = QUERN_NORM_TOPK;
    run(&c);
    assert_floats(c.values, FLOATS(0.73105858f, 0.26894142f));
    assert_floats(c.lse, FLOATS(3.4076059f)); // over all V all the same
}

static void temperature_scales_the_distance_to_the_maximum(void **state)
{
    (void)state;
    call c = make_call(2, 2, (const float[]){5, 3});
    c.spec.temperature = 1, c.temperature[0] = 2;
    run(&c);
    assert_floats(c.values, FLOATS(0.73105858f, 0.26894142f));
    assert_floats(c.lse, FLOATS(2.8132617f)); // 5 / 2 + ln(1 + e^-1)
}

static void at_temperature_zero_the_tied_maxima_share_the_mass(void **state)
{
    (void)state;
    call c = make_call(5, 4, (const float[]){7, 1, 7, -INFINITY, 7});
    c.spec.temperature = 1, c.spec.token = 1;
    c.temperature[0] = -0.0f, c.token[0] = 4;
    run(&c);
    assert_memory_equal(c.indices, ((const int32_t[]){0, 2, 4, 1}), 16);
    assert_floats(c.values, FLOATS(1 / 3.0f, 1 / 3.0f, 1 / 3.0f, 0));
    assert_floats(c.lse, FLOATS(NAN));
    assert_floats(c.token_value, FLOATS(-1.0986123f));
    assert_int_equal(c.token_rank[0], 2);

    c.spec.norm = QUERN_NORM_TOPK, c.spec.K = 2, c.spec.value = QUERN_VALUE_LOGPROB;
    run(&c);
    assert_floats(c.values, FLOATS(-0.69314718f, -0.69314718f)); // two of the three are kept
    assert_floats(c.token_value, FLOATS(-1.0986123f));           // over all V
}

static void a_negative_or_nan_temperature_spoils_values_and_lse_but_not_indices(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        call c = make_call(3, 2, (const float[]){1, 3, 2});
        c.spec.temperature = 1, c.spec.token = 1;
        c.temperature[0] = i ? NAN : -1, c.token[0] = 0;
        run(&c);
        assert_memory_equal(c.indices, ((const int32_t[]){1, 2}), 8);
        assert_floats(c.values, FLOATS(NAN, NAN));
        assert_floats(c.lse, FLOATS(NAN));
        assert_floats(c.token_value, FLOATS(NAN));
        assert_int_equal(c.token_rank[0], 2);

        c.spec.value = QUERN_VALUE_LOGIT;
        run(&c);
        assert_floats(c.values, FLOATS(3, 2));
    }
}

static void extreme_temperatures_keep_the_limit(void **state)
{
    (void)state;
    call c = make_call(3, 3, (const float[]){1, 3, -INFINITY});
    c.spec.temperature = 1;
    c.temperature[0] = 1e-45f;
    run(&c);
    assert_floats(c.values, FLOATS(1, 0, 0));
    assert_floats(c.lse, FLOATS(INFINITY)); // 3 / T is past f32
    c.temperature[0] = INFINITY;
    run(&c);
    assert_floats(c.values, FLOATS(0.5f, 0.5f, 0)); // a -inf keeps probability 0
    assert_floats(c.lse, FLOATS(0.69314718f));
}

static void an_infinity_or_a_nan_makes_the_rows_probabilities_nan(void **state)
{
    (void)state;
    const float rows[][3] = {{1, INFINITY, 2}, {1, -NAN, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
    const int32_t order[][3] = {{1, 2, 0}, {1, 2, 0}, {0, 1, 2}};
    const float lse[] = {INFINITY, NAN, -INFINITY};
    for (int i = 0; i < 3; i++) {
        for (int value = QUERN_VALUE_PROB; value <= QUERN_VALUE_LOGPROB; value++) {
            call c = make_call(3, 3, rows[i]);
            c.spec.value = (quern_value)value;
            run(&c);
            assert_memory_equal(c.indices, order[i], 12);
            assert_floats(c.values, FLOATS(NAN, NAN, NAN));
            assert_floats(c.lse, &lse[i], 1);
        }
    }
}

static void the_raw_logit_comes_back_bit_for_bit(void **state)
{
    (void)state;
    call c = make_call(4, 4, (const float[]){-0.0f, 0x1p-149f, INFINITY, -2.5f});
    c.spec.value = QUERN_VALUE_LOGIT;
    run(&c);
    assert_memory_equal(c.values, ((const float[]){INFINITY, 0x1p-149f, -0.0f, -2.5f}), 16);
}

static void tokens_have_the_rank_of_the_order_and_the_log_probability_over_all(void **state)
{
    (void)state;
    const int32_t tokens[] = {0, 1, 2, 3, -1, 4, INT32_MIN, INT32_MAX}, ranks[] = {1, 0, 2, 3, -1, -1, -1, -1};
    call c = make_call(4, 1, (const float[]){2, 3, 2, -INFINITY});
    c.spec.token = 1, c.spec.value = QUERN_VALUE_LOGIT, c.spec.norm = QUERN_NORM_TOPK;
    c.args.rows = QN_COUNT(tokens);
    for (size_t i = 0; i < QN_COUNT(tokens); i++) memcpy(c.logits + 4 * i, c.logits, 16), c.token[i] = tokens[i];
    run(&c);
    assert_memory_equal(c.token_rank, ranks, sizeof ranks);
    assert_floats(c.token_value, FLOATS(-1.5514447f, -0.55144471f, -1.5514447f, -INFINITY, NAN, NAN, NAN, NAN));
}

static void strides_step_over_what_is_between_rows_and_leave_it_alone(void **state)
{
    (void)state;
    call c = make_call(8, 1, (const float[]){1, 2, 9, 9, 5, 4, 9, 9});
    c.spec.V = 2, c.spec.K = 1;
    c.args.rows = 2, c.args.logits_stride_rows = 4, c.args.values_stride_rows = 3, c.args.indices_stride_rows = 2;
    memset(c.values, 0xA5, sizeof c.values), memset(c.indices, 0xA5, sizeof c.indices);
    run(&c);
    const int32_t indices[] = {1, (int32_t)0xA5A5A5A5, 0, (int32_t)0xA5A5A5A5};
    assert_memory_equal(c.indices, indices, sizeof indices);
    assert_memory_equal(&c.values[1], &c.values[4], 8); // both still guard bytes
    assert_floats(&c.values[3], FLOATS(0.73105858f));
}

// ---- refusals

// Breaks one thing about a good call; the status that must follow.
typedef struct refusal {
    const char *name;
    quern_status status;
    void (*breaks)(call *c);
} refusal;

static void null_logits(call *c)
{
    c->args.logits = NULL;
}
static void null_temperature(call *c)
{
    c->args.temperature = NULL;
}
static void null_token(call *c)
{
    c->args.token = NULL;
}
static void null_values(call *c)
{
    c->args.values = NULL;
}
static void null_indices(call *c)
{
    c->args.indices = NULL;
}
static void null_lse(call *c)
{
    c->args.lse = NULL;
}
static void null_token_value(call *c)
{
    c->args.token_value = NULL;
}
static void null_token_rank(call *c)
{
    c->args.token_rank = NULL;
}
static void short_logits_stride(call *c)
{
    c->args.logits_stride_rows = c->spec.V - 1;
}
static void negative_logits_stride(call *c)
{
    c->args.logits_stride_rows = -c->spec.V;
}
static void short_values_stride(call *c)
{
    c->args.values_stride_rows = c->spec.K - 1;
}
static void short_indices_stride(call *c)
{
    c->args.indices_stride_rows = 1;
}
static void negative_rows(call *c)
{
    c->args.rows = -1;
}
static void too_many_rows(call *c)
{
    c->args.rows = (int64_t)INT32_MAX + 1;
}
static void misaligned_logits(call *c)
{
    c->args.logits = (const char *)c->logits + 1;
}
static void misaligned_values(call *c)
{
    c->args.values = (float *)(void *)((char *)c->values + 2);
}
static void another_family(call *c)
{
    c->args.base.family = "gate";
}

static const refusal refusals[] = {
    {"logits", QUERN_MISSING_ARGUMENT, null_logits},
    {"temperature", QUERN_MISSING_ARGUMENT, null_temperature},
    {"token", QUERN_MISSING_ARGUMENT, null_token},
    {"values", QUERN_MISSING_ARGUMENT, null_values},
    {"indices", QUERN_MISSING_ARGUMENT, null_indices},
    {"lse", QUERN_MISSING_ARGUMENT, null_lse},
    {"token_value", QUERN_MISSING_ARGUMENT, null_token_value},
    {"token_rank", QUERN_MISSING_ARGUMENT, null_token_rank},
    {"logits_stride_rows", QUERN_BAD_STRIDE, short_logits_stride},
    {"logits_stride_rows", QUERN_BAD_STRIDE, negative_logits_stride},
    {"values_stride_rows", QUERN_BAD_STRIDE, short_values_stride},
    {"indices_stride_rows", QUERN_BAD_STRIDE, short_indices_stride},
    {"rows", QUERN_BAD_SIZE, negative_rows},
    {"rows", QUERN_BAD_SIZE, too_many_rows},
    {"logits", QUERN_MISALIGNED, misaligned_logits},
    {"values", QUERN_MISALIGNED, misaligned_values},
    {"gate", QUERN_WRONG_FAMILY, another_family},
};

static void bad_arguments_are_named_and_leave_the_outputs_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < QN_COUNT(refusals); i++) {
        call c = make_call(4, 3, (const float[]){1, 2, 3, 4}), before;
        c.spec.temperature = 1, c.spec.token = 1;
        run(&c);
        memset(c.values, 0xA5, sizeof c.values), memset(c.indices, 0xA5, sizeof c.indices);
        c.args.rows = 1;
        refusals[i].breaks(&c);
        before = c;

        quern_status status = quern_reference(&c.spec.base, &c.args.base);

        if (status != refusals[i].status || !strstr(quern_message(), refusals[i].name))
            fail_msg("refusal %zu: %s, must be %s and name %s: %s", i, quern_status_name(status),
                     quern_status_name(refusals[i].status), refusals[i].name, quern_message());
        assert_memory_equal(c.values, before.values, sizeof c.values);
        assert_memory_equal(c.indices, before.indices, sizeof c.indices);
    }
}

static void a_bad_spec_is_refused(void **state)
{
    (void)state;
    call c = make_call(4, 3, (const float[]){1, 2, 3, 4});
    c.spec.K = 5;
    c.args.logits = c.logits, c.args.values = c.values, c.args.indices = c.indices, c.args.lse = c.lse;
    assert_int_not_equal(quern_reference(&c.spec.base, &c.args.base), QUERN_OK);
    assert_non_null(strstr(quern_message(), "K"));
}

static void zero_rows_need_no_pointers(void **state)
{
    (void)state;
    call c = make_call(4, 3, (const float[]){1, 2, 3, 4});
    c.args.rows = 0;
    assert_int_equal(quern_reference(&c.spec.base, &c.args.base), QUERN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_field_reports_have_their_right_values),
        cmocka_unit_test(rows_past_2_31_elements_have_their_right_values),
        cmocka_unit_test(probabilities_and_lse_of_three_logits),
        cmocka_unit_test(norm_topk_shares_the_mass_among_the_kept),
        cmocka_unit_test(temperature_scales_the_distance_to_the_maximum),
        cmocka_unit_test(at_temperature_zero_the_tied_maxima_share_the_mass),
        cmocka_unit_test(a_negative_or_nan_temperature_spoils_values_and_lse_but_not_indices),
        cmocka_unit_test(extreme_temperatures_keep_the_limit),
        cmocka_unit_test(an_infinity_or_a_nan_makes_the_rows_probabilities_nan),
        cmocka_unit_test(the_raw_logit_comes_back_bit_for_bit),
        cmocka_unit_test(tokens_have_the_rank_of_the_order_and_the_log_probability_over_all),
        cmocka_unit_test(strides_step_over_what_is_between_rows_and_leave_it_alone),
        cmocka_unit_test(bad_arguments_are_named_and_leave_the_outputs_alone),
        cmocka_unit_test(a_bad_spec_is_refused),
        cmocka_unit_test(zero_rows_need_no_pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
