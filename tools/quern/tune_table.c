// SPDX-License-Identifier: Apache-2.0
// What `quern tune` does with results: list the winners, explain a spec, export and import text. Needs no GPU; with one,
// it also says which results count for it.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/path.h"
#include "runtime/tuned.h"
#include "table.h"
#include "tune.h"
#include "tune/export.h"
#include "tune/take.h"

// ---- the device in use

bool tune_device(int ordinal, char name[128], qn_tune_device *out)
{
    device d;
    qn_fingerprint fingerprint;
    if (device_look(ordinal, &d) != QUERN_OK) return false;
    if (qn_fingerprint_read(d.driver, d.handle, &fingerprint) != QUERN_OK) return false;
    *out = qn_fingerprint_device(&fingerprint);
    memcpy(name, fingerprint.name, sizeof fingerprint.name);
    out->name = name;
    return true;
}

// ---- the built-in table

size_t tune_count_built_in(const char *spec)
{
    size_t count = 0;
    for (size_t i = 0; i < qn_tuned_built_in_count; i++) count += !spec || !strcmp(qn_tuned_built_in[i].spec, spec);
    return count;
}

// ---- rows of a table

typedef struct judge {
    qn_tune_device device;
    char name[128];
    bool has_device;
} judge;

// "counts here" is judged for what a database has: the built-in table is this library's own.
static bool is_built_in(const tune_shown *shown)
{
    return !strcmp(shown->table, "built-in");
}

// "stale: another version of Quern", "this device", "same architecture" …
static const char *use_of(const judge *j, const tune_shown *shown, char *out, size_t bytes)
{
    const char *why = "";
    const qn_tune_row *row = shown->row;
    const qn_tune_device *here = j->has_device ? &j->device : NULL;
    if (!shown->used) return "left out";
    if (!is_built_in(shown) && !qn_tuned_is_current(row, qn_tuned_library(), here, &why)) {
        snprintf(out, bytes, "stale: %s", why);
        return out;
    }
    if (!here) return "-";
    if (qn_tune_same_device(here, &row->device)) return "this device";
    if (here->cc != row->device.cc) return "another architecture";
    return here->sm_count == row->device.sm_count ? "same SM count" : "same architecture";
}

static double us_or_none(double ns)
{
    return ns > 0 && isfinite(ns) ? 1e-3 * ns : NAN;
}

static int print_or_json(const tune_request *r, table *t, const char *key, const char *none)
{
    if (r->settings.json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddStringToObject(document, "file", r->file);
        cJSON_AddItemToObject(document, key, table_json(t));
        json_print(document);
    } else if (table_rows(t)) {
        table_print(t);
    } else {
        command_note("%s", none);
    }
    table_destroy(t);
    return COMMAND_OK;
}

// ---- list

static const table_column list_columns[] = {
    {"device", "device", TABLE_TEXT, 0},
    {"arch", "arch", TABLE_TEXT, 0},
    {"spec", "spec", TABLE_TEXT, 0},
    {"sizes", "bucket", TABLE_TEXT, 0},
    {"configuration", "configuration", TABLE_TEXT, 0},
    {"us", "us", TABLE_REAL, 2},
    {"spread", "spread_us", TABLE_REAL, 2},
    {"counts here", "counts", TABLE_TEXT, 0},
    {"table", "table", TABLE_TEXT, 0},
    {NULL, "timed", TABLE_TEXT, 0},
    {NULL, "sm_count", TABLE_INT, 0},
    {NULL, "shared_bytes", TABLE_INT, 0},
    {NULL, "l2_bytes", TABLE_INT, 0},
    {NULL, "driver", TABLE_INT, 0},
    {NULL, "library", TABLE_TEXT, 0},
    {NULL, "created", TABLE_INT, 0},
    {NULL, "left_out", TABLE_TEXT, 0},
};

static void add_winner(table *t, const judge *j, const tune_shown *shown)
{
    char use[96];
    const qn_tune_row *row = shown->row;
    table_add(t, row->device.name, row->arch, row->spec, row->bucket, row->config, us_or_none(row->ns),
              us_or_none(row->spread_ns), use_of(j, shown, use, sizeof use), shown->table, row->sizes,
              (int64_t)row->device.sm_count, row->device.shared_bytes, row->device.l2_bytes,
              (int64_t)row->device.driver, row->library, row->created, shown->why);
}

static void list_rows(tune_request *r, const judge *j, const tune_rows *rows, const tune_rows *built_in)
{
    table *t = table_create(list_columns, QN_COUNT(list_columns));
    for (size_t i = 0; i < rows->count; i++) add_winner(t, j, &rows->item[i]);
    for (size_t i = 0; i < built_in->count; i++) add_winner(t, j, &built_in->item[i]);
    bool says_why = !j->has_device && !r->settings.json && table_rows(t);
    print_or_json(r, t, "results", "no tuning results: 'quern tune SPEC' makes some, on a GPU");
    fflush(stdout);
    tune_rows_note(rows);
    if (says_why)
        command_note("counts here: '-' because this machine shows no GPU that results could count for ('quern doctor' "
                     "says why)");
}

int tune_list_results(tune_request *r)
{
    judge j = {.has_device = false};
    tune_rows rows = TUNE_ROWS_INIT, built_in = TUNE_ROWS_INIT;
    quern_status status = tune_rows_read(r, NULL, QN_TUNE_BEST, &rows);
    if (status == QUERN_OK) status = tune_rows_built_in(NULL, &built_in);
    if (status == QUERN_OK) {
        j.has_device = tune_device(r->ordinal, j.name, &j.device);
        list_rows(r, &j, &rows, &built_in);
    }
    tune_rows_fini(&rows);
    tune_rows_fini(&built_in);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
}

// ---- explain

static const table_column explain_columns[] = {
    {"sizes", "bucket", TABLE_TEXT, 0},     {"timed", "timed", TABLE_TEXT, 0},
    {"status", "status", TABLE_TEXT, 0},    {"us", "us", TABLE_REAL, 2},
    {"spread", "spread_us", TABLE_REAL, 2}, {"configuration", "configuration", TABLE_TEXT, 0},
    {"why", "note", TABLE_TEXT, 0},         {NULL, "device", TABLE_TEXT, 0},
    {NULL, "arch", TABLE_TEXT, 0},          {NULL, "counts", TABLE_TEXT, 0},
    {NULL, "table", TABLE_TEXT, 0},         {NULL, "left_out", TABLE_TEXT, 0},
};

static void add_trial(table *t, const judge *j, const tune_shown *shown)
{
    char use[96], status[64];
    const qn_tune_row *row = shown->row;
    snprintf(status, sizeof status, "%.40s%s", row->status, shown->used ? "" : ", left out");
    table_add(t, row->bucket, row->sizes, status, us_or_none(row->ns), us_or_none(row->spread_ns), row->config,
              shown->used ? row->note : shown->why, row->device.name, row->arch, use_of(j, shown, use, sizeof use),
              shown->table, shown->why);
}

// A line for each device that was tuned on, and each table.
static void print_heading(const judge *j, const tune_shown *shown)
{
    char use[96];
    const qn_tune_row *row = shown->row;
    const char *origin = is_built_in(shown) ? "built-in table: " : strcmp(shown->table, "sealed") ? "" : "sealed: ";
    command_print("%s%s, %s, CUDA %d driver, quern %s (%s)\n", origin, row->device.name, row->arch, row->device.driver,
                  row->library,
                  use_of(j, &(tune_shown){.row = row, .table = shown->table, .used = true}, use, sizeof use));
}

static bool is_same_heading(const tune_shown *a, const tune_shown *b)
{
    return qn_tune_same_device(&a->row->device, &b->row->device) && a->row->device.driver == b->row->device.driver &&
           !strcmp(a->row->library, b->row->library) && !strcmp(a->row->arch, b->row->arch) &&
           !strcmp(a->table, b->table);
}

static void explain_rows(const tune_request *r, const judge *j, const tune_rows *rows)
{
    for (size_t i = 0, next; i < rows->count; i = next) {
        table *t = table_create(explain_columns, QN_COUNT(explain_columns));
        for (next = i; next < rows->count && is_same_heading(&rows->item[i], &rows->item[next]); next++)
            add_trial(t, j, &rows->item[next]);
        if (i) printf("\n");
        print_heading(j, &rows->item[i]);
        print_or_json(r, t, "trials", "");
    }
}

static void explain_as_text(const tune_request *r, const judge *j, const char *spec, const tune_rows *rows,
                            const tune_rows *built_in)
{
    explain_rows(r, j, rows);
    if (rows->count && built_in->count) printf("\n");
    explain_rows(r, j, built_in);
    fflush(stdout);
    tune_rows_note(rows);
    if (built_in->count)
        command_note("the built-in table has winners alone; what else was tried is known only in the database where it "
                     "was tuned: 'quern tune' tries it here, on a GPU");
    else if (!rows->count)
        command_note("nothing is known of %s: 'quern tune' tries it, on a GPU", spec);
}

static quern_status plot_rows(const tune_request *r, const qn_family *family, const tune_rows *rows)
{
    qn_tune_list list = QN_TUNE_LIST_INIT;
    quern_status status = QUERN_OK;
    for (size_t i = 0; i < rows->count && status == QUERN_OK; i++)
        if (rows->item[i].used) status = qn_tune_list_add(&list, rows->item[i].row);
    if (status == QUERN_OK) status = tune_plot(r->plot, family, &list);
    qn_tune_list_fini(&list);
    return status;
}

static quern_status explain_all(tune_request *r, const spec_item *item, const tune_rows *rows,
                                const tune_rows *built_in)
{
    judge j = {.has_device = false};
    const qn_family *family;
    QN_TRY(qn_family_find(item->spec.base.family, &family));
    j.has_device = tune_device(r->ordinal, j.name, &j.device);
    if (r->settings.json) {
        table *t = table_create(explain_columns, QN_COUNT(explain_columns));
        for (size_t i = 0; i < rows->count; i++) add_trial(t, &j, &rows->item[i]);
        for (size_t i = 0; i < built_in->count; i++) add_trial(t, &j, &built_in->item[i]);
        print_or_json(r, t, "trials", "");
    } else {
        explain_as_text(r, &j, item->text, rows, built_in);
    }
    return r->plot ? plot_rows(r, family, rows) : QUERN_OK;
}

static quern_status explain_spec(tune_request *r, const spec_item *item)
{
    tune_rows rows = TUNE_ROWS_INIT, built_in = TUNE_ROWS_INIT;
    quern_status status = tune_rows_read(r, item->text, NULL, &rows);
    if (status == QUERN_OK) status = tune_rows_built_in(item->text, &built_in);
    if (status == QUERN_OK) status = explain_all(r, item, &rows, &built_in);
    tune_rows_fini(&rows);
    tune_rows_fini(&built_in);
    return status;
}

int tune_explain(tune_request *r)
{
    if (r->specs.count != 1) return command_usage("--explain takes one spec");
    quern_status status = explain_spec(r, &r->specs.item[0]);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
}

// ---- text files

// A table that is there is not given up for none at all.
static quern_status check_replaces(const tune_request *r, const char *file)
{
    struct stat at;
    if (stat(file, &at) || !S_ISREG(at.st_mode) || !at.st_size || output_is_stream(file)) return QUERN_OK;
    return qn_fail(QUERN_FILE_ERROR, "%s has no results to export: %s stays as it is",
                   r->file && *r->file ? r->file : "the database", file);
}

static quern_status write_table(const tune_request *r, const qn_tune_list *list, const char *file)
{
    qn_text text = QN_TEXT_INIT;
    qn_tune_text_write(list, &text);
    quern_status status = qn_text_check(&text);
    if (status == QUERN_OK && !strcmp(file, "-")) {
        fputs(qn_text_string(&text), stdout);
    } else if (status == QUERN_OK) {
        if (!list->count) status = check_replaces(r, file);
        if (status == QUERN_OK) status = output_text(file, qn_text_string(&text), text.length);
        if (status == QUERN_OK) command_print("%zu result%s to %s\n", list->count, list->count == 1 ? "" : "s", file);
    }
    qn_text_fini(&text);
    return status;
}

static const char *ranges(int64_t count)
{
    return count == 1 ? "range" : "ranges";
}

int tune_export(tune_request *r, const char *file)
{
    qn_tune_list all = QN_TUNE_LIST_INIT, good = QN_TUNE_LIST_INIT;
    qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
    quern_status status = tune_read(r, NULL, NULL, &all);
    tune_sort(&all);
    if (status == QUERN_OK) status = qn_tune_sift(&all, (int64_t)time(NULL), &taken, &good);
    if (status == QUERN_OK) status = write_table(r, &good, file);
    int exit_status = status == QUERN_OK ? COMMAND_OK : command_status(status);
    fflush(stdout);
    if (taken.left_out)
        exit_status =
            command_fail("%s: tuning results of %lld %s of sizes are not exported, for no import takes them; "
                         "the first: %s",
                         r->file, (long long)taken.left_out, ranges(taken.left_out), qn_text_string(&taken.first));
    qn_text_fini(&taken.first);
    qn_tune_list_fini(&good);
    qn_tune_list_fini(&all);
    return exit_status;
}

// A line for what this library cannot use: kept all the same, another version may.
static size_t count_stale(const qn_tune_list *list)
{
    size_t stale = 0;
    const char *why;
    for (size_t i = 0; i < list->count; i++)
        stale += !qn_tuned_is_current(&list->row[i], qn_tuned_library(), NULL, &why);
    return stale;
}

static void report_import(const qn_tune_list *list, int64_t kept, int64_t passed_over)
{
    size_t stale = count_stale(list);
    printf("%lld %s of sizes imported, %lld measured here at the same time or later and left as %s\n", (long long)kept,
           ranges(kept), (long long)passed_over, passed_over == 1 ? "it is" : "they are");
    if (stale)
        command_note("%zu result%s of another version of Quern than %s: kept, not used", stale,
                     stale == 1 ? " is" : "s are", qn_tuned_library());
}

// Ctrl-C ends it between two transactions.
int tune_import(tune_request *r, const char *file)
{
    qn_tune_list list = QN_TUNE_LIST_INIT;
    qn_text content = QN_TEXT_INIT;
    int64_t kept = 0, passed_over = 0;
    int exit_status = COMMAND_OK;
    quern_status status = qn_file_read(strcmp(file, "-") != 0 ? file : "/dev/stdin", &content);
    if (status == QUERN_OK)
        status = qn_tune_text_import(file, qn_text_string(&content), content.length, (int64_t)time(NULL), &list);
    if (status == QUERN_OK) status = qn_sqlite_tune_merge(&r->store, &list, &kept, &passed_over);
    if (status == QUERN_OK)
        report_import(&list, kept, passed_over);
    else if (status == QUERN_CANCELLED)
        exit_status =
            command_fail("interrupted: %lld %s of sizes imported, %lld left as they were here; import %s again "
                         "for the rest",
                         (long long)kept, ranges(kept), (long long)passed_over, file);
    else
        exit_status = command_status(status);
    qn_text_fini(&content);
    qn_tune_list_fini(&list);
    return exit_status;
}
