// SPDX-License-Identifier: Apache-2.0
// A family made of knobs (tune_family.h).
#include "support/tune_family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const qn_name forms[] = {{"round", TF_ROUND}, {"square", TF_SQUARE}, {NULL, 0}};
static const qn_knob knobs[] = {
    [TF_FORM] = {"form", {TF_ROUND, TF_SQUARE}, 2, forms, "form"},
    [TF_BLOCK] = {"block", {128, 256, 512, 1024}, 4, NULL, "threads"},
    [TF_DEPTH] = {"local_k", {1, 2, 3, 4, 5, 6, 8, 10, 12, 16}, 10, NULL, "depth"},
    [TF_WIDTH] = {"width", {2, 4, 8, 16, 32}, 5, NULL, "width of square ones"},
};

static void bucket_name(size_t bucket, char *text, size_t bytes)
{
    snprintf(text, bytes, "rows %zu", bucket + 1);
}

static void choose(const quern_spec *spec, const qn_arch *arch, size_t bucket, qn_config *config)
{
    (void)spec, (void)arch;
    config->value[TF_FORM] = bucket ? TF_SQUARE : TF_ROUND;
    config->value[TF_BLOCK] = 256;
    config->value[TF_DEPTH] = 2;
    config->value[TF_WIDTH] = bucket ? 4 : 0;
}

// What is not a choice must never get here: a plan of a real family may divide by it.
static void demand_choice(size_t knob, int value)
{
    for (size_t i = 0; i < knobs[knob].choice_count; i++)
        if (knobs[knob].choices[i] == value) return;
    abort();
}

static quern_status plan(const quern_spec *spec, const qn_arch *arch, const qn_config *config, qn_plan *out)
{
    (void)spec, (void)arch;
    demand_choice(TF_BLOCK, config->value[TF_BLOCK]);
    demand_choice(TF_DEPTH, config->value[TF_DEPTH]);
    bool square = config->value[TF_FORM] == TF_SQUARE;
    int needs = config->value[TF_BLOCK] * config->value[TF_DEPTH];
    if (needs > TF_LIMIT) return qn_fail(QUERN_NO_PLAN, "needs %d, has %d", needs, TF_LIMIT);
    memset(out, 0, sizeof *out);
    out->stage_count = 1;
    out->stage[0].template_path = square ? "square.cu" : "round.cu";
    out->stage[0].threads = config->value[TF_BLOCK];
    qn_plan_constant(&out->stage[0], "DEPTH", config->value[TF_DEPTH]);
    if (square) qn_plan_constant(&out->stage[0], "WIDTH", config->value[TF_WIDTH]);
    return QUERN_OK;
}

const qn_family tune_family = {
    .name = "knobs",
    .knobs = knobs,
    .knob_count = TF_KNOBS,
    .bucket_count = 3,
    .bucket_name = bucket_name,
    .choose = choose,
    .plan = plan,
};

qn_space tune_family_space(size_t bucket)
{
    static const quern_spec spec = {sizeof spec, "knobs"};
    const qn_arch *arch = NULL;
    if (qn_arch_find("sm_90a", &arch) != QUERN_OK) abort();
    return (qn_space){&tune_family, &spec, arch, bucket};
}

size_t tune_family_all(qn_configs *list)
{
    qn_space space = tune_family_space(0);
    for (size_t f = 0; f < 2; f++)
        for (size_t b = 0; b < knobs[TF_BLOCK].choice_count; b++)
            for (size_t d = 0; d < knobs[TF_DEPTH].choice_count; d++)
                for (size_t w = 0; w < (f ? knobs[TF_WIDTH].choice_count : 1); w++) {
                    qn_config c = {{(int)f + 1, knobs[TF_BLOCK].choices[b], knobs[TF_DEPTH].choices[d],
                                    f ? knobs[TF_WIDTH].choices[w] : 0}};
                    if (c.value[TF_BLOCK] * c.value[TF_DEPTH] > TF_LIMIT) continue;
                    if (qn_config_check(space.family, space.spec, space.arch, &c) != QUERN_OK) abort();
                    qn_configs_add(list, &c);
                }
    return list->count;
}
