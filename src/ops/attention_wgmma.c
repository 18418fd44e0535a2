// SPDX-License-Identifier: Apache-2.0
// attention's plan "wgmma" (sm_90a): tile sizes by head_dim, what they need, and the launch with its tensor maps. Called by
// attention_plan.c and attention.c.
//
//   columns=1   64 rows a computing warpgroup (prefill_wgmma.cu); rows=64: three of them, each with tiles of its own
//   columns=2   64 rows for two of them, which share the output's columns (prefill_wgmma_columns.cu)
//   slots       blocks of k and of v in shared memory together
//
// TMA needs rows at multiples of 16 bytes. Arguments that have others are served by a second stage, the plan "prefill";
// of the two stages, one is left out at every launch.
#include <string.h>

#include "attention/args_wgmma.h"
#include "ops/attention.h"

typedef quern_attention_spec spec_t;

static int value_of(const qn_config *c, enum qn_attention_knob knob)
{
    return c->value[knob];
}

// ---- numbers: those of wgmma_shared.cuh

static int chunks_of(int64_t columns)
{
    return (int)((columns + 63) / 64);
}

// Whether each group has tiles of its own, with its own blocks of k and v.
static bool has_own_tiles(const qn_config *c)
{
    return value_of(c, QN_ATTENTION_COLUMNS) == 1 && value_of(c, QN_ATTENTION_ROWS) == 64;
}

static int groups_of(const qn_config *c)
{
    if (has_own_tiles(c)) return 3;
    return value_of(c, QN_ATTENTION_COLUMNS) == 2 ? 2 : value_of(c, QN_ATTENTION_ROWS) / 64;
}

// Columns of the output that are sums of probabilities: where a descriptor reaches, and there is room for, the chunk of ones
// that they are products with.
static int sum_columns(const spec_t *s, const qn_config *c)
{
    bool whole = s->dv == 64 || s->dv == 128 || s->dv == 192;
    return value_of(c, QN_ATTENTION_COLUMNS) == 1 && whole && s->d <= s->dv ? 8 : 0;
}

// Bytes of ones: of 16 keys, or beside each block of v.
static int ones_bytes(const spec_t *s, const qn_config *c)
{
    int stages = value_of(c, QN_ATTENTION_SLOTS) / 2;
    if (!sum_columns(s, c)) return 0;
    return s->dv == 64 ? 16 * 128 : stages * value_of(c, QN_ATTENTION_KEYS) * 128;
}

int qn_attention_wgmma_shared(const spec_t *s, const qn_config *c)
{
    int columns = value_of(c, QN_ATTENTION_COLUMNS), stages = value_of(c, QN_ATTENTION_SLOTS) / 2;
    int chunks = chunks_of(s->d), value_chunks = chunks_of(s->dv), key_pieces = chunks > 1 ? columns : 1;
    int bytes = value_of(c, QN_ATTENTION_ROWS) * chunks * 128;
    bytes += stages * (chunks + value_chunks) * value_of(c, QN_ATTENTION_KEYS) * 128;
    if (has_own_tiles(c)) return groups_of(c) * (bytes + 1024) + ones_bytes(s, c);
    if (columns == 2) bytes += 2 * 64 * 128 + 3 * 64 * 4;
    bytes += ones_bytes(s, c);
    return bytes + 8 * (2 + 2 * stages * (key_pieces + columns) + 4 + 2);
}

// columns=2: what each of the two groups has, and the columns of the first.
enum { FIRST_REGISTERS = 208, SECOND_REGISTERS = 248 };
static int first_columns(const spec_t *s)
{
    int quarter = (chunks_of(s->dv) + 2) / 4;
    return 64 * (quarter > 0 ? quarter : 1);
}

// Of a computing thread: sums of the output, scores, probabilities, and about what the rest takes; the features' shares are
// such that nothing that is accepted spills. columns=2: of the second group, or of the first with what it has less.
int qn_attention_wgmma_registers(const spec_t *s, const qn_config *c)
{
    int keys = value_of(c, QN_ATTENTION_KEYS), features = 0;
    bool right = s->causal || s->window_right >= 0, ends = s->layout == QUERN_LAYOUT_VARLEN || s->length_k;
    if (right || s->lse) features += 8;
    if (s->softcap != 0 || s->window_left >= 0 || ends) features += 12;
    if (has_own_tiles(c) && s->softcap != 0) features += 20;
    if (value_of(c, QN_ATTENTION_COLUMNS) == 2) {
        int columns = first_columns(s), second = (64 * chunks_of(s->dv) - columns) / 2 + 36;
        int first = columns / 2 + keys + 28 + features + SECOND_REGISTERS - FIRST_REGISTERS;
        return first > second ? first : second;
    }
    return ((int)s->dv + sum_columns(s, c)) / 2 + keys / 2 + keys / 4 + 28 + features;
}

int qn_attention_wgmma_threads(const qn_config *c)
{
    return 128 * (groups_of(c) + 1);
}

// ---- refusals

static quern_status check_shape(const spec_t *s, const qn_config *c)
{
    int rows = value_of(c, QN_ATTENTION_ROWS), keys = value_of(c, QN_ATTENTION_KEYS);
    int columns = value_of(c, QN_ATTENTION_COLUMNS), slots = value_of(c, QN_ATTENTION_SLOTS);
    if (columns > 2 || slots % 2)
        return qn_fail(QUERN_NO_PLAN, "plan=wgmma columns=%d slots=%d: 1 or 2 columns, blocks of k and v in pairs",
                       columns, slots);
    if (columns == 1 && rows != 128 && rows != 192 && (rows != 64 || s->dv > 64))
        return qn_fail(
            QUERN_NO_PLAN,
            "plan=wgmma columns=1 rows=%d, dv = %lld: 64 for each of 2 or 3 warpgroups, or rows=64 and dv up to 64",
            rows, (long long)s->dv);
    if (columns == 2 && (rows != 64 || keys != 64 || s->dv <= 64))
        return qn_fail(QUERN_NO_PLAN, "plan=wgmma columns=2 rows=%d keys=%d, dv = %lld: rows=64 keys=64, dv above 64",
                       rows, keys, (long long)s->dv);
    if (columns == 1 && s->dv > 256)
        return qn_fail(QUERN_NO_PLAN, "plan=wgmma columns=1: dv = %lld, an instruction has 256 columns at most",
                       (long long)s->dv);
    return QUERN_OK;
}

static quern_status check_budget(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    int registers = qn_attention_wgmma_registers(s, c), shared = qn_attention_wgmma_shared(s, c);
    int most = value_of(c, QN_ATTENTION_COLUMNS) == 2 ? SECOND_REGISTERS : groups_of(c) == 3 ? 160 : 232;
    if (registers > most)
        return qn_fail(QUERN_NO_PLAN, "plan=wgmma d = %lld, dv = %lld: about %d registers a thread, %d groups leave %d",
                       (long long)s->d, (long long)s->dv, registers, groups_of(c), most);
    if (shared > arch->shared_cta)
        return qn_fail(QUERN_NO_PLAN, "plan=wgmma d = %lld, dv = %lld: %d bytes of shared memory, %s has %d a CTA",
                       (long long)s->d, (long long)s->dv, shared, arch->name, arch->shared_cta);
    return QUERN_OK;
}

quern_status qn_attention_wgmma_check(const spec_t *s, const qn_arch *arch, const qn_config *c)
{
    if (!arch->has_wgmma) return qn_fail(QUERN_NO_PLAN, "plan=wgmma: %s has no wgmma", arch->name);
    if (s->page % value_of(c, QN_ATTENTION_KEYS))
        return qn_fail(QUERN_NO_PLAN, "plan=wgmma keys=%d, page = %lld: a block of keys is one box of TMA, in one page",
                       value_of(c, QN_ATTENTION_KEYS), (long long)s->page);
    QN_TRY(check_shape(s, c));
    return check_budget(s, arch, c);
}

const char *qn_attention_wgmma_template(const qn_config *c)
{
    return value_of(c, QN_ATTENTION_COLUMNS) == 2 ? "attention/prefill_wgmma_columns.cu" : "attention/prefill_wgmma.cu";
}

// ---- choose

// In order of preference: the first that serves the spec. Where there are registers for it, two groups take turns in two
// sets of probabilities (kPacksEarly of wgmma_math.cuh): these are worth more than larger blocks.
typedef struct tile {
    int most_d, most_dv; // 0: ends the list
    int rows, keys, columns, slots;
} tile;

static const tile tiles[] = {
    {64, 64, 64, 128, 1, 4},   {64, 64, 64, 96, 1, 4},     {64, 64, 192, 128, 1, 4},   {64, 64, 192, 112, 1, 4},
    {64, 64, 192, 96, 1, 4},   {128, 128, 128, 128, 1, 4}, {192, 128, 128, 128, 1, 4}, {192, 192, 128, 96, 1, 4},
    {256, 256, 128, 64, 1, 4}, {576, 512, 64, 64, 2, 2},   {0, 0, 0, 0, 0, 0},
};

// Three groups are faster than two. Where sequences are not long each has tiles of its own. Under a causal limit, where part
// of the blocks is masked, with smaller blocks, the smaller the shorter a sequence is; within windows there would be more
// masked than gained.
static bool suits(const spec_t *s, const tile *t, bool is_long)
{
    bool right = s->causal || s->window_right >= 0;
    if (t->rows == 64 && t->columns == 1)
        return !is_long && s->window_left < 0 && (right ? t->keys == 96 : t->keys == 128 && s->dv == 64);
    if (t->rows != 192) return true;
    if (!right) return t->keys > 96;
    return s->window_left < 0 && s->dv == 64 && t->keys <= (is_long ? 112 : 96);
}

bool qn_attention_wgmma_choose(const spec_t *s, const qn_arch *arch, bool is_long, qn_config *c)
{
    for (const tile *t = tiles; t->most_d; t++) {
        if (s->d > t->most_d || s->dv > t->most_dv || !suits(s, t, is_long)) continue;
        memset(c, 0, sizeof *c);
        c->value[QN_ATTENTION_PLAN] = QN_ATTENTION_WGMMA;
        c->value[QN_ATTENTION_ROWS] = t->rows, c->value[QN_ATTENTION_KEYS] = t->keys;
        c->value[QN_ATTENTION_COLUMNS] = t->columns, c->value[QN_ATTENTION_SLOTS] = t->slots;
        if (qn_attention_wgmma_check(s, arch, c) == QUERN_OK) return true;
    }
    return false;
}

// ---- launch

// Whether CTAs stay and take one item after another: that saves their starts, but they drift apart, and with many keys of
// many columns neighbours that read the same blocks at the same time are worth more.
static bool stays(const spec_t *s, const attention_params *p)
{
    return !s->cu_q && (s->dv <= 128 || p->Sk <= 4096);
}

// Tiles of a sequence under a causal limit make pairs of equal work.
static void set_items(const spec_t *s, const qn_config *c, const qn_device_limits *limits, attention_wgmma_params *w,
                      qn_launch *out)
{
    const attention_params *p = &w->p;
    int lines = has_own_tiles(c) ? groups_of(c) : 1;
    bool pairs = (s->causal || s->window_right >= 0) && s->window_left < 0 && !s->cu_q && p->tiles > 1;
    w->pairs = pairs ? (p->tiles + 1) / 2 : 0;
    w->items = (int)(pairs ? out->grid[0] / (unsigned)p->tiles * (unsigned)w->pairs : out->grid[0]);
    out->grid[0] = (uint32_t)(w->items / lines + (w->items % lines > 0));
    if (stays(s, p) && out->grid[0] > (uint32_t)limits->sm_count) out->grid[0] = (uint32_t)limits->sm_count;
}

bool qn_attention_wgmma_launch(const spec_t *s, const qn_config *c, const qn_device_limits *limits,
                               const attention_params *p, int64_t queries, int64_t pages, qn_launch *out)
{
    attention_wgmma_params *w = (attention_wgmma_params *)(void *)out->params;
    int keys = value_of(c, QN_ATTENTION_KEYS);
    w->p = *p;
    set_items(s, c, limits, w, out);
    return qn_attention_map_queries(s, limits->driver, p, queries, 64, &w->q) &&
           qn_attention_map_keys(s, limits->driver, p, pages, false, keys, &w->k) &&
           qn_attention_map_keys(s, limits->driver, p, pages, true, keys, &w->v);
}
