// SPDX-License-Identifier: Apache-2.0
// A caller's own kernel through the same path: the same tiers, flights and loading as the built-in ones.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"

enum { MAX_THREADS = 1024, MAX_CLUSTER = 16, MAX_PARAMETERS = 4096, MAX_GRID_YZ = 65535 };

struct quern_kernel {
    quern *q;
    const qn_driver *driver;
    qn_stage stage;
    size_t parameter_bytes;
};

// ---- checks

static quern_status check_entry(const char *entry)
{
    size_t length = strlen(entry);
    if (length == 0 || length >= QN_MAX_ENTRY)
        return qn_fail(QUERN_BAD_ARGUMENT, "custom.entry: %zu characters, 1 … %d are allowed", length,
                       QN_MAX_ENTRY - 1);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)entry[i];
        bool is_digit = c >= '0' && c <= '9';
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!is_letter && (!is_digit || i == 0))
            return qn_fail(QUERN_BAD_ARGUMENT, "custom.entry = \"%s\" is not an identifier", entry);
    }
    return QUERN_OK;
}

// NVRTC looks for quoted names in the working directory: what it found there would not be in the key.
static quern_status check_includes(const char *source)
{
    int number = 1;
    for (const char *line = source; line; number++) {
        const char *at = line + strspn(line, " \t");
        if (*at == '#' && !strncmp(at + 1 + strspn(at + 1, " \t"), "include", strlen("include")))
            return qn_fail(QUERN_BAD_ARGUMENT,
                           "custom.source, line %d: \"%.*s\": no #include is resolved; put the text in its place",
                           number, (int)strcspn(at, "\r\n"), at);
        line = strchr(line, '\n');
        if (line) line++;
    }
    return QUERN_OK;
}

static quern_status check_range(const char *name, int64_t value, int64_t max)
{
    if (value >= 0 && value <= max) return QUERN_OK;
    return qn_fail(QUERN_BAD_ARGUMENT, "custom.%s = %lld: 0 … %lld is allowed", name, (long long)value, (long long)max);
}

static quern_status check_custom(const quern_custom *custom)
{
    if (!custom->source || !custom->entry)
        return qn_fail(QUERN_MISSING_ARGUMENT, "custom.%s is NULL", custom->source ? "entry" : "source");
    QN_TRY(check_entry(custom->entry));
    QN_TRY(check_includes(custom->source));
    if (custom->threads < 1 || custom->threads > MAX_THREADS)
        return qn_fail(QUERN_BAD_ARGUMENT, "custom.threads = %d: 1 … %d is allowed", custom->threads, MAX_THREADS);
    QN_TRY(check_range("cluster", custom->cluster, MAX_CLUSTER));
    QN_TRY(check_range("dynamic_shared_bytes", custom->dynamic_shared_bytes, INT32_MAX));
    return check_range("parameter_bytes", (int64_t)custom->parameter_bytes, MAX_PARAMETERS);
}

// ---- prepare

typedef struct request {
    quern *q;
    const quern_custom *custom;
    char text[QN_MAX_ENTRY + 16];
} request;

static quern_status make_batch(void *user, const qn_arch *arch, qn_batch *batch)
{
    const request *r = user;
    const quern_custom *custom = r->custom;
    if (custom->cluster > 1 && custom->cluster > arch->max_cluster)
        return qn_fail(QUERN_NO_PLAN, "custom.cluster = %d: %s has at most %d", custom->cluster, arch->name,
                       arch->max_cluster);
    if (custom->dynamic_shared_bytes > arch->shared_cta)
        return qn_fail(QUERN_NO_PLAN, "custom.dynamic_shared_bytes = %d: a CTA of %s has at most %d",
                       custom->dynamic_shared_bytes, arch->name, arch->shared_cta);
    batch->work = calloc(1, sizeof *batch->work);
    if (!batch->work) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a custom kernel");
    batch->count = 1;
    return qn_work_init_source(r->q, batch->work, custom->source, custom->entry, arch, r->text);
}

static quern_status build(request *r, const qn_driver *driver, const qn_device *device, quern_kernel *kernel)
{
    qn_batch batch = {0};
    const qn_arch *arch = NULL;
    CUkernel loaded = NULL;
    const quern_custom *custom = r->custom;
    qn_shape shape = {custom->cluster, custom->dynamic_shared_bytes};
    QN_TRY(qn_obtain_targets(r->q, device, make_batch, r, &batch, &arch));
    quern_status status = qn_load(r->q, driver, device->handle, batch.work, shape, &loaded);
    kernel->stage = (qn_stage){
        .function = (CUfunction)loaded,
        .entry = batch.work->entry,
        .origin = batch.work->origin,
        .threads = (unsigned)custom->threads,
        .cluster = custom->cluster > 1 ? (unsigned)custom->cluster : 1,
        .dynamic_shared = (unsigned)custom->dynamic_shared_bytes,
    };
    kernel->driver = driver;
    kernel->parameter_bytes = custom->parameter_bytes;
    qn_batch_fini(&batch);
    return status;
}

quern_status quern_prepare_custom(quern *q, const quern_custom *given, int ordinal, quern_kernel **out)
{
    quern_custom custom = QUERN_CUSTOM_INIT;
    const qn_driver *driver;
    CUdevice handle;
    qn_device device;
    if (!q || !given || !out)
        return qn_fail(QUERN_MISSING_ARGUMENT, "quern_prepare_custom: %s is NULL",
                       !q       ? "q"
                       : !given ? "custom"
                                : "kernel");
    QN_TRY(qn_take_sized("custom", given, &custom, sizeof custom));
    QN_TRY(check_custom(&custom));
    QN_TRY(qn_device_current(q, ordinal, &driver, &handle));
    QN_TRY(qn_device_read(driver, handle, &device));
    request r = {.q = q, .custom = &custom};
    snprintf(r.text, sizeof r.text, "custom %s", custom.entry);
    quern_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a custom kernel");
    quern_status status = build(&r, driver, &device, kernel);
    if (status != QUERN_OK) {
        free(kernel);
        return status;
    }
    kernel->q = q;
    qn_quern_retain(q);
    *out = kernel;
    return QUERN_OK;
}

// ---- launch, release

static quern_status check_grid(const quern_kernel *kernel, const uint32_t grid[3])
{
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > MAX_GRID_YZ || grid[2] > MAX_GRID_YZ)
        return qn_fail(QUERN_BAD_SIZE, "grid = %u × %u × %u: 1 … %d × 1 … %d × 1 … %d is allowed", grid[0], grid[1],
                       grid[2], INT32_MAX, MAX_GRID_YZ, MAX_GRID_YZ);
    if (grid[0] % kernel->stage.cluster)
        return qn_fail(QUERN_BAD_SIZE, "grid[0] = %u is not a multiple of the cluster, %u", grid[0],
                       kernel->stage.cluster);
    return QUERN_OK;
}

quern_status quern_launch_packed(const quern_kernel *kernel, const uint32_t grid[3], const void *parameters,
                                 size_t parameter_bytes, struct CUstream_st *stream)
{
    if (!kernel || !grid) return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL", !kernel ? "kernel" : "grid");
    if (parameter_bytes != kernel->parameter_bytes)
        return qn_fail(QUERN_BAD_SIZE, "parameter_bytes = %zu: the kernel was prepared for %zu", parameter_bytes,
                       kernel->parameter_bytes);
    if (parameter_bytes && !parameters) return qn_fail(QUERN_MISSING_ARGUMENT, "parameters is NULL");
    QN_TRY(check_grid(kernel, grid));
    void *list = parameter_bytes ? (void *)(uintptr_t)parameters : NULL; // the driver copies, and does not write
    CUresult result = qn_launch_kernel(kernel->driver, &kernel->stage, grid, list, stream);
    if (result == CUDA_SUCCESS) return QUERN_OK;
    qn_driver_fail(kernel->driver, QUERN_LAUNCH_FAILED, "cuLaunchKernelEx", result);
    return qn_fail_in(QUERN_LAUNCH_FAILED, "%s, grid %u×%u×%u", kernel->stage.entry->image.entry, grid[0], grid[1],
                      grid[2]);
}

void quern_kernel_release(quern_kernel *kernel)
{
    if (!kernel) return;
    quern *q = kernel->q;
    qn_unload(q, (qn_entry *)kernel->stage.entry);
    free(kernel);
    qn_quern_release(q);
}
