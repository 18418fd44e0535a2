// SPDX-License-Identifier: Apache-2.0
// attention on the host: the contract of quern.h section 7.5 in plain C, one query of one head after another, in f64. It
// judges the kernels, so it shares nothing with them. Called through quern_reference.
//
//   keys      of sequence b: a length, and a place for each position: dense, one after another, or by pages
//   score     cap(q · k · scale), of keys from position - window_left to position + window_right
//   out       Σ e^(score - max) v / (Σ e^(score - max) + e^(sink - max)); 0 if no key is seen
//   lse       max + log Σ e^(score - max); -inf if no key is seen, or all scores are -inf
#include <math.h>
#include <stdlib.h>

#include "reference/reference.h"

typedef quern_attention_spec spec_t;
typedef quern_attention_args args_t;

typedef struct strides {
    int64_t batch, position, head;
} strides;

typedef struct problem {
    const spec_t *spec;
    const args_t *args;
    strides q, k, v, out, lse;
    double *score; // of the keys of one sequence
    double *sum;   // [dv]
} problem;

typedef struct sequence {
    int64_t index, queries, keys;
    int64_t first_query, first_key; // in ragged tensors
} sequence;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// A stride of 0 steps over every axis inside it.
static strides fill(strides given, int64_t positions, int64_t heads, int64_t width)
{
    strides s = given;
    if (!s.head) s.head = width;
    int64_t inside = larger(width, s.head * heads);
    if (!s.position) s.position = inside;
    inside = larger(inside, s.position * positions);
    if (!s.batch) s.batch = inside;
    return s;
}

static double load(const void *tensor, quern_dtype in, int64_t at)
{
    uint16_t bits = ((const uint16_t *)tensor)[at];
    return in == QUERN_F16 ? qn_f16_to_f32(bits) : qn_bf16_to_f32(bits);
}

static void store(void *tensor, quern_dtype in, int64_t at, double value)
{
    float rounded = (float)value;
    ((uint16_t *)tensor)[at] = in == QUERN_F16 ? qn_f32_to_f16(rounded) : qn_f32_to_bf16(rounded);
}

static int64_t place_of_key(const problem *p, const sequence *s, const strides *of, int64_t key, int64_t head)
{
    const spec_t *spec = p->spec;
    int64_t batch = s->index, position = s->first_key + key;
    if (spec->layout == QUERN_LAYOUT_PAGED) {
        int64_t row = p->args->block_table_stride_B ? p->args->block_table_stride_B : p->args->columns;
        batch = p->args->block_table[s->index * row + key / spec->page];
        position = key % spec->page;
    } else if (spec->layout == QUERN_LAYOUT_VARLEN) {
        batch = 0;
    }
    return batch * of->batch + position * of->position + head * of->head;
}

static double cap(const spec_t *spec, double x)
{
    return spec->softcap != 0 ? spec->softcap * tanh(x / spec->softcap) : x;
}

static double score_of(const problem *p, const sequence *s, int64_t q, int64_t key, int64_t kv_head)
{
    const spec_t *spec = p->spec;
    double dot = 0, scale = spec->scale != 0 ? spec->scale : 1 / sqrt((double)spec->d);
    int64_t k = place_of_key(p, s, &p->k, key, kv_head);
    for (int64_t i = 0; i < spec->d; i++) dot += load(p->args->q, spec->in, q + i) * load(p->args->k, spec->in, k + i);
    return cap(spec, dot * scale);
}

// First and past the last key that a query sees; windows may be as long as 2^63 - 1.
static void seen_keys(const spec_t *spec, const sequence *s, int64_t query, int64_t *first, int64_t *last)
{
    int64_t position = query + s->keys - s->queries, right = spec->causal ? 0 : spec->window_right;
    *first = 0, *last = s->keys;
    if (spec->window_left >= 0 && position > spec->window_left) *first = position - spec->window_left;
    if (right >= 0 && right < s->keys - 1 - position) *last = position + right + 1;
    if (*last < 0) *last = 0;
    if (*first > *last) *first = *last;
}

static void do_row(problem *p, const sequence *s, int64_t query, int64_t head)
{
    const spec_t *spec = p->spec;
    const args_t *a = p->args;
    int64_t first, last, batch = spec->cu_q ? 0 : s->index, position = s->first_query + query;
    int64_t kv_head = head / (a->Hq / a->Hkv), q = batch * p->q.batch + position * p->q.position + head * p->q.head;
    int64_t out = batch * p->out.batch + position * p->out.position + head * p->out.head;
    double max = -INFINITY, total = 0;
    const void *values = spec->kv_alias ? a->k : a->v;
    const strides *v = spec->kv_alias ? &p->k : &p->v;
    seen_keys(spec, s, query, &first, &last);
    for (int64_t key = first; key < last; key++) {
        p->score[key] = score_of(p, s, q, key, kv_head);
        if (p->score[key] > max) max = p->score[key];
    }
    double base = max == -INFINITY ? 0 : max;
    for (int64_t i = 0; i < spec->dv; i++) p->sum[i] = 0;
    for (int64_t key = first; key < last; key++) {
        double e = exp(p->score[key] - base);
        int64_t at = place_of_key(p, s, v, key, kv_head);
        total += e;
        for (int64_t i = 0; i < spec->dv; i++) p->sum[i] += e * load(values, spec->in, at + i);
    }
    double all = spec->sink ? total + exp(a->sink[head] - base) : total;
    for (int64_t i = 0; i < spec->dv; i++) store(a->out, spec->in, out + i, first < last ? p->sum[i] / all : 0);
    if (!spec->lse) return;
    double lse = first == last ? -INFINITY : base + log(total);
    a->lse[batch * p->lse.batch + position * p->lse.position + head] = (float)lse;
}

static sequence sequence_of(const problem *p, int64_t b)
{
    const spec_t *spec = p->spec;
    const args_t *a = p->args;
    sequence s = {b, a->Sq, a->Sk, 0, 0};
    if (spec->cu_q) s.first_query = a->cu_q[b], s.queries = a->cu_q[b + 1] - a->cu_q[b];
    if (spec->layout == QUERN_LAYOUT_VARLEN) s.first_key = a->cu_k[b], s.keys = a->cu_k[b + 1] - a->cu_k[b];
    if (spec->length_k) s.keys = a->length_k[b];
    return s;
}

static void prepare(problem *p, const spec_t *spec, const args_t *a)
{
    int64_t in_page = spec->layout == QUERN_LAYOUT_PAGED ? spec->page : a->Sk;
    p->spec = spec, p->args = a;
    p->q = fill((strides){a->q_stride_B, a->q_stride_S, a->q_stride_H}, a->Sq, a->Hq, spec->d);
    p->k = fill((strides){a->k_stride_B, a->k_stride_S, a->k_stride_H}, in_page, a->Hkv, spec->d);
    p->v = fill((strides){a->v_stride_B, a->v_stride_S, a->v_stride_H}, in_page, a->Hkv, spec->dv);
    p->out = fill((strides){a->out_stride_B, a->out_stride_S, a->out_stride_H}, a->Sq, a->Hq, spec->dv);
    p->lse = fill((strides){a->lse_stride_B, a->lse_stride_S, 1}, a->Sq, a->Hq, 1);
}

quern_status qn_reference_attention(const quern_spec *base, const quern_args *base_args)
{
    const args_t *a = (const args_t *)base_args;
    problem p = {0};
    int64_t most = 1;
    bool empty = false;
    QN_TRY(qn_family_attention.check_args(base, base_args, &empty)); // the launch's own: the same refusals
    if (empty) return QUERN_OK;

    prepare(&p, (const spec_t *)base, a);
    for (int64_t b = 0; b < a->B; b++) most = larger(most, sequence_of(&p, b).keys);
    p.score = malloc(((size_t)most + 512) * sizeof *p.score);
    if (!p.score) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for the scores of %lld keys", (long long)most);
    p.sum = p.score + most;
    for (int64_t b = 0; b < a->B; b++) {
        sequence s = sequence_of(&p, b);
        for (int64_t query = 0; query < s.queries; query++)
            for (int64_t head = 0; head < a->Hq; head++) do_row(&p, &s, query, head);
    }
    free(p.score);
    return QUERN_OK;
}
