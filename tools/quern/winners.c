// SPDX-License-Identifier: Apache-2.0
// `quern run --show`: the first winners of the first rows, with their words (run.h).
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "run.h"

static table_column columns[6]; // of the last table, which they must outlive

// The words of a tokens file, found by number. Lines are "id<TAB>JSON string"; others (a title) are passed over.
typedef struct words {
    qn_text content; // split into lines in place
    struct word {
        int64_t id;
        const char *json;
    } * item;
    size_t count, capacity;
} words;

static int by_id(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static quern_status add_line(words *w, char *line)
{
    char *tab = strchr(line, '\t');
    int64_t id;
    if (tab) *tab = 0;
    if (!tab || !qn_parse_int(line, &id)) return QUERN_OK;
    if (w->count == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 256;
        struct word *item = realloc(w->item, capacity * sizeof *item);
        if (!item) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
        w->item = item, w->capacity = capacity;
    }
    w->item[w->count++] = (struct word){id, tab + 1};
    return QUERN_OK;
}

static quern_status read_words(const char *file, words *w)
{
    QN_TRY(qn_file_read(file, &w->content));
    char *rest = w->content.bytes;
    for (char *line; rest && (line = strsep(&rest, "\n"));) {
        line[strcspn(line, "\r")] = 0;
        QN_TRY(add_line(w, line));
    }
    if (w->count == 0) return qn_fail(QUERN_BAD_FILE, "%s: no line is 'number<TAB>JSON string'", file);
    qsort(w->item, w->count, sizeof *w->item, by_id);
    return QUERN_OK;
}

static const char *find_word(const words *w, int64_t id)
{
    const struct word key = {id, NULL};
    const struct word *found = w->count ? bsearch(&key, w->item, w->count, sizeof key, by_id) : NULL;
    return found ? found->json : NULL;
}

static bool has_control(const char *text)
{
    while (*text && !command_is_control(*text)) text++;
    return *text;
}

static void add_winner(table *t, const words *w, const bound_tensor *ids, const bound_tensor *values, size_t index)
{
    size_t width = (size_t)ids->shape.extent[1];
    int64_t id = arrays_int(ids->dtype, ids->data, index);
    const char *json = find_word(w, id);
    cJSON *parsed = json ? cJSON_Parse(json) : NULL;
    const char *word = cJSON_GetStringValue(parsed);
    if (!word || has_control(json)) json = word = NULL; // no JSON string: not for a terminal
    int64_t row = (int64_t)(index / width), place = (int64_t)(index % width);
    if (values)
        table_add(t, row, place, id, arrays_real(values->dtype, values->data, index), json, word);
    else
        table_add(t, row, place, id, json, word);
    cJSON_Delete(parsed);
}

// The tensors' own names are titles. values: NULL where the spec has none. Returns how many columns there are.
static size_t set_titles(const bound_tensor *ids, const bound_tensor *values, bool has_words)
{
    size_t count = 0;
    columns[count++] = (table_column){"row", "row", TABLE_INT, 0};
    columns[count++] = (table_column){"place", "place", TABLE_INT, 0};
    columns[count++] = (table_column){ids->tensor->name, ids->tensor->name, TABLE_INT, 0};
    if (values) columns[count++] = (table_column){values->tensor->name, values->tensor->name, TABLE_VALUE, 6};
    if (!has_words) return count;
    columns[count++] = (table_column){"word", NULL, TABLE_TEXT, 0};
    columns[count++] = (table_column){NULL, "word", TABLE_TEXT, 0};
    return count;
}

quern_status winners_list(const arrays *a, const winners_request *request, table **out)
{
    const bound_tensor *ids = arrays_winners(a), *values = arrays_values(a);
    words w = {QN_TEXT_INIT, NULL, 0, 0};
    if (!ids) return qn_fail(QUERN_UNSUPPORTED, "--show: '%s' has no winners to show", a->spec_text);
    if (values && ids->shape.extent[1] != values->shape.extent[1]) values = NULL; // of something else
    quern_status status = request->tokens ? read_words(request->tokens, &w) : QUERN_OK;
    if (status == QUERN_OK) {
        size_t count = set_titles(ids, values, request->tokens != NULL);
        *out = table_create(columns, count);
        int64_t rows = request->rows < ids->shape.extent[0] ? request->rows : ids->shape.extent[0];
        int64_t top = request->top < ids->shape.extent[1] ? request->top : ids->shape.extent[1];
        for (int64_t i = 0; i < rows * top; i++)
            add_winner(*out, &w, ids, values, (size_t)(i / top * ids->shape.extent[1] + i % top));
    }
    free(w.item);
    qn_text_fini(&w.content);
    return status;
}
