// SPDX-License-Identifier: Apache-2.0
// gate on a device, through the public interface, against the reference: every hostile case, three times over; every
// plan by force; a launch inside stream capture. Without a device it says why and is skipped. tests/gpu/README.md.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/gpu_cases.h"
#include "support/hostile_gate.h"

static gpu g;

static const gpu_list list = {.f = &gate_family, .tag = HOSTILE_GPU, .least = 450, .whole_ops = true};

static void every_hostile_case_equals_the_reference_three_times_over(void **state)
{
    (void)state;
    gpu_run_list(&g, &list);
}

static const char *const forced[] = {
    "plan=block ctas=1",
    "plan=lanes lanes=8 units=1 warps=8 ctas=1",
    "plan=lanes lanes=8 units=4 warps=4 ctas=2",
    "plan=lanes lanes=8 units=4 warps=1 ctas=30",
    "plan=lanes lanes=16 units=2 warps=2 ctas=2",
    "plan=lanes lanes=16 units=4 warps=8 ctas=2",
    "plan=lanes lanes=32 units=1 warps=1 ctas=4",
    "plan=lanes lanes=32 units=4 warps=4 ctas=4",
};

// The cases of base specs: "g0_normal".
static bool is_for(const void *c)
{
    return family_case_name(c)[2] == '_' && ((const gate_case *)c)->N > 0;
}

static void every_plan_by_force_equals_the_reference(void **state)
{
    (void)state;
    gpu_run_forced(&g, &list, forced, QN_COUNT(forced), is_for);
}

static void captured_launches_give_the_same_bits(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    gpu_run_captured(&g, &gate_family, "m0_normal", 1, 1);
    gpu_run_captured(&g, &gate_family, "m0_normal", 3, 2);
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
