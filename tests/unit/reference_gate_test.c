// SPDX-License-Identifier: Apache-2.0
// The host reference of gate: the field reports' literal results, the order of NaNs, infinities and ties, groups, given
// ids, subnormals; that its judge accepts it and refuses what is wrong.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/check_gate.h"

typedef struct result {
    float weights[64];
    int32_t ids[64];
} result;

// One token (f32 logits) through the public interface.
static result route(const char *text, const float *logits, const float *bias, const int32_t *given)
{
    quern_any_spec spec;
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    result r;
    memset(&r, 0x77, sizeof r);
    if (quern_spec_parse(text, &spec) != QUERN_OK) fail_msg("'%s': %s", text, quern_message());
    args.N = 1, args.logits = logits, args.bias = bias, args.given_ids = given;
    args.weights = r.weights, args.ids = given ? NULL : r.ids;
    if (quern_reference(&spec.base, &args.base) != QUERN_OK) fail_msg("'%s': %s", text, quern_message());
    return r;
}

static void expect_ids(const result *r, const int32_t *ids, int count)
{
    for (int k = 0; k < count; k++)
        if (r->ids[k] != ids[k]) fail_msg("ids[%d] = %d, must be %d", k, r->ids[k], ids[k]);
}

static void expect_weight(float got, double want)
{
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= 3e-7 * fabs(want) + 0x1p-149))
        fail_msg("weight %.9g, must be %.9g", got, want);
}

static void every_hostile_case_passes_its_own_judge_and_literals(void **state)
{
    (void)state;
    size_t count;
    const gate_case *cases = gate_cases(&count);
    qn_text report = QN_TEXT_INIT;
    assert_true(count > 300);
    for (size_t i = 0; i < count; i++) {
        gate_data data;
        assert_true(gate_data_make(&cases[i], &data));
        if (quern_reference(&cases[i].spec.base, &data.args.base) != QUERN_OK)
            fail_msg("%s: %s", cases[i].name, quern_message());
        if (gate_check_case(&data, &report)) fail_msg("%s", qn_text_string(&report));
        gate_data_free(&data);
    }
    qn_text_fini(&report);
}

static void activations_follow_their_formulas_down_to_subnormals(void **state)
{
    (void)state;
    static const float x[8] = {0, 1, -1, 20, -20, -95, -206, 100};
    static const int32_t all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const char *raw = "gate E=8 K=8 in=f32 renormalize=0 given_ids=1 act=sigmoid";
    result r = route(raw, x, NULL, all);
    for (int i = 0; i < 6; i++) expect_weight(r.weights[i], 1 / (1 + exp(-(double)x[i])));
    assert_true(r.weights[5] > 0 && r.weights[5] < 1e-41f && r.weights[6] == 0 && r.weights[7] == 1);
    r = route("gate E=8 K=8 in=f32 renormalize=0 given_ids=1", x, NULL, all);
    for (int i = 0; i < 6; i++) expect_weight(r.weights[i], i < 5 ? sqrt(log1p(exp((double)x[i]))) : exp(x[i] / 2.0));
    assert_true(r.weights[6] > 0 && r.weights[6] < 1e-44f);
    expect_weight(r.weights[7], 10);
    r = route("gate E=8 K=8 in=f32 renormalize=0 given_ids=1 act=softmax scale=3", x, NULL, all);
    expect_weight(r.weights[7], 3);
    expect_weight(r.weights[3], 3 * exp(-80));
    r = route("gate E=8 K=8 in=f32 renormalize=0 given_ids=1 act=softmax scale=1e-45", x, NULL, all);
    assert_true(r.weights[7] == 0x1p-149f); // a launch has the scale as f32
    r = route("gate E=8 K=8 in=f32 renormalize=0 given_ids=1 act=softmax scale=1.05e-44", x, NULL, all);
    assert_true(r.weights[7] == 7 * 0x1p-149f);
}

static void what_rounds_to_the_same_f32_is_a_tie(void **state)
{
    (void)state;
    static const float x[4] = {-1, 30, 100, 40}; // sigmoid: three times 1
    const int32_t ids[3] = {1, 2, 3};
    result r = route("gate E=4 K=3 in=f32 act=sigmoid", x, NULL, NULL);
    expect_ids(&r, ids, 3);
}

static void a_nan_ranks_below_minus_infinity_and_weighs_nothing(void **state)
{
    (void)state;
    const float x[5] = {NAN, 1, 2, -NAN, 0}, bias[5] = {0, NAN, 0, 0, -INFINITY};
    const int32_t ids[5] = {2, 4, 0, 1, 3};
    result r = route("gate E=5 K=5 in=f32 bias=1 act=sigmoid", x, bias, NULL);
    double a = 1 / (1 + exp(-2.0)), b = 0.5;
    expect_ids(&r, ids, 5);
    expect_weight(r.weights[0], a / (a + b));
    expect_weight(r.weights[1], b / (a + b));
    for (int k = 2; k < 5; k++) assert_true(r.weights[k] == 0);
}

static void a_row_without_a_softmax_has_nan_weights_and_the_first_ids(void **state)
{
    (void)state;
    static const float rows[3][4] = {{3, NAN, 1, 2}, {1, INFINITY, 2, 0}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    const int32_t ids[2] = {0, 1};
    for (int i = 0; i < 3; i++) {
        result r = route("gate E=4 K=2 in=f32 act=softmax n_group=2 topk_group=1", rows[i], NULL, NULL);
        expect_ids(&r, ids, 2);
        assert_true(isnan(r.weights[0]) && isnan(r.weights[1]));
    }
}

static void a_group_scores_its_two_best_numbers(void **state)
{
    (void)state;
    // sums: 0.9 (0.9 alone), 1.0 (two of 0.5), NaN, 0.95
    const float x[12] = {NAN, NAN, NAN, 0, 0, NAN, NAN, NAN, NAN, 0, 0, -100}, flat[12] = {0};
    const float bias[12] = {0, 0, 0.4f, 0, 0, 0, 0, 0, 0, -0.05f, 0, 0};
    float y[12];
    memcpy(y, x, sizeof y), y[2] = 0;
    const int32_t ids[4] = {3, 4, 10, 9};
    result r = route("gate E=12 K=4 in=f32 act=sigmoid bias=1 n_group=4 topk_group=2", y, bias, NULL);
    expect_ids(&r, ids, 4);
    const int32_t ties[4] = {0, 1, 2, 3}; // all groups tie: the lowest are kept
    r = route("gate E=12 K=4 in=f32 act=sigmoid n_group=4 topk_group=2", flat, NULL, NULL);
    expect_ids(&r, ties, 4);
}

static void a_dropped_group_never_wins_against_minus_infinity_or_nan(void **state)
{
    (void)state;
    const float x[6] = {0, 0, NAN, 5, 5, 5}, bias[6] = {10, -INFINITY, 10, 0, 0, 0};
    const int32_t ids[3] = {0, 1, 2}; // the group's sum is -inf if its -inf counts; 10.5 + (-inf) < 5 + 5
    float lifted[6];
    memcpy(lifted, bias, sizeof bias), lifted[3] = lifted[4] = lifted[5] = -INFINITY;
    result r = route("gate E=6 K=3 in=f32 act=sigmoid bias=1 n_group=2 topk_group=1", x, lifted, NULL);
    expect_ids(&r, ids, 3);
}

static void given_ids_may_repeat_or_be_no_expert(void **state)
{
    (void)state;
    const float x[4] = {0, NAN, 1, 2};
    const int32_t given[4] = {2, 2, 7, 1};
    result r = route("gate E=4 K=4 in=f32 act=sigmoid given_ids=1 scale=2", x, NULL, given);
    expect_weight(r.weights[0], 1);
    expect_weight(r.weights[1], 1);
    assert_true(isnan(r.weights[2]) && r.weights[3] == 0);
}

static void an_expert_that_nothing_names_needs_no_ids(void **state)
{
    (void)state;
    quern_any_spec spec;
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    float x[8] = {0}, weights[8];
    int32_t given[2] = {1, 2};
    args.N = 1, args.logits = x, args.weights = weights;
    assert_int_equal(quern_spec_parse("gate E=8 K=2 in=f32", &spec), QUERN_OK);
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_MISSING_ARGUMENT); // ids
    assert_int_equal(quern_spec_parse("gate E=8 K=2 in=f32 given_ids=1", &spec), QUERN_OK);
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_MISSING_ARGUMENT); // given_ids
    args.given_ids = given;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    args.N = -1;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_BAD_SIZE);
    args.N = 1, args.logits_stride_N = 7;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_BAD_STRIDE);
    for (size_t size = 0; size <= sizeof args.base; size += 8) { // no INIT: nothing would be read of them
        args.base.size = size;
        assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_BAD_ARGUMENT);
    }
}

// ---- the judge

typedef void (*damage)(quern_gate_args *args);
static void swap_ids(quern_gate_args *args)
{
    int32_t *ids = args->ids, first = ids[0];
    ids[0] = ids[2], ids[2] = first;
}
static void repeat_id(quern_gate_args *args)
{
    ((int32_t *)args->ids)[1] = ((int32_t *)args->ids)[0];
}
static void other_id(quern_gate_args *args)
{
    ((int32_t *)args->ids)[3] = 200;
}
static void no_id(quern_gate_args *args)
{
    ((int32_t *)args->ids)[3] = 256;
}
static void wrong_weight(quern_gate_args *args)
{
    args->weights[2] *= 1.00001f;
}
static void nan_weight(quern_gate_args *args)
{
    args->weights[2] = NAN;
}

static void the_judge_refuses_what_is_wrong(void **state)
{
    (void)state;
    static const damage damages[] = {swap_ids, repeat_id, other_id, no_id, wrong_weight, nan_weight};
    size_t count;
    const gate_case *cases = gate_cases(&count), *c = NULL;
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, "m0_normal") == 0) c = &cases[i];
    assert_non_null(c);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        gate_data data;
        qn_text report = QN_TEXT_INIT;
        assert_true(gate_data_make(c, &data));
        assert_int_equal(quern_reference(&c->spec.base, &data.args.base), QUERN_OK);
        assert_int_equal(gate_check_case(&data, &report), 0);
        damages[i](&data.args);
        if (gate_check_case(&data, &report) == 0) fail_msg("damage %zu passed", i);
        qn_text_fini(&report);
        gate_data_free(&data);
    }
}

// The choice is made: a bias, which counts for nothing else, need not even be there, and is not read.
static void a_bias_beside_given_ids_is_neither_needed_nor_read(void **state)
{
    (void)state;
    quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    float logits[8] = {1, 2, 3, 4, 5, 6, 7, 8}, bias[8] = {NAN, NAN, NAN, NAN}, plain[2], biased[2];
    int32_t given[2] = {3, 1};
    spec.E = 8, spec.K = 2, spec.in = QUERN_F32, spec.given_ids = 1;
    args.N = 1, args.logits = logits, args.given_ids = given, args.weights = plain;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    spec.bias = 1;
    args.weights = biased;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    assert_memory_equal(plain, biased, sizeof plain);
    args.bias = bias;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    assert_memory_equal(plain, biased, sizeof plain);
    spec.given_ids = 0, args.bias = NULL;
    args.ids = given;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_MISSING_ARGUMENT);
}

static void the_judge_refuses_an_expert_of_a_dropped_group(void **state)
{
    (void)state;
    size_t count;
    const gate_case *cases = gate_cases(&count);
    qn_text report = QN_TEXT_INIT;
    gate_data data;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(cases[i].name, "fr06") != 0) continue;
        assert_true(gate_data_make(&cases[i], &data));
        assert_int_equal(quern_reference(&cases[i].spec.base, &data.args.base), QUERN_OK);
        ((int32_t *)data.args.ids)[3] = 4;
        assert_true(gate_check_outputs(&cases[i].spec, &data.args, &report) > 0);
        gate_data_free(&data);
    }
    assert_true(report.length > 0);
    qn_text_fini(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_hostile_case_passes_its_own_judge_and_literals),
        cmocka_unit_test(activations_follow_their_formulas_down_to_subnormals),
        cmocka_unit_test(what_rounds_to_the_same_f32_is_a_tie),
        cmocka_unit_test(a_nan_ranks_below_minus_infinity_and_weighs_nothing),
        cmocka_unit_test(a_row_without_a_softmax_has_nan_weights_and_the_first_ids),
        cmocka_unit_test(a_group_scores_its_two_best_numbers),
        cmocka_unit_test(a_dropped_group_never_wins_against_minus_infinity_or_nan),
        cmocka_unit_test(given_ids_may_repeat_or_be_no_expert),
        cmocka_unit_test(an_expert_that_nothing_names_needs_no_ids),
        cmocka_unit_test(the_judge_refuses_what_is_wrong),
        cmocka_unit_test(a_bias_beside_given_ids_is_neither_needed_nor_read),
        cmocka_unit_test(the_judge_refuses_an_expert_of_a_dropped_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
