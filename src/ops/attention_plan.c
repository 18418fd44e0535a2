// SPDX-License-Identifier: Apache-2.0
// attention: what a configuration needs of an SM (registers, shared memory, tensor memory), its kernel or its refusal, and
// the configuration for each bucket. Called through the family's description. The kernels assert the sizes computed here.
//
//   prefill  a CTA a tile of queries of one head; all keys in turn (prefill.cu)
//   decode   a CTA a tile of queries of all heads of a KV head, and some splits of its keys; the last merges (decode.cu,
//            merge.cu)
//   heads    the same for more rows, by wgmma (decode_heads.cu, merge.cu; attention_heads.c)
//   stream   the same for at most 16 rows, each warp with keys of its own (decode_stream.cu, merge.cu;
//            attention_stream.c)
//
// A CTA has warps × columns warps. Those of one row share its scores by keys and its output by columns, so that
// head_dim 512 finds registers; with columns=1 each warp has its rows for itself and P stays in registers.
#include <stdio.h>
#include <string.h>

#include "attention/args_heads.h"
#include "ops/attention.h"

typedef quern_attention_spec spec_t;

static const qn_name plan_names[] = {{"prefill", QN_ATTENTION_PREFILL}, {"decode", QN_ATTENTION_DECODE},
                                     {"wgmma", QN_ATTENTION_WGMMA},     {"stream", QN_ATTENTION_STREAM},
                                     {"heads", QN_ATTENTION_HEADS},     {NULL, 0}};

const qn_knob qn_attention_knobs[QN_ATTENTION_KNOBS] = {
    [QN_ATTENTION_PLAN] = {"plan",
                           {QN_ATTENTION_PREFILL, QN_ATTENTION_DECODE, QN_ATTENTION_WGMMA, QN_ATTENTION_STREAM,
                            QN_ATTENTION_HEADS},
                           5,
                           plan_names,
                           "which kernel"},
    [QN_ATTENTION_ROWS] =
        {"rows", {8, 16, 32, 64, 128, 192, 256}, 7, NULL, "queries a CTA (decode: times packed heads)"},
    [QN_ATTENTION_KEYS] = {"keys", {16, 32, 48, 64, 80, 96, 112, 128, 176}, 9, NULL, "keys a block"},
    [QN_ATTENTION_WARPS] = {"warps", {1, 2, 4, 8}, 4, NULL, "warps over the rows (stream: over the keys)"},
    [QN_ATTENTION_COLUMNS] = {"columns", {1, 2, 4, 8}, 4, NULL, "warps that share a row's keys and output columns"},
    [QN_ATTENTION_SLOTS] = {"slots", {2, 3, 4, 5, 6, 8}, 6, NULL, "blocks of k or v in shared memory"},
    [QN_ATTENTION_CTAS] = {"ctas", {1, 2, 3, 4, 6, 8}, 6, NULL, "CTAs an SM that registers are kept for"},
};

// ---- numbers

static int round_up(int value, int step)
{
    return (value + step - 1) / step * step;
}

static int value_of(const qn_config *c, enum qn_attention_knob knob)
{
    return c->value[knob];
}

int qn_attention_pitch_bytes(int elements)
{
    return ((elements + 7) / 8 | 1) * 16;
}

// The same of a block of keys or values (load.cuh).
static int block_pitch(const qn_config *c, int elements)
{
    bool lines = value_of(c, QN_ATTENTION_ROWS) == 16 && elements > 256 && elements % 64 == 0;
    return lines ? 2 * elements : qn_attention_pitch_bytes(elements);
}

static int block_bytes(const spec_t *s, const qn_config *c)
{
    int k = block_pitch(c, round_up((int)s->d, 16)), v = block_pitch(c, round_up((int)s->dv, 16));
    return value_of(c, QN_ATTENTION_KEYS) * (s->kv_alias || k > v ? k : v);
}

static int shared_bytes(const spec_t *s, const qn_config *c)
{
    int rows = value_of(c, QN_ATTENTION_ROWS), columns = value_of(c, QN_ATTENTION_COLUMNS);
    int bytes =
        rows * qn_attention_pitch_bytes(round_up((int)s->d, 16)) + value_of(c, QN_ATTENTION_SLOTS) * block_bytes(s, c);
    if (columns > 1) bytes += rows * qn_attention_pitch_bytes(value_of(c, QN_ATTENTION_KEYS)) + 2 * columns * rows * 4;
    return bytes + (value_of(c, QN_ATTENTION_PLAN) == QN_ATTENTION_DECODE ? 16 : 0);
}

// What the accumulators hold, and about what the rest of a thread needs.
static int registers(const spec_t *s, const qn_config *c)
{
    int tiles = value_of(c, QN_ATTENTION_ROWS) / (16 * value_of(c, QN_ATTENTION_WARPS));
    int columns = value_of(c, QN_ATTENTION_COLUMNS), pairs = (round_up((int)s->dv, 16) / 16 + columns - 1) / columns;
    int features =
        8 * (s->page > 0) + 4 * s->cu_q + 4 * (s->window_left >= 0) + 4 * (s->causal || s->window_right >= 0);
    return tiles * (8 * pairs + value_of(c, QN_ATTENTION_KEYS) / columns / 2 + 12) + 52 + features;
}

// Columns of tensor memory that the native kernel for tcgen05 would take for a tile of so many rows: f32 sums of the output
// beside two blocks of 128 scores. A tile of 64 rows lies folded, two columns in one.
static int tensor_columns_of(const spec_t *s, int rows)
{
    int out = round_up((int)s->dv, 16), scores = 2 * 128;
    return rows == 256 ? 2 * out + scores : rows == 128 ? out + scores / 2 : (out + scores / 2) / 2;
}

// The most rows whose columns fit: two tiles of 128, one, or 64 rows folded.
static int tensor_rows(const spec_t *s, const qn_arch *arch)
{
    for (int rows = 256; rows > 64; rows /= 2)
        if (tensor_columns_of(s, rows) <= arch->tensor_memory_columns) return rows;
    return 64;
}

static bool is_wgmma(const qn_config *c)
{
    return value_of(c, QN_ATTENTION_PLAN) == QN_ATTENTION_WGMMA;
}

static bool is_heads(const qn_config *c)
{
    return value_of(c, QN_ATTENTION_PLAN) == QN_ATTENTION_HEADS;
}

static bool is_stream(const qn_config *c)
{
    return value_of(c, QN_ATTENTION_PLAN) == QN_ATTENTION_STREAM;
}

qn_attention_budget qn_attention_budget_of(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    if (is_wgmma(c))
        return (qn_attention_budget){
            .threads = qn_attention_wgmma_threads(c),
            .registers = qn_attention_wgmma_registers(s, c),
            .shared_bytes = qn_attention_wgmma_shared(s, c),
        };
    if (is_heads(c))
        return (qn_attention_budget){
            .threads = qn_attention_heads_threads(c),
            .registers = qn_attention_heads_registers(s, c),
            .shared_bytes = qn_attention_heads_shared(s, c),
        };
    bool stream = is_stream(c);
    return (qn_attention_budget){
        .threads = stream ? qn_attention_stream_threads(c)
                          : 32 * value_of(c, QN_ATTENTION_WARPS) * value_of(c, QN_ATTENTION_COLUMNS),
        .registers = stream ? qn_attention_stream_registers(s, c) : registers(s, c),
        .shared_bytes = stream ? qn_attention_stream_shared(s, c) : shared_bytes(s, c),
        .tensor_columns = arch->tensor_memory_columns ? tensor_columns_of(s, tensor_rows(s, arch)) : 0,
    };
}

void qn_attention_budget_text(const quern_spec *base, const qn_arch *arch, const qn_config *c, qn_text *text)
{
    const spec_t *s = (const spec_t *)base;
    qn_attention_budget b = qn_attention_budget_of(s, arch, c);
    int ctas = is_wgmma(c) ? 1 : value_of(c, QN_ATTENTION_CTAS), wide = 128; // wgmma: one CTA an SM
    qn_text_putf(text, "%d × %d threads, about %d registers a%s thread; %d × %d of %d bytes of shared memory", ctas,
                 b.threads, b.registers, is_wgmma(c) ? " computing" : "", ctas, b.shared_bytes, arch->shared_sm);
    if (!arch->tensor_memory_columns) return;
    qn_text_putf(text, "; tensor memory of a native kernel: %d of %d columns for %d rows", b.tensor_columns,
                 arch->tensor_memory_columns, tensor_rows(s, arch));
    if (tensor_rows(s, arch) < wide) qn_text_putf(text, " (%d rows would take %d)", wide, tensor_columns_of(s, wide));
}

// ---- refusals

static quern_status check_shape(const spec_t *s, const qn_config *c)
{
    int rows = value_of(c, QN_ATTENTION_ROWS), keys = value_of(c, QN_ATTENTION_KEYS);
    int warps = value_of(c, QN_ATTENTION_WARPS), columns = value_of(c, QN_ATTENTION_COLUMNS);
    if (is_stream(c)) return qn_attention_stream_check(s, c);
    if (rows % (16 * warps))
        return qn_fail(QUERN_NO_PLAN, "rows=%d warps=%d: a warp has whole tiles of 16 rows", rows, warps);
    if (keys % (8 * columns))
        return qn_fail(QUERN_NO_PLAN, "keys=%d columns=%d: a warp has whole tiles of 8 keys", keys, columns);
    if (warps * columns > 32)
        return qn_fail(QUERN_NO_PLAN, "warps=%d columns=%d: a CTA has at most 32 warps", warps, columns);
    int split = s->kv_split ? (int)s->kv_split : 256; // the least that is chosen
    if (value_of(c, QN_ATTENTION_PLAN) == QN_ATTENTION_DECODE && split % keys)
        return qn_fail(QUERN_NO_PLAN, "plan=decode keys=%d: splits of %d keys are whole blocks", keys, split);
    if (16 * (columns - 1) >= round_up((int)s->dv, 16))
        return qn_fail(QUERN_NO_PLAN, "columns=%d: dv = %lld has only %d times 16 columns", columns, (long long)s->dv,
                       round_up((int)s->dv, 16) / 16);
    return QUERN_OK;
}

static quern_status check_budget(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    qn_attention_budget b = qn_attention_budget_of(s, arch, c);
    int ctas = value_of(c, QN_ATTENTION_CTAS), each = arch->registers_sm / (ctas * b.threads) / 8 * 8;
    if (ctas * b.threads > arch->max_threads_sm)
        return qn_fail(QUERN_NO_PLAN, "ctas=%d of %d threads: %s holds %d threads an SM", ctas, b.threads, arch->name,
                       arch->max_threads_sm);
    if (each > 255) each = 255;
    if (b.registers > each)
        return qn_fail(QUERN_NO_PLAN, "d = %lld, dv = %lld: about %d registers a thread, %d × %d threads leave %d",
                       (long long)s->d, (long long)s->dv, b.registers, ctas, b.threads, each);
    if (b.shared_bytes > arch->shared_cta || (b.shared_bytes + 1024) * ctas > arch->shared_sm)
        return qn_fail(
            QUERN_NO_PLAN, "d = %lld, dv = %lld: %d × %d bytes of shared memory, %s has %d a CTA and %d an SM",
            (long long)s->d, (long long)s->dv, ctas, b.shared_bytes, arch->name, arch->shared_cta, arch->shared_sm);
    if (b.tensor_columns > arch->tensor_memory_columns)
        return qn_fail(QUERN_NO_PLAN, "dv = %lld: %d columns of tensor memory, %s has %d", (long long)s->dv,
                       b.tensor_columns, arch->name, arch->tensor_memory_columns);
    return QUERN_OK;
}

// ---- the kernel

static void write_entry(const spec_t *s, const qn_config *c, char *entry)
{
    static const char *const layouts[] = {"dense", "varlen", "paged"};
    char dv[16] = "";
    if (s->dv != s->d) snprintf(dv, sizeof dv, "_%d", (int)s->dv);
    snprintf(entry, QN_MAX_ENTRY, "quern_attention_d%d%s_%s_%s%s%s%s%s%s%s%s_%s", (int)s->d, dv,
             s->in == QUERN_F16 ? "f16" : "bf16", layouts[s->layout], s->kv_alias ? "_alias" : "",
             s->causal || s->window_right == 0 ? "_causal"
             : s->window_right > 0             ? "_right"
                                               : "",
             s->window_left >= 0 ? "_window" : "", s->softcap != 0 ? "_cap" : "", s->sink ? "_sink" : "",
             s->lse ? "_lse" : "", s->page && s->cu_q ? "_ragged" : "",
             is_wgmma(c)                                             ? "wgmma"
             : is_stream(c)                                          ? "stream"
             : is_heads(c)                                           ? "heads"
             : value_of(c, QN_ATTENTION_PLAN) == QN_ATTENTION_DECODE ? "decode"
                                                                     : "prefill");
}

static void add_spec_constants(const spec_t *s, qn_kernel_plan *k)
{
    static const int in[] = {[QUERN_F16] = 2, [QUERN_BF16] = 3}; // elements.cuh: ElementOf
    qn_plan_constant(k, "D", s->d);
    qn_plan_constant(k, "DV", s->dv);
    qn_plan_constant(k, "IN", in[s->in]);
    qn_plan_constant(k, "LAYOUT", s->layout);
    qn_plan_constant(k, "PAGE", s->page);
    qn_plan_constant(k, "RAGGED", s->cu_q);
    qn_plan_constant(k, "LENGTHS", s->length_k);
    qn_plan_constant(k, "WINDOW_LEFT", s->window_left >= 0);
    qn_plan_constant(k, "WINDOW_RIGHT", s->causal || s->window_right >= 0);
    qn_plan_constant(k, "SOFTCAP", s->softcap != 0);
    qn_plan_constant(k, "NEGATIVE", s->scale < 0);
    qn_plan_constant(k, "SINK", s->sink);
    qn_plan_constant(k, "ALIAS", s->kv_alias);
    qn_plan_constant(k, "LSE", s->lse);
}

static void add_tile_constants(const qn_config *c, qn_kernel_plan *k)
{
    qn_plan_constant(k, "ROWS", value_of(c, QN_ATTENTION_ROWS));
    qn_plan_constant(k, "KEYS", value_of(c, QN_ATTENTION_KEYS));
    qn_plan_constant(k, "COLUMNS", is_stream(c) ? 1 : value_of(c, QN_ATTENTION_COLUMNS));
    qn_plan_constant(k, "SLOTS", value_of(c, QN_ATTENTION_SLOTS));
}

// The plan "wgmma", and the one that serves arguments that TMA can't load.
static void choose_prefill(const quern_spec *base, const qn_arch *arch, qn_config *c);
static quern_status plan_wgmma(const quern_spec *base, const qn_arch *arch, const qn_config *c, qn_plan *out)
{
    const spec_t *s = (const spec_t *)base;
    qn_plan made, other;
    qn_config prefill;
    QN_TRY(qn_attention_wgmma_check(s, arch, c));
    choose_prefill(base, arch, &prefill);
    QN_TRY(qn_attention_plan(base, arch, &prefill, &other));
    memset(&made, 0, sizeof made);
    qn_kernel_plan *k = &made.stage[0];
    made.stage_count = 2;
    made.stage[1] = other.stage[0];
    k->serves = "rows at multiples of 16 bytes", made.stage[1].serves = "rows at other addresses";
    k->template_path = qn_attention_wgmma_template(c);
    k->threads = qn_attention_wgmma_threads(c);
    k->min_ctas = 1, k->cluster = 1;
    k->dynamic_shared = qn_attention_wgmma_shared(s, c);
    k->params_bytes = sizeof(attention_wgmma_params);
    write_entry(s, c, k->entry);
    add_spec_constants(s, k);
    add_tile_constants(c, k);
    *out = made;
    return QUERN_OK;
}

bool qn_attention_has_merge(const qn_config *c)
{
    return is_stream(c) || is_heads(c) ||
           (value_of(c, QN_ATTENTION_PLAN) == QN_ATTENTION_DECODE && value_of(c, QN_ATTENTION_ROWS) == 16);
}

static void add_merge(const spec_t *s, const qn_config *c, qn_kernel_plan *k)
{
    k->template_path = "attention/merge.cu";
    k->threads = 256, k->min_ctas = !is_heads(c) ? 2 : s->window_left >= 0 ? 3 : 4, k->cluster = 1;
    k->params_bytes = sizeof(attention_params);
    k->overlaps = true;
    write_entry(s, c, k->entry);
    snprintf(k->entry + strlen(k->entry), 8, "_merge");
    add_spec_constants(s, k);
    add_tile_constants(c, k);
}

// The plan "heads": the kernel, the merge of its splits, and the one that serves arguments that TMA can't load.
static void choose_tiles(const quern_spec *base, const qn_arch *arch, bool few, qn_config *c);
static quern_status plan_heads(const quern_spec *base, const qn_arch *arch, const qn_config *c, qn_plan *out)
{
    const spec_t *s = (const spec_t *)base;
    qn_plan made, other;
    qn_config tiles;
    QN_TRY(qn_attention_heads_check(s, arch, c));
    choose_tiles(base, arch, false, &tiles);
    QN_TRY(qn_attention_plan(base, arch, &tiles, &other));
    memset(&made, 0, sizeof made);
    qn_kernel_plan *k = &made.stage[0];
    made.stage_count = 3;
    made.stage[2] = other.stage[0];
    k->template_path = "attention/decode_heads.cu";
    k->threads = qn_attention_heads_threads(c);
    k->min_ctas = value_of(c, QN_ATTENTION_CTAS), k->cluster = 1;
    k->dynamic_shared = qn_attention_heads_shared(s, c);
    k->params_bytes = sizeof(attention_heads_params);
    write_entry(s, c, k->entry);
    add_spec_constants(s, k);
    add_tile_constants(c, k);
    qn_plan_constant(k, "BOX", qn_attention_heads_box(s, c));
    add_merge(s, c, &made.stage[1]);
    k->serves = "rows at multiples of 16 bytes", made.stage[1].serves = "more than one split of these";
    made.stage[2].serves = "rows at other addresses";
    *out = made;
    return QUERN_OK;
}

quern_status qn_attention_plan(const quern_spec *base, const qn_arch *arch, const qn_config *c, qn_plan *out)
{
    if (is_wgmma(c)) return plan_wgmma(base, arch, c, out);
    if (is_heads(c)) return plan_heads(base, arch, c, out);

    const spec_t *s = (const spec_t *)base;
    qn_plan made;
    memset(&made, 0, sizeof made);
    qn_kernel_plan *k = &made.stage[0];
    QN_TRY(check_shape(s, c));
    QN_TRY(check_budget(s, arch, c));
    made.stage_count = 1;
    qn_attention_budget budget = qn_attention_budget_of(s, arch, c);
    k->template_path = is_stream(c)                                            ? "attention/decode_stream.cu"
                       : value_of(c, QN_ATTENTION_PLAN) == QN_ATTENTION_DECODE ? "attention/decode.cu"
                                                                               : "attention/prefill.cu";
    k->threads = budget.threads;
    k->min_ctas = value_of(c, QN_ATTENTION_CTAS);
    k->cluster = 1;
    k->dynamic_shared = budget.shared_bytes;
    k->params_bytes = sizeof(attention_params);
    write_entry(s, c, k->entry);
    add_spec_constants(s, k);
    add_tile_constants(c, k);
    if (qn_attention_has_merge(c)) {
        made.stage_count = 2;
        add_merge(s, c, &made.stage[1]);
        made.stage[1].serves = "more than one split of few tiles";
    }
    *out = made;
    return QUERN_OK;
}

// ---- choose

// Tiles in order of preference; of each, as many CTAs and slots as fit.
typedef struct tile {
    int most_dv; // 0: ends the list
    int rows, keys, warps, columns;
} tile;

static const tile prefill_tiles[] = {
    {64, 128, 64, 4, 1}, {128, 128, 32, 4, 1}, {128, 64, 64, 4, 1}, {192, 64, 64, 4, 1}, {256, 64, 32, 4, 1},
    {512, 64, 32, 4, 2}, {512, 64, 16, 4, 2},  {256, 32, 32, 2, 1}, {256, 32, 16, 2, 1}, {512, 32, 16, 2, 2},
    {512, 16, 16, 1, 2}, {256, 16, 16, 1, 1},  {0, 0, 0, 0, 0},
};
static const tile decode_16_tiles[] = {
    {16, 16, 64, 1, 1},  {32, 16, 64, 1, 2},  {64, 16, 128, 1, 4}, {256, 16, 64, 1, 4}, {512, 16, 32, 1, 4},
    {512, 16, 16, 1, 2}, {256, 16, 32, 1, 1}, {256, 16, 16, 1, 1}, {0, 0, 0, 0, 0},
};
static const tile decode_64_tiles[] = {
    {128, 64, 64, 4, 1}, {192, 64, 64, 4, 1}, {256, 64, 32, 4, 1}, {512, 64, 32, 4, 2},
    {512, 64, 16, 4, 2}, {256, 32, 32, 2, 1}, {256, 32, 16, 2, 1}, {512, 32, 16, 2, 2},
    {512, 16, 16, 1, 2}, {256, 16, 16, 1, 1}, {0, 0, 0, 0, 0},
};
typedef struct occupancy {
    int slots, ctas;
} occupancy;
static const occupancy prefill_occupancy[] = {{3, 2}, {2, 2}, {4, 1}, {3, 1}, {2, 1}};
static const occupancy decode_occupancy[] = {{4, 3}, {4, 2}, {3, 2}, {2, 2}, {4, 1}, {3, 1}, {2, 1}};

static bool choose_tile(const quern_spec *base, const qn_arch *arch, const tile *t, const occupancy *o, size_t count,
                        qn_config *c)
{
    qn_plan made;
    c->value[QN_ATTENTION_ROWS] = t->rows, c->value[QN_ATTENTION_KEYS] = t->keys;
    c->value[QN_ATTENTION_WARPS] = t->warps, c->value[QN_ATTENTION_COLUMNS] = t->columns;
    for (size_t i = 0; i < count; i++) {
        c->value[QN_ATTENTION_SLOTS] = o[i].slots, c->value[QN_ATTENTION_CTAS] = o[i].ctas;
        if (qn_attention_plan(base, arch, c, &made) == QUERN_OK) return true;
    }
    return false;
}

static void choose_of(const quern_spec *base, const qn_arch *arch, const tile *tiles, const occupancy *o, size_t count,
                      qn_config *c)
{
    const spec_t *s = (const spec_t *)base;
    for (const tile *t = tiles; t->most_dv; t++)
        if (s->dv <= t->most_dv && choose_tile(base, arch, t, o, count, c)) return;
}

static void choose_prefill(const quern_spec *base, const qn_arch *arch, qn_config *c)
{
    memset(c, 0, sizeof *c);
    c->value[QN_ATTENTION_PLAN] = QN_ATTENTION_PREFILL;
    choose_of(base, arch, prefill_tiles, prefill_occupancy, QN_COUNT(prefill_occupancy), c);
}

// Tiles by mma.sync, on every target.
static void choose_tiles(const quern_spec *base, const qn_arch *arch, bool few, qn_config *c)
{
    memset(c, 0, sizeof *c);
    c->value[QN_ATTENTION_PLAN] = QN_ATTENTION_DECODE;
    choose_of(base, arch, few ? decode_16_tiles : decode_64_tiles, decode_occupancy, QN_COUNT(decode_occupancy), c);
}

// With batch_invariant one tile serves all: of 64 rows, which neither few nor many queries waste too much of.
static void choose_decode(const quern_spec *base, const qn_arch *arch, size_t bucket, qn_config *c)
{
    bool invariant = ((const spec_t *)base)->batch_invariant;
    int few = invariant ? 0 : bucket == QN_ATTENTION_DECODE_8 ? 8 : bucket == QN_ATTENTION_DECODE_16 ? 16 : 0;
    if (few ? qn_attention_stream_choose(base, arch, few, c) : !invariant && qn_attention_heads_choose(base, arch, c))
        return;
    choose_tiles(base, arch, few > 0, c);
}

void qn_attention_choose(const quern_spec *base, const qn_arch *arch, size_t bucket, qn_config *c)
{
    const spec_t *s = (const spec_t *)base;
    qn_message_mark mark;
    qn_message_save(&mark);
    memset(c, 0, sizeof *c);
    if (s->batch_invariant || bucket < QN_ATTENTION_MANY)
        choose_decode(base, arch, bucket, c);
    else if (!qn_attention_wgmma_choose(s, arch, bucket == QN_ATTENTION_LONG, c))
        choose_prefill(base, arch, c);
    qn_message_restore(&mark);
}
