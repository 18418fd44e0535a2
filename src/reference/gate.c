// SPDX-License-Identifier: Apache-2.0
// gate on the host: the contract of quern.h section 7.2 in plain C, one token after another, activations and sums in
// f64. It judges the kernels, so it shares nothing with them. Called through quern_reference.
//
//   activation  in f64, rounded to f32: what rounds to the same f32 is the same number
//   score       activation + bias in f32; NaN if either is
//   group       sum in f32 of the two best scores that are numbers; of the one there is; NaN without any
//   order       descending; a NaN below every number; equals (and NaNs) by lowest expert, groups by lowest group
//   weight      activation, 0 if the score is NaN; a / Σ a · scale, 0 if Σ a is not above 0; or a · scale
//   softmax     a row with a NaN or +inf, or of nothing but -inf, has none: every activation is NaN, and every weight
#include <math.h>
#include <stdlib.h>

#include "reference/reference.h"

enum { MOST_E = 1024 };

typedef struct token {
    const quern_gate_spec *spec;
    float activation[MOST_E];
    float score[MOST_E];
    bool dropped[MOST_E]; // of a group that is not kept, or chosen already
    bool undefined;       // a softmax that there is none of
} token;

static double load(const void *logits, quern_dtype in, int64_t i)
{
    if (in == QUERN_F32) return ((const float *)logits)[i];
    uint16_t bits = ((const uint16_t *)logits)[i];
    return in == QUERN_F16 ? qn_f16_to_f32(bits) : qn_bf16_to_f32(bits);
}

// ---- activations

static double sqrt_softplus(double x)
{
    if (x > 0) return sqrt(x + log1p(exp(-x)));
    return x < -50 ? exp(x / 2) : sqrt(log1p(exp(x))); // below, log1p(e) is e
}

static double sigmoid(double x)
{
    return x > 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static void soften(const quern_gate_spec *spec, const void *logits, double *a)
{
    double max = load(logits, spec->in, 0), sum = 0;
    for (int64_t e = 1; e < spec->E; e++) {
        double x = load(logits, spec->in, e);
        if (isnan(x) || x > max) max = x; // a NaN stays: nothing is larger
    }
    if (!isfinite(max)) max = NAN;
    for (int64_t e = 0; e < spec->E; e++) sum += a[e] = exp(load(logits, spec->in, e) - max);
    for (int64_t e = 0; e < spec->E; e++) a[e] /= sum;
}

void qn_gate_activations(const quern_gate_spec *spec, const void *logits, double *a)
{
    if (spec->act == QUERN_ACT_SOFTMAX) {
        soften(spec, logits, a);
        return;
    }
    for (int64_t e = 0; e < spec->E; e++) {
        double x = load(logits, spec->in, e);
        a[e] = spec->act == QUERN_ACT_SIGMOID ? sigmoid(x) : sqrt_softplus(x);
    }
}

// ---- order

// Whether score a comes before score b when b has the lower place.
static bool before(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

// The first in order of what is not dropped; -1: nothing is left.
static int64_t first_of(const float *score, const bool *dropped, int64_t count)
{
    int64_t first = -1;
    for (int64_t i = 0; i < count; i++)
        if (!dropped[i] && (first < 0 || before(score[i], score[first]))) first = i;
    return first;
}

static float group_score(const float *score, int64_t size)
{
    float best = NAN, second = NAN;
    for (int64_t i = 0; i < size; i++) {
        if (before(score[i], best))
            second = best, best = score[i];
        else if (before(score[i], second))
            second = score[i];
    }
    return isnan(second) ? best : best + second;
}

static void drop_groups(token *t)
{
    int64_t groups = t->spec->n_group, size = t->spec->E / groups;
    float score[MOST_E];
    bool kept[MOST_E] = {false};
    for (int64_t g = 0; g < groups; g++) score[g] = group_score(t->score + g * size, size);
    for (int64_t i = 0; i < t->spec->topk_group; i++) kept[first_of(score, kept, groups)] = true;
    for (int64_t e = 0; e < t->spec->E; e++) t->dropped[e] = !kept[e / size];
}

// ---- weights

static float contribution(const token *t, int64_t e)
{
    if (t->undefined) return NAN;
    return isnan(t->score[e]) ? 0.0f : t->activation[e];
}

static void write_weights(const token *t, const int64_t *ids, float *weights)
{
    const quern_gate_spec *spec = t->spec;
    const double scale = (float)spec->scale; // what a launch is given
    double sum = 0;
    for (int64_t k = 0; k < spec->K; k++)
        if (ids[k] >= 0) sum += contribution(t, ids[k]);
    for (int64_t k = 0; k < spec->K; k++) {
        double a = ids[k] >= 0 ? contribution(t, ids[k]) : NAN;
        if (!spec->renormalize)
            weights[k] = (float)(a * scale);
        else if (sum <= 0)
            weights[k] = isnan(a) ? NAN : 0.0f;
        else
            weights[k] = (float)(a / sum * scale);
    }
}

// ---- a token

static void score_token(token *t, const void *logits, const float *bias)
{
    double a[MOST_E];
    qn_gate_activations(t->spec, logits, a);
    t->undefined = t->spec->act == QUERN_ACT_SOFTMAX && isnan(a[0]);
    for (int64_t e = 0; e < t->spec->E; e++) {
        t->activation[e] = (float)a[e];
        t->score[e] = bias ? t->activation[e] + bias[e] : t->activation[e];
        t->dropped[e] = false;
    }
}

static void choose_experts(token *t, int64_t *ids)
{
    if (t->spec->topk_group < t->spec->n_group) drop_groups(t);
    for (int64_t k = 0; k < t->spec->K; k++) {
        ids[k] = first_of(t->score, t->dropped, t->spec->E);
        t->dropped[ids[k]] = true;
    }
}

static int64_t stride_or(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

static void do_token(token *t, const quern_gate_args *args, int64_t at)
{
    const quern_gate_spec *spec = t->spec;
    size_t bytes = spec->in == QUERN_F32 ? 4 : 2;
    const char *logits = (const char *)args->logits + (size_t)(at * stride_or(args->logits_stride_N, spec->E)) * bytes;
    int64_t ids[32], first = at * stride_or(args->ids_stride_N, spec->K);
    score_token(t, logits, spec->bias && !spec->given_ids ? args->bias : NULL);
    if (spec->given_ids) {
        const int32_t *given = args->given_ids + at * stride_or(args->given_ids_stride_N, spec->K);
        for (int64_t k = 0; k < spec->K; k++) ids[k] = given[k] >= 0 && given[k] < spec->E ? given[k] : -1;
    } else {
        choose_experts(t, ids);
        for (int64_t k = 0; k < spec->K; k++) {
            if (spec->index == QUERN_I64)
                ((int64_t *)args->ids)[first + k] = ids[k];
            else
                ((int32_t *)args->ids)[first + k] = (int32_t)ids[k];
        }
    }
    write_weights(t, ids, args->weights + at * stride_or(args->weights_stride_N, spec->K));
}

quern_status qn_reference_gate(const quern_spec *base, const quern_args *base_args)
{
    const quern_gate_args *args = (const quern_gate_args *)base_args;
    bool empty = false;
    QN_TRY(qn_family_gate.check_args(base, base_args, &empty)); // the launch's own: the same refusals
    if (empty) return QUERN_OK;

    token *t = malloc(sizeof *t);
    if (!t) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a token's scores");
    t->spec = (const quern_gate_spec *)base;
    for (int64_t at = 0; at < args->N; at++) do_token(t, args, at);
    free(t);
    return QUERN_OK;
}
