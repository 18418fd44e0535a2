// SPDX-License-Identifier: Apache-2.0
// attention for every architecture, without a device: every head_dim with every feature is planned within the
// architecture's limits or refused with numbers; a spec with most features compiles for every target, corners for three;
// no kernel spills. Prints compile times, asserts none.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/attention.h"
#include "support/compile_check.h"

static quern_attention_spec parse(const char *text)
{
    quern_any_spec spec;
    quern_attention_spec result;
    compile_parse(text, &spec);
    memcpy(&result, &spec, sizeof result);
    return result;
}

// ---- plans

static void assert_planned(const qn_arch *arch, const quern_attention_spec *spec)
{
    char text[512];
    qn_plan plan;
    assert_int_equal(quern_spec_format(&spec->base, text, sizeof text), QUERN_OK);
    for (size_t bucket = 0; bucket < QN_ATTENTION_BUCKETS; bucket++) {
        qn_config config;
        qn_attention_choose(&spec->base, arch, bucket, &config);
        if (qn_attention_plan(&spec->base, arch, &config, &plan) != QUERN_OK)
            fail_msg("'%s' on %s: %s", text, arch->name, quern_message());
        compile_check_plan(&plan, arch, text, true);
        qn_attention_budget budget = qn_attention_budget_of(spec, arch, &config);
        assert_true(budget.tensor_columns <= arch->tensor_memory_columns);
    }
}

static void every_head_dim_and_feature_has_a_plan_that_fits_every_architecture(void **state)
{
    (void)state;
    size_t arch_count, planned = 0;
    const qn_arch *archs = qn_arch_list(&arch_count);
    for (int64_t d = 8; d <= 576; d += 8) {
        for (int64_t dv = 8; dv <= 512; dv += 8) {
            quern_attention_spec spec = parse("attention");
            unsigned bits = (unsigned)(d / 8 * 31 + dv / 8); // features in turn
            spec.d = d, spec.dv = dv, spec.kv_alias = dv <= d && bits % 3 == 0;
            spec.in = bits % 2 ? QUERN_F16 : QUERN_BF16, spec.layout = (quern_layout)(bits % 3);
            spec.page = spec.layout == QUERN_LAYOUT_PAGED ? 16 << bits % 5 : 0;
            spec.causal = bits / 2 % 2, spec.window_left = bits / 4 % 2 ? 100 : -1, spec.sink = bits / 8 % 2;
            spec.softcap = bits / 16 % 2 ? 20 : 0, spec.lse = bits / 32 % 2, spec.batch_invariant = bits % 7 == 0;
            spec.cu_q = spec.layout == QUERN_LAYOUT_VARLEN || (spec.page && bits / 3 % 2);
            spec.length_k = spec.layout == QUERN_LAYOUT_PAGED;
            if (quern_spec_check(&spec.base) != QUERN_OK) fail_msg("d %d dv %d: %s", (int)d, (int)dv, quern_message());
            for (size_t a = 0; a < arch_count; a++, planned++) assert_planned(&archs[a], &spec);
        }
    }
    print_message("planned %zu combinations of spec and architecture\n", planned);
}

static void what_the_family_does_not_do_is_refused_with_the_field_named(void **state)
{
    (void)state;
    static const compile_refusal refused[] = {
        {"attention d=0", "d", QUERN_BAD_VALUE},
        {"attention d=12", "d", QUERN_BAD_VALUE},
        {"attention d=584", "d", QUERN_BAD_VALUE},
        {"attention d=576", "dv", QUERN_BAD_VALUE}, // dv = d is more than 512
        {"attention d=64 dv=520", "dv", QUERN_BAD_VALUE},
        {"attention d=64 dv=20", "dv", QUERN_BAD_VALUE},
        {"attention in=f32", "in", QUERN_BAD_VALUE},
        {"attention layout=ragged", "layout", QUERN_BAD_VALUE},
        {"attention layout=paged", "page", QUERN_CONFLICT},
        {"attention page=64", "page", QUERN_CONFLICT},
        {"attention layout=paged page=24", "page", QUERN_BAD_VALUE},
        {"attention layout=paged page=272", "page", QUERN_BAD_VALUE},
        {"attention cu_q=1", "cu_q", QUERN_CONFLICT},
        {"attention layout=varlen length_k=1", "length_k", QUERN_CONFLICT},
        {"attention causal=1 window_right=3", "window_right", QUERN_CONFLICT},
        {"attention window_left=-2", "window_left", QUERN_BAD_VALUE},
        {"attention kv_split=100", "kv_split", QUERN_BAD_VALUE},
        {"attention d=64 dv=128 kv_alias=1", "dv", QUERN_CONFLICT},
        {"attention softcap=-1", "softcap", QUERN_BAD_VALUE},
        {"attention scale=1e-40", "scale", QUERN_BAD_VALUE},
        {"attention scale=nan", "scale", QUERN_BAD_VALUE},
        {"attention heads=3", "heads", QUERN_UNKNOWN_FIELD},
    };
    compile_check_refusals(refused, QN_COUNT(refused));
}

static void every_configuration_fits_or_is_refused_with_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = {"attention d=8", "attention d=128 causal=1",
                                        "attention d=576 dv=512 kv_alias=1"};
    compile_check_configs(texts, QN_COUNT(texts), &(compile_walk){.chosen = true});
}

// A tile of 128 rows of head_dim 512 has no room beside its own 512 columns: it is folded, and the numbers are said.
static void a_plan_says_what_tensor_memory_it_would_take(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } budgets[] = {{"attention d=64", "384 of 512 columns for 256 rows"},
                   {"attention d=128", "512 of 512 columns for 256 rows"},
                   {"attention d=256", "384 of 512 columns for 128 rows"},
                   {"attention d=512", "320 of 512 columns for 64 rows (128 rows would take 640)"}};
    const qn_arch *arch;
    assert_int_equal(qn_arch_find("sm_100a", &arch), QUERN_OK);
    for (size_t i = 0; i < QN_COUNT(budgets); i++) {
        quern_attention_spec spec = parse(budgets[i].text);
        qn_config config;
        qn_text text = QN_TEXT_INIT;
        qn_attention_choose(&spec.base, arch, QN_ATTENTION_MANY, &config);
        qn_attention_budget_text(&spec.base, arch, &config, &text);
        if (!strstr(qn_text_string(&text), budgets[i].said))
            fail_msg("'%s': '%s' does not say '%s'", budgets[i].text, qn_text_string(&text), budgets[i].said);
        qn_text_fini(&text);
    }
}

// ---- kernels

static void a_spec_with_most_features_compiles_for_every_target_without_spills(void **state)
{
    static const char *const text[] = {
        "attention d=128 causal=1 window_left=4095 softcap=30 sink=1 lse=1 layout=paged page=64 cu_q=1"};
    (void)state;
    compile_check_specs(text, 1, compile_targets, COMPILE_TARGETS);
}

// With most registers: the widest tiles, the features that keep numbers through the loop.
static void corner_specs_compile_without_spills(void **state)
{
    static const char *const targets[] = {"sm_80", "sm_86", "sm_90a"};
    static const char *const texts[] = {
        "attention d=8",
        "attention d=64 in=f16 layout=varlen causal=1 lse=1",
        "attention d=256 causal=1 window_left=100 sink=1 lse=1 layout=paged page=16 cu_q=1",
        "attention d=504 causal=1 window_left=100 sink=1 lse=1 layout=paged page=16 cu_q=1",
        "attention d=512 softcap=20 scale=-1 length_k=1",
        "attention d=576 dv=512 kv_alias=1 lse=1 layout=paged page=64",
        "attention d=192 dv=128 window_left=7 window_right=9",
        "attention d=264 dv=8 batch_invariant=1",
    };
    (void)state;
    compile_check_specs(texts, QN_COUNT(texts), targets, QN_COUNT(targets));
}

static void warming_twice_compiles_once(void **state)
{
    (void)state;
    compile_check_warm("attention d=16", "sm_90a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_dim_and_feature_has_a_plan_that_fits_every_architecture),
        cmocka_unit_test(what_the_family_does_not_do_is_refused_with_the_field_named),
        cmocka_unit_test(every_configuration_fits_or_is_refused_with_numbers),
        cmocka_unit_test(a_plan_says_what_tensor_memory_it_would_take),
        cmocka_unit_test(a_spec_with_most_features_compiles_for_every_target_without_spills),
        cmocka_unit_test(corner_specs_compile_without_spills),
        cmocka_unit_test(warming_twice_compiles_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
