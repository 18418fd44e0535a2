// SPDX-License-Identifier: Apache-2.0
// The generic argument checks (qn_check_args), compiled for one spec: names looked up once, at prepare, so that a launch
// compares numbers only. Says yes or "ask the family"; the message of a failure is always the family's.
#include <string.h>

#include "runtime/private.h"

// ---- made at prepare

static uint32_t size_offset(const qn_family *family, const char *axis)
{
    for (size_t i = 0; i < family->size_count; i++)
        if (!strcmp(family->sizes[i].name, axis)) return (uint32_t)family->size_args_offset[i];
    return 0;
}

static void add_tensor(const qn_family *family, const quern_spec *spec, const qn_tensor *tensor, qn_tensor_rule *rule)
{
    memset(rule, 0, sizeof *rule);
    rule->element = (int64_t)qn_dtype_bytes(qn_tensor_dtype(family, spec, tensor));
    rule->mask = rule->element ? (uintptr_t)rule->element - 1 : 0;
    rule->pointer_offset = (uint32_t)tensor->pointer_offset;
    for (; tensor->axes[rule->rank]; rule->rank++) {
        const char *axis = tensor->axes[rule->rank];
        qn_axis_rule *to = &rule->axis[rule->rank];
        to->size_offset = size_offset(family, axis);
        to->fixed = to->size_offset ? 0 : qn_spec_number(family, spec, axis);
        to->stride_offset = (uint32_t)tensor->stride_offset[rule->rank];
    }
}

void qn_rules_make(const qn_family *family, const quern_spec *spec, qn_rules *rules)
{
    memset(rules, 0, sizeof *rules);
    if (!family->generic_args || family->size_count > QN_COUNT(rules->size)) return;
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *size = &family->sizes[i];
        int64_t least = size->min > 1 ? size->min : 1; // none to launch is the family's to say
        rules->size[rules->sizes++] = (qn_size_rule){family->size_args_offset[i], least, size->max};
    }
    for (size_t i = 0; i < family->tensor_count; i++) {
        if (!qn_tensor_is_given(family, spec, &family->tensors[i])) continue;
        if (rules->tensors == QN_COUNT(rules->tensor)) return;
        add_tensor(family, spec, &family->tensors[i], &rules->tensor[rules->tensors++]);
    }
    rules->usable = true;
}

// ---- on the launch path

static inline int64_t number_at(const quern_args *args, size_t offset)
{
    int64_t value;
    memcpy(&value, (const char *)args + offset, sizeof value);
    return value;
}

static inline int64_t length_of(const qn_axis_rule *axis, const quern_args *args)
{
    return axis->size_offset ? number_at(args, axis->size_offset) : axis->fixed;
}

// Strides from the inside out: each is 0, or no less than what it steps over, and the whole can be addressed.
static inline bool strides_pass(const qn_tensor_rule *rule, const quern_args *args)
{
    int64_t span = rule->rank ? length_of(&rule->axis[rule->rank - 1], args) : 1, bytes;
    for (uint32_t axis = rule->rank; axis-- > 1;) {
        const qn_axis_rule *outer = &rule->axis[axis - 1];
        int64_t stride = number_at(args, outer->stride_offset);
        if (stride && stride < span) return false;
        if (__builtin_mul_overflow(stride ? stride : span, length_of(outer, args), &span)) return false;
    }
    return !__builtin_mul_overflow(span, rule->element, &bytes);
}

bool qn_rules_pass(const qn_rules *rules, const quern_args *args)
{
    if (!rules->usable) return false;
    for (size_t i = 0; i < rules->sizes; i++) {
        int64_t value = number_at(args, rules->size[i].offset);
        if (value < rules->size[i].min || value > rules->size[i].max) return false;
    }
    for (size_t i = 0; i < rules->tensors; i++) {
        const qn_tensor_rule *rule = &rules->tensor[i];
        uintptr_t pointer;
        memcpy(&pointer, (const char *)args + rule->pointer_offset, sizeof pointer);
        if (!pointer || (pointer & rule->mask) || !strides_pass(rule, args)) return false;
    }
    return true;
}
