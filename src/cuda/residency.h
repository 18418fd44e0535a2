// SPDX-License-Identifier: Apache-2.0
// How many CTAs of a kernel the registers of an SM are enough for. One rule for plans, for what __launch_bounds__ makes of
// their CTAs an SM, and for the tests that compile kernels.
#ifndef QN_CUDA_RESIDENCY_H
#define QN_CUDA_RESIDENCY_H

#include "cuda/arch.h"

// CTAs an SM of so many threads with so many registers each; 0: not even one can be launched.
int qn_ctas_by_registers(const qn_arch *arch, int threads, int registers);

// The most registers a thread may have for so many CTAs an SM of so many threads; 0: no number will do. What
// __launch_bounds__(threads, ctas) caps a kernel at.
int qn_registers_for_ctas(const qn_arch *arch, int threads, int ctas);

#endif
