// SPDX-License-Identifier: Apache-2.0
// Tensor maps for the router's plans that load by TMA, wide and multicast. Called by router.c and router_multicast.c.
//
// TMA needs rows at multiples of 16 bytes. Inputs that have others are loaded element by element by the same kernels.
#include "ops/router.h"

typedef quern_router_spec spec_t;

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

bool qn_router_make_maps(const spec_t *s, const qn_config *c, const qn_driver *driver, const router_params *p,
                         int64_t x_rows, router_map *x, router_map *w)
{
    const int64_t most = (int64_t)1 << 39; // elements of 2 bytes below 2^40 bytes
    if (!driver || !p->x_aligned || !p->w_aligned || p->x_stride >= most || p->w_stride >= most) return false;
    return encode(driver, s, p->x, p->x_stride, p->gate.N, (int)x_rows, x) &&
           encode(driver, s, p->w, p->w_stride, s->E, c->value[QN_ROUTER_EXPERTS], w);
}
