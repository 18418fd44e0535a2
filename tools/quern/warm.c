// SPDX-License-Identifier: Apache-2.0
// `quern warm`: compiles specs for architectures and keeps the kernels, without a GPU. Workers take (spec, architecture)
// pairs; results are printed in the order of the command line, each as soon as those before it are done.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "base/processors.h"
#include "cache/store.h"
#include "command.h"
#include "specs.h"
#include "table.h"
#include "warm_list.h"

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
    quern_counters counters; // of the whole run
    bool json;
    pthread_mutex_t lock;
} work;

static const char text[] =
    "Compiles every kernel of each spec for each architecture and keeps it in the database. Needs\n"
    "neither GPU nor driver. @FILE has one spec a line, perhaps with ranges of sizes ([rows 1..64]);\n"
    "# begins a comment; a name in .json is a manifest {\"specs\": [...], \"arch\": [...], \"sizes\":\n"
    "{\"rows\": [1, 64]}}; a log of $QUERN_LOG is a list too. Their architectures are for their own specs;\n"
    "a spec that has none is for the GPUs present. --arch and sizes given here win over all of them.\n"
    "--from reads a model's config.json (Llama, Qwen, DeepSeek, Gemma). --shard i/n takes\n"
    "every n-th of the (spec, architecture) pairs, from the i-th on (0 <= i < n): n machines share\n"
    "the work, and 'quern cache import' merges their databases. Ctrl-C ends it, keeps what was compiled\n"
    "and says what was not.\n";

// ---- one line a job

// Where the kernels that were found came from: "2 sealed, 1 user".
static void origins(const quern_warm_report *r, char *out, size_t bytes)
{
    const struct {
        int count;
        const char *name;
    } from[] = {{r->sealed, "sealed"}, {r->user, "user"}, {r->cached - r->sealed - r->user, "memory"}};
    size_t length = 0;
    *out = 0;
    for (size_t i = 0; i < QN_COUNT(from); i++)
        if (from[i].count)
            length += (size_t)snprintf(out + length, bytes - length, "%s%d %s", length ? ", " : "", from[i].count,
                                       from[i].name);
}

static void outcome(const job *j, char *out, size_t bytes)
{
    const quern_warm_report *r = &j->report;
    char from[64], kernels[32];
    origins(r, from, sizeof from);
    snprintf(kernels, sizeof kernels, "%d kernel%s", r->kernels, r->kernels == 1 ? "" : "s");
    if (j->status == QUERN_CANCELLED)
        snprintf(out, bytes, "interrupted");
    else if (j->status != QUERN_OK)
        snprintf(out, bytes, "failed");
    else if (r->compiled && r->cached)
        snprintf(out, bytes, "%d compiled in %.0f ms, %d cached (%s)", r->compiled, r->compile_ms, r->cached, from);
    else if (r->compiled)
        snprintf(out, bytes, "compiled in %.0f ms (%s)", r->compile_ms, kernels);
    else
        snprintf(out, bytes, "cached (%s: %s)", kernels, from);
}

static void print_job(const job *j)
{
    char words[192];
    outcome(j, words, sizeof words);
    command_progress_clear();
    const char *range = j->spec->range;
    printf("%-8s %s%s%s%s: %s\n", j->arch->name, j->spec->text, *range ? " [" : "", range, *range ? "]" : "", words);
    fflush(stdout);
    if (j->status != QUERN_OK && j->status != QUERN_CANCELLED)
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
    const spec_item *s = j->spec;
    j->status = s->narrowed ? quern_warm_sizes(w->q, &s->spec.base, s->from, s->to, j->arch->name, &j->report)
                            : quern_warm(w->q, &s->spec.base, j->arch->name, &j->report);
    if (j->status != QUERN_OK) j->message = qn_strdup(quern_message());
}

static void *worker(void *user)
{
    work *w = user;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        job *j = w->next < w->count && !command_interrupted() ? &w->jobs[w->next++] : NULL;
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
    for (size_t i = w->next; i < w->count; i++) w->jobs[i].status = QUERN_CANCELLED; // not begun
}

// ---- the report

static void print_json(const work *w, double seconds)
{
    static const table_column columns[] = {
        {NULL, "spec", TABLE_TEXT, 0},    {NULL, "arch", TABLE_TEXT, 0},       {NULL, "status", TABLE_TEXT, 0},
        {NULL, "variants", TABLE_INT, 0}, {NULL, "kernels", TABLE_INT, 0},     {NULL, "compiled", TABLE_INT, 0},
        {NULL, "cached", TABLE_INT, 0},   {NULL, "sealed", TABLE_INT, 0},      {NULL, "user", TABLE_INT, 0},
        {NULL, "stored", TABLE_INT, 0},   {NULL, "compile_ms", TABLE_REAL, 1}, {NULL, "message", TABLE_TEXT, 0},
    };
    table *t = table_create(columns, QN_COUNT(columns));
    for (size_t i = 0; i < w->count; i++) {
        const job *j = &w->jobs[i];
        table_add(t, j->spec->text, j->arch->name, quern_status_name(j->status), (int64_t)j->report.variants,
                  (int64_t)j->report.kernels, (int64_t)j->report.compiled, (int64_t)j->report.cached,
                  (int64_t)j->report.sealed, (int64_t)j->report.user, (int64_t)j->report.stored, j->report.compile_ms,
                  j->message);
    }
    cJSON *document = cJSON_CreateObject();
    cJSON_AddItemToObject(document, "results", table_json(t));
    cJSON_AddNumberToObject(document, "seconds", seconds);
    table_destroy(t);
    json_print(document);
}

// Of all pairs. Kernels are stored one by one: those of a pair that did not become whole are kept as far as they got, and
// only the library's counters know them.
typedef struct totals {
    uint64_t compiled, kept, cached;
    double ms;
    size_t whole, cancelled;
} totals;

static totals add_up(const work *w)
{
    const quern_counters *c = &w->counters;
    totals t = {.compiled = c->compiled,
                .kept = c->compiled > c->put_failed ? c->compiled - c->put_failed : 0,
                .ms = (double)c->compile_us * 1e-3};
    uint64_t stored = 0, cached = 0;
    for (size_t i = 0; i < w->count; i++) {
        const job *j = &w->jobs[i];
        t.whole += j->status == QUERN_OK;
        t.cancelled += j->status == QUERN_CANCELLED;
        stored += (uint64_t)j->report.stored, cached += (uint64_t)j->report.cached;
    }
    bool all = t.whole == w->count; // then the pairs' reports know everything
    t.kept = all ? stored : t.kept;
    t.cached = all ? cached : c->hit_memory + c->hit_sealed + c->hit_user;
    return t;
}

// What Ctrl-C left undone.
static int report_interrupt(const work *w, const totals *t)
{
    return command_fail(
        "interrupted: of %zu (spec, architecture) pairs %zu whole, %zu begun, %zu not begun; kernels of all "
        "pairs: %llu compiled now and kept, %llu there before",
        w->count, t->whole, w->done - t->whole, w->count - w->done, (unsigned long long)t->kept,
        (unsigned long long)t->cached);
}

static int report(const work *w, double seconds)
{
    const totals t = add_up(w);
    if (w->json)
        print_json(w, seconds);
    else
        printf("total    %llu compiled in %.0f ms, %llu cached; %.1f s\n", (unsigned long long)t.compiled, t.ms,
               (unsigned long long)t.cached, seconds);
    if (t.cancelled) return report_interrupt(w, &t);
    if (t.whole < w->count) return command_fail("%zu of %zu failed", w->count - t.whole, w->count);
    if (t.kept < t.compiled)
        return command_fail("of %llu compiled kernels %llu not kept", (unsigned long long)t.compiled,
                            (unsigned long long)(t.compiled - t.kept));
    return COMMAND_OK;
}

// ---- the work

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

// A warm that can keep nothing is refused before anything is compiled. QUERN_MODE=strict compiles nothing: it asks whether
// the databases have everything.
static quern_status check_keeps(const char *db)
{
    const char *mode = qn_environment("QUERN_MODE", false);
    qn_text file = QN_TEXT_INIT;
    quern_store store;
    if (mode && !strcmp(mode, "strict")) return QUERN_OK;
    if (mode && (!strcmp(mode, "off") || !strcmp(mode, "read_only")))
        return qn_fail(QUERN_STORE_READ_ONLY,
                       "QUERN_MODE=%s keeps no kernel, so that there is nothing to warm: unset it (with "
                       "QUERN_MODE=strict this command checks that the databases have every kernel)",
                       mode);
    if (db && !*db)
        return qn_fail(QUERN_CONFLICT,
                       "--db '' keeps kernels in memory, which ends with this command: name a database "
                       "(with QUERN_MODE=strict, --db '' checks that the sealed ones have every kernel)");
    quern_status status = QUERN_OK;
    if (!db) status = command_default_database(true, &file);
    const qn_sqlite_options options = {.file = db ? db : qn_text_string(&file),
                                       .access = QN_SQLITE_READ_WRITE,
                                       .busy_timeout_ms = 5000,
                                       .cap_bytes = -1};
    if (status == QUERN_OK) status = qn_sqlite_open(&options, &store);
    if (status == QUERN_OK) {
        status = qn_sqlite_probe(&store);
        if (status == QUERN_OK && (qn_sqlite_is_sealed(&store) || access(options.file, W_OK) != 0))
            status = qn_fail(QUERN_STORE_READ_ONLY,
                             "%s is %s, so that nothing can be kept in it: name another database (with "
                             "QUERN_MODE=strict this command checks that it has every kernel)",
                             options.file, qn_sqlite_is_sealed(&store) ? "sealed" : "read-only");
        qn_sqlite_close(&store);
    }
    qn_text_fini(&file);
    return status;
}

// The (spec, architecture) pairs of a part, in the list's order.
static quern_status make_jobs(const spec_list *list, const char *shard, work *w)
{
    int64_t index, of;
    size_t pairs = 0, pair = 0;
    if (!parse_shard(shard, &index, &of))
        return qn_fail(QUERN_BAD_VALUE, "--shard %s: i/n with 0 <= i < n is needed", shard);
    for (size_t i = 0; i < list->count; i++) pairs += list->item[i].archs.count;
    w->jobs = calloc(pairs + 1, sizeof *w->jobs);
    if (!w->jobs) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < list->count; i++) {
        const command_archs *archs = &list->item[i].archs;
        for (size_t k = 0; k < archs->count; k++, pair++)
            if ((int64_t)(pair % (size_t)of) == index)
                w->jobs[w->count++] = (job){.spec = &list->item[i], .arch = archs->item[k]};
    }
    return QUERN_OK;
}

static int run_work(command_settings *settings, work *w, int64_t threads)
{
    size_t workers = (size_t)threads < w->count ? (size_t)threads : w->count;
    settings->compile_threads = workers ? (int)((size_t)threads / workers) : 1;
    settings->cancel = command_cancelled;
    w->json = settings->json;
    quern_status status = command_open(settings, &w->q);
    if (status == QUERN_OK && (status = check_keeps(settings->db)) != QUERN_OK) quern_close(w->q);
    if (status != QUERN_OK) return command_status(status);
    command_catch_interrupt();
    double start = command_seconds();
    pthread_mutex_init(&w->lock, NULL);
    if (w->count) run_jobs(w, workers);
    pthread_mutex_destroy(&w->lock);
    w->counters = (quern_counters)QUERN_COUNTERS_INIT;
    quern_get_counters(w->q, &w->counters);
    quern_close(w->q);
    return report(w, command_seconds() - start);
}

// ---- --list

// A spec with its ranges, as a list has them, and the architectures that it is to be compiled for.
static void list_spec(const spec_item *item, const qn_text *archs, table *t, bool json)
{
    if (json)
        table_add(t, item->text, *item->range ? item->range : NULL, archs->length ? qn_text_string(archs) : NULL);
    else
        printf("%s%s%s%s%s%s\n", item->text, *item->range ? " [" : "", item->range, *item->range ? "]" : "",
               archs->length ? "  # " : "", qn_text_string(archs));
}

// A spec without architectures has no job and is printed all the same.
static void list_jobs(const spec_list *list, const work *w, table *t, bool json)
{
    for (size_t i = 0, at = 0; i < list->count; i++) {
        qn_text archs = QN_TEXT_INIT;
        for (; at < w->count && w->jobs[at].spec == &list->item[i]; at++)
            qn_text_putf(&archs, "%s%s", archs.length ? "," : "", w->jobs[at].arch->name);
        if (archs.length || !list->item[i].archs.count) list_spec(&list->item[i], &archs, t, json);
        qn_text_fini(&archs);
    }
}

static int print_list(const spec_list *list, const work *w, bool json)
{
    static const table_column columns[] = {
        {NULL, "spec", TABLE_TEXT, 0}, {NULL, "sizes", TABLE_TEXT, 0}, {NULL, "arch", TABLE_TEXT, 0}};
    table *t = table_create(columns, QN_COUNT(columns));
    list_jobs(list, w, t, json);
    if (json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddItemToObject(document, "specs", table_json(t));
        json_print(document);
    }
    table_destroy(t);
    return COMMAND_OK;
}

// ---- the list's jobs

typedef struct choice {
    const char *arch, *shard;
    int64_t threads;
    bool only_list;
} choice;

static int warm_list(command_settings *settings, spec_list *list, const choice *c)
{
    work w = {0};
    int exit_status;
    // A list alone needs no architecture; a part of the (spec, architecture) pairs does.
    if (!warm_list_choose(list, c->arch, c->shard || !c->only_list, &exit_status)) return exit_status;
    quern_status status = make_jobs(list, c->shard, &w);
    if (status != QUERN_OK)
        exit_status = command_status(status);
    else if (c->only_list)
        exit_status = print_list(list, &w, settings->json);
    else
        exit_status = run_work(settings, &w, c->threads);
    for (size_t i = 0; i < w.count; i++) free(w.jobs[i].message);
    free(w.jobs);
    return exit_status;
}

// ---- the command

int command_warm(int argc, char **argv)
{
    command_settings settings = {0};
    warm_sources from = {.model = {0, 0}};
    choice c = {.threads = (int64_t)qn_processors()};
    command_option options[32 + COMMAND_MAX_SIZES] = {
        COMMAND_OPTION_ARCH(&c.arch),
        COMMAND_OPTION_DB(&settings.db),
        {"jobs", 'j', "N", COMMAND_NUMBER, &c.threads, 1, 256, "compile N kernels at a time (default: the processors)"},
        {"shard", 0, "i/n", COMMAND_STRING, &c.shard, 0, 0, "only this part of the work"},
        {"from", 0, "FILE", COMMAND_REPEAT, &from.models, 0, 0, "what serving the model of this config.json needs"},
        {"sample", 0, "K", COMMAND_NUMBER, &from.model.sample, 1, 2048, "of --from: candidates of the sampler"},
        {"page", 0, "N", COMMAND_NUMBER, &from.model.page, 16, 256,
         "of --from: positions a page, a multiple of 16 (default: 64)"},
        {"from-log", 0, "FILE", COMMAND_REPEAT, &from.logs, 0, 0, "every spec of a log (QUERN_LOG=compile,cache)"},
        {"list", 0, NULL, COMMAND_FLAG, &c.only_list, 0, 0, "print the specs, as @FILE has them, and do nothing"},
    };
    size_t count =
        command_add_sizes(&from.sizes, "A..B", "only for sizes in this range, whatever a list says", options, 9);
    options[count++] = (command_option)COMMAND_OPTION_JSON(&settings.json);
    options[count++] = (command_option)COMMAND_OPTION_VERBOSE(&settings.verbose);
    options[count] = (command_option)COMMAND_OPTION_END;
    const command_syntax syntax = {"quern warm SPEC... | @FILE... | --from config.json | --from-log FILE [options]",
                                   text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc < 2 && !from.logs.count && !from.models.count) return command_usage("a spec or @FILE is needed");
    if (!from.models.count && (from.model.sample || from.model.page))
        return command_usage("--%s is for models' configurations, --from FILE", from.model.sample ? "sample" : "page");
    if (from.model.page % 16)
        return command_usage("--page %lld: attention's pages have a multiple of 16 positions",
                             (long long)from.model.page);
    spec_list list = SPEC_LIST_INIT;
    quern_status status = warm_list_read(&from, argc, argv, &list);
    warm_list_notes(&list); // also of a list that has nothing but them
    if (status == QUERN_OK)
        exit_status = warm_list(&settings, &list, &c);
    else
        exit_status = list.in_file ? command_content(status) : command_status(status);
    spec_list_fini(&list);
    return exit_status;
}
