// SPDX-License-Identifier: Apache-2.0
// The family router: its fields, tensors and sizes, its plans and when each is chosen, its launches. The kernels are
// kernel_templates/router/*.cu and, for a gate of its own, kernel_templates/gate/*.cu; this file and they share args.h,
// and each kernel asserts the sizes computed here.
//
//   rows       whole rows of w a CTA, f32 fma; one to four tokens
//   fragments  tensor cores, operands from memory into registers; few tokens, 16-bit types, w [E, D]
//   wide       tensor cores of sm_90a, a slice of D in shared memory at once; 17 to 64 tokens, 16-bit types, w [E, D]
//   deep       tensor cores of sm_90a, a ring of blocks of D; more tokens, 16-bit types, w [E, D]
//   tiles      tensor cores, operands through shared memory; 16-bit types, any layout
//   exact      f32 fma, operands through shared memory; any types, any layout
//
// A plan's stages, of which a launch skips some:
//   PARTS, GATE_OF_PARTS  partial sums and the gate: in one launch of the first kernel where its CTAs are resident
//                         together and N is at most MOST_WHOLE, else the gate by gather.cu
//   LOGITS, GATE          sums through all of D, then a kernel of the family gate
// batch_invariant has all four, which add in the same order.
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "ops/family.h"
#include "reference/reference.h"
#include "router/args.h"

typedef quern_router_spec spec_t;
typedef quern_router_args args_t;
typedef quern_router_sizes sizes_t;

// ---- lists

static const qn_name type_names[] = {{"f32", QUERN_F32}, {"f16", QUERN_F16}, {"bf16", QUERN_BF16}, {NULL, 0}};
static const qn_name layout_names[] = {{"ED", QUERN_W_ED}, {"DE", QUERN_W_DE}, {NULL, 0}};
static const qn_name index_names[] = {{"i32", QUERN_I32}, {"i64", QUERN_I64}, {NULL, 0}};
static const qn_name act_names[] = {{"sqrt_softplus", QUERN_ACT_SQRT_SOFTPLUS},
                                    {"sigmoid", QUERN_ACT_SIGMOID},
                                    {"softmax", QUERN_ACT_SOFTMAX},
                                    {NULL, 0}};

enum { MOST_D = 65536, MOST_E = 1024, MOST_K = 32, MOST_WHOLE = ROUTER_MOST_WHOLE, MOST_SLICES = 16 };

// clang-format off
#define AT(member) offsetof(spec_t, member)
static const qn_field fields[] = {
    {.name = "D", .type = QN_INT, .offset = AT(D), .required = true, .min = 8, .max = MOST_D, .doc = "elements of a token: a multiple of 8"},
    {.name = "E", .type = QN_INT, .offset = AT(E), .required = true, .min = 1, .max = MOST_E, .doc = "experts"},
    {.name = "K", .type = QN_INT, .offset = AT(K), .required = true, .min = 1, .max = MOST_K, .doc = "experts chosen a token, at most E · topk_group / n_group"},
    {.name = "in", .type = QN_ENUM, .offset = AT(in), .required = true, .names = type_names, .doc = "type of x"},
    {.name = "w", .type = QN_ENUM, .offset = AT(w), .required = true, .names = type_names, .doc = "type of w; f32 in either: every product is an f32 fma"},
    {.name = "w_layout", .type = QN_ENUM, .offset = AT(w_layout), .initial = QUERN_W_ED, .names = layout_names, .doc = "axes of w: [E, D] or [D, E]"},
    {.name = "batch_invariant", .type = QN_FLAG, .offset = AT(batch_invariant), .max = 1, .doc = "1: a token's bits do not depend on N"},
    {.name = "act", .type = QN_ENUM, .offset = AT(act), .initial = QUERN_ACT_SQRT_SOFTPLUS, .names = act_names, .doc = "activation of a logit"},
    {.name = "bias", .type = QN_FLAG, .offset = AT(bias), .max = 1, .doc = "1: a bias for each expert is given; it counts for the choice only"},
    {.name = "n_group", .type = QN_INT, .offset = AT(n_group), .min = 1, .max = MOST_E, .initial = 1, .doc = "groups of experts; divides E"},
    {.name = "topk_group", .type = QN_INT, .offset = AT(topk_group), .min = 1, .max = MOST_E, .initial = 1, .doc = "groups that are kept, by the sum of their two best scores"},
    {.name = "renormalize", .type = QN_FLAG, .offset = AT(renormalize), .max = 1, .initial = 1, .doc = "1: weights are divided by their sum before they are scaled"},
    {.name = "scale", .type = QN_REAL, .offset = AT(scale), .real_initial = 1.0, .doc = "times each weight"},
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

enum { PLAN_ROWS = 1, PLAN_FRAGMENTS, PLAN_WIDE, PLAN_DEEP, PLAN_TILES, PLAN_EXACT };
static const qn_name plan_names[] = {{"rows", PLAN_ROWS},
                                     {"fragments", PLAN_FRAGMENTS},
                                     {"wide", PLAN_WIDE},
                                     {"deep", PLAN_DEEP},
                                     {"tiles", PLAN_TILES},
                                     {"exact", PLAN_EXACT},
                                     {NULL, 0}};
enum { SUMS_PARTS = 1, SUMS_WHOLE };
static const qn_name sums_names[] = {{"parts", SUMS_PARTS}, {"whole", SUMS_WHOLE}, {NULL, 0}};

enum knob { PLAN, SUMS, TOKENS, EXPERTS, SLICES, CHUNK, STAGES, GATE, KNOBS };
static const qn_knob knobs[] = {
    [PLAN] = {"plan",
              {PLAN_ROWS, PLAN_FRAGMENTS, PLAN_WIDE, PLAN_DEEP, PLAN_TILES, PLAN_EXACT},
              6,
              plan_names,
              "how products are made"},
    [SUMS] = {"sums",
              {SUMS_PARTS, SUMS_WHOLE},
              2,
              sums_names,
              "parts: partial sums, gated by the same kernel; whole: logits, then a gate kernel"},
    [TOKENS] = {"tokens", {1, 2, 4, 8, 16, 32, 64, 128}, 8, NULL, "of a tile"},
    [EXPERTS] = {"experts", {1, 2, 3, 4, 6, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256}, 15, NULL, "of a tile"},
    [SLICES] = {"slices", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16}, 15, NULL, "of D"},
    [CHUNK] = {"chunk", {32, 64, 128, 256}, 4, NULL, "fragments: elements of D a warp"},
    [STAGES] =
        {"stages", {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16}, 11, NULL, "tiles, exact, deep: blocks of D in shared memory"},
    [GATE] = {"gate", {1, 2, 3, 4}, 4, NULL, "whole: the gate's own choice for up to 512, 1024, 8192, more tokens"},
};

// ---- shapes

static const char *word_of(const qn_name *names, int value)
{
    while (names->name && names->value != value) names++;
    return names->name ? names->name : "";
}
static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}
static int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t pitch_of(const spec_t *s)
{
    return round_up(s->E, 4); // words of a token, in whole vectors
}
static int gate_threads(const spec_t *s)
{
    return (int)round_up(s->E, 32);
}
static bool is_grouped(const spec_t *s)
{
    return s->topk_group < s->n_group && !s->given_ids;
}
static bool is_half(const spec_t *s) // tensor cores can have it
{
    return s->in == s->w && s->in != QUERN_F32;
}
static int bytes_of(quern_dtype type)
{
    return type == QUERN_F32 ? 4 : 2;
}

// What the kernels call SLICES and SLICE: slices of equal length, of whole steps, none of them empty.
typedef struct cut {
    int slices, slice;
} cut;

static cut cut_of(const spec_t *s, const qn_config *c)
{
    int step = c->value[PLAN] == PLAN_FRAGMENTS ? c->value[CHUNK] : c->value[PLAN] == PLAN_EXACT ? 32 : 64;
    cut made;
    made.slice = (int)round_up(ceil_div(s->D, c->value[SLICES]), step);
    made.slices = (int)ceil_div(s->D, made.slice);
    return made;
}

// As block.cuh and exchange.cuh count.
static int gate_shared(const spec_t *s, int threads, int slices)
{
    int warps = threads / 32, groups = is_grouped(s) ? (int)s->n_group : 1;
    int ratio = is_grouped(s) ? (int)ceil_div(s->n_group, s->topk_group) : 1;
    int wanted = (int)(s->K + s->K / 4 + 1) * ratio, unit = 32;
    while (unit > 2 && threads / unit < wanted) unit /= 2;
    int slots = 32 * (s->K <= 8 ? 1 : s->K <= 16 ? 2 : 4);
    int block = (int)(ceil_div(threads / unit, 4) * 16 + ceil_div(s->K, 4) * 16) + slots * 12 + threads * 8 +
                (1 + groups + 2 * warps) * 4;
    int each = (slices + 3) / 4, teams = (slices + each - 1) / each;
    return (int)round_up(block, 16) + teams * (int)pitch_of(s) * 4;
}

// What a gate by a CTA needs of registers beside nothing else: as ops/gate.c.
static int gate_registers(const spec_t *s)
{
    return s->K <= 8 ? 40 : s->K <= 16 ? 48 : 64;
}

// ---- the plans' numbers

typedef struct shape {
    int threads, registers;      // registers: about what a thread needs; with less the compiler would spill
    int shared, gate_at;         // bytes; where the gate's pieces begin, behind those of the products
    int units;                   // rows
    int groups;                  // wide, deep
    int multiply_warps;          // fragments
    int block, warps_m, warps_n; // tiles, exact
} shape;

// Threads for the gate, in a kernel that has one.
static int gate_part(const spec_t *s, bool fused)
{
    return fused ? gate_threads(s) : 32;
}

static shape rows_shape(const spec_t *s, const qn_config *c, cut d, bool fused)
{
    shape n = {.units = 1};
    int eights = d.slice / 8, vectors = bytes_of(s->w) / 2; // 16 bytes of w for 8 elements
    while (eights > 512 * n.units && n.units * c->value[EXPERTS] * vectors < 12) n.units++;
    int64_t threads = round_up(ceil_div(eights, n.units), 32);
    n.threads = (int)most_of(most_of(gate_part(s, fused), least_of(threads, 512)), 64);
    int sums = c->value[EXPERTS] * c->value[TOKENS];
    n.shared = sums * (n.threads / 32) * 4;
    n.registers = n.units * (c->value[EXPERTS] * vectors + bytes_of(s->in) / 2) * 4 + sums + 40;
    return n;
}

static shape fragments_shape(const spec_t *s, const qn_config *c, cut d, bool fused)
{
    shape n = {.multiply_warps = (int)ceil_div(d.slice, c->value[CHUNK])};
    int blocks = c->value[CHUNK] / 32, columns = c->value[EXPERTS] / 8;
    int pitch = c->value[EXPERTS] == 32 ? 40 : c->value[EXPERTS] == 16 ? 24 : c->value[EXPERTS];
    n.threads = (int)most_of(gate_part(s, fused), n.multiply_warps * 32);
    n.shared = n.multiply_warps * c->value[TOKENS] * pitch * 4;
    n.registers = blocks * (columns + 2) * 4 + columns * 4 + 36;
    return n;
}

// All blocks of a slice lie in shared memory at once.
static shape wide_shape(const spec_t *s, const qn_config *c, cut d, bool fused)
{
    int blocks = d.slice / 64, experts = c->value[EXPERTS];
    shape n = {.groups = (int)least_of(most_of(ceil_div(s->E, 128), 2), 3)}; // more are slower
    if (n.groups > blocks) n.groups = blocks;
    n.threads = (int)most_of(gate_part(s, fused), n.groups * 128);
    n.shared = blocks * (64 + experts) * 128 + (int)most_of((n.groups - 1) * experts * 256, 4);
    n.registers = experts / 2 + 56;
    return n;
}

static int ring_bytes(const spec_t *s, const qn_config *c, int block, int stages)
{
    int bytes = stages * block * (c->value[TOKENS] * bytes_of(s->in) + c->value[EXPERTS] * bytes_of(s->w));
    return (int)round_up(bytes, 1024);
}

static shape deep_shape(const spec_t *s, const qn_config *c, cut d, bool whole, bool fused)
{
    shape n = {.block = 64, .groups = c->value[TOKENS] / 64};
    n.threads = (int)most_of(gate_part(s, fused), n.groups * 128);
    n.shared = ring_bytes(s, c, n.block, c->value[STAGES]);
    n.registers = c->value[EXPERTS] / 2 + 60;
    return n;
}

static shape tiles_shape(const spec_t *s, const qn_config *c, cut d, bool whole, bool fused)
{
    int tokens = c->value[TOKENS], experts = c->value[EXPERTS], folds = whole && d.slices > 1 ? 3 : 1;
    shape n = {.block = 64, .warps_m = tokens >= 64 ? 2 : (int)most_of(tokens / 16, 1)};
    if (tokens >= 128 && experts < 128) n.warps_m = 4;
    n.warps_n = (int)least_of(8 / n.warps_m, most_of(experts / 8, 1));
    int columns = experts / n.warps_n / 8, rows = tokens / n.warps_m / 16;
    n.threads = (int)most_of(gate_part(s, fused), most_of(32 * n.warps_m * n.warps_n, 128));
    n.shared = ring_bytes(s, c, n.block, c->value[STAGES]);
    n.registers = rows * columns * 4 * folds + columns * 2 + 48;
    return n;
}

static shape exact_shape(const spec_t *s, const qn_config *c, cut d, bool whole, bool fused)
{
    int tokens = c->value[TOKENS], experts = c->value[EXPERTS], folds = whole && d.slices > 1 ? 3 : 1;
    shape n = {.block = 32, .warps_m = tokens >= 64 ? 2 : 1};
    n.warps_n = (int)least_of(8 / n.warps_m, most_of(experts / 8, 1));
    int columns = experts / n.warps_n / 4, rows = tokens / n.warps_m / 8;
    n.threads = (int)most_of(gate_part(s, fused), most_of(32 * n.warps_m * n.warps_n, 128));
    n.shared = ring_bytes(s, c, n.block, c->value[STAGES]);
    n.registers = rows * columns * folds + columns * 8 + 60;
    return n;
}

// Of the products alone.
static shape products_of(const spec_t *s, const qn_config *c, bool whole, bool fused)
{
    cut d = cut_of(s, c);
    switch (c->value[PLAN]) {
    case PLAN_ROWS:
        return rows_shape(s, c, d, fused);
    case PLAN_FRAGMENTS:
        return fragments_shape(s, c, d, fused);
    case PLAN_WIDE:
        return wide_shape(s, c, d, fused);
    case PLAN_DEEP:
        return deep_shape(s, c, d, whole, fused);
    case PLAN_EXACT:
        return exact_shape(s, c, d, whole, fused);
    default:
        return tiles_shape(s, c, d, whole, fused);
    }
}

// whole: through all of D; fused: with the gate.
static shape shape_of(const spec_t *s, const qn_config *c, bool whole, bool fused)
{
    shape n = products_of(s, c, whole, fused);
    n.shared = n.gate_at = (int)round_up(n.shared, 16);
    if (fused) n.shared += gate_shared(s, n.threads, cut_of(s, c).slices);
    if (fused) n.registers = (int)most_of(n.registers, gate_registers(s));
    return n;
}

static bool has_room(const qn_arch *arch, const shape *n)
{
    return n->threads <= 1024 && n->multiply_warps <= 32 && n->shared <= arch->shared_cta &&
           round_up(n->registers, 8) * round_up(n->threads, 128) <= arch->registers_sm;
}

// ---- the gate that follows logits

static void gate_spec_of(const spec_t *s, quern_gate_spec *gate)
{
    *gate = (quern_gate_spec)QUERN_GATE_SPEC_INIT;
    gate->E = s->E, gate->K = s->K, gate->in = QUERN_F32, gate->act = s->act, gate->bias = s->bias;
    gate->n_group = s->n_group, gate->topk_group = s->topk_group, gate->renormalize = s->renormalize;
    gate->scale = s->scale, gate->index = s->index, gate->given_ids = s->given_ids;
}

static quern_status plan_gate(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *k)
{
    quern_gate_spec gate;
    qn_config config;
    qn_plan made;
    gate_spec_of(s, &gate);
    qn_family_gate.choose(&gate.base, arch, (size_t)(s->batch_invariant ? 1 : c->value[GATE]), &config);
    QN_TRY(qn_family_gate.plan(&gate.base, arch, &config, &made));
    *k = made.stage[0];
    k->overlaps = arch->cc >= 90;
    for (size_t i = 0; i < k->constant_count; i++)
        if (!strcmp(k->constants[i].name, "DEPENDENT")) k->constants[i].value = 1;
    return QUERN_OK;
}

// Tokens of a CTA of that kernel. On the launch path: ops/gate.c adds LANES and UNITS last.
static int tokens_of_gate(const qn_kernel_plan *k)
{
    if (!strcmp(k->template_path, "gate/block.cu")) return 1;
    if (!strcmp(k->template_path, "gate/given.cu")) return k->threads / 32;
    return k->threads / (int)k->constants[k->constant_count - 2].value;
}

// ---- plan

static void write_entry(const spec_t *s, const qn_config *c, const char *what, char *entry)
{
    char groups[24] = "";
    if (is_grouped(s)) snprintf(groups, sizeof groups, "_g%dof%d", (int)s->topk_group, (int)s->n_group);
    snprintf(entry, QN_MAX_ENTRY, "quern_router_d%d_e%d_%s%s%s%s_k%d%s%s%s%s%s_%s%dx%dx%d", (int)s->D, (int)s->E,
             word_of(type_names, s->in), s->in == s->w ? "" : "_", s->in == s->w ? "" : word_of(type_names, s->w),
             s->w_layout == QUERN_W_DE ? "_de" : "", (int)s->K,
             s->act == QUERN_ACT_SQRT_SOFTPLUS ? ""
             : s->act == QUERN_ACT_SIGMOID     ? "_sigmoid"
                                               : "_softmax",
             s->bias && !s->given_ids ? "_bias" : "", groups, s->renormalize ? "" : "_raw", what,
             word_of(plan_names, c->value[PLAN]), c->value[TOKENS], c->value[EXPERTS], cut_of(s, c).slices);
}

static void add_spec_constants(const spec_t *s, qn_kernel_plan *k)
{
    static const int type[] = {[QUERN_F32] = 1, [QUERN_F16] = 2, [QUERN_BF16] = 3}; // elements.cuh: ElementOf
    bool grouped = is_grouped(s);
    qn_plan_constant(k, "D", s->D);
    qn_plan_constant(k, "E", s->E);
    qn_plan_constant(k, "K", s->K);
    qn_plan_constant(k, "X_TYPE", type[s->in]);
    qn_plan_constant(k, "W_TYPE", type[s->w]);
    qn_plan_constant(k, "IN", 1); // logits are f32
    qn_plan_constant(k, "INDEX_BYTES", s->index == QUERN_I64 ? 8 : 4);
    qn_plan_constant(k, "ACT", s->act == QUERN_ACT_SQRT_SOFTPLUS ? 0 : s->act == QUERN_ACT_SIGMOID ? 1 : 2);
    qn_plan_constant(k, "BIAS", s->bias && !s->given_ids);
    qn_plan_constant(k, "N_GROUP", grouped ? s->n_group : 1);
    qn_plan_constant(k, "TOPK_GROUP", grouped ? s->topk_group : 1);
    qn_plan_constant(k, "RENORMALIZE", s->renormalize);
    qn_plan_constant(k, "DEPENDENT", 0);
    qn_plan_constant(k, "GIVEN", s->given_ids);
}

static void add_plan_constants(const spec_t *s, const qn_config *c, const shape *n, bool whole, qn_kernel_plan *k)
{
    static const char *const path[] = {
        [PLAN_ROWS] = "router/rows.cu", [PLAN_FRAGMENTS] = "router/fragments.cu", [PLAN_WIDE] = "router/wide.cu",
        [PLAN_DEEP] = "router/deep.cu", [PLAN_TILES] = "router/tiles.cu",         [PLAN_EXACT] = "router/exact.cu"};
    cut d = cut_of(s, c);
    k->template_path = path[c->value[PLAN]];
    qn_plan_constant(k, "LOGITS", whole);
    qn_plan_constant(k, "GATE_AT", n->gate_at);
    qn_plan_constant(k, "TOKENS", c->value[TOKENS]);
    qn_plan_constant(k, "EXPERTS", c->value[EXPERTS]);
    qn_plan_constant(k, "SLICES", d.slices);
    qn_plan_constant(k, "SLICE", d.slice);
    if (c->value[PLAN] == PLAN_ROWS) {
        qn_plan_constant(k, "UNITS", n->units);
    } else if (c->value[PLAN] == PLAN_FRAGMENTS) {
        qn_plan_constant(k, "CHUNK", c->value[CHUNK]);
        qn_plan_constant(k, "MULTIPLY_WARPS", n->multiply_warps);
    } else if (c->value[PLAN] == PLAN_WIDE) {
        qn_plan_constant(k, "GROUPS", n->groups);
    } else {
        qn_plan_constant(k, "BLOCK", n->block);
        qn_plan_constant(k, "STAGES", c->value[STAGES]);
        qn_plan_constant(k, "W_LAYOUT", s->w_layout == QUERN_W_DE);
        if (c->value[PLAN] == PLAN_DEEP) {
            qn_plan_constant(k, "GROUPS", n->groups);
        } else {
            qn_plan_constant(k, "WARPS_M", n->warps_m);
            qn_plan_constant(k, "WARPS_N", n->warps_n);
        }
    }
}

static quern_status check_spec(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    int p = c->value[PLAN];
    const char *word = word_of(plan_names, p);
    if ((p == PLAN_WIDE || p == PLAN_DEEP) && !arch->has_wgmma)
        return qn_fail(QUERN_NO_PLAN, "plan=%s: %s (%d) has no wgmma, sm_90a has", word, arch->name, arch->cc);
    if (p != PLAN_ROWS && p != PLAN_EXACT && !is_half(s)) {
        return qn_fail(QUERN_NO_PLAN, "plan=%s: in=%s and w=%s, tensor cores take one 16-bit type (of 2 bytes)", word,
                       word_of(type_names, s->in), word_of(type_names, s->w));
    }
    if (p != PLAN_TILES && p != PLAN_EXACT && s->w_layout != QUERN_W_ED)
        return qn_fail(QUERN_NO_PLAN, "plan=%s: w is [D, E] (w_layout %d), it must be [E, D]", word, s->w_layout);
    if (p != PLAN_TILES && p != PLAN_EXACT && s->batch_invariant)
        return qn_fail(QUERN_NO_PLAN, "plan=%s: batch_invariant=1 needs tiles or exact", word);
    if (c->value[SUMS] == SUMS_WHOLE && p < PLAN_DEEP)
        return qn_fail(QUERN_NO_PLAN, "plan=%s sums=whole: it has up to %d tokens in parts", word, MOST_WHOLE);
    return QUERN_OK;
}

// The tiles that each plan has.
typedef struct tile_range {
    int tokens[2], experts[2];
} tile_range;
static const tile_range tiles_of_plan[] = {
    [PLAN_ROWS] = {{1, 4}, {1, 8}},       [PLAN_FRAGMENTS] = {{8, 64}, {8, 32}}, [PLAN_WIDE] = {{64, 64}, {8, 64}},
    [PLAN_DEEP] = {{64, 128}, {32, 256}}, [PLAN_TILES] = {{16, 128}, {16, 128}}, [PLAN_EXACT] = {{8, 64}, {16, 64}}};

static bool is_tile(const qn_config *c)
{
    int p = c->value[PLAN], t = c->value[TOKENS], e = c->value[EXPERTS];
    const tile_range *range = &tiles_of_plan[p];
    bool eights = p == PLAN_ROWS || e % 8 == 0, powers = p < PLAN_TILES || (e & (e - 1)) == 0;
    return t >= range->tokens[0] && t <= range->tokens[1] && e >= range->experts[0] && e <= range->experts[1] &&
           eights && powers;
}

static quern_status check_tile(const qn_config *c)
{
    int p = c->value[PLAN];
    const tile_range *range = &tiles_of_plan[p];
    if (is_tile(c)) return QUERN_OK;
    return qn_fail(QUERN_NO_PLAN, "plan=%s tokens=%d experts=%d: it has tiles of %d … %d tokens and %d … %d experts%s",
                   word_of(plan_names, p), c->value[TOKENS], c->value[EXPERTS], range->tokens[0], range->tokens[1],
                   range->experts[0], range->experts[1],
                   p >= PLAN_TILES  ? ", a power of two"
                   : p == PLAN_ROWS ? ""
                                    : ", in eights");
}

static quern_status check_sm(const qn_arch *arch, const qn_config *c, const shape *n)
{
    const char *word = word_of(plan_names, c->value[PLAN]);
    if (has_room(arch, n)) return QUERN_OK;
    if (n->threads > 1024 || n->multiply_warps > 32)
        return qn_fail(QUERN_NO_PLAN, "plan=%s: %d threads a CTA, 1024 at most; raise slices or chunk", word,
                       n->threads);
    if (round_up(n->registers, 8) * round_up(n->threads, 128) > arch->registers_sm) {
        return qn_fail(QUERN_NO_PLAN, "plan=%s: about %d registers for each of %d threads, %s has %d an SM", word,
                       n->registers, n->threads, arch->name, arch->registers_sm);
    }
    return qn_fail(QUERN_NO_PLAN, "plan=%s needs %d bytes of shared memory, %s has %d a CTA", word, n->shared,
                   arch->name, arch->shared_cta);
}

static quern_status plan_kernel(const spec_t *s, const qn_arch *arch, const qn_config *c, bool whole, bool fused,
                                qn_kernel_plan *k)
{
    shape n = shape_of(s, c, whole, fused);
    QN_TRY(check_sm(arch, c, &n));
    k->threads = n.threads;
    k->min_ctas = 1;
    k->cluster = 1;
    k->dynamic_shared = n.shared;
    k->params_bytes = sizeof(router_params);
    write_entry(s, c, whole ? "_logits" : "", k->entry);
    add_spec_constants(s, k);
    add_plan_constants(s, c, &n, whole, k);
    qn_plan_constant(k, "FUSED", fused);
    return QUERN_OK;
}

// The gate of partial sums as a launch of its own: a CTA a token, as many an SM as there is room for.
static void plan_gather(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *k)
{
    cut d = cut_of(s, c);
    int registers = (int)round_up(gate_registers(s) + 8 + (d.slices + 3) / 4 * 4, 8);
    int by_registers = arch->registers_sm / ((int)round_up(s->E, 128) * registers);
    k->threads = gate_threads(s);
    k->cluster = 1;
    k->dynamic_shared = gate_shared(s, k->threads, d.slices);
    k->min_ctas = (int)least_of(by_registers, arch->shared_sm / (k->dynamic_shared + 1024));
    k->min_ctas = (int)most_of(least_of(k->min_ctas, arch->max_threads_sm / k->threads), 1);
    k->params_bytes = sizeof(router_params);
    k->template_path = "router/gather.cu";
    k->overlaps = arch->cc >= 90;
    write_entry(s, c, "_gather", k->entry);
    add_spec_constants(s, k);
    qn_plan_constant(k, "LOGITS", 0);
    qn_plan_constant(k, "FUSED", 1);
    qn_plan_constant(k, "GATE_AT", 0);
    qn_plan_constant(k, "EXPERTS", c->value[EXPERTS]);
    qn_plan_constant(k, "SLICES", d.slices);
    qn_plan_constant(k, "SLICE", d.slice);
}

// Many experts need many threads, for which there may be too few registers: then the sums are a kernel of their own.
static bool is_fused(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    shape n = shape_of(s, c, false, true);
    return has_room(arch, &n);
}

static quern_status plan_parts(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *stage)
{
    QN_TRY(plan_kernel(s, arch, c, false, is_fused(s, arch, c), &stage[0]));
    plan_gather(s, arch, c, &stage[1]);
    return QUERN_OK;
}

static quern_status plan_logits(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *stage)
{
    QN_TRY(plan_kernel(s, arch, c, true, false, &stage[0]));
    return plan_gate(s, arch, c, &stage[1]);
}

static quern_status plan(const quern_spec *base, const qn_arch *arch, const qn_config *config, qn_plan *out)
{
    const spec_t *s = (const spec_t *)base;
    qn_plan made;
    memset(&made, 0, sizeof made);
    QN_TRY(check_spec(s, arch, config));
    QN_TRY(check_tile(config));
    if (s->batch_invariant) {
        QN_TRY(plan_parts(s, arch, config, &made.stage[0]));
        QN_TRY(plan_logits(s, arch, config, &made.stage[2]));
        made.stage_count = 4;
    } else {
        QN_TRY(config->value[SUMS] == SUMS_WHOLE ? plan_logits(s, arch, config, made.stage)
                                                 : plan_parts(s, arch, config, made.stage));
        made.stage_count = 2;
    }
    *out = made;
    return QUERN_OK;
}

// ---- buckets of tokens

static const int64_t bucket_last[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, INT32_MAX};

static int64_t bucket_first(size_t bucket)
{
    return bucket ? bucket_last[bucket - 1] + 1 : 1;
}

static void bucket_name(size_t bucket, char *text, size_t bytes)
{
    if (bucket + 1 == QN_COUNT(bucket_last))
        snprintf(text, bytes, "N %lld…", (long long)bucket_first(bucket));
    else
        snprintf(text, bytes, "N %lld..%lld", (long long)bucket_first(bucket), (long long)bucket_last[bucket]);
}

static void bucket_sizes(size_t bucket, void *out)
{
    static const int64_t typical[QN_COUNT(bucket_last)] = {1,   2,   4,    8,    16,   32,   64,   128,
                                                           256, 512, 1024, 2048, 4096, 8192, 16384};
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), typical[bucket]};
}

static size_t bucket_of(const void *in)
{
    size_t bucket = 0;
    while (bucket + 1 < QN_COUNT(bucket_last) && ((const sizes_t *)in)->N > bucket_last[bucket]) bucket++;
    return bucket;
}

// ---- choose

// Of a configuration that is one of its plan: whether the device has room for its kernels.
static bool fits(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    const bool whole = c->value[SUMS] == SUMS_WHOLE;
    if (!is_tile(c)) return false;
    shape one = shape_of(s, c, whole, !whole && is_fused(s, arch, c)), other = one;
    if (s->batch_invariant) other = shape_of(s, c, true, false);
    return has_room(arch, &one) && has_room(arch, &other);
}

// As many blocks in flight as a slice has and shared memory holds.
static void choose_stages(const spec_t *s, const qn_arch *arch, int most, qn_config *c)
{
    const qn_knob *knob = &knobs[STAGES];
    int blocks = cut_of(s, c).slice / 64 + 1;
    for (size_t i = knob->choice_count; i-- > 0;) {
        c->value[STAGES] = knob->choices[i];
        bool enough = i == 0 || c->value[STAGES] <= most_of(blocks, 2);
        if (enough && c->value[STAGES] <= most && fits(s, arch, c)) return;
    }
}

// Dots of up to four tokens: every SM some rows.
static bool choose_rows(const spec_t *s, const qn_arch *arch, int tokens, qn_config *c)
{
    for (int64_t experts = ceil_div(pitch_of(s), arch->sm_count); experts <= 8; experts++) {
        if (!qn_knob_has(&knobs[EXPERTS], experts)) continue;
        int64_t slices = least_of(arch->sm_count / ceil_div(pitch_of(s), experts), s->D / 512);
        while (slices > 1 && !qn_knob_has(&knobs[SLICES], slices)) slices--;
        memset(c, 0, sizeof *c);
        c->value[PLAN] = PLAN_ROWS, c->value[SUMS] = SUMS_PARTS;
        c->value[TOKENS] = tokens, c->value[EXPERTS] = (int)experts;
        c->value[SLICES] = (int)least_of(most_of(slices, 1), MOST_SLICES);
        if (fits(s, arch, c)) return true;
    }
    return false;
}

// What a CTA of a tile costs: bytes to load, and how many slices there are to gather. In elements, by measurement.
static int64_t cost_of(const spec_t *s, const qn_config *c)
{
    cut d = cut_of(s, c);
    return (int64_t)(c->value[TOKENS] + c->value[EXPERTS]) * d.slice + 800 * d.slices;
}

// The cheapest of these tiles whose CTAs are resident together.
static bool choose_tile(const spec_t *s, const qn_arch *arch, const qn_config *first, const int *experts, size_t count,
                        int64_t token_tiles, qn_config *best)
{
    const int most_slices = first->value[PLAN] >= PLAN_DEEP ? MOST_SLICES : 8;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < knobs[SLICES].choice_count; k++) {
            qn_config c = *first;
            c.value[EXPERTS] = experts[i], c.value[SLICES] = knobs[SLICES].choices[k];
            cut d = cut_of(s, &c);
            int64_t ctas = token_tiles * ceil_div(pitch_of(s), experts[i]) * d.slices;
            if (d.slices != c.value[SLICES] || (ctas > arch->sm_count && d.slices > 1)) continue;
            if (d.slices > most_slices) continue;
            if (c.value[PLAN] >= PLAN_DEEP) choose_stages(s, arch, 16, &c);
            int64_t cost = cost_of(s, &c) * ceil_div(ctas, arch->sm_count);
            if (token_tiles == 1 && !is_fused(s, arch, &c)) cost += 25000; // a launch more
            if (cost >= least || !fits(s, arch, &c)) continue;
            *best = c, least = cost;
        }
    }
    return least != INT64_MAX;
}

static bool choose_fragments(const spec_t *s, const qn_arch *arch, int64_t N, qn_config *best)
{
    static const int experts[] = {8, 16, 24, 32};
    qn_config first = {.value = {[PLAN] = PLAN_FRAGMENTS, [SUMS] = SUMS_PARTS, [CHUNK] = 64}};
    first.value[TOKENS] = N <= 8 ? 8 : N <= 16 ? 16 : N <= 32 ? 32 : 64;
    return choose_tile(s, arch, &first, experts, QN_COUNT(experts), 1, best);
}

static bool choose_wide(const spec_t *s, const qn_arch *arch, qn_config *best)
{
    static const int experts[] = {8, 16, 24, 32, 48, 64};
    qn_config first = {.value = {[PLAN] = PLAN_WIDE, [SUMS] = SUMS_PARTS, [TOKENS] = 64}};
    return choose_tile(s, arch, &first, experts, QN_COUNT(experts), 1, best);
}

static bool has_deep(const spec_t *s, const qn_arch *arch)
{
    return arch->has_wgmma && is_half(s) && s->w_layout == QUERN_W_ED;
}

static bool choose_deep(const spec_t *s, const qn_arch *arch, int64_t N, qn_config *best)
{
    static const int experts[] = {32, 48, 64, 96, 128, 192};
    qn_config first = {.value = {[PLAN] = PLAN_DEEP, [SUMS] = SUMS_PARTS, [TOKENS] = N <= 64 ? 64 : 128}};
    return choose_tile(s, arch, &first, experts, QN_COUNT(experts), ceil_div(N, first.value[TOKENS]), best);
}

static bool choose_ring(const spec_t *s, const qn_arch *arch, int64_t N, qn_config *best)
{
    static const int experts[] = {16, 32, 64};
    qn_config first = {.value = {[PLAN] = is_half(s) ? PLAN_TILES : PLAN_EXACT, [SUMS] = SUMS_PARTS}};
    first.value[TOKENS] = N <= 8 && !is_half(s) ? 8 : N <= 16 ? 16 : N <= 32 ? 32 : 64;
    return choose_tile(s, arch, &first, experts, QN_COUNT(experts), ceil_div(N, first.value[TOKENS]), best);
}

// Logits first: tiles as large as leave every SM one.
static void choose_whole(const spec_t *s, const qn_arch *arch, size_t bucket, qn_config *c)
{
    static const int tiles[][2] = {{128, 128}, {128, 64}, {64, 64}, {64, 32}, {32, 32}, {16, 32}, {16, 16}};
    const int64_t N = least_of(bucket_last[bucket], 16384);
    for (size_t i = 0; i < QN_COUNT(tiles); i++) {
        bool is_last = i + 1 == QN_COUNT(tiles);
        memset(c, 0, sizeof *c);
        c->value[PLAN] = has_deep(s, arch) && tiles[i][0] >= 64 ? PLAN_DEEP : is_half(s) ? PLAN_TILES : PLAN_EXACT;
        c->value[SUMS] = SUMS_WHOLE;
        c->value[TOKENS] = tiles[i][0], c->value[EXPERTS] = tiles[i][1], c->value[SLICES] = 1;
        c->value[GATE] = N <= 512 ? 1 : N <= 1024 ? 2 : N <= 8192 ? 3 : 4;
        int64_t ctas = ceil_div(N, tiles[i][0]) * ceil_div(s->E, tiles[i][1]);
        if (!is_last && (tiles[i][1] >= 2 * s->E || 10 * ctas < 7 * arch->sm_count)) continue;
        choose_stages(s, arch, c->value[PLAN] == PLAN_DEEP ? 6 : 4, c);
        if (fits(s, arch, c)) return;
    }
}

// One configuration for every N: its parts serve few tokens, its logits many.
static void choose_invariant(const spec_t *s, const qn_arch *arch, qn_config *c)
{
    if (choose_ring(s, arch, MOST_WHOLE, c)) return;
    memset(c, 0, sizeof *c);
    c->value[PLAN] = is_half(s) ? PLAN_TILES : PLAN_EXACT, c->value[SUMS] = SUMS_PARTS;
    c->value[TOKENS] = 16, c->value[EXPERTS] = 16, c->value[SLICES] = 1;
    choose_stages(s, arch, 4, c);
}

// By what was measured (ANALYSIS.md).
static void choose(const quern_spec *base, const qn_arch *arch, size_t bucket, qn_config *config)
{
    const spec_t *s = (const spec_t *)base;
    const int64_t N = bucket_last[bucket];
    const bool rows = s->w_layout == QUERN_W_ED && N <= (is_half(s) ? 1 : 4);
    if (s->batch_invariant) {
        choose_invariant(s, arch, config);
        return;
    }
    if (rows && choose_rows(s, arch, (int)N, config)) return;
    if (N <= MOST_WHOLE && is_half(s) && s->w_layout == QUERN_W_ED) {
        if (N > 16 && arch->has_wgmma && choose_wide(s, arch, config)) return;
        if (choose_fragments(s, arch, N, config)) return;
    }
    if (N <= 1024 && has_deep(s, arch) && choose_deep(s, arch, N, config)) return;
    if (N <= 512 && choose_ring(s, arch, N, config)) return;
    choose_whole(s, arch, bucket, config);
}

// ---- workspace: the words of launches that wait for them, which are left clean; behind them what one stage leaves to the
// next, which is not

static size_t clean_bytes(const spec_t *s)
{
    return (size_t)(MOST_WHOLE * MOST_SLICES * pitch_of(s)) * 4;
}

static bool has_parts(const spec_t *s, const qn_config *c, int64_t N)
{
    return s->batch_invariant ? N <= MOST_WHOLE : c->value[SUMS] == SUMS_PARTS;
}

static size_t workspace(const quern_spec *base, const qn_config *config, const void *at_most)
{
    const spec_t *s = (const spec_t *)base;
    int64_t N = ((const sizes_t *)at_most)->N, words = N * pitch_of(s);
    if (N == 0) return 0;
    if (has_parts(s, config, N)) {
        size_t bytes = (size_t)(words * cut_of(s, config).slices) * 4;
        return N <= MOST_WHOLE ? bytes : clean_bytes(s) + bytes;
    }
    return s->logits ? 0 : clean_bytes(s) + (size_t)words * 4;
}

// ---- checks

static quern_status check(const quern_spec *base)
{
    const spec_t *s = (const spec_t *)base;
    quern_gate_spec gate;
    if (s->D % 8) return qn_fail(QUERN_BAD_VALUE, "D = %lld: it must be a multiple of 8", (long long)s->D);
    gate_spec_of(s, &gate);
    return qn_family_gate.check(&gate.base);
}

static quern_status check_args(const quern_spec *spec, const quern_args *base, bool *empty)
{
    const args_t *args = (const args_t *)base;
    if (args->N < 0 || args->N > INT32_MAX) {
        return qn_fail(QUERN_BAD_SIZE, "N = %lld: must be 0 … 2147483647", (long long)args->N);
    }
    *empty = args->N == 0;
    return *empty ? QUERN_OK : qn_check_args(&qn_family_router, spec, base);
}

static void sizes_of(const quern_args *args, void *out)
{
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), ((const args_t *)args)->N};
}

// ---- launch

typedef enum stage_kind { PARTS, GATE_OF_PARTS, LOGITS, GATE_OF_LOGITS } stage_kind;

static stage_kind kind_of(const spec_t *s, const qn_config *c, size_t stage)
{
    return (stage_kind)(stage + (!s->batch_invariant && c->value[SUMS] == SUMS_WHOLE ? LOGITS : PARTS));
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
        .x_stride = a->x_stride_N ? a->x_stride_N : s->D,
        .w_stride = w_stride,
        .logits_stride = a->logits_stride_N ? a->logits_stride_N : s->E,
    };
    p.x_aligned = is_aligned(p.x, p.x_stride, bytes_of(s->in), 16);
    p.w_aligned = is_aligned(p.w, p.w_stride, bytes_of(s->w), 16);
    return p;
}

// Logits that nobody asked for lie in the workspace.
static void place_logits(const spec_t *s, router_params *p)
{
    if (!p->logits) p->logits = (float *)((char *)p->words + clean_bytes(s)), p->logits_stride = pitch_of(s);
    p->logits_pairs = is_aligned(p->logits, p->logits_stride, 4, 8);
}

static int64_t tiles_of(const spec_t *s, const qn_config *c, int64_t N)
{
    return ceil_div(N, c->value[TOKENS]) * ceil_div(pitch_of(s), c->value[EXPERTS]);
}

// fused: the kernel has a gate.
static void launch_parts(const spec_t *s, const qn_config *c, const qn_device_limits *limits, bool fused,
                         stage_kind kind, router_params *p, qn_launch *out)
{
    int64_t N = p->gate.N, ctas = tiles_of(s, c, N) * cut_of(s, c).slices;
    bool whole =
        fused && N <= MOST_WHOLE && ctas <= limits->sm_count; // every CTA is resident: they may wait for each other
    if (N > MOST_WHOLE) p->words = (unsigned *)((char *)p->words + clean_bytes(s));
    p->part = whole ? ROUTER_WHOLE : kind == PARTS ? ROUTER_PARTS : ROUTER_GATE;
    out->skip = whole && kind == GATE_OF_PARTS;
    out->grid[0] = (uint32_t)(kind == PARTS ? ctas : N);
    memcpy(out->params, p, sizeof *p);
}

static void launch_gate(const spec_t *s, const qn_kernel_plan *k, const router_params *p, qn_launch *out)
{
    gate_params gate = p->gate;
    int tokens = tokens_of_gate(k);
    gate.logits = p->logits;
    gate.logits_stride = p->logits_stride;
    gate.aligned = is_aligned(p->logits, p->logits_stride, 4, 16) && is_aligned(s->bias ? gate.bias : NULL, 0, 4, 16);
    out->grid[0] = (uint32_t)ceil_div(gate.N, tokens);
    memcpy(out->params, &gate, sizeof gate);
}

static void launch(const quern_spec *base, const qn_config *config, const qn_plan *made, const qn_device_limits *limits,
                   const quern_args *base_args, size_t stage, qn_launch *out)
{
    const spec_t *s = (const spec_t *)base;
    router_params p = params_of(s, (const args_t *)base_args);
    stage_kind kind = kind_of(s, config, stage);
    out->grid[1] = out->grid[2] = 1;
    out->skip = has_parts(s, config, p.gate.N) != (kind < LOGITS);
    if (out->skip) return;
    if (kind < LOGITS) {
        launch_parts(s, config, limits, made->stage[0].threads >= gate_threads(s), kind, &p, out);
        return;
    }
    place_logits(s, &p);
    if (kind == GATE_OF_LOGITS) {
        launch_gate(s, &made->stage[stage], &p, out);
        return;
    }
    out->grid[0] = (uint32_t)tiles_of(s, config, p.gate.N);
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
    .knobs = knobs,
    .knob_count = KNOBS,
    .check = check,
    .bucket_count = QN_COUNT(bucket_last),
    .bucket_name = bucket_name,
    .bucket_sizes = bucket_sizes,
    .bucket_of = bucket_of,
    .choose = choose,
    .plan = plan,
    .workspace = workspace,
    .workspace_word = 0xFFFFFFFFu, // exchange.cuh: kAbsent
    .check_args = check_args,
    .sizes_of = sizes_of,
    .launch = launch,
    .reference = qn_reference_router,
};
