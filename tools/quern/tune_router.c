// SPDX-License-Identifier: Apache-2.0
// The tuner's questions about router: every pattern of the hostile list, with few and many tokens, at all alignments. The
// judge goes by the logits, since ids may differ from the reference's only within their bound: they are asked for where
// the spec does not.
#include <string.h>

#include "support/check_router.h"
#include "support/hostile_router.h"
#include "tune_subject.h"

TUNE_CASES(router_case, router_data, ROUTER_BUFFERS, router_data_make(c, data), router_data_free(data),
           router_check_case(data, report));

// Biases as training leaves them: small.
static bool fill(const quern_spec *spec, const void *sizes, const qn_tensor *tensor, size_t copy, void *host,
                 size_t elements)
{
    (void)spec, (void)sizes, (void)copy;
    if (strcmp(tensor->name, "bias") != 0) return false;
    for (size_t i = 0; i < elements; i++) ((float *)host)[i] = (float)((int)(i * 37 % 101) - 50) / 500.0f;
    return true;
}

static bool judged(const quern_spec *spec, quern_any_spec *with)
{
    memset(with, 0, sizeof *with);
    memcpy(with, spec, sizeof(quern_router_spec));
    quern_router_spec *s = (quern_router_spec *)(void *)with;
    if (s->logits) return false;
    s->logits = 1;
    return true;
}

static bool question(const quern_spec *base, size_t index, void *out)
{
    static const int64_t tokens[] = {1, 7, 33, 70};
    const quern_router_spec *spec = (const quern_router_spec *)base;
    router_case *c = out;
    if (!router_pattern(index, spec, tokens[index % 4], c)) return false;
    c->offset = (int64_t)(index % 5);
    if (index % 3) c->x_stride = spec->D + (int64_t)(index % 7);
    return true;
}

const tune_subject tune_router = {
    .family = &qn_family_router, .fill = fill, .judged = judged, .cases = &cases, .question = question};
