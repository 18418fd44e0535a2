// SPDX-License-Identifier: Apache-2.0
// quern_warm: every kernel of a spec for an architecture, found or compiled and stored. Needs no driver and no device.
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"

static void count(const qn_variants *variants, const qn_batch *batch, quern_warm_report *report)
{
    report->variants = (int)variants->count;
    report->kernels = (int)batch->count;
    for (size_t i = 0; i < batch->count; i++) {
        const qn_work *work = &batch->work[i];
        report->compiled += work->compiled;
        report->cached += !work->compiled;
        report->stored += work->stored;
        if (work->compiled) report->compile_ms += (double)work->entry->image.compile_us / 1000.0;
    }
}

static quern_status warm(quern *q, const qn_family *family, const quern_any_spec *spec, const qn_arch *arch,
                         qn_variants *variants, quern_warm_report *report)
{
    char text[512];
    qn_batch batch;
    QN_TRY(quern_spec_format(&spec->base, text, sizeof text));
    QN_TRY(qn_variants_plan(q, family, &spec->base, arch, variants));
    QN_TRY(qn_batch_init(q, &batch, variants, arch, text));
    quern_status status = qn_batch_obtain(q, &batch);
    if (status == QUERN_OK) count(variants, &batch, report);
    qn_batch_fini(&batch);
    return status;
}

quern_status quern_warm(quern *q, const quern_spec *spec, const char *arch_name, quern_warm_report *report)
{
    const qn_family *family;
    const qn_arch *arch;
    quern_any_spec full;
    quern_warm_report result = QUERN_WARM_REPORT_INIT;
    if (!q || !spec || !arch_name)
        return qn_fail(QUERN_MISSING_ARGUMENT, "quern_warm: %s is NULL", !q ? "q" : !spec ? "spec" : "arch");
    QN_TRY(qn_spec_complete(spec, &family, &full));
    QN_TRY(qn_arch_find(arch_name, &arch));
    qn_variants *variants = malloc(sizeof *variants);
    if (!variants) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: planning a spec");
    quern_status status = warm(q, family, &full, arch, variants, &result);
    free(variants);
    if (status == QUERN_OK && report) qn_copy_sized(report, &result, sizeof result);
    return status;
}
