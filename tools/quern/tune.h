// SPDX-License-Identifier: Apache-2.0
// What the files of `quern tune` share.
//
//   tune.c               the options, and which of the actions they ask for
//   tune_run.c           the search on a GPU, progress, Ctrl-C
//   tune_table.c         list, explain, export, import: no GPU needed
//   tune_plot.c          heat maps
//   tune_softmax_topk.c  what the tuner must know of that family: inputs, and whether results are right
#ifndef QUERN_TOOLS_TUNE_H
#define QUERN_TOOLS_TUNE_H

#include "cache/store.h"
#include "cache/tune.h"
#include "command.h"
#include "device.h"
#include "ops/family.h"
#include "specs.h"

enum { TUNE_MAX_SIZES = 16 };

typedef struct tune_request {
    command_settings settings;
    spec_list specs;
    struct {
        const char *name; // of a size of some family
        const char *list; // "1,8,64"; NULL: not given
    } size[TUNE_MAX_SIZES];
    size_t size_count;
    double seconds; // 0: the default
    int64_t threads;
    int ordinal;
    const char *plot; // a file; NULL: none
    const char *file; // the table: --db, else the user's database
    quern_store store;
} tune_request;

// Each returns an exit status. r->store is open.
int tune_run(tune_request *r);
int tune_list_results(tune_request *r);
int tune_explain(tune_request *r);
int tune_export(tune_request *r, const char *file);
int tune_import(tune_request *r, const char *file);

// The device that results are judged for; false: there is none.
bool tune_device(int ordinal, char name[128], qn_tune_device *device);

// Heat maps of the rows of one family's specs, one a problem: time over local_k × block, the best of each cell. FILE_ERROR.
quern_status tune_plot(const char *file, const qn_family *family, const qn_tune_list *rows);

// Writes a whole file under another name, then moves it into place. FILE_ERROR.
quern_status tune_write_file(const char *file, const qn_text *text);

// ---- what the tuner must know of a family

typedef struct tune_subject {
    const qn_family *family;
    bool (*fill)(void *user, const qn_tensor *tensor, size_t copy, void *host, size_t elements); // tune/measure.h
    // Ordinary and hostile inputs of a spec, each run and judged: OK, or INTERNAL with the first difference.
    quern_status (*check)(const device *d, const quern_spec *spec, const quern_op *op);
} tune_subject;

#define TUNE_SUBJECTS(X) X(softmax_topk)
#define X(name)          extern const tune_subject tune_##name;
TUNE_SUBJECTS(X)
#undef X

#endif
