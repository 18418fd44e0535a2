// SPDX-License-Identifier: Apache-2.0
// The judge of indexer (hostile_indexer.h).
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "support/again.h"
#include "support/hostile_indexer.h"

enum { MOST_LINES = 6 };

typedef struct tally {
    qn_text *report;
    int64_t row, mismatches;
} tally;

static void mismatch(tally *t, const char *format, ...) QN_PRINTF(2, 3);
static void mismatch(tally *t, const char *format, ...)
{
    char line[256];
    va_list arguments;
    if (t->mismatches++ >= MOST_LINES) return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    qn_text_putf(t->report, "    row %lld: %s\n", (long long)t->row, line);
}

typedef struct judged_row {
    const indexer_data *data;
    int64_t count, need;
    const int32_t *index;
    const float *score; // NULL: not written
    double *exact, *bound;
    unsigned char *chosen;
} judged_row;

static double room_of(const judged_row *r, int64_t i)
{
    const quern_indexer_spec *s = &r->data->c->spec;
    return (double)(s->C + s->H) * 0x1p-24 * r->bound[i] + 1e-30 * (r->bound[i] > 0);
}

static void check_score(const judged_row *r, tally *t, int64_t place)
{
    int64_t i = r->index[place];
    double got = r->score[place], want = r->exact[i], single = (double)(float)want;
    if (isnan(want) || isnan(got)) {
        if (isnan(want) != isnan(got)) mismatch(t, "score of %lld: %g, reference %g", (long long)i, got, want);
    } else if (isinf(single) || isinf(got)) {
        if (single != got && fabs(want) < 3e38) mismatch(t, "score of %lld: %g, reference %g", (long long)i, got, want);
    } else if (r->data->c->exact ? got != single : fabs(got - want) > room_of(r, i)) {
        mismatch(t, "score of %lld: %.9g, reference %.9g, allowed %.3g", (long long)i, got, want, room_of(r, i));
    }
}

static bool comes_before(const judged_row *r, int64_t a) // place a before place a + 1, on the kernel's own scores
{
    float x = r->score[a], y = r->score[a + 1];
    if (isnan(x) || isnan(y)) return isnan(x) ? isnan(y) && r->index[a] < r->index[a + 1] : true;
    return x > y || (x == y && r->index[a] < r->index[a + 1]);
}

static void check_winners(judged_row *r, tally *t)
{
    for (int64_t i = 0; i < r->need; i++) {
        int64_t at = r->index[i];
        if (at < 0 || at >= r->count || r->chosen[at]) {
            mismatch(t, "indices[%lld] = %lld: %s", (long long)i, (long long)at,
                     at >= 0 && at < r->count ? "a second time" : "no entry of the row");
            return;
        }
        r->chosen[at] = 1;
        if (r->score) check_score(r, t, i);
        if (r->score && i + 1 < r->need && !comes_before(r, i))
            mismatch(t, "places %lld and %lld: %d (%.9g) and %d (%.9g) are not in order", (long long)i,
                     (long long)i + 1, r->index[i], (double)r->score[i], r->index[i + 1], (double)r->score[i + 1]);
    }
}

static void check_rest(const judged_row *r, tally *t)
{
    if (!r->need) return;
    int64_t last = r->index[r->need - 1];
    double least = r->score ? (double)r->score[r->need - 1] : r->exact[last];
    double below = r->score ? 0 : room_of(r, last);
    for (int64_t i = 0; i < r->count; i++) {
        if (r->chosen[i] || isnan(r->exact[i])) continue;
        if (isnan(least) || (float)(r->exact[i] - room_of(r, i)) > (float)(least + below))
            mismatch(t, "%lld (%.9g) was left out, the last winner %lld has %.9g", (long long)i, r->exact[i],
                     (long long)last, least);
    }
}

static int by_order(const void *left, const void *right, void *scores)
{
    const double *score = scores;
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    float x = (float)score[a], y = (float)score[b];
    if (isnan(x) != isnan(y)) return isnan(x) ? 1 : -1;
    if (x != y && !isnan(x)) return x > y ? -1 : 1;
    return a < b ? -1 : 1;
}

static void check_exactly(const judged_row *r, tally *t)
{
    const indexer_case *c = r->data->c;
    int32_t *order = malloc((size_t)(r->count + 1) * sizeof *order);
    if (!order) abort();
    for (int64_t i = 0; i < r->count; i++) order[i] = (int32_t)i;
    qsort_r(order, (size_t)r->count, sizeof *order, by_order, r->exact);
    for (int64_t i = 0; i < r->need; i++)
        if (r->index[i] != order[i])
            mismatch(t, "indices[%lld] = %d, reference %d", (long long)i, r->index[i], order[i]);
    for (int64_t i = 0; i < c->want_count && i < r->need; i++)
        if (r->index[i] != c->want[i])
            mismatch(t, "indices[%lld] = %d, the case says %lld", (long long)i, r->index[i], (long long)c->want[i]);
    free(order);
}

static void check_row(const indexer_data *data, tally *t)
{
    const indexer_case *c = data->c;
    const quern_indexer_args *a = &data->args;
    judged_row r = {.data = data, .count = qn_indexer_results(&c->spec, a, t->row)};
    r.need = r.count < c->spec.k ? r.count : c->spec.k;
    r.index = a->indices + t->row * (c->spec.k + c->padding);
    r.score = c->spec.scores ? a->scores + t->row * (c->spec.k + c->padding) : NULL;
    r.exact = malloc((size_t)(r.count + 1) * sizeof *r.exact),
    r.bound = malloc((size_t)(r.count + 1) * sizeof *r.bound);
    r.chosen = calloc((size_t)(r.count + 1), 1);
    if (!r.exact || !r.bound || !r.chosen || qn_indexer_scores(&c->spec, a, t->row, r.exact, r.bound) != QUERN_OK)
        abort();
    int64_t before = t->mismatches;
    check_winners(&r, t);
    if (t->mismatches == before) check_rest(&r, t);
    if (t->mismatches == before && c->exact) check_exactly(&r, t);
    for (int64_t i = r.need; i < c->spec.k; i++) {
        if (r.index[i] != -1) mismatch(t, "indices[%lld] = %d, -1 is due", (long long)i, r.index[i]);
        if (r.score && r.score[i] != -INFINITY)
            mismatch(t, "scores[%lld] = %g, -inf is due", (long long)i, (double)r.score[i]);
    }
    free(r.exact);
    free(r.bound);
    free(r.chosen);
}

static void check_guards(const indexer_data *data, tally *t)
{
    const indexer_case *c = data->c;
    for (int b = INDEXER_INPUTS; b < INDEXER_BUFFERS; b++) {
        const hostile_buffer *buffer = &data->buffer[b];
        size_t row = (size_t)c->spec.k * 4, stride = (size_t)(c->spec.k + c->padding) * 4,
               end = buffer->at + (size_t)c->T * stride;
        for (size_t i = 0; buffer->bytes && i < buffer->count; i++) {
            bool inside = i >= buffer->at && i < end && (i - buffer->at) % stride < row;
            if (inside || buffer->bytes[i] == HOSTILE_GUARD) continue;
            mismatch(t, "%s: byte %zu was written, the tensor begins at byte %zu", indexer_buffer_name[b], i,
                     buffer->at);
            break;
        }
    }
}

void indexer_describe(const indexer_case *c, qn_text *report)
{
    qn_text_putf(report,
                 "case %s: '%s' T %lld, sequences %lld of up to %lld, fill %d.%d, lengths %d, offset %lld, padding "
                 "%lld, seed %llu\n",
                 c->name, c->text, (long long)c->T, (long long)c->sequences, (long long)c->most, (int)c->fill,
                 c->variant, (int)c->lengths, (long long)c->offset, (long long)c->padding, (unsigned long long)c->seed);
    test_again(c->name, report);
}

// Rows of large cases are sampled: those of one length and sequence are alike.
int64_t indexer_check_case(const indexer_data *data, qn_text *report)
{
    qn_text found = QN_TEXT_INIT;
    tally t = {.report = &found};
    int64_t step = data->c->most > 10000 ? (data->c->T + 1) / 2 : data->c->T > 16 ? data->c->T / 8 : 1;
    int64_t all = data->c->most > 10000 ? 0 : 8; // rows before they are sampled
    check_guards(data, &t);
    for (t.row = 0; t.row < data->c->T; t.row += t.row < all ? 1 : step) check_row(data, &t);
    if (t.mismatches) {
        indexer_describe(data->c, report);
        qn_text_puts(report, qn_text_string(&found));
        if (t.mismatches > MOST_LINES)
            qn_text_putf(report, "    … and %lld more\n", (long long)(t.mismatches - MOST_LINES));
    }
    qn_text_fini(&found);
    return t.mismatches;
}

int64_t indexer_same_bits(const indexer_data *first, const indexer_data *second, int *buffer)
{
    for (int i = INDEXER_INPUTS; i < INDEXER_BUFFERS; i++) {
        const unsigned char *a = first->buffer[i].bytes, *b = second->buffer[i].bytes;
        if (!a || memcmp(a, b, first->buffer[i].count) == 0) continue;
        size_t at = 0;
        while (a[at] == b[at]) at++;
        *buffer = i;
        return (int64_t)at;
    }
    return -1;
}
