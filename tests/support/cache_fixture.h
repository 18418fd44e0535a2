// SPDX-License-Identifier: Apache-2.0
// What the tests of the cache share: a folder of their own, records made from a number, and looking at what a store
// holds. The same number makes the same record in every process. Opening, putting, getting, counting and samples may be
// used in forked children: they assert nothing (an assert of cmocka that fails in a child would go on with the tests).
#ifndef TESTS_SUPPORT_CACHE_FIXTURE_H
#define TESTS_SUPPORT_CACHE_FIXTURE_H

#include <sys/types.h>

#include "cache/store.h"

// An empty folder, removed with everything in it at the end. path(folder, "x.db") uses one of a few static buffers.
void cache_folder_make(char folder[64]);
void cache_folder_remove(const char *folder);
const char *cache_path(const char *folder, const char *name);
int cache_folder_count(const char *folder); // entries in it

// A record that is right in every respect: key hashes to hash, image to sum, the image is a plausible cubin.
typedef struct cache_sample {
    quern_record record;
    char key[128], entry[32], spec[64];
    unsigned char *image; // malloc
} cache_sample;
void cache_sample_make(cache_sample *sample, int number, size_t image_bytes);
void cache_sample_sum(cache_sample *sample); // makes hash and sum right again after a change
void cache_sample_free(cache_sample *sample);

// Options for this file: read and write, one second of patience, no cap.
qn_sqlite_options cache_options(const char *file);
quern_store cache_open(const char *file);      // ends the program if it fails
quern_store cache_open_read(const char *file); // read-only access

quern_status cache_put(quern_store *store, int number); // sample of this number, 5000 bytes
quern_status cache_get(quern_store *store, int number); // OK only if the record is as it was put, byte for byte
quern_status cache_get_of(quern_store *store, const cache_sample *sample, const char *toolchain);
int cache_count(quern_store *store); // entries that list gives; -1: it failed

// SQL on a file, by SQLite itself. cache_sql asserts success; cache_sql_int gives the first column of the first row.
void cache_sql(const char *file, const char *sql);
int64_t cache_sql_int(const char *file, const char *sql);

void cache_write_file(const char *file, const void *bytes, size_t count);
void cache_overwrite(const char *file, int64_t offset, const void *bytes, size_t count);
void cache_read_at(const char *file, int64_t offset, void *bytes, size_t count);
void cache_copy_file(const char *from, const char *to);
uint32_t cache_change_counter(const char *file); // of the file's header: every transaction that wrote raises it
int64_t cache_file_size(const char *file);
const char *cache_golden(const char *name); // the path of tests/data/databases/NAME

// Runs work in a forked child. Its result is the child's exit status; 128 + N if signal N ended it.
int cache_in_child(int (*work)(void *user), void *user);
int cache_child_end(pid_t child); // waits for it; the same result
// Until a number that processes share is at least so much; fails after so many seconds.
void cache_wait_until(const _Atomic int *value, int least, int seconds);

#endif
