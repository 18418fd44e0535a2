// SPDX-License-Identifier: Apache-2.0
// How many rows of a case its kernel selected again, exactly, because the first way could not serve them (bench_topk.h).
// The kernel's module counts them (softmax_topk/repairs.cuh); here it is loaded once more, so that its counter is at hand.
#include <string.h>

#include "bench_topk.h"
#include "runtime/runtime.h"

typedef struct module {
    CUlibrary library;
    CUkernel kernel;
    CUdeviceptr counter;
    qn_launch launch;
} module;

static quern_status load(const device *d, const quern_image *image, module *m)
{
    size_t bytes;
    DEVICE_TRY(d, cuLibraryLoadData, &m->library, image->bytes, NULL, NULL, 0, NULL, NULL, 0);
    DEVICE_TRY(d, cuLibraryGetKernel, &m->kernel, m->library, image->entry);
    DEVICE_TRY(d, cuLibraryGetGlobal, &m->counter, &bytes, m->library, "qn_repairs");
    if (image->dynamic_shared_bytes > 0)
        DEVICE_TRY(d, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                   image->dynamic_shared_bytes, m->kernel, d->handle);
    if (image->cluster > 8)
        DEVICE_TRY(d, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, m->kernel,
                   d->handle);
    return QUERN_OK;
}

// Grid and parameters, as the library makes them for this call.
static quern_status make_launch(topk_run *r, size_t variant, qn_launch *launch)
{
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    const qn_device_limits limits = {r->bench->device.sm_count};
    const qn_arch *arch;
    qn_config config;
    qn_plan plan;
    QN_TRY(quern_op_describe(r->op, variant, 0, &info));
    QN_TRY(qn_arch_find(info.arch, &arch));
    QN_TRY(qn_config_parse(r->family, info.config, &config));
    QN_TRY(r->family->plan(&r->spec.base, arch, &config, &plan));
    r->args.logits = (const void *)(uintptr_t)bench_data_copy(r->data, 0);
    r->family->launch(&r->spec.base, &config, &plan, &limits, &r->args.base, 0, launch);
    return QUERN_OK;
}

static quern_status run(topk_run *r, const quern_image *image, module *m, uint32_t *count)
{
    const device *d = &r->bench->device;
    void *parameters[1] = {m->launch.params};
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    cluster.value.clusterDim.x = (unsigned)image->cluster;
    cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
    CUlaunchConfig config = {.gridDimX = m->launch.grid[0],
                             .gridDimY = m->launch.grid[1],
                             .gridDimZ = m->launch.grid[2],
                             .blockDimX = (unsigned)image->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = (unsigned)image->dynamic_shared_bytes,
                             .hStream = r->bench->stream,
                             .attrs = &cluster,
                             .numAttrs = image->cluster > 1};
    DEVICE_TRY(d, cuLaunchKernelEx, &config, (CUfunction)m->kernel, parameters, NULL);
    DEVICE_TRY(d, cuStreamSynchronize, r->bench->stream);
    return device_check(d, "cuMemcpyDtoH", d->driver->cuMemcpyDtoH(count, m->counter, sizeof *count));
}

quern_status topk_count_repairs(topk_run *r, int64_t *repairs)
{
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    quern_image image = QUERN_IMAGE_INIT;
    module m = {0};
    uint32_t count = 0;
    sizes.rows = r->shape->rows;
    size_t variant = quern_op_variant_for(r->op, &sizes);
    QN_TRY(quern_op_image(r->op, variant, 0, &image));
    QN_TRY(make_launch(r, variant, &m.launch));
    quern_status status = load(&r->bench->device, &image, &m);
    if (status == QUERN_OK) status = run(r, &image, &m, &count);
    if (m.library) (void)r->bench->device.driver->cuLibraryUnload(m.library);
    *repairs = count;
    return status;
}
