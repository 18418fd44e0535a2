// SPDX-License-Identifier: Apache-2.0
// A candidate's results on a family's hostile inputs (tune_subject.h): each case is copied to the device with the
// alignment it has, launched, copied back and judged. Works from the family's lists and knows no family by name.
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "runtime/runtime.h"
#include "tune_subject.h"

enum { WORKSPACE_ALIGN = 256 };

const tune_subject *tune_find_subject(const char *family)
{
#define X(name) &tune_##name,
    static const tune_subject *const subjects[] = {TUNE_SUBJECTS(X)};
#undef X
    for (size_t i = 0; i < QN_COUNT(subjects); i++)
        if (!strcmp(subjects[i]->family->name, family)) return subjects[i];
    return NULL;
}

// ---- a case on the host

typedef struct host_case {
    const tune_cases *of;
    void *c, *data;         // data refers to c
    const quern_args *args; // NULL: out of memory
    hostile_buffer buffer[TUNE_MOST_BUFFERS];
} host_case;

// false: there is no such case.
static bool make_case(const tune_subject *subject, const quern_spec *spec, size_t index, host_case *out)
{
    const tune_cases *of = subject->cases;
    *out = (host_case){.of = of, .c = calloc(1, of->case_bytes)};
    if (!out->c) return true;
    if (!subject->question(spec, index, out->c)) {
        free(out->c);
        return false;
    }
    out->data = calloc(1, of->data_bytes);
    if (out->data && !of->make(out->c, out->data)) free(out->data), out->data = NULL;
    if (!out->data) return true;
    memcpy(out->buffer, (const char *)out->data + of->buffer_offset, of->buffers * sizeof *out->buffer);
    out->args = (const quern_args *)(const void *)((const char *)out->data + of->args_offset);
    return true;
}

static void free_case(host_case *c)
{
    if (c->data) c->of->free(c->data);
    free(c->data);
    free(c->c);
}

// ---- on the device

typedef struct checked {
    const tune_subject *subject;
    const device *d;
    const quern_spec *spec;
    host_case host;
    CUdeviceptr buffer[TUNE_MOST_BUFFERS];
    CUdeviceptr workspace;
    quern_args *args; // device pointers
} checked;

static void *pointer_in(const void *args, size_t offset)
{
    void *pointer;
    memcpy(&pointer, (const char *)args + offset, sizeof pointer);
    return pointer;
}

static void set_pointer(void *args, size_t offset, CUdeviceptr address)
{
    void *pointer = (void *)(uintptr_t)address;
    memcpy((char *)args + offset, &pointer, sizeof pointer);
}

// The buffer that a host pointer leads into; TUNE_MOST_BUFFERS: none.
static size_t buffer_of(const host_case *c, const void *pointer)
{
    size_t i = 0;
    for (; i < TUNE_MOST_BUFFERS; i++) {
        const unsigned char *begin = c->buffer[i].bytes, *at = pointer;
        if (begin && at >= begin && at < begin + (c->buffer[i].count ? c->buffer[i].count : 1)) break;
    }
    return i;
}

static quern_status upload_buffers(checked *c)
{
    const device *d = c->d;
    for (size_t i = 0; i < TUNE_MOST_BUFFERS; i++) {
        size_t count = c->host.buffer[i].count;
        if (!c->host.buffer[i].bytes) continue;
        DEVICE_TRY(d, cuMemAlloc, &c->buffer[i], count ? count : 1);
        if (count) DEVICE_TRY(d, cuMemcpyHtoD, c->buffer[i], c->host.buffer[i].bytes, count);
    }
    return QUERN_OK;
}

// The arguments with device pointers, each as far into its buffer as on the host.
static quern_status point_to_device(checked *c)
{
    const qn_family *family = c->subject->family;
    memcpy(c->args, c->host.args, family->args_bytes);
    for (size_t i = 0; i < family->tensor_count; i++) set_pointer(c->args, family->tensors[i].pointer_offset, 0);
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *t = &family->tensors[i];
        if (!qn_tensor_is_given(family, c->spec, t)) continue;
        char *pointer = pointer_in(c->host.args, t->pointer_offset);
        size_t buffer = buffer_of(&c->host, pointer);
        if (buffer == TUNE_MOST_BUFFERS)
            return qn_fail(QUERN_INTERNAL, "the tuner's case of %s has no buffer for %s", family->name, t->name);
        set_pointer(c->args, t->pointer_offset,
                    c->buffer[buffer] + (CUdeviceptr)(pointer - (char *)c->host.buffer[buffer].bytes));
    }
    return QUERN_OK;
}

static quern_status give_workspace(checked *c, const quern_op *op)
{
    const qn_family *family = c->subject->family;
    const device *d = c->d;
    _Alignas(16) unsigned char sizes[256] = {0};
    family->sizes_of(c->host.args, sizes);
    size_t bytes = quern_workspace_size(op, sizes);
    if (!bytes) return QUERN_OK;
    DEVICE_TRY(d, cuMemAlloc, &c->workspace, bytes + WORKSPACE_ALIGN);
    set_pointer(c->args, family->workspace_offset, c->workspace);
    memcpy((char *)c->args + family->workspace_bytes_offset, &bytes, sizeof bytes);
    return quern_workspace_init(op, (void *)(uintptr_t)c->workspace, bytes, NULL);
}

static quern_status download_outputs(const checked *c)
{
    const qn_family *family = c->subject->family;
    const device *d = c->d;
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *t = &family->tensors[i];
        if (t->direction != QN_OUTPUT || !qn_tensor_is_given(family, c->spec, t)) continue;
        size_t buffer = buffer_of(&c->host, pointer_in(c->host.args, t->pointer_offset));
        if (c->host.buffer[buffer].count)
            DEVICE_TRY(d, cuMemcpyDtoH, c->host.buffer[buffer].bytes, c->buffer[buffer], c->host.buffer[buffer].count);
    }
    return QUERN_OK;
}

static quern_status judge(const checked *c)
{
    quern_status status = QUERN_OK;
    qn_text report = QN_TEXT_INIT;
    if (c->host.of->check(c->host.data, &report))
        status = qn_fail(QUERN_INTERNAL, "wrong results: %s", qn_text_string(&report));
    qn_text_fini(&report);
    return status;
}

static quern_status launch(checked *c, const quern_op *op)
{
    const device *d = c->d;
    QN_TRY(point_to_device(c));
    QN_TRY(give_workspace(c, op));
    QN_TRY(quern_launch_args(op, c->args, NULL));
    DEVICE_TRY(d, cuStreamSynchronize, NULL);
    return download_outputs(c);
}

// ---- the same without the outputs that only the judge needs

static bool is_output(const checked *c, size_t buffer)
{
    const qn_family *family = c->subject->family;
    for (size_t i = 0; i < family->tensor_count; i++) {
        const qn_tensor *t = &family->tensors[i];
        if (t->direction == QN_OUTPUT && qn_tensor_is_given(family, c->spec, t) &&
            buffer_of(&c->host, pointer_in(c->host.args, t->pointer_offset)) == buffer)
            return true;
    }
    return false;
}

// Sets the outputs of c->spec to guard bytes again, keeping what they were in *kept.
static quern_status clear_outputs(checked *c, void *kept[TUNE_MOST_BUFFERS])
{
    const device *d = c->d;
    for (size_t i = 0; i < TUNE_MOST_BUFFERS; i++) {
        size_t count = c->host.buffer[i].count;
        if (!c->host.buffer[i].bytes || !count || !is_output(c, i)) continue;
        kept[i] = malloc(count);
        if (!kept[i]) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: outputs of a check");
        memcpy(kept[i], c->host.buffer[i].bytes, count);
        memset(c->host.buffer[i].bytes, TUNE_GUARD, count);
        DEVICE_TRY(d, cuMemcpyHtoD, c->buffer[i], c->host.buffer[i].bytes, count);
    }
    return QUERN_OK;
}

static quern_status run_again(checked *c, const quern_op *op)
{
    void *kept[TUNE_MOST_BUFFERS] = {NULL};
    quern_status status = clear_outputs(c, kept);
    if (c->workspace) (void)c->d->driver->cuMemFree(c->workspace);
    c->workspace = 0;
    if (status == QUERN_OK) status = launch(c, op);
    for (size_t i = 0; i < TUNE_MOST_BUFFERS; i++) {
        if (status == QUERN_OK && kept[i] && memcmp(kept[i], c->host.buffer[i].bytes, c->host.buffer[i].count))
            status = qn_fail(QUERN_INTERNAL, "wrong results: other bits than those of the spec that was judged");
        free(kept[i]);
    }
    return status;
}

// ---- the whole

static void release(checked *c)
{
    for (size_t i = 0; i < TUNE_MOST_BUFFERS; i++)
        if (c->buffer[i]) (void)c->d->driver->cuMemFree(c->buffer[i]);
    if (c->workspace) (void)c->d->driver->cuMemFree(c->workspace);
    free(c->args);
    free_case(&c->host);
}

// judged: op itself, or the op of the spec that the judge needs.
static quern_status run_case(checked *c, const quern_spec *spec, const quern_op *op, const quern_spec *judged_spec,
                             const quern_op *judged)
{
    c->args = calloc(1, c->subject->family->args_bytes);
    if (!c->host.args || !c->args) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: inputs for a check");
    c->spec = judged_spec;
    QN_TRY(upload_buffers(c));
    QN_TRY(launch(c, judged));
    QN_TRY(judge(c));
    c->spec = spec;
    return judged == op ? QUERN_OK : run_again(c, op);
}

static quern_status run_cases(const tune_subject *subject, const device *d, const quern_spec *spec, const quern_op *op,
                              const quern_spec *judged_spec, const quern_op *judged)
{
    for (size_t i = 0;; i++) {
        checked c = {.subject = subject, .d = d};
        if (!make_case(subject, judged_spec, i, &c.host)) return QUERN_OK;
        quern_status status = run_case(&c, spec, op, judged_spec, judged);
        release(&c);
        QN_TRY(status);
    }
}

quern_status tune_check(const tune_subject *subject, quern *q, const device *d, const quern_spec *given,
                        const quern_op *op)
{
    quern_any_spec full, with; // full: what some fields follow from others is filled in, as the op has it
    const qn_family *family;
    QN_TRY(qn_spec_complete(given, &family, &full));
    const quern_spec *spec = &full.base;
    quern_op *judged = NULL;
    qn_config config;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    if (!subject->judged || !subject->judged(spec, &with)) return run_cases(subject, d, spec, op, spec, op);
    QN_TRY(quern_op_describe(op, 0, 0, &info));
    QN_TRY(qn_config_parse(subject->family, info.config, &config));
    QN_TRY(qn_prepare_config(q, &with.base, d->ordinal, &config, &judged));
    quern_status status = run_cases(subject, d, spec, op, &with.base, judged);
    quern_op_release(judged);
    return status;
}
