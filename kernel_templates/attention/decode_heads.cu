// SPDX-License-Identifier: Apache-2.0
// attention, plan "heads" (sm_90a): few queries of many heads that share keys, 64 rows of them a CTA, by wgmma; keys and
// values by TMA. The keys are cut into splits of a fixed size, which merge.cu adds in order; a tile that is one split is
// written at once.
//
//   out = softmax(mask(cap(q · k · scale))) · v
//
// Who does what: heads_shared.cuh; loads: heads_load.cuh; products and softmax: heads_math.cuh. ANALYSIS.md: work,
// bounds, figures.
#include "heads_math.cuh"
#include "split.cuh"

static_assert(SHARED_BYTES == kHeadsBytes, "the sizes of ops/attention_heads.c");

struct Counts {
    u32 blocks, steps; // so far
};

// Scores, softmax and the first columns of a split's output.
QN_DEVICE void attend_first(const attention_heads_params &all, const Tile &t, const Pieces &s, const Seen &seen,
                            const Splits &splits, const Blocks &blocks, Loader &loader, Counts &n, Running &r,
                            float (&out)[kFirstColumns / 2])
{
    const attention_params &p = all.p;
    running_clear(r);
#pragma unroll 1
    for (i32 j = 0; j < blocks.count; j++, n.blocks++) {
        const i32 key = blocks.first + j * KEYS;
        float x[KEYS / 2], factor[2];
        u32 probabilities[KEYS / 16][4];
        score_block(s, n.blocks, x);
        release_keys(s, n.blocks);
        exponentials(x, raise<kMasksAll>(p, seen, key, x, r, factor), r.sum);
        pack_probabilities<true>(x, probabilities, r.total);
        if constexpr (COLUMNS == 2) {
            put_factors(s, n.steps++, factor);
            put_probabilities(s, probabilities);
            announce(s);
        }
        if (j > 0) rescale(out, factor);
        take_values(t, s, key, n.blocks, 0);
        add_values<kFirstColumns>(out, probabilities, low_of(values_of(s, n.blocks, 0), kChunkBytes), j > 0);
        release_values(s, n.blocks, 0);
        if (COLUMNS == 1 && thread_index() == kLoader && has_next(loader)) load_next(all, t, s, splits, loader);
        __syncwarp();
    }
}

QN_DEVICE void compute_first(const attention_heads_params &all, const Tile &t, const Pieces &s, const Splits &splits,
                             i32 begin, i32 end, Loader &loader)
{
    const attention_params &p = all.p;
    Counts n = {0, 0};
    const Seen seen = {group_row(), limits_of(p, t, group_row()), inner_of(p, t)};
#pragma unroll 1
    for (i32 i = begin; i < end; i++) {
        i32 first, last;
        Running r;
        float out[kFirstColumns / 2], weight[2];
        keys_of_part<false>(p, t, splits, i, &first, &last);
        attend_first(all, t, s, seen, splits, blocks_between(first, last), loader, n, r, out);
        if (splits.count > 1) {
            store_heads(t, part_of(p, t, i), r);
            store_sums<kFirstColumns>(t, part_of(p, t, i), 0, out);
            continue;
        }
        finish_rows<false>(p, t, seen, r, weight);
        if constexpr (COLUMNS == 2) {
            put_factors(s, n.steps++, weight);
            announce(s);
        }
        const bool sees[2] = {weight[0] != 0.f, weight[1] != 0.f};
        store_columns<kFirstColumns>(p, t, seen.row, sees, 0, out, weight);
    }
}

// The other columns.
QN_DEVICE void attend_second(const Tile &t, const Pieces &s, const Blocks &blocks, Counts &n,
                             float (&out)[kSecondColumns / 2])
{
    const u32 probabilities = low_of(s.probabilities, 0);
#pragma unroll 1
    for (i32 j = 0; j < blocks.count; j++, n.blocks++) {
        float factor[2];
        take_factors(s, n.steps++, factor);
        if (j > 0) rescale(out, factor);
        take_values(t, s, blocks.first + j * KEYS, n.blocks, 1);
        add_values<kSecondColumns>(out, probabilities, low_of(values_of(s, n.blocks, 1), kChunkBytes), j > 0);
        release_values(s, n.blocks, 1);
        release_step(s);
    }
}

QN_DEVICE void compute_second(const attention_params &p, const Tile &t, const Pieces &s, const Splits &splits,
                              i32 begin, i32 end)
{
    Counts n = {0, 0};
#pragma unroll 1
    for (i32 i = begin; i < end; i++) {
        i32 first, last;
        float out[kSecondColumns / 2], weight[2];
        keys_of_part<false>(p, t, splits, i, &first, &last);
        attend_second(t, s, blocks_between(first, last), n, out);
        if (splits.count > 1) {
            store_sums<kSecondColumns>(t, part_of(p, t, i), kFirstColumns, out);
            continue;
        }
        take_factors(s, n.steps++, weight);
        const bool sees[2] = {weight[0] != 0.f, weight[1] != 0.f};
        store_columns<kSecondColumns>(p, t, group_row(), sees, kFirstColumns, out, weight);
        release_step(s);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
    QN_ENTRY(const __grid_constant__ attention_heads_params all)
{
    const attention_params &p = all.p;
    const Tile t = tile_of_packed_block(p);
    if (t.rows <= 0) return;
    const Splits splits = splits_of(p, t);
    // merge.cu waits for the end of this launch. CTAs that come early crowd on the SMs that are free first, which many
    // parts are too much for.
    if (splits.count <= 32) launch_dependents();
    if ((i32)blockIdx.y >= splits.ctas) return;
    const Pieces s = shared_pieces();
    const i32 begin = first_part<false>(p, splits, (i32)blockIdx.y),
              end = first_part<false>(p, splits, (i32)blockIdx.y + 1);
    const i32 group = warp_index() / 4;
    Loader loader = {begin, end, 0, 0};
    if (group < kGroups) load_queries(p, t, s);
    if (thread_index() == kLoader) start_barriers(s);
    __syncthreads();
    if (COLUMNS == 2 && group == kGroups) {
        setmaxnreg_dec<kLoaderRegisters>();
        if (thread_index() == kLoader)
            while (has_next(loader)) load_next(all, t, s, splits, loader);
        return;
    }
    if constexpr (COLUMNS == 2) setmaxnreg_inc<kComputerRegisters>();
    if (COLUMNS == 1 && thread_index() == kLoader)
        for (i32 i = 0; i < kStages && has_next(loader); i++) load_next(all, t, s, splits, loader);
    cp_async_wait_all();
    fence_proxy_async_shared();
    barrier_sync(3, kGroups * kGroupThreads);
    if (group == 0)
        compute_first(all, t, s, splits, begin, end, loader);
    else if constexpr (COLUMNS == 2)
        compute_second(p, t, s, splits, begin, end);
}
