// SPDX-License-Identifier: Apache-2.0
// indexer's plan "prefill" (sm_90a): what it serves, its shared memory, its tiles of scores, its launch. The kernel is
// kernel_templates/indexer/prefill.cu, which asserts the sizes computed here.
//
// The workspace is a tile for each CTA that can be resident, of ROWS rows: scores of up to CHUNK entries or what reaches the
// cut of up to half as many, candidates, and what is kept from chunk to chunk.
#include "indexer/args.h"
#include "ops/indexer.h"

typedef quern_indexer_spec spec_t;

enum {
    ROWS = 8,         // a CTA
    THREADS = 256,    // a warp a row
    MOST_TILES = 264, // two an SM
    CHUNK = INDEXER_LONG_TILE,
    LEAST_CHUNK = 2048, // the most K
    CAP = 8192,
    MOST_IN_BIN = 64, // select.cuh
    WORDS = 18,
    ROW_BINS = 2048,
};

static int64_t columns_of(const spec_t *s)
{
    return (s->H + 15) / 16 * 16;
}

static int64_t parts_of(const spec_t *s) // products for all rows
{
    int64_t columns = columns_of(s);
    return columns > 64 ? ROWS : columns > 32 ? ROWS / 2 : columns > 16 ? ROWS / 4 : ROWS / 8;
}

static int64_t shared_bytes(const spec_t *s)
{
    int64_t sorted = 32, element = s->q == QUERN_INDEXER_Q_MXFP4 ? 1 : 2; // bytes of q's operand
    int64_t group = ROWS * (columns_of(s) * (s->C * element + 4) + 16) + 4 * (5 * ROWS + 4 + parts_of(s));
    while (sorted < s->k) sorted *= 2;
    int64_t by_warps = ROWS * ROW_BINS * 2, by_all = 8 * (sorted + MOST_IN_BIN) + 4 * (2048 + THREADS / 32 + WORDS);
    return (group + 15) / 16 * 16 + (by_warps > by_all ? by_warps : by_all);
}

// Of a row in a tile, besides its scores (prefill.cu).
static int64_t list_bytes(const spec_t *s)
{
    return 8 * ((s->k + 129) / 2 * 2 + (s->k + 1) / 2 * 2);
}

bool qn_indexer_has_wgmma(const spec_t *s, const qn_arch *arch)
{
    bool integers = s->layout == QUERN_INDEXER_MXFP4_SHARED && s->q == QUERN_INDEXER_Q_MXFP4;
    bool halves = s->layout == QUERN_INDEXER_FP8_SHARED &&
                  (s->q == QUERN_INDEXER_Q_FP8 || s->q == QUERN_INDEXER_Q_F16) && s->H <= 64;
    return arch->has_wgmma && (integers || halves) && s->C <= 128 && s->granularity == QUERN_GRANULARITY_ENTRY;
}

bool qn_indexer_prefill_serves(const spec_t *s, const qn_arch *arch)
{
    return qn_indexer_has_wgmma(s, arch) && shared_bytes(s) <= arch->shared_cta;
}

quern_status qn_indexer_prefill_plan(const spec_t *s, const qn_arch *arch, qn_kernel_plan *k)
{
    if (!qn_indexer_prefill_serves(s, arch))
        return qn_fail(QUERN_NO_PLAN,
                       "plan=prefill serves mxfp4 by mxfp4, and fp8_shared by fp8 or f16 with up to 64 heads; C up to "
                       "128, entries, on sm_90a: not this spec on %s",
                       arch->name);
    k->template_path = "indexer/prefill.cu";
    k->threads = THREADS;
    k->dynamic_shared = (int)shared_bytes(s);
    k->min_ctas = 2 * (k->dynamic_shared + 1024) <= arch->shared_sm ? 2 : 1;
    qn_plan_constant(k, "ROWS", ROWS);
    qn_plan_constant(k, "CAP", CAP);
    qn_plan_constant(k, "LIST_BYTES", list_bytes(s));
    qn_plan_constant(k, "QUERY_SHARED", 1);
    return QUERN_OK;
}

static int64_t chunk_of(int64_t max_length)
{
    int64_t chunk = (max_length + 63) / 64 * 64;
    return max_length == 0 || chunk > CHUNK ? CHUNK : chunk < LEAST_CHUNK ? LEAST_CHUNK : chunk;
}

static int64_t groups_of(int64_t rows)
{
    return (rows + ROWS - 1) / ROWS;
}

size_t qn_indexer_prefill_workspace(const spec_t *s, int64_t rows, int64_t max_length)
{
    int64_t ctas = groups_of(rows) < MOST_TILES ? groups_of(rows) : MOST_TILES;
    int64_t chunk = chunk_of(max_length), pitch = 2 * chunk < CHUNK ? 2 * chunk : CHUNK; // as tile_pitch
    return (size_t)(ctas * ROWS * (4 * pitch + list_bytes(s)));
}

void qn_indexer_prefill_launch(int64_t rows, int64_t max_length, const qn_device_limits *limits,
                               const qn_kernel_plan *k, indexer_params *p, uint32_t *grid)
{
    int64_t groups = groups_of(rows), most = (int64_t)limits->sm_count * k->min_ctas;
    if (most > MOST_TILES) most = MOST_TILES;
    p->chunk = (int)chunk_of(max_length);
    *grid = (uint32_t)(groups < most ? groups : most);
}
