// SPDX-License-Identifier: Apache-2.0
// The host references: each family's contract in plain C, accumulated in f64. Independent of planner and kernels on
// purpose: they judge them.
#ifndef QN_REFERENCE_H
#define QN_REFERENCE_H

#include "ops/family.h"

#define X(name) quern_status qn_reference_##name(const quern_spec *spec, const quern_args *args);
QN_FAMILIES(X)
#undef X

// The gate's activations of one token in f64, [E], before they are rounded: what its judge measures with.
void qn_gate_activations(const quern_gate_spec *spec, const void *logits, double *a);

// Stored numbers to f32 and back (round to nearest even, NaN kept).
float qn_f16_to_f32(uint16_t bits);
float qn_bf16_to_f32(uint16_t bits);
uint16_t qn_f32_to_f16(float value);
uint16_t qn_f32_to_bf16(float value);

#endif
