// SPDX-License-Identifier: Apache-2.0
// attention for every architecture, without a device: every head_dim with every feature is planned within the
// architecture's limits or refused with numbers; a spec with most features compiles for every target, corners for three;
// no kernel spills. Prints compile times, asserts none.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/attention.h"
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

static quern_attention_spec parse(const char *text)
{
    quern_any_spec spec, full;
    const qn_family *family;
    quern_attention_spec result;
    if (quern_spec_parse(text, &spec) != QUERN_OK || qn_spec_complete(&spec.base, &family, &full) != QUERN_OK)
        fail_msg("'%s': %s", text, quern_message());
    memcpy(&result, &full, sizeof result);
    return result;
}

static int up(int value, int step)
{
    return (value + step - 1) / step * step;
}

// ---- plans

// What any plan that is accepted keeps.
static void assert_plan_fits(const qn_kernel_plan *k, const qn_arch *arch, const char *text)
{
    bool fits = k->threads >= 32 && k->threads <= 1024 && k->threads % 32 == 0 && k->min_ctas >= 1 &&
                k->min_ctas * k->threads <= arch->max_threads_sm && k->cluster >= 1 &&
                k->cluster <= arch->max_cluster && k->dynamic_shared >= 0 && k->dynamic_shared <= arch->shared_cta &&
                k->min_ctas * (k->dynamic_shared + 1024) <= arch->shared_sm && // 1 KiB a CTA is the driver's
                k->params_bytes > 0 && k->params_bytes <= QN_MAX_PARAMS && k->constant_count <= QN_MAX_CONSTANTS &&
                strlen(k->entry) < QN_MAX_ENTRY &&
                k->entry[strspn(k->entry, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == 0;
    if (!fits)
        fail_msg("'%s' on %s: %s does not fit: threads %d, min_ctas %d, cluster %d, dynamic_shared %d, params %zu",
                 text, arch->name, k->entry, k->threads, k->min_ctas, k->cluster, k->dynamic_shared, k->params_bytes);
}

static void assert_planned(const qn_arch *arch, const quern_attention_spec *spec)
{
    char text[512];
    qn_plan plan;
    assert_int_equal(quern_spec_format(&spec->base, text, sizeof text), QUERN_OK);
    for (size_t bucket = 0; bucket < QN_ATTENTION_BUCKETS; bucket++) {
        qn_config config;
        qn_attention_choose(&spec->base, arch, bucket, &config);
        if (qn_attention_plan(&spec->base, arch, &config, &plan) != QUERN_OK)
            fail_msg("'%s' on %s: %s", text, arch->name, quern_message());
        for (size_t s = 0; s < plan.stage_count; s++) assert_plan_fits(&plan.stage[s], arch, text);
        qn_attention_budget budget = qn_attention_budget_of(spec, arch, &config);
        assert_true(budget.tensor_columns <= arch->tensor_memory_columns);
    }
}

static void every_head_dim_and_feature_has_a_plan_that_fits_every_architecture(void **state)
{
    (void)state;
    size_t arch_count, planned = 0;
    const qn_arch *archs = qn_arch_list(&arch_count);
    for (int64_t d = 8; d <= 576; d += 8) {
        for (int64_t dv = 8; dv <= 512; dv += 8) {
            quern_attention_spec spec = parse("attention");
            unsigned bits = (unsigned)(d / 8 * 31 + dv / 8); // features in turn
            spec.d = d, spec.dv = dv, spec.kv_alias = dv <= d && bits % 3 == 0;
            spec.in = bits % 2 ? QUERN_F16 : QUERN_BF16, spec.layout = (quern_layout)(bits % 3);
            spec.page = spec.layout == QUERN_LAYOUT_PAGED ? 16 << bits % 5 : 0;
            spec.causal = bits / 2 % 2, spec.window_left = bits / 4 % 2 ? 100 : -1, spec.sink = bits / 8 % 2;
            spec.softcap = bits / 16 % 2 ? 20 : 0, spec.lse = bits / 32 % 2, spec.batch_invariant = bits % 7 == 0;
            spec.cu_q = spec.layout == QUERN_LAYOUT_VARLEN || (spec.page && bits / 3 % 2);
            spec.length_k = spec.layout == QUERN_LAYOUT_PAGED;
            if (quern_spec_check(&spec.base) != QUERN_OK) fail_msg("d %d dv %d: %s", (int)d, (int)dv, quern_message());
            for (size_t a = 0; a < arch_count; a++, planned++) assert_planned(&archs[a], &spec);
        }
    }
    print_message("planned %zu combinations of spec and architecture\n", planned);
}

static void what_the_family_does_not_do_is_refused_with_the_field_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *named;
        quern_status status;
    } refused[] = {
        {"attention d=0", "d", QUERN_BAD_VALUE},
        {"attention d=12", "d", QUERN_BAD_VALUE},
        {"attention d=584", "d", QUERN_BAD_VALUE},
        {"attention d=576", "dv", QUERN_BAD_VALUE}, // dv = d is more than 512
        {"attention d=64 dv=520", "dv", QUERN_BAD_VALUE},
        {"attention d=64 dv=20", "dv", QUERN_BAD_VALUE},
        {"attention in=f32", "in", QUERN_BAD_VALUE},
        {"attention layout=ragged", "layout", QUERN_BAD_VALUE},
        {"attention layout=paged", "page", QUERN_CONFLICT},
        {"attention page=64", "page", QUERN_CONFLICT},
        {"attention layout=paged page=24", "page", QUERN_BAD_VALUE},
        {"attention layout=paged page=272", "page", QUERN_BAD_VALUE},
        {"attention cu_q=1", "cu_q", QUERN_CONFLICT},
        {"attention layout=varlen length_k=1", "length_k", QUERN_CONFLICT},
        {"attention causal=1 window_right=3", "window_right", QUERN_CONFLICT},
        {"attention window_left=-2", "window_left", QUERN_BAD_VALUE},
        {"attention kv_split=100", "kv_split", QUERN_BAD_VALUE},
        {"attention d=64 dv=128 kv_alias=1", "dv", QUERN_CONFLICT},
        {"attention softcap=-1", "softcap", QUERN_BAD_VALUE},
        {"attention scale=1e-40", "scale", QUERN_BAD_VALUE},
        {"attention scale=nan", "scale", QUERN_BAD_VALUE},
        {"attention heads=3", "heads", QUERN_UNKNOWN_FIELD},
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
    const qn_family *family = &qn_family_attention;
    size_t accepted = 0;
    if (knob < family->knob_count) {
        for (size_t i = 0; i < family->knobs[knob].choice_count; i++) {
            config->value[knob] = family->knobs[knob].choices[i];
            accepted += walk_configs(spec, arch, text, knob + 1, config);
        }
        return accepted;
    }
    qn_plan plan;
    quern_status status = family->plan(spec, arch, config, &plan);
    if (status == QUERN_OK) {
        for (size_t s = 0; s < plan.stage_count; s++) assert_plan_fits(&plan.stage[s], arch, text);
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
    static const char *const texts[] = {"attention d=8", "attention d=128 causal=1",
                                        "attention d=576 dv=512 kv_alias=1"};
    size_t arch_count;
    const qn_arch *archs = qn_arch_list(&arch_count);
    for (size_t t = 0; t < QN_COUNT(texts); t++) {
        quern_attention_spec spec = parse(texts[t]);
        for (size_t a = 0; a < arch_count; a++) {
            qn_config config = {0};
            if (walk_configs(&spec.base, &archs[a], texts[t], 0, &config) == 0)
                fail_msg("'%s' on %s: no configuration is accepted", texts[t], archs[a].name);
        }
    }
}

// A tile of 128 rows of head_dim 512 has no room beside its own 512 columns: it is folded, and the numbers are said.
static void a_plan_says_what_tensor_memory_it_would_take(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } budgets[] = {{"attention d=64", "384 of 512 columns for 256 rows"},
                   {"attention d=128", "512 of 512 columns for 256 rows"},
                   {"attention d=256", "384 of 512 columns for 128 rows"},
                   {"attention d=512", "320 of 512 columns for 64 rows (128 rows would take 640)"}};
    const qn_arch *arch;
    assert_int_equal(qn_arch_find("sm_100a", &arch), QUERN_OK);
    for (size_t i = 0; i < QN_COUNT(budgets); i++) {
        quern_attention_spec spec = parse(budgets[i].text);
        qn_config config;
        qn_text text = QN_TEXT_INIT;
        qn_attention_choose(&spec.base, arch, QN_ATTENTION_MANY, &config);
        qn_attention_budget_text(&spec.base, arch, &config, &text);
        if (!strstr(qn_text_string(&text), budgets[i].said))
            fail_msg("'%s': '%s' does not say '%s'", budgets[i].text, qn_text_string(&text), budgets[i].said);
        qn_text_fini(&text);
    }
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

static void compile_specs(const char *const *texts, size_t count, const char *const *targets, size_t target_count)
{
    skip_without_nvrtc();
    quern *q = open_in_memory();
    compile_jobs jobs = {0};
    for (size_t t = 0; t < target_count; t++) {
        const qn_arch *arch;
        if (qn_arch_find(targets[t], &arch) != QUERN_OK) fail_msg("%s", quern_message());
        for (size_t i = 0; i < count; i++) {
            quern_attention_spec spec = parse(texts[i]);
            if (compile_jobs_add_spec(&jobs, q, arch, &spec.base) != QUERN_OK)
                fail_msg("'%s' for %s: %s", texts[i], targets[t], quern_message());
        }
    }
    compile_and_check(q, &jobs);
    compile_jobs_fini(&jobs);
    quern_close(q);
}

static void a_spec_with_most_features_compiles_for_every_target_without_spills(void **state)
{
    static const char *const targets[] = {"sm_80",   "sm_86",   "sm_89",   "sm_90a", "sm_100a",
                                          "sm_100f", "sm_103a", "sm_120a", "sm_121a"};
    static const char *const text[] = {
        "attention d=128 causal=1 window_left=4095 softcap=30 sink=1 lse=1 layout=paged page=64 cu_q=1"};
    (void)state;
    compile_specs(text, 1, targets, QN_COUNT(targets));
}

// With most registers: the widest tiles, the features that keep numbers through the loop.
static void corner_specs_compile_without_spills(void **state)
{
    static const char *const targets[] = {"sm_80", "sm_86", "sm_90a"};
    static const char *const texts[] = {
        "attention d=8",
        "attention d=64 in=f16 layout=varlen causal=1 lse=1",
        "attention d=256 causal=1 window_left=100 sink=1 lse=1 layout=paged page=16 cu_q=1",
        "attention d=504 causal=1 window_left=100 sink=1 lse=1 layout=paged page=16 cu_q=1",
        "attention d=512 softcap=20 scale=-1 length_k=1",
        "attention d=576 dv=512 kv_alias=1 lse=1 layout=paged page=64",
        "attention d=192 dv=128 window_left=7 window_right=9",
        "attention d=264 dv=8 batch_invariant=1",
    };
    (void)state;
    compile_specs(texts, QN_COUNT(texts), targets, QN_COUNT(targets));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_dim_and_feature_has_a_plan_that_fits_every_architecture),
        cmocka_unit_test(what_the_family_does_not_do_is_refused_with_the_field_named),
        cmocka_unit_test(every_configuration_fits_or_is_refused_with_numbers),
        cmocka_unit_test(a_plan_says_what_tensor_memory_it_would_take),
        cmocka_unit_test(a_spec_with_most_features_compiles_for_every_target_without_spills),
        cmocka_unit_test(corner_specs_compile_without_spills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
