// SPDX-License-Identifier: Apache-2.0
// router for every architecture, without a device: every combination of features is planned within the
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
    static const int64_t shapes[][5] = {{8, 1, 1, 1, 1},     {7168, 384, 6, 1, 1},    {4096, 256, 8, 8, 4},
                                        {24, 33, 31, 1, 1},  {65536, 1024, 32, 1, 1}, {1000, 1023, 9, 1, 1},
                                        {2880, 60, 12, 5, 2}};
    quern *q = compile_open();
    size_t planned = 0;
    for (unsigned bits = 0; bits < 9 * 32; bits++) {
        quern_router_spec spec = QUERN_ROUTER_SPEC_INIT;
        unsigned flags = bits / 9;
        spec.in = (quern_dtype)(QUERN_F32 + bits % 3), spec.w = (quern_dtype)(QUERN_F32 + bits / 3 % 3);
        spec.w_layout = flags & 1 ? QUERN_W_DE : QUERN_W_ED, spec.batch_invariant = flags >> 1 & 1;
        spec.given_ids = flags >> 2 & 1, spec.act = flags >> 3 & 1 ? QUERN_ACT_SOFTMAX : QUERN_ACT_SQRT_SOFTPLUS;
        spec.logits = flags >> 4 & 1, spec.bias = flags & 1;
        for (size_t i = bits % 2; i < QN_COUNT(shapes); i += 2) { // half of them each time: planning tries much
            spec.D = shapes[i][0], spec.E = shapes[i][1], spec.K = shapes[i][2];
            spec.n_group = shapes[i][3], spec.topk_group = shapes[i][4];
            assert_int_equal(quern_spec_check(&spec.base), QUERN_OK);
            compile_check_spec(q, &spec.base, &planned);
        }
    }
    print_message("planned %zu combinations of spec and architecture\n", planned);
    quern_close(q);
}

static void every_number_of_experts_has_a_plan(void **state)
{
    (void)state;
    quern *q = compile_open();
    size_t planned = 0;
    for (int64_t E = 1; E <= 1024; E += 3) { // in steps of 3, for time's sake
        quern_router_spec spec = QUERN_ROUTER_SPEC_INIT;
        const int64_t K = 1 + E * 7 % 32;
        spec.in = (quern_dtype)(QUERN_F32 + E % 3), spec.w = E % 5 ? spec.in : QUERN_F32, spec.bias = 1;
        spec.w_layout = E % 7 ? QUERN_W_ED : QUERN_W_DE, spec.batch_invariant = E % 11 == 0;
        spec.D = 8 * (1 + E * 53 % 1000), spec.E = E, spec.K = K <= E ? K : E;
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
        {"router D=12 E=8 K=1 in=f32 w=f32", "D", QUERN_BAD_VALUE},
        {"router D=0 E=8 K=1 in=f32 w=f32", "D", QUERN_BAD_VALUE},
        {"router D=65544 E=8 K=1 in=f32 w=f32", "D", QUERN_BAD_VALUE},
        {"router D=64 E=1025 K=1 in=f32 w=f32", "E", QUERN_BAD_VALUE},
        {"router D=64 E=8 K=0 in=f32 w=f32", "K", QUERN_BAD_VALUE},
        {"router D=64 E=8 K=9 in=f32 w=f32", "K", QUERN_CONFLICT},
        {"router D=64 E=64 K=17 in=bf16 w=bf16 n_group=8 topk_group=2", "K", QUERN_CONFLICT},
        {"router D=64 E=64 K=4 in=bf16 w=bf16 n_group=7", "n_group", QUERN_CONFLICT},
        {"router D=64 E=64 K=4 in=i32 w=bf16", "in", QUERN_BAD_VALUE},
        {"router D=64 E=64 K=4 in=bf16 w=i32", "w", QUERN_BAD_VALUE},
        {"router D=64 E=64 K=4 in=bf16 w=bf16 w_layout=EE", "w_layout", QUERN_BAD_VALUE},
        {"router D=64 E=64 K=4 in=bf16 w=bf16 scale=1e39", "scale", QUERN_BAD_VALUE},
        {"router D=64 E=64 K=4 in=bf16", "w", QUERN_MISSING_FIELD},
        {"router E=64 K=4 in=bf16 w=bf16", "D", QUERN_MISSING_FIELD},
        {"router D=64 E=64 K=4 in=bf16 w=bf16 top_p=1", "top_p", QUERN_UNKNOWN_FIELD},
    };
    compile_check_refusals(refused, QN_COUNT(refused));
}

static void every_configuration_fits_or_is_refused_with_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = {"router D=64 E=60 K=4 in=bf16 w=bf16 bias=1",
                                        "router D=7168 E=384 K=6 in=bf16 w=f32",
                                        "router D=4096 E=256 K=8 in=f16 w=f16 w_layout=DE batch_invariant=1"};
    compile_check_configs(texts, QN_COUNT(texts), &(compile_walk){.step = 3, .arch_step = 2});
}

// ---- kernels

static void a_representative_spec_compiles_for_every_target_without_spills(void **state)
{
    (void)state;
    static const char *const text[] = {
        "router D=4096 E=256 K=8 in=bf16 w=bf16 act=sigmoid bias=1 n_group=8 topk_group=4"};
    compile_check_specs(text, 1, compile_targets, COMPILE_TARGETS);
}

static const char *const corners[] = {
    "router D=8 E=1 K=1 in=f32 w=f32",
    "router D=7168 E=384 K=6 in=bf16 w=bf16 bias=1",
    "router D=2048 E=1024 K=32 in=f16 w=f16 act=softmax bias=1 index=i64",
    "router D=65536 E=161 K=16 in=bf16 w=bf16 w_layout=DE",
    "router D=5120 E=160 K=6 in=bf16 w=bf16 batch_invariant=1",
    "router D=1000 E=257 K=9 in=f32 w=bf16 batch_invariant=1",
    "router D=2880 E=32 K=4 in=bf16 w=f32 given_ids=1 act=softmax",
    "router D=7168 E=256 K=8 in=f32 w=f32 act=sigmoid bias=1 n_group=8 topk_group=4",
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
    compile_check_warm("router D=64 E=100 K=5 in=f32 w=f32", "sm_90a");
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
