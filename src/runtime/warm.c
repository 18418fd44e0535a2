// SPDX-License-Identifier: Apache-2.0
// quern_warm: every kernel of a spec for an architecture, found or compiled and stored. Needs no driver and no device.
// Which device will ask is not known: beside the plans of the architecture's usual part, every configuration is made
// that prepare may choose on another one, and the library's own (quern.h, section 8).
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"

static void count(const qn_variants *variants, const qn_batch *batch, quern_warm_report *report)
{
    report->variants += (int)variants->count;
    report->kernels += (int)batch->count;
    for (size_t i = 0; i < batch->count; i++) {
        const qn_work *work = &batch->work[i];
        report->compiled += work->compiled;
        report->cached += !work->compiled;
        report->sealed += !work->compiled && work->entry->image.origin == QUERN_ORIGIN_SEALED;
        report->user += !work->compiled && work->entry->image.origin == QUERN_ORIGIN_USER;
        report->stored += work->stored;
        if (work->compiled) report->compile_ms += (double)work->entry->image.compile_us / 1000.0;
    }
}

static quern_status warm_variants(quern *q, const char *text, const qn_arch *arch, const qn_variants *variants,
                                  quern_warm_report *report)
{
    qn_batch batch;
    QN_TRY(qn_batch_init(q, &batch, variants, arch, text));
    quern_status status = qn_batch_obtain(q, &batch);
    if (status == QUERN_OK) count(variants, &batch, report);
    qn_batch_fini(&batch);
    return status;
}

// Configurations without a place among the buckets, as many at a time as fit.
static quern_status warm_others(quern *q, const qn_family *family, const quern_spec *spec, const char *text,
                                const qn_arch *arch, const qn_config *configs, size_t config_count,
                                qn_variants *variants, quern_warm_report *report)
{
    for (size_t i = 0; i < config_count;) {
        for (variants->count = 0; i < config_count && variants->count < QN_MAX_VARIANTS; i++) {
            variants->item[variants->count].config = configs[i];
            QN_TRY(family->plan(spec, arch, &configs[i], &variants->item[variants->count].plan));
            variants->count++;
        }
        QN_TRY(warm_variants(q, text, arch, variants, report));
    }
    return QUERN_OK;
}

static quern_status warm_tuned(quern *q, const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                               const qn_tuned *tuned, uint32_t buckets, qn_variants *variants,
                               quern_warm_report *report)
{
    const qn_tuned_view view = {.tuned = tuned, .buckets = buckets};
    qn_config known[QN_MAX_VARIANTS], *others;
    size_t other_count, known_count;
    QN_TRY(qn_variants_plan_view(&view, family, spec, arch, variants));
    known_count = variants->count;
    for (size_t i = 0; i < known_count; i++) known[i] = variants->item[i].config;
    QN_TRY(warm_variants(q, tuned->spec, arch, variants, report));
    QN_TRY(qn_tuned_others(&view, family, spec, arch, known, known_count, &others, &other_count));
    quern_status status = warm_others(q, family, spec, tuned->spec, arch, others, other_count, variants, report);
    free(others);
    return status;
}

static quern_status warm(quern *q, const qn_family *family, const quern_any_spec *spec, const qn_arch *arch,
                         uint32_t buckets, qn_variants *variants, quern_warm_report *report)
{
    char text[512];
    qn_tuned tuned;
    QN_TRY(quern_spec_format(&spec->base, text, sizeof text));
    qn_nvtx_push(q->nvtx, "quern:warm ", text);
    qn_tuned_read(q, text, &tuned);
    quern_status status = warm_tuned(q, family, &spec->base, arch, &tuned, buckets, variants, report);
    qn_tuned_fini(&tuned);
    qn_nvtx_pop(q->nvtx);
    return status;
}

static quern_status warm_range(quern *q, const quern_spec *spec, const qn_range *range, const char *arch_name,
                               quern_warm_report *report)
{
    uint32_t buckets = 0;
    const qn_family *family;
    const qn_arch *arch;
    quern_any_spec full;
    quern_warm_report result = QUERN_WARM_REPORT_INIT;
    if (!q || !spec || !arch_name)
        return qn_fail(QUERN_MISSING_ARGUMENT, "quern_warm: %s is NULL", !q ? "q" : !spec ? "spec" : "arch");
    if (report) QN_TRY(qn_check_sized("report", report));
    QN_TRY(qn_spec_complete(spec, &family, &full));
    QN_TRY(qn_arch_find(arch_name, &arch));
    if (range) QN_TRY(qn_range_buckets(family, &full.base, range, &buckets));
    qn_message_mark mark;
    qn_message_save(&mark);
    qn_variants *variants = malloc(sizeof *variants);
    if (!variants) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: planning a spec");
    quern_status status = warm(q, family, &full, arch, buckets, variants, &result);
    free(variants);
    if (status == QUERN_OK && report) status = qn_copy_sized("report", report, &result, sizeof result);
    return qn_message_end(&mark, status);
}

quern_status quern_warm(quern *q, const quern_spec *spec, const char *arch, quern_warm_report *report)
{
    return warm_range(q, spec, NULL, arch, report);
}

quern_status quern_warm_sizes(quern *q, const quern_spec *spec, const void *from, const void *to, const char *arch,
                              quern_warm_report *report)
{
    const qn_range range = {from, to};
    if (!from || !to) return qn_fail(QUERN_MISSING_ARGUMENT, "quern_warm_sizes: %s is NULL", !from ? "from" : "to");
    return warm_range(q, spec, &range, arch, report);
}
