// SPDX-License-Identifier: Apache-2.0
// indexer for every architecture, without a device: combinations of features are planned within the architecture's
// limits; what the family does not do is refused with the field named; arguments are checked; a representative spec
// compiles for every target, corners for two; no kernel spills.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "indexer/args.h"
#include "ops/indexer.h"
#include "support/compile_check.h"

static void every_combination_of_features_has_a_plan_that_fits_every_architecture(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 32, 1},   {64, 128, 2048}, {128, 256, 2048},
                                        {9, 96, 100}, {32, 128, 512},  {128, 160, 7}};
    quern *q = compile_open();
    size_t planned = 0;
    for (unsigned bits = 0; bits < 3 * 4 * 32; bits++) {
        quern_indexer_spec spec = QUERN_INDEXER_SPEC_INIT;
        unsigned flags = bits / 12;
        spec.layout = (quern_indexer_layout)(bits % 3), spec.q = (quern_indexer_q)(bits / 3 % 4);
        spec.scores = flags & 1, spec.row_seq = flags >> 1 & 1, spec.page = flags >> 2 & 1 ? 64 : 0;
        spec.cu_keys = spec.page ? 0 : flags >> 3 & 1;
        spec.granularity = flags >> 4 & 1 ? QUERN_GRANULARITY_BLOCK : QUERN_GRANULARITY_ENTRY;
        if (spec.granularity || spec.layout == QUERN_INDEXER_NVFP4_HEADS) spec.epb = 64;
        for (size_t i = 0; i < QN_COUNT(shapes); i++) {
            spec.H = shapes[i][0], spec.C = shapes[i][1], spec.k = shapes[i][2];
            compile_check_spec(q, &spec.base, &planned);
        }
    }
    quern_close(q);
    print_message("planned %zu combinations of spec and architecture\n", planned);
}

static void what_the_family_does_not_do_is_refused_with_the_field_named(void **state)
{
    (void)state;
    static const compile_refusal refused[] = {
        {"indexer H=64 C=128", "k", QUERN_MISSING_FIELD},
        {"indexer H=129 C=128 k=1", "H", QUERN_BAD_VALUE},
        {"indexer H=64 C=130 k=1", "C = 130", QUERN_BAD_VALUE},
        {"indexer H=64 C=288 k=1", "C", QUERN_BAD_VALUE},
        {"indexer H=64 C=128 k=2049", "k", QUERN_BAD_VALUE},
        {"indexer H=64 C=128 k=1 page=12", "page = 12", QUERN_BAD_VALUE},
        {"indexer H=64 C=128 k=1 layout=nvfp4_heads page=64 epb=32", "epb = 32", QUERN_CONFLICT},
        {"indexer H=64 C=128 k=1 page=64 cu_keys=1", "cu_keys", QUERN_CONFLICT},
        {"indexer H=64 C=128 k=1 epb=4", "epb = 4", QUERN_CONFLICT},
        {"indexer H=64 C=128 k=1 layout=mxfp6_shared", "mxfp6_shared", QUERN_BAD_VALUE},
        {"indexer H=64 C=128 k=1 q=f32", "f32", QUERN_BAD_VALUE},
    };
    compile_check_refusals(refused, QN_COUNT(refused));
}

static void arguments_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static uint8_t bytes[256];
    quern_any_spec spec;
    int32_t length = 1, index;
    float w[2] = {0, 0};
    bool empty;
    quern_indexer_args good = QUERN_INDEXER_ARGS_INIT;
    good.T = 1, good.L = 1, good.q = good.q_scale = good.keys = good.key_scale = bytes;
    compile_parse("indexer H=2 C=32 k=1 q=mxfp4", &spec);
    good.w = w, good.length = &length, good.indices = &index;
    assert_int_equal(qn_family_indexer.check_args(&spec.base, &good.base, &empty), QUERN_OK);
    quern_indexer_args bad = good;
    bad.T = -1;
    assert_int_equal(qn_family_indexer.check_args(&spec.base, &bad.base, &empty), QUERN_BAD_SIZE);
    bad = good, bad.keys = NULL;
    assert_int_equal(qn_family_indexer.check_args(&spec.base, &bad.base, &empty), QUERN_MISSING_ARGUMENT);
    bad = good, bad.q_stride_H = 15;
    assert_int_equal(qn_family_indexer.check_args(&spec.base, &bad.base, &empty), QUERN_BAD_STRIDE);
    bad = good, bad.T = 2, bad.indices_stride_T = -1;
    assert_int_equal(qn_family_indexer.check_args(&spec.base, &bad.base, &empty), QUERN_BAD_STRIDE);
    bad = good, bad.w = (const float *)(const void *)(bytes + 1);
    assert_int_equal(qn_family_indexer.check_args(&spec.base, &bad.base, &empty), QUERN_MISALIGNED);
    bad = good, bad.keys = bytes + 1, bad.q = bytes + 3; // bytes lie anywhere
    assert_int_equal(qn_family_indexer.check_args(&spec.base, &bad.base, &empty), QUERN_OK);
    bad = good, bad.T = 0, bad.keys = NULL;
    assert_int_equal(qn_family_indexer.check_args(&spec.base, &bad.base, &empty), QUERN_OK);
    assert_true(empty);
}

// q and its scales are read by words only where both begin at multiples of what is read; scales of other counts are bytes.
static void scales_of_q_between_words_are_read_by_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t q, scales; // bytes after a multiple of 16
        int aligned;
    } cases[] = {
        {"indexer H=2 C=128 k=1 q=mxfp4", 0, 0, 1}, {"indexer H=2 C=128 k=1 q=mxfp4", 0, 4, 1},
        {"indexer H=2 C=128 k=1 q=mxfp4", 0, 1, 0}, {"indexer H=2 C=128 k=1 q=mxfp4", 0, 2, 0},
        {"indexer H=2 C=128 k=1 q=mxfp4", 8, 0, 0}, {"indexer H=2 C=64 k=1 q=mxfp4", 0, 1, 1},
    };
    static _Alignas(16) uint8_t bytes[1024];
    const qn_device_limits limits = {132};
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        quern_any_spec spec;
        qn_config config;
        qn_plan plan;
        qn_launch launch = {.skip = false};
        indexer_params p;
        quern_indexer_args a = QUERN_INDEXER_ARGS_INIT;
        a.T = 1, a.L = 1, a.q = bytes + cases[i].q, a.q_scale = bytes + 512 + cases[i].scales;
        a.keys = a.key_scale = bytes, a.w = (float *)(void *)bytes, a.workspace = bytes;
        a.length = a.indices = (int32_t *)(void *)bytes;
        compile_parse(cases[i].text, &spec);
        qn_family_indexer.choose(&spec.base, compile_arch("sm_90a"), 0, &config);
        assert_int_equal(qn_family_indexer.plan(&spec.base, compile_arch("sm_90a"), &config, &plan), QUERN_OK);
        qn_family_indexer.launch(&spec.base, &config, &plan, &limits, &a.base, 0, &launch);
        memcpy(&p, launch.params, sizeof p);
        assert_int_equal(p.q_aligned, cases[i].aligned);
    }
}

static indexer_params launched(const char *text, const char *config_text, int sm_count, int64_t T, uint8_t *workspace,
                               size_t *needed)
{
    static _Alignas(16) uint8_t bytes[1024];
    const qn_device_limits limits = {sm_count};
    quern_any_spec spec;
    qn_config config;
    qn_plan plan;
    qn_launch launch = {.skip = false};
    indexer_params p;
    quern_indexer_sizes z = QUERN_INDEXER_SIZES_INIT;
    quern_indexer_args a = QUERN_INDEXER_ARGS_INIT;
    a.T = z.T = T, a.max_length = z.max_length = 8192, a.B = 1, a.columns = 128;
    a.q = a.q_scale = a.keys = bytes, a.w = (float *)(void *)bytes, a.workspace = workspace;
    a.length = a.indices = (int32_t *)(void *)bytes, a.block_table = (int32_t *)(void *)bytes;
    compile_parse(text, &spec);
    assert_int_equal(qn_config_parse(&qn_family_indexer, config_text, &config), QUERN_OK);
    assert_int_equal(qn_family_indexer.plan(&spec.base, compile_arch("sm_90a"), &config, &plan), QUERN_OK);
    qn_family_indexer.launch(&spec.base, &config, &plan, &limits, &a.base, 0, &launch);
    *needed = qn_family_indexer.workspace(&spec.base, &config, &z);
    memcpy(&p, launch.params, sizeof p);
    return p;
}

// One workspace serves all kernels of an op: what decode leaves for its next launch, prefill must not write over. And CTAs
// that wait for one another are launched only where all of them are resident.
static void plans_of_an_op_share_a_workspace_and_wait_only_where_all_are_resident(void **state)
{
    (void)state;
    static const char text[] = "indexer H=64 C=128 k=2048 q=mxfp4 page=64", decode[] = "plan=wgmma warps=16 shares=64";
    uint8_t *workspace = (uint8_t *)(uintptr_t)4096; // not looked at
    size_t kept, tiles;
    assert_int_equal(launched(text, decode, 132, 1, workspace, &kept).shares, 64);
    assert_ptr_equal(launched(text, decode, 132, 1, workspace, &kept).workspace, workspace);
    assert_true(launched(text, "plan=prefill", 132, 512, workspace, &tiles).workspace >= workspace + kept);
    assert_true(kept > 0 && tiles > kept);
    assert_int_equal(launched(text, decode, 132, 2, workspace, &kept).shares, 64);
    assert_int_equal(launched(text, decode, 132, 3, workspace, &kept).shares, 1);
    assert_int_equal(launched(text, decode, 63, 1, workspace, &kept).shares, 1);
}

static bool is_choice_of_some_bucket(const quern_spec *spec, const qn_arch *arch, const qn_config *config)
{
    for (size_t b = 0; b < qn_family_indexer.bucket_count; b++) {
        qn_config other;
        qn_config_choose(&qn_family_indexer, spec, arch, arch->sm_count, b, &other);
        if (!memcmp(&other, config, sizeof other)) return true;
    }
    return false;
}

// The rows that a bucket of few rows may have.
static int64_t most_rows_of(size_t bucket)
{
    int64_t rows = 0;
    quern_indexer_sizes z = QUERN_INDEXER_SIZES_INIT, from;
    qn_family_indexer.bucket_sizes(bucket, &from);
    for (z = from, z.T = z.B = 1; z.T <= 66; z.B = ++z.T)
        if (qn_family_indexer.bucket_of(&z) == bucket) rows = z.T;
    return rows;
}

// A device with fewer SMs than its architecture's usual part: launches of few rows keep several CTAs a row, all of them
// resident, by kernels that a warm without a device has made. The usual part gets what a warm takes for it.
static void shares_fit_the_sms_of_the_device_and_are_of_those_warmed(void **state)
{
    (void)state;
    static const char *const texts[] = {"indexer H=64 C=128 k=2048 q=mxfp4 page=64", "indexer H=128 C=128 k=1 q=mxfp4",
                                        "indexer H=64 C=128 k=512 layout=fp8_shared q=fp8 page=64",
                                        "indexer H=8 C=64 k=64 layout=nvfp4_heads epb=64"};
    static const int counts[] = {132, 144, 131, 114, 78, 66, 65, 60, 32, 16, 7, 1};
    const qn_arch *arch = compile_arch("sm_90a");
    for (size_t i = 0; i < QN_COUNT(texts); i++) {
        quern_any_spec spec;
        compile_parse(texts[i], &spec);
        for (size_t c = 0; c < QN_COUNT(counts) * qn_family_indexer.bucket_count; c++) {
            const size_t bucket = c / QN_COUNT(counts);
            const int sm_count = counts[c % QN_COUNT(counts)];
            const int64_t rows = most_rows_of(bucket);
            qn_config usual, config;
            memset(&usual, 0, sizeof usual);
            qn_family_indexer.choose(&spec.base, arch, bucket, &usual);
            qn_config_choose(&qn_family_indexer, &spec.base, arch, sm_count, bucket, &config);
            const int32_t shares = config.value[2];
            if (sm_count >= arch->sm_count || !qn_indexer_has_wgmma((quern_indexer_spec *)&spec, arch))
                assert_memory_equal(&config, &usual, sizeof config);
            else if (rows)
                assert_true(shares <= 2 || rows * shares <= sm_count);
            if (qn_indexer_has_wgmma((quern_indexer_spec *)&spec, arch) && rows && rows * usual.value[2] > sm_count)
                assert_true(shares == usual.value[2] || rows * shares * 2 > sm_count);
            assert_true(is_choice_of_some_bucket(&spec.base, arch, &config));
        }
    }
}

static void every_configuration_fits_or_is_refused_with_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = {"indexer H=1 C=32 k=1 q=mxfp4", "indexer H=64 C=128 k=2048 q=mxfp4 page=64",
                                        "indexer H=128 C=256 k=2048 layout=fp8_shared q=bf16",
                                        "indexer H=128 C=256 k=64 layout=nvfp4_heads q=f16 page=64 epb=64"};
    compile_check_configs(texts, QN_COUNT(texts), &(compile_walk){.chosen = false});
}

// ---- kernels

// The kernels of one row, of some, and of many.
static void add(compile_jobs *jobs, const char *text, const qn_arch *arch, size_t most)
{
    static const int64_t sizes[][2] = {{1, 131072}, {4096, 16384}, {64, 8192}, {1, 4096}};
    quern_any_spec spec;
    compile_parse(text, &spec);
    for (size_t i = 0; i < most; i++) {
        quern_indexer_sizes z = QUERN_INDEXER_SIZES_INIT;
        qn_config config;
        qn_plan plan;
        z.T = sizes[i][0], z.max_length = sizes[i][1];
        qn_family_indexer.choose(&spec.base, arch, qn_family_indexer.bucket_of(&z), &config);
        if (qn_family_indexer.plan(&spec.base, arch, &config, &plan) != QUERN_OK)
            fail_msg("'%s': %s", text, quern_message());
        compile_jobs_add(jobs, &plan.stage[0], arch, text);
    }
}

static void representative_specs_compile_for_every_target_without_spills(void **state)
{
    (void)state;
    static const char *const texts[] = {"indexer H=64 C=128 k=2048 q=mxfp4 page=64 scores=1",
                                        "indexer H=64 C=128 k=512 layout=fp8_shared q=fp8 page=64"};
    compile_skip_without_nvrtc();
    quern *q = compile_open();
    compile_jobs jobs = {0};
    for (size_t t = 0; t < QN_COUNT(texts); t++)
        for (size_t i = 0; i < COMPILE_TARGETS; i++) add(&jobs, texts[t], compile_arch(compile_targets[i]), t ? 1 : 2);
    compile_check_kernels(q, &jobs, 3 * COMPILE_TARGETS);
    quern_close(q);
}

static const char *const corners[] = {
    "indexer H=1 C=32 k=1 q=mxfp4",
    "indexer H=128 C=256 k=2048 q=mxfp4 page=64",
    "indexer H=128 C=256 k=2048 q=bf16 page=8 row_seq=1",
    "indexer H=128 C=256 k=2048 layout=fp8_shared q=bf16 cu_keys=1 scores=1",
    "indexer H=64 C=128 k=2048 q=bf16 page=64",
    "indexer H=64 C=128 k=2048 layout=fp8_shared q=f16 page=64 scores=1 row_seq=1",
    "indexer H=64 C=128 k=2048 q=mxfp4 page=64 scores=1 row_seq=1",
    "indexer H=20 C=96 k=2048 q=mxfp4 page=64",
    "indexer H=128 C=128 k=2048 q=mxfp4 page=64",
    "indexer H=64 C=224 k=300 layout=fp8_shared q=mxfp4 granularity=block epb=40",
    "indexer H=128 C=256 k=64 layout=nvfp4_heads q=f16 page=64 epb=64",
    "indexer H=8 C=128 k=2048 layout=nvfp4_heads q=mxfp4 epb=16 granularity=block",
};

static void corner_specs_compile_without_spills(void **state)
{
    (void)state;
    static const char *const targets[] = {"sm_90a", "sm_100a", "sm_120a"};
    compile_skip_without_nvrtc();
    quern *q = compile_open();
    compile_jobs jobs = {0};
    for (size_t i = 0; i < QN_COUNT(corners); i++)
        for (size_t t = 0; t < QN_COUNT(targets); t++) add(&jobs, corners[i], compile_arch(targets[t]), t ? 1 : 2);
    compile_check_kernels(q, &jobs, QN_COUNT(corners) * QN_COUNT(targets));
    quern_close(q);
}

static void warming_twice_compiles_once(void **state)
{
    (void)state;
    compile_check_warm("indexer H=2 C=32 k=8 q=mxfp4", "sm_90a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_of_features_has_a_plan_that_fits_every_architecture),
        cmocka_unit_test(what_the_family_does_not_do_is_refused_with_the_field_named),
        cmocka_unit_test(every_configuration_fits_or_is_refused_with_numbers),
        cmocka_unit_test(arguments_that_cannot_be_are_refused),
        cmocka_unit_test(scales_of_q_between_words_are_read_by_bytes),
        cmocka_unit_test(plans_of_an_op_share_a_workspace_and_wait_only_where_all_are_resident),
        cmocka_unit_test(shares_fit_the_sms_of_the_device_and_are_of_those_warmed),
        cmocka_unit_test(representative_specs_compile_for_every_target_without_spills),
        cmocka_unit_test(corner_specs_compile_without_spills),
        cmocka_unit_test(warming_twice_compiles_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
