// SPDX-License-Identifier: Apache-2.0
// Whether a result from outside can ever be used. Used where such results come in: by prepare for what a database has
// (stores.c), by the text form's import (tune/export.c) and by that of databases (tune/take.c).
#ifndef QN_RUNTIME_USABLE_H
#define QN_RUNTIME_USABLE_H

#include "cache/tune.h"

// How far the clock of another machine may be ahead of this one's.
enum { QN_TUNE_AHEAD_SECONDS = 24 * 3600 };
#define QN_TUNE_NO_CLOCK (INT64_MAX - QN_TUNE_AHEAD_SECONDS) // as now: no row is from after it

// Beyond the form, which qn_tune_check judges: `created` is not after now by more than QN_TUNE_AHEAD_SECONDS, for such a
// row no later result would ever replace. Of this version of the library also: device, architecture, spec, range of sizes
// (qn_bucket_find: its borders may be former ones), sizes, configuration and status are known and fit each other, a winner
// has a time, texts are canonical, for look-ups compare them byte by byte.
// Of other versions these are not judged: what they know may differ. BAD_VALUE names field, value and what is allowed.
quern_status qn_tune_usable(const qn_tune_row *row, int64_t now);

#endif
