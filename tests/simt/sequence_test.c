// SPDX-License-Identifier: Apache-2.0
// Launches of one op after one another on one workspace, on the functional model: other sizes, so other variants, and back
// again; tensors in strides, orders of axes and alignments that no other test has. Every launch is judged. Needs a C++
// compiler; without one it says so and is skipped.
#include "support/simt_sequence.h"

#include <stdio.h>
#include <string.h>

#include "support/attention_forced.h"
#include "support/check.h"
#include "support/hostile_indexer.h"
#include "support/hostile_router.h"

enum { ORDERS = 2 }; // of execution, each with its own layouts

// Runs the steps in each order; those that lie do so otherwise each time.
static void run_steps(const family_cases *f, model_build build, const char *arch, int sms, simt_step *steps,
                      size_t count)
{
    model *m = simt_model_any(build);
    quern *q = simt_open();
    qn_text report = QN_TEXT_INIT;
    for (uint32_t order = 0; order < ORDERS; order++) {
        for (size_t i = 0; i < count; i++) steps[i].lies = (i + order) % 3 ? order * 10 + i + 1 : 0;
        simt_run_sequence(f, m, q, simt_arch(arch), sms, steps, count, simt_order(order), &report);
        if (report.length) fprintf(stderr, "%s\n", qn_text_string(&report)); // cmocka's messages are cut
        if (report.length) fail_msg("a sequence on %s, order %u", arch, order);
    }
    quern_close(q);
    qn_text_fini(&report);
}

// ---- softmax_topk, whose cases have no such description elsewhere

static bool softmax_make(const void *c, uint16_t poison, void *data)
{
    (void)poison;
    return hostile_data_make(c, data);
}
static void softmax_free(void *data)
{
    hostile_data_free(data);
}
static int64_t softmax_check(const void *data, qn_text *report)
{
    return check_case(data, report);
}
static void softmax_describe(const void *c, qn_text *report)
{
    check_describe(c, report);
}
static const family_cases softmax_family = {
    .family = &qn_family_softmax_topk,
    .describe = softmax_describe,
    .spec_offset = offsetof(hostile_case, spec),
    .data_bytes = sizeof(hostile_data),
    .args_offset = offsetof(hostile_data, args),
    .make = softmax_make,
    .free = softmax_free,
    .check = softmax_check,
};

static void softmax_topk_splits_rows_again_and_again(void **state)
{
    static const int64_t rows[] = {3, 1, 5, 3};
    static const char *const configs[] = {"plan=split block=128 ctas=2 local_k=4 unroll=4 shares=8",
                                          "plan=split block=128 ctas=2 local_k=4 unroll=4 shares=4",
                                          "plan=stream block=256 ctas=1 local_k=4 unroll=2",
                                          "plan=split block=128 ctas=2 local_k=4 unroll=4 shares=8"};
    hostile_case cases[QN_COUNT(rows)];
    simt_step steps[QN_COUNT(rows)];
    quern_any_spec spec;
    (void)state;
    assert_int_equal(quern_spec_parse("softmax_topk V=9001 K=40 in=bf16 index=i64 lse=1 token=1", &spec), QUERN_OK);
    for (size_t i = 0; i < QN_COUNT(rows); i++) {
        assert_true(hostile_pattern(i, (const quern_softmax_topk_spec *)&spec, rows[i], &cases[i]));
        steps[i] = (simt_step){&cases[i], configs[i], 0};
    }
    run_steps(&softmax_family, MODEL_ACCESS, "sm_80", 0, steps, QN_COUNT(steps));
}

// ---- router

static void run_router(const char *text, const char *arch, const int64_t *tokens, size_t count)
{
    router_case cases[SIMT_MOST_STEPS];
    simt_step steps[SIMT_MOST_STEPS];
    quern_any_spec spec;
    assert_int_equal(quern_spec_parse(text, &spec), QUERN_OK);
    for (size_t i = 0; i < count; i++) {
        assert_true(router_pattern(i % 3, (const quern_router_spec *)&spec, tokens[i], &cases[i]));
        steps[i] = (simt_step){&cases[i], NULL, 0};
    }
    run_steps(&router_family, MODEL_ACCESS, arch, 0, steps, count);
}

static void router_exchanges_parts_after_launches_of_other_sizes(void **state)
{
    static const int64_t few[] = {5, 70, 40, 5}, many[] = {3, 130, 64, 1};
    (void)state;
    run_router("router D=200 E=40 K=4 in=bf16 w=bf16 bias=1 logits=1", "sm_90a", few, QN_COUNT(few));
    run_router("router D=136 E=24 K=4 in=f16 w=f16 batch_invariant=1 logits=1", "sm_80", many, QN_COUNT(many));
}

// ---- attention

static void run_attention(const attention_forced *launches, size_t count, const char *arch, int sms)
{
    attention_case cases[SIMT_MOST_STEPS];
    simt_step steps[SIMT_MOST_STEPS];
    for (size_t i = 0; i < count; i++) {
        cases[i] = attention_forced_case(&launches[i], 300 + i);
        steps[i] = (simt_step){&cases[i], launches[i].config, 0};
    }
    run_steps(&attention_family, MODEL_ACCESS, arch, sms, steps, count);
}

// Tiles enough that the last CTA of each adds its parts, and few SMs, so that CTAs have several splits.
static void attention_merges_splits_again_and_again(void **state)
{
    static const char *const dense = "d=32 dv=40 kv_split=64 lse=1 sink=1",
                             *const paged = "d=64 layout=paged page=16 cu_q=1 causal=1 lse=1";
    const attention_forced decode[] = {
        {"first", NULL, dense, 0, 2, 4, 2, {1}, {300}, 0, ATTENTION_PACKED, NULL},
        {"other_heads", NULL, dense, 0, 2, 40, 2, {1}, {200}, 0, ATTENTION_PACKED, NULL},
        {"many", NULL, dense, 0, 1, 4, 2, {20}, {70}, 0, ATTENTION_PACKED, NULL},
        {"again", NULL, dense, 0, 3, 4, 2, {2}, {190}, 0, ATTENTION_PACKED, NULL},
    };
    const attention_forced ragged[] = {
        {"first", NULL, paged, 0, 2, 6, 1, {1, 2}, {400, 90}, 0, ATTENTION_PACKED, NULL},
        {"many", NULL, paged, 0, 2, 6, 1, {30, 1}, {64, 5}, 0, ATTENTION_PACKED, NULL},
        {"again", NULL, paged, 0, 2, 6, 1, {1, 1}, {70, 600}, 0, ATTENTION_PACKED, NULL},
    };
    (void)state;
    run_attention(decode, QN_COUNT(decode), "sm_80", 4);
    run_attention(ragged, QN_COUNT(ragged), "sm_90a", 2);
}

// ---- indexer

static void indexer_selects_after_launches_of_other_plans(void **state)
{
    static const struct {
        int64_t T, most;
        const char *config;
    } launches[] = {{2, 900, "plan=wgmma warps=8 shares=8"},
                    {3, 500, "plan=fused warps=8 shares=4"},
                    {9, 300, "plan=prefill warps=8 shares=1"},
                    {1, 800, "plan=wgmma warps=8 shares=16"},
                    {2, 600, "plan=fused warps=8 shares=4"}};
    indexer_case cases[QN_COUNT(launches)];
    simt_step steps[QN_COUNT(launches)];
    quern_any_spec spec;
    (void)state;
    assert_int_equal(quern_spec_parse("indexer H=6 C=64 k=60 q=mxfp4 page=16 row_seq=1 scores=1", &spec), QUERN_OK);
    for (size_t i = 0; i < QN_COUNT(launches); i++) {
        cases[i] = (indexer_case){.T = launches[i].T, .most = launches[i].most, .sequences = 2, .seed = 40 + 3 * i};
        memcpy(&cases[i].spec, &spec, sizeof cases[i].spec);
        snprintf(cases[i].name, sizeof cases[i].name, "launch_%zu", i);
        cases[i].fill = INDEXER_INTEGER, cases[i].exact = true, cases[i].lengths = INDEXER_CAUSAL;
        steps[i] = (simt_step){&cases[i], launches[i].config, 0};
    }
    run_steps(&indexer_family, MODEL_ACCESS, "sm_90a", 0, steps, QN_COUNT(steps));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_topk_splits_rows_again_and_again),
        cmocka_unit_test(router_exchanges_parts_after_launches_of_other_sizes),
        cmocka_unit_test(attention_merges_splits_again_and_again),
        cmocka_unit_test(indexer_selects_after_launches_of_other_plans),
    };
    return cmocka_run_group_tests(tests, NULL, simt_close_models);
}
