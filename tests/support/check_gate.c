// SPDX-License-Identifier: Apache-2.0
// Comparison of a gate's outputs with the reference; see check_gate.h.
#include "support/check_gate.h"

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

enum { MOST_E = 1024, MOST_K = 32 };
static const double activation_ulps = 8;

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

static double ulp(double x)
{
    int exponent;
    x = fabs(x);
    if (!(x >= FLT_MIN)) return 0x1p-149;
    if (isinf(x)) return 0;
    frexp(x, &exponent);
    return ldexp(1.0, exponent - 24);
}

// ---- one token: what is known of it

typedef struct token {
    const quern_gate_spec *spec;
    float logit[MOST_E];
    float bias[MOST_E];   // 0 without
    double a[MOST_E];     // activations in f64
    double score[MOST_E]; // a + bias; NaN below all
    double slack[MOST_E]; // of the score: half of the activation's ulps and half an ulp of its own
    bool kept[MOST_E];    // of a group that is kept
    bool undefined;       // softmax of a row that has none
    int64_t id[MOST_K];   // as judged
    float weight[MOST_K];
    int64_t want_id[MOST_K]; // the reference's
    float want_weight[MOST_K];
} token;

static int64_t stride_or(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

static void load_token(const quern_gate_args *args, int64_t at, token *t)
{
    const quern_gate_spec *spec = t->spec;
    size_t bytes = spec->in == QUERN_F32 ? 4 : 2;
    const char *logits = (const char *)args->logits + (size_t)(at * stride_or(args->logits_stride_N, spec->E)) * bytes;
    qn_gate_activations(spec, logits, t->a);
    t->undefined = spec->act == QUERN_ACT_SOFTMAX && isnan(t->a[0]);
    for (int64_t e = 0; e < spec->E; e++) {
        uint16_t half = bytes == 2 ? ((const uint16_t *)logits)[e] : 0;
        t->logit[e] = spec->in == QUERN_F32   ? ((const float *)logits)[e]
                      : spec->in == QUERN_F16 ? qn_f16_to_f32(half)
                                              : qn_bf16_to_f32(half);
        t->bias[e] = spec->bias && !spec->given_ids ? args->bias[e] : 0.0f;
        t->score[e] = t->a[e] + (double)t->bias[e];
        t->slack[e] = activation_ulps / 2 * ulp(t->a[e]) + ulp(t->score[e]) / 2;
        t->kept[e] = true;
    }
    const void *ids = spec->given_ids ? (const void *)args->given_ids : args->ids;
    size_t width = !spec->given_ids && spec->index == QUERN_I64 ? 8 : 4;
    int64_t first = at * stride_or(spec->given_ids ? args->given_ids_stride_N : args->ids_stride_N, spec->K);
    const float *weights = args->weights + at * stride_or(args->weights_stride_N, spec->K);
    for (int64_t k = 0; k < spec->K; k++) {
        t->id[k] = width == 8 ? ((const int64_t *)ids)[first + k] : ((const int32_t *)ids)[first + k];
        t->weight[k] = weights[k];
    }
}

static quern_status ask_reference(const quern_gate_args *got, int64_t at, token *t)
{
    quern_gate_spec wide = *t->spec;
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    size_t bytes = wide.in == QUERN_F32 ? 4 : 2;
    wide.index = QUERN_I64;
    args.N = 1;
    args.logits = (const char *)got->logits + (size_t)(at * stride_or(got->logits_stride_N, wide.E)) * bytes;
    args.bias = got->bias;
    if (wide.given_ids) args.given_ids = got->given_ids + at * stride_or(got->given_ids_stride_N, wide.K);
    args.weights = t->want_weight, args.ids = t->want_id;
    return qn_reference_gate(&wide.base, &args.base);
}

// ---- ids

// Whether expert b may not stand behind expert a although it does: its score is higher by more than both may be off, or
// the two are the same in every bit that counts and b has the lower id.
static bool must_precede(const token *t, int64_t b, int64_t a)
{
    double x = t->score[a], y = t->score[b];
    if (isnan(y)) return isnan(x) && b < a;
    if (isnan(x)) return true;
    if (t->logit[a] == t->logit[b] && t->bias[a] == t->bias[b]) return b < a;
    if (isinf(x) || isinf(y)) return y > x || (y == x && b < a);
    return y - x > t->slack[a] + t->slack[b];
}

static bool ids_are_valid(token *t, tally *found)
{
    bool seen[MOST_E] = {false};
    for (int64_t k = 0; k < t->spec->K; k++) {
        if (t->id[k] < 0 || t->id[k] >= t->spec->E || seen[t->id[k]])
            return mismatch(found, "ids[%" PRId64 "] = %" PRId64 ": %s", k, t->id[k],
                            t->id[k] < 0 || t->id[k] >= t->spec->E ? "no expert" : "chosen twice"),
                   false;
        seen[t->id[k]] = true;
    }
    return true;
}

static void judge_order(const token *t, tally *found)
{
    int64_t K = t->spec->K;
    bool chosen[MOST_E] = {false};
    for (int64_t k = 0; k < K; k++) {
        chosen[t->id[k]] = true;
        if (!t->kept[t->id[k]]) mismatch(found, "ids[%" PRId64 "] = %" PRId64 ": of a dropped group", k, t->id[k]);
        for (int64_t j = k + 1; j < K; j++)
            if (must_precede(t, t->id[j], t->id[k]))
                mismatch(found, "ids[%" PRId64 "] = %" PRId64 " (score %.9g) stands before %" PRId64 " (%.9g)", k,
                         t->id[k], t->score[t->id[k]], t->id[j], t->score[t->id[j]]);
    }
    for (int64_t e = 0; e < t->spec->E; e++)
        if (t->kept[e] && !chosen[e] && must_precede(t, e, t->id[K - 1]))
            mismatch(found, "expert %" PRId64 " (score %.9g) is not chosen, %" PRId64 " (%.9g) is", e, t->score[e],
                     t->id[K - 1], t->score[t->id[K - 1]]);
}

// ---- groups

typedef struct group {
    double score, slack; // NaN: no number in it
    double best;         // of its experts
    bool has_winner, kept;
} group;

static group group_of(const token *t, int64_t first, int64_t size)
{
    int64_t best = -1, second = -1;
    for (int64_t e = first; e < first + size; e++) {
        if (isnan(t->score[e])) continue;
        if (best < 0 || t->score[e] > t->score[best])
            second = best, best = e;
        else if (second < 0 || t->score[e] > t->score[second])
            second = e;
    }
    group g = {.score = NAN, .best = -INFINITY};
    if (best >= 0) g.score = g.best = t->score[best], g.slack = t->slack[best];
    if (second >= 0) {
        g.score += t->score[second];
        g.slack += t->slack[second] + ulp(g.score) / 2;
    }
    for (int64_t k = 0; k < t->spec->K; k++) g.has_winner |= t->id[k] >= first && t->id[k] < first + size;
    return g;
}

static int rank_of_group(const group *g, int64_t count, int64_t i, double sign)
{
    int before = 0;
    for (int64_t j = 0; j < count; j++) {
        if (j == i) continue;
        double mine = g[i].score, other = g[j].score, margin = sign * (g[i].slack + g[j].slack);
        if (isnan(other))
            before += isnan(mine) && j < i;
        else if (isnan(mine))
            before++;
        else if (isinf(mine) || isinf(other) || margin != margin)
            before += other > mine || (other == mine && j < i);
        else
            before += other > mine + margin || (other == mine + margin && j < i);
    }
    return before;
}

// Which groups are kept: those that surely are; then, among those that may be, the ones with winners; then the ones whose
// best expert would be missed least.
static void keep_groups(token *t, tally *found)
{
    int64_t count = t->spec->n_group, size = t->spec->E / count, left = t->spec->topk_group;
    static _Thread_local group g[MOST_E];
    static _Thread_local bool may[MOST_E];
    for (int64_t i = 0; i < count; i++) g[i] = group_of(t, i * size, size);
    for (int64_t i = 0; i < count; i++) {
        g[i].kept = rank_of_group(g, count, i, -1) < t->spec->topk_group;
        may[i] = rank_of_group(g, count, i, 1) < t->spec->topk_group;
        left -= g[i].kept;
    }
    for (int64_t i = 0; i < count && left > 0; i++)
        if (!g[i].kept && may[i] && g[i].has_winner) g[i].kept = true, left--;
    while (left > 0) {
        int64_t least = -1;
        for (int64_t i = 0; i < count; i++)
            if (!g[i].kept && may[i] && (least < 0 || g[i].best <= g[least].best)) least = i; // equals: the last
        if (least < 0) break;
        g[least].kept = true, left--;
    }
    if (left) mismatch(found, "the judge cannot tell the groups apart");
    for (int64_t e = 0; e < t->spec->E; e++) t->kept[e] = g[e / size].kept;
}

static void judge_ids(token *t, tally *found)
{
    if (memcmp(t->id, t->want_id, (size_t)t->spec->K * sizeof *t->id) == 0) return;
    if (!ids_are_valid(t, found)) return;
    int64_t before = found->mismatches;
    if (t->spec->topk_group < t->spec->n_group) keep_groups(t, found);
    judge_order(t, found);
    if (found->mismatches == before) return;
    for (int64_t k = 0; k < t->spec->K; k++)
        if (t->id[k] != t->want_id[k])
            mismatch(found, "ids[%" PRId64 "] = %" PRId64 ", the reference has %" PRId64, k, t->id[k], t->want_id[k]);
}

// ---- weights of the ids as they are

static double contribution(const token *t, int64_t k)
{
    int64_t e = t->id[k];
    if (e < 0 || e >= t->spec->E) return NAN;
    if (t->undefined) return NAN;
    return isnan(t->score[e]) ? 0.0 : t->a[e];
}

static bool near(double got, double want, double tolerance)
{
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
    if (got == want) return true;
    if (isinf(got)) return fabs(want) + tolerance >= FLT_MAX && (got > 0) == (want > 0);
    return fabs(got - want) <= tolerance;
}

static void judge_weights(const token *t, tally *found)
{
    const quern_gate_spec *spec = t->spec;
    double sum = 0, sum_error = 0;
    for (int64_t k = 0; k < spec->K; k++) {
        double a = contribution(t, k);
        if (isnan(a) && !t->undefined) continue; // no expert
        sum += a;
        sum_error += activation_ulps * ulp(a);
    }
    const double scale = (float)spec->scale; // what a launch is given
    for (int64_t k = 0; k < spec->K; k++) {
        double a = contribution(t, k), want = a * scale, relative = 0x1p-23, error = activation_ulps * ulp(a);
        double absolute = error * fabs(scale);
        if (spec->renormalize) {
            want = sum <= 0 ? (isnan(a) ? NAN : 0.0) : a / sum * scale;
            absolute = sum > 0 ? ((error + fabs(a) / sum * sum_error) / sum + 0x1p-150) * fabs(scale) : 0.0;
            relative = (double)(spec->K + 4) * 0x1p-24;
        }
        if (!near(t->weight[k], want, absolute + relative * fabs(want) + 0x1p-149))
            mismatch(found, "weights[%" PRId64 "] = %.9g, must be %.9g (expert %" PRId64 ", activation %.9g, sum %.9g)",
                     k, t->weight[k], want, t->id[k], a, sum);
    }
}

int64_t gate_check_outputs(const quern_gate_spec *spec, const quern_gate_args *args, qn_text *report)
{
    tally found = {.report = report};
    token *t = malloc(sizeof *t);
    if (!t) abort();
    for (found.token = 0; found.token < args->N; found.token++) {
        memset(t, 0, sizeof *t);
        t->spec = spec;
        load_token(args, found.token, t);
        if (ask_reference(args, found.token, t) != QUERN_OK) {
            mismatch(&found, "the reference failed: %s", quern_message());
            continue;
        }
        if (!spec->given_ids) judge_ids(t, &found);
        judge_weights(t, &found);
    }
    free(t);
    if (found.mismatches > CHECK_MOST_LINES)
        qn_text_putf(report, "    … and %lld more\n", (long long)(found.mismatches - CHECK_MOST_LINES));
    return found.mismatches;
}

// ---- a case

void gate_describe(const gate_case *c, qn_text *report)
{
    qn_text_putf(report, "case %s: '%s' N %lld, seed %llu, strides %lld %lld %lld %lld, offset %lld\n", c->name,
                 c->text, (long long)c->N, (unsigned long long)c->seed, (long long)c->logits_stride,
                 (long long)c->given_stride, (long long)c->weights_stride, (long long)c->ids_stride,
                 (long long)c->offset);
    test_again(c->name, report);
}

static int64_t check_literals(const gate_data *data, qn_text *report)
{
    const gate_expected *want = data->c->expected;
    tally found = {.report = report};
    token *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->spec = &data->c->spec;
    for (found.token = 0; want && found.token < data->c->N; found.token++) {
        load_token(&data->args, found.token, t);
        for (int64_t k = 0; k < want->count; k++) {
            if (t->id[k] != want->id[k])
                mismatch(&found, "ids[%" PRId64 "] = %" PRId64 ", the case says %" PRId64, k, t->id[k], want->id[k]);
            if (!near(t->weight[k], want->weight[k], 4 * ulp(want->weight[k])))
                mismatch(&found, "weights[%" PRId64 "] = %.9g, the case says %.9g", k, t->weight[k], want->weight[k]);
        }
    }
    free(t);
    return found.mismatches;
}

static int64_t check_guards(const gate_data *data, qn_text *report)
{
    int64_t broken = 0;
    for (int i = GATE_INPUTS; i < GATE_BUFFERS; i++) {
        int64_t at = data->buffer[i].bytes ? gate_guard_broken(data, i) : -1;
        if (at < 0) continue;
        broken++;
        qn_text_putf(report, "    %s: byte %lld was written, the tensor begins at byte %lld of its buffer of %lld\n",
                     gate_buffer_name[i], (long long)at, (long long)data->buffer[i].at,
                     (long long)data->buffer[i].count);
    }
    return broken;
}

int64_t gate_check_case(const gate_data *data, qn_text *report)
{
    qn_text found = QN_TEXT_INIT;
    int64_t count = check_guards(data, &found) + check_literals(data, &found);
    count += gate_check_outputs(&data->c->spec, &data->args, &found);
    if (count) {
        gate_describe(data->c, report);
        qn_text_puts(report, qn_text_string(&found));
    }
    qn_text_fini(&found);
    return count;
}

int64_t gate_same_bits(const gate_data *first, const gate_data *second, int *buffer)
{
    for (int i = GATE_INPUTS; i < GATE_BUFFERS; i++) {
        const unsigned char *a = first->buffer[i].bytes, *b = second->buffer[i].bytes;
        if (!a || memcmp(a, b, first->buffer[i].count) == 0) continue;
        size_t at = 0;
        while (a[at] == b[at]) at++;
        *buffer = i;
        return (int64_t)at;
    }
    return -1;
}
