// SPDX-License-Identifier: Apache-2.0
// Packing index keys: all codes with all scale bytes, exactly; rounding to nearest even at every midpoint; the scale rules;
// what has no code is refused with its place.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quern/quern.h"
#include "reference/formats.h"

static const double e2m1[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6};

// E4M3 by its definition, apart from the library's own.
static double e4m3(unsigned code)
{
    double size = code >> 3 & 15 ? ldexp(1 + (code & 7) / 8.0, (int)(code >> 3 & 15) - 7) : ldexp((code & 7) / 8.0, -6);
    if ((code & 127) == 127) return NAN;
    return code & 128 ? -size : size;
}

static void assert_same(float got, double want)
{
    float single = (float)want;
    if (isnan(want) ? !isnan(got) : memcmp(&got, &single, 4) != 0) fail_msg("%.9g, must be %.9g", (double)got, want);
}

static void every_code_with_every_scale_byte_unpacks_exactly(void **state)
{
    (void)state;
    uint8_t value[16], scale[2];
    float x[32], tensor = 0.375f;
    for (int i = 0; i < 16; i++) value[i] = (uint8_t)(i | ((i * 7 + 3) & 15) << 4);
    for (int byte = 0; byte < 256; byte++) {
        double ue8m0 = byte == 255 ? NAN : ldexp(1, byte - 127);
        scale[0] = scale[1] = (uint8_t)byte;
        assert_int_equal(quern_unpack(QUERN_INDEXER_MXFP4_SHARED, value, scale, NULL, 1, 32, x), QUERN_OK);
        for (int i = 0; i < 32; i++) assert_same(x[i], e2m1[value[i / 2] >> 4 * (i & 1) & 15] * ue8m0);
        assert_int_equal(quern_unpack(QUERN_INDEXER_NVFP4_HEADS, value, scale, &tensor, 1, 32, x), QUERN_OK);
        for (int i = 0; i < 32; i++)
            assert_same(x[i], e2m1[value[i / 2] >> 4 * (i & 1) & 15] * e4m3((unsigned)byte) * 0.375);
    }
}

static void every_e4m3_code_unpacks_exactly(void **state)
{
    (void)state;
    uint8_t value[256];
    float x[256], scale = 3.25f;
    for (int i = 0; i < 256; i++) value[i] = (uint8_t)i;
    assert_int_equal(quern_unpack(QUERN_INDEXER_FP8_SHARED, value, &scale, NULL, 1, 256, x), QUERN_OK);
    for (int i = 0; i < 256; i++) assert_same(x[i], e4m3((unsigned)i) * 3.25);
}

// What every code and scale stand for packs to numbers that unpack the same, wherever the scale rule gives that scale.
static void numbers_that_codes_stand_for_pack_without_loss(void **state)
{
    (void)state;
    for (int byte = 1; byte < 254; byte++) {
        float x[32], again[32];
        uint8_t value[16], scale[1];
        for (int i = 0; i < 32; i++) x[i] = (float)ldexp(e2m1[i & 15], byte - 127);
        if (isinf(x[7])) continue;
        assert_int_equal(quern_pack(QUERN_INDEXER_MXFP4_SHARED, x, 1, 32, value, scale, NULL), QUERN_OK);
        assert_int_equal(scale[0], byte);
        assert_int_equal(quern_unpack(QUERN_INDEXER_MXFP4_SHARED, value, scale, NULL, 1, 32, again), QUERN_OK);
        assert_memory_equal(x, again, sizeof x);
    }
    for (int byte = 1; byte < 127; byte++) {
        float x[32], again[32], tensor = 0x1p-5f;
        uint8_t value[16], scale[2];
        for (int i = 0; i < 32; i++) x[i] = (float)(e2m1[i & 15] * e4m3((unsigned)byte)) * tensor;
        assert_int_equal(quern_pack(QUERN_INDEXER_NVFP4_HEADS, x, 1, 32, value, scale, &tensor), QUERN_OK);
        assert_int_equal(scale[0], byte);
        assert_int_equal(quern_unpack(QUERN_INDEXER_NVFP4_HEADS, value, scale, &tensor, 1, 32, again), QUERN_OK);
        assert_memory_equal(x, again, sizeof x);
    }
}

static void midpoints_go_to_the_even_code(void **state)
{
    (void)state;
    static const double middle[7] = {.25, .75, 1.25, 1.75, 2.5, 3.5, 5};
    for (int i = 0; i < 7; i++) {
        unsigned even = (unsigned)(i % 2 ? i + 1 : i);
        assert_int_equal(qn_f64_to_e2m1(middle[i]), even);
        assert_int_equal(qn_f64_to_e2m1(-middle[i]), even | 8);
        assert_int_equal(qn_f64_to_e2m1(nextafter(middle[i], 9)), i + 1);
        assert_int_equal(qn_f64_to_e2m1(nextafter(middle[i], 0)), i);
    }
    for (unsigned code = 0; code < 126; code++) {
        double half = (e4m3(code) + e4m3(code + 1)) / 2;
        assert_int_equal(qn_f64_to_e4m3(half), code % 2 ? code + 1 : code);
        assert_int_equal(qn_f64_to_e4m3(nextafter(half, 1e9)), code + 1);
        assert_int_equal(qn_f64_to_e4m3(-nextafter(half, 0)), code | 128);
    }
    assert_int_equal(qn_f64_to_e2m1(1e300), 7);
    assert_int_equal(qn_f64_to_e4m3(-1e300), 0xFE);
    assert_int_equal(qn_f64_to_e2m1(-0.0), 8);
}

static void scales_follow_their_rules(void **state)
{
    (void)state;
    float x[64] = {0}, tensor = 0, row = 0;
    uint8_t value[64], scale[4];
    assert_int_equal(quern_pack(QUERN_INDEXER_MXFP4_SHARED, x, 2, 32, value, scale, NULL), QUERN_OK);
    assert_int_equal(scale[0], 1); // zeros: 2^-126
    assert_int_equal(value[0], 0);
    x[5] = 6, x[40] = 6.0000005f;
    assert_int_equal(quern_pack(QUERN_INDEXER_MXFP4_SHARED, x, 2, 32, value, scale, NULL), QUERN_OK);
    assert_int_equal(scale[0], 127); // 6 fits, a little more does not
    assert_int_equal(scale[1], 128);
    x[5] = 3.4e38f, x[40] = 1e-45f;
    assert_int_equal(quern_pack(QUERN_INDEXER_MXFP4_SHARED, x, 2, 32, value, scale, NULL), QUERN_OK);
    assert_int_equal(scale[0], 253);
    assert_int_equal(scale[1], 1);
    x[5] = 2688, x[40] = 6;
    assert_int_equal(quern_pack(QUERN_INDEXER_NVFP4_HEADS, x, 1, 64, value, scale, &tensor), QUERN_OK);
    assert_true(tensor == 1);
    assert_int_equal(scale[0], 0x7E); // 448
    assert_int_equal(scale[1], 1);    // zeros: the least
    assert_int_equal(scale[2], 0x38); // 1
    assert_int_equal(quern_pack(QUERN_INDEXER_FP8_SHARED, x, 1, 64, value, &row, NULL), QUERN_OK);
    assert_true(row == 6);
    assert_int_equal(value[5], 0x7E);
    assert_int_equal(value[40], 0x38);
}

static void what_has_no_code_is_refused(void **state)
{
    (void)state;
    float x[64] = {0}, tensor = -1;
    uint8_t value[64], scale[4];
    x[37] = NAN;
    assert_int_equal(quern_pack(QUERN_INDEXER_MXFP4_SHARED, x, 2, 32, value, scale, NULL), QUERN_BAD_VALUE);
    assert_non_null(strstr(quern_message(), "x[1, 5]"));
    x[37] = INFINITY;
    assert_int_equal(quern_pack(QUERN_INDEXER_FP8_SHARED, x, 1, 64, value, scale, NULL), QUERN_BAD_VALUE);
    x[37] = 1;
    assert_int_equal(quern_pack(QUERN_INDEXER_NVFP4_HEADS, x, 1, 64, value, scale, &tensor), QUERN_BAD_VALUE);
    assert_int_equal(quern_pack(QUERN_INDEXER_NVFP4_HEADS, x, 1, 64, value, scale, NULL), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_pack(QUERN_INDEXER_MXFP4_SHARED, x, 1, 33, value, scale, NULL), QUERN_BAD_SIZE);
    assert_int_equal(quern_pack((quern_indexer_layout)9, x, 1, 32, value, scale, NULL), QUERN_BAD_ARGUMENT);
    assert_int_equal(quern_pack(QUERN_INDEXER_MXFP4_SHARED, NULL, 1, 32, value, scale, NULL), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_pack(QUERN_INDEXER_MXFP4_SHARED, NULL, 0, 32, NULL, NULL, NULL), QUERN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_with_every_scale_byte_unpacks_exactly),
        cmocka_unit_test(every_e4m3_code_unpacks_exactly),
        cmocka_unit_test(numbers_that_codes_stand_for_pack_without_loss),
        cmocka_unit_test(midpoints_go_to_the_even_code),
        cmocka_unit_test(scales_follow_their_rules),
        cmocka_unit_test(what_has_no_code_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
