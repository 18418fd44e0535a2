// SPDX-License-Identifier: Apache-2.0
// The rank of a given token: how many elements come before it. It is counted in the stream with the filter's compares:
// in the vectors before the token's own those that reach its key, in others those that reach the next key. Equal ones in
// its own vector, which is read ahead, are added at the end. +inf and NaN have no next number: the rank of such a token
// is counted again, with keys.
#pragma once

#include "exact.cuh"

struct TokenBounds {
    u32 vector;     // the token's own
    Packed earlier; // in vectors before it, what reaches this comes first: the token's own value
    Packed later;   // in others: the next number
};

// What a CTA keeps of the token in shared memory.
struct Token {
    i32 index; // as it was given; perhaps no token of the row
    u32 raw;   // its logit
    u32 equal; // elements of its own vector that equal it and come before it
    TokenBounds bounds;
};

QN_DEVICE bool token_exists(i32 token)
{
    return token >= 0 && token < V;
}

QN_DEVICE i32 token_index(const softmax_topk_params &p, i64 row)
{
    return TOKEN ? p.token[row] : -1;
}

// The vector that holds the token; the row's first if there is no such token.
QN_DEVICE u32 token_vector(const Row &r, i32 index)
{
    return token_exists(index) ? ((u32)index + r.lead) / kPerVector : 0;
}

QN_DEVICE u32 token_place(const Row &r, i32 index)
{
    return token_exists(index) ? ((u32)index + r.lead) % kPerVector : 0;
}

// Its logit; own: its vector.
QN_DEVICE u32 token_raw(const Row &r, i32 index, const uint4 &own)
{
    const u32 place = token_place(r, index), at = place * (u32)sizeof(Raw) / 4;
    const u32 word = at & 2u ? at & 1u ? own.w : own.z : at & 1u ? own.y : own.x;
    return sizeof(Raw) == 4 ? word : word >> (place % 2 * 16) & 0xFFFFu;
}

QN_DEVICE Token token_of(const Row &r, i32 index, const uint4 &own)
{
    const u32 raw = token_raw(r, index, own), key = min(Element::key(raw), Element::kKeyInfinity);
    const u32 reach = Element::which_reach(own, Element::bound(key));
    const u32 above = Element::which_reach(own, Element::bound(key + 1));
    const u32 earlier = inside_row(r, token_vector(r, index)) & ((1u << token_place(r, index)) - 1u);
    return Token{index, raw, (u32)__popc(reach & ~above & earlier),
                 TokenBounds{token_vector(r, index), Element::bound(key), Element::bound(key + 1)}};
}

QN_DEVICE TokenBounds token_bounds(const Token &t)
{
    return TokenBounds{warp_uniform(t.bounds.vector), warp_uniform(t.bounds.earlier), warp_uniform(t.bounds.later)};
}

// What reaches this in vector v comes before the token, but for equal ones in its own vector.
QN_DEVICE Packed token_bound(const TokenBounds &t, u32 v)
{
    return v < t.vector ? t.earlier : t.later;
}

// How many do; summed as Element::reaching is.
QN_DEVICE u32 token_count(const TokenBounds &t, u32 v, const uint4 &x)
{
    return Element::reaching(x, token_bound(t, v));
}

// The rank, from the sum of token_count over the row's vectors. Every thread of the CTA calls it; it may hold a barrier.
QN_DEVICE u32 token_rank(const softmax_topk_params &p, i64 row, const Row &r, const Token &t, u32 counted, u32 *scratch)
{
    const u32 key = Element::key(t.raw), index = (u32)t.index;
    if (!token_exists(t.index)) return 0;
    if (QN_UNLIKELY(key >= Element::kKeyInfinity)) {
        u32 before = 0;
        for (u32 i = thread_index(); i < kV; i += THREADS) {
            const u32 other = Element::key(row_raw(p, row, i));
            before += other > key || (other == key && i < index);
        }
        return block_sum(before, scratch);
    }
    counted += t.equal;
    // what lies before the row counted as -inf
    return key == Element::kKeyMinusInfinity && token_vector(r, t.index) > 0 ? counted - r.lead : counted;
}
