// SPDX-License-Identifier: Apache-2.0
// router's plan "multicast" (sm_90a): the launch with its tensor maps. Called by router.c; the kernel is
// kernel_templates/router/multicast.cu.
//
// TMA needs rows at multiples of 16 bytes. Inputs that have others are loaded element by element by the same kernel.
#include <string.h>

#include "ops/router.h"
#include "router/args_multicast.h"

typedef quern_router_spec spec_t;

int qn_router_cluster(const qn_config *c)
{
    if (c->value[QN_ROUTER_PLAN] != QN_ROUTER_MULTICAST) return 1;
    return c->value[QN_ROUTER_CLUSTER_N] * c->value[QN_ROUTER_CLUSTER_E];
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

static bool make_maps(const spec_t *s, const qn_config *c, const qn_driver *driver, router_multicast_params *m)
{
    const router_params *p = &m->p;
    const int64_t most = (int64_t)1 << 39; // elements of 2 bytes below 2^40 bytes
    if (!driver || !p->x_aligned || !p->w_aligned || p->x_stride >= most || p->w_stride >= most) return false;
    return encode(driver, s, p->x, p->x_stride, p->gate.N, c->value[QN_ROUTER_TOKENS], &m->x) &&
           encode(driver, s, p->w, p->w_stride, s->E, c->value[QN_ROUTER_EXPERTS], &m->w);
}

void qn_router_multicast_launch(const spec_t *s, const qn_config *c, const qn_driver *driver, const router_params *p,
                                qn_launch *out)
{
    router_multicast_params *m = (router_multicast_params *)(void *)out->params;
    int64_t down = (int64_t)c->value[QN_ROUTER_TOKENS] * c->value[QN_ROUTER_CLUSTER_N];
    int64_t across = (int64_t)c->value[QN_ROUTER_EXPERTS] * c->value[QN_ROUTER_CLUSTER_E];
    int64_t clusters = ceil_div(p->gate.N, down) * ceil_div(pitch_of(s), across) * qn_router_cut_of(s, c).slices;
    m->p = *p;
    m->mapped = make_maps(s, c, driver, m);
    out->grid[0] = (uint32_t)(clusters * qn_router_cluster(c));
}
