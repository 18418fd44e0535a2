// SPDX-License-Identifier: Apache-2.0
// What the families' compile tests (tests/unit/*_compile_test.c) ask of plans and kernels, the same of every family: plans
// keep within the architecture's limits, configurations fit or are refused with numbers, kernels compile for every target
// without spills and leave room for the CTAs an SM that their plans count on. A failure fails the running test.
#ifndef TESTS_SUPPORT_COMPILE_CHECK_H
#define TESTS_SUPPORT_COMPILE_CHECK_H

#include "support/compile_pool.h"

quern *compile_open(void); // in memory, without a time limit: a busy machine is slow, not broken
const qn_arch *compile_arch(const char *name);
void compile_parse(const char *text, quern_any_spec *spec); // complete
void compile_skip_without_nvrtc(void);

// The targets that every family compiles for (README.md, "What has run where").
enum { COMPILE_TARGETS = 9 };
extern const char *const compile_targets[COMPILE_TARGETS];

// ---- specs

typedef struct compile_refusal {
    const char *text, *named; // named: what the message says
    quern_status status;
} compile_refusal;
void compile_check_refusals(const compile_refusal *refused, size_t count);

// ---- plans

// What any plan that is accepted keeps. chosen: also that the CTAs an SM it counts on find room.
void compile_check_plan(const qn_plan *plan, const qn_arch *arch, const char *text, bool chosen);
// The plan of each bucket on each architecture; adds how many specs × architectures were planned.
void compile_check_spec(quern *q, const quern_spec *spec, size_t *planned);

// How configurations are walked through.
typedef struct compile_walk {
    size_t step;      // each knob's every step-th choice, where there are more than eight; 0: 1
    size_t arch_step; // every so many architectures; 0: 1
    bool chosen;      // as compile_check_plan has it
} compile_walk;
// Every point of the configuration space, for each spec and architecture, is a plan that fits or a refusal with numbers,
// and at least one is a plan.
void compile_check_configs(const char *const *texts, size_t count, const compile_walk *walk);

// ---- kernels

// Compiles what is in the list, which is at least so many kernels, and checks each. An architecture that this NVRTC lacks is
// named and passed over; where it lacks all of them the test is skipped. Empties the list.
void compile_check_kernels(quern *q, compile_jobs *jobs, size_t least);
// Every kernel of each spec for each target; skips without NVRTC.
void compile_check_specs(const char *const *texts, size_t count, const char *const *targets, size_t target_count);
// The whole way in: what quern_warm reports is what it did. Skips without NVRTC.
void compile_check_warm(const char *text, const char *arch);

#endif
