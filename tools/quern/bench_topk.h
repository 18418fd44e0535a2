// SPDX-License-Identifier: Apache-2.0
// `quern bench softmax_topk` in its parts: which cases (bench_topk_cases.c), one case on the device
// (bench_softmax_topk.c), its check against the host reference (bench_topk_check.c), its handing over to the peers
// (bench_topk_peers.c), how many of its rows were
// repaired (bench_topk_repairs.c).
#ifndef QUERN_TOOLS_BENCH_TOPK_H
#define QUERN_TOOLS_BENCH_TOPK_H

#include "bench.h"
#include "ops/family.h"

// ---- cases

typedef struct topk_case {
    const char *group; // what the row is for: "table", "rows", "data", …; "asked" for --rows, --V, --K, --in
    const char *data;  // a word of bench_data_parse
    const char *with;  // more fields of the spec: "lse=1"; "" for none
    int64_t rows, V, K;
    quern_dtype in;
    bool peers; // whether peers are timed too
} topk_case;

enum { TOPK_MOST_CASES = 512 };
typedef struct topk_cases {
    topk_case item[TOPK_MOST_CASES];
    size_t count;
} topk_cases;

// The shapes that the project's figures are given for; only: "table,rows" or NULL for all groups; real: what is the
// file of real logits, "real:FILE.npy", or NULL to leave that group out. Cases of the same inputs follow one another.
quern_status topk_cases_default(const char *only, const char *real, topk_cases *cases);

// Every combination of the lists ("1,8,64"; NULL: one default). data must be parsed: a file fixes V and the type.
typedef struct topk_lists {
    const char *rows, *V, *K, *in, *data, *with;
} topk_lists;
quern_status topk_cases_listed(const topk_lists *lists, const bench_data *data, topk_cases *cases);

// ---- a case on the device

enum { TOPK_MOST_TENSORS = 16 };

typedef struct topk_run {
    const bench *bench;
    const bench_data *data;
    int64_t inputs; // which making of data this is: 1, 2, …
    const topk_case *shape;
    const qn_family *family;
    quern_any_spec spec;
    char spec_text[512];
    quern_op *op;
    quern_softmax_topk_args args;
    CUdeviceptr tensor[TOPK_MOST_TENSORS]; // of the family's list; 0: not given, or the logits
    CUdeviceptr workspace;
    int64_t repairs; // -1: not counted
} topk_run;

// An output or an optional input, which lies packed in r->tensor[i].
bool topk_has_tensor(const topk_run *r, size_t i);
size_t topk_row_elements(const topk_run *r, size_t i); // K, or 1
size_t topk_row_bytes(const topk_run *r, size_t i);
// One call on a copy of the inputs, to its end; what the outputs held before is overwritten with a pattern first.
quern_status topk_run_once(topk_run *r, size_t copy);

// Every output of some rows of the first and the last copy, beside the host reference: integers exactly, reals to 2e-5,
// which tells a wrong result from rounding (tests hold the finer bounds). INTERNAL: something differs.
quern_status topk_check(topk_run *r, int64_t *checked_rows);

// Rows of the first copy that the kernel selected again, in one launch.
quern_status topk_count_repairs(topk_run *r, int64_t *repairs);

// Hands a case to the peers, with its inputs and what Quern made of the first copy of them, and waits for their times.
typedef struct topk_measured {
    size_t launches;
    qn_timing timing;
} topk_measured;
quern_status topk_ask_peers(bench_peers *peers, topk_run *r, const topk_measured *measured, cJSON **answer);

#endif
