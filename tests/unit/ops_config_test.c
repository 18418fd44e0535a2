// SPDX-License-Identifier: Apache-2.0
// Configurations as text, both ways.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/family.h"

static const qn_name plans[] = {{"none", 0}, {"stream", 1}, {"cluster", 2}, {"other", 3}, {NULL, 0}};
static const qn_knob knobs[] = {
    {"plan", {0, 1, 2}, 3, plans, "a choice with words"},
    {"block", {128, 256, 1024}, 3, NULL, "a choice of numbers"},
    {"lead", {-1, 0, 1}, 3, NULL, "a choice with 0 among its numbers"},
};
static const qn_family mill = {.name = "mill", .knobs = knobs, .knob_count = QN_COUNT(knobs)};

static void assert_written(int plan, int block, int lead, const char *wanted)
{
    qn_config config = {{plan, block, lead}}, back;
    qn_text text = QN_TEXT_INIT;

    qn_config_write(&mill, &config, &text);
    assert_string_equal(qn_text_string(&text), wanted);
    assert_int_equal(qn_config_parse(&mill, qn_text_string(&text), &back), QUERN_OK);
    assert_memory_equal(&config, &back, sizeof config);
    qn_text_fini(&text);
}

static void a_configuration_is_written_and_read_back(void **state)
{
    (void)state;
    assert_written(2, 1024, 1, "plan=cluster block=1024 lead=1");
    assert_written(0, 128, -1, "plan=none block=128 lead=-1");
    assert_written(1, 0, 0, "plan=stream lead=0"); // block 0 is unused
}

static void any_order_and_blanks_do(void **state)
{
    qn_config config;

    (void)state;
    assert_int_equal(qn_config_parse(&mill, "  block=256\t plan=stream ", &config), QUERN_OK);
    assert_int_equal(config.value[0], 1);
    assert_int_equal(config.value[1], 256);
    assert_int_equal(config.value[2], 0);
    assert_int_equal(qn_config_parse(&mill, "", &config), QUERN_OK);
}

static void what_is_not_a_configuration_is_refused(void **state)
{
    static const struct {
        const char *text;
        quern_status status;
        const char *says;
    } cases[] = {
        {"plan", QUERN_BAD_SYNTAX, "'plan'"},
        {"plan=", QUERN_BAD_SYNTAX, "'plan='"},
        {"=1", QUERN_BAD_SYNTAX, "'=1'"},
        {"warp=1", QUERN_UNKNOWN_FIELD, "plan, block, lead"},
        {"plan=grid", QUERN_BAD_VALUE, "none, stream, cluster"},
        {"plan=other", QUERN_BAD_VALUE, "none, stream, cluster"}, // a word, but no choice
        {"plan=1", QUERN_BAD_VALUE, "'1'"},
        {"block=512", QUERN_BAD_VALUE, "128, 256, 1024"},
        {"block=x", QUERN_BAD_VALUE, "'x'"},
        {"block=4294967424", QUERN_BAD_VALUE, "4294967424"}, // 2^32 + 128
        {"block=128 block=128", QUERN_DUPLICATE_FIELD, "block"},
    };
    qn_config config, untouched;

    (void)state;
    memset(&untouched, 0x5A, sizeof untouched);
    config = untouched;
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        quern_status status = qn_config_parse(&mill, cases[i].text, &config);
        if (status != cases[i].status) fail_msg("'%s': %s", cases[i].text, quern_status_name(status));
        if (!strstr(quern_message(), cases[i].says)) fail_msg("'%s' does not say '%s'", quern_message(), cases[i].says);
        assert_memory_equal(&config, &untouched, sizeof config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_is_written_and_read_back),
        cmocka_unit_test(any_order_and_blanks_do),
        cmocka_unit_test(what_is_not_a_configuration_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
