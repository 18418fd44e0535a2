// SPDX-License-Identifier: Apache-2.0
// `quern run` on a GPU (run.h): device memory for every tensor, one launch, results back.
#include <stdlib.h>
#include <string.h>

#include "run.h"

typedef struct gpu_memory {
    CUdeviceptr tensor[ARRAYS_MAX_TENSORS];
    CUdeviceptr workspace;
    CUstream stream;
} gpu_memory;

static quern_status allocate(const device *d, size_t bytes, CUdeviceptr *address)
{
    CUresult result = d->driver->cuMemAlloc(address, bytes ? bytes : 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return qn_fail(QUERN_DRIVER_ERROR, "%s has no room for %zu bytes", d->name, bytes);
    return device_check(d, "cuMemAlloc", result);
}

static quern_status upload(const device *d, const arrays *a, gpu_memory *m)
{
    for (size_t i = 0; i < a->tensor_count; i++) {
        const bound_tensor *t = &a->tensor[i];
        if (!t->given) continue;
        QN_TRY(allocate(d, t->bytes, &m->tensor[i]));
        if (t->tensor->direction == QN_INPUT && t->bytes > 0)
            DEVICE_TRY(d, cuMemcpyHtoD, m->tensor[i], t->data, t->bytes);
    }
    return QUERN_OK;
}

static quern_status download(const device *d, const gpu_memory *m, arrays *a)
{
    for (size_t i = 0; i < a->tensor_count; i++) {
        bound_tensor *t = &a->tensor[i];
        if (t->given && t->tensor->direction == QN_OUTPUT && t->bytes > 0)
            DEVICE_TRY(d, cuMemcpyDtoH, t->data, m->tensor[i], t->bytes);
    }
    return QUERN_OK;
}

// The host's arguments with device pointers in place of host ones.
static void point_to_device(const arrays *a, const gpu_memory *m, size_t workspace_bytes, quern_args *args)
{
    char *at = (char *)args;
    memcpy(args, a->args, a->family->args_bytes);
    for (size_t i = 0; i < a->tensor_count; i++) {
        if (!a->tensor[i].given) continue;
        void *pointer = (void *)(uintptr_t)m->tensor[i];
        memcpy(at + a->tensor[i].tensor->pointer_offset, &pointer, sizeof pointer);
    }
    void *workspace = (void *)(uintptr_t)m->workspace;
    memcpy(at + a->family->workspace_offset, &workspace, sizeof workspace);
    memcpy(at + a->family->workspace_bytes_offset, &workspace_bytes, sizeof workspace_bytes);
}

static quern_status launch(const device *d, const quern_op *op, const arrays *a, gpu_memory *m, quern_args *args)
{
    _Alignas(16) unsigned char sizes[256];
    a->family->sizes_of(a->args, sizes);
    size_t bytes = quern_workspace_size(op, sizes);
    DEVICE_TRY(d, cuStreamCreate, &m->stream, CU_STREAM_NON_BLOCKING);
    if (bytes > 0) {
        QN_TRY(allocate(d, bytes, &m->workspace));
        QN_TRY(quern_workspace_init(op, (void *)(uintptr_t)m->workspace, bytes, m->stream));
    }
    point_to_device(a, m, bytes, args);
    QN_TRY(quern_launch_args(op, args, m->stream));
    DEVICE_TRY(d, cuStreamSynchronize, m->stream);
    return QUERN_OK;
}

static void release(const device *d, gpu_memory *m)
{
    if (m->stream) (void)d->driver->cuStreamDestroy(m->stream);
    if (m->workspace) (void)d->driver->cuMemFree(m->workspace);
    for (size_t i = 0; i < ARRAYS_MAX_TENSORS; i++)
        if (m->tensor[i]) (void)d->driver->cuMemFree(m->tensor[i]);
}

quern_status run_on_gpu(quern *q, const device *d, arrays *a, quern_op **op)
{
    gpu_memory m = {{0}};
    quern_args *args = malloc(a->family->args_bytes);
    if (!args) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    quern_status status = quern_prepare(q, &a->spec.base, d->ordinal, op);
    if (status == QUERN_OK) status = upload(d, a, &m);
    if (status == QUERN_OK) status = launch(d, *op, a, &m, args);
    if (status == QUERN_OK) status = download(d, &m, a);
    release(d, &m);
    free(args);
    return status;
}
