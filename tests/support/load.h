// SPDX-License-Identifier: Apache-2.0
// What the load tests share: a clock, this process's memory and descriptors, and a store that makes its records up.
#ifndef TESTS_SUPPORT_LOAD_H
#define TESTS_SUPPORT_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/store.h"

int64_t load_now_ns(void);                     // monotonic
double load_median_us(int64_t *ns, int count); // of so many times in ns; sorts them

// Memory that is resident, in KiB: now, and the most since the last load_peak_reset.
int64_t load_resident_kib(void);
int64_t load_peak_kib(void);
void load_peak_reset(void);
int load_open_files(void);
bool load_is_sanitized(void); // memory is a sanitizer's then, and times mean nothing

// A store whose list gives records first … first + count - 1, as cache_sample_make makes them. Only list works.
typedef struct load_records {
    int first, count;
    size_t image_bytes;
} load_records;
quern_store load_store(load_records *records);

// Takes the file's pages out of the system's cache, so that the next look is at the disk. Not while it is open here.
void load_make_cold(const char *file);

#endif
