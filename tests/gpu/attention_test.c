// SPDX-License-Identifier: Apache-2.0
// attention on a device, through the public interface, against f64: every hostile case, three times over with other
// contents of unused memory; plans by force; sequences alone against their batch; decode against prefill; a launch inside
// stream capture; real activations. Without a device it says why and is skipped. tests/gpu/README.md.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/attention.h"
#include "support/attention_real.h"
#include "support/check_attention.h"
#include "support/compile_pool.h"
#include "support/gpu.h"

static gpu g;

enum { MOST_REPORTS = 12, REPEATS = 3 };
static const uint16_t poisons[REPEATS] = {0x7FFF, 0, 0xFF80}; // NaN, 0, -inf (in f16 a NaN)

static void skip_without_device(void)
{
    if (g.driver) return;
    print_message("skipped: no device (%s)\n", g.why);
    skip();
}

static unsigned wanted_tag(void)
{
    return gpu_is_quick() ? HOSTILE_QUICK : HOSTILE_GPU;
}

typedef struct verdict {
    size_t cases, failed;
} verdict;

static void count_case(verdict *v, qn_text *report)
{
    v->cases++;
    if (report->length && v->failed++ < MOST_REPORTS) print_error("%s", qn_text_string(report));
    qn_text_clear(report);
}

static void conclude(const verdict *v, const char *what)
{
    print_message("%zu %s, %zu failed\n", v->cases, what, v->failed);
    if (v->failed) fail_msg("%zu of %zu %s failed; the first ones are above", v->failed, v->cases, what);
}

// ---- a case on the device

typedef struct device_case {
    CUdeviceptr buffer[ATTENTION_BUFFERS], workspace;
    quern_attention_args args; // device pointers
} device_case;

static void make_workspace(device_case *d, const quern_op *op)
{
    quern_attention_sizes sizes;
    qn_family_attention.sizes_of(&d->args.base, &sizes);
    size_t bytes = quern_workspace_size(op, &sizes);
    if (bytes == 0) return;
    d->workspace = gpu_alloc(&g, bytes);
    assert_true(d->workspace != 0);
    d->args.workspace = (void *)(uintptr_t)d->workspace, d->args.workspace_bytes = bytes;
    if (quern_workspace_init(op, d->args.workspace, bytes, NULL) != QUERN_OK) fail_msg("%s", quern_message());
}

static void make_device_case(device_case *d, const attention_data *data, const quern_op *op)
{
    *d = (device_case){.args = data->args};
    for (int i = 0; i < ATTENTION_BUFFERS; i++) {
        const hostile_buffer *b = &data->buffer[i];
        if (!b->bytes) continue;
        d->buffer[i] = gpu_alloc(&g, b->count);
        assert_true(d->buffer[i] != 0);
        attention_set_pointer(&d->args, i, (void *)(uintptr_t)(d->buffer[i] + b->at));
    }
    make_workspace(d, op);
}

static void upload(const device_case *d, const attention_data *data)
{
    for (int i = 0; i < ATTENTION_BUFFERS; i++)
        if (data->buffer[i].bytes && data->buffer[i].count)
            GPU_MUST(&g, cuMemcpyHtoD(d->buffer[i], data->buffer[i].bytes, data->buffer[i].count));
}

static void download(const device_case *d, attention_data *data)
{
    for (int i = ATTENTION_INPUTS; i < ATTENTION_BUFFERS; i++)
        if (data->buffer[i].bytes)
            GPU_MUST(&g, cuMemcpyDtoH(data->buffer[i].bytes, d->buffer[i], data->buffer[i].count));
}

static void free_device_case(device_case *d)
{
    for (int i = 0; i < ATTENTION_BUFFERS; i++) gpu_free(&g, d->buffer[i]);
    gpu_free(&g, d->workspace);
}

static void launch(const attention_case *c, const quern_op *op, const quern_attention_args *args)
{
    if (quern_attention(op, args, NULL) != QUERN_OK) fail_msg("case %s '%s': %s", c->name, c->text, quern_message());
    CUresult result = g.driver->cuCtxSynchronize();
    if (result == CUDA_SUCCESS) return;
    qn_text where = QN_TEXT_INIT;
    attention_describe(c, &where);
    qn_driver_fail(g.driver, QUERN_DRIVER_ERROR, "cuCtxSynchronize", result);
    fail_msg("%s%s", qn_text_string(&where), quern_message()); // the context is lost: no case after this one can run
}

// One launch; the outputs are data's then.
static void run_once(const attention_case *c, const quern_op *op, attention_data *data)
{
    device_case d;
    make_device_case(&d, data, op);
    upload(&d, data);
    launch(c, op, &d.args);
    download(&d, data);
    free_device_case(&d);
}

// Judges the first run; the others, on other contents of unused memory and a workspace that was used, have its bits.
static void run_case(const attention_case *c, const quern_op *op, const char *config, qn_text *report)
{
    attention_data first, again;
    device_case d;
    assert_true(attention_data_make(c, poisons[0], &first));
    make_device_case(&d, &first, op);
    for (int i = 0; i < REPEATS; i++) {
        attention_data *data = i ? &again : &first;
        if (i) assert_true(attention_data_make(c, poisons[i], &again));
        upload(&d, data);
        launch(c, op, &d.args);
        download(&d, data);
        if (i == 0) {
            if (attention_check_case(data, report) && config) qn_text_putf(report, "    configuration: %s\n", config);
            continue;
        }
        int buffer = 0;
        int64_t at = attention_same_bits(&first, &again, &buffer);
        attention_data_free(&again);
        if (at < 0) continue;
        attention_describe(c, report);
        qn_text_putf(report, "    run %d differs from the first: %s, byte %lld, configuration: %s\n", i + 1,
                     attention_buffer_name[buffer], (long long)at, config ? config : "as chosen");
    }
    free_device_case(&d);
    attention_data_free(&first);
}

static quern_op *prepare(const attention_case *c)
{
    quern_op *op = NULL;
    if (quern_prepare(g.q, &c->spec.base, QUERN_DEVICE_CURRENT, &op) != QUERN_OK)
        fail_msg("'%s': %s", c->text, quern_message());
    return op;
}

// The variant that serves a case: of each spec only the kernels that its cases need are compiled.
static void choose(const attention_case *c, qn_variant *variant)
{
    static qn_variants variants; // large
    quern_attention_sizes sizes;
    attention_data data;
    assert_true(attention_data_make(c, 0, &data));
    qn_family_attention.sizes_of(&data.args.base, &sizes);
    attention_data_free(&data);
    if (qn_variants_plan(g.q, &qn_family_attention, &c->spec.base, g.arch, &variants) != QUERN_OK)
        fail_msg("'%s': %s", c->text, quern_message());
    *variant = variants.item[variants.of_bucket[qn_family_attention.bucket_of(&sizes)]];
}

static quern_op *prepare_config(const attention_case *c, const char *text)
{
    qn_config config;
    quern_op *op = NULL;
    if (qn_config_parse(&qn_family_attention, text, &config) != QUERN_OK ||
        qn_prepare_config(g.q, &c->spec.base, QUERN_DEVICE_CURRENT, &config, &op) != QUERN_OK)
        fail_msg("'%s' %s: %s", c->text, text, quern_message());
    return op;
}

static bool has_plan(const attention_case *c, const char *text)
{
    qn_config config;
    qn_plan plan;
    return qn_config_parse(&qn_family_attention, text, &config) == QUERN_OK &&
           qn_attention_plan(&c->spec.base, g.arch, &config, &plan) == QUERN_OK;
}

// ---- every case

static void run_jobs(compile_jobs *jobs)
{
    compile_jobs_run(jobs, g.q);
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->item[i].status != QUERN_OK) fail_msg("'%s': %s", jobs->item[i].text, jobs->item[i].message);
    print_message("%zu kernels\n", jobs->count);
    compile_jobs_fini(jobs);
}

static void every_hostile_case_equals_f64_three_times_over(void **state)
{
    (void)state;
    skip_without_device();
    verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    compile_jobs jobs = {0};
    qn_variant variant;
    size_t count;
    const attention_case *cases = attention_cases(&count);
    for (size_t i = 0; i < count; i++) // so that prepare finds it in memory
    {
        if (!attention_wanted(&cases[i], wanted_tag())) continue;
        choose(&cases[i], &variant);
        for (size_t s = 0; s < variant.plan.stage_count; s++)
            compile_jobs_add(&jobs, &variant.plan.stage[s], g.arch, cases[i].text);
    }
    run_jobs(&jobs);
    for (size_t i = 0; i < count; i++) {
        quern_op *op = NULL;
        if (!attention_wanted(&cases[i], wanted_tag())) continue;
        choose(&cases[i], &variant);
        if (qn_prepare_config(g.q, &cases[i].spec.base, QUERN_DEVICE_CURRENT, &variant.config, &op) != QUERN_OK)
            fail_msg("'%s': %s", cases[i].text, quern_message());
        run_case(&cases[i], op, NULL, &report);
        quern_op_release(op);
        count_case(&v, &report);
    }
    qn_text_fini(&report);
    conclude(&v, "cases");
}

// ---- plans by force

static const attention_case *case_named(const char *name)
{
    size_t count;
    const attention_case *cases = attention_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(cases[i].name, name)) return &cases[i];
    fail_msg("no case %s", name);
    return NULL;
}

static void every_plan_by_force_equals_f64(void **state)
{
    static const char *const configs[] = {
        "plan=prefill rows=64 keys=64 warps=4 columns=1 slots=3 ctas=2",
        "plan=prefill rows=128 keys=32 warps=4 columns=1 slots=3 ctas=1",
        "plan=prefill rows=64 keys=32 warps=2 columns=2 slots=5 ctas=1",
        "plan=prefill rows=16 keys=128 warps=1 columns=8 slots=4 ctas=1",
        "plan=decode rows=32 keys=64 warps=2 columns=4 slots=2 ctas=1",
        "plan=decode rows=16 keys=16 warps=1 columns=1 slots=6 ctas=1",
    };
    static const char *const names[] = {"dim_prefill_128_128", "window_both", "prefill_long", "gqa_7_prefill",
                                        "split_long"};
    (void)state;
    skip_without_device();
    verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    for (size_t k = 0; k < QN_COUNT(configs) && !gpu_is_quick(); k++) {
        for (size_t n = 0; n < QN_COUNT(names); n++) {
            if (!has_plan(case_named(names[n]), configs[k])) continue;
            quern_op *op = prepare_config(case_named(names[n]), configs[k]);
            run_case(case_named(names[n]), op, configs[k], &report);
            quern_op_release(op);
            count_case(&v, &report);
        }
    }
    qn_text_fini(&report);
    conclude(&v, "cases on forced plans");
}

// ---- bits that must not depend

static void a_sequence_alone_has_the_same_bits(void **state)
{
    static const char *const names[] = {"invariant_dense", "invariant_varlen", "invariant_prefill", "invariant_paged"};
    (void)state;
    skip_without_device();
    qn_text report = QN_TEXT_INIT;
    for (size_t n = 0; n < QN_COUNT(names); n++) {
        const attention_case *c = case_named(names[n]);
        quern_op *op = prepare(c);
        attention_data all;
        assert_true(attention_data_make(c, poisons[0], &all));
        run_once(c, op, &all);
        for (int64_t b = 0; b < c->B; b++) {
            attention_case alone = attention_alone(c, b);
            attention_data one;
            assert_true(attention_data_make(&alone, poisons[0], &one));
            run_once(&alone, op, &one);
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
    skip_without_device();
    for (size_t n = 0; n < QN_COUNT(names); n++) {
        attention_case one = *case_named(names[n]);
        attention_data prefill, decode;
        one.queries[0] = 1;
        assert_true(attention_data_make(case_named(names[n]), poisons[0], &prefill));
        assert_true(attention_data_make(&one, poisons[0], &decode));
        copy_last_query(&prefill, &decode);
        quern_op *op = prepare(&one);
        run_once(prefill.c, op, &prefill);
        run_once(&one, op, &decode);
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
    skip_without_device();
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

static void a_captured_launch_gives_the_same_bits(void **state)
{
    (void)state;
    skip_without_device();
    const attention_case *c = case_named("sink_split"); // tickets and a merge
    attention_data data, captured;
    device_case device;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    int buffer = 0;
    assert_true(attention_data_make(c, poisons[0], &data) && attention_data_make(c, poisons[0], &captured));
    quern_op *op = prepare(c);
    make_device_case(&device, &data, op);
    upload(&device, &data);
    launch(c, op, &device.args);
    download(&device, &data);
    upload(&device, &captured);
    GPU_MUST(&g, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GPU_MUST(&g, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(quern_attention(op, &device.args, stream), QUERN_OK);
    GPU_MUST(&g, cuStreamEndCapture(stream, &graph));
    GPU_MUST(&g, cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) GPU_MUST(&g, cuGraphLaunch(exec, stream));
    GPU_MUST(&g, cuStreamSynchronize(stream));
    download(&device, &captured);
    assert_int_equal(attention_same_bits(&data, &captured, &buffer), -1);
    GPU_MUST(&g, cuGraphExecDestroy(exec));
    GPU_MUST(&g, cuGraphDestroy(graph));
    GPU_MUST(&g, cuStreamDestroy(stream));
    free_device_case(&device);
    quern_op_release(op);
    attention_data_free(&captured);
    attention_data_free(&data);
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
        cmocka_unit_test(a_captured_launch_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
