// SPDX-License-Identifier: Apache-2.0
// A list of kernels, compiled by as many threads as there are processors; see compile_pool.h.
#include "support/compile_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool same_kernel(const qn_kernel_plan *a, const qn_kernel_plan *b)
{
    if (strcmp(a->entry, b->entry) || strcmp(a->template_path, b->template_path)) return false;
    if (a->constant_count != b->constant_count || a->threads != b->threads || a->min_ctas != b->min_ctas) return false;
    if (a->cluster != b->cluster || a->dynamic_shared != b->dynamic_shared) return false;
    for (size_t i = 0; i < a->constant_count; i++) {
        const qn_constant *x = &a->constants[i], *y = &b->constants[i];
        if (strcmp(x->name, y->name) || x->value != y->value) return false;
    }
    return true;
}

void compile_jobs_add(compile_jobs *jobs, const qn_kernel_plan *plan, const qn_arch *arch, const char *text)
{
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->item[i].arch == arch && same_kernel(&jobs->item[i].plan, plan)) return;
    if (jobs->count == jobs->capacity) {
        jobs->capacity = jobs->capacity ? 2 * jobs->capacity : 64;
        jobs->item = realloc(jobs->item, jobs->capacity * sizeof *jobs->item);
        if (!jobs->item) abort();
    }
    compile_job *job = &jobs->item[jobs->count++];
    *job = (compile_job){.plan = *plan, .arch = arch, .status = QUERN_INTERNAL};
    snprintf(job->text, sizeof job->text, "%s", text);
}

quern_status compile_jobs_add_spec(compile_jobs *jobs, quern *q, const qn_arch *arch, const quern_spec *spec)
{
    const qn_family *family;
    quern_any_spec full;
    char text[512];
    QN_TRY(qn_spec_complete(spec, &family, &full));
    QN_TRY(quern_spec_format(&full.base, text, sizeof text));
    qn_variants *variants = malloc(sizeof *variants);
    if (!variants) abort();
    quern_status status = qn_variants_plan(q, family, &full.base, arch, variants);
    for (size_t v = 0; status == QUERN_OK && v < variants->count; v++)
        for (size_t s = 0; s < variants->item[v].plan.stage_count; s++)
            compile_jobs_add(jobs, &variants->item[v].plan.stage[s], arch, text);
    free(variants);
    return status;
}

typedef struct pool {
    compile_jobs *jobs;
    quern *q;
    atomic_size_t next;
} pool;

static void *work(void *user)
{
    pool *p = user;
    size_t i;
    while ((i = atomic_fetch_add(&p->next, 1)) < p->jobs->count) {
        compile_job *job = &p->jobs->item[i];
        job->status = qn_kernel_obtain(p->q, &job->plan, job->arch, job->text, &job->image);
        if (job->status != QUERN_OK) snprintf(job->message, sizeof job->message, "%s", quern_message());
    }
    return NULL;
}

void compile_jobs_run(compile_jobs *jobs, quern *q)
{
    enum { MOST = 64 };
    pthread_t thread[MOST];
    pool p = {.jobs = jobs, .q = q};
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int count = processors < 1 ? 1 : processors > MOST ? MOST : (int)processors;
    for (int i = 0; i < count; i++)
        if (pthread_create(&thread[i], NULL, work, &p)) abort();
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
}

void compile_jobs_fini(compile_jobs *jobs)
{
    free(jobs->item);
    *jobs = (compile_jobs){0};
}
