// SPDX-License-Identifier: Apache-2.0
// Whether a result from outside can ever be used. The one judgement of tuning rows: of prepare for what a database has
// (stores.c), of the imports of text (tune/export.c) and of databases (tune/take.c), and of what `quern tune` shows.
#ifndef QN_RUNTIME_USABLE_H
#define QN_RUNTIME_USABLE_H

#include "cache/tune.h"

// How far the clock of another machine may be ahead of this one's.
enum { QN_TUNE_AHEAD_SECONDS = 24 * 3600 };
#define QN_TUNE_NO_CLOCK (INT64_MAX - QN_TUNE_AHEAD_SECONDS) // as now: no row is from after it

// The form (qn_tune_check), and beyond it: texts are UTF-8 that can be printed; `created` is a time, and not after now by more
// than QN_TUNE_AHEAD_SECONDS, for such a row no later result would ever replace. Of this version of the library also: device, architecture, spec, range of sizes
// (qn_bucket_find: its borders may be former ones), sizes, configuration and status are known and fit each other, a winner
// has a time, texts are canonical, for look-ups compare them byte by byte.
// Of other versions these are not judged: what they know may differ. BAD_VALUE, for the form BAD_ARGUMENT, names field,
// value and what is allowed. OUT_OF_MEMORY says nothing of the row. Prepare has no clock (QN_TUNE_NO_CLOCK): a plan does not
// change with the time of day.
quern_status qn_tune_usable(const qn_tune_row *row, int64_t now);

// A range of sizes has at most one winner: of two, none is used. BAD_VALUE.
quern_status qn_tune_one_winner(const qn_tune_row *rows, size_t count);
// All rows of a range of sizes, of which an import takes all or none: each is usable, and at most one the winner.
quern_status qn_tune_problem_usable(const qn_tune_row *rows, size_t count, int64_t now);

#endif
