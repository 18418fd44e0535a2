// SPDX-License-Identifier: Apache-2.0
// What the files of `quern tune` share.
//
//   tune.c           the options, and which of the actions they ask for
//   tune_jobs.c      specs and sizes → the ranges of sizes that are to be tuned
//   tune_run.c       the search on a GPU, progress, Ctrl-C
//   tune_compare.c   tuned beside the library's own choice: gains, their median and the largest; no GPU needed
//   tune_table.c     list, explain, export, import: no GPU needed
//   tune_rows.c      the results that are shown, from which table, in which order
//   tune_plot.c      heat maps
//   tune_check.c     a candidate's results on a family's hostile inputs
//   tune_<family>.c  what the tuner must know of a family: its inputs, and the judge of its outputs
#ifndef QUERN_TOOLS_TUNE_H
#define QUERN_TOOLS_TUNE_H

#include "cache/store.h"
#include "cache/tune.h"
#include "command.h"
#include "output.h"
#include "specs.h"
#include "tune_subject.h"

typedef struct tune_job { // a range of sizes of a spec
    const spec_item *item;
    const tune_subject *subject;
    size_t bucket;
    _Alignas(16) unsigned char sizes[128]; // what is timed
    char sizes_text[192];
} tune_job;

typedef struct tune_request {
    command_settings settings;
    spec_list specs;
    command_sizes sizes; // lists: "1,8,64"
    tune_job *jobs;
    size_t job_count;
    double seconds; // 0: the default
    int64_t threads;
    int ordinal;
    const char *plot; // a file; NULL: none
    const char *file; // the table: --db, else the user's database
    bool has_store;   // false: nothing but the results of other tables is known
    quern_store store;
} tune_request;

// Makes the jobs of all specs, before a GPU is looked for. COMMAND_OK or the exit status.
int tune_make_jobs(tune_request *r);

// Each returns an exit status. r->store is open, if there is one: run and import have it.
int tune_run(tune_request *r);
int tune_compare(tune_request *r); // of every spec in the table, or of r->specs
int tune_list_results(tune_request *r);
int tune_explain(tune_request *r);
int tune_export(tune_request *r, const char *file);
int tune_import(tune_request *r, const char *file);

// The device that results are judged for; false: there is none.
bool tune_device(int ordinal, char name[128], qn_tune_device *device);

// ---- results as they are shown

typedef struct tune_shown {
    const qn_tune_row *row;
    const char *table; // "database", "sealed", "built-in"
    int origin;        // which of the sealed
    char *why;         // why an import does not take it; NULL: it does
    bool used;         // prepare does all the same: it is dated ahead
} tune_shown;

enum { TUNE_LISTS = 1 + 16 }; // the library takes no more sealed ones
typedef struct tune_rows {    // sorted, in it by table
    tune_shown *item;
    size_t count;
    qn_tune_list list[TUNE_LISTS]; // the database's, then the sealed ones'
} tune_rows;
#define TUNE_ROWS_INIT                                                                                                 \
    {                                                                                                                  \
        NULL, 0,                                                                                                       \
        {                                                                                                              \
            QN_TUNE_LIST_INIT                                                                                          \
        }                                                                                                              \
    }
// Of the database and the sealed ones; spec and status as for qn_sqlite_tune_read. The built-in table has winners alone.
quern_status tune_rows_read(tune_request *r, const char *spec, const char *status, tune_rows *rows);
void tune_rows_note(const tune_rows *rows); // on standard error, how many are left out, and why
quern_status tune_rows_built_in(const char *spec, tune_rows *rows);
void tune_rows_fini(tune_rows *rows);

quern_status tune_read(tune_request *r, const char *spec, const char *status, qn_tune_list *list); // the database alone
void tune_sort(qn_tune_list *list);

// ---- the rest

// How many results of a spec (NULL: of all) come with the library.
size_t tune_count_built_in(const char *spec);

// Heat maps of the rows of one family's specs, one a problem: time over local_k × block, the best of each cell. FILE_ERROR;
// BAD_ARGUMENT when nothing of the rows can be drawn.
quern_status tune_plot(const char *file, const qn_family *family, const qn_tune_list *rows);

// ---- gains: by how much the library's own choice is slower than the winner, in per cent

typedef struct tune_gains {
    double *percent;
    const char **names; // of the ranges, "softmax_topk V=… rows=8"; owned
    size_t count, capacity;
    size_t unknown; // ranges whose own choice was not timed
} tune_gains;

void tune_gains_add(tune_gains *gains, const char *spec, const char *sizes, double percent); // NaN: not known
void tune_gains_fini(tune_gains *gains);
double tune_gains_median(const tune_gains *gains);               // NaN: there is none
size_t tune_gains_worst(const tune_gains *gains);                // index of the largest; count: there is none
size_t tune_gains_over(const tune_gains *gains, double percent); // how many are larger
void tune_gains_print(const tune_gains *gains);                  // two lines on stdout
struct cJSON *tune_gains_json(const tune_gains *gains);          // {"ranges": …, "median_percent": …, …}

#endif
