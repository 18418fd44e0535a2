// SPDX-License-Identifier: Apache-2.0
// The launch path: arguments → variant by sizes → one driver call a stage. Called by users thousands of times a second.
//   (1) No allocation, no lock, no system call, no loading, nothing zeroed that is not read.
//   (2) Everything is checked before the first driver call: a failed check leaves the outputs as they were.
#include <stdio.h>
#include <string.h>

#include "runtime/private.h"

#define UNUSUAL(condition) __builtin_expect(!!(condition), 0)
#define ASIDE              __attribute__((noinline, cold))

// ---- arguments

static ASIDE quern_status wrong_family(const quern_op *op, const quern_args *args)
{
    return qn_wrong_family("op", op->family_name, args);
}

static ASIDE quern_status small_workspace(const void *workspace, size_t bytes, size_t needed)
{
    if (workspace && bytes >= needed)
        return qn_fail(QUERN_MISALIGNED, "workspace = %p: it must be aligned to %d bytes", workspace,
                       QN_WORKSPACE_ALIGN);
    return qn_fail(QUERN_SMALL_WORKSPACE,
                   "workspace = %p, workspace_bytes = %zu: these sizes need %zu (quern_workspace_size)", workspace,
                   bytes, needed);
}

static quern_status check_workspace(const quern_op *op, const qn_op_variant *variant, const quern_args *args)
{
    const qn_family *family = op->family;
    qn_any_sizes sizes;
    void *workspace;
    size_t bytes;
    family->sizes_of(args, &sizes);
    size_t needed = family->workspace(&op->spec.base, &variant->config, &sizes);
    if (!needed) return QUERN_OK;
    memcpy(&workspace, (const char *)args + family->workspace_offset, sizeof workspace);
    memcpy(&bytes, (const char *)args + family->workspace_bytes_offset, sizeof bytes);
    if (UNUSUAL(!workspace || bytes < needed || (uintptr_t)workspace % QN_WORKSPACE_ALIGN))
        return small_workspace(workspace, bytes, needed);
    return QUERN_OK;
}

static ASIDE quern_status not_prepared(const quern_op *op, const quern_args *args)
{
    char name[96] = "";
    qn_any_sizes sizes;
    op->family->sizes_of(args, &sizes);
    op->family->bucket_name(op->family->bucket_of(&sizes), name, sizeof name);
    return qn_fail(QUERN_BAD_SIZE, "these sizes (%s) are outside the range that the op was prepared for: %s%s", name,
                   op->variant[0].sizes_text, op->variant_count > 1 ? ", …" : "");
}

// Which variant serves the sizes, by the family's own word.
static unsigned ask_for_variant(const quern_op *op, const quern_args *args)
{
    qn_any_sizes sizes;
    op->family->sizes_of(args, &sizes);
    return op->of_bucket[op->family->bucket_of(&sizes)];
}

// The same, from the ranges where the op has them.
static inline unsigned variant_of(const quern_op *op, const quern_args *args)
{
    const qn_size_range *range = op->range;
    int64_t size;
    if (!op->range_count) return ask_for_variant(op, args);
    memcpy(&size, (const char *)args + op->size_offset, sizeof size);
    while (size > range->last) range++;
    return range->variant;
}

// ---- the driver call

static ASIDE quern_status launch_failed(const quern_op *op, const qn_stage *stage, size_t index, const uint32_t grid[3],
                                        CUresult result)
{
    qn_driver_fail(op->driver, QUERN_LAUNCH_FAILED, "cuLaunchKernelEx", result);
    return qn_fail_in(QUERN_LAUNCH_FAILED,
                      "stage %zu (%s), grid %u×%u×%u, %u threads, cluster %u, %u bytes of shared memory%s", index,
                      stage->entry->image.entry, grid[0], grid[1], grid[2], stage->threads, stage->cluster,
                      stage->dynamic_shared, index ? " (earlier stages were launched: init the workspace again)" : "");
}

static inline CUresult launch_kernel(const quern_op *op, const qn_stage *stage, const uint32_t grid[3],
                                     void *parameters, CUstream stream)
{
    CUlaunchAttribute attribute[2];
    CUlaunchConfig config;
    void *list[1] = {parameters};
    config.gridDimX = grid[0], config.gridDimY = grid[1], config.gridDimZ = grid[2];
    config.blockDimX = stage->threads, config.blockDimY = 1, config.blockDimZ = 1;
    config.sharedMemBytes = stage->dynamic_shared;
    config.hStream = stream;
    config.attrs = attribute;
    config.numAttrs = 0;
    if (stage->cluster > 1) {
        CUlaunchAttribute *cluster = &attribute[config.numAttrs++];
        cluster->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        cluster->value.clusterDim.x = stage->cluster;
        cluster->value.clusterDim.y = cluster->value.clusterDim.z = 1;
    }
    if (stage->overlaps) {
        CUlaunchAttribute *overlaps = &attribute[config.numAttrs++];
        overlaps->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        overlaps->value.programmaticStreamSerializationAllowed = 1;
    }
    return op->launch_kernel(&config, stage->function, list, NULL);
}

static inline quern_status launch_stage(const quern_op *op, const qn_op_variant *variant, size_t index,
                                        const quern_args *args, CUstream stream)
{
    qn_launch launch; // its parameters are written by the family, as many as there are, and not before
    const qn_stage *stage = &variant->stage[index];
    launch.skip = false;
    op->launch(&op->spec.base, &variant->config, &variant->plan, &op->limits, args, index, &launch);
    if (launch.skip) return QUERN_OK;
    CUresult result = launch_kernel(op, stage, launch.grid, launch.params, stream);
    if (UNUSUAL(result != CUDA_SUCCESS)) return launch_failed(op, stage, index, launch.grid, result);
    return QUERN_OK;
}

// A line a launch, for whoever asked for them: what ran, at which sizes.
static ASIDE void log_launch(const quern_op *op, const qn_op_variant *variant, const quern_args *args)
{
    qn_any_sizes sizes;
    char spec[512], words[256] = "";
    size_t used = 0;
    qn_message_mark mark;
    qn_message_save(&mark);
    op->family->sizes_of(args, &sizes);
    for (size_t i = 0; i < op->family->size_count && used < sizeof words; i++) {
        int64_t value;
        memcpy(&value, sizes.bytes + op->family->sizes[i].offset, sizeof value);
        int wrote =
            snprintf(words + used, sizeof words - used, "%s=%lld ", op->family->sizes[i].name, (long long)value);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    if (quern_spec_format(&op->spec.base, spec, sizeof spec) == QUERN_OK)
        qn_log_line(&op->q->log, "launch", QUERN_LOG_DEBUG, "run arch=%s variant=%zu config=\"%s\" %sspec=\"%s\"",
                    op->arch->name, (size_t)(variant - op->variant), variant->config_text, words, spec);
    qn_message_restore(&mark);
}

// Arguments that were checked.
QN_LAUNCH_PATH static inline quern_status launch_checked(const quern_op *op, const quern_args *args, CUstream stream)
{
    unsigned index = variant_of(op, args);
    if (UNUSUAL(index == QN_NO_VARIANT)) return not_prepared(op, args);
    const qn_op_variant *variant = &op->variant[index];
    if (variant->has_workspace) QN_TRY(check_workspace(op, variant, args));
    size_t stage = 0;
    do QN_TRY(launch_stage(op, variant, stage, args, stream));
    while (UNUSUAL(++stage < variant->stage_count));
    if (UNUSUAL(op->log_launch)) log_launch(op, variant, args);
    return QUERN_OK;
}

// What is not right at a glance: a structure of another length, and what only the family can tell or refuse.
static __attribute__((noinline)) quern_status launch_after_checks(const quern_op *op, const quern_args *given,
                                                                  CUstream stream)
{
    const quern_args *args = given;
    qn_any_args room;
    bool is_empty = false;
    if (given->size != op->args_bytes) {
        memset(room.bytes, 0, op->args_bytes);
        QN_TRY(qn_take_sized("args", given, room.bytes, op->args_bytes));
        args = &room.base;
    }
    QN_TRY(op->family->check_args(&op->spec.base, args, &is_empty));
    return is_empty ? QUERN_OK : launch_checked(op, args, stream);
}

QN_LAUNCH_PATH quern_status qn_launch_args(const quern_op *op, const quern_args *given, CUstream stream)
{
    if (UNUSUAL(!op || !given)) return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL", !op ? "op" : "args");
    if (given->family != op->family_name && (!given->family || strcmp(given->family, op->family_name) != 0))
        return wrong_family(op, given);
    if (given->size == op->args_bytes && qn_args_at_a_glance(&op->glance, given))
        return launch_checked(op, given, stream);
    return launch_after_checks(op, given, stream);
}

QN_LAUNCH_PATH quern_status quern_launch_args(const quern_op *op, const quern_args *given, struct CUstream_st *stream)
{
    return qn_launch_args(op, given, stream);
}

quern_status quern_launch(const quern_op *op, const quern_argument *arguments, size_t count, struct CUstream_st *stream)
{
    if (!op) return qn_fail(QUERN_MISSING_ARGUMENT, "op is NULL");
    qn_any_args room;
    QN_TRY(qn_args_from_names(op->family, arguments, count, &room.base));
    return qn_launch_args(op, &room.base, stream);
}
