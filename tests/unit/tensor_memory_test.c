// SPDX-License-Identifier: Apache-2.0
// The model of sm_100's tensor memory: allocation rules, and that every map of registers, accumulators and scales to
// cells is one to one and reaches what the manual says.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/tensor_memory.h"

static qm_tensor_memory memory;
static qm_tmem_fault fault;

static int start(void **state)
{
    (void)state;
    memset(&memory, 0, sizeof memory);
    fault.text[0] = 0;
    return 0;
}

// ---- allocation

static void pieces_fill_the_columns_and_the_next_one_waits(void **state)
{
    (void)state;
    assert_int_equal(qm_tmem_alloc(&memory, 256, 1, &fault), 0);
    assert_int_equal(qm_tmem_alloc(&memory, 128, 1, &fault), 256);
    assert_int_equal(qm_tmem_alloc(&memory, 64, 1, &fault), 384);
    assert_int_equal(qm_tmem_alloc(&memory, 64, 1, &fault), 448);
    assert_int_equal(qm_tmem_alloc(&memory, 32, 1, &fault), QM_TMEM_WAIT);
    assert_int_equal(qm_tmem_dealloc(&memory, 256, 128, 1, &fault), 0);
    assert_int_equal(qm_tmem_alloc(&memory, 32, 1, &fault), 256);
}

static void sizes_that_do_not_exist_are_faults(void **state)
{
    static const uint32_t sizes[] = {0, 16, 31, 48, 96, 384, 513, 1024};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(qm_tmem_alloc(&memory, sizes[i], 1, &fault), QM_TMEM_FAULT);
}

static void a_later_allocation_must_not_be_larger(void **state)
{
    (void)state;
    assert_int_equal(qm_tmem_alloc(&memory, 32, 1, &fault), 0);
    assert_int_equal(qm_tmem_dealloc(&memory, 0, 32, 1, &fault), 0);
    assert_int_equal(qm_tmem_alloc(&memory, 64, 1, &fault), QM_TMEM_FAULT);
    assert_non_null(strstr(fault.text, "larger"));
}

static void a_kernel_uses_one_cta_group(void **state)
{
    (void)state;
    assert_int_equal(qm_tmem_alloc(&memory, 64, 2, &fault), 0);
    assert_int_equal(qm_tmem_alloc(&memory, 32, 1, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_dealloc(&memory, 0, 64, 1, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_group(&memory, 3, &fault), QM_TMEM_FAULT);
}

static void only_what_was_allocated_is_given_back_and_all_of_it(void **state)
{
    (void)state;
    assert_int_equal(qm_tmem_alloc(&memory, 128, 1, &fault), 0);
    assert_int_equal(qm_tmem_dealloc(&memory, 32, 32, 1, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_dealloc(&memory, 0, 64, 1, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_dealloc(&memory, 1u << 16, 128, 1, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_end(&memory, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_dealloc(&memory, 0, 128, 1, &fault), 0);
    assert_int_equal(qm_tmem_dealloc(&memory, 0, 128, 1, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_end(&memory, &fault), 0);
}

static void nothing_is_allocated_after_relinquish(void **state)
{
    (void)state;
    assert_int_equal(qm_tmem_relinquish(&memory, 1, &fault), 0);
    assert_int_equal(qm_tmem_alloc(&memory, 32, 1, &fault), QM_TMEM_FAULT);
}

// ---- ld and st

// Each register of each lane has a cell of its own, and together they are `lanes` lanes by `columns` columns.
static void check_shape(qm_tmem_shape shape, uint32_t repeat, uint32_t lanes, uint32_t split)
{
    static unsigned char used[QM_TMEM_LANES][QM_TMEM_COLUMNS];
    uint32_t registers = qm_tmem_registers(shape, repeat), columns = qm_tmem_columns(shape, repeat);
    memset(used, 0, sizeof used);
    for (uint32_t t = 0; t < 32; t++)
        for (uint32_t r = 0; r < registers; r++) {
            qm_tmem_cell c = qm_tmem_place(shape, t, r, split);
            assert_in_range(c.lane, 0, lanes - 1);
            assert_in_range(c.column, 0, columns - 1 + split);
            assert_int_equal(used[c.lane][c.column]++, 0);
        }
    assert_int_equal(32 * registers, lanes * columns * (shape == QM_16X32BX2 ? 2 : 1));
}

static void registers_and_cells_are_one_to_one(void **state)
{
    (void)state;
    for (uint32_t repeat = 1; repeat <= 128; repeat *= 2) {
        check_shape(QM_32X32B, repeat, 32, 0);
        check_shape(QM_16X64B, repeat, 16, 0);
        if (repeat <= 64) check_shape(QM_16X128B, repeat, 16, 0);
        if (repeat <= 32) check_shape(QM_16X256B, repeat, 16, 0);
        check_shape(QM_16X32BX2, repeat, 16, 128);
    }
}

static void the_256_bit_shape_is_the_fragment_of_mma(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < 32; t++)
        for (uint32_t r = 0; r < 8; r++) {
            qm_tmem_cell c = qm_tmem_place(QM_16X256B, t, r, 0);
            assert_int_equal(c.lane, t / 4 + 8 * (r % 4 / 2));
            assert_int_equal(c.column, 8 * (r / 4) + 2 * (t % 4) + r % 2);
        }
}

static void a_warp_reaches_its_own_lanes_and_allocated_columns(void **state)
{
    (void)state;
    assert_int_equal(qm_tmem_alloc(&memory, 64, 1, &fault), 0);
    assert_int_equal(qm_tmem_check(&memory, 32u << 16, 5, QM_32X32B, 64, 0, &fault), 0);
    assert_int_equal(qm_tmem_check(&memory, 48u << 16, 1, QM_16X256B, 8, 0, &fault), 0);
    assert_int_equal(qm_tmem_check(&memory, 0, 1, QM_32X32B, 64, 0, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_check(&memory, 48u << 16, 1, QM_32X32B, 32, 0, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_check(&memory, 1, 0, QM_32X32B, 64, 0, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_check(&memory, 448, 0, QM_32X32B, 128, 0, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_check(&memory, 0, 0, QM_32X32B, 3, 0, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tmem_check(&memory, 0, 0, QM_16X256B, 64, 0, &fault), QM_TMEM_FAULT);
}

// ---- accumulators, scales

static void check_layout(int cta_group, bool ws, uint32_t rows, uint32_t columns)
{
    static unsigned char used[2][QM_TMEM_LANES][QM_TMEM_COLUMNS];
    int layout = qm_tmem_layout_of(rows, cta_group, ws);
    assert_true(layout >= 0);
    memset(used, 0, sizeof used);
    for (uint32_t m = 0; m < rows; m++)
        for (uint32_t n = 0; n < columns; n++) {
            qm_tmem_element e = qm_tmem_d_place((qm_tmem_layout)layout, m, n, columns);
            assert_true(e.cta < (uint32_t)cta_group && e.lane < QM_TMEM_LANES && e.column < columns);
            assert_int_equal(used[e.cta][e.lane][e.column]++, 0);
        }
}

static void accumulators_and_cells_are_one_to_one(void **state)
{
    (void)state;
    for (uint32_t columns = 64; columns <= 256; columns *= 2) {
        check_layout(1, false, 128, columns);
        check_layout(1, false, 64, columns);
        check_layout(2, false, 256, columns);
        check_layout(2, false, 128, columns);
        check_layout(1, true, 32, columns);
        check_layout(1, true, 64, columns);
        check_layout(1, true, 128, columns);
    }
    assert_int_equal(qm_tmem_layout_of(32, 1, false), -1);
    assert_int_equal(qm_tmem_layout_of(64, 2, false), -1);
    assert_int_equal(qm_tmem_layout_of(256, 2, true), -1);
}

static void rows_of_64_use_half_of_each_warp_s_lanes(void **state)
{
    (void)state;
    assert_int_equal(qm_tmem_d_place(QM_LAYOUT_F, 15, 3, 8).lane, 15);
    assert_int_equal(qm_tmem_d_place(QM_LAYOUT_F, 16, 3, 8).lane, 32);
    assert_int_equal(qm_tmem_d_place(QM_LAYOUT_F, 63, 3, 8).lane, 111);
}

static void scales_of_128_rows_take_four_columns(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < 128; row++) {
        qm_tmem_scale s = qm_tmem_scale_place(row, 1, 2);
        assert_int_equal(s.lane, row % 32);
        assert_int_equal(s.column, row / 32);
        assert_int_equal(s.byte, 3);
    }
}

// ---- descriptors

static void instruction_descriptors_are_decoded_field_by_field(void **state)
{
    (void)state;
    uint32_t bits = 1u << 4 | 1u << 7 | 1u << 10 | 1u << 14 | 1u << 15 | (256u >> 3) << 17 | (128u >> 4) << 24;
    qm_tcgen05_instruction d = qm_tcgen05_decode(bits, QM_KIND_F16);
    assert_int_equal(d.rows, 128);
    assert_int_equal(d.columns, 256);
    assert_int_equal(d.a_type, 1);
    assert_int_equal(d.b_type, 1);
    assert_int_equal(d.d_type, 1);
    assert_true(d.negate_b && d.a_mn_major && !d.negate_a && !d.b_mn_major && !d.sparse && !d.saturate);

    bits = 2u << 4 | 1u << 7 | 1u << 10 | (64u >> 3) << 17 | 1u << 23 | (256u >> 7) << 27 | 2u << 29;
    d = qm_tcgen05_decode(bits, QM_KIND_MXF4);
    assert_int_equal(d.rows, 256);
    assert_int_equal(d.columns, 64);
    assert_int_equal(d.scale_type, 1);
    assert_int_equal(d.a_scale_id, 2);
    assert_int_equal(d.b_scale_id, 2);
    assert_int_equal(d.k, 64);
}

static void shapes_that_do_not_exist_are_faults(void **state)
{
    (void)state;
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_F16, 64, 8, 1, false, &fault), 0);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_F16, 256, 256, 2, false, &fault), 0);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_I8, 128, 24, 1, false, &fault), 0);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_TF32, 32, 64, 1, true, &fault), 0);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_MXF4, 128, 8, 1, false, &fault), 0);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_F16, 256, 64, 1, false, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_F16, 128, 8, 2, false, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_F16, 128, 264, 1, false, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_MXF4, 64, 64, 1, false, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_I8, 128, 40, 1, false, &fault), QM_TMEM_FAULT);
    assert_int_equal(qm_tcgen05_check_shape(QM_KIND_MXF8F6F4, 128, 64, 1, true, &fault), QM_TMEM_FAULT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(pieces_fill_the_columns_and_the_next_one_waits, start),
        cmocka_unit_test_setup(sizes_that_do_not_exist_are_faults, start),
        cmocka_unit_test_setup(a_later_allocation_must_not_be_larger, start),
        cmocka_unit_test_setup(a_kernel_uses_one_cta_group, start),
        cmocka_unit_test_setup(only_what_was_allocated_is_given_back_and_all_of_it, start),
        cmocka_unit_test_setup(nothing_is_allocated_after_relinquish, start),
        cmocka_unit_test_setup(registers_and_cells_are_one_to_one, start),
        cmocka_unit_test_setup(the_256_bit_shape_is_the_fragment_of_mma, start),
        cmocka_unit_test_setup(a_warp_reaches_its_own_lanes_and_allocated_columns, start),
        cmocka_unit_test_setup(accumulators_and_cells_are_one_to_one, start),
        cmocka_unit_test_setup(rows_of_64_use_half_of_each_warp_s_lanes, start),
        cmocka_unit_test_setup(scales_of_128_rows_take_four_columns, start),
        cmocka_unit_test_setup(instruction_descriptors_are_decoded_field_by_field, start),
        cmocka_unit_test_setup(shapes_that_do_not_exist_are_faults, start),
    };
    return cmocka_run_group_tests_name("tensor memory of the model", tests, NULL, NULL);
}
