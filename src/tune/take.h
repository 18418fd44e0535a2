// SPDX-License-Identifier: Apache-2.0
// Tuning results of one database into another, and which of them can go. Used by `quern cache import` and `tune --export`.
#ifndef QN_TUNE_TAKE_H
#define QN_TUNE_TAKE_H

#include "cache/store.h"
#include "cache/tune.h"

typedef struct qn_tune_taken { // ranges of sizes
    int64_t kept, passed_over; // passed_over: measured there at the same time or later
    int64_t left_out;          // a row of them could never be used (runtime/usable.h), or two are winners
    qn_text first;             // why the first of these is left out
} qn_tune_taken;
#define QN_TUNE_TAKEN_INIT                                                                                             \
    {                                                                                                                  \
        0, 0, 0, QN_TEXT_INIT                                                                                          \
    }

// Judges rows as the import of text does (export.h); of a range of sizes all rows come, or none: without its winner the
// others say nothing, and would take the place of results that are there. So none come of a range either that a row may
// have been of whose form is bad where it says of which it is. now: seconds since 1970. The text is the caller's to free.
quern_status qn_tune_sift(const qn_tune_list *all, int64_t now, qn_tune_taken *taken, qn_tune_list *good); // by problem

// CANCELLED when into's cancel says so; kept and passed_over are what is committed, whatever is returned.
quern_status qn_tune_take(quern_store *into, quern_store *from, int64_t now, qn_tune_taken *taken);

#endif
