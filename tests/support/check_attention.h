// SPDX-License-Identifier: Apache-2.0
// Judges outputs of attention: against a computation in f64 under the accuracy rules of the design, and for guard bytes.
// Runs no kernel and needs no device; everything is on the host.
//
//   out   each element: half an ulp of its type, and what rounding P to it may cost at most, 2^-8 (f16: 2^-11) times
//         Σ p |v|, or Σ p |v - out| when the sum that P is divided by is of what it was rounded to (which keeps a mean of
//         equal v exact, but may double the error beside a dominant key), and the f32 softmax. All elements of a case
//         together: their root mean square error is at most 1.3 times that of attention whose P is rounded so, before or
//         after it is divided by its sum, and whose result is rounded once
//   lse   1e-5 + 2 ulp, and what f32 dot products cannot avoid
//   NaN for NaN, infinity for infinity; 0 and -inf of rows that see nothing exactly
#ifndef TESTS_SUPPORT_CHECK_ATTENTION_H
#define TESTS_SUPPORT_CHECK_ATTENTION_H

#include "base/text.h"
#include "support/hostile_attention.h"

// Outputs of a case; the case is named in front of the report. Returns the number of mismatches.
int64_t attention_check_case(const attention_data *data, qn_text *report);

// The lines that say which case failed and how to repeat it.
void attention_describe(const attention_case *c, qn_text *report);

// Mismatch of bits between the outputs of two runs of a case: place in *buffer, or -1.
int64_t attention_same_bits(const attention_data *first, const attention_data *second, int *buffer);

// Whether sequence `sequence` of all has the same bits as the case that is it alone; else a line in the report.
bool attention_same_alone(const attention_data *all, int64_t sequence, const attention_data *alone, qn_text *report);

// Largest difference of out between two cases' last queries, in ulps of the type. What the order of f32 sums may do to
// an element that is small beside the others of its row (2^-18 of the largest) does not count.
double attention_ulps_of_last_query(const attention_data *a, const attention_data *b);

#endif
