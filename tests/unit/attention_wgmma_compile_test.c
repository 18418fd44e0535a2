// SPDX-License-Identifier: Apache-2.0
// attention's plan "wgmma" without a device: which specs it serves and why not others, and that no kernel of it spills,
// whatever the head_dim and the features (a spill there also takes away the overlap of the tensor cores).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/attention.h"
#include "support/compile_check.h"

static quern_attention_spec parse(const char *text)
{
    quern_any_spec spec;
    quern_attention_spec result;
    compile_parse(text, &spec);
    memcpy(&result, &spec, sizeof result);
    return result;
}

static qn_config chosen_in(const quern_attention_spec *spec, const char *arch, size_t bucket)
{
    qn_config config;
    qn_attention_choose(&spec->base, compile_arch(arch), bucket, &config);
    return config;
}
// The configuration for many queries.
static qn_config chosen(const quern_attention_spec *spec, const char *arch)
{
    return chosen_in(spec, arch, QN_ATTENTION_MANY);
}

static void it_serves_what_tma_can_load(void **state)
{
    static const struct {
        const char *text, *arch;
        int plan;
    } choices[] = {
        {"attention d=8", "sm_90a", QN_ATTENTION_WGMMA},
        {"attention d=64 causal=1", "sm_90a", QN_ATTENTION_WGMMA},
        {"attention d=72 in=f16 softcap=3", "sm_90a", QN_ATTENTION_WGMMA},
        {"attention d=256 layout=varlen window_left=9 window_right=9 sink=1 lse=1", "sm_90a", QN_ATTENTION_WGMMA},
        {"attention d=512 length_k=1", "sm_90a", QN_ATTENTION_WGMMA},
        {"attention d=576 dv=512 kv_alias=1", "sm_90a", QN_ATTENTION_WGMMA},
        {"attention d=64 layout=paged page=128", "sm_90a", QN_ATTENTION_WGMMA},
        {"attention d=512 layout=paged page=64 cu_q=1", "sm_90a", QN_ATTENTION_WGMMA},
        {"attention d=64 layout=paged page=16", "sm_90a", QN_ATTENTION_PREFILL},
        {"attention d=576 dv=8", "sm_90a", QN_ATTENTION_PREFILL},
        {"attention d=512 layout=paged page=64 window_left=9", "sm_90a", QN_ATTENTION_WGMMA},
        {"attention d=64", "sm_90", QN_ATTENTION_PREFILL},
        {"attention d=64", "sm_80", QN_ATTENTION_PREFILL},
        {"attention d=64", "sm_100a", QN_ATTENTION_PREFILL},
        {"attention d=64 batch_invariant=1", "sm_90a", QN_ATTENTION_DECODE},
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(choices); i++) {
        const qn_arch *arch;
        quern_attention_spec spec = parse(choices[i].text);
        if (qn_arch_find(choices[i].arch, &arch) != QUERN_OK) continue; // sm_90 without the suffix may not be listed
        int plan = chosen(&spec, choices[i].arch).value[QN_ATTENTION_PLAN];
        if (plan != choices[i].plan)
            fail_msg("'%s' on %s: plan %d, must be %d", choices[i].text, choices[i].arch, plan, choices[i].plan);
    }
}

// Groups have tiles of their own where sequences are not long; under a causal limit smaller blocks, the smaller the shorter
// a sequence is.
static void limits_and_lengths_decide_about_tiles(void **state)
{
    static const struct {
        const char *text;
        int many[2], more[2]; // rows, keys
    } tiles[] = {
        {"attention d=64", {64, 128}, {192, 128}},
        {"attention d=64 lse=1", {192, 112}, {192, 112}}, // no registers for 128
        {"attention d=64 dv=48", {192, 128}, {192, 128}},
        {"attention d=64 causal=1", {64, 96}, {192, 112}},
        {"attention d=64 causal=1 softcap=3", {192, 96}, {192, 96}},
        {"attention d=40 dv=64 window_right=9 lse=1", {64, 96}, {192, 112}},
        {"attention d=64 causal=1 layout=varlen", {64, 96}, {192, 96}}, // no registers for 112
        {"attention d=64 dv=48 causal=1", {64, 96}, {128, 128}},
        {"attention d=64 causal=1 window_left=100", {128, 128}, {128, 128}},
        {"attention d=128 causal=1", {128, 128}, {128, 128}},
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(tiles); i++) {
        quern_attention_spec spec = parse(tiles[i].text);
        qn_config many = chosen(&spec, "sm_90a"), more = chosen_in(&spec, "sm_90a", QN_ATTENTION_LONG);
        assert_int_equal(many.value[QN_ATTENTION_ROWS], tiles[i].many[0]);
        assert_int_equal(many.value[QN_ATTENTION_KEYS], tiles[i].many[1]);
        assert_int_equal(more.value[QN_ATTENTION_ROWS], tiles[i].more[0]);
        assert_int_equal(more.value[QN_ATTENTION_KEYS], tiles[i].more[1]);
    }
}

static void what_it_does_not_serve_is_refused_with_the_reason(void **state)
{
    static const struct {
        const char *text, *arch, *config, *named;
    } refused[] = {
        {"attention d=64", "sm_80", "plan=wgmma rows=128 keys=128 columns=1 slots=4", "sm_80"},
        {"attention d=64 layout=paged page=64", "sm_90a", "plan=wgmma rows=128 keys=128 columns=1 slots=4",
         "page = 64"},
        {"attention d=128", "sm_90a", "plan=wgmma rows=64 keys=64 columns=1 slots=4", "rows=64"},
        {"attention d=64 causal=1", "sm_90a", "plan=wgmma rows=64 keys=128 columns=1 slots=4", "168 registers"},
        {"attention d=64", "sm_90a", "plan=wgmma rows=128 keys=128 columns=1 slots=3", "slots=3"},
        {"attention d=64", "sm_90a", "plan=wgmma rows=64 keys=64 columns=2 slots=2", "dv = 64"},
        {"attention d=512", "sm_90a", "plan=wgmma rows=128 keys=64 columns=1 slots=2", "512"},
        {"attention d=256", "sm_90a", "plan=wgmma rows=128 keys=128 columns=1 slots=2", "252 registers"},
        {"attention d=512", "sm_90a", "plan=wgmma rows=64 keys=64 columns=2 slots=4", "bytes of shared memory"},
        {"attention d=64 lse=1", "sm_90a", "plan=wgmma rows=192 keys=128 columns=1 slots=4", "registers"},
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(refused); i++) {
        quern_attention_spec spec = parse(refused[i].text);
        qn_config config;
        qn_plan plan;
        if (qn_config_parse(&qn_family_attention, refused[i].config, &config) != QUERN_OK)
            fail_msg("%s", quern_message());
        quern_status status = qn_attention_plan(&spec.base, compile_arch(refused[i].arch), &config, &plan);
        if (status != QUERN_NO_PLAN || !strstr(quern_message(), refused[i].named))
            fail_msg("'%s', %s: %s, must be NO_PLAN and say '%s': %s", refused[i].text, refused[i].config,
                     quern_status_name(status), refused[i].named, status == QUERN_OK ? "" : quern_message());
    }
}

static void add_kernel(compile_jobs *jobs, size_t bucket, const char *dims, const char *features)
{
    char text[256];
    qn_plan plan;
    snprintf(text, sizeof text, "attention %s %s", dims, features);
    quern_attention_spec spec = parse(text);
    qn_config config = chosen_in(&spec, "sm_90a", bucket);
    if (qn_attention_plan(&spec.base, compile_arch("sm_90a"), &config, &plan) != QUERN_OK)
        fail_msg("'%s': %s", text, quern_message());
    if (config.value[QN_ATTENTION_PLAN] != QN_ATTENTION_WGMMA) fail_msg("'%s': another plan", text);
    compile_jobs_add(jobs, &plan.stage[0], compile_arch("sm_90a"), text);
}

static void no_kernel_spills(void **state)
{
    static const char *const narrow[] = {"d=64", "d=96", "d=128", "d=192 dv=128", "d=192", "d=256"};
    static const char *const wide[] = {"d=320", "d=512", "d=576 dv=512"};
    static const char *const features[] = {"", "causal=1 lse=1 in=f16",
                                           "layout=varlen causal=1 softcap=20 scale=-1 sink=1 lse=1",
                                           "layout=paged page=128 cu_q=1 causal=1 sink=1 lse=1"};
    static const char *const most[] = {"layout=varlen causal=1 window_left=100 softcap=20 scale=-1 sink=1 lse=1",
                                       "layout=paged page=128 cu_q=1 causal=1 window_left=100 softcap=20 sink=1 lse=1"};
    static const char *const longer[] = {"causal=1", "causal=1 lse=1 in=f16", "causal=1 scale=-1 sink=1 lse=1"};
    static const char *const shorter[] = {"causal=1", "causal=1 softcap=20 lse=1", "causal=1 length_k=1 lse=1",
                                          "layout=varlen causal=1 scale=-1 sink=1 lse=1"};
    enum { MANY = QN_ATTENTION_MANY, LONG = QN_ATTENTION_LONG };
    (void)state;
    compile_skip_without_nvrtc();
    quern *q = compile_open();
    compile_jobs jobs = {0};
    for (size_t f = 0; f < QN_COUNT(features); f++) {
        for (size_t d = 0; d < QN_COUNT(narrow); d++) add_kernel(&jobs, MANY, narrow[d], features[f]);
        for (size_t d = 0; d < QN_COUNT(wide); d++) add_kernel(&jobs, MANY, wide[d], features[f]);
    }
    for (size_t f = 0; f < QN_COUNT(most); f++) {
        for (size_t d = 0; d < QN_COUNT(narrow); d++) add_kernel(&jobs, MANY, narrow[d], most[f]);
        for (size_t d = 0; d < QN_COUNT(wide); d++) add_kernel(&jobs, MANY, wide[d], most[f]);
    }
    for (size_t f = 0; f < QN_COUNT(longer); f++) add_kernel(&jobs, LONG, "d=64", longer[f]);
    for (size_t f = 0; f < QN_COUNT(shorter); f++) add_kernel(&jobs, MANY, "d=64", shorter[f]);
    compile_check_kernels(q, &jobs,
                          (QN_COUNT(features) + QN_COUNT(most)) * (QN_COUNT(narrow) + QN_COUNT(wide)) +
                              QN_COUNT(longer) + QN_COUNT(shorter));
    quern_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_serves_what_tma_can_load),
        cmocka_unit_test(limits_and_lengths_decide_about_tiles),
        cmocka_unit_test(what_it_does_not_serve_is_refused_with_the_reason),
        cmocka_unit_test(no_kernel_spills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
