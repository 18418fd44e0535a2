// SPDX-License-Identifier: Apache-2.0
// The tuning table of a database: what was tried for a spec on a device, how long it took, which configuration won. Rows
// are text and numbers; this layer knows no family and no device. Read by runtime/stores.c (the winners), written by the
// tuner, both by the command. The table is made by the first put: a database without it has no results, and nothing
// else changes for it.
//
//   problem   device, library, arch, spec and bucket of sizes: its rows are written and replaced together
//   row       one configuration of a problem
#ifndef QN_CACHE_TUNE_H
#define QN_CACHE_TUNE_H

#include "base/text.h"

// What became of a configuration. Words, not numbers: they are the same in the database, in text and on the screen, and
// a word that is not known here says "not the winner".
#define QN_TUNE_BEST    "best"    // to be used
#define QN_TUNE_SLOWER  "slower"  // timed, and lost
#define QN_TUNE_EQUAL   "equal"   // faster than the library's own choice, but not by more than the spread
#define QN_TUNE_WRONG   "wrong"   // its results are wrong
#define QN_TUNE_FAILED  "failed"  // did not compile, load or launch
#define QN_TUNE_TIMEOUT "timeout" // took too long to compile or to run

typedef struct qn_tune_device {
    const char *name;     // the driver's; that of a MIG slice has the slice's profile
    int32_t cc;           // 90
    int32_t sm_count;     //
    int64_t shared_bytes; // shared memory of an SM
    int64_t l2_bytes;     //
    int32_t driver;       // major version of the CUDA that the driver serves: 13
} qn_tune_device;

typedef struct qn_tune_row {
    qn_tune_device device;
    const char *library; // version of Quern that measured, and of its generator
    const char *arch;    // "sm_90a"
    const char *spec;    // canonical text
    const char *bucket;  // "rows 5..14"
    const char *sizes;   // "rows=8": what was timed
    const char *config;  // "plan=cluster block=512 …"
    const char *status;  // QN_TUNE_…
    const char *note;    // why, for people; "" without
    double ns;           // median of a call; 0: not timed
    double spread_ns;    // from the tenth to the ninetieth percentile
    int64_t created;     // seconds since 1970
} qn_tune_row;

// Rows with strings of their own.
typedef struct qn_tune_list {
    qn_tune_row *row;
    size_t count, capacity;
} qn_tune_list;
#define QN_TUNE_LIST_INIT                                                                                              \
    {                                                                                                                  \
        0, 0, 0                                                                                                        \
    }
quern_status qn_tune_list_add(qn_tune_list *list, const qn_tune_row *row); // copies; OUT_OF_MEMORY
void qn_tune_list_fini(qn_tune_list *list);

// A row's form: texts are not NULL, not empty (but note and sizes), at most QN_TUNE_MAX_TEXT bytes and without control
// characters; numbers are in range. BAD_ARGUMENT names the column.
enum { QN_TUNE_MAX_TEXT = 1000 };
quern_status qn_tune_check(const qn_tune_row *row);
bool qn_tune_same_device(const qn_tune_device *a, const qn_tune_device *b); // without the driver
bool qn_tune_same_problem(const qn_tune_row *a, const qn_tune_row *b);
int qn_tune_compare_problems(const qn_tune_row *a, const qn_tune_row *b); // as strcmp does: 0 for the same one
// In rows that are sorted by problem: where the one that begins at `at` ends.
size_t qn_tune_next_problem(const qn_tune_row *rows, size_t count, size_t at);

// ---- in an SQLite store (cache/store.h); UNSUPPORTED for a store of another make

// Appends the rows of a spec (NULL: of all) with a status (NULL: with any), ordered by problem, then by time. Rows come as
// the file has them, those that nobody could have put too: qn_tune_check, and runtime/usable.h with it, finds these.
quern_status qn_sqlite_tune_read(quern_store *store, const char *spec, const char *status, qn_tune_list *list);

// Puts all rows of one problem in place of those that are there, in one transaction. With only_newer a problem that was
// measured at the same time or later stays as it is, and *kept is false. kept may be NULL.
quern_status qn_sqlite_tune_put(quern_store *store, const qn_tune_row *rows, size_t count, bool only_newer, bool *kept);

// The same for rows of many problems, in any order: an import, newer results stay. Many problems share a transaction, none
// is in two. CANCELLED when the store's cancel says so between them. Whatever is returned, the numbers of problems kept
// and passed over are those of what is committed, and stays.
quern_status qn_sqlite_tune_merge(quern_store *store, const qn_tune_list *list, int64_t *kept, int64_t *passed_over);

#endif
