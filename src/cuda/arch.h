// SPDX-License-Identifier: Apache-2.0
// Architectures: their names, what each can do, and which targets serve a device. A table, nothing else.
#ifndef QN_CUDA_ARCH_H
#define QN_CUDA_ARCH_H

#include <stdbool.h>

#include "base/status.h"

typedef struct qn_arch {
    const char *name;          // "sm_90a"
    int cc;                    // 90: compute capability × 10
    char suffix;               // 'a', 'f' or 0
    int sm_count;              // of its usual part (H200: 132); plans are made for it, so that they need no device
    int max_threads_sm;        // resident threads an SM
    int max_ctas_sm;           // resident CTAs an SM
    int registers_sm;          // 32-bit registers an SM
    int shared_sm;             // bytes of shared memory an SM
    int shared_cta;            // most bytes a CTA can ask for (opt-in)
    int max_cluster;           // CTAs a cluster, non-portable size included; 1 = no clusters
    int tensor_memory_columns; // tcgen05: 512, else 0
    bool has_cp_async, has_bulk_copy, has_wgmma, has_tcgen05;
} qn_arch;

// All architectures that Quern has plans for, in order of cc.
const qn_arch *qn_arch_list(size_t *count);

// By name ("sm_90a"; "90a" and "compute_…" are not names). UNKNOWN_ARCH lists the known ones.
quern_status qn_arch_find(const char *name, const qn_arch **arch);

// The targets that run on a device of this compute capability, best first: exact 'a', family 'f', plain; then lower
// minors of the same major, where a cubin may run. Returns how many were written, at most 8; 0 = a device we don't know.
size_t qn_arch_targets(int cc, const qn_arch *targets[8]);

#endif
