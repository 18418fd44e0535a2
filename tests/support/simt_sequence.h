// SPDX-License-Identifier: Apache-2.0
// Launches of one op one after another on the functional model, as a service makes them: all on one workspace, which was
// made ready once and is as large as quern_workspace_size would say for the largest of them. Their tensors may lie otherwise
// than in the case: with other strides, axes in another order, other alignments; what lies between elements is 0xFF, and in
// outputs must stay what it was.
#ifndef TESTS_SUPPORT_SIMT_SEQUENCE_H
#define TESTS_SUPPORT_SIMT_SEQUENCE_H

#include "support/simt_cases.h"

typedef struct simt_step {
    const void *c;      // a case; those of a sequence have the same spec
    const char *config; // NULL: as chosen
    uint64_t lies;      // 0: as the case has it; else how, by this seed
} simt_step;

enum { SIMT_MOST_STEPS = 4 };

// Runs and judges them in turn. sms: multiprocessors of the device, 0 as usual. What is wrong comes into the report.
void simt_run_sequence(const family_cases *f, model *m, quern *q, const qn_arch *arch, int sms, const simt_step *steps,
                       size_t count, model_order order, qn_text *report);

#endif
