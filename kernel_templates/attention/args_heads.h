// SPDX-License-Identifier: Apache-2.0
// The one parameter of decode_heads.cu: what every attention kernel gets, and the maps of k and v. Valid C11 and CUDA C++;
// filled by src/ops/attention_heads.c.
#ifndef QN_ATTENTION_ARGS_HEADS_H
#define QN_ATTENTION_ARGS_HEADS_H

#include "args_wgmma.h"

typedef struct attention_heads_params {
    attention_map k, v; // boxes of BOX positions
    attention_params p;
} attention_heads_params;

#endif
