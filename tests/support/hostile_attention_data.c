// SPDX-License-Identifier: Apache-2.0
// An attention case's tensors on the host, with guard bytes round the outputs (hostile_attention.h).
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "support/hostile_attention.h"
#include "support/hostile_fill.h"

const char *const attention_buffer_name[ATTENTION_BUFFERS] = {"q",    "k",           "v",        "sink", "cu_q",
                                                              "cu_k", "block_table", "length_k", "out",  "lse"};
enum { SPARE_PAGES = 3, NO_PAGE = 0x7FFFFFF0 };

static bool is_paged(const attention_case *c)
{
    return c->spec.layout == QUERN_LAYOUT_PAGED;
}

static bool has_buffer(const attention_case *c, int buffer)
{
    switch (buffer) {
    case ATTENTION_V:
        return !c->spec.kv_alias;
    case ATTENTION_SINK:
        return c->spec.sink;
    case ATTENTION_CU_Q:
        return c->spec.cu_q;
    case ATTENTION_CU_K:
        return c->spec.layout == QUERN_LAYOUT_VARLEN;
    case ATTENTION_TABLE:
        return is_paged(c);
    case ATTENTION_LENGTH:
        return c->spec.length_k;
    case ATTENTION_LSE:
        return c->spec.lse;
    default:
        return true;
    }
}

static bool is_query(int buffer)
{
    return buffer == ATTENTION_Q || buffer == ATTENTION_OUT || buffer == ATTENTION_LSE;
}

static bool is_half(int buffer)
{
    return buffer == ATTENTION_Q || buffer == ATTENTION_K || buffer == ATTENTION_V || buffer == ATTENTION_OUT;
}

static size_t element_bytes(int buffer)
{
    return is_half(buffer) ? 2 : 4;
}

// ---- shapes

static int64_t before(const int64_t *lengths, int64_t count)
{
    int64_t sum = 0;
    for (int64_t b = 0; b < count; b++) sum += lengths[b];
    return sum;
}

static int64_t longest(const attention_case *c, const int64_t *lengths)
{
    int64_t most = 0;
    for (int64_t b = 0; b < c->B; b++) most = lengths[b] > most ? lengths[b] : most;
    return most;
}

static int64_t pages_of(const attention_case *c, int64_t sequence)
{
    return (c->keys[sequence] + c->spec.page - 1) / c->spec.page;
}

static int64_t pages_before(const attention_case *c, int64_t sequence)
{
    int64_t sum = 0;
    for (int64_t b = 0; b < sequence; b++) sum += pages_of(c, b);
    return sum;
}

static int64_t all_pages(const attention_case *c)
{
    return is_paged(c) ? pages_before(c, c->B) + SPARE_PAGES : 0;
}

// Pages lie in the reverse order of their use, spare ones between.
static int64_t page_of(const attention_case *c, int64_t sequence, int64_t number)
{
    return all_pages(c) - 2 - pages_before(c, sequence) - number;
}

static int64_t columns_of(const attention_case *c)
{
    return is_paged(c) ? (longest(c, c->keys) + c->spec.page - 1) / c->spec.page + 1 : 0;
}

typedef struct shape {
    int64_t extent[4]; // batch (1 when ragged), position, head, width
    int64_t stride[3];
    int64_t count; // elements
} shape;

static void extents_of(const attention_case *c, int buffer, int64_t extent[4])
{
    bool ragged = is_query(buffer) ? c->spec.cu_q : c->spec.layout == QUERN_LAYOUT_VARLEN;
    const int64_t *lengths = is_query(buffer) ? c->queries : c->keys;
    extent[0] = ragged ? 1 : c->B;
    extent[1] = ragged ? before(lengths, c->B) : is_query(buffer) ? c->queries[0] : c->Sk;
    extent[2] = is_query(buffer) ? c->Hq : c->Hkv;
    extent[3] = buffer == ATTENTION_LSE ? 1 : buffer == ATTENTION_Q || buffer == ATTENTION_K ? c->spec.d : c->spec.dv;
    if (is_query(buffer) || !is_paged(c)) return;
    extent[0] = all_pages(c), extent[1] = c->spec.page;
}

static shape shape_of(const attention_case *c, int buffer)
{
    shape s;
    extents_of(c, buffer, s.extent);
    int64_t pad = c->order == ATTENTION_LOOSE ? 8 : c->order == ATTENTION_UNALIGNED ? 1 : 0;
    if (buffer == ATTENTION_LSE) {
        s.stride[2] = 1, s.stride[1] = s.extent[2] + pad, s.stride[0] = s.stride[1] * s.extent[1] + pad;
    } else if (c->order == ATTENTION_HEADS_FIRST) {
        s.stride[1] = s.extent[3], s.stride[2] = s.extent[1] * s.extent[3], s.stride[0] = s.extent[2] * s.stride[2];
    } else {
        s.stride[2] = s.extent[3] + pad, s.stride[1] = s.extent[2] * s.stride[2] + pad;
        s.stride[0] = s.extent[1] * s.stride[1] + pad;
    }
    s.count = s.extent[3];
    for (int i = 0; i < 3; i++) s.count += (s.extent[i] - 1) * s.stride[i];
    for (int i = 0; i < 4; i++)
        if (s.extent[i] == 0) s.count = 0;
    return s;
}

int64_t attention_row_of_query(const attention_case *c, int buffer, int64_t sequence, int64_t query, int64_t head)
{
    shape s = shape_of(c, buffer);
    if (c->spec.cu_q) return (before(c->queries, sequence) + query) * s.stride[1] + head * s.stride[2];
    return sequence * s.stride[0] + query * s.stride[1] + head * s.stride[2];
}

int64_t attention_row_of_key(const attention_case *c, int buffer, int64_t sequence, int64_t key, int64_t head)
{
    shape s = shape_of(c, buffer);
    int64_t batch = sequence, position = key;
    if (c->spec.layout == QUERN_LAYOUT_VARLEN) batch = 0, position += before(c->keys, sequence);
    if (is_paged(c)) batch = page_of(c, sequence, key / c->spec.page), position = key % c->spec.page;
    return batch * s.stride[0] + position * s.stride[1] + head * s.stride[2];
}

// ---- contents

// f16 numbers. Times log2 e the scores are 16.005 and -7.005: probabilities of 2^-23.01 are 2^-24 of f16 if they are made
// relative to 2^17, and nothing relative to 2^18.
static float far_tail(int buffer, int64_t position, int64_t i)
{
    if (buffer == ATTENTION_V) return position ? 1 : 0;
    if (i) return 0;
    return buffer == ATTENTION_Q ? 1 : position ? -4.85546875f : 11.09375f;
}

static float element(const attention_case *c, int buffer, int64_t sequence, int64_t position, int64_t head, int64_t i)
{
    uint64_t row =
        hostile_mix(c->seed + (uint64_t)buffer, (uint64_t)(((c->first + sequence) << 20 | position) << 12 | head));
    float n = hostile_normal(row, (uint64_t)i);
    if (c->fill == ATTENTION_NORMAL) return c->p * n;
    if (c->fill == ATTENTION_LONG_TAIL) return c->p * n * n * n;
    if (c->fill == ATTENTION_FAR_TAIL) return far_tail(buffer, position, i);
    if (buffer == ATTENTION_V) return c->fill == ATTENTION_POINT ? 1.0f : (float)(position % 256);
    if (i) return 0;
    if (buffer == ATTENTION_Q) return c->p;
    return c->fill == ATTENTION_POINT_17 && position == 17 ? c->r / 2 : c->r;
}

static uint16_t rounded(const attention_case *c, float x)
{
    return c->spec.in == QUERN_F16 ? qn_f32_to_f16(x) : qn_f32_to_bf16(x);
}

static void fill_tensor(const attention_case *c, int buffer, uint16_t poison, hostile_buffer *to)
{
    bool query = buffer == ATTENTION_Q;
    int64_t heads = query ? c->Hq : c->Hkv, width = buffer == ATTENTION_V ? c->spec.dv : c->spec.d;
    uint16_t *all = (uint16_t *)to->bytes, *first = (uint16_t *)(to->bytes + to->at);
    for (size_t i = 0; i < to->count / 2; i++) all[i] = poison;
    for (int64_t b = 0; b < c->B; b++) {
        for (int64_t position = 0; position < (query ? c->queries[b] : c->keys[b]); position++) {
            for (int64_t head = 0; head < heads; head++) {
                int64_t row = query ? attention_row_of_query(c, buffer, b, position, head)
                                    : attention_row_of_key(c, buffer, b, position, head);
                for (int64_t i = 0; i < width; i++)
                    first[row + i] = rounded(c, element(c, buffer, b, position, head, i));
            }
        }
    }
}

static void fill_integers(const attention_case *c, attention_data *data)
{
    int32_t *cu_q = (int32_t *)data->args.cu_q, *cu_k = (int32_t *)data->args.cu_k;
    int32_t *table = (int32_t *)data->args.block_table, *length = (int32_t *)data->args.length_k;
    for (int64_t b = 0; b <= c->B; b++) {
        if (cu_q) cu_q[b] = (int32_t)before(c->queries, b);
        if (cu_k) cu_k[b] = (int32_t)before(c->keys, b);
    }
    for (int64_t b = 0; b < c->B; b++) {
        if (length) length[b] = (int32_t)c->keys[b];
        for (int64_t i = 0; table && i < columns_of(c); i++)
            table[b * columns_of(c) + i] = i < pages_of(c, b) ? (int32_t)page_of(c, b, i) : NO_PAGE;
    }
}

// ---- buffers

void attention_set_pointer(quern_attention_args *args, int buffer, void *pointer)
{
    if (buffer == ATTENTION_Q) args->q = pointer;
    if (buffer == ATTENTION_K) args->k = pointer;
    if (buffer == ATTENTION_V) args->v = pointer;
    if (buffer == ATTENTION_SINK) args->sink = pointer;
    if (buffer == ATTENTION_CU_Q) args->cu_q = pointer;
    if (buffer == ATTENTION_CU_K) args->cu_k = pointer;
    if (buffer == ATTENTION_TABLE) args->block_table = pointer;
    if (buffer == ATTENTION_LENGTH) args->length_k = pointer;
    if (buffer == ATTENTION_OUT) args->out = pointer;
    if (buffer == ATTENTION_LSE) args->lse = pointer;
}

static int64_t elements_of(const attention_case *c, int buffer)
{
    if (buffer == ATTENTION_SINK) return c->Hq;
    if (buffer == ATTENTION_CU_Q || buffer == ATTENTION_CU_K) return c->B + 1;
    if (buffer == ATTENTION_LENGTH) return c->B;
    if (buffer == ATTENTION_TABLE) return c->B * columns_of(c);
    return shape_of(c, buffer).count;
}

static bool make_buffer(const attention_case *c, int which, hostile_buffer *buffer)
{
    size_t bytes = element_bytes(which), guard = which >= ATTENTION_INPUTS ? HOSTILE_GUARD_BYTES : 0;
    void *memory = NULL;
    buffer->at = (size_t)c->offset * bytes + guard;
    buffer->count = buffer->at + (size_t)elements_of(c, which) * bytes + guard;
    if (posix_memalign(&memory, 256, buffer->count ? buffer->count : 1)) return false;
    buffer->bytes = memory;
    memset(memory, 0, buffer->count);
    return true;
}

static void set_strides(const attention_case *c, int buffer, int64_t *batch, int64_t *position, int64_t *head)
{
    if (c->order == ATTENTION_PACKED) return; // 0: the default
    shape s = shape_of(c, buffer);
    *batch = s.stride[0], *position = s.stride[1];
    if (head) *head = s.stride[2];
}

static quern_attention_args make_args(const attention_case *c)
{
    quern_attention_args a = QUERN_ATTENTION_ARGS_INIT;
    bool varlen = c->spec.layout == QUERN_LAYOUT_VARLEN;
    a.B = c->B, a.Hq = c->Hq, a.Hkv = c->Hkv;
    a.Sq = c->spec.cu_q ? (c->sizes_unknown ? 0 : longest(c, c->queries)) : c->queries[0];
    a.Sk = c->spec.layout == QUERN_LAYOUT_DENSE ? c->Sk : c->sizes_unknown ? 0 : longest(c, c->keys);
    a.Tq = c->spec.cu_q ? before(c->queries, c->B) : 0;
    a.Tk = varlen ? before(c->keys, c->B) : 0;
    a.pages = all_pages(c), a.columns = columns_of(c);
    set_strides(c, ATTENTION_Q, &a.q_stride_B, &a.q_stride_S, &a.q_stride_H);
    set_strides(c, ATTENTION_K, &a.k_stride_B, &a.k_stride_S, &a.k_stride_H);
    set_strides(c, ATTENTION_V, &a.v_stride_B, &a.v_stride_S, &a.v_stride_H);
    set_strides(c, ATTENTION_OUT, &a.out_stride_B, &a.out_stride_S, &a.out_stride_H);
    set_strides(c, ATTENTION_LSE, &a.lse_stride_B, &a.lse_stride_S, NULL);
    return a;
}

bool attention_data_make(const attention_case *c, uint16_t poison, attention_data *data)
{
    *data = (attention_data){.c = c, .args = make_args(c)};
    for (int i = 0; i < ATTENTION_BUFFERS; i++) {
        if (!has_buffer(c, i)) continue;
        if (!make_buffer(c, i, &data->buffer[i])) return attention_data_free(data), false;
        attention_set_pointer(&data->args, i, data->buffer[i].bytes + data->buffer[i].at);
    }
    for (int i = ATTENTION_Q; i <= ATTENTION_V; i++)
        if (data->buffer[i].bytes) fill_tensor(c, i, poison, &data->buffer[i]);
    for (int64_t h = 0; c->spec.sink && h < c->Hq; h++) ((float *)data->args.sink)[h] = c->sink + 0.25f * (float)h;
    fill_integers(c, data);
    attention_data_reset(data);
    return true;
}

void attention_data_free(attention_data *data)
{
    for (int i = 0; i < ATTENTION_BUFFERS; i++) free(data->buffer[i].bytes);
    *data = (attention_data){0};
}

void attention_data_reset(attention_data *data)
{
    for (int i = ATTENTION_INPUTS; i < ATTENTION_BUFFERS; i++)
        if (data->buffer[i].bytes) memset(data->buffer[i].bytes, HOSTILE_GUARD, data->buffer[i].count);
}

int64_t attention_guard_broken(const attention_data *data, int which)
{
    const attention_case *c = data->c;
    const hostile_buffer *buffer = &data->buffer[which];
    size_t bytes = element_bytes(which), width = (which == ATTENTION_LSE ? 1 : (size_t)c->spec.dv) * bytes;
    unsigned char *is_ours = calloc(1, buffer->count + 1);
    int64_t broken = -1;
    for (int64_t b = 0; is_ours && b < c->B; b++)
        for (int64_t query = 0; query < c->queries[b]; query++)
            for (int64_t head = 0; head < c->Hq; head++)
                memset(is_ours + buffer->at + (size_t)attention_row_of_query(c, which, b, query, head) * bytes, 1,
                       width);
    for (size_t i = buffer->count; i-- > 0;)
        if (!is_ours || (!is_ours[i] && buffer->bytes[i] != HOSTILE_GUARD)) broken = (int64_t)i;
    free(is_ours);
    return broken;
}

attention_case attention_alone(const attention_case *c, int64_t sequence)
{
    attention_case one = *c;
    one.B = 1, one.first = c->first + sequence;
    one.queries[0] = c->queries[sequence], one.keys[0] = c->keys[sequence];
    return one;
}
