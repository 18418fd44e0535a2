// SPDX-License-Identifier: Apache-2.0
// The hostile cases of indexer (hostile_indexer.h).
#include "support/hostile_indexer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "support/hostile_fill.h"

enum { MOST_CASES = 160 };
static indexer_case list[MOST_CASES];
static size_t list_count;

static indexer_case *add(const char *name, unsigned tags, const char *text)
{
    if (list_count == MOST_CASES) abort();
    indexer_case *c = &list[list_count++];
    quern_any_spec any;
    *c = (indexer_case){.tags = tags, .T = 1, .sequences = 1, .most = 300, .seed = list_count * 7919};
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->text, sizeof c->text, "indexer %s", text);
    if (quern_spec_parse(c->text, &any) != QUERN_OK) {
        fprintf(stderr, "case %s: %s\n", name, quern_message());
        abort();
    }
    memcpy(&c->spec, &any, sizeof c->spec);
    return c;
}

// ---- base specs, each with the fills that say something of it

static const char *const bases[] = {
    "H=64 C=128 k=2048 q=mxfp4 page=64 scores=1",
    "H=64 C=128 k=512 q=mxfp4 scores=1",
    "H=8 C=64 k=64 layout=fp8_shared q=fp8 page=16 row_seq=1 scores=1",
    "H=5 C=96 k=100 q=bf16 page=8 row_seq=1 scores=1",
    "H=3 C=32 k=7 layout=nvfp4_heads q=f16 page=24 epb=24 row_seq=1 scores=1",
    "H=16 C=160 k=33 layout=nvfp4_heads q=mxfp4 epb=8 cu_keys=1 row_seq=1 granularity=block scores=1",
    "H=128 C=256 k=1 layout=fp8_shared q=bf16 scores=1",
    "H=1 C=32 k=2048 q=mxfp4 granularity=block epb=3 scores=1",
    "H=32 C=128 k=512 q=mxfp4 granularity=block epb=8 page=64 scores=1",
    "H=20 C=224 k=300 q=f16 granularity=block epb=40 page=40 row_seq=1 scores=1",
    "H=4 C=256 k=16 q=fp8 cu_keys=1 row_seq=1 scores=1",
    "H=12 C=192 k=50 layout=fp8_shared q=mxfp4 page=8",
    "H=64 C=128 k=512 layout=fp8_shared q=fp8 page=64 scores=1",
    "H=9 C=64 k=20 q=mxfp4 page=16 granularity=block epb=2 row_seq=1 scores=1",
    "H=2 C=128 k=30 layout=nvfp4_heads q=bf16 epb=16 granularity=block scores=1",
    "H=2 C=64 k=9 q=mxfp4 granularity=block epb=96 page=32 row_seq=1 scores=1", // a last block in fewer pages
};

static void add_bases(void)
{
    for (size_t i = 0; i < QN_COUNT(bases); i++) {
        char name[64];
        snprintf(name, sizeof name, "b%zu_normal", i);
        indexer_case *c = add(name, HOSTILE_MODEL | HOSTILE_GPU | (i < 5 ? HOSTILE_QUICK : 0), bases[i]);
        c->T = 5, c->sequences = c->spec.row_seq ? 3 : 1, c->most = 700, c->lengths = INDEXER_MIXED;
        c->offset = i % 3 == 2 ? 1 : 0, c->padding = i % 2 ? 48 : 0;
        snprintf(name, sizeof name, "b%zu_integer", i);
        c = add(name, HOSTILE_MODEL | HOSTILE_GPU | (i < 3 ? HOSTILE_QUICK : 0), bases[i]);
        c->T = 2, c->sequences = c->spec.row_seq ? 2 : 1, c->most = 519, c->fill = INDEXER_INTEGER, c->exact = true;
        snprintf(name, sizeof name, "b%zu_zero", i);
        c = add(name, HOSTILE_MODEL | HOSTILE_GPU, bases[i]);
        c->T = 1, c->most = 400, c->fill = INDEXER_ZERO, c->exact = true;
        snprintf(name, sizeof name, "b%zu_extreme", i);
        c = add(name, HOSTILE_MODEL | HOSTILE_GPU | (i < 3 ? HOSTILE_QUICK : 0), bases[i]);
        c->T = 3, c->most = 97, c->fill = INDEXER_EXTREME; // row 2: finite, past f32 before the scale
        snprintf(name, sizeof name, "b%zu_long", i);
        c = add(name, HOSTILE_GPU, bases[i]);
        c->T = 9, c->most = i == 6 ? 3000 : 20011, c->sequences = c->spec.row_seq ? 4 : 1;
        c->lengths = i % 2 ? INDEXER_MIXED : INDEXER_CAUSAL;
        if (i % 2) c->fill = INDEXER_INTEGER, c->exact = true;
    }
}

// ---- what has broken others

static void add_reports(void)
{
    static const char *const fr11 = "H=64 C=128 k=4 q=mxfp4 page=64 scores=1";
    indexer_case *c = add("fr11", HOSTILE_MODEL | HOSTILE_GPU | HOSTILE_QUICK, fr11);
    c->most = 16, c->fill = INDEXER_FR11, c->exact = true;
    memcpy(c->want, (int64_t[]){9, 5, 0, 1}, sizeof c->want), c->want_count = 4;
    c = add("fr11_infinity", HOSTILE_MODEL | HOSTILE_GPU,
            fr11); // heads with w = 0 have 0 · inf: the entry is NaN, last
    c->most = 16, c->fill = INDEXER_FR11, c->variant = 1, c->exact = true;
    memcpy(c->want, (int64_t[]){5, 0, 1, 2}, sizeof c->want), c->want_count = 4;
    c = add("fr11_nan", HOSTILE_MODEL | HOSTILE_GPU, "H=64 C=128 k=16 q=mxfp4 page=64 scores=1");
    c->most = 16, c->fill = INDEXER_FR11, c->variant = 2, c->exact = true;
    memcpy(c->want, (int64_t[]){9, 5, 0, 1}, sizeof c->want), c->want_count = 4;
    for (int v = 0; v < 3; v++) {
        for (int rows = 0; rows < 2; rows++) {
            char name[64];
            snprintf(name, sizeof name, "fr12_%c_%d", "abc"[v], rows ? 300 : 1);
            c = add(name, rows ? HOSTILE_GPU : HOSTILE_GPU | HOSTILE_MODEL | HOSTILE_QUICK,
                    "H=64 C=128 k=2048 q=mxfp4 page=64 scores=1");
            c->T = rows ? 300 : 1, c->most = 8320, c->fill = INDEXER_WINNERS, c->variant = v, c->exact = true;
            c->want_count = 2;
            memcpy(c->want, v == 0 ? (int64_t[]){8217, 8134} : v == 1 ? (int64_t[]){1, 2} : (int64_t[]){0, 1}, 16);
        }
    }
    c = add("fr12_fp8", HOSTILE_GPU, "H=64 C=128 k=2048 layout=fp8_shared q=fp8 page=64 scores=1");
    c->T = 8, c->most = 8320, c->fill = INDEXER_WINNERS, c->exact = true;
    static const int64_t lengths[] = {257, 256, 1, 63, 64, 65, 127, 128, 129, 511, 512, 513};
    for (size_t i = 0; i < QN_COUNT(lengths); i++) {
        char name[64];
        snprintf(name, sizeof name, "fr13_%lld", (long long)lengths[i]);
        c = add(name, HOSTILE_GPU | (i % 3 == 0 ? HOSTILE_MODEL : 0), "H=64 C=128 k=512 q=mxfp4 page=64 scores=1");
        c->most = lengths[i];
    }
}

// ---- edges

static void add_edges(void)
{
    static const char *const plain = "H=64 C=128 k=512 q=mxfp4 page=64 scores=1";
    indexer_case *c = add("no_rows", HOSTILE_MODEL | HOSTILE_GPU, plain);
    c->T = 0;
    c = add("empty", HOSTILE_MODEL | HOSTILE_GPU | HOSTILE_QUICK, plain);
    c->T = 3, c->lengths = INDEXER_EMPTY, c->exact = true;
    c = add("empty_many", HOSTILE_GPU, plain);
    c->T = 700, c->lengths = INDEXER_EMPTY, c->exact = true;
    c = add("k_is_length", HOSTILE_MODEL | HOSTILE_GPU, plain);
    c->most = 512;
    c = add("k_is_length_less_1", HOSTILE_GPU, plain);
    c->most = 513;
    c = add("last_bit", HOSTILE_MODEL | HOSTILE_GPU | HOSTILE_QUICK, plain);
    c->most = 1500, c->fill = INDEXER_LAST_BIT, c->exact = true;
    c = add("last_bit_long", HOSTILE_GPU, plain);
    c->most = 70001, c->fill = INDEXER_LAST_BIT, c->exact = true;
    c = add("zeros_long", HOSTILE_GPU, "H=64 C=128 k=2048 q=mxfp4 page=64 scores=1");
    c->most = 131072, c->fill = INDEXER_ZERO, c->exact = true;
    c = add("mixed_rows", HOSTILE_GPU | HOSTILE_QUICK, plain);
    c->T = 70, c->most = 3000, c->lengths = INDEXER_MIXED;
    c = add("mixed_few", HOSTILE_GPU, "H=64 C=128 k=2048 q=mxfp4 page=64 row_seq=1 scores=1");
    c->T = 8, c->sequences = 8, c->most = 40000, c->lengths = INDEXER_MIXED;
    c = add("one_page", HOSTILE_GPU, "H=64 C=128 k=2048 q=mxfp4 page=64 scores=1");
    c->most = 200000, c->fill = INDEXER_ONE_PAGE, c->exact = true;
    c = add("million_one_page", HOSTILE_LARGE, "H=64 C=128 k=2048 q=mxfp4 page=64 scores=1");
    c->most = 1048576, c->fill = INDEXER_ONE_PAGE, c->exact = true;
    c = add("resonant", HOSTILE_GPU, "H=64 C=128 k=2048 q=mxfp4 page=64 scores=1"); // all winners in one share
    c->most = 131072, c->fill = INDEXER_ONE_PAGE, c->variant = 1, c->exact = true;
    c = add("stream", HOSTILE_MODEL | HOSTILE_GPU, "H=1 C=32 k=64 q=mxfp4 page=64 scores=1"); // by one CTA: in batches
    c->most = 20000;
    c = add("stream_exact", HOSTILE_MODEL | HOSTILE_GPU, "H=3 C=32 k=300 q=mxfp4 scores=1");
    c->most = 17000, c->fill = INDEXER_INTEGER, c->exact = true;
    c = add("stream_short", HOSTILE_MODEL | HOSTILE_GPU, "H=3 C=32 k=600 q=mxfp4 page=64 scores=1"); // ends in parts
    c->T = 2, c->most = 8003, c->lengths = INDEXER_CAUSAL;
    c = add("stream_ties", HOSTILE_MODEL | HOSTILE_GPU, "H=2 C=32 k=2048 q=mxfp4 scores=1");
    c->most = 8190, c->fill = INDEXER_INTEGER, c->exact = true;
    c = add("groups", HOSTILE_MODEL | HOSTILE_GPU | HOSTILE_QUICK, // rows of a group of several sequences
            "H=64 C=128 k=100 q=mxfp4 page=64 row_seq=1 scores=1");
    c->T = 21, c->sequences = 4, c->most = 900, c->lengths = INDEXER_MIXED;
    c = add("groups_small", HOSTILE_MODEL | HOSTILE_GPU, "H=24 C=96 k=40 q=mxfp4 page=16 row_seq=1 scores=1");
    c->T = 18, c->sequences = 2, c->most = 500, c->lengths = INDEXER_CAUSAL;
    c = add("groups_wide", HOSTILE_MODEL | HOSTILE_GPU, "H=100 C=64 k=300 q=mxfp4 row_seq=1 cu_keys=1");
    c->T = 11, c->sequences = 3, c->most = 400, c->lengths = INDEXER_MIXED;
    c = add("groups_fp8", HOSTILE_MODEL | HOSTILE_GPU,
            "H=64 C=128 k=100 layout=fp8_shared q=fp8 page=64 row_seq=1 scores=1");
    c->T = 11, c->sequences = 2, c->most = 700, c->lengths = INDEXER_CAUSAL;
    c = add("groups_f16", HOSTILE_MODEL | HOSTILE_GPU,
            "H=24 C=96 k=40 layout=fp8_shared q=f16 page=16 row_seq=1 scores=1");
    c->T = 18, c->sequences = 3, c->most = 500, c->lengths = INDEXER_MIXED;
    c = add("groups_exact", HOSTILE_MODEL | HOSTILE_GPU, // what is kept from chunk to chunk
            "H=9 C=32 k=100 q=mxfp4 page=64 scores=1");
    c->T = 3, c->most = 17100, c->fill = INDEXER_INTEGER, c->exact = true, c->lengths = INDEXER_CAUSAL;
    c = add("many_rows", HOSTILE_GPU | HOSTILE_QUICK, // so many that they are dealt out in groups
            "H=48 C=128 k=100 q=mxfp4 page=64 row_seq=1 scores=1");
    c->T = 517, c->sequences = 5, c->most = 600, c->lengths = INDEXER_MIXED;
    c = add("many_exact", HOSTILE_GPU | HOSTILE_QUICK, "H=32 C=64 k=512 q=mxfp4 scores=1");
    c->T = 512, c->most = 1500, c->fill = INDEXER_INTEGER, c->exact = true, c->lengths = INDEXER_CAUSAL;
    c = add("many_zero", HOSTILE_GPU | HOSTILE_QUICK, "H=16 C=32 k=100 q=mxfp4 page=16 scores=1");
    c->T = 512, c->most = 800, c->fill = INDEXER_ZERO, c->exact = true;
    c = add("many_fp8", HOSTILE_GPU | HOSTILE_QUICK,
            "H=64 C=128 k=512 layout=fp8_shared q=fp8 page=64 row_seq=1 scores=1");
    c->T = 517, c->sequences = 3, c->most = 1500, c->lengths = INDEXER_CAUSAL;
    c = add("groups_long", HOSTILE_GPU, "H=64 C=128 k=2048 q=mxfp4 page=64 scores=1");
    c->T = 20, c->most = 49000, c->lengths = INDEXER_CAUSAL;
    c = add("bytes_off", HOSTILE_MODEL | HOSTILE_GPU, "H=4 C=128 k=40 q=mxfp4 scores=1");
    c->offset = 1, c->padding = 3, c->T = 2;
}

const indexer_case *indexer_cases(size_t *count)
{
    if (list_count == 0) {
        const char *seed = getenv("QUERN_TEST_SEED");
        add_reports();
        add_edges();
        add_bases();
        for (uint64_t i = 0; i < 24; i++)
            list[list_count++] = indexer_draw((seed ? strtoull(seed, NULL, 0) : 1) * 1000 + i);
    }
    *count = list_count;
    return list;
}

indexer_case indexer_draw(uint64_t seed)
{
    static const char *const layouts[] = {"mxfp4_shared", "mxfp4_shared", "fp8_shared", "nvfp4_heads"};
    static const char *const qs[] = {"mxfp4", "mxfp4", "bf16", "f16", "fp8"};
    static const int ks[] = {1, 5, 33, 100, 512, 1000, 2048}, pages[] = {0, 0, 8, 16, 24, 64, 128};
    uint64_t n = 0;
#define DRAW(most) (int)(hostile_mix(seed, n++) % (uint64_t)(most))
    char text[256];
    const char *layout = layouts[DRAW(4)];
    bool heads = strcmp(layout, "nvfp4_heads") == 0, blocks = DRAW(3) == 0;
    int page = pages[DRAW(7)], epb = blocks ? 1 + DRAW(70) : heads ? 1 + DRAW(40) : 1;
    if (heads && page) epb = page;
    int H = 1 + DRAW(heads ? 9 : 70), C = 32 * (1 + DRAW(8)), k = ks[DRAW(7)];
    const char *q = qs[DRAW(5)];
    bool row_seq = DRAW(2), cu_keys = DRAW(2) && !page, scores = DRAW(5);
    snprintf(text, sizeof text,
             "H=%d C=%d k=%d layout=%s q=%s page=%d granularity=%s epb=%d row_seq=%d cu_keys=%d scores=%d", H, C, k,
             layout, q, page, blocks ? "block" : "entry", epb, row_seq, cu_keys, scores);
    size_t kept = list_count;
    indexer_case c = *add("draw", HOSTILE_GPU | (DRAW(3) ? HOSTILE_MODEL : 0), text);
    list_count = kept;
    snprintf(c.name, sizeof c.name, "draw_%llu", (unsigned long long)seed);
    c.seed = seed, c.T = 1 + DRAW(4), c.most = 1 + DRAW(c.tags & HOSTILE_MODEL ? 500 : 9000);
    c.sequences = c.spec.row_seq || c.spec.cu_keys ? 1 + DRAW(3) : 1;
    c.lengths = (indexer_lengths)DRAW(3);
    c.fill = DRAW(3) == 0 ? INDEXER_INTEGER : INDEXER_NORMAL, c.exact = c.fill == INDEXER_INTEGER;
    c.offset = DRAW(3) == 0 ? 1 + DRAW(15) : 0, c.padding = DRAW(3) == 0 ? DRAW(64) : 0;
#undef DRAW
    return c;
}

bool indexer_wanted(const indexer_case *c, unsigned tag)
{
    const char *only = getenv("QUERN_TEST_CASE");
    return (c->tags & tag) && (!only || !*only || strstr(c->name, only));
}
