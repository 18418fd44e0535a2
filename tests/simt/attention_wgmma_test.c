// SPDX-License-Identifier: Apache-2.0
// attention's plan "wgmma" on the functional model, by force: tiles of every kind on lengths at their edges, head_dims
// between the instructions' steps, every feature, and arguments that only its second stage can serve; which of the two
// stages ran is looked up in the texts. Needs a C++ compiler; without one it says so and is skipped.
// The case "stays" has more tiles than the device has SMs, so that a CTA goes from one to the next, as it does also from
// the first to the second of a pair of tiles (causal, more queries than a tile has).
// $QUERN_TEST_CASE: only cases with this in their name; $QUERN_TEST_SHARD=i/n: every n-th.
#include <string.h>

#include "ops/attention.h"
#include "support/attention_forced.h"

#define GROUPS_2 "plan=wgmma rows=128 keys=128 columns=1 slots=4"
#define GROUPS_3 "plan=wgmma rows=192 keys=64 columns=1 slots=4"
#define SMALL    "plan=wgmma rows=128 keys=16 columns=1 slots=2"
#define AHEAD    "plan=wgmma rows=128 keys=16 columns=1 slots=8"
#define WIDE     "plan=wgmma rows=128 keys=80 columns=1 slots=4"
#define OWN      "plan=wgmma rows=64 keys=64 columns=1 slots=4" // tiles for each group
#define OWN_ONE  "plan=wgmma rows=64 keys=16 columns=1 slots=2"
#define COLUMNS  "plan=wgmma rows=64 keys=64 columns=2 slots=2"

enum { ASAN = FORCED_ASAN, ACCESS = FORCED_ACCESS, BOTH = ASAN | ACCESS };

static const attention_forced cases[] = {
    {"d64_tails", GROUPS_2, "d=64 lse=1", BOTH, 1, 2, 1, {133}, {259}, 0, ATTENTION_PACKED, "w"},
    {"d64_three_groups", GROUPS_3, "d=64 causal=1", ASAN, 1, 1, 1, {200}, {210}, 0, ATTENTION_HEADS_FIRST, "w"},
    {"d64_one_query", GROUPS_2, "d=64 causal=1 lse=1", ACCESS, 2, 3, 1, {1}, {65}, 0, ATTENTION_PACKED, "w"},
    {"d64_more_queries", SMALL, "d=64 causal=1 lse=1", BOTH, 1, 1, 1, {150}, {20}, 0, ATTENTION_PACKED, "w"},
    {"d128_causal_gqa", GROUPS_2, "d=128 causal=1 lse=1", BOTH, 1, 4, 2, {66}, {140}, 0, ATTENTION_PACKED, "w"},
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
     "w"},
    {"d128_window_gap", SMALL, "d=128 causal=1 window_left=0", ASAN, 1, 1, 1, {129}, {133}, 0, ATTENTION_PACKED, "w"},
    {"d256_tails", WIDE, "d=256 causal=1 lse=1", BOTH, 1, 1, 1, {65}, {95}, 0, ATTENTION_LOOSE, "w"},
    {"d192_128", GROUPS_2, "d=192 dv=128 in=f16 causal=1", ASAN, 1, 2, 1, {20}, {129}, 0, ATTENTION_PACKED, "w"},
    {"d192", WIDE, "d=192 in=f16 lse=1", BOTH, 1, 1, 1, {70}, {250}, 0, ATTENTION_PACKED, "w"},
    {"d8", GROUPS_2, "d=8 causal=1", ASAN, 1, 2, 1, {30}, {40}, 0, ATTENTION_PACKED, "w"},
    {"d40", GROUPS_2, "d=40 causal=1", BOTH, 1, 2, 1, {30}, {40}, 0, ATTENTION_PACKED, "w"},
    {"d72_24", GROUPS_2, "d=72 dv=24 causal=1", ASAN, 1, 2, 1, {30}, {40}, 0, ATTENTION_PACKED, "w"},
    {"d160", WIDE, "d=160 causal=1", ASAN, 1, 1, 1, {30}, {90}, 0, ATTENTION_PACKED, "w"},
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
     "w"},
    {"negative_scale", SMALL, "d=64 scale=-0.3 lse=1", ASAN, 1, 1, 1, {17}, {50}, 0, ATTENTION_PACKED, "w"},
    // Scores that rise by more than a base's headroom, again and again; and so large that every block needs its maxima.
    {"d64_rising", SMALL, "d=64 scale=2 lse=1", BOTH, 1, 1, 1, {70}, {200}, 0, ATTENTION_PACKED, "w"},
    {"d64_rising_causal", GROUPS_3, "d=64 scale=3 causal=1", ASAN, 1, 1, 1, {200}, {230}, 0, ATTENTION_PACKED, "w"},
    {"d128_rising", SMALL, "d=128 scale=2 causal=1 lse=1", BOTH, 1, 1, 1, {40}, {150}, 0, ATTENTION_PACKED, "w"},
    {"d256_rising", WIDE, "d=256 scale=1 lse=1", ASAN, 1, 1, 1, {20}, {300}, 0, ATTENTION_PACKED, "w"},
    {"d64_huge_scores", SMALL, "d=64 scale=400000 lse=1", ASAN, 1, 1, 1, {20}, {100}, 0, ATTENTION_PACKED, "w"},
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
     "w"},
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
     "w"},
    {"d512_causal", COLUMNS, "d=512 causal=1 lse=1", BOTH, 1, 2, 1, {66}, {130}, 0, ATTENTION_PACKED, "w"},
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
     "w"},
    {"d512_lengths", COLUMNS, "d=512 length_k=1", ASAN, 2, 1, 1, {5, 5}, {65, 0}, 70, ATTENTION_PACKED, "w"},
    {"d320", COLUMNS, "d=320 in=f16 lse=1", ASAN, 1, 1, 1, {5}, {70}, 0, ATTENTION_PACKED, "w"},
    {"d264_504", COLUMNS, "d=264 dv=504", ASAN, 1, 1, 1, {5}, {70}, 0, ATTENTION_PACKED, "w"},
    {"d576_512_alias", COLUMNS, "d=576 dv=512 kv_alias=1 causal=1", ASAN, 1, 2, 1, {5}, {70}, 0, ATTENTION_PACKED, "w"},
    {"d64_512", COLUMNS, "d=64 dv=512 causal=1", ASAN, 1, 1, 1, {5}, {70}, 0, ATTENTION_PACKED, "w"},
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
     "w"},
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
     "w"},
    {"stays", SMALL, "d=8 in=f16 lse=1", ASAN, 1, 133, 1, {3}, {20}, 0, ATTENTION_PACKED, "w"},
    {"own_tiles", OWN, "d=64 causal=1 lse=1", BOTH, 1, 2, 1, {200}, {210}, 0, ATTENTION_HEADS_FIRST, "w"},
    {"own_tiles_d96", OWN_ONE, "d=96 dv=48 causal=1 lse=1", BOTH, 1, 3, 1, {70}, {50}, 0, ATTENTION_PACKED, "w"},
    {"own_tiles_lengths",
     OWN_ONE,
     "d=64 length_k=1 lse=1",
     BOTH,
     3,
     1,
     1,
     {70, 70, 70},
     {5, 0, 130},
     140,
     ATTENTION_PACKED,
     "w"},
    {"own_tiles_varlen",
     OWN_ONE,
     "d=64 layout=varlen causal=1",
     ASAN,
     3,
     2,
     1,
     {130, 0, 3},
     {20, 7, 0},
     0,
     ATTENTION_PACKED,
     "w"},
    {"own_tiles_stay", OWN_ONE, "d=8 in=f16 lse=1", ASAN, 3, 133, 1, {3, 3, 3}, {20, 20, 20}, 0, ATTENTION_PACKED, "w"},
    {"unaligned", GROUPS_2, "d=64 causal=1 lse=1", ASAN, 1, 2, 1, {30}, {40}, 0, ATTENTION_UNALIGNED, "p"},
    {"no_keys", GROUPS_2, "d=64 lse=1", ASAN, 1, 2, 1, {30}, {0}, 0, ATTENTION_PACKED, "p"},
};

// w wgmma, p the prefill that serves what TMA can't load.
static char letter_of(const char *source)
{
    return strstr(source, "wgmma_params all") ? 'w' : 'p';
}

static const attention_forced_list list = {
    .what = "forced tiles", .item = cases, .count = QN_COUNT(cases), .seed = 77, .letter = letter_of};

static void forced_tiles_are_right_under_sanitizers(void **state)
{
    (void)state;
    attention_forced_run(&list, MODEL_ASAN, 39);
}

static void forced_tiles_make_no_wrong_access(void **state)
{
    (void)state;
    attention_forced_run(&list, MODEL_ACCESS, 19);
}

// ---- the family's own choice

static void hostile_cases_that_it_serves_are_right(void **state)
{
    (void)state;
    attention_served_run(QN_ATTENTION_WGMMA, 20);
}

// The last query's content in a decode of its own: the same within 1 ulp.
static void decode_equals_the_last_row(void **state)
{
    static const char *const specs[] = {"d=64 causal=1", "d=128 in=f16 causal=1", "d=512 causal=1 sink=1"};
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    quern *q = simt_open();
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        const attention_forced f = {"last_row", "", specs[i], 0, 1, 2, 1, {35}, {150}, 0, ATTENTION_PACKED, "w"};
        attention_case many = attention_forced_case(&f, 77), one = many;
        attention_data prefill, decode;
        qn_text fault = QN_TEXT_INIT;
        model_order order = {.shuffle = true, .seed = (uint32_t)i};
        one.queries[0] = 1;
        assert_true(attention_data_make(&many, 0x7FFF, &prefill) && attention_data_make(&one, 0x7FFF, &decode));
        assert_true(attention_is_served(&prefill, QN_ATTENTION_WGMMA) &&
                    !attention_is_served(&decode, QN_ATTENTION_WGMMA));
        for (int64_t h = 0; h < many.Hq; h++) {
            int64_t from = attention_row_of_query(&many, ATTENTION_Q, 0, many.queries[0] - 1, h);
            int64_t to = attention_row_of_query(&one, ATTENTION_Q, 0, 0, h);
            memcpy((uint16_t *)decode.args.q + to, (const uint16_t *)prefill.args.q + from, 2 * (size_t)many.spec.d);
        }
        if (model_run_on(m, q, &many.spec.base, simt_arch("sm_90a"), &prefill.args.base, order, &fault) != QUERN_OK ||
            model_run_on(m, q, &one.spec.base, simt_arch("sm_90a"), &decode.args.base, order, &fault) != QUERN_OK)
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
    static const attention_forced c = {"planted", AHEAD, "d=64 length_k=1 causal=1", ACCESS, 2, 1, 1, {130, 130},
                                       {40, 25},  45,    ATTENTION_PACKED,           "w"};
    (void)state;
    model *m = simt_model_any(MODEL_ACCESS);
    const qn_arch *arch;
    qn_config config;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    assert_int_equal(qn_config_parse(&qn_family_attention, c.config, &config), QUERN_OK);
    for (size_t i = 0; i < QN_COUNT(faults); i++) {
        attention_data data;
        qn_text report = QN_TEXT_INIT, fault = QN_TEXT_INIT;
        attention_case hostile = attention_forced_case(&c, 77);
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
