// SPDX-License-Identifier: Apache-2.0
// Arguments by name: filling a family's argument structure for bindings and the command. Called by runtime/launch.c: no
// allocation but in a message.
#include <string.h>

#include "base/nearest.h"
#include "ops/family.h"

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
        if (!is_stride(name, tensor, qn_stride_axis(tensor, axis))) continue;
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
    qn_nearest nearest;

    qn_nearest_init(&nearest, name, strlen(name));
    for (size_t i = 0; i < family->size_count; i++) {
        qn_text_putf(&known, "%s, ", family->sizes[i].name);
        qn_nearest_offer(&nearest, family->sizes[i].name);
    }
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *tensor = &family->tensors[i];
        qn_text_putf(&known, "%s, ", tensor->name);
        qn_nearest_offer(&nearest, tensor->name);
        for (size_t axis = 0; tensor->axes[axis] && tensor->axes[axis + 1]; axis++) {
            qn_text_putf(&known, "%s_stride_%s, ", tensor->name, qn_stride_axis(tensor, axis));
        }
    }
    qn_text_puts(&known, "workspace, workspace_bytes");
    qn_nearest_offer(&nearest, "workspace");
    qn_nearest_offer(&nearest, "workspace_bytes");
    qn_fail(QUERN_UNKNOWN_ARGUMENT, "%s has no argument '%.64s'%s; it has %s", family->name, name,
            qn_nearest_hint(&nearest), qn_text_string(&known));
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
