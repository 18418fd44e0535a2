// SPDX-License-Identifier: Apache-2.0
// The drivers of tests/gpu (gpu_cases.h).
#include "support/gpu_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void gpu_skip_without_device(const gpu *g)
{
    if (g->driver) return;
    print_message("skipped: no device (%s)\n", g->why);
    skip();
}

unsigned gpu_tag(unsigned whole)
{
    return gpu_is_quick() ? HOSTILE_QUICK : whole;
}

// ---- a case on the device

quern_args *device_case_args(device_case *d)
{
    return (quern_args *)(void *)d->args;
}

void device_case_make(const gpu *g, const family_cases *f, const void *data, device_case *d)
{
    memset(d, 0, sizeof *d);
    d->f = f;
    assert_true(f->family->args_bytes <= sizeof d->args);
    memcpy(d->args, family_args(f, data), f->family->args_bytes);
    for (int i = 0; i < f->buffers; i++) {
        const hostile_buffer *b = family_buffer(f, data, i);
        if (!b->bytes) continue;
        d->buffer[i] = gpu_alloc(g, b->count);
        assert_true(d->buffer[i] != 0);
        f->set_pointer(device_case_args(d), i, (void *)(uintptr_t)(d->buffer[i] + b->at));
    }
}

void device_case_workspace(const gpu *g, const quern_op *op, device_case *d)
{
    const qn_family *family = d->f->family;
    _Alignas(16) unsigned char sizes[256];
    family->sizes_of(device_case_args(d), sizes);
    size_t bytes = quern_workspace_size(op, sizes);
    gpu_free(g, d->workspace);
    d->workspace = gpu_alloc(g, bytes);
    assert_true(d->workspace != 0);
    void *workspace = (void *)(uintptr_t)d->workspace;
    memcpy(d->args + family->workspace_offset, &workspace, sizeof workspace);
    memcpy(d->args + family->workspace_bytes_offset, &bytes, sizeof bytes);
    if (quern_workspace_init(op, workspace, bytes, NULL) != QUERN_OK) fail_msg("%s", quern_message());
}

void device_case_upload(const gpu *g, const device_case *d, const void *data)
{
    for (int i = 0; i < d->f->buffers; i++) {
        const hostile_buffer *b = family_buffer(d->f, data, i);
        if (b->bytes && b->count) GPU_MUST(g, cuMemcpyHtoD(d->buffer[i], b->bytes, b->count));
    }
}

void device_case_download(const gpu *g, const device_case *d, void *data)
{
    for (int i = d->f->inputs; i < d->f->buffers; i++) {
        const hostile_buffer *b = family_buffer(d->f, data, i);
        if (b->bytes) GPU_MUST(g, cuMemcpyDtoH(b->bytes, d->buffer[i], b->count));
    }
}

void device_case_free(const gpu *g, device_case *d)
{
    for (int i = 0; i < d->f->buffers; i++) gpu_free(g, d->buffer[i]);
    gpu_free(g, d->workspace);
}

void device_case_launch(const gpu *g, const quern_op *op, const void *c, device_case *d)
{
    if (d->f->launch(op, device_case_args(d), NULL) != QUERN_OK)
        fail_msg("case %s '%s': %s", family_case_name(c), family_case_text(c), quern_message());
    CUresult result = g->driver->cuCtxSynchronize();
    if (result == CUDA_SUCCESS) return;
    qn_text where = QN_TEXT_INIT;
    d->f->describe(c, &where);
    qn_driver_fail(g->driver, QUERN_DRIVER_ERROR, "cuCtxSynchronize", result);
    fail_msg("%s%s", qn_text_string(&where), quern_message()); // the context is lost: no case after this one can run
}

void device_case_run(const gpu *g, const family_cases *f, const quern_op *op, const void *c, void *data)
{
    device_case d;
    device_case_make(g, f, data, &d);
    device_case_workspace(g, op, &d);
    device_case_upload(g, &d, data);
    device_case_launch(g, op, c, &d);
    device_case_download(g, &d, data);
    device_case_free(g, &d);
}

// ---- one case

static void put_config(const family_cases *f, const qn_config *config, qn_text *report)
{
    qn_text text = QN_TEXT_INIT;
    if (config) qn_config_write(f->family, config, &text);
    qn_text_putf(report, "    configuration: %s\n", config ? qn_text_string(&text) : "as chosen");
    qn_text_fini(&text);
}

void gpu_run_case(const gpu *g, const gpu_list *list, const void *c, const quern_op *op, const qn_config *config,
                  qn_text *report)
{
    const family_cases *f = list->f;
    device_case d;
    void *first = family_data_make(f, c, list->poisons ? list->poisons[0] : 0);
    device_case_make(g, f, first, &d);
    device_case_workspace(g, op, &d); // one for all runs: a launch leaves it as it found it
    for (int i = 0; i < GPU_REPEATS; i++) {
        void *data = i ? family_data_make(f, c, list->poisons ? list->poisons[i] : 0) : first;
        int buffer = 0;
        device_case_upload(g, &d, data);
        device_case_launch(g, op, c, &d);
        device_case_download(g, &d, data);
        if (i == 0) {
            if (f->check(data, report)) put_config(f, config, report);
            continue;
        }
        int64_t at = f->same_bits(first, data, &buffer);
        family_data_free(f, data);
        if (at < 0) continue;
        f->describe(c, report);
        qn_text_putf(report, "    run %d differs from the first: %s, byte %lld\n", i + 1, f->buffer_name[buffer],
                     (long long)at);
        put_config(f, config, report);
    }
    if (list->after) list->after(g, c, &d, first, config, report);
    device_case_free(g, &d);
    family_data_free(f, first);
}

// ---- lists

static void run_jobs(const gpu *g, compile_jobs *jobs)
{
    compile_jobs_run(jobs, g->q);
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->item[i].status != QUERN_OK) fail_msg("'%s': %s", jobs->item[i].text, jobs->item[i].message);
    print_message("%zu kernels\n", jobs->count);
    compile_jobs_fini(jobs);
}

// The variant that serves a case's sizes.
static void choose(const gpu *g, const family_cases *f, const void *c, qn_variant *variant)
{
    static qn_variants variants; // large
    _Alignas(16) unsigned char sizes[256];
    void *data = family_data_make(f, c, 0);
    f->family->sizes_of(family_args(f, data), sizes);
    family_data_free(f, data);
    if (qn_variants_plan(g->q, f->family, family_case_spec(f, c), g->arch, &variants) != QUERN_OK)
        fail_msg("'%s': %s", family_case_text(c), quern_message());
    *variant = variants.item[variants.of_bucket[f->family->bucket_of(sizes)]];
}

static void add_plan(const gpu *g, const qn_plan *plan, const void *c, compile_jobs *jobs)
{
    for (size_t s = 0; s < plan->stage_count; s++)
        compile_jobs_add(jobs, &plan->stage[s], g->arch, family_case_text(c));
}

static void add_case(const gpu *g, const gpu_list *list, const void *c, compile_jobs *jobs)
{
    qn_variant variant;
    if (!list->whole_ops) {
        choose(g, list->f, c, &variant);
        add_plan(g, &variant.plan, c, jobs);
    } else if (compile_jobs_add_spec(jobs, g->q, g->arch, family_case_spec(list->f, c)) != QUERN_OK) {
        fail_msg("'%s': %s", family_case_text(c), quern_message());
    }
}

static quern_op *prepare(const gpu *g, const family_cases *f, const void *c, const qn_config *config)
{
    quern_op *op = NULL;
    const quern_spec *spec = family_case_spec(f, c);
    quern_status status = config ? qn_prepare_config(g->q, spec, QUERN_DEVICE_CURRENT, config, &op)
                                 : quern_prepare(g->q, spec, QUERN_DEVICE_CURRENT, &op);
    if (status != QUERN_OK) fail_msg("'%s': %s", family_case_text(c), quern_message());
    return op;
}

static void run_chosen(const gpu *g, const gpu_list *list, const void *c, qn_text *report)
{
    qn_variant variant;
    if (!list->whole_ops) choose(g, list->f, c, &variant);
    const qn_config *config = list->whole_ops ? NULL : &variant.config;
    quern_op *op = prepare(g, list->f, c, config);
    gpu_run_case(g, list, c, op, config, report);
    quern_op_release(op);
}

static bool is_wanted(const gpu_list *list, size_t index)
{
    return list->f->wanted(list->f->at(index), gpu_tag(list->tag)) && family_is_in_shard(index);
}

void gpu_run_list(const gpu *g, const gpu_list *list)
{
    gpu_skip_without_device(g);
    family_verdict v = {0};
    qn_text report = QN_TEXT_INIT;
    compile_jobs jobs = {0};
    size_t count = list->f->count();
    for (size_t i = 0; i < count; i++)
        if (is_wanted(list, i)) add_case(g, list, list->f->at(i), &jobs);
    run_jobs(g, &jobs);
    for (size_t i = 0; i < count; i++) {
        if (!is_wanted(list, i)) continue;
        run_chosen(g, list, list->f->at(i), &report);
        family_count(&v, &report);
    }
    qn_text_fini(&report);
    family_conclude(&v, "cases", gpu_is_quick() ? 1 : list->least);
}

// Whether a configuration is for a case, and its plan.
static bool has_plan(const gpu *g, const family_cases *f, const void *c, const qn_config *config, qn_plan *plan)
{
    return f->family->plan(family_case_spec(f, c), g->arch, config, plan) == QUERN_OK;
}

static void force(const gpu *g, const gpu_list *list, const char *text, bool (*wanted)(const void *c),
                  family_verdict *v)
{
    const family_cases *f = list->f;
    qn_text report = QN_TEXT_INIT;
    compile_jobs jobs = {0};
    qn_config config;
    qn_plan plan;
    if (qn_config_parse(f->family, text, &config) != QUERN_OK) fail_msg("%s", quern_message());
    for (size_t i = 0; i < f->count(); i++)
        if (is_wanted(list, i) && wanted(f->at(i)) && has_plan(g, f, f->at(i), &config, &plan))
            add_plan(g, &plan, f->at(i), &jobs);
    run_jobs(g, &jobs);
    for (size_t i = 0; i < f->count(); i++) {
        if (!is_wanted(list, i) || !wanted(f->at(i)) || !has_plan(g, f, f->at(i), &config, &plan)) continue;
        quern_op *op = prepare(g, f, f->at(i), &config);
        gpu_run_case(g, list, f->at(i), op, &config, &report);
        quern_op_release(op);
        family_count(v, &report);
    }
    qn_text_fini(&report);
}

void gpu_run_forced(const gpu *g, const gpu_list *list, const char *const *configs, size_t count,
                    bool (*wanted)(const void *c))
{
    gpu_skip_without_device(g);
    family_verdict v = {0};
    for (size_t i = 0; i < count; i++) {
        size_t before = v.cases;
        force(g, list, configs[i], wanted, &v);
        if (v.cases == before) print_message("'%s' ran no case\n", configs[i]); // another architecture's
    }
    family_conclude(&v, "cases on forced plans", gpu_is_quick() ? 0 : list->least);
}

void gpu_run_captured(const gpu *g, const family_cases *f, const char *name, int launches, int replays)
{
    const void *c = family_case_named(f, name);
    void *data = family_data_make(f, c, 0x7FFF), *captured = family_data_make(f, c, 0x7FFF);
    device_case d;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    int buffer = 0;
    quern_op *op = prepare(g, f, c, NULL);
    device_case_make(g, f, data, &d);
    device_case_workspace(g, op, &d);
    device_case_upload(g, &d, data);
    device_case_launch(g, op, c, &d);
    device_case_download(g, &d, data);
    device_case_upload(g, &d, captured);
    GPU_MUST(g, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GPU_MUST(g, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < launches; i++) assert_int_equal(f->launch(op, device_case_args(&d), stream), QUERN_OK);
    GPU_MUST(g, cuStreamEndCapture(stream, &graph));
    GPU_MUST(g, cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < replays; i++) GPU_MUST(g, cuGraphLaunch(exec, stream));
    GPU_MUST(g, cuStreamSynchronize(stream));
    device_case_download(g, &d, captured);
    int64_t at = f->same_bits(data, captured, &buffer);
    if (at >= 0) fail_msg("%s: %s differs at byte %lld", name, f->buffer_name[buffer], (long long)at);
    GPU_MUST(g, cuGraphExecDestroy(exec));
    GPU_MUST(g, cuGraphDestroy(graph));
    GPU_MUST(g, cuStreamDestroy(stream));
    device_case_free(g, &d);
    quern_op_release(op);
    family_data_free(f, captured);
    family_data_free(f, data);
}
