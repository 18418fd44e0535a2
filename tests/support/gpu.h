// SPDX-License-Identifier: Apache-2.0
// What tests/gpu needs of a device: opening it or saying why not, cases in device memory, launches, results back. Through
// the driver table only. A driver call that fails fails the test.
#ifndef TESTS_SUPPORT_GPU_H
#define TESTS_SUPPORT_GPU_H

#include "cuda/arch.h"
#include "cuda/driver.h"
#include "support/hostile.h"

typedef struct gpu {
    const qn_driver *driver; // NULL: no device, and `why`
    CUcontext context;       // the primary one of device 0, current on this thread
    const qn_arch *arch;     // the best target of the device
    int sm_count;
    char name[96];
    char why[512];
    quern *q; // its cache is $QUERN_TEST_CACHE (a file), else a new folder that gpu_close removes
    char folder[64];
} gpu;

// Opens device 0. False, with g->why, where there is none; any other failure fails the test.
bool gpu_open(gpu *g);
void gpu_close(gpu *g);

// $QUERN_TEST_QUICK: the subset for compute-sanitizer.
bool gpu_is_quick(void);

void gpu_must(const gpu *g, CUresult result, const char *call);
#define GPU_MUST(g, call) gpu_must((g), (g)->driver->call, #call)

// Memory: exactly so many bytes (at least 1); 0 when there is not so much.
CUdeviceptr gpu_alloc(const gpu *g, size_t bytes);
void gpu_free(const gpu *g, CUdeviceptr address);

// A case's tensors on the device, with their guard bytes; and a workspace for its rows, in its first state.
typedef struct gpu_case {
    const hostile_data *data; // what was uploaded
    CUdeviceptr buffer[HOSTILE_BUFFERS];
    CUdeviceptr workspace;
    quern_softmax_topk_args args; // device pointers
} gpu_case;

void gpu_case_make(const gpu *g, const hostile_data *data, const quern_op *op, CUstream stream, gpu_case *c);
void gpu_case_free(const gpu *g, gpu_case *c);
void gpu_case_reset(const gpu *g, const gpu_case *c);                          // guard bytes into the outputs
void gpu_case_download(const gpu *g, const gpu_case *c, hostile_data *result); // outputs into result's buffers

#endif
