// SPDX-License-Identifier: Apache-2.0
// attention's plans for few queries without a device: which of them serves what, why others are refused, how "heads" cuts
// its keys, and that no kernel spills, whatever the head_dim and the features.
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

static void rows_and_targets_choose_the_plan(void **state)
{
    static const struct {
        const char *text, *arch;
        size_t bucket;
        int plan;
    } choices[] = {
        {"attention d=64", "sm_90a", QN_ATTENTION_DECODE_8, QN_ATTENTION_STREAM},
        {"attention d=128", "sm_80", QN_ATTENTION_DECODE_16, QN_ATTENTION_STREAM},
        {"attention d=256", "sm_86", QN_ATTENTION_DECODE_8, QN_ATTENTION_STREAM},
        {"attention d=512", "sm_90a", QN_ATTENTION_DECODE_8, QN_ATTENTION_DECODE},
        {"attention d=512", "sm_90a", QN_ATTENTION_DECODE_16,
         QN_ATTENTION_DECODE}, // sums of 16 rows: too many registers
        {"attention d=64", "sm_90a", QN_ATTENTION_DECODE_64, QN_ATTENTION_HEADS},
        {"attention d=576 dv=512 kv_alias=1", "sm_90a", QN_ATTENTION_DECODE_64, QN_ATTENTION_HEADS},
        {"attention d=512 layout=paged page=16 cu_q=1", "sm_90a", QN_ATTENTION_DECODE_64, QN_ATTENTION_HEADS},
        {"attention d=64", "sm_90", QN_ATTENTION_DECODE_64, QN_ATTENTION_DECODE},
        {"attention d=64", "sm_100a", QN_ATTENTION_DECODE_64, QN_ATTENTION_DECODE},
        {"attention d=64 batch_invariant=1", "sm_90a", QN_ATTENTION_DECODE_8, QN_ATTENTION_DECODE},
        {"attention d=64 batch_invariant=1", "sm_90a", QN_ATTENTION_DECODE_64, QN_ATTENTION_DECODE},
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(choices); i++) {
        quern_attention_spec spec = parse(choices[i].text);
        qn_config config;
        qn_attention_choose(&spec.base, compile_arch(choices[i].arch), choices[i].bucket, &config);
        if (config.value[QN_ATTENTION_PLAN] != choices[i].plan)
            fail_msg("'%s' on %s, bucket %zu: plan %d, must be %d", choices[i].text, choices[i].arch, choices[i].bucket,
                     (int)config.value[QN_ATTENTION_PLAN], choices[i].plan);
    }
}

static void what_they_do_not_serve_is_refused_with_the_reason(void **state)
{
    static const struct {
        const char *text, *arch, *config, *named;
    } refused[] = {
        {"attention d=64", "sm_90a", "plan=stream rows=32 keys=64 warps=4 slots=3 ctas=1", "rows=32"},
        {"attention kv_split=64", "sm_90a", "plan=stream rows=8 keys=128 warps=4 slots=2 ctas=1", "splits of 64 keys"},
        {"attention d=64", "sm_90a", "plan=stream rows=16 keys=16 warps=4 slots=3 ctas=1", "a slot has"},
        {"attention d=512", "sm_90a", "plan=stream rows=8 keys=16 warps=8 slots=4 ctas=1", "bytes of shared memory"},
        {"attention d=512", "sm_90a", "plan=stream rows=16 keys=32 warps=2 slots=2 ctas=1", "registers"},
        {"attention d=64", "sm_80", "plan=heads rows=64 keys=64 columns=1 slots=4 ctas=1", "sm_80"},
        {"attention d=64", "sm_90a", "plan=heads rows=128 keys=64 columns=1 slots=4 ctas=1", "rows=128"},
        {"attention d=64", "sm_90a", "plan=heads rows=64 keys=64 columns=1 slots=3 ctas=1", "slots=3"},
        {"attention d=128", "sm_90a", "plan=heads rows=64 keys=128 columns=2 slots=4 ctas=1", "keys=128"},
        {"attention d=64", "sm_90a", "plan=heads rows=64 keys=64 columns=2 slots=4 ctas=1", "dv = 64"},
        {"attention d=512", "sm_90a", "plan=heads rows=64 keys=64 columns=1 slots=2 ctas=1", "dv = 512"},
        {"attention d=512", "sm_90a", "plan=heads rows=64 keys=64 columns=2 slots=4 ctas=1", "bytes of shared memory"},
        {"attention d=128", "sm_90a", "plan=heads rows=64 keys=64 columns=1 slots=2 ctas=6", "registers"},
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

// One to four waves of CTAs, of whose places at least so many hundredths are used.
static void splits_fill_a_device(void **state)
{
    (void)state;
    quern_attention_spec spec = parse("attention d=576 dv=512 kv_alias=1"), ragged = parse("attention layout=varlen");
    qn_config config;
    qn_attention_choose(&spec.base, compile_arch("sm_90a"), QN_ATTENTION_DECODE_64, &config);
    assert_int_equal(qn_attention_heads_split(&spec, &config, 8, 8192), 512);
    assert_int_equal(qn_attention_heads_split(&spec, &config, 2, 131072), 2048); // 66 of 1986, in whole blocks
    assert_int_equal(qn_attention_heads_split(&spec, &config, 64, 4096), 2048);
    assert_int_equal(qn_attention_heads_split(&spec, &config, 1, 100), QN_ATTENTION_HEADS_SPLIT);
    assert_int_equal(qn_attention_heads_split(&spec, &config, 0, 0), QN_ATTENTION_HEADS_SPLIT);
    for (int64_t tiles = 1; tiles < 2000; tiles++) {
        int64_t keys = 1 << 20, split = qn_attention_heads_split(&spec, &config, tiles, keys);
        int64_t parts = (keys + split - 1) / split * tiles, waves = (parts + 131) / 132;
        assert_int_equal(split % 64, 0);
        assert_true(parts <= qn_attention_heads_parts(&spec, &config, tiles));
        if (tiles <= 4 * 132 && parts * 100 < waves * 132 * (tiles <= 132 ? 79 : 66))
            fail_msg("%d tiles: %d CTAs", (int)tiles, (int)parts);
        split = qn_attention_heads_split(&ragged, &config, tiles, keys);
        assert_true((keys + split - 1) / split * tiles <= qn_attention_heads_parts(&ragged, &config, tiles));
    }
}

static void add_kernels(compile_jobs *jobs, const char *dims, const char *features, size_t bucket, int expected)
{
    char text[256];
    qn_config config;
    qn_plan plan;
    snprintf(text, sizeof text, "attention %s %s", dims, features);
    quern_attention_spec spec = parse(text);
    qn_attention_choose(&spec.base, compile_arch("sm_90a"), bucket, &config);
    if (qn_attention_plan(&spec.base, compile_arch("sm_90a"), &config, &plan) != QUERN_OK)
        fail_msg("'%s': %s", text, quern_message());
    if (config.value[QN_ATTENTION_PLAN] != expected) fail_msg("'%s': another plan", text);
    for (size_t i = 0; i < plan.stage_count && i < 2; i++) // the third is of attention_compile_test
        compile_jobs_add(jobs, &plan.stage[i], compile_arch("sm_90a"), text);
}

static void no_kernel_spills(void **state)
{
    static const char *const dims[] = {"d=64", "d=96", "d=128", "d=192 dv=128", "d=256", "d=504", "d=512"};
    static const char *const features[] = {
        "", "layout=varlen causal=1 window_left=100 softcap=20 scale=-1 sink=1 lse=1",
        "layout=paged page=16 cu_q=1 causal=1 window_left=100 softcap=20 sink=1 lse=1 in=f16"};
    (void)state;
    compile_skip_without_nvrtc();
    quern *q = compile_open();
    compile_jobs jobs = {0};
    size_t count = 0;
    for (size_t f = 0; f < QN_COUNT(features); f++) {
        for (size_t d = 0; d < QN_COUNT(dims); d++, count += 2) {
            add_kernels(&jobs, dims[d], features[f], QN_ATTENTION_DECODE_64, QN_ATTENTION_HEADS);
            if (d >= 5) continue;
            add_kernels(&jobs, dims[d], features[f], QN_ATTENTION_DECODE_8, QN_ATTENTION_STREAM), count += 2;
            add_kernels(&jobs, dims[d], features[f], QN_ATTENTION_DECODE_16, QN_ATTENTION_STREAM), count += 2;
        }
        add_kernels(&jobs, "d=576 dv=512 kv_alias=1", features[f], QN_ATTENTION_DECODE_64, QN_ATTENTION_HEADS);
        count += 2;
    }
    compile_check_kernels(q, &jobs, count);
    quern_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_targets_choose_the_plan),
        cmocka_unit_test(what_they_do_not_serve_is_refused_with_the_reason),
        cmocka_unit_test(splits_fill_a_device),
        cmocka_unit_test(no_kernel_spills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
