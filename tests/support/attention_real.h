// SPDX-License-Identifier: Apache-2.0
// Attention of a real language model (tests/data/README.md): q, k, v of 512 tokens, and what causal attention makes of them.
#ifndef TESTS_SUPPORT_ATTENTION_REAL_H
#define TESTS_SUPPORT_ATTENTION_REAL_H

#include "base/text.h"
#include "quern/quern.h"
#include "tools/quern/npy.h"

enum { ATTENTION_REAL_TOKENS = 512, ATTENTION_REAL_HEADS = 9, ATTENTION_REAL_KV_HEADS = 3, ATTENTION_REAL_DIM = 64 };

typedef struct attention_real {
    npy_array q, k, v, want, want_lse;
    uint16_t *out;             // [512, 9, 64]
    float *lse;                // [512, 9]
    quern_attention_spec spec; // causal, lse
    quern_attention_args args; // host pointers
} attention_real;

// Reads the files; fails the test where one is missing.
void attention_real_make(attention_real *r);
void attention_real_free(attention_real *r);

// Compares out and lse: each element within what rounding P and the result to bf16 cost on these inputs. How many differ by
// more; the first ones are in the report.
int64_t attention_real_check(const attention_real *r, qn_text *report);

#endif
