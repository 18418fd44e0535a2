// SPDX-License-Identifier: Apache-2.0
// The one list of hostile cases of softmax_topk: what broke others (field reports), what breaks selection algorithms,
// and cases drawn from seeds. Shared by tests/unit (the reference), tests/simt (the model), tests/gpu and the tuner.
// Knows nothing of plans and devices; a case is data: a spec, where the tensors lie, and what fills them.
//   (1) Everything follows from the case, seeds included: no clock, no order, no libm.
//   (2) A row's content depends on the case and the row's number only.
//
// Three files: hostile.c the list, hostile_fill.c the rows, hostile_data.c the tensors on the host.
#ifndef TESTS_SUPPORT_HOSTILE_H
#define TESTS_SUPPORT_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quern/quern.h"

enum {
    HOSTILE_MODEL = 1, // few rows: for the functional model too
    HOSTILE_GPU = 2,   // for a device, every row compared
    HOSTILE_LARGE = 4, // for a device with memory to spare: only sampled rows are compared
    HOSTILE_QUICK = 8  // the subset for slow tools (compute-sanitizer): few specs
};

typedef struct hostile_case hostile_case;

// Row `row` as f32, before it is rounded to the spec's dtype: V values, bit patterns of NaNs included.
typedef void (*hostile_fill)(const hostile_case *c, int64_t row, float *x);

// What a row must give, literally: the first `count` winners; lse when it has one.
enum { HOSTILE_MAX_K = 2048 };
typedef struct hostile_expected {
    int64_t count;
    int64_t index[HOSTILE_MAX_K];
    float value[HOSTILE_MAX_K]; // of the case's spec.value; a NaN stands for any NaN
    bool has_lse;
    float lse;
} hostile_expected;
typedef void (*hostile_expect)(const hostile_case *c, int64_t row, hostile_expected *expected);

struct hostile_case {
    char name[64];  // unique
    char text[256]; // the spec as text
    unsigned tags;
    quern_softmax_topk_spec spec;
    int64_t rows;
    int64_t period;                                       // rows repeat after so many; 0 = never
    int64_t logits_stride, values_stride, indices_stride; // elements; 0 = packed
    int64_t logits_offset, values_offset, indices_offset; // elements from an address that is a multiple of 256
    uint64_t seed;
    hostile_fill fill;
    int64_t a, b; // what the fill makes of them is in hostile_fill.h
    float p, q;
    const float *temperatures; // row r has entry (r + seed) % count; NULL: the common list
    size_t temperature_count;
    hostile_expect expect; // NULL: the reference alone decides
};

// The list, made at the first call (not from several threads); lives as long as the process.
const hostile_case *hostile_cases(size_t *count);

const hostile_case *hostile_case_named(const char *name); // stops the program where there is none

// Pattern `index` of the list (ordinary, then hostile) on a spec of the caller's, packed rows: what the tuner checks its
// candidates with. False past the last.
bool hostile_pattern(size_t index, const quern_softmax_topk_spec *spec, int64_t rows, hostile_case *c);

// A case drawn from a seed: shape, dtype, features, layout, data. large: V up to 200,000, else up to 3,000.
hostile_case hostile_draw(uint64_t seed, bool large);

// The cases of a test run: tag in their tags, and name containing $QUERN_TEST_CASE when that is set.
bool hostile_wanted(const hostile_case *c, unsigned tag);

// ---- a case's tensors on the host (hostile_data.c)

// Row `row` in the case's dtype: V elements.
void hostile_row(const hostile_case *c, int64_t row, void *logits);
float hostile_temperature(const hostile_case *c, int64_t row);
int32_t hostile_token(const hostile_case *c, int64_t row);

// One tensor in an allocation of its own, whose base is a multiple of 256: `at` bytes, the tensor, and for outputs
// guard bytes after it. An input ends with its last element, so that a memory checker sees the first byte too many.
typedef struct hostile_buffer {
    unsigned char *bytes; // NULL: the case does not have this tensor
    size_t count, at;
} hostile_buffer;

enum {
    HOSTILE_LOGITS,
    HOSTILE_TEMPERATURE,
    HOSTILE_TOKEN,
    HOSTILE_INPUTS,
    HOSTILE_VALUES = HOSTILE_INPUTS,
    HOSTILE_INDICES,
    HOSTILE_LSE,
    HOSTILE_TOKEN_VALUE,
    HOSTILE_TOKEN_RANK,
    HOSTILE_BUFFERS
};

// All elements of logits outside the rows are +inf; every byte of the outputs is a guard byte.
typedef struct hostile_data {
    const hostile_case *c;
    hostile_buffer buffer[HOSTILE_BUFFERS];
    quern_softmax_topk_args args; // host pointers into the buffers
} hostile_data;

// False: out of memory. A case that is only LARGE is not made whole: use hostile_row.
bool hostile_data_make(const hostile_case *c, hostile_data *data);
void hostile_data_free(hostile_data *data);
void hostile_data_reset(hostile_data *data); // the outputs' guard bytes again

// Output buffers of the same sizes, for another run's results; no inputs. False: out of memory.
bool hostile_data_make_outputs(const hostile_case *c, hostile_data *data);

// The argument structure with the case's sizes and strides and no pointers; and where buffer i's pointer is in it.
quern_softmax_topk_args hostile_args(const hostile_case *c);
void hostile_set_pointer(quern_softmax_topk_args *args, int buffer, void *pointer);

// Byte of an output outside its rows that is no longer a guard byte: its place, or -1.
int64_t hostile_guard_broken(const hostile_data *data, int buffer);
extern const char *const hostile_buffer_name[HOSTILE_BUFFERS];

enum { HOSTILE_GUARD = 0xA5, HOSTILE_GUARD_BYTES = 256 };

#endif
