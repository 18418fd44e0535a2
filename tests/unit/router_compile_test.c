// SPDX-License-Identifier: Apache-2.0
// router for every architecture, without a device: every combination of features is planned within the
// architecture's limits; a representative spec compiles for every target, corners for two; no kernel spills, and each
// leaves room for the CTAs an SM that its plan counts on. Prints compile times, asserts none.
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

static quern_router_spec parse(const char *text)
{
    quern_any_spec spec;
    quern_router_spec result;
    if (quern_spec_parse(text, &spec) != QUERN_OK) fail_msg("'%s': %s", text, quern_message());
    memcpy(&result, &spec, sizeof result);
    return result;
}

static int up(int value, int step)
{
    return (value + step - 1) / step * step;
}

// ---- plans

// What any plan that is accepted keeps; chosen: also that the CTAs an SM it counts on find room.
static void assert_plan_fits(const qn_kernel_plan *k, const qn_arch *arch, const char *text, bool chosen)
{
    bool fits =
        k->threads >= 32 && k->threads <= 1024 && k->threads % 32 == 0 && k->min_ctas >= 1 &&
        k->min_ctas * k->threads <= arch->max_threads_sm && k->cluster >= 1 && k->cluster <= arch->max_cluster &&
        k->dynamic_shared >= 0 && k->dynamic_shared <= arch->shared_cta &&
        (!chosen || k->min_ctas * (k->dynamic_shared + 1024) <= arch->shared_sm) && // 1 KiB a CTA is the driver's
        k->params_bytes > 0 && k->params_bytes <= QN_MAX_PARAMS && k->constant_count <= QN_MAX_CONSTANTS &&
        strlen(k->entry) < QN_MAX_ENTRY &&
        k->entry[strspn(k->entry, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == 0;
    if (!fits)
        fail_msg("'%s' on %s: %s does not fit: threads %d, min_ctas %d, cluster %d, dynamic_shared %d, params %zu",
                 text, arch->name, k->entry, k->threads, k->min_ctas, k->cluster, k->dynamic_shared, k->params_bytes);
}

static void assert_variants_fit(quern *q, const qn_arch *arch, const quern_spec *spec, qn_variants *variants)
{
    const qn_family *family = &qn_family_router;
    char text[512];
    assert_int_equal(quern_spec_format(spec, text, sizeof text), QUERN_OK);
    if (qn_variants_plan(q, family, spec, arch, variants) != QUERN_OK)
        fail_msg("'%s' on %s: %s", text, arch->name, quern_message());
    assert_in_range(variants->count, 1, QN_MAX_VARIANTS);
    for (size_t b = 0; b < family->bucket_count; b++) {
        const qn_variant *v = &variants->item[variants->of_bucket[b]];
        assert_in_range(variants->of_bucket[b], 0, variants->count - 1);
        assert_in_range(b, v->first_bucket, v->last_bucket);
    }
    for (size_t v = 0; v < variants->count; v++) {
        assert_in_range(variants->item[v].plan.stage_count, 1, QN_MAX_STAGES);
        for (size_t s = 0; s < variants->item[v].plan.stage_count; s++)
            assert_plan_fits(&variants->item[v].plan.stage[s], arch, text, true);
    }
}

static void every_combination_of_features_has_a_plan_that_fits_every_architecture(void **state)
{
    (void)state;
    static const int64_t shapes[][5] = {{8, 1, 1, 1, 1},     {7168, 384, 6, 1, 1},    {4096, 256, 8, 8, 4},
                                        {24, 33, 31, 1, 1},  {65536, 1024, 32, 1, 1}, {1000, 1023, 9, 1, 1},
                                        {2880, 60, 12, 5, 2}};
    quern *q = open_in_memory();
    qn_variants *variants = test_malloc(sizeof *variants);
    size_t arch_count, planned = 0;
    const qn_arch *archs = qn_arch_list(&arch_count);
    for (unsigned bits = 0; bits < 9 * 32; bits++) {
        quern_router_spec spec = QUERN_ROUTER_SPEC_INIT;
        unsigned flags = bits / 9;
        spec.in = (quern_dtype)(QUERN_F32 + bits % 3), spec.w = (quern_dtype)(QUERN_F32 + bits / 3 % 3);
        spec.w_layout = flags & 1 ? QUERN_W_DE : QUERN_W_ED, spec.batch_invariant = flags >> 1 & 1;
        spec.given_ids = flags >> 2 & 1, spec.act = flags >> 3 & 1 ? QUERN_ACT_SOFTMAX : QUERN_ACT_SQRT_SOFTPLUS;
        spec.logits = flags >> 4 & 1, spec.bias = flags & 1;
        for (size_t i = bits % 2; i < QN_COUNT(shapes); i += 2) { // half of them each time: planning tries much
            spec.D = shapes[i][0], spec.E = shapes[i][1], spec.K = shapes[i][2];
            spec.n_group = shapes[i][3], spec.topk_group = shapes[i][4];
            assert_int_equal(quern_spec_check(&spec.base), QUERN_OK);
            for (size_t a = 0; a < arch_count; a++, planned++) assert_variants_fit(q, &archs[a], &spec.base, variants);
        }
    }
    print_message("planned %zu combinations of spec and architecture\n", planned);
    test_free(variants);
    quern_close(q);
}

static void what_the_family_does_not_do_is_refused_with_the_field_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *named;
        quern_status status;
    } refused[] = {
        {"router D=12 E=8 K=1 in=f32 w=f32", "D", QUERN_BAD_VALUE},
        {"router D=0 E=8 K=1 in=f32 w=f32", "D", QUERN_BAD_VALUE},
        {"router D=65544 E=8 K=1 in=f32 w=f32", "D", QUERN_BAD_VALUE},
        {"router D=64 E=1025 K=1 in=f32 w=f32", "E", QUERN_BAD_VALUE},
        {"router D=64 E=8 K=0 in=f32 w=f32", "K", QUERN_BAD_VALUE},
        {"router D=64 E=8 K=9 in=f32 w=f32", "K", QUERN_CONFLICT},
        {"router D=64 E=64 K=17 in=bf16 w=bf16 n_group=8 topk_group=2", "K", QUERN_CONFLICT},
        {"router D=64 E=64 K=4 in=bf16 w=bf16 n_group=7", "n_group", QUERN_CONFLICT},
        {"router D=64 E=64 K=4 in=i32 w=bf16", "in", QUERN_BAD_VALUE},
        {"router D=64 E=64 K=4 in=bf16 w=i32", "w", QUERN_BAD_VALUE},
        {"router D=64 E=64 K=4 in=bf16 w=bf16 w_layout=EE", "w_layout", QUERN_BAD_VALUE},
        {"router D=64 E=64 K=4 in=bf16 w=bf16 scale=1e39", "scale", QUERN_BAD_VALUE},
        {"router D=64 E=64 K=4 in=bf16", "w", QUERN_MISSING_FIELD},
        {"router E=64 K=4 in=bf16 w=bf16", "D", QUERN_MISSING_FIELD},
        {"router D=64 E=64 K=4 in=bf16 w=bf16 top_p=1", "top_p", QUERN_UNKNOWN_FIELD},
    };
    for (size_t i = 0; i < QN_COUNT(refused); i++) {
        quern_any_spec spec;
        quern_status status = quern_spec_parse(refused[i].text, &spec);
        if (status != refused[i].status || !strstr(quern_message(), refused[i].named))
            fail_msg("'%s': %s, must be %s and name %s: %s", refused[i].text, quern_status_name(status),
                     quern_status_name(refused[i].status), refused[i].named, quern_message());
    }
}

// Every point of the configuration space is a plan that fits or a refusal with numbers.
static size_t walk_configs(const quern_spec *spec, const qn_arch *arch, const char *text, size_t knob,
                           qn_config *config)
{
    const qn_family *family = &qn_family_router;
    size_t accepted = 0;
    if (knob < family->knob_count) {
        size_t step = family->knobs[knob].choice_count > 8 ? 3 : 1; // long lists: every third
        for (size_t i = 0; i < family->knobs[knob].choice_count; i += step) {
            config->value[knob] = family->knobs[knob].choices[i];
            accepted += walk_configs(spec, arch, text, knob + 1, config);
        }
        return accepted;
    }
    qn_plan plan = {0};
    quern_status status = family->plan(spec, arch, config, &plan);
    if (status == QUERN_OK) {
        for (size_t s = 0; s < plan.stage_count; s++) assert_plan_fits(&plan.stage[s], arch, text, false);
        return 1;
    }
    if (status != QUERN_NO_PLAN || !strpbrk(quern_message(), "0123456789"))
        fail_msg("'%s' on %s: %s, must be NO_PLAN with numbers: %s", text, arch->name, quern_status_name(status),
                 quern_message());
    return 0;
}

static void every_configuration_fits_or_is_refused_with_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = {"router D=64 E=60 K=4 in=bf16 w=bf16 bias=1",
                                        "router D=7168 E=384 K=6 in=bf16 w=f32",
                                        "router D=4096 E=256 K=8 in=f16 w=f16 w_layout=DE batch_invariant=1"};
    size_t arch_count;
    const qn_arch *archs = qn_arch_list(&arch_count);
    for (size_t t = 0; t < QN_COUNT(texts); t++) {
        quern_router_spec spec = parse(texts[t]);
        for (size_t a = 0; a < arch_count; a += 2) {
            qn_config config = {0};
            size_t accepted = walk_configs(&spec.base, &archs[a], texts[t], 0, &config);
            if (accepted == 0) fail_msg("'%s' on %s: no configuration is accepted", texts[t], archs[a].name);
        }
    }
}

// ---- kernels

// Whether a kernel keeps within the SM; says what does not.
static bool has_resources(const compile_job *job)
{
    const qn_kernel_plan *k = &job->plan;
    const qn_image *image = job->image;
    // Registers go by 256 to a warp, warps by 4 to a CTA.
    // How many of the gate's own kernels an SM holds is for gate_compile_test to say.
    int ctas = strncmp(k->entry, "quern_router", 12) ? 1 : k->min_ctas;
    int warps = up(k->threads / 32, 4), registers = up(image->registers * 32, 256) * warps * ctas;
    int shared = image->shared_bytes + k->dynamic_shared;
    if (image->local_bytes == 0 && image->registers > 0 && registers <= job->arch->registers_sm &&
        shared <= job->arch->shared_cta && ctas * (shared + 1024) <= job->arch->shared_sm)
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

static void a_representative_spec_compiles_for_every_target_without_spills(void **state)
{
    (void)state;
    skip_without_nvrtc();
    static const char *const targets[] = {"sm_80",   "sm_86",   "sm_89",   "sm_90a", "sm_100a",
                                          "sm_100f", "sm_103a", "sm_120a", "sm_121a"};
    quern *q = open_in_memory();
    compile_jobs jobs = {0};
    quern_router_spec spec = parse("router D=4096 E=256 K=8 in=bf16 w=bf16 act=sigmoid bias=1 n_group=8 topk_group=4");
    for (size_t i = 0; i < QN_COUNT(targets); i++) {
        const qn_arch *arch;
        if (qn_arch_find(targets[i], &arch) != QUERN_OK) fail_msg("%s", quern_message());
        if (compile_jobs_add_spec(&jobs, q, arch, &spec.base) != QUERN_OK)
            fail_msg("%s: %s", targets[i], quern_message());
    }
    compile_and_check(q, &jobs);
    compile_jobs_fini(&jobs);
    quern_close(q);
}

static const char *const corners[] = {
    "router D=8 E=1 K=1 in=f32 w=f32",
    "router D=7168 E=384 K=6 in=bf16 w=bf16 bias=1",
    "router D=2048 E=1024 K=32 in=f16 w=f16 act=softmax bias=1 index=i64",
    "router D=65536 E=161 K=16 in=bf16 w=bf16 w_layout=DE",
    "router D=5120 E=160 K=6 in=bf16 w=bf16 batch_invariant=1",
    "router D=1000 E=257 K=9 in=f32 w=bf16 batch_invariant=1",
    "router D=2880 E=32 K=4 in=bf16 w=f32 given_ids=1 act=softmax",
    "router D=7168 E=256 K=8 in=f32 w=f32 act=sigmoid bias=1 n_group=8 topk_group=4",
};

static void corner_specs_compile(const char *target)
{
    skip_without_nvrtc();
    quern *q = open_in_memory();
    compile_jobs jobs = {0};
    const qn_arch *arch;
    if (qn_arch_find(target, &arch) != QUERN_OK) fail_msg("%s", quern_message());
    for (size_t i = 0; i < QN_COUNT(corners); i++) {
        quern_router_spec spec = parse(corners[i]);
        if (compile_jobs_add_spec(&jobs, q, arch, &spec.base) != QUERN_OK)
            fail_msg("'%s': %s", corners[i], quern_message());
    }
    compile_and_check(q, &jobs);
    compile_jobs_fini(&jobs);
    quern_close(q);
}

static void corner_specs_compile_for_sm_90a_without_spills(void **state)
{
    (void)state;
    corner_specs_compile("sm_90a");
}

static void corner_specs_compile_for_sm_100a_without_spills(void **state)
{
    (void)state;
    corner_specs_compile("sm_100a");
}

// The whole way in: what quern_warm reports is what it did.
static void warming_twice_compiles_once(void **state)
{
    (void)state;
    skip_without_nvrtc();
    quern *q = open_in_memory();
    quern_router_spec spec = parse("router D=64 E=100 K=5 in=f32 w=f32");
    quern_warm_report first = QUERN_WARM_REPORT_INIT, second = QUERN_WARM_REPORT_INIT;
    quern_status status = quern_warm(q, &spec.base, "sm_90a", &first);
    if (status == QUERN_OK) status = quern_warm(q, &spec.base, "sm_90a", &second);
    if (status != QUERN_OK) fail_msg("%s: %s", quern_status_name(status), quern_message());
    assert_true(first.kernels >= 1 && first.variants >= 1);
    assert_int_equal(first.compiled, first.kernels);
    assert_int_equal(second.kernels, first.kernels);
    assert_int_equal(second.compiled, 0);
    quern_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_of_features_has_a_plan_that_fits_every_architecture),
        cmocka_unit_test(what_the_family_does_not_do_is_refused_with_the_field_named),
        cmocka_unit_test(every_configuration_fits_or_is_refused_with_numbers),
        cmocka_unit_test(a_representative_spec_compiles_for_every_target_without_spills),
        cmocka_unit_test(corner_specs_compile_for_sm_90a_without_spills),
        cmocka_unit_test(corner_specs_compile_for_sm_100a_without_spills),
        cmocka_unit_test(warming_twice_compiles_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
