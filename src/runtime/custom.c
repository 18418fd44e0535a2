// SPDX-License-Identifier: Apache-2.0
// A caller's own kernel through the same path: the same key, tiers, flights and loading as the built-in ones.
//   (1) Nothing of the caller's structure is kept after the call.
//   (2) A launch allocates nothing and takes no lock: the parameters go to the driver as the bytes they are.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"

enum { MAX_GRID_YZ = 65535, MAX_THREADS_XY = 1024, MAX_THREADS_Z = 64, MAX_ALIGNMENT = 128 };

struct quern_kernel {
    quern *q;
    const qn_driver *driver;
    const qn_arch *arch;
    qn_stage stage; // threads and dynamic_shared are the limits
    size_t parameter_bytes;
    size_t packed_bytes; // what the kernel itself takes of them: without a structure's padding at the end
};

// ---- one source, as the work on it needs it

typedef struct request {
    quern *q;
    quern_source source;
    bool line_info;
    qn_extras extras;
    const char *header_names[QN_MAX_HEADERS], *header_texts[QN_MAX_HEADERS];
    char *lined[QN_MAX_HEADERS];  // texts of headers with a #line before them
    char text[QN_MAX_ENTRY + 16]; // what logs and rows call it
} request;

// Before the source is checked.
static bool asks_for_lines(const quern_source *source)
{
    if (!source->options || source->option_count > QN_MAX_OWN_OPTIONS) return false;
    for (size_t i = 0; i < source->option_count; i++) {
        const char *option = source->options[i];
        if (option && qn_is_line_info(option)) return true;
    }
    return false;
}

// Headers in the order of their names: a caller's order of no meaning is in no key.
static void sort_headers(request *r)
{
    size_t count = 0;
    for (size_t i = 0; i < r->source.header_count; i++) {
        size_t at = count++;
        for (; at > 0 && strcmp(r->header_names[at - 1], r->source.headers[i].name) > 0; at--) {
            r->header_names[at] = r->header_names[at - 1];
            r->header_texts[at] = r->header_texts[at - 1];
        }
        r->header_names[at] = r->source.headers[i].name;
        r->header_texts[at] = r->source.headers[i].text;
    }
}

// Line information makes the names of headers absolute with the working directory: so they are absolute before.
static quern_status add_lines(request *r)
{
    for (size_t i = 0; r->line_info && i < r->source.header_count; i++) {
        qn_text text = QN_TEXT_INIT;
        qn_text_putf(&text, "#line 1 \"" QN_SOURCE_ROOT "%s\"\n", r->header_names[i]);
        qn_text_puts(&text, r->header_texts[i]);
        r->lined[i] = text.bytes;
        QN_TRY(qn_text_check(&text));
        r->header_texts[i] = text.bytes;
    }
    return QUERN_OK;
}

static void request_free(request *r)
{
    for (size_t i = 0; i < QN_MAX_HEADERS; i++) free(r->lined[i]);
    free(r);
}

static quern_status request_init(request *r, quern *q, const quern_source *given)
{
    static const quern_source empty = QUERN_SOURCE_INIT;
    r->q = q;
    r->source = empty;
    QN_TRY(qn_take_sized("source", given, &r->source, sizeof r->source));
    r->line_info = q->line_info || asks_for_lines(&r->source);
    QN_TRY(qn_source_check(&r->source, r->line_info));
    sort_headers(r);
    QN_TRY(add_lines(r));
    r->extras = (qn_extras){r->source.options,      r->source.option_count, r->header_names,       r->header_texts,
                            r->source.header_count, r->source.digest,       r->source.digest_bytes};
    snprintf(r->text, sizeof r->text, "source %s", r->source.entry);
    return QUERN_OK;
}

static request *request_new(quern *q, const quern_source *given, quern_status *status)
{
    request *r = calloc(1, sizeof *r);
    *status = r ? request_init(r, q, given) : qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a source");
    if (*status == QUERN_OK) return r;
    if (r) request_free(r);
    return NULL;
}

static quern_status init_work(const request *r, qn_work *work, const qn_arch *arch)
{
    const quern_source *source = &r->source;
    qn_text text = QN_TEXT_INIT;
    if (source->cluster > 1 && source->cluster > arch->max_cluster)
        return qn_fail(QUERN_NO_PLAN, "source.cluster = %d: %s has at most %d", source->cluster, arch->name,
                       arch->max_cluster);
    if (source->dynamic_shared_bytes > arch->shared_cta)
        return qn_fail(QUERN_NO_PLAN, "source.dynamic_shared_bytes = %d: a CTA of %s has at most %d",
                       source->dynamic_shared_bytes, arch->name, arch->shared_cta);
    if (r->line_info) qn_text_putf(&text, "#line 1 \"" QN_SOURCE_ROOT "%s.cu\"\n", source->entry);
    qn_text_puts(&text, source->source);
    quern_status status = qn_text_check(&text);
    if (status == QUERN_OK)
        status = qn_work_init_source(r->q, work, text.bytes, source->entry, &r->extras, arch, r->text);
    qn_text_fini(&text);
    return status;
}

// ---- prepare

static quern_status make_batch(void *user, const qn_arch *arch, qn_batch *batch)
{
    batch->work = calloc(1, sizeof *batch->work);
    if (!batch->work) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a source's kernel");
    batch->count = 1;
    quern_status status = init_work(user, batch->work, arch);
    if (status != QUERN_OK) qn_batch_fini(batch);
    return status;
}

// A structure is padded at its end to the alignment of one of its members, which is no larger than that member.
static bool is_padded(size_t given, size_t taken)
{
    for (size_t alignment = 1; alignment <= taken && alignment <= MAX_ALIGNMENT; alignment *= 2)
        if (given == (taken + alignment - 1) / alignment * alignment) return true;
    return given == taken;
}

// The image says how many bytes of parameters its kernel takes; another number of them would launch it with rubbish.
static quern_status take_parameter_bytes(const request *r, const qn_entry *entry, quern_kernel *kernel)
{
    const qn_text *image = &entry->image.bytes;
    size_t given = r->source.parameter_bytes;
    int taken = qn_cubin_parameter_bytes(image->bytes, image->length, entry->image.entry);
    kernel->parameter_bytes = given;
    kernel->packed_bytes = taken < 0 ? given : (size_t)taken;
    if (taken < 0 || is_padded(given, (size_t)taken)) return QUERN_OK;
    return qn_fail(QUERN_BAD_SIZE, "source.parameter_bytes = %zu: the kernel %s takes %d", given, entry->image.entry,
                   taken);
}

static quern_status build(request *r, const qn_driver *driver, const qn_device *device, quern_kernel *kernel)
{
    qn_batch batch = {0};
    CUkernel loaded = NULL;
    const quern_source *source = &r->source;
    qn_shape shape = {source->cluster, source->dynamic_shared_bytes};
    QN_TRY(qn_obtain_targets(r->q, device, make_batch, r, &batch, &kernel->arch));
    quern_status status = take_parameter_bytes(r, batch.work->entry, kernel);
    if (status == QUERN_OK) status = qn_load(r->q, driver, device->handle, batch.work, shape, &loaded);
    kernel->stage = (qn_stage){
        .function = (CUfunction)loaded,
        .entry = batch.work->entry,
        .origin = batch.work->origin,
        .threads = (unsigned)source->threads,
        .cluster = source->cluster > 1 ? (unsigned)source->cluster : 1,
        .dynamic_shared = (unsigned)source->dynamic_shared_bytes,
    };
    kernel->driver = driver;
    qn_batch_fini(&batch);
    return status;
}

static quern_status prepare(request *r, int ordinal, quern_kernel *kernel)
{
    qn_here here;
    qn_device device;
    QN_TRY(qn_device_current(r->q, ordinal, &here));
    QN_TRY(qn_device_read(here.driver, here.handle, &device));
    qn_nvtx_push(r->q->nvtx, "quern:prepare ", r->text);
    quern_status status = build(r, here.driver, &device, kernel);
    qn_nvtx_pop(r->q->nvtx);
    return status;
}

quern_status quern_prepare_source(quern *q, const quern_source *given, int ordinal, quern_kernel **out)
{
    quern_status status;
    if (!q || !given || !out)
        return qn_fail(QUERN_MISSING_ARGUMENT, "quern_prepare_source: %s is NULL",
                       !q       ? "q"
                       : !given ? "source"
                                : "kernel");
    qn_message_mark mark;
    qn_message_save(&mark);
    request *r = request_new(q, given, &status);
    if (!r) return status;
    quern_kernel *kernel = calloc(1, sizeof *kernel);
    status = kernel ? prepare(r, ordinal, kernel) : qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a source's kernel");
    request_free(r);
    if (status != QUERN_OK) {
        free(kernel);
        return status;
    }
    kernel->q = q;
    qn_quern_retain(q);
    *out = kernel;
    return qn_message_end(&mark, QUERN_OK);
}

void quern_kernel_release(quern_kernel *kernel)
{
    if (!kernel) return;
    quern *q = kernel->q;
    qn_unload(q, (qn_entry *)kernel->stage.entry);
    free(kernel);
    qn_quern_release(q);
}

// ---- warm

static quern_status warm(const request *r, const qn_arch *arch, quern_warm_report *report)
{
    qn_work work = {0};
    quern_kernel unused;
    quern_status status = init_work(r, &work, arch);
    if (status == QUERN_OK) status = qn_work_obtain(r->q, &work);
    if (status == QUERN_OK) status = take_parameter_bytes(r, work.entry, &unused);
    if (status == QUERN_OK) {
        report->variants = report->kernels = 1;
        report->compiled = work.compiled, report->cached = !work.compiled, report->stored = work.stored;
        report->sealed = report->cached && work.entry->image.origin == QUERN_ORIGIN_SEALED;
        report->user = report->cached && work.entry->image.origin == QUERN_ORIGIN_USER;
        if (work.compiled) report->compile_ms = (double)work.entry->image.compile_us / 1000.0;
    }
    qn_work_fini(&work);
    return status;
}

quern_status quern_warm_source(quern *q, const quern_source *given, const char *arch_name, quern_warm_report *report)
{
    const qn_arch *arch;
    quern_warm_report result = QUERN_WARM_REPORT_INIT;
    quern_status status;
    if (!q || !given || !arch_name)
        return qn_fail(QUERN_MISSING_ARGUMENT, "quern_warm_source: %s is NULL", !q ? "q" : !given ? "source" : "arch");
    if (report) QN_TRY(qn_check_sized("report", report));
    qn_message_mark mark;
    qn_message_save(&mark);
    request *r = request_new(q, given, &status);
    if (!r) return status;
    status = qn_arch_find(arch_name, &arch);
    if (status == QUERN_OK) status = warm(r, arch, &result);
    request_free(r);
    if (status == QUERN_OK && report) status = qn_copy_sized("report", report, &result, sizeof result);
    return qn_message_end(&mark, status);
}

// ---- look inside

quern_status quern_kernel_describe(const quern_kernel *kernel, quern_kernel_info *info)
{
    if (!kernel || !info) return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL", !kernel ? "kernel" : "info");
    return qn_stage_describe(&kernel->stage, kernel->arch, "", "", "given", info);
}

quern_status quern_kernel_image(const quern_kernel *kernel, quern_image *image)
{
    if (!kernel || !image) return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL", !kernel ? "kernel" : "image");
    return qn_stage_image(&kernel->stage, kernel->parameter_bytes, image);
}

// ---- launch

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

static quern_status take_threads(const quern_kernel *kernel, const uint32_t given[3], CUlaunchConfig *config)
{
    uint32_t x = given[0], y = given[1], z = given[2], most = kernel->stage.threads;
    if (!x && !y && !z) x = most, y = z = 1;
    if (!x || !y || !z || x > MAX_THREADS_XY || y > MAX_THREADS_XY || z > MAX_THREADS_Z || x * y > most ||
        x * y * z > most)
        return qn_fail(QUERN_BAD_SIZE, "threads = %u × %u × %u: the kernel was prepared for at most %u", given[0],
                       given[1], given[2], most);
    config->blockDimX = x, config->blockDimY = y, config->blockDimZ = z;
    return QUERN_OK;
}

static quern_status take_geometry(const quern_kernel *kernel, const quern_geometry *given, CUlaunchConfig *config)
{
    quern_geometry room = QUERN_GEOMETRY_INIT;
    if (given->size != sizeof *given) {
        QN_TRY(qn_take_sized("geometry", given, &room, sizeof room));
        given = &room;
    }
    int shared = given->dynamic_shared_bytes, most = (int)kernel->stage.dynamic_shared;
    QN_TRY(check_grid(kernel, given->grid));
    QN_TRY(take_threads(kernel, given->threads, config));
    if (shared < -1 || shared > most)
        return qn_fail(QUERN_BAD_SIZE, "dynamic_shared_bytes = %d: the kernel was prepared for at most %d", shared,
                       most);
    config->gridDimX = given->grid[0], config->gridDimY = given->grid[1], config->gridDimZ = given->grid[2];
    config->sharedMemBytes = (unsigned)(shared < 0 ? most : shared);
    return QUERN_OK;
}

static CUresult launch(const quern_kernel *kernel, CUlaunchConfig *config, const void *parameters, CUstream stream)
{
    CUlaunchAttribute attribute;
    size_t bytes = kernel->packed_bytes;
    void *packed[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)parameters, // the driver copies them
                      CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    config->hStream = stream;
    config->attrs = &attribute;
    config->numAttrs = 0;
    if (kernel->stage.cluster > 1) {
        attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value.clusterDim.x = kernel->stage.cluster;
        attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
        config->numAttrs = 1;
    }
    return kernel->driver->cuLaunchKernelEx(config, kernel->stage.function, NULL, bytes ? packed : NULL);
}

__attribute__((noinline, cold)) static void log_launch(const quern_kernel *kernel, const CUlaunchConfig *config)
{
    const char *entry = kernel->stage.entry->image.entry;
    qn_log_line(&kernel->q->log, "launch", QUERN_LOG_DEBUG,
                "run arch=%s kernel=%s grid=%ux%ux%u threads=%ux%ux%u shared=%u spec=\"source %s\"", kernel->arch->name,
                entry, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                config->blockDimZ, config->sharedMemBytes, entry);
}

quern_status quern_launch_packed(const quern_kernel *kernel, const quern_geometry *geometry, const void *parameters,
                                 size_t parameter_bytes, struct CUstream_st *stream)
{
    CUlaunchConfig config;
    if (!kernel || !geometry) return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL", !kernel ? "kernel" : "geometry");
    if (parameter_bytes != kernel->parameter_bytes)
        return qn_fail(QUERN_BAD_SIZE, "parameter_bytes = %zu: the kernel was prepared for %zu", parameter_bytes,
                       kernel->parameter_bytes);
    if (parameter_bytes && !parameters) return qn_fail(QUERN_MISSING_ARGUMENT, "parameters is NULL");
    QN_TRY(take_geometry(kernel, geometry, &config));
    CUresult result = launch(kernel, &config, parameters, stream);
    if (result == CUDA_SUCCESS) {
        if (__builtin_expect(kernel->q->log_launch, 0)) log_launch(kernel, &config);
        return QUERN_OK;
    }
    qn_driver_fail(kernel->driver, QUERN_LAUNCH_FAILED, "cuLaunchKernelEx", result);
    return qn_fail_in(QUERN_LAUNCH_FAILED, "%s, grid %u×%u×%u, threads %u×%u×%u, %u bytes of shared memory",
                      kernel->stage.entry->image.entry, config.gridDimX, config.gridDimY, config.gridDimZ,
                      config.blockDimX, config.blockDimY, config.blockDimZ, config.sharedMemBytes);
}
