// SPDX-License-Identifier: Apache-2.0
// The host's time for a look-up and for a launch (bench.h), on the host's clock. Launches are far fewer between two waits
// than the driver's queue holds, so that nothing waits for the GPU. What is compared alternates in short blocks, and is
// compared block by block: the driver's own time drifts by more than what Quern adds.
#include <string.h>

#include "bench.h"
#include "runtime/runtime.h"

enum { LOOKUPS = 2000 };
enum { KINDS = 3, BLOCK = 8, PAIRS = 16 }; // launches of a block; blocks of each kind between two waits

// ---- look-up

// Looks up many times, then releases as often.
static quern_status one_lookup(const bench *b, const runtime_case *c, double *found_ns, double *released_ns)
{
    quern_status status = QUERN_OK;
    quern_op *op = NULL;
    double start = command_seconds();
    int n = 0;
    for (; n < LOOKUPS && status == QUERN_OK; n++) status = quern_prepare(b->q, &c->spec.base, b->device.ordinal, &op);
    double middle = command_seconds();
    for (int i = status == QUERN_OK ? 0 : 1; i < n; i++) quern_op_release(op);
    *found_ns = (middle - start) / LOOKUPS * 1e9;
    *released_ns = (command_seconds() - middle) / LOOKUPS * 1e9;
    return status;
}

quern_status bench_lookup(const bench *b, const runtime_case *c, table *t)
{
    static double found[QN_TIMING_MAX_REPEATS], released[QN_TIMING_MAX_REPEATS];
    quern_op *held;
    QN_TRY(quern_prepare(b->q, &c->spec.base, b->device.ordinal, &held)); // the slow one
    quern_status status = QUERN_OK;
    for (int i = 0; i < b->repeats && status == QUERN_OK; i++) status = one_lookup(b, c, &found[i], &released[i]);
    quern_op_release(held);
    QN_TRY(status);
    bench_runtime_add(t, "prepare: found in memory", qn_timing_summary(found, (size_t)b->repeats), "ns");
    bench_runtime_add(t, "release", qn_timing_summary(released, (size_t)b->repeats), "ns");
    return QUERN_OK;
}

// ---- launch

// One launch of the small spec: through Quern, and the same kernel by hand.
typedef struct launch_case {
    const bench *bench;
    const runtime_case *spec;
    quern_op *op;
    _Alignas(16) unsigned char args[1024];
    CUdeviceptr memory[16];
    size_t memory_count;
    CUlibrary library;
    CUfunction functions[2]; // of this context, and the kernel that is valid in every context
    CUlaunchConfig config;
    CUlaunchAttribute cluster;
    qn_launch launch;
} launch_case;

static quern_status allocate(launch_case *c, size_t bytes, void **pointer)
{
    CUdeviceptr address;
    if (c->memory_count == QN_COUNT(c->memory))
        return qn_fail(QUERN_INTERNAL, "a family with more tensors than expected");
    QN_TRY(bench_allocate(c->bench, bytes, &address));
    c->memory[c->memory_count++] = address;
    DEVICE_TRY(&c->bench->device, cuMemsetD32Async, address, 0, bytes / 4, c->bench->stream);
    *pointer = (void *)(uintptr_t)address;
    return QUERN_OK;
}

// One row of everything; a tensor takes at most 8 bytes an element.
static quern_status fill_args(launch_case *c)
{
    const qn_family *f = c->spec->family;
    quern_args *head = (quern_args *)c->args;
    const int64_t one = 1;
    head->size = f->args_bytes;
    head->family = f->name;
    for (size_t i = 0; i < f->size_count; i++) memcpy(c->args + f->size_args_offset[i], &one, sizeof one);
    for (size_t i = 0; i < f->tensor_count; i++) {
        int64_t count = 1;
        void *pointer;
        if (!qn_tensor_is_given(f, &c->spec->spec.base, &f->tensors[i])) continue;
        for (size_t a = 0; f->tensors[i].axes[a]; a++) {
            int64_t extent = qn_spec_number(f, &c->spec->spec.base, f->tensors[i].axes[a]);
            count *= extent > 0 ? extent : 1;
        }
        QN_TRY(allocate(c, 8 * (size_t)count, &pointer));
        memcpy(c->args + f->tensors[i].pointer_offset, &pointer, sizeof pointer);
    }
    return QUERN_OK;
}

static quern_status fill_workspace(launch_case *c, const void *sizes)
{
    const qn_family *f = c->spec->family;
    size_t bytes = quern_workspace_size(c->op, sizes);
    void *workspace = NULL;
    if (bytes == 0) return QUERN_OK;
    QN_TRY(allocate(c, bytes, &workspace));
    memcpy(c->args + f->workspace_offset, &workspace, sizeof workspace);
    memcpy(c->args + f->workspace_bytes_offset, &bytes, sizeof bytes);
    return quern_workspace_init(c->op, workspace, bytes, c->bench->stream);
}

static quern_status load_bare(launch_case *c, const quern_image *image)
{
    const device *d = &c->bench->device;
    CUkernel kernel;
    DEVICE_TRY(d, cuLibraryLoadData, &c->library, image->bytes, NULL, NULL, 0, NULL, NULL, 0);
    DEVICE_TRY(d, cuLibraryGetKernel, &kernel, c->library, image->entry);
    DEVICE_TRY(d, cuKernelGetFunction, &c->functions[0], kernel);
    c->functions[1] = (CUfunction)kernel;
    if (image->dynamic_shared_bytes > 0)
        DEVICE_TRY(d, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                   image->dynamic_shared_bytes, kernel, d->handle);
    if (image->cluster > 8)
        DEVICE_TRY(d, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, kernel, d->handle);
    return QUERN_OK;
}

// The launch that Quern makes for these arguments, made once beforehand.
static quern_status prepare_bare(launch_case *c, const void *sizes)
{
    static qn_variants variants; // large
    const qn_family *f = c->spec->family;
    const qn_arch *arch;
    size_t index = quern_op_variant_for(c->op, sizes);
    quern_image image = QUERN_IMAGE_INIT;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    QN_TRY(quern_op_describe(c->op, index, 0, &info));
    QN_TRY(quern_op_image(c->op, index, 0, &image));
    QN_TRY(qn_arch_find(info.arch, &arch));
    QN_TRY(qn_variants_plan(c->bench->q, f, &c->spec->spec.base, arch, &variants));
    if (quern_op_stages(c->op, index) != 1) return qn_fail(QUERN_UNSUPPORTED, "the bench's spec takes several kernels");
    QN_TRY(load_bare(c, &image));
    const qn_device_limits limits = {c->bench->device.sm_count};
    const qn_variant *v = &variants.item[index];
    f->launch(&c->spec->spec.base, &v->config, &v->plan, &limits, (const quern_args *)c->args, 0, &c->launch);
    c->cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    c->cluster.value.clusterDim.x = (unsigned)image.cluster;
    c->cluster.value.clusterDim.y = c->cluster.value.clusterDim.z = 1;
    c->config = (CUlaunchConfig){.gridDimX = c->launch.grid[0],
                                 .gridDimY = c->launch.grid[1],
                                 .gridDimZ = c->launch.grid[2],
                                 .blockDimX = (unsigned)image.threads,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .sharedMemBytes = (unsigned)image.dynamic_shared_bytes,
                                 .hStream = c->bench->stream,
                                 .attrs = &c->cluster,
                                 .numAttrs = image.cluster > 1};
    return QUERN_OK;
}

static quern_status prepare(launch_case *c)
{
    _Alignas(16) unsigned char sizes[256];
    QN_TRY(quern_prepare(c->bench->q, &c->spec->spec.base, c->bench->device.ordinal, &c->op));
    QN_TRY(fill_args(c));
    c->spec->family->sizes_of((const quern_args *)c->args, sizes);
    QN_TRY(fill_workspace(c, sizes));
    return prepare_bare(c, sizes);
}

// kind 0: through Quern; 1, 2: bare, by either handle. Time of a launch.
static quern_status one_block(launch_case *c, int kind, double *ns)
{
    const device *d = &c->bench->device;
    void *parameters[1] = {c->launch.params};
    double start = command_seconds();
    for (int i = 0; i < BLOCK; i++) {
        if (kind == 0) {
            QN_TRY(quern_launch_args(c->op, (const quern_args *)c->args, c->bench->stream));
        } else {
            DEVICE_TRY(d, cuLaunchKernelEx, &c->config, c->functions[kind - 1], parameters, NULL);
        }
    }
    *ns = (command_seconds() - start) / BLOCK * 1e9;
    return QUERN_OK;
}

// From an empty stream: blocks of each kind in turn, a b c c b a a b c …, so that each comes as often before as after the
// others. *ns: the medians of the kinds; *more: of the differences within a turn.
static quern_status one_round(launch_case *c, double ns[KINDS], double more[KINDS])
{
    double block[KINDS][PAIRS], over[PAIRS];
    DEVICE_TRY(&c->bench->device, cuStreamSynchronize, c->bench->stream);
    for (int i = 0; i < PAIRS; i++)
        for (int k = 0; k < KINDS; k++) {
            int kind = i % 2 ? KINDS - 1 - k : k;
            QN_TRY(one_block(c, kind, &block[kind][i]));
        }
    for (int kind = 1; kind < KINDS; kind++) {
        for (int i = 0; i < PAIRS; i++) over[i] = block[0][i] - block[kind][i];
        more[kind] = qn_timing_summary(over, PAIRS).median_us;
    }
    for (int kind = 0; kind < KINDS; kind++) ns[kind] = qn_timing_summary(block[kind], PAIRS).median_us;
    return QUERN_OK;
}

static quern_status measure(launch_case *c, table *t)
{
    static const char *const names[KINDS] = {"launch through quern", "bare cuLaunchKernelEx, CUfunction",
                                             "bare cuLaunchKernelEx, CUkernel"};
    static const char *const over[KINDS] = {NULL, "launch over bare, CUfunction", "launch over bare, CUkernel"};
    static double samples[KINDS][QN_TIMING_MAX_REPEATS], mores[KINDS][QN_TIMING_MAX_REPEATS];
    size_t rounds = (size_t)c->bench->repeats;
    double ns[KINDS], more[KINDS];
    QN_TRY(one_round(c, ns, more)); // not measured
    for (size_t i = 0; i < rounds; i++) {
        QN_TRY(one_round(c, ns, more));
        for (int kind = 0; kind < KINDS; kind++) samples[kind][i] = ns[kind];
        for (int kind = 1; kind < KINDS; kind++) mores[kind][i] = more[kind];
    }
    for (int kind = 0; kind < KINDS; kind++)
        bench_runtime_add(t, names[kind], qn_timing_summary(samples[kind], rounds), "ns");
    for (int kind = 1; kind < KINDS; kind++)
        bench_runtime_add(t, over[kind], qn_timing_summary(mores[kind], rounds), "ns");
    DEVICE_TRY(&c->bench->device, cuStreamSynchronize, c->bench->stream);
    return QUERN_OK;
}

quern_status bench_launch(const bench *b, const runtime_case *spec, table *t)
{
    launch_case c = {.bench = b, .spec = spec};
    quern_status status = spec->family->args_bytes <= sizeof c.args ? prepare(&c) : QUERN_INTERNAL;
    if (status == QUERN_OK) status = measure(&c, t);
    for (size_t i = 0; i < c.memory_count; i++) (void)b->device.driver->cuMemFree(c.memory[i]);
    if (c.library) (void)b->device.driver->cuLibraryUnload(c.library);
    quern_op_release(c.op);
    return status;
}
