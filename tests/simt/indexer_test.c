// SPDX-License-Identifier: Apache-2.0
// indexer's kernels on the functional model, through the same path as a device: every hostile case that is tagged for it,
// in two builds (sanitizers; every access checked) and in another order of execution for each case; and every plan by
// force. Needs a C++ compiler; without one it says so and is skipped.
#include "support/simt.h"

#include <stdlib.h>
#include <string.h>

#include "support/hostile_indexer.h"

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

// One case; config: in place of what is chosen.
static void run_case(model *m, quern *q, const qn_arch *arch, const indexer_case *c, const qn_config *config, size_t i,
                     qn_text *report)
{
    indexer_data data;
    qn_text fault = QN_TEXT_INIT;
    if (!indexer_data_make(c, &data)) fail_msg("no memory");
    quern_status status = config
                              ? model_run_config(m, &c->spec.base, arch, config, &data.args.base, order_of(i), &fault)
                              : model_run_on(m, q, &c->spec.base, arch, &data.args.base, order_of(i), &fault);
    if (status != QUERN_OK) {
        indexer_describe(c, report);
        qn_text_putf(report, "    on %s: %s\n%s", arch->name, quern_message(), qn_text_string(&fault));
    } else if (indexer_check_case(&data, report)) {
        qn_text_putf(report, "    on %s, order %s %u\n", arch->name, order_of(i).shuffle ? "drawn" : "as written",
                     (unsigned)i);
    }
    qn_text_fini(&fault);
    indexer_data_free(&data);
}

static void run_list(model_build build, const char *arch, unsigned tag)
{
    model *m = simt_model_any(build);
    quern *q = open_in_memory();
    verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count;
    const indexer_case *cases = indexer_cases(&count);
    for (size_t i = 0; i < count; i++) {
        if (!indexer_wanted(&cases[i], tag) || !(cases[i].tags & HOSTILE_MODEL)) continue;
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

// Each plan, whatever the sizes would choose, on cases that are tagged for the model.
static void every_plan_by_force_is_right(void **state)
{
    (void)state;
    static const char *const configs[] = {"plan=fused warps=8 shares=1", "plan=fused warps=12 shares=2",
                                          "plan=fused warps=12 shares=8", "plan=fused warps=8 shares=32"};
    model *m = simt_model_any(MODEL_ACCESS);
    const qn_arch *arch = arch_of("sm_90a");
    verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count, refused = 0;
    const indexer_case *cases = indexer_cases(&count);
    for (size_t k = 0; k < QN_COUNT(configs); k++) {
        qn_config config;
        if (qn_config_parse(&qn_family_indexer, configs[k], &config) != QUERN_OK) fail_msg("%s", quern_message());
        for (size_t i = 0; i < count; i++) {
            qn_plan plan;
            if (!indexer_wanted(&cases[i], HOSTILE_MODEL) || cases[i].T == 0 ||
                (i % QN_COUNT(configs) != k && strncmp(cases[i].name, "stream", 6) &&
                 strncmp(cases[i].name, "fr12", 4)))
                continue;
            if (qn_family_indexer.plan(&cases[i].spec.base, arch, &config, &plan) != QUERN_OK) {
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

static int close_models(void **state)
{
    (void)state;
    simt_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_cases_are_right_under_sanitizers),
        cmocka_unit_test(hostile_cases_make_no_wrong_access),
        cmocka_unit_test(every_plan_by_force_is_right),
        cmocka_unit_test(a_quick_set_is_right_on_other_targets),
    };
    return cmocka_run_group_tests(tests, NULL, close_models);
}
