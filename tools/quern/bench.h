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
int bench_gate(int argc, char **argv);
int bench_attention(int argc, char **argv);
int bench_router(int argc, char **argv);
int bench_indexer(int argc, char **argv);
int bench_runtime(int argc, char **argv);
int bench_first_launch(int argc, char **argv);

typedef struct bench_peers bench_peers; // below

typedef struct bench {
    quern *q;
    device device;
    CUstream stream; // for everything but the timed graphs
    int repeats;
} bench;

// Before a GPU is looked for: whether a spec is one, of this family (NULL: any), and a configuration's text, which may be
// NULL, one of that family's.
quern_status bench_check_spec(const char *spec_text, const char *family, const char *config_text);
quern_status bench_open(const command_settings *settings, int ordinal, int repeats, bench *b);
void bench_close(bench *b);

// {"bench": …, "quern": …, "date": …, "nvrtc": …, "device": …, "driver": …, …}; the caller adds its results. device may be
// NULL. What can't be found out is left out.
cJSON *bench_document(const char *name, const device *d);
void bench_print_head(const char *name, const device *d);

// {"us_median": …, "us_p10": …, "us_p90": …, "gb_per_s": …}; bytes: what a call reads at least
cJSON *bench_timing_json(const qn_timing *timing, size_t bytes);
double bench_rounded(double value); // to five digits, for reports

// A whole report whose results are a table: its rows, and with peers (NULL: without) what these are.
cJSON *bench_table_document(const char *name, const bench *b, const bench_peers *peers, const table *t, bool complete);
// The file of --out (NULL: none is written): what is done by now in FILE.partial, which takes FILE's name when complete.
quern_status bench_write(const cJSON *document, const char *file, bool complete);
quern_status bench_table_write(const char *name, const bench *b, const bench_peers *peers, const table *t,
                               const char *file, bool complete);

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

// ---- peers: other libraries, in a Python process of their own on the same GPU (tools/bench/peers.py, which describes
// the messages). The two take turns: while one works the other waits for a message.

typedef struct bench_peers_options {
    const char *which;  // "torch", or names of peers
    const char *python; // the interpreter
    const char *script; // NULL: beside this program or its sources
    int device;
} bench_peers_options;

// Starts the process and waits until it has found its libraries. UNSUPPORTED: it has none, and says why.
quern_status bench_peers_start(const bench_peers_options *options, bench_peers **peers);
void bench_peers_stop(bench_peers *peers);                // NULL is allowed
const cJSON *bench_peers_hello(const bench_peers *peers); // versions; what the peers are
// Memory that both processes see, of this size from now on. Inputs have a number: *memory is NULL when these were given.
quern_status bench_peers_inputs(bench_peers *peers, int64_t number, size_t bytes, void **memory);
quern_status bench_peers_arrays(bench_peers *peers, size_t bytes, void **memory);
// Sends a request, which it deletes, and waits for the answer. *answer, the caller's: {name: {"us_median", …} or {"error"}},
// with how many of Quern's calls (own) one of the peer's takes: "x_quern" of the medians, "x_quern_low" and "x_quern_high"
// from the best for it to the worst. INTERNAL when the answer as a whole is an error.
quern_status bench_peers_ask(bench_peers *peers, cJSON *request, const qn_timing *own, cJSON **answer);
double bench_peers_number(const cJSON *peer, const char *name); // NaN: it has none, or peer is NULL
const cJSON *bench_peers_best(const cJSON *peers);              // the fastest; NULL when none has a time

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
