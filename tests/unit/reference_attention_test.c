// SPDX-License-Identifier: Apache-2.0
// attention's host reference: literal results, the hostile cases judged by the checker that judges the kernels (which
// computes anew), activations of a real language model, and the paired set itself.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "support/attention_real.h"
#include "support/check_attention.h"

static uint16_t bf16(float x)
{
    return qn_f32_to_bf16(x);
}

// ---- literal results

enum { D = 8 };

// Two keys, one query: scores s0 and s1, values 1 and 2.
static void two_keys(const char *text, float s0, float s1, float sink, float *out, float *lse)
{
    quern_any_spec spec;
    if (quern_spec_parse(text, &spec) != QUERN_OK) fail_msg("'%s': %s", text, quern_message());
    quern_attention_args args = QUERN_ATTENTION_ARGS_INIT;
    uint16_t q[D] = {bf16(1)}, k[2 * D] = {bf16(s0)}, v[2 * D] = {bf16(1)}, o[D];
    k[D] = bf16(s1), v[D] = bf16(2);
    args.B = 1, args.Sq = 1, args.Sk = 2, args.Hq = 1, args.Hkv = 1;
    args.q = q, args.k = k, args.v = v, args.sink = &sink, args.out = o, args.lse = lse;
    if (quern_reference(&spec.base, &args.base) != QUERN_OK) fail_msg("'%s': %s", text, quern_message());
    *out = qn_bf16_to_f32(o[0]);
}

static void two_keys_give_what_is_worked_out_by_hand(void **state)
{
    float out, lse;
    (void)state;
    two_keys("attention d=8 scale=1 lse=1", 0, 0, 0, &out, &lse);
    assert_float_equal(out, 1.5, 0);
    assert_float_equal(lse, 0.69314718, 1e-7);
    two_keys("attention d=8 scale=2 lse=1", 1, 0, 0, &out, &lse); // e^2 / (e^2 + 1)
    assert_float_equal(out, 1.1192029, 0.004);
    assert_float_equal(lse, 2.1269280, 1e-6);
    two_keys("attention d=8 scale=1 sink=1 lse=1", 0, 0, 0, &out, &lse); // the sink takes a third
    assert_float_equal(out, 1, 0.004);
    assert_float_equal(lse, 0.69314718, 1e-7);
    two_keys("attention d=8 scale=-1 lse=1", 100, 0, 0, &out, &lse);
    assert_float_equal(out, 2, 0);
    two_keys("attention d=8 scale=1 softcap=1 lse=1", 1e6f, 0, 0, &out, &lse); // a cap of 1: e / (e + 1)
    assert_float_equal(lse, 1.3132617, 1e-6);
    two_keys("attention d=8 scale=1 window_left=0 lse=1", 5, 3, 0, &out, &lse); // the query's position is 1
    assert_float_equal(out, 2, 0);
    assert_float_equal(lse, 3, 0);
    two_keys("attention d=8 scale=1 lse=1", -INFINITY, -INFINITY, 0, &out, &lse);
    assert_true(isnan(out) && lse == -INFINITY);
    two_keys("attention d=8 scale=1 sink=1 lse=1", -INFINITY, -INFINITY, 0, &out, &lse);
    assert_true(out == 0 && lse == -INFINITY);
}

static void rows_that_see_nothing_are_zero_whatever_the_sink(void **state)
{
    (void)state;
    quern_any_spec spec;
    quern_attention_args args = QUERN_ATTENTION_ARGS_INIT;
    uint16_t q[3 * D] = {0}, k[D] = {0}, v[D] = {bf16(7)}, out[3 * D];
    float lse[3], sink = 5;
    memset(out, 0xFF, sizeof out), memset(lse, 0xFF, sizeof lse);
    assert_int_equal(quern_spec_parse("attention d=8 causal=1 sink=1 lse=1", &spec), QUERN_OK);
    args.B = 1, args.Sq = 3, args.Sk = 1, args.Hq = 1, args.Hkv = 1;
    args.q = q, args.k = k, args.v = v, args.sink = &sink, args.out = out, args.lse = lse;
    assert_int_equal(quern_reference(&spec.base, &args.base), QUERN_OK);
    for (int i = 0; i < 2 * D; i++) assert_int_equal(out[i], 0); // +0
    assert_true(lse[0] == -INFINITY && lse[1] == -INFINITY && lse[2] == 0);
    assert_true(qn_bf16_to_f32(out[2 * D]) > 0.04f && qn_bf16_to_f32(out[2 * D]) < 0.05f); // 7 / (1 + e^5)
}

// ---- hostile cases

static void every_hostile_case_passes_the_judge(void **state)
{
    (void)state;
    static const uint16_t poison = 0x7FFF;
    size_t count, judged = 0;
    qn_text report = QN_TEXT_INIT;
    const attention_case *cases = attention_cases(&count);
    for (size_t i = 0; i < count; i++) {
        attention_data data;
        if (!attention_wanted(&cases[i], HOSTILE_MODEL)) continue; // the large ones take long
        assert_true(attention_data_make(&cases[i], poison, &data));
        if (quern_reference(&cases[i].spec.base, &data.args.base) != QUERN_OK)
            fail_msg("%s '%s': %s", cases[i].name, cases[i].text, quern_message());
        if (attention_check_case(&data, &report)) fail_msg("%s", qn_text_string(&report));
        attention_data_free(&data);
        judged++;
    }
    print_message("%zu cases, %zu judged\n", count, judged);
    qn_text_fini(&report);
}

// A judge that lets everything pass is none: each of these is found.
static void the_judge_finds_planted_errors(void **state)
{
    (void)state;
    size_t count;
    qn_text report = QN_TEXT_INIT;
    const attention_case *cases = attention_cases(&count), *c = NULL;
    for (size_t i = 0; i < count; i++)
        if (!strcmp(cases[i].name, "window_both")) c = &cases[i];
    assert_non_null(c);
    for (int fault = 0; fault < 4; fault++) {
        attention_data data;
        assert_true(attention_data_make(c, 0, &data));
        assert_int_equal(quern_reference(&c->spec.base, &data.args.base), QUERN_OK);
        uint16_t *out = data.args.out;
        int64_t row = attention_row_of_query(c, ATTENTION_OUT, 0, 20, 1);
        if (fault == 0) out[row + 5] = bf16(qn_bf16_to_f32(out[row + 5]) + 0.05f);
        if (fault == 1) data.args.lse[41] += 1e-4f;
        if (fault == 2) data.buffer[ATTENTION_OUT].bytes[3] = 0;
        if (fault == 3) // every element an ulp too large: within each one's bound, not within all of theirs
            for (int64_t i = 0; i < 50 * 2 * 64; i++) out[i] = (uint16_t)(out[i] + 2);
        if (!attention_check_case(&data, &report)) fail_msg("planted error %d was not found", fault);
        qn_text_clear(&report);
        attention_data_free(&data);
    }
    qn_text_fini(&report);
}

// ---- the tolerance of lse: one key, so that lse is the score

// f32 sums of products whose magnitudes add up to about `excess` times their sum.
static void one_score(int d, float size, float excess, float *f32, double *f64)
{
    *f32 = 0, *f64 = 0;
    for (int i = 0; i < d; i++) {
        float sign = (float)i < (float)d * (excess - 1) / (2 * excess) ? -1.0f : 1.0f;
        float spread = ldexpf(1, i * 5 % 13 - 6); // so that f32 has to round
        float q = sign * size * spread * (1 + (float)(i * 37 % 41) / 64), k = size * (1 + (float)(i * 29 % 31) / 64);
        q = qn_bf16_to_f32(bf16(q)), k = qn_bf16_to_f32(bf16(k));
        *f32 += q * k;
        *f64 += (double)q * k;
    }
}

static void the_tolerance_of_lse_grows_with_the_scores(void **state)
{
    (void)state;
    quern_any_spec spec;
    const qn_tensor *lse = NULL;
    int beyond_four_ulp = 0;
    for (size_t i = 0; i < qn_family_attention.tensor_count; i++)
        if (!strcmp(qn_family_attention.tensors[i].name, "lse")) lse = &qn_family_attention.tensors[i];
    assert_non_null(lse);
    for (int d = 64; d <= 512; d *= 2) {
        char text[64];
        snprintf(text, sizeof text, "attention d=%d lse=1", d);
        assert_int_equal(quern_spec_parse(text, &spec), QUERN_OK);
        for (float size = 0.25f; size < 1e4f; size *= 3) {
            float f32;
            double f64;
            one_score(d, size, 4, &f32, &f64);
            double allowed = qn_tolerance_attention(&spec.base, lse, f64), off = fabs((double)f32 - f64);
            assert_true(off <= allowed);
            beyond_four_ulp += off > 2e-5 + fabs(f64) * 0x1p-21;
            assert_true(allowed <= fmax(3e-5, 3e-5 * fabs(f64))); // a wrong digit in the fifth place is found
        }
    }
    assert_true(beyond_four_ulp > 0);                                 // what a bound without the products would refuse
    assert_true(qn_tolerance_attention(&spec.base, lse, 0) < 2.1e-5); // ordinary scores: as close as ever
}

// ---- a real language model's activations: bit for bit, both being f64 rounded once

static void real_activations_give_the_expected_output(void **state)
{
    (void)state;
    attention_real r;
    attention_real_make(&r);
    if (quern_reference(&r.spec.base, &r.args.base) != QUERN_OK) fail_msg("%s", quern_message());
    for (int i = 0; i < ATTENTION_REAL_TOKENS * ATTENTION_REAL_HEADS * ATTENTION_REAL_DIM; i++)
        assert_int_equal(r.out[i], bf16(((float *)r.want.data)[i]));
    for (int i = 0; i < ATTENTION_REAL_TOKENS * ATTENTION_REAL_HEADS; i++)
        assert_true(fabs((double)r.lse[i] - ((float *)r.want_lse.data)[i]) <= 2e-7 * fabs((double)r.lse[i]) + 1e-7);
    attention_real_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_keys_give_what_is_worked_out_by_hand),
        cmocka_unit_test(rows_that_see_nothing_are_zero_whatever_the_sink),
        cmocka_unit_test(every_hostile_case_passes_the_judge),
        cmocka_unit_test(the_judge_finds_planted_errors),
        cmocka_unit_test(the_tolerance_of_lse_grows_with_the_scores),
        cmocka_unit_test(real_activations_give_the_expected_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
