// SPDX-License-Identifier: Apache-2.0
// Tables for people and for scripts (table.h). Cells are kept as text, formatted once; JSON is made of typed values.
#include "table.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { TABLE_MAX_COLUMNS = 24 };

typedef struct cell {
    char *text; // NULL: not known
    double number;
} cell;

struct table {
    const table_column *columns;
    size_t column_count;
    cell *cells;
    size_t rows, capacity;
};

// The command's own tables are small: running out of memory while one is made ends in a plain message, not a crash.
static void *need(void *memory)
{
    if (memory) return memory;
    fputs("quern: out of memory\n", stderr);
    exit(1);
}

table *table_create(const table_column *columns, size_t count)
{
    table *t = need(calloc(1, sizeof *t));
    t->columns = columns;
    t->column_count = count;
    return t;
}

void table_destroy(table *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->rows * t->column_count; i++) free(t->cells[i].text);
    free(t->cells);
    free(t);
}

size_t table_rows(const table *t)
{
    return t->rows;
}

static void grow(table *t)
{
    if (t->rows < t->capacity) return;
    t->capacity = t->capacity ? 2 * t->capacity : 16;
    t->cells = need(realloc(t->cells, t->capacity * t->column_count * sizeof *t->cells));
}

static cell text_cell(const char *text)
{
    cell made = {text ? need(strdup(text)) : NULL, 0};
    if (made.text) qn_make_printable(made.text);
    return made;
}

static cell real_cell(double value, int decimals)
{
    char text[64];
    if (isnan(value)) return text_cell(NULL);
    snprintf(text, sizeof text, "%.*f", decimals, value);
    cell made = text_cell(text);
    made.number = value;
    return made;
}

static cell value_cell(double value, int decimals)
{
    if (!isnan(value)) return real_cell(value, decimals);
    cell made = text_cell("nan"); // of either sign
    made.number = value;
    return made;
}

static cell int_cell(int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    cell made = text_cell(text);
    made.number = (double)value;
    return made;
}

void table_add(table *t, ...)
{
    grow(t);
    cell *row = t->cells + t->rows * t->column_count;
    va_list list;
    va_start(list, t);
    for (size_t c = 0; c < t->column_count; c++) {
        switch (t->columns[c].kind) {
        case TABLE_TEXT:
        case TABLE_JSON:
            row[c] = text_cell(va_arg(list, const char *));
            break;
        case TABLE_INT:
            row[c] = int_cell(va_arg(list, int64_t));
            break;
        case TABLE_REAL:
            row[c] = real_cell(va_arg(list, double), t->columns[c].decimals);
            break;
        case TABLE_VALUE:
            row[c] = value_cell(va_arg(list, double), t->columns[c].decimals);
            break;
        }
    }
    va_end(list);
    t->rows++;
}

// Columns on a screen, for UTF-8: bytes that do not continue a character.
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++) width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static const char *shown(const cell *c)
{
    return c->text ? c->text : "-";
}

static size_t column_width(const table *t, size_t column)
{
    size_t width = width_of(t->columns[column].title);
    for (size_t r = 0; r < t->rows; r++) {
        size_t w = width_of(shown(&t->cells[r * t->column_count + column]));
        width = w > width ? w : width;
    }
    return width;
}

// A column that nothing is known of in any row is left out.
static bool is_shown(const table *t, size_t column)
{
    bool known = false;
    for (size_t r = 0; r < t->rows && !known; r++) known = t->cells[r * t->column_count + column].text != NULL;
    return known && t->columns[column].title;
}

// Numbers to the right, text to the left, no blanks at the end of a line.
static void print_cell(const char *text, size_t width, bool right, bool last)
{
    size_t pad = width - width_of(text);
    if (right) printf("%*s", (int)pad, "");
    fputs(text, stdout);
    if (!right && !last) printf("%*s", (int)pad, "");
    fputs(last ? "\n" : "  ", stdout);
}

static bool is_number(table_kind kind)
{
    return kind == TABLE_INT || kind == TABLE_REAL || kind == TABLE_VALUE;
}

// widths: 0 for a column that is not shown
static void print_line(const table *t, const size_t *widths, const cell *row)
{
    size_t last = 0;
    for (size_t c = 0; c < t->column_count; c++)
        if (widths[c]) last = c;
    for (size_t c = 0; c < t->column_count; c++)
        if (widths[c])
            print_cell(row ? shown(&row[c]) : t->columns[c].title, widths[c], is_number(t->columns[c].kind), c == last);
}

void table_print(const table *t)
{
    size_t widths[TABLE_MAX_COLUMNS] = {0};
    if (t->rows == 0 || t->column_count > TABLE_MAX_COLUMNS) return;
    for (size_t c = 0; c < t->column_count; c++)
        if (is_shown(t, c)) widths[c] = column_width(t, c);
    print_line(t, widths, NULL);
    for (size_t r = 0; r < t->rows; r++) print_line(t, widths, t->cells + r * t->column_count);
}

static cJSON *cell_json(const cell *c, table_kind kind)
{
    if (!c->text) return cJSON_CreateNull();
    if (is_number(kind) && !(kind == TABLE_VALUE && !isfinite(c->number))) return cJSON_CreateNumber(c->number);
    cJSON *json = kind == TABLE_JSON ? cJSON_Parse(c->text) : NULL;
    return json ? json : cJSON_CreateString(c->text);
}

cJSON *table_json(const table *t)
{
    cJSON *array = need(cJSON_CreateArray());
    for (size_t r = 0; r < t->rows; r++) {
        cJSON *object = need(cJSON_CreateObject());
        for (size_t c = 0; c < t->column_count; c++)
            if (t->columns[c].key)
                cJSON_AddItemToObject(object, t->columns[c].key,
                                      need(cell_json(&t->cells[r * t->column_count + c], t->columns[c].kind)));
        cJSON_AddItemToArray(array, object);
    }
    return array;
}

void json_print(cJSON *document)
{
    char *text = need(cJSON_Print(document));
    qn_make_printable(text); // names of files may be no UTF-8
    puts(text);
    cJSON_free(text);
    cJSON_Delete(document);
}
