// SPDX-License-Identifier: Apache-2.0
// The family gate: its fields, tensors and sizes, its plans and when each is chosen, its launch. The kernels are
// kernel_templates/gate/*.cu; this file and they share args.h, and each kernel asserts the sizes computed here.
//
//   block  one CTA a token, a thread an expert; few tokens, and groups that do not fit whole lanes
//   lanes  8, 16 or 32 lanes of a warp a token; many tokens
//   given  the experts are given: their weights only
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cuda/residency.h"
#include "ops/gate.h"
#include "reference/reference.h"

typedef quern_gate_spec spec_t;
typedef quern_gate_args args_t;
typedef quern_gate_sizes sizes_t;

// ---- lists

static const qn_name in_names[] = {{"f32", QUERN_F32}, {"f16", QUERN_F16}, {"bf16", QUERN_BF16}, {NULL, 0}};
static const qn_name index_names[] = {{"i32", QUERN_I32}, {"i64", QUERN_I64}, {NULL, 0}};
static const qn_name act_names[] = {{"sqrt_softplus", QUERN_ACT_SQRT_SOFTPLUS},
                                    {"sigmoid", QUERN_ACT_SIGMOID},
                                    {"softmax", QUERN_ACT_SOFTMAX},
                                    {NULL, 0}};

enum { MOST_E = 1024, MOST_K = 32 };

// clang-format off
#define AT(member) offsetof(spec_t, member)
static const qn_field fields[] = {
    {.name = "E", .type = QN_INT, .offset = AT(E), .required = true, .min = 1, .max = MOST_E, .doc = "experts: logits a token"},
    {.name = "K", .type = QN_INT, .offset = AT(K), .required = true, .min = 1, .max = MOST_K, .doc = "experts chosen a token, at most E · topk_group / n_group"},
    {.name = "in", .type = QN_ENUM, .offset = AT(in), .required = true, .names = in_names, .doc = "type of logits"},
    {.name = "act", .type = QN_ENUM, .offset = AT(act), .initial = QUERN_ACT_SQRT_SOFTPLUS, .names = act_names, .doc = "activation of a logit"},
    {.name = "bias", .type = QN_FLAG, .offset = AT(bias), .max = 1, .doc = "1: a bias for each expert is given; it counts for the choice only"},
    {.name = "n_group", .type = QN_INT, .offset = AT(n_group), .min = 1, .max = MOST_E, .initial = 1, .doc = "groups of experts; divides E"},
    {.name = "topk_group", .type = QN_INT, .offset = AT(topk_group), .min = 1, .max = MOST_E, .initial = 1, .doc = "groups that are kept, by the sum of their two best scores"},
    {.name = "renormalize", .type = QN_FLAG, .offset = AT(renormalize), .max = 1, .initial = 1, .doc = "1: weights are divided by their sum before they are scaled"},
    {.name = "scale", .type = QN_REAL, .offset = AT(scale), .real_initial = 1.0, .allowed = "-3.4e38 to 3.4e38", .doc = "times each weight"},
    {.name = "index", .type = QN_ENUM, .offset = AT(index), .initial = QUERN_I32, .names = index_names, .doc = "type of ids"},
    {.name = "given_ids", .type = QN_FLAG, .offset = AT(given_ids), .max = 1, .doc = "1: the experts are given (hash routing), only weights are written; then bias, n_group, topk_group and index do nothing"},
};
#undef AT

static const qn_field sizes[] = {
    {.name = "N", .type = QN_INT, .offset = offsetof(sizes_t, N), .required = true, .min = 0, .max = INT32_MAX, .doc = "tokens"},
};
static const size_t size_args_offset[] = {offsetof(args_t, N)};

#define AT(member) offsetof(args_t, member)
static const qn_tensor tensors[] = {
    {.name = "logits", .direction = QN_INPUT, .axes = {"N", "E"}, .dtype_field = "in", .pointer_offset = AT(logits), .stride_offset = {AT(logits_stride_N)}, .doc = "one row a token"},
    {.name = "bias", .direction = QN_INPUT, .axes = {"E"}, .dtype = QUERN_F32, .flag = "bias", .unless = "given_ids", .pointer_offset = AT(bias), .doc = "added to the activation for the choice"},
    {.name = "given_ids", .direction = QN_INPUT, .axes = {"N", "K"}, .dtype = QUERN_I32, .flag = "given_ids", .pointer_offset = AT(given_ids), .stride_offset = {AT(given_ids_stride_N)}, .doc = "the experts of each token"},
    {.name = "weights", .direction = QN_OUTPUT, .axes = {"N", "K"}, .dtype = QUERN_F32, .pointer_offset = AT(weights), .stride_offset = {AT(weights_stride_N)}, .doc = "of the experts chosen, in order"},
    {.name = "ids", .direction = QN_OUTPUT, .axes = {"N", "K"}, .dtype_field = "index", .unless = "given_ids", .pointer_offset = AT(ids), .stride_offset = {AT(ids_stride_N)}, .doc = "of the experts chosen, in order"},
};
#undef AT
// clang-format on

enum { PLAN_BLOCK = 1, PLAN_LANES, PLAN_GIVEN };
static const qn_name plan_names[] = {{"block", PLAN_BLOCK}, {"lanes", PLAN_LANES}, {"given", PLAN_GIVEN}, {NULL, 0}};

enum knob { PLAN, LANES, UNITS, WARPS, CTAS, KNOBS };
static const qn_knob knobs[] = {
    [PLAN] = {"plan", {PLAN_BLOCK, PLAN_LANES, PLAN_GIVEN}, 3, plan_names, "how tokens are dealt to CTAs and warps"},
    [LANES] = {"lanes", {8, 16, 32}, 3, NULL, "lanes: of a warp, for a token"},
    [UNITS] = {"units", {1, 2, 4}, 3, NULL, "lanes: maxima a lane, of which the bound is made"},
    [WARPS] = {"warps", {1, 2, 4, 8}, 4, NULL, "lanes, given: warps a CTA"},
    [CTAS] = {"ctas", {1, 2, 3, 4, 6, 8, 12, 16, 30}, 9, NULL, "CTAs an SM that registers are kept for"},
};

// ---- shapes

static const char *word_of(const qn_name *names, int value)
{
    while (names->name && names->value != value) names++;
    return names->name ? names->name : "";
}

static int ceil_div(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}
static int element_bytes(const spec_t *s)
{
    return s->in == QUERN_F32 ? 4 : 2;
}
static bool is_grouped(const spec_t *s)
{
    return s->topk_group < s->n_group && !s->given_ids;
}
static int block_threads(const spec_t *s)
{
    return ceil_div(s->E, 32) * 32;
}
static int slots_of(const spec_t *s) // candidates of a token
{
    return 32 * (s->K <= 8 ? 1 : s->K <= 16 ? 2 : 4);
}

// ---- block (block.cu)

int qn_gate_block_shared(const spec_t *s, int threads)
{
    int warps = threads / 32, of_experts = ceil_div(s->E, 32), groups = is_grouped(s) ? (int)s->n_group : 1;
    int ratio = is_grouped(s) ? ceil_div(s->n_group, s->topk_group) : 1;
    int wanted = (int)(s->K + s->K / 4 + 1) * ratio, best = ceil_div(wanted, of_experts), unit = 16;
    while (unit > 2 && of_experts * (32 / unit) < wanted) unit /= 2;
    int units = of_experts * (best <= 3 ? best : 32 / unit);
    return 16 + ceil_div(units, 4) * 16 + ceil_div(s->K, 4) * 16 + slots_of(s) * 12 + threads * 8 +
           (groups + 2 * warps) * 4;
}

// About what a thread needs to rank its candidates; without a cap in launch bounds that binds it is a little more.
static int block_registers(const spec_t *s)
{
    int least = block_threads(s) < 128 ? 40 : 32;
    return s->K <= 8 ? least : s->K <= 16 ? 48 : 64;
}

static quern_status check_block(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    int threads = block_threads(s), most = qn_ctas_by_registers(arch, threads, block_registers(s));
    if (c->value[CTAS] <= most) return QUERN_OK;
    return qn_fail(QUERN_NO_PLAN, "plan=block ctas=%d: with %d registers for each of %d threads %s holds %d CTAs an SM",
                   c->value[CTAS], block_registers(s), threads, arch->name, most);
}

// ---- lanes (lanes.cu)

static int lanes_own(const spec_t *s, int lanes)
{
    int vector = 16 / element_bytes(s);
    return is_grouped(s) ? (int)s->E / lanes : ceil_div(s->E, lanes * vector) * vector;
}

// Whether the copy engine brings the rows, but for the router's gates, which come behind other launches.
static bool are_rows_copied(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    const bool rows = s->in == QUERN_F32 && s->E % 4 == 0 && !is_grouped(s) && slots_of(s) == 32;
    return c->value[LANES] == 8 && rows && arch->cc >= 90;
}

static int lanes_shared(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    const int warps = c->value[WARPS], tokens = warps * (32 / c->value[LANES]);
    const int keys = (int)(s->E + (is_grouped(s) ? s->n_group : 0)); // of rounds.cuh, where the rows were
    const int list = tokens * (slots_of(s) * 16 + ceil_div(s->K, 4) * 16);
    if (are_rows_copied(s, arch, c)) return list + tokens * (int)s->E * element_bytes(s) + warps * 8;
    return list + ceil_div(warps * keys, 4) * 16;
}

// About what a thread needs; with less the compiler would spill.
static int lanes_registers(const spec_t *s, int lanes)
{
    return (is_grouped(s) ? 44 : 32) + lanes_own(s, lanes);
}

static quern_status check_lanes(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    int lanes = c->value[LANES], own = lanes_own(s, lanes);
    int registers = qn_registers_for_ctas(arch, 32 * c->value[WARPS], c->value[CTAS]);
    if (is_grouped(s) && (s->E % lanes || lanes % s->n_group)) {
        return qn_fail(
            QUERN_NO_PLAN,
            "plan=lanes lanes=%d: with topk_group < n_group a group must be whole lanes, so E = %lld must be a "
            "multiple of lanes and lanes one of n_group = %lld",
            lanes, (long long)s->E, (long long)s->n_group);
    }
    if (own > 48 || c->value[UNITS] > own || lanes * c->value[UNITS] < s->K) {
        return qn_fail(
            QUERN_NO_PLAN,
            "plan=lanes lanes=%d units=%d: %d experts a lane (at most 48, at least units), %d maxima (at least "
            "K = %lld)",
            lanes, c->value[UNITS], own, lanes * c->value[UNITS], (long long)s->K);
    }
    if (lanes_registers(s, lanes) > registers || registers < 64) {
        return qn_fail(QUERN_NO_PLAN, "plan=lanes lanes=%d: about %d registers a thread, warps=%d ctas=%d leave %d",
                       lanes, lanes_registers(s, lanes), c->value[WARPS], c->value[CTAS], registers);
    }
    return QUERN_OK;
}

// ---- plan

static void write_entry(const spec_t *s, const qn_config *c, char *entry)
{
    char groups[24] = "", lanes[16] = "";
    if (is_grouped(s)) snprintf(groups, sizeof groups, "_g%dof%d", (int)s->topk_group, (int)s->n_group);
    if (c->value[PLAN] == PLAN_LANES) snprintf(lanes, sizeof lanes, "%d", c->value[LANES]);
    snprintf(entry, QN_MAX_ENTRY, "quern_gate_e%d_k%d_%s_%s%s%s%s%s_%s%s", (int)s->E, (int)s->K,
             word_of(in_names, s->in), word_of(act_names, s->act), s->bias && !s->given_ids ? "_bias" : "", groups,
             s->renormalize ? "" : "_raw", s->index == QUERN_I64 ? "_i64" : "", word_of(plan_names, c->value[PLAN]),
             lanes);
}

static void add_spec_constants(const spec_t *s, qn_kernel_plan *k)
{
    static const int in[] = {[QUERN_F32] = 1, [QUERN_F16] = 2, [QUERN_BF16] = 3}; // elements.cuh: ElementOf
    bool grouped = is_grouped(s);
    qn_plan_constant(k, "E", s->E);
    qn_plan_constant(k, "K", s->K);
    qn_plan_constant(k, "IN", in[s->in]);
    qn_plan_constant(k, "INDEX_BYTES", s->index == QUERN_I64 ? 8 : 4);
    qn_plan_constant(k, "ACT", s->act == QUERN_ACT_SQRT_SOFTPLUS ? 0 : s->act == QUERN_ACT_SIGMOID ? 1 : 2);
    qn_plan_constant(k, "BIAS", s->bias && !s->given_ids);
    qn_plan_constant(k, "N_GROUP", grouped ? s->n_group : 1);
    qn_plan_constant(k, "TOPK_GROUP", grouped ? s->topk_group : 1);
    qn_plan_constant(k, "RENORMALIZE", s->renormalize);
    qn_plan_constant(k, "DEPENDENT", 0); // the router's plans set it, and
    qn_plan_constant(k, "PARTS", 1);     // these
    qn_plan_constant(k, "PART_STRIDE", 0);
}

static quern_status check_sm(const qn_arch *arch, const qn_kernel_plan *k)
{
    if (k->threads * k->min_ctas > arch->max_threads_sm || k->min_ctas > arch->max_ctas_sm) {
        return qn_fail(QUERN_NO_PLAN, "%d threads a CTA with ctas=%d: %s holds %d threads and %d CTAs an SM",
                       k->threads, k->min_ctas, arch->name, arch->max_threads_sm, arch->max_ctas_sm);
    }
    if (k->dynamic_shared > arch->shared_cta || (int64_t)(k->dynamic_shared + 1024) * k->min_ctas > arch->shared_sm) {
        return qn_fail(QUERN_NO_PLAN, "ctas=%d needs %d × %d bytes of shared memory, %s has %d a CTA and %d an SM",
                       k->min_ctas, k->min_ctas, k->dynamic_shared, arch->name, arch->shared_cta, arch->shared_sm);
    }
    return QUERN_OK;
}

static quern_status check_plan(const spec_t *s, const qn_config *c)
{
    bool gives = c->value[PLAN] == PLAN_GIVEN;
    if (gives == (s->given_ids != 0)) return QUERN_OK;
    return qn_fail(QUERN_NO_PLAN, "plan=%s with given_ids=%d: plan=given is for given_ids=1 and for nothing else",
                   word_of(plan_names, c->value[PLAN]), s->given_ids);
}

static quern_status plan(const quern_spec *base, const qn_arch *arch, const qn_config *config, qn_plan *out)
{
    const spec_t *s = (const spec_t *)base;
    qn_plan made;
    memset(&made, 0, sizeof made);
    qn_kernel_plan *k = &made.stage[0];
    QN_TRY(check_plan(s, config));
    made.stage_count = 1;
    k->threads = 32 * config->value[WARPS];
    k->min_ctas = config->value[CTAS];
    k->cluster = 1;
    k->params_bytes = sizeof(gate_params);
    write_entry(s, config, k->entry);
    add_spec_constants(s, k);
    if (config->value[PLAN] == PLAN_LANES) {
        QN_TRY(check_lanes(s, arch, config));
        k->template_path = "gate/lanes.cu";
        k->dynamic_shared = lanes_shared(s, arch, config);
        qn_plan_constant(k, "LANES", config->value[LANES]);
        qn_plan_constant(k, "UNITS", config->value[UNITS]);
    } else if (config->value[PLAN] == PLAN_BLOCK) {
        QN_TRY(check_block(s, arch, config));
        k->template_path = "gate/block.cu";
        k->params_bytes = sizeof(gate_block_params);
        qn_plan_constant(k, "GATE_AT", 0);
        k->threads = block_threads(s);
        k->dynamic_shared = qn_gate_block_shared(s, k->threads);
    } else {
        k->template_path = "gate/given.cu";
    }
    QN_TRY(check_sm(arch, k));
    *out = made;
    return QUERN_OK;
}

// ---- buckets of tokens

static const int64_t bucket_last[] = {64, 512, 1024, 8192, INT32_MAX};

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
    static const int64_t typical[QN_COUNT(bucket_last)] = {1, 256, 1024, 4096, 16384};
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), typical[bucket]};
}

static size_t bucket_of(const void *in)
{
    size_t bucket = 0;
    while (bucket + 1 < QN_COUNT(bucket_last) && ((const sizes_t *)in)->N > bucket_last[bucket]) bucket++;
    return bucket;
}

// ---- choose

// Sets as many CTAs an SM as threads, registers and shared memory allow, at most so many. False: not even one.
static bool choose_ctas(const spec_t *s, const qn_arch *arch, int most, qn_config *c)
{
    qn_plan made;
    for (size_t i = knobs[CTAS].choice_count; i-- > 0;) {
        c->value[CTAS] = knobs[CTAS].choices[i];
        if (c->value[CTAS] <= most && plan(&s->base, arch, c, &made) == QUERN_OK) return true;
    }
    return false;
}

// As many CTAs an SM as if each had a multiple of four warps: the one or two more that a number of experts between
// allows are not worth the registers that they take from all.
static void choose_block(const spec_t *s, const qn_arch *arch, qn_config *c)
{
    const int most = qn_ctas_by_registers(arch, ceil_div(s->E, 128) * 128, block_registers(s));
    memset(c, 0, sizeof *c);
    c->value[PLAN] = PLAN_BLOCK;
    choose_ctas(s, arch, most, c);
}

// Whether a warp is a CTA by itself: where it has copied its rows it waits for nobody else's. With lanes that have different
// numbers of experts it lacks a register or two for the CTAs an SM that this is for.
static bool are_warps_alone(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    return are_rows_copied(s, arch, c) && s->E % (8 * 4) == 0;
}

// alone: behind no other launch; else no rows are copied.
static bool choose_lanes(const spec_t *s, const qn_arch *arch, int least, bool alone, qn_config *c)
{
    for (int lanes = least; lanes <= 32; lanes *= 2) {
        int own = lanes_own(s, lanes), wanted = (int)(4 * s->K), units = 1;
        while (units < 4 && lanes * units < wanted && 2 * units <= own) units *= 2;
        memset(c, 0, sizeof *c);
        c->value[PLAN] = PLAN_LANES;
        c->value[LANES] = lanes, c->value[UNITS] = units;
        c->value[WARPS] = alone && are_warps_alone(s, arch, c) ? 1 : lanes == 32 ? 4 : 8;
        if (choose_ctas(s, arch, arch->max_ctas_sm, c)) return true;
    }
    return false;
}

// By what was measured (ANALYSIS.md): fewer lanes a token the more tokens there are, while their experts fit.
static void choose_among(const spec_t *s, const qn_arch *arch, size_t bucket, bool alone, qn_config *config)
{
    static const int lanes[QN_COUNT(bucket_last)] = {0, 0, 32, 16, 8};
    memset(config, 0, sizeof *config);
    if (s->given_ids) {
        config->value[PLAN] = PLAN_GIVEN;
        config->value[WARPS] = bucket == 0 ? 1 : 8;
        config->value[CTAS] = 2;
        return;
    }
    int least = lanes[bucket];
    if (least == 32 && !is_grouped(s) && s->E <= 256) least = 0;
    if (least == 8 && (s->K > 16 || is_grouped(s) || lanes_own(s, 8) > 32)) least = 16;
    if (least && choose_lanes(s, arch, least, alone, config)) return;
    choose_block(s, arch, config);
}

static void choose(const quern_spec *base, const qn_arch *arch, size_t bucket, qn_config *config)
{
    choose_among((const spec_t *)base, arch, bucket, true, config);
}

void qn_gate_choose_dependent(const quern_gate_spec *s, const qn_arch *arch, size_t bucket, qn_config *config)
{
    choose_among(s, arch, bucket, false, config);
}

// ---- launch

static size_t workspace(const quern_spec *spec, const qn_config *config, const void *at_most)
{
    (void)spec, (void)config, (void)at_most;
    return 0;
}

static quern_status check(const quern_spec *base)
{
    const spec_t *s = (const spec_t *)base;
    long long E = s->E, K = s->K, n_group = s->n_group, topk_group = s->topk_group;
    if (E % n_group) {
        return qn_fail(QUERN_CONFLICT, "n_group = %lld with E = %lld: n_group must divide E", n_group, E);
    }
    if (topk_group > n_group) {
        return qn_fail(QUERN_CONFLICT, "topk_group = %lld with n_group = %lld: must be 1 … n_group", topk_group,
                       n_group);
    }
    if (K > E / n_group * topk_group) {
        return qn_fail(
            QUERN_CONFLICT,
            "K = %lld with E = %lld, n_group = %lld, topk_group = %lld: K must be 1 … %lld, the experts of the "
            "groups that are kept",
            K, E, n_group, topk_group, E / n_group * topk_group);
    }
    if (fabs(s->scale) > FLT_MAX) {
        return qn_fail(QUERN_BAD_VALUE, "scale = %g: weights are f32, so it must be -3.4e38 … 3.4e38", s->scale);
    }
    return QUERN_OK;
}

static quern_status check_args(const quern_spec *spec, const quern_args *args, bool *empty)
{
    return qn_check_rows(&qn_family_gate, spec, args, empty);
}

static void sizes_of(const quern_args *args, void *out)
{
    *(sizes_t *)out = (sizes_t){sizeof(sizes_t), ((const args_t *)args)->N};
}

static uint32_t ctas_of(const qn_config *c, int64_t N)
{
    if (c->value[PLAN] == PLAN_BLOCK) return (uint32_t)N;
    int tokens = c->value[WARPS] * (c->value[PLAN] == PLAN_LANES ? 32 / c->value[LANES] : 1);
    return (uint32_t)((N + tokens - 1) / tokens);
}

// 16-byte loads of logits and bias, if every row begins where one may.
static bool is_aligned(const spec_t *s, const args_t *a)
{
    uint64_t stride = (uint64_t)(a->logits_stride_N ? a->logits_stride_N : s->E) * (uint64_t)element_bytes(s);
    if (a->N == 1) stride = 0; // nothing steps by it
    uint64_t bases = (uint64_t)(uintptr_t)a->logits | (s->bias ? (uint64_t)(uintptr_t)a->bias : 0);
    return ((stride | bases) & 15) == 0;
}

QN_LAUNCH_PATH static void launch(const quern_spec *base, const qn_config *config, const qn_plan *made,
                                  const qn_device_limits *limits, const quern_args *base_args, size_t stage,
                                  qn_launch *out)
{
    const spec_t *s = (const spec_t *)base;
    const args_t *a = (const args_t *)base_args;
    (void)limits, (void)stage;
    gate_params p = {
        .logits = a->logits,
        .bias = s->bias && !s->given_ids ? a->bias : NULL,
        .given_ids = s->given_ids ? a->given_ids : NULL,
        .weights = a->weights,
        .ids = s->given_ids ? NULL : a->ids,
        .logits_stride = a->logits_stride_N ? a->logits_stride_N : s->E,
        .given_ids_stride = a->given_ids_stride_N ? a->given_ids_stride_N : s->K,
        .weights_stride = a->weights_stride_N ? a->weights_stride_N : s->K,
        .ids_stride = a->ids_stride_N ? a->ids_stride_N : s->K,
        .N = a->N,
        .scale = (float)s->scale,
        .aligned = is_aligned(s, a),
    };
    out->grid[0] = ctas_of(config, a->N), out->grid[1] = 1, out->grid[2] = 1;
    out->skip = false;
    qn_gate_put_params(&made->stage[0], &p, out->params);
}

const qn_family qn_family_gate = {
    .name = "gate",
    .doc = "experts of a token: the K largest of activation(logit) + bias, weights a / Σ a · scale",
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
    .workspace_word = 0,
    .check_args = check_args,
    .args_are_plain = true,
    .workspace_by_config = true,
    .sizes_of = sizes_of,
    .launch = launch,
    .reference = qn_reference_gate,
    .tolerance = qn_tolerance_gate,
    .integers_note = "experts whose activations differ by less than their accuracy, 8 ulp each, may change places",
};
