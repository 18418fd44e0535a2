// SPDX-License-Identifier: Apache-2.0
// Comparison of outputs with the reference; see check.h.
#include "support/check.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/family.h"
#include "reference/reference.h"
#include "support/again.h"

enum { MOST_PARTS = 16 };

// ---- the report

typedef struct tally {
    qn_text *report;
    int64_t mismatches;
    int64_t row;
    int64_t base_row; // what a row is called in the report: row + base_row
} tally;

__attribute__((format(printf, 2, 3))) static void mismatch(tally *t, const char *format, ...)
{
    if (t->mismatches++ >= CHECK_MOST_LINES) return;
    char line[256];
    int length = snprintf(line, sizeof line, "    row %" PRId64 ": ", t->row + t->base_row);
    va_list rest;
    va_start(rest, format);
    vsnprintf(line + length, sizeof line - (size_t)length, format, rest);
    va_end(rest);
    qn_text_puts(t->report, line);
    qn_text_puts(t->report, "\n");
}

static void finish(const tally *t)
{
    if (t->mismatches > CHECK_MOST_LINES)
        qn_text_putf(t->report, "    … and %lld more\n", (long long)(t->mismatches - CHECK_MOST_LINES));
}

void check_describe(const hostile_case *c, qn_text *report)
{
    qn_text_putf(report, "case %s: '%s' rows %lld, seed %llu", c->name, c->text, (long long)c->rows,
                 (unsigned long long)c->seed);
    qn_text_putf(report, ", strides %lld %lld %lld, offsets %lld %lld %lld\n", (long long)c->logits_stride,
                 (long long)c->values_stride, (long long)c->indices_stride, (long long)c->logits_offset,
                 (long long)c->values_offset, (long long)c->indices_offset);
    test_again(c->name, report);
}

// ---- tolerances

static double ulp(double x)
{
    x = fabs(x);
    if (x < FLT_MIN) return 0x1p-149;
    int exponent;
    frexp(x, &exponent);
    return ldexp(1.0, exponent - 24);
}

// What decides the tolerances of one row.
typedef struct bounds {
    double max, T;
    double rounding;  // relative, of (x - max) / T in f32
    double sum_error; // relative, of the normaliser of values, beyond the fixed terms
    double all_error; // the same over all V: LSE and the token
} bounds;

static double load(const quern_softmax_topk_spec *spec, const void *logits, int64_t i)
{
    if (spec->in == QUERN_F32) return ((const float *)logits)[i];
    uint16_t bits = ((const uint16_t *)logits)[i];
    return spec->in == QUERN_F16 ? qn_f16_to_f32(bits) : qn_bf16_to_f32(bits);
}

static double exponent_of(const bounds *b, double x)
{
    return x == b->max ? 0.0 : (x - b->max) / b->T;
}
static double slack(const bounds *b, double x)
{
    return isfinite(x) ? b->rounding * fabs(exponent_of(b, x)) : 0.0;
}

// The mean slack of the terms of a sum, weighted by the terms.
typedef struct mean {
    double sum, weighted;
} mean;
static void mean_add(mean *m, const bounds *b, double x)
{
    double e = exponent_of(b, x);
    if (!(e > -60.0)) return; // -inf, and terms that count for nothing
    double w = exp(e);
    m->sum += w;
    m->weighted += w * slack(b, x);
}

// winners: the row's indices as the reference has them.
static bounds bounds_of(const quern_softmax_topk_spec *spec, const void *logits, double T, const int64_t *winners)
{
    bounds b = {.max = load(spec, logits, winners[0]), .T = T, .rounding = spec->temperature ? 0x1p-23 : 0x1p-24};
    if (!isfinite(b.max) || !(T > 0.0)) return b;
    mean all = {0}, kept = {0};
    for (int64_t i = 0; i < spec->V; i++) mean_add(&all, &b, load(spec, logits, i));
    for (int64_t k = 0; k < spec->K; k++) mean_add(&kept, &b, load(spec, logits, winners[k]));
    b.all_error = all.sum > 0 ? all.weighted / all.sum : 0.0;
    b.sum_error = spec->norm == QUERN_NORM_TOPK ? (kept.sum > 0 ? kept.weighted / kept.sum : 0.0) : b.all_error;
    return b;
}

// Equal classes (NaN, infinity of a sign), else within the tolerance; a finite value beyond f32 may be infinite.
static bool near(double got, double want, double tolerance)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (got == want) return true;
    if (isinf(want)) return fabs(got) >= FLT_MAX * (1.0 - 1e-6) && (got > 0) == (want > 0);
    if (isinf(got)) return fabs(want) + tolerance >= FLT_MAX && (got > 0) == (want > 0);
    return fabs(got - want) <= tolerance;
}

// x - max itself overflows f32: then its exponential is 0, whatever T is.
static bool overflows(const bounds *b, double x)
{
    return isfinite(x) && isfinite(b->max) && b->max - x > (double)FLT_MAX;
}

static bool near_value(const bounds *b, quern_value kind, double x, double got, double want, double sum_error)
{
    if (kind == QUERN_VALUE_LOGIT) return got == want || (isnan(got) && isnan(want));
    double extra = slack(b, x) + sum_error;
    if (kind == QUERN_VALUE_LOGPROB)
        return near(got, want, 2 * ulp(want) + 2e-6 + extra) || (overflows(b, x) && got == -INFINITY);
    return near(got, want, 2 * ulp(want) + (1e-6 + extra) * fabs(want)) || (overflows(b, x) && got == 0.0);
}

// ---- one row

typedef struct expected {
    float *values;
    int64_t *indices;
    float lse, token_value;
    int32_t token_rank;
} expected;

static const void *row_of(const void *tensor, int64_t row, int64_t stride, int64_t packed, size_t bytes)
{
    return (const char *)tensor + (size_t)(row * (stride ? stride : packed)) * bytes;
}

static quern_status reference_row(const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *got, int64_t row,
                                  expected *e)
{
    quern_softmax_topk_spec wide = *spec;
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    wide.index = QUERN_I64;
    args.rows = 1;
    args.logits = row_of(got->logits, row, got->logits_stride_rows, spec->V, spec->in == QUERN_F32 ? 4 : 2);
    args.temperature = got->temperature ? got->temperature + row : NULL;
    args.token = got->token ? got->token + row : NULL;
    args.values = e->values, args.indices = e->indices, args.lse = &e->lse;
    args.token_value = &e->token_value, args.token_rank = &e->token_rank;
    return qn_reference_softmax_topk(&wide.base, &args.base);
}

static void compare_winners(const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *got, const void *logits,
                            const bounds *b, const expected *e, tally *t)
{
    size_t bytes = spec->index == QUERN_I64 ? 8 : 4;
    const void *indices = row_of(got->indices, t->row, got->indices_stride_rows, spec->K, bytes);
    const float *values = row_of(got->values, t->row, got->values_stride_rows, spec->K, 4);
    for (int64_t k = 0; k < spec->K; k++) {
        int64_t index = bytes == 8 ? ((const int64_t *)indices)[k] : ((const int32_t *)indices)[k];
        double x = load(spec, logits, e->indices[k]);
        if (index != e->indices[k])
            mismatch(t, "indices[%" PRId64 "] = %" PRId64 ", must be %" PRId64 " (logit %.9g)", k, index, e->indices[k],
                     x);
        if (!near_value(b, spec->value, x, values[k], e->values[k], b->sum_error))
            mismatch(t, "values[%" PRId64 "] = %.9g, must be %.9g (logit %.9g, max %.9g, T %.9g)", k, values[k],
                     e->values[k], x, b->max, b->T);
    }
}

static void compare_rest(const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *got, const void *logits,
                         const bounds *b, const expected *e, tally *t)
{
    if (spec->lse && !near(got->lse[t->row], e->lse, 1e-5 + 2 * ulp(e->lse) + b->all_error))
        mismatch(t, "lse = %.9g, must be %.9g (max %.9g, T %.9g)", got->lse[t->row], e->lse, b->max, b->T);
    if (!spec->token) return;
    int32_t token = got->token[t->row];
    double x = token >= 0 && token < spec->V ? load(spec, logits, token) : NAN, value = got->token_value[t->row];
    if (got->token_rank[t->row] != e->token_rank)
        mismatch(t, "token_rank = %d, must be %d (token %d, logit %.9g)", got->token_rank[t->row], e->token_rank, token,
                 x);
    if (!near_value(b, QUERN_VALUE_LOGPROB, x, value, e->token_value, b->all_error))
        mismatch(t, "token_value = %.9g, must be %.9g (token %d, logit %.9g, max %.9g, T %.9g)", value, e->token_value,
                 token, x, b->max, b->T);
}

static void compare_row(const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *got, expected *e, tally *t)
{
    const void *logits = row_of(got->logits, t->row, got->logits_stride_rows, spec->V, spec->in == QUERN_F32 ? 4 : 2);
    if (reference_row(spec, got, t->row, e) != QUERN_OK) {
        mismatch(t, "the reference failed: %s", quern_message());
        return;
    }
    bounds b = bounds_of(spec, logits, spec->temperature ? got->temperature[t->row] : 1.0, e->indices);
    compare_winners(spec, got, logits, &b, e, t);
    compare_rest(spec, got, logits, &b, e, t);
}

// Rows from, from + step, … of the outputs.
typedef struct part {
    const quern_softmax_topk_spec *spec;
    const quern_softmax_topk_args *args;
    int64_t from, step;
    qn_text report;
    tally t;
} part;

static void *check_part(void *user)
{
    part *p = user;
    expected e = {.values = malloc((size_t)p->spec->K * sizeof(float)),
                  .indices = malloc((size_t)p->spec->K * sizeof(int64_t))};
    p->t.report = &p->report;
    if (!e.values || !e.indices)
        mismatch(&p->t, "no memory for what is expected");
    else
        for (p->t.row = p->from; p->t.row < p->args->rows; p->t.row += p->step)
            compare_row(p->spec, p->args, &e, &p->t);
    finish(&p->t);
    free(e.values);
    free(e.indices);
    return NULL;
}

// A thread for each 60,000 elements (a few milliseconds), as far as there are rows and processors.
static int part_count(const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *args)
{
    int64_t count = 1 + args->rows * spec->V / 60000, processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (count > args->rows) count = args->rows;
    if (count > processors) count = processors;
    return count < 1 ? 1 : count > MOST_PARTS ? MOST_PARTS : (int)count;
}

int64_t check_outputs(const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *args, qn_text *report)
{
    part p[MOST_PARTS] = {0};
    pthread_t thread[MOST_PARTS];
    int count = part_count(spec, args);
    int64_t mismatches = 0;
    for (int i = 0; i < count; i++) {
        p[i] = (part){.spec = spec, .args = args, .from = i, .step = count};
        if (i && pthread_create(&thread[i], NULL, check_part, &p[i])) abort();
    }
    check_part(&p[0]);
    for (int i = 0; i < count; i++) {
        if (i) pthread_join(thread[i], NULL);
        mismatches += p[i].t.mismatches;
        if (p[i].report.length && mismatches == p[i].t.mismatches) qn_text_puts(report, qn_text_string(&p[i].report));
        qn_text_fini(&p[i].report);
    }
    return mismatches;
}

// ---- a case

// Literal values come from reports with eight digits: a few ulp.
static bool is_literal(float got, float want)
{
    if (isnan(want)) return isnan(got);
    return got == want || (isfinite(want) && fabs((double)got - want) <= 4 * ulp(want));
}

static void compare_literals(const hostile_case *c, const quern_softmax_topk_args *got, const hostile_expected *want,
                             tally *t)
{
    size_t bytes = c->spec.index == QUERN_I64 ? 8 : 4;
    const void *indices = row_of(got->indices, t->row, got->indices_stride_rows, c->spec.K, bytes);
    const float *values = row_of(got->values, t->row, got->values_stride_rows, c->spec.K, 4);
    for (int64_t k = 0; k < want->count; k++) {
        int64_t index = bytes == 8 ? ((const int64_t *)indices)[k] : ((const int32_t *)indices)[k];
        if (index != want->index[k])
            mismatch(t, "indices[%" PRId64 "] = %" PRId64 ", the case says %" PRId64, k, index, want->index[k]);
        if (!is_literal(values[k], want->value[k]))
            mismatch(t, "values[%" PRId64 "] = %.9g, the case says %.9g", k, values[k], want->value[k]);
    }
    if (want->has_lse && !is_literal(got->lse[t->row], want->lse))
        mismatch(t, "lse = %.9g, the case says %.9g", got->lse[t->row], want->lse);
}

static int64_t check_literals(const hostile_case *c, const quern_softmax_topk_args *got, int64_t base_row,
                              qn_text *report)
{
    tally t = {.report = report, .base_row = base_row};
    if (!c->expect) return 0;
    hostile_expected *want = malloc(sizeof *want);
    if (!want) abort();
    for (t.row = 0; t.row < got->rows; t.row++) {
        *want = (hostile_expected){0};
        c->expect(c, t.row + base_row, want);
        compare_literals(c, got, want, &t);
    }
    free(want);
    finish(&t);
    return t.mismatches;
}

static int64_t check_guards(const hostile_data *data, qn_text *report)
{
    int64_t broken = 0;
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++) {
        int64_t at = data->buffer[i].bytes ? hostile_guard_broken(data, i) : -1;
        if (at < 0) continue;
        broken++;
        qn_text_putf(report, "    %s: byte %lld was written, the tensor begins at byte %lld of its buffer of %lld\n",
                     hostile_buffer_name[i], (long long)at, (long long)data->buffer[i].at,
                     (long long)data->buffer[i].count);
    }
    return broken;
}

int64_t check_case(const hostile_data *data, qn_text *report)
{
    qn_text found = QN_TEXT_INIT;
    int64_t count = check_guards(data, &found);
    count += check_literals(data->c, &data->args, 0, &found);
    count += check_outputs(&data->c->spec, &data->args, &found);
    if (count) {
        check_describe(data->c, report);
        qn_text_puts(report, qn_text_string(&found));
    }
    qn_text_fini(&found);
    return count;
}

int64_t check_case_row(const hostile_case *c, int64_t row, const quern_softmax_topk_args *got, qn_text *report)
{
    qn_text found = QN_TEXT_INIT;
    int64_t count = check_literals(c, got, row, &found);
    count += check_outputs(&c->spec, got, &found);
    if (count) {
        check_describe(c, report);
        qn_text_putf(report, "    (row 0 below is row %lld of the case)\n", (long long)row);
        qn_text_puts(report, qn_text_string(&found));
    }
    qn_text_fini(&found);
    return count;
}

int64_t check_same_bits(const hostile_data *first, const hostile_data *second, int *buffer)
{
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++) {
        const unsigned char *a = first->buffer[i].bytes, *b = second->buffer[i].bytes;
        if (!a || memcmp(a, b, first->buffer[i].count) == 0) continue;
        size_t at = 0;
        while (a[at] == b[at]) at++;
        *buffer = i;
        return (int64_t)at;
    }
    return -1;
}
