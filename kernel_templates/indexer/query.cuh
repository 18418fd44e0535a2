// SPDX-License-Identifier: Apache-2.0
// Queries: a row's q and w, made into B fragments and a few numbers a head in shared memory, once a CTA.
//
// Where shared memory has no room for the fragments (QUERY_SHARED = 0), each is made of q's bytes again when it is needed.
//
// Integer operand: 2v << s as s8, s the group's exponent above the head's least, at most 3; the head's power of two goes
// into its weight. Float operand: bf16 and f16 as they are, FP8 as f16, mxfp4 as bf16 below the head's largest scale.
#pragma once

#include "decode.cuh"

// Heads come in tiles of 8 columns, two tiles at a time; heads past the last have q and w 0.
constexpr u32 kColumnTiles = kHeads ? H : H <= 8 ? 1 : (H + 15) / 16 * 2;
constexpr u32 kColumns = kHeads ? H : kColumnTiles * 8;
constexpr u32 kFragmentLanes = kHeads ? 4 : 32; // nvfp4_heads: every column is the head
constexpr u32 kFragments = QUERY_SHARED ? kColumnTiles * kSteps * kFragmentLanes : 1;
constexpr bool kHeadScale = !kInteger && (Q == kQFp8 || Q == kQMxfp4);

constexpr bool kPaired = kSteps % 2 == 0 && !kHeads; // two steps' fragments of a lane lie side by side

struct Query {
    uint2 *fragment; // [kFragments]
    float *weight;   // [kColumns]
    float *scale;    // [kColumns]: of a head's dots; integers: their first value, as i32, columns 0 1 0 1, 2 3 2 3, …
    u32 *odd;        // 1: every entry needs score_exactly
};

QN_DEVICE Span head_span(const indexer_params &p, const Row &row, u32 head)
{
    Span span = {255, 0};
    const u8 *at = p.q_scale + row.number * p.q_scale_stride_T + head * p.q_scale_stride_H;
#pragma unroll
    for (u32 i = 0; i < kGroups; i++) {
        const u32 byte = load_byte(at + i);
        span.least = min(span.least, byte), span.most = max(span.most, byte);
    }
    return span;
}

// Element pairs (0, 1) (2, 3) … to (0, 4) (1, 5) …, and back.
QN_DEVICE void interleave(u32 (&pair)[4])
{
    const u32 a = pair[0], b = pair[1], c = pair[2], d = pair[3];
    pair[0] = permute_bytes(a, c, 0x5410u), pair[1] = permute_bytes(a, c, 0x7632u);
    pair[2] = permute_bytes(b, d, 0x5410u), pair[3] = permute_bytes(b, d, 0x7632u);
}
QN_DEVICE void uninterleave(u32 (&pair)[4])
{
    const u32 a = pair[0], b = pair[1], c = pair[2], d = pair[3];
    pair[0] = permute_bytes(a, b, 0x5410u), pair[1] = permute_bytes(c, d, 0x5410u);
    pair[2] = permute_bytes(a, b, 0x7632u), pair[3] = permute_bytes(c, d, 0x7632u);
}

// ---- eight elements, from element 8 * unit on

QN_DEVICE const u8 *head_bytes(const indexer_params &p, const Row &row, u32 head)
{
    return p.q + row.number * p.q_stride_T + head * p.q_stride_H;
}

QN_DEVICE void query_integers(const indexer_params &p, const Row &row, u32 head, u32 unit, u32 least, u32 (&word)[2],
                              i32 &sum)
{
    u32 x[1];
    load_words(head_bytes(p, row, head) + unit * 4, p.q_aligned, x);
    const u8 *scale = p.q_scale + row.number * p.q_scale_stride_T + head * p.q_scale_stride_H + unit / 4;
    const u32 shift = min(load_byte(scale) - least, 3u);
    word[0] = word[1] = 0;
    sum = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        const u32 nibble = x[0] >> 4 * i & 15u;
        const i32 size = (i32)((0xC8643210u >> 4 * (nibble & 7u) & 15u) << shift);
        const i32 number = nibble & 8u ? -size : size;
        sum += number;
        word[i / 4] |= ((u32)number & 0xFFu) << 8 * (i % 4);
    }
}

QN_DEVICE void query_floats(const indexer_params &p, const Row &row, u32 head, u32 unit, u32 most, u32 (&pair)[4])
{
    const u8 *at = head_bytes(p, row, head);
    if constexpr (Q == kQMxfp4) {
        u32 x[1];
        load_words(at + unit * 4, p.q_aligned, x);
        const u8 *scale = p.q_scale + row.number * p.q_scale_stride_T + head * p.q_scale_stride_H + unit / 4;
        const u32 by = shared_factor(most, load_byte(scale));
#pragma unroll
        for (u32 i = 0; i < 4; i++) pair[i] = multiply_pairs(small_pair(x[0], i), by);
        if constexpr (!kFp4) uninterleave(pair);
    } else if constexpr (Q == kQFp8) {
        u32 x[2];
        load_words(at + unit * 8, p.q_aligned, x);
        pair[0] = f16x2_of_e4m3x2(x[0]), pair[1] = f16x2_of_e4m3x2(x[0] >> 16);
        pair[2] = f16x2_of_e4m3x2(x[1]), pair[3] = f16x2_of_e4m3x2(x[1] >> 16);
        if constexpr (kFp4) interleave(pair);
    } else {
        load_words(at + unit * 16, p.q_aligned, pair);
        if constexpr (kFp4) interleave(pair);
    }
}

// ---- numbers of a head

QN_DEVICE void prepare_head(const indexer_params &p, const Row &row, const Query &s, u32 head)
{
    const bool exists = head < H;
    const float w =
        exists ? __ldg(reinterpret_cast<const float *>(reinterpret_cast<const u8 *>(p.w) + row.number * p.w_stride_T) +
                       head)
               : 0.f;
    bool fits = true;
    float weight = w, scale = 1.f;
    if (exists && Q == kQMxfp4) {
        const Span span = head_span(p, row, head);
        fits = span.least >= kLeastScale && span.most <= kMostScale;
        if constexpr (kInteger) {
            const float small = w * power_of(min(span.least, 254u));
            weight = small * 0x1p99f;
            fits = fits && span.most - span.least <= 3 &&
                   (w == 0.f || (fabsf(small) >= 0x1p-60f && fabsf(small) <= 0x1p20f));
        } else {
            scale = power_of(min(span.most, 254u));
            fits = fits && span.most - span.least <= kMostFloatSpread;
        }
    } else if (exists && Q == kQFp8) {
        scale =
            __uint_as_float(load_word(p.q_scale + row.number * p.q_scale_stride_T + head * p.q_scale_stride_H, false));
        fits = scale == 0.f || (fabsf(scale) >= 0x1p-60f && fabsf(scale) <= 0x1p60f);
    }
    s.weight[head] = weight;
    if constexpr (!kInteger) s.scale[head] = scale;
    if (!fits) atomicMax(s.odd, 1u);
}

// Where the fragment of a head's unit lies, for lane quarter q and step.
QN_DEVICE u32 fragment_at(u32 head, u32 q, u32 step)
{
    const u32 lane = head % 8 * 4 + q;
    if constexpr (kHeads) return (head * kSteps + step) * 4 + q;
    if constexpr (kPaired) return (head / 8 * kSteps + step / 2 * 2) * 32 + lane * 2 + step % 2;
    return (head / 8 * kSteps + step) * 32 + lane;
}

// Fragments of one step or two, from step k on, for this lane's column of a tile.
template <u32 kCount> QN_DEVICE void load_fragments(const Query &s, u32 tile, u32 k, u32 (&b)[kCount][2])
{
    if constexpr (kCount == 2) {
        const uint4 four = *reinterpret_cast<const uint4 *>(s.fragment + (tile * kSteps + k) * 32 + lane_index() * 2);
        b[0][0] = four.x, b[0][1] = four.y, b[1][0] = four.z, b[1][1] = four.w;
    } else {
        const uint2 two = s.fragment[(tile * kSteps + k) * 32 + lane_index()];
        b[0][0] = two.x, b[0][1] = two.y;
    }
}

// Both steps' fragments of a unit u, for the column of this lane in a tile (nvfp4_heads: for head `tile`).
QN_DEVICE void unit_fragments(const indexer_params &p, const Row &row, const Query &s, u32 tile, u32 u, u32 (&b)[2][2])
{
    if constexpr (QUERY_SHARED) {
        if constexpr (kHeads) {
#pragma unroll
            for (u32 k = 0; k < 2; k++) {
                const uint2 two = s.fragment[(tile * kSteps + 2 * u + k) * 4 + lane_index() % 4];
                b[k][0] = two.x, b[k][1] = two.y;
            }
        } else {
            load_fragments(s, tile, 2 * u, b);
        }
    } else {
        const u32 head = kHeads ? tile : tile * 8 + lane_index() / 4;
        u32 pair[4] = {0, 0, 0, 0};
        if (head < H) {
            const Span span = Q == kQMxfp4 ? head_span(p, row, head) : Span{0, 0};
            query_floats(p, row, head, lane_index() % 4 * kUnits + u, span.most, pair);
        }
        b[0][0] = pair[0], b[0][1] = pair[1], b[1][0] = pair[2], b[1][1] = pair[3];
    }
}

// Whether one of these bf16 is 2^100 or more, inf or NaN: times a key's code, 448 at most, and summed, the dot could leave
// f32 before the key's scale brings it back.
QN_DEVICE bool has_large_bf16(const u32 (&pair)[4])
{
    bool large = false;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        large = large || (pair[i] & 0x7F80u) >= 0x7180u; // biased exponent 227
        large = large || (pair[i] & 0x7F800000u) >= 0x71800000u;
    }
    return large;
}

// Two barriers; the second is the caller's. tensor scales outside the sound range make every entry odd.
QN_DEVICE void prepare_query(const indexer_params &p, const Row &row, const Query &s)
{
    if (thread_index() == 0) {
        bool sound = true;
        if constexpr (kHeads) {
            const float t = __ldg(p.tensor_scale);
            sound = t == 0.f || (fabsf(t) >= 0x1p-60f && fabsf(t) <= 0x1p60f);
        }
        *s.odd = sound && p.keys_aligned ? 0u : 1u;
    }
    if constexpr (kInteger)
        for (u32 i = thread_index(); i < 2 * kColumns; i += THREADS) s.scale[i] = 0.f;
    __syncthreads();
    for (u32 i = thread_index(); i < kColumns; i += THREADS) prepare_head(p, row, s, i);
#pragma unroll 1
    for (u32 i = thread_index(); i < kColumns * 4 * kUnits; i += THREADS) {
        const u32 unit = i % (4 * kUnits), head = i / (4 * kUnits), q = unit / kUnits, u = unit % kUnits;
        const bool exists = head < H;
        Span span = {0, 0};
        if (exists && Q == kQMxfp4) span = head_span(p, row, head);
        if constexpr (kInteger) {
            u32 word[2] = {0, 0};
            i32 sum = 0;
            if (exists) query_integers(p, row, head, unit, span.least, word, sum);
            if (QUERY_SHARED) s.fragment[fragment_at(head, q, u)] = make_uint2(word[0], word[1]);
            u32 *start = reinterpret_cast<u32 *>(s.scale) + head / 2 * 4 + head % 2;
            if (sum) atomicAdd(start, (u32)(-64 * sum)), atomicAdd(start + 2, (u32)(-64 * sum));
        } else if constexpr (QUERY_SHARED || Q == kQBf16) {
            u32 pair[4] = {0, 0, 0, 0};
            if (exists) query_floats(p, row, head, unit, span.most, pair);
            if (Q == kQBf16 && has_large_bf16(pair)) atomicMax(s.odd, 1u);
            if (!QUERY_SHARED) continue;
            s.fragment[fragment_at(head, q, 2 * u)] = make_uint2(pair[0], pair[1]);
            s.fragment[fragment_at(head, q, 2 * u + 1)] = make_uint2(pair[2], pair[3]);
        }
    }
}
