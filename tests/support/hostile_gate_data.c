// SPDX-License-Identifier: Apache-2.0
// A gate case's tensors on the host, with guard bytes round the outputs (hostile_gate.h).
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "support/hostile_fill.h"
#include "support/hostile_gate.h"

const char *const gate_buffer_name[GATE_BUFFERS] = {"logits", "bias", "given_ids", "weights", "ids"};

static size_t element_bytes(const gate_case *c, int buffer)
{
    if (buffer == GATE_LOGITS) return c->spec.in == QUERN_F32 ? 4 : 2;
    return buffer == GATE_IDS && c->spec.index == QUERN_I64 ? 8 : 4;
}

static int64_t row_elements(const gate_case *c, int buffer)
{
    return buffer == GATE_LOGITS || buffer == GATE_BIAS ? c->spec.E : c->spec.K;
}

static int64_t row_stride(const gate_case *c, int buffer)
{
    const int64_t stride[GATE_BUFFERS] = {c->logits_stride, 0, c->given_stride, c->weights_stride, c->ids_stride};
    int64_t least = row_elements(c, buffer);
    return stride[buffer] > least ? stride[buffer] : least;
}

static bool has_buffer(const gate_case *c, int buffer)
{
    if (buffer == GATE_BIAS) return c->spec.bias;
    if (buffer == GATE_GIVEN) return c->spec.given_ids;
    return buffer != GATE_IDS || !c->spec.given_ids;
}

static void store_row(const gate_case *c, const float *x, void *out)
{
    for (int64_t e = 0; e < c->spec.E; e++) {
        if (c->spec.in == QUERN_F32)
            memcpy((float *)out + e, x + e, 4);
        else
            ((uint16_t *)out)[e] = c->spec.in == QUERN_F16 ? qn_f32_to_f16(x[e]) : qn_f32_to_bf16(x[e]);
    }
}

static void fill_logits(const gate_case *c, const hostile_buffer *buffer)
{
    size_t bytes = element_bytes(c, GATE_LOGITS);
    float x[1024];
    for (size_t i = 0; i < buffer->count / bytes; i++) {
        if (bytes == 4)
            ((float *)buffer->bytes)[i] = INFINITY;
        else
            ((uint16_t *)buffer->bytes)[i] = c->spec.in == QUERN_F16 ? 0x7C00 : 0x7F80;
    }
    for (int64_t token = 0; token < c->N; token++) {
        c->fill(c, token, x);
        store_row(c, x, buffer->bytes + buffer->at + (size_t)(token * row_stride(c, GATE_LOGITS)) * bytes);
    }
}

// Any ids: repeated ones, and some that name no expert.
static void fill_given(const gate_case *c, int32_t *given)
{
    for (int64_t token = 0; token < c->N; token++) {
        for (int64_t k = 0; k < c->spec.K; k++) {
            uint64_t r = hostile_mix(c->seed ^ 0x61FE, (uint64_t)(token * c->spec.K + k));
            int32_t id = (int32_t)(r / 16 % (uint64_t)c->spec.E);
            if (c->given_in_turn)
                id = (int32_t)k;
            else if (r % 16 == 0)
                id = r / 16 % 3 == 0 ? -1 : r / 16 % 3 == 1 ? (int32_t)c->spec.E : INT32_MIN;
            given[token * row_stride(c, GATE_GIVEN) + k] = id;
        }
    }
}

// ---- buffers

void gate_set_pointer(quern_gate_args *args, int buffer, void *pointer)
{
    if (buffer == GATE_LOGITS) args->logits = pointer;
    if (buffer == GATE_BIAS) args->bias = pointer;
    if (buffer == GATE_GIVEN) args->given_ids = pointer;
    if (buffer == GATE_WEIGHTS) args->weights = pointer;
    if (buffer == GATE_IDS) args->ids = pointer;
}

static bool make_buffer(const gate_case *c, int which, hostile_buffer *buffer)
{
    size_t bytes = element_bytes(c, which), guard = which >= GATE_INPUTS ? HOSTILE_GUARD_BYTES : 0;
    int64_t rows = which == GATE_BIAS ? 1 : c->N;
    int64_t elements = rows ? (rows - 1) * row_stride(c, which) + row_elements(c, which) : 0;
    void *memory = NULL;
    buffer->at = (size_t)c->offset * bytes + guard;
    buffer->count = buffer->at + (size_t)elements * bytes + guard;
    if (posix_memalign(&memory, 256, buffer->count ? buffer->count : 1)) return false;
    buffer->bytes = memory;
    memset(memory, 0, buffer->count);
    return true;
}

bool gate_data_make(const gate_case *c, gate_data *data)
{
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    args.N = c->N;
    args.logits_stride_N = c->logits_stride ? row_stride(c, GATE_LOGITS) : 0;
    args.given_ids_stride_N = c->given_stride ? row_stride(c, GATE_GIVEN) : 0;
    args.weights_stride_N = c->weights_stride ? row_stride(c, GATE_WEIGHTS) : 0;
    args.ids_stride_N = c->ids_stride ? row_stride(c, GATE_IDS) : 0;
    *data = (gate_data){.c = c, .args = args};
    for (int i = 0; i < GATE_BUFFERS; i++) {
        if (!has_buffer(c, i)) continue;
        if (!make_buffer(c, i, &data->buffer[i])) return gate_data_free(data), false;
        gate_set_pointer(&data->args, i, data->buffer[i].bytes + data->buffer[i].at);
    }
    fill_logits(c, &data->buffer[GATE_LOGITS]);
    if (c->spec.bias) c->fill_bias(c, (float *)data->args.bias);
    if (c->spec.given_ids) fill_given(c, (int32_t *)data->args.given_ids);
    gate_data_reset(data);
    return true;
}

void gate_data_free(gate_data *data)
{
    for (int i = 0; i < GATE_BUFFERS; i++) free(data->buffer[i].bytes);
    *data = (gate_data){0};
}

void gate_data_reset(gate_data *data)
{
    for (int i = GATE_INPUTS; i < GATE_BUFFERS; i++)
        if (data->buffer[i].bytes) memset(data->buffer[i].bytes, HOSTILE_GUARD, data->buffer[i].count);
}

int64_t gate_guard_broken(const gate_data *data, int which)
{
    const hostile_buffer *buffer = &data->buffer[which];
    size_t bytes = element_bytes(data->c, which), tokens = (size_t)data->c->N;
    size_t stride = (size_t)row_stride(data->c, which) * bytes, row = (size_t)row_elements(data->c, which) * bytes;
    size_t end = tokens ? buffer->at + (tokens - 1) * stride + row : buffer->at;
    for (size_t i = 0; i < buffer->count; i++) {
        bool inside = i >= buffer->at && i < end && (i - buffer->at) % stride < row;
        if (!inside && buffer->bytes[i] != HOSTILE_GUARD) return (int64_t)i;
    }
    return -1;
}
