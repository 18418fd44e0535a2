// SPDX-License-Identifier: Apache-2.0
// src/reference/numbers.c: every 16-bit pattern, and the roundings at every boundary between two of them.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "reference/reference.h"

typedef struct format {
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
    int exponent_bits, fraction_bits, bias;
} format;
static const format f16 = {qn_f16_to_f32, qn_f32_to_f16, 5, 10, 15}, bf16 = {qn_bf16_to_f32, qn_f32_to_bf16, 8, 7, 127};

// The value by the definition of the format: (-1)^s · 2^(e - bias) · 1.f, in f64.
static double defined(const format *t, uint16_t bits)
{
    int exponent = bits >> t->fraction_bits & ((1 << t->exponent_bits) - 1),
        fraction = bits & ((1 << t->fraction_bits) - 1);
    double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == (1 << t->exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - t->bias - t->fraction_bits);
    return sign * ldexp(fraction + (1 << t->fraction_bits), exponent - t->bias - t->fraction_bits);
}

static void every_pattern_is_widened_by_definition_and_comes_back(void **state)
{
    const format *t = *state;
    for (uint32_t bits = 0; bits <= 0xFFFF; bits++) {
        double want = defined(t, (uint16_t)bits);
        float got = t->widen((uint16_t)bits);
        uint16_t back = t->narrow(got);
        if (isnan(want)) {
            assert_true(isnan(got));
            assert_true(isnan(t->widen(back)));
            assert_int_equal(back & 0x8000, bits & 0x8000);
        } else {
            assert_true((double)got == want && !!signbit(got) == !!signbit(want));
            assert_int_equal(back, bits);
        }
    }
}

static void what_lies_between_goes_to_the_nearer_and_ties_to_even(void **state)
{
    const format *t = *state;
    uint16_t infinity = (uint16_t)(((1 << t->exponent_bits) - 1) << t->fraction_bits);
    for (uint16_t low = 0; low < infinity; low++) {
        // The middle between the last finite number and infinity is where the next step would have been halved.
        double a = defined(t, low), step = low + 1 == infinity ? a - defined(t, low - 1) : defined(t, low + 1) - a;
        float middle = (float)(a + step / 2);
        for (int sign = 0; sign < 2; sign++) {
            uint16_t s = sign ? 0x8000 : 0, high = low + 1;
            float m = sign ? -middle : middle;
            assert_int_equal(t->narrow(m), s | (low & 1 ? high : low));
            assert_int_equal(t->narrow(nextafterf(m, 0.0f)), s | low);
            assert_int_equal(t->narrow(nextafterf(m, sign ? -INFINITY : INFINITY)), s | high);
        }
    }
}

static void a_nan_whose_payload_is_low_stays_a_nan(void **state)
{
    const format *t = *state;
    const uint32_t patterns[] = {0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F801000};
    for (size_t i = 0; i < QN_COUNT(patterns); i++) {
        float x;
        memcpy(&x, &patterns[i], sizeof x);
        uint16_t bits = t->narrow(x);
        assert_true(isnan(t->widen(bits)));
        assert_int_equal(bits & 0x8000, patterns[i] >> 16 & 0x8000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"f16: every pattern is widened by definition and comes back",
         every_pattern_is_widened_by_definition_and_comes_back, NULL, NULL, (void *)&f16},
        {"bf16: every pattern is widened by definition and comes back",
         every_pattern_is_widened_by_definition_and_comes_back, NULL, NULL, (void *)&bf16},
        {"f16: what lies between goes to the nearer and ties to even",
         what_lies_between_goes_to_the_nearer_and_ties_to_even, NULL, NULL, (void *)&f16},
        {"bf16: what lies between goes to the nearer and ties to even",
         what_lies_between_goes_to_the_nearer_and_ties_to_even, NULL, NULL, (void *)&bf16},
        {"f16: a NaN whose payload is low stays a NaN", a_nan_whose_payload_is_low_stays_a_nan, NULL, NULL,
         (void *)&f16},
        {"bf16: a NaN whose payload is low stays a NaN", a_nan_whose_payload_is_low_stays_a_nan, NULL, NULL,
         (void *)&bf16},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
