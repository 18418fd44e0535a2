// SPDX-License-Identifier: Apache-2.0
// Arguments: what a launch refuses before it launches, and arguments by name. By softmax_topk (rank 2), and by a family
// of the test's own, "mill", whose tensor has rank 4.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/family.h"

static _Alignas(64) char memory[256]; // never read or written: only its address is looked at

static const qn_family *softmax(void)
{
    const qn_family *family = NULL;
    assert_int_equal(qn_family_find("softmax_topk", &family), QUERN_OK);
    return family;
}

static quern_softmax_topk_spec good_spec(void)
{
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
    spec.V = 100, spec.K = 10, spec.in = QUERN_BF16;
    return spec;
}

static quern_softmax_topk_args good_args(void)
{
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    args.rows = 4;
    args.logits = memory, args.values = (float *)memory, args.indices = memory;
    return args;
}

static quern_status check(const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *args)
{
    return qn_check_args(softmax(), &spec->base, &args->base);
}

static void assert_says(const char *text)
{
    if (!strstr(quern_message(), text)) fail_msg("'%s' does not say '%s'", quern_message(), text);
}

static void good_arguments_pass(void **state)
{
    quern_softmax_topk_spec spec = good_spec();
    quern_softmax_topk_args args = good_args();

    (void)state;
    assert_int_equal(check(&spec, &args), QUERN_OK);
    args.logits_stride_rows = 100, args.values_stride_rows = 10, args.indices_stride_rows = 1000;
    assert_int_equal(check(&spec, &args), QUERN_OK);
    args.logits = memory + 2; // any element-aligned base
    assert_int_equal(check(&spec, &args), QUERN_OK);
}

static void arguments_of_another_family_are_refused(void **state)
{
    quern_softmax_topk_spec spec = good_spec();
    quern_softmax_topk_args args = good_args();
    char same[] = "softmax_topk"; // other letters' address, same letters

    (void)state;
    assert_int_equal(qn_check_args(softmax(), &spec.base, NULL), QUERN_MISSING_ARGUMENT);
    args.base.family = same;
    assert_int_equal(check(&spec, &args), QUERN_OK);
    args.base.family = "gate";
    assert_int_equal(check(&spec, &args), QUERN_WRONG_FAMILY);
    assert_says("gate");
    args.base.family = NULL;
    assert_int_equal(check(&spec, &args), QUERN_WRONG_FAMILY);
    args = good_args(), args.base.size = 8;
    assert_int_equal(check(&spec, &args), QUERN_BAD_ARGUMENT);
    assert_says("ARGS_INIT");
}

static void sizes_out_of_range_are_refused(void **state)
{
    static const int64_t bad[] = {-1, INT64_MIN, (int64_t)INT32_MAX + 1, INT64_MAX};
    quern_softmax_topk_spec spec = good_spec();
    quern_softmax_topk_args args = good_args();

    (void)state;
    for (size_t i = 0; i < QN_COUNT(bad); i++) {
        args.rows = bad[i];
        assert_int_equal(check(&spec, &args), QUERN_BAD_SIZE);
        assert_says("rows = ");
        assert_says("2147483647");
    }
    args.rows = INT32_MAX;
    assert_int_equal(check(&spec, &args), QUERN_OK);
}

static void a_null_is_missed_only_where_the_spec_asks(void **state)
{
    quern_softmax_topk_spec spec = good_spec();
    quern_softmax_topk_args args = good_args();

    (void)state;
    args.logits = NULL;
    assert_int_equal(check(&spec, &args), QUERN_MISSING_ARGUMENT);
    assert_says("logits");
    args = good_args(), args.indices = NULL;
    assert_int_equal(check(&spec, &args), QUERN_MISSING_ARGUMENT);
    args = good_args(), spec.lse = 1;
    assert_int_equal(check(&spec, &args), QUERN_MISSING_ARGUMENT);
    assert_says("lse is NULL, and the spec has lse set");
    args.lse = (float *)memory;
    assert_int_equal(check(&spec, &args), QUERN_OK);
    spec.token = 1, args.token = (int32_t *)memory, args.token_value = (float *)memory;
    assert_int_equal(check(&spec, &args), QUERN_MISSING_ARGUMENT);
    assert_says("token_rank");
}

static void no_rows_need_no_pointers(void **state)
{
    quern_softmax_topk_spec spec = good_spec();
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;

    (void)state;
    spec.lse = spec.token = 1;
    assert_int_equal(check(&spec, &args), QUERN_OK);
}

static void alignment_is_to_the_element(void **state)
{
    quern_softmax_topk_spec spec = good_spec();
    quern_softmax_topk_args args = good_args();

    (void)state;
    args.logits = memory + 1;
    assert_int_equal(check(&spec, &args), QUERN_MISALIGNED);
    assert_says("bf16");
    spec.in = QUERN_F32, args.logits = memory + 2;
    assert_int_equal(check(&spec, &args), QUERN_MISALIGNED);
    args = good_args(), args.indices = memory + 4;
    assert_int_equal(check(&spec, &args), QUERN_OK);
    spec.index = QUERN_I64;
    assert_int_equal(check(&spec, &args), QUERN_MISALIGNED);
    assert_says("i64, 8 bytes");
}

static void strides_step_over_what_is_inside(void **state)
{
    static const int64_t bad[] = {1, 99, -1, -100, INT64_MIN};
    quern_softmax_topk_spec spec = good_spec();
    quern_softmax_topk_args args = good_args();

    (void)state;
    for (size_t i = 0; i < QN_COUNT(bad); i++) {
        args.logits_stride_rows = bad[i];
        assert_int_equal(check(&spec, &args), QUERN_BAD_STRIDE);
        assert_says("logits_stride_rows");
        assert_says("at least 100");
    }
    args.logits_stride_rows = INT64_MAX; // 4 rows of that are no tensor
    assert_int_equal(check(&spec, &args), QUERN_BAD_STRIDE);
    assert_says("memory");
    args.logits_stride_rows = INT64_MAX / 4; // elements would do, bytes would not
    assert_int_equal(check(&spec, &args), QUERN_BAD_STRIDE);
    args = good_args(), args.values_stride_rows = 9;
    assert_int_equal(check(&spec, &args), QUERN_BAD_STRIDE);
    assert_says("values_stride_rows = 9");
}

static void *check_often(void *user)
{
    quern_softmax_topk_spec spec = good_spec();
    quern_softmax_topk_args args = good_args();
    int *failures = user;

    for (int i = 0; i < 2000; i++) *failures += check(&spec, &args) != QUERN_OK;
    return NULL;
}

static void many_threads_may_check_at_once(void **state)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    int failures[THREADS] = {0};

    (void)state;
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, check_often, &failures[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(failures[i], 0);
    }
}

// ---- rank 4

typedef struct mill_spec {
    quern_spec base;
    int64_t d;
} mill_spec;

typedef struct mill_args {
    quern_args base;
    int64_t B, S, H;
    const void *q;
    int64_t q_stride_B, q_stride_S, q_stride_H;
    void *workspace;
    size_t workspace_bytes;
} mill_args;

static const qn_field mill_fields[] = {
    {.name = "d", .type = QN_INT, .offset = offsetof(mill_spec, d), .required = true, .min = 1, .max = 64}};
static const qn_field mill_sizes[] = {
    {.name = "B", .min = 0, .max = 1000}, {.name = "S", .min = 0, .max = 1000}, {.name = "H", .min = 0, .max = 1000}};
static const size_t mill_size_offsets[] = {offsetof(mill_args, B), offsetof(mill_args, S), offsetof(mill_args, H)};
static const qn_tensor mill_tensors[] = {
    {.name = "q",
     .axes = {"B", "S", "H", "d"},
     .dtype = QUERN_F16,
     .pointer_offset = offsetof(mill_args, q),
     .stride_offset = {offsetof(mill_args, q_stride_B), offsetof(mill_args, q_stride_S),
                       offsetof(mill_args, q_stride_H)}},
};
static const qn_family mill = {.name = "mill",
                               .fields = mill_fields,
                               .field_count = 1,
                               .spec_bytes = sizeof(mill_spec),
                               .sizes = mill_sizes,
                               .size_args_offset = mill_size_offsets,
                               .size_count = 3,
                               .tensors = mill_tensors,
                               .tensor_count = 1,
                               .args_bytes = sizeof(mill_args),
                               .workspace_offset = offsetof(mill_args, workspace),
                               .workspace_bytes_offset = offsetof(mill_args, workspace_bytes)};

static quern_status check_mill(int64_t b, int64_t s, int64_t h, int64_t stride_b, int64_t stride_s, int64_t stride_h)
{
    mill_spec spec = {{sizeof spec, "mill"}, 8};
    mill_args args = {{sizeof args, "mill"}, b, s, h, memory, stride_b, stride_s, stride_h, NULL, 0};
    return qn_check_args(&mill, &spec.base, &args.base);
}

static void strides_of_four_axes_nest(void **state)
{
    (void)state;
    assert_int_equal(check_mill(2, 3, 4, 0, 0, 0), QUERN_OK);
    assert_int_equal(check_mill(2, 3, 4, 96, 32, 8), QUERN_OK);
    assert_int_equal(check_mill(2, 3, 4, 96, 32, 7), QUERN_BAD_STRIDE);
    assert_says("q_stride_H = 7");
    assert_int_equal(check_mill(2, 3, 4, 96, 31, 8), QUERN_BAD_STRIDE);
    assert_says("at least 32");
    assert_int_equal(check_mill(2, 3, 4, 0, 40, 10), QUERN_OK); // packed: over what is inside, strides and all
    assert_int_equal(check_mill(2, 3, 4, 96, 40, 10), QUERN_BAD_STRIDE);
    assert_says("at least 120");
    assert_int_equal(check_mill(2, 0, 4, 0, 0, 0), QUERN_OK);
    assert_int_equal(check_mill(2, 3, 1001, 0, 0, 0), QUERN_BAD_SIZE);
    assert_says("H = 1001");
}

// ---- by name

static void named_arguments_fill_the_structure(void **state)
{
    quern_softmax_topk_args args;
    int16_t logits;
    quern_argument named[] = {{"rows", NULL, 7},
                              {"logits", &logits, 0},
                              {"logits_stride_rows", NULL, 128},
                              {"values", memory, 0},
                              {"indices", memory + 8, 0},
                              {"indices_stride_rows", NULL, 64},
                              {"workspace", memory + 64, 0},
                              {"workspace_bytes", NULL, 192}};

    (void)state;
    memset(&args, 0xA5, sizeof args);
    assert_int_equal(qn_args_from_names(softmax(), named, QN_COUNT(named), &args.base), QUERN_OK);
    assert_int_equal(args.base.size, sizeof args);
    assert_string_equal(args.base.family, "softmax_topk");
    assert_int_equal(args.rows, 7);
    assert_ptr_equal(args.logits, &logits);
    assert_int_equal(args.logits_stride_rows, 128);
    assert_ptr_equal(args.indices, memory + 8);
    assert_int_equal(args.indices_stride_rows, 64);
    assert_int_equal(args.values_stride_rows, 0);
    assert_null(args.lse);
    assert_ptr_equal(args.workspace, memory + 64);
    assert_int_equal(args.workspace_bytes, 192);
}

static void bad_names_leave_the_structure_alone(void **state)
{
    static const char *const unknown[] = {
        "logit", "logits_stride", "logits_stride_V", "logits_stride_rowsx", "lse_stride_rows", "", "size", "family",
        "V"};
    quern_softmax_topk_args args, untouched;

    (void)state;
    memset(&untouched, 0xA5, sizeof untouched);
    args = untouched;
    for (size_t i = 0; i < QN_COUNT(unknown); i++) {
        quern_argument named[] = {{"rows", NULL, 7}, {unknown[i], memory, 1}};
        assert_int_equal(qn_args_from_names(softmax(), named, 2, &args.base), QUERN_UNKNOWN_ARGUMENT);
        assert_says("logits_stride_rows");
        assert_says("workspace_bytes");
        assert_memory_equal(&args, &untouched, sizeof args);
    }
    quern_argument twice[] = {{"rows", NULL, 7}, {"logits", memory, 0}, {"rows", NULL, 7}};
    assert_int_equal(qn_args_from_names(softmax(), twice, 3, &args.base), QUERN_BAD_ARGUMENT);
    assert_says("rows is given twice");
    quern_argument nameless[] = {{NULL, NULL, 7}};
    assert_int_equal(qn_args_from_names(softmax(), nameless, 1, &args.base), QUERN_MISSING_ARGUMENT);
    assert_int_equal(qn_args_from_names(softmax(), NULL, 1, &args.base), QUERN_MISSING_ARGUMENT);
    assert_memory_equal(&args, &untouched, sizeof args);
    assert_int_equal(qn_args_from_names(softmax(), NULL, 0, &args.base), QUERN_OK);
}

// ---- types

static void more_families_than_places_are_checked_all_the_same(void **state)
{
    static qn_family many[40];

    (void)state;
    for (size_t i = 0; i < QN_COUNT(many); i++) {
        mill_spec spec = {{sizeof spec, "mill"}, 8};
        mill_args args = {{sizeof args, "mill"}, 2, 3, 4, memory, 0, 0, 7, NULL, 0};
        many[i] = mill;
        assert_int_equal(qn_check_args(&many[i], &spec.base, &args.base), QUERN_BAD_STRIDE);
        args.q_stride_H = 8;
        assert_int_equal(qn_check_args(&many[i], &spec.base, &args.base), QUERN_OK);
    }
}

static void types_have_sizes_and_names(void **state)
{
    (void)state;
    assert_int_equal(qn_dtype_bytes(QUERN_F32), 4);
    assert_int_equal(qn_dtype_bytes(QUERN_F16), 2);
    assert_int_equal(qn_dtype_bytes(QUERN_BF16), 2);
    assert_int_equal(qn_dtype_bytes(QUERN_I32), 4);
    assert_int_equal(qn_dtype_bytes(QUERN_I64), 8);
    assert_int_equal(qn_dtype_bytes(QUERN_U8), 1);
    assert_int_equal(qn_dtype_bytes(QUERN_DTYPE_NONE), 0);
    assert_string_equal(qn_dtype_name(QUERN_BF16), "bf16");
    assert_string_equal(qn_dtype_name(QUERN_I64), "i64");
    assert_string_equal(qn_dtype_name((quern_dtype)99), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_may_check_at_once), // first, while no layout is kept yet
        cmocka_unit_test(good_arguments_pass),
        cmocka_unit_test(arguments_of_another_family_are_refused),
        cmocka_unit_test(sizes_out_of_range_are_refused),
        cmocka_unit_test(a_null_is_missed_only_where_the_spec_asks),
        cmocka_unit_test(no_rows_need_no_pointers),
        cmocka_unit_test(alignment_is_to_the_element),
        cmocka_unit_test(strides_step_over_what_is_inside),
        cmocka_unit_test(strides_of_four_axes_nest),
        cmocka_unit_test(more_families_than_places_are_checked_all_the_same),
        cmocka_unit_test(named_arguments_fill_the_structure),
        cmocka_unit_test(bad_names_leave_the_structure_alone),
        cmocka_unit_test(types_have_sizes_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
