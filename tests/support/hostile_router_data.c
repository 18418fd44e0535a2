// SPDX-License-Identifier: Apache-2.0
// A router case's tensors on the host, with guard bytes round the outputs (hostile_router.h).
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "support/hostile_fill.h"
#include "support/hostile_router.h"

const char *const router_buffer_name[ROUTER_BUFFERS] = {"x", "w", "bias", "given_ids", "weights", "ids", "logits"};

static quern_dtype type_of(const router_case *c, int buffer)
{
    if (buffer == ROUTER_X) return c->spec.in;
    if (buffer == ROUTER_W) return c->spec.w;
    return buffer == ROUTER_IDS ? c->spec.index : QUERN_F32; // F32: any of 4 bytes
}

static size_t element_bytes(const router_case *c, int buffer)
{
    quern_dtype type = type_of(c, buffer);
    return type == QUERN_I64 ? 8 : type == QUERN_F16 || type == QUERN_BF16 ? 2 : 4;
}

static bool is_transposed(const router_case *c)
{
    return c->spec.w_layout == QUERN_W_DE;
}

static int64_t row_elements(const router_case *c, int buffer)
{
    if (buffer == ROUTER_X) return c->spec.D;
    if (buffer == ROUTER_W) return is_transposed(c) ? c->spec.E : c->spec.D;
    return buffer == ROUTER_BIAS || buffer == ROUTER_LOGITS ? c->spec.E : c->spec.K;
}

static int64_t rows_of(const router_case *c, int buffer)
{
    if (buffer == ROUTER_W) return is_transposed(c) ? c->spec.D : c->spec.E;
    return buffer == ROUTER_BIAS ? 1 : c->N;
}

static int64_t row_stride(const router_case *c, int buffer)
{
    const int64_t stride[ROUTER_BUFFERS] = {c->x_stride,   c->w_stride,     0, c->given_stride, c->weights_stride,
                                            c->ids_stride, c->logits_stride};
    int64_t least = row_elements(c, buffer);
    return stride[buffer] > least ? stride[buffer] : least;
}

static bool has_buffer(const router_case *c, int buffer)
{
    if (buffer == ROUTER_BIAS) return c->spec.bias;
    if (buffer == ROUTER_GIVEN) return c->spec.given_ids;
    if (buffer == ROUTER_LOGITS) return c->spec.logits;
    return buffer != ROUTER_IDS || !c->spec.given_ids;
}

// ---- content

static void store(quern_dtype type, void *to, size_t at, float value)
{
    if (type == QUERN_F32)
        memcpy((float *)to + at, &value, 4);
    else
        ((uint16_t *)to)[at] = type == QUERN_F16 ? qn_f32_to_f16(value) : qn_f32_to_bf16(value);
}

// The rows last made, which the next case often has too: most of a list's time is spent here.
typedef struct made {
    router_fill fill;
    uint64_t seed;
    int64_t D, rows;
    float p;
    float *row; // [rows, D]
} made;

static bool is_made(const made *m, const router_case *c, int64_t rows, router_fill fill)
{
    return m->row && m->fill == fill && m->seed == c->seed && m->D == c->spec.D && m->rows == rows && m->p == c->p;
}

static const float *rows_of_w(const router_case *c)
{
    static made w;
    int64_t E = c->spec.E, D = c->spec.D;
    if (is_made(&w, c, E, c->fill_w)) return w.row;
    free(w.row);
    w = (made){c->fill_w, c->seed, D, E, c->p, malloc((size_t)(E * D) * sizeof *w.row)};
    if (!w.row) abort();
    for (int64_t e = 0; e < E; e++) c->fill_w(c, e, w.row + e * D);
    return w.row;
}

static void fill_rows(const router_case *c, const hostile_buffer *buffer, int which, int64_t rows)
{
    quern_dtype type = type_of(c, which);
    unsigned char *first = buffer->bytes + buffer->at;
    float *own = malloc((size_t)c->spec.D * sizeof *own);
    const float *w = which == ROUTER_W ? rows_of_w(c) : NULL;
    if (!own) abort();
    for (size_t i = 0; i < buffer->count / element_bytes(c, which); i++) store(type, buffer->bytes, i, NAN);
    for (int64_t r = 0; r < rows; r++) {
        const float *row = w ? w + r * c->spec.D : own;
        if (!w) c->fill_x(c, r, own);
        for (int64_t d = 0; d < c->spec.D; d++) {
            bool across = which == ROUTER_W && is_transposed(c);
            int64_t at = across ? d * row_stride(c, which) + r : r * row_stride(c, which) + d;
            store(type, first, (size_t)at, row[d]);
        }
    }
    free(own);
}

// Any ids: repeated ones, and some that name no expert.
static void fill_given(const router_case *c, int32_t *given)
{
    for (int64_t token = 0; token < c->N; token++) {
        for (int64_t k = 0; k < c->spec.K; k++) {
            uint64_t r = hostile_mix(c->seed ^ 0x61FE, (uint64_t)(token * c->spec.K + k));
            int32_t id = (int32_t)(r / 16 % (uint64_t)c->spec.E);
            if (r % 16 == 0) id = r / 16 % 3 == 0 ? -1 : r / 16 % 3 == 1 ? (int32_t)c->spec.E : INT32_MIN;
            given[token * row_stride(c, ROUTER_GIVEN) + k] = id;
        }
    }
}

// ---- buffers

void router_set_pointer(quern_router_args *args, int buffer, void *pointer)
{
    if (buffer == ROUTER_X) args->x = pointer;
    if (buffer == ROUTER_W) args->w = pointer;
    if (buffer == ROUTER_BIAS) args->bias = pointer;
    if (buffer == ROUTER_GIVEN) args->given_ids = pointer;
    if (buffer == ROUTER_WEIGHTS) args->weights = pointer;
    if (buffer == ROUTER_IDS) args->ids = pointer;
    if (buffer == ROUTER_LOGITS) args->logits = pointer;
}

static bool make_buffer(const router_case *c, int which, hostile_buffer *buffer)
{
    size_t bytes = element_bytes(c, which), guard = which >= ROUTER_INPUTS ? HOSTILE_GUARD_BYTES : 0;
    int64_t rows = rows_of(c, which);
    int64_t elements = rows ? (rows - 1) * row_stride(c, which) + row_elements(c, which) : 0;
    void *memory = NULL;
    buffer->at = (size_t)c->offset * bytes + guard;
    buffer->count = buffer->at + (size_t)elements * bytes + guard;
    if (posix_memalign(&memory, 256, buffer->count ? buffer->count : 1)) return false;
    buffer->bytes = memory;
    memset(memory, 0, buffer->count);
    return true;
}

static quern_router_args args_of(const router_case *c)
{
    quern_router_args args = QUERN_ROUTER_ARGS_INIT;
    args.N = c->N;
    args.x_stride_N = c->x_stride ? row_stride(c, ROUTER_X) : 0;
    if (is_transposed(c))
        args.w_stride_D = c->w_stride ? row_stride(c, ROUTER_W) : 0;
    else
        args.w_stride_E = c->w_stride ? row_stride(c, ROUTER_W) : 0;
    args.given_ids_stride_N = c->given_stride ? row_stride(c, ROUTER_GIVEN) : 0;
    args.weights_stride_N = c->weights_stride ? row_stride(c, ROUTER_WEIGHTS) : 0;
    args.ids_stride_N = c->ids_stride ? row_stride(c, ROUTER_IDS) : 0;
    args.logits_stride_N = c->logits_stride ? row_stride(c, ROUTER_LOGITS) : 0;
    return args;
}

bool router_data_make(const router_case *c, router_data *data)
{
    *data = (router_data){.c = c, .args = args_of(c)};
    for (int i = 0; i < ROUTER_BUFFERS; i++) {
        if (!has_buffer(c, i)) continue;
        if (!make_buffer(c, i, &data->buffer[i])) return router_data_free(data), false;
        router_set_pointer(&data->args, i, data->buffer[i].bytes + data->buffer[i].at);
    }
    fill_rows(c, &data->buffer[ROUTER_X], ROUTER_X, c->N);
    fill_rows(c, &data->buffer[ROUTER_W], ROUTER_W, c->spec.E);
    if (c->spec.bias) c->fill_bias(c, (float *)data->args.bias);
    if (c->spec.given_ids) fill_given(c, (int32_t *)data->args.given_ids);
    router_data_reset(data);
    return true;
}

void router_data_free(router_data *data)
{
    for (int i = 0; i < ROUTER_BUFFERS; i++) free(data->buffer[i].bytes);
    *data = (router_data){0};
}

void router_data_reset(router_data *data)
{
    for (int i = ROUTER_INPUTS; i < ROUTER_BUFFERS; i++)
        if (data->buffer[i].bytes) memset(data->buffer[i].bytes, HOSTILE_GUARD, data->buffer[i].count);
}

// The first byte of first … end - 1 that is no guard byte, or -1.
static int64_t changed(const unsigned char *bytes, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (bytes[i] != HOSTILE_GUARD) return (int64_t)i;
    return -1;
}

int64_t router_guard_broken(const router_data *data, int which)
{
    const hostile_buffer *buffer = &data->buffer[which];
    size_t bytes = element_bytes(data->c, which), tokens = (size_t)data->c->N;
    size_t stride = (size_t)row_stride(data->c, which) * bytes, row = (size_t)row_elements(data->c, which) * bytes;
    size_t end = tokens ? buffer->at + (tokens - 1) * stride + row : buffer->at;
    int64_t at = changed(buffer->bytes, 0, buffer->at);
    for (size_t t = 0; at < 0 && stride > row && t + 1 < tokens; t++)
        at = changed(buffer->bytes, buffer->at + t * stride + row, buffer->at + (t + 1) * stride);
    return at >= 0 ? at : changed(buffer->bytes, end, buffer->count);
}
