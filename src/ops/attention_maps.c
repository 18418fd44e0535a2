// SPDX-License-Identifier: Apache-2.0
// attention's tensors for TMA: which of them it can load, and their maps. Called by attention.c, attention_wgmma.c and
// attention_heads.c.
#include "attention/args_wgmma.h"
#include "cuda/driver.h"
#include "ops/attention.h"

static bool is_mappable(const void *base, const attention_strides *s)
{
    uint64_t all = (uint64_t)(uintptr_t)base | 2 * (uint64_t)(s->batch | s->position | s->head);
    const int64_t most = (int64_t)1 << 39; // elements of 2 bytes below 2^40 bytes
    return all % 16 == 0 && s->batch < most && s->position < most && s->head < most;
}

// Everything that the driver asks for, so that it does not refuse a map of these.
bool qn_attention_is_mapped(const quern_attention_spec *s, const struct qn_driver *driver, const attention_params *p,
                            int64_t pages)
{
    bool some = s->layout == QUERN_LAYOUT_PAGED ? pages > 0 : p->Sk > 0;
    return driver && some && is_mappable(p->q, &p->q_stride) && is_mappable(p->k, &p->k_stride) &&
           is_mappable(p->v, &p->v_stride) && is_mappable(p->out, &p->out_stride);
}

static bool encode(const quern_attention_spec *s, const qn_driver *driver, const void *base,
                   const attention_strides *stride, const cuuint64_t dims[4], int rows, attention_map *map)
{
    const cuuint64_t strides[3] = {2 * (uint64_t)stride->position, 2 * (uint64_t)stride->head,
                                   2 * (uint64_t)stride->batch};
    const cuuint32_t box[4] = {64, (cuuint32_t)rows, 1, 1}, steps[4] = {1, 1, 1, 1};
    CUtensorMapDataType type = s->in == QUERN_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    return driver->cuTensorMapEncodeTiled((CUtensorMap *)(void *)map, type, 4, (void *)(uintptr_t)base, dims, strides,
                                          box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool qn_attention_map_queries(const quern_attention_spec *s, const struct qn_driver *driver, const attention_params *p,
                              int64_t queries, int rows, attention_map *map)
{
    const cuuint64_t dims[4] = {(uint64_t)s->d, (uint64_t)queries, (uint64_t)p->Hq, s->cu_q ? 1 : (uint64_t)p->B};
    return encode(s, driver, p->q, &p->q_stride, dims, rows, map);
}

bool qn_attention_map_keys(const quern_attention_spec *s, const struct qn_driver *driver, const attention_params *p,
                           int64_t pages, bool values, int rows, attention_map *map)
{
    bool paged = s->layout == QUERN_LAYOUT_PAGED;
    const cuuint64_t dims[4] = {(uint64_t)(values ? s->dv : s->d), (uint64_t)(paged ? s->page : p->Sk),
                                (uint64_t)p->Hkv,
                                paged                              ? (uint64_t)pages
                                : s->layout == QUERN_LAYOUT_VARLEN ? 1
                                                                   : (uint64_t)p->B};
    return encode(s, driver, values ? p->v : p->k, values ? &p->v_stride : &p->k_stride, dims, rows, map);
}
