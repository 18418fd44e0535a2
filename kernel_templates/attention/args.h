// SPDX-License-Identifier: Apache-2.0
// The one parameter of every attention kernel, passed by value. Valid C11 and CUDA C++: the host fills it
// (src/ops/attention.c), the kernels read it. Pointers of tensors that the spec does not have are null.
#ifndef QN_ATTENTION_ARGS_H
#define QN_ATTENTION_ARGS_H

enum {
    ATTENTION_SPLIT_QUERIES = 16, // a sequence of more queries than this is never cut
    ATTENTION_TICKETS = 16384,    // words at the workspace's start, 0 between launches
    ATTENTION_NO_LIMIT = 1 << 30  // of a window: past every position
};

// A tensor of four axes: batch (or page), position, head, column. Elements; the innermost stride is 1.
typedef struct attention_strides {
    long long batch, position, head;
} attention_strides;

typedef struct attention_params {
    const void *q;          // [B, Sq, Hq, D] or ragged [Tq, Hq, D]
    const void *k;          // [B, Sk, Hkv, D], [Tk, Hkv, D] or [pages, PAGE, Hkv, D]
    const void *v;          // the same with DV; k itself with ALIAS
    const float *sink;      // [Hq]
    const int *cu_q, *cu_k; // [B + 1]
    const int *block_table; // [B, columns]
    const int *length_k;    // [B]
    void *out;              // as q, with DV
    float *lse;             // as q, without its last axis
    unsigned char *workspace;
    attention_strides q_stride, k_stride, v_stride, out_stride;
    long long lse_stride_batch, lse_stride_position; // that of heads is 1
    long long table_stride;
    int B, Sq, Sk, Hq, Hkv;        // Sq, Sk: dense; Sk of paged: columns * PAGE, of varlen: Tk
    int window_left, window_right; // 0 … ATTENTION_NO_LIMIT
    int pack;                      // query heads of a KV head that a tile has as rows: 1, or Hq / Hkv
    int tiles;                     // of queries: dense, of a sequence; ragged, at most in all sequences together
    int split;                     // decode: keys a split, a multiple of 64 and of KEYS
    int split_ctas;                // decode: CTAs a tile, at most; 1: one does all splits
    int split_long;                // decode: those that share the first of them evenly, the others have one split each
    int split_tiles;               // decode: tiles of a sequence that may be cut, of one KV head
    int split_most;                // decode: splits that the workspace has room for, a tile
    int merges;                    // decode: 1: the CTA that ends a tile merges it, 0: merge.cu does
    float scale;                   // without its sign
    float scale_log2;              // the same times log2(e)
    float softcap;
    int aligned; // bit 0 q, 1 k, 2 v: every row begins at a multiple of 16 bytes; 3: of out, of 4
    int joins;   // decode: 1: the splits of a CTA are one part, 0: each is one
} attention_params;

#endif
