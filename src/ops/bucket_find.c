// SPDX-License-Identifier: Apache-2.0
// Which bucket of sizes a tuning result is for, by its texts: the bucket's name and the sizes that were timed. Called by
// runtime/tuned.c, runtime/usable.c and the command; knows no family by name.
//
// A family's buckets may get other borders while results with the former names are kept. Such a result was measured at
// sizes that are in one of the buckets of now, and is for that one: where one became two, the other has none.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/field.h"

enum { NAME_BYTES = 96, SIZES_BYTES = 256 };

// ---- sizes as text

void qn_sizes_write(const qn_family *family, const void *sizes, qn_text *text)
{
    for (size_t i = 0; i < family->size_count; i++) {
        int64_t value;
        memcpy(&value, (const char *)sizes + family->sizes[i].offset, sizeof value);
        qn_text_putf(text, "%s%s=%lld", i ? " " : "", family->sizes[i].name, (long long)value);
    }
}

static quern_status read_words(const qn_family *family, char *words, void *sizes)
{
    char *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        int64_t value = -1;
        if (equals) *equals = 0;
        const qn_field *size = qn_field_find(family->sizes, family->size_count, word);
        if (!equals || !size || !qn_parse_int(equals + 1, &value) || value < 0 || value > INT32_MAX)
            return qn_fail(QUERN_BAD_VALUE, "sizes are NAME=NUMBER, from 0 to %d, one blank apart", INT32_MAX);
        qn_field_put(size, sizes, value);
    }
    return QUERN_OK;
}

quern_status qn_sizes_read(const qn_family *family, const char *text, void *sizes)
{
    qn_text canonical = QN_TEXT_INIT;
    char *words = qn_strdup(text);
    memset(sizes, 0, family->sizes_bytes);
    quern_status status =
        words ? read_words(family, words, sizes) : qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a text of sizes");
    free(words);
    qn_sizes_write(family, sizes, &canonical);
    if (status == QUERN_OK) status = qn_text_check(&canonical);
    if (status == QUERN_OK && strcmp(text, qn_text_string(&canonical)))
        status = qn_fail(QUERN_BAD_VALUE, "each size of the family is needed, in its order, as in '%s'",
                         qn_text_string(&canonical));
    qn_text_fini(&canonical);
    return status;
}

// ---- names with former borders

// Whether a part of some bucket's name begins with this word, which a blank ends.
static bool is_word_of(const qn_family *family, const char *word, size_t length)
{
    char name[NAME_BYTES], part[NAME_BYTES];
    bool found = false;
    snprintf(part, sizeof part, ", %.*s ", (int)length, word);
    for (size_t bucket = 0; bucket < family->bucket_count && !found; bucket++) {
        family->bucket_name(bucket, name, sizeof name);
        found = !strncmp(name, part + 2, strlen(part + 2)) || strstr(name, part);
    }
    return found;
}

// As names are written: no zero before it, and none that is larger than numbers are.
static bool take_number(const char **text, int64_t *number)
{
    char *end;
    if (**text < '0' || **text > '9' || (**text == '0' && (*text)[1] >= '0' && (*text)[1] <= '9')) return false;
    errno = 0;
    *number = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0;
}

// One blank between words, and none at the ends.
static bool is_spaced(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && name[0] != ' ' && name[length - 1] != ' ' && !strstr(name, "  ");
}

// "17..6143", "17…" or "17", up to the end or a blank.
static bool read_range(const char *text, int64_t *first, int64_t *last)
{
    static const char open[] = "…";
    if (!take_number(&text, first)) return false;
    *last = *first;
    if (!strncmp(text, open, sizeof open - 1)) {
        *last = INT64_MAX, text += sizeof open - 1;
    } else if (!strncmp(text, "..", 2)) {
        text += 2;
        if (!take_number(&text, last)) return false;
    }
    return *first <= *last && (!*text || *text == ' ');
}

// A part is "WORD range", perhaps with words after it. Where WORD is a size, its value must be in the range; sizes NULL: any.
static bool part_holds(const qn_family *family, const char *part, const void *sizes)
{
    char word[NAME_BYTES];
    int64_t first, last;
    size_t length = strcspn(part, " ");
    if (!part[length] || length >= sizeof word || !is_word_of(family, part, length)) return false;
    if (!read_range(part + length + 1, &first, &last)) return false;
    snprintf(word, sizeof word, "%.*s", (int)length, part);
    const qn_field *size = qn_field_find(family->sizes, family->size_count, word);
    int64_t value = size && sizes ? qn_field_get(size, sizes) : first;
    return value >= first && value <= last;
}

static bool name_holds(const qn_family *family, const char *name, const void *sizes)
{
    char parts[NAME_BYTES];
    if (!is_spaced(name) || snprintf(parts, sizeof parts, "%s", name) >= (int)sizeof parts) return false;
    for (char *at = parts, *next; at; at = next) {
        next = strstr(at, ", ");
        if (next) *next = 0, next += 2;
        if (!part_holds(family, at, sizes)) return false;
    }
    return true;
}

bool qn_bucket_is_range(const qn_family *family, const char *name)
{
    return name_holds(family, name, NULL);
}

bool qn_bucket_find(const qn_family *family, const char *name, const char *timed, size_t *bucket)
{
    _Alignas(16) unsigned char sizes[SIZES_BYTES];
    char known[NAME_BYTES];
    qn_message_mark mark;
    for (size_t i = 0; i < family->bucket_count; i++) {
        family->bucket_name(i, known, sizeof known);
        if (strcmp(known, name)) continue;
        *bucket = i;
        return true;
    }
    qn_message_save(&mark);
    bool found = qn_sizes_read(family, timed, sizes) == QUERN_OK && name_holds(family, name, sizes);
    qn_message_restore(&mark);
    if (found) *bucket = family->bucket_of(sizes);
    return found;
}
