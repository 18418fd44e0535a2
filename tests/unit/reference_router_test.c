// SPDX-License-Identifier: Apache-2.0
// The host reference of router against what is known without it, and the judge of router's outputs: that it accepts the
// reference on every hostile case, and sees each kind of fault.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "support/check_router.h"

static const router_case *case_named(const char *name)
{
    size_t count;
    const router_case *cases = router_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(cases[i].name, name)) return &cases[i];
    fail_msg("there is no case %s", name);
    return NULL;
}

static void run_reference(const router_case *c, router_data *data)
{
    if (!router_data_make(c, data)) fail_msg("no memory");
    if (quern_reference(&c->spec.base, &data->args.base) != QUERN_OK) fail_msg("%s: %s", c->name, quern_message());
}

static void the_reference_passes_the_judge_on_every_small_case(void **state)
{
    (void)state;
    size_t count, judged = 0;
    const router_case *cases = router_cases(&count);
    qn_text report = QN_TEXT_INIT;
    for (size_t i = 0; i < count; i++) {
        router_data data;
        if (!router_wanted(&cases[i], HOSTILE_MODEL)) continue;
        run_reference(&cases[i], &data);
        if (router_check_case(&data, &report)) fail_msg("%s", qn_text_string(&report));
        router_data_free(&data);
        judged++;
    }
    print_message("%zu cases\n", judged);
    qn_text_fini(&report);
}

static void dots_are_those_of_a_small_example(void **state)
{
    (void)state;
    const float x[8] = {1, 2, 3, 0, 0, 0, 0, -1};
    const float rows[2][8] = {{1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, -2, 5, 5, 5, 5, 4}};
    float across[8][2], weights[2], logits[2];
    int32_t ids[2];
    quern_router_spec spec = QUERN_ROUTER_SPEC_INIT;
    quern_router_args args = QUERN_ROUTER_ARGS_INIT;
    spec.D = 8, spec.E = 2, spec.K = 2, spec.in = spec.w = QUERN_F32, spec.act = QUERN_ACT_SIGMOID, spec.logits = 1;
    args.N = 1, args.x = x, args.w = rows, args.weights = weights, args.ids = ids, args.logits = logits;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    assert_true(logits[0] == 5.0f && logits[1] == -10.0f);
    assert_true(ids[0] == 0 && ids[1] == 1);
    assert_true(fabs(weights[0] + weights[1] - 1.0) < 1e-6);
    for (int d = 0; d < 8; d++) across[d][0] = rows[0][d], across[d][1] = rows[1][d];
    memset(logits, 0, sizeof logits);
    spec.w_layout = QUERN_W_DE, args.w = across;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    assert_true(logits[0] == 5.0f && logits[1] == -10.0f);
}

// Runs the reference on a case, spoils the result, and expects the judge to say the word.
static void expect_fault(void (*spoil)(router_data *data), const char *word)
{
    router_data data;
    qn_text report = QN_TEXT_INIT;
    run_reference(case_named("m0_normal"), &data);
    spoil(&data);
    if (!router_check_case(&data, &report)) fail_msg("the judge did not see a fault of %s", word);
    if (!strstr(qn_text_string(&report), word)) fail_msg("'%s' is not in: %s", word, qn_text_string(&report));
    qn_text_fini(&report);
    router_data_free(&data);
}

static void spoil_logit(router_data *data)
{
    data->args.logits[7] += 1e-3f;
}
static void spoil_ids(router_data *data)
{
    int32_t *ids = data->args.ids, first = ids[0];
    ids[0] = ids[1], ids[1] = first;
}
static void spoil_twice(router_data *data)
{
    int32_t *ids = data->args.ids;
    ids[1] = ids[0];
}
static void spoil_weight(router_data *data)
{
    data->args.weights[2] *= 1.0001f;
}
static void spoil_guard(router_data *data)
{
    hostile_buffer *b = &data->buffer[ROUTER_WEIGHTS];
    b->bytes[b->count - HOSTILE_GUARD_BYTES] = 0;
}

static void the_judge_sees_each_kind_of_fault(void **state)
{
    (void)state;
    expect_fault(spoil_logit, "logits[7]");
    expect_fault(spoil_ids, "stands before");
    expect_fault(spoil_twice, "chosen twice");
    expect_fault(spoil_weight, "weights[2]");
    expect_fault(spoil_guard, "was written");
}

static void refusals_are_those_of_the_launch(void **state)
{
    (void)state;
    router_data data;
    const router_case *c = case_named("m0_normal");
    if (!router_data_make(c, &data)) fail_msg("no memory");
    data.args.x_stride_N = c->spec.D - 8;
    assert_int_equal(quern_reference(&c->spec.base, &data.args.base), QUERN_BAD_STRIDE);
    data.args.x_stride_N = 0, data.args.w = NULL;
    assert_int_equal(quern_reference(&c->spec.base, &data.args.base), QUERN_MISSING_ARGUMENT);
    data.args.N = -1;
    assert_int_equal(quern_reference(&c->spec.base, &data.args.base), QUERN_BAD_SIZE);
    data.args.N = 0;
    assert_int_equal(quern_reference(&c->spec.base, &data.args.base), QUERN_OK);
    router_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_passes_the_judge_on_every_small_case),
        cmocka_unit_test(dots_are_those_of_a_small_example),
        cmocka_unit_test(the_judge_sees_each_kind_of_fault),
        cmocka_unit_test(refusals_are_those_of_the_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
