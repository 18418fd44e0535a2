// SPDX-License-Identifier: Apache-2.0
// The table of architectures, and the targets of a device.
#include "cuda/arch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void assert_targets(int cc, const char *wanted)
{
    const qn_arch *targets[8];
    char text[128] = "";
    size_t count = qn_arch_targets(cc, targets);

    for (size_t i = 0; i < count; i++) {
        if (i) strcat(text, " ");
        strcat(text, targets[i]->name);
    }
    if (strcmp(text, wanted)) fail_msg("%d.%d: %s, wanted %s", cc / 10, cc % 10, text, wanted);
}

static void targets_go_from_exact_to_family_to_plain_to_lower_minors(void **state)
{
    (void)state;
    assert_targets(80, "sm_80");
    assert_targets(86, "sm_86 sm_80");
    assert_targets(87, "sm_86 sm_80");
    assert_targets(89, "sm_89 sm_86 sm_80");
    assert_targets(90, "sm_90a sm_90");
    assert_targets(100, "sm_100a sm_100f sm_100");
    assert_targets(103, "sm_103a sm_100f sm_100");
    assert_targets(120, "sm_120a sm_120");
    assert_targets(121, "sm_121a sm_120");
}

static void a_device_we_do_not_know_has_no_targets(void **state)
{
    (void)state;
    assert_targets(75, "");
    assert_targets(70, "");
    assert_targets(110, "");
    assert_targets(131, "");
    assert_targets(0, "");
}

static void find_takes_exact_names_only(void **state)
{
    static const char *const bad[] = {"",     "90a",    "compute_90", "sm_90 ", "SM_90a",
                                      "sm_9", "sm_131", "sm_60",      "sm_100b"};
    const qn_arch *arch;

    (void)state;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    assert_int_equal(arch->cc, 90);
    assert_int_equal(arch->suffix, 'a');
    for (size_t i = 0; i < QN_COUNT(bad); i++) {
        const qn_arch *untouched = arch;
        assert_int_equal(qn_arch_find(bad[i], &untouched), QUERN_UNKNOWN_ARCH);
        assert_ptr_equal(untouched, arch);
        assert_non_null(strstr(quern_message(), bad[i]));
    }
    assert_int_equal(qn_arch_find(NULL, &arch), QUERN_UNKNOWN_ARCH);
}

static void an_unknown_name_lists_all_known_ones(void **state)
{
    size_t count;
    const qn_arch *list = qn_arch_list(&count), *arch;

    (void)state;
    assert_int_equal(qn_arch_find("sm_131", &arch), QUERN_UNKNOWN_ARCH);
    for (size_t i = 0; i < count; i++) assert_non_null(strstr(quern_message(), list[i].name));
}

static void the_designs_targets_are_in_the_table(void **state)
{
    static const char *const names[] = {"sm_80",   "sm_86",   "sm_89",   "sm_90a", "sm_100a",
                                        "sm_100f", "sm_103a", "sm_120a", "sm_121a"};
    const qn_arch *arch;

    (void)state;
    for (size_t i = 0; i < QN_COUNT(names); i++) assert_int_equal(qn_arch_find(names[i], &arch), QUERN_OK);
}

static void the_table_agrees_with_itself(void **state)
{
    size_t count;
    const qn_arch *list = qn_arch_list(&count);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        const qn_arch *a = &list[i];
        char name[16];
        snprintf(name, sizeof name, "sm_%d%.1s", a->cc, a->suffix ? &a->suffix : "");
        assert_string_equal(a->name, name);
        assert_true(i == 0 || list[i - 1].cc <= a->cc);
        assert_int_equal(a->shared_cta, a->shared_sm - 1024); // the system keeps 1 KiB a CTA
        assert_int_equal(a->registers_sm, 65536);
        assert_int_equal(a->max_cluster > 1, a->cc >= 90);
        assert_int_equal(a->has_bulk_copy, a->cc >= 90);
        assert_int_equal(a->has_wgmma, a->cc == 90 && a->suffix == 'a');
        assert_int_equal(a->has_tcgen05, a->cc / 10 == 10 && a->suffix);
        assert_int_equal(a->tensor_memory_columns, a->has_tcgen05 ? 512 : 0);
        assert_true(a->has_cp_async && a->sm_count > 0 && a->max_threads_sm % 128 == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_go_from_exact_to_family_to_plain_to_lower_minors),
        cmocka_unit_test(a_device_we_do_not_know_has_no_targets),
        cmocka_unit_test(find_takes_exact_names_only),
        cmocka_unit_test(an_unknown_name_lists_all_known_ones),
        cmocka_unit_test(the_designs_targets_are_in_the_table),
        cmocka_unit_test(the_table_agrees_with_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
