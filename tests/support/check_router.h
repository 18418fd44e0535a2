// SPDX-License-Identifier: Apache-2.0
// Judges outputs of router, logits among them: against the host reference under the accuracy rules of the design, against
// a hostile case's literal values, and for guard bytes. Runs no kernel and needs no device; everything is on the host.
//
//   logits        within D · 2^-24 · Σ|x · w| of the f64 dot; where that sum is beyond f32, anything
//   ids, weights  those of the gate on these logits, by gate's judge
//
// Of many tokens some are judged: the first, the last, and some between.
#ifndef TESTS_SUPPORT_CHECK_ROUTER_H
#define TESTS_SUPPORT_CHECK_ROUTER_H

#include "base/text.h"
#include "support/hostile_router.h"

// Judges the outputs of a case, which is named in front of the report. Returns the number of mismatches.
int64_t router_check_case(const router_data *data, qn_text *report);

// The lines that say which case failed and how to repeat it.
void router_describe(const router_case *c, qn_text *report);

// Mismatch of bits between two runs of a case: place in *buffer, or -1. Buffers that one of them lacks are passed over.
int64_t router_same_bits(const router_data *first, const router_data *second, int *buffer);

// The same for the tokens that both have: the cases differ in N only and are packed.
int64_t router_same_tokens(const router_data *first, const router_data *second, int *buffer);

#endif
