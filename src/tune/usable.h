// SPDX-License-Identifier: Apache-2.0
// Whether a result from outside can ever be used. Used by the text form's import (export.c).
#ifndef QN_TUNE_USABLE_H
#define QN_TUNE_USABLE_H

#include "cache/tune.h"

// How far the clock of another machine may be ahead of this one's.
enum { QN_TUNE_AHEAD_SECONDS = 24 * 3600 };

// Beyond the form, which qn_tune_check judges: `created` is not after now by more than QN_TUNE_AHEAD_SECONDS, for such a
// row no later result would ever replace. Of this version of the library also: device, architecture, spec, range of sizes,
// sizes, configuration and status are known and fit each other, a winner has a time, texts are canonical, for look-ups
// compare them byte by byte.
// Of other versions these are not judged: what they know may differ. BAD_VALUE names field, value and what is allowed.
quern_status qn_tune_usable(const qn_tune_row *row, int64_t now);

#endif
