// SPDX-License-Identifier: Apache-2.0
// What the families' compile tests share (compile_check.h).
#include "support/compile_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/residency.h"

const char *const compile_targets[COMPILE_TARGETS] = {"sm_80",   "sm_86",   "sm_89",   "sm_90a", "sm_100a",
                                                      "sm_100f", "sm_103a", "sm_120a", "sm_121a"};

quern *compile_open(void)
{
    quern_options options = QUERN_OPTIONS_INIT;
    quern *q = NULL;
    options.mode = QUERN_MODE_OFF;
    options.cache_file = "";
    options.compile_timeout_ms = -1;
    if (quern_open(&options, &q) != QUERN_OK) fail_msg("%s", quern_message());
    return q;
}

const qn_arch *compile_arch(const char *name)
{
    const qn_arch *arch;
    if (qn_arch_find(name, &arch) != QUERN_OK) fail_msg("%s", quern_message());
    return arch;
}

void compile_parse(const char *text, quern_any_spec *spec)
{
    const qn_family *family;
    quern_any_spec said;
    if (quern_spec_parse(text, &said) != QUERN_OK || qn_spec_complete(&said.base, &family, spec) != QUERN_OK)
        fail_msg("'%s': %s", text, quern_message());
}

void compile_skip_without_nvrtc(void)
{
    const qn_nvrtc *nvrtc;
    const char *file = getenv("QUERN_NVRTC");
    if (qn_nvrtc_load(file && *file ? file : NULL, false, &nvrtc) == QUERN_OK) return;
    print_message("skipped: no NVRTC: %s\n", quern_message());
    skip();
}

// ---- specs

void compile_check_refusals(const compile_refusal *refused, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        quern_any_spec spec;
        quern_status status = quern_spec_parse(refused[i].text, &spec);
        if (status != refused[i].status || !strstr(quern_message(), refused[i].named))
            fail_msg("'%s': %s, must be %s and name %s: %s", refused[i].text, quern_status_name(status),
                     quern_status_name(refused[i].status), refused[i].named, quern_message());
    }
}

// ---- plans

static bool fits(const qn_kernel_plan *k, const qn_arch *arch, bool chosen)
{
    return k->threads >= 32 && k->threads <= 1024 && k->threads % 32 == 0 && k->min_ctas >= 1 &&
           k->min_ctas * k->threads <= arch->max_threads_sm && k->min_ctas <= arch->max_ctas_sm && k->cluster >= 1 &&
           k->cluster <= arch->max_cluster && k->dynamic_shared >= 0 && k->dynamic_shared <= arch->shared_cta &&
           (!chosen || k->min_ctas * (k->dynamic_shared + 1024) <= arch->shared_sm) && // 1 KiB a CTA is the driver's
           k->params_bytes > 0 && k->params_bytes <= QN_MAX_PARAMS && k->constant_count <= QN_MAX_CONSTANTS &&
           strlen(k->entry) < QN_MAX_ENTRY - 1 &&
           k->entry[strspn(k->entry, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == 0;
}

void compile_check_plan(const qn_plan *plan, const qn_arch *arch, const char *text, bool chosen)
{
    assert_in_range(plan->stage_count, 1, QN_MAX_STAGES);
    for (size_t s = 0; s < plan->stage_count; s++) {
        const qn_kernel_plan *k = &plan->stage[s];
        if (!fits(k, arch, chosen))
            fail_msg("'%s' on %s: %s does not fit: threads %d, min_ctas %d, cluster %d, dynamic_shared %d, params %zu, "
                     "constants %zu",
                     text, arch->name, k->entry, k->threads, k->min_ctas, k->cluster, k->dynamic_shared,
                     k->params_bytes, k->constant_count);
    }
}

static void check_variants(const qn_family *family, const qn_variants *variants, const qn_arch *arch, const char *text)
{
    assert_in_range(variants->count, 1, QN_MAX_VARIANTS);
    for (size_t b = 0; b < family->bucket_count; b++) {
        const qn_variant *v = &variants->item[variants->of_bucket[b]];
        assert_in_range(variants->of_bucket[b], 0, variants->count - 1);
        assert_in_range(b, v->first_bucket, v->last_bucket);
    }
    for (size_t v = 0; v < variants->count; v++) compile_check_plan(&variants->item[v].plan, arch, text, true);
}

void compile_check_spec(quern *q, const quern_spec *spec, size_t *planned)
{
    static qn_variants variants; // large
    const qn_family *family;
    quern_any_spec full;
    char text[512];
    size_t arch_count;
    const qn_arch *archs = qn_arch_list(&arch_count);
    if (qn_spec_complete(spec, &family, &full) != QUERN_OK) fail_msg("%s", quern_message());
    assert_int_equal(quern_spec_format(spec, text, sizeof text), QUERN_OK);
    for (size_t a = 0; a < arch_count; a++, (*planned)++) {
        if (qn_variants_plan(q, family, &full.base, &archs[a], &variants) != QUERN_OK)
            fail_msg("'%s' on %s: %s", text, archs[a].name, quern_message());
        check_variants(family, &variants, &archs[a], text);
    }
}

typedef struct walker {
    const qn_family *family;
    const quern_spec *spec;
    const qn_arch *arch;
    const char *text;
    const compile_walk *walk;
} walker;

// The choice of an earlier knob that has this name. NULL: there is none.
static const qn_name *choice_of(const qn_family *family, size_t before, const char *word, size_t length, size_t *knob)
{
    for (*knob = 0; *knob < before; (*knob)++)
        for (const qn_name *name = family->knobs[*knob].names; name && name->name; name++)
            if (!strncmp(name->name, word, length) && !name->name[length]) return name;
    return NULL;
}

// A knob's doc that begins "stream, split: ", choices of earlier knobs, says that others do not use it.
static bool is_used(const walker *w, size_t knob, const qn_config *config)
{
    const char *doc = w->family->knobs[knob].doc, *colon = strchr(doc, ':');
    bool used = false;
    for (const char *word = doc; colon && word < colon; word += strspn(word, ", ")) {
        size_t length = strcspn(word, ",:"), earlier;
        const qn_name *choice = choice_of(w->family, knob, word, length, &earlier);
        if (!choice) return true; // the colon is of another kind
        used |= config->value[earlier] == choice->value;
        word += length;
    }
    return used || !colon;
}

// An unused knob changes nothing: its last choice gives what its first does.
static void check_unused(const walker *w, const qn_config *config, quern_status status, const qn_plan *plan)
{
    qn_config other = *config;
    qn_plan made;
    for (size_t k = 0; k < w->family->knob_count; k++) {
        const qn_knob *knob = &w->family->knobs[k];
        if (!is_used(w, k, config)) other.value[k] = knob->choices[knob->choice_count - 1];
    }
    if (!memcmp(&other, config, sizeof other)) return;
    if (w->family->plan(w->spec, w->arch, &other, &made) != status ||
        (status == QUERN_OK && memcmp(plan, &made, sizeof made) != 0))
        fail_msg("'%s' on %s: a knob changes a plan that does not use it, as its doc has it", w->text, w->arch->name);
}

static size_t walk_configs(const walker *w, size_t knob, qn_config *config)
{
    size_t accepted = 0;
    if (knob < w->family->knob_count) {
        const qn_knob *k = &w->family->knobs[knob];
        size_t step = w->walk->step && k->choice_count > 8 ? w->walk->step : 1;
        size_t count = is_used(w, knob, config) ? k->choice_count : 1;
        for (size_t i = 0; i < count; i += step) {
            config->value[knob] = k->choices[i];
            accepted += walk_configs(w, knob + 1, config);
        }
        return accepted;
    }
    qn_plan plan;
    quern_status status = w->family->plan(w->spec, w->arch, config, &plan);
    if (status == QUERN_OK) {
        compile_check_plan(&plan, w->arch, w->text, w->walk->chosen);
    } else if (status != QUERN_NO_PLAN || !strpbrk(quern_message(), "0123456789")) {
        fail_msg("'%s' on %s: %s, must be NO_PLAN with numbers: %s", w->text, w->arch->name, quern_status_name(status),
                 quern_message());
    }
    check_unused(w, config, status, &plan);
    return status == QUERN_OK;
}

void compile_check_configs(const char *const *texts, size_t count, const compile_walk *walk)
{
    size_t arch_count;
    const qn_arch *archs = qn_arch_list(&arch_count);
    for (size_t t = 0; t < count; t++) {
        quern_any_spec spec;
        walker w = {.spec = &spec.base, .text = texts[t], .walk = walk};
        compile_parse(texts[t], &spec);
        assert_int_equal(qn_family_find(spec.base.family, &w.family), QUERN_OK);
        for (size_t a = 0; a < arch_count; a += walk->arch_step ? walk->arch_step : 1) {
            qn_config config = {0};
            w.arch = &archs[a];
            if (walk_configs(&w, 0, &config) == 0)
                fail_msg("'%s' on %s: no configuration is accepted", texts[t], archs[a].name);
        }
    }
}

// ---- kernels

// Whether a kernel is of its spec's own family. How many of another's an SM holds is for that family's test to say.
static bool is_own(const compile_job *job)
{
    size_t length = strcspn(job->text, " ");
    return !strncmp(job->plan.template_path, job->text, length) && job->plan.template_path[length] == '/';
}

// Whether a kernel keeps within the SM; says what does not.
static bool has_resources(const compile_job *job)
{
    const qn_kernel_plan *k = &job->plan;
    const qn_image *image = job->image;
    int ctas = is_own(job) ? k->min_ctas : 1, shared = image->shared_bytes + k->dynamic_shared;
    if (image->local_bytes == 0 && image->registers > 0 &&
        qn_ctas_by_registers(job->arch, k->threads, image->registers) >= ctas && shared <= job->arch->shared_cta &&
        ctas * (shared + 1024) <= job->arch->shared_sm)
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

void compile_check_kernels(quern *q, compile_jobs *jobs, size_t least)
{
    const qn_arch *lacking = NULL;
    size_t failed = 0, compiled = 0;
    if (jobs->count < least) fail_msg("%zu kernels, at least %zu are expected", jobs->count, least);
    compile_jobs_run(jobs, q);
    report_times(jobs);
    for (size_t i = 0; i < jobs->count; i++) {
        const compile_job *job = &jobs->item[i];
        compiled += job->status == QUERN_OK;
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
    compile_jobs_fini(jobs);
    if (compiled) return;
    print_message("skipped: this NVRTC has none of the targets\n");
    skip();
}

void compile_check_specs(const char *const *texts, size_t count, const char *const *targets, size_t target_count)
{
    compile_skip_without_nvrtc();
    quern *q = compile_open();
    compile_jobs jobs = {0};
    for (size_t i = 0; i < count; i++) {
        quern_any_spec spec;
        compile_parse(texts[i], &spec);
        for (size_t t = 0; t < target_count; t++)
            if (compile_jobs_add_spec(&jobs, q, compile_arch(targets[t]), &spec.base) != QUERN_OK)
                fail_msg("'%s' for %s: %s", texts[i], targets[t], quern_message());
    }
    compile_check_kernels(q, &jobs, target_count); // specs may share kernels, targets none
    quern_close(q);
}

void compile_check_warm(const char *text, const char *arch)
{
    compile_skip_without_nvrtc();
    quern *q = compile_open();
    quern_any_spec spec;
    quern_warm_report first = QUERN_WARM_REPORT_INIT, second = QUERN_WARM_REPORT_INIT;
    compile_parse(text, &spec);
    quern_status status = quern_warm(q, &spec.base, arch, &first);
    if (status == QUERN_OK) status = quern_warm(q, &spec.base, arch, &second);
    if (status != QUERN_OK) fail_msg("%s: %s", quern_status_name(status), quern_message());
    assert_true(first.kernels >= 1 && first.variants >= 1);
    assert_int_equal(first.compiled, first.kernels);
    assert_int_equal(second.kernels, first.kernels);
    assert_int_equal(second.compiled, 0);
    quern_close(q);
}
