// SPDX-License-Identifier: Apache-2.0
// Compiling ahead (compiles.h).
//   (1) The lock guards the list; nothing compiles while it is held.
//   (2) A job is never moved while it is under way: they are allocated one by one.
#include "tune/compiles.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_BYTES = 16 << 20, MAX_THREADS = 256 }; // the compiler runs on that stack

typedef enum job_state { WAITING, UNDER_WAY, DONE } job_state;
typedef struct job {
    qn_config config;
    job_state state;
    quern_status status;
    char *message; // of a failure
} job;

struct qn_compiles {
    quern *q;
    const qn_space *space;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job **jobs;
    size_t count, capacity;
    bool closing;
    pthread_t thread[MAX_THREADS];
    size_t threads;
};

// ---- one job

static quern_status compile_plan(const qn_compiles *c, const qn_config *config, qn_plan *plan)
{
    const qn_space *space = c->space;
    const qn_image *image;
    char text[512];
    QN_TRY(quern_spec_format(space->spec, text, sizeof text));
    QN_TRY(space->family->plan(space->spec, space->arch, config, plan));
    for (size_t s = 0; s < plan->stage_count; s++)
        QN_TRY(qn_kernel_obtain(c->q, &plan->stage[s], space->arch, text, &image));
    return QUERN_OK;
}

static quern_status compile(const qn_compiles *c, const qn_config *config)
{
    qn_plan *plan = malloc(sizeof *plan);
    if (!plan) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a plan");
    quern_status status = compile_plan(c, config, plan);
    free(plan);
    return status;
}

// With the lock held, which is given up meanwhile.
static void run_job(qn_compiles *c, job *j)
{
    j->state = UNDER_WAY;
    pthread_mutex_unlock(&c->lock);
    quern_status status = compile(c, &j->config);
    char *message = status == QUERN_OK ? NULL : qn_strdup(quern_message());
    pthread_mutex_lock(&c->lock);
    j->state = DONE;
    j->status = status, j->message = message;
    pthread_cond_broadcast(&c->changed);
}

static job *next_job(const qn_compiles *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->jobs[i]->state == WAITING) return c->jobs[i];
    return NULL;
}

static void *work(void *user)
{
    qn_compiles *c = user;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        job *j = next_job(c);
        if (j)
            run_job(c, j);
        else
            pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

// ---- the list; with the lock held

static job *find_job(const qn_compiles *c, const qn_config *config)
{
    for (size_t i = 0; i < c->count; i++)
        if (!memcmp(&c->jobs[i]->config, config, sizeof *config)) return c->jobs[i];
    return NULL;
}

static job *add_job(qn_compiles *c, const qn_config *config)
{
    if (c->count == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 64;
        job **jobs = realloc(c->jobs, capacity * sizeof(job *));
        if (!jobs) return NULL;
        c->jobs = jobs, c->capacity = capacity;
    }
    job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    j->config = *config;
    return c->jobs[c->count++] = j;
}

static void free_job(job *j)
{
    free(j->message);
    free(j);
}

static void forget_waiting(qn_compiles *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        if (c->jobs[i]->state == WAITING)
            free_job(c->jobs[i]);
        else
            c->jobs[kept++] = c->jobs[i];
    }
    c->count = kept;
}

// ---- the interface

static void start_threads(qn_compiles *c, int threads)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for the thread that times
    while (c->threads < (size_t)threads && c->threads < MAX_THREADS &&
           pthread_create(&c->thread[c->threads], &attributes, work, c) == 0)
        c->threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

quern_status qn_compiles_open(quern *q, const qn_space *space, int threads, qn_compiles **out)
{
    qn_compiles *c = calloc(1, sizeof *c);
    if (!c) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: compiling ahead");
    c->q = q, c->space = space;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    start_threads(c, threads);
    if (!c->threads) {
        qn_compiles_close(c);
        return qn_fail(QUERN_OUT_OF_MEMORY, "no thread could be started to compile on");
    }
    *out = c;
    return QUERN_OK;
}

quern_status qn_compiles_announce(qn_compiles *c, const qn_config *configs, size_t count)
{
    bool added = true;
    pthread_mutex_lock(&c->lock);
    forget_waiting(c);
    for (size_t i = 0; i < count && added; i++) added = find_job(c, &configs[i]) || add_job(c, &configs[i]);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return added ? QUERN_OK : qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: compiling ahead");
}

quern_status qn_compiles_wait(qn_compiles *c, const qn_config *config)
{
    pthread_mutex_lock(&c->lock);
    job *j = find_job(c, config);
    if (!j) j = add_job(c, config);
    if (j && j->state == WAITING) run_job(c, j); // nobody has begun it: this thread need not wait for one that will
    while (j && j->state != DONE) pthread_cond_wait(&c->changed, &c->lock);
    quern_status status = j ? j->status : QUERN_OUT_OF_MEMORY;
    if (status != QUERN_OK) qn_fail(status, "%s", j && j->message ? j->message : quern_status_text(status));
    pthread_mutex_unlock(&c->lock);
    return status;
}

void qn_compiles_close(qn_compiles *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < c->threads; i++) pthread_join(c->thread[i], NULL);
    for (size_t i = 0; i < c->count; i++) free_job(c->jobs[i]);
    free(c->jobs);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
