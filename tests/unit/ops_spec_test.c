// SPDX-License-Identifier: Apache-2.0
// Specs as text and as structures: both directions, every message, and structures of other sizes. By softmax_topk, and
// by a family of the test's own, "mill", for the field types that softmax_topk has not.
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/family.h"

static const qn_family *softmax(void)
{
    const qn_family *family = NULL;
    assert_int_equal(qn_family_find("softmax_topk", &family), QUERN_OK);
    return family;
}

typedef struct mill_spec {
    quern_spec base;
    int64_t rows, window;
    quern_dtype in;
    int fine;
    double scale, cap;
} mill_spec;

static const qn_name mill_types[] = {{"f32", QUERN_F32}, {"bf16", QUERN_BF16}, {NULL, 0}};
static const qn_field mill_fields[] = {
    {.name = "rows", .type = QN_INT, .offset = offsetof(mill_spec, rows), .required = true, .min = 1, .max = 100},
    {.name = "window",
     .type = QN_INT,
     .offset = offsetof(mill_spec, window),
     .min = -1,
     .max = INT64_MAX,
     .initial = -1},
    {.name = "in", .type = QN_ENUM, .offset = offsetof(mill_spec, in), .initial = QUERN_BF16, .names = mill_types},
    {.name = "fine", .type = QN_FLAG, .offset = offsetof(mill_spec, fine), .initial = 1},
    {.name = "scale", .type = QN_REAL, .offset = offsetof(mill_spec, scale), .real_initial = 1},
    {.name = "cap", .type = QN_REAL, .offset = offsetof(mill_spec, cap)},
};
static const qn_family mill = {
    .name = "mill", .fields = mill_fields, .field_count = QN_COUNT(mill_fields), .spec_bytes = sizeof(mill_spec)};

static mill_spec mill_default(void)
{
    mill_spec spec = {{sizeof spec, "mill"}, 7, -1, QUERN_BF16, 1, 1.0, 0.0};
    return spec;
}

// ---- text to structure

static void a_text_becomes_the_structure_it_says(void **state)
{
    quern_any_spec any;
    const quern_softmax_topk_spec *spec = (const quern_softmax_topk_spec *)&any;

    (void)state;
    assert_int_equal(quern_spec_parse("softmax_topk V=50257 K=256 in=bf16", &any), QUERN_OK);
    assert_int_equal(any.base.size, sizeof *spec);
    assert_string_equal(any.base.family, "softmax_topk");
    assert_int_equal(spec->V, 50257);
    assert_int_equal(spec->K, 256);
    assert_int_equal(spec->in, QUERN_BF16);
    assert_int_equal(spec->index, QUERN_I32);
    assert_int_equal(spec->value, QUERN_VALUE_PROB);
    assert_int_equal(spec->lse, 0);
    assert_int_equal(
        quern_spec_parse(" \t softmax_topk\tlse=1\n in=f32   norm=topk K=1 value=logit V=1 index=i64 ", &any),
        QUERN_OK);
    assert_int_equal(spec->V, 1);
    assert_int_equal(spec->index, QUERN_I64);
    assert_int_equal(spec->value, QUERN_VALUE_LOGIT);
    assert_int_equal(spec->norm, QUERN_NORM_TOPK);
    assert_int_equal(spec->lse, 1);
}

static void every_problem_of_a_text_has_its_status_and_names_the_culprit(void **state)
{
    static const struct {
        const char *text;
        quern_status status;
        const char *says[3];
    } cases[] = {
        {"", QUERN_BAD_SYNTAX, {"empty"}},
        {"  \t ", QUERN_BAD_SYNTAX, {"empty"}},
        {"V=3 softmax_topk", QUERN_BAD_SYNTAX, {"V=3", "family"}},
        {"softmax V=3", QUERN_UNKNOWN_FAMILY, {"'softmax'", "softmax_topk"}},
        {"Softmax_topk V=3", QUERN_UNKNOWN_FAMILY, {"Softmax_topk"}},
        {"softmax_topk V", QUERN_BAD_SYNTAX, {"'V'", "field=value"}},
        {"softmax_topk V= K=3", QUERN_BAD_SYNTAX, {"'V='"}},
        {"softmax_topk =3", QUERN_BAD_SYNTAX, {"'=3'"}},
        {"softmax_topk V = 3", QUERN_BAD_SYNTAX, {"'V'"}},
        {"softmax_topk W=3", QUERN_UNKNOWN_FIELD, {"'W'", "V, K, in", "batch_invariant"}},
        {"softmax_topk v=3", QUERN_UNKNOWN_FIELD, {"'v'"}},
        {"softmax_topk V=3 K=1 in=f32 rows=4", QUERN_UNKNOWN_FIELD, {"'rows' is a size", "--rows"}},
        {"softmax_topk V=3 V=3", QUERN_DUPLICATE_FIELD, {"V"}},
        {"softmax_topk V=3 K=1 in=f32 lse=0 lse=1", QUERN_DUPLICATE_FIELD, {"lse"}},
        {"softmax_topk K=1 in=f32", QUERN_MISSING_FIELD, {"V", "2097152"}},
        {"softmax_topk V=3 in=f32", QUERN_MISSING_FIELD, {"K", "2048"}},
        {"softmax_topk V=3 K=1", QUERN_MISSING_FIELD, {"in", "f32, f16, bf16"}},
        {"softmax_topk V=0 K=1 in=f32", QUERN_BAD_VALUE, {"V = '0'", "1 … 2097152"}},
        {"softmax_topk V=2097153 K=1 in=f32", QUERN_BAD_VALUE, {"2097153", "1 … 2097152"}},
        {"softmax_topk V=-5 K=1 in=f32", QUERN_BAD_VALUE, {"-5"}},
        {"softmax_topk V=99999999999999999999 K=1 in=f32", QUERN_BAD_VALUE, {"99999999999999999999"}},
        {"softmax_topk V=0x10 K=1 in=f32", QUERN_BAD_VALUE, {"0x10", "decimal"}},
        {"softmax_topk V=1e3 K=1 in=f32", QUERN_BAD_VALUE, {"1e3"}},
        {"softmax_topk V=5000 K=2049 in=f32", QUERN_BAD_VALUE, {"2049", "1 … 2048"}},
        {"softmax_topk V=3 K=1 in=f64", QUERN_BAD_VALUE, {"'f64'", "f32, f16, bf16"}},
        {"softmax_topk V=3 K=1 in=1", QUERN_BAD_VALUE, {"'1'"}},
        {"softmax_topk V=3 K=1 in=f32 lse=2", QUERN_BAD_VALUE, {"lse", "0 or 1"}},
        {"softmax_topk V=3 K=1 in=f32 lse=yes", QUERN_BAD_VALUE, {"'yes'"}},
        {"softmax_topk V=3 K=4 in=f32", QUERN_CONFLICT, {"K", "4", "3"}},
    };
    quern_any_spec any, untouched;

    (void)state;
    memset(&untouched, 0xA5, sizeof untouched);
    any = untouched;
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        quern_status status = quern_spec_parse(cases[i].text, &any);
        if (status != cases[i].status)
            fail_msg("'%s': %s: %s", cases[i].text, quern_status_name(status), quern_message());
        for (size_t s = 0; s < 3 && cases[i].says[s]; s++) {
            if (!strstr(quern_message(), cases[i].says[s]))
                fail_msg("'%s': '%s' does not say '%s'", cases[i].text, quern_message(), cases[i].says[s]);
        }
        assert_memory_equal(&any, &untouched, sizeof any);
    }
    assert_int_equal(quern_spec_parse(NULL, &any), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_spec_parse("softmax_topk", NULL), QUERN_MISSING_ARGUMENT);
}

// A flag that another field decides is no default when the text says it: the message has both fields.
static void a_text_that_contradicts_itself_is_refused_with_both_fields(void **state)
{
    static const char *const refused[][3] = {
        {"attention layout=paged page=16 length_k=0", "length_k = 0", "layout = paged"},
        {"attention length_k=0 page=16 layout=paged lse=1", "length_k = 0", "layout = paged"},
        {"attention layout=varlen cu_q=0", "cu_q = 0", "layout = varlen"},
        {"attention cu_q=1", "cu_q = 1", "layout=dense"},
        {"attention layout=varlen length_k=1", "length_k = 1", "layout=varlen"},
        {"attention layout=dense page=16", "page = 16", "layout=dense"},
        {"attention layout=paged", "page = 0", "layout=paged"},
        {"attention causal=1 window_right=3", "window_right = 3", "causal = 1"},
        {"attention kv_alias=1 d=64 dv=128", "dv = 128", "kv_alias = 1"},
        {"gate E=8 K=2 in=f32 topk_group=2", "topk_group = 2", "n_group = 1"},
        {"indexer H=8 C=64 k=8 page=8 cu_keys=1", "cu_keys = 1", "page = 8"},
        {"indexer H=8 C=64 k=8 epb=4", "epb = 4", "granularity=entry"},
        {"indexer H=8 C=64 k=8 layout=nvfp4_heads page=8", "page = 8", "epb = 1"},
    };
    static const char *const fine[] = {
        "attention layout=paged page=16 length_k=1",
        "attention layout=paged page=16 length_k=1 cu_q=0",
        "attention layout=varlen cu_q=1 length_k=0",
        "attention layout=dense length_k=0 cu_q=0 page=0",
        "attention dv=0 d=128",
        "attention causal=1 window_right=0",
        "attention causal=1 window_right=-1",
    };
    quern_any_spec spec;

    (void)state;
    for (size_t i = 0; i < QN_COUNT(refused); i++) {
        quern_status status = quern_spec_parse(refused[i][0], &spec);
        if (status != QUERN_CONFLICT && status != QUERN_BAD_VALUE) fail_msg("%s: %d", refused[i][0], (int)status);
        if (!strstr(quern_message(), refused[i][1]) || !strstr(quern_message(), refused[i][2]))
            fail_msg("%s: %s", refused[i][0], quern_message());
    }
    for (size_t i = 0; i < QN_COUNT(fine); i++)
        if (quern_spec_parse(fine[i], &spec) != QUERN_OK) fail_msg("%s: %s", fine[i], quern_message());
}

static void a_very_long_word_is_shown_short(void **state)
{
    static char text[100000];
    quern_any_spec any;

    (void)state;
    strcpy(text, "softmax_topk V=");
    memset(text + 15, '9', sizeof text - 16);
    assert_int_equal(quern_spec_parse(text, &any), QUERN_BAD_VALUE);
    assert_true(strlen(quern_message()) < 300);
}

// ---- structure to text

static void assert_same_after(const char *text, const char *wanted)
{
    quern_any_spec any, back;
    char written[512];

    if (quern_spec_parse(text, &any) != QUERN_OK) fail_msg("'%s': %s", text, quern_message());
    assert_int_equal(quern_spec_format(&any.base, written, sizeof written), QUERN_OK);
    assert_string_equal(written, wanted);
    assert_int_equal(quern_spec_parse(written, &back), QUERN_OK);
    assert_memory_equal(&any, &back, sizeof any);
}

static void the_canonical_text_has_the_families_order_and_no_defaults(void **state)
{
    (void)state;
    assert_same_after("softmax_topk in=f16 K=8 V=64", "softmax_topk V=64 K=8 in=f16");
    assert_same_after("softmax_topk lse=1 index=i32 value=prob V=64 K=8 in=f16 token=0",
                      "softmax_topk V=64 K=8 in=f16 lse=1");
    assert_same_after("softmax_topk batch_invariant=1 token=1 lse=1 temperature=1 norm=topk value=logprob index=i64 "
                      "in=bf16 K=2048 V=2097152",
                      "softmax_topk V=2097152 K=2048 in=bf16 index=i64 value=logprob norm=topk temperature=1 lse=1 "
                      "token=1 batch_invariant=1");
}

static void a_format_that_does_not_fit_says_how_much_it_needs(void **state)
{
    quern_any_spec any;
    char text[64];
    size_t needed = strlen("softmax_topk V=64 K=8 in=f16") + 1;

    (void)state;
    assert_int_equal(quern_spec_parse("softmax_topk V=64 K=8 in=f16", &any), QUERN_OK);
    for (size_t bytes = 0; bytes < needed; bytes++) {
        memset(text, '#', sizeof text);
        assert_int_equal(quern_spec_format(&any.base, bytes ? text : NULL, bytes), QUERN_BAD_SIZE);
        assert_int_equal(text[0], '#');
    }
    assert_non_null(strstr(quern_message(), "29"));
    assert_int_equal(quern_spec_format(&any.base, text, needed), QUERN_OK);
    assert_int_equal(strlen(text), needed - 1);
    assert_int_equal(quern_spec_format(&any.base, NULL, 10), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_spec_format(NULL, text, 10), QUERN_MISSING_ARGUMENT);
}

// ---- reals

static void reals_are_set_and_written_exactly(void **state)
{
    mill_spec spec = mill_default();
    qn_text text = QN_TEXT_INIT;

    (void)state;
    assert_int_equal(qn_spec_set(&mill, &spec.base, "scale", "0.08838834764831845"), QUERN_OK);
    assert_int_equal(qn_spec_set(&mill, &spec.base, "cap", "1e-300"), QUERN_OK);
    assert_true(spec.scale == 0.08838834764831845);
    assert_int_equal(qn_spec_write(&mill, &spec.base, &text), QUERN_OK);
    assert_string_equal(text.bytes, "mill rows=7 scale=0.08838834764831845 cap=1e-300");
    assert_int_equal(qn_spec_set(&mill, &spec.base, "cap", "inf"), QUERN_BAD_VALUE);
    assert_int_equal(qn_spec_set(&mill, &spec.base, "cap", "nan"), QUERN_BAD_VALUE);
    assert_int_equal(qn_spec_set(&mill, &spec.base, "cap", "1,5"), QUERN_BAD_VALUE);
    assert_non_null(strstr(quern_message(), "cap = '1,5'"));
    assert_true(spec.cap == 1e-300);
    assert_int_equal(qn_spec_set(&mill, &spec.base, "window", "9223372036854775807"), QUERN_OK);
    assert_true(spec.window == INT64_MAX);
    qn_text_fini(&text);
}

static void zeros_of_both_signs_are_one_text_and_one_descriptor(void **state)
{
    mill_spec plus = mill_default(), minus = mill_default();
    uint64_t a[QN_DESCRIPTOR_WORDS], b[QN_DESCRIPTOR_WORDS];
    qn_text text = QN_TEXT_INIT;

    (void)state;
    plus.scale = 0.0, minus.scale = -0.0, minus.cap = -0.0;
    assert_int_equal(qn_spec_descriptor(&mill, &plus.base, a), 7);
    assert_int_equal(qn_spec_descriptor(&mill, &minus.base, b), 7);
    assert_memory_equal(a, b, sizeof a);
    qn_spec_write(&mill, &minus.base, &text);
    assert_string_equal(text.bytes, "mill rows=7 scale=0");
    qn_text_fini(&text);
}

// ---- descriptors

static void every_field_changes_the_descriptor(void **state)
{
    mill_spec base = mill_default();
    uint64_t words[7][QN_DESCRIPTOR_WORDS];

    (void)state;
    for (int i = 0; i < 7; i++) {
        mill_spec spec = base;
        if (i == 1) spec.rows = 8;
        if (i == 2) spec.window = 0;
        if (i == 3) spec.in = QUERN_F32;
        if (i == 4) spec.fine = 0;
        if (i == 5) spec.scale = 1.0000000000000002;
        if (i == 6) spec.cap = 1;
        qn_spec_descriptor(&mill, &spec.base, words[i]);
        for (int j = 0; j < i; j++) assert_memory_not_equal(words[i], words[j], sizeof words[i]);
    }
}

static void another_familys_descriptor_differs_though_all_fields_are_equal(void **state)
{
    qn_family twin = mill;
    mill_spec spec = mill_default();
    uint64_t a[QN_DESCRIPTOR_WORDS], b[QN_DESCRIPTOR_WORDS];

    (void)state;
    qn_spec_descriptor(&mill, &spec.base, a);
    qn_spec_descriptor(&twin, &spec.base, b);
    assert_memory_not_equal(a, b, sizeof a);
}

static void what_padding_holds_is_not_in_the_descriptor(void **state)
{
    quern_softmax_topk_spec one, two;
    quern_any_spec full;
    const qn_family *family;
    uint64_t a[QN_DESCRIPTOR_WORDS], b[QN_DESCRIPTOR_WORDS];
    static const quern_softmax_topk_spec init = QUERN_SOFTMAX_TOPK_SPEC_INIT;

    (void)state;
    memset(&one, 0x00, sizeof one);
    memset(&two, 0xff, sizeof two);
#define COPY(field) one.field = two.field = init.field
    COPY(base), COPY(index), COPY(value), COPY(norm), COPY(temperature), COPY(lse), COPY(token), COPY(batch_invariant);
#undef COPY
    one.V = two.V = 64, one.K = two.K = 8, one.in = two.in = QUERN_F16;
    assert_int_equal(qn_spec_complete(&one.base, &family, &full), QUERN_OK);
    qn_spec_descriptor(family, &full.base, a);
    assert_int_equal(qn_spec_complete(&two.base, &family, &full), QUERN_OK);
    qn_spec_descriptor(family, &full.base, b);
    assert_memory_equal(a, b, sizeof a);
}

// ---- structures

static void a_structure_is_checked_like_a_text(void **state)
{
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;

    (void)state;
    assert_int_equal(quern_spec_check(&spec.base), QUERN_MISSING_FIELD);
    assert_non_null(strstr(quern_message(), "V is required"));
    spec.V = 64, spec.K = 8, spec.in = QUERN_F16;
    assert_int_equal(quern_spec_check(&spec.base), QUERN_OK);
    spec.in = QUERN_I32;
    assert_int_equal(quern_spec_check(&spec.base), QUERN_BAD_VALUE);
    assert_non_null(strstr(quern_message(), "f32, f16, bf16"));
    spec.in = QUERN_F16, spec.lse = -1;
    assert_int_equal(quern_spec_check(&spec.base), QUERN_BAD_VALUE);
    spec.lse = 0, spec.K = 65;
    assert_int_equal(quern_spec_check(&spec.base), QUERN_CONFLICT);
    spec.K = INT64_MIN;
    assert_int_equal(quern_spec_check(&spec.base), QUERN_BAD_VALUE);
    assert_int_equal(quern_spec_check(NULL), QUERN_MISSING_ARGUMENT);
    spec.base.family = NULL;
    assert_int_equal(quern_spec_check(&spec.base), QUERN_MISSING_ARGUMENT);
    spec.base.family = "sofmax";
    assert_int_equal(quern_spec_check(&spec.base), QUERN_UNKNOWN_FAMILY);
}

static void a_shorter_structure_is_completed_with_defaults(void **state)
{
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
    quern_any_spec full;
    const quern_softmax_topk_spec *made = (const quern_softmax_topk_spec *)&full;
    const qn_family *family;

    (void)state;
    spec.V = 64, spec.K = 8, spec.in = QUERN_F16, spec.value = QUERN_VALUE_LOGIT;
    spec.norm = (quern_norm)77, spec.batch_invariant = 77; // past the end of an older structure: not looked at
    spec.base.size = offsetof(quern_softmax_topk_spec, norm);
    assert_int_equal(qn_spec_complete(&spec.base, &family, &full), QUERN_OK);
    assert_int_equal(full.base.size, sizeof spec);
    assert_int_equal(made->value, QUERN_VALUE_LOGIT);
    assert_int_equal(made->norm, QUERN_NORM_ALL);
    assert_int_equal(made->batch_invariant, 0);
    spec.base.size += 2; // the end of the structure inside a field
    assert_int_equal(qn_spec_complete(&spec.base, &family, &full), QUERN_OK);
    assert_int_equal(made->norm, QUERN_NORM_ALL);
}

static void a_size_that_is_no_size_is_refused(void **state)
{
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;

    (void)state;
    spec.V = 64, spec.K = 8, spec.in = QUERN_F16;
    spec.base.size = 0;
    assert_int_equal(quern_spec_check(&spec.base), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "SPEC_INIT"));
    spec.base.size = 1u << 20;
    assert_int_equal(quern_spec_check(&spec.base), QUERN_BAD_ARGUMENT);
}

static void a_longer_structure_is_fine_while_its_new_fields_are_unset(void **state)
{
    quern_any_spec any;

    (void)state;
    assert_int_equal(quern_spec_parse("softmax_topk V=64 K=8 in=f16", &any), QUERN_OK);
    any.base.size = sizeof(quern_softmax_topk_spec) + 16;
    assert_int_equal(quern_spec_check(&any.base), QUERN_OK);
    any.bytes[sizeof(quern_softmax_topk_spec) + 15] = 1;
    assert_int_equal(quern_spec_check(&any.base), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), quern_version()));
}

static void numbers_are_found_by_name(void **state)
{
    quern_any_spec any;
    char name[16] = "V"; // not the literal of the field list

    (void)state;
    assert_int_equal(quern_spec_parse("softmax_topk V=64 K=8 in=f16", &any), QUERN_OK);
    assert_int_equal(qn_spec_number(softmax(), &any.base, name), 64);
    assert_int_equal(qn_spec_number(softmax(), &any.base, "in"), QUERN_F16);
    assert_int_equal(qn_spec_number(softmax(), &any.base, "none"), 0);
    assert_int_equal(qn_spec_number(softmax(), &any.base, NULL), 0);
}

// ---- random texts

static void any_text_is_parsed_or_refused_without_harm(void **state)
{
    static const char *const pieces[] = {"softmax_topk",
                                         " ",
                                         "V",
                                         "=",
                                         "K=",
                                         "in",
                                         "bf16",
                                         "64",
                                         "-",
                                         "\t",
                                         "lse=1",
                                         "value=logit",
                                         "0",
                                         "9999999999",
                                         "==",
                                         "\xff",
                                         "token",
                                         "\n",
                                         "V=64 K=8 in=f16"};
    uint64_t seed = 0x2545F4914F6CDD1Du;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[512] = "", written[512];
        quern_any_spec any, back;
        for (int i = 0; i < 8; i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            strcat(text, pieces[seed % QN_COUNT(pieces)]);
        }
        quern_status status = quern_spec_parse(text, &any);
        if (status != QUERN_OK) {
            assert_true(status >= QUERN_BAD_SYNTAX && status <= QUERN_CONFLICT);
            continue;
        }
        assert_int_equal(quern_spec_format(&any.base, written, sizeof written), QUERN_OK);
        assert_int_equal(quern_spec_parse(written, &back), QUERN_OK);
        assert_memory_equal(&any, &back, sizeof any);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_becomes_the_structure_it_says),
        cmocka_unit_test(every_problem_of_a_text_has_its_status_and_names_the_culprit),
        cmocka_unit_test(a_text_that_contradicts_itself_is_refused_with_both_fields),
        cmocka_unit_test(a_very_long_word_is_shown_short),
        cmocka_unit_test(the_canonical_text_has_the_families_order_and_no_defaults),
        cmocka_unit_test(a_format_that_does_not_fit_says_how_much_it_needs),
        cmocka_unit_test(reals_are_set_and_written_exactly),
        cmocka_unit_test(zeros_of_both_signs_are_one_text_and_one_descriptor),
        cmocka_unit_test(every_field_changes_the_descriptor),
        cmocka_unit_test(another_familys_descriptor_differs_though_all_fields_are_equal),
        cmocka_unit_test(what_padding_holds_is_not_in_the_descriptor),
        cmocka_unit_test(a_structure_is_checked_like_a_text),
        cmocka_unit_test(a_shorter_structure_is_completed_with_defaults),
        cmocka_unit_test(a_size_that_is_no_size_is_refused),
        cmocka_unit_test(a_longer_structure_is_fine_while_its_new_fields_are_unset),
        cmocka_unit_test(numbers_are_found_by_name),
        cmocka_unit_test(any_text_is_parsed_or_refused_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
