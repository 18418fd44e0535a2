// SPDX-License-Identifier: Apache-2.0
// Reading lists of specs (specs.h).
#include "specs.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"

static quern_status add_text(spec_list *list, const char *text)
{
    spec_item item;
    QN_TRY(quern_spec_parse(text, &item.spec));
    QN_TRY(quern_spec_format(&item.spec.base, item.text, sizeof item.text));
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        spec_item *grown = realloc(list->item, capacity * sizeof *grown);
        if (!grown) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
        list->item = grown, list->capacity = capacity;
    }
    list->item[list->count++] = item;
    return QUERN_OK;
}

// ---- one a line: '#' begins a comment, empty lines are passed over

static quern_status add_lines(spec_list *list, const char *file, char *content)
{
    int number = 0;
    for (char *line; content && (line = strsep(&content, "\n"));) {
        number++;
        line[strcspn(line, "#\r")] = 0;
        if (line[strspn(line, " \t")] == 0) continue;
        quern_status status = add_text(list, line + strspn(line, " \t"));
        if (status != QUERN_OK) return qn_fail_in(status, "%s:%d", file, number);
    }
    return QUERN_OK;
}

// ---- manifests

// An array of strings, or absent.
static quern_status check_strings(const char *file, const cJSON *array, const char *key)
{
    const cJSON *entry;
    if (!array) return QUERN_OK;
    bool good = cJSON_IsArray(array);
    cJSON_ArrayForEach(entry, array) good = good && cJSON_IsString(entry);
    return good ? QUERN_OK : qn_fail(QUERN_BAD_FILE, "%s: \"%s\" is not an array of strings", file, key);
}

static quern_status check_keys(const char *file, const cJSON *document)
{
    const cJSON *entry;
    if (!cJSON_IsObject(document)) return qn_fail(QUERN_BAD_FILE, "%s: not a JSON object", file);
    cJSON_ArrayForEach(entry, document)
    {
        if (strcmp(entry->string, "specs") != 0 && strcmp(entry->string, "arch") != 0)
            return qn_fail(QUERN_BAD_FILE, "%s: unknown key \"%s\": \"specs\" and \"arch\" are known", file,
                           entry->string);
    }
    if (!cJSON_HasObjectItem(document, "specs")) return qn_fail(QUERN_BAD_FILE, "%s: \"specs\" is missing", file);
    return QUERN_OK;
}

static quern_status add_document(spec_list *list, const char *file, const cJSON *document)
{
    QN_TRY(check_keys(file, document));
    const cJSON *specs = cJSON_GetObjectItemCaseSensitive(document, "specs"), *entry;
    const cJSON *archs = cJSON_GetObjectItemCaseSensitive(document, "arch");
    QN_TRY(check_strings(file, specs, "specs"));
    QN_TRY(check_strings(file, archs, "arch"));
    int number = 0;
    cJSON_ArrayForEach(entry, specs)
    {
        quern_status status = add_text(list, entry->valuestring);
        if (status != QUERN_OK) return qn_fail_in(status, "%s: specs[%d]", file, number);
        number++;
    }
    cJSON_ArrayForEach(entry, archs)
        qn_text_putf(&list->archs, "%s%s", list->archs.length ? "," : "", entry->valuestring);
    return qn_text_check(&list->archs);
}

static quern_status add_manifest(spec_list *list, const char *file, const char *content)
{
    const char *at = NULL;
    cJSON *document = cJSON_ParseWithOpts(content, &at, 1);
    if (!document) {
        int line = 1;
        for (const char *c = content; at && c < at; c++) line += *c == '\n';
        return qn_fail(QUERN_BAD_FILE, "%s:%d: not valid JSON", file, line);
    }
    quern_status status = add_document(list, file, document);
    cJSON_Delete(document);
    return status;
}

quern_status spec_list_add(spec_list *list, const char *operand)
{
    if (operand[0] != '@') return add_text(list, operand);
    const char *file = operand + 1, *dot = strrchr(file, '.');
    qn_text content = QN_TEXT_INIT;
    quern_status status = qn_file_read(file, &content);
    if (status == QUERN_OK && dot && strcmp(dot, ".json") == 0)
        status = add_manifest(list, file, qn_text_string(&content));
    else if (status == QUERN_OK)
        status = add_lines(list, file, content.bytes);
    qn_text_fini(&content);
    return status;
}

void spec_list_fini(spec_list *list)
{
    free(list->item);
    qn_text_fini(&list->archs);
    *list = (spec_list){NULL, 0, 0, QN_TEXT_INIT};
}
