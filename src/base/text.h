// SPDX-License-Identifier: Apache-2.0
// A growing piece of text or bytes. A failed allocation is remembered and every later put does nothing, so that a
// builder checks once, at its end (qn_text_check). Numbers are written and read without the process's locale.
#ifndef QN_BASE_TEXT_H
#define QN_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct qn_text {
    char *bytes; // always ends in a 0 that length does not count, once something was put
    size_t length;
    size_t capacity;
    bool failed;
} qn_text;

#define QN_TEXT_INIT                                                                                                   \
    {                                                                                                                  \
        0, 0, 0, false                                                                                                 \
    }

void qn_text_fini(qn_text *text);
void qn_text_clear(qn_text *text);                 // keeps the memory
void qn_text_reserve(qn_text *text, size_t count); // so many bytes will be put: memory is asked for once
void qn_text_put(qn_text *text, const void *bytes, size_t count);
void qn_text_puts(qn_text *text, const char *string);
void qn_text_putf(qn_text *text, const char *format, ...) QN_PRINTF(2, 3); // integers and strings only: no %f, %g
void qn_text_put_real(qn_text *text, double value); // shortest decimal that reads back exactly; inf, -inf, nan
const char *qn_text_string(const qn_text *text);    // "" when nothing was put; never NULL
quern_status qn_text_check(const qn_text *text);    // OUT_OF_MEMORY if any put failed

// Reads a whole string as a number; false if it is not one, or does not fit. Decimal or 0x… for integers, "-" allowed.
bool qn_parse_int(const char *string, int64_t *value);
bool qn_parse_real(const char *string, double *value);

// In place: what is no UTF-8, and what would steer a terminal (control characters but newline and tab), becomes '?'. For
// texts that hold words of files or callers.
void qn_make_printable(char *text);

char *qn_strdup(const char *string); // NULL stays NULL; NULL too when out of memory

#endif
