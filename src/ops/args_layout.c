// SPDX-License-Identifier: Apache-2.0
// Layouts of argument structures. Called by args.c on the launch path: a look-up, after a family's first launch. No
// lock, no allocation. What is kept follows from constant descriptions and is never changed.
#include "ops/args_layout.h"

#include <stdatomic.h>
#include <string.h>

enum { KEPT = 16 };

static struct {
    _Atomic(const qn_family *) taken;  // set first, by the one thread that fills the place
    _Atomic(const qn_family *) family; // set last: then the layout is complete
    qn_args_layout layout;
} kept[KEPT];

static void resolve_axis(const qn_family *family, const char *axis, qn_tensor_layout *layout, size_t at)
{
    for (size_t i = 0; i < family->size_count; i++) {
        if (!qn_axis_is(axis, family->sizes[i].name, &layout->axis[at].plus)) continue;
        layout->axis[at].args_offset = family->size_args_offset[i];
        return;
    }
    for (size_t i = 0; i < family->field_count; i++) {
        if (!qn_axis_is(axis, family->fields[i].name, &layout->axis[at].plus)) continue;
        layout->axis[at].field = &family->fields[i];
        return;
    }
    if (family->axis_length) layout->axis[at].family = family;
}

static void resolve(const qn_family *family, qn_args_layout *layout)
{
    memset(layout, 0, sizeof *layout);
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *tensor = &family->tensors[i];
        qn_tensor_layout *to = &layout->tensor[i];
        to->tensor = tensor;
        if (tensor->flag) to->flag = qn_field_find(family->fields, family->field_count, tensor->flag);
        if (tensor->unless) to->unless = qn_field_find(family->fields, family->field_count, tensor->unless);
        if (tensor->choice) to->choice = qn_field_find(family->fields, family->field_count, tensor->choice);
        if (tensor->dtype == QUERN_DTYPE_NONE && tensor->dtype_field) {
            to->dtype = qn_field_find(family->fields, family->field_count, tensor->dtype_field);
        }
        for (; tensor->axes[to->rank]; to->rank++) resolve_axis(family, tensor->axes[to->rank], to, to->rank);
    }
}

static const qn_args_layout *find(const qn_family *family)
{
    for (size_t i = 0; i < KEPT; i++) {
        const qn_family *of = atomic_load_explicit(&kept[i].family, memory_order_acquire);
        if (of == family) return &kept[i].layout;
    }
    return NULL;
}

// Fills a free place. NULL when there is none, or another thread is filling this family's at the moment: nobody waits.
static const qn_args_layout *keep(const qn_family *family)
{
    for (size_t i = 0; i < KEPT; i++) {
        const qn_family *taken = NULL;
        if (!atomic_compare_exchange_strong(&kept[i].taken, &taken, family)) {
            if (taken == family) return NULL;
            continue;
        }
        resolve(family, &kept[i].layout);
        atomic_store_explicit(&kept[i].family, family, memory_order_release);
        return &kept[i].layout;
    }
    return NULL;
}

const qn_args_layout *qn_args_layout_of(const qn_family *family, qn_args_layout *scratch)
{
    const qn_args_layout *layout = find(family);

    if (!layout) layout = keep(family);
    if (layout) return layout;
    resolve(family, scratch);
    return scratch;
}
