// SPDX-License-Identifier: Apache-2.0
// The text builder. Called by whoever writes text or bytes of unknown length; never prints, never fails midway.
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void qn_text_fini(qn_text *text)
{
    free(text->bytes);
    *text = (qn_text)QN_TEXT_INIT;
}

void qn_text_clear(qn_text *text)
{
    text->length = 0;
    text->failed = false;
    if (text->bytes) text->bytes[0] = 0;
}

// Makes room for `more` bytes and the final 0.
static bool reserve(qn_text *text, size_t more)
{
    size_t wanted, capacity;

    if (text->failed) return false;
    if (__builtin_add_overflow(text->length, more, &wanted) || __builtin_add_overflow(wanted, (size_t)1, &wanted)) {
        text->failed = true;
        return false;
    }
    if (wanted <= text->capacity) return true;
    capacity = text->capacity > SIZE_MAX / 2 ? wanted : text->capacity * 2;
    if (capacity < wanted) capacity = wanted;
    if (capacity < 64) capacity = 64;
    char *bytes = realloc(text->bytes, capacity);
    if (!bytes) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void qn_text_reserve(qn_text *text, size_t count)
{
    reserve(text, count);
}

void qn_text_put(qn_text *text, const void *bytes, size_t count)
{
    if (!reserve(text, count)) return;
    if (count) memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = 0;
}

void qn_text_puts(qn_text *text, const char *string)
{
    qn_text_put(text, string, strlen(string));
}

void qn_text_putf(qn_text *text, const char *format, ...)
{
    va_list arguments;
    int count;

    va_start(arguments, format);
    count = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (count < 0) {
        text->failed = true;
        return;
    }
    if (!reserve(text, (size_t)count)) return;
    va_start(arguments, format);
    vsnprintf(text->bytes + text->length, (size_t)count + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)count;
}

const char *qn_text_string(const qn_text *text)
{
    return text->bytes ? text->bytes : "";
}

quern_status qn_text_check(const qn_text *text)
{
    if (!text->failed) return QUERN_OK;
    return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a text of more than %zu bytes", text->length);
}

char *qn_strdup(const char *string)
{
    if (!string) return NULL;
    size_t bytes = strlen(string) + 1;
    char *copy = malloc(bytes);
    if (copy) memcpy(copy, string, bytes);
    return copy;
}
