// SPDX-License-Identifier: Apache-2.0
// The list that a glance at arguments walks (args_glance.h). Called by prepare.c.
//   (1) Sizes are at least 1 where a tensor has them, and at most MOST_SIZE; so are strides at most MOST_STRIDE: no tensor
//       then spans more than an int64_t counts, which is worked out here, once.
#include "ops/args_glance.h"

#include "ops/args_layout.h"

static const int64_t MOST_SIZE = 1 << 26, MOST_STRIDE = (int64_t)1 << 32;

// An axis: how long it is at least and at most.
typedef struct axis {
    int64_t least, most;
} axis;

static bool is_given(const qn_tensor_layout *layout, const quern_spec *spec)
{
    if (layout->flag && !qn_field_get(layout->flag, spec)) return false;
    if (layout->unless && qn_field_get(layout->unless, spec)) return false;
    if (!layout->choice) return true;
    int64_t value = qn_field_get(layout->choice, spec);
    return value >= 0 && value < 32 && (layout->tensor->choices >> value & 1);
}

static bool is_size(const qn_tensor_layout *layout, size_t at)
{
    return !layout->axis[at].field && !layout->axis[at].family;
}

static axis axis_of(const qn_tensor_layout *layout, const quern_spec *spec, size_t at)
{
    const qn_family *family = layout->axis[at].family;
    int64_t plus = layout->axis[at].plus;
    if (is_size(layout, at)) return (axis){1 + plus, MOST_SIZE + plus};
    int64_t length = family ? family->axis_length(spec, layout->tensor->axes[at])
                            : qn_field_get(layout->axis[at].field, spec) + plus;
    return (axis){length, length};
}

static void add(qn_args_glance *glance, bool *fits, qn_glance number)
{
    if (glance->count < QN_MAX_GLANCES)
        glance->number[glance->count++] = number;
    else
        *fits = false;
}

// Sizes in the order of the structure. The first, and those that are an axis of a tensor that is given, are at least 1.
static void add_sizes(const qn_family *family, const quern_spec *spec, const qn_args_layout *layout,
                      qn_args_glance *glance, bool *fits)
{
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *size = &family->sizes[i];
        bool counts = i == 0;
        for (size_t t = 0; t < family->tensor_count; t++) {
            const qn_tensor_layout *tensor = &layout->tensor[t];
            for (size_t a = 0; a < tensor->rank && is_given(tensor, spec); a++)
                counts |= is_size(tensor, a) && tensor->axis[a].args_offset == family->size_args_offset[i];
        }
        int64_t least = counts && size->min < 1 ? 1 : size->min, most = size->max < MOST_SIZE ? size->max : MOST_SIZE;
        *fits &= least >= 0 && most >= least;
        add(glance, fits,
            (qn_glance){.offset = (uint16_t)family->size_args_offset[i],
                        .least = (uint64_t)least,
                        .span = (uint64_t)(most - least)});
    }
}

// Outer strides: 0, or of the one outer axis of a matrix anything from the row's length on, where that is the spec's.
static void add_tensor(const qn_tensor_layout *layout, const quern_spec *spec, qn_args_glance *glance, bool *fits)
{
    quern_dtype dtype = layout->dtype ? (quern_dtype)qn_field_get(layout->dtype, spec) : layout->tensor->dtype;
    int64_t element = (int64_t)qn_dtype_bytes(dtype), span = element, far = element;
    axis row = axis_of(layout, spec, layout->rank - 1);
    for (size_t a = 0; a < layout->rank; a++) {
        axis length = axis_of(layout, spec, a);
        *fits &= length.most >= 1 && !__builtin_mul_overflow(span, length.most, &span);
    }
    bool may_step = layout->rank == 2 && row.least == row.most && row.most <= MOST_STRIDE;
    if (may_step)
        *fits &= !__builtin_mul_overflow(far, MOST_STRIDE, &far) &&
                 !__builtin_mul_overflow(far, axis_of(layout, spec, 0).most, &far);
    *fits &= element > 0 && !layout->tensor->any_order;
    for (size_t a = 0; a + 1 < layout->rank; a++)
        add(glance, fits,
            (qn_glance){.offset = (uint16_t)layout->tensor->stride_offset[a],
                        .least = may_step ? (uint64_t)row.most : 0,
                        .span = may_step ? (uint64_t)(MOST_STRIDE - row.most) : 0,
                        .or_zero = true});
    add(glance, fits,
        (qn_glance){.offset = (uint16_t)layout->tensor->pointer_offset,
                    .mask = (uint32_t)(element - 1),
                    .least = 1,
                    .span = UINT64_MAX - 1});
}

void qn_args_glance_of(const qn_family *family, const quern_spec *spec, qn_args_glance *glance)
{
    qn_args_layout scratch;
    bool fits = family->args_are_plain;

    memset(glance, 0, sizeof *glance);
    if (!fits) return;
    const qn_args_layout *layout = qn_args_layout_of(family, &scratch);
    add_sizes(family, spec, layout, glance, &fits);
    for (size_t t = 0; t < family->tensor_count; t++)
        if (is_given(&layout->tensor[t], spec)) add_tensor(&layout->tensor[t], spec, glance, &fits);
    if (!fits) glance->count = 0;
}
