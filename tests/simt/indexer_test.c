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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_cases_are_right_under_sanitizers),
        cmocka_unit_test(hostile_cases_make_no_wrong_access),
        cmocka_unit_test(every_plan_by_force_is_right),
        cmocka_unit_test(a_quick_set_is_right_on_other_targets),
    };
    return cmocka_run_group_tests(tests, NULL, simt_close_models);
}
