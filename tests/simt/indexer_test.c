// SPDX-License-Identifier: Apache-2.0
// indexer's kernels on the functional model, through the same path as a device: every hostile case that is tagged for it,
// in two builds (sanitizers; every access checked) and in another order of execution for each case; and every plan by
// force. Needs a C++ compiler; without one it says so and is skipped.
#include <string.h>

#include "support/hostile_indexer.h"
#include "support/simt_cases.h"

static void hostile_cases_are_right_under_sanitizers(void **state)
{
    (void)state;
    simt_run_list(&indexer_family, MODEL_ASAN, "sm_90a", HOSTILE_MODEL, 1, 90);
}

static void hostile_cases_make_no_wrong_access(void **state)
{
    (void)state;
    simt_run_list(&indexer_family, MODEL_ACCESS, "sm_90a", HOSTILE_QUICK, 1, 16); // ten times slower
}

static void a_quick_set_is_right_on_other_targets(void **state)
{
    (void)state;
    simt_run_list(&indexer_family, MODEL_PLAIN, "sm_80", HOSTILE_QUICK, 1, 16);
    simt_run_list(&indexer_family, MODEL_PLAIN, "sm_100a", HOSTILE_QUICK, 1, 16);
}

// Each plan, whatever the sizes would choose, on cases that are tagged for the model: a few each, more of plans that few
// specs have, where not many CTAs share a row.
static const char *const configs[] = {"plan=fused warps=8 shares=1",
                                      "plan=fused warps=12 shares=2",
                                      "plan=fused warps=12 shares=8",
                                      "plan=fused warps=8 shares=32",
                                      "plan=prefill",
                                      "plan=wgmma warps=16 shares=1",
                                      "plan=wgmma warps=12 shares=4",
                                      "plan=wgmma warps=16 shares=32"};

static bool is_for(const void *given, size_t index, size_t number, const char *config)
{
    const indexer_case *c = given;
    bool rare = (!strcmp(config, "plan=prefill") || !strcmp(config, "plan=wgmma warps=16 shares=1")) && index % 3 == 0;
    bool edge = !strncmp(c->name, "stream", 6) || !strncmp(c->name, "fr12", 4);
    return indexer_wanted(c, HOSTILE_MODEL) && c->T > 0 && (rare || edge || index % QN_COUNT(configs) == number);
}

static void every_plan_by_force_is_right(void **state)
{
    (void)state;
    simt_run_forced(&indexer_family, configs, QN_COUNT(configs), is_for, 40);
}

// CTAs that end a row with others, and look for their words once only: the last one does their parts too.
static char *no_patience(const char *source, void *user)
{
    (void)user;
    return simt_replace(source, "kMostPolls = 256;", "kMostPolls = 1;");
}

static void parts_of_a_row_that_are_left_are_done_by_the_last(void **state)
{
    static const char *const forced[] = {"plan=wgmma warps=16 shares=32", "plan=wgmma warps=12 shares=16"};
    model *m = simt_model_any(MODEL_ACCESS);
    family_verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    (void)state;
    model_set_edit(m, no_patience, NULL);
    for (size_t i = 0; i < indexer_family.count(); i++) {
        const indexer_case *c = indexer_family.at(i);
        qn_config config;
        if (!indexer_wanted(c, HOSTILE_MODEL) || strncmp(c->name, "stream_", 7) != 0) continue;
        assert_int_equal(qn_config_parse(indexer_family.family, forced[i % 2], &config), QUERN_OK);
        simt_judge_case(&indexer_family, m, NULL, simt_arch("sm_90a"), c, &config, i, &report);
        family_count(&v, &report);
    }
    model_set_edit(m, NULL, NULL);
    qn_text_fini(&report);
    family_conclude(&v, "cases of parts that are left", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_cases_are_right_under_sanitizers),
        cmocka_unit_test(hostile_cases_make_no_wrong_access),
        cmocka_unit_test(every_plan_by_force_is_right),
        cmocka_unit_test(parts_of_a_row_that_are_left_are_done_by_the_last),
        cmocka_unit_test(a_quick_set_is_right_on_other_targets),
    };
    return cmocka_run_group_tests(tests, NULL, simt_close_models);
}
