// SPDX-License-Identifier: Apache-2.0
// softmax_topk on the host: the contract of quern.h section 7 in plain C, one row after another, sums in f64. It judges
// the kernels, so it shares nothing with them: no plan, no constants, no arithmetic. Called through quern_reference.
//
//   order   descending by logit; equal logits (-0 and +0 too) by lowest index; NaN of either sign and any payload is
//           one value above +inf
//   values  w(x) = exp((x - max) / T); at T = 0 the limit: 1 for the maxima, 0 for the rest; of a -inf always 0
//           NaN for the whole row when max is NaN or infinite, when T is negative or NaN
//   lse     max / T + log of the sum of w over all V, whatever norm; NaN at T = 0, NaN for a row with a NaN; else +inf
//           with a +inf in the row, -inf when every logit is -inf
//   logit   as stored, whatever T is
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"

typedef struct row {
    const quern_softmax_topk_spec *spec;
    const void *logits; // [V], spec->in
    double T;           // 1 without temperatures
    float max;          // the first in order: NaN if there is one
    double rest;        // sum of w over all V but one maximum: the sum is 1 + rest, and its log exact near 1
    bool defined;       // probabilities are numbers: max finite, T >= 0
} row;

static float load(const void *logits, quern_dtype in, int64_t i)
{
    if (in == QUERN_F32) return ((const float *)logits)[i];
    uint16_t bits = ((const uint16_t *)logits)[i];
    return in == QUERN_F16 ? qn_f16_to_f32(bits) : qn_bf16_to_f32(bits);
}

// ---- order

// The place of a value in the order, as an integer that grows with it.
static uint32_t rank_of(float x)
{
    if (isnan(x)) return UINT32_MAX;
    uint32_t bits;
    x += 0.0f; // -0 becomes +0
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The place of an element: larger comes earlier. V is at most 2^21.
static uint64_t key_of(float x, int64_t i)
{
    return (uint64_t)rank_of(x) << 32 | (UINT32_MAX - (uint32_t)i);
}
static int64_t index_of(uint64_t key)
{
    return (int64_t)(UINT32_MAX - (uint32_t)key);
}

// Moves the key at `at` down to its place in a heap whose smallest key is first.
static void sift(uint64_t *heap, int64_t count, int64_t at)
{
    uint64_t key = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (key <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

// The K largest keys of the row, largest first.
static void select_keys(const row *r, uint64_t *keys)
{
    int64_t V = r->spec->V, K = r->spec->K;
    for (int64_t i = 0; i < K; i++) keys[i] = key_of(load(r->logits, r->spec->in, i), i);
    for (int64_t i = K / 2; i-- > 0;) sift(keys, K, i);
    for (int64_t i = K; i < V; i++) {
        uint64_t key = key_of(load(r->logits, r->spec->in, i), i);
        if (key <= keys[0]) continue;
        keys[0] = key;
        sift(keys, K, 0);
    }
    for (int64_t count = K; count > 1;) { // the smallest goes to the end, so the largest stays in front
        uint64_t smallest = keys[0];
        keys[0] = keys[--count];
        sift(keys, count, 0);
        keys[count] = smallest;
    }
}

static int32_t token_rank(const row *r, int64_t token)
{
    uint64_t key = key_of(load(r->logits, r->spec->in, token), token);
    int32_t before = 0;
    for (int64_t i = 0; i < r->spec->V; i++) before += key_of(load(r->logits, r->spec->in, i), i) > key;
    return before;
}

// ---- values

// (x - max) / T of a defined row; -inf where w is 0.
static double exponent(const row *r, float x)
{
    if (x == r->max) return 0.0;
    if (x == -INFINITY || r->T == 0.0) return -INFINITY; // a -inf keeps probability 0 at T = +inf too
    return ((double)x - (double)r->max) / r->T;
}

static double probability(const row *r, float x, double rest)
{
    return r->defined ? exp(exponent(r, x)) / (1.0 + rest) : NAN;
}

static double log_probability(const row *r, float x, double rest)
{
    return r->defined ? exponent(r, x) - log1p(rest) : NAN;
}

static double log_sum_exp(const row *r)
{
    if (isnan(r->max) || isnan(r->T) || r->T <= 0.0) return NAN;
    if (isinf(r->max)) return r->max; // as the largest is -inf, so is every other
    return (double)r->max / r->T + log1p(r->rest);
}

static double sum_but_one_maximum(const row *r)
{
    double rest = 0.0;
    bool passed = false;
    for (int64_t i = 0; i < r->spec->V; i++) {
        float x = load(r->logits, r->spec->in, i);
        if (x == r->max && !passed)
            passed = true;
        else
            rest += exp(exponent(r, x));
    }
    return rest;
}

static void row_init(row *r, const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *args, int64_t at)
{
    int64_t stride = args->logits_stride_rows ? args->logits_stride_rows : spec->V;
    size_t bytes = spec->in == QUERN_F32 ? 4 : 2;
    *r = (row){.spec = spec, .logits = (const char *)args->logits + (size_t)at * (size_t)stride * bytes};
    r->T = spec->temperature ? (double)args->temperature[at] : 1.0;
    r->max = load(r->logits, spec->in, 0);
    for (int64_t i = 1; i < spec->V; i++) {
        float x = load(r->logits, spec->in, i);
        if (rank_of(x) > rank_of(r->max)) r->max = x;
    }
    r->defined = isfinite(r->max) && r->T >= 0.0;
    if (r->defined) r->rest = sum_but_one_maximum(r);
}

// ---- a row's outputs

static void write_winners(const row *r, const uint64_t *keys, float *values, void *indices)
{
    const quern_softmax_topk_spec *spec = r->spec;
    double rest = r->rest;
    if (spec->norm == QUERN_NORM_TOPK) {
        rest = 0.0;
        for (int64_t k = 1; r->defined && k < spec->K; k++) // the first is a maximum
            rest += exp(exponent(r, load(r->logits, spec->in, index_of(keys[k]))));
    }
    for (int64_t k = 0; k < spec->K; k++) {
        int64_t i = index_of(keys[k]);
        float x = load(r->logits, spec->in, i);
        if (spec->value == QUERN_VALUE_LOGIT)
            values[k] = x;
        else if (spec->value == QUERN_VALUE_LOGPROB)
            values[k] = (float)log_probability(r, x, rest);
        else
            values[k] = (float)probability(r, x, rest);
        if (spec->index == QUERN_I64)
            ((int64_t *)indices)[k] = i;
        else
            ((int32_t *)indices)[k] = (int32_t)i;
    }
}

static void write_token(const row *r, int64_t token, float *value, int32_t *rank)
{
    bool exists = token >= 0 && token < r->spec->V;
    *rank = exists ? token_rank(r, token) : -1;
    *value = exists ? (float)log_probability(r, load(r->logits, r->spec->in, token), r->rest) : NAN;
}

static void do_row(const quern_softmax_topk_spec *spec, const quern_softmax_topk_args *args, int64_t at, uint64_t *keys)
{
    int64_t values_stride = args->values_stride_rows ? args->values_stride_rows : spec->K;
    int64_t indices_stride = args->indices_stride_rows ? args->indices_stride_rows : spec->K;
    size_t index_bytes = spec->index == QUERN_I64 ? 8 : 4;
    row r;
    row_init(&r, spec, args, at);
    select_keys(&r, keys);
    write_winners(&r, keys, args->values + at * values_stride,
                  (char *)args->indices + (size_t)at * (size_t)indices_stride * index_bytes);
    if (spec->lse) args->lse[at] = (float)log_sum_exp(&r);
    if (spec->token) write_token(&r, args->token[at], &args->token_value[at], &args->token_rank[at]);
}

quern_status qn_reference_softmax_topk(const quern_spec *base, const quern_args *base_args)
{
    const quern_softmax_topk_spec *spec = (const quern_softmax_topk_spec *)base;
    const quern_softmax_topk_args *args = (const quern_softmax_topk_args *)base_args;
    bool empty = false;
    QN_TRY(qn_family_softmax_topk.check_args(base, base_args, &empty)); // the launch's own: the same refusals
    if (empty) return QUERN_OK;

    uint64_t *keys = malloc((size_t)spec->K * sizeof *keys);
    if (!keys) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for the %lld winners of a row", (long long)spec->K);
    for (int64_t at = 0; at < args->rows; at++) do_row(spec, args, at, keys);
    free(keys);
    return QUERN_OK;
}
