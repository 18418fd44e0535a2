// SPDX-License-Identifier: Apache-2.0
// Statuses as text, and this thread's message. Called by everything that can fail.
//   (1) Setting a message allocates nothing and never fails: a longer one is cut, and ends in "…".
//   (2) A message is UTF-8 and steers no terminal, whatever words of callers and files it holds.
//   (3) The arguments of a new message may point into the old one.
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static _Thread_local char message[QN_MESSAGE_BYTES];

#define DIGITS_(n) #n
#define DIGITS(n)  DIGITS_(n)

const char *quern_version(void)
{
    return DIGITS(QUERN_VERSION_MAJOR) "." DIGITS(QUERN_VERSION_MINOR) "." DIGITS(QUERN_VERSION_PATCH);
}

const char *quern_status_name(quern_status status)
{
    switch ((int)status) {
#define X(name, code, text)                                                                                            \
    case code:                                                                                                         \
        return #name;
        QUERN_STATUS_LIST(X)
#undef X
    default:
        return "UNKNOWN";
    }
}

const char *quern_status_text(quern_status status)
{
    switch ((int)status) {
#define X(name, code, text)                                                                                            \
    case code:                                                                                                         \
        return text;
        QUERN_STATUS_LIST(X)
#undef X
    default:
        return "no status has this number";
    }
}

const char *quern_message(void)
{
    return message;
}

// Ends a cut text in "…", without leaving half a UTF-8 character before it.
static void mark_cut(char *text, size_t bytes)
{
    static const char ellipsis[] = "…";
    size_t at = bytes - sizeof ellipsis;

    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
    memcpy(text + at, ellipsis, sizeof ellipsis);
}

// Formats into a buffer of QN_MESSAGE_BYTES, from offset `at`.
static void format_at(char *text, size_t at, const char *format, va_list arguments)
{
    int wanted = vsnprintf(text + at, QN_MESSAGE_BYTES - at, format, arguments);

    if (wanted >= 0 && (size_t)wanted >= QN_MESSAGE_BYTES - at) mark_cut(text, QN_MESSAGE_BYTES);
    qn_make_printable(text);
}

quern_status qn_fail(quern_status status, const char *format, ...)
{
    char text[QN_MESSAGE_BYTES];
    va_list arguments;

    text[0] = 0;
    va_start(arguments, format);
    format_at(text, 0, format, arguments);
    va_end(arguments);
    memcpy(message, text, strlen(text) + 1);
    return status;
}

quern_status qn_fail_in(quern_status status, const char *format, ...)
{
    char text[QN_MESSAGE_BYTES];
    va_list arguments;

    text[0] = 0;
    va_start(arguments, format);
    format_at(text, 0, format, arguments);
    va_end(arguments);

    size_t at = strlen(text);
    int wanted = snprintf(text + at, sizeof text - at, ": %s", message);
    if (wanted >= 0 && (size_t)wanted >= sizeof text - at) mark_cut(text, sizeof text);
    memcpy(message, text, strlen(text) + 1);
    return status;
}

void qn_message_save(qn_message_mark *mark)
{
    memcpy(mark->text, message, strlen(message) + 1);
}

void qn_message_restore(const qn_message_mark *mark)
{
    memcpy(message, mark->text, strlen(mark->text) + 1);
}

quern_status qn_message_end(const qn_message_mark *mark, quern_status status)
{
    if (status == QUERN_OK) qn_message_restore(mark);
    return status;
}
