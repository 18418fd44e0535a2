// SPDX-License-Identifier: Apache-2.0
// The one parameter of every indexer kernel, passed by value. Valid C11 and CUDA C++: the host fills it
// (src/ops/indexer.c), the kernels read it. Pointers of tensors that the spec does not have are null. Strides of q,
// w, keys and scales are in bytes, the others in elements.
#ifndef QN_INDEXER_ARGS_H
#define QN_INDEXER_ARGS_H

enum {
    INDEXER_TICKETS = 1024,    // words at the workspace's start: of launches whose CTAs wait for one another, of rows
    INDEXER_RAW_SCORES = 8192, // of a row, which go to the CTA that ends it instead of records
    INDEXER_LONG_TILE = 16384  // prefill: scores of a row that a tile has at most
};

typedef struct indexer_params {
    const unsigned char *q;         // [T, H, C] bf16, f16 or E4M3; mxfp4: [T, H, C/2]
    const unsigned char *q_scale;   // fp8: f32 [T, H]; mxfp4: [T, H, C/32]
    const float *w;                 // [T, H]
    const unsigned char *keys;      // entries, pages or blocks
    const unsigned char *key_scale; // null where pages hold the scales
    const float *tensor_scale;      // [1], nvfp4_heads
    const int *length;              // [T]
    const int *block_table;         // [B, columns]
    const int *row_seq;             // [T]
    const int *cu_keys;             // [B + 1]
    int *indices;                   // [T, K]
    float *scores;                  // [T, K]
    unsigned char
        *workspace; // tickets, two areas (row_together.cuh), a record a share (fused.cu) or a tile a CTA (prefill.cu)
    long long q_stride_T, q_stride_H;
    long long q_scale_stride_T, q_scale_stride_H;
    long long w_stride_T;
    long long keys_stride;       // from an entry, page or block to the next
    long long keys_stride_entry; // nvfp4_heads: from an entry to the next inside its block
    long long key_scale_stride;
    long long key_scale_stride_entry;
    long long block_table_stride;
    long long indices_stride;
    long long scores_stride;
    long long capacity; // entries that a row can have
    int shares;         // CTAs a row: SHARES, or 1; of the plan "wgmma" more than 1 only where all CTAs are resident
    int rows;           // T
    int chunk;          // prefill: entries of a tile, a multiple of 64, at least K
    int keys_aligned;   // values of every entry begin where a lane's vector may, scales where a word may
    int q_aligned;      // q begins at multiples of 16 bytes, its scales at multiples of 4
    int sequences;      // rows of block_table, 0: nothing is to be read of it ahead
} indexer_params;

#endif
