// SPDX-License-Identifier: Apache-2.0
// The one parameter of the attention kernels that load q, k and v by TMA (prefill_wgmma.cu, prefill_wgmma_columns.cu):
// what every attention kernel gets, and the tensors' maps. Valid C11 and CUDA C++; filled by src/ops/attention_wgmma.c.
#ifndef QN_ATTENTION_ARGS_WGMMA_H
#define QN_ATTENTION_ARGS_WGMMA_H

#include "args.h"

#ifdef __cplusplus
#define ATTENTION_ALIGNED_64 alignas(64)
#else
#define ATTENTION_ALIGNED_64 _Alignas(64)
#endif

// A CUtensorMap of axes column, position, head, batch (or page); boxes of 64 columns, swizzled by 128 bytes.
typedef struct attention_map {
    ATTENTION_ALIGNED_64 unsigned long long words[16];
} attention_map;

typedef struct attention_wgmma_params {
    attention_map q;    // boxes of 64 positions
    attention_map k, v; // boxes of KEYS positions
    attention_params p;
    int items; // that CTAs take in turn: tiles, or pairs of them
    int pairs; // of a sequence and head: the tile that sees most keys with the one that sees fewest, and so on; 0: none
} attention_wgmma_params;

#endif
