// SPDX-License-Identifier: Apache-2.0
// softmax_topk on the functional model: the hostile cases with few rows, for an architecture of each kind of plan, in
// the build with AddressSanitizer and in the build that checks every access, in order and shuffled. What a run gives is
// judged by the reference; the two orders must agree bit for bit.
//
//   simt_softmax_topk_test [PATTERN]   only tests whose names match: "*sm_90a*"
//   $QUERN_TEST_CASE                   only cases whose names contain it
//   $QUERN_TEST_SEED                   the seed of the shuffled order
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/hostile.h"
#include "support/simt.h"

enum { MOST_FAILURES = 8 }; // reports that a test prints; the rest is counted

typedef struct session {
    const char *program;
    quern *q;
    uint32_t seed;
} session;
static session shared;

typedef struct sweep { // all cases on one architecture in one build
    const char *name;
    model *m;
    const qn_arch *arch;
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

static void report_failure(sweep *s, const hostile_case *c, model_order order, const qn_text *report)
{
    if (++s->failed > MOST_FAILURES) return;
    // Not by print_error, which cuts after a thousand letters.
    fprintf(stderr, "%s, case %s, %s\n%s", s->name, c->name, order.shuffle ? "shuffled" : "in order",
            qn_text_string(report));
    fprintf(stderr, "  again: QUERN_TEST_CASE=%s QUERN_TEST_SEED=%u %s '*%s*'\n", c->name, (unsigned)order.seed,
            shared.program, s->name);
}

// True: the outputs are right.
static bool run_case(sweep *s, hostile_data *data, model_order order)
{
    qn_text report = QN_TEXT_INIT;
    quern_status status = model_run_on(s->m, shared.q, &data->c->spec.base, s->arch, &data->args.base, order, &report);
    if (status != QUERN_OK && !report.length) qn_text_putf(&report, "  %s\n", quern_message());
    bool good = status == QUERN_OK && check_case(data, &report) == 0;
    if (!good) report_failure(s, data->c, order, &report);
    qn_text_fini(&report);
    return good;
}

static void run_both_orders(sweep *s, const hostile_case *c)
{
    const model_order in_order = {false, shared.seed}, shuffled = {true, shared.seed};
    hostile_data data;
    if (!hostile_data_make(c, &data)) fail_msg("out of memory");
    s->ran++;
    if (run_case(s, &data, in_order)) {
        hostile_data_reset(&data);
        run_case(s, &data, shuffled);
    }
    hostile_data_free(&data);
}

static void sweep_cases(const char *name, const char *arch, model_build build, const char *compiler)
{
    sweep s = {.name = name, .m = simt_model(build, compiler)};
    assert_int_equal(qn_arch_find(arch, &s.arch), QUERN_OK);
    s.cases = hostile_cases(&s.count);
    for (size_t i = 0; i < s.count; i++) {
        if (!is_wanted(&s.cases[i])) continue;
        compile_ahead(&s, i);
        run_both_orders(&s, &s.cases[i]);
    }
    print_message("%s: %d cases by %s\n", name, s.ran, model_compiler(s.m));
    if (s.failed) fail_msg("%s: %d of %d cases failed", name, s.failed, s.ran);
    assert_true(s.ran > 0 || getenv("QUERN_TEST_CASE"));
}

#define SWEEP(arch, build, kind, compiler)                                                                             \
    static void arch##_##build##_cases(void **state)                                                                   \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        sweep_cases(#arch "_" #build, #arch, kind, compiler);                                                          \
    }
SWEEP(sm_80, asan, MODEL_ASAN, NULL)
SWEEP(sm_90a, asan, MODEL_ASAN, NULL)
SWEEP(sm_100a, asan, MODEL_ASAN, NULL)
SWEEP(sm_80, access, MODEL_ACCESS, NULL)
SWEEP(sm_90a, access, MODEL_ACCESS, NULL)
SWEEP(sm_100a, access, MODEL_ACCESS, NULL)

// ---- either compiler

// The quick cases by the compiler that the sweeps do not use.
static void the_other_compiler_agrees(void **state)
{
    (void)state;
    const char *other = strstr(model_compiler(simt_model_any(MODEL_PLAIN)), "clang") ? "g++" : "clang++";
    const model_build builds[] = {MODEL_ASAN, MODEL_ACCESS};
    for (size_t b = 0; b < QN_COUNT(builds); b++) {
        sweep s = {.name = "the_other_compiler", .m = simt_model(builds[b], other)};
        assert_int_equal(qn_arch_find("sm_90a", &s.arch), QUERN_OK);
        s.cases = hostile_cases(&s.count);
        for (size_t i = 0; i < s.count; i++) {
            const unsigned both = HOSTILE_MODEL | HOSTILE_QUICK;
            if ((s.cases[i].tags & both) == both && is_wanted(&s.cases[i])) run_both_orders(&s, &s.cases[i]);
        }
        print_message("%d quick cases by %s\n", s.ran, model_compiler(s.m));
        if (s.failed) fail_msg("%d of %d cases failed", s.failed, s.ran);
    }
}

// ---- set-up

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sm_90a_asan_cases),         cmocka_unit_test(sm_90a_access_cases),
        cmocka_unit_test(sm_80_asan_cases),          cmocka_unit_test(sm_80_access_cases),
        cmocka_unit_test(sm_100a_asan_cases),        cmocka_unit_test(sm_100a_access_cases),
        cmocka_unit_test(the_other_compiler_agrees),
    };
    shared.program = argv[0];
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_session, close_session);
}
