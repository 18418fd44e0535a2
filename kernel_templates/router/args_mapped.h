// SPDX-License-Identifier: Apache-2.0
// The one parameter of the router kernels that load by TMA (wide.cu, multicast.cu): what every router kernel gets, and the
// maps of x and W. Valid C11 and CUDA C++; filled by src/ops/router.c and router_multicast.c.
#ifndef QN_ROUTER_ARGS_MAPPED_H
#define QN_ROUTER_ARGS_MAPPED_H

#include "args.h"

#ifdef __cplusplus
#define ROUTER_ALIGNED_64 alignas(64)
#else
#define ROUTER_ALIGNED_64 _Alignas(64)
#endif

// A CUtensorMap of axes d and row; boxes of 64 of D, swizzled by 128 bytes.
typedef struct router_map {
    ROUTER_ALIGNED_64 unsigned long long words[16];
} router_map;

typedef struct router_mapped_params {
    router_params p; // x_aligned 0 where there are no maps
    router_map x;    // boxes of TOKENS rows; of wide, of N where that is less
    router_map w;    // boxes of EXPERTS rows
} router_mapped_params;

typedef struct router_multicast_params {
    router_params p;
    gate_parts parts;    // how work is dealt; blocks 0: whole tiles
    unsigned tiles_each; // whole tiles of a cluster …
    unsigned tiles_more; // … and of one more: so many clusters
    int mapped;          // 0: an input does not begin at a multiple of 16 bytes, and there are no maps
    router_map x;
    router_map w;
} router_multicast_params;

#endif
