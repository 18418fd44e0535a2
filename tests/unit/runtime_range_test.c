// SPDX-License-Identifier: Apache-2.0
// Ops of a range of sizes: what is compiled for them, what they launch, and warming for them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "runtime/private.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/runtime_fixture.h"

static char folder[64];
static char database[128];
static float logits[64], values[64];
static int32_t indices[64];
static _Alignas(256) unsigned char workspace[1 << 22];

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90};
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    fake_nvrtc_install(13, 0);
    fake_driver_install(1, cc);
    fake_driver_enter(fake_driver_context(0));
    fake_driver.param_bytes = 16;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_driver_enter(NULL);
    fake_driver_remove();
    fake_nvrtc_remove();
    cache_folder_remove(folder);
    return 0;
}

static quern_softmax_topk_sizes sizes_of(int64_t rows)
{
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    sizes.rows = rows;
    return sizes;
}

static quern_status prepare(quern *q, int64_t from_rows, int64_t to_rows, quern_op **op)
{
    quern_softmax_topk_spec spec = runtime_spec(128256, 50);
    quern_softmax_topk_sizes from = sizes_of(from_rows), to = sizes_of(to_rows);
    return quern_prepare_sizes(q, &spec.base, &from, &to, 0, op);
}

static quern_status launch(const quern_op *op, int64_t rows)
{
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    args.rows = rows, args.logits = logits, args.values = values, args.indices = indices;
    args.workspace = workspace, args.workspace_bytes = sizeof workspace;
    return quern_softmax_topk(op, &args, NULL); // the fake driver reads none of them
}

static void a_range_compiles_less_than_all_and_launches_what_is_in_it(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(128256, 50);
    quern_options options = runtime_options("", NULL);
    quern_op *small = NULL, *all = NULL;
    quern *q = runtime_open(&options);
    assert_int_equal(prepare(q, 1, 4, &small), QUERN_OK);
    long of_range = fake_nvrtc.compiles;
    assert_int_equal(launch(small, 1), QUERN_OK);
    assert_int_equal(launch(small, 4), QUERN_OK);
    assert_int_equal(launch(small, 4096), QUERN_BAD_SIZE);
    assert_non_null(strstr(quern_message(), "rows"));
    assert_non_null(strstr(quern_message(), "1..4"));

    assert_int_equal(quern_prepare(q, &spec.base, 0, &all), QUERN_OK);

    assert_ptr_not_equal(all, small);
    assert_true(of_range > 0 && of_range < fake_nvrtc.compiles);
    assert_int_equal(launch(all, 4096), QUERN_OK);
    assert_true(quern_op_variants(small) < quern_op_variants(all));
    quern_op_release(small);
    quern_op_release(all);
    quern_close(q);
}

static void look_ups_outside_the_range_answer_that_there_is_none(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_op *op = NULL;
    quern *q = runtime_open(&options);
    assert_int_equal(prepare(q, 2, 3, &op), QUERN_OK);
    quern_softmax_topk_sizes inside = sizes_of(3), outside = sizes_of(1000000);

    assert_int_equal(quern_op_variant_for(op, &inside), 0);
    assert_int_equal(quern_op_variant_for(op, &outside), quern_op_variants(op));
    assert_int_equal(quern_op_describe(op, quern_op_variant_for(op, &outside), 0, &info), QUERN_BAD_ARGUMENT);
    assert_true(quern_workspace_size(op, &outside) <= sizeof workspace);

    quern_op_release(op);
    quern_close(q);
}

static void the_same_range_is_the_same_op_and_the_whole_range_is_the_op_of_all(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(128256, 50);
    quern_options options = runtime_options("", NULL);
    quern_op *first = NULL, *again = NULL, *whole = NULL, *all = NULL;
    quern *q = runtime_open(&options);

    assert_int_equal(prepare(q, 1, 2, &first), QUERN_OK);
    assert_int_equal(prepare(q, 3, 4, &again), QUERN_OK); // another part of the same bucket
    assert_int_equal(prepare(q, 0, INT64_MAX, &whole), QUERN_OK);
    assert_int_equal(quern_prepare(q, &spec.base, 0, &all), QUERN_OK);

    assert_ptr_equal(first, again);
    assert_ptr_equal(whole, all);
    quern_op_release(first);
    quern_op_release(again);
    quern_op_release(whole);
    quern_op_release(all);
    quern_close(q);
}

// Every bucket that the range touches, and no other: by asking each size.
static void the_buckets_of_a_range_are_those_of_its_sizes(void **state)
{
    (void)state;
    static const int64_t edges[] = {1, 2, 4, 5, 14, 15, 63, 66, 67, 264, 528, 529, 700};
    const qn_family *family;
    assert_int_equal(qn_family_find("softmax_topk", &family), QUERN_OK);
    for (size_t i = 0; i < QN_COUNT(edges); i++)
        for (size_t j = i; j < QN_COUNT(edges); j++) {
            quern_softmax_topk_sizes from = sizes_of(edges[i]), to = sizes_of(edges[j]);
            const qn_range range = {&from, &to};
            uint32_t seen = 0, found = 0, all = (1u << family->bucket_count) - 1;
            for (int64_t rows = edges[i]; rows <= edges[j]; rows++) {
                quern_softmax_topk_sizes sizes = sizes_of(rows);
                seen |= 1u << family->bucket_of(&sizes);
            }
            assert_int_equal(qn_range_buckets(family, &range, &found), QUERN_OK);
            assert_int_equal(found ? found : all, seen);
        }
}

// Which bucket serves an attention's sizes depends on more than one of them: no size in the range may be left out.
static void a_range_of_several_sizes_has_the_buckets_of_all_of_them(void **state)
{
    (void)state;
    const qn_family *family = &qn_family_attention;
    quern_attention_sizes from = QUERN_ATTENTION_SIZES_INIT;
    from.B = 4, from.Sq = 1, from.Sk = 1024, from.Hq = 32, from.Hkv = 8;
    quern_attention_sizes to = from, sizes = from;
    to.Sq = 8192;
    const qn_range range = {&from, &to}, point = {&from, &from};
    uint32_t found = 0, all = (1u << family->bucket_count) - 1;

    assert_int_equal(qn_range_buckets(family, &range, &found), QUERN_OK);
    if (!found) found = all;
    for (sizes.Sq = from.Sq; sizes.Sq <= to.Sq; sizes.Sq++) assert_true(found >> family->bucket_of(&sizes) & 1);
    assert_int_equal(qn_range_buckets(family, &point, &found), QUERN_OK);
    assert_int_equal(found, 1u << family->bucket_of(&from));
}

static void a_range_that_falls_is_refused(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_softmax_topk_sizes from = sizes_of(5), to = sizes_of(4);
    quern_options options = runtime_options("", NULL);
    quern_op *op = NULL;
    quern *q = runtime_open(&options);

    assert_int_equal(quern_prepare_sizes(q, &spec.base, &from, &to, 0, &op), QUERN_BAD_SIZE);
    assert_non_null(strstr(quern_message(), "rows goes from 5 to 4"));
    assert_int_equal(quern_warm_sizes(q, &spec.base, &from, &to, "sm_90a", NULL), QUERN_BAD_SIZE);
    assert_int_equal(quern_prepare_sizes(q, &spec.base, NULL, &to, 0, &op), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_warm_sizes(q, &spec.base, &from, NULL, "sm_90a", NULL), QUERN_MISSING_ARGUMENT);
    from.size = 0; // no INIT
    assert_int_equal(quern_prepare_sizes(q, &spec.base, &from, &to, 0, &op), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "from: size = 0"));

    assert_null(op);
    assert_int_equal(fake_nvrtc.compiles, 0);
    quern_close(q);
}

static void what_was_warmed_for_a_range_serves_it_in_strict_mode_and_nothing_else(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(128256, 50);
    quern_softmax_topk_sizes from = sizes_of(1), to = sizes_of(4);
    quern_warm_report part = QUERN_WARM_REPORT_INIT, rest = QUERN_WARM_REPORT_INIT;
    quern_options options = runtime_options(database, NULL);
    quern_op *op = NULL;
    quern *q = runtime_open(&options);
    assert_int_equal(quern_warm_sizes(q, &spec.base, &from, &to, "sm_90a", &part), QUERN_OK);
    quern_close(q);
    options.mode = QUERN_MODE_STRICT;

    q = runtime_open(&options);
    assert_int_equal(prepare(q, 1, 4, &op), QUERN_OK);
    assert_int_equal(launch(op, 4), QUERN_OK);
    quern_op_release(op);
    op = NULL;
    assert_int_equal(quern_prepare(q, &spec.base, 0, &op), QUERN_WOULD_COMPILE);
    assert_null(op);
    quern_close(q);

    options.mode = QUERN_MODE_NORMAL;
    q = runtime_open(&options);
    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", &rest), QUERN_OK);
    assert_int_equal(rest.cached, part.kernels);
    assert_true(rest.compiled > 0);
    quern_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_range_compiles_less_than_all_and_launches_what_is_in_it),
        TEST(look_ups_outside_the_range_answer_that_there_is_none),
        TEST(the_same_range_is_the_same_op_and_the_whole_range_is_the_op_of_all),
        TEST(the_buckets_of_a_range_are_those_of_its_sizes),
        TEST(a_range_of_several_sizes_has_the_buckets_of_all_of_them),
        TEST(a_range_that_falls_is_refused),
        TEST(what_was_warmed_for_a_range_serves_it_in_strict_mode_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
