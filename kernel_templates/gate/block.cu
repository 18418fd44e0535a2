// SPDX-License-Identifier: Apache-2.0
// gate, plan "block": one CTA a token, one thread an expert. For few tokens, where the number of dependent steps is the
// time.
//
//   weight_r = a_r / Σ a · scale of the K experts with the largest a + bias, a = activation(logit)
//
// The phases are those of block.cuh, after the load. ANALYSIS.md: work, bounds, measured figures.
#include "block.cuh"

static_assert(THREADS >= kE, "a thread an expert");
static_assert(SHARED_BYTES >= kBlockBytes, "the sizes of ops/gate.c; a router may ask for more");

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS) QN_ENTRY(const __grid_constant__ gate_block_params all)
{
    const gate_params &p = all.p;
    const Shared s = shared_pieces();
    const i64 token = blockIdx.x;
    const u32 expert = threadIdx.x;
    const bool exists = THREADS == kE || expert < kE;
    clear_list(s);
    const float bias = exists ? bias_of(p, expert) : 0.f;
    const Logits logits = logits_of(p, token);
    if constexpr (DEPENDENT) wait_for_previous_launch();
    const float x = exists ? load_logit(logits, expert) : -infinity();
    if (exists) store_sum(p, token, expert, x);
    gate_by_block(p, s, token, Token{p, token}, x, bias);
}
