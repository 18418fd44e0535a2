// SPDX-License-Identifier: Apache-2.0
// router's kernels on the functional model, through the same path as a device: every hostile case that is tagged for it,
// in two builds (sanitizers; every access checked) and in another order of execution for each case; every plan by force;
// batch invariance; and a wait that expires. Needs a C++ compiler; without one it says so and is skipped.
#include "support/simt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_router.h"

enum { MOST_REPORTS = 8 };

static const qn_arch *arch_of(const char *name)
{
    const qn_arch *arch;
    if (qn_arch_find(name, &arch) != QUERN_OK) fail_msg("%s", quern_message());
    return arch;
}

static quern *open_in_memory(void)
{
    quern_options options = QUERN_OPTIONS_INIT;
    quern *q = NULL;
    options.mode = QUERN_MODE_OFF, options.cache_file = "";
    if (quern_open(&options, &q) != QUERN_OK) fail_msg("%s", quern_message());
    return q;
}

typedef struct verdict {
    size_t cases, failed;
} verdict;

static void conclude(verdict *v, qn_text *report)
{
    v->cases++;
    if (report->length && v->failed++ < MOST_REPORTS) print_error("%s\n", qn_text_string(report));
    qn_text_clear(report);
}

static model_order order_of(size_t i)
{
    return (model_order){.shuffle = i % 4 != 0, .seed = (uint32_t)i};
}

// Runs a case into its data; config: in place of what is chosen. False: a fault, which is reported.
static bool run(model *m, quern *q, const qn_arch *arch, const qn_config *config, size_t i, router_data *data,
                qn_text *report)
{
    qn_text fault = QN_TEXT_INIT;
    const quern_spec *spec = &data->c->spec.base;
    quern_status status = config ? model_run_config(m, spec, arch, config, &data->args.base, order_of(i), &fault)
                                 : model_run_on(m, q, spec, arch, &data->args.base, order_of(i), &fault);
    if (status != QUERN_OK) {
        router_describe(data->c, report);
        qn_text_putf(report, "    on %s: %s\n%s", arch->name, quern_message(), qn_text_string(&fault));
    }
    qn_text_fini(&fault);
    return status == QUERN_OK;
}

static void run_case(model *m, quern *q, const qn_arch *arch, const router_case *c, const qn_config *config, size_t i,
                     qn_text *report)
{
    router_data data;
    if (!router_data_make(c, &data)) fail_msg("no memory");
    if (run(m, q, arch, config, i, &data, report) && router_check_case(&data, report))
        qn_text_putf(report, "    on %s, order %s %u\n", arch->name, order_of(i).shuffle ? "drawn" : "as written",
                     (unsigned)i);
    router_data_free(&data);
}

static void run_list(model_build build, const char *arch, unsigned tag)
{
    model *m = simt_model_any(build);
    quern *q = open_in_memory();
    verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count;
    const router_case *cases = router_cases(&count);
    for (size_t i = 0; i < count; i++) {
        if (!router_wanted(&cases[i], tag) || !(cases[i].tags & HOSTILE_MODEL)) continue;
        run_case(m, q, arch_of(arch), &cases[i], NULL, i, &report);
        conclude(&v, &report);
    }
    qn_text_fini(&report);
    quern_close(q);
    print_message("%zu cases on %s, %s build, %zu failed\n", v.cases, arch, model_build_name[build], v.failed);
    if (v.failed) fail_msg("%zu of %zu cases failed; the first ones are above", v.failed, v.cases);
}

static void hostile_cases_are_right_under_sanitizers(void **state)
{
    (void)state;
    run_list(MODEL_ASAN, "sm_90a", HOSTILE_MODEL);
}

static void hostile_cases_make_no_wrong_access(void **state)
{
    (void)state;
    run_list(MODEL_ACCESS, "sm_90a", HOSTILE_MODEL);
}

static void a_quick_set_is_right_on_other_targets(void **state)
{
    (void)state;
    run_list(MODEL_PLAIN, "sm_80", HOSTILE_QUICK);
    run_list(MODEL_PLAIN, "sm_100a", HOSTILE_QUICK);
}

// Each plan, whatever the number of tokens would choose, on the cases tagged quick.
static void every_plan_by_force_is_right(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "plan=rows sums=parts tokens=2 experts=3 slices=2",
        "plan=fragments sums=parts tokens=8 experts=16 slices=2 chunk=32",
        "plan=fragments sums=parts tokens=64 experts=24 slices=1 chunk=64",
        "plan=wide sums=parts tokens=64 experts=24 slices=2",
        "plan=deep sums=parts tokens=64 experts=32 slices=2 stages=2",
        "plan=deep sums=whole tokens=128 experts=64 slices=1 stages=3 gate=2",
        "plan=multicast sums=parts tokens=64 experts=32 slices=2 stages=2 cluster_n=1 cluster_e=1",
        "plan=multicast sums=parts tokens=128 experts=24 slices=3 stages=3 cluster_n=2 cluster_e=3",
        "plan=multicast sums=whole tokens=192 experts=16 slices=1 stages=4 gate=2 cluster_n=1 cluster_e=4",
        "plan=multicast sums=whole tokens=256 experts=192 slices=1 stages=2 gate=3 cluster_n=2 cluster_e=1",
        "plan=tiles sums=parts tokens=16 experts=32 slices=3 stages=2",
        "plan=tiles sums=parts tokens=32 experts=16 slices=2 stages=3",
        "plan=tiles sums=whole tokens=64 experts=64 slices=1 stages=2 gate=1",
        "plan=tiles sums=whole tokens=128 experts=32 slices=1 stages=3 gate=3",
        "plan=exact sums=parts tokens=8 experts=16 slices=3 stages=3",
        "plan=exact sums=parts tokens=32 experts=32 slices=6 stages=2",
        "plan=exact sums=whole tokens=64 experts=64 slices=1 stages=2 gate=4",
    };
    model *m = simt_model_any(MODEL_ACCESS);
    const qn_arch *arch = arch_of("sm_90a");
    verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count, refused = 0;
    const router_case *cases = router_cases(&count);
    for (size_t k = 0; k < QN_COUNT(configs); k++) {
        qn_config config;
        if (qn_config_parse(&qn_family_router, configs[k], &config) != QUERN_OK) fail_msg("%s", quern_message());
        for (size_t i = 0; i < count; i++) {
            qn_plan plan;
            if (!router_wanted(&cases[i], HOSTILE_QUICK) || cases[i].N == 0) continue;
            if (qn_family_router.plan(&cases[i].spec.base, arch, &config, &plan) != QUERN_OK) {
                refused++;
                continue;
            }
            run_case(m, NULL, arch, &cases[i], &config, i + k, &report);
            if (report.length) qn_text_putf(&report, "    configuration: %s\n", configs[k]);
            conclude(&v, &report);
        }
    }
    qn_text_fini(&report);
    print_message("%zu cases on forced plans, %zu failed, %zu refused by the planner\n", v.cases, v.failed, refused);
    if (v.failed) fail_msg("%zu of %zu cases failed; the first ones are above", v.failed, v.cases);
}

// ---- batch invariance

static const router_case *case_named(const char *name)
{
    size_t count;
    const router_case *cases = router_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(cases[i].name, name)) return &cases[i];
    fail_msg("there is no case %s", name);
    return NULL;
}

static void assert_same_tokens(model *m, quern *q, const char *few, const char *many)
{
    router_data a, b;
    qn_text report = QN_TEXT_INIT;
    int buffer = 0;
    if (!router_data_make(case_named(few), &a) || !router_data_make(case_named(many), &b)) fail_msg("no memory");
    bool ran = run(m, q, arch_of("sm_90a"), NULL, 0, &a, &report) &&
               run(m, q, arch_of("sm_90a"), NULL, 0, &b, &report); // the same order: a seed moves approximations
    if (!ran) fail_msg("%s", qn_text_string(&report));
    int64_t at = router_same_tokens(&a, &b, &buffer);
    if (at >= 0) fail_msg("%s and %s: %s differs at byte %lld", few, many, router_buffer_name[buffer], (long long)at);
    router_data_free(&a);
    router_data_free(&b);
    qn_text_fini(&report);
}

static void with_batch_invariant_a_tokens_bits_do_not_depend_on_N(void **state)
{
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = open_in_memory();
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
    char *lost = simt_replace(short_wait, "if (is_aligned(p)) ",
                              "if (blockIdx.x == 0) launch_dependents(); else if (is_aligned(p)) ");
    free(short_wait);
    return lost;
}

static void an_expired_wait_gives_NaN_weights_and_valid_ids(void **state)
{
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    const router_case *c = case_named("m0_normal");
    router_data data;
    qn_text report = QN_TEXT_INIT;
    qn_config config;
    if (qn_config_parse(&qn_family_router, "plan=fragments sums=parts tokens=8 experts=16 slices=1 chunk=64",
                        &config) != QUERN_OK)
        fail_msg("%s", quern_message());
    if (!router_data_make(c, &data)) fail_msg("no memory");
    model_set_edit(m, lose_a_slice, NULL);
    bool ran = run(m, NULL, arch_of("sm_90a"), &config, 0, &data, &report);
    model_set_edit(m, NULL, NULL);
    if (!ran) fail_msg("%s", qn_text_string(&report));
    for (int64_t i = 0; i < c->N * c->spec.K; i++) {
        if (!isnan(data.args.weights[i])) fail_msg("weights[%lld] = %g", (long long)i, data.args.weights[i]);
        assert_int_equal(((const int32_t *)data.args.ids)[i], i % c->spec.K);
    }
    router_data_free(&data);
    qn_text_fini(&report);
}

static int close_models(void **state)
{
    (void)state;
    simt_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_batch_invariant_a_tokens_bits_do_not_depend_on_N),
        cmocka_unit_test(an_expired_wait_gives_NaN_weights_and_valid_ids),
        cmocka_unit_test(hostile_cases_make_no_wrong_access),
        cmocka_unit_test(every_plan_by_force_is_right),
        cmocka_unit_test(hostile_cases_are_right_under_sanitizers),
        cmocka_unit_test(a_quick_set_is_right_on_other_targets),
    };
    return cmocka_run_group_tests(tests, NULL, close_models);
}
