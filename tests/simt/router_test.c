// SPDX-License-Identifier: Apache-2.0
// router's kernels on the functional model, through the same path as a device: every hostile case that is tagged for it,
// in two builds (sanitizers; every access checked) and in another order of execution for each case; every plan by force;
// batch invariance; and a wait that expires. Needs a C++ compiler; without one it says so and is skipped.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_router.h"
#include "support/forced_router.h"
#include "support/simt_cases.h"

static void hostile_cases_are_right_under_sanitizers(void **state)
{
    (void)state;
    simt_run_list(&router_family, MODEL_ASAN, "sm_90a", HOSTILE_MODEL, 1, 270);
}

static void hostile_cases_make_no_wrong_access(void **state)
{
    (void)state;
    simt_run_list(&router_family, MODEL_ACCESS, "sm_90a", HOSTILE_MODEL, 1, 270);
}

static void a_quick_set_is_right_on_other_targets(void **state)
{
    (void)state;
    simt_run_list(&router_family, MODEL_PLAIN, "sm_80", HOSTILE_QUICK, 1, 60);
    simt_run_list(&router_family, MODEL_PLAIN, "sm_100a", HOSTILE_QUICK, 1, 60);
}

// Each plan, whatever the number of tokens would choose, on the cases tagged quick.
static bool is_for(const void *c, size_t index, size_t number, const char *config)
{
    (void)index, (void)number, (void)config;
    return router_wanted(c, HOSTILE_QUICK) && ((const router_case *)c)->N > 0;
}

static void every_plan_by_force_is_right(void **state)
{
    (void)state;
    simt_run_forced(&router_family, forced_router, QN_COUNT(forced_router), is_for, 480);
}

// ---- batch invariance

static void assert_same_tokens(model *m, quern *q, const char *few, const char *many)
{
    const router_case *of_few = family_case_named(&router_family, few),
                      *of_many = family_case_named(&router_family, many);
    void *a = family_data_make(&router_family, of_few, 0), *b = family_data_make(&router_family, of_many, 0);
    const qn_arch *arch = simt_arch("sm_90a");
    qn_text report = QN_TEXT_INIT;
    int buffer = 0;
    bool ran = simt_run_data(&router_family, m, q, arch, of_few, NULL, 0, a, &report) &&
               simt_run_data(&router_family, m, q, arch, of_many, NULL, 0, b, &report); // one order: a seed moves
                                                                                        // approximations
    if (!ran) fail_msg("%s", qn_text_string(&report));
    int64_t at = router_same_tokens(a, b, &buffer);
    if (at >= 0) fail_msg("%s and %s: %s differs at byte %lld", few, many, router_buffer_name[buffer], (long long)at);
    family_data_free(&router_family, a);
    family_data_free(&router_family, b);
    qn_text_fini(&report);
}

static void with_batch_invariant_a_tokens_bits_do_not_depend_on_N(void **state)
{
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    assert_same_tokens(m, q, "m5_N1", "m5_N16");
    assert_same_tokens(m, q, "m5_N16", "m5_N65");
    assert_same_tokens(m, q, "m5_N64", "m5_N130");
    assert_same_tokens(m, q, "m7_N7", "m7_N65");
    quern_close(q);
}

// ---- a wait that expires

// One CTA's sums of a slice never come, and nobody waits for long.
static char *lose_a_slice(const char *source, void *user)
{
    (void)user;
    if (!strstr(source, "kMostPolls = 1u << 20")) return strdup(source);
    char *short_wait = simt_replace(source, "kMostPolls = 1u << 20", "kMostPolls = 64");
    char *lost = simt_replace(short_wait, "if (is_aligned(p))",
                              "if (blockIdx.x == 0) launch_dependents(); else if (is_aligned(p))");
    free(short_wait);
    return lost;
}

static void an_expired_wait_gives_NaN_weights_and_valid_ids(void **state)
{
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    const router_case *c = family_case_named(&router_family, "m0_normal");
    router_data *data = family_data_make(&router_family, c, 0);
    qn_text report = QN_TEXT_INIT;
    qn_config config;
    if (qn_config_parse(&qn_family_router, "plan=fragments sums=parts tokens=8 experts=16 slices=1 chunk=64",
                        &config) != QUERN_OK)
        fail_msg("%s", quern_message());
    model_set_edit(m, lose_a_slice, NULL);
    bool ran = simt_run_data(&router_family, m, NULL, simt_arch("sm_90a"), c, &config, 0, data, &report);
    model_set_edit(m, NULL, NULL);
    if (!ran) fail_msg("%s", qn_text_string(&report));
    for (int64_t i = 0; i < c->N * c->spec.K; i++) {
        if (!isnan(data->args.weights[i])) fail_msg("weights[%lld] = %g", (long long)i, data->args.weights[i]);
        assert_int_equal(((const int32_t *)data->args.ids)[i], i % c->spec.K);
    }
    family_data_free(&router_family, data);
    qn_text_fini(&report);
}

// ---- the short list of candidates

// Rounds over all experts store nothing: a token that needs them is wrong.
static char *lose_the_rounds(const char *source, void *user)
{
    (void)user;
    return simt_replace(source, "rounds_and_store(p, token);", ";");
}

// Right without rounds, though much slower with them: so nothing else would tell.
static void assert_no_rounds(const char *text, int64_t N, const char *config_text)
{
    model *m = simt_model_any(MODEL_PLAIN);
    quern_any_spec spec;
    router_case c;
    qn_config config;
    qn_text report = QN_TEXT_INIT;
    if (quern_spec_parse(text, &spec) != QUERN_OK ||
        qn_config_parse(&qn_family_router, config_text, &config) != QUERN_OK)
        fail_msg("%s", quern_message());
    assert_true(router_pattern(0, (const quern_router_spec *)&spec, N, &c));
    model_set_edit(m, lose_the_rounds, NULL);
    simt_judge_case(&router_family, m, NULL, simt_arch("sm_90a"), &c, &config, 0, &report);
    model_set_edit(m, NULL, NULL);
    if (report.length) fail_msg("%s", qn_text_string(&report));
    qn_text_fini(&report);
}

// CTAs with more warps than have experts: what these warps give must not count.
static void ordinary_tokens_need_no_rounds_in_CTAs_with_more_threads_than_experts(void **state)
{
    (void)state;
    static const char *const config = "plan=fragments sums=parts tokens=16 experts=16 slices=1 chunk=32";
    assert_no_rounds("router D=448 E=256 K=8 in=bf16 w=bf16 bias=1 logits=1", 64, config);
    assert_no_rounds("router D=448 E=256 K=8 in=bf16 w=bf16 act=sigmoid bias=1 n_group=8 topk_group=4 logits=1", 64,
                     config);
    assert_no_rounds("router D=448 E=96 K=8 in=bf16 w=bf16 logits=1", 64, config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_batch_invariant_a_tokens_bits_do_not_depend_on_N),
        cmocka_unit_test(an_expired_wait_gives_NaN_weights_and_valid_ids),
        cmocka_unit_test(ordinary_tokens_need_no_rounds_in_CTAs_with_more_threads_than_experts),
        cmocka_unit_test(hostile_cases_make_no_wrong_access),
        cmocka_unit_test(every_plan_by_force_is_right),
        cmocka_unit_test(hostile_cases_are_right_under_sanitizers),
        cmocka_unit_test(a_quick_set_is_right_on_other_targets),
    };
    return cmocka_run_group_tests(tests, NULL, simt_close_models);
}
