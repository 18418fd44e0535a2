// SPDX-License-Identifier: Apache-2.0
// Judges outputs of gate: against the host reference under the accuracy rules of the design, against a hostile case's
// literal values, and for guard bytes. Runs no kernel and needs no device; everything is on the host.
//
//   ids      as the reference's; else each that stands before another must not have a score that lies below it by more
//            than 8 ulp of the activation and 1/2 ulp of each score (f64 scores), nor may an expert that was left out
//            lie above the last by more; equal logits with equal biases are in order of their ids; groups likewise
//   weights  8 ulp in each activation, and the rounding of sum, division and scale
#ifndef TESTS_SUPPORT_CHECK_GATE_H
#define TESTS_SUPPORT_CHECK_GATE_H

#include "base/text.h"
#include "support/hostile_gate.h"

// Compares the outputs that args points to. Returns the number of mismatches and puts them into *report, one a line.
int64_t gate_check_outputs(const quern_gate_spec *spec, const quern_gate_args *args, qn_text *report);

// The same for the outputs of a case, with its literal values and guard bytes; the case is named in front of the report.
int64_t gate_check_case(const gate_data *data, qn_text *report);

// The lines that say which case failed and how to repeat it.
void gate_describe(const gate_case *c, qn_text *report);

// Mismatch of bits between two runs of a case: place in *buffer, or -1.
int64_t gate_same_bits(const gate_data *first, const gate_data *second, int *buffer);

#endif
