// SPDX-License-Identifier: Apache-2.0
// The tuner's questions about attention: sequences of one query and of many, shorter and longer than blocks and tiles,
// in every order of axes, with rows that see nothing and with scores far apart; whatever the spec's features are.
#include <stdio.h>
#include <string.h>

#include "reference/reference.h"
#include "support/check_attention.h"
#include "tune_subject.h"

TUNE_CASES(attention_case, attention_data, ATTENTION_BUFFERS, attention_data_make(c, 0x7FFF, data),
           attention_data_free(data), attention_check_case(data, report)); // NaN where no position is

// ---- what is timed

// Queries a third as large as keys, so that scores deviate by about 1, as those of models do.
static void fill_queries(const quern_attention_spec *spec, size_t copy, uint16_t *host, size_t elements)
{
    enum { PERIOD = 1 << 16 };
    static uint16_t period[2][PERIOD]; // by type; the tuner has one thread
    uint16_t *numbers = period[spec->in == QUERN_F16];
    uint64_t drawn = 7;
    for (size_t i = 0; i < PERIOD && !numbers[PERIOD - 1]; i++) {
        float sum = 0;
        for (int part = 0; part < 4; part++) {
            drawn = drawn * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(drawn >> 40) * 0x1p-24f - 0.5f;
        }
        numbers[i] = spec->in == QUERN_F16 ? qn_f32_to_f16(0.58f * sum) : qn_f32_to_bf16(0.58f * sum);
    }
    for (size_t i = 0; i < elements; i++) host[i] = numbers[(i + copy * 7919) % PERIOD];
}

// Sequences of equal length. Pages lie scattered, as a server leaves them.
static void fill_integers(const quern_attention_sizes *n, const char *name, int32_t *host, size_t elements)
{
    int64_t total = !strcmp(name, "cu_q") ? n->Tq : n->Tk;
    for (size_t i = 0; i < elements; i++) {
        if (!strcmp(name, "length_k"))
            host[i] = (int32_t)n->Sk;
        else if (!strcmp(name, "block_table"))
            host[i] = (int32_t)((int64_t)i * 7919 % (n->pages ? n->pages : 1));
        else
            host[i] = (int32_t)((int64_t)i * total / (n->B ? n->B : 1));
    }
}

static bool fill(const quern_spec *spec, const void *sizes, const qn_tensor *tensor, size_t copy, void *host,
                 size_t elements)
{
    bool is_integer = tensor->dtype == QUERN_I32, is_query = !strcmp(tensor->name, "q");
    if (host && is_query) fill_queries((const quern_attention_spec *)spec, copy, host, elements);
    if (host && is_integer) fill_integers(sizes, tensor->name, host, elements);
    return is_integer || is_query;
}

// ---- what is checked

enum { QUESTION_SEQUENCES = 3 };
static const struct question {
    int64_t B, Hkv, packed; // query heads a KV head
    int64_t queries[QUESTION_SEQUENCES], keys[QUESTION_SEQUENCES];
    attention_order order;
    attention_fill fill;
    float p;
} questions[] = {
    {1, 2, 4, {1}, {700}, ATTENTION_PACKED, ATTENTION_NORMAL, 1},
    {3, 1, 5, {1, 3, 2}, {333, 1, 64}, ATTENTION_LOOSE, ATTENTION_NORMAL, 1},
    {2, 2, 1, {130, 70}, {290, 200}, ATTENTION_HEADS_FIRST, ATTENTION_NORMAL, 1},
    {1, 1, 2, {40}, {17}, ATTENTION_UNALIGNED, ATTENTION_NORMAL, 1},
    {2, 1, 7, {9, 20}, {150, 31}, ATTENTION_PACKED, ATTENTION_LONG_TAIL, 4},
};

// Dense tensors have one length for all.
static void set_lengths(attention_case *c, const struct question *q)
{
    for (int64_t b = 0; b < q->B; b++) {
        c->queries[b] = q->queries[c->spec.cu_q ? b : 0];
        c->keys[b] = q->keys[c->spec.layout != QUERN_LAYOUT_DENSE || c->spec.length_k ? b : 0];
        if (c->keys[b] > c->Sk) c->Sk = c->keys[b];
    }
}

static bool question(const quern_spec *base, size_t index, void *out)
{
    if (index >= QN_COUNT(questions)) return false;
    const struct question *q = &questions[index];
    attention_case *c = out;
    *c = (attention_case){.B = q->B, .Hq = q->Hkv * q->packed, .Hkv = q->Hkv};
    c->spec = *(const quern_attention_spec *)base;
    snprintf(c->name, sizeof c->name, "tuner's question %zu", index);
    snprintf(c->text, sizeof c->text, "attention");
    c->order = q->order, c->fill = q->fill, c->p = q->p, c->seed = 40 + index;
    set_lengths(c, q);
    return true;
}

const tune_subject tune_attention = {
    .family = &qn_family_attention, .fill = fill, .cases = &cases, .question = question};
