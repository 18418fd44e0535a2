// SPDX-License-Identifier: Apache-2.0
// Lists of specs and their ranges of sizes; one spec a line (specs.h).
#include "specs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/key.h"
#include "base/nearest.h"
#include "base/path.h"
#include "ops/field.h"

quern_status spec_list_add_text(spec_list *list, const char *text)
{
    spec_item item = {.narrowed = 0};
    QN_TRY(quern_spec_parse(text, &item.spec));
    QN_TRY(quern_spec_format(&item.spec.base, item.text, sizeof item.text));
    QN_TRY(qn_family_find(item.spec.base.family, &item.family));
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        spec_item *grown = realloc(list->item, capacity * sizeof *grown);
        if (!grown) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
        list->item = grown, list->capacity = capacity;
    }
    list->item[list->count++] = item;
    return QUERN_OK;
}

bool spec_list_has(const spec_list *list, size_t first, const char *text)
{
    for (size_t i = first; i < list->count; i++)
        if (!strcmp(list->item[i].text, text)) return true;
    return false;
}

static void add_arch(spec_item *item, const qn_arch *arch)
{
    command_archs *archs = &item->archs;
    for (size_t i = 0; i < archs->count; i++)
        if (archs->item[i] == arch) return;
    if (archs->count < COMMAND_MAX_ARCHS) archs->item[archs->count++] = arch;
}

void spec_list_add_arch(spec_list *list, size_t first, const qn_arch *arch)
{
    for (size_t i = first; i < list->count; i++) add_arch(&list->item[i], arch);
}

static bool is_same(const spec_item *a, const spec_item *b)
{
    return !strcmp(a->text, b->text) && !strcmp(a->range, b->range) && !a->archs.count == !b->archs.count;
}

// Places of kept items by their hash, so that a long list takes no square of its time. 0: free, else the item's place + 1.
static size_t *find_place(const spec_list *list, size_t *places, size_t mask, const spec_item *item)
{
    size_t at;
    qn_hash text = qn_hash_bytes(item->text, strlen(item->text));
    qn_hash range = qn_hash_bytes(item->range, strlen(item->range));
    for (size_t i = 0; i < sizeof text.bytes; i++) text.bytes[i] ^= range.bytes[i];
    memcpy(&at, text.bytes, sizeof at);
    for (;; at++) {
        size_t *place = &places[at & mask];
        if (!*place || is_same(&list->item[*place - 1], item)) return place;
    }
}

quern_status spec_list_unite(spec_list *list)
{
    size_t kept = 0, room = 16;
    while (room < 2 * list->count) room *= 2;
    size_t *places = calloc(room, sizeof *places);
    if (!places) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < list->count; i++) {
        const spec_item *item = &list->item[i];
        size_t *place = find_place(list, places, room - 1, item);
        for (size_t k = 0; *place && k < item->archs.count; k++) add_arch(&list->item[*place - 1], item->archs.item[k]);
        if (*place) continue;
        list->item[kept++] = *item;
        *place = kept;
    }
    free(places);
    list->count = kept;
    return QUERN_OK;
}

// ---- ranges of sizes

static void open_range(spec_item *item)
{
    const qn_family *family = item->family;
    if (item->narrowed) return;
    memcpy(item->from, &family->sizes_bytes, sizeof family->sizes_bytes);
    memcpy(item->to, &family->sizes_bytes, sizeof family->sizes_bytes);
    for (size_t i = 0; i < family->size_count; i++) {
        qn_field_put(&family->sizes[i], item->from, family->sizes[i].min);
        qn_field_put(&family->sizes[i], item->to, family->sizes[i].max);
    }
}

// "rows 1..64, N 2", of the sizes that have a range.
static void write_range(spec_item *item)
{
    size_t used = 0;
    *item->range = 0;
    for (size_t i = 0; i < item->family->size_count && used < sizeof item->range; i++) {
        const qn_field *size = &item->family->sizes[i];
        int64_t from = qn_field_get(size, item->from), to = qn_field_get(size, item->to);
        if (!(item->narrowed >> i & 1)) continue;
        used += (size_t)snprintf(item->range + used, sizeof item->range - used, "%s%s %lld", used ? ", " : "",
                                 size->name, (long long)from);
        if (to != from && used < sizeof item->range)
            used += (size_t)snprintf(item->range + used, sizeof item->range - used, "..%lld", (long long)to);
    }
}

static quern_status unknown_size(const qn_family *family, const char *name)
{
    qn_text known = QN_TEXT_INIT;
    qn_nearest nearest;
    qn_nearest_init(&nearest, name, strlen(name));
    for (size_t i = 0; i < family->size_count; i++) {
        qn_text_putf(&known, "%s%s", i ? ", " : "", family->sizes[i].name);
        qn_nearest_offer(&nearest, family->sizes[i].name);
    }
    quern_status status = qn_fail(QUERN_UNKNOWN_ARGUMENT, "%s has no size \"%s\"%s; it has %s", family->name, name,
                                  qn_nearest_hint(&nearest), qn_text_string(&known));
    qn_text_fini(&known);
    return status;
}

quern_status spec_item_narrow(spec_item *item, const char *name, int64_t from, int64_t to)
{
    const qn_family *family = item->family;
    const qn_field *size = qn_field_find(family->sizes, family->size_count, name);
    if (!size) return unknown_size(family, name);
    if (from > to)
        return qn_fail(QUERN_BAD_VALUE, "%s %lld..%lld is upside down: the smaller comes first, %s %lld..%lld", name,
                       (long long)from, (long long)to, name, (long long)to, (long long)from);
    if (from < size->min || to > size->max)
        return qn_fail(QUERN_BAD_VALUE, "%s %lld..%lld: a range inside %lld..%lld is needed", name, (long long)from,
                       (long long)to, (long long)size->min, (long long)size->max);
    open_range(item);
    item->narrowed |= 1u << (size - family->sizes);
    qn_field_put(size, item->from, from);
    qn_field_put(size, item->to, to);
    write_range(item);
    return QUERN_OK;
}

quern_status spec_parse_range(const char *name, const char *text, int64_t *from, int64_t *to)
{
    char first[24];
    const char *dots = strstr(text, "..");
    size_t length = dots ? (size_t)(dots - text) : strlen(text);
    if (length < sizeof first) {
        memcpy(first, text, length);
        first[length] = 0;
        if (qn_parse_int(first, from) && (dots ? qn_parse_int(dots + 2, to) : (*to = *from, true))) return QUERN_OK;
    }
    return qn_fail(QUERN_BAD_VALUE, "%s %s: a number or a range, 1..64, is needed", name, text);
}

// ---- one a line: '#' begins a comment, empty lines are passed over; "gate E=8 K=2 in=f32 [N 1..64]" has a range

// "N 1..64", cut in two; nothing may stand behind it, for it would be dropped.
static quern_status cut_range(char *words, char **name, char **text)
{
    static const char blanks[] = " \t\r";
    char *const whole = words;
    *name = words + strspn(words, blanks);
    *text = *name + strcspn(*name, blanks);
    *text += strspn(*text, blanks);
    size_t length = strcspn(*text, blanks);
    const char *rest = *text + length + strspn(*text + length, blanks);
    if (!**name || !**text)
        return qn_fail(QUERN_BAD_SYNTAX, "\"%s\": a size and its range are needed, as in [rows 1..64]", whole);
    if (*rest)
        return qn_fail(
            QUERN_BAD_SYNTAX,
            "\"%s\": \"%s\" stands behind a size and its range; a range has no blanks, and sizes are between "
            "commas, as in [Sq 1, Hq 8..32]",
            whole, rest);
    (*name)[strcspn(*name, blanks)] = (*text)[length] = 0;
    return QUERN_OK;
}

// "N 1..64, …", of the item that was added last.
static quern_status add_ranges(spec_list *list, char *ranges)
{
    spec_item *item = &list->item[list->count - 1];
    for (char *word; (word = strsep(&ranges, ","));) {
        char *name, *text;
        int64_t from, to;
        uint32_t before = item->narrowed;
        QN_TRY(cut_range(word, &name, &text));
        QN_TRY(spec_parse_range(name, text, &from, &to));
        QN_TRY(spec_item_narrow(item, name, from, to));
        if (item->narrowed == before) return qn_fail(QUERN_BAD_SYNTAX, "[%s ...]: the size is given twice", name);
    }
    return QUERN_OK;
}

// A spec, and in brackets the ranges of sizes that `quern warm --list` prints with it.
static quern_status add_entry(spec_list *list, const char *text)
{
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    if (!open) return spec_list_add_text(list, text);
    if (!close || close[1 + strspn(close + 1, " \t")])
        return qn_fail(QUERN_BAD_SYNTAX, "\"%s\": the last word is to be ranges of sizes, [rows 1..64]", open);
    char *spec = qn_strdup(text);
    if (!spec) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    spec[open - text] = spec[close - text] = 0;
    quern_status status = spec_list_add_text(list, spec);
    if (status == QUERN_OK) status = add_ranges(list, spec + (open - text) + 1);
    free(spec);
    return status;
}

static quern_status add_lines(spec_list *list, const char *file, char *content)
{
    int number = 0;
    for (char *line; content && (line = strsep(&content, "\n"));) {
        number++;
        line[strcspn(line, "#\r")] = 0;
        if (line[strspn(line, " \t")] == 0) continue;
        quern_status status = add_entry(list, line + strspn(line, " \t"));
        if (status != QUERN_OK) return qn_fail_in(status, "%s:%d", file, number);
    }
    return QUERN_OK;
}

// A log's first line is an event; no family is called so.
static bool is_log(const char *content)
{
    return !strncmp(content, "quern,", strlen("quern,"));
}

// Some editors begin UTF-8 with a mark.
static void strip_mark(qn_text *content)
{
    static const char mark[] = "\xEF\xBB\xBF";
    size_t length = strlen(mark);
    if (strncmp(qn_text_string(content), mark, length) != 0) return;
    content->length -= length;
    memmove(content->bytes, content->bytes + length, content->length + 1);
}

// What stands behind a zero byte would be dropped.
static quern_status check_text(const char *file, const qn_text *content)
{
    if (strlen(qn_text_string(content)) == content->length) return QUERN_OK;
    return qn_fail(QUERN_BAD_FILE, "%s: not text: it has a zero byte (UTF-8 is needed)", file);
}

// So would what stands behind a carriage return that ends no line.
static quern_status check_line_ends(const char *file, const char *content)
{
    int line = 1;
    for (const char *c = content; *c; c++) {
        line += *c == '\n';
        if (*c == '\r' && c[1] && c[1] != '\n')
            return qn_fail(QUERN_BAD_FILE, "%s:%d: a carriage return inside a line: lines end with LF or CRLF", file,
                           line);
    }
    return QUERN_OK;
}

// JSON can write a zero byte into a string, which would end it. The line of the first; 0: there is none.
static int find_escaped_zero(const char *json)
{
    int line = 1;
    for (const char *c = json; *c; c++) {
        line += *c == '\n';
        if (*c != '\\') continue;
        if (!strncmp(c, "\\u0000", 6)) return line;
        c += c[1] != 0;
    }
    return 0;
}

static quern_status add_file(spec_list *list, const char *file)
{
    const char *dot = strrchr(file, '.');
    if (dot && strcmp(dot, ".json") == 0) return spec_list_add_manifest(list, file);
    qn_text content = QN_TEXT_INIT;
    QN_TRY(qn_file_read(file, &content));
    strip_mark(&content);
    bool log = is_log(qn_text_string(&content));
    quern_status status = log ? spec_list_add_log(list, file) : check_text(file, &content);
    if (status == QUERN_OK && !log) status = check_line_ends(file, qn_text_string(&content));
    if (status == QUERN_OK && !log) status = add_lines(list, file, content.bytes);
    qn_text_fini(&content);
    return status;
}

quern_status spec_list_add(spec_list *list, const char *operand)
{
    if (operand[0] != '@') return add_entry(list, operand);
    quern_status status = add_file(list, operand + 1);
    list->in_file |= status != QUERN_OK;
    return status;
}

quern_status spec_list_read_json(const char *file, cJSON **document)
{
    const char *at = NULL;
    qn_text content = QN_TEXT_INIT;
    QN_TRY(qn_file_read(file, &content));
    quern_status status = check_text(file, &content);
    int zero = find_escaped_zero(qn_text_string(&content));
    if (status == QUERN_OK && zero)
        status = qn_fail(QUERN_BAD_FILE, "%s:%d: a string has a zero byte (\\u0000)", file, zero);
    cJSON *read = status == QUERN_OK ? cJSON_ParseWithOpts(qn_text_string(&content), &at, 1) : NULL;
    int line = 1;
    for (const char *c = qn_text_string(&content); !read && at && c < at; c++) line += *c == '\n';
    qn_text_fini(&content);
    QN_TRY(status);
    if (!read) return qn_fail(QUERN_BAD_FILE, "%s:%d: not valid JSON", file, line);
    *document = read;
    return QUERN_OK;
}

void spec_list_fini(spec_list *list)
{
    free(list->item);
    qn_text_fini(&list->notes);
    *list = (spec_list)SPEC_LIST_INIT;
}
