// SPDX-License-Identifier: Apache-2.0
// The tuner's questions about gate: few tokens find their logits in the L2, as a decode step does, and every pattern of
// the hostile list is checked, with rows at all alignments.
#include <stdlib.h>
#include <string.h>

#include "support/check_gate.h"
#include "support/hostile_gate.h"
#include "tune_subject.h"

enum { TOKENS = 37, FEW_TOKENS = 512, FEW_COPIES = 64 };

typedef struct state {
    gate_case c;
    gate_data data; // refers to c
} state;

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

static bool make(const quern_spec *base, size_t index, tune_case *out)
{
    const quern_gate_spec *spec = (const quern_gate_spec *)base;
    gate_case c;
    if (!gate_pattern(index, spec, TOKENS, &c)) return false;
    memset(out, 0, sizeof *out);
    c.offset = (int64_t)(index % 5);
    if (index % 3) c.logits_stride = spec->E + (int64_t)(index % 4), c.weights_stride = spec->K + (int64_t)(index % 2);
    state *s = calloc(1, sizeof *s);
    if (!s) return true;
    s->c = c;
    if (!gate_data_make(&s->c, &s->data)) {
        free(s);
        return true;
    }
    tune_case_fill(out, s, s->data.buffer, GATE_BUFFERS, &s->data.args.base);
    return true;
}

static int64_t judge(const tune_case *c, qn_text *report)
{
    return gate_check_case(&((const state *)c->state)->data, report);
}

static void unmake(tune_case *c)
{
    state *s = c->state;
    if (s) gate_data_free(&s->data);
    free(s);
}

const tune_subject tune_gate = {.family = &qn_family_gate,
                                .fill = fill,
                                .most_copies = most_copies,
                                .make = make,
                                .judge = judge,
                                .unmake = unmake};
