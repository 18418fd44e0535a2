// SPDX-License-Identifier: Apache-2.0
// What the benches share: the device with a stream, inputs made on the device, the plain read that times are compared
// with, and the head of the JSON report.
#ifndef QUERN_TOOLS_BENCH_H
#define QUERN_TOOLS_BENCH_H

#include "command.h"
#include "device.h"
#include "npy.h"
#include "table.h"
#include "tune/timing.h"

int bench_softmax_topk(int argc, char **argv);
int bench_runtime(int argc, char **argv);
int bench_first_launch(int argc, char **argv);

typedef struct bench {
    quern *q;
    device device;
    CUstream stream; // for everything but the timed graphs
    int repeats;
} bench;

quern_status bench_open(const command_settings *settings, int ordinal, int repeats, bench *b);
void bench_close(bench *b);

// {"bench": …, "device": …, "driver": …, "quern": …, "date": …, …}; the caller adds its results. device may be NULL.
cJSON *bench_document(const char *name, const device *d);
void bench_print_head(const char *name, const device *d);

quern_status bench_allocate(const bench *b, size_t bytes, CUdeviceptr *address);

// ---- inputs: copies of [rows, V], one after another, each another draw

typedef enum bench_kind { BENCH_RANDOM, BENCH_TIES, BENCH_TWO, BENCH_SORTED, BENCH_EQUAL, BENCH_REAL } bench_kind;

typedef struct bench_data {
    bench_kind kind;
    npy_array real; // BENCH_REAL: [n, V], tiled over the rows
    quern_dtype dtype;
    int64_t rows, V;
    size_t copies, copy_bytes, pitch_bytes; // of a copy; from one to the next
    CUdeviceptr base;
} bench_data;

// "random", "ties", "two", "sorted", "equal", "real:FILE.npy" (which is read). BAD_VALUE lists these.
quern_status bench_data_parse(const char *word, bench_data *data);
quern_status bench_data_make(const bench *b, bench_data *data);    // dtype, rows and V are set
void bench_data_free(const bench *b, bench_data *data);            // the device's part
CUdeviceptr bench_data_copy(const bench_data *data, size_t index); // of launch index

// ---- a plain read of the same copies in the same rotation: the best of some shapes of a kernel that loads 16 bytes at
// a time and takes the maximum
quern_status bench_read(const bench *b, const bench_data *data, qn_timing *timing);

// ---- parts of `bench runtime`; each adds its rows

typedef struct runtime_case {
    const char *spec_text;
    quern_any_spec spec;
    const struct qn_family *family;
} runtime_case;

table *bench_runtime_table(void); // measurement, median, p10, p90, unit
void bench_runtime_add(table *t, const char *what, qn_timing timing, const char *unit);
quern_status bench_lookup(const bench *b, const runtime_case *c, table *t);
quern_status bench_launch(const bench *b, const runtime_case *c, table *t);
// A new process for each sample, on this database, which has the spec's kernels.
quern_status bench_first(const bench *b, const runtime_case *c, const char *db, table *t);
// Compiles every kernel of a spec anew, with no database.
table *bench_compile_table(void);
quern_status bench_compile(const char *spec_text, const qn_arch *arch, table *t);

#endif
