// SPDX-License-Identifier: Apache-2.0
// Looking inside an op: variants, stages, what they are and where they came from, and their images.
#include <string.h>

#include "runtime/private.h"

size_t quern_op_variants(const quern_op *op)
{
    return op ? op->variant_count : 0;
}

size_t quern_op_stages(const quern_op *op, size_t variant)
{
    return op && variant < op->variant_count ? op->variant[variant].plan.stage_count : 0;
}

static quern_status check_index(const quern_op *op, size_t variant, size_t stage, const void *out)
{
    if (!op || !out) return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL", !op ? "op" : "the place for the result");
    if (variant >= op->variant_count)
        return qn_fail(QUERN_BAD_ARGUMENT, "variant = %zu: the op has %zu", variant, op->variant_count);
    size_t stages = op->variant[variant].plan.stage_count;
    if (stage >= stages) return qn_fail(QUERN_BAD_ARGUMENT, "stage = %zu: variant %zu has %zu", stage, variant, stages);
    return QUERN_OK;
}

static int at_least_0(int value)
{
    return value > 0 ? value : 0;
}

quern_status qn_stage_describe(const qn_stage *stage, const qn_arch *arch, const char *sizes, const char *config,
                               const char *chosen, quern_kernel_info *info)
{
    const qn_image *image = &stage->entry->image;
    quern_kernel_info full = {
        .size = sizeof full,
        .sizes = sizes,
        .config = config,
        .chosen = chosen,
        .arch = arch->name,
        .entry = image->entry,
        .threads = (int)stage->threads,
        .cluster = (int)stage->cluster,
        .registers = image->registers,
        .local_bytes = image->local_bytes,
        .shared_bytes = at_least_0(image->shared_bytes) + (int)stage->dynamic_shared,
        .origin = stage->origin,
        .compile_ms = (double)image->compile_us / 1000.0,
    };
    return qn_copy_sized("info", info, &full, sizeof full);
}

quern_status qn_stage_image(const qn_stage *stage, size_t parameter_bytes, quern_image *image)
{
    const qn_image *from = &stage->entry->image;
    quern_image full = {
        .size = sizeof full,
        .bytes = from->bytes.bytes,
        .byte_count = from->bytes.length,
        .entry = from->entry,
        .threads = (int)stage->threads,
        .cluster = (int)stage->cluster,
        .dynamic_shared_bytes = (int)stage->dynamic_shared,
        .parameter_bytes = parameter_bytes,
    };
    return qn_copy_sized("image", image, &full, sizeof full);
}

quern_status quern_op_describe(const quern_op *op, size_t variant, size_t stage, quern_kernel_info *info)
{
    QN_TRY(check_index(op, variant, stage, info));
    const qn_op_variant *v = &op->variant[variant];
    return qn_stage_describe(&v->stage[stage], op->arch, v->sizes_text, v->config_text, v->chosen, info);
}

quern_status quern_op_image(const quern_op *op, size_t variant, size_t stage, quern_image *image)
{
    QN_TRY(check_index(op, variant, stage, image));
    const qn_op_variant *v = &op->variant[variant];
    return qn_stage_image(&v->stage[stage], v->plan.stage[stage].params_bytes, image);
}

// A sizes structure of this library's length, each size inside its range.
void qn_sizes_take(const qn_family *family, const void *given, qn_any_sizes *sizes)
{
    size_t bytes;
    memset(sizes, 0, sizeof *sizes);
    memcpy(&bytes, given, sizeof bytes);
    memcpy(sizes, given, bytes < family->sizes_bytes ? bytes : family->sizes_bytes);
    memcpy(sizes, &family->sizes_bytes, sizeof family->sizes_bytes);
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *field = &family->sizes[i];
        int64_t value;
        memcpy(&value, sizes->bytes + field->offset, sizeof value);
        if (value < field->min) value = field->min;
        if (value > field->max) value = field->max;
        memcpy(sizes->bytes + field->offset, &value, sizeof value);
    }
}

size_t quern_op_variant_for(const quern_op *op, const void *sizes)
{
    qn_any_sizes full;
    if (!op || !sizes) return 0;
    if (qn_check_sized("sizes", sizes) != QUERN_OK) return op->variant_count;
    qn_sizes_take(op->family, sizes, &full);
    unsigned variant = op->of_bucket[op->family->bucket_of(&full)];
    return variant == QN_NO_VARIANT ? op->variant_count : variant;
}
