// SPDX-License-Identifier: Apache-2.0
// The list of attention's hostile cases (hostile_attention.h).
#include "support/hostile_attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/family.h"

enum { MOST_CASES = 512, MODEL = HOSTILE_MODEL | HOSTILE_GPU, QUICK = MODEL | HOSTILE_QUICK, GPU = HOSTILE_GPU };
enum { PAIRS_SEED = 8 };

static attention_case list[MOST_CASES];
static size_t list_count;

bool attention_case_parse(attention_case *c, const char **message)
{
    quern_any_spec spec, full;
    const qn_family *family;
    bool valid =
        quern_spec_parse(c->text, &spec) == QUERN_OK && qn_spec_complete(&spec.base, &family, &full) == QUERN_OK;
    *message = valid ? NULL : quern_message();
    if (valid) memcpy(&c->spec, &full, sizeof c->spec);
    return valid;
}

// One sequence length for all: the usual case. The caller changes what is special.
static attention_case *add(unsigned tags, const char *name, const char *fields, int64_t B, int64_t Hq, int64_t Hkv,
                           int64_t queries, int64_t keys)
{
    const char *message;
    if (list_count == MOST_CASES) abort();
    attention_case *c = &list[list_count++];
    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->text, sizeof c->text, "attention %s", fields);
    if (!attention_case_parse(c, &message)) {
        fprintf(stderr, "case %s '%s': %s\n", c->name, c->text, message);
        abort();
    }
    c->tags = tags, c->B = B, c->Hq = Hq, c->Hkv = Hkv, c->Sk = keys;
    for (int64_t b = 0; b < B; b++) c->queries[b] = queries, c->keys[b] = keys;
    c->seed = 1000 + list_count, c->fill = ATTENTION_NORMAL, c->p = 1;
    return c;
}

static void lengths(attention_case *c, const int64_t *queries, const int64_t *keys)
{
    for (int64_t b = 0; b < c->B; b++) {
        if (queries) c->queries[b] = queries[b];
        if (keys) c->keys[b] = keys[b];
    }
}

// Every head_dim once in each plan: those of models, and those at the edges of padding.
static void add_head_dims(void)
{
    static const struct {
        int d, dv;
    } dims[] = {{8, 8},     {40, 40},   {64, 64},   {72, 72},   {96, 96},   {128, 128}, {160, 160}, {192, 128},
                {256, 256}, {264, 264}, {320, 320}, {504, 504}, {512, 512}, {576, 512}, {64, 512},  {576, 8}};
    for (size_t i = 0; i < QN_COUNT(dims); i++) {
        char fields[128], name[64];
        unsigned tags = i % 5 == 2 ? QUICK | GPU : i % 5 == 0 || i == 9 ? MODEL : GPU;
        snprintf(fields, sizeof fields, "d=%d dv=%d lse=1 causal=1", dims[i].d, dims[i].dv);
        snprintf(name, sizeof name, "dim_prefill_%d_%d", dims[i].d, dims[i].dv);
        add(tags, name, fields, 1, 2, 1, 35, 37);
        snprintf(name, sizeof name, "dim_decode_%d_%d", dims[i].d, dims[i].dv);
        add(tags, name, fields, 2, 3, 1, 1, 83);
        snprintf(fields, sizeof fields, "in=f16 d=%d dv=%d kv_split=64", dims[i].d, dims[i].dv);
        snprintf(name, sizeof name, "dim_f16_split_%d_%d", dims[i].d, dims[i].dv);
        add(GPU, name, fields, 1, 24, 1, 2, 500);
    }
}

// FR14: what lies past the used length never counts.
static void add_unused(void)
{
    static const int64_t used[] = {32, 64, 96, 48}, few[] = {1, 17, 128, 3};
    static const char *const dims[] = {"d=64", "d=128", "d=192 dv=128", "d=512"};
    for (size_t i = 0; i < QN_COUNT(dims); i++) {
        char fields[128], name[64];
        snprintf(fields, sizeof fields, "%s length_k=1 lse=1", dims[i]);
        snprintf(name, sizeof name, "fr14_dense_%zu", i);
        attention_case *c = add(i == 0 ? QUICK : i == 1 ? MODEL : GPU, name, fields, 4, 8, 8, 1, 128);
        lengths(c, NULL, used);
        snprintf(fields, sizeof fields, "%s layout=paged page=16 lse=1", dims[i]);
        snprintf(name, sizeof name, "fr14_paged_%zu", i);
        c = add(i == 0 ? QUICK : i == 3 ? MODEL : GPU, name, fields, 4, 8, 2, 1, 128);
        lengths(c, NULL, i % 2 ? few : used);
        snprintf(fields, sizeof fields, "%s layout=paged page=32 cu_q=1 causal=1", dims[i]);
        snprintf(name, sizeof name, "fr14_paged_prefill_%zu", i);
        c = add(i == 0 ? MODEL : GPU, name, fields, 4, 2, 2, 1, 128);
        lengths(c, used, used);
    }
}

// FR15: scores far below any finite stand-in for -inf; the largest probability is exactly 1.
static void add_depths(void)
{
    static const struct {
        const char *name, *fields;
        attention_fill fill;
        float p, r;
    } depths[] = {
        {"fr15_a", "d=128 lse=1", ATTENTION_POINT, 0x1p60f, -0x1p40f},
        {"fr15_b", "d=128 lse=1", ATTENTION_POINT_17, 0x1p60f, -0x1p40f},
        {"fr15_c", "d=128 in=f16 scale=1 lse=1", ATTENTION_POINT, 256, -1024},
        {"fr15_a_split", "d=128 lse=1 kv_split=64", ATTENTION_POINT, 0x1p60f, -0x1p40f},
        {"fr15_b_split", "d=128 lse=1 kv_split=64", ATTENTION_POINT_17, 0x1p60f, -0x1p40f},
    };
    for (size_t i = 0; i < QN_COUNT(depths); i++) {
        for (int prefill = 0; prefill < 2; prefill++) {
            char name[64];
            snprintf(name, sizeof name, "%s_%s", depths[i].name, prefill ? "prefill" : "decode");
            attention_case *c =
                add(i < 3 ? QUICK : MODEL, name, depths[i].fields, 1, 1, 1, prefill ? 20 : 1, i < 3 ? 64 : 150);
            c->fill = depths[i].fill, c->p = depths[i].p, c->r = depths[i].r, c->exact = true;
        }
    }
    attention_case *c = add(MODEL, "fr15_masked_beside", "d=128 lse=1 causal=1", 1, 1, 1, 8, 5);
    c->fill = ATTENTION_POINT, c->p = 0x1p60f, c->r = -0x1p40f, c->exact = true;
}

// FR16 and its like: rows that see nothing, sequences without keys or without queries.
static void add_empty(void)
{
    static const char *const dims[] = {"d=64", "d=128", "d=256", "d=512"};
    static const int64_t q3[] = {9, 8, 12}, k3[] = {9, 3, 30}, q4[] = {0, 5, 3, 0}, k4[] = {4, 0, 9, 0};
    for (size_t i = 0; i < QN_COUNT(dims); i++) {
        char fields[128], name[64];
        snprintf(fields, sizeof fields, "%s causal=1 lse=1", dims[i]);
        snprintf(name, sizeof name, "fr16_dense_%zu", i);
        add(i == 0 ? QUICK : MODEL, name, fields, 1, 4, 1, 8, 3);
        snprintf(name, sizeof name, "fr16_long_%zu", i);
        add(i % 3 == 0 ? MODEL : GPU, name, fields, 1, 4, 1, 200, 3);
        snprintf(name, sizeof name, "fr16_no_keys_%zu", i);
        add(MODEL, name, fields, 1, 4, 1, 8, 0);
        snprintf(fields, sizeof fields, "%s causal=1 lse=1 layout=varlen", dims[i]);
        snprintf(name, sizeof name, "fr16_varlen_%zu", i);
        lengths(add(i == 0 ? QUICK : i == 3 ? MODEL : GPU, name, fields, 3, 4, 1, 1, 1), q3, k3);
        snprintf(fields, sizeof fields, "%s causal=1 lse=1 layout=paged page=16 cu_q=1", dims[i]);
        snprintf(name, sizeof name, "fr16_paged_%zu", i);
        lengths(add(i == 1 ? MODEL : GPU, name, fields, 3, 4, 1, 1, 1), q3, k3);
    }
    lengths(add(QUICK, "zero_length_varlen", "d=64 layout=varlen lse=1 sink=1", 4, 2, 2, 1, 1), q4, k4);
    lengths(add(MODEL, "zero_length_paged", "d=40 layout=paged page=16 cu_q=1 lse=1", 4, 2, 1, 1, 1), q4, k4);
    static const int64_t none[] = {0, 7, 0}, many[] = {40, 0, 33};
    lengths(add(MODEL, "zero_length_dense", "d=64 length_k=1 lse=1 sink=1 causal=1", 3, 2, 1, 20, 8), NULL, none);
    lengths(add(MODEL, "one_long_among_short", "d=64 layout=varlen lse=1 causal=1", 3, 2, 1, 1, 1), many, many);
    add(MODEL, "masked_with_sink", "d=64 causal=1 lse=1 sink=1", 1, 2, 1, 12, 5)->sink = 3;
}

// FR17: a window counts the query's own position; one that covers everything is no window.
static void add_windows(void)
{
    static const int64_t seen[] = {1, 2, 127, 128, 129, 299, 300, 301, 2147483647};
    char fields[160], name[64];
    for (size_t i = 0; i < QN_COUNT(seen); i++) {
        snprintf(fields, sizeof fields, "d=64 causal=1 lse=1 window_left=%lld", (long long)seen[i] - 1);
        snprintf(name, sizeof name, "fr17_%lld", (long long)seen[i]);
        add(i % 3 == 0 ? MODEL : GPU, name, fields, 1, 2, 2, 300, 300)->exact = seen[i] == 1;
        snprintf(name, sizeof name, "fr17_decode_%lld", (long long)seen[i]);
        add(i < 3 ? MODEL : GPU, name, fields, 1, 2, 2, 1, 300)->exact = seen[i] == 1;
    }
    add(QUICK, "window_one", "d=64 window_left=0 window_right=0 lse=1", 1, 2, 1, 40, 40)->exact = true;
    add(MODEL, "window_one_shifted", "d=72 window_left=0 window_right=0 lse=1", 1, 2, 1, 40, 90)->exact = true;
    add(QUICK, "window_both", "d=64 window_left=9 window_right=5 lse=1", 1, 2, 1, 50, 80);
    add(MODEL, "window_right", "d=64 window_right=7 lse=1", 1, 2, 1, 50, 40);
    add(MODEL, "window_left", "d=64 window_left=20 lse=1", 1, 2, 1, 50, 40);
    add(MODEL, "window_past_everything", "d=64 window_left=1099511627776 window_right=9223372036854775807 lse=1", 1, 2,
        1, 20, 30);
    add(MODEL, "window_split", "d=64 window_left=100 causal=1 kv_split=64 lse=1", 2, 4, 1, 3, 500);
    add(GPU, "window_split_wide", "d=128 window_left=1000 causal=1 kv_split=128 lse=1 sink=1", 2, 8, 1, 5, 3000);
}

static void add_features(void)
{
    add(QUICK, "sink_large", "d=64 sink=1 lse=1", 1, 4, 2, 9, 40)->sink = 1e4f;
    add(MODEL, "sink_small", "d=64 sink=1 lse=1", 1, 4, 2, 9, 40)->sink = -1e4f;
    add(MODEL, "sink_huge", "d=64 sink=1 lse=1", 1, 4, 2, 9, 40)->sink = 3e38f;
    add(QUICK, "sink_split", "d=64 sink=1 lse=1 kv_split=64", 1, 4, 2, 1, 300)->sink = 2;
    add(QUICK, "cap_large_scores", "d=64 softcap=30 lse=1", 1, 2, 1, 30, 50)->p = 20;
    add(MODEL, "cap_small_scores", "d=64 softcap=1000 lse=1", 1, 2, 1, 30, 50)->p = 0.1f;
    add(MODEL, "cap_split", "d=128 softcap=20 sink=1 lse=1 kv_split=64 causal=1", 1, 8, 1, 2, 200)->p = 6;
    add(QUICK, "negative_scale", "d=64 scale=-0.3 lse=1 causal=1", 1, 2, 1, 40, 45);
    add(MODEL, "negative_scale_cap", "d=64 scale=-2 softcap=15 lse=1", 1, 2, 1, 4, 100);
    add(MODEL, "large_scores", "d=128 scale=1 lse=1", 1, 2, 1, 40, 100)->p = 8;
    add(MODEL, "long_tail", "d=64 lse=1 causal=1", 1, 2, 1, 70, 70)->fill = ATTENTION_LONG_TAIL;
    add(MODEL, "long_tail_f16", "d=64 in=f16 lse=1", 1, 2, 1, 3, 200)->fill = ATTENTION_LONG_TAIL;
    add(MODEL, "far_tail_f16", "d=64 in=f16 scale=1 lse=1", 1, 1, 1, 130, 300)->fill = ATTENTION_FAR_TAIL;
    add(MODEL, "gqa_5", "d=64 causal=1 lse=1", 2, 10, 2, 1, 70);
    add(MODEL, "gqa_7", "d=64 causal=1 lse=1", 1, 14, 2, 5, 70);
    add(GPU, "gqa_7_prefill", "d=128 causal=1 lse=1", 1, 14, 2, 130, 170);
    add(MODEL, "mqa_64", "d=64 lse=1 kv_split=64", 1, 64, 1, 1, 130);
    add(GPU, "mqa_128_alias", "d=576 dv=512 kv_alias=1 lse=1", 2, 128, 1, 1, 1000);
    add(MODEL, "alias", "d=72 dv=64 kv_alias=1 lse=1 causal=1", 1, 2, 1, 30, 50);
    add(MODEL, "alias_wide", "d=320 dv=264 kv_alias=1 lse=1", 1, 2, 1, 17, 50);
    add(MODEL, "alias_paged", "d=576 dv=512 kv_alias=1 layout=paged page=64 lse=1", 1, 16, 1, 1, 150);
    add(MODEL, "page_48", "d=64 layout=paged page=48 lse=1", 2, 2, 1, 3, 100);
    add(GPU, "page_256", "d=128 layout=paged page=256 lse=1 causal=1", 2, 4, 1, 70, 700);
}

static void add_layouts(void)
{
    static const char *const orders[ATTENTION_ORDERS] = {"packed", "heads_first", "loose", "unaligned"};
    static const char *const layouts[] = {"d=40 lse=1", "d=64 layout=varlen causal=1 lse=1",
                                          "d=64 layout=paged page=16 lse=1"};
    static const int64_t q[] = {3, 21}, k[] = {30, 40};
    for (int order = 0; order < ATTENTION_ORDERS; order++) {
        for (size_t i = 0; i < QN_COUNT(layouts); i++) {
            char name[64];
            snprintf(name, sizeof name, "order_%s_%zu", orders[order], i);
            attention_case *c = add(order == 3 ? QUICK : MODEL, name, layouts[i], 2, 4, 2, 18, 40);
            c->order = (attention_order)order, c->offset = order == 3 ? 3 : 0;
            if (i == 1) lengths(c, q, k);
            if (i == 2) lengths(c, NULL, k);
        }
    }
}

// One configuration for all sizes, and splits that do not depend on the batch.
static void add_invariant(void)
{
    static const int64_t q[] = {1, 3, 16, 17}, k[] = {300, 64, 129, 200};
    add(MODEL, "invariant_dense", "d=64 batch_invariant=1 kv_split=64 lse=1", 3, 4, 1, 1, 200);
    add(GPU, "invariant_prefill", "d=128 batch_invariant=1 causal=1 lse=1", 3, 4, 2, 150, 200);
    lengths(add(QUICK, "invariant_varlen", "d=64 batch_invariant=1 kv_split=64 layout=varlen causal=1 lse=1", 4, 2, 1,
                1, 1),
            q, k);
    lengths(add(GPU, "invariant_paged",
                "d=512 batch_invariant=1 kv_split=64 layout=paged page=16 cu_q=1 causal=1 lse=1", 4, 4, 1, 1, 1),
            q, k);
    attention_case *c =
        add(MODEL, "sizes_unknown_varlen", "d=64 layout=varlen kv_split=64 causal=1 lse=1", 4, 2, 1, 1, 1);
    lengths(c, q, k), c->sizes_unknown = true;
    c = add(MODEL, "sizes_unknown_paged", "d=64 layout=paged page=32 cu_q=1 kv_split=64 lse=1", 4, 2, 1, 1, 1);
    lengths(c, q, k), c->sizes_unknown = true;
    // More tiles than there is room for: a CTA does several splits of one, and with more than tickets, all of them.
    add(MODEL, "splits_shared_narrow", "d=8 kv_split=64 lse=1", 8, 16, 16, 1, 200);
    add(MODEL, "splits_shared", "d=128 kv_split=64 lse=1 causal=1", 4, 32, 16, 2, 400);
    add(GPU, "splits_past_tickets", "d=8 kv_split=64 lse=1", 8, 2049, 2049, 1, 150);
    add(GPU, "split_long", "d=128 lse=1", 2, 8, 2, 1, 5000);
    add(GPU, "split_long_512", "d=512 lse=1 causal=1", 1, 8, 2, 4, 3000);
    add(GPU, "prefill_long", "d=128 causal=1 lse=1", 1, 2, 1, 700, 700);
    add(GPU, "prefill_long_512", "d=512 causal=1 lse=1", 1, 2, 1, 300, 400);
}

const attention_case *attention_cases(size_t *count)
{
    if (!list_count) {
        add_head_dims();
        add_unused();
        add_depths();
        add_empty();
        add_windows();
        add_features();
        add_layouts();
        add_invariant();
        list_count += attention_pairs(list + list_count, MOST_CASES - list_count, PAIRS_SEED);
    }
    *count = list_count;
    return list;
}

bool attention_wanted(const attention_case *c, unsigned tag)
{
    const char *only = getenv("QUERN_TEST_CASE");
    return (c->tags & tag) && (!only || strstr(c->name, only));
}
