// SPDX-License-Identifier: Apache-2.0
// indexer for every architecture, without a device: combinations of features are planned within the architecture's
// limits; what the family does not do is refused with the field named; arguments are checked; a representative spec
// compiles for every target, corners for two; no kernel spills.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/compile_pool.h"

static quern *open_in_memory(void)
{
    quern_options options = QUERN_OPTIONS_INIT;
    quern *q = NULL;
    options.mode = QUERN_MODE_OFF;
    options.cache_file = "";
    options.compile_timeout_ms = -1; // a busy machine is slow, not broken
    if (quern_open(&options, &q) != QUERN_OK) fail_msg("%s", quern_message());
    return q;
}

static quern_indexer_spec parse(const char *text)
{
    quern_any_spec spec;
    quern_indexer_spec result;
    if (quern_spec_parse(text, &spec) != QUERN_OK) fail_msg("'%s': %s", text, quern_message());
    memcpy(&result, &spec, sizeof result);
    return result;
}

static int up(int value, int step)
{
    return (value + step - 1) / step * step;
}

// ---- plans

static void assert_plan_fits(const qn_plan *plan, const qn_arch *arch, const char *text)
{
    const qn_kernel_plan *k = &plan->stage[0];
    bool fits = plan->stage_count == 1 && k->threads >= 32 && k->threads <= 1024 && k->threads % 32 == 0 &&
                k->dynamic_shared > 0 && k->dynamic_shared <= arch->shared_cta && k->params_bytes > 0 &&
                k->params_bytes <= QN_MAX_PARAMS && k->constant_count <= QN_MAX_CONSTANTS &&
                strlen(k->entry) < QN_MAX_ENTRY - 1;
    if (!fits)
        fail_msg("'%s' on %s: %s does not fit: threads %d, dynamic_shared %d, params %zu, constants %zu", text,
                 arch->name, k->entry, k->threads, k->dynamic_shared, k->params_bytes, k->constant_count);
}

static void every_combination_of_features_has_a_plan_that_fits_every_architecture(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 32, 1},   {64, 128, 2048}, {128, 256, 2048},
                                        {9, 96, 100}, {32, 128, 512},  {128, 160, 7}};
    size_t arch_count, planned = 0;
    const qn_arch *archs = qn_arch_list(&arch_count);
    for (unsigned bits = 0; bits < 3 * 4 * 32; bits++) {
        quern_indexer_spec spec = QUERN_INDEXER_SPEC_INIT;
        unsigned flags = bits / 12;
        char text[512];
        spec.layout = (quern_indexer_layout)(bits % 3), spec.q = (quern_indexer_q)(bits / 3 % 4);
        spec.scores = flags & 1, spec.row_seq = flags >> 1 & 1, spec.page = flags >> 2 & 1 ? 64 : 0;
        spec.cu_keys = spec.page ? 0 : flags >> 3 & 1;
        spec.granularity = flags >> 4 & 1 ? QUERN_GRANULARITY_BLOCK : QUERN_GRANULARITY_ENTRY;
        if (spec.granularity || spec.layout == QUERN_INDEXER_NVFP4_HEADS) spec.epb = 64;
        for (size_t i = 0; i < QN_COUNT(shapes); i++) {
            spec.H = shapes[i][0], spec.C = shapes[i][1], spec.k = shapes[i][2];
            if (quern_spec_format(&spec.base, text, sizeof text) != QUERN_OK) fail_msg("%s", quern_message());
            for (size_t a = 0; a < arch_count; a++)
                for (size_t b = 0; b < qn_family_indexer.bucket_count; b++) {
                    qn_config config;
                    qn_plan plan;
                    qn_family_indexer.choose(&spec.base, &archs[a], b, &config);
                    if (qn_family_indexer.plan(&spec.base, &archs[a], &config, &plan) != QUERN_OK)
                        fail_msg("'%s' on %s: %s", text, archs[a].name, quern_message());
                    assert_plan_fits(&plan, &archs[a], text);
                    planned++;
                }
        }
    }
    print_message("%zu plans\n", planned);
}

static void what_the_family_does_not_do_is_refused_with_the_field_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        quern_status status;
        const char *words;
    } cases[] = {
        {"indexer H=64 C=128", QUERN_MISSING_FIELD, "k"},
        {"indexer H=129 C=128 k=1", QUERN_BAD_VALUE, "H"},
        {"indexer H=64 C=130 k=1", QUERN_BAD_VALUE, "C = 130"},
        {"indexer H=64 C=288 k=1", QUERN_BAD_VALUE, "C"},
        {"indexer H=64 C=128 k=2049", QUERN_BAD_VALUE, "k"},
        {"indexer H=64 C=128 k=1 page=12", QUERN_BAD_VALUE, "page = 12"},
        {"indexer H=64 C=128 k=1 layout=nvfp4_heads page=64 epb=32", QUERN_CONFLICT, "epb = 32"},
        {"indexer H=64 C=128 k=1 page=64 cu_keys=1", QUERN_CONFLICT, "cu_keys"},
        {"indexer H=64 C=128 k=1 epb=4", QUERN_CONFLICT, "epb = 4"},
        {"indexer H=64 C=128 k=1 layout=mxfp6_shared", QUERN_BAD_VALUE, "mxfp6_shared"},
        {"indexer H=64 C=128 k=1 q=f32", QUERN_BAD_VALUE, "f32"},
    };
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        quern_any_spec spec;
        quern_status status = quern_spec_parse(cases[i].text, &spec);
        if (status == QUERN_OK) status = quern_spec_check(&spec.base);
        if (status != cases[i].status || !strstr(quern_message(), cases[i].words))
            fail_msg("'%s': %s: %s", cases[i].text, quern_status_name(status), quern_message());
    }
}

static void arguments_that_cannot_be_are_refused(void **state)
{
    (void)state;
    quern_indexer_spec spec = parse("indexer H=2 C=32 k=1 q=mxfp4");
    static uint8_t bytes[256];
    int32_t length = 1, index;
    float w[2] = {0, 0};
    bool empty;
    quern_indexer_args good = QUERN_INDEXER_ARGS_INIT;
    good.T = 1, good.L = 1, good.q = good.q_scale = good.keys = good.key_scale = bytes;
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

// ---- kernels

// Whether a kernel keeps within the SM; says what does not.
static bool has_resources(const compile_job *job)
{
    const qn_kernel_plan *k = &job->plan;
    const qn_image *image = job->image;
    // Registers go by 256 to a warp, warps by 4 to a CTA.
    int warps = up(k->threads / 32, 4), registers = up(image->registers * 32, 256) * warps * k->min_ctas;
    int shared = image->shared_bytes + k->dynamic_shared;
    if (image->local_bytes == 0 && image->registers > 0 && registers <= job->arch->registers_sm &&
        shared <= job->arch->shared_cta && k->min_ctas * (shared + 1024) <= job->arch->shared_sm)
        return true;
    print_error("'%s' on %s: %s: local %d bytes (must be 0), %d registers × %d threads × %d CTAs (an SM has %d), "
                "shared %d + %d bytes\n",
                job->text, job->arch->name, k->entry, image->local_bytes, image->registers, k->threads, k->min_ctas,
                job->arch->registers_sm, image->shared_bytes, k->dynamic_shared);
    return false;
}

static void report_times(const compile_jobs *jobs)
{
    int64_t total = 0, longest = 0;
    int most_registers = 0;
    for (size_t i = 0; i < jobs->count; i++) {
        const qn_image *image = jobs->item[i].image;
        if (!image) continue;
        total += image->compile_us;
        if (image->compile_us > longest) longest = image->compile_us;
        if (image->registers > most_registers) most_registers = image->registers;
    }
    print_message("%zu kernels, %lld ms of compiling, %lld ms the longest, %d registers at most\n", jobs->count,
                  (long long)(total / 1000), (long long)(longest / 1000), most_registers);
}

// Compiles and checks what is in the list. An architecture that this NVRTC lacks is named and passed over.
static void compile_and_check(quern *q, compile_jobs *jobs)
{
    const qn_arch *lacking = NULL;
    size_t failed = 0;
    compile_jobs_run(jobs, q);
    report_times(jobs);
    for (size_t i = 0; i < jobs->count; i++) {
        const compile_job *job = &jobs->item[i];
        if (job->status == QUERN_NVRTC_LACKS_ARCH) {
            if (job->arch != lacking) print_message("not compiled: %s: %s\n", job->arch->name, job->message);
            lacking = job->arch;
        } else if (job->status != QUERN_OK) {
            print_error("'%s' on %s: %s: %s\n", job->text, job->arch->name, quern_status_name(job->status),
                        job->message);
            failed++;
        } else if (!has_resources(job)) {
            failed++;
        }
    }
    if (failed) fail_msg("%zu of %zu kernels failed; see above", failed, jobs->count);
}

static void skip_without_nvrtc(void)
{
    const qn_nvrtc *nvrtc;
    const char *file = getenv("QUERN_NVRTC");
    if (qn_nvrtc_load(file && *file ? file : NULL, false, &nvrtc) == QUERN_OK) return;
    print_message("skipped: no NVRTC: %s\n", quern_message());
    skip();
}

// The kernels of one row, of some, and of many.
static void add(compile_jobs *jobs, const quern_indexer_spec *spec, const qn_arch *arch, const char *text, size_t most)
{
    static const int64_t sizes[][2] = {{1, 131072}, {4096, 16384}, {64, 8192}, {1, 4096}};
    for (size_t i = 0; i < most; i++) {
        quern_indexer_sizes z = QUERN_INDEXER_SIZES_INIT;
        qn_config config;
        qn_plan plan;
        z.T = sizes[i][0], z.max_length = sizes[i][1];
        qn_family_indexer.choose(&spec->base, arch, qn_family_indexer.bucket_of(&z), &config);
        if (qn_family_indexer.plan(&spec->base, arch, &config, &plan) != QUERN_OK)
            fail_msg("'%s': %s", text, quern_message());
        compile_jobs_add(jobs, &plan.stage[0], arch, text);
    }
}

static const qn_arch *arch_of(const char *name)
{
    const qn_arch *arch;
    if (qn_arch_find(name, &arch) != QUERN_OK) fail_msg("%s", quern_message());
    return arch;
}

static void representative_specs_compile_for_every_target_without_spills(void **state)
{
    (void)state;
    skip_without_nvrtc();
    static const char *const targets[] = {"sm_80",   "sm_86",   "sm_89",   "sm_90a", "sm_100a",
                                          "sm_100f", "sm_103a", "sm_120a", "sm_121a"};
    static const char *const texts[] = {"indexer H=64 C=128 k=2048 q=mxfp4 page=64 scores=1",
                                        "indexer H=64 C=128 k=512 layout=fp8_shared q=fp8 page=64"};
    quern *q = open_in_memory();
    compile_jobs jobs = {0};
    for (size_t t = 0; t < QN_COUNT(texts); t++) {
        quern_indexer_spec spec = parse(texts[t]);
        for (size_t i = 0; i < QN_COUNT(targets); i++) add(&jobs, &spec, arch_of(targets[i]), texts[t], t ? 1 : 2);
    }
    compile_and_check(q, &jobs);
    compile_jobs_fini(&jobs);
    quern_close(q);
}

static const char *const corners[] = {
    "indexer H=1 C=32 k=1 q=mxfp4",
    "indexer H=128 C=256 k=2048 q=mxfp4 page=64",
    "indexer H=128 C=256 k=2048 q=bf16 page=8 row_seq=1",
    "indexer H=128 C=256 k=2048 layout=fp8_shared q=bf16 cu_keys=1 scores=1",
    "indexer H=64 C=128 k=2048 q=bf16 page=64",
    "indexer H=64 C=224 k=300 layout=fp8_shared q=mxfp4 granularity=block epb=40",
    "indexer H=128 C=256 k=64 layout=nvfp4_heads q=f16 page=64 epb=64",
    "indexer H=8 C=128 k=2048 layout=nvfp4_heads q=mxfp4 epb=16 granularity=block",
};

static void corner_specs_compile_without_spills(void **state)
{
    (void)state;
    skip_without_nvrtc();
    static const char *const targets[] = {"sm_90a", "sm_100a", "sm_120a"};
    quern *q = open_in_memory();
    compile_jobs jobs = {0};
    for (size_t i = 0; i < QN_COUNT(corners); i++) {
        quern_indexer_spec spec = parse(corners[i]);
        for (size_t t = 0; t < QN_COUNT(targets); t++) add(&jobs, &spec, arch_of(targets[t]), corners[i], t ? 1 : 2);
    }
    compile_and_check(q, &jobs);
    compile_jobs_fini(&jobs);
    quern_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_of_features_has_a_plan_that_fits_every_architecture),
        cmocka_unit_test(what_the_family_does_not_do_is_refused_with_the_field_named),
        cmocka_unit_test(arguments_that_cannot_be_are_refused),
        cmocka_unit_test(representative_specs_compile_for_every_target_without_spills),
        cmocka_unit_test(corner_specs_compile_without_spills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
