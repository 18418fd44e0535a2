// SPDX-License-Identifier: Apache-2.0
// Launching on a device: capture and replay, streams, threads, refused arguments, batch invariance, contexts, lifetimes.
// What is computed is judged in softmax_topk_test.c; here it need only be the same bits, or untouched guard bytes.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/family.h"
#include "support/check.h"
#include "support/gpu_cases.h"
#include "support/hostile_fill.h"

static gpu g;

static hostile_case make_case(const char *text, int64_t rows, uint64_t seed)
{
    hostile_case c = {.rows = rows, .seed = seed, .fill = fill_quantised, .p = 0.125f};
    quern_any_spec spec;
    if (quern_spec_parse(text, &spec) != QUERN_OK) fail_msg("'%s': %s", text, quern_message());
    memcpy(&c.spec, &spec, sizeof c.spec);
    snprintf(c.text, sizeof c.text, "%s", text);
    snprintf(c.name, sizeof c.name, "rows_%lld", (long long)rows);
    return c;
}

// A case on the device with an op, and the results of a first launch.
typedef struct ready {
    hostile_case c;
    quern_op *op;
    hostile_data first, again;
    gpu_case device;
} ready;

static quern_op *prepare(const hostile_case *c)
{
    quern_op *op = NULL;
    if (quern_prepare(g.q, &c->spec.base, QUERN_DEVICE_CURRENT, &op) != QUERN_OK)
        fail_msg("'%s': %s", c->text, quern_message());
    return op;
}

static void launch(const ready *r, CUstream stream)
{
    if (quern_softmax_topk(r->op, &r->device.args, stream) != QUERN_OK)
        fail_msg("'%s': %s", r->c.text, quern_message());
}

static void make_ready(ready *r, const char *text, int64_t rows, uint64_t seed)
{
    r->c = make_case(text, rows, seed);
    r->op = prepare(&r->c);
    assert_true(hostile_data_make(&r->c, &r->first) && hostile_data_make_outputs(&r->c, &r->again));
    gpu_case_make(&g, &r->first, r->op, NULL, &r->device);
    launch(r, NULL);
    GPU_MUST(&g, cuCtxSynchronize());
    gpu_case_download(&g, &r->device, &r->first);
}

static void free_ready(ready *r)
{
    gpu_case_free(&g, &r->device);
    hostile_data_free(&r->first);
    hostile_data_free(&r->again);
    quern_op_release(r->op);
}

static void assert_same_again(ready *r, const char *when)
{
    int buffer = 0;
    GPU_MUST(&g, cuCtxSynchronize());
    gpu_case_download(&g, &r->device, &r->again);
    int64_t at = check_same_bits(&r->first, &r->again, &buffer);
    if (at >= 0)
        fail_msg("'%s' rows %lld: %s: %s differs at byte %lld", r->c.text, (long long)r->c.rows, when,
                 hostile_buffer_name[buffer], (long long)at);
}

static void assert_untouched(ready *r, const char *when)
{
    GPU_MUST(&g, cuCtxSynchronize());
    gpu_case_download(&g, &r->device, &r->again);
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++)
        for (size_t j = 0; r->again.buffer[i].bytes && j < r->again.buffer[i].count; j++)
            if (r->again.buffer[i].bytes[j] != HOSTILE_GUARD)
                fail_msg("%s: %s was written", when, hostile_buffer_name[i]);
}

static const char small[] = "softmax_topk V=4099 K=64 in=f32 lse=1 token=1";
static const char wide[] = "softmax_topk V=128256 K=256 in=bf16 lse=1 token=1";
static const int64_t row_counts[] = {1, 3, 20, 200};

// ---- capture

static void replay(ready *r, CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    GPU_MUST(&g, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(r, stream);
    GPU_MUST(&g, cuStreamEndCapture(stream, &graph));
    GPU_MUST(&g, cuGraphInstantiateWithFlags(&exec, graph, 0));
    gpu_case_reset(&g, &r->device);
    assert_untouched(r, "after capturing alone");
    for (int i = 0; i < 5; i++) { // the workspace resets itself, or the second replay is wrong
        gpu_case_reset(&g, &r->device);
        GPU_MUST(&g, cuGraphLaunch(exec, stream));
        GPU_MUST(&g, cuStreamSynchronize(stream));
        assert_same_again(r, "replayed");
    }
    GPU_MUST(&g, cuGraphExecDestroy(exec));
    GPU_MUST(&g, cuGraphDestroy(graph));
}

static void a_captured_launch_replays_with_the_same_bits(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    CUstream stream;
    GPU_MUST(&g, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < QN_COUNT(row_counts); i++) {
        ready r;
        make_ready(&r, i % 2 ? small : wide, row_counts[i], 10 + i);
        replay(&r, stream);
        free_ready(&r);
    }
    GPU_MUST(&g, cuStreamDestroy(stream));
}

static void preparing_while_a_stream_captures_leaves_the_capture_valid(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    CUstream stream;
    CUgraph graph = NULL;
    GPU_MUST(&g, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    hostile_case c = make_case("softmax_topk V=777 K=7 in=f16", 1, 20);
    GPU_MUST(&g, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    quern_op *op = prepare(&c);
    GPU_MUST(&g, cuStreamEndCapture(stream, &graph));
    assert_non_null(graph);
    quern_op_release(op);
    GPU_MUST(&g, cuGraphDestroy(graph));
    GPU_MUST(&g, cuStreamDestroy(stream));
}

// ---- streams and threads

enum { STREAMS = 4, ROUNDS = 8 };

static void streams_with_a_workspace_each_do_not_disturb_each_other(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    ready r[STREAMS];
    CUstream stream[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        make_ready(&r[i], wide, row_counts[i], 30 + (uint64_t)i);
        gpu_case_reset(&g, &r[i].device);
        GPU_MUST(&g, cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    }
    GPU_MUST(&g, cuCtxSynchronize());
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < STREAMS; i++) launch(&r[i], stream[i]);
    for (int i = 0; i < STREAMS; i++) {
        GPU_MUST(&g, cuStreamSynchronize(stream[i]));
        assert_same_again(&r[i], "in streams");
        GPU_MUST(&g, cuStreamDestroy(stream[i]));
        free_ready(&r[i]);
    }
}

typedef struct worker {
    ready r;
    CUstream stream;
    quern_status status;
    CUresult result;
} worker;

static void *launch_in_thread(void *user)
{
    worker *w = user;
    w->result = g.driver->cuCtxSetCurrent(g.context);
    for (int i = 0; i < (gpu_is_quick() ? 10 : 100) && w->status == QUERN_OK; i++)
        w->status = quern_softmax_topk(w->r.op, &w->r.device.args, w->stream);
    if (w->result == CUDA_SUCCESS) w->result = g.driver->cuStreamSynchronize(w->stream);
    return NULL;
}

static void an_op_is_launched_from_several_threads_at_once(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    worker w[STREAMS];
    pthread_t thread[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        w[i].status = QUERN_OK;
        make_ready(&w[i].r, small, 1 + 2 * i, 40 + (uint64_t)i);
        gpu_case_reset(&g, &w[i].r.device);
        GPU_MUST(&g, cuStreamCreate(&w[i].stream, CU_STREAM_NON_BLOCKING));
    }
    GPU_MUST(&g, cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++) assert_int_equal(pthread_create(&thread[i], NULL, launch_in_thread, &w[i]), 0);
    for (int i = 0; i < STREAMS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(w[i].status, QUERN_OK);
        gpu_must(&g, w[i].result, "cuStreamSynchronize in a thread");
        assert_same_again(&w[i].r, "in threads");
        GPU_MUST(&g, cuStreamDestroy(w[i].stream));
        free_ready(&w[i].r);
    }
}

// ---- refusals

typedef struct refusal {
    const char *named;
    quern_status status;
    void (*breaks)(quern_softmax_topk_args *args);
} refusal;

static void null_logits(quern_softmax_topk_args *a)
{
    a->logits = NULL;
}
static void null_values(quern_softmax_topk_args *a)
{
    a->values = NULL;
}
static void null_lse(quern_softmax_topk_args *a)
{
    a->lse = NULL;
}
static void null_token(quern_softmax_topk_args *a)
{
    a->token = NULL;
}
static void short_logits(quern_softmax_topk_args *a)
{
    a->logits_stride_rows = 4098;
}
static void short_values(quern_softmax_topk_args *a)
{
    a->values_stride_rows = 63;
}
static void negative_rows(quern_softmax_topk_args *a)
{
    a->rows = -1;
}
static void many_rows(quern_softmax_topk_args *a)
{
    a->rows = (int64_t)INT32_MAX + 1;
}
static void odd_logits(quern_softmax_topk_args *a)
{
    a->logits = (const char *)a->logits + 2;
}
static void odd_indices(quern_softmax_topk_args *a)
{
    a->indices = (char *)a->indices + 1;
}
static void other_family(quern_softmax_topk_args *a)
{
    a->base.family = "gate";
}

static void refused_arguments_leave_the_outputs_untouched(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    static const refusal refusals[] = {
        {"logits", QUERN_MISSING_ARGUMENT, null_logits},
        {"values", QUERN_MISSING_ARGUMENT, null_values},
        {"lse", QUERN_MISSING_ARGUMENT, null_lse},
        {"token", QUERN_MISSING_ARGUMENT, null_token},
        {"logits_stride_rows", QUERN_BAD_STRIDE, short_logits},
        {"values_stride_rows", QUERN_BAD_STRIDE, short_values},
        {"rows", QUERN_BAD_SIZE, negative_rows},
        {"rows", QUERN_BAD_SIZE, many_rows},
        {"logits", QUERN_MISALIGNED, odd_logits},
        {"indices", QUERN_MISALIGNED, odd_indices},
        {"gate", QUERN_WRONG_FAMILY, other_family},
    };
    ready r;
    make_ready(&r, small, 5, 50);
    gpu_case_reset(&g, &r.device);
    for (size_t i = 0; i < QN_COUNT(refusals); i++) {
        quern_softmax_topk_args args = r.device.args;
        refusals[i].breaks(&args);
        quern_status status = quern_softmax_topk(r.op, &args, NULL);
        if (status != refusals[i].status || !strstr(quern_message(), refusals[i].named))
            fail_msg("refusal %zu: %s, must be %s and name %s: %s", i, quern_status_name(status),
                     quern_status_name(refusals[i].status), refusals[i].named, quern_message());
    }
    assert_untouched(&r, "after refusals");
    free_ready(&r);
}

static void a_small_workspace_is_refused(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    size_t with_workspace = 0;
    for (size_t i = 0; i < QN_COUNT(row_counts); i++) {
        ready r;
        make_ready(&r, wide, row_counts[i], 60 + i);
        gpu_case_reset(&g, &r.device);
        if (r.device.args.workspace_bytes) {
            quern_softmax_topk_args args = r.device.args;
            with_workspace++;
            args.workspace_bytes = 0, args.workspace = NULL;
            quern_status status = quern_softmax_topk(r.op, &args, NULL);
            // The size is the most that any number of rows up to these needs: these rows may need less, even nothing.
            if (status == QUERN_OK)
                assert_same_again(&r, "without a workspace");
            else
                assert_int_equal(status, QUERN_SMALL_WORKSPACE), assert_untouched(&r, "refused for its workspace");
        }
        free_ready(&r);
    }
    print_message("%zu of %zu launches have a workspace\n", with_workspace, QN_COUNT(row_counts));
}

static void zero_rows_launch_nothing(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    ready r;
    make_ready(&r, small, 5, 70);
    gpu_case_reset(&g, &r.device);
    r.device.args.rows = 0;
    launch(&r, NULL);
    quern_softmax_topk_args nothing = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    assert_int_equal(quern_softmax_topk(r.op, &nothing, NULL), QUERN_OK);
    assert_untouched(&r, "with zero rows");
    free_ready(&r);
}

static void arguments_by_name_launch_the_same(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    ready r;
    make_ready(&r, small, 7, 80);
    const quern_softmax_topk_args *a = &r.device.args;
    const quern_argument named[] = {
        {"rows", NULL, a->rows},
        {"logits", (void *)(uintptr_t)a->logits, 0},
        {"token", (void *)(uintptr_t)a->token, 0},
        {"values", a->values, 0},
        {"indices", a->indices, 0},
        {"lse", a->lse, 0},
        {"token_value", a->token_value, 0},
        {"token_rank", a->token_rank, 0},
        {"workspace", a->workspace, 0},
        {"workspace_bytes", NULL, (int64_t)a->workspace_bytes},
    };
    gpu_case_reset(&g, &r.device);
    if (quern_launch(r.op, named, QN_COUNT(named), NULL) != QUERN_OK) fail_msg("%s", quern_message());
    assert_same_again(&r, "by name");
    free_ready(&r);
}

// ---- batch invariance: one row's content everywhere; every row of every launch has its bits

static void assert_rows_equal(const ready *one, const ready *many)
{
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++) {
        const hostile_buffer *a = &one->first.buffer[i], *b = &many->first.buffer[i];
        if (!a->bytes || i == HOSTILE_TOKEN_RANK || i == HOSTILE_TOKEN_VALUE) continue; // tokens differ from row to row
        size_t row = a->count - a->at - HOSTILE_GUARD_BYTES;
        for (int64_t r = 0; r < many->c.rows; r++)
            if (memcmp(a->bytes + a->at, b->bytes + b->at + (size_t)r * row, row))
                fail_msg("'%s': %s of row %lld of %lld, offset %lld, stride %lld differs from the row alone",
                         many->c.text, hostile_buffer_name[i], (long long)r, (long long)many->c.rows,
                         (long long)many->c.logits_offset, (long long)many->c.logits_stride);
    }
}

static void make_repeated(ready *r, const char *text, int64_t rows, int64_t offset, int64_t gap)
{
    r->c = make_case(text, rows, 90);
    r->c.fill = fill_normal, r->c.p = 2, r->c.period = 1;
    r->c.logits_offset = offset, r->c.logits_stride = gap ? r->c.spec.V + gap : 0;
    r->op = prepare(&r->c);
    assert_true(hostile_data_make(&r->c, &r->first) && hostile_data_make_outputs(&r->c, &r->again));
    gpu_case_make(&g, &r->first, r->op, NULL, &r->device);
    launch(r, NULL);
    GPU_MUST(&g, cuCtxSynchronize());
    gpu_case_download(&g, &r->device, &r->first);
}

static void a_batch_invariant_row_has_the_same_bits_in_any_batch_at_any_address(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    static const char *const texts[] = {
        "softmax_topk V=50257 K=50 in=bf16 lse=1 batch_invariant=1",
        "softmax_topk V=4099 K=256 in=f32 value=logprob norm=topk lse=1 batch_invariant=1"};
    static const int64_t rows[] = {1, 2, 5, 17, 64, 131, 300, 1000}, offsets[] = {0, 1, 3, 6};
    for (size_t t = 0; t < QN_COUNT(texts); t++) {
        ready one;
        make_repeated(&one, texts[t], 1, 0, 0);
        for (size_t i = 0; i < QN_COUNT(rows); i++)
            for (size_t o = 0; o < (rows[i] < 100 ? QN_COUNT(offsets) : 1); o++) {
                ready many;
                make_repeated(&many, texts[t], rows[i], offsets[o], rows[i] % 3);
                assert_rows_equal(&one, &many);
                free_ready(&many);
            }
        free_ready(&one);
    }
}

// ---- contexts and lifetimes

static void the_current_context_is_used_and_left_as_it_was(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    CUcontext current = NULL;
    ready r;
    make_ready(&r, small, 2, 100);
    GPU_MUST(&g, cuCtxGetCurrent(&current));
    assert_ptr_equal(current, g.context);
    free_ready(&r);

    quern_op *op = NULL;
    hostile_case c = make_case("softmax_topk V=778 K=7 in=f32", 1, 101);
    GPU_MUST(&g, cuCtxSetCurrent(NULL));
    quern_status status = quern_prepare(g.q, &c.spec.base, 0, &op);
    GPU_MUST(&g, cuCtxSetCurrent(g.context));
    assert_int_equal(status, QUERN_NO_CONTEXT);
    assert_null(op);
}

static void an_op_stays_usable_after_its_quern_is_closed(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    quern_options options = QUERN_OPTIONS_INIT;
    quern *other = NULL;
    ready r;
    make_ready(&r, small, 3, 110);
    options.cache_file = "";
    options.mode = QUERN_MODE_OFF;
    assert_int_equal(quern_open(&options, &other), QUERN_OK);
    quern_op *mine = r.op;
    if (quern_prepare(other, &r.c.spec.base, QUERN_DEVICE_CURRENT, &r.op) != QUERN_OK) fail_msg("%s", quern_message());
    quern_close(other);
    gpu_case_reset(&g, &r.device);
    launch(&r, NULL);
    assert_same_again(&r, "after quern_close");
    quern_op_release(r.op);
    r.op = mine;
    free_ready(&r);
}

static void preparing_twice_gives_the_same_op(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    hostile_case c = make_case(small, 1, 120);
    quern_counters before = QUERN_COUNTERS_INIT, after = QUERN_COUNTERS_INIT;
    quern_op *first = prepare(&c);
    quern_get_counters(g.q, &before);
    quern_op *second = prepare(&c);
    quern_get_counters(g.q, &after);
    assert_ptr_equal(first, second);
    assert_int_equal(after.hit_table, before.hit_table + 1);
    assert_int_equal(after.compiled, before.compiled);
    quern_op_release(first), quern_op_release(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_captured_launch_replays_with_the_same_bits),
        cmocka_unit_test(preparing_while_a_stream_captures_leaves_the_capture_valid),
        cmocka_unit_test(streams_with_a_workspace_each_do_not_disturb_each_other),
        cmocka_unit_test(an_op_is_launched_from_several_threads_at_once),
        cmocka_unit_test(refused_arguments_leave_the_outputs_untouched),
        cmocka_unit_test(a_small_workspace_is_refused),
        cmocka_unit_test(zero_rows_launch_nothing),
        cmocka_unit_test(arguments_by_name_launch_the_same),
        cmocka_unit_test(a_batch_invariant_row_has_the_same_bits_in_any_batch_at_any_address),
        cmocka_unit_test(the_current_context_is_used_and_left_as_it_was),
        cmocka_unit_test(an_op_stays_usable_after_its_quern_is_closed),
        cmocka_unit_test(preparing_twice_gives_the_same_op),
    };
    gpu_open(&g);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_close(&g);
    return failed;
}
