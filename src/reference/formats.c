// SPDX-License-Identifier: Apache-2.0
// FP4 and FP8 codes (formats.h).
#include "reference/formats.h"

#include <math.h>

static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

float qn_e2m1_to_f32(unsigned code)
{
    float size = (float)e2m1[code & 7];
    return code & 8 ? -size : size;
}

double qn_e2m1_at(const uint8_t *bytes, int64_t element)
{
    return qn_e2m1_to_f32((unsigned)(bytes[element / 2] >> 4 * (element & 1)) & 15);
}

static double e4m3_size(unsigned code) // of the low seven bits, not NaN
{
    unsigned exponent = code >> 3 & 15, fraction = code & 7;
    return exponent ? ldexp(8 + fraction, (int)exponent - 10) : ldexp(fraction, -9);
}

float qn_e4m3_to_f32(uint8_t code)
{
    if ((code & 0x7F) == 0x7F) return NAN;
    float size = (float)e4m3_size(code & 0x7F);
    return code & 0x80 ? -size : size;
}

double qn_ue8m0_to_f64(uint8_t code)
{
    return code == 255 ? NAN : ldexp(1, (int)code - 127);
}

unsigned qn_f64_to_e2m1(double x)
{
    double size = fabs(x);
    unsigned code = 0;
    while (code < 7) { // the middle between two codes goes to the even one
        double middle = (e2m1[code] + e2m1[code + 1]) / 2;
        if (size < middle || (size == middle && code % 2 == 0)) break;
        code++;
    }
    return code | (signbit(x) ? 8u : 0u);
}

uint8_t qn_f64_to_e4m3(double x)
{
    double size = fabs(x);
    unsigned low = 0, high = 0x7E; // the last code not above size
    while (low < high) {
        unsigned middle = (low + high + 1) / 2;
        if (e4m3_size(middle) <= size)
            low = middle;
        else
            high = middle - 1;
    }
    if (low < 0x7E) {
        double middle = (e4m3_size(low) + e4m3_size(low + 1)) / 2;
        if (size > middle || (size == middle && low % 2 == 1)) low++;
    }
    return (uint8_t)(low | (signbit(x) ? 0x80u : 0u));
}
