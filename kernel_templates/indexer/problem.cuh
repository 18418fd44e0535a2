// SPDX-License-Identifier: Apache-2.0
// The case this kernel is made for: names for what the prologue's constants say; a row of queries and its sequence; where
// an entry's bytes are; scores as integers in order.
//
// Prologue: H, C, K, LAYOUT (0 nvfp4_heads, 1 mxfp4_shared, 2 fp8_shared), Q (0 bf16, 1 f16, 2 fp8, 3 mxfp4), PAGE (0:
// contiguous), EPB, BLOCKS (1: a result is a block of EPB entries), SCORES, ROW_SEQ, CU_KEYS (0, 1) and the plan's own.
//
// Bytes of an entry: nvfp4_heads: head h at h * C / 2, its scales at h * C / 16. mxfp4_shared: C / 2 and C / 32.
// fp8_shared: C and an f32. A page of a shared layout holds the values of all its entries, then their scales. The even
// element of two in a byte is in the low nibble.
//
// Who holds what: a warp takes a tile of 16 or 32 entries, its rows. Lane 4g + q has the rows g, g + 8, …, and of each the
// elements q * C / 4 up to (q + 1) * C / 4, in units of 8. The contraction may run in any order, so q is laid out the same way.
#pragma once

#include "../common/convert.cuh"
#include "../common/elements.cuh"
#include "../common/narrow.cuh"
#include "../common/numbers.cuh"
#include "../common/warp.cuh"
#include "args.h"

enum { kNvfp4Heads, kMxfp4Shared, kFp8Shared };
enum { kQBf16, kQF16, kQFp8, kQMxfp4 };

static_assert(H >= 1 && H <= 128, "H: 1 to 128");
static_assert(C >= 32 && C <= 256 && C % 32 == 0, "C: 32 to 256 in steps of 32");
static_assert(K >= 1 && K <= 2048, "K: 1 to 2048");
static_assert(LAYOUT >= 0 && LAYOUT <= 2 && Q >= 0 && Q <= 3, "LAYOUT 0 to 2, Q 0 to 3");
static_assert(PAGE >= 0 && PAGE % 8 == 0, "PAGE: a multiple of 8");
static_assert(EPB >= 1 && EPB <= 1024, "EPB: 1 to 1024");

constexpr bool kHeads = LAYOUT == kNvfp4Heads; // each head has its own keys
constexpr bool kFp4 = LAYOUT != kFp8Shared;
constexpr bool kInteger = LAYOUT == kMxfp4Shared && Q == kQMxfp4; // products of integers
constexpr bool kF16 = Q == kQF16 || Q == kQFp8;                   // else bf16, where not integers
constexpr u32 kHeadCount = H;
constexpr u32 kUnits = C / 32;                        // of 8 elements a lane and row
constexpr u32 kRawWords = kFp4 ? kUnits : 2 * kUnits; // of values a lane, row and step
constexpr u32 kGroups = C / 32;                       // scales an entry, mxfp4
constexpr u32 kScaleWords = LAYOUT == kFp8Shared ? 1 : (kGroups + 3) / 4;
constexpr u32 kValueBytes = kHeads ? H * C / 2 : kFp4 ? C / 2 : C;
constexpr u32 kScaleBytes = kHeads ? H * C / 16 : LAYOUT == kMxfp4Shared ? C / 32 : 4;
constexpr u32 kSteps = kInteger ? kUnits : 2 * kUnits; // of the contraction: 32 or 16 elements
constexpr u32 kMatrices =
    C <= 128 ? 2 : 1;                 // of 16 rows that a warp takes at a time: those of a step share q's fragments
constexpr u32 kRows = 2 * kMatrices;  // of this lane
constexpr u32 kTile = 16 * kMatrices; // entries a warp and step

QN_DEVICE u32 thread_index()
{
    return threadIdx.x;
}
QN_DEVICE u32 lane_index()
{
    return threadIdx.x % kWarp;
}
QN_DEVICE u32 warp_index()
{
    return threadIdx.x / kWarp;
}

// ---- loads of bytes that may lie anywhere

QN_DEVICE u32 load_byte(const u8 *at)
{
    return __ldg(at);
}
QN_DEVICE u32 load_word_bytes(const u8 *at)
{
    return load_byte(at) | load_byte(at + 1) << 8 | load_byte(at + 2) << 16 | load_byte(at + 3) << 24;
}
QN_DEVICE u32 load_word(const u8 *at, bool aligned)
{
    return aligned ? __ldg(reinterpret_cast<const u32 *>(at)) : load_word_bytes(at);
}

template <u32 kWords> QN_DEVICE void load_words(const u8 *at, bool aligned, u32 (&word)[kWords])
{
    if (!aligned) {
#pragma unroll
        for (u32 i = 0; i < kWords; i++) word[i] = load_word_bytes(at + 4 * i);
    } else if constexpr (kWords % 4 == 0) {
#pragma unroll
        for (u32 i = 0; i < kWords; i += 4) {
            const uint4 v = __ldg(reinterpret_cast<const uint4 *>(at + 4 * i));
            word[i] = v.x, word[i + 1] = v.y, word[i + 2] = v.z, word[i + 3] = v.w;
        }
    } else if constexpr (kWords % 2 == 0) {
#pragma unroll
        for (u32 i = 0; i < kWords; i += 2) {
            const uint2 v = __ldg(reinterpret_cast<const uint2 *>(at + 4 * i));
            word[i] = v.x, word[i + 1] = v.y;
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < kWords; i++) word[i] = __ldg(reinterpret_cast<const u32 *>(at + 4 * i));
    }
}

QN_DEVICE u32 byte_of(u32 word, u32 i)
{
    return word >> 8 * i & 0xFFu;
}

// 2^(e - 127) of a UE8M0 byte below 255: byte 0 is the subnormal 2^-127.
QN_DEVICE float power_of(u32 byte)
{
    return __uint_as_float(byte ? byte << 23 : 0x00400000u);
}

// E4M3 as f32, exactly. 0x7F and 0xFF are NaN.
QN_DEVICE float f32_of_e4m3(u32 byte)
{
    const float size = __uint_as_float((byte & 0x7Fu) << 20) * 0x1p120f;
    const float value = __uint_as_float(__float_as_uint(size) | (byte & 0x80u) << 24);
    return (byte & 0x7Fu) == 0x7Fu ? not_a_number() : value;
}

// E2M1 as f32.
QN_DEVICE float f32_of_e2m1(u32 nibble)
{
    const u32 twice = 0xC8643210u >> 4 * (nibble & 7u) & 15u;
    const float size = (float)(i32)twice * 0.5f;
    return nibble & 8u ? -size : size;
}

// ---- a row of queries and its sequence

struct Row {
    i64 number;
    i64 first;        // contiguous: the sequence's first entry
    const int *table; // paged: the sequence's pages
    u32 length;       // entries
    u32 results;      // entries, or blocks
};

QN_DEVICE Row row_of(const indexer_params &p, i64 number)
{
    const i64 sequence = ROW_SEQ ? (i64)(u32)__ldg(p.row_seq + number) : 0; // 0 or more
    Row row = {number, CU_KEYS ? (i64)__ldg(p.cu_keys + sequence) : 0, p.block_table + sequence * p.block_table_stride,
               0, 0};
    const i64 length = __ldg(p.length + number);
    row.length = length < 0 ? 0u : (u32)(length < p.capacity ? length : p.capacity);
    row.results = BLOCKS ? (row.length + EPB - 1) / EPB : row.length;
    return row;
}

// The page of entry s; only words of pages that hold an entry below the length are read.
QN_DEVICE u32 page_of(const Row &row, u32 s)
{
    if constexpr (PAGE > 0)
        return (u32)__ldg(row.table + s / (PAGE ? PAGE : 1));
    else
        return 0;
}

struct Entry {
    const u8 *values, *scales;
};

QN_DEVICE Entry entry_at(const indexer_params &p, const Row &row, u32 s, u32 page)
{
    if constexpr (kHeads) {
        const i64 at = PAGE ? (i64)page * EPB + s % EPB : row.first + s, block = at / EPB, inside = at % EPB;
        return Entry{p.keys + block * p.keys_stride + inside * p.keys_stride_entry,
                     p.key_scale + block * p.key_scale_stride + inside * p.key_scale_stride_entry};
    } else if constexpr (PAGE > 0) {
        const u32 inside = s % (PAGE ? PAGE : 1);
        const u8 *base = p.keys + (i64)page * p.keys_stride;
        return Entry{base + inside * kValueBytes, base + PAGE * kValueBytes + inside * kScaleBytes};
    } else {
        const i64 at = row.first + s;
        return Entry{p.keys + at * p.keys_stride, p.key_scale + at * p.key_scale_stride};
    }
}

// ---- order: a key grows with the score; NaN below every number, -0 equals +0; a candidate puts low indices first

constexpr u32 kKeyNaN = 0;
constexpr u32 kKeyLeastFinite = 0x00800000u, kKeyMostFinite = 0xFF7FFFFFu;

QN_DEVICE u32 key_of(float score)
{
    const u32 bits = __float_as_uint(score + 0.f); // -0 becomes +0
    return is_nan(score) ? kKeyNaN : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
// The same as bits of a float, and back: two instructions each; NaN is 0xFFFFFFFF.
QN_DEVICE u32 bits_of(u32 key)
{
    return key ^ ((u32)((i32)~key >> 31) | 0x80000000u);
}
QN_DEVICE u32 key_of_bits(u32 bits)
{
    return bits ^ ((u32)((i32)bits >> 31) | 0x80000000u);
}
QN_DEVICE float score_of(u32 key)
{
    return key == kKeyNaN ? not_a_number() : __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}
