// SPDX-License-Identifier: Apache-2.0
// Inputs of `quern bench attention`, and sampled rows in f64 (bench_attention.h).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_attention.h"
#include "reference/reference.h"

size_t attention_offset(int tensor, size_t copy)
{
    return ((size_t)tensor * 700001 + copy * 131071 * 3) % ATTENTION_PIECE;
}

// The sum of four uniform numbers, of variance 1: close enough to normal.
static float draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)(z >> 16 * i & 0xFFFF);
    return (sum / 65536 - 2) * 1.7320508f;
}

const uint16_t *attention_piece(quern_dtype dtype)
{
    static uint16_t pieces[2][ATTENTION_PIECE];
    static bool made[2];
    int which = dtype == QUERN_F16;
    uint64_t state = 2026;
    for (size_t i = 0; !made[which] && i < ATTENTION_PIECE; i++) {
        float x = draw(&state);
        pieces[which][i] = which ? qn_f32_to_f16(x) : qn_f32_to_bf16(x);
    }
    made[which] = true;
    return pieces[which];
}

static quern_status upload(const attention_run *r, int tensor)
{
    const device *d = &r->bench->device;
    const uint16_t *piece = attention_piece(r->spec->in);
    for (size_t copy = 0; copy < r->copies; copy++) {
        size_t at = attention_offset(tensor, copy), done = 0, count = r->elements[tensor];
        while (done < count) {
            size_t some = ATTENTION_PIECE - at < count - done ? ATTENTION_PIECE - at : count - done;
            DEVICE_TRY(d, cuMemcpyHtoD, r->tensor[tensor] + 2 * (copy * count + done), piece + at, 2 * some);
            done += some, at = 0;
        }
    }
    return QUERN_OK;
}

quern_status attention_make_inputs(attention_run *r)
{
    const attention_shape *s = r->shape;
    int64_t rows_q = s->B * s->Sq * s->Hq, rows_k = s->B * s->Sk * s->Hkv;
    r->elements[0] = (size_t)(rows_q * r->spec->d), r->elements[1] = (size_t)(rows_k * r->spec->d);
    r->elements[2] = r->spec->kv_alias ? 0 : (size_t)(rows_k * r->spec->dv);
    r->elements[3] = (size_t)(rows_q * r->spec->dv);
    size_t bytes = 2 * (r->elements[0] + r->elements[1] + r->elements[2]);
    r->copies = bytes > 2 * (size_t)r->bench->device.l2_bytes ? 1 : qn_timing_copies(r->bench->device.l2_bytes, bytes);
    for (int i = 0; i < 4; i++) {
        if (r->elements[i] == 0) continue;
        QN_TRY(bench_allocate(r->bench, 2 * r->elements[i] * (i < 3 ? r->copies : 1), &r->tensor[i]));
        if (i < 3) QN_TRY(upload(r, i));
    }
    return QUERN_OK;
}

void attention_free_inputs(attention_run *r)
{
    const qn_driver *driver = r->bench->device.driver;
    for (int i = 0; i < 4; i++)
        if (r->tensor[i]) (void)driver->cuMemFree(r->tensor[i]);
    if (r->workspace) (void)driver->cuMemFree(r->workspace);
}

// ---- what a call does at least

// Pairs of query and key that are not masked, of one sequence and head; windows as the spec has them.
static double pairs_of(const attention_run *r)
{
    const attention_shape *s = r->shape;
    double pairs = 0;
    for (int64_t i = 0; i < s->Sq; i++) {
        int64_t position = i + s->Sk - s->Sq, first = 0, last = s->Sk, right = r->spec->window_right;
        if (r->spec->causal) right = 0;
        if (r->spec->window_left >= 0 && position > r->spec->window_left) first = position - r->spec->window_left;
        if (right >= 0 && position + right + 1 < last) last = position + right + 1;
        if (last > first) pairs += (double)(last - first);
    }
    return pairs;
}

double attention_flop(const attention_run *r)
{
    return 2.0 * pairs_of(r) * (double)(r->shape->B * r->shape->Hq * (r->spec->d + r->spec->dv));
}

double attention_bytes(const attention_run *r)
{
    return 2.0 * (double)(r->elements[0] + r->elements[1] + r->elements[2] + r->elements[3]);
}

// ---- the check

void attention_sample(const attention_run *r, int i, int64_t at[3])
{
    const attention_shape *s = r->shape;
    int64_t all = s->B * s->Hq * s->Sq, row = i + 1 < ATTENTION_SAMPLES ? all / ATTENTION_SAMPLES * i + i % 3 : all - 1;
    if (row >= all) row = all - 1;
    at[0] = row / (s->Hq * s->Sq), at[1] = row % s->Sq, at[2] = row / s->Sq % s->Hq;
}

// A row of the inputs of copy 0.
static void load_row(const attention_run *r, int tensor, int64_t element, int64_t count, double *to)
{
    const uint16_t *piece = attention_piece(r->spec->in);
    size_t at = (attention_offset(tensor, 0) + (size_t)element) % ATTENTION_PIECE;
    for (int64_t i = 0; i < count; i++) {
        to[i] = r->spec->in == QUERN_F16 ? qn_f16_to_f32(piece[at]) : qn_bf16_to_f32(piece[at]);
        at = at + 1 == ATTENTION_PIECE ? 0 : at + 1;
    }
}

// out of one row in f64, and what each column's error may be at most.
static void judge(const attention_run *r, const int64_t at[3], double *p, double *want, double *allowed)
{
    const attention_shape *s = r->shape;
    const quern_attention_spec *spec = r->spec;
    double scale = spec->scale != 0 ? spec->scale : 1 / sqrt((double)spec->d), max = -INFINITY, total = 0;
    double q[576], row[576];
    int64_t kv = at[2] / (s->Hq / s->Hkv), last = at[1] + s->Sk - s->Sq + 1;
    if (!spec->causal || last > s->Sk) last = s->Sk;
    load_row(r, 0, ((at[0] * s->Sq + at[1]) * s->Hq + at[2]) * spec->d, spec->d, q);
    for (int64_t key = 0; key < last; key++) {
        load_row(r, 1, ((at[0] * s->Sk + key) * s->Hkv + kv) * spec->d, spec->d, row);
        p[key] = 0;
        for (int64_t i = 0; i < spec->d; i++) p[key] += q[i] * row[i];
        p[key] *= scale;
        max = p[key] > max ? p[key] : max;
    }
    for (int64_t key = 0; key < last; key++) total += p[key] = exp(p[key] - max);
    for (int64_t i = 0; i < spec->dv; i++) want[i] = allowed[i] = 0;
    for (int64_t key = 0; key < last; key++) {
        int64_t place = (at[0] * s->Sk + key) * s->Hkv + kv;
        load_row(r, spec->kv_alias ? 1 : 2, place * (spec->kv_alias ? spec->d : spec->dv), spec->dv, row);
        for (int64_t i = 0; i < spec->dv; i++)
            want[i] += p[key] / total * row[i], allowed[i] += p[key] / total * fabs(row[i]);
    }
}

static quern_status check_row(attention_run *r, const int64_t at[3], double *p)
{
    double want[576], allowed[576], unit = r->spec->in == QUERN_F16 ? 0x1p-11 : 0x1p-8;
    uint16_t got[576];
    int64_t row = ((at[0] * r->shape->Sq + at[1]) * r->shape->Hq + at[2]) * r->spec->dv;
    DEVICE_TRY(&r->bench->device, cuMemcpyDtoH, got, r->tensor[3] + 2 * (size_t)row, 2 * (size_t)r->spec->dv);
    judge(r, at, p, want, allowed);
    for (int64_t i = 0; i < r->spec->dv; i++) {
        double x = r->spec->in == QUERN_F16 ? qn_f16_to_f32(got[i]) : qn_bf16_to_f32(got[i]), error = fabs(x - want[i]);
        if (!(error <= unit * (1.1 * allowed[i] + fabs(want[i])) + 1e-7))
            return qn_fail(QUERN_INTERNAL, "%s: sequence %lld query %lld head %lld column %lld is %g, must be %g",
                           r->spec_text, (long long)at[0], (long long)at[1], (long long)at[2], (long long)i, x,
                           want[i]);
        if (error > r->difference) r->difference = error;
    }
    return QUERN_OK;
}

quern_status attention_check(attention_run *r)
{
    double *p = malloc((size_t)r->shape->Sk * sizeof *p);
    if (!p) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    quern_status status = QUERN_OK;
    int step = r->shape->Sk > 65536 ? 4 : 1; // a long row takes long
    for (int i = 0; i < ATTENTION_SAMPLES && status == QUERN_OK; i += step) {
        int64_t at[3];
        attention_sample(r, i, at);
        status = check_row(r, at, p);
    }
    free(p);
    return status;
}
