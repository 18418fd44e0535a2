// SPDX-License-Identifier: Apache-2.0
// The table of kernels in a database, for `quern cache list` and `verify`.
#ifndef QUERN_TOOLS_CACHE_ENTRIES_H
#define QUERN_TOOLS_CACHE_ENTRIES_H

#include "quern/quern.h"
#include "table.h"

enum { CACHE_TIME_BYTES = 32 };

table *cache_entries_create(void);
int cache_entries_add(void *entries, const quern_record *record); // a quern_record_fn

// "2026-03-01 12:30:00" in UTC; "never" for 0.
const char *cache_time(int64_t seconds, char out[CACHE_TIME_BYTES]);

#endif
