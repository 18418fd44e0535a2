// SPDX-License-Identifier: Apache-2.0
// Arguments that are right at a glance: an op's whole check as one short list of numbers, made when it is prepared, so
// that a launch walks a few cache lines instead of a family's descriptions.
//   (1) What a glance accepts, qn_check_args accepts, and no tensor of it is empty. What it does not accept may be right
//       all the same (unusual strides, very large sizes) or wrong: the full check decides, and words the message.
#ifndef QN_OPS_ARGS_GLANCE_H
#define QN_OPS_ARGS_GLANCE_H

#include <string.h>

#include "ops/family.h"

enum { QN_MAX_GLANCES = 56 };

// One number of the argument structure, 64 bits wide: a size, a stride or a pointer.
typedef struct qn_glance {
    uint16_t offset;
    bool or_zero;  // 0 is right too: the stride of a packed tensor
    uint32_t mask; // bits that are not set: a pointer's alignment
    uint64_t least, span;
} qn_glance;

typedef struct qn_args_glance {
    size_t count; // 0: nothing is accepted
    qn_glance number[QN_MAX_GLANCES];
} qn_args_glance;

// Of a complete spec. Families whose check_args asks for more than qn_check_args have none.
void qn_args_glance_of(const qn_family *family, const quern_spec *spec, qn_args_glance *glance);

// args is of the family, and its structure has the family's length.
static inline bool qn_args_at_a_glance(const qn_args_glance *glance, const quern_args *args)
{
    for (size_t i = 0; i < glance->count; i++) {
        const qn_glance *g = &glance->number[i];
        uint64_t value;
        memcpy(&value, (const char *)args + g->offset, sizeof value);
        if (value - g->least <= g->span && !(value & g->mask)) continue;
        if (value || !g->or_zero) return false;
    }
    return glance->count > 0;
}

#endif
