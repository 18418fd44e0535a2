// SPDX-License-Identifier: Apache-2.0
// Arrays in .npy files, format versions 1, 2 and 3: C order, little endian, the types that Quern's tensors have. bf16 is
// '<u2' (bit patterns) or '<V2' (what ml_dtypes' bfloat16 is saved as). Used by run and bench.
//   (1) A file is accepted only whole: exact header, exact length.
//   (2) Of several files all are written and closed before the first is renamed (output.h).
#ifndef QUERN_TOOLS_NPY_H
#define QUERN_TOOLS_NPY_H

#include <stdbool.h>

#include "base/text.h"
#include "output.h"

enum { NPY_MAX_RANK = 8 };

typedef struct npy_shape {
    size_t rank;
    int64_t extent[NPY_MAX_RANK];
} npy_shape;

typedef struct npy_array {
    quern_dtype dtype; // QUERN_BF16 for <u2 and <V2
    const char *descr; // as it stood in the file: "<f4"
    npy_shape shape;
    int64_t count; // elements
    size_t bytes;
    void *data; // malloc'ed, owned
} npy_array;

// Reads a whole file. FILE_ERROR when it cannot be read, BAD_FILE when it is not such an array (another type, Fortran
// order, truncated, …); messages begin with the path.
quern_status npy_read(const char *path, npy_array *array);
void npy_fini(npy_array *array);

// "[64, 256]"
void npy_shape_write(const npy_shape *shape, qn_text *text);
int64_t npy_shape_count(const npy_shape *shape);

// Puts an array into a file that output_open(…, OUTPUT_FILE, …) made.
quern_status npy_write(output_file *file, quern_dtype dtype, const npy_shape *shape, const void *data);

#endif
