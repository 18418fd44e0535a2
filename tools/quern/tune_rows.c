// SPDX-License-Identifier: Apache-2.0
// The results that `quern tune` shows: of the database, of the sealed ones that $QUERN_SEALED names (prepare asks both),
// or of the table that comes with the library; in the order of their texts, with the numbers in these as numbers, so that
// ranges of sizes follow each other as sizes do. What prepare or an import leaves out is shown too, and marked.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/path.h"
#include "runtime/tuned.h"
#include "runtime/usable.h"
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

// The tables one after another, of the sealed ones each file.
static int compare_shown(const void *left, const void *right)
{
    const tune_shown *a = left, *b = right;
    int order = compare_heads(a->row, b->row);
    if (!order) order = strcmp(a->table, b->table);
    if (!order) order = compare_numbers(a->origin, b->origin);
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

// ---- judging, as prepare and the imports do

// winners: what qn_tune_one_winner says of the row's range. Sets shown->why and ->used.
static quern_status judge(quern_status winners, int64_t now, tune_shown *shown)
{
    char text[400];
    qn_message_mark mark;
    bool is_winner = !strcmp(shown->row->status, QN_TUNE_BEST);
    qn_message_save(&mark); // of two winners, if there are
    quern_status status = qn_tune_usable(shown->row, now);
    if (status == QUERN_OUT_OF_MEMORY) return status;
    if (status == QUERN_OK && (!is_winner || winners == QUERN_OK)) return QUERN_OK;
    if (status == QUERN_OK) qn_message_restore(&mark);
    snprintf(text, sizeof text, "%s", quern_message());
    qn_message_save(&mark);
    shown->used = winners == QUERN_OK && qn_tune_usable(shown->row, QN_TUNE_NO_CLOCK) == QUERN_OK;
    qn_message_restore(&mark);
    shown->why = qn_strdup(text);
    return shown->why ? QUERN_OK : qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: tuning results");
}

// Rows of one file, which come sorted by problem. They stay the caller's.
static quern_status show_list(const qn_tune_list *list, const char *table, int origin, tune_rows *rows)
{
    const int64_t now = (int64_t)time(NULL);
    tune_shown *item = realloc(rows->item, (rows->count + list->count + 1) * sizeof *item);
    if (!item) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: tuning results");
    rows->item = item;
    for (size_t i = 0, next; i < list->count; i = next) {
        next = qn_tune_next_problem(list->row, list->count, i);
        for (size_t at = i; at < next; at++) {
            quern_status winners = qn_tune_one_winner(&list->row[i], next - i);
            tune_shown *shown = &rows->item[rows->count++];
            *shown = (tune_shown){.row = &list->row[at], .table = table, .origin = origin, .used = true};
            QN_TRY(judge(winners, now, shown));
        }
    }
    return QUERN_OK;
}

// ---- all tables

// A file that was named before, or is the database itself, is shown once.
static bool is_same(const char *file, const char *other)
{
    struct stat one, two;
    return other && !stat(file, &one) && !stat(other, &two) && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

static quern_status read_all_sealed(char *names, const char *own, const char *spec, const char *status, tune_rows *rows)
{
    const char *files[TUNE_LISTS] = {own};
    char *rest = NULL;
    int count = 1;
    for (char *file = strtok_r(names, ":", &rest); file; file = strtok_r(NULL, ":", &rest)) {
        bool known = false;
        for (int i = 0; i < count && !known; i++) known = is_same(file, files[i]);
        if (known) continue;
        if (count == TUNE_LISTS)
            return qn_fail(QUERN_BAD_ARGUMENT, "$QUERN_SEALED: more than %d files", TUNE_LISTS - 1);
        files[count] = file;
        read_sealed(file, spec, status, &rows->list[count]);
        QN_TRY(show_list(&rows->list[count], "sealed", count, rows));
        count++;
    }
    return QUERN_OK;
}

quern_status tune_rows_read(tune_request *r, const char *spec, const char *status, tune_rows *rows)
{
    const char *sealed = qn_environment("QUERN_SEALED", false);
    QN_TRY(tune_read(r, spec, status, &rows->list[0]));
    QN_TRY(show_list(&rows->list[0], "database", 0, rows));
    if (sealed) {
        char *names = qn_strdup(sealed);
        if (!names) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: tuning results");
        quern_status result = read_all_sealed(names, r->has_store ? r->file : NULL, spec, status, rows);
        free(names);
        if (result != QUERN_OK) return result;
    }
    qsort(rows->item, rows->count, sizeof *rows->item, compare_shown);
    return QUERN_OK;
}

quern_status tune_rows_built_in(const char *spec, tune_rows *rows)
{
    rows->item = calloc(qn_tuned_built_in_count + 1, sizeof *rows->item);
    if (!rows->item) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: tuning results");
    for (size_t i = 0; i < qn_tuned_built_in_count; i++)
        if (!spec || !strcmp(qn_tuned_built_in[i].spec, spec))
            rows->item[rows->count++] = (tune_shown){.row = &qn_tuned_built_in[i], .table = "built-in", .used = true};
    qsort(rows->item, rows->count, sizeof *rows->item, compare_shown);
    return QUERN_OK;
}

void tune_rows_note(const tune_rows *rows)
{
    size_t out = 0, ahead = 0;
    const tune_shown *first = NULL;
    for (size_t i = 0; i < rows->count; i++) {
        const tune_shown *shown = &rows->item[i];
        if (!shown->why) continue;
        ++*(shown->used ? &ahead : &out);
        if (!first || (first->used && !shown->used)) first = shown;
    }
    if (!first) return;
    if (out)
        command_note("%zu result%s left out, by prepare and by imports; the first: \"%.200s\", %.100s: %s", out,
                     out == 1 ? " is" : "s are", first->row->spec, first->row->bucket, first->why);
    if (ahead)
        command_note("%zu result%s from after tomorrow by this machine's clock: used, and no import takes %s", ahead,
                     ahead == 1 ? " is" : "s are", ahead == 1 ? "it" : "them");
}

void tune_rows_fini(tune_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) free(rows->item[i].why);
    free(rows->item);
    for (size_t i = 0; i < QN_COUNT(rows->list); i++) qn_tune_list_fini(&rows->list[i]);
    *rows = (tune_rows)TUNE_ROWS_INIT;
}
