// SPDX-License-Identifier: Apache-2.0
// attention on a device, through the public interface, against f64: every hostile case, three times over with other
// contents of unused memory; plans by force; sequences alone against their batch; decode against prefill; a launch inside
// stream capture; real activations. Without a device it says why and is skipped. tests/gpu/README.md.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/attention_real.h"
#include "support/check_attention.h"
#include "support/gpu_cases.h"

static gpu g;

static const uint16_t poisons[GPU_REPEATS] = {0x7FFF, 0, 0xFF80}; // NaN, 0, -inf (in f16 a NaN)
static const gpu_list list = {.f = &attention_family, .tag = HOSTILE_GPU, .least = 250, .poisons = poisons};

static quern_op *prepare(const attention_case *c)
{
    quern_op *op = NULL;
    if (quern_prepare(g.q, &c->spec.base, QUERN_DEVICE_CURRENT, &op) != QUERN_OK)
        fail_msg("'%s': %s", c->text, quern_message());
    return op;
}

static void every_hostile_case_equals_f64_three_times_over(void **state)
{
    (void)state;
    gpu_run_list(&g, &list);
}

// ---- plans by force

static const attention_case *case_named(const char *name)
{
    return family_case_named(&attention_family, name);
}

static const char *const configs[] = {
    "plan=prefill rows=64 keys=64 warps=4 columns=1 slots=3 ctas=2",
    "plan=prefill rows=128 keys=32 warps=4 columns=1 slots=3 ctas=1",
    "plan=prefill rows=64 keys=32 warps=2 columns=2 slots=5 ctas=1",
    "plan=prefill rows=16 keys=128 warps=1 columns=8 slots=4 ctas=1",
    "plan=decode rows=32 keys=64 warps=2 columns=4 slots=2 ctas=1",
    "plan=decode rows=16 keys=16 warps=1 columns=1 slots=6 ctas=1",
    "plan=stream rows=8 keys=32 warps=8 slots=3 ctas=1",
    "plan=stream rows=16 keys=64 warps=2 slots=2 ctas=1",
    "plan=heads rows=64 keys=64 columns=1 slots=4 ctas=1",
    "plan=heads rows=64 keys=64 columns=2 slots=2 ctas=1",
};
static const char *const forced_names[] = {"dim_prefill_128_128", "window_both", "prefill_long", "gqa_7_prefill",
                                           "split_long"};

static bool is_for(const void *c)
{
    bool named = false;
    for (size_t n = 0; n < QN_COUNT(forced_names); n++) named |= !strcmp(family_case_name(c), forced_names[n]);
    return named && !gpu_is_quick();
}

static void every_plan_by_force_equals_f64(void **state)
{
    static const gpu_list by_force = {.f = &attention_family, .tag = HOSTILE_GPU, .least = 20, .poisons = poisons};
    (void)state;
    gpu_run_forced(&g, &by_force, configs, QN_COUNT(configs), is_for);
}

// ---- bits that must not depend

static void a_sequence_alone_has_the_same_bits(void **state)
{
    static const char *const names[] = {"invariant_dense", "invariant_varlen", "invariant_prefill", "invariant_paged"};
    (void)state;
    gpu_skip_without_device(&g);
    qn_text report = QN_TEXT_INIT;
    for (size_t n = 0; n < QN_COUNT(names); n++) {
        const attention_case *c = case_named(names[n]);
        quern_op *op = prepare(c);
        attention_data all;
        assert_true(attention_data_make(c, poisons[0], &all));
        device_case_run(&g, &attention_family, op, c, &all);
        for (int64_t b = 0; b < c->B; b++) {
            attention_case alone = attention_alone(c, b);
            attention_data one;
            assert_true(attention_data_make(&alone, poisons[0], &one));
            device_case_run(&g, &attention_family, op, &alone, &one);
            if (!attention_same_alone(&all, b, &one, &report)) fail_msg("%s", qn_text_string(&report));
            attention_data_free(&one);
        }
        attention_data_free(&all);
        quern_op_release(op);
    }
    qn_text_fini(&report);
}

// The last query of a case, alone.
static void copy_last_query(const attention_data *many, attention_data *one)
{
    const attention_case *c = many->c;
    for (int64_t h = 0; h < c->Hq; h++) {
        int64_t from = attention_row_of_query(c, ATTENTION_Q, 0, c->queries[0] - 1, h);
        int64_t to = attention_row_of_query(one->c, ATTENTION_Q, 0, 0, h);
        memcpy((uint16_t *)one->args.q + to, (const uint16_t *)many->args.q + from, 2 * (size_t)c->spec.d);
    }
}

static void decode_equals_the_last_row_of_prefill(void **state)
{
    static const char *const names[] = {"dim_prefill_64_64", "prefill_long", "prefill_long_512", "fr17_128"};
    (void)state;
    gpu_skip_without_device(&g);
    for (size_t n = 0; n < QN_COUNT(names); n++) {
        attention_case one = *case_named(names[n]);
        attention_data prefill, decode;
        one.queries[0] = 1;
        assert_true(attention_data_make(case_named(names[n]), poisons[0], &prefill));
        assert_true(attention_data_make(&one, poisons[0], &decode));
        copy_last_query(&prefill, &decode);
        quern_op *op = prepare(&one);
        device_case_run(&g, &attention_family, op, prefill.c, &prefill);
        device_case_run(&g, &attention_family, op, &one, &decode);
        double ulps = attention_ulps_of_last_query(&prefill, &decode);
        if (!(ulps <= 1)) fail_msg("%s: %g ulps", names[n], ulps);
        quern_op_release(op);
        attention_data_free(&prefill);
        attention_data_free(&decode);
    }
}

// ---- real activations

static void real_activations_give_the_expected_output(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    attention_real r;
    qn_text report = QN_TEXT_INIT;
    quern_op *op = NULL;
    attention_real_make(&r);
    const size_t bytes[] = {r.q.bytes, r.k.bytes, r.v.bytes, r.q.bytes, r.want_lse.bytes}; // out is like q
    CUdeviceptr at[QN_COUNT(bytes)];
    for (size_t i = 0; i < QN_COUNT(bytes); i++) assert_true((at[i] = gpu_alloc(&g, bytes[i])) != 0);
    GPU_MUST(&g, cuMemcpyHtoD(at[0], r.q.data, bytes[0]));
    GPU_MUST(&g, cuMemcpyHtoD(at[1], r.k.data, bytes[1]));
    GPU_MUST(&g, cuMemcpyHtoD(at[2], r.v.data, bytes[2]));
    r.args.q = (void *)(uintptr_t)at[0], r.args.k = (void *)(uintptr_t)at[1], r.args.v = (void *)(uintptr_t)at[2];
    r.args.out = (void *)(uintptr_t)at[3], r.args.lse = (float *)(uintptr_t)at[4];
    if (quern_prepare(g.q, &r.spec.base, QUERN_DEVICE_CURRENT, &op) != QUERN_OK) fail_msg("%s", quern_message());
    if (quern_attention(op, &r.args, NULL) != QUERN_OK) fail_msg("%s", quern_message());
    GPU_MUST(&g, cuCtxSynchronize());
    GPU_MUST(&g, cuMemcpyDtoH(r.out, at[3], bytes[3]));
    GPU_MUST(&g, cuMemcpyDtoH(r.lse, at[4], bytes[4]));
    if (attention_real_check(&r, &report)) fail_msg("%s", qn_text_string(&report));
    for (size_t i = 0; i < QN_COUNT(bytes); i++) gpu_free(&g, at[i]);
    quern_op_release(op);
    attention_real_free(&r);
    qn_text_fini(&report);
}

// ---- capture

static void captured_launches_give_the_same_bits(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    gpu_run_captured(&g, &attention_family, "sink_split", 1, 3); // tickets and a merge
}

static int open_device(void **state)
{
    (void)state;
    gpu_open(&g);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu_close(&g);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_hostile_case_equals_f64_three_times_over),
        cmocka_unit_test(every_plan_by_force_equals_f64),
        cmocka_unit_test(a_sequence_alone_has_the_same_bits),
        cmocka_unit_test(decode_equals_the_last_row_of_prefill),
        cmocka_unit_test(real_activations_give_the_expected_output),
        cmocka_unit_test(captured_launches_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
