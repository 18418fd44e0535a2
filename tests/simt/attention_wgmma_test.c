// SPDX-License-Identifier: Apache-2.0
// attention's plan "wgmma" on the functional model, by force: tiles of every kind on lengths at their edges, head_dims
// between the instructions' steps, every feature, and arguments that only its second stage can serve; which of the two
// stages ran is looked up in the texts. Needs a C++ compiler; without one it says so and is skipped.
// The case "stays" has more tiles than the device has SMs, so that a CTA goes from one to the next, as it does also from
// the first to the second of a pair of tiles (causal, more queries than a tile has).
// $QUERN_TEST_CASE: only cases with this in their name; $QUERN_TEST_SHARD=i/n: every n-th.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attention.h"
#include "support/check_attention.h"
#include "support/simt_cases.h"

#define GROUPS_2 "plan=wgmma rows=128 keys=128 columns=1 slots=4"
#define GROUPS_3 "plan=wgmma rows=192 keys=64 columns=1 slots=4"
#define SMALL    "plan=wgmma rows=128 keys=16 columns=1 slots=2"
#define AHEAD    "plan=wgmma rows=128 keys=16 columns=1 slots=8"
#define WIDE     "plan=wgmma rows=128 keys=80 columns=1 slots=4"
#define COLUMNS  "plan=wgmma rows=64 keys=64 columns=2 slots=2"

enum { ASAN = 1, ACCESS = 2, BOTH = 3 };

typedef struct forced {
    const char *name, *config, *fields;
    unsigned builds;
    int B, Hq, Hkv;
    int64_t queries[3], keys[3]; // of each sequence; all zero after the first: as the first
    int64_t Sk;                  // dense: more than the longest; 0: as long
    attention_order order;
    bool second; // the second stage serves it
} forced;

static const forced cases[] = {
    {"d64_tails", GROUPS_2, "d=64 lse=1", BOTH, 1, 2, 1, {133}, {259}, 0, ATTENTION_PACKED, false},
    {"d64_three_groups", GROUPS_3, "d=64 causal=1", ASAN, 1, 1, 1, {200}, {210}, 0, ATTENTION_HEADS_FIRST, false},
    {"d64_one_query", GROUPS_2, "d=64 causal=1 lse=1", ACCESS, 2, 3, 1, {1}, {65}, 0, ATTENTION_PACKED, false},
    {"d64_more_queries", SMALL, "d=64 causal=1 lse=1", BOTH, 1, 1, 1, {150}, {20}, 0, ATTENTION_PACKED, false},
    {"d128_causal_gqa", GROUPS_2, "d=128 causal=1 lse=1", BOTH, 1, 4, 2, {66}, {140}, 0, ATTENTION_PACKED, false},
    {"d128_f16_window",
     SMALL,
     "d=128 in=f16 window_left=9 window_right=5 lse=1",
     BOTH,
     1,
     2,
     1,
     {70},
     {90},
     0,
     ATTENTION_PACKED,
     false},
    {"d128_window_gap", SMALL, "d=128 causal=1 window_left=0", ASAN, 1, 1, 1, {129}, {133}, 0, ATTENTION_PACKED, false},
    {"d256_tails", WIDE, "d=256 causal=1 lse=1", BOTH, 1, 1, 1, {65}, {95}, 0, ATTENTION_LOOSE, false},
    {"d192_128", GROUPS_2, "d=192 dv=128 in=f16 causal=1", ASAN, 1, 2, 1, {20}, {129}, 0, ATTENTION_PACKED, false},
    {"d8", GROUPS_2, "d=8 causal=1", ASAN, 1, 2, 1, {30}, {40}, 0, ATTENTION_PACKED, false},
    {"d40", GROUPS_2, "d=40 causal=1", BOTH, 1, 2, 1, {30}, {40}, 0, ATTENTION_PACKED, false},
    {"d72_24", GROUPS_2, "d=72 dv=24 causal=1", ASAN, 1, 2, 1, {30}, {40}, 0, ATTENTION_PACKED, false},
    {"d160", WIDE, "d=160 causal=1", ASAN, 1, 1, 1, {30}, {90}, 0, ATTENTION_PACKED, false},
    {"softcap_sink",
     SMALL,
     "d=64 softcap=3 sink=1 lse=1 causal=1",
     BOTH,
     1,
     3,
     1,
     {40},
     {50},
     0,
     ATTENTION_PACKED,
     false},
    {"negative_scale", SMALL, "d=64 scale=-0.3 lse=1", ASAN, 1, 1, 1, {17}, {50}, 0, ATTENTION_PACKED, false},
    {"lengths",
     GROUPS_2,
     "d=64 length_k=1 lse=1",
     BOTH,
     3,
     1,
     1,
     {70, 70, 70},
     {5, 0, 130},
     140,
     ATTENTION_PACKED,
     false},
    {"varlen",
     SMALL,
     "d=64 layout=varlen causal=1 lse=1",
     BOTH,
     3,
     2,
     1,
     {130, 0, 3},
     {20, 7, 0},
     0,
     ATTENTION_PACKED,
     false},
    {"d512_causal", COLUMNS, "d=512 causal=1 lse=1", BOTH, 1, 2, 1, {66}, {130}, 0, ATTENTION_PACKED, false},
    {"d512_varlen",
     COLUMNS,
     "d=512 layout=varlen causal=1 sink=1",
     BOTH,
     3,
     1,
     1,
     {3, 0, 9},
     {70, 9, 20},
     0,
     ATTENTION_PACKED,
     false},
    {"d512_lengths", COLUMNS, "d=512 length_k=1", ASAN, 2, 1, 1, {5, 5}, {65, 0}, 70, ATTENTION_PACKED, false},
    {"d320", COLUMNS, "d=320 in=f16 lse=1", ASAN, 1, 1, 1, {5}, {70}, 0, ATTENTION_PACKED, false},
    {"d264_504", COLUMNS, "d=264 dv=504", ASAN, 1, 1, 1, {5}, {70}, 0, ATTENTION_PACKED, false},
    {"d576_512_alias",
     COLUMNS,
     "d=576 dv=512 kv_alias=1 causal=1",
     ASAN,
     1,
     2,
     1,
     {5},
     {70},
     0,
     ATTENTION_PACKED,
     false},
    {"d64_512", COLUMNS, "d=64 dv=512 causal=1", ASAN, 1, 1, 1, {5}, {70}, 0, ATTENTION_PACKED, false},
    {"paged",
     SMALL,
     "d=64 layout=paged page=16 cu_q=1 causal=1 lse=1",
     BOTH,
     3,
     2,
     1,
     {30, 0, 3},
     {45, 7, 0},
     0,
     ATTENTION_PACKED,
     false},
    {"paged_blocks",
     COLUMNS,
     "d=96 layout=paged page=128 window_left=70",
     ASAN,
     2,
     1,
     1,
     {5, 5},
     {150, 64},
     0,
     ATTENTION_PACKED,
     false},
    {"stays", SMALL, "d=8 in=f16 lse=1", ASAN, 1, 133, 1, {3}, {20}, 0, ATTENTION_PACKED, false},
    {"unaligned", GROUPS_2, "d=64 causal=1 lse=1", ASAN, 1, 2, 1, {30}, {40}, 0, ATTENTION_UNALIGNED, true},
    {"no_keys", GROUPS_2, "d=64 lse=1", ASAN, 1, 2, 1, {30}, {0}, 0, ATTENTION_PACKED, true},
};

static attention_case case_of(const forced *f)
{
    attention_case c = {.B = f->B, .Hq = f->Hq, .Hkv = f->Hkv, .seed = 77, .fill = ATTENTION_NORMAL, .p = 1};
    const char *message;
    snprintf(c.name, sizeof c.name, "%s", f->name);
    snprintf(c.text, sizeof c.text, "attention %s", f->fields);
    if (!attention_case_parse(&c, &message)) fail_msg("%s: %s", f->name, message);
    bool same = !f->queries[1] && !f->keys[1];
    for (int b = 0; b < f->B; b++) {
        c.queries[b] = f->queries[same ? 0 : b], c.keys[b] = f->keys[same ? 0 : b];
        if (c.keys[b] > c.Sk) c.Sk = c.keys[b];
    }
    if (f->Sk) c.Sk = f->Sk;
    c.order = f->order;
    return c;
}

// Counts the kernels that run; user: [0] of the first stage, [1] of the second.
static char *count_kernels(const char *source, void *user)
{
    int *ran = user;
    ran[!strstr(source, "wgmma_params all")]++;
    return strdup(source);
}

static void run_forced(model *m, const forced *f, model_order order, qn_text *report)
{
    qn_config config;
    attention_data data;
    qn_text fault = QN_TEXT_INIT;
    int ran[2] = {0, 0};
    attention_case c = case_of(f);
    if (qn_config_parse(&qn_family_attention, f->config, &config) != QUERN_OK) fail_msg("%s", quern_message());
    if (!attention_data_make(&c, 0x7FFF, &data)) fail_msg("no memory"); // unused memory is NaN
    model_set_edit(m, count_kernels, ran);
    if (model_run_config(m, &c.spec.base, simt_arch("sm_90a"), &config, &data.args.base, order, &fault) != QUERN_OK) {
        attention_describe(&c, report);
        qn_text_putf(report, "    %s\n%s", quern_message(), qn_text_string(&fault));
    } else {
        attention_check_case(&data, report);
        if (ran[0] != !f->second || ran[1] != f->second)
            qn_text_putf(report, "%s: the first stage ran %d times, the second %d times\n", f->name, ran[0], ran[1]);
    }
    model_set_edit(m, NULL, NULL);
    qn_text_fini(&fault);
    attention_data_free(&data);
}

static bool is_wanted(const forced *f, size_t i, unsigned build)
{
    const char *name = getenv("QUERN_TEST_CASE");
    return (f->builds & build) && family_is_in_shard(i) && (!name || strstr(f->name, name));
}

static void run_list(model_build build, unsigned bit, size_t least)
{
    model *m = simt_model_any(build);
    family_verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        if (!is_wanted(&cases[i], i, bit)) continue;
        run_forced(m, &cases[i], (model_order){.shuffle = i % 3 != 0, .seed = (uint32_t)i}, &report);
        if (report.length) qn_text_putf(&report, "    %s, configuration %s\n", cases[i].name, cases[i].config);
        family_count(&v, &report);
    }
    qn_text_fini(&report);
    family_conclude(&v, build == MODEL_ASAN ? "forced tiles, asan build" : "forced tiles, access build", least);
}

static void forced_tiles_are_right_under_sanitizers(void **state)
{
    (void)state;
    run_list(MODEL_ASAN, ASAN, 28);
}

static void forced_tiles_make_no_wrong_access(void **state)
{
    (void)state;
    run_list(MODEL_ACCESS, ACCESS, 13);
}

// ---- the family's own choice

static const qn_arch *sm_90a(void)
{
    return simt_arch("sm_90a");
}

// Whether the plan "wgmma" serves a case on sm_90a.
static bool is_served(const attention_data *data)
{
    quern_attention_sizes sizes;
    qn_config config;
    qn_family_attention.sizes_of(&data->args.base, &sizes);
    qn_attention_choose(&data->c->spec.base, sm_90a(), qn_family_attention.bucket_of(&sizes), &config);
    return config.value[QN_ATTENTION_PLAN] == QN_ATTENTION_WGMMA;
}

static void hostile_cases_that_it_serves_are_right(void **state)
{
    (void)state;
    family_verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    size_t count;
    const attention_case *list = attention_cases(&count);
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    for (size_t i = 0; i < count; i++) {
        if (!(list[i].tags & HOSTILE_MODEL) || !attention_wanted(&list[i], HOSTILE_MODEL) || !family_is_in_shard(i))
            continue;
        attention_data *data = family_data_make(&attention_family, &list[i], 0x7FFF);
        bool served = is_served(data);
        family_data_free(&attention_family, data);
        if (!served) continue;
        simt_judge_case(&attention_family, m, q, sm_90a(), &list[i], NULL, i, &report);
        family_count(&v, &report);
    }
    qn_text_fini(&report);
    quern_close(q);
    family_conclude(&v, "hostile cases of the plan", 20);
}

// The last query's content in a decode of its own: the same within 1 ulp.
static void decode_equals_the_last_row(void **state)
{
    static const char *const specs[] = {"d=64 causal=1", "d=128 in=f16 causal=1", "d=512 causal=1 sink=1"};
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        const forced f = {"last_row", "", specs[i], 0, 1, 2, 1, {35}, {150}, 0, ATTENTION_PACKED, false};
        attention_case many = case_of(&f), one = many;
        attention_data prefill, decode;
        qn_text fault = QN_TEXT_INIT;
        model_order order = {.shuffle = true, .seed = (uint32_t)i};
        one.queries[0] = 1;
        assert_true(attention_data_make(&many, 0x7FFF, &prefill) && attention_data_make(&one, 0x7FFF, &decode));
        assert_true(is_served(&prefill) && !is_served(&decode));
        for (int64_t h = 0; h < many.Hq; h++) {
            int64_t from = attention_row_of_query(&many, ATTENTION_Q, 0, many.queries[0] - 1, h);
            int64_t to = attention_row_of_query(&one, ATTENTION_Q, 0, 0, h);
            memcpy((uint16_t *)decode.args.q + to, (const uint16_t *)prefill.args.q + from, 2 * (size_t)many.spec.d);
        }
        if (model_run_on(m, q, &many.spec.base, sm_90a(), &prefill.args.base, order, &fault) != QUERN_OK ||
            model_run_on(m, q, &one.spec.base, sm_90a(), &decode.args.base, order, &fault) != QUERN_OK)
            fail_msg("%s\n%s", quern_message(), qn_text_string(&fault));
        double ulps = attention_ulps_of_last_query(&prefill, &decode);
        if (!(ulps <= 1)) fail_msg("%s: %g ulp apart", specs[i], ulps);
        qn_text_fini(&fault);
        attention_data_free(&prefill);
        attention_data_free(&decode);
    }
    quern_close(q);
}

// ---- planted faults: each must be seen

typedef struct planted {
    const char *what, *from, *to;
    const char *words; // of the report
} planted;

static char *plant(const char *source, void *user)
{
    const planted *fault = user;
    return simt_replace(source, fault->from, fault->to);
}

static void planted_faults_are_seen(void **state)
{
    static const planted faults[] = {
        {"rows past the end are not cleared", "clear_rows(to, begin, end, valid);", "", "should be"},
        {"values are cleared before they are there", "wait_phase(s.tail, tails++);", "tails++;", "fault"},
        {"values are used before they are there", "wait_phase(s.value_full + stage, n.values / kStages);", "", "fault"},
        {"queries are replaced while they are read", "wait_phase(s.query_empty, number + 1);", "", "fault"},
    };
    static const forced c = {"planted", AHEAD, "d=64 length_k=1 causal=1", ACCESS, 2, 1, 1, {130, 130},
                             {40, 25},  45,    ATTENTION_PACKED,           false};
    (void)state;
    model *m = simt_model_any(MODEL_ACCESS);
    const qn_arch *arch;
    qn_config config;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    assert_int_equal(qn_config_parse(&qn_family_attention, c.config, &config), QUERN_OK);
    for (size_t i = 0; i < QN_COUNT(faults); i++) {
        attention_data data;
        qn_text report = QN_TEXT_INIT, fault = QN_TEXT_INIT;
        attention_case hostile = case_of(&c);
        if (!attention_data_make(&hostile, 0x7FFF, &data)) fail_msg("no memory");
        model_set_edit(m, plant, (void *)(uintptr_t)&faults[i]);
        quern_status status = model_run_config(m, &hostile.spec.base, arch, &config, &data.args.base,
                                               (model_order){.shuffle = true}, &fault);
        if (status == QUERN_OK)
            attention_check_case(&data, &report);
        else
            qn_text_putf(&report, "fault: %s", qn_text_string(&fault));
        if (!report.length || !strstr(qn_text_string(&report), faults[i].words))
            fail_msg("%s: not seen; %s", faults[i].what, report.length ? qn_text_string(&report) : "no report");
        model_set_edit(m, NULL, NULL);
        qn_text_fini(&report);
        qn_text_fini(&fault);
        attention_data_free(&data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced_tiles_are_right_under_sanitizers),
        cmocka_unit_test(forced_tiles_make_no_wrong_access),
        cmocka_unit_test(hostile_cases_that_it_serves_are_right),
        cmocka_unit_test(decode_equals_the_last_row),
        cmocka_unit_test(planted_faults_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, simt_close_models);
}
