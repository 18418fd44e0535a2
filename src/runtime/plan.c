// SPDX-License-Identifier: Apache-2.0
// Plans: the configuration of every bucket of sizes, tuned or by the heuristic, and its kernels. Called by prepare.c,
// warm.c and tools.
#include <stdio.h>
#include <string.h>

#include "ops/field.h"
#include "runtime/private.h"

static bool is_same(const qn_config *a, const qn_config *b)
{
    return !memcmp(a, b, sizeof *a);
}

// Adds a bucket to the last variant, or begins one.
static quern_status add_bucket(const qn_family *family, const quern_spec *spec, const qn_arch *arch, size_t bucket,
                               const qn_config *config, const char *chosen, qn_variants *variants)
{
    qn_variant *last = variants->count ? &variants->item[variants->count - 1] : NULL;
    if (last && is_same(&last->config, config) && !strcmp(last->chosen, chosen)) {
        last->last_bucket = bucket;
        variants->of_bucket[bucket] = (unsigned char)(variants->count - 1);
        return QUERN_OK;
    }
    if (variants->count == QN_MAX_VARIANTS)
        return qn_fail(QUERN_INTERNAL, "%s: more than %d different plans for one spec", family->name, QN_MAX_VARIANTS);
    qn_variant *variant = &variants->item[variants->count];
    memset(variant, 0, sizeof *variant);
    variant->first_bucket = variant->last_bucket = bucket;
    variant->config = *config;
    snprintf(variant->chosen, sizeof variant->chosen, "%s", chosen);
    QN_TRY(family->plan(spec, arch, config, &variant->plan));
    variants->of_bucket[bucket] = (unsigned char)variants->count++;
    return QUERN_OK;
}

quern_status qn_variants_plan_view(const qn_tuned_view *view, const qn_family *family, const quern_spec *spec,
                                   const qn_arch *arch, qn_variants *variants)
{
    variants->count = 0;
    memset(variants->of_bucket, 0, sizeof variants->of_bucket);
    for (size_t bucket = 0; bucket < family->bucket_count; bucket++) {
        qn_config config;
        if (view->buckets && !(view->buckets >> bucket & 1)) {
            variants->of_bucket[bucket] = QN_NO_VARIANT;
            continue;
        }
        qn_tuned_level level = qn_tuned_choose(view, family, spec, arch, bucket, &config);
        quern_status status = add_bucket(family, spec, arch, bucket, &config, qn_tuned_word(level), variants);
        if (status == QUERN_OK) continue;
        char name[96] = "";
        family->bucket_name(bucket, name, sizeof name);
        return qn_fail_in(status, "%s, %s", arch->name, name);
    }
    return QUERN_OK;
}

quern_status qn_variants_plan_for(quern *q, const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                                  const qn_tune_device *device, qn_variants *variants)
{
    char text[512];
    qn_tuned tuned;
    QN_TRY(quern_spec_format(spec, text, sizeof text));
    qn_tuned_read(q, text, &tuned);
    const qn_tuned_view view = {.tuned = &tuned, .device = device};
    quern_status status = qn_variants_plan_view(&view, family, spec, arch, variants);
    qn_tuned_fini(&tuned);
    return status;
}

quern_status qn_variants_plan(quern *q, const qn_family *family, const quern_spec *spec, const qn_arch *arch,
                              qn_variants *variants)
{
    return qn_variants_plan_for(q, family, spec, arch, NULL, variants);
}

// ---- ranges of sizes

// The sizes that stand for a bucket, brought into the range. A bucket is a range of the one size, so if it has anything in
// common with the range, these sizes are in both.
static void clamp_into(const qn_family *family, const qn_any_sizes *from, const qn_any_sizes *to, qn_any_sizes *sizes)
{
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *size = &family->sizes[i];
        int64_t value = qn_field_get(size, sizes), low = qn_field_get(size, from), high = qn_field_get(size, to);
        if (value < low) value = low;
        if (value > high) value = high;
        qn_field_put(size, sizes, value);
    }
}

// Of a family with one size, whose buckets are ranges of it.
static uint32_t buckets_of_one_size(const qn_family *family, const qn_any_sizes *from, const qn_any_sizes *to)
{
    uint32_t found = 1u << family->bucket_of(from) | 1u << family->bucket_of(to);
    for (size_t bucket = 0; bucket < family->bucket_count; bucket++) {
        qn_any_sizes sizes;
        memset(&sizes, 0, sizeof sizes);
        family->bucket_sizes(bucket, &sizes);
        clamp_into(family, from, to, &sizes);
        found |= 1u << family->bucket_of(&sizes);
    }
    return found;
}

// Too large an end is as good as the largest, and may stand for no bound; a range that begins there, or below 0, is a
// mistake.
static quern_status check_bounds(const qn_family *family, const qn_any_sizes *from, const qn_any_sizes *to)
{
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *size = &family->sizes[i];
        int64_t first = qn_field_get(size, from), last = qn_field_get(size, to);
        if (first < 0 || last < 0)
            return qn_fail(QUERN_BAD_SIZE, "the range of sizes: %s = %lld: 0 is the least", size->name,
                           (long long)(first < 0 ? first : last));
        if (first > size->max)
            return qn_fail(QUERN_BAD_SIZE, "the range of sizes: %s begins at %lld: %lld is the largest", size->name,
                           (long long)first, (long long)size->max);
    }
    return QUERN_OK;
}

quern_status qn_range_buckets(const qn_family *family, const quern_spec *spec, const qn_range *range, uint32_t *buckets)
{
    qn_any_sizes from, to;
    uint32_t all = family->bucket_count < 32 ? (1u << family->bucket_count) - 1 : UINT32_MAX;
    QN_TRY(qn_take_sized("from", range->from, from.bytes, family->sizes_bytes));
    QN_TRY(qn_take_sized("to", range->to, to.bytes, family->sizes_bytes));
    QN_TRY(check_bounds(family, &from, &to));
    qn_sizes_take(family, range->from, &from);
    qn_sizes_take(family, range->to, &to);
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *size = &family->sizes[i];
        if (qn_field_get(size, &from) > qn_field_get(size, &to))
            return qn_fail(QUERN_BAD_SIZE, "the range of sizes: %s goes from %lld to %lld", size->name,
                           (long long)qn_field_get(size, &from), (long long)qn_field_get(size, &to));
    }
    uint32_t found =
        family->buckets_between ? family->buckets_between(spec, &from, &to) : buckets_of_one_size(family, &from, &to);
    *buckets = found == all ? 0 : found;
    return QUERN_OK;
}
