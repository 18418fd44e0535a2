// SPDX-License-Identifier: Apache-2.0
// Arguments at a glance: what is accepted, the family's whole check accepts and finds not empty; ordinary arguments are
// accepted, for else every launch would take the long way.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/args_glance.h"

enum { DRAWS = 200000 };

static _Alignas(64) char memory[64]; // only its address is looked at

typedef union any_args {
    quern_args base;
    int64_t word[128];
} any_args;

typedef struct subject {
    const char *text, *sizes; // a spec, and ordinary sizes
    const qn_family *family;
    quern_any_spec spec;
    qn_args_glance glance;
    any_args args; // ordinary
} subject;

static subject subjects[] = {
    {.text = "softmax_topk V=100 K=10 in=bf16", .sizes = "rows=4"},
    {.text = "softmax_topk V=100 K=10 in=f32 temperature=1 lse=1 token=1 index=i64", .sizes = "rows=1"},
    {.text = "gate E=256 K=8 in=f32 bias=1", .sizes = "N=16384"},
    {.text = "gate E=256 K=8 in=f16 given_ids=1", .sizes = "N=1"},
    {.text = "router D=7168 E=256 K=8 in=bf16 w=bf16", .sizes = "N=4"},
    {.text = "router D=512 E=64 K=4 in=bf16 w=f32 w_layout=DE bias=1", .sizes = "N=70"},
    {.text = "indexer H=64 C=128 layout=fp8_shared k=512 q=fp8 page=64",
     .sizes = "T=4 max_length=4096 pages=256 columns=64 B=4"},
    {.text = "indexer H=8 C=128 layout=mxfp4_shared k=64", .sizes = "T=2 L=1000"},
    {.text = "indexer H=4 C=128 layout=nvfp4_heads k=16 epb=16", .sizes = "T=2 blocks=20"},
};

static void set_sizes(subject *s)
{
    char text[128];
    snprintf(text, sizeof text, "%s", s->sizes);
    for (char *rest = text, *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        *value++ = 0;
        for (size_t i = 0; i < s->family->size_count; i++)
            if (!strcmp(s->family->sizes[i].name, word))
                s->args.word[s->family->size_args_offset[i] / 8] = atoll(value);
    }
}

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < QN_COUNT(subjects); i++) {
        subject *s = &subjects[i];
        quern_any_spec given;
        if (quern_spec_parse(s->text, &given) != QUERN_OK) fail_msg("%s: %s", s->text, quern_message());
        assert_int_equal(qn_spec_complete(&given.base, &s->family, &s->spec), QUERN_OK);
        s->args.base.size = s->family->args_bytes;
        s->args.base.family = s->family->name;
        set_sizes(s);
        for (size_t t = 0; t < s->family->tensor_count; t++)
            if (qn_tensor_is_given(s->family, &s->spec.base, &s->family->tensors[t]))
                s->args.word[s->family->tensors[t].pointer_offset / 8] = (int64_t)(intptr_t)memory;
        qn_args_glance_of(s->family, &s->spec.base, &s->glance);
    }
    return 0;
}

static bool is_right(const subject *s, const any_args *args)
{
    bool empty = false;
    return s->family->check_args(&s->spec.base, &args->base, &empty) == QUERN_OK && !empty;
}

static void ordinary_arguments_are_accepted(void **state)
{
    (void)state;
    for (size_t i = 0; i < QN_COUNT(subjects); i++) {
        const subject *s = &subjects[i];
        if (!is_right(s, &s->args)) fail_msg("%s: %s", s->text, quern_message());
        if (!qn_args_at_a_glance(&s->glance, &s->args.base)) fail_msg("%s", s->text);
    }
}

static void a_stride_of_rows_that_lie_apart_is_accepted(void **state)
{
    (void)state;
    any_args args = subjects[0].args;
    quern_softmax_topk_args *a = (quern_softmax_topk_args *)&args.base;
    a->logits_stride_rows = 100, a->values_stride_rows = 64;
    assert_true(qn_args_at_a_glance(&subjects[0].glance, &args.base));
    a->logits_stride_rows = 99;
    assert_false(qn_args_at_a_glance(&subjects[0].glance, &args.base));
}

static void nothing_is_accepted_that_lacks_a_tensor_or_is_empty(void **state)
{
    (void)state;
    for (size_t i = 0; i < QN_COUNT(subjects); i++) {
        const subject *s = &subjects[i];
        for (size_t t = 0; t < s->family->tensor_count; t++) {
            any_args args = s->args;
            if (!qn_tensor_is_given(s->family, &s->spec.base, &s->family->tensors[t])) continue;
            args.word[s->family->tensors[t].pointer_offset / 8] = 0;
            if (qn_args_at_a_glance(&s->glance, &args.base)) fail_msg("%s: %s", s->text, s->family->tensors[t].name);
        }
        any_args args = s->args;
        args.word[s->family->size_args_offset[0] / 8] = 0;
        assert_false(qn_args_at_a_glance(&s->glance, &args.base));
    }
}

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed;
}

// Numbers at the edges of sizes, strides and alignments.
static int64_t draw(uint64_t *seed)
{
    static const int64_t edges[] = {0,       1,       -1,        2,         4,         8,       10,       100,
                                    256,     512,     7168,      INT32_MAX, INT64_MAX, 1 << 26, 1 << 24,  INT64_MIN,
                                    1 << 20, 1 << 27, 1LL << 32, 1LL << 33, 1LL << 40, 4096,    1LL << 62};
    int64_t edge = edges[next(seed) % QN_COUNT(edges)];
    switch (next(seed) % 4) {
    case 0:
        return (int64_t)((uint64_t)edge + 1);
    case 1:
        return (int64_t)((uint64_t)edge - 1);
    case 2:
        return (int64_t)(intptr_t)memory + (int64_t)(next(seed) % 9);
    default:
        return edge;
    }
}

static void whatever_is_accepted_the_whole_check_accepts(void **state)
{
    (void)state;
    const char *given = getenv("QUERN_TEST_SEED");
    uint64_t start = given ? strtoull(given, NULL, 0) : 20261130;
    for (size_t i = 0; i < QN_COUNT(subjects); i++) {
        const subject *s = &subjects[i];
        uint64_t seed = start + i;
        size_t accepted = 0, head = sizeof(quern_args) / 8, words = s->family->args_bytes / 8;
        for (int d = 0; d < DRAWS; d++) {
            any_args args = s->args;
            for (size_t changes = 1 + next(&seed) % 3; changes > 0; changes--)
                args.word[head + next(&seed) % (words - head)] = draw(&seed);
            if (!qn_args_at_a_glance(&s->glance, &args.base)) continue;
            accepted++;
            if (!is_right(s, &args))
                fail_msg("%s, QUERN_TEST_SEED=%llu: %s", s->text, (unsigned long long)start, quern_message());
        }
        assert_in_range(accepted, DRAWS / 100, DRAWS - DRAWS / 100); // both happen
    }
}

// Attention's check knows of more than lists can say: heads, tiles.
static void a_family_with_rules_of_its_own_has_no_glance(void **state)
{
    (void)state;
    quern_any_spec given, spec;
    const qn_family *family;
    qn_args_glance glance;
    assert_int_equal(quern_spec_parse("attention d=64", &given), QUERN_OK);
    assert_int_equal(qn_spec_complete(&given.base, &family, &spec), QUERN_OK);
    qn_args_glance_of(family, &spec.base, &glance);
    assert_int_equal(glance.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordinary_arguments_are_accepted),
        cmocka_unit_test(a_stride_of_rows_that_lie_apart_is_accepted),
        cmocka_unit_test(nothing_is_accepted_that_lacks_a_tensor_or_is_empty),
        cmocka_unit_test(whatever_is_accepted_the_whole_check_accepts),
        cmocka_unit_test(a_family_with_rules_of_its_own_has_no_glance),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
