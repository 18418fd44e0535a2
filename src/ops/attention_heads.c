// SPDX-License-Identifier: Apache-2.0
// attention's plan "heads" (sm_90a; decode_heads.cu, merge.cu): what it needs of an SM, what it refuses, which blocks serve
// which head_dims, how the keys are cut, and the launch with its tensor maps. Called by attention_plan.c and attention.c.
//
//   rows=64     queries times the heads of a KV head
//   columns     computing warpgroups, which share the output's columns
//   slots       blocks of k and v in shared memory together; with kv_alias of k
//
// Three stages: the kernel, the merge of its splits, and the plan "decode" for tensors that TMA can't load (rows not at
// multiples of 16 bytes).
#include <string.h>

#include "attention/args_heads.h"
#include "ops/attention.h"

typedef quern_attention_spec spec_t;

static int value_of(const qn_config *c, enum qn_attention_knob knob)
{
    return c->value[knob];
}

// ---- numbers: those of heads_shared.cuh

static int chunks_of(int64_t columns)
{
    return (int)((columns + 63) / 64);
}

static int stages_of(const spec_t *s, const qn_config *c)
{
    return value_of(c, QN_ATTENTION_SLOTS) / (s->kv_alias ? 1 : 2);
}

int qn_attention_heads_shared(const spec_t *s, const qn_config *c)
{
    int columns = value_of(c, QN_ATTENTION_COLUMNS), stages = stages_of(s, c), keys = value_of(c, QN_ATTENTION_KEYS);
    int chunks = chunks_of(s->d), values = s->kv_alias ? 0 : chunks_of(s->dv), pieces = chunks > 1 ? columns : 1;
    int bytes = chunks * 64 * 128 + stages * (chunks + values) * keys * 128;
    if (columns == 2) bytes += 64 * 128 + 64 * 4;
    return bytes + 8 * (2 * stages * (pieces + (values ? columns : 0)) + 2);
}

// Of a computing thread: sums of the output, scores, probabilities, and about what the rest takes.
int qn_attention_heads_registers(const spec_t *s, const qn_config *c)
{
    int keys = value_of(c, QN_ATTENTION_KEYS), columns = (int)s->dv;
    bool ends = s->layout == QUERN_LAYOUT_VARLEN || s->length_k;
    if (value_of(c, QN_ATTENTION_COLUMNS) == 2) columns = 64 * ((chunks_of(s->dv) + 1) / 2);
    return columns / 2 + keys / 2 + keys / 4 + 36 + 4 * (s->lse + ends + (s->window_left >= 0) + (s->softcap != 0));
}

// One group; or two, and a third for the loader, which gives its registers to them.
int qn_attention_heads_threads(const qn_config *c)
{
    return value_of(c, QN_ATTENTION_COLUMNS) == 2 ? 384 : 128;
}

// Positions of a box of TMA: as many as both a block and a page are made of.
int qn_attention_heads_box(const spec_t *s, const qn_config *c)
{
    int a = value_of(c, QN_ATTENTION_KEYS), b = (int)s->page;
    while (b) {
        int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

// ---- refusals

static quern_status check_shape(const spec_t *s, const qn_config *c)
{
    int rows = value_of(c, QN_ATTENTION_ROWS), keys = value_of(c, QN_ATTENTION_KEYS);
    int columns = value_of(c, QN_ATTENTION_COLUMNS), slots = value_of(c, QN_ATTENTION_SLOTS);
    int split = s->kv_split ? (int)s->kv_split : QN_ATTENTION_HEADS_SPLIT;
    if (rows != 64 || columns > 2 || (!s->kv_alias && slots % 2))
        return qn_fail(QUERN_NO_PLAN,
                       "plan=heads rows=%d columns=%d slots=%d: rows=64, 1 or 2 columns, k and v in pairs", rows,
                       columns, slots);
    if (split % keys || keys > 128 || (columns == 2 && keys != 64))
        return qn_fail(QUERN_NO_PLAN, "plan=heads columns=%d keys=%d: splits of %d keys are whole blocks, of 64 with 2",
                       columns, keys, split);
    if (columns == 2 && s->dv <= 64)
        return qn_fail(QUERN_NO_PLAN, "plan=heads columns=2: dv = %lld, more than 64 are needed", (long long)s->dv);
    if (columns == 1 && s->dv > 256)
        return qn_fail(QUERN_NO_PLAN, "plan=heads columns=1: dv = %lld, an instruction has 256 columns at most",
                       (long long)s->dv);
    return QUERN_OK;
}

static quern_status check_budget(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    int registers = qn_attention_heads_registers(s, c), shared = qn_attention_heads_shared(s, c);
    int ctas = value_of(c, QN_ATTENTION_CTAS);
    int most = value_of(c, QN_ATTENTION_COLUMNS) == 2 ? 232 : ctas > 2 ? 512 / ctas / 8 * 8 : 255;
    if (registers > most)
        return qn_fail(QUERN_NO_PLAN, "plan=heads d = %lld, dv = %lld: about %d registers a thread, there are %d",
                       (long long)s->d, (long long)s->dv, registers, most);
    if (shared > arch->shared_cta || (shared + 1024) * ctas > arch->shared_sm ||
        (value_of(c, QN_ATTENTION_COLUMNS) == 2 && ctas > 1))
        return qn_fail(QUERN_NO_PLAN, "plan=heads d = %lld, dv = %lld: %d × %d bytes of shared memory, %s has %d an SM",
                       (long long)s->d, (long long)s->dv, ctas, shared, arch->name, arch->shared_sm);
    return QUERN_OK;
}

quern_status qn_attention_heads_check(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    if (!arch->has_wgmma) return qn_fail(QUERN_NO_PLAN, "plan=heads: %s has no wgmma", arch->name);
    QN_TRY(check_shape(s, c));
    return check_budget(s, arch, c);
}

// ---- choose

// In order of preference: the first that serves the spec.
typedef struct block {
    int most_d, most_dv; // 0: ends the list
    int keys, columns, slots, ctas;
} block;
static const block blocks[] = {
    {64, 64, 64, 1, 8, 2},   {128, 128, 64, 1, 6, 2}, {256, 64, 64, 1, 4, 1}, {256, 256, 64, 2, 4, 1},
    {576, 512, 64, 2, 2, 1}, {576, 64, 64, 1, 2, 1},  {0, 0, 0, 0, 0, 0},
};

bool qn_attention_heads_choose(const quern_spec *base, const qn_arch *arch, qn_config *c)
{
    const spec_t *s = (const spec_t *)base;
    qn_plan made;
    for (const block *b = blocks; b->most_d; b++) {
        if (s->d > b->most_d || s->dv > b->most_dv) continue;
        memset(c, 0, sizeof *c);
        c->value[QN_ATTENTION_PLAN] = QN_ATTENTION_HEADS, c->value[QN_ATTENTION_ROWS] = 64;
        c->value[QN_ATTENTION_KEYS] = b->keys, c->value[QN_ATTENTION_COLUMNS] = b->columns;
        c->value[QN_ATTENTION_SLOTS] = b->slots, c->value[QN_ATTENTION_CTAS] = b->ctas;
        if (qn_attention_plan(base, arch, c, &made) == QUERN_OK) return true;
    }
    return false;
}

// ---- splits: one a CTA, as many as make one to four waves come out even on a usual device. No more than the sizes and
// the configuration decides, so that bits do not depend on the device.

enum { MOST_WAVES = 4 };

// Ragged sequences may have many more tiles than it seems, which is memory: one wave.
static int64_t most_waves(const spec_t *s)
{
    return s->cu_q ? 1 : MOST_WAVES;
}

int64_t qn_attention_heads_split(const spec_t *s, const qn_config *c, int64_t tiles, int64_t keys)
{
    int64_t wave = QN_ATTENTION_USUAL_SMS * value_of(c, QN_ATTENTION_CTAS), cuts = 1, best = 0;
    if (tiles < 1) tiles = 1;
    for (int64_t waves = 1; waves <= most_waves(s) && best < 58; waves++) { // by the share of them that is used, of 64
        int64_t count = waves * wave / tiles, used = count * tiles * 64 / (waves * wave);
        if (used > best) best = used, cuts = count;
    }
    int64_t split = ((keys + cuts - 1) / cuts + 63) / 64 * 64;
    return split < QN_ATTENTION_HEADS_SPLIT ? QN_ATTENTION_HEADS_SPLIT : split;
}

int64_t qn_attention_heads_parts(const spec_t *s, const qn_config *c, int64_t tiles)
{
    int64_t most = most_waves(s) * QN_ATTENTION_USUAL_SMS * value_of(c, QN_ATTENTION_CTAS);
    return tiles > most ? tiles : most;
}

// ---- launch

bool qn_attention_heads_launch(const spec_t *s, const qn_config *c, const qn_device_limits *limits,
                               const attention_params *p, int64_t pages, qn_launch *out)
{
    attention_heads_params *h = (attention_heads_params *)(void *)out->params;
    int box = qn_attention_heads_box(s, c);
    h->p = *p;
    return qn_attention_map_keys(s, limits->driver, p, pages, false, box, &h->k) &&
           (s->kv_alias || qn_attention_map_keys(s, limits->driver, p, pages, true, box, &h->v));
}
