// SPDX-License-Identifier: Apache-2.0
// How far an output may be from the reference, as the design's table of accuracy says, where only outputs are at hand.
// Terms that depend on a row's logits are bounded by what the number itself says of them: e^(x - max) / sum = p gives
// |x - max| <= |ln p|, and the mean of |x - max| over the mass of a row of V is at most ln V. Used by `quern run --expect`;
// the tests' judges, which have the inputs, are stricter.
#include <float.h>
#include <math.h>
#include <string.h>

#include "reference/reference.h"

// The distance of f32 numbers at x.
static double ulp(double x)
{
    int exponent;
    x = fabs(x);
    if (!(x >= FLT_MIN)) return 0x1p-149;
    frexp(x, &exponent);
    return ldexp(1.0, exponent - 24);
}

// Families whose bounds depend on sums over their inputs: what ordinary inputs lead to, by the output's type.
double qn_tolerance_default(const quern_spec *spec, const qn_tensor *tensor, double want)
{
    const qn_family *family;
    if (qn_family_find(spec->family, &family) != QUERN_OK) return 0;
    switch (qn_tensor_dtype(family, spec, tensor)) {
    case QUERN_BF16:
        return 1e-3 + 0x1p-7 * fabs(want);
    case QUERN_F16:
        return 1e-3 + 0x1p-10 * fabs(want);
    default:
        return 1e-6 + 1e-4 * fabs(want);
    }
}

double qn_tolerance_softmax_topk(const quern_spec *spec, const qn_tensor *tensor, double want)
{
    const quern_softmax_topk_spec *s = (const quern_softmax_topk_spec *)spec;
    double rounding = s->temperature ? 0x1p-23 : 0x1p-24; // of x - max, and of the division by T
    double sum = rounding * log((double)s->V);            // what that does to the normaliser
    bool is_value = !strcmp(tensor->name, "values");
    if (is_value && s->value == QUERN_VALUE_LOGIT) return 0;
    if (!strcmp(tensor->name, "lse")) return 1e-5 + 2 * ulp(want) + sum;
    if (is_value && s->value == QUERN_VALUE_PROB) {
        double exponent = want > 0 ? fabs(log(want)) : 0;
        return 2 * ulp(want) + (1e-6 + rounding * exponent + sum) * fabs(want);
    }
    return 2 * ulp(want) + 2e-6 + rounding * fabs(want) + sum; // log-probabilities
}

// 8 ulp in each activation: of the weight's own, and of the sum that it is divided by, whose K roundings come on top.
double qn_tolerance_gate(const quern_spec *spec, const qn_tensor *tensor, double want)
{
    const quern_gate_spec *s = (const quern_gate_spec *)spec;
    double relative = 8 * 0x1p-23 + 0x1p-23;
    (void)tensor;
    if (s->renormalize) relative = 16 * 0x1p-23 + (double)(s->K + 4) * 0x1p-24;
    return relative * fabs(want) + 0x1p-149;
}

// The rounding of P costs at most half an ulp of its type times the mean of |v|, which the outputs don't tell: that of
// ordinary values, up to 4, is taken. A score costs what its products do: their sum of magnitudes is taken as CANCELLED
// times the largest score, which lse is near where it is large.
enum { CANCELLED = 4 };

double qn_tolerance_attention(const quern_spec *spec, const qn_tensor *tensor, double want)
{
    const quern_attention_spec *s = (const quern_attention_spec *)spec;
    double unit = s->in == QUERN_F16 ? 0x1p-11 : 0x1p-8;
    const double score = (CANCELLED * ((double)s->d / 16 + 4) + 2) * 0x1p-23;
    if (!strcmp(tensor->name, "lse")) return 2e-5 + score * fabs(want) + 4 * ulp(want);
    return unit * (4 + fabs(want));
}
