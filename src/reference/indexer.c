// SPDX-License-Identifier: Apache-2.0
// indexer on the host: the contract of quern.h section 7.4 in plain C, one row after another, in f64. It judges the
// kernels, so it shares nothing with them but the formats (formats.c). Called through quern_reference.
//
//   dot    of the numbers that q's and the key's codes stand for, in f64; ±infinity where f32 cannot hold it
//   score  Σ w · max(dot, 0), NaN kept, every head in it; rounded to f32
//   block  the largest of its entries' scores, NaN if one is
//   order  descending by the rounded score, NaN last, equals by lowest index
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/formats.h"
#include "reference/reference.h"

enum { MOST_H = 128, MOST_C = 256 };

typedef struct row {
    const quern_indexer_spec *spec;
    const quern_indexer_args *args;
    int64_t t, sequence, length;
    double q[MOST_H * MOST_C];
    double key[MOST_C];
} row;

static int64_t or_packed(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

static float f32_at(const void *base, int64_t byte)
{
    float value;
    memcpy(&value, (const char *)base + byte, sizeof value);
    return value;
}

// ---- queries

static void load_head(row *r, int64_t h)
{
    const quern_indexer_spec *s = r->spec;
    const quern_indexer_args *a = r->args;
    int64_t C = s->C, width = s->q == QUERN_INDEXER_Q_MXFP4 ? C / 2 : C, groups = C / 32;
    int64_t q_H = or_packed(a->q_stride_H, width), at = r->t * or_packed(a->q_stride_T, s->H * q_H) + h * q_H;
    double *q = r->q + h * C;
    if (s->q == QUERN_INDEXER_Q_BF16 || s->q == QUERN_INDEXER_Q_F16) {
        for (int64_t c = 0; c < C; c++) {
            uint16_t bits = ((const uint16_t *)a->q)[at + c];
            q[c] = s->q == QUERN_INDEXER_Q_F16 ? qn_f16_to_f32(bits) : qn_bf16_to_f32(bits);
        }
    } else if (s->q == QUERN_INDEXER_Q_FP8) {
        float scale = ((const float *)a->q_scale)[r->t * or_packed(a->q_scale_stride_T, s->H) + h];
        for (int64_t c = 0; c < C; c++) q[c] = (double)qn_e4m3_to_f32(((const uint8_t *)a->q)[at + c]) * scale;
    } else {
        int64_t s_H = or_packed(a->q_scale_stride_H, groups);
        const uint8_t *scale =
            (const uint8_t *)a->q_scale + r->t * or_packed(a->q_scale_stride_T, s->H * s_H) + h * s_H;
        for (int64_t c = 0; c < C; c++)
            q[c] = qn_e2m1_at((const uint8_t *)a->q + at, c) * qn_ue8m0_to_f64(scale[c / 32]);
    }
}

// ---- keys

static int64_t first_entry(const row *r)
{
    return r->spec->cu_keys ? r->args->cu_keys[r->sequence] : 0;
}

static int64_t page_of(const row *r, int64_t entry)
{
    const quern_indexer_args *a = r->args;
    return a->block_table[r->sequence * or_packed(a->block_table_stride_B, a->columns) + entry / r->spec->page];
}

static void load_heads_key(row *r, int64_t entry, int64_t h)
{
    const quern_indexer_spec *s = r->spec;
    const quern_indexer_args *a = r->args;
    int64_t at = s->page ? page_of(r, entry) * s->epb + entry % s->epb : first_entry(r) + entry;
    int64_t values = or_packed(a->keys_stride_epb, s->H * s->C / 2);
    int64_t scales = or_packed(a->key_scale_stride_epb, s->H * s->C / 16);
    const uint8_t *value = (const uint8_t *)a->keys + at / s->epb * or_packed(a->keys_stride_blocks, s->epb * values) +
                           at % s->epb * values + h * (s->C / 2);
    const uint8_t *scale = (const uint8_t *)a->key_scale +
                           at / s->epb * or_packed(a->key_scale_stride_blocks, s->epb * scales) + at % s->epb * scales +
                           h * (s->C / 16);
    for (int64_t c = 0; c < s->C; c++)
        r->key[c] = qn_e2m1_at(value, c) * (double)qn_e4m3_to_f32(scale[c / 16]) * (double)a->tensor_scale[0];
}

static void load_shared_key(row *r, int64_t entry)
{
    const quern_indexer_spec *s = r->spec;
    const quern_indexer_args *a = r->args;
    bool fp8 = s->layout == QUERN_INDEXER_FP8_SHARED;
    int64_t width = fp8 ? s->C : s->C / 2, scale_width = fp8 ? 4 : s->C / 32;
    const uint8_t *value, *scale;
    if (s->page) {
        int64_t inside = entry % s->page;
        const uint8_t *page = (const uint8_t *)a->keys +
                              page_of(r, entry) * or_packed(a->keys_stride_pages, s->page * (width + scale_width));
        value = page + inside * width, scale = page + s->page * width + inside * scale_width;
    } else {
        int64_t at = first_entry(r) + entry;
        value = (const uint8_t *)a->keys + at * or_packed(a->keys_stride_L, width);
        scale = (const uint8_t *)a->key_scale + at * (fp8 ? 4 : or_packed(a->key_scale_stride_L, scale_width));
    }
    for (int64_t c = 0; c < s->C; c++)
        r->key[c] = fp8 ? (double)qn_e4m3_to_f32(value[c]) * (double)f32_at(scale, 0)
                        : qn_e2m1_at(value, c) * qn_ue8m0_to_f64(scale[c / 32]);
}

// ---- scores

// *size: Σ |q · key|. Four sums side by side.
static double dot_of(const row *r, int64_t h, double *size)
{
    const double *q = r->q + h * r->spec->C;
    double dot[4] = {0}, sizes[4] = {0};
    for (int64_t c = 0; c < r->spec->C; c += 4) {
        for (int i = 0; i < 4; i++) {
            double product = q[c + i] * r->key[c + i];
            dot[i] += product, sizes[i] += fabs(product);
        }
    }
    double sum = (dot[0] + dot[1]) + (dot[2] + dot[3]);
    *size = (sizes[0] + sizes[1]) + (sizes[2] + sizes[3]);
    return isinf((float)sum) ? (double)(float)sum : sum;
}

// Of one entry; *bound: Σ |w| Σ |q · key|.
static double score_entry(row *r, int64_t entry, double *bound)
{
    const float *w = r->args->w + r->t * or_packed(r->args->w_stride_T, r->spec->H);
    bool heads = r->spec->layout == QUERN_INDEXER_NVFP4_HEADS;
    double score = 0, size;
    *bound = 0;
    if (!heads) load_shared_key(r, entry);
    for (int64_t h = 0; h < r->spec->H; h++) {
        if (heads) load_heads_key(r, entry, h);
        double dot = dot_of(r, h, &size);
        score += w[h] * (dot < 0 ? 0 : dot); // a NaN is not below 0
        *bound += fabs(w[h]) * size;
    }
    return score;
}

static void start_row(row *r, const quern_indexer_spec *spec, const quern_indexer_args *args, int64_t t)
{
    int64_t most = args->L;
    if (spec->page)
        most = args->columns * spec->page;
    else if (spec->layout == QUERN_INDEXER_NVFP4_HEADS)
        most = args->blocks * spec->epb;
    r->spec = spec, r->args = args, r->t = t;
    r->sequence = spec->row_seq ? args->row_seq[t] : 0;
    r->length = args->length[t] < 0 ? 0 : args->length[t] > most ? most : args->length[t];
    for (int64_t h = 0; h < spec->H; h++) load_head(r, h);
}

static int64_t results_of(const row *r)
{
    int64_t each = r->spec->granularity == QUERN_GRANULARITY_BLOCK ? r->spec->epb : 1;
    return (r->length + each - 1) / each;
}

static void score_row(row *r, double *score, double *bound)
{
    bool blocks = r->spec->granularity == QUERN_GRANULARITY_BLOCK;
    for (int64_t e = 0; e < r->length; e++) {
        double size, one = score_entry(r, e, &size);
        int64_t at = blocks ? e / r->spec->epb : e;
        bool first = !blocks || e % r->spec->epb == 0;
        if (first || isnan(one) || one > score[at]) score[at] = first || !isnan(score[at]) ? one : score[at];
        if (bound) bound[at] = first || size > bound[at] ? size : bound[at];
    }
}

int64_t qn_indexer_results(const quern_indexer_spec *spec, const quern_indexer_args *args, int64_t t)
{
    int64_t most = args->L;
    if (spec->page)
        most = args->columns * spec->page;
    else if (spec->layout == QUERN_INDEXER_NVFP4_HEADS)
        most = args->blocks * spec->epb;
    int64_t each = spec->granularity == QUERN_GRANULARITY_BLOCK ? spec->epb : 1, length = args->length[t];
    length = length < 0 ? 0 : length > most ? most : length;
    return (length + each - 1) / each;
}

quern_status qn_indexer_scores(const quern_indexer_spec *spec, const quern_indexer_args *args, int64_t t, double *score,
                               double *bound)
{
    row *r = malloc(sizeof *r);
    if (!r) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a row's queries");
    start_row(r, spec, args, t);
    score_row(r, score, bound);
    free(r);
    return QUERN_OK;
}

// ---- selection

typedef struct candidate {
    float score;
    int32_t index;
} candidate;

static int compare(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (isnan(a->score) != isnan(b->score)) return isnan(a->score) ? 1 : -1;
    if (a->score > b->score) return -1;
    if (a->score < b->score) return 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void write_row(const row *r, candidate *list, int64_t count)
{
    const quern_indexer_args *a = r->args;
    int64_t k = r->spec->k, indices = r->t * or_packed(a->indices_stride_T, k);
    int64_t scores = r->t * or_packed(a->scores_stride_T, k);
    qsort(list, (size_t)count, sizeof *list, compare);
    for (int64_t i = 0; i < k; i++) {
        a->indices[indices + i] = i < count ? list[i].index : -1;
        if (r->spec->scores) a->scores[scores + i] = i < count ? list[i].score : -INFINITY;
    }
}

static quern_status do_row(row *r, const quern_indexer_spec *spec, const quern_indexer_args *args, int64_t t)
{
    start_row(r, spec, args, t);
    int64_t count = results_of(r);
    double *score = malloc((size_t)(count + 1) * sizeof *score);
    candidate *list = malloc((size_t)(count + 1) * sizeof *list);
    if (score && list) {
        score_row(r, score, NULL);
        for (int64_t i = 0; i < count; i++) list[i] = (candidate){(float)score[i] + 0.0f, (int32_t)i};
        write_row(r, list, count);
    }
    quern_status status = score && list ? QUERN_OK : qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a row's scores");
    free(score);
    free(list);
    return status;
}

quern_status qn_reference_indexer(const quern_spec *base, const quern_args *base_args)
{
    const quern_indexer_args *args = (const quern_indexer_args *)base_args;
    quern_status status = QUERN_OK;
    bool empty = false;
    QN_TRY(qn_family_indexer.check_args(base, base_args, &empty)); // the launch's own: the same refusals
    if (empty) return QUERN_OK;
    row *r = malloc(sizeof *r);
    if (!r) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a row's queries");
    for (int64_t t = 0; t < args->T && status == QUERN_OK; t++)
        status = do_row(r, (const quern_indexer_spec *)base, args, t);
    free(r);
    return status;
}
