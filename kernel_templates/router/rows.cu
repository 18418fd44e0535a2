// SPDX-License-Identifier: Apache-2.0
// router, plan "rows": a CTA has EXPERTS whole rows of W (or slices of them) and all of x. For one to four tokens, and
// for any types: every product is an f32 fma.
//
//   logit[n, e] = Σ_d x[n, d] · w[e, d], then exchange.cuh and the gate
//
//   load      8 elements a thread and row, UNITS of them at once, all rows before anything is multiplied
//   multiply  one chain of fma a row and token
//   sum       a tree over the lanes, then the warps in four chains; the sums are published
//
// Prologue, besides problem.cuh's: TOKENS (most), UNITS. W is [E, D].
// ANALYSIS.md: work, bounds, measured figures.
#include "dot.cuh"
#include "exchange.cuh"

static_assert(TOKENS >= 1 && TOKENS <= 4, "TOKENS: 1 to 4");

constexpr u32 kTokens = TOKENS;
constexpr u32 kSums = kExperts * kTokens;

static_assert(GATE_AT >= kSums * kWarps * 4, "the sizes of ops/router_shape.c");

QN_DEVICE bool is_inside(u32 d, const Part &part)
{
    return (kWholeSlices && kSlice % (UNITS * THREADS * 8) == 0) || d < part.end;
}

struct Rows {
    Eight<ElementW> w[UNITS][EXPERTS];
};

QN_DEVICE void load_rows(Rows &rows, const router_params &p, const Part &part, u32 first)
{
    const RawW *w = static_cast<const RawW *>(p.w);
#pragma unroll
    for (u32 u = 0; u < UNITS; u++) {
        const u32 d = first + (u * THREADS + threadIdx.x) * 8;
#pragma unroll
        for (u32 e = 0; e < kExperts; e++) {
            const bool exists = is_inside(d, part) && is_expert(part.expert + e);
            const RawW *from = w + (i64)(part.expert + e) * p.w_stride + d;
#pragma unroll
            for (u32 i = 0; i < Eight<ElementW>::kCount; i++)
                rows.w[u][e].part[i] =
                    exists ? load_vector_once(from + i * ElementW::kPerVector) : make_uint4(0, 0, 0, 0);
        }
    }
}

QN_DEVICE void multiply_rows(const Rows &rows, const router_params &p, const Part &part, u32 first, u32 token,
                             float *sum)
{
    Eight<ElementX> x[UNITS];
#pragma unroll
    for (u32 u = 0; u < UNITS; u++) {
        const u32 d = first + (u * THREADS + threadIdx.x) * 8;
        x[u].clear();
        if (is_inside(d, part)) load_eight(x[u], row_of_x(p, token) + d);
    }
#pragma unroll
    for (u32 u = 0; u < UNITS; u++) {
        float a[8];
        x[u].unpack(a);
#pragma unroll
        for (u32 e = 0; e < kExperts; e++) {
            float b[8];
            rows.w[u][e].unpack(b);
            sum[e] = dot_of_eight(b, a, sum[e]);
        }
    }
}

QN_DEVICE void multiply(const router_params &p)
{
    QN_SHARED_FIRST;
    QN_SHARED_ARRAY(float, of_warp, kSums *kWarps);
    const Part part = part_of_block<kTokens>();
    float sum[kTokens][kExperts] = {};
#pragma unroll 1
    for (u32 first = part.begin; first < part.end; first += UNITS * THREADS * 8) {
        Rows rows;
        load_rows(rows, p, part, first);
#pragma unroll
        for (u32 n = 0; n < kTokens; n++)
            if (part.token + n < p.tokens) multiply_rows(rows, p, part, first, part.token + n, sum[n]);
    }
#pragma unroll
    for (u32 n = 0; n < kTokens; n++) {
#pragma unroll
        for (u32 e = 0; e < kExperts; e++) {
            const float whole = warp_sum(sum[n][e]);
            if (lane_index() == 0) of_warp[(n * kExperts + e) * kWarps + warp_index()] = whole;
        }
    }
    __syncthreads();
    if (threadIdx.x >= kSums) return;
    const u32 n = kTokens == 1 ? 0 : threadIdx.x / kExperts, e = part.expert + threadIdx.x - n * kExperts;
    float sum_of_warps[4] = {}; // not one: each is a chain of dependent additions
#pragma unroll
    for (u32 w = 0; w < kWarps; w++) sum_of_warps[w % 4] += of_warp[threadIdx.x * kWarps + w];
    const float whole = (sum_of_warps[0] + sum_of_warps[1]) + (sum_of_warps[2] + sum_of_warps[3]);
    if (part.token + n >= p.tokens || e >= kPitch) return;
    store_polled(words_of(p, part.token + n, part.slice) + e, publish(whole));
}

QN_PARTS_KERNEL(multiply)
