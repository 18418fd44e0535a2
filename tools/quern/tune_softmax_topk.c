// SPDX-License-Identifier: Apache-2.0
// The tuner's questions about softmax_topk: what its optional inputs hold while it is timed, and whether a candidate's
// results are right on every pattern of the hostile list, with rows at all alignments.
#include <string.h>

#include "support/check.h"
#include "support/hostile.h"
#include "tune.h"

enum { ELEMENTS = 1 << 20, MOST_ROWS = 5, WORKSPACE_ALIGN = 256 };

typedef struct device_case {
    const device *d;
    CUdeviceptr buffer[HOSTILE_BUFFERS];
    CUdeviceptr workspace;
    quern_softmax_topk_args args; // device pointers
} device_case;

// Temperatures near 1, tokens inside the vocabulary: what sampling does.
static bool fill(void *user, const qn_tensor *tensor, size_t copy, void *host, size_t elements)
{
    (void)user, (void)copy;
    if (strcmp(tensor->name, "temperature") && strcmp(tensor->name, "token")) return false;
    for (size_t i = 0; i < elements; i++) {
        if (!strcmp(tensor->name, "token"))
            ((int32_t *)host)[i] = 0;
        else
            ((float *)host)[i] = 0.7f;
    }
    return true;
}

// ---- one case on the device

static quern_status upload(device_case *c, const hostile_data *data)
{
    const device *d = c->d;
    for (int i = 0; i < HOSTILE_BUFFERS; i++) {
        const hostile_buffer *b = &data->buffer[i];
        if (!b->bytes) continue;
        DEVICE_TRY(d, cuMemAlloc, &c->buffer[i], b->count ? b->count : 1);
        DEVICE_TRY(d, cuMemcpyHtoD, c->buffer[i], b->bytes, b->count);
        hostile_set_pointer(&c->args, i, (void *)(uintptr_t)(c->buffer[i] + b->at));
    }
    return QUERN_OK;
}

static quern_status launch(device_case *c, const quern_op *op)
{
    const device *d = c->d;
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    sizes.rows = c->args.rows;
    c->args.workspace_bytes = quern_workspace_size(op, &sizes);
    if (c->args.workspace_bytes) {
        DEVICE_TRY(d, cuMemAlloc, &c->workspace, c->args.workspace_bytes + WORKSPACE_ALIGN);
        c->args.workspace = (void *)(uintptr_t)c->workspace;
    }
    QN_TRY(quern_workspace_init(op, c->args.workspace, c->args.workspace_bytes, NULL));
    QN_TRY(quern_softmax_topk(op, &c->args, NULL));
    DEVICE_TRY(d, cuStreamSynchronize, NULL);
    return QUERN_OK;
}

static quern_status download(const device_case *c, hostile_data *data)
{
    const device *d = c->d;
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++)
        if (data->buffer[i].bytes)
            DEVICE_TRY(d, cuMemcpyDtoH, data->buffer[i].bytes, c->buffer[i], data->buffer[i].count);
    return QUERN_OK;
}

static quern_status judge(const hostile_data *data)
{
    quern_status status = QUERN_OK;
    qn_text report = QN_TEXT_INIT;
    if (check_case(data, &report)) status = qn_fail(QUERN_INTERNAL, "wrong results: %s", qn_text_string(&report));
    qn_text_fini(&report);
    return status;
}

static quern_status run_case(const device *d, const quern_op *op, const hostile_case *hostile)
{
    device_case c = {.d = d, .args = hostile_args(hostile)};
    hostile_data data;
    if (!hostile_data_make(hostile, &data)) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: inputs for a check");
    quern_status status = upload(&c, &data);
    if (status == QUERN_OK) status = launch(&c, op);
    if (status == QUERN_OK) status = download(&c, &data);
    if (status == QUERN_OK) status = judge(&data);
    for (int i = 0; i < HOSTILE_BUFFERS; i++)
        if (c.buffer[i]) (void)d->driver->cuMemFree(c.buffer[i]);
    if (c.workspace) (void)d->driver->cuMemFree(c.workspace);
    hostile_data_free(&data);
    return status;
}

static quern_status check(const device *d, const quern_spec *base, const quern_op *op)
{
    const quern_softmax_topk_spec *spec = (const quern_softmax_topk_spec *)base;
    int64_t rows = ELEMENTS / spec->V + 1;
    hostile_case c;
    if (rows > MOST_ROWS) rows = MOST_ROWS;
    for (size_t i = 0; hostile_pattern(i, spec, rows, &c); i++) {
        c.logits_offset = (int64_t)(i % 8);
        c.logits_stride = i % 3 ? spec->V + (int64_t)(i % 5) : 0;
        QN_TRY(run_case(d, op, &c));
    }
    return QUERN_OK;
}

const tune_subject tune_softmax_topk = {&qn_family_softmax_topk, fill, check};
