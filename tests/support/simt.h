// SPDX-License-Identifier: Apache-2.0
// What tests of the functional model share: models of each build and compiler, opened once; small kernels from
// tests/simt/kernels; assertions on reports. Needs a C++ compiler: without one the test is skipped, which it says.
#ifndef TESTS_SUPPORT_SIMT_H
#define TESTS_SUPPORT_SIMT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "quern/model.h"

// The model of a build by a compiler ("g++", "clang++"; NULL: whichever there is), opened at the first call and kept.
// Skips the running test when there is none, with the reason.
model *simt_model(model_build build, const char *compiler);
// Of a build by the first compiler found: $CXX, g++, clang++.
model *simt_model_any(model_build build);
void simt_close(void);               // all of them
int simt_close_models(void **state); // the same, as a group's teardown

// The text of tests/simt/kernels/<name> with its includes in place, after a line "#define NAME value" for each word
// "NAME=value" of `defines`. To be freed.
char *simt_kernel(const char *name, const char *defines);
// A copy of a text with one place of it replaced; fails the test when the place is not there exactly once.
char *simt_replace(const char *text, const char *from, const char *to);

// One launch: params is a structure whose pointers are model_alloc's.
typedef struct simt_launch {
    const char *arch; // NULL: "sm_90a"
    int grid, threads, cluster, shared_bytes;
    int resident; // CTAs at a time; 0: all of them
    const void *params;
    size_t params_bytes;
    model_order order;
} simt_launch;
// The report: empty after a launch without a fault. Fails the test when the kernel does not compile. To be freed.
char *simt_run(model *m, const char *source, const simt_launch *launch);

// Fail the test with the report.
void simt_expect_clean(const char *report, const char *context);
void simt_expect_fault(const char *report, const char *words, const char *context); // words: alternatives between '|'

#endif
