// SPDX-License-Identifier: Apache-2.0
// attention's kernels on the functional model, through the same path as a device: the hostile cases that are tagged for
// it, in two builds (sanitizers; every access checked) and in another order of execution for each case; every plan by
// force; bits that must not depend on unused memory, nor with batch_invariant on the batch. Needs a C++ compiler; without
// one it says so and is skipped. $QUERN_TEST_SHARD=i/n runs every n-th case.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/key.h"
#include "codegen/source.h"
#include "ops/attention.h"
#include "support/attention_real.h"
#include "support/check_attention.h"
#include "support/simt_cases.h"

static const uint16_t nan16 = 0x7FFF; // a NaN in bf16 and in f16

// Runs a case as it is chosen. False: a fault, which is in the report.
static bool run_case(model *m, quern *q, const char *arch, attention_data *data, size_t index, qn_text *report)
{
    return simt_run_data(&attention_family, m, q, simt_arch(arch), data->c, NULL, index, data, report);
}

static void hostile_cases_are_right_under_sanitizers(void **state)
{
    (void)state;
    simt_run_list(&attention_family, MODEL_ASAN, "sm_100a", HOSTILE_MODEL, 4, 45);
}

static void hostile_cases_make_no_wrong_access(void **state)
{
    (void)state;
    simt_run_list(&attention_family, MODEL_ACCESS, "sm_80", HOSTILE_MODEL, 1, 100);
}

static void a_quick_set_is_right_on_other_targets(void **state)
{
    (void)state;
    simt_run_list(&attention_family, MODEL_PLAIN, "sm_86", HOSTILE_QUICK, 1, 24);
    simt_run_list(&attention_family, MODEL_PLAIN, "sm_90a", HOSTILE_QUICK, 1, 24);
}

// Tiles that no head_dim of the list chooses: several tiles of 16 rows a warp, rows shared by 2, 4 and 8 warps, odd rings.
static const char *const configs[] = {
    "plan=prefill rows=128 keys=32 warps=4 columns=1 slots=3 ctas=1",
    "plan=prefill rows=32 keys=48 warps=1 columns=1 slots=2 ctas=1",
    "plan=prefill rows=64 keys=32 warps=2 columns=2 slots=5 ctas=1",
    "plan=prefill rows=16 keys=128 warps=1 columns=8 slots=4 ctas=1",
    "plan=decode rows=32 keys=64 warps=2 columns=4 slots=2 ctas=1",
    "plan=decode rows=16 keys=16 warps=1 columns=1 slots=6 ctas=1",
    "plan=decode rows=64 keys=32 warps=4 columns=2 slots=3 ctas=1",
    "plan=decode rows=16 keys=128 warps=1 columns=4 slots=3 ctas=2",
};
static const char *const forced_names[] = {"dim_prefill_128_128", "window_both", "sink_split", "fr16_varlen_0",
                                           "gqa_7"};

static bool is_for(const void *c, size_t index, size_t number, const char *config)
{
    bool named = false;
    (void)index, (void)number, (void)config;
    for (size_t n = 0; n < QN_COUNT(forced_names); n++) named |= !strcmp(family_case_name(c), forced_names[n]);
    return named;
}

static void every_plan_by_force_is_right(void **state)
{
    (void)state;
    simt_run_forced(&attention_family, configs, QN_COUNT(configs), is_for, 2 * QN_COUNT(configs));
}

static const attention_case *case_named(const char *name)
{
    return family_case_named(&attention_family, name);
}

// FR14: bit for bit.
static void what_is_past_the_end_changes_no_bit(void **state)
{
    static const char *const names[] = {"fr14_dense_0", "fr14_paged_0", "fr14_paged_prefill_0"};
    static const uint16_t poisons[] = {0x7FFF, 0x7F80, 0xFF80};
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    qn_text report = QN_TEXT_INIT;
    for (size_t n = 0; n < QN_COUNT(names); n++) {
        attention_data zero, other;
        int buffer = 0;
        assert_true(attention_data_make(case_named(names[n]), 0, &zero));
        assert_true(run_case(m, q, "sm_90a", &zero, n, &report));
        for (size_t k = 0; k < QN_COUNT(poisons); k++) {
            assert_true(attention_data_make(case_named(names[n]), poisons[k], &other));
            assert_true(run_case(m, q, "sm_90a", &other, n, &report));
            if (attention_same_bits(&zero, &other, &buffer) >= 0)
                fail_msg("%s with %04x past the end", names[n], poisons[k]);
            attention_data_free(&other);
        }
        attention_data_free(&zero);
    }
    qn_text_fini(&report);
    quern_close(q);
}

static void a_sequence_alone_has_the_same_bits(void **state)
{
    static const char *const names[] = {"invariant_dense", "invariant_varlen"};
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    qn_text report = QN_TEXT_INIT;
    for (size_t n = 0; n < QN_COUNT(names); n++) {
        const attention_case *c = case_named(names[n]);
        attention_data all, one;
        assert_true(attention_data_make(c, nan16, &all));
        assert_true(run_case(m, q, "sm_90a", &all, n, &report));
        for (int64_t b = 0; b < c->B; b++) {
            attention_case alone = attention_alone(c, b);
            assert_true(attention_data_make(&alone, nan16, &one));
            assert_true(run_case(m, q, "sm_90a", &one, n, &report));
            if (!attention_same_alone(&all, b, &one, &report)) fail_msg("%s", qn_text_string(&report));
            attention_data_free(&one);
        }
        attention_data_free(&all);
    }
    qn_text_fini(&report);
    quern_close(q);
}

static void decode_equals_the_last_row_of_prefill(void **state)
{
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    qn_text report = QN_TEXT_INIT;
    attention_data prefill, decode;
    attention_case many = *case_named("dim_prefill_64_64"), one = many;
    one.queries[0] = 1;
    // The last query's content: that of query 0 of a case whose queries begin there.
    assert_true(attention_data_make(&many, nan16, &prefill) && attention_data_make(&one, nan16, &decode));
    for (int64_t h = 0; h < many.Hq; h++) {
        int64_t from = attention_row_of_query(&many, ATTENTION_Q, 0, many.queries[0] - 1, h);
        int64_t to = attention_row_of_query(&one, ATTENTION_Q, 0, 0, h);
        memcpy((uint16_t *)decode.args.q + to, (const uint16_t *)prefill.args.q + from, 2 * (size_t)many.spec.d);
    }
    assert_true(run_case(m, q, "sm_80", &prefill, 0, &report));
    assert_true(run_case(m, q, "sm_80", &decode, 0, &report));
    assert_true(attention_ulps_of_last_query(&prefill, &decode) <= 1);
    attention_data_free(&prefill);
    attention_data_free(&decode);
    qn_text_fini(&report);
    quern_close(q);
}

static void real_activations_give_the_expected_output(void **state)
{
    (void)state;
    attention_real real;
    qn_text report = QN_TEXT_INIT;
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    attention_real_make(&real);
    if (model_run_on(m, q, &real.spec.base, simt_arch("sm_80"), &real.args.base, simt_order(0), &report) != QUERN_OK)
        fail_msg("%s\n%s", quern_message(), qn_text_string(&report));
    if (attention_real_check(&real, &report)) fail_msg("%s", qn_text_string(&report));
    attention_real_free(&real);
    qn_text_fini(&report);
    quern_close(q);
}

// ---- golden: head_dim 64 stays what it is when others are added

static void put_hash(const char *what, const void *bytes, size_t count, qn_text *text)
{
    char hex[33];
    qn_hash hash = qn_hash_bytes(bytes, count);
    qn_hash_hex(&hash, hex);
    qn_text_putf(text, " %s %s", what, hex);
}

// One line: the hash of the kernel's text, and of what it makes of a case.
static void put_golden(model *m, quern *q, const char *name, size_t bucket, qn_text *text)
{
    const attention_case *c = case_named(name);
    const qn_arch *arch = simt_arch("sm_80");
    attention_data data;
    qn_config config;
    qn_plan plan;
    qn_text source = QN_TEXT_INIT, report = QN_TEXT_INIT;
    qn_attention_choose(&c->spec.base, arch, bucket, &config);
    assert_int_equal(qn_attention_plan(&c->spec.base, arch, &config, &plan), QUERN_OK);
    assert_int_equal(qn_source_write(&plan.stage[0], arch->cc, arch->suffix, NULL, false, &source), QUERN_OK);
    assert_true(attention_data_make(c, nan16, &data));
    if (!run_case(m, q, arch->name, &data, 0, &report)) fail_msg("%s", qn_text_string(&report)); // order 0: as written
    qn_text_puts(text, name);
    put_hash("text", source.bytes, source.length, text);
    put_hash("out", data.buffer[ATTENTION_OUT].bytes, data.buffer[ATTENTION_OUT].count, text);
    put_hash("lse", data.buffer[ATTENTION_LSE].bytes, data.buffer[ATTENTION_LSE].count, text);
    qn_text_puts(text, "\n");
    attention_data_free(&data);
    qn_text_fini(&source);
    qn_text_fini(&report);
}

// A change of the kernels of head_dim 64 that is meant goes into the file: the message has its new content.
static void head_dim_64_keeps_its_text_and_its_bits(void **state)
{
    (void)state;
    char path[512], kept[1024] = "";
    const char *folder = getenv("QUERN_TEST_SOURCE");
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    qn_text found = QN_TEXT_INIT;
    put_golden(m, q, "dim_prefill_64_64", QN_ATTENTION_MANY, &found);
    put_golden(m, q, "dim_decode_64_64", QN_ATTENTION_DECODE_8, &found);
    snprintf(path, sizeof path, "%s/tests/data/expected/attention_d64.txt", folder ? folder : ".");
    FILE *file = fopen(path, "r");
    if (file) (void)!fread(kept, 1, sizeof kept - 1, file);
    if (file) fclose(file);
    if (strcmp(kept, qn_text_string(&found)) != 0) {
        print_error("%s has\n%sand should have\n%s", path, kept, qn_text_string(&found));
        fail_msg("the kernels of head_dim 64, or what they compute, changed");
    }
    qn_text_fini(&found);
    quern_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_cases_make_no_wrong_access),
        cmocka_unit_test(hostile_cases_are_right_under_sanitizers),
        cmocka_unit_test(every_plan_by_force_is_right),
        cmocka_unit_test(a_quick_set_is_right_on_other_targets),
        cmocka_unit_test(what_is_past_the_end_changes_no_bit),
        cmocka_unit_test(a_sequence_alone_has_the_same_bits),
        cmocka_unit_test(decode_equals_the_last_row_of_prefill),
        cmocka_unit_test(real_activations_give_the_expected_output),
        cmocka_unit_test(head_dim_64_keeps_its_text_and_its_bits),
    };
    return cmocka_run_group_tests(tests, NULL, simt_close_models);
}
