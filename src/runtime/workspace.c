// SPDX-License-Identifier: Apache-2.0
// The workspace: how much device memory launches up to given sizes need, and its first state.
#include <string.h>

#include "runtime/private.h"

static int64_t get(const qn_any_sizes *sizes, size_t offset)
{
    int64_t value;
    memcpy(&value, sizes->bytes + offset, sizeof value);
    return value;
}

static size_t bucket_at(const qn_family *family, qn_any_sizes *sizes, size_t offset, int64_t value)
{
    memcpy(sizes->bytes + offset, &value, sizeof value);
    return family->bucket_of(sizes);
}

// The largest value of the one size, up to the given one, that falls into a bucket. Buckets rise with the size.
static bool largest_in(const qn_family *family, qn_any_sizes *sizes, size_t bucket)
{
    size_t offset = family->sizes[0].offset;
    int64_t low = family->sizes[0].min, high = get(sizes, offset);
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (bucket_at(family, sizes, offset, middle) > bucket)
            high = middle - 1;
        else
            low = middle;
    }
    return bucket_at(family, sizes, offset, low) == bucket;
}

// With one size, each bucket counts at its own largest; with several, at the sizes given.
size_t quern_workspace_size(const quern_op *op, const void *given)
{
    if (!op || !given || !op->family->workspace) return 0;
    const qn_family *family = op->family;
    qn_any_sizes most;
    size_t result = 0;
    if (qn_check_sized("sizes", given) != QUERN_OK) return SIZE_MAX;
    qn_sizes_take(family, given, &most);
    for (size_t bucket = 0; bucket < family->bucket_count; bucket++) {
        qn_any_sizes sizes = most;
        if (family->size_count == 1 && !largest_in(family, &sizes, bucket)) continue;
        if (op->of_bucket[bucket] == QN_NO_VARIANT) continue;
        const qn_op_variant *variant = &op->variant[op->of_bucket[bucket]];
        size_t bytes = family->workspace(&op->spec.base, &variant->config, &sizes);
        if (bytes > result) result = bytes;
    }
    return result;
}

quern_status quern_workspace_init(const quern_op *op, void *workspace, size_t bytes, struct CUstream_st *stream)
{
    if (!op) return qn_fail(QUERN_MISSING_ARGUMENT, "op is NULL");
    if (bytes < sizeof(uint32_t)) return QUERN_OK;
    if (!workspace) return qn_fail(QUERN_SMALL_WORKSPACE, "workspace is NULL, workspace_bytes = %zu", bytes);
    if ((uintptr_t)workspace % QN_WORKSPACE_ALIGN)
        return qn_fail(QUERN_MISALIGNED, "workspace = %p: it must be aligned to %d bytes", workspace,
                       QN_WORKSPACE_ALIGN);
    CUresult result = op->driver->cuMemsetD32Async((CUdeviceptr)(uintptr_t)workspace, op->family->workspace_word,
                                                   bytes / sizeof(uint32_t), stream);
    return result == CUDA_SUCCESS ? QUERN_OK
                                  : qn_driver_fail(op->driver, QUERN_DRIVER_ERROR, "cuMemsetD32Async", result);
}
