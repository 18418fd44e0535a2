// SPDX-License-Identifier: Apache-2.0
// Offsets, lengths and page numbers out of range are named before anything is computed from them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/family.h"
#include "reference/reference.h"

static float memory[4096];

static quern_attention_args args_of(int64_t B)
{
    quern_attention_args a = QUERN_ATTENTION_ARGS_INIT;
    a.B = B, a.Hq = a.Hkv = 1;
    a.q = a.k = a.v = a.out = memory;
    return a;
}

static void assert_says(const char *spec_text, const quern_attention_args *a, const char *words)
{
    quern_any_spec given, spec;
    const qn_family *family;
    assert_int_equal(quern_spec_parse(spec_text, &given), QUERN_OK);
    assert_int_equal(qn_spec_complete(&given.base, &family, &spec), QUERN_OK);
    quern_status status = qn_attention_contents(&spec.base, &a->base);
    if (!words && status != QUERN_OK) fail_msg("'%s': %s", spec_text, quern_message());
    if (words) assert_int_equal(status, QUERN_BAD_FILE);
    if (words && !strstr(quern_message(), words))
        fail_msg("'%s' says '%s', not '%s'", spec_text, quern_message(), words);
}

static void offsets_ascend_from_0_to_no_more_than_there_is(void **state)
{
    (void)state;
    static const struct {
        int32_t cu[3];
        const char *words;
    } cases[] = {{{0, 4, 10}, NULL},
                 {{0, 0, 10}, NULL},
                 {{1, 4, 10}, "cu_q[0] = 1"},
                 {{0, 11, 10}, "cu_q[1] = 11: it must be 0 … 10"},
                 {{0, 6, 5}, "cu_q[2] = 5: it must be 6 … 10"},
                 {{0, -1, 5}, "cu_q[1] = -1"}};
    static const int32_t keys[3] = {0, 3, 7};
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        quern_attention_args a = args_of(2);
        a.Tq = 10, a.Tk = 7, a.cu_q = cases[i].cu, a.cu_k = keys;
        assert_says("attention d=8 layout=varlen", &a, cases[i].words);
    }
    quern_attention_args a = args_of(2);
    a.Tq = 10, a.Tk = 6, a.cu_q = cases[0].cu, a.cu_k = keys;
    assert_says("attention d=8 layout=varlen", &a, "cu_k[2] = 7: it must be 3 … 6");
}

static void lengths_and_the_pages_they_use_exist(void **state)
{
    (void)state;
    int32_t length[2] = {17, 16}, table[4] = {0, 2, 1, 99}; // the last word is not used
    quern_attention_args a = args_of(2);
    a.Sq = 1, a.pages = 3, a.columns = 2, a.length_k = length, a.block_table = table;
    assert_says("attention d=8 layout=paged page=16", &a, NULL);
    length[1] = 17;
    assert_says("attention d=8 layout=paged page=16", &a, "block_table[1, 1] = 99: it must be 0 … 2");
    length[1] = 33;
    assert_says("attention d=8 layout=paged page=16", &a, "length_k[1] = 33: it must be 0 … 32");
}

static void a_row_s_length_is_that_of_its_sequence(void **state)
{
    (void)state;
    static const int32_t starts[3] = {0, 5, 12};
    int32_t length[3] = {5, 7, 0}, sequence[3] = {0, 1, 1};
    quern_any_spec spec;
    quern_indexer_args a = QUERN_INDEXER_ARGS_INIT;
    a.T = 3, a.B = 2, a.L = 12, a.q = a.keys = a.key_scale = memory, a.w = memory, a.indices = (int32_t *)memory;
    a.length = length, a.row_seq = sequence, a.cu_keys = starts, a.workspace = memory;
    assert_int_equal(quern_spec_parse("indexer H=1 C=32 k=2 row_seq=1 cu_keys=1", &spec), QUERN_OK);
    if (qn_indexer_contents(&spec.base, &a.base) != QUERN_OK) fail_msg("%s", quern_message());
    length[0] = 6;
    assert_int_equal(qn_indexer_contents(&spec.base, &a.base), QUERN_BAD_FILE);
    assert_non_null(strstr(quern_message(), "length[0] = 6: it must be 0 … 5"));
    length[0] = 5, sequence[2] = 2;
    assert_int_equal(qn_indexer_contents(&spec.base, &a.base), QUERN_BAD_FILE);
    assert_non_null(strstr(quern_message(), "row_seq[2] = 2: it must be 0 … 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_ascend_from_0_to_no_more_than_there_is),
        cmocka_unit_test(lengths_and_the_pages_they_use_exist),
        cmocka_unit_test(a_row_s_length_is_that_of_its_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
