// SPDX-License-Identifier: Apache-2.0
// The family router: its fields, tensors and sizes, its plans and when each is chosen, its launches. The kernels are
// kernel_templates/router/*.cu and, for a gate of its own, kernel_templates/gate/*.cu; this file and they share args.h,
// and each kernel asserts the sizes computed here.
//
//   rows       whole rows of w a CTA, f32 fma; one to four tokens
//   fragments  tensor cores, operands from memory into registers; few tokens, 16-bit types, w [E, D]
//   wide       tensor cores of sm_90a, a slice of D in shared memory at once; 17 to 64 tokens, 16-bit types, w [E, D]
//   deep       tensor cores of sm_90a, a ring of blocks of D; more tokens, 16-bit types, w [E, D]
//   multicast  tensor cores of sm_90a, tiles shared by the CTAs of a cluster; more tokens, 16-bit types, w [E, D]
//   tiles      tensor cores, operands through shared memory; 16-bit types, any layout
//   exact      f32 fma, operands through shared memory; any types, any layout
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "ops/gate.h"
#include "ops/router.h"
#include "reference/reference.h"

typedef quern_router_spec spec_t;
typedef quern_router_args args_t;
typedef quern_router_sizes sizes_t;

// ---- lists

const qn_name qn_router_type_names[] = {{"f32", QUERN_F32}, {"f16", QUERN_F16}, {"bf16", QUERN_BF16}, {NULL, 0}};
static const qn_name layout_names[] = {{"ED", QUERN_W_ED}, {"DE", QUERN_W_DE}, {NULL, 0}};
static const qn_name index_names[] = {{"i32", QUERN_I32}, {"i64", QUERN_I64}, {NULL, 0}};
static const qn_name act_names[] = {{"sqrt_softplus", QUERN_ACT_SQRT_SOFTPLUS},
                                    {"sigmoid", QUERN_ACT_SIGMOID},
                                    {"softmax", QUERN_ACT_SOFTMAX},
                                    {NULL, 0}};

enum { MOST_D = 65536, MOST_E = 1024, MOST_K = 32 };

// clang-format off
#define AT(member) offsetof(spec_t, member)
static const qn_field fields[] = {
    {.name = "D", .type = QN_INT, .offset = AT(D), .required = true, .min = 8, .max = MOST_D, .doc = "elements of a token: a multiple of 8"},
    {.name = "E", .type = QN_INT, .offset = AT(E), .required = true, .min = 1, .max = MOST_E, .doc = "experts"},
    {.name = "K", .type = QN_INT, .offset = AT(K), .required = true, .min = 1, .max = MOST_K, .doc = "experts chosen a token, at most E · topk_group / n_group"},
    {.name = "in", .type = QN_ENUM, .offset = AT(in), .required = true, .names = qn_router_type_names, .doc = "type of x"},
    {.name = "w", .type = QN_ENUM, .offset = AT(w), .required = true, .names = qn_router_type_names, .doc = "type of w; f32 in either: every product is an f32 fma"},
    {.name = "w_layout", .type = QN_ENUM, .offset = AT(w_layout), .initial = QUERN_W_ED, .names = layout_names, .doc = "axes of w: [E, D] or [D, E]"},
    {.name = "batch_invariant", .type = QN_FLAG, .offset = AT(batch_invariant), .max = 1, .doc = "1: a token's bits do not depend on N"},
    {.name = "act", .type = QN_ENUM, .offset = AT(act), .initial = QUERN_ACT_SQRT_SOFTPLUS, .names = act_names, .doc = "activation of a logit"},
    {.name = "bias", .type = QN_FLAG, .offset = AT(bias), .max = 1, .doc = "1: a bias for each expert is given; it counts for the choice only"},
    {.name = "n_group", .type = QN_INT, .offset = AT(n_group), .min = 1, .max = MOST_E, .initial = 1, .doc = "groups of experts; divides E"},
    {.name = "topk_group", .type = QN_INT, .offset = AT(topk_group), .min = 1, .max = MOST_E, .initial = 1, .doc = "groups that are kept, by the sum of their two best scores"},
    {.name = "renormalize", .type = QN_FLAG, .offset = AT(renormalize), .max = 1, .initial = 1, .doc = "1: weights are divided by their sum before they are scaled"},
    {.name = "scale", .type = QN_REAL, .offset = AT(scale), .real_initial = 1.0, .allowed = "-3.4e38 to 3.4e38", .doc = "times each weight"},
    {.name = "index", .type = QN_ENUM, .offset = AT(index), .initial = QUERN_I32, .names = index_names, .doc = "type of ids"},
    {.name = "given_ids", .type = QN_FLAG, .offset = AT(given_ids), .max = 1, .doc = "1: the experts are given (hash routing), only weights are written"},
    {.name = "logits", .type = QN_FLAG, .offset = AT(logits), .max = 1, .doc = "1: the logits are written too"},
};
#undef AT

static const qn_field sizes[] = {
    {.name = "N", .type = QN_INT, .offset = offsetof(sizes_t, N), .required = true, .min = 0, .max = INT32_MAX, .doc = "tokens"},
};
static const size_t size_args_offset[] = {offsetof(args_t, N)};

#define AT(member) offsetof(args_t, member)
static const qn_tensor tensors[] = {
    {.name = "x", .direction = QN_INPUT, .axes = {"N", "D"}, .dtype_field = "in", .pointer_offset = AT(x), .stride_offset = {AT(x_stride_N)}, .doc = "one row a token"},
    {.name = "w", .direction = QN_INPUT, .axes = {"E", "D"}, .dtype_field = "w", .choice = "w_layout", .choices = 1u << QUERN_W_ED, .pointer_offset = AT(w), .stride_offset = {AT(w_stride_E)}, .doc = "one row an expert"},
    {.name = "w", .direction = QN_INPUT, .axes = {"D", "E"}, .dtype_field = "w", .choice = "w_layout", .choices = 1u << QUERN_W_DE, .pointer_offset = AT(w), .stride_offset = {AT(w_stride_D)}, .doc = "one column an expert"},
    {.name = "bias", .direction = QN_INPUT, .axes = {"E"}, .dtype = QUERN_F32, .flag = "bias", .pointer_offset = AT(bias), .doc = "added to the activation for the choice"},
    {.name = "given_ids", .direction = QN_INPUT, .axes = {"N", "K"}, .dtype = QUERN_I32, .flag = "given_ids", .pointer_offset = AT(given_ids), .stride_offset = {AT(given_ids_stride_N)}, .doc = "the experts of each token"},
    {.name = "weights", .direction = QN_OUTPUT, .axes = {"N", "K"}, .dtype = QUERN_F32, .pointer_offset = AT(weights), .stride_offset = {AT(weights_stride_N)}, .doc = "of the experts chosen, in order"},
    {.name = "ids", .direction = QN_OUTPUT, .axes = {"N", "K"}, .dtype_field = "index", .unless = "given_ids", .pointer_offset = AT(ids), .stride_offset = {AT(ids_stride_N)}, .doc = "of the experts chosen, in order"},
    {.name = "logits", .direction = QN_OUTPUT, .axes = {"N", "E"}, .dtype = QUERN_F32, .flag = "logits", .pointer_offset = AT(logits), .stride_offset = {AT(logits_stride_N)}, .doc = "what the gate saw"},
};
#undef AT
// clang-format on

const qn_name qn_router_plan_names[] = {{"rows", QN_ROUTER_ROWS},           {"fragments", QN_ROUTER_FRAGMENTS},
                                        {"wide", QN_ROUTER_WIDE},           {"deep", QN_ROUTER_DEEP},
                                        {"tiles", QN_ROUTER_TILES},         {"exact", QN_ROUTER_EXACT},
                                        {"multicast", QN_ROUTER_MULTICAST}, {NULL, 0}};
static const qn_name sums_names[] = {{"parts", QN_ROUTER_PARTS}, {"whole", QN_ROUTER_WHOLE}, {NULL, 0}};

const qn_knob qn_router_knobs[] = {
    [QN_ROUTER_PLAN] = {"plan",
                        {QN_ROUTER_ROWS, QN_ROUTER_FRAGMENTS, QN_ROUTER_WIDE, QN_ROUTER_DEEP, QN_ROUTER_TILES,
                         QN_ROUTER_EXACT, QN_ROUTER_MULTICAST},
                        7,
                        qn_router_plan_names,
                        "how products are made"},
    [QN_ROUTER_SUMS] = {"sums",
                        {QN_ROUTER_PARTS, QN_ROUTER_WHOLE},
                        2,
                        sums_names,
                        "parts: partial sums, gated by the same kernel; whole: logits, then a gate kernel"},
    [QN_ROUTER_TOKENS] = {"tokens", {1, 2, 4, 8, 16, 32, 64, 128, 192, 256}, 10, NULL, "of a tile"},
    [QN_ROUTER_EXPERTS] = {"experts", {1, 2, 3, 4, 6, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256}, 15, NULL, "of a tile"},
    [QN_ROUTER_SLICES] = {"slices",
                          {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16},
                          15,
                          NULL,
                          "parts of D, at most: they are whole blocks, so there may be fewer"},
    [QN_ROUTER_CHUNK] = {"chunk", {32, 64, 128, 256}, 4, NULL, "fragments: elements of D a warp"},
    [QN_ROUTER_STAGES] = {"stages",
                          {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16},
                          11,
                          NULL,
                          "tiles, exact, deep, multicast: blocks of D in shared memory"},
    [QN_ROUTER_GATE] = {"gate",
                        {1, 2, 3, 4},
                        4,
                        NULL,
                        "what follows whole sums or multicast: the gate as for up to 512, 1024, 8192, more tokens; "
                        "2 after parts of multicast: a warp a token"},
    [QN_ROUTER_CLUSTER_N] = {"cluster_n", {1, 2, 4}, 3, NULL, "multicast: CTAs of a cluster that share experts"},
    [QN_ROUTER_CLUSTER_E] = {"cluster_e", {1, 2, 3, 4}, 4, NULL, "multicast: CTAs of a cluster that share tokens"},
    [QN_ROUTER_CTAS] =
        {"ctas", {32, 64, 96, 102, 108, 112, 117, 120, 124, 126, 128, 132, 144}, 13, NULL, "multicast: most CTAs"},
    [QN_ROUTER_GATE_CTAS] =
        {"gate_ctas", {1, 2, 3, 4, 6, 8}, 6, NULL, "multicast: most CTAs of the gate of parts that an SM has at once"},
};

// ---- buckets of tokens

const int64_t qn_router_bucket_last[QN_ROUTER_BUCKETS] = {1,   2,   4,    8,    16,   32,   64,       128,
                                                          256, 512, 1024, 2048, 4096, 8192, INT32_MAX};

static int64_t bucket_first(size_t bucket)
{
    return bucket ? qn_router_bucket_last[bucket - 1] + 1 : 1;
}

static void bucket_name(size_t bucket, char *text, size_t bytes)
{
    if (bucket + 1 == QN_ROUTER_BUCKETS)
        snprintf(text, bytes, "N %lld…", (long long)bucket_first(bucket));
    else
        snprintf(text, bytes, "N %lld..%lld", (long long)bucket_first(bucket),
                 (long long)qn_router_bucket_last[bucket]);
}

static void bucket_sizes(size_t bucket, void *out)
{
    static const int64_t typical[QN_ROUTER_BUCKETS] = {1,   2,   4,    8,    16,   32,   64,   128,
                                                       256, 512, 1024, 2048, 4096, 8192, 16384};
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), typical[bucket]};
}

static size_t bucket_of(const void *in)
{
    size_t bucket = 0;
    while (bucket + 1 < QN_ROUTER_BUCKETS && ((const sizes_t *)in)->N > qn_router_bucket_last[bucket]) bucket++;
    return bucket;
}

// ---- workspace: the words of launches that wait for them, which are left clean; behind them what one stage leaves to the
// next, which is not

static size_t clean_bytes(const spec_t *s)
{
    return (size_t)(ROUTER_MOST_WHOLE * QN_ROUTER_MOST_SLICES * pitch_of(s)) * 4;
}

static bool has_parts(const spec_t *s, const qn_config *c, int64_t N)
{
    return s->batch_invariant ? N <= ROUTER_MOST_WHOLE : c->value[QN_ROUTER_SUMS] == QN_ROUTER_PARTS;
}

// Whether the words of partial sums are left as they were. Where the gate is always a launch of its own, they need not be.
static bool is_clean(const qn_config *c, int64_t N)
{
    return N <= ROUTER_MOST_WHOLE && c->value[QN_ROUTER_PLAN] != QN_ROUTER_MULTICAST;
}

static size_t workspace(const quern_spec *base, const qn_config *config, const void *at_most)
{
    const spec_t *s = (const spec_t *)base;
    int64_t N = ((const sizes_t *)at_most)->N, words = N * pitch_of(s);
    if (N == 0) return 0;
    if (has_parts(s, config, N)) {
        size_t bytes = (size_t)(words * qn_router_cut_of(s, config).slices) * 4;
        return is_clean(config, N) ? bytes : clean_bytes(s) + bytes;
    }
    return s->logits ? 0 : clean_bytes(s) + (size_t)words * 4;
}

// ---- checks

static quern_status check(const quern_spec *base)
{
    const spec_t *s = (const spec_t *)base;
    quern_gate_spec gate;
    if (s->D % 8) return qn_fail(QUERN_BAD_VALUE, "D = %lld: it must be a multiple of 8", (long long)s->D);
    qn_router_gate_spec(s, &gate);
    return qn_family_gate.check(&gate.base);
}

// Far above what the glance takes (args_glance.c): so the arguments are plain all the same.
static quern_status check_args(const quern_spec *spec, const quern_args *args, bool *empty)
{
    const spec_t *s = (const spec_t *)spec;
    QN_TRY(qn_check_rows(&qn_family_router, spec, args, empty));
    int64_t N = ((const args_t *)args)->N, tiles = INT32_MAX / ceil_div(pitch_of(s), 8); // of 8 tokens and 8 experts
    if (ceil_div(N, 8) <= tiles) return QUERN_OK;
    return qn_fail(QUERN_BAD_SIZE, "N = %lld: 0 … %lld is allowed with E = %lld: a launch has no CTAs for more tiles",
                   (long long)N, (long long)(tiles * 8), (long long)s->E);
}

static void sizes_of(const quern_args *args, void *out)
{
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), ((const args_t *)args)->N};
}

// ---- launch

// Tokens of a CTA of that kernel. On the launch path: ops/gate.c adds LANES and UNITS last.
static int tokens_of_gate(const qn_kernel_plan *k)
{
    if (!strcmp(k->template_path, "gate/block.cu")) return 1;
    if (!strcmp(k->template_path, "gate/given.cu")) return k->threads / 32;
    return k->threads / (int)k->constants[k->constant_count - 2].value;
}

typedef enum stage_kind { PARTS, GATE_OF_PARTS, LOGITS, GATE_OF_LOGITS } stage_kind;

static stage_kind kind_of(const spec_t *s, const qn_config *c, size_t stage)
{
    return (stage_kind)(stage + (!s->batch_invariant && c->value[QN_ROUTER_SUMS] == QN_ROUTER_WHOLE ? LOGITS : PARTS));
}

static bool is_aligned(const void *base, int64_t stride, int element, unsigned to)
{
    return (((uint64_t)(uintptr_t)base | (uint64_t)stride * (uint64_t)element) & (to - 1)) == 0;
}

static gate_params gate_of(const spec_t *s, const args_t *a)
{
    return (gate_params){
        .bias = s->bias ? a->bias : NULL,
        .given_ids = s->given_ids ? a->given_ids : NULL,
        .weights = a->weights,
        .ids = s->given_ids ? NULL : a->ids,
        .given_ids_stride = a->given_ids_stride_N ? a->given_ids_stride_N : s->K,
        .weights_stride = a->weights_stride_N ? a->weights_stride_N : s->K,
        .ids_stride = a->ids_stride_N ? a->ids_stride_N : s->K,
        .N = a->N,
        .scale = (float)s->scale,
    };
}

static router_params params_of(const spec_t *s, const args_t *a)
{
    int64_t w_stride = s->w_layout == QUERN_W_ED ? a->w_stride_E ? a->w_stride_E : s->D
                       : a->w_stride_D           ? a->w_stride_D
                                                 : s->E;
    router_params p = {
        .gate = gate_of(s, a),
        .x = a->x,
        .w = a->w,
        .logits = s->logits ? a->logits : NULL,
        .words = a->workspace,
        .x_stride = a->x_stride_N && a->N > 1 ? a->x_stride_N : s->D, // one row: nothing steps by it
        .w_stride = w_stride,
        .logits_stride = a->logits_stride_N ? a->logits_stride_N : s->E,
        .tokens = (unsigned)a->N,
        .logits_are = s->logits ? ROUTER_LOGITS_EACH : ROUTER_LOGITS_NONE,
    };
    p.x_aligned = is_aligned(p.x, p.x_stride, bytes_of(s->in), 16);
    p.w_aligned = is_aligned(p.w, p.w_stride, bytes_of(s->w), 16);
    return p;
}

// The stride of logits, where there is a second row.
static int64_t stepped(const router_params *p)
{
    return p->gate.N > 1 ? p->logits_stride : 0;
}

// Logits that nobody asked for lie in the workspace.
static void place_logits(const spec_t *s, router_params *p)
{
    if (!p->logits) p->logits = (float *)((char *)p->words + clean_bytes(s)), p->logits_stride = pitch_of(s);
    p->logits_are = is_aligned(p->logits, stepped(p), 4, 8) ? ROUTER_LOGITS_PAIRS : ROUTER_LOGITS_EACH;
}

static int64_t tiles_of(const spec_t *s, const qn_config *c, int64_t N)
{
    return ceil_div(N, c->value[QN_ROUTER_TOKENS]) * ceil_div(pitch_of(s), c->value[QN_ROUTER_EXPERTS]);
}

// More than the driver takes, which only tiles smaller than check_args counts with can be: the launch then fails and says so.
static uint32_t grid_of(int64_t ctas)
{
    return ctas <= INT32_MAX ? (uint32_t)ctas : 0;
}

// Whether the kernel of the parts was made with a gate: the plan's word, since room decided it.
static bool has_gate(const qn_kernel_plan *k)
{
    size_t i = k->constant_count;
    while (i-- > 0)
        if (!strcmp(k->constants[i].name, "FUSED")) return k->constants[i].value != 0;
    return false;
}

static void launch_gate(const spec_t *s, const qn_kernel_plan *k, const router_params *p, qn_launch *out)
{
    gate_params gate = p->gate;
    int tokens = tokens_of_gate(k);
    gate.logits = p->logits;
    gate.logits_stride = p->logits_stride;
    gate.aligned = is_aligned(p->logits, stepped(p), 4, 16) && is_aligned(s->bias ? gate.bias : NULL, 0, 4, 16);
    out->grid[0] = (uint32_t)ceil_div(gate.N, tokens);
    qn_gate_put_params(k, &gate, out->params);
}

static void launch_wide(const spec_t *s, const qn_config *c, const qn_driver *driver, const router_params *p,
                        qn_launch *out)
{
    router_mapped_params *m = (router_mapped_params *)(void *)out->params;
    m->p = *p;
    if (!qn_router_make_maps(s, c, driver, p, least_of(p->gate.N, c->value[QN_ROUTER_TOKENS]), &m->x, &m->w))
        m->p.x_aligned = 0;
}

static void launch_parts(const spec_t *s, const qn_config *c, const qn_device_limits *limits,
                         const qn_kernel_plan *stage, stage_kind kind, router_params *p, qn_launch *out)
{
    int64_t N = p->gate.N, slices = qn_router_cut_of(s, c).slices, ctas = tiles_of(s, c, N) * slices;
    bool whole = has_gate(&stage[0]) && N <= ROUTER_MOST_WHOLE &&
                 ctas <= limits->sm_count; // every CTA is resident: they may wait for each other
    if (!is_clean(c, N)) p->words = (unsigned *)((char *)p->words + clean_bytes(s));
    p->part = whole ? ROUTER_WHOLE : kind == PARTS ? ROUTER_PARTS : ROUTER_GATE;
    out->skip = whole && kind == GATE_OF_PARTS;
    if (kind == PARTS && c->value[QN_ROUTER_PLAN] == QN_ROUTER_MULTICAST) {
        qn_router_multicast_launch(s, c, limits, p, out);
        return;
    }
    if (c->value[QN_ROUTER_PLAN] == QN_ROUTER_MULTICAST) {
        p->gate.sums = p->logits, p->gate.sums_stride = p->logits_stride;
        p->logits = (float *)p->words, p->logits_stride = slices * pitch_of(s);
        p->gate.parts = qn_router_deal_of(s, c, limits->sm_count, N).parts;
        launch_gate(s, &stage[1], p, out);
        return;
    }
    out->grid[0] = grid_of(kind == PARTS ? ctas : N);
    if (kind == PARTS && c->value[QN_ROUTER_PLAN] == QN_ROUTER_WIDE)
        launch_wide(s, c, limits->driver, p, out);
    else
        memcpy(out->params, p, sizeof *p);
}

QN_LAUNCH_PATH static void launch(const quern_spec *base, const qn_config *config, const qn_plan *made,
                                  const qn_device_limits *limits, const quern_args *base_args, size_t stage,
                                  qn_launch *out)
{
    const spec_t *s = (const spec_t *)base;
    router_params p = params_of(s, (const args_t *)base_args);
    stage_kind kind = kind_of(s, config, stage);
    out->grid[1] = out->grid[2] = 1;
    out->skip = has_parts(s, config, p.gate.N) != (kind < LOGITS);
    if (out->skip) return;
    if (kind < LOGITS) {
        launch_parts(s, config, limits, made->stage, kind, &p, out);
        return;
    }
    place_logits(s, &p);
    if (kind == GATE_OF_LOGITS) {
        launch_gate(s, &made->stage[stage], &p, out);
        return;
    }
    if (config->value[QN_ROUTER_PLAN] == QN_ROUTER_MULTICAST) {
        qn_router_multicast_launch(s, config, limits, &p, out);
        return;
    }
    out->grid[0] = grid_of(tiles_of(s, config, p.gate.N));
    memcpy(out->params, &p, sizeof p);
}

const qn_family qn_family_router = {
    .name = "router",
    .doc = "experts of a token from x · w: the gate of the dots, in one launch for few tokens",
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
    .knobs = qn_router_knobs,
    .knob_count = QN_ROUTER_KNOBS,
    .check = check,
    .bucket_count = QN_ROUTER_BUCKETS,
    .bucket_name = bucket_name,
    .bucket_sizes = bucket_sizes,
    .bucket_of = bucket_of,
    .choose = qn_router_choose,
    .plan = qn_router_plan,
    .workspace = workspace,
    .workspace_word = 0xFFFFFFFFu, // exchange.cuh: kAbsent
    .check_args = check_args,
    .args_are_plain = true,
    .sizes_of = sizes_of,
    .launch = launch,
    .reference = qn_reference_router,
    .integers_note =
        "experts whose logits or activations (8 ulp each) differ by less than their accuracy may change places",
};
