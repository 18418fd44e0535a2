// SPDX-License-Identifier: Apache-2.0
// The element types of a tensor: how a 16-byte vector of them is read, compared and put in order.
//
// Order is an integer, the key: it grows with the value, -0 and +0 share one key, and every NaN (either sign, any
// payload) has the largest. 16-bit types have 16-bit keys in a u32, f32 has 32-bit keys.
//
// Packed is what the maximum of a vector is kept in: two halves of a word for 16-bit types, a float for f32. It may hold
// a NaN, which `reaches` takes for larger than every bound.
#pragma once

#include "device.cuh"

// ---- 32 bits

struct F32 {
    typedef u32 Raw;
    typedef float Packed;
    static constexpr int kPerVector = 4;
    static constexpr u32 kKeyNaN = 0xFFFFFFFFu;
    static constexpr u32 kKeyMinusInfinity = 0x007FFFFFu;
    static constexpr u32 kKeyInfinity = 0xFF800000u;
    static constexpr u32 kKeyZero = 0x80000000u;
    static constexpr u32 kPad = 0xFF800000u; // -inf, as a word

    static QN_DEVICE u32 key(u32 raw)
    {
        u32 key = raw & 0x80000000u ? ~raw : raw | 0x80000000u;
        key = raw == 0x80000000u ? kKeyZero : key;
        return (raw & 0x7FFFFFFFu) > 0x7F800000u ? kKeyNaN : key;
    }
    static QN_DEVICE u32 raw_of_key(u32 key) { return key & 0x80000000u ? key & 0x7FFFFFFFu : ~key; }
    static QN_DEVICE float value(u32 raw) { return __uint_as_float(raw); }

    static QN_DEVICE void unpack(const uint4 &v, float *x) // [4]
    {
        x[0] = __uint_as_float(v.x), x[1] = __uint_as_float(v.y);
        x[2] = __uint_as_float(v.z), x[3] = __uint_as_float(v.w);
    }
    static QN_DEVICE void unpack_raw(const uint4 &v, u32 *raw)
    {
        raw[0] = v.x, raw[1] = v.y, raw[2] = v.z, raw[3] = v.w;
    }

    static QN_DEVICE float larger(float a, float b) { return max_or_nan(a, b); }
    static QN_DEVICE float vector_max(const uint4 &v)
    {
        return larger(larger(__uint_as_float(v.x), __uint_as_float(v.y)),
                      larger(__uint_as_float(v.z), __uint_as_float(v.w)));
    }
    static QN_DEVICE u32 key_of_packed(float m) { return key(__float_as_uint(m)); }
    static QN_DEVICE float value_of_packed(float m) { return m; } // the larger half, where there are two
    static QN_DEVICE float bound(u32 key)
    {
        return __uint_as_float(raw_of_key(key < kKeyMinusInfinity ? kKeyMinusInfinity : key));
    }
    static QN_DEVICE bool reaches(float m, float bound) { return !(m < bound); }
    static QN_DEVICE u32 which_reach(const uint4 &v, float bound) // a bit an element
    {
        return (reaches(__uint_as_float(v.x), bound) ? 1u : 0u) | (reaches(__uint_as_float(v.y), bound) ? 2u : 0u) |
               (reaches(__uint_as_float(v.z), bound) ? 4u : 0u) | (reaches(__uint_as_float(v.w), bound) ? 8u : 0u);
    }
    static QN_DEVICE u32 reaching(const uint4 &v, float bound) // how many; sums of it are what reaching_count takes
    {
        return (reaches(__uint_as_float(v.x), bound) ? 1u : 0u) + (reaches(__uint_as_float(v.y), bound) ? 1u : 0u) +
               (reaches(__uint_as_float(v.z), bound) ? 1u : 0u) + (reaches(__uint_as_float(v.w), bound) ? 1u : 0u);
    }
    static QN_DEVICE u32 reaching_count(u32 sum) { return sum; }
    static QN_DEVICE float packed_minus_infinity() { return __uint_as_float(kPad); }
};

// ---- 16 bits: what bf16 and f16 share. kExponent = the bits of +inf.

template <u32 kExponent> struct Half {
    typedef u16 Raw;
    typedef u32 Packed;
    static constexpr int kPerVector = 8;
    static constexpr u32 kKeyNaN = 0xFFFFu;
    static constexpr u32 kKeyMinusInfinity = 0x7FFFu - kExponent;
    static constexpr u32 kKeyInfinity = 0x8000u | kExponent;
    static constexpr u32 kKeyZero = 0x8000u;
    static constexpr u32 kPad = (0x8000u | kExponent) * 0x10001u;

    static QN_DEVICE u32 key(u32 raw)
    {
        u32 key = raw & 0x8000u ? raw ^ 0xFFFFu : raw | 0x8000u;
        key = raw == 0x8000u ? kKeyZero : key;
        return (raw & 0x7FFFu) > kExponent ? kKeyNaN : key;
    }
    static QN_DEVICE u32 raw_of_key(u32 key) { return key & 0x8000u ? key & 0x7FFFu : key ^ 0xFFFFu; }
    static QN_DEVICE u32 bound(u32 key)
    {
        return raw_of_key(key < kKeyMinusInfinity ? kKeyMinusInfinity : key) * 0x10001u;
    }
    static QN_DEVICE u32 packed_minus_infinity() { return kPad; }

    // A bit an element, of masks of the vector's pairs.
    static QN_DEVICE u32 bits_of_masks(u32 a, u32 b, u32 c, u32 d)
    {
        const u32 bits = (a & 0x20001u) | (b & 0x80004u) | (c & 0x200010u) | (d & 0x800040u);
        return (bits | bits >> 16) & 0xFFu;
    }

    // How many elements a sum of masks stands for, fewer than 2^16: a mask adds 2^16 - 1 for the low half and takes 2^16
    // for the high one, so the sum is (low - high) * 2^16 - low.
    static QN_DEVICE u32 reaching_count(u32 sum)
    {
        const u32 low = (0u - sum) & 0xFFFFu;
        return (2 * low - ((sum + low) >> 16)) & 0xFFFFu;
    }

    static QN_DEVICE void unpack_raw(const uint4 &v, u32 *raw) // [8]
    {
        raw[0] = v.x & 0xFFFFu, raw[1] = v.x >> 16, raw[2] = v.y & 0xFFFFu, raw[3] = v.y >> 16;
        raw[4] = v.z & 0xFFFFu, raw[5] = v.z >> 16, raw[6] = v.w & 0xFFFFu, raw[7] = v.w >> 16;
    }
};

struct BF16 : Half<0x7F80u> {
    static QN_DEVICE float value(u32 raw) { return __uint_as_float(raw << 16); }
    static QN_DEVICE float low(u32 pair) { return __uint_as_float(pair << 16); }
    static QN_DEVICE float high(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }
    static QN_DEVICE void unpack(const uint4 &v, float *x) // [8]
    {
        x[0] = low(v.x), x[1] = high(v.x), x[2] = low(v.y), x[3] = high(v.y);
        x[4] = low(v.z), x[5] = high(v.z), x[6] = low(v.w), x[7] = high(v.w);
    }
    static QN_DEVICE u32 larger(u32 a, u32 b) { return max_or_nan_bf16x2(a, b); }
    static QN_DEVICE u32 key_of_packed(u32 m) { return key(larger(m, m >> 16) & 0xFFFFu); }
    static QN_DEVICE u32 vector_max(const uint4 &v) { return larger(larger(v.x, v.y), larger(v.z, v.w)); }
    static QN_DEVICE bool reaches(u32 m, u32 bound) { return either_not_less_bf16x2(m, bound); }
    static QN_DEVICE u32 which_reach(const uint4 &v, u32 bound)
    {
        return bits_of_masks(not_less_mask_bf16x2(v.x, bound), not_less_mask_bf16x2(v.y, bound),
                             not_less_mask_bf16x2(v.z, bound), not_less_mask_bf16x2(v.w, bound));
    }
    static QN_DEVICE u32 reaching(const uint4 &v, u32 bound) // a sum of masks; add such sums, then reaching_count
    {
        return not_less_mask_bf16x2(v.x, bound) + not_less_mask_bf16x2(v.y, bound) + not_less_mask_bf16x2(v.z, bound) +
               not_less_mask_bf16x2(v.w, bound);
    }
    static QN_DEVICE float value_of_packed(u32 m) { return max_or_nan(low(m), high(m)); }
};

struct F16 : Half<0x7C00u> {
    static QN_DEVICE float value(u32 raw) { return f32_from_f16((u16)raw); }
    static QN_DEVICE void unpack(const uint4 &v, float *x) // [8]
    {
        x[0] = value(v.x & 0xFFFFu), x[1] = value(v.x >> 16), x[2] = value(v.y & 0xFFFFu), x[3] = value(v.y >> 16);
        x[4] = value(v.z & 0xFFFFu), x[5] = value(v.z >> 16), x[6] = value(v.w & 0xFFFFu), x[7] = value(v.w >> 16);
    }
    static QN_DEVICE u32 larger(u32 a, u32 b) { return max_or_nan_f16x2(a, b); }
    static QN_DEVICE u32 key_of_packed(u32 m) { return key(larger(m, m >> 16) & 0xFFFFu); }
    static QN_DEVICE u32 vector_max(const uint4 &v) { return larger(larger(v.x, v.y), larger(v.z, v.w)); }
    static QN_DEVICE bool reaches(u32 m, u32 bound) { return either_not_less_f16x2(m, bound); }
    static QN_DEVICE u32 which_reach(const uint4 &v, u32 bound)
    {
        return bits_of_masks(not_less_mask_f16x2(v.x, bound), not_less_mask_f16x2(v.y, bound),
                             not_less_mask_f16x2(v.z, bound), not_less_mask_f16x2(v.w, bound));
    }
    static QN_DEVICE u32 reaching(const uint4 &v, u32 bound) // a sum of masks; add such sums, then reaching_count
    {
        return not_less_mask_f16x2(v.x, bound) + not_less_mask_f16x2(v.y, bound) + not_less_mask_f16x2(v.z, bound) +
               not_less_mask_f16x2(v.w, bound);
    }
    static QN_DEVICE float value_of_packed(u32 m) { return max_or_nan(value(m & 0xFFFFu), value(m >> 16)); }
};

// By the number that the prologue gives (quern_dtype): 1 f32, 2 f16, 3 bf16.
template <int kDtype> struct ElementOf;
template <> struct ElementOf<1> {
    typedef F32 Type;
};
template <> struct ElementOf<2> {
    typedef F16 Type;
};
template <> struct ElementOf<3> {
    typedef BF16 Type;
};

// ---- candidates: an element as one integer. Larger comes earlier: by key, then by lowest index.

QN_DEVICE u64 candidate(u32 key, u32 index)
{
    return (u64)key << 32 | (u32)~index;
}
QN_DEVICE u32 candidate_key(u64 candidate)
{
    return (u32)(candidate >> 32);
}
QN_DEVICE u32 candidate_index(u64 candidate)
{
    return ~(u32)candidate;
}
