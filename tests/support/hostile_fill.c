// SPDX-License-Identifier: Apache-2.0
// The rows of hostile cases, and the literal results of those that come from field reports. Called through a case's
// fill and expect. Uses no libm, so that the data are the same everywhere.
#include "support/hostile_fill.h"

#include <math.h>
#include <string.h>

#include "reference/reference.h"

uint64_t hostile_mix(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0xD1342543DE82EF95u + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// Four uniform 16-bit numbers, summed: mean 131070, standard deviation 37837.
float hostile_normal(uint64_t seed, uint64_t i)
{
    uint64_t h = hostile_mix(seed, i);
    int64_t sum = (int64_t)((h & 0xFFFF) + (h >> 16 & 0xFFFF) + (h >> 32 & 0xFFFF) + (h >> 48));
    return (float)(sum - 131070) / 37837.0f;
}

static uint64_t row_seed(const hostile_case *c, int64_t row)
{
    return hostile_mix(c->seed, (uint64_t)row);
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

// The j-th of V places in a scattered order that visits each once.
static int64_t scattered(int64_t V, uint64_t seed, int64_t j)
{
    int64_t step = V / 2 + V / 7 + 1;
    while (gcd(step, V) != 1) step++;
    return (int64_t)(((uint64_t)j * (uint64_t)step + seed % (uint64_t)V) % (uint64_t)V);
}

// ---- ordinary numbers

void fill_normal(const hostile_case *c, int64_t row, float *x)
{
    uint64_t seed = row_seed(c, row);
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = c->q + c->p * hostile_normal(seed, (uint64_t)i);
}

void fill_equal(const hostile_case *c, int64_t row, float *x)
{
    (void)row;
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = c->p;
}

void fill_two_values(const hostile_case *c, int64_t row, float *x)
{
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = c->q;
    for (int64_t j = 0; j < c->a && j < c->spec.V; j++) x[scattered(c->spec.V, row_seed(c, row), j)] = c->p;
}

void fill_quantised(const hostile_case *c, int64_t row, float *x)
{
    uint64_t seed = row_seed(c, row);
    for (int64_t i = 0; i < c->spec.V; i++) {
        float steps = 3.0f * hostile_normal(seed, (uint64_t)i) / c->p;
        x[i] = (float)(int)(steps + (steps < 0 ? -0.5f : 0.5f)) * c->p;
    }
}

void fill_ascending(const hostile_case *c, int64_t row, float *x)
{
    (void)row;
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = c->p * (float)(2 * i - c->spec.V + 1) / (float)c->spec.V;
}

void fill_descending(const hostile_case *c, int64_t row, float *x)
{
    (void)row;
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = c->p * (float)(c->spec.V - 1 - 2 * i) / (float)c->spec.V;
}

void fill_ramp_rows(const hostile_case *c, int64_t row, float *x)
{
    if (row % 3 == 0)
        fill_normal(c, row, x);
    else if (row % 3 == 1)
        fill_ascending(c, row, x);
    else
        fill_descending(c, row, x);
}

// ---- where the winners are

void fill_periodic(const hostile_case *c, int64_t row, float *x)
{
    uint64_t seed = row_seed(c, row);
    for (int64_t i = 0; i < c->spec.V; i++) {
        bool winner = i % c->a == (int64_t)(seed % (uint64_t)c->a);
        x[i] = hostile_normal(seed, (uint64_t)i) * (winner ? 0.25f : 1.0f) + (winner ? 8.0f : 0.0f);
    }
}

void fill_one_thread(const hostile_case *c, int64_t row, float *x)
{
    uint64_t seed = row_seed(c, row);
    for (int64_t i = 0; i < c->spec.V; i++) {
        bool winner = i / c->a % c->b == (int64_t)(seed % (uint64_t)c->b);
        x[i] = hostile_normal(seed, (uint64_t)i) * (winner ? 0.25f : 1.0f) + (winner ? 8.0f : 0.0f);
    }
}

void fill_chunk(const hostile_case *c, int64_t row, float *x)
{
    int64_t V = c->spec.V, count = 2 * c->spec.K < V ? 2 * c->spec.K : V;
    uint64_t seed = row_seed(c, row);
    int64_t first = (int64_t)(seed % (uint64_t)(V - count + 1));
    for (int64_t i = 0; i < V; i++) x[i] = hostile_normal(seed, (uint64_t)i);
    for (int64_t j = 0; j < count; j++) x[first + j] = 8.0f + (float)j * 0.03125f;
}

void fill_tie_group(const hostile_case *c, int64_t row, float *x)
{
    int64_t V = c->spec.V;
    uint64_t seed = row_seed(c, row);
    for (int64_t i = 0; i < V; i++) {
        float n = hostile_normal(seed, (uint64_t)i);
        x[i] = hostile_mix(~seed, (uint64_t)i) & 1 ? 1.0f : -n * n;
    }
    for (int64_t j = 0; j < c->spec.K / 2; j++) {
        int64_t i = scattered(V, seed, j);
        x[i] = 4.0f + hostile_normal(seed, (uint64_t)i) * 0.5f;
    }
}

void fill_finite(const hostile_case *c, int64_t row, float *x)
{
    uint64_t seed = row_seed(c, row);
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = c->b ? NAN : -INFINITY;
    for (int64_t j = 0; j < c->a && j < c->spec.V; j++)
        x[scattered(c->spec.V, seed, j)] = hostile_normal(seed, (uint64_t)j) * 4.0f;
}

// ---- special numbers

void fill_infinities(const hostile_case *c, int64_t row, float *x)
{
    uint64_t seed = row_seed(c, row);
    for (int64_t i = 0; i < c->spec.V; i++) {
        uint64_t h = hostile_mix(~seed, (uint64_t)i) % 16;
        x[i] = hostile_normal(seed, (uint64_t)i);
        if (row % 4 == 0 || (row % 4 == 3 && h < 8)) x[i] = -INFINITY;
        if (row % 4 == 2 && h < 5) x[i] = h == 0 ? INFINITY : -INFINITY;
    }
    if (row % 4 == 1) x[seed % (uint64_t)c->spec.V] = INFINITY;
}

void fill_nans(const hostile_case *c, int64_t row, float *x)
{
    uint64_t seed = row_seed(c, row);
    fill_normal(c, row, x);
    for (int64_t j = 0; j < c->a && j < c->spec.V; j++) {
        uint32_t h = (uint32_t)hostile_mix(~seed, (uint64_t)j);
        uint32_t payload = (h & 0x7FFFFF) ? h & 0x7FFFFF : 1;
        x[scattered(c->spec.V, seed, j)] = from_bits((h & 0x80000000) | 0x7F800000 | payload);
    }
    if (row % 2 == 1) x[(seed >> 8) % (uint64_t)c->spec.V] = INFINITY; // NaN is above it all the same
}

void fill_zeros(const hostile_case *c, int64_t row, float *x)
{
    uint64_t seed = row_seed(c, row);
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = hostile_mix(seed, (uint64_t)i) & 1 ? -0.0f : 0.0f;
    if (row % 2 == 0) return;
    x[scattered(c->spec.V, seed, 0)] = -0x1p-24f;
    x[scattered(c->spec.V, seed, 1)] = 0x1p-24f;
}

static float stored(const hostile_case *c, uint32_t bits)
{
    if (c->spec.in == QUERN_F32) return from_bits(bits);
    return c->spec.in == QUERN_F16 ? qn_f16_to_f32((uint16_t)bits) : qn_bf16_to_f32((uint16_t)bits);
}

void fill_subnormal(const hostile_case *c, int64_t row, float *x)
{
    uint32_t keep = c->spec.in == QUERN_F32 ? 0x807FFFFF : c->spec.in == QUERN_F16 ? 0x83FF : 0x807F;
    for (int64_t i = 0; i < c->spec.V; i++)
        x[i] = stored(c, (uint32_t)hostile_mix(row_seed(c, row), (uint64_t)i) & keep);
}

void fill_same_prefix(const hostile_case *c, int64_t row, float *x)
{
    for (int64_t i = 0; i < c->spec.V; i++)
        x[i] = from_bits(0x40490000 | ((uint32_t)hostile_mix(row_seed(c, row), (uint64_t)i) & 0x1FF));
}

void fill_any_bits(const hostile_case *c, int64_t row, float *x)
{
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = stored(c, (uint32_t)hostile_mix(row_seed(c, row), (uint64_t)i));
}

void fill_finite_bits(const hostile_case *c, int64_t row, float *x)
{
    fill_any_bits(c, row, x);
    for (int64_t i = 0; i < c->spec.V; i++)
        if (!isfinite(x[i])) x[i] = (float)(i % 5);
}

// ---- a fill drawn for each row

void fill_mixed(const hostile_case *c, int64_t row, float *x)
{
    static const hostile_fill fills[] = {
        fill_normal,   fill_equal, fill_two_values, fill_quantised,   fill_ascending,  fill_descending,
        fill_periodic, fill_chunk, fill_tie_group,  fill_finite,      fill_one_thread, fill_infinities,
        fill_nans,     fill_zeros, fill_subnormal,  fill_same_prefix, fill_any_bits,   fill_finite_bits,
    };
    uint64_t seed = row_seed(c, row), h = hostile_mix(seed, 1);
    hostile_case drawn = *c;
    drawn.seed = seed;
    drawn.p = (const float[]){0.125f, 1.0f, 3.0f, 20.0f}[h & 3];
    drawn.q = (const float[]){0.0f, 0.0f, 20.0f, -300.0f}[h >> 2 & 3];
    drawn.a = (int64_t)(1 + (h >> 8 & 0xFFFF) % (uint64_t)(c->spec.K + 2));
    drawn.b = (const int64_t[]){32, 128, 256, 1024}[h >> 4 & 3];
    hostile_fill fill = fills[(h >> 32) % (sizeof fills / sizeof fills[0])];
    if (fill == fill_finite) drawn.b = h >> 6 & 1;
    if (fill == fill_one_thread) drawn.a = 1 << (h >> 6 & 3);
    fill(&drawn, row, x);
}

// ---- field reports

void fill_fr01(const hostile_case *c, int64_t row, float *x)
{
    for (int64_t i = 0; i < c->spec.V; i++) {
        uint32_t nan = c->a == 0   ? 0x7FC00000
                       : c->a == 1 ? (i & 1 ? 0x7FC00000 : 0xFFC00000)
                                   : (i & 1 ? 0x7F800001 : 0xFFFFFFFF);
        x[i] = row == 0 ? -INFINITY : from_bits(nan);
    }
    x[0] = 0.5f;
}

void expect_fr01(const hostile_case *c, int64_t row, hostile_expected *e)
{
    const float first[] = {1.0f, 0.0f, 0.5f}, rest[] = {0.0f, -INFINITY, -INFINITY}; // prob, logprob, logit
    e->count = c->spec.K;
    e->has_lse = c->spec.lse;
    e->lse = row == 0 ? 0.5f : NAN;
    for (int64_t k = 0; k < c->spec.K; k++) {
        e->index[k] = row == 0 ? k : (k + 1) % c->spec.V;
        if (row == 0)
            e->value[k] = k == 0 ? first[c->spec.value] : rest[c->spec.value];
        else
            e->value[k] = c->spec.value == QUERN_VALUE_LOGIT && e->index[k] == 0 ? 0.5f : NAN;
    }
}

void fill_fr02(const hostile_case *c, int64_t row, float *x)
{
    for (int64_t i = 0; i < c->spec.V; i++)
        x[i] =
            (float)((double)(uint32_t)((uint64_t)i * 2654435761u + (uint64_t)row * 40503u) / 4294967296.0 * 16.0 - 8.0);
}

void fill_fr03(const hostile_case *c, int64_t row, float *x)
{
    (void)row;
    for (int64_t i = 0; i < c->spec.V; i++) {
        x[i] = (float)(i % 7) * 0.25f;
        if (c->a == 2 || (c->a == 1 && i < c->spec.V / 2)) x[i] = -INFINITY;
    }
    if (c->a == 2) x[c->spec.V - 1] = 3.0f;
}

void expect_fr03_last(const hostile_case *c, int64_t row, hostile_expected *e)
{
    (void)row;
    e->count = c->spec.K;
    e->has_lse = c->spec.lse;
    e->lse = 3.0f;
    for (int64_t k = 0; k < c->spec.K; k++) {
        e->index[k] = k == 0 ? c->spec.V - 1 : k - 1;
        e->value[k] = k == 0 ? 1.0f : 0.0f;
    }
}

// V = 1. The only element is p.
void expect_fr03_single(const hostile_case *c, int64_t row, hostile_expected *e)
{
    (void)row;
    e->count = 1;
    e->index[0] = 0;
    e->value[0] = !isfinite(c->p) ? NAN : c->spec.value == QUERN_VALUE_PROB ? 1.0f : 0.0f;
    e->has_lse = c->spec.lse;
    e->lse = c->p;
}

void fill_fr04(const hostile_case *c, int64_t row, float *x)
{
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = (float)(i % 97 + row % c->period);
}

void expect_fr04(const hostile_case *c, int64_t row, hostile_expected *e)
{
    e->count = c->spec.K;
    for (int64_t k = 0; k < c->spec.K; k++) {
        e->index[k] = 96 + 97 * k;
        e->value[k] = (float)(96 + row % c->period);
    }
}

void fill_fr05(const hostile_case *c, int64_t row, float *x)
{
    (void)row;
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = i == c->a || i == c->b ? c->p : 0.0f;
}

void expect_fr05(const hostile_case *c, int64_t row, hostile_expected *e)
{
    (void)row;
    e->count = c->spec.K;
    e->index[0] = c->a, e->index[1] = c->b;
    e->value[0] = e->value[1] = c->spec.V == 512 ? 0.49999993f : 0.49998329f;
}

void fill_fr05_zeros(const hostile_case *c, int64_t row, float *x)
{
    (void)row;
    for (int64_t i = 0; i < c->spec.V; i++) x[i] = i == 7 ? 0.0f : -0.0f;
}

void expect_fr05_zeros(const hostile_case *c, int64_t row, hostile_expected *e)
{
    (void)row;
    e->count = c->spec.K;
    for (int64_t k = 0; k < c->spec.K; k++) {
        e->index[k] = k;
        e->value[k] = 1.0f / (float)c->spec.V;
    }
}
