// SPDX-License-Identifier: Apache-2.0
// From partial sums, which many CTAs have, to the gate of a token, which one CTA has.
//
// A partial sum is a word of the workspace, [token, slice, expert]. Between launches every word is kAbsent, a NaN pattern
// that no sum has (publish replaces it): so a word that differs has arrived, and neither fence nor counter nor a second
// round trip is needed. The CTA of a token loads the words of all slices at once, again those that are missing, and
// leaves kAbsent behind. Slices are added in a fixed order: four teams of threads, each its slices one after another,
// then the teams.
//
// Who waits has done its own part, and the tokens fall to the last CTAs of the grid; the host launches so only where all
// CTAs are resident, else the two parts one after the other. Waits are bounded all the same: after kMostPolls of them
// the token has weights NaN and ids 0 … K-1, and the workspace must be put into its first state again.
#pragma once

#include "problem.cuh"

constexpr u32 kAbsent = 0xFFFFFFFFu;
constexpr u32 kMostPolls = 1u << 20; // about a second
constexpr u32 kVectors = kPitch / 4;
constexpr u32 kEach = (kSlices + 3) / 4;                          // slices of a team
constexpr u32 kInFlight = THREADS > 768 && kEach > 2 ? 2 : kEach; // loads in flight; many threads have few registers
constexpr u32 kTeams = (kSlices + kEach - 1) / kEach;
constexpr u32 kGateBytes = (kBlockBytes + 15) / 16 * 16 + kTeams * kPitch * 4; // block.cuh's pieces, the teams' sums
static_assert(!FUSED || SHARED_BYTES >= GATE_AT + kGateBytes, "the sizes of ops/router_shape.c");

static_assert(!FUSED || kTeams * kVectors <= THREADS, "a thread a team and vector");

QN_DEVICE bool is_aligned(const router_params &p)
{
    return p.x_aligned && p.w_aligned;
}

QN_DEVICE u32 *words_of(const router_params &p, u32 token, u32 slice)
{
    return p.words + ((u64)token * kSlices + slice) * kPitch;
}

QN_DEVICE u32 publish(float partial)
{
    const u32 bits = __float_as_uint(partial);
    return bits == kAbsent ? 0x7FFFFFFFu : bits;
}

QN_DEVICE bool is_there(const uint4 &words)
{
    return words.x != kAbsent && words.y != kAbsent && words.z != kAbsent && words.w != kAbsent;
}

QN_DEVICE float4 as_floats(const uint4 &words)
{
    return make_float4(__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
                       __uint_as_float(words.w));
}
QN_DEVICE float4 add(const float4 &a, const float4 &b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// The teams' sums, after block.cuh's pieces.
QN_DEVICE float4 *sums_of_teams() // [kTeams, kVectors]
{
    QN_SHARED_FROM(GATE_AT + (kBlockBytes + 15) / 16 * 16);
    QN_SHARED_ARRAY(float4, sums, kTeams * kVectors);
    return sums;
}

// kInFlight slices of this thread's team from `first` on, added to sum in their order. What did not come in time stays set in
// the result.
QN_DEVICE u32 add_at_once(const router_params &p, u32 token, u32 first, float4 &sum)
{
    const u32 team = threadIdx.x / kVectors, vector = threadIdx.x % kVectors;
    const uint4 *words = reinterpret_cast<const uint4 *>(words_of(p, token, team * kEach + first)) + vector;
    uint4 part[kInFlight];
    u32 missing = 0;
#pragma unroll
    for (u32 i = 0; i < kInFlight; i++)
        missing |= (first + i < kEach && team * kEach + first + i < kSlices ? 1u : 0u) << i;
    const u32 mine = missing;
    for (u32 polls = 0; missing && polls < kMostPolls; polls++) {
#pragma unroll
        for (u32 i = 0; i < kInFlight; i++)
            if (missing >> i & 1) part[i] = load_polled(words + i * kVectors);
#pragma unroll
        for (u32 i = 0; i < kInFlight; i++)
            if ((missing >> i & 1) && is_there(part[i])) missing &= ~(1u << i);
    }
#pragma unroll
    for (u32 i = 0; i < kInFlight; i++)
        if (mine >> i & 1) sum = first + i ? add(sum, as_floats(part[i])) : as_floats(part[i]);
    return missing;
}

// This thread's words: the slices of its team, four experts. True: not all came.
QN_DEVICE bool add_slices(const router_params &p, float4 *sums, u32 token)
{
    const u32 team = threadIdx.x / kVectors, vector = threadIdx.x % kVectors;
    if (team >= kTeams) return false;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    u32 missing = 0;
#pragma unroll
    for (u32 first = 0; first < kEach; first += kInFlight) missing |= add_at_once(p, token, first, sum);
    sums[team * kVectors + vector] = sum;
    return missing != 0;
}

// With one slice: the sum itself, by the thread of the expert.
QN_DEVICE bool wait_for_sum(const router_params &p, u32 token, float &x)
{
    const u32 *word = words_of(p, token, 0) + threadIdx.x;
    u32 bits = kAbsent;
    for (u32 polls = 0; bits == kAbsent && polls < kMostPolls; polls++) bits = load_polled(word);
    x = __uint_as_float(bits);
    return bits == kAbsent;
}

// This thread's expert's sum, of all slices. True: not all words came.
QN_DEVICE bool sum_of_slices(const router_params &p, float4 *sums, u32 token, bool exists, float &x)
{
    // Words that fill up the last vector are waited for too: clear_words takes them as well.
    if constexpr (kSlices == 1) {
        float sum = 0.f;
        const bool missing = threadIdx.x < kPitch && wait_for_sum(p, token, sum);
        if (exists) x = sum;
        return missing;
    }
    const bool late = add_slices(p, sums, token);
    __syncthreads();
    if (exists) {
        const float *sum = reinterpret_cast<const float *>(sums) + threadIdx.x;
        x = sum[0];
#pragma unroll
        for (u32 team = 1; team < kTeams; team++) x += sum[team * kPitch];
    }
    return late;
}

// By all warps but the first, which has the candidates to rank meanwhile.
QN_DEVICE void clear_words(const router_params &p, u32 token)
{
    constexpr u32 kFirst = THREADS > kWarp ? kWarp : 0;
    if (p.tokens > ROUTER_MOST_WHOLE || threadIdx.x < kFirst) return;
    uint4 *words = reinterpret_cast<uint4 *>(words_of(p, token, 0));
#pragma unroll 1
    for (u32 i = threadIdx.x - kFirst; i < kSlices * kVectors; i += THREADS - kFirst)
        words[i] = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
}

QN_NOINLINE void store_late(const router_params &p, u32 token)
{
    if (threadIdx.x >= kK) return;
    if constexpr (!GIVEN) store_id(p.gate, token, threadIdx.x, threadIdx.x);
    store_weight(p.gate, token, threadIdx.x, not_a_number());
}

// Ahead of the wait for other slices: 0.05 to 0.1 µs less; with one slice nothing was gained.
QN_DEVICE auto results_of(const gate_params &p, u32 token)
{
    if constexpr (kSlices > 1 && !GIVEN)
        return results_ahead(p, token);
    else
        return Token{p, token};
}

QN_DEVICE void gate_token(const router_params &p, const Shared &s, float4 *sums, u32 token)
{
    const u32 expert = threadIdx.x;
    const bool exists = THREADS == kE || expert < kE;
    const float bias = exists && !GIVEN ? bias_of(p.gate, expert) : 0.f;
    const auto to = results_of(p.gate, token);
    float x = -infinity();
    if constexpr (!GIVEN) clear_list(s);
    const bool late = sum_of_slices(p, sums, token, exists, x);
    bool done;
    if constexpr (GIVEN) {
        s.a[expert] = x;
        done = !block_any(late);
        if (done && warp_index() == 0) given_by_warp(p.gate, token, [&](u32 e) { return s.a[e]; });
    } else {
        done = gate_by_block<true>(p.gate, s, token, to, x, bias, late);
    }
    if (QN_UNLIKELY(!done)) store_late(p, token);
    if (p.logits_are && exists) p.logits[token * p.logits_stride + expert] = x; // after what others may wait for
    clear_words(p, token);
}

// The tokens of this CTA: the last CTAs of the grid have one each. The gate's pieces of shared memory are not in use
// before. Every thread.
QN_DEVICE void gate_tokens(const router_params &p)
{
    if (p.part == ROUTER_PARTS) return;
    const Shared s = shared_pieces();
    float4 *sums = sums_of_teams();
    const u32 first = p.part == ROUTER_GATE ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    for (u32 token = first; token < p.tokens; token += gridDim.x) {
        if (token != first) __syncthreads(); // the first warp has done with the token before
        gate_token(p, s, sums, token);
    }
}

// ---- inputs that do not begin at multiples of 16 bytes

// All sums of the CTA's tile, element by element: a warp a sum, one after another.
template <u32 kTokens> QN_NOINLINE void multiply_elements(const router_params &p)
{
    const Part part = part_of_block<kTokens>();
    const u32 left = min(p.tokens - part.token, kTokens);
#pragma unroll 1
    for (u32 i = warp_index(); i < left * kExperts; i += kWarps) {
        const u32 e = part.expert + i % kExperts;
        const u32 token = part.token + i / kExperts;
        float sum = 0.f;
        if (e >= kPitch) continue;
#pragma unroll 1
        for (u32 d = part.begin + lane_index(); d < part.end && e < kE; d += kWarp) {
            const RawW *w = static_cast<const RawW *>(p.w) + (i64)e * p.w_stride;
            sum = fmaf(ElementX::value(__ldg(row_of_x(p, token) + d)), ElementW::value(__ldg(w + d)), sum);
        }
        sum = warp_sum(sum);
        if (lane_index() == 0) store_polled(words_of(p, token, part.slice) + e, publish(sum));
    }
}

// ---- what every kernel of partial sums is

// multiply(): for inputs whose rows begin at multiples of 16 bytes.
template <u32 kTokens, class Multiply> QN_DEVICE void parts_kernel(const router_params &p, Multiply multiply)
{
    if (is_aligned(p))
        multiply();
    else
        multiply_elements<kTokens>(p);
    if (p.part == ROUTER_PARTS) launch_dependents();
    if constexpr (FUSED) gate_tokens(p);
}
#define QN_PARTS_KERNEL(multiply)                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ router_params p)  \
    {                                                                                                                  \
        parts_kernel<kTokens>(p, [&] { multiply(p); });                                                                \
    }
