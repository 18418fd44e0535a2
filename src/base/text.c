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

// The bytes of the character that begins here, 0 when it is no UTF-8: too long a form, a surrogate, beyond U+10FFFF.
static size_t character_bytes(const unsigned char *at)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};

    for (size_t more = 0; more < QN_COUNT(forms); more++) {
        if ((at[0] & forms[more].mask) != forms[more].lead) continue;
        uint32_t code = at[0] & (unsigned char)~forms[more].mask;
        for (size_t i = 1; i <= more; i++) {
            if ((at[i] & 0xC0) != 0x80) return 0; // the final 0 is none either
            code = code << 6 | (at[i] & 0x3Fu);
        }
        bool good = code >= forms[more].least && code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF);
        return good ? more + 1 : 0;
    }
    return 0;
}

static bool steers(const unsigned char *at, size_t count)
{
    if (count == 1) return (*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7F;
    return count == 2 && at[0] == 0xC2 && at[1] < 0xA0; // U+0080 … U+009F
}

void qn_make_printable(char *text)
{
    unsigned char *to = (unsigned char *)text;

    for (const unsigned char *at = to; *at;) {
        size_t count = character_bytes(at);
        if (!count || steers(at, count)) {
            *to++ = '?';
            at += count ? count : 1;
        } else {
            for (; count > 0; count--) *to++ = *at++;
        }
    }
    *to = 0;
}

char *qn_strdup(const char *string)
{
    if (!string) return NULL;
    size_t bytes = strlen(string) + 1;
    char *copy = malloc(bytes);
    if (copy) memcpy(copy, string, bytes);
    return copy;
}
