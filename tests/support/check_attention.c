// SPDX-License-Identifier: Apache-2.0
// Comparison of attention's outputs with f64; see check_attention.h.
#include "support/check_attention.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "support/again.h"
#include "support/check.h"

typedef struct tally {
    const attention_data *data;
    qn_text *report;
    int64_t mismatches;
    int64_t sequence, query, head; // as judged
    // Squared errors: of the kernel; of attention with P rounded, of that with P rounded before it is divided by the sum.
    double got2, want2, undivided2;
    int64_t elements;
} tally;

__attribute__((format(printf, 2, 3))) static void mismatch(tally *t, const char *format, ...)
{
    if (t->mismatches++ >= CHECK_MOST_LINES) return;
    char line[256];
    int length = snprintf(line, sizeof line, "    sequence %lld query %lld head %lld: ", (long long)t->sequence,
                          (long long)t->query, (long long)t->head);
    va_list rest;
    va_start(rest, format);
    vsnprintf(line + length, sizeof line - (size_t)length, format, rest);
    va_end(rest);
    qn_text_puts(t->report, line);
    qn_text_puts(t->report, "\n");
}

// ---- numbers

static double load(quern_dtype in, const void *tensor, int64_t at)
{
    uint16_t bits = ((const uint16_t *)tensor)[at];
    return in == QUERN_F16 ? qn_f16_to_f32(bits) : qn_bf16_to_f32(bits);
}

static double rounded(quern_dtype in, double x)
{
    return in == QUERN_F16 ? qn_f16_to_f32(qn_f32_to_f16((float)x)) : qn_bf16_to_f32(qn_f32_to_bf16((float)x));
}

// Distance of neighbouring numbers with so many bits, the smallest exponent given.
static double ulp_of(double x, int bits, int least)
{
    int exponent = least;
    if (x != 0 && isfinite(x)) frexp(x, &exponent);
    if (exponent < least) exponent = least;
    return ldexp(1.0, exponent - bits);
}
static double ulp_out(quern_dtype in, double x)
{
    return in == QUERN_F16 ? ulp_of(x, 11, -13) : ulp_of(x, 8, -125);
}

// ---- one row in f64

typedef struct row {
    double *score, *p, *slack; // of each key: e^(score - max), and the score's error in f32
    double *v;                 // [keys][dv]
    double max, total, sink;   // sink: what it adds to the total
    int64_t first, last;
} row;

static void seen_keys(const attention_case *c, int64_t b, int64_t query, row *r)
{
    const quern_attention_spec *s = &c->spec;
    int64_t position = query + c->keys[b] - c->queries[b], right = s->causal ? 0 : s->window_right;
    r->first = 0, r->last = c->keys[b];
    if (s->window_left >= 0 && position > s->window_left) r->first = position - s->window_left;
    if (right >= 0 && right < c->keys[b] - 1 - position) r->last = position + right + 1;
    if (r->last < r->first) r->last = r->first;
}

static void score_row(tally *t, row *r)
{
    const attention_case *c = t->data->c;
    const quern_attention_spec *s = &c->spec;
    double scale = s->scale != 0 ? s->scale : 1 / sqrt((double)s->d);
    int64_t kv = t->head / (c->Hq / c->Hkv);
    int64_t q = attention_row_of_query(c, ATTENTION_Q, t->sequence, t->query, t->head);
    seen_keys(c, t->sequence, t->query, r);
    r->max = -INFINITY, r->total = 0;
    for (int64_t key = r->first; key < r->last; key++) {
        int64_t k = attention_row_of_key(c, ATTENTION_K, t->sequence, key, kv);
        double dot = 0, all = 0;
        for (int64_t i = 0; i < s->d; i++) {
            double product = load(s->in, t->data->args.q, q + i) * load(s->in, t->data->args.k, k + i);
            dot += product, all += fabs(product);
        }
        double x = dot * scale;
        // Sums of sixteen at a time in f32, the tensor cores' truncation, product with the scale, cap.
        r->slack[key] = fabs(scale) * all * ((double)s->d / 16 + 4) * 0x1p-23 + fabs(x) * 0x1p-22;
        if (s->softcap != 0) x = s->softcap * tanh(x / s->softcap), r->slack[key] += s->softcap * 0x1p-21;
        r->score[key] = x;
        if (x > r->max) r->max = x;
    }
    double base = r->max == -INFINITY ? 0 : r->max;
    for (int64_t key = r->first; key < r->last; key++) r->total += r->p[key] = exp(r->score[key] - base);
    r->sink = s->sink ? exp(t->data->args.sink[t->head] - base) : 0;
}

static void check_lse(tally *t, const row *r)
{
    if (!t->data->c->spec.lse) return;
    double got = t->data->args.lse[attention_row_of_query(t->data->c, ATTENTION_LSE, t->sequence, t->query, t->head)];
    double want = r->first == r->last ? -INFINITY : (r->max == -INFINITY ? 0 : r->max) + log(r->total), slack = 0;
    for (int64_t key = r->first; key < r->last; key++) slack += r->p[key] / r->total * r->slack[key];
    if (got == want || (isnan(got) && isnan(want))) return;
    if (fabs(got - want) <= 1e-5 + 2 * ulp_of(want, 24, -125) + slack) return;
    mismatch(t, "lse = %.9g, should be %.9g", got, want);
}

static void check_element(tally *t, const row *r, int64_t i, double got)
{
    quern_dtype in = t->data->c->spec.in;
    int64_t dv = t->data->c->spec.dv;
    double sum = 0, all = 0, soft = 0, emulated = 0, undivided = 0, tiny = in == QUERN_F16 ? 0x1p-11 : 0x1p-8,
           total = r->total + r->sink;
    for (int64_t key = r->first; key < r->last; key++) {
        double v = r->v[key * dv + i];
        sum += r->p[key] * v, all += r->p[key] * fabs(v);
        soft += r->p[key] * fabs(v) * r->slack[key];
        if (in == QUERN_F16) soft += fabs(v) * 0x1p-25; // P may be a subnormal f16
        emulated += rounded(in, r->p[key] / total) * v, undivided += rounded(in, r->p[key]) / total * v;
    }
    double want = r->first == r->last ? 0 : sum / total, worst = 0, spread = 0;
    for (int64_t key = r->first; key < r->last; key++)
        worst += r->p[key] * r->slack[key], spread += r->p[key] * fabs(r->v[key * dv + i] - want);
    if (spread > all) all = spread; // divided by the sum of what P was rounded to
    if (isnan(want) ? isnan(got) : got == rounded(in, want)) {
        if (isfinite(got) && isfinite(want)) t->got2 += (got - want) * (got - want);
    } else {
        double allowed = all / total * (tiny + 0x1p-19) + 2 * soft / total + worst / total * fabs(want) * 2;
        allowed += 0.5 * ulp_out(in, fabs(want) + allowed);
        if (t->data->c->exact || !(fabs(got - want) <= allowed) || r->first == r->last)
            mismatch(t, "out[%lld] = %.9g, should be %.9g within %.3g", (long long)i, got, want, allowed);
        t->got2 += (got - want) * (got - want);
    }
    double other = rounded(in, r->first == r->last ? 0 : emulated);
    double another = rounded(in, r->first == r->last ? 0 : undivided);
    if (!isfinite(want) || !isfinite(other) || !isfinite(another)) return;
    t->want2 += (other - want) * (other - want), t->undivided2 += (another - want) * (another - want);
    t->elements++;
}

static void check_row(tally *t, row *r)
{
    const attention_case *c = t->data->c;
    const void *values = c->spec.kv_alias ? t->data->args.k : t->data->args.v;
    int64_t dv = c->spec.dv, kv = t->head / (c->Hq / c->Hkv);
    int64_t out = attention_row_of_query(c, ATTENTION_OUT, t->sequence, t->query, t->head);
    score_row(t, r);
    for (int64_t key = r->first; key < r->last; key++) {
        int64_t at = attention_row_of_key(c, c->spec.kv_alias ? ATTENTION_K : ATTENTION_V, t->sequence, key, kv);
        for (int64_t i = 0; i < dv; i++) r->v[key * dv + i] = load(c->spec.in, values, at + i);
    }
    check_lse(t, r);
    for (int64_t i = 0; i < dv; i++) check_element(t, r, i, load(c->spec.in, t->data->args.out, out + i));
}

static void check_rows(tally *t)
{
    const attention_case *c = t->data->c;
    int64_t most = 1;
    for (int64_t b = 0; b < c->B; b++) most = c->keys[b] > most ? c->keys[b] : most;
    double *memory = malloc((size_t)(most * (3 + c->spec.dv)) * sizeof *memory);
    if (!memory) {
        mismatch(t, "no memory to judge with");
        return;
    }
    row r = {.score = memory, .p = memory + most, .slack = memory + 2 * most, .v = memory + 3 * most};
    for (t->sequence = 0; t->sequence < c->B; t->sequence++)
        for (t->query = 0; t->query < c->queries[t->sequence]; t->query++)
            for (t->head = 0; t->head < c->Hq; t->head++) check_row(t, &r);
    free(memory);
}

// ---- cases

void attention_describe(const attention_case *c, qn_text *report)
{
    qn_text_putf(report,
                 "  case %s, spec \"%s\", B %lld, heads %lld on %lld, order %d, seed %llu; sequences (queries, keys)",
                 c->name, c->text, (long long)c->B, (long long)c->Hq, (long long)c->Hkv, (int)c->order,
                 (unsigned long long)c->seed);
    for (int64_t b = 0; b < c->B; b++)
        qn_text_putf(report, " (%lld, %lld)", (long long)c->queries[b], (long long)c->keys[b]);
    qn_text_puts(report, "\n");
    test_again(c->name, report);
}

static int64_t check_guards(const attention_data *data, qn_text *report)
{
    int64_t broken = 0;
    for (int i = ATTENTION_INPUTS; i < ATTENTION_BUFFERS; i++) {
        int64_t at = data->buffer[i].bytes ? attention_guard_broken(data, i) : -1;
        if (at < 0) continue;
        broken++;
        qn_text_putf(report, "    %s: byte %lld was written, the tensor begins at byte %lld of its buffer of %lld\n",
                     attention_buffer_name[i], (long long)at, (long long)data->buffer[i].at,
                     (long long)data->buffer[i].count);
    }
    return broken;
}

int64_t attention_check_case(const attention_data *data, qn_text *report)
{
    qn_text found = QN_TEXT_INIT;
    tally t = {.data = data, .report = &found};
    int64_t count = check_guards(data, &found);
    check_rows(&t);
    double most2 = fmax(t.want2, t.undivided2);
    if (t.elements >= 512 && t.got2 > 1.3 * 1.3 * most2 + 1e-30) {
        t.mismatches++;
        qn_text_putf(&found, "    out: root mean square error %.4g, with P rounded in f64 %.4g\n",
                     sqrt(t.got2 / (double)t.elements), sqrt(most2 / (double)t.elements));
    }
    count += t.mismatches;
    if (count) {
        attention_describe(data->c, report);
        qn_text_puts(report, qn_text_string(&found));
    }
    qn_text_fini(&found);
    return count;
}

int64_t attention_same_bits(const attention_data *first, const attention_data *second, int *buffer)
{
    for (int i = ATTENTION_INPUTS; i < ATTENTION_BUFFERS; i++) {
        const unsigned char *a = first->buffer[i].bytes, *b = second->buffer[i].bytes;
        if (!a || memcmp(a, b, first->buffer[i].count) == 0) continue;
        size_t at = 0;
        while (a[at] == b[at]) at++;
        *buffer = i;
        return (int64_t)at;
    }
    return -1;
}

bool attention_same_alone(const attention_data *all, int64_t sequence, const attention_data *alone, qn_text *report)
{
    const attention_case *c = all->c;
    for (int64_t query = 0; query < c->queries[sequence]; query++) {
        for (int64_t head = 0; head < c->Hq; head++) {
            int64_t a = attention_row_of_query(c, ATTENTION_OUT, sequence, query, head);
            int64_t b = attention_row_of_query(alone->c, ATTENTION_OUT, 0, query, head);
            const uint16_t *in_all = (const uint16_t *)all->args.out + a, *one = (const uint16_t *)alone->args.out + b;
            if (!memcmp(in_all, one, 2 * (size_t)c->spec.dv)) continue;
            attention_describe(c, report);
            qn_text_putf(report, "    sequence %lld alone has other bits: query %lld head %lld\n", (long long)sequence,
                         (long long)query, (long long)head);
            return false;
        }
    }
    return true;
}

double attention_ulps_of_last_query(const attention_data *a, const attention_data *b)
{
    const attention_case *c = a->c, *d = b->c;
    double most = 0;
    for (int64_t head = 0; head < c->Hq; head++) {
        int64_t x = attention_row_of_query(c, ATTENTION_OUT, 0, c->queries[0] - 1, head);
        int64_t y = attention_row_of_query(d, ATTENTION_OUT, 0, d->queries[0] - 1, head);
        double largest = 0;
        for (int64_t i = 0; i < c->spec.dv; i++) largest = fmax(largest, fabs(load(c->spec.in, a->args.out, x + i)));
        for (int64_t i = 0; i < c->spec.dv; i++) {
            double one = load(c->spec.in, a->args.out, x + i), other = load(c->spec.in, b->args.out, y + i);
            double difference = fabs(one - other), ulp = ulp_out(c->spec.in, fmax(fabs(one), fabs(other)));
            if (difference > 0x1p-18 * largest) most = fmax(most, difference / ulp);
        }
    }
    return most;
}
