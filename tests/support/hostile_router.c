// SPDX-License-Identifier: Apache-2.0
// The list of hostile cases of router and their content: patterns × base specs, numbers of tokens × base specs, field
// reports, layouts, shapes at edges. Specs are few on purpose: each costs compiles; data cost nothing.
#include "support/hostile_router.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/family.h"
#include "quern/npy.h"
#include "reference/reference.h"
#include "support/again.h"
#include "support/hostile_fill.h"

enum { MODEL_GPU = HOSTILE_MODEL | HOSTILE_GPU };

// ---- rows of x

static void x_normal(const router_case *c, int64_t token, float *x)
{
    for (int64_t d = 0; d < c->spec.D; d++) x[d] = hostile_normal(c->seed + (uint64_t)token * 7919, (uint64_t)d);
}

static void x_zero(const router_case *c, int64_t token, float *x)
{
    for (int64_t d = 0; d < c->spec.D; d++) x[d] = (d + token) % 2 ? 0.0f : -0.0f;
}

// Whole numbers from -2 to 2: sums are exact, and tie by the dozen.
static void x_whole(const router_case *c, int64_t token, float *x)
{
    for (int64_t d = 0; d < c->spec.D; d++)
        x[d] = (float)(hostile_mix(c->seed + (uint64_t)token * 31, (uint64_t)d) % 5) - 2.0f;
}

// Some tokens with a NaN, an infinity of either sign, both, or the largest number in one place.
static void x_odd(const router_case *c, int64_t token, float *x)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -0.0f, 1e-45f};
    x_normal(c, token, x);
    uint64_t r = hostile_mix(c->seed ^ 0x0DD, (uint64_t)token);
    if (token % 3 == 1) x[r % (uint64_t)c->spec.D] = odd[r / 65536 % 6];
    if (token % 9 == 4) x[(r + 3) % (uint64_t)c->spec.D] = odd[r / 1048576 % 3];
}

// Every NaN there is, among them the bits that mean "not there yet" to the kernels.
static void x_all_bits_set(const router_case *c, int64_t token, float *x)
{
    uint32_t bits = 0xFFFFFFFFu;
    for (int64_t d = 0; d < c->spec.D; d++) memcpy(&x[d], &bits, 4);
    if (token % 2) x_normal(c, token, x);
}

static void x_one_hot(const router_case *c, int64_t token, float *x)
{
    for (int64_t d = 0; d < c->spec.D; d++) x[d] = d == token * 37 % c->spec.D ? 1.0f : 0.0f;
}

// Large numbers that cancel in pairs far apart, and a small rest.
static void x_cancel(const router_case *c, int64_t token, float *x)
{
    for (int64_t d = 0; d < c->spec.D; d++) {
        int64_t half = c->spec.D / 2, at = d % half;
        float big = 1000.0f * (1.0f + (float)((at * 7 + token) % 5));
        x[d] = d < half ? big : d < 2 * half ? -big : 0.0f;
        if (d == token % c->spec.D) x[d] += 1.0f;
    }
}

// The real thing: hidden states of a language model, 64 tokens of 576.
static void x_real(const router_case *c, int64_t token, float *x)
{
    static npy_array real;
    char file[600];
    snprintf(file, sizeof file, "%s/tests/data/hidden_64x576.bf16.npy", test_source());
    if (!real.data && npy_read(file, &real) != QUERN_OK) {
        fprintf(stderr, "%s\n", quern_message());
        abort();
    }
    const uint16_t *row = (const uint16_t *)real.data + token % 64 * 576;
    for (int64_t d = 0; d < c->spec.D; d++) x[d] = qn_bf16_to_f32(row[d]);
}

static void x_fr09(const router_case *c, int64_t token, float *x)
{
    (void)token;
    for (int64_t d = 0; d < c->spec.D; d++) x[d] = d < 2 ? 1.0f : 0.0f;
}

// ---- rows of w

static void w_normal(const router_case *c, int64_t expert, float *w)
{
    float size = 2.0f / sqrtf((float)c->spec.D);
    for (int64_t d = 0; d < c->spec.D; d++)
        w[d] = size * hostile_normal(c->seed * 3 + 77 + (uint64_t)expert * 104729, (uint64_t)d);
}

static void w_whole(const router_case *c, int64_t expert, float *w)
{
    for (int64_t d = 0; d < c->spec.D; d++)
        w[d] = (float)(hostile_mix(c->seed * 3 + (uint64_t)expert * 41, (uint64_t)d) % 3) - 1.0f;
}

static void w_same(const router_case *c, int64_t expert, float *w)
{
    (void)expert;
    w_normal(c, 0, w);
}

// Some experts with a NaN or an infinity.
static void w_odd(const router_case *c, int64_t expert, float *w)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    w_normal(c, expert, w);
    if (expert % 7 == 3) w[expert % c->spec.D] = odd[expert / 7 % 3];
}

// p times as large: sums beyond what f32 holds, or far below its normal range.
static void w_scaled(const router_case *c, int64_t expert, float *w)
{
    w_normal(c, expert, w);
    for (int64_t d = 0; d < c->spec.D; d++) w[d] *= c->p;
}

static void w_fr09(const router_case *c, int64_t expert, float *w)
{
    memset(w, 0, (size_t)c->spec.D * sizeof *w);
    w[0] = -16.0f, w[1] = (float)expert / 1024.0f;
}

static void w_fr10(const router_case *c, int64_t expert, float *w)
{
    int64_t E = c->spec.E, q = 37 * expert % E - E; // -E … -1
    memset(w, 0, (size_t)c->spec.D * sizeof *w);
    w[0] = floorf((float)q / 16.0f), w[1] = (float)(q - 16 * (int64_t)w[0]) / 16.0f;
}

static void w_fr06(const router_case *c, int64_t expert, float *w)
{
    memset(w, 0, (size_t)c->spec.D * sizeof *w);
    w[0] = expert == 8 || expert == 9 ? 0.1f : 0.0f;
}

// ---- biases

static void bias_normal(const router_case *c, float *bias)
{
    for (int64_t e = 0; e < c->spec.E; e++) bias[e] = 0.1f * hostile_normal(c->seed ^ 0xB1A5, (uint64_t)e);
}

static void bias_negative(const router_case *c, float *bias)
{
    bias_normal(c, bias);
    for (int64_t e = 0; e < c->spec.E; e++) bias[e] -= e % 5 == 4 ? INFINITY : 1000.0f;
}

static void bias_fr06(const router_case *c, float *bias)
{
    static const float of_group[] = {-1.0f, -1.25f, -1.0f, -1.5f};
    for (int64_t e = 0; e < c->spec.E; e++) bias[e] = of_group[e / 4];
}

// ---- the list

typedef struct list {
    router_case *item;
    size_t count, capacity;
} list;

// Adds a case with the spec's text; a spec that is refused is a fault of the list.
__attribute__((format(printf, 4, 5))) static void add(list *l, router_case c, const char *text, const char *format, ...)
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
    if (quern_spec_parse(text, &spec) != QUERN_OK) {
        fprintf(stderr, "router case %s: %s\n", c.name, quern_message());
        abort();
    }
    memcpy(&c.spec, &spec, sizeof c.spec);
    c.spec.logits = 1;
    if (!c.fill_bias) c.fill_bias = bias_normal;
    if (quern_spec_format(&c.spec.base, c.text, sizeof c.text) != QUERN_OK) abort();
    l->item[l->count++] = c;
}

static const struct {
    const char *name;
    router_fill x, w;
    router_fill_bias bias;
    float p;
} patterns[] = {
    {"normal", x_normal, w_normal, bias_normal, 0},
    {"zero", x_zero, w_normal, bias_normal, 0},
    {"whole", x_whole, w_whole, bias_normal, 0},
    {"all_equal", x_normal, w_same, bias_normal, 0},
    {"odd_x", x_odd, w_normal, bias_normal, 0},
    {"odd_w", x_normal, w_odd, bias_normal, 0},
    {"odd", x_odd, w_odd, bias_negative, 0},
    {"all_bits", x_all_bits_set, w_normal, bias_normal, 0},
    {"one_hot", x_one_hot, w_normal, bias_normal, 0},
    {"cancel", x_cancel, w_same, bias_normal, 0},
    {"huge", x_normal, w_scaled, bias_normal, 3e37f},
    {"tiny", x_normal, w_scaled, bias_normal, 1e-38f},
    {"bias_negative", x_normal, w_normal, bias_negative, 0},
};

static const struct {
    const char *name, *text;
    unsigned tags;
    int64_t N; // for the patterns
} bases[] = {
    {"m0", "router D=64 E=60 K=4 in=bf16 w=bf16 bias=1", MODEL_GPU | HOSTILE_QUICK, 6},
    {"m1", "router D=136 E=96 K=6 in=f16 w=f16 act=sigmoid bias=1 n_group=8 topk_group=3 scale=2.5", MODEL_GPU, 9},
    {"m2", "router D=72 E=33 K=5 in=f32 w=f32 act=softmax", MODEL_GPU | HOSTILE_QUICK, 3},
    {"m3", "router D=200 E=64 K=8 in=bf16 w=bf16 w_layout=DE bias=1", MODEL_GPU | HOSTILE_QUICK, 10},
    {"m4", "router D=40 E=10 K=10 in=bf16 w=f32 w_layout=DE act=sigmoid index=i64", MODEL_GPU, 70},
    {"m5", "router D=328 E=48 K=6 in=bf16 w=bf16 batch_invariant=1 bias=1", MODEL_GPU | HOSTILE_QUICK, 66},
    {"m6", "router D=96 E=40 K=6 in=f16 w=f16 act=softmax given_ids=1", MODEL_GPU, 5},
    {"m7", "router D=104 E=30 K=3 in=f32 w=f16 batch_invariant=1", MODEL_GPU, 12},
    {"g0", "router D=7168 E=384 K=6 in=bf16 w=bf16 bias=1", HOSTILE_GPU, 17},
    {"g1", "router D=4096 E=256 K=8 in=bf16 w=bf16 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5", HOSTILE_GPU,
     40},
    {"g2", "router D=2048 E=1024 K=32 in=f16 w=f16 act=softmax bias=1", HOSTILE_GPU, 20},
    {"g3", "router D=2880 E=128 K=4 in=bf16 w=f32 bias=1", HOSTILE_GPU, 33},
    {"g4", "router D=1536 E=161 K=16 in=bf16 w=bf16 w_layout=DE act=softmax", HOSTILE_GPU, 64},
    {"g5", "router D=5120 E=160 K=6 in=bf16 w=bf16 batch_invariant=1", HOSTILE_GPU, 100},
};

bool router_pattern(size_t index, const quern_router_spec *spec, int64_t N, router_case *c)
{
    if (index >= QN_COUNT(patterns)) return false;
    *c = (router_case){.tags = HOSTILE_GPU, .spec = *spec, .N = N, .seed = index, .p = patterns[index].p};
    c->fill_x = patterns[index].x, c->fill_w = patterns[index].w, c->fill_bias = patterns[index].bias;
    snprintf(c->name, sizeof c->name, "%s", patterns[index].name);
    if (quern_spec_format(&spec->base, c->text, sizeof c->text) != QUERN_OK) c->text[0] = 0;
    return true;
}

static void add_patterns(list *l)
{
    for (size_t b = 0; b < QN_COUNT(bases); b++) {
        for (size_t i = 0; i < QN_COUNT(patterns); i++) {
            router_case c = {.tags = bases[b].tags, .N = bases[b].N, .seed = 1000 * b};
            c.fill_x = patterns[i].x, c.fill_w = patterns[i].w, c.fill_bias = patterns[i].bias, c.p = patterns[i].p;
            add(l, c, bases[b].text, "%s_%s", bases[b].name, patterns[i].name);
        }
    }
}

// Numbers of tokens at the edges of tiles and buckets.
static void add_tokens(list *l)
{
    static const int64_t few[] = {1, 2, 4, 7, 13, 16, 31, 64, 65, 130},
                         many[] = {1, 2, 3, 8, 9, 16, 32, 49, 64, 65, 128, 200, 500, 1000, 1030, 4100, 9000};
    for (size_t b = 0; b < QN_COUNT(bases); b++) {
        bool model = (bases[b].tags & HOSTILE_MODEL) != 0;
        size_t count = model ? QN_COUNT(few) : QN_COUNT(many);
        for (size_t i = 0; i < count; i++) {
            router_case c = {.tags = bases[b].tags & ~(unsigned)HOSTILE_QUICK, .N = model ? few[i] : many[i]};
            if (c.N > 600 && strstr(bases[b].text, "D=2880") == NULL) continue; // for time's sake
            if (model && (few[i] == 1 || few[i] == 16 || few[i] == 65)) c.tags = bases[b].tags;
            c.seed = 1000 * b, c.fill_x = x_normal, c.fill_w = w_normal;
            add(l, c, bases[b].text, "%s_N%lld", bases[b].name, (long long)c.N);
        }
        router_case none = {.tags = MODEL_GPU, .N = 0, .fill_x = x_normal, .fill_w = w_normal};
        add(l, none, bases[b].text, "%s_N0", bases[b].name);
    }
}

#define ANY (-1.0f) // the report gives no weight here
static const gate_expected fr06 = {4, {8, 9, 0, 1}, {0.6402315f, 0.6402315f, 0.6097685f, 0.6097685f}};
#define FR09_IDS                                                                                                       \
    {                                                                                                                  \
        255, 254, 253, 252, 251, 250, 249, 248                                                                         \
    }
static const gate_expected fr09 = {8, FR09_IDS, {0.1254277f, 0.1253052f, 0.1251829f, ANY, ANY, ANY, ANY, 0.1245732f}};
static const gate_expected fr09_root = {
    8, FR09_IDS, {0.1252137f, 0.1251526f, 0.1250915f, ANY, ANY, ANY, ANY, 0.1247865f}};

#define ANYS                                                                                                           \
    {                                                                                                                  \
        ANY, ANY, ANY, ANY, ANY, ANY                                                                                   \
    }
static const struct {
    int E;
    gate_expected expected;
} fr10[] = {
    {60, {6, {47, 34, 21, 8, 55, 42}, ANYS}},        {100, {6, {27, 54, 81, 8, 35, 62}, ANYS}},
    {132, {6, {107, 82, 57, 32, 7, 114}, ANYS}},     {144, {6, {35, 70, 105, 140, 31, 66}, ANYS}},
    {216, {6, {35, 70, 105, 140, 175, 210}, ANYS}},  {384, {6, {83, 166, 249, 332, 31, 114}, ANYS}},
    {576, {6, {467, 358, 249, 140, 31, 498}, ANYS}}, {1000, {6, {27, 54, 81, 108, 135, 162}, ANYS}},
};

static void add_field_reports(list *l)
{
    static const char *const acts[] = {"sigmoid", "softmax", "sqrt_softplus"};
    static const int64_t Ns[] = {1, 2, 7, 8, 16, 17, 63, 64, 65, 128};
    router_case c6 = {.tags = MODEL_GPU, .N = 3, .fill_x = x_fr09, .fill_w = w_fr06, .fill_bias = bias_fr06};
    c6.expected = &fr06;
    add(l, c6, "router D=8 E=16 K=4 in=f32 w=f32 act=sigmoid bias=1 n_group=4 topk_group=2 scale=2.5", "fr06");
    for (size_t a = 0; a < QN_COUNT(acts); a++) {
        for (size_t i = 0; i < QN_COUNT(Ns); i++) {
            for (int across = 0; across < 2; across++) {
                char text[128];
                router_case c = {.tags = HOSTILE_GPU, .N = Ns[i], .fill_x = x_fr09, .fill_w = w_fr09};
                c.expected = a == 2 ? &fr09_root : &fr09;
                if (a == i % 3 && Ns[i] <= 17) c.tags |= HOSTILE_MODEL;
                snprintf(text, sizeof text, "router D=64 E=256 K=8 in=bf16 w=bf16 act=%s w_layout=%s", acts[a],
                         across ? "DE" : "ED");
                add(l, c, text, "fr09_%s_%s_N%lld", acts[a], across ? "DE" : "ED", (long long)Ns[i]);
            }
        }
    }
    for (size_t e = 0; e < QN_COUNT(fr10); e++) {
        static const int64_t N10[] = {1, 64, 65, 4096, 60000};
        for (size_t i = 0; i < QN_COUNT(N10); i++) {
            char text[128];
            router_case c = {.tags = HOSTILE_GPU, .N = N10[i], .fill_x = x_fr09, .fill_w = w_fr10};
            c.expected = &fr10[e].expected;
            if (N10[i] > 5000 && fr10[e].E > 400) continue; // for time's sake
            if (N10[i] == 1 || (N10[i] == 65 && e < 2)) c.tags |= HOSTILE_MODEL;
            snprintf(text, sizeof text, "router D=64 E=%d K=6 in=bf16 w=bf16 act=sigmoid", fr10[e].E);
            add(l, c, text, "fr10_%d_N%lld", fr10[e].E, (long long)N10[i]);
        }
    }
    router_case one = {.tags = MODEL_GPU, .N = 5, .fill_x = x_normal, .fill_w = w_normal};
    add(l, one, "router D=8 E=1 K=1 in=bf16 w=bf16 scale=2.5", "one_expert");
}

static void add_layouts(list *l)
{
    static const char *const texts[] = {
        "router D=88 E=50 K=6 in=bf16 w=bf16 bias=1",  "router D=88 E=50 K=6 in=bf16 w=bf16 bias=1 w_layout=DE",
        "router D=56 E=21 K=5 in=f32 w=f32",           "router D=56 E=21 K=5 in=f16 w=f32 w_layout=DE given_ids=1",
        "router D=72 E=24 K=4 in=f16 w=f16 index=i64", "router D=80 E=36 K=4 in=bf16 w=bf16 batch_invariant=1"};
    static const int64_t N[] = {2, 9, 40, 70};
    for (size_t t = 0; t < QN_COUNT(texts); t++) {
        for (int layout = 1; layout < 4; layout++) {
            for (size_t i = 0; i < QN_COUNT(N); i++) {
                router_case c = {.tags = HOSTILE_GPU, .N = N[i], .fill_x = x_normal, .fill_w = w_normal, .seed = t};
                if (N[i] < 40 || (int)t % 3 + 1 == layout) c.tags |= HOSTILE_MODEL;
                c.offset = layout % 2 ? 1 + (int64_t)t : 0;
                if (layout >= 2) {
                    c.x_stride = 96 + layout % 2, c.w_stride = 104 - layout % 2, c.logits_stride = 57 + layout % 2;
                    c.given_stride = 7, c.weights_stride = 11, c.ids_stride = 9;
                }
                add(l, c, texts[t], "layout_%zu_%d_N%lld", t, layout, (long long)N[i]);
            }
        }
    }
}

// Shapes that are multiples of nothing, one expert, all experts, the most experts; and real inputs.
static void add_shapes(list *l)
{
    static const struct {
        int D, E, K;
        const char *rest;
    } shapes[] = {
        {8, 1, 1, "in=f32 w=f32"},        {8, 2, 2, "in=bf16 w=bf16"},     {16, 3, 3, "in=f16 w=f16 act=softmax"},
        {24, 31, 31, "in=bf16 w=bf16"},   {264, 17, 4, "in=f16 w=f16"},    {1000, 127, 9, "in=bf16 w=bf16"},
        {4104, 385, 8, "in=bf16 w=bf16"}, {512, 1023, 32, "in=f16 w=f16"}, {640, 777, 12, "in=f32 w=bf16"},
        {65536, 8, 2, "in=bf16 w=bf16"},  {65536, 96, 2, "in=f32 w=f32"},  {16384, 512, 10, "in=bf16 w=bf16"},
    };
    static const int64_t N[] = {1, 5, 30, 64, 80};
    static const int real[] = {8, 60, 128, 384};
    for (size_t i = 0; i < QN_COUNT(shapes); i++) {
        for (size_t n = 0; n < QN_COUNT(N); n++) {
            char text[128];
            router_case c = {.tags = HOSTILE_GPU, .N = N[n], .fill_x = x_normal, .fill_w = w_normal, .seed = 70 + i};
            if (shapes[i].D <= 24) c.tags |= HOSTILE_MODEL;
            snprintf(text, sizeof text, "router D=%d E=%d K=%d %s", shapes[i].D, shapes[i].E, shapes[i].K,
                     shapes[i].rest);
            add(l, c, text, "shape_%d_%d_N%lld", shapes[i].D, shapes[i].E, (long long)N[n]);
        }
    }
    for (size_t i = 0; i < QN_COUNT(real); i++) {
        for (int64_t tokens = 1; tokens <= 64; tokens *= 8) {
            char text[128];
            router_case c = {.tags = HOSTILE_GPU, .N = tokens, .fill_x = x_real, .fill_w = w_normal, .seed = 90 + i};
            if (i < 2 && tokens == 8) c.tags |= HOSTILE_MODEL;
            snprintf(text, sizeof text, "router D=576 E=%d K=6 in=bf16 w=%s bias=1", real[i], i % 2 ? "f32" : "bf16");
            add(l, c, text, "real_%d_N%lld", real[i], (long long)tokens);
        }
    }
}

// More blocks of D than a ring has places, and tokens of several tiles: what plans of many tokens are made of. Once with
// inputs that begin at no multiple of 16 bytes.
static void add_rings(list *l)
{
    static const struct {
        const char *name, *text;
        int64_t N, offset;
    } rings[] = {
        {"m_ring", "router D=712 E=40 K=4 in=bf16 w=bf16 bias=1", 150, 0},
        {"m_ring_odd", "router D=712 E=40 K=4 in=f16 w=f16 act=sigmoid", 130, 1},
    };
    for (size_t i = 0; i < QN_COUNT(rings); i++) {
        router_case c = {
            .tags = MODEL_GPU | HOSTILE_QUICK, .N = rings[i].N, .offset = rings[i].offset, .seed = 110 + i};
        c.fill_x = x_normal, c.fill_w = w_normal;
        add(l, c, rings[i].text, "%s", rings[i].name);
    }
}

const router_case *router_cases(size_t *count)
{
    static list l;
    if (!l.item) {
        add_patterns(&l);
        add_tokens(&l);
        add_field_reports(&l);
        add_layouts(&l);
        add_shapes(&l);
        add_rings(&l);
    }
    *count = l.count;
    return l.item;
}

bool router_wanted(const router_case *c, unsigned tag)
{
    const char *name = getenv("QUERN_TEST_CASE");
    return (c->tags & tag) && (!name || !*name || strstr(c->name, name));
}
