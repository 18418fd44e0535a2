// SPDX-License-Identifier: Apache-2.0
// A CUDA text as its preprocessor sees it, for custom_check.c: lines without comments and splices.
#ifndef QN_RUNTIME_CUSTOM_TEXT_H
#define QN_RUNTIME_CUSTOM_TEXT_H

#include <stdbool.h>

#include "base/text.h"

// What could not be read in one way only, and where in the text. why is NULL when all was read.
typedef struct qn_unclear {
    const char *at, *why;
} qn_unclear;

// *lines: comments are a blank, splices are gone (their newlines follow the line, so that numbers stay right), a raw
// string is "". standard: the year of C++ that the text is read by (3, 11, 14, 17, …). Stops at what is unclear.
void qn_source_lines(const char *text, int standard, qn_text *lines, qn_unclear *unclear);

// A letter, digit or underscore.
bool qn_is_word_char(char ch);

#endif
