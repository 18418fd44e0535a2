// SPDX-License-Identifier: Apache-2.0
// Rows of the tuning table in memory: checking, comparing, lists of them. Called by every user of cache/tune.h.
#include "cache/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 8 };

// Every text of a row, in one order; the last may be empty, and so may sizes.
static void texts_of(const qn_tune_row *row, const char *texts[TEXTS + 1])
{
    const char *const all[TEXTS + 1] = {row->device.name, row->library, row->arch,  row->spec, row->bucket,
                                        row->config,      row->status,  row->sizes, row->note};
    memcpy(texts, all, sizeof all);
}

static const char *const text_names[TEXTS + 1] = {"device", "library", "arch",  "spec", "bucket",
                                                  "config", "status",  "sizes", "note"};

static quern_status check_text(const char *name, const char *text, bool may_be_empty)
{
    if (!text) text = "";
    if (!*text && !may_be_empty) return qn_fail(QUERN_BAD_ARGUMENT, "%s is empty", name);
    size_t length = strlen(text);
    if (length > QN_TUNE_MAX_TEXT)
        return qn_fail(QUERN_BAD_ARGUMENT, "%s has more than the %d bytes that are allowed", name, QN_TUNE_MAX_TEXT);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F)
            return qn_fail(QUERN_BAD_ARGUMENT, "%s has a control character (%d) at byte %zu", name,
                           (unsigned char)text[i], i);
    return QUERN_OK;
}

static quern_status check_number(const char *name, int64_t value, int64_t min, int64_t max)
{
    if (value >= min && value <= max) return QUERN_OK;
    return qn_fail(QUERN_BAD_ARGUMENT, "%s = %lld: %lld … %lld is allowed", name, (long long)value, (long long)min,
                   (long long)max);
}

static quern_status check_time(const char *name, double ns)
{
    if (isfinite(ns) && ns >= 0 && ns < 1e15) return QUERN_OK;
    return qn_fail(QUERN_BAD_ARGUMENT, "%s is not a time in nanoseconds: 0 … 10^15 is allowed", name);
}

quern_status qn_tune_check(const qn_tune_row *row)
{
    const qn_tune_device *d = &row->device;
    const char *texts[TEXTS + 1];

    texts_of(row, texts);
    for (int i = 0; i <= TEXTS; i++) QN_TRY(check_text(text_names[i], texts[i], i >= TEXTS - 1));
    QN_TRY(check_number("cc", d->cc, 10, 9999));
    QN_TRY(check_number("sms", d->sm_count, 1, 1 << 20));
    QN_TRY(check_number("shared", d->shared_bytes, 0, (int64_t)1 << 40));
    QN_TRY(check_number("l2", d->l2_bytes, 0, (int64_t)1 << 50));
    QN_TRY(check_number("driver", d->driver, 1, 9999));
    QN_TRY(check_number("created", row->created, 0, (int64_t)1 << 50));
    QN_TRY(check_time("ns", row->ns));
    return check_time("spread_ns", row->spread_ns);
}

bool qn_tune_same_device(const qn_tune_device *a, const qn_tune_device *b)
{
    return a->cc == b->cc && a->sm_count == b->sm_count && a->shared_bytes == b->shared_bytes &&
           a->l2_bytes == b->l2_bytes && !strcmp(a->name, b->name);
}

bool qn_tune_same_problem(const qn_tune_row *a, const qn_tune_row *b)
{
    return qn_tune_same_device(&a->device, &b->device) && a->device.driver == b->device.driver &&
           !strcmp(a->library, b->library) && !strcmp(a->arch, b->arch) && !strcmp(a->spec, b->spec) &&
           !strcmp(a->bucket, b->bucket);
}

size_t qn_tune_next_problem(const qn_tune_row *rows, size_t count, size_t at)
{
    size_t next = at + 1;
    while (next < count && qn_tune_same_problem(&rows[at], &rows[next])) next++;
    return next;
}

int qn_tune_compare_problems(const qn_tune_row *a, const qn_tune_row *b)
{
    const char *const texts[][2] = {{a->device.name, b->device.name},
                                    {a->library, b->library},
                                    {a->arch, b->arch},
                                    {a->spec, b->spec},
                                    {a->bucket, b->bucket}};
    const int64_t numbers[][2] = {{a->device.cc, b->device.cc},
                                  {a->device.sm_count, b->device.sm_count},
                                  {a->device.shared_bytes, b->device.shared_bytes},
                                  {a->device.l2_bytes, b->device.l2_bytes},
                                  {a->device.driver, b->device.driver}};
    int order = 0;

    for (size_t i = 0; i < QN_COUNT(texts) && !order; i++) order = strcmp(texts[i][0], texts[i][1]);
    for (size_t i = 0; i < QN_COUNT(numbers) && !order; i++)
        order = (numbers[i][0] > numbers[i][1]) - (numbers[i][0] < numbers[i][1]);
    return order;
}

// ---- lists

static bool grow(qn_tune_list *list)
{
    if (list->count < list->capacity) return true;
    size_t capacity = list->capacity ? 2 * list->capacity : 32;
    qn_tune_row *row = realloc(list->row, capacity * sizeof *row);
    if (!row) return false;
    list->row = row, list->capacity = capacity;
    return true;
}

// All strings in one piece of memory, which device.name begins.
quern_status qn_tune_list_add(qn_tune_list *list, const qn_tune_row *row)
{
    const char *texts[TEXTS + 1];
    size_t bytes = 0;

    texts_of(row, texts);
    for (int i = 0; i <= TEXTS; i++) bytes += (texts[i] ? strlen(texts[i]) : 0) + 1;
    char *memory = grow(list) ? malloc(bytes) : NULL;
    if (!memory) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a tuning result");
    for (int i = 0; i <= TEXTS; i++) {
        const char *text = texts[i] ? texts[i] : "";
        texts[i] = memory;
        memory = stpcpy(memory, text) + 1;
    }
    qn_tune_row *to = &list->row[list->count++];
    *to = *row;
    to->device.name = texts[0], to->library = texts[1], to->arch = texts[2], to->spec = texts[3], to->bucket = texts[4];
    to->config = texts[5], to->status = texts[6], to->sizes = texts[7], to->note = texts[8];
    return QUERN_OK;
}

void qn_tune_list_fini(qn_tune_list *list)
{
    for (size_t i = 0; i < list->count; i++) free((void *)(uintptr_t)list->row[i].device.name);
    free(list->row);
    *list = (qn_tune_list)QN_TUNE_LIST_INIT;
}
