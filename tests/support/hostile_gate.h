// SPDX-License-Identifier: Apache-2.0
// The one list of hostile cases of gate: what broke others (field reports), ties, NaNs and infinities, groups, layouts,
// sizes at the edges of plans, and cases drawn from seeds. Shared by tests/unit (the reference), tests/simt (the model)
// and tests/gpu. Knows nothing of plans and devices. A token's content depends on the case and the token's number only.
#ifndef TESTS_SUPPORT_HOSTILE_GATE_H
#define TESTS_SUPPORT_HOSTILE_GATE_H

#include "support/hostile.h"

typedef struct gate_case gate_case;
typedef void (*gate_fill)(const gate_case *c, int64_t token, float *x); // E logits, before they are rounded
typedef void (*gate_fill_bias)(const gate_case *c, float *bias);        // E

// What every token must give, literally.
typedef struct gate_expected {
    int64_t count;
    int64_t id[32];
    float weight[32]; // a NaN stands for any NaN
} gate_expected;

struct gate_case {
    char name[64];  // unique
    char text[256]; // the spec as text
    unsigned tags;  // HOSTILE_MODEL …
    quern_gate_spec spec;
    int64_t N;
    int64_t logits_stride, given_stride, weights_stride, ids_stride; // elements; 0 = packed
    int64_t offset; // of every tensor, in elements from a multiple of 256 bytes
    uint64_t seed;
    gate_fill fill;
    gate_fill_bias fill_bias;
    float p, q;                    // what the fills make of them is in hostile_gate.c
    bool given_in_turn;            // given_ids are 0, 1, …, else any
    const gate_expected *expected; // NULL: the reference alone decides
};

// The list, made at the first call (not from several threads); lives as long as the process.
const gate_case *gate_cases(size_t *count);
gate_case gate_draw(uint64_t seed);
// Pattern number index on a spec (for the tuner); false: there are no more.
bool gate_pattern(size_t index, const quern_gate_spec *spec, int64_t N, gate_case *c);
bool gate_wanted(const gate_case *c, unsigned tag); // and $QUERN_TEST_CASE is in its name, when that is set

enum { GATE_LOGITS, GATE_BIAS, GATE_GIVEN, GATE_INPUTS, GATE_WEIGHTS = GATE_INPUTS, GATE_IDS, GATE_BUFFERS };
extern const char *const gate_buffer_name[GATE_BUFFERS];

// All elements of logits outside the rows are +inf; every byte of the outputs is a guard byte.
typedef struct gate_data {
    const gate_case *c;
    hostile_buffer buffer[GATE_BUFFERS];
    quern_gate_args args; // host pointers into the buffers
} gate_data;

bool gate_data_make(const gate_case *c, gate_data *data); // false: out of memory
void gate_data_free(gate_data *data);
void gate_data_reset(gate_data *data); // the outputs' guard bytes again
void gate_set_pointer(quern_gate_args *args, int buffer, void *pointer);
int64_t gate_guard_broken(const gate_data *data, int buffer); // place of a byte that is no longer a guard byte, or -1

#endif
