// SPDX-License-Identifier: Apache-2.0
// The reference against a second implementation that shares nothing with it: the order as a comparison of two elements
// and a full sort, values from their definitions in long double. On every hostile case of the model's and on drawn ones.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "support/check.h"

typedef struct element {
    float x;
    int64_t at;
} element;

// Which of two elements comes first: the sentence of quern.h section 7, word by word.
static int compare(const void *left, const void *right)
{
    const element *a = left, *b = right;
    if (isnan(a->x) != isnan(b->x)) return isnan(a->x) ? -1 : 1;
    if (!isnan(a->x) && a->x != b->x) return a->x > b->x ? -1 : 1;
    return a->at < b->at ? -1 : 1;
}

static float stored(quern_dtype in, const void *logits, int64_t i)
{
    if (in == QUERN_F32) return ((const float *)logits)[i];
    uint16_t bits = ((const uint16_t *)logits)[i];
    return in == QUERN_F16 ? qn_f16_to_f32(bits) : qn_bf16_to_f32(bits);
}

// A sorted row and what its softmax needs.
typedef struct sorted {
    element *e; // [V], in order
    int64_t V, K;
    long double T;
    bool undefined;
} sorted;

// The weight of an element before normalising, for rows where it is defined.
static long double weight(const sorted *s, float x)
{
    if (s->T == 0) return x == s->e[0].x;
    if (x == -INFINITY) return 0;
    return x == s->e[0].x ? 1 : expl(((long double)x - s->e[0].x) / s->T);
}

static long double sum_of(const sorted *s, int64_t count)
{
    long double sum = 0;
    for (int64_t i = count; i-- > 0;) sum += weight(s, s->e[i].x); // from small to large
    return sum;
}

static long double log_probability(const sorted *s, float x, long double sum)
{
    if (s->undefined) return NAN;
    if (x == s->e[0].x) return -logl(sum);
    if (s->T == 0 || x == -INFINITY) return -INFINITY;
    return ((long double)x - s->e[0].x) / s->T - logl(sum);
}

static long double log_sum_exp(const sorted *s)
{
    float max = s->e[0].x;
    if (isnan(max) || !(s->T > 0)) return NAN;
    return isinf(max) ? max : max / s->T + logl(sum_of(s, s->V));
}

// least: absolute, beside one f32 ulp. A log of 1 + tiny is known to the last bit of a long double near 1 only.
static const long double smallest = 1.5e-45L, of_log = 2.2e-19L;

static void assert_value(const hostile_case *c, const char *what, int64_t row, int64_t k, float got, long double want,
                         long double least)
{
    float rounded = (float)want;
    if (isnan(rounded) ? isnan(got) : got == rounded || fabsl(got - want) <= fabsl(want) * 1.2e-7L + least) return;
    fail_msg("case %s '%s' seed %" PRIu64 " row %" PRId64 ": %s[%" PRId64 "] = %.9g, must be %.9g", c->name, c->text,
             c->seed, row, what, k, got, rounded);
}

static void assert_index(const hostile_case *c, const char *what, int64_t row, int64_t k, int64_t got, int64_t want)
{
    if (got == want) return;
    fail_msg("case %s '%s' seed %" PRIu64 " row %" PRId64 ": %s[%" PRId64 "] = %" PRId64 ", must be %" PRId64, c->name,
             c->text, c->seed, row, what, k, got, want);
}

static void compare_winners(const hostile_data *d, int64_t row, const sorted *s)
{
    const quern_softmax_topk_spec *spec = &d->c->spec;
    const quern_softmax_topk_args *a = &d->args;
    int64_t values_stride = a->values_stride_rows ? a->values_stride_rows : s->K;
    int64_t indices_at = row * (a->indices_stride_rows ? a->indices_stride_rows : s->K);
    long double sum = s->undefined ? 0 : sum_of(s, spec->norm == QUERN_NORM_TOPK ? s->K : s->V);
    for (int64_t k = 0; k < s->K; k++) {
        int64_t at = indices_at + k;
        int64_t index = spec->index == QUERN_I64 ? ((int64_t *)a->indices)[at] : ((int32_t *)a->indices)[at];
        float x = s->e[k].x;
        long double want = spec->value == QUERN_VALUE_LOGIT     ? x
                           : spec->value == QUERN_VALUE_LOGPROB ? log_probability(s, x, sum)
                           : s->undefined                       ? NAN
                                                                : weight(s, x) / sum;
        assert_index(d->c, "indices", row, k, index, s->e[k].at);
        assert_value(d->c, "values", row, k, a->values[row * values_stride + k], want,
                     spec->value == QUERN_VALUE_LOGPROB ? of_log : smallest);
    }
}

static void compare_token(const hostile_data *d, int64_t row, const sorted *s)
{
    int32_t token = d->args.token[row];
    int64_t rank = -1;
    for (int64_t i = 0; i < s->V && rank < 0; i++)
        if (s->e[i].at == token) rank = i;
    long double want = rank < 0 || s->undefined ? NAN : log_probability(s, s->e[rank].x, sum_of(s, s->V));
    assert_index(d->c, "token_rank", row, 0, d->args.token_rank[row], rank);
    assert_value(d->c, "token_value", row, 0, d->args.token_value[row], want, of_log);
}

static void compare_row(const hostile_data *d, int64_t row, element *scratch)
{
    const quern_softmax_topk_spec *spec = &d->c->spec;
    int64_t stride = d->args.logits_stride_rows ? d->args.logits_stride_rows : spec->V;
    const char *logits = (const char *)d->args.logits + (size_t)(row * stride) * (spec->in == QUERN_F32 ? 4 : 2);
    sorted s = {.e = scratch, .V = spec->V, .K = spec->K, .T = spec->temperature ? d->args.temperature[row] : 1};
    for (int64_t i = 0; i < s.V; i++) scratch[i] = (element){stored(spec->in, logits, i), i};
    qsort(scratch, (size_t)s.V, sizeof *scratch, compare);
    s.undefined = !isfinite(scratch[0].x) || !(s.T >= 0);
    compare_winners(d, row, &s);
    if (spec->lse) assert_value(d->c, "lse", row, 0, d->args.lse[row], log_sum_exp(&s), of_log);
    if (spec->token) compare_token(d, row, &s);
}

static void compare_case(const hostile_case *c)
{
    hostile_data data;
    assert_true(hostile_data_make(c, &data));
    if (quern_reference(&c->spec.base, &data.args.base) != QUERN_OK) fail_msg("case %s: %s", c->name, quern_message());
    element *scratch = malloc((size_t)c->spec.V * sizeof *scratch);
    assert_non_null(scratch);
    for (int64_t row = 0; row < c->rows; row++) compare_row(&data, row, scratch);
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++)
        if (data.buffer[i].bytes) assert_index(c, hostile_buffer_name[i], 0, 0, hostile_guard_broken(&data, i), -1);
    free(scratch);
    hostile_data_free(&data);
}

static void every_hostile_case_agrees_with_a_full_sort_in_long_double(void **state)
{
    (void)state;
    size_t count;
    const hostile_case *cases = hostile_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (hostile_wanted(&cases[i], HOSTILE_MODEL)) compare_case(&cases[i]);
}

static void drawn_cases_agree_with_a_full_sort_in_long_double(void **state)
{
    (void)state;
    for (uint64_t seed = 1000; seed < 1200; seed++) {
        hostile_case c = hostile_draw(seed, false);
        if (hostile_wanted(&c, HOSTILE_MODEL)) compare_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_hostile_case_agrees_with_a_full_sort_in_long_double),
        cmocka_unit_test(drawn_cases_agree_with_a_full_sort_in_long_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
