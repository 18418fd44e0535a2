// SPDX-License-Identifier: Apache-2.0
// Shuffles, votes, reductions and matches: what the last lane to arrive computes for all (engine.h, "ready-made").
#include "machine.h"

namespace qm {

struct Shuffle {
    u64 value;
    unsigned from;
    bool own; // the source is outside the segment: the lane keeps its value
    u64 result;
};

static void carry_shuffle(Gather &g)
{
    for (unsigned l = 0; l < 32; l++) {
        if (!g.has(l)) continue;
        Shuffle &s = g.of<Shuffle>(l);
        if (!s.own && !g.has(s.from))
            fail(g.at, "lane %u reads lane %u, which is not in the mask %08x", l, s.from, g.mask);
        s.result = s.own ? s.value : g.of<Shuffle>(s.from).value;
    }
}

u64 shuffle(u32 mask, u64 value, unsigned from, bool own, Place at)
{
    Shuffle s = {value, from, own, 0};
    warp_op(mask, &s, carry_shuffle, at);
    return s.result;
}

struct Vote {
    u64 value;
    u64 result;
};

template <class Combine> static void carry_all(Gather &g, Combine combine)
{
    bool first = true;
    u64 result = 0;
    for (unsigned l = 0; l < 32; l++) {
        if (!g.has(l)) continue;
        u64 v = g.of<Vote>(l).value;
        result = first ? v : combine(result, v);
        first = false;
    }
    for (unsigned l = 0; l < 32; l++)
        if (g.has(l)) g.of<Vote>(l).result = result;
}

static void carry_ballot(Gather &g)
{
    u32 result = 0;
    for (unsigned l = 0; l < 32; l++)
        if (g.has(l) && g.of<Vote>(l).value) result |= 1u << l;
    for (unsigned l = 0; l < 32; l++)
        if (g.has(l)) g.of<Vote>(l).result = result;
}

static u64 voted(u32 mask, u64 value, Carry carry, Place at)
{
    Vote v = {value, 0};
    warp_op(mask, &v, carry, at);
    return v.result;
}

u32 ballot(u32 mask, bool value, Place at)
{
    return (u32)voted(mask, value, carry_ballot, at);
}

u32 reduce(AtomicOp op, bool is_signed, u32 mask, u32 value, Place at)
{
    need_arch(80, 0, false, at);
    static const Carry carries[][2] = {
        {[](Gather &g) { carry_all(g, [](u64 a, u64 b) { return (u64)(u32)(a + b); }); },
         [](Gather &g) { carry_all(g, [](u64 a, u64 b) { return (u64)(u32)(a + b); }); }},
        {[](Gather &g) { carry_all(g, [](u64 a, u64 b) { return a < b ? a : b; }); },
         [](Gather &g) { carry_all(g, [](u64 a, u64 b) { return (int32_t)a < (int32_t)b ? a : b; }); }},
        {[](Gather &g) { carry_all(g, [](u64 a, u64 b) { return a > b ? a : b; }); },
         [](Gather &g) { carry_all(g, [](u64 a, u64 b) { return (int32_t)a > (int32_t)b ? a : b; }); }},
        {[](Gather &g) { carry_all(g, [](u64 a, u64 b) { return a & b; }); }, nullptr},
        {[](Gather &g) { carry_all(g, [](u64 a, u64 b) { return a | b; }); }, nullptr},
        {[](Gather &g) { carry_all(g, [](u64 a, u64 b) { return a ^ b; }); }, nullptr},
    };
    if (op > ATOMIC_XOR) fail(at, "redux has add, min, max, and, or, xor");
    return (u32)voted(mask, value, carries[op][is_signed && op <= ATOMIC_MAX], at);
}

static void carry_match_any(Gather &g)
{
    for (unsigned l = 0; l < 32; l++) {
        if (!g.has(l)) continue;
        u32 same = 0;
        for (unsigned k = 0; k < 32; k++)
            if (g.has(k) && g.of<Vote>(k).value == g.of<Vote>(l).value) same |= 1u << k;
        g.of<Vote>(l).result = same;
    }
}

static void carry_match_all(Gather &g)
{
    bool same = true;
    u64 first = g.of<Vote>((unsigned)__builtin_ctz(g.mask)).value;
    for (unsigned l = 0; l < 32; l++) same = same && (!g.has(l) || g.of<Vote>(l).value == first);
    for (unsigned l = 0; l < 32; l++)
        if (g.has(l)) g.of<Vote>(l).result = same ? g.mask : 0;
}

u32 match(bool all, u32 mask, u64 value, Place at)
{
    return (u32)voted(mask, value, all ? carry_match_all : carry_match_any, at);
}

} // namespace qm
