// SPDX-License-Identifier: Apache-2.0
// What `quern tune` does with results: list the winners, explain a spec, export and import text. Needs no GPU; with one,
// it also says which results count for it.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/path.h"
#include "runtime/tuned.h"
#include "table.h"
#include "tune.h"
#include "tune/export.h"

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

// "no: another version of Quern", "this device", "same architecture" …
static const char *use_of(const judge *j, const qn_tune_row *row, bool is_built_in, char *out, size_t bytes)
{
    const char *why = "";
    const qn_tune_device *here = j->has_device ? &j->device : NULL;
    if (!is_built_in && !qn_tuned_is_current(row, qn_tuned_library(), here, &why)) {
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
    return ns > 0 ? 1e-3 * ns : NAN;
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
};

static void add_winner(table *t, const judge *j, const qn_tune_row *row, bool is_built_in)
{
    char use[96];
    table_add(t, row->device.name, row->arch, row->spec, row->bucket, row->config, us_or_none(row->ns),
              us_or_none(row->spread_ns), use_of(j, row, is_built_in, use, sizeof use),
              is_built_in ? "built-in" : "database", row->sizes, (int64_t)row->device.sm_count,
              row->device.shared_bytes, row->device.l2_bytes, (int64_t)row->device.driver, row->library, row->created);
}

int tune_list_results(tune_request *r)
{
    judge j = {.has_device = false};
    qn_tune_list list = QN_TUNE_LIST_INIT;
    quern_status status = qn_sqlite_tune_read(&r->store, NULL, QN_TUNE_BEST, &list);
    if (status != QUERN_OK) return command_status(status);
    j.has_device = tune_device(r->ordinal, j.name, &j.device);
    table *t = table_create(list_columns, QN_COUNT(list_columns));
    for (size_t i = 0; i < list.count; i++) add_winner(t, &j, &list.row[i], false);
    for (size_t i = 0; i < qn_tuned_built_in_count; i++) add_winner(t, &j, &qn_tuned_built_in[i], true);
    qn_tune_list_fini(&list);
    bool says_why = !j.has_device && !r->settings.json && table_rows(t);
    print_or_json(r, t, "results", "no tuning results: 'quern tune SPEC' makes some, on a GPU");
    fflush(stdout);
    if (says_why)
        command_note("counts here: '-' because this machine shows no GPU that results could count for ('quern doctor' "
                     "says why)");
    return COMMAND_OK;
}

// ---- explain

static const table_column explain_columns[] = {
    {"sizes", "bucket", TABLE_TEXT, 0},     {"timed", "timed", TABLE_TEXT, 0},
    {"status", "status", TABLE_TEXT, 0},    {"us", "us", TABLE_REAL, 2},
    {"spread", "spread_us", TABLE_REAL, 2}, {"configuration", "configuration", TABLE_TEXT, 0},
    {"why", "note", TABLE_TEXT, 0},         {NULL, "device", TABLE_TEXT, 0},
    {NULL, "arch", TABLE_TEXT, 0},          {NULL, "counts", TABLE_TEXT, 0},
    {NULL, "table", TABLE_TEXT, 0},
};

static void add_trial(table *t, const judge *j, const qn_tune_row *row, bool is_built_in)
{
    char use[96];
    table_add(t, row->bucket, row->sizes, row->status, us_or_none(row->ns), us_or_none(row->spread_ns), row->config,
              row->note, row->device.name, row->arch, use_of(j, row, is_built_in, use, sizeof use),
              is_built_in ? "built-in" : "database");
}

// A line for each device that was tuned on.
static void print_heading(const judge *j, const qn_tune_row *row, bool is_built_in)
{
    char use[96];
    printf("%s%s, %s, CUDA %d driver, quern %s (%s)\n", is_built_in ? "built-in table: " : "", row->device.name,
           row->arch, row->device.driver, row->library, use_of(j, row, is_built_in, use, sizeof use));
}

static bool is_same_heading(const qn_tune_row *a, const qn_tune_row *b)
{
    return qn_tune_same_device(&a->device, &b->device) && a->device.driver == b->device.driver &&
           !strcmp(a->library, b->library) && !strcmp(a->arch, b->arch);
}

static void explain_rows(const tune_request *r, const judge *j, const qn_tune_list *list, bool is_built_in)
{
    for (size_t i = 0, next; i < list->count; i = next) {
        table *t = table_create(explain_columns, QN_COUNT(explain_columns));
        for (next = i; next < list->count && is_same_heading(&list->row[i], &list->row[next]); next++)
            add_trial(t, j, &list->row[next], is_built_in);
        if (i) printf("\n");
        print_heading(j, &list->row[i], is_built_in);
        print_or_json(r, t, "trials", "");
    }
}

static void explain_as_text(const tune_request *r, const judge *j, const char *spec, const qn_tune_list *list,
                            const qn_tune_list *built_in)
{
    explain_rows(r, j, list, false);
    if (list->count && built_in->count) printf("\n");
    explain_rows(r, j, built_in, true);
    fflush(stdout);
    if (built_in->count)
        command_note("the built-in table has winners alone; what else was tried is known only in the database where it "
                     "was tuned: 'quern tune' tries it here, on a GPU");
    else if (!list->count)
        command_note("nothing is known of %s: 'quern tune' tries it, on a GPU", spec);
}

static quern_status read_built_in(const char *spec, qn_tune_list *list)
{
    for (size_t i = 0; i < qn_tuned_built_in_count; i++)
        if (!strcmp(qn_tuned_built_in[i].spec, spec)) QN_TRY(qn_tune_list_add(list, &qn_tuned_built_in[i]));
    return QUERN_OK;
}

static quern_status explain_lists(tune_request *r, const spec_item *item, const qn_tune_list *list,
                                  const qn_tune_list *built_in)
{
    judge j = {.has_device = false};
    const qn_family *family;
    QN_TRY(qn_family_find(item->spec.base.family, &family));
    j.has_device = tune_device(r->ordinal, j.name, &j.device);
    if (r->settings.json) {
        table *t = table_create(explain_columns, QN_COUNT(explain_columns));
        for (size_t i = 0; i < list->count; i++) add_trial(t, &j, &list->row[i], false);
        for (size_t i = 0; i < built_in->count; i++) add_trial(t, &j, &built_in->row[i], true);
        print_or_json(r, t, "trials", "");
    } else {
        explain_as_text(r, &j, item->text, list, built_in);
    }
    if (r->plot && !list->count) command_note("%s is not written: there are no times of trials", r->plot);
    return r->plot && list->count ? tune_plot(r->plot, family, list) : QUERN_OK;
}

static quern_status explain_spec(tune_request *r, const spec_item *item)
{
    qn_tune_list list = QN_TUNE_LIST_INIT, built_in = QN_TUNE_LIST_INIT;
    quern_status status = qn_sqlite_tune_read(&r->store, item->text, NULL, &list);
    if (status == QUERN_OK) status = read_built_in(item->text, &built_in);
    if (status == QUERN_OK) status = explain_lists(r, item, &list, &built_in);
    qn_tune_list_fini(&list);
    qn_tune_list_fini(&built_in);
    return status;
}

int tune_explain(tune_request *r)
{
    if (r->specs.count != 1) return command_usage("--explain takes one spec");
    quern_status status = explain_spec(r, &r->specs.item[0]);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
}

// ---- text files

quern_status tune_write_file(const char *file, const qn_text *text)
{
    qn_text name = QN_TEXT_INIT;
    QN_TRY(qn_text_check(text));
    qn_text_putf(&name, "%s.new-%ld", file, (long)getpid());
    QN_TRY(qn_text_check(&name));
    FILE *out = fopen(name.bytes, "w");
    bool written = out && fwrite(qn_text_string(text), 1, text->length, out) == text->length;
    if (out && fclose(out) != 0) written = false;
    if (written && rename(name.bytes, file) != 0) written = false;
    int error = errno;
    if (!written && out) unlink(name.bytes);
    qn_text_fini(&name);
    return written ? QUERN_OK : qn_fail(QUERN_FILE_ERROR, "'%s' could not be written: %s", file, strerror(error));
}

int tune_export(tune_request *r, const char *file)
{
    qn_tune_list list = QN_TUNE_LIST_INIT;
    qn_text text = QN_TEXT_INIT;
    quern_status status = qn_sqlite_tune_read(&r->store, NULL, NULL, &list);
    qn_tune_text_write(&list, &text);
    if (status == QUERN_OK && !strcmp(file, "-"))
        fputs(qn_text_string(&text), stdout);
    else if (status == QUERN_OK)
        status = tune_write_file(file, &text);
    if (status == QUERN_OK && strcmp(file, "-")) printf("%zu results to %s\n", list.count, file);
    qn_text_fini(&text);
    qn_tune_list_fini(&list);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
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

int tune_import(tune_request *r, const char *file)
{
    qn_tune_list list = QN_TUNE_LIST_INIT;
    qn_text content = QN_TEXT_INIT;
    int64_t kept = 0, passed_over = 0;
    quern_status status = qn_file_read(file, &content);
    if (status == QUERN_OK)
        status = qn_tune_text_import(file, qn_text_string(&content), content.length, (int64_t)time(NULL), &list);
    if (status == QUERN_OK) status = qn_sqlite_tune_merge(&r->store, &list, &kept, &passed_over);
    if (status == QUERN_OK) {
        size_t stale = count_stale(&list);
        printf("%lld ranges of sizes imported, %lld were measured here at the same time or later and stay\n",
               (long long)kept, (long long)passed_over);
        if (stale)
            command_note("%zu results are of another version of Quern than %s: kept, not used", stale,
                         qn_tuned_library());
    }
    qn_text_fini(&content);
    qn_tune_list_fini(&list);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
}
