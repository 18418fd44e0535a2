// SPDX-License-Identifier: Apache-2.0
// indexer on a device, through the public interface, against the reference: every hostile case, three times over; every
// plan by force; a launch inside stream capture. Without a device it says why and is skipped. tests/gpu/README.md.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/compile_pool.h"
#include "support/gpu.h"
#include "support/hostile_indexer.h"

static gpu g;

enum { MOST_REPORTS = 12, REPEATS = 3 };

static void skip_without_device(void)
{
    if (g.driver) return;
    print_message("skipped: no device (%s)\n", g.why);
    skip();
}

static unsigned wanted_tag(void)
{
    return gpu_is_quick() ? HOSTILE_QUICK : HOSTILE_GPU | HOSTILE_LARGE;
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
    const indexer_data *data;
    CUdeviceptr buffer[INDEXER_BUFFERS], workspace;
    quern_indexer_args args; // device pointers
} device_case;

// Inputs and the outputs' guard bytes, as they are on the host.
static void upload(device_case *d, const indexer_data *data)
{
    for (int i = 0; i < INDEXER_BUFFERS; i++)
        if (data->buffer[i].bytes && data->buffer[i].count)
            GPU_MUST(&g, cuMemcpyHtoD(d->buffer[i], data->buffer[i].bytes, data->buffer[i].count));
}

static void make_device_case(device_case *d, const indexer_data *data, const quern_op *op)
{
    *d = (device_case){.data = data, .args = data->args};
    for (int i = 0; i < INDEXER_BUFFERS; i++) {
        const hostile_buffer *b = &data->buffer[i];
        if (!b->bytes) continue;
        d->buffer[i] = gpu_alloc(&g, b->count);
        assert_true(d->buffer[i] != 0);
        indexer_set_pointer(&d->args, i, (void *)(uintptr_t)(d->buffer[i] + b->at));
    }
    quern_indexer_sizes sizes = QUERN_INDEXER_SIZES_INIT;
    sizes.T = d->args.T, sizes.max_length = d->args.max_length;
    d->args.workspace_bytes = quern_workspace_size(op, &sizes);
    d->workspace = gpu_alloc(&g, d->args.workspace_bytes);
    d->args.workspace = (void *)(uintptr_t)d->workspace;
    assert_int_equal(quern_workspace_init(op, d->args.workspace, d->args.workspace_bytes, NULL), QUERN_OK);
}

static void download(const device_case *d, indexer_data *data)
{
    for (int i = INDEXER_INPUTS; i < INDEXER_BUFFERS; i++)
        if (data->buffer[i].bytes)
            GPU_MUST(&g, cuMemcpyDtoH(data->buffer[i].bytes, d->buffer[i], data->buffer[i].count));
}

static void free_device_case(device_case *d)
{
    for (int i = 0; i < INDEXER_BUFFERS; i++) gpu_free(&g, d->buffer[i]);
    gpu_free(&g, d->workspace);
}

static void launch(const indexer_case *c, const quern_op *op, const quern_indexer_args *args)
{
    if (quern_indexer(op, args, NULL) != QUERN_OK) fail_msg("case %s '%s': %s", c->name, c->text, quern_message());
    CUresult result = g.driver->cuCtxSynchronize();
    if (result == CUDA_SUCCESS) return;
    qn_text where = QN_TEXT_INIT;
    indexer_describe(c, &where);
    qn_driver_fail(g.driver, QUERN_DRIVER_ERROR, "cuCtxSynchronize", result);
    fail_msg("%s%s", qn_text_string(&where), quern_message()); // the context is lost: no case after this one can run
}

// Compares the first run with the reference and the others with the first.
static void run_case(const indexer_case *c, const quern_op *op, const char *config, qn_text *report)
{
    indexer_data data, again;
    device_case device;
    assert_true(indexer_data_make(c, &data) && indexer_data_make(c, &again));
    make_device_case(&device, &data, op);
    for (int i = 0; i < REPEATS; i++) {
        indexer_data_reset(i ? &again : &data);
        upload(&device, i ? &again : &data);
        launch(c, op, &device.args);
        download(&device, i ? &again : &data);
        int buffer = 0;
        if (i == 0 && indexer_check_case(&data, report) && config)
            qn_text_putf(report, "    configuration: %s\n", config);
        int64_t at = i ? indexer_same_bits(&data, &again, &buffer) : -1;
        if (at < 0) continue;
        indexer_describe(c, report);
        qn_text_putf(report, "    run %d differs from the first: %s, byte %lld, configuration: %s\n", i + 1,
                     indexer_buffer_name[buffer], (long long)at, config ? config : "as chosen");
    }
    free_device_case(&device);
    indexer_data_free(&again);
    indexer_data_free(&data);
}

// What is chosen for the case's sizes: one kernel, where an op of the spec has one for each range of sizes.
static void config_of(const indexer_case *c, qn_config *config)
{
    quern_indexer_sizes sizes = QUERN_INDEXER_SIZES_INIT;
    sizes.T = c->T, sizes.max_length = c->most;
    qn_family_indexer.choose(&c->spec.base, g.arch, qn_family_indexer.bucket_of(&sizes), config);
}

static quern_op *prepare_config(const indexer_case *c, const qn_config *config)
{
    quern_op *op = NULL;
    if (qn_prepare_config(g.q, &c->spec.base, QUERN_DEVICE_CURRENT, config, &op) != QUERN_OK)
        fail_msg("'%s': %s", c->text, quern_message());
    return op;
}

static void add_job(compile_jobs *jobs, const indexer_case *c, const qn_config *config)
{
    qn_plan plan;
    if (qn_family_indexer.plan(&c->spec.base, g.arch, config, &plan) != QUERN_OK)
        fail_msg("'%s': %s", c->text, quern_message());
    compile_jobs_add(jobs, &plan.stage[0], g.arch, c->text);
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

static void every_hostile_case_equals_the_reference_three_times_over(void **state)
{
    (void)state;
    skip_without_device();
    verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    compile_jobs jobs = {0};
    size_t count;
    const indexer_case *cases = indexer_cases(&count);
    qn_config config;
    for (size_t i = 0; i < count; i++) { // so that prepare finds it in memory
        if (!indexer_wanted(&cases[i], wanted_tag())) continue;
        config_of(&cases[i], &config);
        add_job(&jobs, &cases[i], &config);
    }
    run_jobs(&jobs);
    for (size_t i = 0; i < count; i++) {
        if (!indexer_wanted(&cases[i], wanted_tag())) continue;
        config_of(&cases[i], &config);
        quern_op *op = prepare_config(&cases[i], &config);
        run_case(&cases[i], op, NULL, &report);
        quern_op_release(op);
        count_case(&v, &report);
    }
    qn_text_fini(&report);
    conclude(&v, "cases");
}

// ---- every plan by force, on every case that the planner lets it have

static const char *const forced[] = {
    "plan=fused warps=8 shares=1", "plan=fused warps=12 shares=2",  "plan=fused warps=12 shares=4",
    "plan=fused warps=8 shares=8", "plan=fused warps=12 shares=64", "plan=fused warps=12 shares=128",
};

static bool for_forced(const indexer_case *c)
{
    return c->T && c->most < 50000 && indexer_wanted(c, wanted_tag()) && c->spec.H == 64;
}

static void force(const char *text, verdict *v)
{
    size_t count;
    const indexer_case *cases = indexer_cases(&count);
    qn_text report = QN_TEXT_INIT;
    compile_jobs jobs = {0};
    qn_config config;
    qn_plan plan;
    if (qn_config_parse(&qn_family_indexer, text, &config) != QUERN_OK) fail_msg("%s", quern_message());
    for (size_t i = 0; i < count; i++)
        if (for_forced(&cases[i]) && qn_family_indexer.plan(&cases[i].spec.base, g.arch, &config, &plan) == QUERN_OK)
            compile_jobs_add(&jobs, &plan.stage[0], g.arch, cases[i].text);
    run_jobs(&jobs);
    for (size_t i = 0; i < count; i++) {
        quern_op *op = NULL;
        if (!for_forced(&cases[i])) continue;
        if (qn_family_indexer.plan(&cases[i].spec.base, g.arch, &config, &plan) != QUERN_OK) continue;
        if (qn_prepare_config(g.q, &cases[i].spec.base, QUERN_DEVICE_CURRENT, &config, &op) != QUERN_OK)
            fail_msg("'%s' %s: %s", cases[i].text, text, quern_message());
        run_case(&cases[i], op, text, &report);
        quern_op_release(op);
        count_case(v, &report);
    }
    qn_text_fini(&report);
}

static void every_plan_by_force_equals_the_reference(void **state)
{
    (void)state;
    skip_without_device();
    verdict v = {0};
    for (size_t i = 0; i < QN_COUNT(forced); i++) force(forced[i], &v);
    conclude(&v, "cases on forced plans");
}

// ---- capture

static void a_captured_launch_gives_the_same_bits(void **state)
{
    (void)state;
    skip_without_device();
    size_t count;
    const indexer_case *cases = indexer_cases(&count), *c = NULL;
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, "b0_normal") == 0) c = &cases[i];
    assert_non_null(c);
    indexer_data data, captured;
    device_case device;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    int buffer = 0;
    assert_true(indexer_data_make(c, &data) && indexer_data_make(c, &captured));
    quern_op *op = NULL;
    if (quern_prepare(g.q, &c->spec.base, QUERN_DEVICE_CURRENT, &op) != QUERN_OK) fail_msg("%s", quern_message());
    make_device_case(&device, &data, op);
    upload(&device, &data);
    launch(c, op, &device.args);
    download(&device, &data);
    upload(&device, &captured);
    GPU_MUST(&g, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GPU_MUST(&g, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(quern_indexer(op, &device.args, stream), QUERN_OK);
    GPU_MUST(&g, cuStreamEndCapture(stream, &graph));
    GPU_MUST(&g, cuGraphInstantiateWithFlags(&exec, graph, 0));
    GPU_MUST(&g, cuGraphLaunch(exec, stream));
    GPU_MUST(&g, cuStreamSynchronize(stream));
    download(&device, &captured);
    assert_int_equal(indexer_same_bits(&data, &captured, &buffer), -1);
    GPU_MUST(&g, cuGraphExecDestroy(exec));
    GPU_MUST(&g, cuGraphDestroy(graph));
    GPU_MUST(&g, cuStreamDestroy(stream));
    free_device_case(&device);
    quern_op_release(op);
    indexer_data_free(&captured);
    indexer_data_free(&data);
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
        cmocka_unit_test(every_hostile_case_equals_the_reference_three_times_over),
        cmocka_unit_test(every_plan_by_force_equals_the_reference),
        cmocka_unit_test(a_captured_launch_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
