// SPDX-License-Identifier: Apache-2.0
// The model's bodies of common/convert.cuh.
#pragma once
#include "engine.h"

namespace qm {

static inline u32 bf16_of(float x)
{
    u32 b = unbits<u32>(bits(x));
    if ((b & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFFu;
    return (b + 0x7FFFu + (b >> 16 & 1u)) >> 16;
}

static inline u32 f16_of(float x)
{
    u32 b = unbits<u32>(bits(x)), sign = b >> 16 & 0x8000u, magnitude = b & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return 0x7FFFu;
    if (magnitude >= 0x477FF000u) return sign | 0x7C00u;
    // Subnormal results are units of 2^-24, normal ones have 10 bits of fraction: cut, with ties to even.
    bool small = magnitude < 0x38800000u;
    u32 shift = small ? 126u - (magnitude >> 23) : 13u;
    u32 value = small ? (magnitude & 0x7FFFFFu) | 0x800000u : magnitude - (112u << 23);
    if (shift > 25u) return sign;
    u32 kept = value >> shift, rest = value & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    return sign | (kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u));
}

} // namespace qm

static inline float whole_above(float x)
{
    return __builtin_ceilf(x);
}
static inline unsigned pack_bf16x2(float low, float high)
{
    return qm::bf16_of(low) | qm::bf16_of(high) << 16;
}
static inline unsigned pack_f16x2(float low, float high)
{
    return qm::f16_of(low) | qm::f16_of(high) << 16;
}
