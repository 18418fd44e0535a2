// SPDX-License-Identifier: Apache-2.0
// Argument structures by the family's tensor list. Called on the launch path: no allocation, no lock, no system call.
#include <string.h>

#include "ops/args_layout.h"

// ---- types

size_t qn_dtype_bytes(quern_dtype dtype)
{
    switch (dtype) {
    case QUERN_U8:
        return 1;
    case QUERN_F16:
    case QUERN_BF16:
        return 2;
    case QUERN_F32:
    case QUERN_I32:
        return 4;
    case QUERN_I64:
        return 8;
    case QUERN_DTYPE_NONE:
        break;
    }
    return 0;
}

const char *qn_dtype_name(quern_dtype dtype)
{
    switch (dtype) {
    case QUERN_U8:
        return "u8";
    case QUERN_F16:
        return "f16";
    case QUERN_BF16:
        return "bf16";
    case QUERN_F32:
        return "f32";
    case QUERN_I32:
        return "i32";
    case QUERN_I64:
        return "i64";
    case QUERN_DTYPE_NONE:
        break;
    }
    return "none";
}

bool qn_axis_is(const char *axis, const char *name, int64_t *plus)
{
    size_t length = strlen(name);
    if (strncmp(axis, name, length)) return false;
    *plus = !strcmp(axis + length, "+1");
    return *plus || !axis[length];
}

static bool is_chosen(const qn_tensor *tensor, int64_t value)
{
    return value >= 0 && value < 32 && (tensor->choices >> value & 1);
}

bool qn_tensor_is_given(const qn_family *family, const quern_spec *spec, const qn_tensor *tensor)
{
    if (tensor->choice && !is_chosen(tensor, qn_spec_number(family, spec, tensor->choice))) return false;
    if (tensor->unless && qn_spec_number(family, spec, tensor->unless) != 0) return false;
    return !tensor->flag || qn_spec_number(family, spec, tensor->flag) != 0;
}

const char *qn_stride_axis(const qn_tensor *tensor, size_t axis)
{
    return tensor->stride_axes[axis] ? tensor->stride_axes[axis] : tensor->axes[axis];
}

quern_dtype qn_tensor_dtype(const qn_family *family, const quern_spec *spec, const qn_tensor *tensor)
{
    if (tensor->dtype != QUERN_DTYPE_NONE || !tensor->dtype_field) return tensor->dtype;
    return (quern_dtype)qn_spec_number(family, spec, tensor->dtype_field);
}

// ---- checks

static int64_t int_at(const void *structure, size_t offset)
{
    int64_t value;
    memcpy(&value, (const char *)structure + offset, sizeof value);
    return value;
}

quern_status qn_wrong_family(const char *what, const char *family, const quern_args *args)
{
    return qn_fail(QUERN_WRONG_FAMILY, "the %s is of %s, the arguments are of %s", what, family,
                   args->family ? args->family : "no family (start from the INIT macro)");
}

static quern_status check_structure(const qn_family *family, const quern_args *args)
{
    if (!args) return qn_fail(QUERN_MISSING_ARGUMENT, "args is NULL");
    if (!args->family || (args->family != family->name && strcmp(args->family, family->name)))
        return qn_wrong_family("spec", family->name, args);
    if (args->size >= family->args_bytes) return QUERN_OK;
    return qn_fail(QUERN_BAD_ARGUMENT,
                   "%s arguments: their size is %zu, and %zu is expected; start from the ARGS_INIT macro", family->name,
                   args->size, family->args_bytes);
}

static quern_status check_size(const qn_field *size, int64_t value)
{
    if (value >= size->min && value <= size->max) return QUERN_OK;
    return qn_fail(QUERN_BAD_SIZE, "%s = %lld: allowed are %lld … %lld", size->name, (long long)value,
                   (long long)size->min, (long long)size->max);
}

static quern_status check_sizes(const qn_family *family, const quern_args *args)
{
    for (size_t i = 0; i < family->size_count; i++)
        QN_TRY(check_size(&family->sizes[i], int_at(args, family->size_args_offset[i])));
    return QUERN_OK;
}

static quern_status bad_stride(const qn_tensor *tensor, size_t axis, int64_t stride, int64_t least)
{
    if (stride >= least) {
        return qn_fail(QUERN_BAD_STRIDE, "%s_stride_%s = %lld: the tensor would not fit into memory", tensor->name,
                       qn_stride_axis(tensor, axis), (long long)stride);
    }
    return qn_fail(QUERN_BAD_STRIDE, "%s_stride_%s = %lld: it must be 0 (packed) or at least %lld, in elements",
                   tensor->name, qn_stride_axis(tensor, axis), (long long)stride, (long long)least);
}

// How long an axis is.
static int64_t extent(const qn_tensor_layout *layout, const quern_spec *spec, const quern_args *args, size_t axis)
{
    const qn_field *field = layout->axis[axis].field;
    const qn_family *family = layout->axis[axis].family;
    if (family) return family->axis_length(spec, layout->tensor->axes[axis]);
    int64_t length = field ? qn_field_get(field, spec) : int_at(args, layout->axis[axis].args_offset);
    return length + layout->axis[axis].plus;
}

// Strides from the inside out: each is 0, or no less than what it steps over. *empty: some axis is 0 long.
static quern_status check_strides(const qn_tensor_layout *layout, const quern_spec *spec, const quern_args *args,
                                  int64_t element, bool *empty)
{
    size_t rank = layout->rank;
    int64_t bytes, span = extent(layout, spec, args, rank - 1); // elements from first to past last, axes walked so far

    *empty = span == 0;
    for (size_t axis = rank; axis-- > 1;) {
        int64_t length = extent(layout, spec, args, axis - 1);
        int64_t stride = int_at(args, layout->tensor->stride_offset[axis - 1]);
        *empty |= length == 0;
        if (stride && stride < span) return bad_stride(layout->tensor, axis - 1, stride, span);
        if (!stride) stride = span;
        if (__builtin_mul_overflow(stride, length, &span)) return bad_stride(layout->tensor, axis - 1, stride, 0);
        if (__builtin_mul_overflow(span, element, &bytes)) return bad_stride(layout->tensor, axis - 1, stride, 0);
    }
    return QUERN_OK;
}

// Strides of a tensor whose outer axes may lie in any order: from the smallest up, each is no less than what those before
// it span, so that no two elements share a place. A stride of 0 steps over all axes inside it.
static quern_status check_any_order(const qn_tensor_layout *layout, const quern_spec *spec, const quern_args *args,
                                    int64_t element, bool *empty)
{
    size_t outer = layout->rank - 1, order[QN_MAX_RANK];
    int64_t stride[QN_MAX_RANK], length[QN_MAX_RANK], span = extent(layout, spec, args, outer), packed = span, bytes;
    bool too_far = false;

    *empty = span == 0;
    for (size_t axis = outer; axis-- > 0;) {
        int64_t step;
        length[axis] = extent(layout, spec, args, axis);
        stride[axis] = int_at(args, layout->tensor->stride_offset[axis]);
        if (!stride[axis]) stride[axis] = packed;
        *empty |= length[axis] == 0;
        if (stride[axis] < 0) return bad_stride(layout->tensor, axis, stride[axis], span);
        too_far |= __builtin_mul_overflow(stride[axis], length[axis], &step);
        if (step > packed) packed = step;
        size_t at = outer - 1 - axis; // insertion by stride
        for (; at > 0 && stride[order[at - 1]] > stride[axis]; at--) order[at] = order[at - 1];
        order[at] = axis;
    }
    for (size_t i = 0; i < outer; i++) {
        size_t axis = order[i];
        if (length[axis] <= 1) continue; // a stride that nothing steps by
        if (stride[axis] < span) return bad_stride(layout->tensor, axis, stride[axis], span);
        if (__builtin_mul_overflow(stride[axis], length[axis], &span))
            return bad_stride(layout->tensor, axis, stride[axis], 0);
    }
    too_far |= __builtin_mul_overflow(span, element, &bytes);
    return too_far && !*empty ? bad_stride(layout->tensor, 0, stride[0], 0) : QUERN_OK;
}

static quern_status bad_pointer(const qn_tensor *tensor, const void *pointer, quern_dtype dtype)
{
    if (!pointer) {
        return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL%s%s%s", tensor->name,
                       tensor->flag ? ", and the spec has " : "", tensor->flag ? tensor->flag : "",
                       tensor->flag ? " set" : "");
    }
    return qn_fail(QUERN_MISALIGNED, "%s = %p: not aligned to its element (%s, %zu bytes)", tensor->name, pointer,
                   qn_dtype_name(dtype), qn_dtype_bytes(dtype));
}

static quern_status check_tensor(const qn_tensor_layout *layout, const quern_spec *spec, const quern_args *args)
{
    const void *pointer;
    bool empty;

    if (layout->flag && !qn_field_get(layout->flag, spec)) return QUERN_OK;
    if (layout->unless && qn_field_get(layout->unless, spec)) return QUERN_OK;
    if (layout->choice && !is_chosen(layout->tensor, qn_field_get(layout->choice, spec))) return QUERN_OK;
    quern_dtype dtype = layout->dtype ? (quern_dtype)qn_field_get(layout->dtype, spec) : layout->tensor->dtype;
    size_t element = qn_dtype_bytes(dtype);
    if (layout->tensor->any_order)
        QN_TRY(check_any_order(layout, spec, args, (int64_t)element, &empty));
    else
        QN_TRY(check_strides(layout, spec, args, (int64_t)element, &empty));
    if (empty) return QUERN_OK; // nothing is read or written through it
    memcpy(&pointer, (const char *)args + layout->tensor->pointer_offset, sizeof pointer);
    if (pointer && (!element || !((uintptr_t)pointer & (element - 1)))) return QUERN_OK;
    return bad_pointer(layout->tensor, pointer, dtype);
}

quern_status qn_check_args(const qn_family *family, const quern_spec *spec, const quern_args *args)
{
    qn_args_layout scratch;

    QN_TRY(check_structure(family, args));
    QN_TRY(check_sizes(family, args));
    const qn_args_layout *layout = qn_args_layout_of(family, &scratch);
    for (size_t i = 0; i < family->tensor_count; i++) QN_TRY(check_tensor(&layout->tensor[i], spec, args));
    return QUERN_OK;
}

quern_status qn_check_rows(const qn_family *family, const quern_spec *spec, const quern_args *args, bool *empty)
{
    int64_t rows = int_at(args, family->size_args_offset[0]);

    QN_TRY(check_size(&family->sizes[0], rows));
    *empty = rows == 0;
    return *empty ? QUERN_OK : qn_check_args(family, spec, args);
}
