// SPDX-License-Identifier: Apache-2.0
// A family's tensors with the names in their descriptions looked up: what a launch needs, once a process.
#ifndef QN_OPS_ARGS_LAYOUT_H
#define QN_OPS_ARGS_LAYOUT_H

#include "ops/field.h"

enum { QN_MAX_TENSORS = 24 };

typedef struct qn_tensor_layout {
    const qn_tensor *tensor;
    const qn_field *flag;   // of the spec; NULL: always given
    const qn_field *unless; // of the spec; NULL: none that takes the tensor away
    const qn_field *dtype;  // of the spec; NULL: the tensor's own
    const qn_field *choice; // of the spec; NULL: in every spec
    size_t rank;
    struct {
        const qn_field *field; // of the spec; NULL: a size of the arguments, at args_offset
        size_t args_offset;
        int64_t plus;            // added to either
        const qn_family *family; // neither: its axis_length tells; NULL otherwise
    } axis[QN_MAX_RANK];
} qn_tensor_layout;

typedef struct qn_args_layout {
    qn_tensor_layout tensor[QN_MAX_TENSORS];
} qn_args_layout;

// The layout of a family: kept after the first call; worked out in *scratch each time for a family past the first few.
const qn_args_layout *qn_args_layout_of(const qn_family *family, qn_args_layout *scratch);

#endif
