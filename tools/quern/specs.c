// SPDX-License-Identifier: Apache-2.0
// Lists of specs and their ranges of sizes; one spec a line (specs.h).
#include "specs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"

quern_status spec_list_add_text(spec_list *list, const char *text)
{
    spec_item item = {.has_range = false};
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

bool spec_list_has(const spec_list *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->item[i].text, text)) return true;
    return false;
}

void spec_list_add_arch(spec_list *list, const char *arch)
{
    size_t length = strlen(arch);
    for (const char *at = qn_text_string(&list->archs); *at;) {
        size_t word = strcspn(at, ",");
        if (word == length && !strncmp(at, arch, length)) return;
        at += word + (at[word] == ',');
    }
    qn_text_putf(&list->archs, "%s%s", list->archs.length ? "," : "", arch);
}

// ---- ranges of sizes

static void put_size(unsigned char *sizes, const qn_field *size, int64_t value)
{
    memcpy(sizes + size->offset, &value, sizeof value);
}

static void open_range(spec_item *item)
{
    const qn_family *family = item->family;
    if (item->has_range) return;
    item->has_range = true;
    memcpy(item->from, &family->sizes_bytes, sizeof family->sizes_bytes);
    memcpy(item->to, &family->sizes_bytes, sizeof family->sizes_bytes);
    for (size_t i = 0; i < family->size_count; i++) {
        put_size(item->from, &family->sizes[i], family->sizes[i].min);
        put_size(item->to, &family->sizes[i], family->sizes[i].max);
    }
}

quern_status spec_item_narrow(spec_item *item, const char *name, int64_t from, int64_t to)
{
    const qn_family *family = item->family;
    qn_text known = QN_TEXT_INIT;
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *size = &family->sizes[i];
        qn_text_putf(&known, "%s%s", i ? ", " : "", size->name);
        if (strcmp(size->name, name) != 0) continue;
        qn_text_fini(&known);
        if (from < size->min || to > size->max || from > to)
            return qn_fail(QUERN_BAD_SIZE, "%s %lld..%lld: a range inside %lld..%lld is needed", name, (long long)from,
                           (long long)to, (long long)size->min, (long long)size->max);
        open_range(item);
        put_size(item->from, size, from);
        put_size(item->to, size, to);
        size_t used = strlen(item->range);
        used += (size_t)snprintf(item->range + used, sizeof item->range - used, "%s%s %lld", used ? ", " : "", name,
                                 (long long)from);
        if (to != from && used < sizeof item->range)
            snprintf(item->range + used, sizeof item->range - used, "..%lld", (long long)to);
        return QUERN_OK;
    }
    quern_status status =
        qn_fail(QUERN_UNKNOWN_ARGUMENT, "%s has no size \"%s\"; it has %s", family->name, name, qn_text_string(&known));
    qn_text_fini(&known);
    return status;
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
    return qn_fail(QUERN_BAD_VALUE, "--%s %s: a number or a range, 1..64, is needed", name, text);
}

// ---- one a line: '#' begins a comment, empty lines are passed over

static quern_status add_lines(spec_list *list, const char *file, char *content)
{
    int number = 0;
    for (char *line; content && (line = strsep(&content, "\n"));) {
        number++;
        line[strcspn(line, "#\r")] = 0;
        if (line[strspn(line, " \t")] == 0) continue;
        quern_status status = spec_list_add_text(list, line + strspn(line, " \t"));
        if (status != QUERN_OK) return qn_fail_in(status, "%s:%d", file, number);
    }
    return QUERN_OK;
}

// A log's first line is an event; no family is called so.
static bool is_log(const char *content)
{
    return !strncmp(content, "quern,", strlen("quern,"));
}

quern_status spec_list_add(spec_list *list, const char *operand)
{
    if (operand[0] != '@') return spec_list_add_text(list, operand);
    const char *file = operand + 1, *dot = strrchr(file, '.');
    if (dot && strcmp(dot, ".json") == 0) return spec_list_add_manifest(list, file);
    qn_text content = QN_TEXT_INIT;
    quern_status status = qn_file_read(file, &content);
    if (status == QUERN_OK)
        status =
            is_log(qn_text_string(&content)) ? spec_list_add_log(list, file) : add_lines(list, file, content.bytes);
    qn_text_fini(&content);
    return status;
}

quern_status spec_list_read_json(const char *file, cJSON **document)
{
    const char *at = NULL;
    qn_text content = QN_TEXT_INIT;
    QN_TRY(qn_file_read(file, &content));
    cJSON *read = cJSON_ParseWithOpts(qn_text_string(&content), &at, 1);
    int line = 1;
    for (const char *c = qn_text_string(&content); !read && at && c < at; c++) line += *c == '\n';
    qn_text_fini(&content);
    if (!read) return qn_fail(QUERN_BAD_FILE, "%s:%d: not valid JSON", file, line);
    *document = read;
    return QUERN_OK;
}

void spec_list_fini(spec_list *list)
{
    free(list->item);
    qn_text_fini(&list->archs);
    qn_text_fini(&list->notes);
    *list = (spec_list)SPEC_LIST_INIT;
}
