// SPDX-License-Identifier: Apache-2.0
// attention's plans "stream" and "heads" on the functional model, by force: head_dims between the instructions' steps,
// lengths at the edges of blocks and splits, one and two computing groups, every layout and feature, and arguments that
// only the last stage of "heads" can serve; which stages ran is looked up in the texts. Needs a C++ compiler; without one
// it says so and is skipped. $QUERN_TEST_CASE: only cases with this in their name; $QUERN_TEST_SHARD=i/n: every n-th.
#include <string.h>

#include "ops/attention.h"
#include "support/attention_forced.h"

#define STREAM     "plan=stream rows=8 keys=16 warps=4 slots=3 ctas=1"
#define STREAM_2   "plan=stream rows=8 keys=32 warps=2 slots=2 ctas=1"
#define STREAM_3   "plan=stream rows=8 keys=32 warps=4 slots=3 ctas=1"
#define STREAM16   "plan=stream rows=16 keys=64 warps=2 slots=3 ctas=1"
#define STREAM16_2 "plan=stream rows=16 keys=32 warps=2 slots=2 ctas=1"
#define TILES      "plan=decode rows=16 keys=32 warps=1 columns=4 slots=2 ctas=1"
#define ONE        "plan=heads rows=64 keys=64 columns=1 slots=4 ctas=1"
#define WIDE       "plan=heads rows=64 keys=128 columns=1 slots=2 ctas=1"
#define TWO        "plan=heads rows=64 keys=64 columns=2 slots=2 ctas=1"
#define AHEAD      "plan=heads rows=64 keys=64 columns=2 slots=4 ctas=1"

enum { ASAN = FORCED_ASAN, ACCESS = FORCED_ACCESS, BOTH = ASAN | ACCESS };

static const attention_forced cases[] = {
    {"stream_64", STREAM_3, "d=64 lse=1", BOTH, 2, 8, 2, {1}, {133}, 0, ATTENTION_PACKED, "s"},
    {"stream_splits", STREAM_3, "d=64 kv_split=64 lse=1", BOTH, 1, 4, 1, {1}, {333}, 0, ATTENTION_PACKED, "sm"},
    {"stream_causal",
     STREAM_2,
     "d=128 causal=1 kv_split=64 lse=1",
     ACCESS,
     2,
     6,
     2,
     {2},
     {200},
     0,
     ATTENTION_LOOSE,
     "sm"},
    {"stream_16", STREAM16, "d=64 causal=1 kv_split=64 lse=1", BOTH, 1, 10, 2, {3}, {150}, 0, ATTENTION_PACKED, "sm"},
    {"stream_tiles", STREAM, "d=40 in=f16 kv_split=64", ASAN, 1, 20, 1, {1}, {150}, 0, ATTENTION_HEADS_FIRST, "sm"},
    {"stream_window",
     STREAM_3,
     "d=64 window_left=70 window_right=3 kv_split=64 lse=1",
     BOTH,
     1,
     3,
     1,
     {2},
     {300},
     0,
     ATTENTION_PACKED,
     "sm"},
    {"stream_d8", STREAM, "d=8 kv_split=64", ACCESS, 1, 1, 1, {1}, {70}, 0, ATTENTION_PACKED, "sm"},
    {"stream_d72_24", STREAM, "d=72 dv=24 kv_split=64", ASAN, 1, 2, 1, {1}, {90}, 0, ATTENTION_PACKED, "sm"},
    {"stream_256",
     STREAM,
     "d=256 kv_split=64 softcap=5 sink=1 lse=1",
     ASAN,
     1,
     5,
     1,
     {1},
     {90},
     0,
     ATTENTION_PACKED,
     "sm"},
    {"stream_alias",
     STREAM_2,
     "d=576 dv=512 kv_alias=1 kv_split=64",
     ASAN,
     1,
     4,
     1,
     {1},
     {90},
     0,
     ATTENTION_PACKED,
     "sm"},
    {"stream_unaligned", STREAM_3, "d=64 lse=1 kv_split=64", BOTH, 1, 4, 2, {1}, {90}, 0, ATTENTION_UNALIGNED, "sm"},
    {"stream_lengths",
     STREAM_3,
     "d=64 length_k=1 kv_split=64 lse=1",
     BOTH,
     3,
     2,
     1,
     {1, 1, 1},
     {5, 0, 130},
     140,
     ATTENTION_PACKED,
     "sm"},
    {"stream_paged",
     STREAM_2,
     "d=64 layout=paged page=16 kv_split=64 cu_q=1 causal=1",
     BOTH,
     3,
     4,
     1,
     {1, 0, 2},
     {150, 7, 40},
     0,
     ATTENTION_PACKED,
     "sm"},
    {"stream_no_keys", STREAM_3, "d=64 lse=1", ASAN, 1, 2, 1, {1}, {0}, 0, ATTENTION_PACKED, "s"},
    {"stream_grouped", STREAM, "d=8 kv_split=64 lse=1", ACCESS, 1, 532, 532, {1}, {150}, 0, ATTENTION_PACKED, "s"},
    // A CTA for most of a tile's nine splits, and one each for the last two.
    {"stream_rest", STREAM, "d=8 kv_split=64 lse=1", ACCESS, 1, 532, 532, {1}, {520}, 0, ATTENTION_PACKED, "s"},
    {"stream_shared", STREAM, "d=8 kv_split=64 lse=1", ACCESS, 1, 140, 140, {1}, {150}, 0, ATTENTION_HEADS_FIRST, "s"},
    {"stream_last_splits", STREAM, "d=8 kv_split=64 lse=1", BOTH, 1, 140, 140, {1}, {600}, 0, ATTENTION_PACKED, "s"},
    {"stream_negative", STREAM_3, "d=64 scale=-0.3 lse=1", ASAN, 1, 2, 1, {1}, {50}, 0, ATTENTION_PACKED, "s"},
    // Rows of whole lines, of one line to nine, beside such as are not; blocks that are whole and such as are not.
    {"lines_128", STREAM_3, "d=128 kv_split=64 lse=1", BOTH, 1, 4, 2, {1}, {150}, 0, ATTENTION_PACKED, "sm"},
    {"lines_192_128", STREAM, "d=192 dv=128 kv_split=64", BOTH, 1, 4, 1, {1}, {150}, 0, ATTENTION_LOOSE, "sm"},
    {"lines_56_256", STREAM, "d=56 dv=256 kv_split=64", ASAN, 1, 4, 1, {1}, {90}, 0, ATTENTION_PACKED, "sm"},
    {"lines_16_256", STREAM16_2, "d=256 kv_split=64 lse=1", BOTH, 1, 12, 1, {1}, {150}, 0, ATTENTION_PACKED, "sm"},
    {"lines_pages", STREAM_2, "d=128 layout=paged page=32", BOTH, 2, 4, 1, {1, 1}, {150, 33}, 0, ATTENTION_PACKED, "s"},
    {"lines_small_pages", STREAM_2, "d=128 layout=paged page=16", BOTH, 1, 4, 1, {1}, {90}, 0, ATTENTION_PACKED, "s"},
    {"tiles_512", TILES, "d=512 kv_split=64 lse=1", BOTH, 1, 4, 1, {1}, {150}, 0, ATTENTION_PACKED, "dm"},
    {"tiles_576", TILES, "d=576 dv=512 kv_alias=1 kv_split=64", BOTH, 1, 4, 1, {1}, {90}, 0, ATTENTION_PACKED, "dm"},
    {"tiles_320_200", TILES, "d=320 dv=200 kv_split=64", BOTH, 1, 4, 1, {1}, {90}, 0, ATTENTION_PACKED, "dm"},
    {"tiles_320", TILES, "d=320 kv_split=64", BOTH, 1, 4, 1, {1}, {90}, 0, ATTENTION_PACKED, "dm"},
    {"tiles_unaligned", TILES, "d=512 kv_split=64", ASAN, 1, 4, 1, {1}, {70}, 0, ATTENTION_UNALIGNED, "dm"},
    {"heads_64", ONE, "d=64 lse=1", BOTH, 2, 64, 1, {1}, {133}, 0, ATTENTION_PACKED, "h"},
    {"heads_splits", ONE, "d=64 kv_split=64 lse=1", BOTH, 1, 64, 1, {1}, {333}, 0, ATTENTION_PACKED, "hm"},
    {"heads_tiles", ONE, "d=128 kv_split=64 causal=1 lse=1", ACCESS, 1, 48, 2, {3}, {150}, 0, ATTENTION_LOOSE, "hm"},
    {"heads_wide", WIDE, "d=64 kv_split=128 lse=1", BOTH, 1, 40, 1, {1}, {333}, 0, ATTENTION_PACKED, "hm"},
    {"heads_d8", ONE, "d=8 kv_split=64", ASAN, 1, 20, 1, {1}, {70}, 0, ATTENTION_PACKED, "hm"},
    {"heads_d40", ONE, "d=40 in=f16 kv_split=64", BOTH, 1, 33, 1, {1}, {70}, 0, ATTENTION_PACKED, "hm"},
    {"heads_d72_24", ONE, "d=72 dv=24 kv_split=64", ASAN, 1, 20, 1, {1}, {70}, 0, ATTENTION_PACKED, "hm"},
    {"heads_window",
     ONE,
     "d=64 window_left=70 window_right=3 kv_split=64 lse=1",
     BOTH,
     1,
     30,
     1,
     {3},
     {300},
     0,
     ATTENTION_PACKED,
     "hm"},
    {"heads_cap_sink",
     TWO,
     "d=128 softcap=3 sink=1 lse=1 causal=1 kv_split=64",
     ASAN,
     1,
     20,
     1,
     {2},
     {150},
     0,
     ATTENTION_PACKED,
     "hm"},
    {"heads_d160", TWO, "d=160 kv_split=64 lse=1", BOTH, 1, 24, 1, {1}, {150}, 0, ATTENTION_HEADS_FIRST, "hm"},
    {"heads_256", AHEAD, "d=256 lse=1", BOTH, 1, 20, 1, {1}, {250}, 0, ATTENTION_PACKED, "h"},
    {"heads_512", TWO, "d=512 kv_split=64 lse=1", ASAN, 1, 20, 1, {1}, {150}, 0, ATTENTION_PACKED, "hm"},
    {"heads_alias", TWO, "d=576 dv=512 kv_alias=1 lse=1", BOTH, 1, 20, 1, {1}, {200}, 0, ATTENTION_PACKED, "h"},
    {"heads_alias_splits",
     TWO,
     "d=576 dv=512 kv_alias=1 kv_split=64",
     ASAN,
     1,
     70,
     1,
     {1},
     {200},
     0,
     ATTENTION_PACKED,
     "hm"},
    {"heads_alias_64",
     ONE,
     "d=64 kv_alias=1 kv_split=64 causal=1",
     BOTH,
     1,
     20,
     1,
     {2},
     {200},
     0,
     ATTENTION_PACKED,
     "hm"},
    {"heads_lengths",
     ONE,
     "d=64 length_k=1 kv_split=64 lse=1",
     BOTH,
     3,
     20,
     1,
     {1, 1, 1},
     {5, 0, 130},
     140,
     ATTENTION_PACKED,
     "hm"},
    {"heads_alias_lengths",
     TWO,
     "d=576 dv=512 length_k=1 kv_alias=1 lse=1",
     BOTH,
     2,
     20,
     1,
     {1, 1},
     {5, 130},
     140,
     ATTENTION_PACKED,
     "h"},
    {"heads_varlen",
     TWO,
     "d=128 layout=varlen causal=1 lse=1 kv_split=64",
     BOTH,
     3,
     20,
     1,
     {3, 0, 1},
     {70, 9, 0},
     0,
     ATTENTION_PACKED,
     "hm"},
    {"heads_paged_16",
     ONE,
     "d=64 layout=paged page=16 kv_split=64 cu_q=1 causal=1 lse=1",
     BOTH,
     3,
     20,
     1,
     {1, 0, 2},
     {150, 7, 40},
     0,
     ATTENTION_PACKED,
     "hm"},
    {"heads_paged_96",
     AHEAD,
     "d=128 layout=paged page=96 lse=1",
     ASAN,
     2,
     20,
     1,
     {1, 1},
     {150, 7},
     0,
     ATTENTION_PACKED,
     "h"},
    {"heads_prefill",
     ONE,
     "d=64 layout=varlen causal=1 kv_split=64 lse=1",
     ASAN,
     2,
     20,
     1,
     {20, 1},
     {70, 90},
     0,
     ATTENTION_PACKED,
     "hm"},
    {"heads_unaligned", ONE, "d=64 lse=1 kv_split=64", BOTH, 1, 20, 1, {1}, {90}, 0, ATTENTION_UNALIGNED, "d"},
    {"heads_no_keys", ONE, "d=64 lse=1", ASAN, 1, 20, 1, {1}, {0}, 0, ATTENTION_PACKED, "d"},
};

// s stream, h heads, m merge, d decode.
static char letter_of(const char *source)
{
    if (strstr(source, "attention_heads_params all")) return 'h';
    if (strstr(source, "wait_for_previous_launch()") && strstr(source, "kOwn")) return 'm';
    return strstr(source, "end_part(") ? 's' : 'd';
}

static const attention_forced_list list = {
    .what = "forced blocks", .item = cases, .count = QN_COUNT(cases), .seed = 78, .letter = letter_of};

static void forced_blocks_are_right_under_sanitizers(void **state)
{
    (void)state;
    attention_forced_run(&list, MODEL_ASAN, 30);
}

static void forced_blocks_make_no_wrong_access(void **state)
{
    (void)state;
    attention_forced_run(&list, MODEL_ACCESS, 20);
}

// ---- the family's own choice

static void hostile_cases_that_heads_serves_are_right(void **state)
{
    (void)state;
    attention_served_run(QN_ATTENTION_HEADS, 3);
}

// The same rows on tiles, streams and heads: the same within 1 ulp.
static void plans_agree_to_the_last_place(void **state)
{
    static const char *const configs[] = {"plan=decode rows=64 keys=64 warps=4 columns=1 slots=2 ctas=1", STREAM_3,
                                          ONE};
    static const char *const specs[] = {"d=64 causal=1 kv_split=64", "d=128 in=f16 causal=1 kv_split=64 sink=1"};
    (void)state;
    model *m = simt_model_any(MODEL_PLAIN);
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        const attention_forced f = {"agree", "", specs[i], 0, 1, 20, 1, {1}, {170}, 0, ATTENTION_PACKED, ""};
        attention_case c = attention_forced_case(&f, 78);
        attention_data data[QN_COUNT(configs)];
        for (size_t k = 0; k < QN_COUNT(configs); k++) {
            qn_config config;
            qn_text fault = QN_TEXT_INIT;
            model_order order = {.shuffle = true, .seed = (uint32_t)i};
            assert_true(attention_data_make(&c, 0x7FFF, &data[k]));
            if (qn_config_parse(&qn_family_attention, configs[k], &config) != QUERN_OK ||
                model_run_config(m, &c.spec.base, simt_arch("sm_90a"), &config, &data[k].args.base, order, &fault) !=
                    QUERN_OK)
                fail_msg("%s: %s\n%s", configs[k], quern_message(), qn_text_string(&fault));
            double ulps = attention_ulps_of_last_query(&data[0], &data[k]);
            if (!(ulps <= 1)) fail_msg("%s, %s: %g ulp apart", specs[i], configs[k], ulps);
            qn_text_fini(&fault);
        }
        for (size_t k = 0; k < QN_COUNT(configs); k++) attention_data_free(&data[k]);
    }
}

// ---- planted faults: each must be seen

typedef struct planted {
    const char *what, *from, *to;
    const attention_forced *of;
} planted;

static char *plant(const char *source, void *user)
{
    const planted *fault = user;
    return strstr(source, fault->from) ? simt_replace(source, fault->from, fault->to) : strdup(source);
}

static void planted_faults_are_seen(void **state)
{
    static const attention_forced heads = {"planted",  AHEAD, "d=128 length_k=1", ACCESS, 2, 20, 1, {1, 1},
                                           {150, 250}, 255,   ATTENTION_PACKED,   ""};
    static const attention_forced stream = {"planted", STREAM_3, "d=64 kv_split=64", ACCESS, 1, 4, 1, {1},
                                            {450},     0,        ATTENTION_PACKED,   ""};
    // More tiles than the device has places: a CTA does all splits of one.
    static const attention_forced shared = {"planted", STREAM, "d=8 kv_split=64",     ACCESS, 1, 140, 140, {1},
                                            {150},     0,      ATTENTION_HEADS_FIRST, ""};
    static const planted faults[] = {
        {"rows past the end are not cleared", "make_uint4(0, 0, 0, 0);\n            fence_proxy_async_shared",
         "*reinterpret_cast<uint4 *>(chunks + c * kChunkBytes + 16 * at);\n            fence_proxy_async_shared",
         &heads},
        {"probabilities are replaced while they are read", "wait_phase(s.probability_empty, step + 1);", "", &heads},
        {"probabilities are used before they are there", "wait_phase(s.probability_full, step);", "", &heads},
        {"keys are replaced while they are read", "wait_phase(s.key_empty + at, phase + 1);", "", &heads},
        {"values are used before they are there",
         "wait_phase(ALIAS ? s.key_full + stage * kKeyPieces + piece : s.value_full + stage * COLUMNS + piece, phase);",
         "", &heads},
        {"a block is used before it is there", "cp_async_wait_group<SLOTS - 2>();", "", &stream},
        {"slots are filled while sums are read", "__syncthreads(); // the slots are free again", "", &shared},
    };
    (void)state;
    model *m = simt_model_any(MODEL_ACCESS);
    for (size_t i = 0; i < QN_COUNT(faults); i++) {
        attention_data data;
        qn_config config;
        qn_text report = QN_TEXT_INIT, fault = QN_TEXT_INIT;
        attention_case c = attention_forced_case(faults[i].of, 78);
        assert_int_equal(qn_config_parse(&qn_family_attention, faults[i].of->config, &config), QUERN_OK);
        if (!attention_data_make(&c, 0x7FFF, &data)) fail_msg("no memory");
        model_set_edit(m, plant, (void *)(uintptr_t)&faults[i]);
        quern_status status = model_run_config(m, &c.spec.base, simt_arch("sm_90a"), &config, &data.args.base,
                                               (model_order){.shuffle = true}, &fault);
        if (status == QUERN_OK) attention_check_case(&data, &report);
        if (status == QUERN_OK && !report.length) fail_msg("%s: not seen", faults[i].what);
        model_set_edit(m, NULL, NULL);
        qn_text_fini(&report);
        qn_text_fini(&fault);
        attention_data_free(&data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced_blocks_are_right_under_sanitizers),
        cmocka_unit_test(forced_blocks_make_no_wrong_access),
        cmocka_unit_test(hostile_cases_that_heads_serves_are_right),
        cmocka_unit_test(plans_agree_to_the_last_place),
        cmocka_unit_test(planted_faults_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, simt_close_models);
}
