// SPDX-License-Identifier: Apache-2.0
// indexer on a device, through the public interface, against the reference: every hostile case, three times over; every
// plan by force; a launch inside stream capture. Without a device it says why and is skipped. tests/gpu/README.md.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/gpu_cases.h"
#include "support/hostile_indexer.h"

static gpu g;

static const gpu_list list = {.f = &indexer_family, .tag = HOSTILE_GPU | HOSTILE_LARGE, .least = 140};

static void every_hostile_case_equals_the_reference_three_times_over(void **state)
{
    (void)state;
    gpu_run_list(&g, &list);
}

static const char *const forced[] = {
    "plan=fused warps=8 shares=1",
    "plan=fused warps=12 shares=2",
    "plan=fused warps=12 shares=4",
    "plan=fused warps=8 shares=8",
    "plan=fused warps=12 shares=64",
    "plan=fused warps=12 shares=128",
    "plan=prefill",
    "plan=wgmma warps=16 shares=1",
    "plan=wgmma warps=12 shares=4",
    "plan=wgmma warps=16 shares=32",
};

static bool is_for(const void *given)
{
    const indexer_case *c = given;
    return c->T && c->most < 50000 && c->spec.H == 64;
}

static void every_plan_by_force_equals_the_reference(void **state)
{
    static const gpu_list by_force = {.f = &indexer_family, .tag = HOSTILE_GPU | HOSTILE_LARGE, .least = 200};
    (void)state;
    gpu_run_forced(&g, &by_force, forced, QN_COUNT(forced), is_for);
}

static void captured_launches_give_the_same_bits(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    gpu_run_captured(&g, &indexer_family, "b0_normal", 1, 1);
    gpu_run_captured(&g, &indexer_family, "b0_normal", 3, 2);
}

static int open_device(void **state)
{
    (void)state;
    gpu_open(&g);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu_close(&g);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_hostile_case_equals_the_reference_three_times_over),
        cmocka_unit_test(every_plan_by_force_equals_the_reference),
        cmocka_unit_test(captured_launches_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
