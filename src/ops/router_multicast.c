// SPDX-License-Identifier: Apache-2.0
// router's plans "wide" and "multicast" (sm_90a): launches with tensor maps, and how multicast's work is dealt. Called by
// router.c; the kernels are kernel_templates/router/wide.cu and multicast.cu.
//
// TMA needs rows at multiples of 16 bytes. Inputs that have others are loaded element by element by the same kernels.
#include <string.h>

#include "ops/router.h"
#include "router/args_mapped.h"

typedef quern_router_spec spec_t;

int qn_router_cluster(const qn_config *c)
{
    if (c->value[QN_ROUTER_PLAN] != QN_ROUTER_MULTICAST) return 1;
    return c->value[QN_ROUTER_CLUSTER_N] * c->value[QN_ROUTER_CLUSTER_E];
}

quern_status qn_router_multicast_check(const spec_t *s, const qn_config *c)
{
    const int *v = c->value;
    const char *word = word_of(qn_router_plan_names, v[QN_ROUTER_PLAN]);
    const bool whole = v[QN_ROUTER_SUMS] == QN_ROUTER_WHOLE;
    if (qn_router_cluster(c) > 8)
        return qn_fail(QUERN_NO_PLAN, "plan=%s: %d CTAs a cluster, 8 at most", word, qn_router_cluster(c));
    if (v[QN_ROUTER_EXPERTS] * v[QN_ROUTER_CLUSTER_E] < pitch_of(s)) {
        return qn_fail(QUERN_NO_PLAN, "plan=%s: %d experts a CTA and %d CTAs for them are fewer than E = %lld", word,
                       v[QN_ROUTER_EXPERTS], v[QN_ROUTER_CLUSTER_E], (long long)s->E);
    }
    if (whole != (v[QN_ROUTER_SLICES] == 1))
        return qn_fail(QUERN_NO_PLAN, "plan=%s slices=%d: 1 with sums=whole, more with parts", word,
                       v[QN_ROUTER_SLICES]);
    return QUERN_OK;
}

// ---- launch

// Parts of a tile of `blocks` where its clusters have runs of at least `run` blocks that begin anywhere.
static int64_t most_parts(int64_t blocks, int64_t run)
{
    return ceil_div(blocks - 1, run) + 1;
}

qn_router_deal qn_router_deal_of(const spec_t *s, const qn_config *c, int sm_count, int64_t N)
{
    const int64_t blocks = ceil_div(s->D, 64), slices = c->value[QN_ROUTER_SLICES];
    const int64_t most = most_of(least_of(c->value[QN_ROUTER_CTAS], sm_count) / qn_router_cluster(c), 1);
    const int tokens = c->value[QN_ROUTER_TOKENS] * c->value[QN_ROUTER_CLUSTER_N];
    qn_router_deal deal = {.tiles = ceil_div(N, tokens)};
    const int64_t all = deal.tiles * blocks;
    deal.clusters = least_of(most, deal.tiles);
    if (slices == 1) return deal;
    int64_t clusters = least_of(most, least_of(all, deal.tiles * slices));
    // Runs that begin with a tile make a part each: that is worth a few clusters. Else a cluster stores two parts in turn.
    const int64_t spare = clusters % deal.tiles;
    if (8 * spare <= clusters || most_parts(blocks, all / clusters) > slices) clusters -= clusters > spare ? spare : 0;
    if (clusters < 1 || all * clusters > UINT32_MAX) return deal;
    deal.clusters = clusters;
    deal.parts = (gate_parts){(unsigned)all, (int)clusters, (int)blocks, tokens};
    return deal;
}

// False: the driver refused.
static bool encode(const qn_driver *driver, const spec_t *s, const void *base, int64_t stride, int64_t rows,
                   int box_rows, router_map *map)
{
    const cuuint64_t dims[2] = {(cuuint64_t)s->D, (cuuint64_t)rows}, strides[1] = {2 * (cuuint64_t)stride};
    const cuuint32_t box[2] = {64, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    CUtensorMapDataType type = s->in == QUERN_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    return driver->cuTensorMapEncodeTiled((CUtensorMap *)(void *)map, type, 2, (void *)(uintptr_t)base, dims, strides,
                                          box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static bool make_maps(const spec_t *s, const qn_config *c, const qn_driver *driver, const router_params *p,
                      int64_t x_rows, router_map *x, router_map *w)
{
    const int64_t most = (int64_t)1 << 39; // elements of 2 bytes below 2^40 bytes
    if (!driver || !p->x_aligned || !p->w_aligned || p->x_stride >= most || p->w_stride >= most) return false;
    return encode(driver, s, p->x, p->x_stride, p->gate.N, (int)x_rows, x) &&
           encode(driver, s, p->w, p->w_stride, s->E, c->value[QN_ROUTER_EXPERTS], w);
}

void qn_router_wide_launch(const spec_t *s, const qn_config *c, const qn_driver *driver, const router_params *p,
                           qn_launch *out)
{
    router_mapped_params *m = (router_mapped_params *)(void *)out->params;
    m->p = *p;
    if (!make_maps(s, c, driver, p, least_of(p->gate.N, c->value[QN_ROUTER_TOKENS]), &m->x, &m->w)) m->p.x_aligned = 0;
}

void qn_router_multicast_launch(const spec_t *s, const qn_config *c, const qn_device_limits *limits,
                                const router_params *p, qn_launch *out)
{
    router_multicast_params *m = (router_multicast_params *)(void *)out->params;
    qn_router_deal deal = qn_router_deal_of(s, c, limits->sm_count, p->gate.N);
    m->p = *p;
    m->parts = deal.parts;
    m->tiles_each = (unsigned)(deal.tiles / deal.clusters);
    m->tiles_more = (unsigned)(deal.tiles % deal.clusters);
    m->mapped = make_maps(s, c, limits->driver, p, c->value[QN_ROUTER_TOKENS], &m->x, &m->w);
    out->grid[0] = (uint32_t)(deal.clusters * qn_router_cluster(c));
}
