// SPDX-License-Identifier: Apache-2.0
// Which known name a misspelt word is taken for, and that far ones are not.
#include "base/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"V",        "K",        "f16",          "bf16", "f32",
                                    "kv_split", "kv_alias", "softmax_topk", "rows", "rounds"};

static void assert_among(const char *const *list, size_t count, const char *word, const char *name)
{
    qn_nearest n;
    qn_nearest_init(&n, word, strlen(word));
    for (size_t i = 0; i < count; i++) qn_nearest_offer(&n, list[i]);
    if (name)
        assert_string_equal(n.name ? n.name : "none", name);
    else
        assert_null(n.name);
}

#define ASSERT_AMONG(list, word, name) assert_among(list, sizeof(list) / sizeof *(list), word, name)

static void assert_nearest(const char *word, const char *name)
{
    ASSERT_AMONG(names, word, name);
}

static void a_slip_finds_its_name(void **state)
{
    (void)state;
    assert_nearest("kvsplit", "kv_split");         // a letter too few
    assert_nearest("kv_spllit", "kv_split");       // too many
    assert_nearest("kv_splot", "kv_split");        // another
    assert_nearest("kv_slpit", "kv_split");        // two changed places
    assert_nearest("KV-SPLIT", "kv_split");        // case and hyphen
    assert_nearest("kv-spilt", "kv_split");        // two slips at once
    assert_nearest("sotfmax_tok", "softmax_topk"); // three letters of a long name
    assert_nearest("k", "K");
    assert_nearest("fp16", "f16");
    assert_nearest("f23", "f32");
    assert_nearest("bf61", "bf16");
}

static void the_nearest_of_several_wins_and_of_equals_the_first(void **state)
{
    (void)state;
    assert_nearest("kv_alis", "kv_alias");
    assert_nearest("row", "rows");
    qn_nearest n;
    qn_nearest_init(&n, "rowz", 4);
    qn_nearest_offer(&n, "rowa");
    qn_nearest_offer(&n, "rowb");
    assert_string_equal(n.name, "rowa");
    qn_nearest_offer(&n, "rowz");
    assert_string_equal(n.name, "rowz");
}

static void a_missing_letter_is_nearer_than_another_one(void **state)
{
    static const char *const commands[] = {"run", "warm", "tune"}, *const kinds[] = {"block", "lanes", "plan"};
    (void)state;
    ASSERT_AMONG(commands, "tun", "tune");
    ASSERT_AMONG(commands, "rnu", "run");
    ASSERT_AMONG(commands, "wam", "warm");
    ASSERT_AMONG(kinds, "plans", "plan");
}

static void a_short_form_finds_its_name(void **state)
{
    static const char *const types[] = {"bf16", "f16", "fp8", "mxfp4"};
    static const char *const layouts[] = {"nvfp4_heads", "mxfp4_shared", "fp8_shared"};
    static const char *const words[] = {"in", "index", "temperature", "window_left", "attention"};
    (void)state;
    ASSERT_AMONG(types, "fp4", "mxfp4"); // and not fp8
    ASSERT_AMONG(types, "bfloat16", "bf16");
    ASSERT_AMONG(types, "float16", "f16");
    ASSERT_AMONG(types, "float32", NULL);
    ASSERT_AMONG(layouts, "fp8",
                 "fp8_shared"); // the end of a number is no beginning: mxfp4_shared, nvfp4_heads stay out
    ASSERT_AMONG(layouts, "mxfp4", "mxfp4_shared");
    ASSERT_AMONG(layouts, "heads", "nvfp4_heads");
    ASSERT_AMONG(layouts, "shared", NULL); // of two
    ASSERT_AMONG(words, "inn", "in");
    ASSERT_AMONG(words, "idx", "index");
    ASSERT_AMONG(words, "temp", "temperature");
    ASSERT_AMONG(words, "win_left", "window_left");
    ASSERT_AMONG(words, "attn", "attention");
}

static void a_name_that_is_offered_twice_is_one(void **state)
{
    static const char *const tensors[] = {"keys", "key_scale", "key_scale", "keys"};
    (void)state;
    ASSERT_AMONG(tensors, "scale", "key_scale");
    ASSERT_AMONG(tensors, "key", "keys");
}

static void another_number_is_no_slip(void **state)
{
    static const char *const archs[] = {"sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_103a"};
    (void)state;
    ASSERT_AMONG(archs, "sm_70", NULL);
    ASSERT_AMONG(archs, "sm_9", NULL);
    ASSERT_AMONG(archs, "sm_101", NULL);
    ASSERT_AMONG(archs, "sm_1000", NULL);
    ASSERT_AMONG(archs, "sm_110a", NULL);
    ASSERT_AMONG(archs, "sm90a", "sm_90a");
    ASSERT_AMONG(archs, "sm-90A", "sm_90a");
    ASSERT_AMONG(archs, "ms_90a", "sm_90a");
    ASSERT_AMONG(archs, "sm_98", "sm_89"); // changed places
    ASSERT_AMONG(archs, "103a", "sm_103a");
    ASSERT_AMONG(archs, "sm_103", "sm_103a");
}

static void another_word_finds_none(void **state)
{
    (void)state;
    char word[200];
    memset(word, 'k', sizeof word - 1);
    word[sizeof word - 1] = 0;
    assert_nearest("W", NULL);
    assert_nearest("f64", NULL); // another number
    assert_nearest("colour", NULL);
    assert_nearest("", NULL);
    assert_nearest(word, NULL);
}

static void the_hint_names_it_or_is_empty(void **state)
{
    qn_nearest n;
    (void)state;
    qn_nearest_init(&n, "kv_spilt=3", 8); // the word ends where it is said to
    assert_string_equal(qn_nearest_hint(&n), "");
    qn_nearest_offer(&n, "gate");
    assert_string_equal(qn_nearest_hint(&n), "");
    qn_nearest_offer(&n, "kv_split");
    assert_string_equal(qn_nearest_hint(&n), " (did you mean 'kv_split'?)");
    qn_nearest_init(&n, NULL, 0);
    qn_nearest_offer(&n, "kv_split");
    assert_string_equal(qn_nearest_hint(&n), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slip_finds_its_name),
        cmocka_unit_test(the_nearest_of_several_wins_and_of_equals_the_first),
        cmocka_unit_test(a_missing_letter_is_nearer_than_another_one),
        cmocka_unit_test(a_short_form_finds_its_name),
        cmocka_unit_test(a_name_that_is_offered_twice_is_one),
        cmocka_unit_test(another_number_is_no_slip),
        cmocka_unit_test(another_word_finds_none),
        cmocka_unit_test(the_hint_names_it_or_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
