// SPDX-License-Identifier: Apache-2.0
// Argument structures by the family's tensor list. Called on the launch path: no allocation, no lock, no system call.
#include <string.h>

#include "ops/field.h"

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

bool qn_tensor_is_given(const qn_family *family, const quern_spec *spec, const qn_tensor *tensor)
{
    return !tensor->flag || qn_spec_number(family, spec, tensor->flag) != 0;
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

// How long an axis is: a size of the arguments, or a field of the spec.
static int64_t extent(const qn_family *family, const quern_spec *spec, const quern_args *args, const char *axis)
{
    for (size_t i = 0; i < family->size_count; i++) {
        if (family->sizes[i].name == axis || !strcmp(family->sizes[i].name, axis))
            return int_at(args, family->size_args_offset[i]);
    }
    return qn_spec_number(family, spec, axis);
}

static quern_status check_structure(const qn_family *family, const quern_args *args)
{
    if (!args) return qn_fail(QUERN_MISSING_ARGUMENT, "args is NULL");
    if (!args->family || (args->family != family->name && strcmp(args->family, family->name))) {
        return qn_fail(QUERN_WRONG_FAMILY, "the arguments are of family '%s', the op is of '%s'",
                       args->family ? args->family : "", family->name);
    }
    if (args->size >= family->args_bytes) return QUERN_OK;
    return qn_fail(QUERN_BAD_ARGUMENT,
                   "%s arguments: their size is %zu, and %zu is expected; start from the ARGS_INIT macro", family->name,
                   args->size, family->args_bytes);
}

static quern_status check_sizes(const qn_family *family, const quern_args *args)
{
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *size = &family->sizes[i];
        int64_t value = int_at(args, family->size_args_offset[i]);
        if (value >= size->min && value <= size->max) continue;
        return qn_fail(QUERN_BAD_SIZE, "%s = %lld: allowed are %lld … %lld", size->name, (long long)value,
                       (long long)size->min, (long long)size->max);
    }
    return QUERN_OK;
}

static quern_status bad_stride(const qn_tensor *tensor, size_t axis, int64_t stride, int64_t least)
{
    if (stride >= least) {
        return qn_fail(QUERN_BAD_STRIDE, "%s_stride_%s = %lld: the tensor would not fit into memory", tensor->name,
                       tensor->axes[axis], (long long)stride);
    }
    return qn_fail(QUERN_BAD_STRIDE, "%s_stride_%s = %lld: it must be 0 (packed) or at least %lld, in elements",
                   tensor->name, tensor->axes[axis], (long long)stride, (long long)least);
}

// Strides from the inside out: each is 0, or no less than what it steps over. *empty: some axis is 0 long.
static quern_status check_strides(const qn_family *family, const quern_spec *spec, const quern_args *args,
                                  const qn_tensor *tensor, int64_t element, bool *empty)
{
    size_t rank = 0;
    int64_t span, bytes; // elements from the first to past the last, of the axes walked so far

    while (tensor->axes[rank]) rank++;
    span = rank ? extent(family, spec, args, tensor->axes[rank - 1]) : 1;
    *empty = span == 0;
    for (size_t axis = rank; axis-- > 1;) {
        int64_t length = extent(family, spec, args, tensor->axes[axis - 1]);
        int64_t stride = int_at(args, tensor->stride_offset[axis - 1]);
        *empty |= length == 0;
        if (stride && stride < span) return bad_stride(tensor, axis - 1, stride, span);
        if (!stride) stride = span;
        if (__builtin_mul_overflow(stride, length, &span)) return bad_stride(tensor, axis - 1, stride, 0);
        if (__builtin_mul_overflow(span, element, &bytes)) return bad_stride(tensor, axis - 1, stride, 0);
    }
    return QUERN_OK;
}

static quern_status check_tensor(const qn_family *family, const quern_spec *spec, const quern_args *args,
                                 const qn_tensor *tensor)
{
    const void *pointer;
    bool empty;

    if (!qn_tensor_is_given(family, spec, tensor)) return QUERN_OK;
    quern_dtype dtype = qn_tensor_dtype(family, spec, tensor);
    size_t element = qn_dtype_bytes(dtype);
    QN_TRY(check_strides(family, spec, args, tensor, (int64_t)element, &empty));
    if (empty) return QUERN_OK; // nothing is read or written through it
    memcpy(&pointer, (const char *)args + tensor->pointer_offset, sizeof pointer);
    if (!pointer) {
        return qn_fail(QUERN_MISSING_ARGUMENT, "%s is NULL%s%s%s", tensor->name,
                       tensor->flag ? ", and the spec has " : "", tensor->flag ? tensor->flag : "",
                       tensor->flag ? " set" : "");
    }
    if (element && ((uintptr_t)pointer & (element - 1))) {
        return qn_fail(QUERN_MISALIGNED, "%s = %p: not aligned to its element (%s, %zu bytes)", tensor->name, pointer,
                       qn_dtype_name(dtype), element);
    }
    return QUERN_OK;
}

quern_status qn_check_args(const qn_family *family, const quern_spec *spec, const quern_args *args)
{
    QN_TRY(check_structure(family, args));
    QN_TRY(check_sizes(family, args));
    for (size_t i = 0; i < family->tensor_count; i++) QN_TRY(check_tensor(family, spec, args, &family->tensors[i]));
    return QUERN_OK;
}

// ---- arguments by name

typedef struct slot {
    size_t offset;
    bool is_pointer;
} slot;

// Whether name is "<tensor>_stride_<axis>", without writing it out.
static bool is_stride(const char *name, const qn_tensor *tensor, const char *axis)
{
    static const char middle[] = "_stride_";
    size_t length = strlen(tensor->name);

    return !strncmp(name, tensor->name, length) && !strncmp(name + length, middle, sizeof middle - 1) &&
           !strcmp(name + length + sizeof middle - 1, axis);
}

static bool find_in_tensor(const qn_tensor *tensor, const char *name, slot *found)
{
    if (!strcmp(tensor->name, name)) {
        *found = (slot){tensor->pointer_offset, true};
        return true;
    }
    for (size_t axis = 0; tensor->axes[axis] && tensor->axes[axis + 1]; axis++) {
        if (!is_stride(name, tensor, tensor->axes[axis])) continue;
        *found = (slot){tensor->stride_offset[axis], false};
        return true;
    }
    return false;
}

static bool find_slot(const qn_family *family, const char *name, slot *found)
{
    for (size_t i = 0; i < family->tensor_count; i++) {
        if (find_in_tensor(&family->tensors[i], name, found)) return true;
    }
    for (size_t i = 0; i < family->size_count; i++) {
        if (strcmp(family->sizes[i].name, name)) continue;
        *found = (slot){family->size_args_offset[i], false};
        return true;
    }
    if (!strcmp(name, "workspace")) return *found = (slot){family->workspace_offset, true}, true;
    if (!strcmp(name, "workspace_bytes")) return *found = (slot){family->workspace_bytes_offset, false}, true;
    return false;
}

static quern_status unknown_argument(const qn_family *family, const char *name)
{
    qn_text known = QN_TEXT_INIT;

    for (size_t i = 0; i < family->size_count; i++) qn_text_putf(&known, "%s, ", family->sizes[i].name);
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *tensor = &family->tensors[i];
        qn_text_putf(&known, "%s, ", tensor->name);
        for (size_t axis = 0; tensor->axes[axis] && tensor->axes[axis + 1]; axis++) {
            qn_text_putf(&known, "%s_stride_%s, ", tensor->name, tensor->axes[axis]);
        }
    }
    qn_text_puts(&known, "workspace, workspace_bytes");
    qn_fail(QUERN_UNKNOWN_ARGUMENT, "%s has no argument '%.64s'; it has %s", family->name, name,
            qn_text_string(&known));
    qn_text_fini(&known);
    return QUERN_UNKNOWN_ARGUMENT;
}

static quern_status check_names(const qn_family *family, const quern_argument *arguments, size_t count)
{
    slot found;

    if (!arguments && count) return qn_fail(QUERN_MISSING_ARGUMENT, "arguments is NULL, and count is %zu", count);
    for (size_t i = 0; i < count; i++) {
        if (!arguments[i].name) return qn_fail(QUERN_MISSING_ARGUMENT, "argument %zu has no name", i);
        if (!find_slot(family, arguments[i].name, &found)) return unknown_argument(family, arguments[i].name);
        for (size_t j = 0; j < i; j++) {
            if (!strcmp(arguments[i].name, arguments[j].name)) {
                return qn_fail(QUERN_BAD_ARGUMENT, "%s is given twice", arguments[i].name);
            }
        }
    }
    return QUERN_OK;
}

quern_status qn_args_from_names(const qn_family *family, const quern_argument *arguments, size_t count,
                                quern_args *args)
{
    QN_TRY(check_names(family, arguments, count));
    memset(args, 0, family->args_bytes);
    args->size = family->args_bytes;
    args->family = family->name;
    for (size_t i = 0; i < count; i++) {
        slot found;
        if (!find_slot(family, arguments[i].name, &found)) continue; // check_names has found them all
        if (found.is_pointer)
            memcpy((char *)args + found.offset, &arguments[i].pointer, sizeof(void *));
        else
            memcpy((char *)args + found.offset, &arguments[i].number, sizeof(int64_t));
    }
    return QUERN_OK;
}
