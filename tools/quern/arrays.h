// SPDX-License-Identifier: Apache-2.0
// A spec and its .npy files: which file is which tensor, what sizes follow from the inputs' shapes, and the family's
// argument structure on host memory. Works from the family's lists and knows no family by name. Used by run.
#ifndef QUERN_TOOLS_ARRAYS_H
#define QUERN_TOOLS_ARRAYS_H

#include "npy.h"
#include "ops/family.h"

enum { ARRAYS_MAX_TENSORS = 24, ARRAYS_MAX_SIZES = 16 };

typedef struct bound_tensor {
    const qn_tensor *tensor;
    const char *file; // NULL: not named on the command line
    bool given;       // the spec has it
    quern_dtype dtype;
    npy_shape shape;
    size_t bytes;
    void *data; // host memory, owned
    output_file writer;
} bound_tensor;

typedef struct arrays {
    const qn_family *family;
    quern_any_spec spec;
    char spec_text[512];                     // canonical
    bound_tensor tensor[ARRAYS_MAX_TENSORS]; // the family's tensors, in its order
    size_t tensor_count;
    int64_t size[ARRAYS_MAX_SIZES]; // the family's sizes; -1: not known yet
    quern_args *args;               // host pointers
} arrays;

// Reads the spec and "name=FILE" words. A file for an optional tensor sets the field that asks for it; so does an output
// that is expected ("indices=FILE,values=FILE", from --expect). Statuses 3 and 10 to 16: mistakes on the command line.
quern_status arrays_bind(const char *spec_text, char *const *words, size_t word_count, const char *const *expected,
                         size_t expected_count, arrays *a);

// Reads inputs, checks types and shapes against the spec, infers sizes, makes room for outputs, fills args, and makes
// the outputs' temporary files.
quern_status arrays_load(arrays *a);

// Writes the outputs that were named. All are complete beside their places before the first is moved into its place, so
// that a full disk changes none. The moves themselves are one after another: should one fail, or the machine stop
// between two, those before it are done, each whole; the message then names the one that failed and how many are done.
quern_status arrays_store(arrays *a);

// Whether two paths are one file, or would be once written.
bool arrays_same_file(const char *a, const char *b);
void arrays_fini(arrays *a);

// The first output that holds winners' numbers (integers [rows, K]) and the one with their values, NULL without.
const bound_tensor *arrays_winners(const arrays *a);
const bound_tensor *arrays_values(const arrays *a);
const bound_tensor *arrays_find(const arrays *a, const char *name, size_t length);

// One element as a number.
double arrays_real(quern_dtype dtype, const void *data, size_t index);
int64_t arrays_int(quern_dtype dtype, const void *data, size_t index);

#endif
