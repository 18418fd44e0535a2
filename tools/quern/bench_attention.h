// SPDX-License-Identifier: Apache-2.0
// What the files of `quern bench attention` share: bench_attention.c (cases, timing, report), bench_attention_data.c
// (inputs, and the check of sampled rows in f64).
#ifndef QUERN_TOOLS_BENCH_ATTENTION_H
#define QUERN_TOOLS_BENCH_ATTENTION_H

#include "bench.h"
#include "runtime/runtime.h"

// Inputs repeat one piece of this many normal numbers, from another place of it for each tensor and copy.
enum { ATTENTION_PIECE = (1 << 21) + 9, ATTENTION_SAMPLES = 12 };

typedef struct attention_shape {
    const char *name; // of the group of rows
    const char *spec;
    int64_t B, Hq, Hkv, Sq, Sk;
    bool peers; // that torch has
} attention_shape;

typedef struct attention_run {
    const bench *bench;
    const attention_shape *shape;
    quern_any_spec any;
    const quern_attention_spec *spec; // complete
    char spec_text[512];
    quern_op *op;
    size_t copies;
    size_t elements[4];    // of a copy of q, k, v (0 with kv_alias), and out
    CUdeviceptr tensor[4]; // all copies of each; one of out
    CUdeviceptr workspace;
    quern_attention_args args;
    double difference; // to f64, the largest of the sampled rows
} attention_run;

quern_status attention_make_inputs(attention_run *r);
void attention_free_inputs(attention_run *r);
// Where tensor 0 q, 1 k, 2 v of a copy begins in the piece.
size_t attention_offset(int tensor, size_t copy);
const uint16_t *attention_piece(quern_dtype dtype); // made at the first call for each type
// Samples rows of the outputs of copy 0 and compares them with f64. Sets r->difference.
quern_status attention_check(attention_run *r);
// The sampled rows: sequence, query, head.
void attention_sample(const attention_run *r, int i, int64_t at[3]);

double attention_flop(const attention_run *r);  // masked ones left out
double attention_bytes(const attention_run *r); // of q, k, v and out, each once

#endif
