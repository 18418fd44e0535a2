// SPDX-License-Identifier: Apache-2.0
// softmax_topk's hostile cases on the functional model (softmax_topk_sweep.h).
#include "support/softmax_topk_sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"
#include "support/check.h"
#include "support/hostile.h"
#include "support/simt.h"

enum { MOST_FAILURES = 8 }; // reports that a test prints; the rest is counted

typedef struct session {
    model_build build;
    quern *q;
    uint32_t seed;
} session;
static session shared;

typedef struct sweep { // all cases on one architecture in one build
    const char *name;
    model *m;
    const qn_arch *arch, *first; // first: whose runs in order need no repetition; NULL for itself
    uint32_t seed;
    const hostile_case *cases;
    size_t count, ahead; // ahead: the first case whose kernels are not being compiled yet
    int ran, failed;
} sweep;

static bool is_wanted(const hostile_case *c)
{
    return hostile_wanted(c, HOSTILE_MODEL);
}

// Keeps the compiler busy with what comes next.
static void compile_ahead(sweep *s, size_t from)
{
    if (s->ahead < from) s->ahead = from;
    for (; s->ahead < s->count; s->ahead++) {
        const hostile_case *c = &s->cases[s->ahead];
        if (!is_wanted(c)) continue;
        bool busy = false;
        quern_softmax_topk_args args = hostile_args(c);
        if (model_run_begin(s->m, shared.q, &c->spec.base, s->arch, &args.base, &busy) != QUERN_OK || busy) return;
    }
}

// ---- kernels that two architectures share

static bool plan_of(const hostile_case *c, const qn_arch *arch, qn_plan *plan)
{
    const qn_family *family;
    quern_any_spec full, sizes = {.bytes = {0}};
    quern_softmax_topk_args args = hostile_args(c);
    qn_variants *variants = malloc(sizeof *variants);
    if (!variants) fail_msg("out of memory");
    bool ok = qn_spec_complete(&c->spec.base, &family, &full) == QUERN_OK &&
              qn_variants_plan(shared.q, family, &full.base, arch, variants) == QUERN_OK;
    if (ok) {
        family->sizes_of(&args.base, &sizes);
        *plan = variants->item[variants->of_bucket[family->bucket_of(&sizes)]].plan;
    }
    free(variants);
    return ok;
}

static bool same_kernel(const qn_kernel_plan *a, const qn_kernel_plan *b)
{
    if (strcmp(a->template_path, b->template_path) != 0 || a->constant_count != b->constant_count) return false;
    for (size_t i = 0; i < a->constant_count; i++)
        if (strcmp(a->constants[i].name, b->constants[i].name) != 0 || a->constants[i].value != b->constants[i].value)
            return false;
    return a->threads == b->threads && a->cluster == b->cluster && a->dynamic_shared == b->dynamic_shared;
}

static bool has_first_kernels(const sweep *s, const hostile_case *c)
{
    qn_plan mine, its;
    if (!s->first || !plan_of(c, s->arch, &mine) || !plan_of(c, s->first, &its)) return false;
    if (mine.stage_count != its.stage_count) return false;
    for (size_t i = 0; i < mine.stage_count; i++)
        if (!same_kernel(&mine.stage[i], &its.stage[i])) return false;
    return true;
}

// ---- running

static void report_failure(sweep *s, const hostile_case *c, model_order order, const qn_text *report)
{
    if (++s->failed > MOST_FAILURES) return;
    // Not by print_error, which cuts after a thousand letters.
    fprintf(stderr, "%s, case %s, %s\n%s", s->name, c->name, order.shuffle ? "shuffled" : "in order",
            qn_text_string(report));
}

// True: the outputs are right.
static bool run_case(sweep *s, hostile_data *data, model_order order)
{
    qn_text report = QN_TEXT_INIT;
    quern_status status = model_run_on(s->m, shared.q, &data->c->spec.base, s->arch, &data->args.base, order, &report);
    if (status != QUERN_OK && !report.length) qn_text_putf(&report, "  %s\n", quern_message());
    if (status != QUERN_OK) check_describe(data->c, &report);
    bool good = status == QUERN_OK && check_case(data, &report) == 0;
    if (!good) report_failure(s, data->c, order, &report);
    qn_text_fini(&report);
    return good;
}

static void run_both_orders(sweep *s, const hostile_case *c)
{
    const model_order in_order = {false, s->seed}, shuffled = {true, s->seed};
    hostile_data data;
    if (!hostile_data_make(c, &data)) fail_msg("out of memory");
    s->ran++;
    if (has_first_kernels(s, c) || run_case(s, &data, in_order)) {
        hostile_data_reset(&data);
        run_case(s, &data, shuffled);
    }
    hostile_data_free(&data);
}

typedef struct target { // of a test
    const char *arch;
    uint32_t number; // added to the seed; 0: the first architecture
} target;

static void cases_on_an_architecture(void **state)
{
    const target *t = *state;
    sweep s = {.name = t->arch, .m = simt_model_any(shared.build), .seed = shared.seed + t->number};
    assert_int_equal(qn_arch_find(t->arch, &s.arch), QUERN_OK);
    if (t->number) assert_int_equal(qn_arch_find("sm_90a", &s.first), QUERN_OK);
    s.cases = hostile_cases(&s.count);
    for (size_t i = 0; i < s.count; i++) {
        if (!is_wanted(&s.cases[i])) continue;
        compile_ahead(&s, i);
        run_both_orders(&s, &s.cases[i]);
    }
    print_message("%s: %d cases by %s\n", s.name, s.ran, model_compiler(s.m));
    if (s.failed) fail_msg("%s: %d of %d cases failed", s.name, s.failed, s.ran);
    assert_true(s.ran > 340 || getenv("QUERN_TEST_CASE"));
}

// The quick cases by the compiler that the others do not use.
static void the_other_compiler_agrees(void **state)
{
    (void)state;
    const char *other = strstr(model_compiler(simt_model_any(shared.build)), "clang") ? "g++" : "clang++";
    sweep s = {.name = "the_other_compiler", .m = simt_model(shared.build, other), .seed = shared.seed};
    assert_int_equal(qn_arch_find("sm_90a", &s.arch), QUERN_OK);
    s.cases = hostile_cases(&s.count);
    for (size_t i = 0; i < s.count; i++) {
        const unsigned both = HOSTILE_MODEL | HOSTILE_QUICK;
        if ((s.cases[i].tags & both) == both && is_wanted(&s.cases[i])) run_both_orders(&s, &s.cases[i]);
    }
    print_message("%d quick cases by %s\n", s.ran, model_compiler(s.m));
    if (s.failed) fail_msg("%d of %d cases failed", s.failed, s.ran);
    assert_true(s.ran > 120 || getenv("QUERN_TEST_CASE"));
}

static int open_session(void **state)
{
    (void)state;
    quern_options options = QUERN_OPTIONS_INIT;
    options.mode = QUERN_MODE_OFF;
    const char *seed = getenv("QUERN_TEST_SEED");
    shared.seed = seed ? (uint32_t)strtoul(seed, NULL, 10) : 1;
    return quern_open(&options, &shared.q) == QUERN_OK ? 0 : -1;
}

static int close_session(void **state)
{
    (void)state;
    simt_close();
    quern_close(shared.q);
    return 0;
}

int softmax_topk_sweep(model_build build, int argc, char **argv)
{
    static target targets[] = {{"sm_90a", 0}, {"sm_80", 1}, {"sm_100a", 2}};
    const struct CMUnitTest tests[] = {
        {"sm_90a_cases", cases_on_an_architecture, NULL, NULL, &targets[0]},
        {"sm_80_cases", cases_on_an_architecture, NULL, NULL, &targets[1]},
        {"sm_100a_cases", cases_on_an_architecture, NULL, NULL, &targets[2]},
        cmocka_unit_test(the_other_compiler_agrees),
    };
    shared.build = build;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_session, close_session);
}
