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
    runtime_machine_make(folder, database, cc, 1);
    fake_driver.param_bytes = 16;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runtime_machine_remove(folder);
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

// A structure that was cleared and not begun from its INIT has no length: none of its sizes would count.
static void sizes_without_init_are_told_from_sizes_of_0(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    quern_op *op = NULL;
    quern *q = runtime_open(&options);
    assert_int_equal(prepare(q, 2, 3, &op), QUERN_OK);
    quern_softmax_topk_sizes sizes = sizes_of(3);
    sizes.size = 0;

    assert_int_equal(quern_op_variant_for(op, &sizes), quern_op_variants(op));
    assert_non_null(strstr(quern_message(), "sizes: size = 0"));
    sizes.size = 1 << 20;
    assert_true(quern_workspace_size(op, &sizes) == SIZE_MAX);
    assert_non_null(strstr(quern_message(), "sizes: size = 1048576"));

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
            assert_int_equal(qn_range_buckets(family, NULL, &range, &found), QUERN_OK);
            assert_int_equal(found ? found : all, seen);
        }
}

// ---- families of several sizes

// Sizes of a family that a range is drawn of, each from a few numbers about its buckets' edges.
typedef struct drawn {
    const char *size;
    int64_t choices[8];
} drawn;

typedef struct box {
    _Alignas(16) unsigned char from[128], to[128], at[128];
} box;

static uint64_t draw_state = 1;
static size_t draw(size_t below)
{
    draw_state = draw_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(draw_state >> 33) % below;
}

static const qn_field *size_named(const qn_family *family, const char *name)
{
    for (size_t i = 0; i < family->size_count; i++)
        if (!strcmp(family->sizes[i].name, name)) return &family->sizes[i];
    fail_msg("%s has no size %s", family->name, name);
    return NULL;
}

static void put(unsigned char *sizes, const qn_field *size, int64_t value)
{
    memcpy(sizes + size->offset, &value, sizeof value);
}

static void draw_box(const qn_family *family, const drawn *of, size_t count, box *b)
{
    for (unsigned char *sizes = b->from; sizes != b->at + sizeof b->at; sizes += sizeof b->from)
        memcpy(sizes, &family->sizes_bytes, sizeof family->sizes_bytes);
    for (size_t i = 0; i < family->size_count; i++) { // what is not drawn may be anything
        put(b->from, &family->sizes[i], family->sizes[i].min);
        put(b->to, &family->sizes[i], family->sizes[i].max);
    }
    for (size_t i = 0; i < count; i++) {
        size_t x = draw(8), y = draw(8);
        put(b->from, size_named(family, of[i].size), of[i].choices[x < y ? x : y]);
        put(b->to, size_named(family, of[i].size), of[i].choices[x < y ? y : x]);
    }
}

// Buckets of all points of a box whose sizes are among the choices. Of what is not drawn, 0 is a point like others.
static uint32_t seen_in(const qn_family *family, const drawn *of, size_t count, box *b)
{
    uint32_t seen = 0;
    size_t points = 1;
    for (size_t i = 0; i < count; i++) points *= 8;
    for (size_t point = 0; point < points; point++) {
        bool inside = true;
        for (size_t i = 0, rest = point; i < count; i++, rest /= 8) {
            const qn_field *size = size_named(family, of[i].size);
            int64_t from, to, value = of[i].choices[rest % 8];
            memcpy(&from, b->from + size->offset, sizeof from);
            memcpy(&to, b->to + size->offset, sizeof to);
            inside &= value >= from && value <= to;
            put(b->at, size, value);
        }
        if (inside) seen |= 1u << family->bucket_of(b->at);
    }
    return seen;
}

// The buckets found are those of the points: hardly more, although sizes that the layout does not have are not given.
static void check_boxes(const char *text, const drawn *of, size_t count)
{
    const qn_family *family;
    quern_any_spec spec, full;
    int fewer = 0, exact = 0;
    assert_int_equal(quern_spec_parse(text, &spec), QUERN_OK);
    assert_int_equal(qn_spec_complete(&spec.base, &family, &full), QUERN_OK);
    uint32_t all = family->bucket_count < 32 ? (1u << family->bucket_count) - 1 : UINT32_MAX;
    for (int round = 0; round < 500; round++) {
        static box b;
        uint32_t found = 0;
        memset(&b, 0, sizeof b);
        draw_box(family, of, count, &b);
        const qn_range range = {b.from, b.to};
        assert_int_equal(qn_range_buckets(family, &full.base, &range, &found), QUERN_OK);
        uint32_t seen = seen_in(family, of, count, &b);
        if (!found) found = all;
        if (seen & ~found) fail_msg("%s, round %d: found %x, seen %x", text, round, found, seen);
        exact += found == seen; // between the choices lie sizes of a bucket that none of them is in
        fewer += found != all;
    }
    if (fewer <= 100 || exact <= 400) fail_msg("%s: %d fewer than all, %d exact", text, fewer, exact);
}

static void sizes_that_a_layout_does_not_have_need_not_be_given(void **state)
{
    (void)state;
    static const drawn dense[] = {{"Sq", {1, 2, 4, 5, 16, 17, 18, 8192}},
                                  {"Hq", {8, 8, 16, 16, 32, 32, 64, 128}},
                                  {"Hkv", {1, 1, 2, 2, 4, 8, 8, 8}}};
    static const drawn ragged[] = {{"Sq", {0, 0, 0, 0, 0, 0, 0, 0}},
                                   {"Tq", {1, 8, 16, 32, 64, 129, 4096, 8192}},
                                   {"B", {1, 1, 2, 4, 4, 8, 16, 32}},
                                   {"Hq", {8, 8, 8, 16, 16, 32, 32, 32}},
                                   {"Hkv", {1, 1, 2, 2, 4, 8, 8, 8}}};
    static const drawn paged[] = {{"T", {1, 4, 5, 16, 32, 33, 66, 4096}},
                                  {"B", {1, 1, 2, 4, 4, 512, 513, 1024}},
                                  {"max_length", {1, 2048, 2049, 8192, 8193, 32768, 32769, 1000000}}};
    static const drawn contiguous[] = {{"T", {1, 4, 5, 16, 32, 33, 66, 4096}},
                                       {"B", {1, 1, 2, 4, 4, 512, 513, 1024}},
                                       {"max_length", {0, 0, 0, 0, 0, 0, 0, 0}},
                                       {"L", {1, 2048, 2049, 8192, 8193, 32768, 32769, 1000000}}};

    check_boxes("attention d=128", dense, QN_COUNT(dense));
    check_boxes("attention d=128 layout=varlen", ragged, QN_COUNT(ragged));
    check_boxes("attention d=128 layout=varlen", dense, QN_COUNT(dense));
    check_boxes("attention d=128 layout=paged page=64", dense, QN_COUNT(dense));
    check_boxes("attention d=128 layout=paged page=64 cu_q=1", ragged, QN_COUNT(ragged));
    check_boxes("indexer H=8 C=64 k=64 page=64", paged, QN_COUNT(paged));
    check_boxes("indexer H=8 C=64 k=64 layout=nvfp4_heads epb=64", paged, QN_COUNT(paged));
    check_boxes("indexer H=8 C=64 k=64", paged, QN_COUNT(paged));
    check_boxes("indexer H=8 C=64 k=64", contiguous, QN_COUNT(contiguous));
}

// Where sizes are not known, all that they may be are there: no launch of the range is without a kernel.
static void sizes_that_are_not_known_may_be_anything(void **state)
{
    (void)state;
    const qn_family *family = &qn_family_indexer;
    quern_any_spec spec;
    quern_indexer_sizes from = QUERN_INDEXER_SIZES_INIT, to = from;
    uint32_t found = 0;
    from.T = to.T = 3, to.L = INT64_MAX;
    const qn_range range = {&from, &to};
    assert_int_equal(quern_spec_parse("indexer H=8 C=64 k=64 page=64", &spec), QUERN_OK);
    assert_int_equal(qn_range_buckets(family, &spec.base, &range, &found), QUERN_OK);
    assert_int_equal(found, 1u << family->bucket_of(&from)); // the bucket of lengths that are not known
    assert_int_equal(quern_spec_parse("indexer H=8 C=64 k=64", &spec), QUERN_OK);
    assert_int_equal(qn_range_buckets(family, &spec.base, &range, &found), QUERN_OK);
    assert_int_equal(__builtin_popcount(found), 4); // contiguous keys of any number
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
    from.rows = -1; // nor is one that begins below 0
    assert_int_equal(quern_prepare_sizes(q, &spec.base, &from, &to, 0, &op), QUERN_BAD_SIZE);
    assert_non_null(strstr(quern_message(), "rows = -1"));
    from.rows = 0, to.rows = -4;
    assert_int_equal(quern_prepare_sizes(q, &spec.base, &from, &to, 0, &op), QUERN_BAD_SIZE);
    assert_non_null(strstr(quern_message(), "rows = -4"));
    assert_int_equal(quern_warm_sizes(q, &spec.base, &from, &to, "sm_90a", NULL), QUERN_BAD_SIZE);
    assert_int_equal(quern_prepare_sizes(q, &spec.base, NULL, &to, 0, &op), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_warm_sizes(q, &spec.base, &from, NULL, "sm_90a", NULL), QUERN_MISSING_ARGUMENT);
    from.rows = 1LL << 40, to.rows = INT64_MAX; // nor beyond what a launch may have, where only the end may be
    assert_int_equal(quern_prepare_sizes(q, &spec.base, &from, &to, 0, &op), QUERN_BAD_SIZE);
    assert_non_null(strstr(quern_message(), "rows begins at 1099511627776: 2147483647 is the largest"));
    assert_int_equal(quern_warm_sizes(q, &spec.base, &from, &to, "sm_90a", NULL), QUERN_BAD_SIZE);
    from.size = 8; // no member
    assert_int_equal(quern_prepare_sizes(q, &spec.base, &from, &to, 0, &op), QUERN_BAD_ARGUMENT);
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
        TEST(sizes_without_init_are_told_from_sizes_of_0),
        TEST(the_same_range_is_the_same_op_and_the_whole_range_is_the_op_of_all),
        TEST(the_buckets_of_a_range_are_those_of_its_sizes),
        TEST(sizes_that_a_layout_does_not_have_need_not_be_given),
        TEST(sizes_that_are_not_known_may_be_anything),
        TEST(a_range_that_falls_is_refused),
        TEST(what_was_warmed_for_a_range_serves_it_in_strict_mode_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
