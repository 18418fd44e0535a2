// SPDX-License-Identifier: Apache-2.0
// The list of hostile cases of gate and their content: patterns × base specs, field reports, layouts, a pairwise-like set
// of features, and drawn cases. Specs are few on purpose: each costs a compile for every variant; data cost nothing.
#include "support/hostile_gate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/family.h"
#include "reference/reference.h"
#include "support/hostile_fill.h"

enum { MODEL_GPU = HOSTILE_MODEL | HOSTILE_GPU };

// ---- logits

static void fill_gate_normal(const gate_case *c, int64_t token, float *x)
{
    for (int64_t e = 0; e < c->spec.E; e++)
        x[e] = c->q + c->p * hostile_normal(c->seed + (uint64_t)token * 7919, (uint64_t)e);
}

static void fill_gate_equal(const gate_case *c, int64_t token, float *x)
{
    (void)token;
    for (int64_t e = 0; e < c->spec.E; e++) x[e] = c->p;
}

// Multiples of p: ties by the dozen.
static void fill_gate_steps(const gate_case *c, int64_t token, float *x)
{
    fill_gate_normal(c, token, x);
    for (int64_t e = 0; e < c->spec.E; e++) x[e] = rintf(x[e] / c->p) * c->p;
}

// A line from -p to p through the experts, down in every second token.
static void fill_gate_line(const gate_case *c, int64_t token, float *x)
{
    for (int64_t e = 0; e < c->spec.E; e++) {
        int64_t i = token % 2 ? c->spec.E - 1 - e : e;
        x[e] = c->spec.E > 1 ? c->p * (2.0f * (float)i / (float)(c->spec.E - 1) - 1.0f) : c->p;
    }
}

// One logit in q of any odd kind: NaN of either sign, infinities, zeros, subnormals, the largest.
static void fill_gate_odd(const gate_case *c, int64_t token, float *x)
{
    static const float odd[] = {NAN,    -NAN,    INFINITY, -INFINITY, 0.0f,  -0.0f,
                                1e-45f, -1e-45f, 3e38f,    -3e38f,    89.0f, -104.0f};
    fill_gate_normal(c, token, x);
    for (int64_t e = 0; e < c->spec.E; e++) {
        uint64_t r = hostile_mix(c->seed ^ 0x0DD, (uint64_t)(token * c->spec.E + e));
        if (r % 256 < (uint64_t)c->q) x[e] = odd[r / 256 % (token % 3 == 0 ? 2 : token % 3 == 1 ? 4 : 12)];
    }
}

// q numbers among NaNs.
static void fill_gate_few(const gate_case *c, int64_t token, float *x)
{
    fill_gate_normal(c, token, x);
    for (int64_t e = 0; e < c->spec.E; e++)
        if ((e * 37 + token) % c->spec.E >= (int64_t)c->q) x[e] = NAN;
}

static void fill_gate_bits(const gate_case *c, int64_t token, float *x)
{
    for (int64_t e = 0; e < c->spec.E; e++) {
        uint32_t bits = (uint32_t)hostile_mix(c->seed + 1, (uint64_t)(token * c->spec.E + e));
        if (c->spec.in == QUERN_BF16) bits &= 0xFFFF0000u;
        memcpy(&x[e], &bits, 4);
    }
}

// Two neighbours of f32 round about p, in turn: activations that tie or differ in their last place.
static void fill_gate_neighbours(const gate_case *c, int64_t token, float *x)
{
    for (int64_t e = 0; e < c->spec.E; e++) {
        x[e] = c->p;
        for (uint64_t i = hostile_mix(c->seed, (uint64_t)(token * c->spec.E + e)) % 8; i > 0; i--)
            x[e] = nextafterf(x[e], 1e9f);
    }
}

// Every number of a 16-bit type in turn; of f32 every p-th, which is odd.
static void fill_gate_every(const gate_case *c, int64_t token, float *x)
{
    for (int64_t e = 0; e < c->spec.E; e++) {
        uint32_t i = (uint32_t)(token * c->spec.E + e), bits = c->spec.in == QUERN_BF16 ? i << 16 : i * (uint32_t)c->p;
        memcpy(&x[e], &bits, 4);
        if (c->spec.in == QUERN_F16) x[e] = qn_f16_to_f32((uint16_t)i);
    }
}

// ---- biases

static void bias_normal(const gate_case *c, float *bias)
{
    for (int64_t e = 0; e < c->spec.E; e++) bias[e] = 0.1f * hostile_normal(c->seed ^ 0xB1A5, (uint64_t)e);
}

static void bias_far(const gate_case *c, float *bias)
{
    bias_normal(c, bias);
    for (int64_t e = 0; e < c->spec.E; e++) bias[e] -= 1000.0f;
}

// -inf, NaN, +inf and huge ones among ordinary ones.
static void bias_odd(const gate_case *c, float *bias)
{
    static const float odd[] = {-INFINITY, NAN, -3e38f, 1e30f, INFINITY, -0.0f};
    bias_normal(c, bias);
    for (int64_t e = 0; e < c->spec.E; e++) {
        uint64_t r = hostile_mix(c->seed ^ 0x0DDB, (uint64_t)e);
        if (r % 8 == 0) bias[e] = odd[r / 8 % 6];
    }
}

static void bias_all_but_few(const gate_case *c, float *bias)
{
    for (int64_t e = 0; e < c->spec.E; e++) bias[e] = e % 17 == 3 ? 0.25f : -INFINITY;
}

// ---- field reports

static void fill_fr06(const gate_case *c, int64_t token, float *x)
{
    (void)token;
    for (int64_t e = 0; e < c->spec.E; e++) x[e] = e == 8 || e == 9 ? 0.1f : 0.0f;
}

static void bias_fr06(const gate_case *c, float *bias)
{
    static const float of_group[] = {-1.0f, -1.25f, -1.0f, -1.5f};
    for (int64_t e = 0; e < c->spec.E; e++) bias[e] = c->q == 1.0f && e >= 12 ? -INFINITY : of_group[e / 4] + c->p;
}

static void bias_fr07(const gate_case *c, float *bias)
{
    for (int64_t e = 0; e < c->spec.E; e++) bias[e] = 6.8125f + (float)(37 * e % 256) / 1024.0f;
}

static const gate_expected fr06 = {4, {8, 9, 0, 1}, {0.6402315f, 0.6402315f, 0.6097685f, 0.6097685f}};
#define FR07_IDS                                                                                                       \
    {                                                                                                                  \
        83, 166, 249, 76, 159, 242, 69, 152                                                                            \
    }
static const gate_expected fr07 = {8, FR07_IDS, {0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f}};
static const gate_expected fr07_raw = {8, FR07_IDS, {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f}};
static const gate_expected fr08 = {8, FR07_IDS, {0, 0, 0, 0, 0, 0, 0, 0}};
static const gate_expected fr08_subnormal = {
    8, FR07_IDS, {0.3125f, 0.3125f, 0.3125f, 0.3125f, 0.3125f, 0.3125f, 0.3125f, 0.3125f}};
#define SIXTH 0.16666667f
static const gate_expected sixths = {6, {0, 1, 2, 3, 4, 5}, {SIXTH, SIXTH, SIXTH, SIXTH, SIXTH, SIXTH}};
static const gate_expected no_softmax = {4, {0, 1, 2, 3}, {NAN, NAN, NAN, NAN}};

// ---- the list

typedef struct list {
    gate_case *item;
    size_t count, capacity;
} list;

// Adds a case with the spec's text; a spec that is refused is a fault of the list.
__attribute__((format(printf, 4, 5))) static void add(list *l, gate_case c, const char *text, const char *format, ...)
{
    quern_any_spec spec;
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 256;
        l->item = realloc(l->item, l->capacity * sizeof *l->item);
        if (!l->item) abort();
    }
    va_list rest;
    va_start(rest, format);
    vsnprintf(c.name, sizeof c.name, format, rest);
    va_end(rest);
    if (text) {
        if (quern_spec_parse(text, &spec) != QUERN_OK) {
            fprintf(stderr, "gate case %s: %s\n", c.name, quern_message());
            abort();
        }
        memcpy(&c.spec, &spec, sizeof c.spec);
    }
    if (quern_spec_format(&c.spec.base, c.text, sizeof c.text) != QUERN_OK) abort();
    l->item[l->count++] = c;
}

static const struct {
    const char *name;
    gate_fill fill;
    gate_fill_bias bias;
    float p, q;
} patterns[] = {
    {"normal", fill_gate_normal, bias_normal, 1.7f, 0},
    {"narrow", fill_gate_normal, bias_normal, 1e-3f, 0.5f},
    {"wide", fill_gate_normal, bias_normal, 40, 0},
    {"low", fill_gate_normal, bias_normal, 3, -30},
    {"very_low", fill_gate_normal, bias_normal, 10, -150},
    {"high", fill_gate_normal, bias_normal, 2, 25},
    {"all_zero", fill_gate_equal, bias_normal, 0, 0},
    {"all_equal_low", fill_gate_equal, bias_normal, -95, 0},
    {"all_nan", fill_gate_equal, bias_normal, NAN, 0},
    {"all_inf", fill_gate_equal, bias_normal, INFINITY, 0},
    {"all_minus_inf", fill_gate_equal, bias_normal, -INFINITY, 0},
    {"steps", fill_gate_steps, bias_normal, 0.5f, 0},
    {"line", fill_gate_line, bias_normal, 8, 0},
    {"far_line", fill_gate_line, bias_normal, 300, 0},
    {"odd_few", fill_gate_odd, bias_normal, 1.7f, 4},
    {"odd_many", fill_gate_odd, bias_normal, 1.7f, 120},
    {"one_number", fill_gate_few, bias_normal, 1.7f, 1},
    {"five_numbers", fill_gate_few, bias_normal, 1.7f, 5},
    {"bits", fill_gate_bits, bias_normal, 0, 0},
    {"neighbours", fill_gate_neighbours, bias_normal, 1, 0},
    {"neighbours_low", fill_gate_neighbours, bias_normal, -20, 0},
    {"bias_far", fill_gate_normal, bias_far, 1.7f, 0},
    {"bias_odd", fill_gate_normal, bias_odd, 1.7f, 0},
    {"bias_and_logits_odd", fill_gate_odd, bias_odd, 1.7f, 40},
    {"bias_all_but_few", fill_gate_normal, bias_all_but_few, 1.7f, 0},
    {"bias_all_but_few_ties", fill_gate_steps, bias_all_but_few, 1, 0},
};

static const struct {
    const char *name, *text;
    unsigned tags;
    int64_t N;
} bases[] = {
    {"m0", "gate E=256 K=6 in=f32 bias=1", MODEL_GPU | HOSTILE_QUICK, 9},
    {"m1", "gate E=256 K=8 in=f32 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5", MODEL_GPU | HOSTILE_QUICK, 9},
    {"m2", "gate E=60 K=4 in=bf16 act=softmax renormalize=0", MODEL_GPU | HOSTILE_QUICK, 7},
    {"m3", "gate E=385 K=32 in=f16 act=sigmoid bias=1 index=i64", MODEL_GPU, 5},
    {"m4", "gate E=48 K=9 in=f32 bias=1 n_group=6 topk_group=3", MODEL_GPU, 5},
    {"m5", "gate E=7 K=7 in=f32 act=softmax bias=1", MODEL_GPU, 5},
    {"g0", "gate E=384 K=6 in=f32 bias=1", HOSTILE_GPU, 257},
    {"g1", "gate E=1024 K=32 in=f32 act=softmax bias=1", HOSTILE_GPU, 33},
    {"g2", "gate E=1024 K=16 in=bf16 bias=1 n_group=1024 topk_group=40", HOSTILE_GPU, 9},
    {"g3", "gate E=512 K=22 in=f16 act=softmax bias=1 n_group=16 topk_group=5", HOSTILE_GPU, 65},
    {"g4", "gate E=128 K=1 in=bf16", HOSTILE_GPU, 100},
    {"g5", "gate E=256 K=8 in=f32 bias=1", HOSTILE_GPU, 1025},
    {"g6", "gate E=256 K=8 in=bf16 act=sigmoid bias=1 n_group=4 topk_group=2", HOSTILE_GPU, 130},
    {"g7", "gate E=96 K=12 in=f32 act=sigmoid bias=1 n_group=32 topk_group=7", HOSTILE_GPU, 70},
};

bool gate_pattern(size_t index, const quern_gate_spec *spec, int64_t N, gate_case *c)
{
    if (index >= QN_COUNT(patterns)) return false;
    *c = (gate_case){.tags = HOSTILE_GPU, .spec = *spec, .N = N, .seed = index, .fill = patterns[index].fill};
    c->fill_bias = patterns[index].bias, c->p = patterns[index].p, c->q = patterns[index].q;
    snprintf(c->name, sizeof c->name, "%s", patterns[index].name);
    if (quern_spec_format(&spec->base, c->text, sizeof c->text) != QUERN_OK) c->text[0] = 0;
    return true;
}

static void add_patterns(list *l)
{
    for (size_t b = 0; b < QN_COUNT(bases); b++) {
        for (size_t i = 0; i < QN_COUNT(patterns); i++) {
            gate_case c = {.tags = bases[b].tags, .N = bases[b].N, .seed = 1000 * b + i, .fill = patterns[i].fill};
            c.fill_bias = patterns[i].bias, c.p = patterns[i].p, c.q = patterns[i].q;
            add(l, c, bases[b].text, "%s_%s", bases[b].name, patterns[i].name);
        }
    }
}

static void add_field_reports(list *l)
{
    static const char *const in[] = {"f32", "f16", "bf16"};
    const gate_case c6 = {.tags = MODEL_GPU, .N = 3, .fill = fill_fr06, .fill_bias = bias_fr06, .expected = &fr06};
    gate_case c = c6;
    add(l, c, "gate E=16 K=4 in=f32 act=sigmoid bias=1 n_group=4 topk_group=2 scale=2.5", "fr06");
    c.p = -1000, c.expected = NULL;
    add(l, c, "gate E=16 K=4 in=f32 act=sigmoid bias=1 n_group=4 topk_group=2 scale=2.5", "fr06_far");
    c.p = 0, c.q = 1;
    add(l, c, "gate E=16 K=14 in=f32 act=sigmoid bias=1 n_group=4 topk_group=4", "fr06_minus_inf");
    for (size_t i = 0; i < QN_COUNT(in); i++) {
        char text[128];
        gate_case r = {.tags = MODEL_GPU, .N = 3, .fill = fill_gate_equal, .fill_bias = bias_fr07, .expected = &fr07};
        snprintf(text, sizeof text, "gate E=256 K=8 in=%s act=sigmoid bias=1", in[i]);
        add(l, r, text, "fr07_%s", in[i]);
        r.expected = &fr07_raw;
        snprintf(text, sizeof text, "gate E=256 K=8 in=%s act=sigmoid bias=1 renormalize=0", in[i]);
        add(l, r, text, "fr07_raw_%s", in[i]);
        r.expected = &fr08, r.p = -120;
        snprintf(text, sizeof text, "gate E=256 K=8 in=%s act=sigmoid bias=1 scale=2.5", in[i]);
        add(l, r, text, "fr08_%s", in[i]);
        r.expected = &fr08_subnormal, r.p = -95;
        add(l, r, text, "fr08_subnormal_%s", in[i]);
    }
    gate_case s = {.tags = MODEL_GPU, .N = 3, .fill = fill_gate_equal, .p = -90, .expected = &sixths};
    add(l, s, "gate E=64 K=6 in=f32", "sixths_90");
    s.p = -100;
    add(l, s, "gate E=64 K=6 in=f32", "sixths_100");
    gate_case n = {.tags = MODEL_GPU,
                   .N = 3,
                   .fill = fill_gate_few,
                   .fill_bias = bias_normal,
                   .p = 1,
                   .q = 15,
                   .expected = &no_softmax};
    add(l, n, "gate E=16 K=4 in=f32 act=softmax bias=1 n_group=4 topk_group=2", "no_softmax");
}

static void add_layouts(list *l)
{
    static const char *const texts[] = {"gate E=255 K=6 in=f32 bias=1", "gate E=100 K=5 in=bf16 act=sigmoid bias=1",
                                        "gate E=64 K=8 in=f16 bias=1 n_group=8 topk_group=3 index=i64",
                                        "gate E=40 K=3 in=f32 act=softmax given_ids=1"};
    for (size_t t = 0; t < QN_COUNT(texts); t++) {
        for (int layout = 0; layout < 4; layout++) {
            gate_case c = {
                .tags = MODEL_GPU, .N = 6, .fill = fill_gate_normal, .fill_bias = bias_normal, .p = 1.7f, .seed = t};
            c.offset = layout % 2 ? 1 + (int64_t)t : 0;
            if (layout >= 2)
                c.logits_stride = 264 + layout % 2, c.given_stride = 5, c.weights_stride = 11, c.ids_stride = 9;
            add(l, c, texts[t], "layout_%zu_%d", t, layout);
        }
    }
}

static void add_given(list *l)
{
    static const char *const acts[] = {"sqrt_softplus", "sigmoid", "softmax"};
    for (int a = 0; a < 3; a++) {
        for (int raw = 0; raw < 2; raw++) {
            char text[128];
            gate_case c = {
                .tags = MODEL_GPU, .N = 11, .fill = raw ? fill_gate_odd : fill_gate_normal, .p = 1.7f, .seed = 7};
            c.q = raw ? 10 : 0;
            snprintf(text, sizeof text, "gate E=200 K=6 in=%s act=%s given_ids=1 renormalize=%d scale=1.5",
                     raw ? "bf16" : "f32", acts[a], !raw);
            add(l, c, text, "given_%s_%d", acts[a], raw);
        }
    }
}

// The activation of every f16 and bf16 and of many f32, one at a time.
static void add_every_number(list *l)
{
    static const char *const acts[] = {"sqrt_softplus", "sigmoid"}, *const in[] = {"f16", "bf16", "f32"};
    for (size_t i = 0; i < 2 * 3; i++) {
        char text[128];
        gate_case c = {.tags = MODEL_GPU,
                       .N = i % 3 < 2 ? 2048 : 8192,
                       .fill = fill_gate_every,
                       .p = 16411,
                       .given_in_turn = true};
        snprintf(text, sizeof text, "gate E=32 K=32 in=%s act=%s renormalize=0 given_ids=1", in[i % 3], acts[i / 3]);
        add(l, c, text, "every_%s_%s", in[i % 3], acts[i / 3]);
    }
}

// Sizes at the edges of warps and vectors.
static void add_sizes(list *l)
{
    static const int edges[] = {1,   2,   3,   31,  32,  33,  63,  65,  127,  129,
                                160, 192, 320, 511, 513, 640, 767, 896, 1000, 1023};
    for (size_t i = 0; i < QN_COUNT(edges); i++) {
        char text[128];
        int E = edges[i], K = E < 8 ? E : i % 3 == 0 ? 8 : i % 3 == 1 ? 6 : E < 32 ? E : 32;
        gate_case c = {.tags = HOSTILE_GPU, .N = 37, .fill = i % 2 ? fill_gate_steps : fill_gate_normal, .seed = i};
        c.fill_bias = bias_normal, c.p = i % 2 ? 0.25f : 1.7f;
        if (E <= 33) c.tags |= HOSTILE_MODEL;
        snprintf(text, sizeof text, "gate E=%d K=%d in=%s act=%s bias=1", E, K, i % 2 ? "bf16" : "f32",
                 i % 3 == 0   ? "sqrt_softplus"
                 : i % 3 == 1 ? "sigmoid"
                              : "softmax");
        add(l, c, text, "size_%d", E);
    }
    gate_case none = {.tags = MODEL_GPU, .N = 0, .fill = fill_gate_normal, .fill_bias = bias_normal};
    add(l, none, "gate E=256 K=6 in=f32 bias=1", "no_tokens");
    gate_case many = {
        .tags = HOSTILE_GPU, .N = 20011, .fill = fill_gate_normal, .fill_bias = bias_normal, .p = 1.7f, .seed = 3};
    add(l, many, "gate E=256 K=6 in=f32 bias=1", "many_256");
    add(l, many, "gate E=384 K=6 in=f32 bias=1", "many_384");
    add(l, many, "gate E=256 K=8 in=f32 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5", "many_grouped");
    many.N = 5000, many.fill = fill_gate_steps, many.p = 0.5f;
    add(l, many, "gate E=256 K=6 in=f32 bias=1", "many_steps");
}

gate_case gate_draw(uint64_t seed)
{
    uint64_t at = 0;
#define DRAW(n) (int64_t)(hostile_mix(seed, at++) % (uint64_t)(n))
    gate_case c = {.tags = HOSTILE_GPU, .seed = seed};
    quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
    int64_t most_size = DRAW(3) ? 32 : 3, size = 1 + DRAW(most_size), groups = DRAW(2) ? 1 : 1 + DRAW(12);
    spec.n_group = groups, spec.topk_group = 1 + DRAW(groups),
    spec.E = size * groups * (groups == 1 ? 1 + DRAW(20) : 1);
    int64_t most = spec.E / groups * spec.topk_group;
    spec.K = 1 + DRAW(most < 32 ? most : 32);
    spec.in = (quern_dtype)(QUERN_F32 + DRAW(3)), spec.act = (quern_act)DRAW(3), spec.bias = (int)DRAW(2);
    spec.renormalize = DRAW(4) != 0, spec.scale = DRAW(2) ? 1.0 : 2.5, spec.index = DRAW(3) ? QUERN_I32 : QUERN_I64;
    spec.given_ids = DRAW(8) == 0;
    c.spec = spec, c.N = 1 + DRAW(40), c.offset = DRAW(3) ? 0 : DRAW(9);
    c.logits_stride = DRAW(3) ? 0 : spec.E + DRAW(9), c.weights_stride = DRAW(3) ? 0 : spec.K + DRAW(5);
    size_t pattern = (size_t)DRAW(QN_COUNT(patterns));
    c.fill = patterns[pattern].fill, c.fill_bias = patterns[pattern].bias, c.p = patterns[pattern].p,
    c.q = patterns[pattern].q;
#undef DRAW
    return c;
}

static void add_drawn(list *l)
{
    const char *text = getenv("QUERN_TEST_SEED");
    uint64_t first = text && *text ? strtoull(text, NULL, 10) : 1;
    for (uint64_t i = 0; i < 40; i++) {
        gate_case c = gate_draw(first + i);
        if (i < 12) c.tags |= HOSTILE_MODEL;
        add(l, c, NULL, "drawn_%llu", (unsigned long long)(first + i));
    }
}

const gate_case *gate_cases(size_t *count)
{
    static list l;
    if (!l.item) {
        add_patterns(&l);
        add_field_reports(&l);
        add_layouts(&l);
        add_given(&l);
        add_every_number(&l);
        add_sizes(&l);
        add_drawn(&l);
    }
    *count = l.count;
    return l.item;
}

bool gate_wanted(const gate_case *c, unsigned tag)
{
    const char *name = getenv("QUERN_TEST_CASE");
    return (c->tags & tag) && (!name || !*name || strstr(c->name, name));
}
