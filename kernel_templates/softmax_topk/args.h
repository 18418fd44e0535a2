// SPDX-License-Identifier: Apache-2.0
// The one parameter of every softmax_topk kernel, passed by value. Valid C11 and CUDA C++: the host fills it
// (src/ops/softmax_topk.c), the kernels read it. Pointers of tensors that the spec does not have are null.
#ifndef QN_SOFTMAX_TOPK_ARGS_H
#define QN_SOFTMAX_TOPK_ARGS_H

enum { SOFTMAX_TOPK_TICKETS = 4096 }; // words at a split plan's workspace's start, 0 between launches

typedef struct softmax_topk_params {
    const void *logits;       // [rows, V], element IN
    const float *temperature; // [rows]
    const int *token;         // [rows]
    float *values;            // [rows, K]
    void *indices;            // [rows, K], i32 or i64
    float *lse;               // [rows]
    float *token_value;       // [rows]
    int *token_rank;          // [rows]
    unsigned char *workspace; // split only: tickets, then a record a share (split.cu)
    long long logits_stride;  // elements from a row to the next
    long long values_stride;
    long long indices_stride;
    long long rows; // 1 … 2^31 - 1
} softmax_topk_params;

#endif
