// SPDX-License-Identifier: Apache-2.0
// Attention of a real language model (attention_real.h).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reference/reference.h"
#include "support/again.h"
#include "support/attention_real.h"

static npy_array read_data(const char *folder, const char *name)
{
    char path[512];
    npy_array array;
    snprintf(path, sizeof path, "%s/tests/data/%s%s", test_source(), folder, name);
    if (npy_read(path, &array) != QUERN_OK) fail_msg("%s", quern_message());
    return array;
}

void attention_real_make(attention_real *r)
{
    enum { ROWS = ATTENTION_REAL_TOKENS * ATTENTION_REAL_HEADS };
    *r = (attention_real){.spec = QUERN_ATTENTION_SPEC_INIT, .args = QUERN_ATTENTION_ARGS_INIT};
    r->q = read_data("", "attn_q_512x9x64.bf16.npy"), r->k = read_data("", "attn_k_512x3x64.bf16.npy");
    r->v = read_data("", "attn_v_512x3x64.bf16.npy"), r->want = read_data("expected/", "attn_out_512x9x64.f32.npy");
    r->want_lse = read_data("expected/", "attn_lse_512x9.f32.npy");
    r->out = calloc(ROWS * ATTENTION_REAL_DIM, 2), r->lse = calloc(ROWS, 4);
    assert_true(r->out && r->lse);
    r->spec.causal = 1, r->spec.lse = 1;
    r->args.B = 1, r->args.Sq = r->args.Sk = ATTENTION_REAL_TOKENS;
    r->args.Hq = ATTENTION_REAL_HEADS, r->args.Hkv = ATTENTION_REAL_KV_HEADS;
    r->args.q = r->q.data, r->args.k = r->k.data, r->args.v = r->v.data, r->args.out = r->out, r->args.lse = r->lse;
}

void attention_real_free(attention_real *r)
{
    npy_fini(&r->q), npy_fini(&r->k), npy_fini(&r->v), npy_fini(&r->want), npy_fini(&r->want_lse);
    free(r->out), free(r->lse);
}

static void compare(const char *what, int64_t at, double got, double want, double allowed, int64_t *count,
                    qn_text *report)
{
    if (fabs(got - want) <= allowed) return;
    if ((*count)++ < 4) qn_text_putf(report, "    %s[%lld] = %.9g, should be %.9g\n", what, (long long)at, got, want);
}

int64_t attention_real_check(const attention_real *r, qn_text *report)
{
    int64_t count = 0, rows = ATTENTION_REAL_TOKENS * ATTENTION_REAL_HEADS;
    const float *want = r->want.data, *want_lse = r->want_lse.data;
    // P rounded to bf16 costs 5.1e-3 at most on these inputs, the result half an ulp.
    for (int64_t i = 0; i < rows * ATTENTION_REAL_DIM; i++)
        compare("out", i, qn_bf16_to_f32(r->out[i]), want[i], 5.5e-3 + 0x1p-8 * fabs(want[i]), &count, report);
    for (int64_t i = 0; i < rows; i++) compare("lse", i, r->lse[i], want_lse[i], 1.2e-5, &count, report);
    return count;
}
