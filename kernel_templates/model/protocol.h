/* SPDX-License-Identifier: Apache-2.0 */
/* What the host side (C) and the model's runner (C++) say to each other: requests on the runner's standard input,
 * replies on its standard output, one after another; the sanitizers' reports go to its standard error. Device memory is
 * a file in memory, which both map at the same address: buffers need no copying and pointers no translation. */
#ifndef QN_MODEL_PROTOCOL_H
#define QN_MODEL_PROTOCOL_H

#include <stdint.h>

/* The runner's arguments: its build ("access" has the checks of every access), file descriptor, address and bytes of the
 * window, as decimal numbers. The address is one that neither the kernel's random placement nor the sanitizers' shadows
 * use. */
#define QN_MODEL_WINDOW       0x7e9000000000ull
#define QN_MODEL_WINDOW_BYTES (16ull << 30)
#define QN_MODEL_WINDOWS      16 /* how many a process may try */

enum { QN_MODEL_REQUEST = 0x716d7231, QN_MODEL_REPLY = 0x716d7032 };

typedef struct qn_model_request {
    uint32_t magic;
    uint32_t grid[3], threads, cluster;           /* CTAs, threads a CTA, CTAs a cluster (along x) */
    uint32_t shared_bytes;                        /* dynamic shared memory a CTA */
    uint32_t resident;                            /* CTAs at a time on the device */
    uint32_t cc, suffix, shared_cta, max_cluster; /* the architecture */
    uint32_t shuffle, seed;
    uint32_t path_bytes, params_bytes, buffer_count; /* then: path, parameters, buffers */
} qn_model_request;

typedef struct qn_model_buffer {
    uint64_t begin, bytes;
    uint32_t input; /* 1: stores to it are faults */
    char name[28];
} qn_model_buffer;

typedef struct qn_model_reply {
    uint32_t magic;
    uint32_t fault;      /* 0: the launch ran to its end */
    uint32_t text_bytes; /* then: the report */
    uint32_t reserved;
    uint64_t switches, operations, barriers, landings, accesses;
} qn_model_reply;

#endif
