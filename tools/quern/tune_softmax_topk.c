// SPDX-License-Identifier: Apache-2.0
// The tuner's questions about softmax_topk: what its optional inputs hold while it is timed, and every pattern of the
// hostile list, with rows at all alignments.
#include <string.h>

#include "support/check.h"
#include "tune_subject.h"

enum { ELEMENTS = 1 << 20, MOST_ROWS = 5 };

TUNE_CASES(hostile_case, hostile_data, HOSTILE_BUFFERS, hostile_data_make(c, data), hostile_data_free(data),
           check_case(data, report));

// Temperatures near 1, tokens inside the vocabulary: what sampling does.
static bool fill(const quern_spec *spec, const void *sizes, const qn_tensor *tensor, size_t copy, void *host,
                 size_t elements)
{
    (void)spec, (void)sizes, (void)copy;
    if (strcmp(tensor->name, "temperature") && strcmp(tensor->name, "token")) return false;
    for (size_t i = 0; i < elements; i++) {
        if (!strcmp(tensor->name, "token"))
            ((int32_t *)host)[i] = 0;
        else
            ((float *)host)[i] = 0.7f;
    }
    return true;
}

static bool question(const quern_spec *base, size_t index, void *out)
{
    const quern_softmax_topk_spec *spec = (const quern_softmax_topk_spec *)base;
    int64_t rows = ELEMENTS / spec->V + 1;
    hostile_case *c = out;
    if (!hostile_pattern(index, spec, rows < MOST_ROWS ? rows : MOST_ROWS, c)) return false;
    c->logits_offset = (int64_t)(index % 8);
    c->logits_stride = index % 3 ? spec->V + (int64_t)(index % 5) : 0;
    return true;
}

const tune_subject tune_softmax_topk = {
    .family = &qn_family_softmax_topk, .fill = fill, .cases = &cases, .question = question};
