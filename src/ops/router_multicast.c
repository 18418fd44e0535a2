// SPDX-License-Identifier: Apache-2.0
// router's plan "multicast" (sm_90a): what it can do, how its work is dealt, its launch. Called by router.c and
// router_plan.c; the kernel is kernel_templates/router/multicast.cu.
#include "ops/router.h"

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

void qn_router_multicast_launch(const spec_t *s, const qn_config *c, const qn_device_limits *limits,
                                const router_params *p, qn_launch *out)
{
    router_multicast_params *m = (router_multicast_params *)(void *)out->params;
    qn_router_deal deal = qn_router_deal_of(s, c, limits->sm_count, p->gate.N);
    m->p = *p;
    m->parts = deal.parts;
    m->tiles_each = (unsigned)(deal.tiles / deal.clusters);
    m->tiles_more = (unsigned)(deal.tiles % deal.clusters);
    m->mapped = qn_router_make_maps(s, c, limits->driver, p, c->value[QN_ROUTER_TOKENS], &m->x, &m->w);
    out->grid[0] = (uint32_t)(deal.clusters * qn_router_cluster(c));
}
