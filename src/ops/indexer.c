// SPDX-License-Identifier: Apache-2.0
// The family indexer: its fields, tensors and sizes, its plan and how it is chosen, its launch. The kernels are
// kernel_templates/indexer/*.cu; this file and they share args.h, and each kernel asserts the sizes computed here.
//
//   fused    scores and selection in one launch, `shares` CTAs a row, of which the last to end merges
//   wgmma    the same, other instructions; where a row has several CTAs all of them end it, each a part
//   prefill  many rows a sequence: keys are decoded once for eight of them (indexer_prefill.c)
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "indexer/args.h"
#include "ops/field.h"
#include "ops/indexer.h"
#include "reference/reference.h"

typedef quern_indexer_spec spec_t;
typedef quern_indexer_args args_t;
typedef quern_indexer_sizes sizes_t;

// ---- lists

static const qn_name layout_names[] = {{"nvfp4_heads", QUERN_INDEXER_NVFP4_HEADS},
                                       {"mxfp4_shared", QUERN_INDEXER_MXFP4_SHARED},
                                       {"fp8_shared", QUERN_INDEXER_FP8_SHARED},
                                       {NULL, 0}};
static const qn_name q_names[] = {{"bf16", QUERN_INDEXER_Q_BF16},
                                  {"f16", QUERN_INDEXER_Q_F16},
                                  {"fp8", QUERN_INDEXER_Q_FP8},
                                  {"mxfp4", QUERN_INDEXER_Q_MXFP4},
                                  {NULL, 0}};
static const qn_name granularity_names[] = {
    {"entry", QUERN_GRANULARITY_ENTRY}, {"block", QUERN_GRANULARITY_BLOCK}, {NULL, 0}};

enum {
    MOST_T = 1 << 24,
    MOST_ENTRIES = INT32_MAX - 65536,
    NVFP4 = 1 << QUERN_INDEXER_NVFP4_HEADS,
    MXFP4 = 1 << QUERN_INDEXER_MXFP4_SHARED,
    FP8 = 1 << QUERN_INDEXER_FP8_SHARED,
    Q_BF16 = 1 << QUERN_INDEXER_Q_BF16,
    Q_F16 = 1 << QUERN_INDEXER_Q_F16,
    Q_FP8 = 1 << QUERN_INDEXER_Q_FP8,
    Q_MXFP4 = 1 << QUERN_INDEXER_Q_MXFP4
};

// clang-format off
#define AT(member) offsetof(spec_t, member)
static const qn_field fields[] = {
    {.name = "H", .type = QN_INT, .offset = AT(H), .required = true, .min = 1, .max = 128, .doc = "heads"},
    {.name = "C", .type = QN_INT, .offset = AT(C), .required = true, .min = 32, .max = 256, .doc = "elements a head, a multiple of 32"},
    {.name = "layout", .type = QN_ENUM, .offset = AT(layout), .initial = QUERN_INDEXER_MXFP4_SHARED, .names = layout_names, .doc = "how keys lie in memory"},
    {.name = "k", .type = QN_INT, .offset = AT(k), .required = true, .min = 1, .max = 2048, .doc = "winners a row"},
    {.name = "q", .type = QN_ENUM, .offset = AT(q), .initial = QUERN_INDEXER_Q_BF16, .names = q_names, .doc = "type of q"},
    {.name = "page", .type = QN_INT, .offset = AT(page), .max = 4096, .doc = "entries a page, a multiple of 8; 0: contiguous"},
    {.name = "granularity", .type = QN_ENUM, .offset = AT(granularity), .initial = QUERN_GRANULARITY_ENTRY, .names = granularity_names, .doc = "what a winner is: an entry, or a block of epb by its largest score"},
    {.name = "epb", .type = QN_INT, .offset = AT(epb), .min = 1, .max = 1024, .initial = 1, .doc = "entries a block"},
    {.name = "scores", .type = QN_FLAG, .offset = AT(scores), .max = 1, .doc = "1: the winners' scores are written"},
    {.name = "row_seq", .type = QN_FLAG, .offset = AT(row_seq), .max = 1, .doc = "1: the sequence of each row is given; else all are of sequence 0"},
    {.name = "cu_keys", .type = QN_FLAG, .offset = AT(cu_keys), .max = 1, .doc = "1: contiguous keys of several sequences, bounds are given"},
};
#undef AT

#define SIZE(member, most, text) {.name = #member, .type = QN_INT, .offset = offsetof(sizes_t, member), .max = (most), .doc = (text)}
static const qn_field sizes[] = {
    SIZE(T, MOST_T, "rows of queries"),
    SIZE(max_length, MOST_ENTRIES, "the most entries that a row sees; 0: not known"),
    SIZE(L, MOST_ENTRIES, "entries of contiguous keys"),
    SIZE(pages, INT32_MAX, "pages of keys"),
    SIZE(blocks, INT32_MAX, "nvfp4_heads: blocks of keys"),
    SIZE(columns, INT32_MAX, "columns of block_table"),
    SIZE(B, INT32_MAX, "sequences"),
};
#undef SIZE
static const size_t size_args_offset[] = {
    offsetof(args_t, T), offsetof(args_t, max_length), offsetof(args_t, L), offsetof(args_t, pages), offsetof(args_t, blocks), offsetof(args_t, columns), offsetof(args_t, B),
};

#define AT(member) offsetof(args_t, member)
#define Q_ROW(type, which, axis) {.name = "q", .direction = QN_INPUT, .axes = {"T", "H", axis}, .dtype = (type), .choice = "q", .choices = (which), .pointer_offset = AT(q), .stride_offset = {AT(q_stride_T), AT(q_stride_H)}, .doc = "queries"}
#define KEYS .name = "keys", .direction = QN_INPUT, .dtype = QUERN_U8, .choice = "layout", .pointer_offset = AT(keys)
#define SCALES .name = "key_scale", .direction = QN_INPUT, .choice = "layout", .pointer_offset = AT(key_scale)
static const qn_tensor tensors[] = {
    Q_ROW(QUERN_BF16, Q_BF16, "C"),
    Q_ROW(QUERN_F16, Q_F16, "C"),
    Q_ROW(QUERN_U8, Q_FP8, "C"),
    Q_ROW(QUERN_U8, Q_MXFP4, "C/2"),
    {.name = "q_scale", .direction = QN_INPUT, .axes = {"T", "H"}, .dtype = QUERN_F32, .choice = "q", .choices = Q_FP8, .pointer_offset = AT(q_scale), .stride_offset = {AT(q_scale_stride_T)}, .doc = "of a head's queries"},
    {.name = "q_scale", .direction = QN_INPUT, .axes = {"T", "H", "C/32"}, .dtype = QUERN_U8, .choice = "q", .choices = Q_MXFP4, .pointer_offset = AT(q_scale), .stride_offset = {AT(q_scale_stride_T), AT(q_scale_stride_H)}, .doc = "UE8M0, one for 32 elements"},
    {.name = "w", .direction = QN_INPUT, .axes = {"T", "H"}, .dtype = QUERN_F32, .pointer_offset = AT(w), .stride_offset = {AT(w_stride_T)}, .doc = "weight of each head, of either sign"},
    {KEYS, .axes = {"L", "C/2"}, .choices = MXFP4, .unless = "page", .stride_offset = {AT(keys_stride_L)}, .doc = "E2M1, an entry after another"},
    {KEYS, .axes = {"L", "C"}, .choices = FP8, .unless = "page", .stride_offset = {AT(keys_stride_L)}, .doc = "E4M3, an entry after another"},
    {KEYS, .axes = {"pages", "page_bytes"}, .choices = MXFP4 | FP8, .flag = "page", .stride_offset = {AT(keys_stride_pages)}, .doc = "a page's values, then its scales"},
    {KEYS, .axes = {"blocks", "epb", "H*C/2"}, .choices = NVFP4, .stride_offset = {AT(keys_stride_blocks), AT(keys_stride_epb)}, .doc = "E2M1, a key for each head"},
    {SCALES, .axes = {"L", "C/32"}, .dtype = QUERN_U8, .choices = MXFP4, .unless = "page", .stride_offset = {AT(key_scale_stride_L)}, .doc = "UE8M0, one for 32 elements"},
    {SCALES, .axes = {"L"}, .dtype = QUERN_F32, .choices = FP8, .unless = "page", .doc = "of an entry"},
    {SCALES, .axes = {"blocks", "epb", "H*C/16"}, .dtype = QUERN_U8, .choices = NVFP4, .stride_offset = {AT(key_scale_stride_blocks), AT(key_scale_stride_epb)}, .doc = "E4M3, one for 16 elements"},
    {.name = "tensor_scale", .direction = QN_INPUT, .axes = {"1"}, .dtype = QUERN_F32, .choice = "layout", .choices = NVFP4, .pointer_offset = AT(tensor_scale), .doc = "of all keys"},
    {.name = "length", .direction = QN_INPUT, .axes = {"T"}, .dtype = QUERN_I32, .pointer_offset = AT(length), .doc = "entries that each row sees"},
    {.name = "block_table", .direction = QN_INPUT, .axes = {"B", "columns"}, .dtype = QUERN_I32, .flag = "page", .pointer_offset = AT(block_table), .stride_offset = {AT(block_table_stride_B)}, .doc = "pages of each sequence"},
    {.name = "row_seq", .direction = QN_INPUT, .axes = {"T"}, .dtype = QUERN_I32, .flag = "row_seq", .pointer_offset = AT(row_seq), .doc = "sequence of each row"},
    {.name = "cu_keys", .direction = QN_INPUT, .axes = {"B+1"}, .dtype = QUERN_I32, .flag = "cu_keys", .pointer_offset = AT(cu_keys), .doc = "where each sequence's keys begin, and the end"},
    {.name = "indices", .direction = QN_OUTPUT, .axes = {"T", "k"}, .dtype = QUERN_I32, .pointer_offset = AT(indices), .stride_offset = {AT(indices_stride_T)}, .doc = "positions in the row's sequence by descending score, then -1"},
    {.name = "scores", .direction = QN_OUTPUT, .axes = {"T", "k"}, .dtype = QUERN_F32, .flag = "scores", .pointer_offset = AT(scores), .stride_offset = {AT(scores_stride_T)}, .doc = "of the winners, then -inf"},
};
#undef AT
#undef Q_ROW
#undef KEYS
#undef SCALES
// clang-format on

static const qn_name plan_names[] = {
    {"fused", QN_INDEXER_FUSED}, {"prefill", QN_INDEXER_PREFILL}, {"wgmma", QN_INDEXER_WGMMA}, {NULL, 0}};

enum knob { PLAN, WARPS, SHARES, KNOBS };
static const qn_knob knobs[] = {
    [PLAN] =
        {"plan", {QN_INDEXER_FUSED, QN_INDEXER_PREFILL, QN_INDEXER_WGMMA}, 3, plan_names, "how rows are dealt to CTAs"},
    [WARPS] = {"warps", {8, 12, 16}, 3, NULL, "fused, wgmma: warps a CTA"},
    [SHARES] = {"shares", {1, 2, 4, 8, 16, 32, 64, 128}, 8, NULL, "fused, wgmma: CTAs a row"},
};

// ---- shapes

static bool is_integer(const spec_t *s) // products of FP4 by FP4
{
    return s->layout == QUERN_INDEXER_MXFP4_SHARED && s->q == QUERN_INDEXER_Q_MXFP4;
}

static int64_t value_bytes(const spec_t *s)
{
    return s->layout == QUERN_INDEXER_FP8_SHARED ? s->C : s->C / 2;
}

static int64_t scale_bytes(const spec_t *s)
{
    return s->layout == QUERN_INDEXER_FP8_SHARED ? 4 : s->C / 32;
}

static int64_t axis_length(const quern_spec *base, const char *axis)
{
    const spec_t *s = (const spec_t *)base;
    const struct {
        const char *name;
        int64_t length;
    } known[] = {
        {"C/2", s->C / 2},
        {"C/32", s->C / 32},
        {"H*C/2", s->H * s->C / 2},
        {"H*C/16", s->H * s->C / 16},
        {"1", 1},
        {"page_bytes", s->page * (value_bytes(s) + scale_bytes(s))},
    };
    for (size_t i = 0; i < QN_COUNT(known); i++)
        if (!strcmp(axis, known[i].name)) return known[i].length;
    return -1;
}

static quern_status check(const quern_spec *base)
{
    const spec_t *s = (const spec_t *)base;
    bool heads = s->layout == QUERN_INDEXER_NVFP4_HEADS;
    if (s->C % 32) return qn_fail(QUERN_BAD_VALUE, "C = %lld: a multiple of 32 is needed", (long long)s->C);
    if (s->page % 8) return qn_fail(QUERN_BAD_VALUE, "page = %lld: a multiple of 8 is needed", (long long)s->page);
    if (heads && s->page && s->page != s->epb)
        return qn_fail(QUERN_CONFLICT, "page = %lld with epb = %lld: pages of nvfp4_heads are its blocks",
                       (long long)s->page, (long long)s->epb);
    if (s->page && s->cu_keys)
        return qn_fail(QUERN_CONFLICT, "cu_keys = 1 with page = %lld: bounds are for contiguous keys",
                       (long long)s->page);
    if (!heads && s->granularity == QUERN_GRANULARITY_ENTRY && s->epb != 1)
        return qn_fail(QUERN_CONFLICT, "epb = %lld with granularity=entry: only blocks, and nvfp4_heads, have epb",
                       (long long)s->epb);
    return QUERN_OK;
}

// ---- the plan "fused" (fused.cu)

enum {
    RAW_BYTES = 4 * INDEXER_RAW_SCORES,
    MOST_IN_BIN = 64,
    LEAST_BINS = 2048,
    MOST_BINS = 4096,
    WORDS = 18,
    SLACK = 16,
    LEAST_IN_SCORES = 16, // shares of a row that meet by scores, not lists
    MOST_TOGETHER = 132,  // CTAs that memory for meetings is for
    MOST_CTAS = INDEXER_TICKETS
};

// The launch's word has 8 bits for the CTAs that came and 8 for those that left (row_together.cuh).
_Static_assert(MOST_TOGETHER < 256, "more CTAs than a launch's word counts");

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// Candidates of a share's record: what it holds of k winners that lie at random, and five standard deviations.
static int64_t local_k(const spec_t *s, int64_t shares)
{
    double each = (double)s->k / (double)shares;
    int64_t wanted = (int64_t)ceil(each + 5 * sqrt(each) + 8);
    return shares == 1 || wanted > s->k ? s->k : wanted;
}

static int64_t room(const spec_t *s, int64_t shares)
{
    return (local_k(s, shares) + SLACK + 1) / 2 * 2;
}

// What a share leaves for the CTA that ends its row (share.cuh).
static int64_t record_bytes(const spec_t *s, int64_t shares)
{
    return 8 * (2 + room(s, shares));
}

// Bytes by which the CTAs of a row tell one another what they found (row_together.cuh).
static int64_t met_bytes(const spec_t *s, int64_t shares)
{
    int64_t lists = 8 * shares * ((local_k(s, shares) + 1) / 2 * 2);
    return shares >= LEAST_IN_SCORES && lists < RAW_BYTES ? RAW_BYTES : lists;
}

// Of an area for all rows of a launch, whatever the configuration: the fewer shares, the longer the lists, and so many CTAs
// with two shares a row need no less than with more.
static int64_t meeting_bytes(const spec_t *s)
{
    int64_t lists = MOST_TOGETHER / 2 * met_bytes(s, 2), scores = MOST_TOGETHER / LEAST_IN_SCORES * RAW_BYTES;
    return (lists > scores ? lists : scores) / 256 * 256 + 256;
}

// What stays from launch to launch: tickets and two areas, the same for every plan of an op.
static int64_t state_bytes(const spec_t *s)
{
    return 4 * INDEXER_TICKETS + 2 * meeting_bytes(s);
}

static int64_t columns_of(const spec_t *s)
{
    if (s->layout == QUERN_INDEXER_NVFP4_HEADS) return s->H;
    return s->H <= 8 ? 8 : ceil_div(s->H, 16) * 16;
}

static int64_t fragment_count(const spec_t *s)
{
    int64_t steps = is_integer(s) ? s->C / 32 : s->C / 16;
    return s->layout == QUERN_INDEXER_NVFP4_HEADS ? s->H * steps * 4 : columns_of(s) / 8 * steps * 32;
}

// Of bins.cuh: at least `least`, as many for each thread.
static int64_t bins_of(const qn_config *c, int64_t least)
{
    int64_t threads = 32 * c->value[WARPS];
    return ceil_div(least, threads) * threads;
}

static int64_t shared_bytes(const spec_t *s, const qn_config *c, int64_t capacity, int64_t bins, bool query_shared)
{
    int64_t sorted = 32;
    while (sorted < s->k) sorted *= 2;
    int64_t fragments = query_shared ? fragment_count(s) : 2; // an even number
    return 8 * (capacity + sorted + 2 * MOST_IN_BIN + 2 + fragments + 3 * (columns_of(s) / 2 + 1)) +
           4 * (bins + 32 + c->value[WARPS] + WORDS + 1);
}

// Warps that the registers of an SM are enough for, without spills.
static int most_warps(const spec_t *s, const qn_arch *arch)
{
    bool f16 = s->q == QUERN_INDEXER_Q_FP8 || s->q == QUERN_INDEXER_Q_F16;
    bool fp8 = s->layout == QUERN_INDEXER_FP8_SHARED && f16 && s->C <= 128;
    return is_integer(s) || (fp8 && arch->cc >= 90 && arch->cc < 120) ? 12 : 8; // sm_120a: one register short
}

static void write_entry(const spec_t *s, const char *plan, char *entry)
{
    char paged[24] = "", blocks[16] = "";
    if (s->page) snprintf(paged, sizeof paged, "_page%d", (int)s->page);
    if (s->granularity == QUERN_GRANULARITY_BLOCK) snprintf(blocks, sizeof blocks, "_block%d", (int)s->epb);
    snprintf(entry, QN_MAX_ENTRY, "quern_indexer_h%d_c%d_k%d_%s_q%s%s%s_%s", (int)s->H, (int)s->C, (int)s->k,
             qn_name_of(layout_names, (int)s->layout), qn_name_of(q_names, (int)s->q), paged, blocks, plan);
}

// What every kernel is told of the spec.
static void begin_kernel(const spec_t *s, const char *plan, qn_kernel_plan *k)
{
    k->cluster = 1;
    k->params_bytes = sizeof(indexer_params);
    write_entry(s, plan, k->entry);
    qn_plan_constant(k, "H", s->H);
    qn_plan_constant(k, "C", s->C);
    qn_plan_constant(k, "K", s->k);
    qn_plan_constant(k, "LAYOUT", s->layout);
    qn_plan_constant(k, "Q", s->q);
    qn_plan_constant(k, "PAGE", s->page);
    qn_plan_constant(k, "EPB", s->epb);
    qn_plan_constant(k, "BLOCKS", s->granularity == QUERN_GRANULARITY_BLOCK);
    qn_plan_constant(k, "SCORES", s->scores);
    qn_plan_constant(k, "ROW_SEQ", s->row_seq);
    qn_plan_constant(k, "CU_KEYS", s->cu_keys);
}

static void add_constants(const spec_t *s, const qn_config *c, int64_t capacity, int64_t bins, bool query_shared,
                          qn_kernel_plan *k)
{
    qn_plan_constant(k, "SHARES", c->value[SHARES]);
    qn_plan_constant(k, "LOCAL_K", local_k(s, c->value[SHARES]));
    qn_plan_constant(k, "ROOM", room(s, c->value[SHARES]));
    qn_plan_constant(k, "RECORD_BYTES", record_bytes(s, c->value[SHARES]));
    qn_plan_constant(k, "CAP", capacity);
    qn_plan_constant(k, "BINS", bins);
    qn_plan_constant(k, "STATE_BYTES", state_bytes(s));
    qn_plan_constant(k, "QUERY_SHARED", query_shared);
}

static quern_status plan_fused(const spec_t *s, const qn_arch *arch, const qn_config *config, qn_kernel_plan *k)
{
    int64_t capacity = 8192, shares = config->value[SHARES], bins = bins_of(config, MOST_BINS);
    bool query_shared = true;
    if (config->value[WARPS] > most_warps(s, arch))
        return qn_fail(QUERN_NO_PLAN, "warps=%d: this spec's registers are enough for %d", config->value[WARPS],
                       most_warps(s, arch));
    if (shares * room(s, shares) > capacity && shares > 1)
        return qn_fail(QUERN_NO_PLAN, "shares=%lld with k = %lld: %lld candidates to merge, room for %lld",
                       (long long)shares, (long long)s->k, (long long)(shares * room(s, shares)), (long long)capacity);
    if (shared_bytes(s, config, capacity, bins, true) > arch->shared_cta) bins = bins_of(config, LEAST_BINS);
    if (shared_bytes(s, config, capacity, bins, true) > arch->shared_cta &&
        (shares == 1 || shares * room(s, shares) <= capacity / 2))
        capacity /= 2;
    // Several CTAs a row would make q's fragments again in each: they rather are fewer, which the caller tries.
    if (shared_bytes(s, config, capacity, bins, true) > arch->shared_cta && shares == 1 && !is_integer(s))
        query_shared = false;
    int64_t bytes = shared_bytes(s, config, capacity, bins, query_shared);
    if (bytes > arch->shared_cta)
        return qn_fail(QUERN_NO_PLAN, "plan=fused needs %lld bytes of shared memory, %s has %d", (long long)bytes,
                       arch->name, arch->shared_cta);
    k->template_path = "indexer/fused.cu";
    k->threads = 32 * config->value[WARPS];
    k->min_ctas = 1;
    k->dynamic_shared = (int)bytes;
    add_constants(s, config, capacity, bins, query_shared, k);
    return QUERN_OK;
}

static quern_status plan_wgmma(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *k)
{
    int64_t capacity = 8192, shares = c->value[SHARES], threads = 32 * c->value[WARPS], bins = bins_of(c, MOST_BINS);
    int64_t wide = ceil_div(s->H, 16) * 16, sorted = 32;
    while (sorted < s->k) sorted *= 2;
    int64_t bytes = wide * (s->C * (is_integer(s) ? 1 : 2) + 4) + 8 * (capacity + sorted + 2 * MOST_IN_BIN + 2) +
                    4 * (2 * capacity + bins + 32 + 4 + c->value[WARPS] + WORDS);
    if (!qn_indexer_has_wgmma(s, arch))
        return qn_fail(QUERN_NO_PLAN,
                       "plan=wgmma serves mxfp4 by mxfp4, and fp8_shared by fp8 or f16 with up to 64 heads; C up to "
                       "128, entries, sm_90a: not this spec on %s",
                       arch->name);
    if (shares * room(s, shares) > capacity && shares > 1)
        return qn_fail(QUERN_NO_PLAN, "shares=%lld with k = %lld: %lld candidates to merge, room for %lld",
                       (long long)shares, (long long)s->k, (long long)(shares * room(s, shares)), (long long)capacity);
    if (c->value[WARPS] == 16 && s->H > 64)
        return qn_fail(QUERN_NO_PLAN, "plan=wgmma warps=16 with H = %lld: registers are enough up to 64",
                       (long long)s->H);
    k->template_path = "indexer/wgmma.cu";
    k->threads = (int)threads;
    k->min_ctas = 1;
    k->dynamic_shared = (int)bytes;
    qn_plan_constant(k, "ROWS", 1);
    add_constants(s, c, capacity, bins, true, k);
    return QUERN_OK;
}

static quern_status plan(const quern_spec *base, const qn_arch *arch, const qn_config *config, qn_plan *out)
{
    const spec_t *s = (const spec_t *)base;
    int number = config->value[PLAN];
    qn_plan made;
    memset(&made, 0, sizeof made);
    qn_kernel_plan *k = &made.stage[0];
    begin_kernel(s, qn_name_of(plan_names, number), k);
    QN_TRY(number == QN_INDEXER_PREFILL ? qn_indexer_prefill_plan(s, arch, k)
           : number == QN_INDEXER_WGMMA ? plan_wgmma(s, arch, config, k)
                                        : plan_fused(s, arch, config, k));
    made.stage_count = 1;
    *out = made;
    return QUERN_OK;
}

// ---- buckets of rows and lengths

static const int64_t last_T[] = {1, 4, 8, 16, 32, 66, MOST_T};
static const int64_t last_length[] = {2048, 8192, 32768, MOST_ENTRIES};
enum {
    RANGES = QN_COUNT(last_T),
    LENGTHS = QN_COUNT(last_length),
    SHARING = RANGES,    // after the ranges of T: many rows, eight or more to a sequence
    LEAST_SHARING = 512, // rows
    ROWS_EACH = 8,       // of a sequence
    BUCKETS = (RANGES + 1) * LENGTHS
};

static size_t place_in(const int64_t *last, size_t count, int64_t value)
{
    size_t at = 0;
    while (at + 1 < count && value > last[at]) at++;
    return at;
}

static size_t bucket_of(const void *in)
{
    const sizes_t *z = in;
    int64_t entries = z->max_length ? z->max_length : z->L;
    size_t length = entries ? place_in(last_length, LENGTHS, entries) : LENGTHS - 1;
    bool sharing = z->T >= LEAST_SHARING && z->T / ROWS_EACH >= z->B;
    return (sharing ? SHARING : place_in(last_T, RANGES, z->T)) * LENGTHS + length;
}

// Lengths from … to, as bits.
static uint32_t lengths_between(int64_t from, int64_t to)
{
    return (2u << place_in(last_length, LENGTHS, to)) - (1u << place_in(last_length, LENGTHS, from));
}

static uint32_t buckets_between(const quern_spec *base, const void *at_least, const void *at_most)
{
    const spec_t *s = (const spec_t *)base;
    const sizes_t *from = at_least, *to = at_most;
    bool contiguous = !s->page && s->layout != QUERN_INDEXER_NVFP4_HEADS;
    uint32_t lengths = to->max_length ? lengths_between(from->max_length, to->max_length) : 0, found = 0;
    if (!from->max_length && contiguous && to->L) lengths |= lengths_between(from->L, to->L);
    if (!from->max_length && (!contiguous || !from->L)) lengths |= 1u << (LENGTHS - 1);
    bool may_share = to->T >= LEAST_SHARING && to->T / ROWS_EACH >= from->B;
    bool must_share = from->T >= LEAST_SHARING && from->T / ROWS_EACH >= to->B;
    for (size_t t = place_in(last_T, RANGES, from->T); !must_share && t <= place_in(last_T, RANGES, to->T); t++)
        found |= lengths << (t * LENGTHS);
    if (may_share) found |= lengths << (SHARING * LENGTHS);
    return found;
}

static void range_name(const char *size, const int64_t *last, size_t count, size_t at, char *text, size_t bytes)
{
    long long from = at ? (long long)last[at - 1] + 1 : 1;
    if (at + 1 == count)
        snprintf(text, bytes, "%s %lld…", size, from);
    else if (from == last[at])
        snprintf(text, bytes, "%s %lld", size, from);
    else
        snprintf(text, bytes, "%s %lld..%lld", size, from, (long long)last[at]);
}

static void bucket_name(size_t bucket, char *text, size_t bytes)
{
    size_t t = bucket / LENGTHS, l = bucket % LENGTHS;
    char rows[48], lengths[48];
    if (t == SHARING)
        snprintf(rows, sizeof rows, "T %d… of few sequences", LEAST_SHARING);
    else
        range_name("T", last_T, RANGES, t, rows, sizeof rows);
    range_name("max_length", last_length, LENGTHS, l, lengths, sizeof lengths);
    snprintf(text, bytes, "%s, %s", rows, lengths);
}

static void bucket_sizes(size_t bucket, void *out)
{
    static const int64_t rows[] = {1, 4, 8, 16, 32, 64, 256, 4096}, lengths[] = {2048, 8192, 32768, 131072};
    sizes_t z = QUERN_INDEXER_SIZES_INIT;
    z.T = rows[bucket / LENGTHS], z.max_length = lengths[bucket % LENGTHS];
    z.B = bucket / LENGTHS == SHARING ? 1 : z.T;
    *(sizes_t *)out = z;
}

// By what was measured (ANALYSIS.md): a CTA an SM, as long as a share has enough entries to be worth its start.
static void choose(const quern_spec *base, const qn_arch *arch, size_t bucket, qn_config *config)
{
    static const int64_t rows[] = {1, 4, 8, 16, 32, 66, 1024, 1024};
    static const int64_t lengths[] = {2048, 8192, 32768, 131072};
    int64_t T = rows[bucket / LENGTHS], length = lengths[bucket % LENGTHS], shares = 1;
    qn_plan made;
    memset(config, 0, sizeof *config);
    config->value[PLAN] = QN_INDEXER_PREFILL;
    if (bucket / LENGTHS == SHARING && qn_indexer_prefill_serves((const spec_t *)base, arch)) return;
    bool wgmma = qn_indexer_has_wgmma((const spec_t *)base, arch);
    config->value[PLAN] = wgmma ? QN_INDEXER_WGMMA : QN_INDEXER_FUSED;
    config->value[WARPS] = !wgmma ? most_warps((const spec_t *)base, arch) : ((const spec_t *)base)->H > 64 ? 12 : 16;
    while (shares < 128 && T * shares * 2 <= arch->sm_count + 4 && length / (shares * 2) >= 128) shares *= 2;
    for (config->value[SHARES] = (int32_t)shares; config->value[SHARES] > 1; config->value[SHARES] /= 2)
        if (plan(base, arch, config, &made) == QUERN_OK) return;
}

// The CTAs of a launch by "wgmma" that wait for one another: all of them must be resident, and their words have room for so
// many.
static int64_t most_together(int sm_count)
{
    return sm_count < MOST_TOGETHER ? sm_count : MOST_TOGETHER;
}

// Shares that all rows of the bucket can have: where not all CTAs would be resident, a launch goes by one a row. Two that only
// its fewer rows can have are better than one for all.
static bool fit(const quern_spec *base, size_t bucket, int sm_count, qn_config *config)
{
    const size_t range = bucket / LENGTHS;
    const int64_t least = range == SHARING ? LEAST_SHARING : range ? last_T[range - 1] + 1 : 1;
    const int64_t last = range == SHARING ? MOST_T : last_T[range], most = most_together(sm_count);
    const int32_t given = config->value[SHARES];
    (void)base;
    if (config->value[PLAN] != QN_INDEXER_WGMMA) return false;
    int32_t shares = given;
    while (shares > 1 && (shares > 2 ? last : least) * shares > most) shares /= 2;
    config->value[SHARES] = shares;
    return shares != given;
}

// ---- launch

static int64_t most_rows(const qn_config *config) // that are given to several CTAs each
{
    return config->value[SHARES] > 1 ? MOST_CTAS / config->value[SHARES] : 0;
}

// The most entries that a row has, as far as the sizes say it; 0: not known. Contiguous keys say it always, and where there
// are none, that is few.
static int64_t entries_of(const spec_t *s, int64_t max_length, int64_t L)
{
    if (s->page || s->layout == QUERN_INDEXER_NVFP4_HEADS) return max_length;
    int64_t most = L > 0 ? L : 1;
    return max_length && max_length < most ? max_length : most;
}

static size_t workspace(const quern_spec *spec, const qn_config *config, const void *at_most)
{
    const spec_t *s = (const spec_t *)spec;
    const sizes_t *z = at_most;
    int64_t rows = z->T, shares = config->value[SHARES];
    if (config->value[PLAN] == QN_INDEXER_PREFILL)
        return state_bytes(s) + qn_indexer_prefill_workspace(s, rows, entries_of(s, z->max_length, z->L));
    if (shares == 1 || rows == 0) return 0;
    if (config->value[PLAN] == QN_INDEXER_WGMMA) return state_bytes(s);
    if (rows > most_rows(config)) rows = most_rows(config);
    int64_t records = shares * record_bytes(s, shares);
    return state_bytes(s) + (size_t)(rows * (records > RAW_BYTES ? records : RAW_BYTES));
}

// CTAs a row.
static int shares_of(const qn_config *config, const qn_device_limits *limits, int64_t rows)
{
    int shares = config->value[SHARES];
    if (config->value[PLAN] == QN_INDEXER_PREFILL || rows > most_rows(config)) return 1;
    if (config->value[PLAN] != QN_INDEXER_WGMMA) return shares;
    return rows * shares <= most_together(limits->sm_count) ? shares : 1;
}

// Entries that a row can have.
static int64_t capacity_of(const spec_t *s, const args_t *a)
{
    int64_t entries = a->L;
    if (s->page)
        entries = a->columns * s->page;
    else if (s->layout == QUERN_INDEXER_NVFP4_HEADS)
        entries = a->blocks * s->epb;
    return entries < MOST_ENTRIES ? entries : MOST_ENTRIES;
}

static quern_status check_args(const quern_spec *spec, const quern_args *args, bool *empty)
{
    return qn_check_rows(&qn_family_indexer, spec, args, empty);
}

static void sizes_of(const quern_args *base, void *out)
{
    const args_t *a = (const args_t *)base;
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), a->T, a->max_length ? a->max_length : a->L, a->L, a->pages, a->blocks,
                                a->columns,      a->B};
}

static int64_t or_packed(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

// What a stride adds to addresses: nothing where its axis has one place.
static uint64_t stepped(int64_t stride, int64_t extent)
{
    return extent > 1 ? (uint64_t)stride : 0;
}

static void fill_queries(const spec_t *s, const args_t *a, indexer_params *p)
{
    bool wide = s->q == QUERN_INDEXER_Q_BF16 || s->q == QUERN_INDEXER_Q_F16, fp4 = s->q == QUERN_INDEXER_Q_MXFP4;
    int64_t head = fp4 ? s->C / 2 : s->C, element = wide ? 2 : 1;
    int64_t scales = fp4 ? s->C / 32 : 1, scale = fp4 ? 1 : 4;
    int64_t q_H = or_packed(a->q_stride_H, head), scale_H = or_packed(a->q_scale_stride_H, scales);
    p->q = a->q, p->w = a->w;
    p->q_scale = wide ? NULL : a->q_scale;
    p->q_stride_H = q_H * element, p->q_stride_T = or_packed(a->q_stride_T, q_H * s->H) * element;
    p->q_scale_stride_H = (fp4 ? scale_H : 1) * scale;
    p->q_scale_stride_T = or_packed(a->q_scale_stride_T, (fp4 ? scale_H : 1) * s->H) * scale;
    p->w_stride_T = or_packed(a->w_stride_T, s->H) * 4;
    p->q_aligned = (((uintptr_t)a->q | stepped(p->q_stride_T, a->T) | stepped(p->q_stride_H, s->H)) & 15) == 0;
    uint64_t scales_at =
        (uintptr_t)p->q_scale | stepped(p->q_scale_stride_T, a->T) | stepped(p->q_scale_stride_H, s->H);
    if (fp4 && s->C / 32 % 4 == 0 && scales_at & 3) p->q_aligned = 0; // words of scales
}

static void fill_keys(const spec_t *s, const args_t *a, indexer_params *p)
{
    bool heads = s->layout == QUERN_INDEXER_NVFP4_HEADS;
    int64_t value = heads ? s->H * s->C / 2 : value_bytes(s), scale = heads ? s->H * s->C / 16 : scale_bytes(s);
    int64_t words = heads || s->layout == QUERN_INDEXER_MXFP4_SHARED ? s->C / 32 : s->C / 16;
    uint64_t vector = words % 4 == 0 ? 16 : words % 2 == 0 ? 8 : 4; // bytes of a lane's load
    p->keys = a->keys;
    p->key_scale = s->page && !heads ? NULL : a->key_scale;
    p->tensor_scale = heads ? a->tensor_scale : NULL;
    if (heads) {
        p->keys_stride_entry = or_packed(a->keys_stride_epb, value);
        p->keys_stride = or_packed(a->keys_stride_blocks, p->keys_stride_entry * s->epb);
        p->key_scale_stride_entry = or_packed(a->key_scale_stride_epb, scale);
        p->key_scale_stride = or_packed(a->key_scale_stride_blocks, p->key_scale_stride_entry * s->epb);
    } else if (s->page) {
        p->keys_stride = or_packed(a->keys_stride_pages, s->page * (value + scale));
    } else {
        p->keys_stride = or_packed(a->keys_stride_L, value);
        p->key_scale_stride = s->layout == QUERN_INDEXER_FP8_SHARED ? 4 : or_packed(a->key_scale_stride_L, scale);
    }
    int64_t places = heads ? a->blocks : s->page ? a->pages : a->L;
    uint64_t values = (uintptr_t)p->keys | stepped(p->keys_stride, places) | stepped(p->keys_stride_entry, s->epb);
    uint64_t scales =
        s->page ? values | (uint64_t)(s->page * value) : (uintptr_t)p->key_scale | stepped(p->key_scale_stride, places);
    bool words_of_scales = !heads && (s->layout == QUERN_INDEXER_FP8_SHARED || s->C / 32 % 4 == 0); // else bytes
    p->keys_aligned = (values & (vector - 1)) == 0 && (!words_of_scales || (scales & 3) == 0);
}

QN_LAUNCH_PATH static void launch(const quern_spec *base, const qn_config *config, const qn_plan *made,
                                  const qn_device_limits *limits, const quern_args *base_args, size_t stage,
                                  qn_launch *out)
{
    const spec_t *s = (const spec_t *)base;
    const args_t *a = (const args_t *)base_args;
    bool prefill = config->value[PLAN] == QN_INDEXER_PREFILL;
    (void)stage;
    indexer_params p = {
        .length = a->length,
        .block_table = s->page ? a->block_table : NULL,
        .row_seq = s->row_seq ? a->row_seq : NULL,
        .cu_keys = s->cu_keys ? a->cu_keys : NULL,
        .indices = a->indices,
        .scores = s->scores ? a->scores : NULL,
        .workspace = prefill ? (unsigned char *)a->workspace + state_bytes(s) : a->workspace,
        .block_table_stride = or_packed(a->block_table_stride_B, a->columns),
        .indices_stride = or_packed(a->indices_stride_T, s->k),
        .scores_stride = or_packed(a->scores_stride_T, s->k),
        .capacity = capacity_of(s, a),
        .rows = (int)a->T,
        .sequences = s->page && a->columns > 0 && a->B > 0 ? (int)(a->B < INT32_MAX ? a->B : INT32_MAX) : 0,
        .shares = shares_of(config, limits, a->T),
    };
    fill_queries(s, a, &p);
    fill_keys(s, a, &p);
    out->grid[0] = (uint32_t)(a->T * p.shares), out->grid[1] = 1, out->grid[2] = 1;
    if (prefill) {
        int64_t most = entries_of(s, a->max_length, a->L);
        qn_indexer_prefill_launch(a->T, most, limits, &made->stage[0], &p, &out->grid[0]);
    }
    out->skip = false;
    memcpy(out->params, &p, sizeof p);
}

const qn_family qn_family_indexer = {
    .name = "indexer",
    .doc = "the k entries with the largest Σ w · ReLU(q · key): FP4 or FP8 keys, scores and exact selection",
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
    .knobs = knobs,
    .knob_count = KNOBS,
    .axis_length = axis_length,
    .check = check,
    .bucket_count = BUCKETS,
    .bucket_name = bucket_name,
    .bucket_sizes = bucket_sizes,
    .bucket_of = bucket_of,
    .buckets_between = buckets_between,
    .choose = choose,
    .fit = fit,
    .plan = plan,
    .workspace = workspace,
    .workspace_word = 0,
    .check_args = check_args,
    .args_are_plain = true,
    .sizes_of = sizes_of,
    .launch = launch,
    .contents = qn_indexer_contents,
    .reference = qn_reference_indexer,
};
