// SPDX-License-Identifier: Apache-2.0
// The host reference of indexer: the hand-checked entry of the manual, the hostile list's literal results, recall on real
// keys (reported); that the judge accepts the reference and refuses what is wrong.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quern/npy.h"
#include "reference/reference.h"
#include "support/hostile_indexer.h"

// quern.h's example: H 2, C 32, nvfp4_heads; element 17 of head 1 is -1.125, element 16 is 0.75.
static void the_manuals_entry_is_addressed_as_it_says(void **state)
{
    (void)state;
    quern_any_spec spec;
    quern_indexer_args args = QUERN_INDEXER_ARGS_INIT;
    uint8_t keys[32] = {0}, scales[4] = {0x38, 0x38, 0x38, 0x3C};
    uint16_t q[2][32] = {{0}};
    float w[2] = {0, 1}, tensor = 0.5f, score;
    int32_t length = 1, index;
    keys[24] = 0xB2;
    assert_int_equal(quern_spec_parse("indexer H=2 C=32 k=1 layout=nvfp4_heads q=bf16 scores=1", &spec), QUERN_OK);
    args.T = 1, args.blocks = 1, args.q = q, args.w = w, args.keys = keys, args.key_scale = scales;
    args.tensor_scale = &tensor, args.length = &length, args.indices = &index, args.scores = &score;
    q[1][16] = qn_f32_to_bf16(1);
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    assert_true(score == 0.75f && index == 0);
    q[1][16] = 0, q[1][17] = qn_f32_to_bf16(-1);
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    assert_true(score == 1.125f);
    q[1][17] = 0, q[0][17] = qn_f32_to_bf16(-1); // another head's bytes are zeros
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    assert_true(score == 0);
}

static bool is_small(const indexer_case *c)
{
    return (c->tags & HOSTILE_MODEL) && c->most * c->T * c->spec.H * c->spec.C < 40000000;
}

static void the_judge_accepts_the_reference(void **state)
{
    (void)state;
    size_t count, judged = 0;
    const indexer_case *cases = indexer_cases(&count);
    qn_text report = QN_TEXT_INIT;
    for (size_t i = 0; i < count; i++) {
        indexer_data data;
        if (!is_small(&cases[i])) continue;
        assert_true(indexer_data_make(&cases[i], &data));
        assert_int_equal(quern_reference(&cases[i].spec.base, &data.args.base), QUERN_OK);
        if (indexer_check_case(&data, &report)) fail_msg("%s", qn_text_string(&report));
        indexer_data_free(&data);
        judged++;
    }
    qn_text_fini(&report);
    assert_true(judged > 50);
    print_message("%zu cases\n", judged);
}

static const indexer_case *find(const char *name)
{
    size_t count;
    const indexer_case *cases = indexer_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, name) == 0) return &cases[i];
    fail_msg("no case %s", name);
    return NULL;
}

static void expect_refused(indexer_data *data, const char *why)
{
    qn_text report = QN_TEXT_INIT;
    if (indexer_check_case(data, &report) == 0) fail_msg("the judge accepts: %s", why);
    qn_text_fini(&report);
    assert_int_equal(quern_reference(&data->c->spec.base, &data->args.base), QUERN_OK); // whole again
}

static void the_judge_refuses_what_is_wrong(void **state)
{
    (void)state;
    indexer_data data;
    assert_true(indexer_data_make(find("b1_normal"), &data));
    assert_int_equal(quern_reference(&data.c->spec.base, &data.args.base), QUERN_OK);
    int32_t *index = data.args.indices;
    float *score = data.args.scores;
    index[3] = index[2];
    expect_refused(&data, "an index twice");
    index[3] = (int32_t)data.c->most;
    expect_refused(&data, "an index past the row");
    int32_t kept = index[4];
    index[4] = index[5], index[5] = kept;
    expect_refused(&data, "two winners exchanged");
    score[7] *= 1.01f;
    expect_refused(&data, "a score");
    index[data.c->spec.k + data.c->padding] = 0; // row 1 is empty
    expect_refused(&data, "no padding");
    data.buffer[INDEXER_INDICES].bytes[0] ^= 1;
    expect_refused(&data, "a byte before the tensor");
    indexer_data_free(&data);
    assert_true(indexer_data_make(find("fr12_a_1"), &data)); // ties
    assert_int_equal(quern_reference(&data.c->spec.base, &data.args.base), QUERN_OK);
    data.args.indices[2047] = 5000; // as good a zero, but not the lowest
    expect_refused(&data, "a tie that is not the lowest");
    indexer_data_free(&data);
}

// ---- real keys: three heads of a small model's attention, two of them side by side

enum { ENTRIES = 512, WIDE = 128, TOP = 64 };

static npy_array load(const char *name)
{
    char path[512];
    npy_array array;
    const char *root = getenv("QUERN_TEST_SOURCE");
    snprintf(path, sizeof path, "%s/tests/data/%s", root ? root : ".", name);
    if (npy_read(path, &array) != QUERN_OK) fail_msg("%s", quern_message());
    return array;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void recall_of_real_keys_is_reported(void **state)
{
    (void)state;
    static float keys[ENTRIES * WIDE], back[ENTRIES * WIDE];
    static const char *const names[] = {"nvfp4_heads", "mxfp4_shared", "fp8_shared"};
    npy_array k = load("attn_k_512x3x64.bf16.npy"), q = load("attn_q_512x9x64.bf16.npy");
    for (int e = 0; e < ENTRIES; e++)
        for (int c = 0; c < WIDE; c++) keys[e * WIDE + c] = qn_bf16_to_f32(((const uint16_t *)k.data)[e * 192 + c]);
    for (int layout = 0; layout < 3; layout++) {
        static uint8_t value[ENTRIES * WIDE], scale[ENTRIES * WIDE];
        float tensor = 0;
        int kept = 0, all = 0;
        assert_int_equal(quern_pack((quern_indexer_layout)layout, keys, ENTRIES, WIDE, value, scale, &tensor),
                         QUERN_OK);
        assert_int_equal(quern_unpack((quern_indexer_layout)layout, value, scale, &tensor, ENTRIES, WIDE, back),
                         QUERN_OK);
        for (int t = 256; t < ENTRIES; t += 16) {
            float exact[ENTRIES], packed[ENTRIES], order[ENTRIES], order_packed[ENTRIES];
            for (int e = 0; e < t; e++) {
                exact[e] = packed[e] = 0;
                for (int h = 0; h < 4; h++) { // queries of heads 2h and 2h + 1 side by side
                    float dot = 0, dot_packed = 0;
                    for (int c = 0; c < WIDE; c++) {
                        float x = qn_bf16_to_f32(((const uint16_t *)q.data)[t * 576 + h * WIDE + c]);
                        dot += x * keys[e * WIDE + c], dot_packed += x * back[e * WIDE + c];
                    }
                    exact[e] += fmaxf(dot, 0), packed[e] += fmaxf(dot_packed, 0);
                }
            }
            memcpy(order, exact, sizeof order), memcpy(order_packed, packed, sizeof order_packed);
            qsort(order, (size_t)t, 4, compare_floats), qsort(order_packed, (size_t)t, 4, compare_floats);
            for (int e = 0; e < t; e++) kept += exact[e] >= order[TOP - 1] && packed[e] >= order_packed[TOP - 1];
            all += TOP;
        }
        print_message("%s: %.1f %% of the %d best of 256 to 496 entries are kept\n", names[layout], 100.0 * kept / all,
                      TOP);
    }
    npy_fini(&k);
    npy_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_manuals_entry_is_addressed_as_it_says),
        cmocka_unit_test(the_judge_accepts_the_reference),
        cmocka_unit_test(the_judge_refuses_what_is_wrong),
        cmocka_unit_test(recall_of_real_keys_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
