// SPDX-License-Identifier: Apache-2.0
// attention's plans "stream" and "heads" on the functional model, by force: head_dims between the instructions' steps,
// lengths at the edges of blocks and splits, one and two computing groups, every layout and feature, and arguments that
// only the last stage of "heads" can serve; which stages ran is looked up in the texts. Needs a C++ compiler; without one
// it says so and is skipped. $QUERN_TEST_CASE: only cases with this in their name; $QUERN_TEST_SHARD=i/n: every n-th.
#include "support/simt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attention.h"
#include "support/check_attention.h"

#define STREAM   "plan=stream rows=8 keys=16 warps=4 slots=3 ctas=1"
#define STREAM_2 "plan=stream rows=8 keys=32 warps=2 slots=2 ctas=1"
#define STREAM16 "plan=stream rows=16 keys=32 warps=2 slots=3 ctas=1"
#define ONE      "plan=heads rows=64 keys=64 columns=1 slots=4 ctas=1"
#define WIDE     "plan=heads rows=64 keys=128 columns=1 slots=2 ctas=1"
#define TWO      "plan=heads rows=64 keys=64 columns=2 slots=2 ctas=1"
#define AHEAD    "plan=heads rows=64 keys=64 columns=2 slots=4 ctas=1"

enum { ASAN = 1, ACCESS = 2, BOTH = 3 };

typedef struct forced {
    const char *name, *config, *fields;
    unsigned builds;
    int B, Hq, Hkv;
    int64_t queries[3], keys[3]; // of each sequence; all zero after the first: as the first
    int64_t Sk;                  // dense: more than the longest; 0: as long
    attention_order order;
    const char *ran; // of the texts, in order: s stream, h heads, m merge, d decode
} forced;

static const forced cases[] = {
    {"stream_64", STREAM, "d=64 lse=1", BOTH, 2, 8, 2, {1}, {133}, 0, ATTENTION_PACKED, "s"},
    {"stream_splits", STREAM, "d=64 kv_split=64 lse=1", BOTH, 1, 4, 1, {1}, {333}, 0, ATTENTION_PACKED, "s"},
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
     "s"},
    {"stream_16", STREAM16, "d=64 causal=1 kv_split=64 lse=1", BOTH, 1, 10, 2, {3}, {150}, 0, ATTENTION_PACKED, "s"},
    {"stream_tiles", STREAM, "d=40 in=f16 kv_split=64", ASAN, 1, 20, 1, {1}, {150}, 0, ATTENTION_HEADS_FIRST, "s"},
    {"stream_window",
     STREAM,
     "d=64 window_left=70 window_right=3 kv_split=64 lse=1",
     BOTH,
     1,
     3,
     1,
     {2},
     {300},
     0,
     ATTENTION_PACKED,
     "s"},
    {"stream_d8", STREAM, "d=8 kv_split=64", ACCESS, 1, 1, 1, {1}, {70}, 0, ATTENTION_PACKED, "s"},
    {"stream_d72_24", STREAM, "d=72 dv=24 kv_split=64", ASAN, 1, 2, 1, {1}, {90}, 0, ATTENTION_PACKED, "s"},
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
     "s"},
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
     "s"},
    {"stream_unaligned", STREAM, "d=64 lse=1 kv_split=64", BOTH, 1, 4, 2, {1}, {90}, 0, ATTENTION_UNALIGNED, "s"},
    {"stream_lengths",
     STREAM,
     "d=64 length_k=1 kv_split=64 lse=1",
     BOTH,
     3,
     2,
     1,
     {1, 1, 1},
     {5, 0, 130},
     140,
     ATTENTION_PACKED,
     "s"},
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
     "s"},
    {"stream_no_keys", STREAM, "d=64 lse=1", ASAN, 1, 2, 1, {1}, {0}, 0, ATTENTION_PACKED, "s"},
    {"stream_negative", STREAM, "d=64 scale=-0.3 lse=1", ASAN, 1, 2, 1, {1}, {50}, 0, ATTENTION_PACKED, "s"},
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

static attention_case case_of(const forced *f)
{
    attention_case c = {.B = f->B, .Hq = f->Hq, .Hkv = f->Hkv, .seed = 78, .fill = ATTENTION_NORMAL, .p = 1};
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

// Notes the kernels that run, a letter each.
static char *note_kernel(const char *source, void *user)
{
    char *ran = user;
    size_t length = strlen(ran);
    if (length < 7)
        ran[length] = strstr(source, "attention_heads_params all")                             ? 'h'
                      : strstr(source, "wait_for_previous_launch()") && strstr(source, "kOwn") ? 'm'
                      : strstr(source, "end_split(")                                           ? 's'
                                                                                               : 'd';
    return strdup(source);
}

static void run_forced(model *m, const forced *f, model_order order, qn_text *report)
{
    const qn_arch *arch;
    qn_config config;
    attention_data data;
    qn_text fault = QN_TEXT_INIT;
    char ran[8] = "";
    attention_case c = case_of(f);
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    if (qn_config_parse(&qn_family_attention, f->config, &config) != QUERN_OK) fail_msg("%s", quern_message());
    if (!attention_data_make(&c, 0x7FFF, &data)) fail_msg("no memory"); // unused memory is NaN
    model_set_edit(m, note_kernel, ran);
    if (model_run_config(m, &c.spec.base, arch, &config, &data.args.base, order, &fault) != QUERN_OK) {
        attention_describe(&c, report);
        qn_text_putf(report, "    %s\n%s", quern_message(), qn_text_string(&fault));
    } else {
        attention_check_case(&data, report);
        if (strcmp(ran, f->ran) != 0) qn_text_putf(report, "%s: '%s' ran, not '%s'\n", f->name, ran, f->ran);
    }
    model_set_edit(m, NULL, NULL);
    qn_text_fini(&fault);
    attention_data_free(&data);
}

static bool is_wanted(const forced *f, size_t i, unsigned build)
{
    const char *name = getenv("QUERN_TEST_CASE"), *shard = getenv("QUERN_TEST_SHARD");
    unsigned part = 0, parts = 1;
    if (shard && sscanf(shard, "%u/%u", &part, &parts) != 2) fail_msg("QUERN_TEST_SHARD: i/n is needed");
    return (f->builds & build) && i % parts == part && (!name || strstr(f->name, name));
}

static void run_list(model_build build, unsigned bit)
{
    model *m = simt_model_any(build);
    size_t count = 0, failed = 0;
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        qn_text report = QN_TEXT_INIT;
        if (!is_wanted(&cases[i], i, bit)) continue;
        run_forced(m, &cases[i], (model_order){.shuffle = i % 3 != 0, .seed = (uint32_t)i}, &report);
        count++;
        if (report.length && failed++ < 8)
            print_error("%s    %s, configuration %s\n", qn_text_string(&report), cases[i].name, cases[i].config);
        qn_text_fini(&report);
    }
    print_message("%zu cases, %s build, %zu failed\n", count, model_build_name[build], failed);
    if (failed) fail_msg("%zu of %zu cases failed; the first ones are above", failed, count);
}

static void forced_blocks_are_right_under_sanitizers(void **state)
{
    (void)state;
    run_list(MODEL_ASAN, ASAN);
}

static void forced_blocks_make_no_wrong_access(void **state)
{
    (void)state;
    run_list(MODEL_ACCESS, ACCESS);
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
        cmocka_unit_test(forced_blocks_are_right_under_sanitizers),
        cmocka_unit_test(forced_blocks_make_no_wrong_access),
    };
    return cmocka_run_group_tests(tests, NULL, close_models);
}
