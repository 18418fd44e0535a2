// SPDX-License-Identifier: Apache-2.0
// The one parameter of the router kernels without tensor maps (args_mapped.h: with), passed by value. Valid C11 and CUDA
// C++: the host fills it (src/ops/router.c), the kernels read it. Pointers of tensors that the spec does not have are null.
#ifndef QN_ROUTER_ARGS_H
#define QN_ROUTER_ARGS_H

#include "gate/args.h"

// What of a token's way a launch goes.
enum { ROUTER_WHOLE = 0, ROUTER_PARTS = 1, ROUTER_GATE = 2 };
// Whether logits are stored; by pairs where every row begins at a multiple of 8 bytes.
enum { ROUTER_LOGITS_NONE = 0, ROUTER_LOGITS_EACH = 1, ROUTER_LOGITS_PAIRS = 2 };
enum { ROUTER_MOST_WHOLE = 64 }; // tokens of a ROUTER_WHOLE; words of launches up to here are left as they were

// What a kernel needs before it can load anything comes first: 48 bytes, which share a line of the constant cache.
typedef struct router_params {
    const void *x;            // [N, D], element X_TYPE
    const void *w;            // [E, D], or [D, E], element W_TYPE
    unsigned *words;          // [N, SLICES, pitch]: the partial sums on their way; pitch: E in whole vectors of 4
    long long x_stride;       // elements from a row to the next
    long long w_stride;       //
    unsigned tokens;          // N
    unsigned char part;       // ROUTER_WHOLE …
    unsigned char x_aligned;  // 1: every row begins at a multiple of 16 bytes
    unsigned char w_aligned;  //
    unsigned char logits_are; // ROUTER_LOGITS_NONE …
    gate_params gate;         // all but its logits; N, outputs, bias
    float *logits;            // [N, E]: wanted of a launch that gates, target of one that stores logits; or null
    long long logits_stride;  // elements from a row to the next
} router_params;

#endif
