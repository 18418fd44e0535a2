// SPDX-License-Identifier: Apache-2.0
// Results of softmax_topk beside the host reference, before anything is timed (bench_topk.h).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_topk.h"

enum { ROWS_OF_A_COPY = 16 };

// Host memory for one row of every tensor: what the device has, and for outputs what the reference says.
typedef struct checked_row {
    void *device[TOPK_MOST_TENSORS], *reference[TOPK_MOST_TENSORS];
} checked_row;

// The logits' row too, which are a tensor that the run does not own.
static size_t bytes_of(const topk_run *r, size_t i)
{
    if (topk_has_tensor(r, i)) return topk_row_bytes(r, i);
    bool logits = r->family->tensors[i].pointer_offset == offsetof(quern_softmax_topk_args, logits);
    return logits ? (size_t)r->shape->V * qn_dtype_bytes(r->shape->in) : 0;
}

static void row_fini(checked_row *c)
{
    for (size_t i = 0; i < TOPK_MOST_TENSORS; i++) free(c->device[i]), free(c->reference[i]);
}

static quern_status row_init(const topk_run *r, checked_row *c)
{
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < r->family->tensor_count; i++) {
        size_t bytes = bytes_of(r, i);
        if (bytes == 0) continue;
        c->device[i] = malloc(bytes);
        c->reference[i] = malloc(bytes);
        if (!c->device[i] || !c->reference[i]) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    }
    return QUERN_OK;
}

static quern_status copy_row(const topk_run *r, size_t copy, int64_t row, const checked_row *c)
{
    for (size_t i = 0; i < r->family->tensor_count; i++) {
        size_t bytes = bytes_of(r, i);
        if (bytes == 0) continue;
        CUdeviceptr from = topk_has_tensor(r, i) ? r->tensor[i] : bench_data_copy(r->data, copy);
        DEVICE_TRY(&r->bench->device, cuMemcpyDtoH, c->device[i], from + (size_t)row * bytes, bytes);
    }
    return QUERN_OK;
}

// Inputs as the device has them, outputs into memory of their own.
static quern_status refer(const topk_run *r, const checked_row *c)
{
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    args.rows = 1;
    for (size_t i = 0; i < r->family->tensor_count; i++) {
        const qn_tensor *t = &r->family->tensors[i];
        void *pointer = t->direction == QN_INPUT ? c->device[i] : c->reference[i];
        memcpy((char *)&args + t->pointer_offset, &pointer, sizeof pointer);
    }
    return quern_reference(&r->spec.base, &args.base);
}

// Probabilities are compared to a part of themselves only, logarithms, which may be close to 0, also to 4e-6.
static double slack(const topk_run *r, const char *name)
{
    const quern_softmax_topk_spec *spec = (const quern_softmax_topk_spec *)&r->spec;
    bool plain = strcmp(name, "values") == 0 && spec->value != QUERN_VALUE_LOGPROB;
    return plain ? 1e-37 : 4e-6;
}

static bool is_close(double got, double want, double absolute)
{
    return got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= 2e-5 * fabs(want) + absolute;
}

// The first element that differs; -1 for none.
static int64_t difference(const topk_run *r, size_t i, const checked_row *c)
{
    const qn_tensor *t = &r->family->tensors[i];
    quern_dtype dtype = qn_tensor_dtype(r->family, &r->spec.base, t);
    size_t width = qn_dtype_bytes(dtype);
    for (size_t k = 0; k < topk_row_elements(r, i); k++) {
        const char *got = (const char *)c->device[i] + k * width, *want = (const char *)c->reference[i] + k * width;
        float a, b;
        if (memcmp(got, want, width) == 0) continue;
        if (dtype != QUERN_F32) return (int64_t)k;
        memcpy(&a, got, sizeof a);
        memcpy(&b, want, sizeof b);
        if (!is_close(a, b, slack(r, t->name))) return (int64_t)k;
    }
    return -1;
}

static quern_status check_row(const topk_run *r, size_t copy, int64_t row, const checked_row *c)
{
    QN_TRY(copy_row(r, copy, row, c));
    QN_TRY(refer(r, c));
    for (size_t i = 0; i < r->family->tensor_count; i++) {
        const qn_tensor *t = &r->family->tensors[i];
        if (t->direction != QN_OUTPUT || !topk_has_tensor(r, i)) continue;
        int64_t at = difference(r, i, c);
        if (at >= 0)
            return qn_fail(QUERN_INTERNAL, "%s, %lld rows of %s: %s of row %lld is not the reference's at place %lld",
                           r->spec_text, (long long)r->shape->rows, r->shape->data, t->name, (long long)row,
                           (long long)at);
    }
    return QUERN_OK;
}

// Rows spread evenly from the first to the last.
static quern_status check_copy(topk_run *r, size_t copy, const checked_row *c, int64_t *checked)
{
    int64_t rows = r->shape->rows, count = rows < ROWS_OF_A_COPY ? rows : ROWS_OF_A_COPY;
    QN_TRY(topk_run_once(r, copy));
    for (int64_t i = 0; i < count; i++) QN_TRY(check_row(r, copy, count == 1 ? 0 : (rows - 1) * i / (count - 1), c));
    *checked += count;
    return QUERN_OK;
}

quern_status topk_check(topk_run *r, int64_t *checked_rows)
{
    checked_row c;
    *checked_rows = 0;
    quern_status status = row_init(r, &c);
    if (status == QUERN_OK) status = check_copy(r, 0, &c, checked_rows);
    if (status == QUERN_OK) status = check_copy(r, r->data->copies - 1, &c, checked_rows);
    row_fini(&c);
    return status;
}
