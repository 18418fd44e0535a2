// SPDX-License-Identifier: Apache-2.0
// Device 0 for tests; see gpu.h.
#include "support/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/cache_fixture.h"

void gpu_must(const gpu *g, CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS) return;
    qn_driver_fail(g->driver, QUERN_DRIVER_ERROR, call, result);
    fail_msg("%s", quern_message());
}

bool gpu_is_quick(void)
{
    const char *value = getenv("QUERN_TEST_QUICK");
    return value && *value && strcmp(value, "0") != 0;
}

// ---- open and close

static int attribute(const gpu *g, CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    GPU_MUST(g, cuDeviceGetAttribute(&value, which, device));
    return value;
}

static bool find_device(gpu *g)
{
    CUdevice device;
    int count = 0;
    const qn_arch *targets[8];
    if (qn_driver_load(NULL, &g->driver) != QUERN_OK)
        return snprintf(g->why, sizeof g->why, "%s", quern_message()), false;
    GPU_MUST(g, cuDeviceGetCount(&count));
    if (count == 0) return snprintf(g->why, sizeof g->why, "the driver has no device"), false;
    GPU_MUST(g, cuDeviceGet(&device, 0));
    GPU_MUST(g, cuDeviceGetName(g->name, sizeof g->name, device));
    int cc = 10 * attribute(g, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
             attribute(g, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    if (qn_arch_targets(cc, targets) == 0)
        return snprintf(g->why, sizeof g->why, "%s has compute capability %d.%d, for which there are no plans", g->name,
                        cc / 10, cc % 10),
               false;
    g->arch = targets[0];
    g->sm_count = attribute(g, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    GPU_MUST(g, cuDevicePrimaryCtxRetain(&g->context, device));
    GPU_MUST(g, cuCtxSetCurrent(g->context));
    return true;
}

bool gpu_open(gpu *g)
{
    quern_options options = QUERN_OPTIONS_INIT;
    const char *cache = getenv("QUERN_TEST_CACHE");
    char file[96];
    *g = (gpu){0};
    if (!find_device(g)) return g->driver = NULL, false;
    if (!cache || !*cache) {
        cache_folder_make(g->folder);
        snprintf(file, sizeof file, "%s/cache.db", g->folder);
        cache = file;
    }
    options.cache_file = cache;
    options.compile_timeout_ms = -1;
    if (quern_open(&options, &g->q) != QUERN_OK) fail_msg("%s", quern_message());
    print_message("%s, %d SMs, %s\n", g->name, g->sm_count, g->arch->name);
    return true;
}

void gpu_close(gpu *g)
{
    CUdevice device;
    quern_close(g->q);
    if (g->folder[0]) cache_folder_remove(g->folder);
    if (!g->driver) return;
    GPU_MUST(g, cuDeviceGet(&device, 0));
    GPU_MUST(g, cuCtxSetCurrent(NULL));
    GPU_MUST(g, cuDevicePrimaryCtxRelease(device));
}

// ---- memory

CUdeviceptr gpu_alloc(const gpu *g, size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = g->driver->cuMemAlloc(&address, bytes ? bytes : 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return 0;
    gpu_must(g, result, "cuMemAlloc");
    return address;
}

void gpu_free(const gpu *g, CUdeviceptr address)
{
    if (address) GPU_MUST(g, cuMemFree(address));
}

// ---- a case

static void make_workspace(const gpu *g, const quern_op *op, CUstream stream, gpu_case *c)
{
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    sizes.rows = c->args.rows;
    size_t bytes = quern_workspace_size(op, &sizes);
    if (bytes == 0) return;
    c->workspace = gpu_alloc(g, bytes);
    assert_true(c->workspace != 0);
    c->args.workspace = (void *)(uintptr_t)c->workspace;
    c->args.workspace_bytes = bytes;
    if (quern_workspace_init(op, c->args.workspace, bytes, stream) != QUERN_OK) fail_msg("%s", quern_message());
}

void gpu_case_make(const gpu *g, const hostile_data *data, const quern_op *op, CUstream stream, gpu_case *c)
{
    *c = (gpu_case){.data = data, .args = hostile_args(data->c)};
    for (int i = 0; i < HOSTILE_BUFFERS; i++) {
        const hostile_buffer *b = &data->buffer[i];
        if (!b->bytes) continue;
        c->buffer[i] = gpu_alloc(g, b->count);
        if (!c->buffer[i])
            fail_msg("case %s: no device memory for %zu bytes of %s", data->c->name, b->count, hostile_buffer_name[i]);
        if (b->count) GPU_MUST(g, cuMemcpyHtoD(c->buffer[i], b->bytes, b->count));
        hostile_set_pointer(&c->args, i, (void *)(uintptr_t)(c->buffer[i] + b->at));
    }
    make_workspace(g, op, stream, c);
    gpu_case_reset(g, c);
}

void gpu_case_free(const gpu *g, gpu_case *c)
{
    for (int i = 0; i < HOSTILE_BUFFERS; i++) gpu_free(g, c->buffer[i]);
    gpu_free(g, c->workspace);
    *c = (gpu_case){0};
}

void gpu_case_reset(const gpu *g, const gpu_case *c)
{
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++) {
        const hostile_buffer *b = &c->data->buffer[i];
        if (!b->bytes) continue;
        unsigned char *guards = malloc(b->count);
        if (!guards) abort();
        memset(guards, HOSTILE_GUARD, b->count);
        GPU_MUST(g, cuMemcpyHtoD(c->buffer[i], guards, b->count));
        free(guards);
    }
}

void gpu_case_download(const gpu *g, const gpu_case *c, hostile_data *result)
{
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++)
        if (result->buffer[i].bytes)
            GPU_MUST(g, cuMemcpyDtoH(result->buffer[i].bytes, c->buffer[i], result->buffer[i].count));
}
