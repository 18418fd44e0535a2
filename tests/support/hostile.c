// SPDX-License-Identifier: Apache-2.0
// The list of hostile cases: patterns × base specs, field reports, layouts, sizes at plan boundaries, a pairwise set of
// features, and drawn cases. Specs are few on purpose: each costs a compile for every variant; data cost nothing.
#include "support/hostile.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/family.h"
#include "support/hostile_fill.h"

enum { MODEL_GPU = HOSTILE_MODEL | HOSTILE_GPU };

typedef struct list {
    hostile_case *item;
    size_t count, capacity;
} list;

static quern_softmax_topk_spec spec_of(int64_t V, int64_t K, quern_dtype in)
{
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
    spec.V = V, spec.K = K < V ? K : V, spec.in = in;
    return spec;
}

static void write_text(hostile_case *c)
{
    if (quern_spec_format(&c->spec.base, c->text, sizeof c->text) != QUERN_OK) {
        fprintf(stderr, "hostile case %s: %s\n", c->name, quern_message());
        abort();
    }
}

// Adds a copy of a case under a name.
__attribute__((format(printf, 3, 4))) static void add(list *l, hostile_case c, const char *format, ...)
{
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 512;
        l->item = realloc(l->item, l->capacity * sizeof *l->item);
        if (!l->item) abort();
    }
    va_list rest;
    va_start(rest, format);
    vsnprintf(c.name, sizeof c.name, format, rest);
    va_end(rest);
    write_text(&c);
    l->item[l->count++] = c;
}

// ---- patterns over base specs

typedef struct pattern {
    const char *name;
    hostile_fill fill;
    int64_t a, b;
    float p, q;
} pattern;

// a = -1, -2, -3: K - 1, K, K + 1 of the spec.
static const pattern patterns[] = {
    {"normal", fill_normal, .p = 3},
    {"offset_20", fill_normal, .p = 1, .q = 20},
    {"offset_1e4", fill_normal, .p = 3, .q = 1e4f},
    {"offset_minus_1e4", fill_normal, .p = 0.01f, .q = -1e4f},
    {"narrow", fill_normal, .p = 1e-3f, .q = 1},
    {"wide", fill_normal, .p = 300},
    {"all_zero", fill_equal, .p = 0},
    {"all_equal", fill_equal, .p = -3.25f},
    {"all_nan", fill_equal, .p = NAN},
    {"all_inf", fill_equal, .p = INFINITY},
    {"all_minus_inf", fill_equal, .p = -INFINITY},
    {"two_values_k_less_1", fill_two_values, .a = -1, .p = 2, .q = -1},
    {"two_values_k", fill_two_values, .a = -2, .p = 2, .q = -1},
    {"two_values_k_plus_1", fill_two_values, .a = -3, .p = 2, .q = -1},
    {"two_values_most_above", fill_two_values, .a = 1 << 30, .p = 2, .q = -1},
    {"one_above", fill_two_values, .a = 1, .p = 1, .q = 0},
    {"quantised", fill_quantised, .p = 0.25f},
    {"ascending", fill_ascending, .p = 30},
    {"descending", fill_descending, .p = 30},
    {"ramp_rows", fill_ramp_rows, .p = 30},
    {"periodic_32", fill_periodic, .a = 32},
    {"periodic_512", fill_periodic, .a = 512},
    {"periodic_4096", fill_periodic, .a = 4096},
    {"one_thread_1x256", fill_one_thread, .a = 1, .b = 256},
    {"one_thread_4x512", fill_one_thread, .a = 4, .b = 512},
    {"one_thread_8x256", fill_one_thread, .a = 8, .b = 256},
    {"one_thread_8x512", fill_one_thread, .a = 8, .b = 512},
    {"one_thread_8x1024", fill_one_thread, .a = 8, .b = 1024},
    {"one_warp", fill_one_thread, .a = 256, .b = 16},
    {"one_cta_of_16", fill_one_thread, .a = 8192, .b = 16},
    {"chunk", fill_chunk},
    {"tie_group", fill_tie_group},
    {"finite_k_less_1", fill_finite, .a = -1},
    {"finite_k", fill_finite, .a = -2},
    {"finite_k_plus_1", fill_finite, .a = -3},
    {"finite_1", fill_finite, .a = 1},
    {"numbers_k_less_1_rest_nan", fill_finite, .a = -1, .b = 1},
    {"infinities", fill_infinities},
    {"nan_1", fill_nans, .a = 1, .p = 1},
    {"nan_k_less_1", fill_nans, .a = -1, .p = 1},
    {"nan_k_plus_1", fill_nans, .a = -3, .p = 1},
    {"zeros", fill_zeros},
    {"subnormal", fill_subnormal},
    {"same_prefix", fill_same_prefix},
    {"any_bits", fill_any_bits},
    {"finite_bits", fill_finite_bits},
};

typedef struct base {
    const char *name;
    unsigned tags;
    int64_t V, K;
    quern_dtype in;
    int64_t rows;
    quern_softmax_topk_spec features; // the optional fields
} base;

static const base bases[] = {
    {"m0", MODEL_GPU | HOSTILE_QUICK, 1000, 50, QUERN_F32, 15, {.temperature = 1, .lse = 1, .token = 1}},
    {"m1", MODEL_GPU | HOSTILE_QUICK, 4099, 256, QUERN_BF16, 4, {.lse = 1, .token = 1}},
    {"m2", MODEL_GPU, 515, 515, QUERN_F16, 4, {.value = QUERN_VALUE_LOGPROB, .norm = QUERN_NORM_TOPK, .token = 1}},
    {"m3", MODEL_GPU, 20011, 1024, QUERN_F32, 2, {.lse = 1}},
    {"m4", MODEL_GPU, 8200, 5, QUERN_BF16, 3, {.lse = 1, .token = 1}},
    {"g0", HOSTILE_GPU | HOSTILE_QUICK, 50257, 256, QUERN_BF16, 5, {.lse = 1, .token = 1}},
    {"g1",
     HOSTILE_GPU,
     50257,
     50,
     QUERN_F32,
     17,
     {.value = QUERN_VALUE_LOGPROB, .temperature = 1, .lse = 1, .token = 1}},
    {"g2", HOSTILE_GPU, 8193, 1024, QUERN_F16, 33, {.norm = QUERN_NORM_TOPK, .temperature = 1, .index = QUERN_I64}},
    {"g3", HOSTILE_GPU, 2048, 2048, QUERN_F32, 9, {.lse = 1}},
    {"g4", HOSTILE_GPU, 131072, 2048, QUERN_BF16, 3, {.value = QUERN_VALUE_LOGIT, .lse = 1}},
    {"g5", HOSTILE_GPU, 131071, 8, QUERN_F32, 2, {.batch_invariant = 1}},
    {"g6", HOSTILE_GPU, 128256, 1, QUERN_BF16, 4, {.token = 1}},
    {"g7", HOSTILE_GPU | HOSTILE_QUICK, 3001, 100, QUERN_BF16, 301, {.lse = 1, .token = 1}},
};

static hostile_case case_of_base(const base *b)
{
    hostile_case c = {.tags = b->tags, .spec = spec_of(b->V, b->K, b->in), .rows = b->rows};
    c.spec.value = b->features.value, c.spec.norm = b->features.norm, c.spec.temperature = b->features.temperature;
    c.spec.lse = b->features.lse, c.spec.token = b->features.token;
    c.spec.batch_invariant = b->features.batch_invariant;
    if (b->features.index) c.spec.index = b->features.index;
    return c;
}

static void apply(const pattern *p, hostile_case *c)
{
    c->fill = p->fill, c->a = p->a, c->b = p->b, c->p = p->p, c->q = p->q;
    if (c->a < 0) c->a = c->spec.K - 2 - c->a;
}

bool hostile_pattern(size_t index, const quern_softmax_topk_spec *spec, int64_t rows, hostile_case *c)
{
    if (index >= QN_COUNT(patterns)) return false;
    *c = (hostile_case){.tags = HOSTILE_GPU, .spec = *spec, .rows = rows, .seed = index};
    apply(&patterns[index], c);
    snprintf(c->name, sizeof c->name, "%s", patterns[index].name);
    write_text(c);
    return true;
}

static void add_patterns(list *l)
{
    for (size_t b = 0; b < QN_COUNT(bases); b++) {
        for (size_t i = 0; i < QN_COUNT(patterns); i++) {
            const pattern *p = &patterns[i];
            hostile_case c = case_of_base(&bases[b]);
            apply(p, &c);
            c.seed = 1000 * b + i;
            add(l, c, "%s_%s", bases[b].name, p->name);
        }
    }
}

// ---- field reports

static void add_fr01(list *l)
{
    static const int64_t shapes[][2] = {{5, 3}, {5, 5}, {4099, 3}, {4099, 1024}};
    static const quern_dtype dtypes[] = {QUERN_F32, QUERN_BF16, QUERN_F16};
    for (int shape = 0; shape < 4; shape++)
        for (int d = 0; d < 3; d++)
            for (int nan = 0; nan < 3; nan++) {
                bool model = shape < 2 || d == 0;
                hostile_case c = {.tags = model ? MODEL_GPU : HOSTILE_GPU,
                                  .rows = 2,
                                  .fill = fill_fr01,
                                  .a = nan,
                                  .expect = expect_fr01};
                c.spec = spec_of(shapes[shape][0], shapes[shape][1], dtypes[d]);
                c.spec.lse = 1;
                c.spec.value = shape == 1 ? (quern_value)d : QUERN_VALUE_PROB;
                if (shape == 3 && d == 0) c.tags |= HOSTILE_QUICK;
                add(l, c, "fr01_v%lld_k%lld_%s_nan%d", (long long)c.spec.V, (long long)c.spec.K,
                    qn_dtype_name(c.spec.in), nan);
            }
    for (int value = QUERN_VALUE_LOGPROB; value <= QUERN_VALUE_LOGIT; value++) {
        hostile_case c = {.tags = MODEL_GPU, .rows = 2, .fill = fill_fr01, .a = 1, .expect = expect_fr01};
        c.spec = spec_of(4099, 3, QUERN_F32);
        c.spec.lse = 1, c.spec.value = (quern_value)value;
        add(l, c, "fr01_v4099_k3_%s", value == QUERN_VALUE_LOGIT ? "logit" : "logprob");
    }
}

static void add_fr02(list *l)
{
    static const int64_t Vs[] = {13, 50256, 50257}, offsets[] = {0, 1, 2, 3, 5, 7};
    static const quern_dtype dtypes[] = {QUERN_F32, QUERN_BF16, QUERN_F16};
    for (int v = 0; v < 3; v++)
        for (int d = 0; d < 3; d++)
            for (int o = 0; o < 6; o++)
                for (int s = 0; s < 4; s++) {
                    if (v && d == 2 && o > 1) continue; // f16 and bf16 are alike in where they lie
                    hostile_case c = {.tags = v == 0 ? MODEL_GPU : HOSTILE_GPU, .rows = 7, .fill = fill_fr02};
                    c.spec = spec_of(Vs[v], 50, dtypes[d]);
                    c.logits_stride = s == 3 && v ? 50264 : Vs[v] + s;
                    c.values_stride = s == 1 ? c.spec.K + 1 : 0, c.indices_stride = s == 2 ? c.spec.K + 3 : 0;
                    c.logits_offset = offsets[o], c.values_offset = c.indices_offset = o % 2;
                    if (d == 1 && o < 3) c.tags |= HOSTILE_QUICK;
                    add(l, c, "fr02_v%lld_%s_base%lld_stride%lld", (long long)Vs[v], qn_dtype_name(dtypes[d]),
                        (long long)offsets[o], (long long)c.logits_stride);
                }
}

static void add_fr03(list *l)
{
    static const int64_t Vs[] = {1, 2, 3, 31, 32, 33, 127, 129, 255, 257, 1023, 1025, 2047, 2049, 8191, 8193};
    static const quern_dtype dtypes[] = {QUERN_F32, QUERN_BF16, QUERN_F16};
    for (size_t v = 0; v < QN_COUNT(Vs); v++)
        for (int set = 0; set < 2; set++) {
            hostile_case c = {.tags = MODEL_GPU, .rows = 3, .fill = fill_fr03, .a = set};
            if (Vs[v] == 1 && set == 1) continue;
            c.spec = spec_of(Vs[v], 8, dtypes[v % 3]);
            c.spec.lse = 1;
            add(l, c, "fr03_v%lld_set%d", (long long)Vs[v], set);
        }
    for (int value = 0; value < 2; value++)
        for (int inf = 0; inf < 2; inf++) {
            hostile_case c = {
                .tags = MODEL_GPU | HOSTILE_QUICK, .rows = 3, .fill = fill_equal, .expect = expect_fr03_single};
            c.spec = spec_of(1, 1, QUERN_F32);
            c.spec.lse = 1, c.spec.value = (quern_value)value;
            c.p = inf ? -INFINITY : -7.5f;
            add(l, c, "fr03_v1_%s_%s", value ? "logprob" : "prob", inf ? "minus_inf" : "finite");
        }
    hostile_case c = {.tags = HOSTILE_GPU, .rows = 3, .fill = fill_fr03, .a = 2, .expect = expect_fr03_last};
    c.spec = spec_of(131072, 8, QUERN_F32);
    c.spec.lse = 1;
    add(l, c, "fr03_v131072_last");
}

static void add_fr04(list *l)
{
    hostile_case c = {.tags = HOSTILE_LARGE, .rows = 3, .period = 3, .fill = fill_fr04, .expect = expect_fr04};
    c.spec = spec_of(1024, 4, QUERN_BF16);
    c.spec.value = QUERN_VALUE_LOGIT;
    c.logits_stride = 1073741832;
    add(l, c, "fr04_stride_past_2_31");

    c = (hostile_case){.tags = HOSTILE_LARGE, .rows = (1 << 20) + 1, .period = 61, .fill = fill_normal, .p = 3};
    c.spec = spec_of(2048, 2048, QUERN_BF16);
    add(l, c, "fr04_outputs_past_2_31");

    static const int64_t rows[] = {65535, 65536, 65537, 1 << 20};
    for (int i = 0; i < 4; i++) {
        c = (hostile_case){.tags = HOSTILE_LARGE, .rows = rows[i], .period = 509, .fill = fill_normal, .p = 3};
        c.spec = spec_of(8, 2, QUERN_F32);
        add(l, c, "fr04_rows_%lld", (long long)rows[i]);
    }
    c = (hostile_case){.tags = MODEL_GPU | HOSTILE_QUICK, .rows = 0, .fill = fill_normal, .p = 3};
    c.spec = spec_of(8, 2, QUERN_F32);
    add(l, c, "fr04_rows_0");
}

static void add_fr05(list *l)
{
    static const int64_t pairs[][3] = {{512, 5, 256},       {512, 255, 256},        {512, 0, 511},
                                       {512, 31, 32},       {128256, 5, 256},       {128256, 8191, 8192},
                                       {128256, 0, 128255}, {128256, 64127, 64128}, {128256, 127, 65536}};
    static const int64_t rows[] = {1, 8, 300};
    for (size_t i = 0; i < QN_COUNT(pairs); i++)
        for (int64_t K = 1; K <= 2; K++)
            for (int r = 0; r < 3; r++) {
                bool small = pairs[i][0] == 512;
                if (!small && r == 2) continue; // 300 rows of the wide one add nothing but time
                hostile_case c = {.rows = rows[r], .period = 1, .fill = fill_fr05, .p = 21.375f, .expect = expect_fr05};
                c.tags = small && r < 2 ? MODEL_GPU : HOSTILE_GPU;
                c.spec = spec_of(pairs[i][0], K, QUERN_BF16);
                c.a = pairs[i][1], c.b = pairs[i][2];
                if (small) c.tags |= HOSTILE_QUICK;
                add(l, c, "fr05_v%lld_%lld_%lld_k%lld_rows%lld", (long long)pairs[i][0], (long long)c.a, (long long)c.b,
                    (long long)K, (long long)rows[r]);
            }
    for (int d = 1; d <= 3; d++) {
        hostile_case c = {.tags = MODEL_GPU, .rows = 2, .fill = fill_fr05_zeros, .expect = expect_fr05_zeros};
        c.spec = spec_of(64, 3, (quern_dtype)d);
        add(l, c, "fr05_zero_signs_%s", qn_dtype_name(c.spec.in));
    }
}

// ---- sizes

static void add_k_ladder(list *l)
{
    static const int64_t Ks[] = {1, 2, 31, 33, 64, 128, 255, 257, 512, 1000, 1025, 2047, 2048};
    for (size_t i = 0; i < QN_COUNT(Ks); i++) {
        hostile_case c = {.tags = HOSTILE_GPU, .rows = 4, .seed = 7000 + i, .fill = fill_normal, .p = 4};
        c.spec = spec_of(32768, Ks[i], QUERN_BF16);
        add(l, c, "k%lld_normal", (long long)Ks[i]);
        c.fill = fill_tie_group;
        add(l, c, "k%lld_tie_group", (long long)Ks[i]);
        c.fill = fill_mixed, c.rows = 24;
        add(l, c, "k%lld_mixed", (long long)Ks[i]);
    }
}

// Rows so many and so wide that the registers of a cluster don't hold them: they lie in shared memory, or where that is too
// small only maxima are kept, and vectors are read again. Ramps, since there a thread's first vector is far below its
// largest one.
static void add_second_looks(list *l)
{
    static const struct {
        const char *name;
        hostile_fill fill;
        float p;
    } fills[] = {{"ramp_rows", fill_ramp_rows, 30}, {"quantised", fill_quantised, 0.25f}, {"normal", fill_normal, 3},
                 {"tie_group", fill_tie_group, 0},  {"descending", fill_descending, 30},  {"mixed", fill_mixed, 0}};
    static const struct {
        int64_t rows, K;
        quern_dtype in;
        size_t on_model;
    } shapes[] = {
        {31, 1024, QUERN_BF16, 0}, {63, 256, QUERN_BF16, 1}, {15, 1024, QUERN_F32, 2}, {63, 8, QUERN_BF16, 0}};
    for (size_t s = 0; s < QN_COUNT(shapes); s++)
        for (size_t i = 0; i < QN_COUNT(fills); i++) {
            hostile_case c = {.tags = i == shapes[s].on_model ? MODEL_GPU : HOSTILE_GPU,
                              .rows = shapes[s].rows,
                              .seed = 7150 + i,
                              .fill = fills[i].fill,
                              .p = fills[i].p};
            c.spec = spec_of(100003, shapes[s].K, shapes[s].in);
            c.spec.lse = 1;
            add(l, c, "again_%sk%lld_%s", shapes[s].in == QUERN_F32 ? "f32_" : "", (long long)c.spec.K, fills[i].name);
        }
}

static void add_v_extremes(list *l)
{
    hostile_case c = {.tags = HOSTILE_GPU, .rows = 2, .fill = fill_normal, .p = 3, .seed = 7100};
    c.spec = spec_of(1 << 21, 2048, QUERN_BF16);
    c.spec.lse = 1;
    add(l, c, "v2097152_normal");
    c.fill = fill_chunk;
    add(l, c, "v2097152_chunk");
    c.fill = fill_equal;
    add(l, c, "v2097152_equal");
    c.spec = spec_of((1 << 21) - 1, 50, QUERN_F32);
    c.fill = fill_mixed, c.rows = 6;
    add(l, c, "v2097151_mixed");
}

// One element above equal zeros, at a distance that puts the edge of a threshold's bin on the key below zero's, which no
// element has: as a number it is zero.
static void add_zero_edges(list *l)
{
    static const struct {
        int64_t V;
        quern_dtype in;
        float above; // its key is a multiple of a bin's width above the edge
    } shapes[] = {{4099, QUERN_BF16, 2.96875f}, {4099, QUERN_F16, 1.998046875f}, {2051, QUERN_F32, 1.9999998f}};
    for (size_t s = 0; s < QN_COUNT(shapes); s++) {
        hostile_case c = {.tags = MODEL_GPU, .rows = 2, .seed = 7180, .fill = fill_two_values, .a = 1};
        c.spec = spec_of(shapes[s].V, 256, shapes[s].in);
        c.spec.lse = 1, c.p = shapes[s].above;
        add(l, c, "zero_edge_%s", qn_dtype_name(c.spec.in));
    }
}

// Rows on both sides of every edge between buckets.
static void add_row_edges(list *l)
{
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    size_t last = 0;
    for (int64_t rows = 1; rows <= 70000; rows++) {
        sizes.rows = rows;
        size_t bucket = qn_family_softmax_topk.bucket_of(&sizes);
        if (rows > 1 && bucket != last)
            for (int64_t r = rows - 1; r <= rows; r++) {
                hostile_case c = {.tags = r <= 2000 ? HOSTILE_GPU : HOSTILE_LARGE, .rows = r, .period = 67};
                c.spec = spec_of(260, 8, QUERN_BF16);
                c.spec.lse = 1, c.spec.token = 1;
                c.fill = fill_mixed, c.seed = 7200 + (uint64_t)rows, c.logits_offset = 1, c.logits_stride = 261;
                if (r <= 600) c.tags |= HOSTILE_QUICK;
                if (r <= 4) c.tags |= HOSTILE_MODEL;
                add(l, c, "edge_rows_%lld_at_%lld", (long long)r, (long long)rows);
                if (r > 40) continue;
                c.tags = HOSTILE_GPU;
                c.spec = spec_of(50257, 50, QUERN_BF16), c.logits_stride = 0;
                add(l, c, "edge_wide_rows_%lld_at_%lld", (long long)r, (long long)rows);
            }
        last = bucket;
    }
}

static void add_temperatures(list *l)
{
    static const float infinite[] = {INFINITY, 3.4028235e38f};
    hostile_case c = case_of_base(&bases[0]);
    c.rows = 2, c.fill = fill_normal, c.p = 3, c.temperatures = infinite, c.temperature_count = 2;
    add(l, c, "temperature_infinite");
    c.fill = fill_infinities, c.rows = 8;
    add(l, c, "temperature_infinite_infinities");
}

// ---- features: every pair of values of two fields occurs, in as few specs as a greedy choice needs

enum { FACTORS = 8 };
static const int levels[FACTORS] = {3, 3, 2, 2,
                                    2, 2, 2, 2}; // in, value, norm, temperature, lse, token, index, invariant

static int new_pairs(unsigned char seen[FACTORS][3][FACTORS][3], const int *choice, bool mark)
{
    int count = 0;
    for (int i = 0; i < FACTORS; i++)
        for (int j = i + 1; j < FACTORS; j++) {
            unsigned char *cell = &seen[i][choice[i]][j][choice[j]];
            count += !*cell;
            if (mark) *cell = 1;
        }
    return count;
}

static hostile_case case_of_features(const int *f, uint64_t seed)
{
    hostile_case c = {.tags = MODEL_GPU, .rows = 16, .seed = seed, .fill = fill_mixed};
    c.spec = spec_of(1021, 100, (quern_dtype)(QUERN_F32 + f[0]));
    c.spec.value = (quern_value)f[1], c.spec.norm = (quern_norm)f[2], c.spec.temperature = f[3];
    c.spec.lse = f[4], c.spec.token = f[5], c.spec.index = f[6] ? QUERN_I64 : QUERN_I32, c.spec.batch_invariant = f[7];
    return c;
}

static void add_features(list *l)
{
    static unsigned char seen[FACTORS][3][FACTORS][3];
    memset(seen, 0, sizeof seen);
    uint64_t draw = 0;
    for (int n = 0; n < 64; n++) {
        int best[FACTORS] = {0}, best_count = 0;
        for (int attempt = 0; attempt < 200; attempt++) {
            int choice[FACTORS];
            for (int i = 0; i < FACTORS; i++) choice[i] = (int)(hostile_mix(0xFEA, draw++) % (uint64_t)levels[i]);
            int count = new_pairs(seen, choice, false);
            if (count > best_count) memcpy(best, choice, sizeof best), best_count = count;
        }
        if (best_count == 0) break;
        new_pairs(seen, best, true);
        add(l, case_of_features(best, 7300 + (uint64_t)n), "features_%d", n);
    }
}

// ---- drawn cases

// 2^0 … 2^bits, about evenly over its logarithm.
static int64_t draw_size(uint64_t h, int bits)
{
    int high = (int)(h % (uint64_t)(bits + 1));
    return ((int64_t)1 << high) | (int64_t)((h >> 16) & (((uint64_t)1 << high) - 1));
}

hostile_case hostile_draw(uint64_t seed, bool large)
{
    hostile_case c = {.tags = large ? HOSTILE_GPU : MODEL_GPU, .seed = seed, .fill = fill_mixed};
    uint64_t h = hostile_mix(seed, 0xD0), g = hostile_mix(seed, 0xD1);
    int64_t V = draw_size(hostile_mix(seed, 0xD2), large ? 17 : 11);
    int64_t most = V < HOSTILE_MAX_K ? V : HOSTILE_MAX_K, K = draw_size(hostile_mix(seed, 0xD3), 11);
    c.spec = spec_of(V, h % 8 == 0 ? most : K < most ? K : most, (quern_dtype)(QUERN_F32 + (h >> 4) % 3));
    c.spec.index = (h >> 8) % 4 == 0 ? QUERN_I64 : QUERN_I32;
    c.spec.value = (quern_value)((h >> 12) % 3), c.spec.norm = (quern_norm)((h >> 16) % 2);
    c.spec.temperature = (h >> 20) % 3 == 0, c.spec.lse = (h >> 24) % 2, c.spec.token = (h >> 28) % 2;
    c.spec.batch_invariant = (h >> 32) % 4 == 0;
    c.rows = 1 + (int64_t)(g % (large ? 40 : 6));
    c.logits_stride = (g >> 8) % 3 == 0 ? V + (int64_t)((g >> 12) % 9) : 0;
    c.values_stride = (g >> 16) % 3 == 0 ? c.spec.K + (int64_t)((g >> 20) % 9) : 0;
    c.indices_stride = (g >> 24) % 3 == 0 ? c.spec.K + (int64_t)((g >> 28) % 9) : 0;
    c.logits_offset = (int64_t)((g >> 32) % 9), c.values_offset = (int64_t)((g >> 36) % 5);
    c.indices_offset = (int64_t)((g >> 40) % 5);
    snprintf(c.name, sizeof c.name, "drawn_%s_%llu", large ? "large" : "small", (unsigned long long)seed);
    write_text(&c);
    return c;
}

// $QUERN_TEST_SEED draws others.
static void add_drawn(list *l)
{
    const char *text = getenv("QUERN_TEST_SEED");
    uint64_t first = text && *text ? strtoull(text, NULL, 0) : 1;
    for (uint64_t seed = first; seed < first + 12; seed++) {
        hostile_case small = hostile_draw(seed, false), large = hostile_draw(100 + seed, true);
        add(l, small, "%s", small.name);
        add(l, large, "%s", large.name);
    }
}

const hostile_case *hostile_cases(size_t *count)
{
    static list all;
    if (all.count == 0) {
        add_fr01(&all);
        add_fr02(&all);
        add_fr03(&all);
        add_fr04(&all);
        add_fr05(&all);
        add_patterns(&all);
        add_k_ladder(&all);
        add_second_looks(&all);
        add_v_extremes(&all);
        add_zero_edges(&all);
        add_row_edges(&all);
        add_temperatures(&all);
        add_features(&all);
        add_drawn(&all);
    }
    *count = all.count;
    return all.item;
}

const hostile_case *hostile_case_named(const char *name)
{
    size_t count;
    const hostile_case *cases = hostile_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, name) == 0) return &cases[i];
    fprintf(stderr, "there is no hostile case %s\n", name);
    abort();
}

bool hostile_wanted(const hostile_case *c, unsigned tag)
{
    const char *name = getenv("QUERN_TEST_CASE");
    return (c->tags & tag) && (!name || !*name || strstr(c->name, name));
}
