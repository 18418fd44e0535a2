// SPDX-License-Identifier: Apache-2.0
// The paired set of attention's cases: every value of every feature meets every value of every other that it may go with,
// in a few dozen cases. Drawn greedily from a seed: of many candidates the one with most pairs that no case has yet.
// Candidates that the spec's checks refuse are passed over; a pair that only such candidates have is not asked for.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "support/hostile_attention.h"
#include "support/hostile_fill.h"

enum { DIM, TYPE, LAYOUT, MASK, CAP, SINK, ALIAS, GROUP, SPLIT, SCALE, ORDER, LENGTH, FEATURES, MOST_VALUES = 14 };
enum { CANDIDATES = 60, GIVE_UP = 40 };

static const char *const dims[] = {"d=8",   "d=40",  "d=64",  "d=72",  "d=96",  "d=128", "d=192 dv=128",
                                   "d=160", "d=256", "d=264", "d=320", "d=504", "d=512", "d=576 dv=512"};
static const char *const layouts[] = {
    "", "length_k=1", "layout=varlen", "layout=paged page=16", "layout=paged page=64 cu_q=1", "layout=paged page=256"};
static const char *const masks[] = {"", "causal=1", "causal=1 window_left=30", "window_left=11 window_right=5",
                                    "window_right=3"};
static const char *const splits[] = {"", "kv_split=64", "batch_invariant=1 kv_split=128"};
static const char *const scales[] = {"", "scale=0.5", "scale=-0.125"};
static const int groups[] = {1, 4, 5, 7, 16};
static const int64_t queries[][2] = {{1, 1}, {3, 16}, {33, 20}, {90, 1}},
                     keys[][2] = {{150, 7}, {200, 70}, {33, 64}, {20, 260}};
static const int counts[FEATURES] = {QN_COUNT(dims),
                                     2,
                                     QN_COUNT(layouts),
                                     QN_COUNT(masks),
                                     2,
                                     2,
                                     2,
                                     QN_COUNT(groups),
                                     QN_COUNT(splits),
                                     QN_COUNT(scales),
                                     ATTENTION_ORDERS,
                                     QN_COUNT(queries)};

typedef struct choice {
    int value[FEATURES];
} choice;

static attention_case case_of(const choice *v, size_t number)
{
    attention_case c;
    memset(&c, 0, sizeof c);
    bool one_q = v->value[LAYOUT] != 2 && v->value[LAYOUT] != 4, one_k = v->value[LAYOUT] == 0;
    snprintf(c.name, sizeof c.name, "pair_%zu", number);
    snprintf(c.text, sizeof c.text, "attention %s in=%s %s %s %s %s %s %s %s lse=1", dims[v->value[DIM]],
             v->value[TYPE] ? "f16" : "bf16", layouts[v->value[LAYOUT]], masks[v->value[MASK]],
             v->value[CAP] ? "softcap=8" : "", v->value[SINK] ? "sink=1" : "", v->value[ALIAS] ? "kv_alias=1" : "",
             splits[v->value[SPLIT]], scales[v->value[SCALE]]);
    c.tags = HOSTILE_GPU | (number % 8 == 0 ? HOSTILE_QUICK : 0) | (number % 6 == 1 ? HOSTILE_MODEL : 0);
    c.B = 2, c.Hkv = 2 - v->value[GROUP] % 2, c.Hq = c.Hkv * groups[v->value[GROUP]];
    for (int b = 0; b < 2; b++) {
        c.queries[b] = queries[v->value[LENGTH]][one_q ? 0 : b];
        c.keys[b] = keys[v->value[LENGTH]][one_k ? 0 : b];
    }
    c.Sk = c.keys[0] > c.keys[1] ? c.keys[0] : c.keys[1];
    c.order = (attention_order)v->value[ORDER], c.offset = c.order == ATTENTION_UNALIGNED ? 5 : 0;
    c.seed = 7000 + number, c.fill = ATTENTION_NORMAL, c.p = 1, c.sink = 1;
    return c;
}

static choice draw(uint64_t seed, uint64_t number)
{
    choice v;
    for (int f = 0; f < FEATURES; f++)
        v.value[f] = (int)(hostile_mix(seed, number * FEATURES + (uint64_t)f) % (uint64_t)counts[f]);
    return v;
}

typedef struct pairs {
    bool seen[FEATURES][MOST_VALUES][FEATURES][MOST_VALUES];
} pairs;

static int new_pairs(const pairs *p, const choice *v)
{
    int count = 0;
    for (int a = 0; a < FEATURES; a++)
        for (int b = 0; b < a; b++) count += !p->seen[a][v->value[a]][b][v->value[b]];
    return count;
}

static void mark(pairs *p, const choice *v)
{
    for (int a = 0; a < FEATURES; a++)
        for (int b = 0; b < a; b++) p->seen[a][v->value[a]][b][v->value[b]] = true;
}

size_t attention_pairs(attention_case *cases, size_t most, uint64_t seed)
{
    static pairs p;
    size_t count = 0;
    int failures = 0;
    memset(&p, 0, sizeof p);
    for (uint64_t round = 0; count < most && failures < GIVE_UP; round++) {
        choice best;
        int best_new = 0;
        for (uint64_t i = 0; i < CANDIDATES; i++) {
            choice v = draw(seed, round * CANDIDATES + i);
            attention_case c = case_of(&v, count);
            const char *message;
            if (new_pairs(&p, &v) <= best_new || !attention_case_parse(&c, &message)) continue;
            best = v, best_new = new_pairs(&p, &v), cases[count] = c;
        }
        failures = best_new ? 0 : failures + 1;
        if (!best_new) continue;
        mark(&p, &best);
        count++;
    }
    return count;
}
