// SPDX-License-Identifier: Apache-2.0
// The drivers of tests/simt: a family's hostile cases on the functional model, as chosen and by forced configurations, each
// case in another order of execution.
#ifndef TESTS_SUPPORT_SIMT_CASES_H
#define TESTS_SUPPORT_SIMT_CASES_H

#include "support/family_cases.h"
#include "support/simt.h"

const qn_arch *simt_arch(const char *name);
quern *simt_open(void);               // in memory
model_order simt_order(size_t index); // one in four as written, the others drawn

// Runs a case into its data; config: in place of what is chosen, and then no q is needed. False: a fault, which is
// reported.
bool simt_run_data(const family_cases *f, model *m, quern *q, const qn_arch *arch, const void *c,
                   const qn_config *config, size_t index, void *data, qn_text *report);
// Makes, runs and judges a case; the report stays empty when it is right. Memory that no kernel may look at holds NaN.
void simt_judge_case(const family_cases *f, model *m, quern *q, const qn_arch *arch, const void *c,
                     const qn_config *config, size_t index, qn_text *report);

// The cases with this tag that are for the model, every so many of those that are not in the quick set. Fails the test when
// fewer than `least` run.
void simt_run_list(const family_cases *f, model_build build, const char *arch, unsigned tag, size_t every,
                   size_t least);

// Which cases the configuration of this number is for, beside those that the planner refuses it.
typedef bool (*simt_wanted_fn)(const void *c, size_t index, size_t number, const char *config);
// Each configuration on the cases it is for, in the access build on sm_90a. Fails the test when fewer than `least` run in
// all, or a configuration has none.
void simt_run_forced(const family_cases *f, const char *const *configs, size_t count, simt_wanted_fn wanted,
                     size_t least);

#endif
