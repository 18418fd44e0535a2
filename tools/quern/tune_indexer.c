// SPDX-License-Identifier: Apache-2.0
// The tuner's questions about indexer: rows of every length, ties by the thousand, any bytes, and one row long enough for
// records; whatever the spec's layout, types and pages are. Scores are asked for where the spec does not.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/hostile_indexer.h"
#include "tune_subject.h"

typedef struct state {
    indexer_case c;
    indexer_data data; // refers to c
} state;

// ---- what is timed

static uint64_t draw(uint64_t *drawn)
{
    *drawn ^= *drawn << 13, *drawn ^= *drawn >> 7, *drawn ^= *drawn << 17;
    return *drawn;
}

// A finite code: two of FP4, or one of E4M3 that is not small.
static uint8_t draw_code(uint64_t *drawn, bool fp8)
{
    uint64_t x = draw(drawn);
    return (uint8_t)(fp8 ? (x & 0x80) | (0x40 + (x >> 8) % 0x38) : x);
}

// Scales that lie within four times each other.
static uint8_t draw_scale(uint64_t *drawn, bool e4m3)
{
    return (uint8_t)((e4m3 ? 0x30 : 120) + draw(drawn) % (e4m3 ? 16 : 3));
}

// Pages of a shared layout: a page's values, then its scales.
static void fill_keys(const quern_indexer_spec *s, uint64_t *drawn, uint8_t *host, size_t bytes)
{
    bool fp8 = s->layout == QUERN_INDEXER_FP8_SHARED, heads = s->layout == QUERN_INDEXER_NVFP4_HEADS;
    size_t value = (size_t)(fp8 ? s->C : s->C / 2), scale = (size_t)(fp8 ? 4 : s->C / 32), page = (size_t)s->page;
    const float single = 0x1p-7f;
    for (size_t i = 0; i < bytes; i++) {
        size_t at = page && !heads ? i % (page * (value + scale)) : 0;
        if (at < page * value || at == 0)
            host[i] = draw_code(drawn, fp8);
        else if (fp8)
            host[i] = ((const uint8_t *)&single)[at % 4];
        else
            host[i] = draw_scale(drawn, false);
    }
}

static void fill_floats(float *host, size_t elements, float value)
{
    for (size_t i = 0; i < elements; i++) host[i] = value;
}

// Sequences of equal length, a sequence's rows the last ones of it. Pages lie scattered, as a server leaves them.
static void fill_integers(const quern_indexer_spec *s, const quern_indexer_sizes *n, const char *name, int32_t *host,
                          size_t elements)
{
    int64_t B = n->B ? n->B : 1, rows = n->T / B ? n->T / B : 1, blocks = n->blocks * s->epb;
    int64_t most = s->page ? n->columns * s->page : (s->layout == QUERN_INDEXER_NVFP4_HEADS ? blocks : n->L);
    if (s->cu_keys) most /= B;
    for (size_t i = 0; i < elements; i++) {
        int64_t t = (int64_t)i, length = n->max_length && n->max_length < most ? n->max_length : most;
        if (!strcmp(name, "length"))
            host[i] = (int32_t)(length > rows ? length - (rows - 1 - t % rows) : length);
        else if (!strcmp(name, "row_seq"))
            host[i] = (int32_t)(t / rows < B ? t / rows : B - 1);
        else if (!strcmp(name, "block_table"))
            host[i] = (int32_t)(t * 7919 % (n->pages ? n->pages : 1));
        else
            host[i] = (int32_t)(t * most);
    }
}

static bool fill(const quern_spec *base, const void *sizes, const qn_tensor *tensor, size_t copy, void *host,
                 size_t elements)
{
    const quern_indexer_spec *s = (const quern_indexer_spec *)base;
    const char *name = tensor->name;
    bool is_scale = !strcmp(name, "q_scale") || !strcmp(name, "key_scale"), is_key = !strcmp(name, "keys");
    uint64_t drawn = 0x9E3779B97F4A7C15u + copy;
    if (tensor->dtype != QUERN_U8 && tensor->dtype != QUERN_I32 && tensor->dtype != QUERN_F32) return false; // q
    if (!host) return true;
    if (tensor->dtype == QUERN_I32)
        fill_integers(s, sizes, name, host, elements);
    else if (tensor->dtype == QUERN_F32 && strcmp(name, "w") != 0)
        fill_floats(host, elements, 0x1p-7f);
    else if (tensor->dtype == QUERN_F32)
        for (size_t i = 0; i < elements; i++) ((float *)host)[i] = (float)(int32_t)draw(&drawn) * 0x1p-36f;
    else if (is_key)
        fill_keys(s, &drawn, host, elements);
    else
        for (size_t i = 0; i < elements; i++)
            ((uint8_t *)host)[i] = is_scale
                                       ? draw_scale(&drawn, name[0] == 'k' && s->layout == QUERN_INDEXER_NVFP4_HEADS)
                                       : draw_code(&drawn, s->q == QUERN_INDEXER_Q_FP8);
    return true;
}

// ---- what is checked

static const struct question {
    int64_t T, most;
    indexer_fill fill;
    indexer_lengths lengths;
    int64_t offset, padding;
} questions[] = {
    {5, 700, INDEXER_NORMAL, INDEXER_MIXED, 0, 0},   {2, 519, INDEXER_INTEGER, INDEXER_FULL, 0, 48},
    {1, 2400, INDEXER_ZERO, INDEXER_FULL, 0, 0},     {3, 97, INDEXER_EXTREME, INDEXER_FULL, 1, 0},
    {1, 8300, INDEXER_INTEGER, INDEXER_FULL, 0, 16},
};

static bool judged(const quern_spec *spec, quern_any_spec *with)
{
    memset(with, 0, sizeof *with);
    memcpy(with, spec, sizeof(quern_indexer_spec));
    quern_indexer_spec *s = (quern_indexer_spec *)(void *)with;
    if (s->scores) return false;
    s->scores = 1;
    return true;
}

static bool make(const quern_spec *base, size_t index, tune_case *out)
{
    if (index >= QN_COUNT(questions)) return false;
    const struct question *q = &questions[index];
    memset(out, 0, sizeof *out);
    state *s = calloc(1, sizeof *s);
    if (!s) return true;
    s->c = (indexer_case){.T = q->T, .most = q->most, .fill = q->fill, .lengths = q->lengths};
    s->c.spec = *(const quern_indexer_spec *)base;
    snprintf(s->c.name, sizeof s->c.name, "tuner's question %zu", index);
    snprintf(s->c.text, sizeof s->c.text, "indexer");
    s->c.sequences = s->c.spec.row_seq || s->c.spec.cu_keys ? 3 : 1;
    s->c.offset = q->offset, s->c.padding = q->padding, s->c.seed = 60 + index;
    s->c.exact = q->fill == INDEXER_INTEGER || q->fill == INDEXER_ZERO;
    if (!indexer_data_make(&s->c, &s->data)) {
        free(s);
        return true;
    }
    tune_case_fill(out, s, s->data.buffer, INDEXER_BUFFERS, &s->data.args.base);
    return true;
}

static int64_t judge(const tune_case *c, qn_text *report)
{
    return indexer_check_case(&((const state *)c->state)->data, report);
}

static void unmake(tune_case *c)
{
    state *s = c->state;
    if (s) indexer_data_free(&s->data);
    free(s);
}

const tune_subject tune_indexer = {
    .family = &qn_family_indexer, .fill = fill, .judged = judged, .make = make, .judge = judge, .unmake = unmake};
