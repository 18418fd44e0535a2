// SPDX-License-Identifier: Apache-2.0
// The one parameter of the gate kernels, passed by value. Valid C11 and CUDA C++: the host fills it (src/ops/gate.c),
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

// What a token by a CTA needs comes first: 64 bytes.
typedef struct gate_params {
    const void *logits;      // [N, E], element IN
    const float *bias;       // [E]
    float *weights;          // [N, K]
    void *ids;               // [N, K], i32 or i64
    long long logits_stride; // elements from a token to the next
    long long weights_stride;
    long long ids_stride;
    float scale;
    int aligned;          // 1: every row of logits and the bias begin at a multiple of 16 bytes
    long long N;          // 1 … 2^31 - 1
    const int *given_ids; // [N, K]
    long long given_ids_stride;
    gate_parts parts;
    float *sums; // [N, E]: of the parts, where they are wanted; or null
    long long sums_stride;
} gate_params;

// The parameter of plan block. Parameters begin 16 bytes into a line of the constant cache on sm_90 (0x210): behind these
// 48, what a token needs is one line, which is there before the logits are. A line that is asked for at the end, for the
// stores, took 0.04 µs of 1.40.
typedef struct gate_block_params {
    long long skipped[6];
    gate_params p;
} gate_block_params;

#endif
