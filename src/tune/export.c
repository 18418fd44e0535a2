// SPDX-License-Identifier: Apache-2.0
// The text form of tuning results (export.h).
#include "tune/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/usable.h"

static const char magic[] = "quern-tune ";
enum { FIELDS = 17, MAX_LINE = 16384 };

// ---- writing

void qn_tune_text_write(const qn_tune_list *list, qn_text *text)
{
    qn_text_putf(text, "%s%d\n", magic, QN_TUNE_TEXT_VERSION);
    qn_text_puts(text, "# device\tcc\tsms\tshared\tl2\tdriver\tlibrary\tarch\tspec\tbucket\tsizes\tconfig\tstatus\tns\t"
                       "spread_ns\tcreated\tnote\n");
    for (size_t i = 0; i < list->count; i++) {
        const qn_tune_row *r = &list->row[i];
        const qn_tune_device *d = &r->device;
        qn_text_putf(text, "%s\t%d\t%d\t%lld\t%lld\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", d->name, d->cc, d->sm_count,
                     (long long)d->shared_bytes, (long long)d->l2_bytes, d->driver, r->library, r->arch, r->spec,
                     r->bucket, r->sizes, r->config, r->status);
        qn_text_put_real(text, r->ns);
        qn_text_puts(text, "\t");
        qn_text_put_real(text, r->spread_ns);
        qn_text_putf(text, "\t%lld\t%s\n", (long long)r->created, r->note);
    }
}

// ---- reading

typedef struct place {
    const char *name;
    size_t line;
    size_t *lines;      // of the list's rows
    const int64_t *now; // NULL: rows are judged by their form alone
} place;

static quern_status bad_field(const place *at, const char *field, const char *value, const char *wanted)
{
    return qn_fail(QUERN_BAD_FILE, "%s:%zu: %s = '%.64s': %s is needed", at->name, at->line, field, value, wanted);
}

static quern_status read_int(const place *at, const char *field, const char *value, int64_t max, int64_t *number)
{
    if (qn_parse_int(value, number) && *number >= 0 && *number <= max) return QUERN_OK;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a whole number from 0 to %lld", (long long)max);
    return bad_field(at, field, value, wanted);
}

static quern_status read_time(const place *at, const char *field, const char *value, double *number)
{
    return qn_parse_real(value, number) ? QUERN_OK : bad_field(at, field, value, "a number");
}

// Cuts a line at its tabs. Returns how many fields it has; those beyond FIELDS are counted and not kept.
static size_t cut(char *line, char *field[FIELDS])
{
    size_t count = 0;
    for (char *at = line; at; count++) {
        char *tab = strchr(at, '\t');
        if (tab) *tab = 0;
        if (count < FIELDS) field[count] = at;
        at = tab ? tab + 1 : NULL;
    }
    return count;
}

static quern_status read_row(const place *at, char *line, qn_tune_list *list)
{
    static char nothing[] = "";
    char *f[FIELDS];
    int64_t cc, sms, shared, l2, driver, created;
    qn_tune_row row;
    size_t count = cut(line, f);
    if (count == FIELDS - 1) f[count++] = nothing;
    if (count != FIELDS)
        return qn_fail(QUERN_BAD_FILE, "%s:%zu: the line has %zu fields, %d are needed (separated by tabs)", at->name,
                       at->line, count, FIELDS);
    QN_TRY(read_int(at, "cc", f[1], INT32_MAX, &cc));
    QN_TRY(read_int(at, "sms", f[2], INT32_MAX, &sms));
    QN_TRY(read_int(at, "shared", f[3], INT64_MAX, &shared));
    QN_TRY(read_int(at, "l2", f[4], INT64_MAX, &l2));
    QN_TRY(read_int(at, "driver", f[5], INT32_MAX, &driver));
    QN_TRY(read_int(at, "created", f[15], INT64_MAX, &created));
    row = (qn_tune_row){.device = {f[0], (int32_t)cc, (int32_t)sms, shared, l2, (int32_t)driver},
                        .library = f[6],
                        .arch = f[7],
                        .spec = f[8],
                        .bucket = f[9],
                        .sizes = f[10],
                        .config = f[11],
                        .status = f[12],
                        .note = f[16],
                        .created = created};
    QN_TRY(read_time(at, "ns", f[13], &row.ns));
    QN_TRY(read_time(at, "spread_ns", f[14], &row.spread_ns));
    quern_status status = qn_tune_check(&row);
    if (status == QUERN_OK && at->now) status = qn_tune_usable(&row, *at->now);
    if (status == QUERN_OUT_OF_MEMORY) return status;
    if (status != QUERN_OK) return qn_fail_in(QUERN_BAD_FILE, "%s:%zu", at->name, at->line);
    at->lines[list->count] = at->line;
    return qn_tune_list_add(list, &row);
}

static quern_status read_header(const place *at, const char *line)
{
    int64_t version;
    size_t length = sizeof magic - 1;
    if (strncmp(line, magic, length) || !qn_parse_int(line + length, &version) || version < 1)
        return qn_fail(QUERN_BAD_FILE,
                       "%s: is not a table of tuning results: its first line is '%.40s', '%s%d' is needed", at->name,
                       line, magic, QN_TUNE_TEXT_VERSION);
    if (version > QN_TUNE_TEXT_VERSION)
        return qn_fail(QUERN_BAD_FILE, "%s: has version %lld of the format, this Quern reads version %d", at->name,
                       (long long)version, QN_TUNE_TEXT_VERSION);
    return QUERN_OK;
}

static quern_status read_line(const place *at, const char *bytes, size_t count, qn_tune_list *list)
{
    char line[MAX_LINE];
    if (count && bytes[count - 1] == '\r') count--;
    if (count >= sizeof line || memchr(bytes, 0, count))
        return qn_fail(QUERN_BAD_FILE, "%s:%zu: a line of %zu bytes%s: is this a text file?", at->name, at->line, count,
                       count >= sizeof line ? "" : " with a zero byte");
    memcpy(line, bytes, count);
    line[count] = 0;
    if (at->line == 1) return read_header(at, line);
    return !*line || *line == '#' ? QUERN_OK : read_row(at, line, list);
}

static quern_status read_lines(const char *name, const char *bytes, size_t count, const int64_t *now, size_t *lines,
                               qn_tune_list *list)
{
    static const char mark[] = "\xEF\xBB\xBF"; // some editors begin UTF-8 with it
    place at = {name, 0, lines, now};
    if (count >= 3 && !memcmp(bytes, mark, 3)) bytes += 3, count -= 3;
    if (!count) return read_header(&at, "");
    for (size_t begin = 0; begin < count;) {
        const char *end = memchr(bytes + begin, '\n', count - begin);
        size_t length = end ? (size_t)(end - bytes) - begin : count - begin;
        at.line++;
        QN_TRY(read_line(&at, bytes + begin, length, list));
        begin += length + 1;
    }
    return QUERN_OK;
}

// ---- problems: at most one winner in each, and no configuration twice

typedef struct numbered {
    const qn_tune_row *row;
    size_t line;
} numbered;

static int by_config(const void *left, const void *right)
{
    const numbered *a = left, *b = right;
    int order = qn_tune_compare_problems(a->row, b->row);
    if (!order) order = strcmp(a->row->config, b->row->config);
    return order ? order : (a->line > b->line) - (a->line < b->line);
}

static quern_status twice(const char *name, const numbered *one, const numbered *other, const char *what)
{
    bool later = one->line > other->line;
    const numbered *first = later ? other : one, *second = later ? one : other;
    return qn_fail(QUERN_BAD_FILE, "%s:%zu: \"%.200s\", %s has %s in line %zu already", name, second->line,
                   second->row->spec, second->row->bucket, what, first->line);
}

static quern_status check_sorted(const char *name, const numbered *rows, size_t count)
{
    const numbered *best = NULL;
    for (size_t i = 0; i < count; i++) {
        bool same = i > 0 && !qn_tune_compare_problems(rows[i - 1].row, rows[i].row);
        if (!same) best = NULL;
        if (same && !strcmp(rows[i - 1].row->config, rows[i].row->config))
            return twice(name, &rows[i - 1], &rows[i], "this configuration");
        if (strcmp(rows[i].row->status, QN_TUNE_BEST)) continue;
        if (best) return twice(name, best, &rows[i], "a row of the status best");
        best = &rows[i];
    }
    return QUERN_OK;
}

static quern_status check_problems(const char *name, const qn_tune_list *list, const size_t *lines)
{
    numbered *rows = calloc(list->count + 1, sizeof *rows);
    if (!rows) return qn_fail(QUERN_OUT_OF_MEMORY, "%s: no memory for %zu results", name, list->count);
    for (size_t i = 0; i < list->count; i++) rows[i] = (numbered){&list->row[i], lines[i]};
    qsort(rows, list->count, sizeof *rows, by_config);
    quern_status status = check_sorted(name, rows, list->count);
    free(rows);
    return status;
}

static quern_status read_text(const char *name, const char *bytes, size_t count, const int64_t *now, qn_tune_list *list)
{
    qn_tune_list read = QN_TUNE_LIST_INIT;
    size_t ends = 1;
    for (size_t i = 0; i < count; i++) ends += bytes[i] == '\n';
    size_t *lines = calloc(ends, sizeof *lines);
    if (!lines) return qn_fail(QUERN_OUT_OF_MEMORY, "%s: no memory for %zu lines", name, ends);
    quern_status status = read_lines(name, bytes, count, now, lines, &read);
    if (status == QUERN_OK && now) status = check_problems(name, &read, lines);
    free(lines);
    for (size_t i = 0; i < read.count && status == QUERN_OK; i++) status = qn_tune_list_add(list, &read.row[i]);
    qn_tune_list_fini(&read);
    return status;
}

quern_status qn_tune_text_read(const char *name, const char *bytes, size_t count, qn_tune_list *list)
{
    return read_text(name, bytes, count, NULL, list);
}

quern_status qn_tune_text_import(const char *name, const char *bytes, size_t count, int64_t now, qn_tune_list *list)
{
    return read_text(name, bytes, count, &now, list);
}
