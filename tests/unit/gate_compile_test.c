// SPDX-License-Identifier: Apache-2.0
// gate for every architecture, without a device: every combination of features is planned within the
// architecture's limits; a representative spec compiles for every target, corners for two; no kernel spills, and each
// leaves room for the CTAs an SM that its plan counts on. Prints compile times, asserts none.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/compile_check.h"

static void every_combination_of_features_has_a_plan_that_fits_every_architecture(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{1, 1, 1, 1},      {5, 5, 1, 1},    {256, 6, 1, 1},   {256, 8, 8, 4},
                                        {384, 32, 1, 1},   {1023, 9, 1, 1}, {1024, 32, 1, 1}, {1024, 16, 1024, 40},
                                        {1024, 32, 32, 3}, {60, 12, 5, 2}};
    quern *q = compile_open();
    size_t planned = 0;
    for (unsigned bits = 0; bits < 3 * 3 * 16; bits++) {
        quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
        unsigned flags = bits / 9;
        spec.in = (quern_dtype)(QUERN_F32 + bits % 3), spec.act = (quern_act)(bits / 3 % 3);
        spec.bias = flags & 1, spec.renormalize = flags >> 1 & 1, spec.given_ids = flags >> 2 & 1;
        spec.index = flags >> 3 & 1 ? QUERN_I64 : QUERN_I32;
        for (size_t i = 0; i < QN_COUNT(shapes); i++) {
            spec.E = shapes[i][0], spec.K = shapes[i][1], spec.n_group = shapes[i][2], spec.topk_group = shapes[i][3];
            assert_int_equal(quern_spec_check(&spec.base), QUERN_OK);
            compile_check_spec(q, &spec.base, &planned);
        }
    }
    print_message("planned %zu combinations of spec and architecture\n", planned);
    quern_close(q);
}

// Those that are multiples of four in groups of two, of which half are kept.
static void every_number_of_experts_has_a_plan(void **state)
{
    (void)state;
    quern *q = compile_open();
    size_t planned = 0;
    for (int64_t E = 1; E <= 1024; E++) {
        quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
        const int64_t K = 1 + E * 7 % 32;
        const bool grouped = E % 4 == 0;
        spec.in = (quern_dtype)(QUERN_F32 + E % 3), spec.act = (quern_act)(E / 3 % 3), spec.bias = 1;
        spec.E = E, spec.n_group = grouped ? E / 2 : 1, spec.topk_group = grouped ? E / 4 : 1;
        spec.K = K <= E / (grouped ? 2 : 1) ? K : E / (grouped ? 2 : 1);
        if (quern_spec_check(&spec.base) != QUERN_OK) fail_msg("E %d: %s", (int)E, quern_message());
        compile_check_spec(q, &spec.base, &planned);
    }
    print_message("planned %zu combinations of spec and architecture\n", planned);
    quern_close(q);
}

static void what_the_family_does_not_do_is_refused_with_the_field_named(void **state)
{
    (void)state;
    static const compile_refusal refused[] = {
        {"gate E=0 K=1 in=f32", "E", QUERN_BAD_VALUE},
        {"gate E=1025 K=1 in=f32", "E", QUERN_BAD_VALUE},
        {"gate E=100 K=0 in=f32", "K", QUERN_BAD_VALUE},
        {"gate E=100 K=33 in=f32", "K", QUERN_BAD_VALUE},
        {"gate E=10 K=11 in=f32", "K", QUERN_CONFLICT},
        {"gate E=64 K=17 in=f32 n_group=8 topk_group=2", "K", QUERN_CONFLICT},
        {"gate E=64 K=4 in=f32 n_group=7 topk_group=2", "n_group", QUERN_CONFLICT},
        {"gate E=64 K=4 in=f32 n_group=8 topk_group=9", "topk_group", QUERN_CONFLICT},
        {"gate E=64 K=4 in=f32 n_group=0", "n_group", QUERN_BAD_VALUE},
        {"gate E=64 K=4 in=i32", "in", QUERN_BAD_VALUE},
        {"gate E=64 K=4 in=f32 act=relu", "act", QUERN_BAD_VALUE},
        {"gate E=64 K=4 in=f32 scale=1e39", "scale", QUERN_BAD_VALUE},
        {"gate E=64 K=4 in=f32 scale=nan", "scale", QUERN_BAD_VALUE},
        {"gate E=64 K=4 in=f32 renormalize=2", "renormalize", QUERN_BAD_VALUE},
        {"gate E=64 K=4", "in", QUERN_MISSING_FIELD},
        {"gate E=64 in=f32", "K", QUERN_MISSING_FIELD},
        {"gate E=64 K=4 in=f32 top_p=1", "top_p", QUERN_UNKNOWN_FIELD},
    };
    compile_check_refusals(refused, QN_COUNT(refused));
}

static void every_configuration_fits_or_is_refused_with_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = {"gate E=1 K=1 in=f32", "gate E=256 K=6 in=f32 bias=1",
                                        "gate E=256 K=8 in=bf16 act=sigmoid bias=1 n_group=8 topk_group=4",
                                        "gate E=1024 K=32 in=f16 act=softmax", "gate E=64 K=4 in=f32 given_ids=1"};
    compile_check_configs(texts, QN_COUNT(texts), &(compile_walk){.step = 0});
}

// ---- kernels

static void a_representative_spec_compiles_for_every_target_without_spills(void **state)
{
    (void)state;
    static const char *const text[] = {"gate E=256 K=8 in=f32 act=sigmoid bias=1 n_group=8 topk_group=4"};
    compile_check_specs(text, 1, compile_targets, COMPILE_TARGETS);
}

static const char *const corners[] = {
    "gate E=1 K=1 in=f32",
    "gate E=256 K=6 in=f32 bias=1",
    "gate E=384 K=6 in=f32 bias=1",
    "gate E=256 K=8 in=f32 bias=1",
    "gate E=224 K=7 in=f32 act=sigmoid bias=1", // many tokens: CTAs of one warp with 64 registers
    "gate E=255 K=31 in=f16 act=softmax bias=1 index=i64",
    "gate E=1024 K=32 in=f32 bias=1",
    "gate E=1024 K=32 in=bf16 act=softmax bias=1 n_group=8 topk_group=3",
    "gate E=1000 K=16 in=bf16 bias=1 n_group=100 topk_group=7",
    "gate E=16 K=14 in=f32 act=sigmoid bias=1 n_group=4 topk_group=4", // groups that drop none
    "gate E=512 K=16 in=f16 act=sigmoid bias=1 n_group=16 topk_group=2",
    "gate E=64 K=8 in=bf16 act=softmax given_ids=1 renormalize=0",
};

static void corner_specs_compile(const char *target)
{
    compile_check_specs(corners, QN_COUNT(corners), &target, 1);
}

static void corner_specs_compile_for_sm_90a_without_spills(void **state)
{
    (void)state;
    corner_specs_compile("sm_90a");
}

static void corner_specs_compile_for_sm_100a_without_spills(void **state)
{
    (void)state;
    corner_specs_compile("sm_100a");
}

static void warming_twice_compiles_once(void **state)
{
    (void)state;
    compile_check_warm("gate E=100 K=5 in=f32", "sm_90a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_of_features_has_a_plan_that_fits_every_architecture),
        cmocka_unit_test(every_number_of_experts_has_a_plan),
        cmocka_unit_test(what_the_family_does_not_do_is_refused_with_the_field_named),
        cmocka_unit_test(every_configuration_fits_or_is_refused_with_numbers),
        cmocka_unit_test(a_representative_spec_compiles_for_every_target_without_spills),
        cmocka_unit_test(corner_specs_compile_for_sm_90a_without_spills),
        cmocka_unit_test(corner_specs_compile_for_sm_100a_without_spills),
        cmocka_unit_test(warming_twice_compiles_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
