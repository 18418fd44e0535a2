// SPDX-License-Identifier: Apache-2.0
// softmax_topk for every architecture, without a device: every combination of features is planned within the
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
    static const int64_t shapes[][2] = {{1, 1}, {5, 5}, {4099, 2048}, {50257, 50}, {131072, 1024}, {1 << 21, 2048}};
    quern *q = compile_open();
    size_t planned = 0;
    for (unsigned bits = 0; bits < 3 * 3 * 64; bits++) {
        quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
        spec.in = (quern_dtype)(QUERN_F32 + bits % 3), spec.value = (quern_value)(bits / 3 % 3);
        unsigned flags = bits / 9;
        spec.norm = (quern_norm)(flags & 1), spec.temperature = flags >> 1 & 1, spec.lse = flags >> 2 & 1;
        spec.token = flags >> 3 & 1, spec.index = flags >> 4 & 1 ? QUERN_I64 : QUERN_I32;
        spec.batch_invariant = flags >> 5 & 1;
        for (size_t i = 0; i < QN_COUNT(shapes); i++) {
            spec.V = shapes[i][0], spec.K = shapes[i][1];
            assert_int_equal(quern_spec_check(&spec.base), QUERN_OK);
            compile_check_spec(q, &spec.base, &planned);
        }
    }
    print_message("planned %zu combinations of spec and architecture\n", planned);
    quern_close(q);
}

static void what_the_family_does_not_do_is_refused_with_the_field_named(void **state)
{
    (void)state;
    static const compile_refusal refused[] = {
        {"softmax_topk V=0 K=1 in=f32", "V", QUERN_BAD_VALUE},
        {"softmax_topk V=2097153 K=1 in=f32", "V", QUERN_BAD_VALUE},
        {"softmax_topk V=100 K=0 in=f32", "K", QUERN_BAD_VALUE},
        {"softmax_topk V=100000 K=2049 in=f32", "K", QUERN_BAD_VALUE},
        {"softmax_topk V=100 K=101 in=f32", "K", QUERN_CONFLICT},
        {"softmax_topk V=100 K=10 in=i32", "in", QUERN_BAD_VALUE},
        {"softmax_topk V=100 K=10 in=f32 index=f32", "index", QUERN_BAD_VALUE},
        {"softmax_topk V=100 K=10 in=f32 lse=2", "lse", QUERN_BAD_VALUE},
        {"softmax_topk V=100 K=10", "in", QUERN_MISSING_FIELD},
        {"softmax_topk V=100 in=f32", "K", QUERN_MISSING_FIELD},
        {"softmax_topk V=100 K=10 in=f32 top_p=1", "top_p", QUERN_UNKNOWN_FIELD},
    };
    compile_check_refusals(refused, QN_COUNT(refused));
}

static void every_configuration_fits_or_is_refused_with_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = {"softmax_topk V=1 K=1 in=f32", "softmax_topk V=50257 K=256 in=bf16",
                                        "softmax_topk V=2097152 K=2048 in=f32 temperature=1 lse=1 token=1"};
    compile_check_configs(texts, QN_COUNT(texts), &(compile_walk){.step = 0});
}

// ---- kernels

static void a_representative_spec_compiles_for_every_target_without_spills(void **state)
{
    (void)state;
    static const char *const text[] = {"softmax_topk V=50257 K=256 in=bf16 temperature=1 lse=1 token=1"};
    compile_check_specs(text, 1, compile_targets, COMPILE_TARGETS);
}

// Sixteen bits, a token's rank: two CTAs of 512 with four vectors a thread on their way had too few registers there.
static void ranks_of_16_bit_logits_compile_before_sm_90_without_spills(void **state)
{
    (void)state;
    static const char *const text[] = {"softmax_topk V=128256 K=50 in=bf16 token=1"}, *const target[] = {"sm_80"};
    compile_check_specs(text, 1, target, 1);
}

static const char *const corners[] = {
    "softmax_topk V=1 K=1 in=f32 lse=1",
    "softmax_topk V=31 K=8 in=f16",
    "softmax_topk V=2048 K=2048 in=f32",
    "softmax_topk V=8193 K=1024 in=f16 index=i64 norm=topk temperature=1",
    "softmax_topk V=50257 K=50 in=f32 value=logprob norm=topk temperature=1 lse=1 token=1 index=i64 batch_invariant=1",
    "softmax_topk V=128256 K=1 in=bf16",
    "softmax_topk V=131072 K=2048 in=bf16 value=logit lse=1 token=1",
    "softmax_topk V=2097152 K=2048 in=f32 temperature=1 lse=1 token=1",
    "softmax_topk V=2097151 K=64 in=bf16",
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
    compile_check_warm("softmax_topk V=1000 K=10 in=f32", "sm_90a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_of_features_has_a_plan_that_fits_every_architecture),
        cmocka_unit_test(what_the_family_does_not_do_is_refused_with_the_field_named),
        cmocka_unit_test(every_configuration_fits_or_is_refused_with_numbers),
        cmocka_unit_test(a_representative_spec_compiles_for_every_target_without_spills),
        cmocka_unit_test(ranks_of_16_bit_logits_compile_before_sm_90_without_spills),
        cmocka_unit_test(corner_specs_compile_for_sm_90a_without_spills),
        cmocka_unit_test(corner_specs_compile_for_sm_100a_without_spills),
        cmocka_unit_test(warming_twice_compiles_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
