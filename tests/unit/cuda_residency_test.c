// SPDX-License-Identifier: Apache-2.0
// How many CTAs the registers of an SM are enough for. Where the tables come from: of CTAs, what cuda_occupancy.h of CUDA 13
// answers (blockLimitRegs); of registers, the caps that NVRTC 13.0 set to kernels of the gate which would have taken more.
#include "cuda/residency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const qn_arch *hopper(void)
{
    const qn_arch *arch = NULL;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    return arch;
}

static void ctas_are_counted_as_the_driver_counts_them(void **state)
{
    (void)state;
    static const struct {
        int threads, registers, ctas;
    } known[] = {
        {32, 64, 32},  {32, 65, 28},  {32, 80, 24},  {32, 255, 8},  {64, 64, 16},  {64, 80, 12}, {96, 32, 21},
        {96, 64, 10},  {96, 168, 4},  {128, 32, 16}, {128, 33, 12}, {160, 32, 12}, {256, 33, 6}, {256, 64, 4},
        {320, 32, 6},  {384, 40, 4},  {384, 168, 1}, {512, 128, 1}, {512, 129, 0}, {992, 64, 1}, {992, 72, 0},
        {1024, 64, 1}, {1024, 65, 0}, {40, 64, 16},  {128, 255, 2}, {64, 128, 8},  {224, 72, 4},
    };
    for (size_t i = 0; i < QN_COUNT(known); i++) {
        const int ctas = qn_ctas_by_registers(hopper(), known[i].threads, known[i].registers);
        if (ctas != known[i].ctas)
            fail_msg("%d threads of %d registers: %d CTAs, must be %d", known[i].threads, known[i].registers, ctas,
                     known[i].ctas);
    }
}

static void launch_bounds_cap_registers_at_what_is_said(void **state)
{
    (void)state;
    static const struct {
        int threads, ctas, registers;
    } known[] = {
        {32, 17, 96}, {32, 20, 96}, {32, 21, 80}, {32, 25, 72}, {32, 28, 72}, {32, 29, 64},
        {32, 30, 64}, {32, 32, 64}, {64, 12, 80}, {256, 3, 80}, {256, 4, 64},
    };
    for (size_t i = 0; i < QN_COUNT(known); i++) {
        const int registers = qn_registers_for_ctas(hopper(), known[i].threads, known[i].ctas);
        if (registers != known[i].registers)
            fail_msg("%d CTAs of %d threads: %d registers, must be %d", known[i].ctas, known[i].threads, registers,
                     known[i].registers);
    }
}

static void no_number_of_registers_is_few_enough_for_too_many_ctas(void **state)
{
    (void)state;
    assert_int_equal(qn_registers_for_ctas(hopper(), 1024, 8), 8);
    assert_int_equal(qn_registers_for_ctas(hopper(), 1024, 9), 0);
    assert_int_equal(qn_registers_for_ctas(hopper(), 32, 8), 255);
    assert_int_equal(qn_ctas_by_registers(hopper(), 32, 256), 0);
}

// What fits by one is not too much by the other, and one register more is.
static void both_say_the_same(void **state)
{
    size_t count;
    const qn_arch *archs = qn_arch_list(&count);
    (void)state;
    for (size_t a = 0; a < count; a++) {
        for (int threads = 32; threads <= 1024; threads += 32) {
            for (int ctas = 1; ctas <= archs[a].max_ctas_sm && ctas * threads <= archs[a].max_threads_sm; ctas++) {
                const int most = qn_registers_for_ctas(&archs[a], threads, ctas);
                assert_in_range(most, 32, 255);
                assert_true(qn_ctas_by_registers(&archs[a], threads, most) >= ctas);
                assert_true(qn_ctas_by_registers(&archs[a], threads, most + 1) < ctas);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ctas_are_counted_as_the_driver_counts_them),
        cmocka_unit_test(launch_bounds_cap_registers_at_what_is_said),
        cmocka_unit_test(no_number_of_registers_is_few_enough_for_too_many_ctas),
        cmocka_unit_test(both_say_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
