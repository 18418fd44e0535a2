// SPDX-License-Identifier: Apache-2.0
// What launches of gate kernels share: those of the family gate (gate.c) and those that the router makes (router.c).
#ifndef QN_OPS_GATE_H
#define QN_OPS_GATE_H

#include <stddef.h>
#include <string.h>

#include "gate/args.h"
#include "ops/family.h"

// The parameter as the kernel takes it: of plan block behind what it skips, which nobody reads, but the driver copies.
static inline void qn_gate_put_params(const qn_kernel_plan *k, const gate_params *p, void *params)
{
    const size_t at = k->params_bytes == sizeof(gate_block_params) ? offsetof(gate_block_params, p) : 0;
    memset(params, 0, at);
    memcpy((char *)params + at, p, sizeof *p);
}

// The choice for tokens whose logits come from the launch before (DEPENDENT; the family's own choice is for a gate alone).
void qn_gate_choose_dependent(const quern_gate_spec *s, const qn_arch *arch, size_t bucket, qn_config *config);

// Bytes of shared memory of a gate by a CTA of so many threads (block.cuh: kBlockBytes).
int qn_gate_block_shared(const quern_gate_spec *s, int threads);

#endif
