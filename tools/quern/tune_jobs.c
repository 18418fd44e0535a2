// SPDX-License-Identifier: Apache-2.0
// Which ranges of sizes of which specs are to be tuned (tune.h): every range of each spec, or those of the sizes that are
// listed on the command line. Needs no GPU, so that mistakes are told before one is looked for.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune.h"

enum { MAX_JOBS = 1024 };

static quern_status add_job(tune_request *r, const spec_item *item, const tune_subject *subject, const void *sizes)
{
    const qn_family *family = subject->family;
    qn_text text = QN_TEXT_INIT;
    tune_job made = {.item = item, .subject = subject, .bucket = family->bucket_of(sizes)};
    memcpy(made.sizes, sizes, family->sizes_bytes);
    qn_sizes_write(family, sizes, &text);
    snprintf(made.sizes_text, sizeof made.sizes_text, "%s", qn_text_string(&text));
    qn_text_fini(&text);
    for (size_t i = 0; i < r->job_count; i++) {
        if (r->jobs[i].item != item || r->jobs[i].bucket != made.bucket) continue;
        command_note("%s and %s are served by one configuration: %s is timed", r->jobs[i].sizes_text, made.sizes_text,
                     made.sizes_text);
        r->jobs[i] = made;
        return QUERN_OK;
    }
    if (r->job_count == MAX_JOBS)
        return qn_fail(QUERN_BAD_VALUE, "more than %d ranges of sizes are asked for", MAX_JOBS);
    r->jobs[r->job_count++] = made;
    return QUERN_OK;
}

static quern_status read_number(const qn_field *field, const char **word, int64_t *value)
{
    char number[24];
    size_t length = strcspn(*word, ",");
    snprintf(number, sizeof number, "%.*s", (int)length, *word);
    if (length >= sizeof number || !qn_parse_int(number, value) || *value < 1 || *value > field->max)
        return qn_fail(QUERN_BAD_VALUE, "--%s: '%.*s' is not a whole number from 1 to %lld", field->name, (int)length,
                       *word, (long long)field->max);
    *word = command_next_place(*word, length);
    return QUERN_OK;
}

// Every combination of the lists; sizes without a list stay what they are.
static quern_status add_combinations(tune_request *r, const spec_item *item, const tune_subject *subject, size_t size,
                                     unsigned char *sizes)
{
    const qn_family *family = subject->family;
    if (size == family->size_count) return add_job(r, item, subject, sizes);
    const char *list = command_size(&r->sizes, family->sizes[size].name);
    if (!list) return add_combinations(r, item, subject, size + 1, sizes);
    do {
        int64_t value;
        QN_TRY(read_number(&family->sizes[size], &list, &value));
        memcpy(sizes + family->sizes[size].offset, &value, sizeof value);
        QN_TRY(add_combinations(r, item, subject, size + 1, sizes));
    } while (list);
    return QUERN_OK;
}

static quern_status add_jobs(tune_request *r, const spec_item *item)
{
    _Alignas(16) unsigned char sizes[sizeof r->jobs->sizes];
    const tune_subject *subject = tune_find_subject(item->spec.base.family);
    bool listed = false;
    if (!subject)
        return qn_fail(QUERN_UNSUPPORTED, "%s cannot be tuned: nothing is known here to check its results with",
                       item->spec.base.family);
    const qn_family *family = subject->family;
    if (qn_spec_has_one_config(family, &item->spec.base))
        return qn_fail(QUERN_CONFLICT,
                       "%s: batch_invariant=1 has one configuration for all sizes and is not tuned by sizes",
                       item->text);
    for (size_t i = 0; i < family->size_count; i++) listed |= command_size(&r->sizes, family->sizes[i].name) != NULL;
    for (size_t bucket = 0; bucket < family->bucket_count; bucket++) {
        family->bucket_sizes(bucket, sizes);
        if (listed) return add_combinations(r, item, subject, 0, sizes);
        QN_TRY(add_job(r, item, subject, sizes));
    }
    return QUERN_OK;
}

static int check_sizes(const tune_request *r)
{
    const qn_family **families = calloc(r->specs.count + 1, sizeof *families);
    size_t count = 0;
    for (size_t i = 0; families && i < r->specs.count; i++) {
        const qn_family *family;
        size_t k = 0;
        if (qn_family_find(r->specs.item[i].spec.base.family, &family) != QUERN_OK) continue;
        while (k < count && families[k] != family) k++;
        if (k == count) families[count++] = family;
    }
    int exit_status = count ? command_check_sizes(&r->sizes, families, count) : COMMAND_OK;
    free(families);
    return exit_status;
}

int tune_make_jobs(tune_request *r)
{
    int exit_status = check_sizes(r);
    if (exit_status != COMMAND_OK) return exit_status;
    r->jobs = calloc(MAX_JOBS, sizeof *r->jobs);
    if (!r->jobs) return command_fail("out of memory");
    for (size_t i = 0; i < r->specs.count; i++) {
        quern_status status = add_jobs(r, &r->specs.item[i]);
        if (status != QUERN_OK) return command_status(status);
    }
    return COMMAND_OK;
}
