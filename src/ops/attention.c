// SPDX-License-Identifier: Apache-2.0
// The family attention: its fields, tensors and sizes, checks, buckets, launch. Which kernels there are and what they need
// is in attention_plan.c. The kernels are kernel_templates/attention/*.cu; this file and they share args.h.
#include "ops/attention.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "attention/args.h"
#include "ops/field.h"
#include "reference/reference.h"

typedef quern_attention_spec spec_t;
typedef quern_attention_args args_t;
typedef quern_attention_sizes sizes_t;

// ---- lists

static const qn_name in_names[] = {{"bf16", QUERN_BF16}, {"f16", QUERN_F16}, {NULL, 0}};
static const qn_name layout_names[] = {
    {"dense", QUERN_LAYOUT_DENSE}, {"varlen", QUERN_LAYOUT_VARLEN}, {"paged", QUERN_LAYOUT_PAGED}, {NULL, 0}};

#define AT(member) offsetof(spec_t, member)
#define NUMBER(field, least, most, start, text)                                                                        \
    {                                                                                                                  \
        .name = #field, .type = QN_INT, .offset = AT(field), .min = (least), .max = (most), .initial = (start),        \
        .doc = (text)                                                                                                  \
    }
#define FLAG(field, text)                                                                                              \
    {                                                                                                                  \
        .name = #field, .type = QN_FLAG, .offset = AT(field), .max = 1, .doc = (text)                                  \
    }
#define WORD(field, list, start, text)                                                                                 \
    {                                                                                                                  \
        .name = #field, .type = QN_ENUM, .offset = AT(field), .names = (list), .initial = (start), .doc = (text)       \
    }
#define REAL(field, range, text)                                                                                       \
    {                                                                                                                  \
        .name = #field, .type = QN_REAL, .offset = AT(field), .allowed = (range), .doc = (text)                        \
    }
#define SCALE_RANGE   "0, or 1.2e-38 to 1e30 of either sign"
#define SOFTCAP_RANGE "0, or 1e-30 to 1e30"
static const qn_field fields[] = {
    NUMBER(d, 8, 576, 64, "head_dim of q and k, a multiple of 8"),
    NUMBER(dv, 0, 512, 0, "head_dim of v and out, a multiple of 8; 0: d"),
    WORD(in, in_names, QUERN_BF16, "type of q, k, v and out"),
    WORD(layout, layout_names, QUERN_LAYOUT_DENSE, "how k and v lie in memory"),
    FLAG(causal, "1: no key after the query's own position, which is i + Sk - Sq"),
    NUMBER(window_left, -1, INT64_MAX, -1, "keys before the query's position that it sees beside it; -1: all"),
    NUMBER(window_right, -1, INT64_MAX, -1, "keys after the query's position that it sees beside it; -1: all"),
    REAL(scale, SCALE_RANGE, "of q · k; 0: 1 / sqrt(d)"),
    REAL(softcap, SOFTCAP_RANGE, "scores become softcap · tanh(score / softcap); 0: none"),
    FLAG(sink, "1: a sink for each query head is given"),
    FLAG(kv_alias, "1: v is the first dv elements of k"),
    NUMBER(page, 0, 256, 0, "paged: positions a page, a multiple of 16 from 16 on"),
    FLAG(cu_q, "1: queries are ragged, bounds are given; varlen has them always"),
    FLAG(length_k, "1: keys a sequence are given; paged has them always"),
    FLAG(lse, "1: log-sum-exp of each query is written"),
    FLAG(batch_invariant, "1: a sequence's bits do not depend on the others"),
    NUMBER(kv_split, 0, 1 << 30, 0, "keys a split with few queries, a multiple of 64; 0: by the sizes"),
};
#undef AT
#undef NUMBER
#undef FLAG
#undef WORD
#undef REAL

#define SIZE(field, text)                                                                                              \
    {                                                                                                                  \
        .name = #field, .type = QN_INT, .offset = offsetof(sizes_t, field), .max = INT32_MAX, .doc = (text)            \
    }
static const qn_field sizes[] = {
    SIZE(B, "sequences"),
    SIZE(Sq, "queries a sequence; ragged: at most, 0: not known"),
    SIZE(Sk, "keys a sequence; varlen, paged: at most, 0: not known"),
    SIZE(Hq, "query heads, a multiple of Hkv"),
    SIZE(Hkv, "KV heads"),
    SIZE(Tq, "ragged: queries in all"),
    SIZE(Tk, "varlen: keys in all"),
    SIZE(pages, "paged: pages"),
    SIZE(columns, "paged: columns of block_table"),
};
#undef SIZE
static const size_t size_args_offset[] = {
    offsetof(args_t, B),  offsetof(args_t, Sq),    offsetof(args_t, Sk),
    offsetof(args_t, Hq), offsetof(args_t, Hkv),   offsetof(args_t, Tq),
    offsetof(args_t, Tk), offsetof(args_t, pages), offsetof(args_t, columns),
};

enum {
    NO = 1 << 0,
    YES = 1 << 1,
    DENSE = 1 << QUERN_LAYOUT_DENSE,
    VARLEN = 1 << QUERN_LAYOUT_VARLEN,
    PAGED = 1 << QUERN_LAYOUT_PAGED
};

#define AT(member) offsetof(args_t, member)
// Four axes, or three without that of batches.
#define TENSOR4(tensor, way, by, values, a, b, c, e, text)                                                             \
    .name = #tensor, .direction = way, .axes = {a, b, c, e}, .dtype_field = "in", .choice = by, .choices = (values),   \
    .any_order = true, .pointer_offset = AT(tensor),                                                                   \
    .stride_offset = {AT(tensor##_stride_B), AT(tensor##_stride_S), AT(tensor##_stride_H)},                            \
    .stride_axes = {"B", "S", "H"}, .doc = (text)
#define TENSOR3(tensor, way, by, values, a, b, c, text)                                                                \
    .name = #tensor, .direction = way, .axes = {a, b, c}, .dtype_field = "in", .choice = by, .choices = (values),      \
    .any_order = true, .pointer_offset = AT(tensor), .stride_offset = {AT(tensor##_stride_S), AT(tensor##_stride_H)},  \
    .stride_axes = {"S", "H"}, .doc = (text)
#define BOUNDS(tensor, with, by, values, axis, text)                                                                   \
    .name = #tensor, .direction = QN_INPUT, .axes = {axis}, .dtype = QUERN_I32, .flag = with, .choice = by,            \
    .choices = (values), .pointer_offset = AT(tensor), .doc = (text)
static const qn_tensor tensors[] = {
    {TENSOR4(q, QN_INPUT, "cu_q", NO, "B", "Sq", "Hq", "d", "queries")},
    {TENSOR3(q, QN_INPUT, "cu_q", YES, "Tq", "Hq", "d", "queries, one sequence after another")},
    {TENSOR4(k, QN_INPUT, "layout", DENSE, "B", "Sk", "Hkv", "d", "keys")},
    {TENSOR3(k, QN_INPUT, "layout", VARLEN, "Tk", "Hkv", "d", "keys, one sequence after another")},
    {TENSOR4(k, QN_INPUT, "layout", PAGED, "pages", "page", "Hkv", "d", "keys, a page after another")},
    {TENSOR4(v, QN_INPUT, "layout", DENSE, "B", "Sk", "Hkv", "dv", "values"), .unless = "kv_alias"},
    {TENSOR3(v, QN_INPUT, "layout", VARLEN, "Tk", "Hkv", "dv", "values, as k"), .unless = "kv_alias"},
    {TENSOR4(v, QN_INPUT, "layout", PAGED, "pages", "page", "Hkv", "dv", "values, as k"), .unless = "kv_alias"},
    {.name = "sink",
     .direction = QN_INPUT,
     .axes = {"Hq"},
     .dtype = QUERN_F32,
     .flag = "sink",
     .pointer_offset = AT(sink),
     .doc = "a logit that only adds to the sum"},
    {BOUNDS(cu_q, "cu_q", NULL, 0, "B+1", "where each sequence's queries begin, and the end")},
    {BOUNDS(cu_k, NULL, "layout", VARLEN, "B+1", "where each sequence's keys begin, and the end")},
    {.name = "block_table",
     .direction = QN_INPUT,
     .axes = {"B", "columns"},
     .dtype = QUERN_I32,
     .choice = "layout",
     .choices = PAGED,
     .pointer_offset = AT(block_table),
     .stride_offset = {AT(block_table_stride_B)},
     .doc = "pages of each sequence"},
    {BOUNDS(length_k, "length_k", NULL, 0, "B", "keys of each sequence")},
    {TENSOR4(out, QN_OUTPUT, "cu_q", NO, "B", "Sq", "Hq", "dv", "the heads' outputs")},
    {TENSOR3(out, QN_OUTPUT, "cu_q", YES, "Tq", "Hq", "dv", "the heads' outputs, as q")},
    {.name = "lse",
     .direction = QN_OUTPUT,
     .axes = {"B", "Sq", "Hq"},
     .dtype = QUERN_F32,
     .flag = "lse",
     .choice = "cu_q",
     .choices = NO,
     .pointer_offset = AT(lse),
     .stride_offset = {AT(lse_stride_B), AT(lse_stride_S)},
     .stride_axes = {"B", "S"},
     .doc = "natural log of the sum of e^score, without the sink"},
    {.name = "lse",
     .direction = QN_OUTPUT,
     .axes = {"Tq", "Hq"},
     .dtype = QUERN_F32,
     .flag = "lse",
     .choice = "cu_q",
     .choices = YES,
     .pointer_offset = AT(lse),
     .stride_offset = {AT(lse_stride_S)},
     .stride_axes = {"S"},
     .doc = "the same, as q"},
};
#undef TENSOR4
#undef TENSOR3
#undef BOUNDS

// ---- checks

static void derive(quern_spec *base)
{
    spec_t *s = (spec_t *)base;
    if (s->dv == 0) s->dv = s->d;
    if (s->layout == QUERN_LAYOUT_VARLEN) s->cu_q = 1;
    if (s->layout == QUERN_LAYOUT_PAGED) s->length_k = 1;
}

static quern_status check_multiple(const char *name, int64_t value, int64_t of)
{
    if (value % of == 0) return QUERN_OK;
    return qn_fail(QUERN_BAD_VALUE, "%s = %lld: a multiple of %lld is needed", name, (long long)value, (long long)of);
}

static quern_status check_reals(const spec_t *s)
{
    double scale = fabs(s->scale), cap = s->softcap;
    if (scale != 0 && (scale < FLT_MIN || scale > 1e30))
        return qn_fail(QUERN_BAD_VALUE, "scale = %g: allowed: " SCALE_RANGE " (0: 1 / sqrt(d))", s->scale);
    if (cap != 0 && (cap < 1e-30 || cap > 1e30))
        return qn_fail(QUERN_BAD_VALUE, "softcap = %g: allowed: " SOFTCAP_RANGE " (0: none)", cap);
    if (cap != 0 && scale / cap > FLT_MAX)
        return qn_fail(QUERN_BAD_VALUE, "scale = %g with softcap = %g: their quotient is %g, at most 3.4e38", s->scale,
                       cap, scale / cap);
    return QUERN_OK;
}

static quern_status check_layout(const spec_t *s)
{
    bool paged = s->layout == QUERN_LAYOUT_PAGED;
    if (paged != (s->page > 0))
        return qn_fail(QUERN_CONFLICT, "page = %lld with layout=%s: paged, and nothing else, has pages of 16 … 256",
                       (long long)s->page, qn_name_of(layout_names, (int)s->layout));
    if (s->layout == QUERN_LAYOUT_DENSE && s->cu_q)
        return qn_fail(QUERN_CONFLICT, "cu_q = 1 with layout=dense: ragged queries go with varlen or paged keys");
    if (s->layout == QUERN_LAYOUT_VARLEN && s->length_k)
        return qn_fail(QUERN_CONFLICT, "length_k = 1 with layout=varlen: there cu_k says how many keys there are");
    return QUERN_OK;
}

static quern_status check(const quern_spec *base)
{
    const spec_t *s = (const spec_t *)base;
    QN_TRY(check_multiple("d", s->d, 8));
    QN_TRY(check_multiple("dv", s->dv, 8));
    QN_TRY(check_multiple("page", s->page, 16));
    QN_TRY(check_multiple("kv_split", s->kv_split, 64));
    QN_TRY(check_reals(s));
    QN_TRY(check_layout(s));
    if (s->dv > 512) return qn_fail(QUERN_BAD_VALUE, "dv = d = %lld: v has 512 columns at most", (long long)s->dv);
    if (s->causal && s->window_right > 0)
        return qn_fail(QUERN_CONFLICT, "window_right = %lld with causal = 1, which is window_right = 0",
                       (long long)s->window_right);
    if (s->kv_alias && s->dv > s->d)
        return qn_fail(QUERN_CONFLICT, "dv = %lld with kv_alias = 1 and d = %lld: v is the first dv elements of k",
                       (long long)s->dv, (long long)s->d);
    return QUERN_OK;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t queries_of(const spec_t *s, const args_t *a)
{
    return s->cu_q ? a->Tq : a->B * a->Sq; // each below 2^31
}

static bool has_no_queries(const spec_t *s, const args_t *a)
{
    return s->cu_q ? a->Tq == 0 : a->B == 0 || a->Sq == 0; // nothing is checked yet: a product may overflow
}

// The most keys that a sequence can have.
static int64_t most_keys(const spec_t *s, const sizes_t *n)
{
    if (s->layout == QUERN_LAYOUT_DENSE) return n->Sk;
    int64_t most = s->layout == QUERN_LAYOUT_VARLEN ? n->Tk : n->columns * s->page;
    return n->Sk && n->Sk < most ? n->Sk : most;
}

static quern_status check_heads(int64_t Hq, int64_t Hkv)
{
    if (Hkv > 0 && Hq % Hkv == 0) return QUERN_OK;
    return qn_fail(QUERN_BAD_SIZE, "Hq = %lld with Hkv = %lld: query heads must be a multiple of KV heads",
                   (long long)Hq, (long long)Hkv);
}

// Of one number of heads each; Hq = 0 launches nothing, which is right, and Hkv = 0 may be one that is not given.
static quern_status check_sizes(const void *at_least, const void *at_most)
{
    const sizes_t *from = at_least, *to = at_most;
    if (from->Hq != to->Hq || from->Hkv != to->Hkv || to->Hkv == 0) return QUERN_OK;
    return check_heads(to->Hq, to->Hkv);
}

static quern_status check_args(const quern_spec *base, const quern_args *base_args, bool *empty)
{
    const spec_t *s = (const spec_t *)base;
    const args_t *a = (const args_t *)base_args;
    // Nothing to do asks for no pointers. What is negative is for the generic check.
    *empty = (a->B | a->Sq | a->Hq | a->Tq) >= 0 && (has_no_queries(s, a) || a->Hq == 0);
    if (*empty) return QUERN_OK;
    QN_TRY(qn_check_args(&qn_family_attention, base, base_args));
    QN_TRY(check_heads(a->Hq, a->Hkv));
    if (a->B == 0) return qn_fail(QUERN_BAD_SIZE, "B = 0 with Tq = %lld: queries of no sequence", (long long)a->Tq);
    int64_t least_tiles, keys = most_keys(s, &(sizes_t){.Sk = a->Sk, .Tk = a->Tk, .columns = a->columns});
    if (keys > INT32_MAX - 1024)
        return qn_fail(QUERN_BAD_SIZE, "columns = %lld of %lld positions: a sequence has at most 2147482623",
                       (long long)a->columns, (long long)s->page);
    int64_t rows = (s->cu_q ? a->Tq : a->Sq) * (a->Hq / a->Hkv); // each below 2^31
    if (rows > INT32_MAX - 1024)
        return qn_fail(QUERN_BAD_SIZE, "%lld queries of %lld heads a KV head: at most 2147482623 rows",
                       (long long)(s->cu_q ? a->Tq : a->Sq), (long long)(a->Hq / a->Hkv));
    // Tiles of 8 rows, the smallest there are (plan stream), for every head.
    bool fits = !__builtin_mul_overflow(ceil_div(queries_of(s, a), 8) + a->B, a->Hq, &least_tiles);
    if (fits && least_tiles <= INT32_MAX) return QUERN_OK;
    return qn_fail(QUERN_BAD_SIZE, "%lld queries of %lld heads: more tiles than a launch has CTAs",
                   (long long)queries_of(s, a), (long long)a->Hq);
}

static void sizes_of(const quern_args *base, void *out)
{
    const args_t *a = (const args_t *)base;
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), a->B, a->Sq, a->Sk, a->Hq, a->Hkv, a->Tq, a->Tk, a->pages, a->columns};
}

// ---- buckets

static void bucket_name(size_t bucket, char *text, size_t bytes)
{
    static const char *const names[QN_ATTENTION_BUCKETS] = {"Sq 1..16, Sq·Hq/Hkv 1..8", "Sq 1..16, Sq·Hq/Hkv 9..16",
                                                            "Sq 1..16, Sq·Hq/Hkv 17…", "Sq 17..6143", "Sq 6144…"};
    _Static_assert(QN_ATTENTION_LONG_QUERIES == 6144, "the last names");
    snprintf(text, bytes, "%s", names[bucket]);
}

static void bucket_sizes(size_t bucket, void *out)
{
    static const sizes_t typical[QN_ATTENTION_BUCKETS] = {
        [QN_ATTENTION_DECODE_8] = {sizeof(sizes_t), 32, 1, 8192, 32, 8, 32, 262144, 16384, 512},
        [QN_ATTENTION_DECODE_16] = {sizeof(sizes_t), 32, 1, 8192, 128, 8, 32, 262144, 16384, 512},
        [QN_ATTENTION_DECODE_64] = {sizeof(sizes_t), 64, 1, 4096, 64, 1, 64, 262144, 16384, 256},
        [QN_ATTENTION_MANY] = {sizeof(sizes_t), 16, 1024, 1024, 16, 16, 16384, 16384, 1024, 64},
        [QN_ATTENTION_LONG] = {sizeof(sizes_t), 2, 8192, 8192, 16, 16, 16384, 16384, 1024, 512},
    };
    *(sizes_t *)out = typical[bucket];
}

static size_t bucket_of(const void *in)
{
    const sizes_t *n = in;
    int64_t queries = n->Sq ? n->Sq : n->B ? ceil_div(n->Tq, n->B) : 0;
    int64_t packed = n->Hkv ? n->Hq / n->Hkv : 1;
    if (queries >= QN_ATTENTION_LONG_QUERIES) return QN_ATTENTION_LONG;
    if (queries > ATTENTION_SPLIT_QUERIES) return QN_ATTENTION_MANY;
    int64_t rows = queries * packed;
    return rows <= 8 ? QN_ATTENTION_DECODE_8 : rows <= 16 ? QN_ATTENTION_DECODE_16 : QN_ATTENTION_DECODE_64;
}

// By the queries a sequence and the query heads a KV head, each of which goes from its least to its most.
static uint32_t buckets_between(const quern_spec *base, const void *at_least, const void *at_most)
{
    const sizes_t *from = at_least, *to = at_most;
    int64_t least = from->Sq, most = to->Sq;
    if (((const spec_t *)base)->cu_q && from->Sq == 0) { // not known: then Tq and B say it, as bucket_of has it
        int64_t ragged = ceil_div(to->Tq, from->B ? from->B : 1);
        least = to->Sq == 0 ? ceil_div(from->Tq, to->B ? to->B : 1) : 0;
        most = ragged > most ? ragged : most;
    }
    int64_t few = most < ATTENTION_SPLIT_QUERIES ? most : ATTENTION_SPLIT_QUERIES;
    int64_t least_packed = from->Hkv ? from->Hq / to->Hkv : 1, most_packed = from->Hkv ? to->Hq / from->Hkv : to->Hq;
    uint32_t found = most >= QN_ATTENTION_LONG_QUERIES ? 1u << QN_ATTENTION_LONG : 0;
    if (most > ATTENTION_SPLIT_QUERIES && least < QN_ATTENTION_LONG_QUERIES) found |= 1u << QN_ATTENTION_MANY;
    if (least > ATTENTION_SPLIT_QUERIES) return found;
    if (least * least_packed <= 8) found |= 1u << QN_ATTENTION_DECODE_8;
    if (least * least_packed <= 16 && few * most_packed > 8) found |= 1u << QN_ATTENTION_DECODE_16;
    return few * most_packed > 16 ? found | 1u << QN_ATTENTION_DECODE_64 : found;
}

// ---- splits

typedef struct splits {
    int64_t split;  // keys
    int64_t most;   // a sequence
    int64_t tiles;  // a sequence and KV head, of those that may be cut
    int64_t places; // in the workspace: tiles of all of them
} splits;

static const struct {
    int64_t keys, split; // up to so many keys, so many a split
} regimes[] = {{2048, 256}, {16384, 512}, {65536, 1024}, {INT64_MAX, 2048}};

// By the number of keys alone; with batch_invariant by nothing at all.
static int64_t split_keys(const spec_t *s, int64_t keys)
{
    if (s->kv_split) return s->kv_split;
    if (s->batch_invariant) return 1024;
    size_t i = 0;
    while (keys > regimes[i].keys) i++;
    return regimes[i].split;
}

static bool is_heads(const qn_config *c)
{
    return c->value[QN_ATTENTION_PLAN] == QN_ATTENTION_HEADS;
}

// A product of sizes that memory may have no room for.
static int64_t bounded(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

// Tiles that are likely, of sequences of few queries each.
static int64_t usual_tiles(const qn_config *c, const sizes_t *n, const splits *r, int64_t packed)
{
    int64_t each = n->B ? ceil_div(n->Tq, n->B) : 0;
    int64_t tiles = ceil_div((each ? each : 1) * packed, c->value[QN_ATTENTION_ROWS]);
    return bounded(n->B * n->Hkv, tiles < r->tiles ? tiles : r->tiles);
}

static splits splits_of(const spec_t *s, const qn_config *c, const sizes_t *n)
{
    int64_t keys = most_keys(s, n), queries = ATTENTION_SPLIT_QUERIES, packed = n->Hkv ? n->Hq / n->Hkv : 1;
    splits r = {.split = split_keys(s, keys)};
    if (!s->cu_q && n->Sq < queries) queries = n->Sq;
    if (s->cu_q && n->Tq < queries) queries = n->Tq;
    r.tiles = ceil_div(queries * packed, c->value[QN_ATTENTION_ROWS]);
    r.places = bounded(n->B * n->Hkv, r.tiles);
    if (is_heads(c) && !s->kv_split && !s->batch_invariant)
        r.split = qn_attention_heads_split(s, c, s->cu_q ? usual_tiles(c, n, &r, packed) : r.places, keys);
    r.most = ceil_div(keys, r.split);
    if (r.most < 1 || (!s->cu_q && n->Sq > ATTENTION_SPLIT_QUERIES)) r.most = 1;
    return r;
}

// A split's part of a tile: sums and four numbers, a row.
static int64_t place_bytes(const spec_t *s, const qn_config *c)
{
    return c->value[QN_ATTENTION_ROWS] * (s->dv + 4) * 4;
}

// With the tickets; SIZE_MAX where no number says it.
static size_t bytes_of(const spec_t *s, const qn_config *c, int64_t parts)
{
    int64_t bytes = bounded(parts, place_bytes(s, c)), tickets = ATTENTION_TICKETS * 4;
    return bytes > INT64_MAX - tickets ? SIZE_MAX : (size_t)(tickets + bytes);
}

// Whether keys are cut into splits.
static bool is_cut(const qn_config *c)
{
    int plan = c->value[QN_ATTENTION_PLAN];
    return plan == QN_ATTENTION_DECODE || plan == QN_ATTENTION_STREAM || plan == QN_ATTENTION_HEADS;
}

// For all launches up to these sizes: also those of fewer keys, which may be cut more often, and of fewer queries.
static size_t workspace(const quern_spec *base, const qn_config *config, const void *at_most)
{
    const spec_t *s = (const spec_t *)base;
    sizes_t n = *(const sizes_t *)at_most;
    if (!is_cut(config)) return 0;
    if (n.Sq > ATTENTION_SPLIT_QUERIES) n.Sq = ATTENTION_SPLIT_QUERIES;
    splits r = splits_of(s, config, &n);
    int64_t keys = most_keys(s, &n), parts;
    if (is_heads(config) && !s->kv_split && !s->batch_invariant) {
        if (keys <= QN_ATTENTION_HEADS_SPLIT) return 0;
        parts = s->cu_q ? bounded(r.tiles, qn_attention_heads_parts(s, config, n.B * n.Hkv))
                        : qn_attention_heads_parts(s, config, r.places);
        return bytes_of(s, config, parts);
    }
    for (size_t i = 0; i + 1 < QN_COUNT(regimes); i++) {
        int64_t most = regimes[i].keys / regimes[i].split;
        if (!s->kv_split && !s->batch_invariant && keys > regimes[i].keys && most > r.most) r.most = most;
    }
    if (r.most <= 1) return 0;
    return bytes_of(s, config, bounded(r.places, r.most));
}

// ---- launch

static int clamp_window(int64_t window)
{
    return window < 0 || window > ATTENTION_NO_LIMIT ? ATTENTION_NO_LIMIT : (int)window;
}

// A product that may be any number where nothing is stepped over: of an empty tensor, or one without that axis.
static int64_t times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

// Strides of 0 replaced: each steps over all axes inside it. Then those that nothing steps by, of an axis of one or of none:
// rows that exist alone decide what is aligned, and what TMA can load.
static attention_strides strides(const args_t *a, size_t first, int64_t batches, int64_t positions, int64_t heads,
                                 int64_t width)
{
    const int64_t *given = (const int64_t *)(const void *)((const char *)a + first); // batch, position, head
    attention_strides r;
    r.head = given[2] ? given[2] : width;
    int64_t span = times(r.head, heads) > width ? times(r.head, heads) : width;
    r.position = given[1] ? given[1] : span;
    span = times(r.position, positions) > span ? times(r.position, positions) : span;
    r.batch = given[0] ? given[0] : span;
    r.head = heads > 1 ? r.head : width;
    r.position = positions > 1 ? r.position : width;
    r.batch = batches > 1 ? r.batch : width;
    return r;
}

// Whether every row begins at a multiple of so many bytes.
static bool is_aligned(const void *base, const attention_strides *s, unsigned bytes)
{
    uint64_t all = (uint64_t)(uintptr_t)base | 2 * (uint64_t)(s->batch | s->position | s->head);
    return (all & (bytes - 1)) == 0;
}

static void fill_tensors(const spec_t *s, const args_t *a, attention_params *p)
{
    bool paged = s->layout == QUERN_LAYOUT_PAGED, varlen = s->layout == QUERN_LAYOUT_VARLEN;
    int64_t batches = s->cu_q ? 1 : a->B, queries = s->cu_q ? a->Tq : a->Sq;
    int64_t blocks = paged ? a->pages : varlen ? 1 : a->B, keys = paged ? s->page : varlen ? a->Tk : a->Sk;
    p->q = a->q, p->k = a->k, p->v = s->kv_alias ? a->k : a->v;
    p->out = a->out, p->lse = s->lse ? a->lse : NULL, p->sink = s->sink ? a->sink : NULL;
    p->cu_q = s->cu_q ? a->cu_q : NULL, p->length_k = s->length_k ? a->length_k : NULL;
    p->cu_k = varlen ? a->cu_k : NULL;
    p->block_table = paged ? a->block_table : NULL;
    p->q_stride = strides(a, AT(q_stride_B), batches, queries, a->Hq, s->d);
    p->k_stride = strides(a, AT(k_stride_B), blocks, keys, a->Hkv, s->d);
    p->v_stride = s->kv_alias ? p->k_stride : strides(a, AT(v_stride_B), blocks, keys, a->Hkv, s->dv);
    p->out_stride = strides(a, AT(out_stride_B), batches, queries, a->Hq, s->dv);
    p->lse_stride_position = a->lse_stride_S ? a->lse_stride_S : a->Hq;
    p->lse_stride_batch = a->lse_stride_B ? a->lse_stride_B : times(p->lse_stride_position, a->Sq);
    p->table_stride = a->block_table_stride_B ? a->block_table_stride_B : a->columns;
    p->aligned = is_aligned(p->q, &p->q_stride, 16) | is_aligned(p->k, &p->k_stride, 16) << 1 |
                 is_aligned(p->v, &p->v_stride, 16) << 2 | is_aligned(p->out, &p->out_stride, 4) << 3;
}

static void fill_numbers(const spec_t *s, const args_t *a, const sizes_t *n, attention_params *p)
{
    double scale = s->scale != 0 ? fabs(s->scale) : 1.0 / sqrt((double)s->d);
    p->scale = (float)scale;
    p->scale_log2 = (float)(scale * 1.4426950408889634);
    p->softcap = (float)s->softcap;
    p->window_left = clamp_window(s->window_left);
    p->window_right = s->causal ? 0 : clamp_window(s->window_right);
    p->B = (int)a->B, p->Hq = (int)a->Hq, p->Hkv = (int)a->Hkv;
    p->Sq = (int)a->Sq;
    p->Sk =
        (int)(s->layout == QUERN_LAYOUT_DENSE ? a->Sk : most_keys(s, &(sizes_t){.Tk = n->Tk, .columns = n->columns}));
}

static void set_tiles(const spec_t *s, const args_t *a, int64_t rows, attention_params *p, qn_launch *out)
{
    p->tiles = (int)(s->cu_q ? a->Tq * p->pack / rows + a->B : ceil_div(a->Sq * p->pack, rows));
    out->grid[0] = (uint32_t)(p->tiles * (a->Hq / p->pack) * (s->cu_q ? 1 : a->B));
    out->grid[1] = 1, out->grid[2] = 1;
}

static int64_t constant_of(const qn_kernel_plan *k, const char *name)
{
    size_t i = 0;
    while (strcmp(k->constants[i].name, name)) i++;
    return k->constants[i].value;
}

// CTAs that share a tile's splits, of one to four waves of them: those that take least time, a split being so many blocks
// and a start and an end a few more.
static int split_ctas(const qn_config *c, int64_t sms, const splits *r, int64_t tiles)
{
    enum { WAVES = 4, START_AND_END = 6 };
    int64_t room = sms * c->value[QN_ATTENTION_CTAS], best = INT64_MAX;
    int64_t blocks = r->split / c->value[QN_ATTENTION_KEYS];
    int ctas = 1;
    for (int64_t waves = 1; waves <= WAVES && r->most > 1 && r->places <= ATTENTION_TICKETS; waves++) {
        int64_t n = waves * room / tiles;
        n = n < 1 ? 1 : n > r->most ? r->most : n;
        int64_t time = ceil_div(tiles * n, room) * (ceil_div(r->most, n) * blocks + START_AND_END);
        if (time < best) best = time, ctas = (int)n;
        if (n == r->most) break;
    }
    return ctas;
}

// Whether the splits of a CTA are one part: less to write and to add. The caller may want to know the parts.
static bool joins(const spec_t *s, const qn_config *c)
{
    return !is_heads(c) && !s->kv_split && !s->batch_invariant;
}

enum { MOST_CTAS = 32768 }; // of a grid's second axis, about half of what there may be

// Whether waves of so many CTAs leave less than a tenth of the room for them empty.
static bool is_even(const qn_config *c, int64_t sms, int64_t ctas)
{
    int64_t room = sms * c->value[QN_ATTENTION_CTAS];
    return 10 * ctas > 9 * ceil_div(ctas, room) * room;
}

// The last splits of a tile, a CTA each, of CTAs that have many: about a quarter of all. Where those of a CTA are one part
// an eighth, and none if the waves come out even, since each has to write its part.
static int split_rest(const splits *r, int ctas, bool joins, bool even)
{
    if (joins && even) return 0;
    int64_t rest = r->most / (joins ? 8 : 4);
    if (rest > MOST_CTAS) rest = MOST_CTAS;
    return r->most >= (int64_t)8 * ctas && r->places <= ATTENTION_TICKETS ? (int)rest : 0;
}

// cut: the configuration that says where; tiles: the one whose rows and keys these are, which has no more memory.
static void set_splits(const spec_t *s, const qn_config *cut, const qn_config *tiles, const qn_device_limits *limits,
                       const args_t *a, const sizes_t *n, attention_params *p, qn_launch *out)
{
    splits r = splits_of(s, tiles, n), by = splits_of(s, cut, n);
    bool stream = tiles->value[QN_ATTENTION_PLAN] == QN_ATTENTION_STREAM;
    r.split = by.split, r.most = by.most;
    p->split = (int)r.split, p->split_tiles = (int)r.tiles, p->split_most = (int)r.most;
    p->workspace = r.most > 1 ? a->workspace : NULL;
    p->joins = joins(s, tiles);
    int64_t count = (int64_t)out->grid[0], sms = p->joins ? QN_ATTENTION_USUAL_SMS : limits->sm_count;
    p->split_ctas =
        is_heads(tiles) ? (int)(r.most < MOST_CTAS ? r.most : MOST_CTAS) : split_ctas(tiles, sms, &r, count);
    p->split_long = p->split_ctas;
    if (stream) p->split_ctas += split_rest(&r, p->split_ctas, p->joins, is_even(tiles, sms, count * p->split_ctas));
    bool by_stage = is_heads(tiles) || (!is_heads(cut) && qn_attention_has_merge(cut) && count < limits->sm_count);
    p->merges = !by_stage;
    out->grid[1] = (uint32_t)p->split_ctas;
}

// CTAs of merge.cu a tile: some for each SM in all, of eight warps that have 64 columns of a row at a time, or half as many
// where there are many parts.
static uint32_t merge_ctas(const spec_t *s, const qn_config *c, int parts, uint32_t tiles)
{
    enum { ALL = 1056 };
    int columns = is_heads(c) && parts > 16 ? 32 : 64;
    uint32_t most = (uint32_t)(c->value[QN_ATTENTION_ROWS] * ceil_div(s->dv, columns) / 8),
             ctas = tiles ? ALL / tiles : ALL;
    return ctas < 1 ? 1 : ctas > most ? most : ctas;
}

// The last stage of a plan that loads by TMA is for what TMA can't load, in tiles and splits of its own.
static void set_last_stage(const spec_t *s, const qn_config *c, const qn_plan *made, const qn_device_limits *limits,
                           const args_t *a, const sizes_t *n, attention_params *p, qn_launch *out)
{
    const qn_kernel_plan *k = &made->stage[made->stage_count - 1];
    qn_config tiles = {{0}};
    tiles.value[QN_ATTENTION_PLAN] = is_cut(c) ? QN_ATTENTION_DECODE : QN_ATTENTION_PREFILL;
    tiles.value[QN_ATTENTION_ROWS] = (int32_t)constant_of(k, "ROWS");
    tiles.value[QN_ATTENTION_KEYS] = (int32_t)constant_of(k, "KEYS"), tiles.value[QN_ATTENTION_CTAS] = k->min_ctas;
    set_tiles(s, a, tiles.value[QN_ATTENTION_ROWS], p, out);
    if (is_cut(c)) set_splits(s, c, &tiles, limits, a, n, p, out);
}

QN_LAUNCH_PATH static void launch(const quern_spec *base, const qn_config *config, const qn_plan *made,
                                  const qn_device_limits *limits, const quern_args *base_args, size_t stage,
                                  qn_launch *out)
{
    const spec_t *s = (const spec_t *)base;
    const args_t *a = (const args_t *)base_args;
    int plan = config->value[QN_ATTENTION_PLAN];
    bool is_last = stage + 1 == made->stage_count, maps = plan == QN_ATTENTION_WGMMA || plan == QN_ATTENTION_HEADS;
    attention_params p;
    sizes_t n;
    memset(&p, 0, sizeof p);
    fill_tensors(s, a, &p);
    sizes_of(base_args, &n);
    fill_numbers(s, a, &n, &p);
    out->skip = maps && qn_attention_is_mapped(s, limits->driver, &p, a->pages) == is_last;
    if (out->skip) return;
    p.pack = is_cut(config) ? (int)(a->Hq / a->Hkv) : 1;
    if (maps && is_last) {
        set_last_stage(s, config, made, limits, a, &n, &p, out);
    } else {
        set_tiles(s, a, config->value[QN_ATTENTION_ROWS], &p, out);
        if (is_cut(config)) set_splits(s, config, config, limits, a, &n, &p, out);
    }
    if (is_cut(config) && stage == 1) {
        out->skip = p.split_most == 1 || p.merges || (p.joins && p.split_ctas == 1);
        out->grid[1] = merge_ctas(s, config, p.split_most, out->grid[0]);
    }
    if (maps && stage == 0) {
        bool fine = is_heads(config)
                        ? qn_attention_heads_launch(s, config, limits, &p, a->pages, out)
                        : qn_attention_wgmma_launch(s, config, limits, &p, s->cu_q ? a->Tq : a->Sq, a->pages, out);
        if (!fine) out->grid[0] = 0; // not expected: the launch then fails and says so
        return;
    }
    memcpy(out->params, &p, sizeof p);
}
#undef AT

const qn_family qn_family_attention = {
    .name = "attention",
    .doc = "fused multi-head attention: softmax(mask(q · k · scale)) · v, any head_dim",
    .fields = fields,
    .field_count = QN_COUNT(fields),
    .spec_bytes = sizeof(spec_t),
    .sizes = sizes,
    .size_args_offset = size_args_offset,
    .size_count = QN_COUNT(sizes),
    .sizes_bytes = sizeof(sizes_t),
    .tensors = tensors,
    .tensor_count = QN_COUNT(tensors),
    .args_bytes = sizeof(args_t),
    .workspace_offset = offsetof(args_t, workspace),
    .workspace_bytes_offset = offsetof(args_t, workspace_bytes),
    .knobs = qn_attention_knobs,
    .knob_count = QN_ATTENTION_KNOBS,
    .derive = derive,
    .check = check,
    .bucket_count = QN_ATTENTION_BUCKETS,
    .bucket_name = bucket_name,
    .bucket_sizes = bucket_sizes,
    .bucket_of = bucket_of,
    .buckets_between = buckets_between,
    .check_sizes = check_sizes,
    .choose = qn_attention_choose,
    .plan = qn_attention_plan,
    .budget = qn_attention_budget_text,
    .workspace = workspace,
    .workspace_word = 0,
    .check_args = check_args,
    .sizes_of = sizes_of,
    .launch = launch,
    .contents = qn_attention_contents,
    .reference = qn_reference_attention,
    .tolerance = qn_tolerance_attention,
};
