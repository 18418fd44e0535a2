// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/narrow.cuh.
#pragma once
#include "convert.h"
#include "device.h"

static inline unsigned permute_bytes(unsigned a, unsigned b, unsigned selector)
{
    return __byte_perm(a, b, selector);
}

static inline int dot_s8x4(unsigned a, unsigned b, int c)
{
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 4; i++)
        sum += (unsigned)((int)(signed char)(a >> 8 * i & 0xFFu) * (int)(signed char)(b >> 8 * i & 0xFFu));
    return (int)sum;
}

static inline unsigned multiply_f16x2(unsigned a, unsigned b)
{
    float low = qm::half_value((unsigned short)a) * qm::half_value((unsigned short)b);
    float high = qm::half_value((unsigned short)(a >> 16)) * qm::half_value((unsigned short)(b >> 16));
    return pack_f16x2(low, high); // the product of two f16 is exact in f32
}
static inline unsigned multiply_bf16x2(unsigned a, unsigned b)
{
    return pack_bf16x2(qm::bf16_value(a) * qm::bf16_value(b), qm::bf16_value(a >> 16) * qm::bf16_value(b >> 16));
}

static inline unsigned f16x2_of_e4m3x2(unsigned pair)
{
    float value[2];
    for (int i = 0; i < 2; i++) {
        unsigned byte = pair >> 8 * i & 0xFFu;
        float size = qm::unbits<float>((byte & 0x7Fu) << 20) * 0x1p120f; // exponent and fraction, another bias
        value[i] = (byte & 0x7Fu) == 0x7Fu ? __builtin_nanf("") : byte & 0x80u ? -size : size;
    }
    return pack_f16x2(value[0], value[1]);
}
