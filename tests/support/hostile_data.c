// SPDX-License-Identifier: Apache-2.0
// A hostile case's tensors on the host, with guard bytes round the outputs. Called by every test that runs cases.
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "support/hostile_fill.h"

const char *const hostile_buffer_name[HOSTILE_BUFFERS] = {"logits",  "temperature", "token",       "values",
                                                          "indices", "lse",         "token_value", "token_rank"};

static size_t element_bytes(const hostile_case *c, int buffer)
{
    if (buffer == HOSTILE_LOGITS) return c->spec.in == QUERN_F32 ? 4 : 2;
    return buffer == HOSTILE_INDICES && c->spec.index == QUERN_I64 ? 8 : 4;
}

static int64_t row_elements(const hostile_case *c, int buffer)
{
    if (buffer == HOSTILE_LOGITS) return c->spec.V;
    return buffer == HOSTILE_VALUES || buffer == HOSTILE_INDICES ? c->spec.K : 1;
}

static int64_t row_stride(const hostile_case *c, int buffer)
{
    int64_t stride = buffer == HOSTILE_LOGITS    ? c->logits_stride
                     : buffer == HOSTILE_VALUES  ? c->values_stride
                     : buffer == HOSTILE_INDICES ? c->indices_stride
                                                 : 1;
    return stride ? stride : row_elements(c, buffer);
}

static bool has_buffer(const hostile_case *c, int buffer)
{
    if (buffer == HOSTILE_TEMPERATURE) return c->spec.temperature;
    if (buffer == HOSTILE_LSE) return c->spec.lse;
    if (buffer == HOSTILE_TOKEN || buffer == HOSTILE_TOKEN_VALUE || buffer == HOSTILE_TOKEN_RANK) return c->spec.token;
    return true;
}

// ---- contents

static void store(const hostile_case *c, const float *x, void *out)
{
    for (int64_t i = 0; i < c->spec.V; i++) {
        if (c->spec.in == QUERN_F32)
            memcpy((float *)out + i, x + i, 4);
        else
            ((uint16_t *)out)[i] = c->spec.in == QUERN_F16 ? qn_f32_to_f16(x[i]) : qn_f32_to_bf16(x[i]);
    }
}

void hostile_row(const hostile_case *c, int64_t row, void *logits)
{
    float *x = malloc((size_t)c->spec.V * sizeof *x);
    if (!x) abort();
    c->fill(c, c->period ? row % c->period : row, x);
    store(c, x, logits);
    free(x);
}

float hostile_temperature(const hostile_case *c, int64_t row)
{
    static const float common[] = {1.0f, 0.7f,   0.0f,  2.5f, -0.0f,  1e-30f, 0.1f,
                                   1e4f, 1e-45f, -1.0f, NAN,  100.0f, 1e-3f,  -INFINITY};
    const float *list = c->temperatures ? c->temperatures : common;
    size_t count = c->temperatures ? c->temperature_count : sizeof common / sizeof common[0];
    return list[((uint64_t)row + c->seed) % count];
}

int32_t hostile_token(const hostile_case *c, int64_t row)
{
    switch (((uint64_t)row + c->seed) % 10) {
    case 1:
        return -1;
    case 3:
        return (int32_t)c->spec.V;
    case 4:
        return (int32_t)c->spec.V - 1;
    case 5:
        return 0;
    case 6:
        return INT32_MIN;
    case 7:
        return INT32_MAX;
    default:
        return (int32_t)(hostile_mix(c->seed ^ 0x70EE, (uint64_t)row) % (uint64_t)c->spec.V);
    }
}

static void fill_logits(const hostile_case *c, hostile_buffer *buffer)
{
    size_t bytes = element_bytes(c, HOSTILE_LOGITS), elements = buffer->count / bytes;
    for (size_t i = 0; i < elements; i++) {
        if (bytes == 4)
            ((float *)buffer->bytes)[i] = INFINITY;
        else
            ((uint16_t *)buffer->bytes)[i] = c->spec.in == QUERN_F16 ? 0x7C00 : 0x7F80;
    }
    for (int64_t row = 0; row < c->rows; row++)
        hostile_row(c, row, buffer->bytes + buffer->at + (size_t)(row * row_stride(c, HOSTILE_LOGITS)) * bytes);
}

// ---- buffers

quern_softmax_topk_args hostile_args(const hostile_case *c)
{
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    args.rows = c->rows;
    args.logits_stride_rows = c->logits_stride;
    args.values_stride_rows = c->values_stride;
    args.indices_stride_rows = c->indices_stride;
    return args;
}

void hostile_set_pointer(quern_softmax_topk_args *args, int buffer, void *pointer)
{
    switch (buffer) {
    case HOSTILE_LOGITS:
        args->logits = pointer;
        break;
    case HOSTILE_TEMPERATURE:
        args->temperature = pointer;
        break;
    case HOSTILE_TOKEN:
        args->token = pointer;
        break;
    case HOSTILE_VALUES:
        args->values = pointer;
        break;
    case HOSTILE_INDICES:
        args->indices = pointer;
        break;
    case HOSTILE_LSE:
        args->lse = pointer;
        break;
    case HOSTILE_TOKEN_VALUE:
        args->token_value = pointer;
        break;
    case HOSTILE_TOKEN_RANK:
        args->token_rank = pointer;
        break;
    }
}

static bool make_buffer(const hostile_case *c, int which, hostile_buffer *buffer)
{
    bool output = which >= HOSTILE_INPUTS;
    size_t bytes = element_bytes(c, which);
    int64_t offset = which == HOSTILE_LOGITS    ? c->logits_offset
                     : which == HOSTILE_INDICES ? c->indices_offset
                                                : c->values_offset;
    int64_t elements = c->rows ? (c->rows - 1) * row_stride(c, which) + row_elements(c, which) : 0;
    void *memory = NULL;
    buffer->at = (size_t)offset * bytes + (output ? HOSTILE_GUARD_BYTES : 0);
    buffer->count = buffer->at + (size_t)elements * bytes + (output ? HOSTILE_GUARD_BYTES : 0);
    if (posix_memalign(&memory, 256, buffer->count ? buffer->count : 1)) return false;
    buffer->bytes = memory;
    return true;
}

static bool make_buffers(const hostile_case *c, int first, hostile_data *data)
{
    *data = (hostile_data){.c = c, .args = hostile_args(c)};
    for (int i = first; i < HOSTILE_BUFFERS; i++) {
        if (!has_buffer(c, i)) continue;
        if (!make_buffer(c, i, &data->buffer[i])) {
            hostile_data_free(data);
            return false;
        }
        hostile_set_pointer(&data->args, i, data->buffer[i].bytes + data->buffer[i].at);
    }
    hostile_data_reset(data);
    return true;
}

bool hostile_data_make(const hostile_case *c, hostile_data *data)
{
    if (!make_buffers(c, 0, data)) return false;
    fill_logits(c, &data->buffer[HOSTILE_LOGITS]);
    for (int64_t row = 0; row < c->rows && c->spec.temperature; row++)
        ((float *)data->args.temperature)[row] = hostile_temperature(c, row);
    for (int64_t row = 0; row < c->rows && c->spec.token; row++)
        ((int32_t *)data->args.token)[row] = hostile_token(c, row);
    return true;
}

bool hostile_data_make_outputs(const hostile_case *c, hostile_data *data)
{
    return make_buffers(c, HOSTILE_INPUTS, data);
}

void hostile_data_reset(hostile_data *data)
{
    for (int i = HOSTILE_INPUTS; i < HOSTILE_BUFFERS; i++)
        if (data->buffer[i].bytes) memset(data->buffer[i].bytes, HOSTILE_GUARD, data->buffer[i].count);
}

void hostile_data_free(hostile_data *data)
{
    for (int i = 0; i < HOSTILE_BUFFERS; i++) free(data->buffer[i].bytes);
    *data = (hostile_data){0};
}

int64_t hostile_guard_broken(const hostile_data *data, int which)
{
    const hostile_buffer *buffer = &data->buffer[which];
    size_t bytes = element_bytes(data->c, which);
    size_t stride = (size_t)row_stride(data->c, which) * bytes, row = (size_t)row_elements(data->c, which) * bytes;
    size_t end = data->c->rows ? buffer->at + ((size_t)data->c->rows - 1) * stride + row : buffer->at;
    for (size_t i = 0; i < buffer->count; i++) {
        bool inside = i >= buffer->at && i < end && (i - buffer->at) % stride < row;
        if (!inside && buffer->bytes[i] != HOSTILE_GUARD) return (int64_t)i;
    }
    return -1;
}
