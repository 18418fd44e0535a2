// SPDX-License-Identifier: Apache-2.0
// What a launch would have to look up or ask a family for, worked out when an op is made and kept where the launch reads
// first. Called by prepare.c.
#include <string.h>

#include "runtime/private.h"

static int64_t size_in(const qn_family *family, const qn_any_sizes *sizes)
{
    int64_t value;
    memcpy(&value, sizes->bytes + family->sizes[0].offset, sizeof value);
    return value;
}

static size_t bucket_at(const qn_family *family, int64_t value)
{
    qn_any_sizes sizes;
    memset(&sizes, 0, sizeof sizes);
    memcpy(sizes.bytes + family->sizes[0].offset, &value, sizeof value);
    return family->bucket_of(&sizes);
}

// The largest size up to whose bucket all are in this one or before it: buckets rise with the size.
static int64_t last_of(const qn_family *family, size_t bucket)
{
    int64_t low = family->sizes[0].min, high = family->sizes[0].max;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (bucket_at(family, middle) > bucket)
            high = middle - 1;
        else
            low = middle;
    }
    return low;
}

// Whether the one size of the family is in its arguments as it is.
static bool has_plain_size(const qn_family *family)
{
    const int64_t probe = 12345;
    qn_any_args args;
    qn_any_sizes sizes;
    if (family->size_count != 1) return false;
    memset(&args, 0, sizeof args);
    memset(&sizes, 0, sizeof sizes);
    memcpy(args.bytes + family->size_args_offset[0], &probe, sizeof probe);
    family->sizes_of(&args.base, &sizes);
    return size_in(family, &sizes) == probe;
}

static void find_ranges(quern_op *op)
{
    const qn_family *family = op->family;
    if (!has_plain_size(family)) return;
    op->size_offset = family->size_args_offset[0];
    for (size_t bucket = 0; bucket < family->bucket_count; bucket++) {
        qn_size_range *last = op->range_count ? &op->range[op->range_count - 1] : NULL;
        if (!last || last->variant != op->of_bucket[bucket]) last = &op->range[op->range_count++];
        last->variant = op->of_bucket[bucket];
        last->last = bucket + 1 < family->bucket_count ? last_of(family, bucket) : INT64_MAX;
    }
}

// false only if the configuration needs none at any size.
static bool has_workspace(const quern_op *op, const qn_op_variant *variant)
{
    const qn_family *family = op->family;
    qn_any_sizes most;
    if (!family->workspace) return false;
    if (!family->workspace_by_config) return true;
    memset(&most, 0, sizeof most);
    for (size_t i = 0; i < family->size_count; i++)
        memcpy(most.bytes + family->sizes[i].offset, &family->sizes[i].max, sizeof family->sizes[i].max);
    return family->workspace(&op->spec.base, &variant->config, &most) > 0;
}

void qn_op_at_hand(quern_op *op)
{
    op->family_name = op->family->name;
    op->args_bytes = op->family->args_bytes;
    op->launch = op->family->launch;
    op->launch_kernel = op->driver->cuLaunchKernelEx;
    qn_args_glance_of(op->family, &op->spec.base, &op->glance);
    find_ranges(op);
    for (size_t v = 0; v < op->variant_count; v++) {
        op->variant[v].stage_count = op->variant[v].plan.stage_count;
        op->variant[v].has_workspace = has_workspace(op, &op->variant[v]);
    }
}
