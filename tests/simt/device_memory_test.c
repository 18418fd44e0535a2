// SPDX-License-Identifier: Apache-2.0
// What CTAs hand to each other in device memory: the access build reports each way of not publishing it, with the line,
// and nothing of the right ways, in every order. Kernel: tests/simt/kernels/publish.cu.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/hostile.h"
#include "support/simt.h"

enum { THREADS = 64, CTAS = 4, SEEDS = 6 };

static const char of_load[] = "race: a store of another CTA is not ordered before this load by fences";

typedef struct publish_params {
    uint32_t *data, *flags, *out;
    int which;
} publish_params;

static char *run(model *m, const char *source, int which, model_order order, uint32_t *found)
{
    publish_params p = {.data = model_alloc(m, "data", CTAS * THREADS * 4, NULL, false),
                        .flags = model_alloc(m, "flags", 64, NULL, false),
                        .out = model_alloc(m, "out", THREADS * 4, NULL, false),
                        .which = which};
    assert_non_null(p.out);
    simt_launch launch = {.grid = CTAS,
                          .threads = THREADS,
                          .cluster = which == 8 ? 2 : 1,
                          .shared_bytes = 256,
                          .params = &p,
                          .params_bytes = sizeof p,
                          .order = order};
    char *report = simt_run(m, source, &launch);
    *found = p.out[0];
    model_free(m);
    return report;
}

static void check_right_ways(model *m, const char *build)
{
    static const struct {
        const char *name;
        uint32_t found;
    } ways[] = {{"a flag between fences", 11},
                {"a ticket", CTAS * THREADS * (THREADS + 1) / 2},
                {"words that are their own flags", 5},
                {"by way of a third CTA", 13},
                {"bytes of one word", 3},
                {"a bulk store", 17},
                {"inside of a CTA", THREADS - 1},
                {"a word used again", 0},
                {"inside of a cluster", 24}};
    char *source = simt_kernel("publish.cu", "");
    for (int which = 0; which < (int)QN_COUNT(ways); which++)
        for (uint32_t seed = 0; seed < SEEDS; seed++) {
            char context[128];
            uint32_t found;
            snprintf(context, sizeof context, "%s, %s build by %s, seed %u", ways[which].name, build, model_compiler(m),
                     (unsigned)seed);
            char *report = run(m, source, which, (model_order){seed > 0, seed}, &found);
            simt_expect_clean(report, context);
            if (found != ways[which].found)
                fail_msg("%s: %u, not %u", context, (unsigned)found, (unsigned)ways[which].found);
            free(report);
        }
    free(source);
}

static void the_right_ways_are_not_reported(void **state)
{
    (void)state;
    check_right_ways(simt_model_any(MODEL_ASAN), "asan");
    check_right_ways(simt_model(MODEL_ACCESS, "g++"), "access");
    check_right_ways(simt_model(MODEL_ACCESS, "clang++"), "access");
}

static void check_mistakes(model *m)
{
    static const struct {
        int which;
        const char *name, *words;
    } mistakes[] = {
        {20, "no fence before the flag", of_load},
        {21, "a fence of the CTA before the flag", of_load},
        {22, "a fence of the cluster before the flag", of_load},
        {23, "no fence after the flag", of_load},
        {24, "a fence of the CTA after the flag", of_load},
        {25, "a fence before the barrier that gathers the stores", of_load},
        {26, "no barrier that gathers the stores", of_load},
        {27, "no fence between a load and the flag", "race: a load of another CTA is not ordered before this store"},
        {28, "two CTAs store to one word", "race: a store of another CTA is not ordered before this store"},
        {29, "a flag stored plainly", "race: a store of another CTA|race: a load of another CTA"},
        {30, "a flag loaded plainly", "race: a store of another CTA|race: a load of another CTA"},
        {31, "a bulk store that was not waited for", "whose group was not waited for"},
        {32, "a constant load of what was stored", "stores what is loaded as constant"},
        {33, "no barrier inside of a CTA", "race: a store of another thread|race: a load of another thread"},
        {34, "a flag stored again without a fence", of_load},
        {35, "a word over bytes of other CTAs", "race: a store of another CTA|race: a load of another CTA"},
        {36, "a word put back before another thread has read it",
         "race: a store of another CTA|race: a load of another thread"}};
    char *source = simt_kernel("publish.cu", "");
    for (size_t i = 0; i < QN_COUNT(mistakes); i++)
        for (uint32_t seed = 0; seed < SEEDS; seed++) {
            char context[128];
            uint32_t found;
            snprintf(context, sizeof context, "%s, by %s, seed %u", mistakes[i].name, model_compiler(m),
                     (unsigned)seed);
            char *report = run(m, source, mistakes[i].which, (model_order){seed > 0, seed}, &found);
            simt_expect_fault(report, mistakes[i].words, context);
            simt_expect_fault(report, "publish.cu:", context);
            free(report);
        }
    free(source);
}

static void every_mistake_is_reported_by_the_access_build(void **state)
{
    (void)state;
    check_mistakes(simt_model(MODEL_ACCESS, "g++"));
    check_mistakes(simt_model(MODEL_ACCESS, "clang++"));
}

// ---- a family's text: shares of a row, the last of which merges what all have left in device memory

typedef struct change {
    const char *from, *to;
} change;

static char *make_change(const char *source, void *user)
{
    const change *c = user;
    return simt_replace(source, c->from, c->to);
}

static char *run_split(model *m, change *c, model_order order)
{
    const qn_arch *arch;
    qn_config config;
    hostile_data data;
    qn_text report = QN_TEXT_INIT;
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    if (qn_config_parse(&qn_family_softmax_topk, "plan=split block=512 ctas=1 local_k=8 unroll=4 shares=4", &config) !=
        QUERN_OK)
        fail_msg("%s", quern_message());
    assert_true(hostile_data_make(hostile_case_named("m3_normal"), &data));
    model_set_edit(m, c ? make_change : NULL, c);
    quern_status status = model_run_config(m, &data.c->spec.base, arch, &config, &data.args.base, order, &report);
    model_set_edit(m, NULL, NULL);
    if (status != QUERN_OK && status != QUERN_LAUNCH_FAILED) fail_msg("%s", quern_message());
    qn_text_puts(&report, "");
    if (status == QUERN_OK && check_outputs(&data.c->spec, &data.args, &report) > 0)
        qn_text_puts(&report, "wrong result\n");
    hostile_data_free(&data);
    assert_int_equal(qn_text_check(&report), QUERN_OK);
    return report.bytes;
}

static void a_ticket_without_one_of_its_fences_is_reported(void **state)
{
    (void)state;
    static change changes[] = {
        {"        fence_device();\n        s.list.word[0] = atomic", "        s.list.word[0] = atomic"},
        {"        fence_device();\n    }\n    __syncthreads();\n    const bool is_last",
         "    }\n    __syncthreads();\n    const bool is_last"}};
    model *m = simt_model_any(MODEL_ACCESS);
    for (uint32_t seed = 0; seed < 3; seed++) {
        const model_order order = {seed > 0, seed};
        char *sound = run_split(m, NULL, order);
        simt_expect_clean(sound, "split");
        free(sound);
        for (size_t i = 0; i < QN_COUNT(changes); i++) {
            char *faulty = run_split(m, &changes[i], order);
            simt_expect_fault(faulty, of_load, i ? "no fence after the ticket" : "no fence before the ticket");
            simt_expect_fault(faulty, "split.cu:", "the place");
            free(faulty);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_ways_are_not_reported),
        cmocka_unit_test(every_mistake_is_reported_by_the_access_build),
        cmocka_unit_test(a_ticket_without_one_of_its_fences_is_reported),
    };
    return cmocka_run_group_tests_name("device memory", tests, NULL, simt_close_models);
}
