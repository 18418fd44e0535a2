// SPDX-License-Identifier: Apache-2.0
// The configurations that may serve a bucket of sizes: the family's knobs, pruned by its planner on an architecture.
// Every configuration here has a plan and is canonical (unused knobs are 0), so that equal kernels are met once.
// Used by the search and the command. Compiles nothing, needs no device.
#ifndef QN_TUNE_SPACE_H
#define QN_TUNE_SPACE_H

#include "ops/family.h"

typedef struct qn_space {
    const qn_family *family;
    const quern_spec *spec; // complete
    const qn_arch *arch;
    size_t bucket;
    int sm_count; // of the device; 0: of the architecture's usual part
} qn_space;

// A list without repetition, in the order of adding.
typedef struct qn_configs {
    qn_config *item;
    size_t count, capacity;
} qn_configs;
#define QN_CONFIGS_INIT                                                                                                \
    {                                                                                                                  \
        0, 0, 0                                                                                                        \
    }
quern_status qn_configs_add(qn_configs *list, const qn_config *config); // OUT_OF_MEMORY
bool qn_configs_has(const qn_configs *list, const qn_config *config);
void qn_configs_fini(qn_configs *list);

// Each of these adds what it finds. OUT_OF_MEMORY is their only failure, but for seeds, where a heuristic without a plan
// is a failure too.
quern_status qn_space_seeds(const qn_space *space, qn_configs *list); // the bucket's heuristic, then the other buckets'
quern_status qn_space_neighbours(const qn_space *space, const qn_config *from, qn_configs *list);  // one knob differs
quern_status qn_space_draws(const qn_space *space, uint64_t seed, size_t count, qn_configs *list); // about so many
// Every pair of choices of two knobs, the others as in from.
quern_status qn_space_grid(const qn_space *space, const qn_config *from, size_t knob, size_t other, qn_configs *list);

// The knob of this name, knob_count when there is none.
size_t qn_space_knob(const qn_family *family, const char *name);

#endif
