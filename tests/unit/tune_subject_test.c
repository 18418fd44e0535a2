// SPDX-License-Identifier: Apache-2.0
// What the tuner asks of a family, over the fake driver: the host reference stands for the kernels. Right results pass on
// every case, one wrong number in one of them does not, and everything is given back.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "attention/args.h"
#include "gate/args.h"
#include "indexer/args.h"
#include "quern/tune_subject.h"
#include "reference/reference.h"
#include "router/args.h"
#include "runtime/runtime.h"
#include "softmax_topk/args.h"
#include "support/fake_driver.h"
#include "support/runtime_fixture.h"

static const int hopper[] = {90};

static struct {
    const quern_spec *spec;
    long launches, spoilt; // spoilt: the launch whose result is made wrong; -1: none
    long with_logits;      // router: that were asked for the logits
    long with_scores;      // indexer: that were asked for the scores
    quern_status status;   // of the reference
    unsigned alignments;   // bit i: some row of logits began i elements after a multiple of 16 bytes
} kernel;

static void note_alignment(const void *logits, size_t element)
{
    kernel.alignments |= 1u << ((uintptr_t)logits % 16 / element);
}

static void run_gate(const gate_params *p)
{
    const quern_gate_spec *spec = (const quern_gate_spec *)kernel.spec;
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    args.N = p->N, args.logits = p->logits, args.bias = p->bias, args.given_ids = p->given_ids;
    args.weights = p->weights, args.ids = p->ids;
    args.logits_stride_N = p->logits_stride, args.given_ids_stride_N = p->given_ids_stride;
    args.weights_stride_N = p->weights_stride, args.ids_stride_N = p->ids_stride;
    note_alignment(p->logits, spec->in == QUERN_F32 ? 4 : 2);
    kernel.status = qn_reference_gate(kernel.spec, &args.base);
    if (kernel.launches == kernel.spoilt) p->weights[p->weights_stride] += 1.0f; // of the second token
}

static void run_softmax_topk(const softmax_topk_params *p)
{
    const quern_softmax_topk_spec *spec = (const quern_softmax_topk_spec *)kernel.spec;
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    args.rows = p->rows, args.logits = p->logits, args.temperature = p->temperature, args.token = p->token;
    args.values = p->values, args.indices = p->indices, args.lse = p->lse;
    args.token_value = p->token_value, args.token_rank = p->token_rank;
    args.logits_stride_rows = p->logits_stride, args.values_stride_rows = p->values_stride;
    args.indices_stride_rows = p->indices_stride;
    note_alignment(p->logits, spec->in == QUERN_F32 ? 4 : 2);
    kernel.status = qn_reference_softmax_topk(kernel.spec, &args.base);
    if (kernel.launches == kernel.spoilt) ((int32_t *)p->indices)[0] ^= 1;
}

// A gate kernel after the logits finds its work done.
static void run_router(const fake_launch *launch)
{
    const router_params *p = launch->param;
    quern_router_spec spec = *(const quern_router_spec *)kernel.spec;
    quern_router_args args = QUERN_ROUTER_ARGS_INIT;
    if (!strstr(launch->entry, "router")) return;
    spec.logits = p->logits != NULL;
    args.N = p->gate.N, args.x = p->x, args.w = p->w, args.bias = p->gate.bias, args.given_ids = p->gate.given_ids;
    args.weights = p->gate.weights, args.ids = p->gate.ids, args.logits = p->logits;
    args.x_stride_N = p->x_stride, args.logits_stride_N = p->logits_stride;
    args.w_stride_E = spec.w_layout == QUERN_W_ED ? p->w_stride : 0;
    args.w_stride_D = spec.w_layout == QUERN_W_DE ? p->w_stride : 0;
    args.given_ids_stride_N = p->gate.given_ids_stride, args.weights_stride_N = p->gate.weights_stride;
    args.ids_stride_N = p->gate.ids_stride;
    note_alignment(p->x, spec.in == QUERN_F32 ? 4 : 2);
    kernel.status = qn_reference_router(&spec.base, &args.base);
    kernel.with_logits += p->logits != NULL;
    if (kernel.launches == kernel.spoilt) p->gate.weights[0] += 1.0f;
}

static void run_attention(const attention_params *p)
{
    const quern_attention_spec *spec = (const quern_attention_spec *)kernel.spec;
    quern_attention_args args = QUERN_ATTENTION_ARGS_INIT;
    args.B = p->B, args.Sq = p->Sq, args.Sk = p->Sk, args.Hq = p->Hq, args.Hkv = p->Hkv;
    args.q = p->q, args.k = p->k, args.v = p->v, args.sink = p->sink, args.cu_q = p->cu_q, args.cu_k = p->cu_k;
    args.block_table = p->block_table, args.block_table_stride_B = p->table_stride, args.length_k = p->length_k;
    args.out = p->out, args.lse = p->lse;
    args.q_stride_B = p->q_stride.batch, args.q_stride_S = p->q_stride.position, args.q_stride_H = p->q_stride.head;
    args.k_stride_B = p->k_stride.batch, args.k_stride_S = p->k_stride.position, args.k_stride_H = p->k_stride.head;
    args.v_stride_B = p->v_stride.batch, args.v_stride_S = p->v_stride.position, args.v_stride_H = p->v_stride.head;
    args.out_stride_B = p->out_stride.batch, args.out_stride_S = p->out_stride.position;
    args.out_stride_H = p->out_stride.head;
    args.lse_stride_B = p->lse_stride_batch, args.lse_stride_S = p->lse_stride_position;
    if (p->cu_q) args.Tq = p->cu_q[p->B];
    if (p->cu_k) args.Tk = p->cu_k[p->B];
    if (spec->page) args.pages = INT32_MAX, args.columns = p->Sk / spec->page;
    kernel.status = qn_reference_attention(kernel.spec, &args.base);
    if (kernel.launches == kernel.spoilt) ((uint16_t *)p->out)[1] ^= 0x4000; // a power of two far away
}

static void run_indexer(const indexer_params *p)
{
    quern_indexer_spec spec = *(const quern_indexer_spec *)kernel.spec;
    quern_indexer_args args = QUERN_INDEXER_ARGS_INIT;
    bool heads = spec.layout == QUERN_INDEXER_NVFP4_HEADS, wide = spec.q <= QUERN_INDEXER_Q_F16;
    spec.scores = p->scores != NULL;
    args.T = p->rows, args.B = 3, args.q = p->q, args.q_scale = p->q_scale, args.w = p->w;
    args.keys = p->keys, args.key_scale = p->key_scale, args.tensor_scale = p->tensor_scale, args.length = p->length;
    args.block_table = p->block_table, args.row_seq = p->row_seq, args.cu_keys = p->cu_keys;
    args.indices = p->indices, args.scores = p->scores;
    args.L = p->capacity, args.blocks = p->capacity / spec.epb, args.pages = INT32_MAX;
    if (spec.page) args.columns = p->capacity / spec.page;
    args.q_stride_T = p->q_stride_T / (wide ? 2 : 1), args.q_stride_H = p->q_stride_H / (wide ? 2 : 1);
    args.block_table_stride_B = p->block_table_stride, args.indices_stride_T = p->indices_stride;
    args.scores_stride_T = p->scores_stride;
    if (heads) {
        args.keys_stride_blocks = p->keys_stride, args.keys_stride_epb = p->keys_stride_entry;
        args.key_scale_stride_blocks = p->key_scale_stride, args.key_scale_stride_epb = p->key_scale_stride_entry;
    } else if (spec.page) {
        args.keys_stride_pages = p->keys_stride;
    } else {
        args.keys_stride_L = p->keys_stride;
        if (spec.layout == QUERN_INDEXER_MXFP4_SHARED) args.key_scale_stride_L = p->key_scale_stride;
    }
    kernel.status = qn_reference_indexer(&spec.base, &args.base);
    kernel.with_scores += spec.scores;
    if (kernel.launches == kernel.spoilt) p->indices[0] ^= 1;
}

static void on_launch(const fake_launch *launch)
{
    if (strstr(launch->entry, "_merge")) return; // attention's second kernel: the first has done everything
    if (!strcmp(kernel.spec->family, "attention"))
        run_attention(launch->param);
    else if (!strcmp(kernel.spec->family, "router"))
        run_router(launch);
    else if (!strcmp(kernel.spec->family, "indexer"))
        run_indexer(launch->param);
    else if (!strcmp(kernel.spec->family, "gate"))
        run_gate(strstr(launch->entry, "_block") ? &((const gate_block_params *)launch->param)->p : launch->param);
    else
        run_softmax_topk(launch->param);
    kernel.launches++;
}

static int set_up(void **state)
{
    (void)state;
    runtime_devices_make(hopper, 1);
    fake_driver.on_launch = on_launch;
    memset(&kernel, 0, sizeof kernel);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    long allocations = fake_driver.live_allocations, libraries = fake_driver.live_libraries;
    runtime_devices_remove();
    return allocations || libraries ? -1 : 0; // something was not given back
}

// tune_check of a spec with the launch `spoilt` made wrong.
static quern_status check(const char *text, long spoilt)
{
    static quern_any_spec full; // the kernel's
    quern_any_spec spec;
    const qn_family *family;
    quern_op *op = NULL;
    device d;
    qn_config config;
    const qn_arch *arch;
    quern_options options = runtime_options("", NULL);
    options.mode = QUERN_MODE_OFF;
    quern *q = runtime_open(&options);
    assert_int_equal(quern_spec_parse(text, &spec), QUERN_OK);
    assert_int_equal(qn_spec_complete(&spec.base, &family, &full), QUERN_OK);
    kernel.spec = &full.base;
    kernel.spoilt = spoilt;
    kernel.launches = kernel.with_logits = kernel.with_scores = 0;
    assert_int_equal(device_look(0, &d), QUERN_OK);
    const tune_subject *subject = tune_find_subject(spec.base.family);
    assert_non_null(subject);
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    subject->family->choose(&spec.base, arch, 0, &config);
    assert_int_equal(qn_prepare_config(q, &spec.base, 0, &config, &op), QUERN_OK);
    quern_status status = tune_check(subject, q, &d, &spec.base, op);
    quern_op_release(op);
    quern_close(q);
    return status;
}

static const char *const specs[] = {
    "gate E=256 K=6 in=f32 bias=1",
    "gate E=256 K=8 in=bf16 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5",
    "gate E=100 K=5 in=f16 act=softmax index=i64",
    "gate E=64 K=6 in=f32 given_ids=1",
    "gate E=64 K=6 in=f32 given_ids=1 bias=1",
    "router D=64 E=60 K=4 in=bf16 w=bf16 bias=1",
    "router D=40 E=16 K=4 in=f32 w=f32 w_layout=DE act=sigmoid n_group=4 topk_group=2 logits=1",
    "softmax_topk V=1000 K=50 in=bf16",
    "softmax_topk V=300 K=8 in=f32 temperature=1 lse=1 token=1 index=i64",
};

static void right_results_pass_on_many_cases_at_all_alignments(void **state)
{
    (void)state;
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        kernel.alignments = 0;
        if (check(specs[i], -1) != QUERN_OK) fail_msg("%s: %s", specs[i], quern_message());
        assert_int_equal(kernel.status, QUERN_OK);
        assert_true(kernel.launches >= 13);
        if ((kernel.alignments & 15) != 15) fail_msg("%s: alignments %x", specs[i], kernel.alignments);
    }
}

static void one_wrong_number_in_any_case_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        assert_int_equal(check(specs[i], -1), QUERN_OK);
        long cases = kernel.launches;
        for (long at = 0; at < cases; at += 1 + cases / 7) {
            // A weight that is NaN stays one.
            quern_status status = check(specs[i], at);
            if (status == QUERN_OK && strncmp(specs[i], "softmax", 7) != 0) continue;
            if (status != QUERN_INTERNAL) fail_msg("%s, case %ld: %s", specs[i], at, quern_status_name(status));
            assert_non_null(strstr(quern_message(), "wrong results"));
            if (strncmp(specs[i], "router", 6) != 0) assert_int_equal(kernel.launches, at + 1); // nothing after it
        }
        assert_int_equal(check(specs[i], 0), QUERN_INTERNAL); // the first: ordinary numbers
    }
}

// Sequences, ragged and paged ones among them; the judge's bound is that of attention.
static void attention_is_asked_in_every_layout(void **state)
{
    static const char *const layouts[] = {
        "attention d=16 causal=1 lse=1",
        "attention d=24 dv=8 in=f16 layout=varlen window_left=40 softcap=20",
        "attention d=16 layout=paged page=16 cu_q=1 causal=1 sink=1",
        "attention d=32 dv=16 kv_alias=1 length_k=1",
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(layouts); i++) {
        if (check(layouts[i], -1) != QUERN_OK) fail_msg("%s: %s", layouts[i], quern_message());
        assert_int_equal(kernel.status, QUERN_OK);
        assert_int_equal(kernel.launches, 5);
        for (long at = 0; at < 5; at++) {
            if (check(layouts[i], at) != QUERN_INTERNAL) fail_msg("%s, case %ld", layouts[i], at);
            assert_non_null(strstr(quern_message(), "wrong results"));
        }
    }
}

// What is timed: sequences of equal length, pages that exist, queries that are numbers.
static void attention_is_timed_on_whole_sequences(void **state)
{
    (void)state;
    const tune_subject *attention = tune_find_subject("attention");
    quern_attention_spec spec = QUERN_ATTENTION_SPEC_INIT;
    quern_attention_sizes sizes = QUERN_ATTENTION_SIZES_INIT;
    sizes.B = 2, sizes.Sk = 100, sizes.Tq = 6, sizes.Tk = 200, sizes.pages = 5, sizes.columns = 4;
    int32_t numbers[8];
    uint16_t queries[8] = {0};
    for (size_t i = 0; i < attention->family->tensor_count; i++) {
        const qn_tensor *t = &attention->family->tensors[i];
        if (!strcmp(t->name, "q")) assert_true(attention->fill(&spec.base, &sizes, t, 0, queries, 8));
        if (t->dtype != QUERN_I32) continue;
        assert_true(attention->fill(&spec.base, &sizes, t, 0, numbers, 3));
        if (!strcmp(t->name, "cu_q")) assert_true(numbers[0] == 0 && numbers[1] == 3 && numbers[2] == 6);
        if (!strcmp(t->name, "cu_k")) assert_true(numbers[0] == 0 && numbers[1] == 100 && numbers[2] == 200);
        if (!strcmp(t->name, "length_k")) assert_true(numbers[0] == 100 && numbers[1] == 100);
        if (!strcmp(t->name, "block_table")) assert_true(numbers[1] >= 0 && numbers[1] < 5 && numbers[1] != numbers[0]);
    }
    assert_true(queries[0] != queries[1] && queries[7] != 0);
}

// Every layout, type of q and unit of choice. Without scores in the spec, another op is judged, and this one has its bits.
static void indexer_is_asked_in_every_layout(void **state)
{
    static const struct {
        const char *spec;
        long launches; // of five cases
    } layouts[] = {
        {"indexer H=2 C=32 k=40 q=mxfp4 page=64 row_seq=1 scores=1", 5},
        {"indexer H=2 C=64 k=2048 layout=fp8_shared q=fp8 scores=1", 5},
        {"indexer H=2 C=32 k=9 layout=nvfp4_heads q=bf16 page=16 epb=16 granularity=block scores=1", 5},
        {"indexer H=3 C=32 k=100 q=f16 cu_keys=1 row_seq=1", 10},
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(layouts); i++) {
        if (check(layouts[i].spec, -1) != QUERN_OK) fail_msg("%s: %s", layouts[i].spec, quern_message());
        assert_int_equal(kernel.status, QUERN_OK);
        assert_int_equal(kernel.launches, layouts[i].launches);
        assert_int_equal(kernel.with_scores, 5);
        for (long at = 0; at < layouts[i].launches; at++) {
            if (check(layouts[i].spec, at) != QUERN_INTERNAL) fail_msg("%s, case %ld", layouts[i].spec, at);
            const char *wrong = layouts[i].launches == 10 && at % 2 ? "other bits" : "wrong results";
            assert_non_null(strstr(quern_message(), wrong));
        }
    }
}

static void fill_of_indexer(const quern_indexer_spec *spec, const quern_indexer_sizes *sizes, const char *name,
                            quern_dtype dtype, void *host, size_t elements)
{
    const tune_subject *indexer = tune_find_subject("indexer");
    size_t filled = 0;
    for (size_t i = 0; i < indexer->family->tensor_count; i++) {
        const qn_tensor *t = &indexer->family->tensors[i];
        if (strcmp(t->name, name) != 0 || t->dtype != dtype) continue;
        if (!qn_tensor_is_given(indexer->family, &spec->base, t)) continue;
        assert_true(indexer->fill(&spec->base, sizes, t, 0, host, elements));
        filled++;
    }
    assert_int_equal(filled, 1);
}

// What is timed: lengths that end with the sequence, pages that exist, scales near each other after a page's values.
static void indexer_is_timed_on_whole_sequences(void **state)
{
    (void)state;
    quern_any_spec any;
    quern_indexer_sizes sizes = QUERN_INDEXER_SIZES_INIT;
    int32_t numbers[8];
    uint8_t bytes[2 * 8 * 17];
    assert_int_equal(quern_spec_parse("indexer H=2 C=32 k=4 q=mxfp4 page=8 row_seq=1", &any), QUERN_OK);
    const quern_indexer_spec *spec = (const quern_indexer_spec *)&any;
    sizes.T = 6, sizes.B = 2, sizes.max_length = 30, sizes.pages = 9, sizes.columns = 5;
    fill_of_indexer(spec, &sizes, "length", QUERN_I32, numbers, 6);
    assert_true(numbers[0] == 28 && numbers[2] == 30 && numbers[3] == 28 && numbers[5] == 30);
    fill_of_indexer(spec, &sizes, "row_seq", QUERN_I32, numbers, 6);
    assert_true(numbers[0] == 0 && numbers[2] == 0 && numbers[3] == 1 && numbers[5] == 1);
    fill_of_indexer(spec, &sizes, "block_table", QUERN_I32, numbers, 8);
    for (size_t i = 0; i < 8; i++) assert_true(numbers[i] >= 0 && numbers[i] < 9);
    assert_int_not_equal(numbers[0], numbers[1]);
    fill_of_indexer(spec, &sizes, "keys", QUERN_U8, bytes, sizeof bytes);
    for (size_t i = 0; i < 8; i++) assert_true(bytes[128 + i] >= 124 && bytes[8 * 17 + 128 + i] < 127);
    assert_true(bytes[0] != bytes[1] || bytes[1] != bytes[2]);
}

// Small codes are more frequent than large ones, E4M3 codes are finite and no zeros, scales lie within four times each other,
// wherever a layout has them.
static void indexer_is_timed_on_keys_as_models_write_them(void **state)
{
    enum { PAGES = 64 };
    (void)state;
    quern_any_spec any;
    const quern_indexer_spec *spec = (const quern_indexer_spec *)&any;
    quern_indexer_sizes sizes = QUERN_INDEXER_SIZES_INIT;
    static uint8_t bytes[PAGES * 8 * 36];
    size_t zeros = 0;
    assert_int_equal(quern_spec_parse("indexer H=2 C=32 k=4 q=mxfp4", &any), QUERN_OK);
    fill_of_indexer(spec, &sizes, "keys", QUERN_U8, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) zeros += !(bytes[i] & 7);
    assert_true(zeros > sizeof bytes / 6 && zeros < sizeof bytes / 4); // 26 of 128; of any codes, an eighth
    fill_of_indexer(spec, &sizes, "key_scale", QUERN_U8, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) assert_true(bytes[i] >= 124 && bytes[i] < 127);
    assert_int_equal(quern_spec_parse("indexer H=2 C=32 k=4 layout=fp8_shared q=fp8 page=8", &any), QUERN_OK);
    fill_of_indexer(spec, &sizes, "keys", QUERN_U8, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        float scale;
        size_t at = i % (8 * 36);
        if (at < 8 * 32) assert_true((bytes[i] & 0x7F) >= 0x40 && (bytes[i] & 0x7F) < 0x78);
        if (at < 8 * 32 || at % 4) continue;
        memcpy(&scale, bytes + i, sizeof scale);
        assert_true(scale >= 0x1p-7f && scale < 0x1p-6f);
    }
    assert_int_equal(
        quern_spec_parse("indexer H=2 C=32 k=4 layout=nvfp4_heads q=bf16 page=16 epb=16 granularity=block", &any),
        QUERN_OK);
    fill_of_indexer(spec, &sizes, "key_scale", QUERN_U8, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) assert_true(bytes[i] >= 0x30 && bytes[i] < 0x40);
}

// A router is judged by its logits: where the spec has none, another op is judged, and this one has its bits.
static void a_spec_that_does_not_ask_for_what_the_judge_needs_is_checked_beside_one_that_does(void **state)
{
    (void)state;
    const char *text = "router D=64 E=60 K=4 in=bf16 w=bf16 bias=1";
    assert_int_equal(check(text, -1), QUERN_OK);
    assert_int_equal(kernel.launches, 2 * kernel.with_logits);
    assert_int_equal(check(text, 1), QUERN_INTERNAL); // the first launch of this spec's own op
    assert_non_null(strstr(quern_message(), "other bits"));
}

static void a_launch_that_fails_is_the_candidates_failure(void **state)
{
    (void)state;
    fake_driver.call.cuLaunchKernelEx.fail = CUDA_ERROR_INVALID_VALUE;
    fake_driver.call.cuLaunchKernelEx.times = 1;
    assert_int_equal(check(specs[0], -1), QUERN_LAUNCH_FAILED);
}

static void a_device_without_room_is_said_and_nothing_stays(void **state)
{
    (void)state;
    fake_driver.call.cuMemAlloc.fail = CUDA_ERROR_OUT_OF_MEMORY;
    fake_driver.call.cuMemAlloc.times = -1;
    assert_int_equal(check(specs[0], -1), QUERN_DRIVER_ERROR);
}

static void a_family_that_is_none_has_no_subject(void **state)
{
    (void)state;
    assert_null(tune_find_subject("argmax"));
    assert_ptr_equal(tune_find_subject("gate")->family, &qn_family_gate);
}

// A decode step finds its logits in the L2; many tokens do not.
static void few_tokens_are_timed_on_few_sets_of_inputs(void **state)
{
    (void)state;
    const tune_subject *gate = tune_find_subject("gate");
    quern_gate_sizes sizes = QUERN_GATE_SIZES_INIT;
    sizes.N = 1;
    assert_int_equal(gate->most_copies(&sizes), 64);
    sizes.N = 4096;
    assert_int_equal(gate->most_copies(&sizes), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(right_results_pass_on_many_cases_at_all_alignments),
        TEST(one_wrong_number_in_any_case_is_found),
        TEST(attention_is_asked_in_every_layout),
        TEST(attention_is_timed_on_whole_sequences),
        TEST(indexer_is_asked_in_every_layout),
        TEST(indexer_is_timed_on_whole_sequences),
        TEST(indexer_is_timed_on_keys_as_models_write_them),
        TEST(a_spec_that_does_not_ask_for_what_the_judge_needs_is_checked_beside_one_that_does),
        TEST(a_launch_that_fails_is_the_candidates_failure),
        TEST(a_device_without_room_is_said_and_nothing_stays),
        TEST(a_family_that_is_none_has_no_subject),
        TEST(few_tokens_are_timed_on_few_sets_of_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
