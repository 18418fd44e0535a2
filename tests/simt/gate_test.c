// SPDX-License-Identifier: Apache-2.0
// gate's kernels on the functional model, through the same path as a device: every hostile case that is tagged for it,
// in two builds (sanitizers; every access checked) and in another order of execution for each case; and every plan by
// force. Needs a C++ compiler; without one it says so and is skipped.
#include "support/hostile_gate.h"
#include "support/simt_cases.h"

static void hostile_cases_are_right_under_sanitizers(void **state)
{
    (void)state;
    simt_run_list(&gate_family, MODEL_ASAN, "sm_90a", HOSTILE_MODEL, 1, 200);
}

static void hostile_cases_make_no_wrong_access(void **state)
{
    (void)state;
    simt_run_list(&gate_family, MODEL_ACCESS, "sm_90a", HOSTILE_MODEL, 1, 200);
}

static void a_quick_set_is_right_on_other_targets(void **state)
{
    (void)state;
    simt_run_list(&gate_family, MODEL_PLAIN, "sm_80", HOSTILE_QUICK, 1, 70);
    simt_run_list(&gate_family, MODEL_PLAIN, "sm_100a", HOSTILE_QUICK, 1, 70);
}

// Each plan, whatever the number of tokens would choose, on the cases of the bases that are tagged for the model.
static const char *const configs[] = {"plan=block ctas=1",
                                      "plan=lanes lanes=8 units=4 warps=1 ctas=1",
                                      "plan=lanes lanes=16 units=2 warps=2 ctas=1",
                                      "plan=lanes lanes=32 units=1 warps=1 ctas=1",
                                      "plan=lanes lanes=32 units=4 warps=2 ctas=1",
                                      "plan=given warps=2 ctas=1"};

static bool is_for(const void *c, size_t index, size_t number, const char *config)
{
    (void)index, (void)number, (void)config;
    return gate_wanted(c, HOSTILE_MODEL) && ((const gate_case *)c)->N > 0;
}

static void every_plan_by_force_is_right(void **state)
{
    (void)state;
    simt_run_forced(&gate_family, configs, QN_COUNT(configs), is_for, 800);
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
