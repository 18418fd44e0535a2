// SPDX-License-Identifier: Apache-2.0
// router on the host: the contract of quern.h section 7.3 in plain C, one token after another: dots in f64, rounded to f32
// once, then the gate's reference. It judges the kernels, so it shares nothing with them. Called through quern_reference.
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"

enum { MOST_E = 1024 };

static double load(const void *tensor, quern_dtype type, int64_t i)
{
    if (type == QUERN_F32) return ((const float *)tensor)[i];
    uint16_t bits = ((const uint16_t *)tensor)[i];
    return type == QUERN_F16 ? qn_f16_to_f32(bits) : qn_bf16_to_f32(bits);
}

static int64_t stride_or(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

// Place of w's element for expert e and element d.
static int64_t place_of_w(const quern_router_spec *s, const quern_router_args *args, int64_t e, int64_t d)
{
    if (s->w_layout == QUERN_W_ED) return e * stride_or(args->w_stride_E, s->D) + d;
    return d * stride_or(args->w_stride_D, s->E) + e;
}

void qn_router_dots(const quern_router_spec *s, const quern_router_args *args, int64_t token, double *dot, double *size)
{
    int64_t row = token * stride_or(args->x_stride_N, s->D);
    memset(dot, 0, (size_t)s->E * sizeof *dot);
    if (size) memset(size, 0, (size_t)s->E * sizeof *size);
    for (int64_t e = 0; e < s->E; e++) {
        for (int64_t d = 0; d < s->D; d++) {
            double product = load(args->x, s->in, row + d) * load(args->w, s->w, place_of_w(s, args, e, d));
            dot[e] += product;
            if (size) size[e] += product < 0 ? -product : product;
        }
    }
}

// One token: logits, and with them the gate.
static quern_status do_token(const quern_router_spec *s, const quern_router_args *args, int64_t at)
{
    quern_gate_spec gate = QUERN_GATE_SPEC_INIT;
    quern_gate_args of_gate = QUERN_GATE_ARGS_INIT;
    double dot[MOST_E];
    float logits[MOST_E];
    size_t width = s->index == QUERN_I64 ? 8 : 4;
    qn_router_dots(s, args, at, dot, NULL);
    for (int64_t e = 0; e < s->E; e++) logits[e] = (float)dot[e];
    if (s->logits) memcpy(args->logits + at * stride_or(args->logits_stride_N, s->E), logits, (size_t)s->E * 4);
    gate.E = s->E, gate.K = s->K, gate.in = QUERN_F32, gate.act = s->act, gate.bias = s->bias;
    gate.n_group = s->n_group, gate.topk_group = s->topk_group, gate.renormalize = s->renormalize;
    gate.scale = s->scale, gate.index = s->index, gate.given_ids = s->given_ids;
    of_gate.N = 1, of_gate.logits = logits, of_gate.bias = args->bias;
    if (s->given_ids) of_gate.given_ids = args->given_ids + at * stride_or(args->given_ids_stride_N, s->K);
    of_gate.weights = args->weights + at * stride_or(args->weights_stride_N, s->K);
    if (!s->given_ids) of_gate.ids = (char *)args->ids + (size_t)(at * stride_or(args->ids_stride_N, s->K)) * width;
    return qn_reference_gate(&gate.base, &of_gate.base);
}

quern_status qn_reference_router(const quern_spec *base, const quern_args *base_args)
{
    const quern_router_args *args = (const quern_router_args *)base_args;
    bool empty = false;
    QN_TRY(qn_family_router.check_args(base, base_args, &empty)); // the launch's own: the same refusals
    if (empty) return QUERN_OK;
    for (int64_t at = 0; at < args->N; at++) QN_TRY(do_token((const quern_router_spec *)base, args, at));
    return QUERN_OK;
}
