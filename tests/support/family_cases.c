// SPDX-License-Identifier: Apache-2.0
// The families' hostile cases as generic drivers see them (family_cases.h).
#include "support/family_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/check_attention.h"
#include "support/check_gate.h"
#include "support/check_router.h"
#include "support/hostile_indexer.h"

// Every family's functions have the same names. The last argument is what f_data_make takes before the data.
#define FAMILY(f, inputs_, buffers_, ...)                                                                              \
    static size_t f##_case_count(void)                                                                                 \
    {                                                                                                                  \
        size_t count;                                                                                                  \
        f##_cases(&count);                                                                                             \
        return count;                                                                                                  \
    }                                                                                                                  \
    static const void *f##_case_at(size_t index)                                                                       \
    {                                                                                                                  \
        size_t count;                                                                                                  \
        return &f##_cases(&count)[index];                                                                              \
    }                                                                                                                  \
    static bool f##_is_wanted(const void *c, unsigned tag)                                                             \
    {                                                                                                                  \
        return f##_wanted(c, tag);                                                                                     \
    }                                                                                                                  \
    static void f##_say(const void *c, qn_text *report)                                                                \
    {                                                                                                                  \
        f##_describe(c, report);                                                                                       \
    }                                                                                                                  \
    static bool f##_make(const void *c, uint16_t poison, void *data)                                                   \
    {                                                                                                                  \
        (void)poison;                                                                                                  \
        return f##_data_make(c, __VA_ARGS__ data);                                                                     \
    }                                                                                                                  \
    static void f##_free(void *data)                                                                                   \
    {                                                                                                                  \
        f##_data_free(data);                                                                                           \
    }                                                                                                                  \
    static void f##_reset(void *data)                                                                                  \
    {                                                                                                                  \
        f##_data_reset(data);                                                                                          \
    }                                                                                                                  \
    static void f##_point(quern_args *args, int buffer, void *pointer)                                                 \
    {                                                                                                                  \
        f##_set_pointer((quern_##f##_args *)args, buffer, pointer);                                                    \
    }                                                                                                                  \
    static int64_t f##_judge(const void *data, qn_text *report)                                                        \
    {                                                                                                                  \
        return f##_check_case(data, report);                                                                           \
    }                                                                                                                  \
    static int64_t f##_same(const void *first, const void *second, int *buffer)                                        \
    {                                                                                                                  \
        return f##_same_bits(first, second, buffer);                                                                   \
    }                                                                                                                  \
    static quern_status f##_launch_typed(const quern_op *op, const quern_args *args, struct CUstream_st *stream)       \
    {                                                                                                                  \
        return quern_##f(op, (const quern_##f##_args *)args, stream);                                                  \
    }                                                                                                                  \
    _Static_assert((int)buffers_ <= (int)FAMILY_MOST_BUFFERS, "room for the buffers of " #f);                          \
    _Static_assert(offsetof(f##_case, name) == 0 && offsetof(f##_case, text) == 64, "name[64], text");                 \
    const family_cases f##_family = {                                                                                  \
        .family = &qn_family_##f,                                                                                      \
        .count = f##_case_count,                                                                                       \
        .at = f##_case_at,                                                                                             \
        .wanted = f##_is_wanted,                                                                                       \
        .describe = f##_say,                                                                                           \
        .tags_offset = offsetof(f##_case, tags),                                                                       \
        .spec_offset = offsetof(f##_case, spec),                                                                       \
        .data_bytes = sizeof(f##_data),                                                                                \
        .buffer_offset = offsetof(f##_data, buffer),                                                                   \
        .args_offset = offsetof(f##_data, args),                                                                       \
        .buffers = buffers_,                                                                                           \
        .inputs = inputs_,                                                                                             \
        .buffer_name = f##_buffer_name,                                                                                \
        .make = f##_make,                                                                                              \
        .free = f##_free,                                                                                              \
        .reset = f##_reset,                                                                                            \
        .set_pointer = f##_point,                                                                                      \
        .check = f##_judge,                                                                                            \
        .same_bits = f##_same,                                                                                         \
        .launch = f##_launch_typed,                                                                                    \
    }

#define NOTHING
FAMILY(gate, GATE_INPUTS, GATE_BUFFERS, NOTHING);
FAMILY(router, ROUTER_INPUTS, ROUTER_BUFFERS, NOTHING);
FAMILY(indexer, INDEXER_INPUTS, INDEXER_BUFFERS, NOTHING);
#define POISON poison,
FAMILY(attention, ATTENTION_INPUTS, ATTENTION_BUFFERS, POISON);

// ---- parts of a case and of its data

const void *family_case_named(const family_cases *f, const char *name)
{
    for (size_t i = 0; i < f->count(); i++)
        if (!strcmp(family_case_name(f->at(i)), name)) return f->at(i);
    fail_msg("%s has no case %s", f->family->name, name);
    return NULL;
}

const char *family_case_name(const void *c)
{
    return c;
}

const char *family_case_text(const void *c)
{
    return (const char *)c + 64;
}

unsigned family_case_tags(const family_cases *f, const void *c)
{
    return *(const unsigned *)(const void *)((const char *)c + f->tags_offset);
}

const quern_spec *family_case_spec(const family_cases *f, const void *c)
{
    return (const quern_spec *)(const void *)((const char *)c + f->spec_offset);
}

const hostile_buffer *family_buffer(const family_cases *f, const void *data, int buffer)
{
    return (const hostile_buffer *)(const void *)((const char *)data + f->buffer_offset) + buffer;
}

quern_args *family_args(const family_cases *f, const void *data)
{
    return (quern_args *)(uintptr_t)((const char *)data + f->args_offset);
}

void *family_data_make(const family_cases *f, const void *c, uint16_t poison)
{
    void *data = malloc(f->data_bytes);
    if (!data || !f->make(c, poison, data)) fail_msg("no memory for the case %s", family_case_name(c));
    return data;
}

void family_data_free(const family_cases *f, void *data)
{
    f->free(data);
    free(data);
}

// ---- parts of a list

bool family_is_part(void)
{
    return getenv("QUERN_TEST_CASE") || getenv("QUERN_TEST_SHARD");
}

bool family_is_in_shard(size_t index)
{
    const char *text = getenv("QUERN_TEST_SHARD");
    unsigned part = 0, parts = 1;
    if (text && (sscanf(text, "%u/%u", &part, &parts) != 2 || part >= parts))
        fail_msg("QUERN_TEST_SHARD: i/n is needed, 0 <= i < n");
    return index % parts == part;
}

void family_count(family_verdict *v, qn_text *report)
{
    v->cases++;
    // Not by print_error, which cuts after a thousand letters.
    if (report->length && v->failed++ < FAMILY_MOST_REPORTS) fprintf(stderr, "%s\n", qn_text_string(report));
    qn_text_clear(report);
}

void family_conclude(const family_verdict *v, const char *what, size_t least)
{
    print_message("%zu %s, %zu failed\n", v->cases, what, v->failed);
    if (v->failed) fail_msg("%zu of %zu %s failed; the first ones are above", v->failed, v->cases, what);
    if (v->cases < least && !family_is_part()) fail_msg("%zu %s ran, at least %zu are expected", v->cases, what, least);
}
