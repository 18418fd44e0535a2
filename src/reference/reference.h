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

// The router's dots of one token in f64, [E], before they are rounded, and (unless NULL) the sums of their terms' sizes.
void qn_router_dots(const quern_router_spec *spec, const quern_router_args *args, int64_t token, double *dot,
                    double *size);

// What quern_<family> promises of its numbers, for comparing files: absolute differences (tolerance.c).
double qn_tolerance_default(const quern_spec *spec, const qn_tensor *tensor, double want);
double qn_tolerance_softmax_topk(const quern_spec *spec, const qn_tensor *tensor, double want);
double qn_tolerance_gate(const quern_spec *spec, const qn_tensor *tensor, double want);
double qn_tolerance_attention(const quern_spec *spec, const qn_tensor *tensor, double want);

// The indexer's scores of row t in f64, one a result of qn_indexer_results, before they are rounded; bound (may be NULL):
// Σ |w| Σ |q · key|, by which the accuracy of a score is measured. For its judge.
int64_t qn_indexer_results(const quern_indexer_spec *spec, const quern_indexer_args *args, int64_t t);
quern_status qn_indexer_scores(const quern_indexer_spec *spec, const quern_indexer_args *args, int64_t t, double *score,
                               double *bound);

// Stored numbers to f32 and back (round to nearest even, NaN kept).
float qn_f16_to_f32(uint16_t bits);
float qn_bf16_to_f32(uint16_t bits);
uint16_t qn_f32_to_f16(float value);
uint16_t qn_f32_to_bf16(float value);

// Contents of tensors of positions: BAD_FILE names tensor, place, value and range (contents.c).
quern_status qn_attention_contents(const quern_spec *spec, const quern_args *args);
quern_status qn_indexer_contents(const quern_spec *spec, const quern_args *args);

#endif
