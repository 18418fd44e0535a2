// SPDX-License-Identifier: Apache-2.0
// router on a device, through the public interface, against the reference: every hostile case, three times over on one
// workspace, and without its logits; every plan by force; batch invariance; a launch inside stream capture. Without a
// device it says why and is skipped. tests/gpu/README.md.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/check_router.h"
#include "support/compile_pool.h"
#include "support/gpu.h"

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

static const router_case *case_named(const char *name)
{
    size_t count;
    const router_case *cases = router_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(cases[i].name, name)) return &cases[i];
    fail_msg("there is no case %s", name);
    return NULL;
}

// ---- a case on the device

typedef struct device_case {
    router_data *data;
    CUdeviceptr buffer[ROUTER_BUFFERS], workspace;
    quern_router_args args; // device pointers
} device_case;

static void copy_to(const device_case *d, int first, int end)
{
    for (int i = first; i < end; i++)
        if (d->data->buffer[i].bytes && d->data->buffer[i].count)
            GPU_MUST(&g, cuMemcpyHtoD(d->buffer[i], d->data->buffer[i].bytes, d->data->buffer[i].count));
}

// Guard bytes into the outputs, on both sides.
static void reset(const device_case *d)
{
    router_data_reset(d->data);
    copy_to(d, ROUTER_INPUTS, ROUTER_BUFFERS);
}

static void make_workspace(device_case *d, const quern_op *op)
{
    quern_router_sizes sizes = QUERN_ROUTER_SIZES_INIT;
    sizes.N = d->args.N;
    size_t bytes = quern_workspace_size(op, &sizes);
    gpu_free(&g, d->workspace);
    d->workspace = gpu_alloc(&g, bytes);
    assert_true(d->workspace != 0);
    d->args.workspace = (void *)(uintptr_t)d->workspace, d->args.workspace_bytes = bytes;
    if (quern_workspace_init(op, d->args.workspace, bytes, NULL) != QUERN_OK) fail_msg("%s", quern_message());
}

static void make_device_case(device_case *d, router_data *data)
{
    *d = (device_case){.data = data, .args = data->args};
    for (int i = 0; i < ROUTER_BUFFERS; i++) {
        const hostile_buffer *b = &data->buffer[i];
        if (!b->bytes) continue;
        d->buffer[i] = gpu_alloc(&g, b->count);
        assert_true(d->buffer[i] != 0);
        router_set_pointer(&d->args, i, (void *)(uintptr_t)(d->buffer[i] + b->at));
    }
    copy_to(d, 0, ROUTER_INPUTS);
}

static void download(const device_case *d)
{
    for (int i = ROUTER_INPUTS; i < ROUTER_BUFFERS; i++)
        if (d->data->buffer[i].bytes)
            GPU_MUST(&g, cuMemcpyDtoH(d->data->buffer[i].bytes, d->buffer[i], d->data->buffer[i].count));
}

static void free_device_case(device_case *d)
{
    for (int i = 0; i < ROUTER_BUFFERS; i++) gpu_free(&g, d->buffer[i]);
    gpu_free(&g, d->workspace);
}

static void launch(const router_case *c, const quern_op *op, const device_case *d)
{
    reset(d);
    if (quern_router(op, &d->args, NULL) != QUERN_OK) fail_msg("case %s '%s': %s", c->name, c->text, quern_message());
    CUresult result = g.driver->cuCtxSynchronize();
    if (result != CUDA_SUCCESS) {
        qn_text where = QN_TEXT_INIT;
        router_describe(c, &where);
        qn_driver_fail(g.driver, QUERN_DRIVER_ERROR, "cuCtxSynchronize", result);
        fail_msg("%s%s", qn_text_string(&where), quern_message()); // the context is lost: no case after this can run
    }
    download(d);
}

// The outputs of a run, kept.
static void keep(const router_data *data, router_data *kept)
{
    *kept = (router_data){.c = data->c};
    for (int i = ROUTER_INPUTS; i < ROUTER_BUFFERS; i++) {
        const hostile_buffer *b = &data->buffer[i];
        kept->buffer[i] = (hostile_buffer){.at = b->at, .count = b->count};
        if (!b->bytes) continue;
        kept->buffer[i].bytes = malloc(b->count);
        if (!kept->buffer[i].bytes) abort();
        memcpy(kept->buffer[i].bytes, b->bytes, b->count);
    }
}

static void compare(const router_data *first, const router_data *other, const char *what, const char *config,
                    qn_text *report)
{
    int buffer = 0;
    int64_t at = router_same_bits(first, other, &buffer);
    if (at < 0) return;
    router_describe(first->c, report);
    qn_text_putf(report, "    %s differs from the first run: %s, byte %lld, configuration: %s\n", what,
                 router_buffer_name[buffer], (long long)at, config ? config : "as chosen");
}

static quern_op *prepare(const router_case *c, bool logits, const char *config_text)
{
    quern_op *op = NULL;
    qn_config config;
    quern_router_spec spec = c->spec;
    spec.logits = logits;
    if (config_text && qn_config_parse(&qn_family_router, config_text, &config) != QUERN_OK)
        fail_msg("%s", quern_message());
    quern_status status = config_text ? qn_prepare_config(g.q, &spec.base, QUERN_DEVICE_CURRENT, &config, &op)
                                      : quern_prepare(g.q, &spec.base, QUERN_DEVICE_CURRENT, &op);
    if (status != QUERN_OK) fail_msg("'%s': %s", c->text, quern_message());
    return op;
}

// Compares the first run with the reference and the others with the first; at last one that writes no logits.
static void run_case(const router_case *c, const char *config, qn_text *report)
{
    router_data data, first;
    device_case device;
    assert_true(router_data_make(c, &data));
    make_device_case(&device, &data);
    quern_op *op = prepare(c, true, config), *plain = prepare(c, false, config);
    make_workspace(&device, op);
    launch(c, op, &device);
    if (router_check_case(&data, report) && config) qn_text_putf(report, "    configuration: %s\n", config);
    keep(&data, &first);
    for (int i = 1; i < REPEATS; i++) {
        launch(c, op, &device);
        compare(&first, &data, "a later run", config, report);
    }
    make_workspace(&device, plain);
    launch(c, plain, &device);
    free(first.buffer[ROUTER_LOGITS].bytes);
    first.buffer[ROUTER_LOGITS].bytes = NULL;
    compare(&first, &data, "a run without logits", config, report);
    router_data_free(&first);
    free_device_case(&device);
    quern_op_release(op);
    quern_op_release(plain);
    router_data_free(&data);
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
    const router_case *cases = router_cases(&count);
    for (size_t i = 0; i < count; i++) // so that prepare finds it in memory
        if (router_wanted(&cases[i], wanted_tag()) &&
            compile_jobs_add_spec(&jobs, g.q, g.arch, &cases[i].spec.base) != QUERN_OK)
            fail_msg("'%s': %s", cases[i].text, quern_message());
    run_jobs(&jobs);
    for (size_t i = 0; i < count; i++) {
        if (!router_wanted(&cases[i], wanted_tag())) continue;
        run_case(&cases[i], NULL, &report);
        count_case(&v, &report);
    }
    qn_text_fini(&report);
    conclude(&v, "cases");
}

// ---- every plan by force, on every case that the planner lets it have

static const char *const forced[] = {
    "plan=rows sums=parts tokens=2 experts=3 slices=2",
    "plan=fragments sums=parts tokens=8 experts=16 slices=2 chunk=32",
    "plan=fragments sums=parts tokens=64 experts=24 slices=1 chunk=64",
    "plan=wide sums=parts tokens=64 experts=24 slices=2",
    "plan=deep sums=parts tokens=64 experts=32 slices=2 stages=2",
    "plan=deep sums=whole tokens=128 experts=64 slices=1 stages=3 gate=2",
    "plan=multicast sums=parts tokens=64 experts=32 slices=2 stages=2 cluster_n=1 cluster_e=1",
    "plan=multicast sums=parts tokens=128 experts=24 slices=3 stages=3 cluster_n=2 cluster_e=3",
    "plan=multicast sums=whole tokens=192 experts=16 slices=1 stages=4 gate=2 cluster_n=1 cluster_e=4",
    "plan=multicast sums=whole tokens=256 experts=192 slices=1 stages=2 gate=3 cluster_n=2 cluster_e=1",
    "plan=tiles sums=parts tokens=16 experts=32 slices=3 stages=2",
    "plan=tiles sums=parts tokens=32 experts=16 slices=2 stages=3",
    "plan=tiles sums=whole tokens=64 experts=64 slices=1 stages=2 gate=1",
    "plan=tiles sums=whole tokens=128 experts=128 slices=1 stages=4 gate=3",
    "plan=exact sums=parts tokens=8 experts=16 slices=3 stages=3",
    "plan=exact sums=parts tokens=32 experts=32 slices=6 stages=2",
    "plan=exact sums=whole tokens=64 experts=64 slices=1 stages=2 gate=4",
};

static bool for_forced(const router_case *c)
{
    return c->name[0] == 'm' && c->N && router_wanted(c, wanted_tag()); // the cases of base specs: "m0_normal"
}

static void force(const char *text, verdict *v)
{
    size_t count;
    const router_case *cases = router_cases(&count);
    qn_text report = QN_TEXT_INIT;
    compile_jobs jobs = {0};
    qn_config config;
    qn_plan plan;
    if (qn_config_parse(&qn_family_router, text, &config) != QUERN_OK) fail_msg("%s", quern_message());
    for (size_t i = 0; i < count; i++) {
        if (!for_forced(&cases[i])) continue;
        if (qn_family_router.plan(&cases[i].spec.base, g.arch, &config, &plan) != QUERN_OK) continue;
        for (size_t s = 0; s < plan.stage_count; s++) compile_jobs_add(&jobs, &plan.stage[s], g.arch, cases[i].text);
    }
    run_jobs(&jobs);
    for (size_t i = 0; i < count; i++) {
        if (!for_forced(&cases[i])) continue;
        if (qn_family_router.plan(&cases[i].spec.base, g.arch, &config, &plan) != QUERN_OK) continue;
        run_case(&cases[i], text, &report);
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

// ---- batch invariance

static void with_batch_invariant_a_tokens_bits_do_not_depend_on_N(void **state)
{
    (void)state;
    skip_without_device();
    static const char *const few[] = {"g5_N1", "g5_N9", "g5_N64", "g5_N65", "g5_N200"};
    router_data most, data;
    device_case device;
    int buffer = 0;
    quern_op *op = prepare(case_named("g5_N500"), true, NULL);
    assert_true(router_data_make(case_named("g5_N500"), &most));
    make_device_case(&device, &most);
    make_workspace(&device, op);
    launch(most.c, op, &device);
    free_device_case(&device);
    for (size_t i = 0; i < QN_COUNT(few); i++) {
        assert_true(router_data_make(case_named(few[i]), &data));
        make_device_case(&device, &data);
        make_workspace(&device, op);
        launch(data.c, op, &device);
        int64_t at = router_same_tokens(&data, &most, &buffer);
        if (at >= 0) fail_msg("%s: %s differs at byte %lld", few[i], router_buffer_name[buffer], (long long)at);
        free_device_case(&device);
        router_data_free(&data);
    }
    router_data_free(&most);
    quern_op_release(op);
}

// ---- capture

static void replay(const router_case *c)
{
    router_data data, first;
    device_case device;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    int buffer = 0;
    assert_true(router_data_make(c, &data));
    quern_op *op = prepare(c, true, NULL);
    make_device_case(&device, &data);
    make_workspace(&device, op);
    launch(c, op, &device);
    keep(&data, &first);
    reset(&device);
    GPU_MUST(&g, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GPU_MUST(&g, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 3; i++) assert_int_equal(quern_router(op, &device.args, stream), QUERN_OK);
    GPU_MUST(&g, cuStreamEndCapture(stream, &graph));
    GPU_MUST(&g, cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 2; i++) GPU_MUST(&g, cuGraphLaunch(exec, stream));
    GPU_MUST(&g, cuStreamSynchronize(stream));
    download(&device);
    int64_t at = router_same_bits(&first, &data, &buffer);
    if (at >= 0) fail_msg("%s: %s differs at byte %lld", c->name, router_buffer_name[buffer], (long long)at);
    GPU_MUST(&g, cuGraphExecDestroy(exec));
    GPU_MUST(&g, cuGraphDestroy(graph));
    GPU_MUST(&g, cuStreamDestroy(stream));
    router_data_free(&first);
    free_device_case(&device);
    quern_op_release(op);
    router_data_free(&data);
}

static void captured_launches_give_the_same_bits(void **state)
{
    (void)state;
    skip_without_device();
    replay(case_named("m0_N7"));
    replay(case_named("m3_N65"));
    replay(case_named("g3_N1000"));
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
        cmocka_unit_test(with_batch_invariant_a_tokens_bits_do_not_depend_on_N),
        cmocka_unit_test(captured_launches_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
