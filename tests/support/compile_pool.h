// SPDX-License-Identifier: Apache-2.0
// Compiles many kernels on all processors, for tests that need hundreds: tests/unit/softmax_topk_compile_test.c and
// tests/gpu. Each goes through qn_kernel_obtain, so a later quern_prepare on the same quern finds it in memory.
#ifndef TESTS_SUPPORT_COMPILE_POOL_H
#define TESTS_SUPPORT_COMPILE_POOL_H

#include "runtime/runtime.h"

typedef struct compile_job {
    qn_kernel_plan plan;
    const qn_arch *arch;
    char text[256]; // the spec's
    quern_status status;
    const qn_image *image; // with QUERN_OK
    char message[512];     // without
} compile_job;

typedef struct compile_jobs {
    compile_job *item;
    size_t count, capacity;
} compile_jobs;

// Adds a kernel unless it is in the list (same architecture, symbol, constants and launch shape). Aborts without memory.
void compile_jobs_add(compile_jobs *jobs, const qn_kernel_plan *plan, const qn_arch *arch, const char *text);

// Adds every kernel of every variant of a spec on an architecture. Fails as qn_variants_plan does.
quern_status compile_jobs_add_spec(compile_jobs *jobs, quern *q, const qn_arch *arch, const quern_spec *spec);

// Compiles them all, each with its own status.
void compile_jobs_run(compile_jobs *jobs, quern *q);
void compile_jobs_fini(compile_jobs *jobs);

#endif
