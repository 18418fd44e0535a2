// SPDX-License-Identifier: Apache-2.0
// The tuner's questions about gate: few tokens find their logits in the L2, as a decode step does, and every pattern of
// the hostile list is checked, with rows at all alignments.
#include <string.h>

#include "support/check_gate.h"
#include "support/hostile_gate.h"
#include "tune_subject.h"

enum { TOKENS = 37, FEW_TOKENS = 512, FEW_COPIES = 64 };

TUNE_CASES(gate_case, gate_data, GATE_BUFFERS, gate_data_make(c, data), gate_data_free(data),
           gate_check_case(data, report));

// Biases as training leaves them: small. Experts that are given, in turn.
static bool fill(const quern_spec *spec, const void *sizes, const qn_tensor *tensor, size_t copy, void *host,
                 size_t elements)
{
    (void)spec, (void)sizes, (void)copy;
    if (strcmp(tensor->name, "bias") != 0) return false;
    for (size_t i = 0; i < elements; i++) ((float *)host)[i] = (float)((int)(i * 37 % 101) - 50) / 500.0f;
    return true;
}

static size_t most_copies(const void *sizes)
{
    return ((const quern_gate_sizes *)sizes)->N <= FEW_TOKENS ? FEW_COPIES : 0;
}

static bool question(const quern_spec *base, size_t index, void *out)
{
    const quern_gate_spec *spec = (const quern_gate_spec *)base;
    gate_case *c = out;
    if (!gate_pattern(index, spec, TOKENS, c)) return false;
    c->offset = (int64_t)(index % 5);
    if (index % 3)
        c->logits_stride = spec->E + (int64_t)(index % 4), c->weights_stride = spec->K + (int64_t)(index % 2);
    return true;
}

const tune_subject tune_gate = {
    .family = &qn_family_gate, .fill = fill, .most_copies = most_copies, .cases = &cases, .question = question};
