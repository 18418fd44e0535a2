// SPDX-License-Identifier: Apache-2.0
// An indexer case's tensors on the host, with guard bytes round the outputs (hostile_indexer.h). Numbers are first
// written as codes' values with scales beside them, then as bytes.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/formats.h"
#include "reference/reference.h"
#include "support/hostile_fill.h"
#include "support/hostile_indexer.h"

const char *const indexer_buffer_name[INDEXER_BUFFERS] = {"q",         "q_scale",      "w",       "keys",
                                                          "key_scale", "tensor_scale", "length",  "block_table",
                                                          "row_seq",   "cu_keys",      "indices", "scores"};

enum { TABLE_GUARD = 0x7FFFFFF0, EMPTY_VALUE = 0x77, EMPTY_SCALE = 254 };

typedef struct shape { // of one case, in bytes
    bool heads, fp8;
    int64_t value, scale;              // of an entry
    int64_t row_values, row_scales;    // from an entry to the next
    int64_t page, pages_each, columns; // entries; pages a sequence; of the table
    int64_t page_values, page_scales;  // from a page or block to the next
    int64_t places;                    // pages, blocks or entries there are
    int64_t q_head, q_scale_head;      // of a head
} shape;

static shape shape_of(const indexer_case *c)
{
    const quern_indexer_spec *s = &c->spec;
    shape z = {.heads = s->layout == QUERN_INDEXER_NVFP4_HEADS, .fp8 = s->layout == QUERN_INDEXER_FP8_SHARED};
    int64_t heads = z.heads ? s->H : 1;
    bool wide = s->q == QUERN_INDEXER_Q_BF16 || s->q == QUERN_INDEXER_Q_F16;
    z.value = z.fp8 ? s->C : heads * s->C / 2, z.scale = z.fp8 ? 4 : z.heads ? s->H * s->C / 16 : s->C / 32;
    z.row_values = z.value, z.row_scales = z.scale;
    z.page = s->page ? s->page : z.heads ? s->epb : 1;
    if (!s->page || z.heads) z.row_values += c->padding, z.row_scales += z.fp8 ? 0 : c->padding;
    z.pages_each = (c->most + z.page - 1) / z.page;
    z.columns = z.pages_each + 3;
    z.page_values = s->page && !z.heads ? z.page * (z.value + z.scale) + c->padding : z.page * z.row_values;
    z.page_scales = z.page * z.row_scales;
    z.places = c->sequences * z.pages_each + (s->page ? 2 : z.heads ? 1 : 0);
    z.q_head = (wide ? 2 * s->C : s->q == QUERN_INDEXER_Q_FP8 ? s->C : s->C / 2);
    z.q_scale_head = s->q == QUERN_INDEXER_Q_FP8 ? 4 : s->C / 32;
    return z;
}

// ---- buffers

static size_t buffer_bytes(const indexer_case *c, const shape *z, int which)
{
    const quern_indexer_spec *s = &c->spec;
    bool wide = s->q == QUERN_INDEXER_Q_BF16 || s->q == QUERN_INDEXER_Q_F16, in_pages = s->page && !z->heads;
    int64_t bytes[INDEXER_BUFFERS] = {
        [INDEXER_Q] = c->T * s->H * z->q_head,
        [INDEXER_Q_SCALE] = wide ? 0 : c->T * s->H * z->q_scale_head,
        [INDEXER_W] = c->T * s->H * 4,
        [INDEXER_KEYS] = z->places * z->page_values,
        [INDEXER_KEY_SCALE] = in_pages ? 0 : z->places * z->page_scales,
        [INDEXER_TENSOR_SCALE] = z->heads ? 4 : 0,
        [INDEXER_LENGTH] = c->T * 4,
        [INDEXER_BLOCK_TABLE] = s->page ? c->sequences * z->columns * 4 : 0,
        [INDEXER_ROW_SEQ] = s->row_seq ? c->T * 4 : 0,
        [INDEXER_CU_KEYS] = s->cu_keys ? (c->sequences + 1) * 4 : 0,
        [INDEXER_INDICES] = c->T * (s->k + c->padding) * 4,
        [INDEXER_SCORES] = s->scores ? c->T * (s->k + c->padding) * 4 : 0,
    };
    return (size_t)bytes[which];
}

static size_t element_of(const indexer_case *c, int which)
{
    bool wide = c->spec.q == QUERN_INDEXER_Q_BF16 || c->spec.q == QUERN_INDEXER_Q_F16;
    if (which == INDEXER_Q) return wide ? 2 : 1;
    if (which == INDEXER_Q_SCALE) return c->spec.q == QUERN_INDEXER_Q_FP8 ? 4 : 1;
    if (which == INDEXER_KEYS) return 1;
    if (which == INDEXER_KEY_SCALE) return c->spec.layout == QUERN_INDEXER_FP8_SHARED ? 4 : 1;
    return 4;
}

void indexer_set_pointer(quern_indexer_args *args, int buffer, void *pointer)
{
    switch (buffer) {
    case INDEXER_Q:
        args->q = pointer;
        break;
    case INDEXER_Q_SCALE:
        args->q_scale = pointer;
        break;
    case INDEXER_W:
        args->w = pointer;
        break;
    case INDEXER_KEYS:
        args->keys = pointer;
        break;
    case INDEXER_KEY_SCALE:
        args->key_scale = pointer;
        break;
    case INDEXER_TENSOR_SCALE:
        args->tensor_scale = pointer;
        break;
    case INDEXER_LENGTH:
        args->length = pointer;
        break;
    case INDEXER_BLOCK_TABLE:
        args->block_table = pointer;
        break;
    case INDEXER_ROW_SEQ:
        args->row_seq = pointer;
        break;
    case INDEXER_CU_KEYS:
        args->cu_keys = pointer;
        break;
    case INDEXER_INDICES:
        args->indices = pointer;
        break;
    default:
        args->scores = pointer;
        break;
    }
}

// ---- lengths and tables

static int64_t length_of(const indexer_case *c, int64_t t)
{
    const int64_t some[] = {c->most, 0, 1, c->spec.k, c->spec.k + 1};
    uint64_t any = hostile_mix(c->seed ^ 0x1E46, (uint64_t)t);
    int64_t length = c->most;
    if (c->lengths == INDEXER_EMPTY) length = 0;
    if (c->lengths == INDEXER_CAUSAL) length = c->most - (c->T - 1 - t);
    if (c->lengths == INDEXER_MIXED) length = t < 5 ? some[t] : (int64_t)(any % (uint64_t)(c->most + 1));
    return length < 0 ? 0 : length > c->most ? c->most : length;
}

static int64_t sequence_of(const indexer_case *c, int64_t t)
{
    return c->spec.row_seq ? (t * 5 + 1) % c->sequences : 0;
}

// The longest row of a sequence.
static int64_t sequence_length(const indexer_case *c, int64_t sequence)
{
    int64_t most = 0;
    for (int64_t t = 0; t < c->T; t++)
        if (sequence_of(c, t) == sequence && length_of(c, t) > most) most = length_of(c, t);
    return most;
}

// Pages in an order of their own, the first two of the pool unused.
static int64_t page_of(const indexer_case *c, const shape *z, int64_t sequence, int64_t page)
{
    int64_t all = c->sequences * z->pages_each, step = all % 7 ? 7 : 11;
    while (all % step == 0) step += 2;
    return 2 + (sequence * z->pages_each + page) * step % all;
}

static void fill_tables(const indexer_case *c, const shape *z, indexer_data *d)
{
    for (int64_t t = 0; t < c->T; t++) {
        ((int32_t *)d->args.length)[t] = (int32_t)length_of(c, t);
        if (c->spec.row_seq) ((int32_t *)d->args.row_seq)[t] = (int32_t)sequence_of(c, t);
    }
    for (int64_t b = 0; b < c->sequences; b++) {
        int64_t used = (sequence_length(c, b) + z->page - 1) / z->page;
        if (c->spec.cu_keys) ((int32_t *)d->args.cu_keys)[b] = (int32_t)(b * z->pages_each * z->page);
        for (int64_t i = 0; c->spec.page && i < z->columns; i++)
            ((int32_t *)d->args.block_table)[b * z->columns + i] =
                i < used ? (int32_t)page_of(c, z, b, i) : TABLE_GUARD;
    }
    if (c->spec.cu_keys) ((int32_t *)d->args.cu_keys)[c->sequences] = (int32_t)(c->sequences * z->pages_each * z->page);
}

// ---- where an entry's bytes are

static void locate(const indexer_case *c, const shape *z, const indexer_data *d, int64_t sequence, int64_t s,
                   uint8_t **value, uint8_t **scale)
{
    int64_t page = c->spec.page ? page_of(c, z, sequence, s / z->page) : sequence * z->pages_each + s / z->page;
    int64_t inside = s % z->page;
    *value = (uint8_t *)d->args.keys + page * z->page_values + inside * z->row_values;
    if (c->spec.page && !z->heads)
        *scale = (uint8_t *)d->args.keys + page * z->page_values + z->page * z->value + inside * z->scale;
    else
        *scale = (uint8_t *)d->args.key_scale + page * z->page_scales + inside * z->row_scales;
}

// ---- numbers of an entry: codes' values and scales

typedef struct entry {
    float *code;   // [columns]: in the codes' own range
    double *scale; // a group: of 16, 32, or the one
    int64_t columns, group;
} entry;

static void write_entry(const shape *z, const entry *e, uint8_t *value, uint8_t *scale)
{
    for (int64_t i = 0; i < e->columns; i++) {
        if (z->fp8)
            value[i] = qn_f64_to_e4m3(e->code[i]);
        else if (i % 2 == 0)
            value[i / 2] = (uint8_t)(qn_f64_to_e2m1(e->code[i]) | qn_f64_to_e2m1(e->code[i + 1]) << 4);
    }
    for (int64_t g = 0; g < e->columns / e->group; g++) {
        float single = (float)e->scale[g];
        if (z->fp8)
            memcpy(scale, &single, 4);
        else
            scale[g] = z->heads ? qn_f64_to_e4m3(e->scale[g]) : (uint8_t)(ilogb(e->scale[g]) + 127);
    }
}

static bool is_winner_place(const indexer_case *c, int64_t s)
{
    int64_t page = c->spec.page ? c->spec.page : 64;
    if (c->variant == 0) return s / page == c->most / page / 3; // one page
    int64_t unit = s / 16;                                      // what a share of 128 takes in its rounds
    return (unit % 128 + 896 - 7 * (unit / 128) % 128) % 128 == 5;
}

static void fill_entry(const indexer_case *c, int64_t sequence, int64_t s, entry *e)
{
    uint64_t seed = c->seed + (uint64_t)sequence * 0x9E3779B9u, at = (uint64_t)s * 4096;
    for (int64_t g = 0; g < e->columns / e->group; g++) e->scale[g] = 1;
    for (int64_t i = 0; i < e->columns; i++) e->code[i] = -1;
    if (c->fill == INDEXER_INTEGER) {
        for (int64_t i = 0; i < e->columns; i++)
            e->code[i] = (float)((int)(hostile_mix(seed, at + (uint64_t)i) % 5) - 2);
        int spread = s % 9 == 0 ? 4 : s % 2 ? 3 : 1;
        for (int64_t g = 0; g < e->columns / e->group; g++)
            e->scale[g] = ldexp(1, (int)(hostile_mix(seed ^ 77, at + (uint64_t)g) % (uint64_t)spread));
    } else if (c->fill == INDEXER_WINNERS && s % 83 == 0 && s / 83 < 100) {
        for (int64_t i = 0; i < e->columns; i++) e->code[i] = i <= s / 83 ? 1 : 0;
    } else if (c->fill == INDEXER_LAST_BIT) {
        for (int64_t i = 0; i < e->columns; i++)
            e->code[i] = i == 0 ? 1 : i == 1 ? (float)(hostile_mix(seed, at) % 5) : 0;
    } else if (c->fill == INDEXER_ONE_PAGE && is_winner_place(c, s)) {
        for (int64_t i = 0; i < e->columns; i++) e->code[i] = (float)(hostile_mix(seed, at + (uint64_t)i) % 3);
    } else if (c->fill == INDEXER_FR11) {
        int nine = c->variant == 1 ? 127 : 1 - 127;
        for (int64_t i = 0; i < e->columns; i++) e->code[i] = s == 5 || s == 9 ? 6 : 0;
        for (int64_t g = 0; g < e->columns / e->group; g++) e->scale[g] = ldexp(1, s == 5 ? -127 : s == 9 ? nine : 0);
    }
}

static void write_any(const indexer_case *c, const shape *z, int64_t s, uint8_t *value, uint8_t *scale)
{
    for (int64_t i = 0; i < z->value; i++) value[i] = (uint8_t)hostile_mix(c->seed, (uint64_t)(s * 70000 + i));
    for (int64_t i = 0; i < z->scale; i++) scale[i] = (uint8_t)hostile_mix(c->seed ^ 5, (uint64_t)(s * 70000 + i));
    if (s % 3 == 0) return; // any scale; else near enough to be summed
    float single = (float)ldexp(1, (int)(s % 40) - 20);
    for (int64_t i = 0; i < z->scale; i++) scale[i] = (uint8_t)(z->heads ? 0x30 + s % 16 : 100 + (s * 7 + i * s) % 60);
    if (z->fp8) memcpy(scale, &single, 4);
    if (z->fp8)
        for (int64_t i = 0; i < z->value; i++)
            if (s % 5 && (value[i] & 0x7F) == 0x7F) value[i] ^= 0x10;
}

static bool fill_sequence(const indexer_case *c, const shape *z, const indexer_data *d, int64_t sequence)
{
    int64_t columns = (z->heads ? c->spec.H : 1) * c->spec.C, length = sequence_length(c, sequence);
    entry e = {malloc((size_t)columns * 4), malloc((size_t)columns * 8), columns,
               z->fp8     ? columns
               : z->heads ? 16
                          : 32};
    float tensor = z->heads ? *d->args.tensor_scale : 0;
    bool made = e.code && e.scale;
    for (int64_t s = 0; made && s < length; s++) {
        uint8_t *value, *scale;
        locate(c, z, d, sequence, s, &value, &scale);
        if (c->fill == INDEXER_EXTREME) {
            write_any(c, z, s, value, scale);
        } else if (c->fill == INDEXER_NORMAL) {
            for (int64_t i = 0; i < columns; i++)
                e.code[i] = hostile_normal(c->seed + (uint64_t)sequence, (uint64_t)(s * columns + i));
            made = quern_pack(c->spec.layout, e.code, 1, columns, value, scale, z->heads ? &tensor : NULL) == QUERN_OK;
        } else {
            fill_entry(c, sequence, s, &e);
            write_entry(z, &e, value, scale);
            if (c->fill == INDEXER_FR11 && c->variant == 2 && s == 12) scale[2] = 255;
        }
    }
    free(e.code);
    free(e.scale);
    return made;
}

static bool fill_keys(const indexer_case *c, const shape *z, const indexer_data *d)
{
    const hostile_buffer *keys = &d->buffer[INDEXER_KEYS], *scales = &d->buffer[INDEXER_KEY_SCALE];
    memset(keys->bytes + keys->at, EMPTY_VALUE, keys->count - keys->at);
    if (scales->bytes) memset(scales->bytes + scales->at, EMPTY_SCALE, scales->count - scales->at);
    for (int64_t p = 0; c->spec.page && !z->heads && p < z->places; p++)
        memset(keys->bytes + keys->at + p * z->page_values + z->page * z->value, EMPTY_SCALE,
               (size_t)(z->page * z->scale));
    if (z->heads) *(float *)d->args.tensor_scale = c->fill == INDEXER_NORMAL ? 0x1p-10f : 1.0f;
    for (int64_t b = 0; b < c->sequences; b++)
        if (!fill_sequence(c, z, d, b)) return false;
    return true;
}

// ---- queries and weights

static float query_code(const indexer_case *c, int64_t t, int64_t h, int64_t i)
{
    uint64_t at = (uint64_t)((t * c->spec.H + h) * c->spec.C + i);
    if (c->fill == INDEXER_INTEGER) return (float)((int)(hostile_mix(c->seed ^ 0x51, at) % 3) - 1);
    if (c->fill == INDEXER_LAST_BIT) return h == 0 ? i == 0 : h == 1 ? i == 1 : 0;
    return 1;
}

static float weight_of(const indexer_case *c, int64_t t, int64_t h)
{
    uint64_t at = (uint64_t)(t * c->spec.H + h);
    switch (c->fill) {
    case INDEXER_INTEGER:
        return (float)((int)(hostile_mix(c->seed ^ 0x77, at) % 5) - 2);
    case INDEXER_ONE_PAGE:
        return h < 4 ? 1.0f : h % 2 ? -0.0f : 0.0f;
    case INDEXER_WINNERS:
        return c->variant == 0 ? 1.0f : c->variant == 1 || h % 2 ? -1.0f : 1.0f;
    case INDEXER_LAST_BIT:
        return h == 0 ? 0x1p23f : h == 1 ? 1.0f : 0.0f;
    case INDEXER_FR11:
        return h == 0 ? 1.0f : 0.0f;
    default:
        return h % 13 == 5 ? 0.0f : hostile_normal(c->seed ^ 0x77, at) * 0.011f;
    }
}

static void write_wide(const indexer_case *c, int64_t t, int64_t h, float *x, uint16_t *out)
{
    if (c->fill == INDEXER_EXTREME && t == 1 && h == 0) x[3] = NAN, x[9] = INFINITY;
    if (c->fill == INDEXER_EXTREME && t == 2 && h == c->spec.H - 1) x[3] = 0x1p120f, x[4] = -0x1p120f;
    for (int64_t i = 0; i < c->spec.C; i++)
        out[i] = c->spec.q == QUERN_INDEXER_Q_F16 ? qn_f32_to_f16(x[i]) : qn_f32_to_bf16(x[i]);
}

static bool fill_head(const indexer_case *c, const shape *z, const indexer_data *d, int64_t t, int64_t h)
{
    const quern_indexer_spec *s = &c->spec;
    uint8_t *value = (uint8_t *)d->args.q + (t * s->H + h) * z->q_head;
    uint8_t *scale = d->args.q_scale ? (uint8_t *)d->args.q_scale + (t * s->H + h) * z->q_scale_head : NULL;
    bool packed = c->fill == INDEXER_NORMAL || c->fill == INDEXER_EXTREME, fp4 = s->q == QUERN_INDEXER_Q_MXFP4;
    float x[256];
    double scales[8];
    for (int64_t i = 0; i < s->C; i++)
        x[i] = packed ? hostile_normal(c->seed ^ 0x51, (uint64_t)((t * s->H + h) * s->C + i)) : query_code(c, t, h, i);
    if (!scale) return write_wide(c, t, h, x, (uint16_t *)value), true;
    shape of_q = {.fp8 = !fp4};
    if (packed) {
        if (quern_pack(fp4 ? QUERN_INDEXER_MXFP4_SHARED : QUERN_INDEXER_FP8_SHARED, x, 1, s->C, value, scale, NULL))
            return false;
        if (fp4 && c->fill == INDEXER_EXTREME && t == 1) scale[h % z->q_scale_head] = (uint8_t)(h * 37);
        return true;
    }
    for (int i = 0; i < 8; i++)
        scales[i] = c->fill == INDEXER_INTEGER ? ldexp(1, (int)(hostile_mix(c->seed, (uint64_t)(h * 8 + i)) % 2)) : 1;
    write_entry(&of_q, &(entry){x, scales, s->C, fp4 ? 32 : s->C}, value, scale);
    return true;
}

// ---- all of it

static void fill_args(const indexer_case *c, const shape *z, quern_indexer_args *a)
{
    const quern_indexer_spec *s = &c->spec;
    a->T = c->T, a->B = c->sequences;
    a->max_length = c->seed % 3 ? c->most : 0;
    if (z->heads)
        a->blocks = z->places, a->keys_stride_epb = z->row_values, a->key_scale_stride_epb = z->row_scales;
    else if (s->page)
        a->pages = z->places, a->keys_stride_pages = z->page_values;
    else
        a->L = z->places, a->keys_stride_L = z->row_values, a->key_scale_stride_L = z->fp8 ? 0 : z->row_scales;
    if (s->page) a->columns = z->columns, a->pages = z->heads ? 0 : z->places;
    if (c->padding) a->indices_stride_T = a->scores_stride_T = s->k + c->padding;
}

bool indexer_data_make(const indexer_case *c, indexer_data *d)
{
    shape z = shape_of(c);
    *d = (indexer_data){.c = c, .args = QUERN_INDEXER_ARGS_INIT};
    fill_args(c, &z, &d->args);
    for (int i = 0; i < INDEXER_BUFFERS; i++) {
        size_t bytes = buffer_bytes(c, &z, i), guard = i >= INDEXER_INPUTS ? HOSTILE_GUARD_BYTES : 0;
        void *memory = NULL;
        if (!bytes && i != INDEXER_INDICES) continue;
        d->buffer[i].at = guard + (size_t)c->offset * element_of(c, i),
        d->buffer[i].count = d->buffer[i].at + bytes + guard;
        if (posix_memalign(&memory, 256, d->buffer[i].count + 1)) return indexer_data_free(d), false;
        memset(memory, 0, d->buffer[i].count + 1);
        d->buffer[i].bytes = memory;
        indexer_set_pointer(&d->args, i, d->buffer[i].bytes + d->buffer[i].at);
    }
    bool made = true;
    if (c->T) {
        fill_tables(c, &z, d);
        made = fill_keys(c, &z, d);
        for (int64_t t = 0; t < c->T && made; t++)
            for (int64_t h = 0; h < c->spec.H && made; h++) {
                made = fill_head(c, &z, d, t, h);
                ((float *)d->args.w)[t * c->spec.H + h] = weight_of(c, t, h);
            }
    }
    indexer_data_reset(d);
    if (!made) indexer_data_free(d);
    return made;
}

void indexer_data_free(indexer_data *d)
{
    for (int i = 0; i < INDEXER_BUFFERS; i++) free(d->buffer[i].bytes);
    *d = (indexer_data){0};
}

void indexer_data_reset(indexer_data *d)
{
    for (int i = INDEXER_INPUTS; i < INDEXER_BUFFERS; i++)
        if (d->buffer[i].bytes) memset(d->buffer[i].bytes, HOSTILE_GUARD, d->buffer[i].count);
}
