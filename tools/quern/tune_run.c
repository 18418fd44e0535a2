// SPDX-License-Identifier: Apache-2.0
// The search of `quern tune` on a GPU: one after another, each range of sizes of each spec gets its share of the time
// that is left. Results go into the database as soon as a range is done, so that an interrupt loses at most the rest.
//   (1) Candidates are compiled in a quern without a database; only a winner's kernels are kept.
//   (2) SIGINT ends the search of this range, keeps what it found, and leaves the others out; a second one kills.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/path.h"
#include "runtime/runtime.h"
#include "table.h"
#include "tune.h"
#include "tune/measure.h"
#include "tune/results.h"

enum { SECONDS_A_JOB = 30, FIRST_REPEATS = 5, REPEATS = 40, DRAWS = 48, COMPILE_MS = 60000 };

typedef struct tuning {
    tune_request *r;
    device device;
    const qn_arch *arch;
    char device_name[128];
    qn_tune_device fingerprint;
    quern *q, *scratch;
    size_t done;         // of r's jobs
    double end;          // of the time for everything
    const tune_job *job; // under way
    qn_tune_list rows;   // of all jobs, for the plot
    table *table;
    tune_gains gains;
} tuning;

// ---- one job

static bool is_stopped(void *user)
{
    (void)user;
    return command_interrupted();
}

static quern_status check(void *user, const quern_op *op)
{
    const tuning *t = user;
    return tune_check(t->job->subject, t->scratch, &t->device, &t->job->item->spec.base, op);
}

static bool fill(void *user, const qn_tensor *tensor, size_t copy, void *host, size_t elements)
{
    const tuning *t = user;
    const tune_job *j = t->job;
    return j->subject->fill && j->subject->fill(&j->item->spec.base, j->sizes, tensor, copy, host, elements);
}

static void show_progress(void *user, const qn_search_progress *p)
{
    const tuning *t = user;
    char what[320];
    double left = t->end - command_seconds();
    snprintf(what, sizeof what, "%s, %.0f s left: %zu tried, best %.2f us, own choice %.2f", t->job->sizes_text,
             left > 0 ? left : 0, p->timed, p->best_us, p->own_us);
    command_progress(t->done, t->r->job_count, what);
}

// What won before, here.
static bool find_former(const tuning *t, const tune_job *j, qn_config *config)
{
    const qn_family *family = j->subject->family;
    bool found = false;
    size_t bucket;
    qn_tune_list list = QN_TUNE_LIST_INIT;
    if (qn_sqlite_tune_read(&t->r->store, j->item->text, QN_TUNE_BEST, &list) != QUERN_OK) return false;
    for (size_t i = 0; i < list.count && !found; i++)
        found = qn_bucket_find(family, list.row[i].bucket, list.row[i].sizes, &bucket) && bucket == j->bucket &&
                qn_tune_same_device(&list.row[i].device, &t->fingerprint) &&
                qn_config_parse(family, list.row[i].config, config) == QUERN_OK;
    qn_tune_list_fini(&list);
    return found;
}

static quern_status search_job(tuning *t, const qn_space *space, qn_search *search)
{
    qn_config former;
    qn_measure *measure;
    const tune_job *j = t->job;
    const double left = t->end - command_seconds();
    qn_search_options options = {.seconds = (left > 1 ? left : 1) / (double)(t->r->job_count - t->done),
                                 .first_repeats = FIRST_REPEATS,
                                 .repeats = REPEATS,
                                 .draws = DRAWS,
                                 .seed = 1,
                                 .also = find_former(t, j, &former) ? &former : NULL,
                                 .progress = show_progress,
                                 .user = t};
    if (t->r->plot) {
        options.grid_knob = qn_space_knob(space->family, "local_k");
        options.grid_other = qn_space_knob(space->family, "block");
    }
    const qn_measure_options how = {.q = t->scratch,
                                    .driver = t->device.driver,
                                    .device = t->device.ordinal,
                                    .space = space,
                                    .sizes = j->sizes,
                                    .compile_threads = (int)t->r->threads,
                                    .most_copies = j->subject->most_copies ? j->subject->most_copies(j->sizes) : 0,
                                    .fill = fill,
                                    .check = check,
                                    .stopped = is_stopped,
                                    .user = t};
    QN_TRY(qn_measure_open(&how, &measure));
    const qn_timer timer = qn_measure_timer(measure);
    quern_status status = qn_search_run(space, &options, &timer, search);
    qn_measure_close(measure);
    return status;
}

static const table_column columns[] = {
    {"spec", "spec", TABLE_TEXT, 0},
    {"sizes", "bucket", TABLE_TEXT, 0},
    {"timed", "timed", TABLE_TEXT, 0},
    {"own us", "own_us", TABLE_REAL, 2},
    {"us", "us", TABLE_REAL, 2},
    {"gain %", "gain_percent", TABLE_REAL, 1},
    {"spread", "spread_us", TABLE_REAL, 2},
    {"tried", "tried", TABLE_INT, 0},
    {"configuration", "configuration", TABLE_TEXT, 0},
    {NULL, "own_configuration", TABLE_TEXT, 0},
    {NULL, "complete", TABLE_INT, 0},
};

static void add_result(tuning *t, const qn_space *space, const qn_search *search)
{
    char bucket[96] = "";
    qn_text config = QN_TEXT_INIT, own = QN_TEXT_INIT;
    const qn_trial *winner = &search->trial[search->winner], *first = &search->trial[0];
    int64_t tried = 0;
    for (size_t i = 0; i < search->count; i++) tried += search->trial[i].status != NULL;
    space->family->bucket_name(space->bucket, bucket, sizeof bucket);
    qn_config_write(space->family, &winner->config, &config);
    qn_config_write(space->family, &first->config, &own);
    double own_us = first->repeats ? first->timing.median_us : NAN, us = winner->timing.median_us;
    double gain = 100 * (own_us / us - 1);
    tune_gains_add(&t->gains, t->job->item->text, t->job->sizes_text, gain);
    table_add(t->table, t->job->item->text, bucket, t->job->sizes_text, own_us, us, gain,
              winner->timing.high_us - winner->timing.low_us, tried, qn_text_string(&config), qn_text_string(&own),
              (int64_t)search->is_complete);
    qn_text_fini(&config);
    qn_text_fini(&own);
}

// The results first: they are what took the time.
static quern_status keep(tuning *t, const qn_space *space, const qn_search *search)
{
    qn_tune_list rows = QN_TUNE_LIST_INIT;
    quern_op *op = NULL;
    quern_status status =
        qn_tune_results(search, space, &t->fingerprint, t->job->sizes_text, (int64_t)time(NULL), &rows);
    if (status == QUERN_OK) status = qn_sqlite_tune_put(&t->r->store, rows.row, rows.count, false, NULL);
    for (size_t i = 0; i < rows.count && status == QUERN_OK && t->r->plot; i++)
        status = qn_tune_list_add(&t->rows, &rows.row[i]);
    qn_tune_list_fini(&rows);
    QN_TRY(status);
    add_result(t, space, search);
    QN_TRY(qn_prepare_config(t->q, space->spec, t->device.ordinal, &search->trial[search->winner].config, &op));
    quern_op_release(op);
    return QUERN_OK;
}

static quern_status run_job(tuning *t, const tune_job *j)
{
    qn_search search;
    const qn_space space = {j->subject->family, &j->item->spec.base, t->arch, j->bucket, t->fingerprint.sm_count};
    t->job = j;
    quern_status status = search_job(t, &space, &search);
    if (status != QUERN_OK) return qn_fail_in(status, "%s, %s", j->item->text, j->sizes_text);
    status = keep(t, &space, &search);
    qn_search_fini(&search);
    return status;
}

// A range that failed does not keep the others from being tuned, unless the device is gone.
static int run_jobs(tuning *t)
{
    int failed = 0;
    const size_t job_count = t->r->job_count;
    for (; t->done < job_count && !command_interrupted(); t->done++) {
        quern_status status = run_job(t, &t->r->jobs[t->done]);
        if (status == QUERN_OK || status == QUERN_CANCELLED) continue;
        failed++;
        command_note("%s", quern_message());
        if (t->device.driver->cuCtxSynchronize() != CUDA_SUCCESS) {
            command_note("the device's context is gone after that error; the rest is left out");
            break;
        }
    }
    command_progress_end();
    if (command_interrupted())
        return command_fail("interrupted after %zu of %zu ranges of sizes; what was found is kept",
                            table_rows(t->table), job_count);
    return failed ? command_fail("%d of %zu ranges of sizes failed", failed, job_count) : COMMAND_OK;
}

// ---- the whole

static quern_status open_scratch(tuning *t)
{
    quern_options options = QUERN_OPTIONS_INIT;
    options.mode = QUERN_MODE_OFF;
    options.tuning = QUERN_TUNING_OFF;
    options.compile_timeout_ms = COMPILE_MS;
    options.compile_threads = 1;
    options.cancel = command_cancelled;
    return quern_open(&options, &t->scratch);
}

static quern_status open_all(tuning *t)
{
    tune_request *r = t->r;
    QN_TRY(device_open(r->ordinal, &t->device));
    t->arch = command_target(t->device.cc);
    if (!t->arch) return qn_fail(QUERN_NO_PLAN, "%s: no plan of Quern's is for this architecture", t->device.name);
    if (!tune_device(r->ordinal, t->device_name, &t->fingerprint)) return QUERN_DRIVER_ERROR;
    if (qn_environment("QUERN_TEMPLATES", false))
        command_note("$QUERN_TEMPLATES is set: its kernels are timed, and results are kept as those of quern %s",
                     qn_tuned_library());
    QN_TRY(command_open(&r->settings, &t->q));
    QN_TRY(open_scratch(t));
    t->end = command_seconds() + (r->seconds > 0 ? r->seconds : (double)(SECONDS_A_JOB * r->job_count));
    return QUERN_OK;
}

static void close_all(tuning *t)
{
    quern_close(t->scratch);
    quern_close(t->q);
    if (t->device.context) device_close(&t->device);
    qn_tune_list_fini(&t->rows);
    tune_gains_fini(&t->gains);
}

static void print_results(const tuning *t)
{
    if (t->r->settings.json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddStringToObject(document, "device", t->device.name);
        cJSON_AddStringToObject(document, "arch", t->arch->name);
        cJSON_AddStringToObject(document, "file", t->r->file);
        cJSON_AddItemToObject(document, "results", table_json(t->table));
        cJSON_AddItemToObject(document, "gains", tune_gains_json(&t->gains));
        json_print(document);
    } else {
        table_print(t->table);
        tune_gains_print(&t->gains);
    }
}

int tune_run(tune_request *r)
{
    tuning t = {.r = r, .rows = QN_TUNE_LIST_INIT};
    quern_status status = open_all(&t);
    int exit_status = status == QUERN_OK ? COMMAND_OK : command_status(status);
    if (status == QUERN_OK) {
        t.table = table_create(columns, QN_COUNT(columns));
        command_catch_interrupt();
        exit_status = run_jobs(&t);
        print_results(&t);
        if (r->plot && (t.rows.count || exit_status == COMMAND_OK))
            status = tune_plot(r->plot, r->jobs[0].subject->family, &t.rows);
        if (status != QUERN_OK) exit_status = command_status(status);
        table_destroy(t.table);
    }
    close_all(&t);
    return exit_status;
}
