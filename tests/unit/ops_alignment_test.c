// SPDX-License-Identifier: Apache-2.0
// Gate and indexer: what rows that exist say of alignment is what the kernel is told; a stride that nothing steps by says
// nothing. (Attention's and router's are in their own tests.)
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gate/args.h"
#include "indexer/args.h"
#include "ops/family.h"
#include "support/compile_check.h"

static _Alignas(256) unsigned char memory[1 << 12]; // stands for every tensor: nothing is read

// Launches stage 0 of what is chosen for sm_90a.
static void launch(const char *text, size_t bucket, const quern_args *args, qn_launch *out)
{
    const qn_device_limits limits = {132};
    static qn_plan plan;
    const qn_family *family;
    quern_any_spec given, spec;
    qn_config config;
    if (quern_spec_parse(text, &given) != QUERN_OK) fail_msg("%s", quern_message());
    assert_int_equal(qn_spec_complete(&given.base, &family, &spec), QUERN_OK);
    family->choose(&spec.base, compile_arch("sm_90a"), bucket, &config);
    assert_int_equal(family->plan(&spec.base, compile_arch("sm_90a"), &config, &plan), QUERN_OK);
    memset(out, 0, sizeof *out);
    family->launch(&spec.base, &config, &plan, &limits, args, 0, out);
}

static int gate_is_aligned(int64_t N, int64_t stride)
{
    quern_gate_args a = QUERN_GATE_ARGS_INIT;
    qn_launch out;
    gate_block_params block;
    gate_params lanes;
    a.N = N, a.logits = memory, a.bias = (float *)memory, a.weights = (float *)memory, a.ids = memory;
    a.logits_stride_N = stride;
    launch("gate E=256 K=8 in=f32 bias=1", 0, &a.base, &out);
    memcpy(&lanes, out.params, sizeof lanes); // of whichever plan it is
    memcpy(&block, out.params, sizeof block);
    return lanes.logits == memory ? lanes.aligned : block.p.aligned;
}

static void one_token_of_gate(void **state)
{
    (void)state;
    assert_int_equal(gate_is_aligned(1, 257), 1);
    assert_int_equal(gate_is_aligned(2, 257), 0);
    assert_int_equal(gate_is_aligned(2, 260), 1);
}

static quern_indexer_args indexer_args(int64_t T)
{
    quern_indexer_args a = QUERN_INDEXER_ARGS_INIT;
    a.T = T, a.q = a.q_scale = a.keys = a.key_scale = memory, a.w = (float *)memory;
    a.length = a.block_table = a.row_seq = (int32_t *)memory, a.indices = (int32_t *)memory;
    a.workspace = memory, a.workspace_bytes = sizeof memory;
    return a;
}

static indexer_params launch_indexer(const char *text, const quern_indexer_args *a)
{
    qn_launch out;
    indexer_params p;
    launch(text, 0, &a->base, &out);
    memcpy(&p, out.params, sizeof p);
    return p;
}

static void one_row_of_indexers_queries(void **state)
{
    (void)state;
    const char *text = "indexer H=64 C=128 k=64 q=mxfp4 page=64";
    for (int64_t T = 1; T <= 2; T++) {
        quern_indexer_args a = indexer_args(T);
        a.pages = 4, a.columns = 2, a.B = 1, a.q_stride_T = 64 * 64 + 1;
        assert_int_equal(launch_indexer(text, &a).q_aligned, T == 1);
        a.q_stride_T = 0, a.q_scale_stride_T = 64 * 4 + 1;
        assert_int_equal(launch_indexer(text, &a).q_aligned, T == 1);
        a.q_scale_stride_T = 0;
        assert_int_equal(launch_indexer(text, &a).q_aligned, 1);
    }
}

static void one_page_block_or_entry_of_indexers_keys(void **state)
{
    (void)state;
    for (int64_t count = 1; count <= 2; count++) {
        quern_indexer_args a = indexer_args(1);
        a.pages = count, a.columns = 1, a.B = 1, a.keys_stride_pages = 64 * 68 + 2;
        assert_int_equal(launch_indexer("indexer H=8 C=128 k=64 page=64", &a).keys_aligned, count == 1);
        a = indexer_args(1), a.L = count, a.keys_stride_L = 66;
        assert_int_equal(launch_indexer("indexer H=8 C=128 k=64", &a).keys_aligned, count == 1);
        a.keys_stride_L = 0, a.key_scale_stride_L = 5;
        assert_int_equal(launch_indexer("indexer H=8 C=128 k=64", &a).keys_aligned, count == 1);
        a = indexer_args(1), a.blocks = count, a.keys_stride_blocks = 16 * 256 + 2, a.tensor_scale = (float *)memory;
        assert_int_equal(launch_indexer("indexer H=4 C=128 layout=nvfp4_heads k=16 epb=16", &a).keys_aligned,
                         count == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_token_of_gate),
        cmocka_unit_test(one_row_of_indexers_queries),
        cmocka_unit_test(one_page_block_or_entry_of_indexers_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
