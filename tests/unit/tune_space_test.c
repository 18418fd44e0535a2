// SPDX-License-Identifier: Apache-2.0
// The configuration space: what is in it has a plan, is canonical and is there once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "support/runtime_fixture.h"
#include "support/tune_family.h"

static void a_knob_without_effect_on_the_plan_is_set_to_0(void **state)
{
    (void)state;
    const qn_space space = tune_family_space(0);
    const qn_config config = {{TF_ROUND, 256, 2, 16}};
    qn_config canonical;

    assert_int_equal(qn_config_canonical(space.family, space.spec, space.arch, &config, &canonical), QUERN_OK);

    assert_int_equal(canonical.value[TF_WIDTH], 0);
    assert_int_equal(canonical.value[TF_BLOCK], 256);
    assert_int_equal(canonical.value[TF_DEPTH], 2);
}

static void a_configuration_that_lacks_a_knob_it_uses_never_reaches_plan(void **state)
{
    (void)state;
    const qn_space space = tune_family_space(0);
    const qn_config no_block = {{TF_ROUND, 0, 2, 0}}, no_width = {{TF_SQUARE, 256, 2, 0}},
                    strange = {{TF_ROUND, 300, 2, 0}};

    assert_int_equal(qn_config_check(space.family, space.spec, space.arch, &no_block), QUERN_MISSING_FIELD);
    assert_non_null(strstr(quern_message(), "block"));
    assert_int_equal(qn_config_check(space.family, space.spec, space.arch, &no_width), QUERN_MISSING_FIELD);
    assert_non_null(strstr(quern_message(), "width"));
    assert_int_equal(qn_config_check(space.family, space.spec, space.arch, &strange), QUERN_BAD_VALUE);
}

static void a_refused_configuration_says_why(void **state)
{
    (void)state;
    const qn_space space = tune_family_space(0);
    const qn_config large = {{TF_ROUND, 1024, 8, 0}};

    assert_int_equal(qn_config_check(space.family, space.spec, space.arch, &large), QUERN_NO_PLAN);
    assert_non_null(strstr(quern_message(), "needs 8192, has 4096"));
}

static void the_heuristic_of_the_bucket_is_the_first_seed(void **state)
{
    (void)state;
    qn_configs list = QN_CONFIGS_INIT;
    const qn_space space = tune_family_space(1);

    assert_int_equal(qn_space_seeds(&space, &list), QUERN_OK);

    assert_int_equal(list.count, 2); // buckets 1 and 2 have the same
    assert_int_equal(list.item[0].value[TF_FORM], TF_SQUARE);
    assert_int_equal(list.item[1].value[TF_FORM], TF_ROUND);
    qn_configs_fini(&list);
}

static void neighbours_differ_in_one_knob_and_have_plans(void **state)
{
    (void)state;
    qn_configs list = QN_CONFIGS_INIT;
    const qn_space space = tune_family_space(1);
    const qn_config from = {{TF_SQUARE, 512, 4, 4}};

    assert_int_equal(qn_space_neighbours(&space, &from, &list), QUERN_OK);

    // form 1, block 3 (1024 × 4 is allowed), local_k 8 with 512 × 8 the last, width 4
    assert_int_equal(list.count, 1 + 3 + 6 + 4);
    for (size_t i = 0; i < list.count; i++) {
        assert_int_equal(qn_config_check(space.family, space.spec, space.arch, &list.item[i]), QUERN_OK);
        int different = 0;
        for (int k = 0; k < TF_WIDTH; k++) different += list.item[i].value[k] != from.value[k];
        assert_true(different <= 1);
    }
    qn_configs_fini(&list);
}

static void a_neighbour_that_begins_to_use_a_knob_gets_a_choice_for_it(void **state)
{
    (void)state;
    qn_configs list = QN_CONFIGS_INIT;
    const qn_space space = tune_family_space(0);
    const qn_config from = {{TF_ROUND, 256, 2, 0}};
    bool square = false;

    assert_int_equal(qn_space_neighbours(&space, &from, &list), QUERN_OK);

    for (size_t i = 0; i < list.count; i++)
        square |= list.item[i].value[TF_FORM] == TF_SQUARE && list.item[i].value[TF_WIDTH] != 0;
    assert_true(square);
    qn_configs_fini(&list);
}

static void draws_are_in_the_space_each_once_and_follow_from_the_seed(void **state)
{
    (void)state;
    qn_configs all = QN_CONFIGS_INIT, one = QN_CONFIGS_INIT, two = QN_CONFIGS_INIT;
    const qn_space space = tune_family_space(0);
    tune_family_all(&all);

    assert_int_equal(qn_space_draws(&space, 7, 40, &one), QUERN_OK);
    assert_int_equal(qn_space_draws(&space, 7, 40, &two), QUERN_OK);

    assert_int_equal(one.count, 40);
    assert_memory_equal(one.item, two.item, one.count * sizeof *one.item);
    for (size_t i = 0; i < one.count; i++) assert_true(qn_configs_has(&all, &one.item[i]));
    qn_configs_fini(&all), qn_configs_fini(&one), qn_configs_fini(&two);
}

static void draws_beyond_the_whole_space_end(void **state)
{
    (void)state;
    qn_configs all = QN_CONFIGS_INIT, drawn = QN_CONFIGS_INIT;
    const qn_space space = tune_family_space(0);
    size_t count = tune_family_all(&all);

    assert_int_equal(qn_space_draws(&space, 1, 10 * count, &drawn), QUERN_OK);

    assert_int_equal(drawn.count, count);
    qn_configs_fini(&all), qn_configs_fini(&drawn);
}

static void a_grid_has_every_pair_that_has_a_plan(void **state)
{
    (void)state;
    qn_configs list = QN_CONFIGS_INIT;
    const qn_space space = tune_family_space(0);
    const qn_config from = {{TF_ROUND, 256, 2, 0}};

    assert_int_equal(qn_space_grid(&space, &from, TF_DEPTH, TF_BLOCK, &list), QUERN_OK);

    assert_int_equal(list.count, 10 + 10 + 7 + 4); // 128, 256: all; 512: up to 8; 1024: up to 4
    qn_configs_fini(&list);
}

static void every_heuristic_of_every_family_is_in_its_space(void **state)
{
    (void)state;
    size_t families, archs;
    const qn_family *const *family = qn_families(&families);
    const qn_arch *arch = qn_arch_list(&archs);
    quern_softmax_topk_spec spec = runtime_spec(50257, 50);
    for (size_t f = 0; f < families; f++)
        for (size_t a = 0; a < archs; a++)
            for (size_t b = 0; b < family[f]->bucket_count; b++) {
                if (strcmp(family[f]->name, spec.base.family)) continue;
                qn_config config, canonical;
                memset(&config, 0, sizeof config);
                family[f]->choose(&spec.base, &arch[a], b, &config);
                if (qn_config_canonical(family[f], &spec.base, &arch[a], &config, &canonical) != QUERN_OK)
                    fail_msg("%s, bucket %zu: %s", arch[a].name, b, quern_message());
                assert_memory_equal(&config, &canonical, sizeof config); // unused knobs are 0 in it already
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_knob_without_effect_on_the_plan_is_set_to_0),
        cmocka_unit_test(a_configuration_that_lacks_a_knob_it_uses_never_reaches_plan),
        cmocka_unit_test(a_refused_configuration_says_why),
        cmocka_unit_test(the_heuristic_of_the_bucket_is_the_first_seed),
        cmocka_unit_test(neighbours_differ_in_one_knob_and_have_plans),
        cmocka_unit_test(a_neighbour_that_begins_to_use_a_knob_gets_a_choice_for_it),
        cmocka_unit_test(draws_are_in_the_space_each_once_and_follow_from_the_seed),
        cmocka_unit_test(draws_beyond_the_whole_space_end),
        cmocka_unit_test(a_grid_has_every_pair_that_has_a_plan),
        cmocka_unit_test(every_heuristic_of_every_family_is_in_its_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
