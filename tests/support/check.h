// SPDX-License-Identifier: Apache-2.0
// Judges outputs of softmax_topk: against the host reference under the accuracy rules of the design, against a hostile
// case's literal values, and for guard bytes. Called by simt and gpu tests and by tests of the reference itself. Runs no
// kernel and needs no device; everything is on the host.
//
//   indices, rank   equal
//   logit           equal as numbers, a NaN for a NaN (its payload is free)
//   probability     2 ulp + 1e-6 relative        each of these plus what f32 cannot avoid: half an ulp of x - max, half
//   log-probability 2 ulp + 2e-6                 an ulp of its division by T when there are temperatures, and the same
//   LSE             2 ulp + 1e-5                 in the terms of the sum
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include "base/text.h"
#include "support/hostile.h"

enum { CHECK_MOST_LINES = 8 }; // mismatches that a report lists; the rest is counted

// Compares the outputs that args points to (all on the host, inputs too). Returns the number of mismatches and puts
// them into *report, one a line: output, row, place, both values.
int64_t check_outputs(const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *args, qn_text *report);

// The same for the outputs of a case: reference, literal values of the case, guard bytes. In front of the report comes
// the case with its spec and seed, and how to run it again.
int64_t check_case(const hostile_data *data, qn_text *report);

// One row of a case, as computed by whoever is tested (rows = 1, packed): for LARGE cases, whose whole is too much.
int64_t check_case_row(const hostile_case *c, int64_t row, const quern_softmax_topk_args *got, qn_text *report);

// The lines that say which case failed and how to repeat it.
void check_describe(const hostile_case *c, qn_text *report);

// Mismatch of bits between two runs of a case: place in the buffer, or -1.
int64_t check_same_bits(const hostile_data *first, const hostile_data *second, int *buffer);

#endif
