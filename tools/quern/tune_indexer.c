// SPDX-License-Identifier: Apache-2.0
// The tuner's questions about indexer: rows of every length, ties by the thousand, any bytes, and one row long enough for
// records; whatever the spec's layout, types and pages are. Scores are asked for where the spec does not.
#include <stdio.h>
#include <string.h>

#include "indexer_draw.h"
#include "support/hostile_indexer.h"
#include "tune_subject.h"

TUNE_CASES(indexer_case, indexer_data, INDEXER_BUFFERS, indexer_data_make(c, data), indexer_data_free(data),
           indexer_check_case(data, report));

// ---- what is timed

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

static void fill_bytes(const quern_indexer_spec *s, const char *name, uint64_t *drawn, uint8_t *host, size_t bytes)
{
    const bool heads = s->layout == QUERN_INDEXER_NVFP4_HEADS;
    if (!strcmp(name, "keys"))
        draw_keys(drawn, s, host, bytes);
    else if (!strcmp(name, "q"))
        draw_codes(drawn, s->q == QUERN_INDEXER_Q_FP8, host, bytes);
    else
        draw_scales(drawn, heads && !strcmp(name, "key_scale") ? INDEXER_SCALE_E4M3 : INDEXER_SCALE_POWER, host, bytes);
}

static void fill_floats(const char *name, uint64_t *drawn, float *host, size_t elements)
{
    if (strcmp(name, "w") != 0)
        draw_scales(drawn, INDEXER_SCALE_F32, (uint8_t *)host, elements * sizeof *host);
    else
        for (size_t i = 0; i < elements; i++) host[i] = drawn_normal(drawn) * 0.011f;
}

static bool fill(const quern_spec *base, const void *sizes, const qn_tensor *tensor, size_t copy, void *host,
                 size_t elements)
{
    const quern_indexer_spec *s = (const quern_indexer_spec *)base;
    uint64_t drawn = 0x9E3779B97F4A7C15u + copy;
    if (tensor->dtype != QUERN_U8 && tensor->dtype != QUERN_I32 && tensor->dtype != QUERN_F32) return false; // q
    if (!host) return true;
    if (tensor->dtype == QUERN_I32)
        fill_integers(s, sizes, tensor->name, host, elements);
    else if (tensor->dtype == QUERN_F32)
        fill_floats(tensor->name, &drawn, host, elements);
    else
        fill_bytes(s, tensor->name, &drawn, host, elements);
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

static bool question(const quern_spec *base, size_t index, void *out)
{
    if (index >= QN_COUNT(questions)) return false;
    const struct question *q = &questions[index];
    indexer_case *c = out;
    *c = (indexer_case){.T = q->T, .most = q->most, .fill = q->fill, .lengths = q->lengths};
    c->spec = *(const quern_indexer_spec *)base;
    snprintf(c->name, sizeof c->name, "tuner's question %zu", index);
    snprintf(c->text, sizeof c->text, "indexer");
    c->sequences = c->spec.row_seq || c->spec.cu_keys ? 3 : 1;
    c->offset = q->offset, c->padding = q->padding, c->seed = 60 + index;
    c->exact = q->fill == INDEXER_INTEGER || q->fill == INDEXER_ZERO;
    return true;
}

const tune_subject tune_indexer = {
    .family = &qn_family_indexer, .fill = fill, .judged = judged, .cases = &cases, .question = question};
