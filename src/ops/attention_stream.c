// SPDX-License-Identifier: Apache-2.0
// attention's plan "stream" (decode_stream.cu): what it needs of an SM, what it refuses, and which blocks serve which
// head_dims. Called by attention_plan.c.
//
//   rows    8 or 16: columns of one or two matrix instructions
//   keys    of a block, which one warp loads and works on
//   warps   of a CTA, each with a ring of its own
//   slots   of each ring
#include <string.h>

#include "ops/attention.h"

typedef quern_attention_spec spec_t;

static int value_of(const qn_config *c, enum qn_attention_knob knob)
{
    return c->value[knob];
}

static int round_up(int64_t value, int step)
{
    return (int)((value + step - 1) / step) * step;
}

// ---- numbers: those of stream.cuh and stream_load.cuh

// Of a row of keys or values in a slot: whole lines of 128 bytes, or whole sectors of 32.
static int row_bytes(const qn_config *c, int padded)
{
    bool lines = padded % 64 == 0 && (value_of(c, QN_ATTENTION_ROWS) == 8 || padded < 256);
    return lines ? padded * 2 : (padded / 16 | 1) * 32;
}

static int slot_bytes(const spec_t *s, const qn_config *c)
{
    int k = row_bytes(c, round_up(s->d, 16)), v = row_bytes(c, round_up(s->dv, 16));
    return value_of(c, QN_ATTENTION_KEYS) * (s->kv_alias || k > v ? k : v) + 16 * value_of(c, QN_ATTENTION_ROWS);
}

int qn_attention_stream_shared(const spec_t *s, const qn_config *c)
{
    int rows = value_of(c, QN_ATTENTION_ROWS), warps = value_of(c, QN_ATTENTION_WARPS);
    return rows * qn_attention_pitch_bytes(round_up(s->d, 16)) +
           warps * value_of(c, QN_ATTENTION_SLOTS) * slot_bytes(s, c) + warps * 4 + 16;
}

// Sums of the output, scores, queries if they are kept, and about what the rest takes.
int qn_attention_stream_registers(const spec_t *s, const qn_config *c)
{
    int tiles = value_of(c, QN_ATTENTION_ROWS) / 8, steps = round_up(s->d, 16) / 16;
    int queries = steps * tiles <= 16 ? 2 * steps * tiles : 0;
    int features =
        8 * (s->page > 0) + 4 * s->cu_q + 4 * (s->window_left >= 0) + 4 * (s->causal || s->window_right >= 0);
    return tiles * (round_up(s->dv, 16) / 4 + value_of(c, QN_ATTENTION_KEYS) / 4 + 10) + queries + 60 + features;
}

int qn_attention_stream_threads(const qn_config *c)
{
    return 32 * value_of(c, QN_ATTENTION_WARPS);
}

// ---- refusals

quern_status qn_attention_stream_check(const spec_t *s, const qn_config *c)
{
    int rows = value_of(c, QN_ATTENTION_ROWS), keys = value_of(c, QN_ATTENTION_KEYS);
    int split = s->kv_split ? (int)s->kv_split : 256,
        sums = rows * ((int)s->dv + 4) * 4; // 256: the least that is chosen
    if (rows > 16) return qn_fail(QUERN_NO_PLAN, "plan=stream rows=%d: 8 or 16", rows);
    if (split % keys)
        return qn_fail(QUERN_NO_PLAN, "plan=stream keys=%d: splits of %d keys are whole blocks", keys, split);
    if (sums > slot_bytes(s, c))
        return qn_fail(QUERN_NO_PLAN, "plan=stream rows=%d keys=%d: sums of %d bytes, a slot has %d", rows, keys, sums,
                       slot_bytes(s, c));
    return QUERN_OK;
}

// ---- choose

// Blocks in order of preference, of about 8 KiB; above 256 columns tiles with shared blocks (plan "decode") are
// faster; of each, as much of the memory on its way as fits.
typedef struct block {
    int most_d; // and dv; 0: ends the list
    int keys, warps;
} block;
static const block blocks[] = {{64, 64, 4}, {128, 32, 4}, {256, 16, 4}, {256, 32, 4}, {0, 0, 0}};
static const struct {
    int slots, ctas;
} occupancy[] = {{3, 2}, {2, 2}, {4, 1}, {3, 1}, {2, 1}};

bool qn_attention_stream_choose(const quern_spec *base, const qn_arch *arch, int rows, qn_config *c)
{
    const spec_t *s = (const spec_t *)base;
    qn_plan made;
    for (const block *b = blocks; b->most_d; b++) {
        if (s->d > b->most_d || s->dv > b->most_d) continue;
        memset(c, 0, sizeof *c);
        c->value[QN_ATTENTION_PLAN] = QN_ATTENTION_STREAM, c->value[QN_ATTENTION_ROWS] = rows;
        c->value[QN_ATTENTION_KEYS] = b->keys, c->value[QN_ATTENTION_WARPS] = b->warps;
        for (size_t i = 0; i < QN_COUNT(occupancy); i++) {
            c->value[QN_ATTENTION_SLOTS] = occupancy[i].slots, c->value[QN_ATTENTION_CTAS] = occupancy[i].ctas;
            if (qn_attention_plan(base, arch, c, &made) == QUERN_OK) return true;
        }
    }
    return false;
}
