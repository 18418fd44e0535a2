// SPDX-License-Identifier: Apache-2.0
// Comparison of a router's outputs with the reference; see check_router.h.
#include "support/check_router.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/family.h"
#include "reference/reference.h"
#include "support/again.h"
#include "support/check.h"
#include "support/check_gate.h"

enum { MOST_E = 1024 };
static const double most_products = 6e6; // of a case: more tokens than make these are not judged
static const int64_t least_tokens = 4;

typedef struct tally {
    qn_text *report;
    int64_t mismatches, token;
} tally;

__attribute__((format(printf, 2, 3))) static void mismatch(tally *t, const char *format, ...)
{
    if (t->mismatches++ >= CHECK_MOST_LINES) return;
    char line[256];
    int length = snprintf(line, sizeof line, "    token %" PRId64 ": ", t->token);
    va_list rest;
    va_start(rest, format);
    vsnprintf(line + length, sizeof line - (size_t)length, format, rest);
    va_end(rest);
    qn_text_puts(t->report, line);
    qn_text_puts(t->report, "\n");
}

static int64_t stride_or(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

// ---- logits

static bool near(float got, double dot, double size, double D)
{
    double bound = D * 0x1p-24 * size + D * 0x1p-149;
    if (isnan(dot) || isinf(dot)) return isnan(dot) ? isnan(got) : got == dot;
    if (size >= FLT_MAX) return true; // it depends on the order which part overflows
    return fabs((double)got - dot) <= bound;
}

static double element(const void *tensor, quern_dtype type, int64_t at)
{
    if (type == QUERN_F32) return ((const float *)tensor)[at];
    uint16_t bits = ((const uint16_t *)tensor)[at];
    return type == QUERN_F16 ? qn_f16_to_f32(bits) : qn_bf16_to_f32(bits);
}

// Whether finite products alone may make an infinity in f32: beside one of the other sign, a NaN.
static bool may_overflow(const quern_router_spec *s, const quern_router_args *args, int64_t token, int64_t e)
{
    bool across = s->w_layout == QUERN_W_DE;
    int64_t stride = across ? stride_or(args->w_stride_D, s->E) : stride_or(args->w_stride_E, s->D);
    double size = 0;
    for (int64_t d = 0; d < s->D; d++) {
        double product = element(args->x, s->in, token * stride_or(args->x_stride_N, s->D) + d) *
                         element(args->w, s->w, across ? d * stride + e : e * stride + d);
        if (isfinite(product)) size += fabs(product);
    }
    return size >= FLT_MAX;
}

static void judge_logits(const quern_router_spec *s, const quern_router_args *args, tally *found)
{
    static _Thread_local double dot[MOST_E], size[MOST_E];
    const float *logits = args->logits + found->token * stride_or(args->logits_stride_N, s->E);
    qn_router_dots(s, args, found->token, dot, size);
    for (int64_t e = 0; e < s->E; e++)
        if (!near(logits[e], dot[e], size[e], (double)s->D) &&
            !(isinf(dot[e]) && isnan(logits[e]) && may_overflow(s, args, found->token, e)))
            mismatch(found, "logits[%" PRId64 "] = %.9g, must be %.9g (sum of sizes %.9g)", e, logits[e], dot[e],
                     size[e]);
}

// ---- the gate on these logits

static quern_gate_spec gate_of(const quern_router_spec *s)
{
    quern_gate_spec gate = QUERN_GATE_SPEC_INIT;
    gate.E = s->E, gate.K = s->K, gate.in = QUERN_F32, gate.act = s->act, gate.bias = s->bias;
    gate.n_group = s->n_group, gate.topk_group = s->topk_group, gate.renormalize = s->renormalize;
    gate.scale = s->scale, gate.index = s->index, gate.given_ids = s->given_ids;
    return gate;
}

static void judge_gate(const quern_router_spec *s, const quern_router_args *args, tally *found)
{
    int64_t at = found->token, ids = at * stride_or(args->ids_stride_N, s->K);
    quern_gate_spec spec = gate_of(s);
    quern_gate_args gate = QUERN_GATE_ARGS_INIT;
    qn_text report = QN_TEXT_INIT;
    gate.N = 1, gate.bias = args->bias;
    gate.logits = args->logits + at * stride_or(args->logits_stride_N, s->E);
    gate.weights = args->weights + at * stride_or(args->weights_stride_N, s->K);
    if (s->given_ids) gate.given_ids = args->given_ids + at * stride_or(args->given_ids_stride_N, s->K);
    if (!s->given_ids) gate.ids = (char *)args->ids + (size_t)ids * (s->index == QUERN_I64 ? 8 : 4);
    if (gate_check_outputs(&spec, &gate, &report)) mismatch(found, "the gate of it: %s", qn_text_string(&report));
    qn_text_fini(&report);
}

// ---- literal values

static void judge_literals(const router_case *c, const quern_router_args *args, tally *found)
{
    const quern_router_spec *s = &c->spec;
    const float *weights = args->weights + found->token * stride_or(args->weights_stride_N, s->K);
    int64_t first = found->token * stride_or(args->ids_stride_N, s->K);
    for (int64_t k = 0; c->expected && k < c->expected->count; k++) {
        int64_t id =
            s->index == QUERN_I64 ? ((const int64_t *)args->ids)[first + k] : ((const int32_t *)args->ids)[first + k];
        float want = c->expected->weight[k];
        if (id != c->expected->id[k])
            mismatch(found, "ids[%" PRId64 "] = %" PRId64 ", the case says %" PRId64, k, id, c->expected->id[k]);
        if (want >= 0 && !(fabsf(weights[k] - want) <= 1e-6f))
            mismatch(found, "weights[%" PRId64 "] = %.9g, the case says %.9g", k, weights[k], want);
    }
}

// ---- a case

void router_describe(const router_case *c, qn_text *report)
{
    qn_text_putf(report, "case %s: '%s' N %lld, seed %llu, strides %lld %lld %lld %lld %lld %lld, offset %lld\n",
                 c->name, c->text, (long long)c->N, (unsigned long long)c->seed, (long long)c->x_stride,
                 (long long)c->w_stride, (long long)c->given_stride, (long long)c->weights_stride,
                 (long long)c->ids_stride, (long long)c->logits_stride, (long long)c->offset);
    test_again(c->name, report);
}

static int64_t check_guards(const router_data *data, qn_text *report)
{
    int64_t broken = 0;
    for (int i = ROUTER_INPUTS; i < ROUTER_BUFFERS; i++) {
        int64_t at = data->buffer[i].bytes ? router_guard_broken(data, i) : -1;
        if (at < 0) continue;
        broken++;
        qn_text_putf(report, "    %s: byte %lld was written, the tensor begins at byte %lld of its buffer of %lld\n",
                     router_buffer_name[i], (long long)at, (long long)data->buffer[i].at,
                     (long long)data->buffer[i].count);
    }
    return broken;
}

int64_t router_check_case(const router_data *data, qn_text *report)
{
    const router_case *c = data->c;
    qn_text lines = QN_TEXT_INIT;
    tally found = {.report = &lines};
    int64_t broken = check_guards(data, &lines);
    int64_t most = (int64_t)(most_products / (double)(c->spec.D * c->spec.E));
    if (most < least_tokens) most = least_tokens;
    int64_t count = c->N < most ? c->N : most;
    for (int64_t i = 0; i < count; i++) {
        found.token = count == 1 ? 0 : (c->N - 1) * i / (count - 1);
        judge_logits(&c->spec, &data->args, &found);
        judge_gate(&c->spec, &data->args, &found);
        judge_literals(c, &data->args, &found);
    }
    if (found.mismatches > CHECK_MOST_LINES)
        qn_text_putf(&lines, "    … and %lld more\n", (long long)(found.mismatches - CHECK_MOST_LINES));
    if (found.mismatches + broken) {
        router_describe(c, report);
        qn_text_puts(report, qn_text_string(&lines));
    }
    qn_text_fini(&lines);
    return found.mismatches + broken;
}

// ---- bits

static int64_t first_difference(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    if (memcmp(a, b, bytes) == 0) return -1;
    size_t at = 0;
    while (a[at] == b[at]) at++;
    return (int64_t)at;
}

int64_t router_same_bits(const router_data *first, const router_data *second, int *buffer)
{
    for (int i = ROUTER_INPUTS; i < ROUTER_BUFFERS; i++) {
        const hostile_buffer *a = &first->buffer[i], *b = &second->buffer[i];
        int64_t at = a->bytes && b->bytes ? first_difference(a->bytes, b->bytes, a->count) : -1;
        if (at >= 0) return *buffer = i, at;
    }
    return -1;
}

int64_t router_same_tokens(const router_data *first, const router_data *second, int *buffer)
{
    for (int i = ROUTER_INPUTS; i < ROUTER_BUFFERS; i++) {
        const hostile_buffer *a = &first->buffer[i], *b = &second->buffer[i];
        if (!a->bytes || !b->bytes) continue;
        size_t bytes = (a->count < b->count ? a->count : b->count) - a->at - HOSTILE_GUARD_BYTES;
        int64_t at = first_difference(a->bytes + a->at, b->bytes + b->at, bytes);
        if (at >= 0) return *buffer = i, at;
    }
    return -1;
}
