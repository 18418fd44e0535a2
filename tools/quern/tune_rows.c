// SPDX-License-Identifier: Apache-2.0
// The results that `quern tune` shows: of the database, of the sealed ones that $QUERN_SEALED names (prepare asks both),
// or of the table that comes with the library; in the order of their texts, with the numbers in these as numbers, so that
// ranges of sizes follow each other as sizes do.
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "runtime/tuned.h"
#include "tune.h"

enum { BUSY_MS = 5000 };

// ---- order

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// "rows 65..512" before "rows 513..1024", "K=8" before "K=50".
static int compare_texts(const char *a, const char *b)
{
    while (*a && *b) {
        if (!is_digit(*a) || !is_digit(*b)) {
            if (*a != *b) return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
            a++, b++;
            continue;
        }
        a += strspn(a, "0"), b += strspn(b, "0");
        size_t length = strspn(a, "0123456789"), other = strspn(b, "0123456789");
        int order = length != other ? (length < other ? -1 : 1) : strncmp(a, b, length);
        if (order) return order;
        a += length, b += other;
    }
    return (*a != 0) - (*b != 0);
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_devices(const qn_tune_device *a, const qn_tune_device *b)
{
    int order = compare_texts(a->name, b->name);
    if (!order) order = compare_numbers(a->cc, b->cc);
    if (!order) order = compare_numbers(a->sm_count, b->sm_count);
    if (!order) order = compare_numbers(a->shared_bytes, b->shared_bytes);
    if (!order) order = compare_numbers(a->l2_bytes, b->l2_bytes);
    return order ? order : compare_numbers(a->driver, b->driver);
}

// As texts are read, then byte by byte: "08" and "8" are two.
static int compare_exactly(const char *a, const char *b)
{
    int order = compare_texts(a, b);
    return order ? order : strcmp(a, b);
}

// What a heading of results says, and the spec.
static int compare_heads(const qn_tune_row *a, const qn_tune_row *b)
{
    int order = compare_devices(&a->device, &b->device);
    if (!order) order = compare_exactly(a->library, b->library);
    if (!order) order = compare_exactly(a->arch, b->arch);
    return order ? order : compare_exactly(a->spec, b->spec);
}

// By problem; in it the winner first, then by time, what was not timed last.
static int compare_rows(const void *left, const void *right)
{
    const qn_tune_row *a = left, *b = right;
    int order = compare_heads(a, b);
    if (!order) order = compare_exactly(a->bucket, b->bucket);
    if (!order) order = !!strcmp(a->status, QN_TUNE_BEST) - !!strcmp(b->status, QN_TUNE_BEST);
    if (!order) order = (a->ns <= 0) - (b->ns <= 0);
    if (!order) order = (a->ns > b->ns) - (a->ns < b->ns);
    return order ? order : compare_texts(a->config, b->config);
}

void tune_sort(qn_tune_list *list)
{
    if (list->count) qsort(list->row, list->count, sizeof *list->row, compare_rows);
}

// The tables one after another.
static int compare_shown(const void *left, const void *right)
{
    const tune_shown *a = left, *b = right;
    int order = compare_heads(a->row, b->row);
    if (!order) order = strcmp(a->table, b->table);
    if (!order) order = compare_rows(a->row, b->row);
    return order ? order : (a->row > b->row) - (a->row < b->row);
}

// ---- reading

quern_status tune_read(tune_request *r, const char *spec, const char *status, qn_tune_list *list)
{
    return r->has_store ? qn_sqlite_tune_read(&r->store, spec, status, list) : QUERN_OK;
}

// One that cannot be read is told, and keeps nobody from seeing the others: so it is with prepare.
static void read_sealed(const char *file, const char *spec, const char *status, qn_tune_list *list)
{
    quern_store store;
    const qn_sqlite_options options = {
        .file = file, .access = QN_SQLITE_READ_ONLY, .busy_timeout_ms = BUSY_MS, .cap_bytes = -1};
    if (!qn_file_exists(file)) {
        command_note("$QUERN_SEALED: %s: there is no such database", file);
        return;
    }
    quern_status result = qn_sqlite_open(&options, &store);
    if (result == QUERN_OK) {
        result = qn_sqlite_probe(&store);
        if (result == QUERN_OK) result = qn_sqlite_tune_read(&store, spec, status, list);
        qn_sqlite_close(&store);
    }
    if (result != QUERN_OK) command_note("$QUERN_SEALED: %s", quern_message());
}

static void read_all_sealed(const char *spec, const char *status, qn_tune_list *list)
{
    for (const char *at = qn_environment("QUERN_SEALED", false); at && *at;) {
        size_t length = strcspn(at, ":");
        char *file = length ? strndup(at, length) : NULL;
        if (file) read_sealed(file, spec, status, list);
        free(file);
        at += length + (at[length] == ':');
    }
}

static void show(tune_rows *rows, const qn_tune_row *row, const char *table)
{
    rows->item[rows->count++] = (tune_shown){row, table};
}

quern_status tune_rows_read(tune_request *r, const char *spec, const char *status, tune_rows *rows)
{
    QN_TRY(tune_read(r, spec, status, &rows->own));
    read_all_sealed(spec, status, &rows->sealed);
    rows->item = calloc(rows->own.count + rows->sealed.count + 1, sizeof *rows->item);
    if (!rows->item) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: tuning results");
    for (size_t i = 0; i < rows->own.count; i++) show(rows, &rows->own.row[i], "database");
    for (size_t i = 0; i < rows->sealed.count; i++) show(rows, &rows->sealed.row[i], "sealed");
    qsort(rows->item, rows->count, sizeof *rows->item, compare_shown);
    return QUERN_OK;
}

quern_status tune_rows_built_in(const char *spec, tune_rows *rows)
{
    rows->item = calloc(qn_tuned_built_in_count + 1, sizeof *rows->item);
    if (!rows->item) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: tuning results");
    for (size_t i = 0; i < qn_tuned_built_in_count; i++)
        if (!spec || !strcmp(qn_tuned_built_in[i].spec, spec)) show(rows, &qn_tuned_built_in[i], "built-in");
    qsort(rows->item, rows->count, sizeof *rows->item, compare_shown);
    return QUERN_OK;
}

void tune_rows_fini(tune_rows *rows)
{
    free(rows->item);
    qn_tune_list_fini(&rows->own);
    qn_tune_list_fini(&rows->sealed);
    *rows = (tune_rows)TUNE_ROWS_INIT;
}
