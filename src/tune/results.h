// SPDX-License-Identifier: Apache-2.0
// From a search to rows of the tuning table. Used by the command.
#ifndef QN_TUNE_RESULTS_H
#define QN_TUNE_RESULTS_H

#include "cache/tune.h"
#include "tune/search.h"

// Appends a row for every trial that was timed or failed.
quern_status qn_tune_results(const qn_search *search, const qn_space *space, const qn_tune_device *device,
                             const char *sizes_text, int64_t created, qn_tune_list *rows);

#endif
