// SPDX-License-Identifier: Apache-2.0
// The one list of hostile cases of router: what broke others (field reports), ties, NaNs and infinities, sums that cancel
// or overflow, types, layouts, sizes at the edges of plans. Shared by tests/unit (the reference), tests/simt (the model)
// and tests/gpu. Knows nothing of plans and devices. A token's content depends on the case and the token's number only, so
// cases that differ in N alone agree in the tokens that both have. Every spec asks for the logits, with which results are
// judged; that a launch without them gives the same is for the tests to see.
#ifndef TESTS_SUPPORT_HOSTILE_ROUTER_H
#define TESTS_SUPPORT_HOSTILE_ROUTER_H

#include "support/hostile_gate.h"

typedef struct router_case router_case;
typedef void (*router_fill)(const router_case *c, int64_t row, float *y); // D elements of a token, or of an expert
typedef void (*router_fill_bias)(const router_case *c, float *bias);      // E

struct router_case {
    char name[64];  // unique
    char text[256]; // the spec as text
    unsigned tags;  // HOSTILE_MODEL …
    quern_router_spec spec;
    int64_t N;
    int64_t x_stride, w_stride, given_stride, weights_stride, ids_stride, logits_stride; // elements; 0 = packed
    int64_t offset; // of every tensor, in elements from a multiple of 256 bytes
    uint64_t seed;
    router_fill fill_x, fill_w;
    router_fill_bias fill_bias;
    float p;                       // what the fills make of it is in hostile_router.c
    const gate_expected *expected; // NULL: the reference alone decides
};

// The list, made at the first call (not from several threads); lives as long as the process.
const router_case *router_cases(size_t *count);
// Pattern number index on a spec that asks for the logits (for the tuner); false: there are no more.
bool router_pattern(size_t index, const quern_router_spec *spec, int64_t N, router_case *c);
bool router_wanted(const router_case *c, unsigned tag); // and $QUERN_TEST_CASE is in its name, when that is set

enum {
    ROUTER_X,
    ROUTER_W,
    ROUTER_BIAS,
    ROUTER_GIVEN,
    ROUTER_INPUTS,
    ROUTER_WEIGHTS = ROUTER_INPUTS,
    ROUTER_IDS,
    ROUTER_LOGITS,
    ROUTER_BUFFERS
};
extern const char *const router_buffer_name[ROUTER_BUFFERS];

// All elements of x and w outside the rows are NaN; every byte of the outputs is a guard byte.
typedef struct router_data {
    const router_case *c;
    hostile_buffer buffer[ROUTER_BUFFERS];
    quern_router_args args; // host pointers into the buffers
} router_data;

bool router_data_make(const router_case *c, router_data *data); // false: out of memory
void router_data_free(router_data *data);
void router_data_reset(router_data *data); // the outputs' guard bytes again
void router_set_pointer(quern_router_args *args, int buffer, void *pointer);
int64_t router_guard_broken(const router_data *data,
                            int buffer); // place of a byte that is no longer a guard byte, or -1

#endif
