// SPDX-License-Identifier: Apache-2.0
// Tuning results as text, for files that people look at, keep and send: a header line, then one result a line, fields
// separated by tabs. Used by the command; tools/built_in.sh reads the same.
//
//     quern-tune 1
//     # device  cc  sms  shared  l2  driver  library  arch  spec  bucket  sizes  config  status  ns  spread_ns  created  note
//     NVIDIA H200  90  132  233472  …
#ifndef QN_TUNE_EXPORT_H
#define QN_TUNE_EXPORT_H

#include "cache/tune.h"

enum { QN_TUNE_TEXT_VERSION = 1 };

// Appends header and rows. Numbers read back exactly.
void qn_tune_text_write(const qn_tune_list *list, qn_text *text);

// Appends what a text holds. Empty lines and lines that begin with # are passed over; so is a note that is missing. One
// bad line refuses the whole: BAD_FILE with name, line, field and what is wrong; then nothing is appended. A header of a
// later version is refused too.
quern_status qn_tune_text_read(const char *name, const char *bytes, size_t count, qn_tune_list *list);

// The same for a text from outside: a row that could never be used (usable.h) is a bad line too. now: seconds since 1970.
quern_status qn_tune_text_import(const char *name, const char *bytes, size_t count, int64_t now, qn_tune_list *list);

#endif
