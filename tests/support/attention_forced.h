// SPDX-License-Identifier: Apache-2.0
// attention's plans by force on the functional model, for tests/simt: cases that a table describes, each with the
// configuration it is for and the kernels that must have run.
#ifndef TESTS_SUPPORT_ATTENTION_FORCED_H
#define TESTS_SUPPORT_ATTENTION_FORCED_H

#include "support/check_attention.h"
#include "support/simt_cases.h"

enum { FORCED_ASAN = 1, FORCED_ACCESS = 2 }; // builds

typedef struct attention_forced {
    const char *name, *config, *fields;
    unsigned builds; // that the case runs in
    int B, Hq, Hkv;
    int64_t queries[3], keys[3]; // of each sequence; all zero after the first: as the first
    int64_t Sk;                  // dense: more than the longest; 0: as long
    attention_order order;
    const char *ran; // the kernels, a letter each, in order
} attention_forced;

typedef struct attention_forced_list {
    const char *what; // the cases are called
    const attention_forced *item;
    size_t count;
    uint64_t seed;
    char (*letter)(const char *source); // of a kernel's text
} attention_forced_list;

attention_case attention_forced_case(const attention_forced *f, uint64_t seed);
// The cases of a build; $QUERN_TEST_CASE and $QUERN_TEST_SHARD take a part. Unused memory is NaN.
void attention_forced_run(const attention_forced_list *list, model_build build, size_t least);

// The configuration that is chosen for a case on sm_90a has this plan.
bool attention_is_served(const attention_data *data, int plan);
// The hostile cases for the model that the plan serves, as they are chosen, on sm_90a.
void attention_served_run(int plan, size_t least);

#endif
