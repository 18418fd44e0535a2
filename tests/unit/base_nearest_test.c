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

static void assert_nearest(const char *word, const char *name)
{
    qn_nearest n;
    qn_nearest_init(&n, word, strlen(word));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) qn_nearest_offer(&n, names[i]);
    if (name)
        assert_string_equal(n.name ? n.name : "none", name);
    else
        assert_null(n.name);
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

static void another_word_finds_none(void **state)
{
    (void)state;
    char word[200];
    memset(word, 'k', sizeof word - 1);
    word[sizeof word - 1] = 0;
    assert_nearest("W", NULL);
    assert_nearest("f64", NULL); // two edits of three letters
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
        cmocka_unit_test(another_word_finds_none),
        cmocka_unit_test(the_hint_names_it_or_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
