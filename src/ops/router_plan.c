// SPDX-License-Identifier: Apache-2.0
// Configurations of the family router to kernels: constants, threads, shared memory, or a refusal with the numbers. Called
// through the family's plan.
//
// A plan's stages, of which a launch skips some:
//   PARTS, GATE_OF_PARTS  partial sums and the gate: in one launch of the first kernel where its CTAs are resident
//                         together and N is at most ROUTER_MOST_WHOLE, else the gate by gather.cu. Of multicast by a
//                         kernel of the family gate that adds the parts
//   LOGITS, GATE          sums through all of D, then a kernel of the family gate
// batch_invariant has all four, which add in the same order.
#include <stdio.h>
#include <string.h>

#include "ops/gate.h"
#include "ops/router.h"

typedef quern_router_spec spec_t;

// ---- the gate that follows logits

void qn_router_gate_spec(const spec_t *s, quern_gate_spec *gate)
{
    *gate = (quern_gate_spec)QUERN_GATE_SPEC_INIT;
    gate->E = s->E, gate->K = s->K, gate->in = QUERN_F32, gate->act = s->act, gate->bias = s->bias;
    gate->n_group = s->n_group, gate->topk_group = s->topk_group, gate->renormalize = s->renormalize;
    gate->scale = s->scale, gate->index = s->index, gate->given_ids = s->given_ids;
}

static void set_constant(qn_kernel_plan *k, const char *name, int64_t value)
{
    for (size_t i = 0; i < k->constant_count; i++)
        if (!strcmp(k->constants[i].name, name)) k->constants[i].value = value;
}

static void use_gate(const qn_arch *arch, const qn_plan *made, qn_kernel_plan *k)
{
    *k = made->stage[0];
    k->overlaps = arch->cc >= 90;
    set_constant(k, "DEPENDENT", 1);
}

static quern_status plan_gate(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *k)
{
    quern_gate_spec gate;
    qn_config config;
    qn_plan made;
    qn_router_gate_spec(s, &gate);
    qn_gate_choose_dependent(&gate, arch, (size_t)(s->batch_invariant ? 1 : c->value[QN_ROUTER_GATE]), &config);
    QN_TRY(qn_family_gate.plan(&gate.base, arch, &config, &made));
    use_gate(arch, &made, k);
    return QUERN_OK;
}

// The gate's CTAs begin on SMs in the order in which these become free. So that the first do not take all of them, each has
// its share at most: by shared memory that is asked for and not used.
static void share_sms(const qn_arch *arch, int most, qn_kernel_plan *k)
{
    const int shared = (int)round_up(arch->shared_sm / (most + 1) - 1024 + 1, 16); // one more does not fit
    if (most == 0) return;
    k->dynamic_shared = (int)most_of(k->dynamic_shared, least_of(shared, arch->shared_cta));
    k->min_ctas = (int)least_of(k->min_ctas, most);
}

// Of logits in parts, which need registers on their way. With gate=2 (chosen for 513 to 4096 tokens) a whole warp a token, so
// that all loads are on their way at once; where the gate has no such plan, and else, what the gate chooses.
static quern_status plan_gate_of_parts(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *k)
{
    const int parts = qn_router_cut_of(s, c).slices, own = (int)ceil_div(s->E, 128) * 4;
    const int needed = 28 + own * parts + own / 2; // registers, about
    quern_gate_spec gate;
    qn_config config;
    qn_plan made;
    char text[80];
    snprintf(text, sizeof text, "plan=lanes lanes=32 units=1 warps=8 ctas=%d",
             needed <= 64    ? 4
             : needed <= 80  ? 3
             : needed <= 128 ? 2
                             : 1);
    qn_router_gate_spec(s, &gate);
    if (c->value[QN_ROUTER_GATE] == 2 && !s->given_ids && qn_config_parse(&qn_family_gate, text, &config) == QUERN_OK &&
        qn_family_gate.plan(&gate.base, arch, &config, &made) == QUERN_OK) {
        use_gate(arch, &made, k);
    } else {
        QN_TRY(plan_gate(s, arch, c, k));
        k->min_ctas = (int)most_of(k->min_ctas * (parts <= 3 ? 3 : 2) / 4, 1);
    }
    share_sms(arch, c->value[QN_ROUTER_GATE_CTAS], k);
    set_constant(k, "PARTS", parts);
    set_constant(k, "PART_STRIDE", pitch_of(s));
    return QUERN_OK;
}

// ---- plan

static void write_entry(const spec_t *s, const qn_config *c, const char *what, char *entry)
{
    char groups[24] = "";
    if (is_grouped(s)) snprintf(groups, sizeof groups, "_g%dof%d", (int)s->topk_group, (int)s->n_group);
    snprintf(entry, QN_MAX_ENTRY, "quern_router_d%d_e%d_%s%s%s%s_k%d%s%s%s%s%s_%s%dx%dx%d", (int)s->D, (int)s->E,
             word_of(qn_router_type_names, s->in), s->in == s->w ? "" : "_",
             s->in == s->w ? "" : word_of(qn_router_type_names, s->w), s->w_layout == QUERN_W_DE ? "_de" : "",
             (int)s->K,
             s->act == QUERN_ACT_SQRT_SOFTPLUS ? ""
             : s->act == QUERN_ACT_SIGMOID     ? "_sigmoid"
                                               : "_softmax",
             s->bias && !s->given_ids ? "_bias" : "", groups, s->renormalize ? "" : "_raw", what,
             word_of(qn_router_plan_names, c->value[QN_ROUTER_PLAN]), c->value[QN_ROUTER_TOKENS],
             c->value[QN_ROUTER_EXPERTS], qn_router_cut_of(s, c).slices);
}

static void add_spec_constants(const spec_t *s, qn_kernel_plan *k)
{
    static const int type[] = {[QUERN_F32] = 1, [QUERN_F16] = 2, [QUERN_BF16] = 3}; // elements.cuh: ElementOf
    bool grouped = is_grouped(s);
    qn_plan_constant(k, "D", s->D);
    qn_plan_constant(k, "E", s->E);
    qn_plan_constant(k, "PITCH", pitch_of(s));
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
    qn_plan_constant(k, "PARTS", 1);
    qn_plan_constant(k, "PART_STRIDE", 0);
    qn_plan_constant(k, "GIVEN", s->given_ids);
}

static void add_plan_constants(const spec_t *s, const qn_config *c, const qn_router_shape *n, bool whole,
                               qn_kernel_plan *k)
{
    static const char *const path[] = {
        [QN_ROUTER_ROWS] = "router/rows.cu",          [QN_ROUTER_FRAGMENTS] = "router/fragments.cu",
        [QN_ROUTER_WIDE] = "router/wide.cu",          [QN_ROUTER_DEEP] = "router/deep.cu",
        [QN_ROUTER_TILES] = "router/tiles.cu",        [QN_ROUTER_EXACT] = "router/exact.cu",
        [QN_ROUTER_MULTICAST] = "router/multicast.cu"};
    qn_router_cut d = qn_router_cut_of(s, c);
    k->template_path = path[c->value[QN_ROUTER_PLAN]];
    qn_plan_constant(k, "LOGITS", whole);
    qn_plan_constant(k, "GATE_AT", n->gate_at);
    qn_plan_constant(k, "TOKENS", c->value[QN_ROUTER_TOKENS]);
    qn_plan_constant(k, "EXPERTS", c->value[QN_ROUTER_EXPERTS]);
    qn_plan_constant(k, "SLICES", d.slices);
    qn_plan_constant(k, "SLICE", d.slice);
    if (c->value[QN_ROUTER_PLAN] == QN_ROUTER_ROWS) {
        qn_plan_constant(k, "UNITS", n->units);
    } else if (c->value[QN_ROUTER_PLAN] == QN_ROUTER_FRAGMENTS) {
        qn_plan_constant(k, "CHUNK", c->value[QN_ROUTER_CHUNK]);
        qn_plan_constant(k, "MULTIPLY_WARPS", n->multiply_warps);
    } else if (c->value[QN_ROUTER_PLAN] == QN_ROUTER_WIDE) {
        qn_plan_constant(k, "GROUPS", n->groups);
    } else if (c->value[QN_ROUTER_PLAN] == QN_ROUTER_MULTICAST) {
        qn_plan_constant(k, "STAGES", c->value[QN_ROUTER_STAGES]);
        qn_plan_constant(k, "CLUSTER_N", c->value[QN_ROUTER_CLUSTER_N]);
        qn_plan_constant(k, "CLUSTER_E", c->value[QN_ROUTER_CLUSTER_E]);
        qn_plan_constant(k, "CTAS", c->value[QN_ROUTER_CTAS]); // of launches: a knob shows in the plan
    } else {
        qn_plan_constant(k, "BLOCK", n->block);
        qn_plan_constant(k, "STAGES", c->value[QN_ROUTER_STAGES]);
        qn_plan_constant(k, "W_LAYOUT", s->w_layout == QUERN_W_DE);
        if (c->value[QN_ROUTER_PLAN] == QN_ROUTER_DEEP) {
            qn_plan_constant(k, "GROUPS", n->groups);
        } else {
            qn_plan_constant(k, "WARPS_M", n->warps_m);
            qn_plan_constant(k, "WARPS_N", n->warps_n);
        }
    }
}

static quern_status check_spec(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    int p = c->value[QN_ROUTER_PLAN];
    const char *word = word_of(qn_router_plan_names, p);
    if ((p == QN_ROUTER_WIDE || p == QN_ROUTER_DEEP || p == QN_ROUTER_MULTICAST) && !arch->has_wgmma)
        return qn_fail(QUERN_NO_PLAN, "plan=%s: %s (%d) has no wgmma, sm_90a has", word, arch->name, arch->cc);
    if (p != QN_ROUTER_ROWS && p != QN_ROUTER_EXACT && !is_half(s)) {
        return qn_fail(QUERN_NO_PLAN, "plan=%s: in=%s and w=%s, tensor cores take one 16-bit type (of 2 bytes)", word,
                       word_of(qn_router_type_names, s->in), word_of(qn_router_type_names, s->w));
    }
    if (p != QN_ROUTER_TILES && p != QN_ROUTER_EXACT && s->w_layout != QUERN_W_ED)
        return qn_fail(QUERN_NO_PLAN, "plan=%s: w is [D, E] (w_layout %d), it must be [E, D]", word, s->w_layout);
    if (p != QN_ROUTER_TILES && p != QN_ROUTER_EXACT && s->batch_invariant)
        return qn_fail(QUERN_NO_PLAN, "plan=%s: batch_invariant=1 needs tiles or exact", word);
    if (c->value[QN_ROUTER_SUMS] == QN_ROUTER_WHOLE && p < QN_ROUTER_DEEP)
        return qn_fail(QUERN_NO_PLAN, "plan=%s sums=whole: it has up to %d tokens in parts", word, ROUTER_MOST_WHOLE);
    return p == QN_ROUTER_MULTICAST ? qn_router_multicast_check(s, c) : QUERN_OK;
}

static quern_status check_sm(const qn_arch *arch, const qn_config *c, const qn_router_shape *n)
{
    const char *word = word_of(qn_router_plan_names, c->value[QN_ROUTER_PLAN]);
    if (qn_router_has_room(arch, n)) return QUERN_OK;
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
    qn_router_shape n = qn_router_shape_of(s, c, whole, fused);
    QN_TRY(check_sm(arch, c, &n));
    k->threads = n.threads;
    k->min_ctas = 1;
    k->cluster = qn_router_cluster(c);
    k->dynamic_shared = n.shared;
    k->params_bytes = c->value[QN_ROUTER_PLAN] == QN_ROUTER_MULTICAST ? sizeof(router_multicast_params)
                      : c->value[QN_ROUTER_PLAN] == QN_ROUTER_WIDE    ? sizeof(router_mapped_params)
                                                                      : sizeof(router_params);
    write_entry(s, c, whole ? "_logits" : "", k->entry);
    add_spec_constants(s, k);
    add_plan_constants(s, c, &n, whole, k);
    qn_plan_constant(k, "FUSED", fused);
    return QUERN_OK;
}

// The gate of partial sums as a launch of its own: a CTA a token, as many an SM as there is room for.
static void plan_gather(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *k)
{
    qn_router_cut d = qn_router_cut_of(s, c);
    int more = gate_threads(s) % 128 ? 16 : 8; // CTAs are counted as if they had a multiple of four warps
    int registers = (int)round_up(qn_router_gate_registers(s) + more + (d.slices + 3) / 4 * 4, 8);
    int by_registers = arch->registers_sm / ((int)round_up(s->E, 128) * registers);
    k->threads = gate_threads(s);
    k->cluster = 1;
    k->dynamic_shared = qn_router_gate_shared(s, k->threads, d.slices);
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
    qn_plan_constant(k, "EXPERTS", c->value[QN_ROUTER_EXPERTS]);
    qn_plan_constant(k, "SLICES", d.slices);
    qn_plan_constant(k, "SLICE", d.slice);
}

static quern_status plan_parts(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *stage)
{
    bool fused = qn_router_is_fused(s, arch, c);
    QN_TRY(plan_kernel(s, arch, c, false, fused, &stage[0]));
    if (c->value[QN_ROUTER_PLAN] == QN_ROUTER_MULTICAST) {
        QN_TRY(plan_gate_of_parts(s, arch, c, &stage[1]));
    } else {
        plan_gather(s, arch, c, &stage[1]);
    }
    stage[0].serves = fused ? "logits; gate too where N ≤ 64 and all CTAs fit at once" : "logits";
    stage[1].serves = fused ? "gate where the first has none" : "gate";
    for (size_t i = 0; i < 2 && fused; i++) {
        stage[i].serves_beyond = i ? "gate" : "logits";
        while (qn_router_bucket_last[stage[i].beyond] <= 64) stage[i].beyond++;
    }
    return QUERN_OK;
}

static quern_status plan_logits(const spec_t *s, const qn_arch *arch, const qn_config *c, qn_kernel_plan *stage)
{
    QN_TRY(plan_kernel(s, arch, c, true, false, &stage[0]));
    QN_TRY(plan_gate(s, arch, c, &stage[1]));
    stage[0].serves = s->batch_invariant ? "logits of many tokens" : "logits";
    stage[1].serves = s->batch_invariant ? "gate of many tokens" : "gate";
    return QUERN_OK;
}

quern_status qn_router_plan(const quern_spec *base, const qn_arch *arch, const qn_config *config, qn_plan *out)
{
    const spec_t *s = (const spec_t *)base;
    qn_plan made;
    memset(&made, 0, sizeof made);
    QN_TRY(check_spec(s, arch, config));
    QN_TRY(qn_router_check_tile(config));
    if (s->batch_invariant) {
        QN_TRY(plan_parts(s, arch, config, &made.stage[0]));
        QN_TRY(plan_logits(s, arch, config, &made.stage[2]));
        made.stage_count = 4;
    } else {
        QN_TRY(config->value[QN_ROUTER_SUMS] == QN_ROUTER_WHOLE ? plan_logits(s, arch, config, made.stage)
                                                                : plan_parts(s, arch, config, made.stage));
        made.stage_count = 2;
    }
    *out = made;
    return QUERN_OK;
}
