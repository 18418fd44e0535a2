// SPDX-License-Identifier: Apache-2.0
// The one parameter of every gate kernel, passed by value. Valid C11 and CUDA C++: the host fills it (src/ops/gate.c),
// the kernels read it. Pointers of tensors that the spec does not have are null.
#ifndef QN_GATE_ARGS_H
#define QN_GATE_ARGS_H

// Of logits in parts (PARTS > 1): tiles of tokens, each of `tile_blocks` blocks; the blocks of all tiles in turn are dealt to
// workers in runs of equal length, and who has blocks of a tile has a part of its logits. blocks 0: one part each.
typedef struct gate_parts {
    unsigned blocks; // of all tiles; times workers below 2^32
    int workers;
    int tile_blocks;
    int tile_tokens;
} gate_parts;

typedef struct gate_params {
    const void *logits;      // [N, E], element IN
    const float *bias;       // [E]
    const int *given_ids;    // [N, K]
    float *weights;          // [N, K]
    void *ids;               // [N, K], i32 or i64
    long long logits_stride; // elements from a token to the next
    long long given_ids_stride;
    long long weights_stride;
    long long ids_stride;
    long long N; // 1 … 2^31 - 1
    float scale;
    int aligned; // 1: every row of logits and the bias begin at a multiple of 16 bytes
    gate_parts parts;
    float *sums; // [N, E]: of the parts, where they are wanted; or null
    long long sums_stride;
} gate_params;

#endif
