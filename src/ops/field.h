// SPDX-License-Identifier: Apache-2.0
// One field of a structure, by its description: reading, writing, naming. Used by spec.c, spec_text.c and args.c.
#ifndef QN_OPS_FIELD_H
#define QN_OPS_FIELD_H

#include "ops/family.h"

size_t qn_field_bytes(const qn_field *field); // in the structure

int64_t qn_field_get(const qn_field *field, const void *structure); // integer types
double qn_field_get_real(const qn_field *field, const void *structure);
void qn_field_put(const qn_field *field, void *structure, int64_t value);
void qn_field_put_real(const qn_field *field, void *structure, double value);
void qn_field_put_default(const qn_field *field, void *structure);

bool qn_field_is_default(const qn_field *field, const void *structure);

// By name; NULL if there is none. Compares pointers before letters, so that a launch pays little: names in a family's
// lists mostly are the same literals.
const qn_field *qn_field_find(const qn_field *fields, size_t count, const char *name);

const char *qn_name_of(const qn_name *names, int value);  // NULL if none
void qn_names_write(const qn_name *names, qn_text *text); // "f32, f16, bf16"

// BAD_VALUE (the value, what is allowed), or MISSING_FIELD for a required field left at 0.
quern_status qn_field_check(const qn_field *field, const void *structure);

#endif
