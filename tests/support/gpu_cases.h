// SPDX-License-Identifier: Apache-2.0
// The drivers of tests/gpu: a family's hostile cases on a device, through the public interface, against the reference: as
// chosen, by forced configurations, in a captured graph. Each case is launched three times, with equal bits.
#ifndef TESTS_SUPPORT_GPU_CASES_H
#define TESTS_SUPPORT_GPU_CASES_H

#include "support/compile_pool.h"
#include "support/family_cases.h"
#include "support/gpu.h"

enum { GPU_REPEATS = 3 };

void gpu_skip_without_device(const gpu *g);
unsigned gpu_tag(unsigned whole); // HOSTILE_QUICK with $QUERN_TEST_QUICK, else this

// ---- a case on the device: an allocation of its own for each tensor, so that a tool sees the first byte too many

typedef struct device_case {
    const family_cases *f;
    CUdeviceptr buffer[FAMILY_MOST_BUFFERS], workspace;
    _Alignas(16) unsigned char args[1024]; // device pointers
} device_case;

void device_case_make(const gpu *g, const family_cases *f, const void *data, device_case *d); // uploads nothing
void device_case_workspace(const gpu *g, const quern_op *op, device_case *d);  // a new one, in its first state
void device_case_upload(const gpu *g, const device_case *d, const void *data); // inputs, and the outputs' guard bytes
void device_case_download(const gpu *g, const device_case *d, void *data);     // outputs
void device_case_free(const gpu *g, device_case *d);
quern_args *device_case_args(device_case *d);
// Launches and waits; names the case when it fails, after which the context is lost.
void device_case_launch(const gpu *g, const quern_op *op, const void *c, device_case *d);
// All of it, with a workspace of its own; the outputs are data's then.
void device_case_run(const gpu *g, const family_cases *f, const quern_op *op, const void *c, void *data);

// ---- lists

typedef struct gpu_list {
    const family_cases *f;
    unsigned tag; // without $QUERN_TEST_QUICK
    size_t least; // fewer cases fail the test, but in a part of the list or the quick set
    // The op of a whole spec, as users prepare it; else one with the configuration that serves the case's sizes, where a
    // spec has many kernels that its cases do not need.
    bool whole_ops;
    const uint16_t *poisons; // what unused memory holds in each run, GPU_REPEATS of them; NULL: 0
    // May be NULL: after the runs of a case, whose outputs are in `first`. config: NULL as chosen.
    void (*after)(const gpu *g, const void *c, device_case *d, void *first, const qn_config *config, qn_text *report);
} gpu_list;

// Compiles first, on all processors, so that the device does not wait.
void gpu_run_list(const gpu *g, const gpu_list *list);
// Each configuration on the cases it is for, but those that the planner refuses it.
void gpu_run_forced(const gpu *g, const gpu_list *list, const char *const *configs, size_t count,
                    bool (*wanted)(const void *c));
// Judges a case's first run and compares the others with it.
void gpu_run_case(const gpu *g, const gpu_list *list, const void *c, const quern_op *op, const qn_config *config,
                  qn_text *report);
// A case by capture of so many launches and replays of so many graphs: the bits of a launch.
void gpu_run_captured(const gpu *g, const family_cases *f, const char *name, int launches, int replays);

#endif
