// SPDX-License-Identifier: Apache-2.0
// attention's kernels on the functional model, through the same path as a device: the hostile cases that are tagged for
// it, in two builds (sanitizers; every access checked) and in another order of execution for each case; every plan by
// force; bits that must not depend on unused memory, nor with batch_invariant on the batch. Needs a C++ compiler; without
// one it says so and is skipped. $QUERN_TEST_SHARD=i/n runs every n-th case.
#include "support/simt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/key.h"
#include "codegen/source.h"
#include "ops/attention.h"
#include "support/attention_real.h"
#include "support/check_attention.h"

enum { MOST_REPORTS = 8 };
static const uint16_t nan16 = 0x7FFF; // a NaN in bf16 and in f16

static const qn_arch *arch_of(const char *name)
{
    const qn_arch *arch;
    if (qn_arch_find(name, &arch) != QUERN_OK) fail_msg("%s", quern_message());
    return arch;
}

static quern *open_in_memory(void)
{
    quern_options options = QUERN_OPTIONS_INIT;
    quern *q = NULL;
    options.mode = QUERN_MODE_OFF, options.cache_file = "";
    if (quern_open(&options, &q) != QUERN_OK) fail_msg("%s", quern_message());
    return q;
}

static bool is_in_shard(size_t i)
{
    const char *text = getenv("QUERN_TEST_SHARD");
    unsigned part = 0, parts = 1;
    if (text && sscanf(text, "%u/%u", &part, &parts) != 2) fail_msg("QUERN_TEST_SHARD: i/n is needed");
    return i % parts == part;
}

typedef struct verdict {
    size_t cases, failed;
} verdict;

static void conclude(verdict *v, qn_text *report)
{
    v->cases++;
    if (report->length && v->failed++ < MOST_REPORTS) print_error("%s\n", qn_text_string(report));
    qn_text_clear(report);
}

static model_order order_of(size_t i)
{
    return (model_order){.shuffle = i % 4 != 0, .seed = (uint32_t)i};
}

// Runs a case; config: in place of what is chosen. False: a fault, which is in the report.
static bool run_case(model *m, quern *q, const qn_arch *arch, const attention_data *data, const qn_config *config,
                     size_t i, qn_text *report)
{
    qn_text fault = QN_TEXT_INIT;
    const quern_spec *spec = &data->c->spec.base;
    quern_status status = config ? model_run_config(m, spec, arch, config, &data->args.base, order_of(i), &fault)
                                 : model_run_on(m, q, spec, arch, &data->args.base, order_of(i), &fault);
    if (status != QUERN_OK) {
        attention_describe(data->c, report);
        qn_text_putf(report, "    on %s: %s\n%s", arch->name, quern_message(), qn_text_string(&fault));
    }
    qn_text_fini(&fault);
    return status == QUERN_OK;
}

static void judge_case(model *m, quern *q, const qn_arch *arch, const attention_case *c, const qn_config *config,
                       size_t i, qn_text *report)
{
    attention_data data;
    if (!attention_data_make(c, nan16, &data)) fail_msg("no memory");
    if (run_case(m, q, arch, &data, config, i, report) && attention_check_case(&data, report))
        qn_text_putf(report, "    on %s, order %s %u\n", arch->name, order_of(i).shuffle ? "drawn" : "as written",
                     (unsigned)i);
    attention_data_free(&data);
}

// every: so many cases are passed over for one that is not in the quick set, compiling for a build being what takes time.
static void run_list(model_build build, const char *arch, unsigned tag, size_t every)
{
    model *m = simt_model_any(build);
    quern *q = open_in_memory();
    verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count;
    const attention_case *cases = attention_cases(&count);
    for (size_t i = 0; i < count; i++) {
        if (!attention_wanted(&cases[i], tag) || !(cases[i].tags & HOSTILE_MODEL) || !is_in_shard(i)) continue;
        if (i % every && !(cases[i].tags & HOSTILE_QUICK)) continue;
        judge_case(m, q, arch_of(arch), &cases[i], NULL, i, &report);
        conclude(&v, &report);
    }
    qn_text_fini(&report);
    quern_close(q);
    print_message("%zu cases on %s, %s build, %zu failed\n", v.cases, arch, model_build_name[build], v.failed);
    if (v.failed) fail_msg("%zu of %zu cases failed; the first ones are above", v.failed, v.cases);
}

static void hostile_cases_are_right_under_sanitizers(void **state)
{
    (void)state;
    run_list(MODEL_ASAN, "sm_100a", HOSTILE_MODEL, 4);
}

static void hostile_cases_make_no_wrong_access(void **state)
{
    (void)state;
    run_list(MODEL_ACCESS, "sm_80", HOSTILE_MODEL, 1);
}

static void a_quick_set_is_right_on_other_targets(void **state)
{
    (void)state;
    run_list(MODEL_PLAIN, "sm_86", HOSTILE_QUICK, 1);
    run_list(MODEL_PLAIN, "sm_90a", HOSTILE_QUICK, 1);
}

// Tiles that no head_dim of the list chooses: several tiles of 16 rows a warp, rows shared by 2, 4 and 8 warps, odd rings.
static void every_plan_by_force_is_right(void **state)
{
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
    static const char *const names[] = {"dim_prefill_128_128", "window_both", "sink_split", "fr16_varlen_0", "gqa_7"};
    (void)state;
    model *m = simt_model_any(MODEL_ACCESS);
    const qn_arch *arch = arch_of("sm_90a");
    verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count;
    const attention_case *cases = attention_cases(&count);
    for (size_t k = 0; k < QN_COUNT(configs); k++) {
        qn_config config;
        if (qn_config_parse(&qn_family_attention, configs[k], &config) != QUERN_OK) fail_msg("%s", quern_message());
        for (size_t i = 0; i < count; i++) {
            bool named = false;
            for (size_t n = 0; n < QN_COUNT(names); n++) named |= !strcmp(cases[i].name, names[n]);
            qn_plan plan;
            if (!named || !is_in_shard(i)) continue;
            if (qn_attention_plan(&cases[i].spec.base, arch, &config, &plan) != QUERN_OK) continue; // too narrow for it
            judge_case(m, NULL, arch, &cases[i], &config, i + k, &report);
            if (report.length) qn_text_putf(&report, "    configuration: %s\n", configs[k]);
            conclude(&v, &report);
        }
    }
    qn_text_fini(&report);
    print_message("%zu cases on forced plans, %zu failed\n", v.cases, v.failed);
    if (v.failed) fail_msg("%zu of %zu cases failed; the first ones are above", v.failed, v.cases);
}

static const attention_case *case_named(const char *name)
{
    size_t count;
    const attention_case *cases = attention_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(cases[i].name, name)) return &cases[i];
    fail_msg("no case %s", name);
    return NULL;
}

// FR14: bit for bit.
static void what_is_past_the_end_changes_no_bit(void **state)
{
    static const char *const names[] = {"fr14_dense_0", "fr14_paged_0", "fr14_paged_prefill_0"};
    static const uint16_t poisons[] = {0x7FFF, 0x7F80, 0xFF80};
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = open_in_memory();
    qn_text report = QN_TEXT_INIT;
    for (size_t n = 0; n < QN_COUNT(names); n++) {
        attention_data zero, other;
        int buffer = 0;
        assert_true(attention_data_make(case_named(names[n]), 0, &zero));
        assert_true(run_case(m, q, arch_of("sm_90a"), &zero, NULL, n, &report));
        for (size_t k = 0; k < QN_COUNT(poisons); k++) {
            assert_true(attention_data_make(case_named(names[n]), poisons[k], &other));
            assert_true(run_case(m, q, arch_of("sm_90a"), &other, NULL, n, &report));
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
    quern *q = open_in_memory();
    qn_text report = QN_TEXT_INIT;
    for (size_t n = 0; n < QN_COUNT(names); n++) {
        const attention_case *c = case_named(names[n]);
        attention_data all, one;
        assert_true(attention_data_make(c, nan16, &all));
        assert_true(run_case(m, q, arch_of("sm_90a"), &all, NULL, n, &report));
        for (int64_t b = 0; b < c->B; b++) {
            attention_case alone = attention_alone(c, b);
            assert_true(attention_data_make(&alone, nan16, &one));
            assert_true(run_case(m, q, arch_of("sm_90a"), &one, NULL, n, &report));
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
    quern *q = open_in_memory();
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
    assert_true(run_case(m, q, arch_of("sm_80"), &prefill, NULL, 0, &report));
    assert_true(run_case(m, q, arch_of("sm_80"), &decode, NULL, 0, &report));
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
    quern *q = open_in_memory();
    attention_real_make(&real);
    if (model_run_on(m, q, &real.spec.base, arch_of("sm_80"), &real.args.base, order_of(0), &report) != QUERN_OK)
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
    const qn_arch *arch = arch_of("sm_80");
    attention_data data;
    qn_config config;
    qn_plan plan;
    qn_text source = QN_TEXT_INIT, report = QN_TEXT_INIT;
    qn_attention_choose(&c->spec.base, arch, bucket, &config);
    assert_int_equal(qn_attention_plan(&c->spec.base, arch, &config, &plan), QUERN_OK);
    assert_int_equal(qn_source_write(&plan.stage[0], arch->cc, arch->suffix, NULL, false, &source), QUERN_OK);
    assert_true(attention_data_make(c, nan16, &data));
    if (!run_case(m, q, arch, &data, NULL, 0, &report)) fail_msg("%s", qn_text_string(&report)); // order 0: as written
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
    quern *q = open_in_memory();
    qn_text found = QN_TEXT_INIT;
    put_golden(m, q, "dim_prefill_64_64", QN_ATTENTION_MANY, &found);
    put_golden(m, q, "dim_decode_64_64", QN_ATTENTION_DECODE_16, &found);
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

static int close_models(void **state)
{
    (void)state;
    simt_close();
    return 0;
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
    return cmocka_run_group_tests(tests, NULL, close_models);
}
