// SPDX-License-Identifier: Apache-2.0
// Rows of a database as people read them (cache_entries.h). What a kernel was configured with is read from its key, which
// holds the whole source: the template it was made from, and the prologue's constants that are the family's choices.
// A damaged row's key may hold anything.
#include "cache_entries.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/key.h"
#include "ops/family.h"
#include "runtime/runtime.h"

const char *cache_time(int64_t seconds, char out[CACHE_TIME_BYTES])
{
    time_t when = (time_t)seconds;
    struct tm parts;

    if (!seconds || !gmtime_r(&when, &parts) || !strftime(out, CACHE_TIME_BYTES, "%Y-%m-%d %H:%M:%S", &parts))
        strcpy(out, "never");
    return out;
}

// ---- the configuration

// The key's source as a string of its own, only the first lines of which are looked at; NULL: there is none.
static char *source_head(const quern_record *record)
{
    enum { HEAD_BYTES = 4096 };
    qn_key_item item;
    for (size_t at = 0; record->key && qn_key_next(record->key, record->key_bytes, &at, &item);)
        if (item.tag == QN_KEY_TAG_SOURCE)
            return strndup((const char *)item.bytes, item.count < HEAD_BYTES ? item.count : HEAD_BYTES);
    return NULL;
}

// Appends the number of "constexpr int NAME = …;" in the prologue, under another name.
static bool put_constant(const char *source, const char *constant, const char *name, const qn_name *words, qn_text *out)
{
    char line[96];
    snprintf(line, sizeof line, "\nconstexpr int %s = ", constant);
    const char *found = strstr(source, line);
    if (!found) return false;
    int value = atoi(found + strlen(line));
    while (words && words->name && words->value != value) words++;
    if (words && words->name)
        qn_text_putf(out, " %s=%s", name, words->name);
    else
        qn_text_putf(out, " %s=%d", name, value);
    return true;
}

static const qn_family *family_of(const char *spec)
{
    size_t count;
    const qn_family *const *families = qn_families(&count);
    for (size_t i = 0; spec && i < count; i++) {
        size_t length = strlen(families[i]->name);
        if (!strncmp(spec, families[i]->name, length) && (spec[length] == ' ' || !spec[length])) return families[i];
    }
    return NULL;
}

static void put_knobs(const qn_family *family, const char *source, qn_text *out)
{
    for (size_t i = 0; family && i < family->knob_count; i++) {
        char constant[64] = "";
        const char *name = family->knobs[i].name;
        for (size_t c = 0; name[c] && c + 1 < sizeof constant; c++) constant[c] = (char)toupper((unsigned char)name[c]);
        if (strcmp(constant, "CLUSTER") != 0) put_constant(source, constant, name, family->knobs[i].names, out);
    }
}

// "softmax_topk/stream threads=256 ctas=4 cluster=1 local_k=6 unroll=4"; nothing for a kernel that is not a family's.
static void put_configuration(const quern_record *record, qn_text *out)
{
    static const char made[] = ": made by Quern from ";
    char *source = source_head(record);
    char *path = source ? strstr(source, made) : NULL, *end = path ? strchr(path, '\n') : NULL;
    if (end && source[0] == '/') {
        path += strlen(made);
        int length = (int)(end - path);
        if (length > 3 && !strncmp(end - 3, ".cu", 3)) length -= 3;
        qn_text_putf(out, "%.*s", length, path);
        put_constant(end, "THREADS", "threads", NULL, out);
        put_constant(end, "MIN_CTAS", "ctas", NULL, out);
        put_constant(end, "CLUSTER", "cluster", NULL, out);
        put_knobs(family_of(record->spec), end, out);
    }
    free(source);
}

// ---- rows

static const table_column columns[] = {
    {"arch", "arch", TABLE_TEXT, 0},
    {"spec", "spec", TABLE_TEXT, 0},
    {"configuration", "configuration", TABLE_TEXT, 0},
    {NULL, "entry", TABLE_TEXT, 0},
    {"toolchain", "toolchain", TABLE_TEXT, 0},
    {"size", "image_bytes", TABLE_INT, 0},
    {"registers", "registers", TABLE_INT, 0},
    {"shared", "shared_bytes", TABLE_INT, 0},
    {"local", "local_bytes", TABLE_INT, 0},
    {NULL, "compile_us", TABLE_INT, 0},
    {NULL, "created", TABLE_INT, 0},
    {NULL, "used", TABLE_INT, 0},
    {"last used (UTC)", NULL, TABLE_TEXT, 0},
    {"hash", "hash", TABLE_TEXT, 0},
};

table *cache_entries_create(void)
{
    return table_create(columns, QN_COUNT(columns));
}

int cache_entries_add(void *entries, const quern_record *record)
{
    qn_hash hash;
    qn_text configuration = QN_TEXT_INIT;
    char hex[33], used[CACHE_TIME_BYTES];

    memcpy(hash.bytes, record->hash, sizeof hash.bytes);
    qn_hash_hex(&hash, hex);
    put_configuration(record, &configuration);
    table_add(entries, record->arch, record->spec, configuration.length ? qn_text_string(&configuration) : NULL,
              record->entry, record->toolchain, (int64_t)record->image_bytes, (int64_t)record->registers,
              (int64_t)record->shared_bytes, (int64_t)record->local_bytes, record->compile_us, record->created,
              record->used, cache_time(record->used, used), hex);
    qn_text_fini(&configuration);
    return 0;
}
