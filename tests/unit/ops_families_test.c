// SPDX-License-Identifier: Apache-2.0
// What must hold for every family in the list, whoever writes it: names, offsets, and lists that agree with each other.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/args_layout.h"
#include "ops/attention.h"
#include "ops/field.h"

static bool is_name(const char *name)
{
    return name && *name && !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
}

static size_t bytes_of(qn_type type)
{
    return type == QN_INT || type == QN_REAL ? 8 : sizeof(int);
}

// Fields of one structure: names unlike, inside the structure, not over one another, defaults allowed.
static void check_fields(const char *family, const qn_field *fields, size_t count, size_t structure_bytes)
{
    for (size_t i = 0; i < count; i++) {
        const qn_field *f = &fields[i];
        if (!is_name(f->name) || !f->doc || !*f->doc || strchr(f->doc, '\n'))
            fail_msg("%s: field %zu: name or doc", family, i);
        assert_true(f->offset >= sizeof(size_t));
        assert_true(f->offset + bytes_of(f->type) <= structure_bytes);
        assert_int_equal(f->type == QN_ENUM, f->names != NULL);
        if (f->type == QN_INT) assert_true(f->min <= f->max);
        if (f->type == QN_INT && !f->required) assert_true(f->initial >= f->min && f->initial <= f->max);
        if (f->type == QN_ENUM && !f->required) assert_non_null(qn_name_of(f->names, (int)f->initial));
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(f->name, fields[j].name);
            assert_true(f->offset + bytes_of(f->type) <= fields[j].offset ||
                        fields[j].offset + bytes_of(fields[j].type) <= f->offset);
        }
    }
}

static const qn_field *field_of(const qn_field *fields, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(fields[i].name, name)) return &fields[i];
    }
    return NULL;
}

// Whether an axis is one of these fields, or one more than it.
static bool is_axis_of(const qn_field *fields, size_t count, const char *axis)
{
    int64_t plus;
    for (size_t i = 0; i < count; i++) {
        if (qn_axis_is(axis, fields[i].name, &plus)) return true;
    }
    return false;
}

static void check_tensor(const qn_family *family, const qn_tensor *tensor)
{
    size_t rank = 0;

    assert_true(is_name(tensor->name) && tensor->doc && *tensor->doc);
    assert_true(tensor->pointer_offset >= sizeof(quern_args) &&
                tensor->pointer_offset + sizeof(void *) <= family->args_bytes);
    if (tensor->flag) assert_non_null(field_of(family->fields, family->field_count, tensor->flag));
    if (tensor->choice) assert_non_null(field_of(family->fields, family->field_count, tensor->choice));
    if (tensor->dtype == QUERN_DTYPE_NONE) {
        assert_non_null(tensor->dtype_field);
        assert_int_equal(field_of(family->fields, family->field_count, tensor->dtype_field)->type, QN_ENUM);
    }
    for (; tensor->axes[rank]; rank++) {
        bool is_size = is_axis_of(family->sizes, family->size_count, tensor->axes[rank]);
        bool is_field = is_axis_of(family->fields, family->field_count, tensor->axes[rank]);
        quern_any_spec any = {.base = {sizeof any, family->name}};
        bool is_length = family->axis_length && family->axis_length(&any.base, tensor->axes[rank]) >= 0;
        if (!is_size && !is_field && !is_length)
            fail_msg("%s: axis %s is neither size nor field", tensor->name, tensor->axes[rank]);
    }
    assert_in_range(rank, 1, QN_MAX_RANK);
    for (size_t axis = 0; axis + 1 < rank; axis++) {
        assert_true(tensor->stride_offset[axis] >= sizeof(quern_args) &&
                    tensor->stride_offset[axis] + 8 <= family->args_bytes);
    }
}

static void check_knob(const qn_knob *knob)
{
    assert_in_range(knob->choice_count, 1, QN_MAX_CHOICES);
    for (size_t i = 0; knob->names && i < knob->choice_count; i++)
        assert_non_null(qn_name_of(knob->names, knob->choices[i]));
}

static void every_familys_lists_agree(void **state)
{
    size_t count;
    const qn_family *const *families = qn_families(&count);

    (void)state;
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        const qn_family *f = families[i];
        assert_true(is_name(f->name) && f->doc && *f->doc);
        assert_true(f->spec_bytes <= sizeof(quern_any_spec) && f->field_count < QN_DESCRIPTOR_WORDS);
        check_fields(f->name, f->fields, f->field_count, f->spec_bytes);
        check_fields(f->name, f->sizes, f->size_count, f->sizes_bytes);
        for (size_t s = 0; s < f->size_count; s++) assert_true(f->size_args_offset[s] + 8 <= f->args_bytes);
        for (size_t t = 0; t < f->tensor_count; t++) check_tensor(f, &f->tensors[t]);
        assert_true(f->tensor_count <= QN_MAX_TENSORS); // a launch keeps a layout of so many (ops/args_layout.c)
        assert_true(f->knob_count <= QN_MAX_KNOBS);
        for (size_t k = 0; k < f->knob_count; k++) check_knob(&f->knobs[k]);
        assert_in_range(f->bucket_count, 1, QN_MAX_BUCKETS);
        assert_true(f->bucket_name && f->bucket_sizes && f->bucket_of && f->choose && f->plan && f->workspace);
        assert_true(f->check_args && f->sizes_of && f->launch && f->reference);
    }
}

// ---- names of strides

static void read_abi(char *text, size_t bytes)
{
    const char *source = getenv("QUERN_TEST_SOURCE");
    char path[512];
    snprintf(path, sizeof path, "%s/tests/embed/abi.txt", source ? source : ".");
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s cannot be read", path);
    text[fread(text, 1, bytes - 1, f)] = 0;
    fclose(f);
}

// By name, in messages and in `quern ops`, a stride is what the header calls it.
static void strides_have_the_names_of_the_header(void **state)
{
    static char abi[1 << 17];
    size_t count, checked = 0;
    const qn_family *const *families = qn_families(&count);

    (void)state;
    read_abi(abi, sizeof abi);
    for (size_t i = 0; i < count; i++) {
        for (size_t t = 0; t < families[i]->tensor_count; t++) {
            const qn_tensor *tensor = &families[i]->tensors[t];
            for (size_t axis = 0; tensor->axes[axis + 1]; axis++, checked++) {
                char line[160];
                snprintf(line, sizeof line, "\nmember quern_%s_args.%s_stride_%s %zu 8\n", families[i]->name,
                         tensor->name, qn_stride_axis(tensor, axis), tensor->stride_offset[axis]);
                if (!strstr(abi, line)) fail_msg("the header has no%s", line);
            }
        }
    }
    assert_true(checked > 50);
}

static void a_stride_is_found_by_its_name_and_named_in_messages(void **state)
{
    static int64_t memory[64];
    const qn_family *family = &qn_family_attention;
    quern_any_spec spec, full;
    quern_attention_args args = QUERN_ATTENTION_ARGS_INIT;
    const quern_argument by_name[] = {{"k_stride_S", NULL, 1}}, by_axis[] = {{"k_stride_Sk", NULL, 1}};

    (void)state;
    assert_int_equal(quern_spec_parse("attention d=64", &spec), QUERN_OK);
    assert_int_equal(qn_spec_complete(&spec.base, &family, &full), QUERN_OK);
    args.B = args.Sq = args.Sk = args.Hq = args.Hkv = 2;
    args.q = args.k = args.v = memory, args.out = memory, args.k_stride_S = 1;
    assert_int_equal(qn_check_args(family, &full.base, &args.base), QUERN_BAD_STRIDE);
    assert_non_null(strstr(quern_message(), "k_stride_S = 1:"));

    quern_attention_args named;
    assert_int_equal(qn_args_from_names(family, by_name, 1, &named.base), QUERN_OK);
    assert_int_equal(named.k_stride_S, 1);
    assert_int_equal(qn_args_from_names(family, by_axis, 1, &named.base), QUERN_UNKNOWN_ARGUMENT);
    assert_non_null(strstr(quern_message(), "k_stride_S,"));
}

static void a_buckets_sizes_are_in_the_bucket_and_in_range(void **state)
{
    size_t count;
    const qn_family *const *families = qn_families(&count);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        const qn_family *f = families[i];
        for (size_t b = 0; b < f->bucket_count; b++) {
            _Alignas(16) unsigned char sizes[256] = {0};
            char name[64] = "";
            assert_true(f->sizes_bytes <= sizeof sizes);
            memcpy(sizes, &f->sizes_bytes, sizeof(size_t));
            f->bucket_sizes(b, sizes);
            f->bucket_name(b, name, sizeof name);
            assert_true(name[0] != 0 && strlen(name) < sizeof name - 1);
            assert_int_equal(f->bucket_of(sizes), b);
            for (size_t s = 0; s < f->size_count; s++) {
                int64_t value;
                memcpy(&value, sizes + f->sizes[s].offset, sizeof value);
                assert_true(value >= f->sizes[s].min && value <= f->sizes[s].max);
            }
        }
    }
}

static void consecutive_buckets_have_one_name(void **state)
{
    const qn_family *f = &qn_family_softmax_topk;
    char name[64];

    (void)state;
    qn_buckets_name(f, 0, 0, name, sizeof name);
    assert_string_equal(name, "rows 1..4");
    qn_buckets_name(f, 0, 2, name, sizeof name);
    assert_string_equal(name, "rows 1..30");
    qn_buckets_name(f, 0, f->bucket_count - 1, name, sizeof name); // to the end, which no number is
    assert_string_equal(name, "rows 1…");
}

// Two sizes: what is a range of each is named so, all else from its first bucket to its last.
static void consecutive_buckets_of_two_sizes_have_one_name(void **state)
{
    enum { END = 99 };
    const struct {
        size_t first, last;
        const char *name;
    } of_indexer[] = {
        {0, 0, "T 1, max_length 1..2048"},
        {0, 1, "T 1, max_length 1..8192"},
        {2, 3, "T 1, max_length 8193…"},
        {5, 7, "T 2..4, max_length 2049…"},
        {4, 7, "T 2..4, max_length 1…"},
        {4, 11, "T 2..8, max_length 1…"},
        {0, 7, "T 1..4, max_length 1…"},
        {8, 27, "T 5…, max_length 1…"},
        {24, END, "T 67…, max_length 1…"},
        {0, END, "T 1…"},
        {1, 5, "T 1, max_length 2049..8192 to T 2..4, max_length 2049..8192"},
        {4, 10, "T 2..4, max_length 1..2048 to T 5..8, max_length 8193..32768"},
    };
    const struct {
        size_t first, last;
        const char *name;
    } of_attention[] = {
        {0, 0, "Sq 1..16, Sq·Hq/Hkv 1..8"},
        {0, 1, "Sq 1..16, Sq·Hq/Hkv 1..16"},
        {1, 2, "Sq 1..16, Sq·Hq/Hkv 9…"},
        {2, 3, "Sq 1..16, Sq·Hq/Hkv 17… to Sq 17..6143"},
        {3, 4, "Sq 17…"},
        {0, END, "Sq 1…"},
    };
    char name[112];

    (void)state;
    for (size_t i = 0; i < QN_COUNT(of_indexer); i++) {
        size_t last = of_indexer[i].last == END ? qn_family_indexer.bucket_count - 1 : of_indexer[i].last;
        qn_buckets_name(&qn_family_indexer, of_indexer[i].first, last, name, sizeof name);
        assert_string_equal(name, of_indexer[i].name);
    }
    for (size_t i = 0; i < QN_COUNT(of_attention); i++) {
        size_t last = of_attention[i].last == END ? qn_family_attention.bucket_count - 1 : of_attention[i].last;
        qn_buckets_name(&qn_family_attention, of_attention[i].first, last, name, sizeof name);
        assert_string_equal(name, of_attention[i].name);
    }
}

// A result with a name of former borders is of the bucket that its sizes are in now.
static void a_result_is_of_the_bucket_that_has_its_sizes(void **state)
{
    enum { NONE = -1 };
    static const char prefill[] = "B=4 Sq=1024 Sk=1024 Hq=16 Hkv=16 Tq=0 Tk=0 pages=0 columns=0";
    static const char longer[] = "B=4 Sq=8192 Sk=8192 Hq=16 Hkv=16 Tq=0 Tk=0 pages=0 columns=0";
    static const struct {
        const qn_family *family;
        const char *name, *timed;
        int bucket;
    } cases[] = {
        {&qn_family_softmax_topk, "rows 5..14", "rows=8", 1},
        {&qn_family_softmax_topk, "rows 5..14", "", 1}, // its own name is enough
        {&qn_family_softmax_topk, "rows 1..14", "rows=8", 1},
        {&qn_family_softmax_topk, "rows 1..14", "rows=4", 0},
        {&qn_family_softmax_topk, "rows 8", "rows=8", 1},
        {&qn_family_softmax_topk, "rows 6…", "rows=8", 1},
        {&qn_family_softmax_topk, "rows 1..7", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows 9…", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows 9..4", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows ..9", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows -1..9", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows 1..9x", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows 01..9", "rows=8", NONE}, // as names are written, or not at all
        {&qn_family_softmax_topk, "rows 1..09", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows 1..9 ", "rows=8", NONE},
        {&qn_family_softmax_topk, " rows 1..9", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows  1..9", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows 1..99999999999999999999", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows 0..9", "rows=8", 1},
        {&qn_family_softmax_topk, "rows", "rows=8", NONE},
        {&qn_family_softmax_topk, "", "rows=8", NONE},
        {&qn_family_softmax_topk, "row 1..9", "rows=8", NONE},
        {&qn_family_softmax_topk, "N 1..9", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows 1..9, N 1..9", "rows=8", NONE},
        {&qn_family_softmax_topk, "rows 1..9", "rows=08", NONE},
        {&qn_family_softmax_topk, "rows 1..9", "N=8", NONE},
        {&qn_family_attention, "Sq 17…", prefill, QN_ATTENTION_MANY},
        {&qn_family_attention, "Sq 17…", longer, QN_ATTENTION_LONG},
        {&qn_family_attention, "Sq 17..4096", longer, NONE},
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        size_t bucket = 0;
        bool found = qn_bucket_find(cases[i].family, cases[i].name, cases[i].timed, &bucket);
        if ((found ? (int)bucket : NONE) != cases[i].bucket)
            fail_msg("'%s' timed at '%s': %s, bucket %zu", cases[i].name, cases[i].timed, found ? "found" : "none",
                     bucket);
    }
}

static void find_knows_every_family_and_lists_them_for_a_wrong_name(void **state)
{
    size_t count;
    const qn_family *const *families = qn_families(&count), *found = NULL;

    (void)state;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(qn_family_find(families[i]->name, &found), QUERN_OK);
        assert_ptr_equal(found, families[i]);
    }
    assert_int_equal(qn_family_find("millstone", &found), QUERN_UNKNOWN_FAMILY);
    for (size_t i = 0; i < count; i++) assert_non_null(strstr(quern_message(), families[i]->name));
    assert_int_equal(qn_family_find(NULL, &found), QUERN_UNKNOWN_FAMILY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_familys_lists_agree),
        cmocka_unit_test(strides_have_the_names_of_the_header),
        cmocka_unit_test(a_stride_is_found_by_its_name_and_named_in_messages),
        cmocka_unit_test(a_buckets_sizes_are_in_the_bucket_and_in_range),
        cmocka_unit_test(consecutive_buckets_have_one_name),
        cmocka_unit_test(consecutive_buckets_of_two_sizes_have_one_name),
        cmocka_unit_test(a_result_is_of_the_bucket_that_has_its_sizes),
        cmocka_unit_test(find_knows_every_family_and_lists_them_for_a_wrong_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
