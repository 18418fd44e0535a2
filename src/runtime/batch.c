// SPDX-License-Identifier: Apache-2.0
// All kernels of a plan, each distinct one once, compiled side by side; and the choice of the target architecture for a
// device. Called by prepare.c, warm.c and custom.c.
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/processors.h"
#include "cuda/nvrtc_guard.h"
#include "runtime/private.h"

enum { WORKER_STACK_BYTES = 16 << 20 }; // the compiler runs on it

// ---- the distinct kernels

static bool is_same(const qn_work *a, const qn_work *b)
{
    return a->key.length == b->key.length && !memcmp(a->key.bytes, b->key.bytes, a->key.length);
}

static quern_status add(quern *q, qn_batch *batch, const qn_kernel_plan *plan, const qn_arch *arch,
                        const char *spec_text, unsigned char *index)
{
    qn_work *fresh = &batch->work[batch->count];
    batch->count++;
    QN_TRY(qn_work_init(q, fresh, plan, arch, spec_text));
    size_t i = 0;
    while (!is_same(&batch->work[i], fresh)) i++;
    *index = (unsigned char)i;
    if (&batch->work[i] == fresh) return QUERN_OK;
    qn_work_fini(fresh);
    batch->count--;
    return QUERN_OK;
}

quern_status qn_batch_init(quern *q, qn_batch *batch, const qn_variants *variants, const qn_arch *arch,
                           const char *spec_text)
{
    memset(batch, 0, sizeof *batch);
    batch->work = calloc(QN_MAX_VARIANTS * QN_MAX_STAGES, sizeof *batch->work);
    if (!batch->work) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: the list of kernels of \"%s\"", spec_text);
    for (size_t v = 0; v < variants->count; v++)
        for (size_t s = 0; s < variants->item[v].plan.stage_count; s++) {
            quern_status status = add(q, batch, &variants->item[v].plan.stage[s], arch, spec_text, &batch->of[v][s]);
            if (status == QUERN_OK) continue;
            qn_batch_fini(batch);
            return status;
        }
    return QUERN_OK;
}

void qn_batch_fini(qn_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) qn_work_fini(&batch->work[i]);
    free(batch->work);
    batch->work = NULL;
    batch->count = 0;
}

quern_status qn_batch_find(quern *q, qn_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (!batch->work[i].entry) QN_TRY(qn_work_find(q, &batch->work[i]));
    return QUERN_OK;
}

// ---- side by side

typedef struct crew {
    quern *q;
    qn_batch *batch;
    _Atomic size_t next;
    atomic_bool failed; // no further work is begun
} crew;

static void *work_on(void *user)
{
    crew *c = user;
    while (!atomic_load(&c->failed)) {
        size_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->batch->count) break;
        qn_work *work = &c->batch->work[i];
        if (work->entry) continue;
        work->status = qn_work_obtain(c->q, work);
        if (work->status == QUERN_OK) continue;
        work->message = qn_strdup(quern_message());
        atomic_store(&c->failed, true);
    }
    return NULL;
}

static size_t thread_count(const quern *q, const qn_batch *batch)
{
    size_t missing = 0, allowed = (size_t)q->compile_threads;
    for (size_t i = 0; i < batch->count; i++) missing += !batch->work[i].entry;
    if (!allowed) allowed = qn_processors();
    return missing < allowed ? missing : allowed;
}

// Signals of the host are not for these threads.
static size_t start(crew *c, pthread_t *threads, size_t count)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    size_t started = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count && pthread_create(&threads[started], &attributes, work_on, c) == 0) started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started; // fewer threads than wished for only take longer
}

quern_status qn_batch_obtain(quern *q, qn_batch *batch)
{
    pthread_t threads[QN_MAX_VARIANTS * QN_MAX_STAGES];
    crew c = {.q = q, .batch = batch};
    size_t wanted = thread_count(q, batch);
    size_t started = wanted > 1 ? start(&c, threads, wanted - 1) : 0;
    work_on(&c);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < batch->count; i++) {
        const qn_work *work = &batch->work[i];
        if (work->status != QUERN_OK)
            return qn_fail(work->status, "%s", work->message ? work->message : quern_status_text(work->status));
    }
    return QUERN_OK;
}

// ---- which target

// The first failure is the one to tell: that of the best target.
typedef struct refusal {
    quern_status status;
    char *message;
} refusal;

static void note(refusal *first, quern_status status)
{
    if (first->status != QUERN_OK) return;
    first->status = status;
    first->message = qn_strdup(quern_message());
}

static quern_status raise_refusal(const refusal *first)
{
    return qn_fail(first->status, "%s", first->message ? first->message : quern_status_text(first->status));
}

// Targets in order: the first whose kernels are all in memory or in a store. Keeps the batches of the others.
static quern_status find_first(quern *q, const qn_device *device, qn_make_batch_fn make, void *user, qn_batch *batches,
                               refusal *refused, size_t *found)
{
    for (size_t i = 0; i < device->target_count; i++) {
        quern_status status = make(user, device->targets[i], &batches[i]);
        if (status == QUERN_NO_PLAN) {
            note(refused, status);
            continue;
        }
        if (status != QUERN_OK) return status;
        status = qn_batch_find(q, &batches[i]);
        *found = i;
        if (status != QUERN_NOT_FOUND) return status;
    }
    return QUERN_NOT_FOUND;
}

static quern_status strict_miss(quern *q, const qn_batch *batches, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t w = 0; w < batches[i].count; w++)
            if (!batches[i].work[w].entry) {
                const qn_process *process = qn_process_of(q);
                if (process) qn_work_missed(q, process, &batches[i].work[w]);
                return qn_work_would_compile(q, &batches[i].work[w]);
            }
    return qn_fail(QUERN_INTERNAL, "a miss without a kernel that is missing");
}

static quern_status compile_first(quern *q, const qn_device *device, qn_batch *batches, const refusal *refused,
                                  size_t *found)
{
    const qn_nvrtc *nvrtc = NULL; // after some forks there is none to ask (nvrtc_guard.h): a store may yet be filled
    bool any_plan = false;
    for (size_t i = 0; i < device->target_count; i++) any_plan |= batches[i].count > 0;
    if (!any_plan) return raise_refusal(refused);
    if (q->mode == QUERN_MODE_STRICT) return strict_miss(q, batches, device->target_count);
    if (!qn_nvrtc_is_torn()) QN_TRY(qn_nvrtc_load(q->nvrtc_file, q->ignore_environment, &nvrtc));
    for (size_t i = 0; i < device->target_count; i++) {
        if (!batches[i].count || (nvrtc && !qn_nvrtc_has_arch(nvrtc, device->targets[i]))) continue;
        *found = i;
        return qn_batch_obtain(q, &batches[i]);
    }
    return qn_lacks_arch(nvrtc, device->name, device->targets, device->target_count);
}

quern_status qn_obtain_targets(quern *q, const qn_device *device, qn_make_batch_fn make, void *user, qn_batch *batch,
                               const qn_arch **arch)
{
    qn_batch batches[8] = {0};
    refusal refused = {0};
    size_t found = 0;
    quern_status status = find_first(q, device, make, user, batches, &refused, &found);
    if (status == QUERN_NOT_FOUND) status = compile_first(q, device, batches, &refused, &found);
    free(refused.message);
    for (size_t i = 0; i < device->target_count; i++) {
        if (status == QUERN_OK && i == found) {
            *batch = batches[i];
            *arch = device->targets[i];
        } else {
            qn_batch_fini(&batches[i]);
        }
    }
    return status;
}
