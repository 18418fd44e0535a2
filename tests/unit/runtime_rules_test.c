// SPDX-License-Identifier: Apache-2.0
// The compiled argument checks say yes exactly when the family's own do, and there is something to launch.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"

enum { DRAWS = 200000 };

static uint64_t seed = 20240607, word;

static uint64_t draw(uint64_t below)
{
    word += 0x9e3779b97f4a7c15u; // splitmix64
    uint64_t z = word;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

static int64_t draw_size(const qn_field *size)
{
    static const int64_t hostile[] = {0, -1, 1, 2, 7, INT32_MAX, (int64_t)INT32_MAX + 1, INT64_MAX, INT64_MIN};
    size_t i = (size_t)draw(QN_COUNT(hostile) + 1);
    return i < QN_COUNT(hostile) ? hostile[i] : size->max;
}

static int64_t draw_stride(void)
{
    static const int64_t hostile[] = {0, 0, 0, 1, -1, 8, 999, 1000, 1001, 4096, INT64_MAX, INT64_MAX / 2, INT64_MIN};
    return hostile[draw(QN_COUNT(hostile))];
}

static uintptr_t draw_pointer(void)
{
    static const uintptr_t hostile[] = {0, 1, 2, 3, 4, 6};
    return draw(4) ? (uintptr_t)4096 : 4096 * draw(2) + hostile[draw(QN_COUNT(hostile))];
}

static void put(qn_any_args *args, size_t offset, uint64_t value)
{
    memcpy(args->bytes + offset, &value, sizeof value);
}

static void draw_args(const qn_family *family, qn_any_args *args)
{
    memset(args, 0, sizeof *args);
    args->base.size = family->args_bytes;
    args->base.family = family->name;
    for (size_t i = 0; i < family->size_count; i++)
        put(args, family->size_args_offset[i], (uint64_t)draw_size(&family->sizes[i]));
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *tensor = &family->tensors[i];
        put(args, tensor->pointer_offset, draw_pointer());
        for (size_t axis = 0; tensor->axes[axis] && tensor->axes[axis + 1]; axis++)
            put(args, tensor->stride_offset[axis], (uint64_t)draw_stride());
    }
}

static void check_spec(const char *text)
{
    const qn_family *family;
    quern_any_spec given, spec;
    static qn_rules rules;
    int passed = 0;
    assert_int_equal(quern_spec_parse(text, &given), QUERN_OK);
    assert_int_equal(qn_spec_complete(&given.base, &family, &spec), QUERN_OK);
    qn_rules_make(family, &spec.base, &rules);
    assert_true(rules.usable);
    word = seed;
    for (int i = 0; i < DRAWS; i++) {
        qn_any_args args;
        bool is_empty = false;
        draw_args(family, &args);
        bool compiled = qn_rules_pass(&rules, &args.base);
        bool own = family->check_args(&spec.base, &args.base, &is_empty) == QUERN_OK && !is_empty;
        if (compiled != own)
            fail_msg("%s: seed %llu, draw %d: compiled %d, own %d (%s)", text, (unsigned long long)seed, i, compiled,
                     own, quern_message());
        passed += own;
    }
    assert_true(passed > 0);
}

static void compiled_checks_agree_with_the_familys(void **state)
{
    (void)state;
    check_spec("softmax_topk V=1000 K=8 in=f32");
    check_spec("softmax_topk V=1000 K=8 in=bf16 index=i64 temperature=1 lse=1");
    check_spec("softmax_topk V=1 K=1 in=f16 token=1");
}

static void a_family_with_checks_of_its_own_gets_no_compiled_ones(void **state)
{
    (void)state;
    quern_any_spec given, spec;
    const qn_family *family;
    qn_any_args args;
    static qn_rules rules;
    assert_int_equal(quern_spec_parse("softmax_topk V=1000 K=8 in=f32", &given), QUERN_OK);
    assert_int_equal(qn_spec_complete(&given.base, &family, &spec), QUERN_OK);
    qn_family strange = *family;
    strange.generic_args = false;

    qn_rules_make(&strange, &spec.base, &rules);

    word = seed;
    for (int i = 0; i < 1000; i++) {
        draw_args(family, &args);
        assert_false(qn_rules_pass(&rules, &args.base));
    }
}

// The launch path keeps arguments and sizes of any family in buffers of a fixed length.
static void every_familys_structures_fit_the_launch_paths_buffers(void **state)
{
    (void)state;
    size_t count;
    const qn_family *const *families = qn_families(&count);
    for (size_t i = 0; i < count; i++) {
        assert_true(families[i]->args_bytes <= sizeof(qn_any_args));
        assert_true(families[i]->sizes_bytes <= sizeof(qn_any_sizes));
        assert_true(families[i]->spec_bytes <= sizeof(quern_any_spec));
        assert_true(families[i]->tensor_count <= QN_MAX_RULES);
        assert_true(families[i]->bucket_count <= QN_MAX_BUCKETS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiled_checks_agree_with_the_familys),
        cmocka_unit_test(a_family_with_checks_of_its_own_gets_no_compiled_ones),
        cmocka_unit_test(every_familys_structures_fit_the_launch_paths_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
