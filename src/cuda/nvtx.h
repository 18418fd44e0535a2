// SPDX-License-Identifier: Apache-2.0
// NVTX ranges for whichever tool asks for them. NVTX has no library of its own: a tool (Nsight Systems, Nsight Compute, …)
// names its injection library in NVTX_INJECTION64_PATH, and each user of NVTX offers it a table of entry points to fill.
#ifndef QN_CUDA_NVTX_H
#define QN_CUDA_NVTX_H

typedef struct qn_nvtx {
    int (*push)(const char *name);
    int (*pop)(void);
} qn_nvtx;

// The tool of this library, loaded once a process; NULL: there is none, or it wants no ranges. file may be NULL.
const qn_nvtx *qn_nvtx_load(const char *file);
void qn_nvtx_replace(const qn_nvtx *ranges); // the bench: ranges of querns opened from now on; NULL goes back

// A range on this thread: "<prefix><name>". Nothing happens without a tool.
void qn_nvtx_push(const qn_nvtx *nvtx, const char *prefix, const char *name);
void qn_nvtx_pop(const qn_nvtx *nvtx);

#endif
