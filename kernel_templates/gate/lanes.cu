// SPDX-License-Identifier: Apache-2.0
// gate, plan "lanes": LANES lanes of a warp a token, its experts in their registers; no barrier. For many tokens, where
// the number of instructions is the time.
//
//   weight_r = a_r / Σ a · scale of the K experts with the largest a + bias, a = activation(logit)
//
//   look   every expert's score by the near form of the activation, whose error is bounded
//   bound  K-th largest of LANES * UNITS maxima of near scores, less what the near form may be off: all winners reach it
//   list   the few that reach it, by a bit each and a prefix sum over the lanes
//   rank   their scores by the exact form, each against all; sum, weights, store
//
// With groups the look is exact, since which groups are kept must be; a group is then a run of whole lanes. Where the
// bound says nothing (fewer than K numbers, ties by the dozen, a large bias) a token goes through rounds.cuh.
// ANALYSIS.md: work, bounds, measured figures.
//
// With 8 lanes a token, which is for the most tokens, the copy engine brings rows of f32 to shared memory: they come in the
// order in which warps asked for them, so the first can begin while others wait, and the exact form finds its logits near.
//
// Prologue, besides problem.cuh's: LANES (8, 16, 32 lanes a token), UNITS (1, 2, 4 maxima a lane).
#include "../common/bulk.cuh"
#include "../common/mbarrier.cuh"
#include "rounds.cuh"

static_assert(LANES == 8 || LANES == 16 || LANES == 32, "LANES: 8, 16 or 32");
static_assert(UNITS == 1 || UNITS == 2 || UNITS == 4, "UNITS: 1, 2 or 4");
static_assert(LANES * UNITS >= kK, "a maximum for each winner");
static_assert(!kGrouped || (kE % LANES == 0 && LANES % kGroups == 0), "a group is a run of whole lanes");

constexpr u32 kLanes = LANES;
constexpr u32 kTokens = kWarp / LANES; // of a warp
constexpr u32 kWarps = THREADS / kWarp;
constexpr u32 kVectors = (kE + LANES * kPerVector - 1) / (LANES * kPerVector);
constexpr u32 kOwn = kGrouped ? kE / LANES : kVectors * kPerVector; // experts of a lane
constexpr u32 kMaskWords = (kOwn + 31) / 32;
constexpr u32 kSlots = kK <= 8 ? 32 : kK <= 16 ? 64 : 128; // candidates of a token
constexpr bool kVectorLoads = kE % kPerVector == 0 && (!kGrouped || kOwn % kPerVector == 0);
constexpr bool kCopied =
    LANES == 8 && IN == 1 && QN_ARCH >= 90 && kVectorLoads && !kGrouped && kSlots == 32 && !DEPENDENT && PARTS == 1;
constexpr u32 kRowBytes = kE * sizeof(Raw);
constexpr u32 kKeyWords = kCopied ? kTokens * kRowBytes / 4 : kRoundsWords; // of a warp: its rows, then keys
static_assert(kOwn <= 48, "experts of a lane: at most 48");
static_assert(kKeyWords >= kRoundsWords, "keys where the rows were");
static_assert(SHARED_BYTES >= kWarps * kTokens * (kSlots * 16 + kRanked * 4) + (kWarps * kKeyWords + 3) / 4 * 16 +
                                  (kCopied ? kWarps * 8 : 0),
              "the sizes of ops/gate.c; a router may ask for more");

struct Shared {    // of a warp
    u64 *slot;     // [kTokens][kSlots] candidates
    u32 *expert;   // [kTokens][kSlots]
    float *a;      // [kTokens][kSlots] contributions
    float *ranked; // [kTokens][kRanked] contributions in rank order
    u32 *keys;     // [kRoundsWords], for tokens that go through rounds, when rows are not needed any more
    Raw *rows;     // [kTokens][kE], where they are copied
    u64 *bar;      // tells that they are there
};

QN_DEVICE Shared shared_pieces()
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(uint4, slot, kWarps * kTokens * kSlots / 2);
    QN_SHARED_ARRAY(u32, expert, kWarps * kTokens * kSlots);
    QN_SHARED_ARRAY(float, a, kWarps *kTokens *kSlots);
    QN_SHARED_ARRAY(uint4, ranked, kWarps * kTokens * kRanked / 4);
    QN_SHARED_ARRAY(uint4, keys, (kWarps * kKeyWords + 3) / 4);
    QN_SHARED_ARRAY(u64, bar, kCopied ? kWarps : 0);
    const u32 warp = warp_index();
    u32 *words = reinterpret_cast<u32 *>(keys) + warp * kKeyWords;
    return Shared{reinterpret_cast<u64 *>(slot) + warp * kTokens * kSlots,
                  expert + warp * kTokens * kSlots,
                  a + warp * kTokens * kSlots,
                  reinterpret_cast<float *>(ranked) + warp * kTokens * kRanked,
                  words,
                  reinterpret_cast<Raw *>(words),
                  bar + warp};
}

QN_DEVICE u32 part_index()
{
    return threadIdx.x % kLanes;
} // this lane among those of its token
QN_DEVICE u32 token_index()
{
    return lane_index() / kLanes;
}

// Number i of a lane is expert first_expert() + expert_step(i). Without groups neighbours are in neighbouring lanes, a
// vector each.
QN_DEVICE u32 first_expert()
{
    return part_index() * (kGrouped ? kOwn : kPerVector);
}
QN_DEVICE constexpr u32 expert_step(u32 i)
{
    return kGrouped ? i : i / kPerVector * kLanes * kPerVector + i % kPerVector;
}

// Whether number i of this lane is an expert: known at compile time for all but the last vector.
QN_DEVICE bool is_expert(u32 i)
{
    if (kGrouped || expert_step(i) + (kLanes - 1) * kPerVector < kE) return true;
    return first_expert() + expert_step(i) < kE;
}

// ---- over the lanes of a token

QN_DEVICE u32 token_max(u32 x)
{
    if constexpr (LANES == kWarp) return warp_max(x);
#pragma unroll
    for (u32 lanes = kLanes / 2; lanes; lanes /= 2) x = max(x, __shfl_xor_sync(kFullMask, x, (int)lanes));
    return x;
}

QN_DEVICE float token_sum(float x)
{
#pragma unroll
    for (u32 lanes = kLanes / 2; lanes; lanes /= 2) x += __shfl_xor_sync(kFullMask, x, (int)lanes);
    return x;
}

// Sum over this lane and those of its token before it.
QN_DEVICE u32 token_inclusive_sum(u32 x)
{
#pragma unroll
    for (u32 lanes = 1; lanes < kLanes; lanes *= 2) {
        const u32 before = __shfl_up_sync(kFullMask, x, lanes, (int)kLanes);
        if (part_index() >= lanes) x += before;
    }
    return x;
}

// ---- look

// The lane's logits; 0 where it has no expert.
QN_DEVICE void load_logits(const gate_params &p, const Logits &logits, float *x) // [kOwn]
{
    const Logits first = {logits.row + first_expert(), logits.parts};
    if (kVectorLoads && p.aligned) {
#pragma unroll
        for (u32 i = 0; i + kPerVector <= kOwn; i += kPerVector)
            if (is_expert(i)) load_vector_of_logits(first, expert_step(i), x + i);
    } else {
#pragma unroll
        for (u32 i = 0; i < kOwn; i++)
            if (is_expert(i)) x[i] = load_logit(first, expert_step(i));
    }
#pragma unroll
    for (u32 i = 0; i < kOwn; i++)
        if (!is_expert(i)) x[i] = 0.f;
}

// ---- rows by the copy engine

QN_DEVICE const Raw *row_of(const gate_params &p, u32 token)
{
    return static_cast<const Raw *>(p.logits) + (i64)min(token, (u32)p.N - 1) * p.logits_stride;
}

// Asks for the rows of tokens first, first + 1, …; the last one's in place of those that are none.
QN_DEVICE void ask_for_rows(const gate_params &p, const Shared &s, u32 first)
{
    if (lane_index() == 0) {
        mbarrier_init(s.bar, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(s.bar, kTokens * kRowBytes);
        if (p.logits_stride == kE && first + kTokens <= (u32)p.N) {
            cp_async_bulk_load(s.rows, row_of(p, first), kTokens * kRowBytes, s.bar);
        } else {
#pragma unroll 1
            for (u32 t = 0; t < kTokens; t++)
                cp_async_bulk_load(s.rows + t * kE, row_of(p, first + t), kRowBytes, s.bar);
        }
    }
    __syncwarp(kFullMask);
}

// Rows that begin anywhere.
QN_NOINLINE void fetch_rows(const gate_params &p, Raw *rows, u32 first)
{
#pragma unroll 1
    for (u32 i = lane_index(); i < kTokens * kE; i += kWarp) rows[i] = __ldg(row_of(p, first + i / kE) + i % kE);
    __syncwarp(kFullMask);
}

// As load_logits, from the rows.
QN_DEVICE void read_rows(const Shared &s, float *x) // [kOwn]
{
    const Raw *first = s.rows + token_index() * kE + first_expert();
#pragma unroll
    for (u32 i = 0; i < kOwn; i += kPerVector) {
        if (is_expert(i)) {
            Element::unpack(*reinterpret_cast<const uint4 *>(first + expert_step(i)), x + i);
        } else {
#pragma unroll
            for (u32 j = 0; j < kPerVector; j++) x[i + j] = 0.f;
        }
    }
}

QN_DEVICE void store_sums(const gate_params &p, u32 token, const float *x) // [kOwn]
{
    if constexpr (PARTS > 1) {
#pragma unroll
        for (u32 i = 0; i < kOwn; i++)
            if (is_expert(i)) store_sum(p, token, first_expert() + expert_step(i), x[i]);
    }
}

QN_DEVICE Row row_of_token(const float *x) // [kOwn]
{
    Row row = {0.f, 0.f};
    if constexpr (kSoftmax) {
        u32 top = 0;
#pragma unroll
        for (u32 i = 0; i < kOwn; i++)
            if (is_expert(i)) top = max(top, F32::key(__float_as_uint(x[i])));
        const float most = value_of(token_max(top));
        float sum = 0.f;
#pragma unroll
        for (u32 i = 0; i < kOwn; i++)
            if (is_expert(i)) sum += exp_near(x[i], most);
        row = row_of_sums(most, token_sum(sum));
    }
    return row;
}

QN_DEVICE void add_bias(const gate_params &p, float *x) // [kOwn]
{
    const float *first = p.bias + first_expert();
    if (kVectorLoads && p.aligned) {
#pragma unroll
        for (u32 i = 0; i + 4 <= kOwn; i += 4) {
            if (!is_expert(i)) continue;
            float bias[4];
            F32::unpack(__ldg(reinterpret_cast<const uint4 *>(first + expert_step(i))), bias);
#pragma unroll
            for (u32 j = 0; j < 4; j++) x[i + j] = score_of(x[i + j], bias[j]);
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < kOwn; i++)
            if (is_expert(i)) x[i] = score_of(x[i], __ldg(first + expert_step(i)));
    }
}

// Scores in place of logits: near ones, with groups exact ones.
QN_DEVICE void score_all(const gate_params &p, const Row &row, float *x) // [kOwn]
{
#pragma unroll
    for (u32 i = 0; i < kOwn; i++) x[i] = kGrouped ? activation(x[i], row) : activation_near(x[i], row);
    if constexpr (BIAS) add_bias(p, x);
#pragma unroll
    for (u32 i = 0; i < kOwn; i++)
        if (!is_expert(i)) x[i] = -infinity();
}

// ---- groups

// False in lanes whose group is dropped. *plain: no group's best two hold a -inf or a NaN; else the rounds decide.
QN_DEVICE bool group_is_kept(const float *score, bool *plain)
{
    constexpr u32 kRun = kLanes / kGroups; // lanes a group
    float best = fmaxf(score[0], -infinity()), second = -infinity();
#pragma unroll
    for (u32 i = 1; i < kOwn; i++) {
        const float x = fmaxf(score[i], -infinity());
        second = fmaxf(second, fminf(best, x));
        best = fmaxf(best, x);
    }
#pragma unroll
    for (u32 lanes = 1; lanes < kRun; lanes *= 2) {
        const float best_other = __shfl_xor_sync(kFullMask, best, (int)lanes);
        const float second_other = __shfl_xor_sync(kFullMask, second, (int)lanes);
        second = fmaxf(fmaxf(second, second_other), fminf(best, best_other));
        best = fmaxf(best, best_other);
    }
    const bool odd = !((kGroupSize == 1 ? best : second) > -infinity());
    *plain = token_max(odd) == 0;
    const u32 own = group_key(key_of(best), kGroupSize == 1 ? kKeyNone : key_of(second)), g = part_index() / kRun;
    u32 before = 0;
#pragma unroll
    for (u32 h = 0; h < kGroups; h++) {
        const u32 other = __shfl_sync(kFullMask, own, (int)(h * kRun), (int)kLanes);
        before += other > own || (other == own && h < g);
    }
    return before < TOPK_GROUP;
}

// ---- bound

// Largest first.
QN_DEVICE void sort_units(float *unit) // [UNITS]
{
    static constexpr unsigned char step[5][2] = {{0, 1}, {2, 3}, {0, 2}, {1, 3}, {1, 2}}; // two need the first only
#pragma unroll
    for (u32 i = 0; i < (UNITS == 4 ? 5 : UNITS - 1); i++) {
        const float a = unit[step[i][0]], b = unit[step[i][1]];
        unit[step[i][0]] = fmaxf(a, b), unit[step[i][1]] = fminf(a, b);
    }
}

// The largest of numbers over the lanes of a token.
QN_DEVICE float token_max_number(float x)
{
    if constexpr (LANES == kWarp) return value_of(warp_max(key_of(x)));
#pragma unroll
    for (u32 lanes = kLanes / 2; lanes; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(kFullMask, x, (int)lanes));
    return x;
}

// The K-th largest of the maxima of the token's units. Equal maxima leave together, which can only lower it.
QN_DEVICE float bound_of(const float *score, bool kept)
{
    float unit[UNITS];
#pragma unroll
    for (u32 u = 0; u < UNITS; u++) {
        unit[u] = -infinity(); // drops NaNs
#pragma unroll
        for (u32 i = u; i < kOwn; i += UNITS) unit[u] = fmaxf(unit[u], score[i]);
        if (!kept) unit[u] = -infinity();
    }
    sort_units(unit);
    float bound = 0.f;
#pragma unroll
    for (u32 k = 0; k < kK; k++) {
        bound = token_max_number(unit[0]);
        if (unit[0] != bound) continue;
#pragma unroll
        for (u32 u = 0; u + 1 < UNITS; u++) unit[u] = unit[u + 1];
        unit[UNITS - 1] = -infinity();
    }
    return bound;
}

QN_DEVICE float deeper(float depth, float bias)
{
    return -bias < infinity() ? fmaxf(depth, -bias) : depth;
} // false for NaN

// Largest size of a finite negative bias: an activation is at most its score and this.
QN_DEVICE float depth_of_bias(const gate_params &p)
{
    float depth = 0.f;
    if constexpr (BIAS && !kGrouped) {
        if (p.aligned) {
#pragma unroll
            for (u32 i = 0; i + 128 <= kE; i += 128) {
                float bias[4];
                F32::unpack(__ldg(reinterpret_cast<const uint4 *>(p.bias + i) + lane_index()), bias);
#pragma unroll
                for (u32 j = 0; j < 4; j++) depth = deeper(depth, bias[j]);
            }
        }
#pragma unroll 4
        for (u32 i = lane_index() + (p.aligned ? kE / 128 * 128 : 0); i < kE; i += kWarp)
            depth = deeper(depth, bias_of(p, i));
        depth = __uint_as_float(warp_max(__float_as_uint(depth)));
    }
    return depth;
}

// What scores must reach: 2.5 times the error at the bound is more than the two that can add up. NaN or -inf: unusable.
QN_DEVICE float threshold_of(float bound, float depth)
{
    if constexpr (kGrouped) return bound;
    return bound - fmaf(2.5f * (kNearError + 0x1p-22f), fabsf(bound) + depth, 2.5f * kNearLeast);
}

// ---- list

struct Reached {
    u32 count, place; // of the token; of this lane's first
};

// A bit for each of the lane's scores 32 w … that reaches the threshold (or is a NaN, which ranks last), the first on top.
QN_DEVICE u32 mask_of(const float *score, u32 w, float threshold)
{
    const u32 count = kOwn - 32 * w < 32 ? kOwn - 32 * w : 32;
    u32 below = 0; // signs of score - threshold
#pragma unroll
    for (u32 i = 0; i < count; i++) below = below << 1 | __float_as_uint(score[32 * w + i] - threshold) >> 31;
    return count == 32 ? ~below : ~below << (32 - count);
}

// Lists the experts whose score reaches the threshold, of lanes that look for them. Nothing is written when they are too
// many.
QN_DEVICE Reached list_reached(const Shared &s, const float *score, float threshold, bool looks)
{
    u32 mask[kMaskWords], own = 0;
    Reached r = {0, 0};
#pragma unroll
    for (u32 w = 0; w < kMaskWords; w++) {
        mask[w] = looks ? mask_of(score, w, threshold) : 0;
        own += (u32)__popc(mask[w]);
    }
    const u32 until = token_inclusive_sum(own);
    r.count = __shfl_sync(kFullMask, until, (int)kLanes - 1, (int)kLanes);
    r.place = until - own;
    if (r.count > kSlots) return r;
    u32 *to = s.expert + token_index() * kSlots + r.place;
#pragma unroll
    for (u32 w = 0; w < kMaskWords; w++) {
        while (mask[w]) {
            const u32 first = (u32)__clz((int)mask[w]);
            *to++ = first_expert() + expert_step(32 * w + first);
            mask[w] &= 0x7FFFFFFFu >> first;
        }
    }
    return r;
}

// ---- rank

// Exact scores of the listed experts, dealt to the lanes of the token.
QN_DEVICE void score_listed(const gate_params &p, const Shared &s, const Logits &logits, const Row &row, u32 count)
{
    const u32 base = token_index() * kSlots;
#pragma unroll 1
    for (u32 i = part_index(); i < count; i += kLanes) {
        const u32 expert = s.expert[base + i];
        const float x = kCopied ? Element::value(s.rows[token_index() * kE + expert]) : load_logit(logits, expert);
        const float a = activation(x, row);
        s.slot[base + i] = candidate(key_of(score_of(a, bias_of(p, expert))), expert);
        s.a[base + i] = a;
    }
    if (part_index() < (0u - count) % 4) s.slot[base + count + part_index()] = 0; // whole fours
}

// How many listed experts of the token come before number i.
QN_DEVICE u32 rank_of(const Shared &s, u32 i, u32 count)
{
    const u32 base = token_index() * kSlots;
    const ulonglong2 *pairs = reinterpret_cast<const ulonglong2 *>(s.slot + base);
    const u64 mine = s.slot[base + i];
    u32 before[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (u32 j = 0; j < (count + 3) / 4; j++) { // past the last there are zeros
        const ulonglong2 a = pairs[2 * j], b = pairs[2 * j + 1];
        before[0] += a.x > mine, before[1] += a.y > mine, before[2] += b.x > mine, before[3] += b.y > mine;
    }
    return before[0] + before[1] + (before[2] + before[3]);
}

QN_DEVICE void rank_and_store(const gate_params &p, const Shared &s, i64 token, u32 count, bool fine)
{
    const u32 base = token_index() * kSlots;
    float *ranked = s.ranked + token_index() * kRanked;
    if (part_index() < kRanked - kK) ranked[kK + part_index()] = 0.f;
#pragma unroll 1
    for (u32 i = part_index(); i < count; i += kLanes) {
        const u32 rank = rank_of(s, i, count);
        if (rank >= kK) continue;
        ranked[rank] = s.a[base + i];
        if (fine) store_id(p, token, rank, s.expert[base + i]);
    }
    __syncwarp(kFullMask);
    if (!fine) return;
    const float sum = sum_in_order(ranked);
#pragma unroll
    for (u32 r = part_index(); r < kK; r += kLanes) store_weight(p, token, r, weight_of(p, ranked[r], sum));
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ gate_params p)
{
    const Shared s = shared_pieces();
    const u32 wanted = (blockIdx.x * kWarps + warp_index()) * kTokens + token_index();
    const bool live = wanted < (u32)p.N;
    const u32 token = live ? wanted : (u32)p.N - 1;
    const Logits logits = logits_of(p, token);

    float depth = 0.f, score[kOwn];
    if constexpr (kCopied) {
        if (p.aligned)
            ask_for_rows(p, s, wanted - token_index());
        else
            fetch_rows(p, s.rows, wanted - token_index());
        depth = depth_of_bias(p);
        if (p.aligned)
            while (!mbarrier_try_wait_parity(s.bar, 0)) {
            }
        read_rows(s, score);
    } else {
        if constexpr (DEPENDENT) {
            depth = depth_of_bias(p); // no other launch's
            wait_for_previous_launch();
        }
        load_logits(p, logits, score);
        if (live) store_sums(p, token, score);
        if constexpr (!DEPENDENT) depth = depth_of_bias(p);
    }
    const Row row = row_of_token(score);
    score_all(p, row, score);
    bool kept = true, fine = true;
    if constexpr (kGrouped) kept = group_is_kept(score, &fine);
    const float threshold = threshold_of(bound_of(score, kept), depth);
    fine = fine && is_finite(threshold);
    const Reached reached = list_reached(s, score, threshold, fine && kept);
    __syncwarp(kFullMask);
    fine = fine && reached.count <= kSlots;
    const u32 count = fine ? reached.count : 0;
    score_listed(p, s, logits, row, count);
    __syncwarp(kFullMask);
    rank_and_store(p, s, token, count, fine && live);

    u32 slow = __ballot_sync(kFullMask, !fine && live && part_index() == 0);
    for (; slow; slow &= slow - 1) {
        const u32 next = __shfl_sync(kFullMask, token, __ffs((int)slow) - 1);
        token_in_rounds(p, next, s.keys);
        __syncwarp(kFullMask);
    }
}
