// SPDX-License-Identifier: Apache-2.0
// `quern warm`: compiles specs for architectures and keeps the kernels, without a GPU. Workers take (spec, architecture)
// pairs; results are printed in the order of the command line, each as soon as those before it are done.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "specs.h"
#include "table.h"

typedef struct job {
    const spec_item *spec;
    const qn_arch *arch;
    quern_warm_report report;
    quern_status status;
    char *message; // of a failure, owned
    bool done;
} job;

typedef struct work {
    quern *q;
    job *jobs;
    size_t count, next, done, printed;
    bool json;
    pthread_mutex_t lock;
} work;

static const char text[] =
    "Compiles every kernel of each spec for each architecture and keeps it in the database. Needs\n"
    "neither GPU nor driver. @FILE has one spec a line, # begins a comment; a name in .json is a\n"
    "manifest {\"specs\": [...], \"arch\": [...]}. --shard i/n takes every n-th of the (spec,\n"
    "architecture) pairs, from the i-th on (0 <= i < n): n machines share the work, and\n"
    "'quern cache import' merges their databases.\n";

// ---- one line a job

static void outcome(const job *j, char *out, size_t bytes)
{
    const quern_warm_report *r = &j->report;
    const char *plural = r->kernels == 1 ? "" : "s";
    if (j->status != QUERN_OK)
        snprintf(out, bytes, "failed");
    else if (r->compiled && r->cached)
        snprintf(out, bytes, "%d compiled in %.0f ms, %d cached", r->compiled, r->compile_ms, r->cached);
    else if (r->compiled)
        snprintf(out, bytes, "compiled in %.0f ms (%d kernel%s)", r->compile_ms, r->kernels, plural);
    else
        snprintf(out, bytes, "cached (%d kernel%s)", r->kernels, plural);
}

static void print_job(const job *j)
{
    char words[96];
    outcome(j, words, sizeof words);
    command_progress_clear();
    printf("%-8s %s: %s\n", j->arch->name, j->spec->text, words);
    fflush(stdout);
    if (j->status != QUERN_OK)
        command_note("%s for %s: %s", j->spec->text, j->arch->name, j->message ? j->message : "");
}

// With the lock held: everything that is done and has nothing undone before it.
static void print_ready(work *w)
{
    for (; w->printed < w->count && w->jobs[w->printed].done; w->printed++)
        if (!w->json) print_job(&w->jobs[w->printed]);
}

// ---- workers

static void run_job(work *w, job *j)
{
    j->report = (quern_warm_report)QUERN_WARM_REPORT_INIT;
    j->status = quern_warm(w->q, &j->spec->spec.base, j->arch->name, &j->report);
    if (j->status != QUERN_OK) j->message = qn_strdup(quern_message());
}

static void *worker(void *user)
{
    work *w = user;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        job *j = w->next < w->count ? &w->jobs[w->next++] : NULL;
        if (j) command_progress(w->done, w->count, j->spec->text);
        pthread_mutex_unlock(&w->lock);
        if (!j) return NULL;
        run_job(w, j);
        pthread_mutex_lock(&w->lock);
        j->done = true;
        w->done++;
        print_ready(w);
        pthread_mutex_unlock(&w->lock);
    }
}

// This thread is one of the workers, so that a machine that starts no more threads still gets the work done.
static void run_jobs(work *w, size_t workers)
{
    pthread_t threads[256];
    size_t started = 0;
    for (; started + 1 < workers && started < QN_COUNT(threads); started++)
        if (pthread_create(&threads[started], NULL, worker, w) != 0) break;
    worker(w);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    command_progress_end();
}

static int64_t available_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// ---- the report

static void print_json(const work *w, double seconds)
{
    static const table_column columns[] = {
        {NULL, "spec", TABLE_TEXT, 0},    {NULL, "arch", TABLE_TEXT, 0},   {NULL, "status", TABLE_TEXT, 0},
        {NULL, "variants", TABLE_INT, 0}, {NULL, "kernels", TABLE_INT, 0}, {NULL, "compiled", TABLE_INT, 0},
        {NULL, "cached", TABLE_INT, 0},   {NULL, "stored", TABLE_INT, 0},  {NULL, "compile_ms", TABLE_REAL, 1},
        {NULL, "message", TABLE_TEXT, 0},
    };
    table *t = table_create(columns, QN_COUNT(columns));
    for (size_t i = 0; i < w->count; i++) {
        const job *j = &w->jobs[i];
        table_add(t, j->spec->text, j->arch->name, quern_status_name(j->status), (int64_t)j->report.variants,
                  (int64_t)j->report.kernels, (int64_t)j->report.compiled, (int64_t)j->report.cached,
                  (int64_t)j->report.stored, j->report.compile_ms, j->message);
    }
    cJSON *document = cJSON_CreateObject();
    cJSON_AddItemToObject(document, "results", table_json(t));
    cJSON_AddNumberToObject(document, "seconds", seconds);
    table_destroy(t);
    json_print(document);
}

static int report(const work *w, double seconds)
{
    int compiled = 0, cached = 0, stored = 0, failed = 0;
    double ms = 0;
    for (size_t i = 0; i < w->count; i++) {
        const quern_warm_report *r = &w->jobs[i].report;
        compiled += r->compiled, cached += r->cached, stored += r->stored;
        ms += r->compile_ms;
        failed += w->jobs[i].status != QUERN_OK;
    }
    if (w->json)
        print_json(w, seconds);
    else
        printf("total    %d compiled in %.0f ms, %d cached; %.1f s\n", compiled, ms, cached, seconds);
    if (failed) return command_fail("%d of %zu failed", failed, w->count);
    if (stored < compiled) return command_fail("%d of %d compiled kernels were not kept", compiled - stored, compiled);
    return COMMAND_OK;
}

// ---- the command

static bool parse_shard(const char *shard, int64_t *index, int64_t *of)
{
    char first[24];
    const char *slash = shard ? strchr(shard, '/') : NULL;
    *index = 0, *of = 1;
    if (!shard) return true;
    if (!slash || (size_t)(slash - shard) >= sizeof first) return false;
    snprintf(first, sizeof first, "%.*s", (int)(slash - shard), shard);
    return qn_parse_int(first, index) && qn_parse_int(slash + 1, of) && *index >= 0 && *index < *of;
}

static quern_status make_jobs(const spec_list *list, const command_archs *archs, const char *shard, work *w)
{
    int64_t index, of;
    if (!parse_shard(shard, &index, &of))
        return qn_fail(QUERN_BAD_VALUE, "--shard %s: i/n with 0 <= i < n is needed", shard);
    w->jobs = calloc(list->count * archs->count + 1, sizeof *w->jobs);
    if (!w->jobs) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < list->count * archs->count; i++) {
        if ((int64_t)(i % (size_t)of) != index) continue;
        w->jobs[w->count++] = (job){.spec = &list->item[i / archs->count], .arch = archs->item[i % archs->count]};
    }
    return QUERN_OK;
}

static int run_work(command_settings *settings, work *w, int64_t threads)
{
    size_t workers = (size_t)threads < w->count ? (size_t)threads : w->count;
    settings->compile_threads = workers ? (int)((size_t)threads / workers) : 1;
    w->json = settings->json;
    quern_status status = command_open(settings, &w->q);
    if (status != QUERN_OK) return command_status(status);
    double start = command_seconds();
    pthread_mutex_init(&w->lock, NULL);
    if (w->count) run_jobs(w, workers);
    pthread_mutex_destroy(&w->lock);
    quern_close(w->q);
    return report(w, command_seconds() - start);
}

static int warm_list(command_settings *settings, const spec_list *list, const char *arch, const char *shard,
                     int64_t threads)
{
    command_archs archs;
    work w = {0};
    int exit_status;
    const char *wanted = arch ? arch : list->archs.length ? qn_text_string(&list->archs) : NULL;
    if (!command_choose_archs(wanted, &archs, &exit_status)) return exit_status;
    quern_status status = make_jobs(list, &archs, shard, &w);
    exit_status = status == QUERN_OK ? run_work(settings, &w, threads) : command_status(status);
    for (size_t i = 0; i < w.count; i++) free(w.jobs[i].message);
    free(w.jobs);
    return exit_status;
}

int command_warm(int argc, char **argv)
{
    command_settings settings = {0};
    const char *arch = NULL, *shard = NULL;
    int64_t threads = available_processors();
    const command_option options[] = {
        COMMAND_OPTION_ARCH(&arch),
        COMMAND_OPTION_DB(&settings.db),
        {"jobs", 'j', "N", COMMAND_NUMBER, &threads, 1, 256, "compile N kernels at a time (default: the processors)"},
        {"shard", 0, "i/n", COMMAND_STRING, &shard, 0, 0, "only this part of the work"},
        COMMAND_OPTION_JSON(&settings.json),
        COMMAND_OPTION_VERBOSE(&settings.verbose),
        COMMAND_OPTION_END,
    };
    const command_syntax syntax = {"quern warm SPEC... | @FILE... [options]", text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc < 2) return command_usage("a spec or @FILE is needed");
    spec_list list = {NULL, 0, 0, QN_TEXT_INIT};
    quern_status status = QUERN_OK;
    for (int i = 1; i < argc && status == QUERN_OK; i++) status = spec_list_add(&list, argv[i]);
    exit_status = status == QUERN_OK ? warm_list(&settings, &list, arch, shard, threads) : command_status(status);
    spec_list_fini(&list);
    return exit_status;
}
