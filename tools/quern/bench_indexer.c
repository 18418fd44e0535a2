// SPDX-License-Identifier: Apache-2.0
// `quern bench indexer`: microseconds a call, by graph replay. Keys rotate over more than twice the L2, pages in random
// order. Codes are drawn as quantised normal numbers have them, scales within two powers of two. A row's scores are
// checked against the host reference before anything is timed. With --vs torch, torch's chain is timed on the same inputs.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_session.h"
#include "indexer_draw.h"
#include "runtime/runtime.h"

enum { LEAST_LAUNCHES = 32 };

typedef struct indexer_shape {
    int64_t sequences, length, queries; // queries a sequence: the last ones of it, causal when there are more than 8
} indexer_shape;

typedef struct indexer_bench {
    bench_session session;
    const char *spec_text, *shape_text, *config_text;
    int64_t checked;  // entries
    int64_t shape[3]; // of shape_text
} indexer_bench;

static const char text[] =
    "Times graph replays of many launches; us are medians, with the tenth and ninetieth percentile. Without --spec:\n"
    "decode with MXFP4 and FP8 keys at the shapes of ANALYSIS.md, and a prefill. --shape SEQUENCES,LENGTH,QUERIES.\n";

static const indexer_shape shapes[] = {{1, 8192, 1},  {1, 131072, 1}, {1, 262144, 1},  {8, 32768, 1},
                                       {64, 8192, 1}, {32, 65536, 1}, {1, 16384, 4096}};
static const struct {
    const char *spec;
    unsigned shapes; // bits of the list above
} cases[] = {
    {"indexer H=64 C=128 k=2048 q=mxfp4 page=64", 0x5F},
    {"indexer H=64 C=128 k=512 q=mxfp4 page=64", 0x1B},
    {"indexer H=64 C=128 k=1024 q=mxfp4 page=64", 0x20},
    {"indexer H=64 C=128 k=2048 layout=fp8_shared q=fp8 page=64", 0x5B},
    {"indexer H=64 C=128 k=512 layout=fp8_shared q=fp8 page=64", 0x1B},
    {"indexer H=64 C=128 k=2048 q=bf16 page=64", 0x13},
};

// ---- one spec and shape on the device

typedef struct indexer_run {
    indexer_bench *t;
    indexer_shape shape;
    quern_any_spec any;
    quern_indexer_spec *spec;
    quern_op *op;
    int64_t rows, pages, page_bytes; // pages of a set
    size_t sets;
    uint64_t state;
    quern_indexer_args args;
    CUdeviceptr q, q_scale, w, keys, table, length, row_seq, indices, scores, workspace;
    uint8_t *host_q, *host_scale, *host_keys; // keys: of the first set
    float *host_w;
    int32_t *host_table;
} indexer_run;

static quern_status make_keys(indexer_run *r)
{
    const bench *b = &r->t->session.bench;
    size_t bytes = (size_t)(r->pages * r->page_bytes);
    r->sets = qn_timing_copies(b->device.l2_bytes, bytes);
    int64_t each = r->pages / r->shape.sequences, words = (int64_t)r->sets * r->pages;
    r->host_keys = malloc(bytes);
    r->host_table = malloc((size_t)words * 4);
    if (!r->host_keys || !r->host_table) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    for (int64_t i = 0; i < words; i++) r->host_table[i] = (int32_t)i;
    for (int64_t s = 0; s < (int64_t)r->sets; s++)
        for (int64_t i = r->pages - 1; i > 0; i--) {
            int64_t at = s * r->pages, j = (int64_t)(drawn_number(&r->state) % (uint64_t)(i + 1));
            int32_t swap = r->host_table[at + i];
            r->host_table[at + i] = r->host_table[at + j], r->host_table[at + j] = swap;
        }
    QN_TRY(bench_allocate(b, bytes * r->sets, &r->keys));
    QN_TRY(bench_allocate(b, (size_t)words * 4, &r->table));
    DEVICE_TRY(&b->device, cuMemcpyHtoD, r->table, r->host_table, (size_t)words * 4);
    draw_keys(&r->state, r->spec, r->host_keys, bytes);
    for (size_t s = 0; s < r->sets; s++) DEVICE_TRY(&b->device, cuMemcpyHtoD, r->keys + s * bytes, r->host_keys, bytes);
    r->args.pages = words, r->args.columns = each, r->args.B = r->shape.sequences;
    return QUERN_OK;
}

static quern_status upload(indexer_run *r, const void *host, size_t bytes, CUdeviceptr *address)
{
    QN_TRY(bench_allocate(&r->t->session.bench, bytes, address));
    DEVICE_TRY(&r->t->session.bench.device, cuMemcpyHtoD, *address, host, bytes);
    return QUERN_OK;
}

static quern_status make_queries(indexer_run *r)
{
    const quern_indexer_spec *s = r->spec;
    bool fp4 = s->q == QUERN_INDEXER_Q_MXFP4, fp8 = s->q == QUERN_INDEXER_Q_FP8;
    size_t heads = (size_t)(r->rows * s->H), bytes = (size_t)(fp4 ? s->C / 2 : fp8 ? s->C : 2 * s->C);
    size_t scales = (size_t)(fp4 ? s->C / 32 : 4);
    float x[256];
    r->host_q = malloc(heads * bytes), r->host_scale = malloc(heads * scales), r->host_w = malloc(heads * 4);
    if (!r->host_q || !r->host_scale || !r->host_w) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    for (size_t h = 0; h < heads; h++) {
        for (int64_t i = 0; i < s->C; i++) x[i] = drawn_normal(&r->state);
        r->host_w[h] = drawn_normal(&r->state) * 0.011f;
        if (fp4 || fp8)
            QN_TRY(quern_pack(fp4 ? QUERN_INDEXER_MXFP4_SHARED : QUERN_INDEXER_FP8_SHARED, x, 1, s->C,
                              r->host_q + h * bytes, r->host_scale + h * scales, NULL));
        for (int64_t i = 0; !fp4 && !fp8 && i < s->C; i++) {
            uint32_t bits;
            memcpy(&bits, &x[i], 4);
            ((uint16_t *)r->host_q)[h * (size_t)s->C + (size_t)i] = (uint16_t)(bits >> 16);
        }
    }
    QN_TRY(upload(r, r->host_q, heads * bytes, &r->q));
    QN_TRY(upload(r, r->host_scale, heads * scales, &r->q_scale));
    return upload(r, r->host_w, heads * 4, &r->w);
}

static quern_status make_rows(indexer_run *r)
{
    int32_t *word = malloc((size_t)r->rows * 8);
    if (!word) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    for (int64_t t = 0; t < r->rows; t++) {
        word[t] = (int32_t)(r->shape.length - (r->shape.queries - 1 - t % r->shape.queries));
        word[r->rows + t] = (int32_t)(t / r->shape.queries);
    }
    quern_status status = upload(r, word, (size_t)r->rows * 4, &r->length);
    if (status == QUERN_OK) status = upload(r, word + r->rows, (size_t)r->rows * 4, &r->row_seq);
    free(word);
    size_t places = (size_t)(r->rows * r->spec->k) * 4;
    if (status == QUERN_OK) status = bench_allocate(&r->t->session.bench, places, &r->indices);
    return status == QUERN_OK ? bench_allocate(&r->t->session.bench, places, &r->scores) : status;
}

static quern_status prepare(indexer_run *r)
{
    const bench *b = &r->t->session.bench;
    qn_config config;
    const qn_family *family;
    if (!r->t->config_text) {
        QN_TRY(quern_prepare(b->q, &r->any.base, b->device.ordinal, &r->op));
    } else {
        QN_TRY(qn_family_find("indexer", &family));
        QN_TRY(qn_config_parse(family, r->t->config_text, &config));
        QN_TRY(qn_prepare_config(b->q, &r->any.base, b->device.ordinal, &config, &r->op));
    }
    quern_indexer_sizes sizes = QUERN_INDEXER_SIZES_INIT;
    sizes.T = r->rows, sizes.max_length = r->shape.length;
    r->args.workspace_bytes = quern_workspace_size(r->op, &sizes);
    QN_TRY(bench_allocate(b, r->args.workspace_bytes, &r->workspace));
    r->args.workspace = (void *)(uintptr_t)r->workspace;
    return quern_workspace_init(r->op, r->args.workspace, r->args.workspace_bytes, b->stream);
}

static void fill_args(indexer_run *r)
{
    r->args.T = r->rows, r->args.max_length = r->shape.length;
    r->args.q = (const void *)(uintptr_t)r->q, r->args.q_scale = (const void *)(uintptr_t)r->q_scale;
    r->args.w = (const float *)(uintptr_t)r->w, r->args.keys = (const void *)(uintptr_t)r->keys;
    r->args.length = (const int32_t *)(uintptr_t)r->length, r->args.row_seq = (const int32_t *)(uintptr_t)r->row_seq;
    r->args.indices = (int32_t *)(uintptr_t)r->indices, r->args.scores = (float *)(uintptr_t)r->scores;
}

static quern_status enqueue(void *user, size_t index, CUstream stream)
{
    indexer_run *r = user;
    r->args.block_table = (const int32_t *)(uintptr_t)(r->table + index % r->sets * (size_t)r->pages * 4);
    return quern_indexer(r->op, &r->args, stream);
}

static void release(indexer_run *r)
{
    CUdeviceptr all[] = {r->q,      r->q_scale, r->w,       r->keys,   r->table,
                         r->length, r->row_seq, r->indices, r->scores, r->workspace};
    for (size_t i = 0; i < QN_COUNT(all); i++)
        if (all[i]) (void)r->t->session.bench.device.driver->cuMemFree(all[i]);
    free(r->host_q), free(r->host_scale), free(r->host_keys), free(r->host_w), free(r->host_table);
    quern_op_release(r->op);
}

// ---- the check: the last row, its winners' scores one after another

static quern_status compare(const indexer_run *r, const float *got, const int32_t *index, const float *want)
{
    float size = fabsf(want[0]) + 1e-6f;
    for (int64_t i = 0; i < r->spec->k; i++) {
        bool same = isinf(want[i]) ? got[i] == want[i] && index[i] == -1 : fabsf(got[i] - want[i]) <= 1e-4f * size;
        if (!same)
            return qn_fail(QUERN_INTERNAL, "%lld entries: place %lld is %g (entry %d), the reference's is %g",
                           (long long)r->shape.length, (long long)i, (double)got[i], index[i], (double)want[i]);
    }
    return QUERN_OK;
}

static quern_status check(indexer_run *r)
{
    const device *d = &r->t->session.bench.device;
    const quern_indexer_spec *s = r->spec;
    size_t k = (size_t)s->k, last = (size_t)(r->rows - 1);
    float *got = malloc(k * 8), *want = malloc(k * 8);
    if (!got || !want) return free(got), free(want), qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    quern_indexer_args a = r->args;
    bool fp4 = s->q == QUERN_INDEXER_Q_MXFP4, fp8 = s->q == QUERN_INDEXER_Q_FP8;
    int32_t length = (int32_t)r->shape.length, sequence = (int32_t)(r->shape.sequences - 1);
    size_t head = (size_t)(fp4 ? s->C / 2 : fp8 ? s->C : 2 * s->C), scale = (size_t)(fp4 ? s->C / 32 : 4);
    a.T = 1, a.q = r->host_q + last * (size_t)s->H * head, a.q_scale = r->host_scale + last * (size_t)s->H * scale;
    a.w = r->host_w + last * (size_t)s->H, a.keys = r->host_keys, a.length = &length, a.row_seq = &sequence;
    a.block_table = r->host_table, a.indices = (int32_t *)(want + k), a.scores = want;
    quern_status status = enqueue(r, 0, r->t->session.bench.stream);
    if (status == QUERN_OK)
        status = device_check(d, "cuStreamSynchronize", d->driver->cuStreamSynchronize(r->t->session.bench.stream));
    if (status == QUERN_OK)
        status = device_check(d, "cuMemcpyDtoH", d->driver->cuMemcpyDtoH(got, r->scores + last * k * 4, k * 4));
    if (status == QUERN_OK)
        status = device_check(d, "cuMemcpyDtoH", d->driver->cuMemcpyDtoH(got + k, r->indices + last * k * 4, k * 4));
    if (status == QUERN_OK && r->shape.length <= r->t->checked) {
        status = quern_reference(&r->any.base, &a.base);
        if (status == QUERN_OK) status = compare(r, got, (int32_t *)(got + k), want);
    }
    free(got), free(want);
    return status;
}

// ---- peers

typedef struct part {
    const char *name;
    const void *bytes;
    size_t count;
} part;

// The parts' bytes one after another, at multiples of 16, and where they are.
static quern_status give_parts(indexer_run *r, const part *parts, size_t count, cJSON *where)
{
    size_t total = 0;
    void *memory;
    for (size_t i = 0; i < count; i++) {
        cJSON *place = cJSON_AddArrayToObject(where, parts[i].name);
        cJSON_AddItemToArray(place, cJSON_CreateNumber((double)total));
        cJSON_AddItemToArray(place, cJSON_CreateNumber((double)parts[i].count));
        total += (parts[i].count + 15) / 16 * 16;
    }
    QN_TRY(bench_peers_inputs(r->t->session.peers, ++r->t->session.inputs, total, &memory));
    for (size_t i = 0, at = 0; i < count; at += (parts[i].count + 15) / 16 * 16, i++)
        memcpy((char *)memory + at, parts[i].bytes, parts[i].count);
    return QUERN_OK;
}

static cJSON *request_of(const indexer_run *r, const qn_timing_request *timed)
{
    static const char *const q[] = {"bf16", "f16", "fp8", "mxfp4"};
    const quern_indexer_spec *s = r->spec;
    cJSON *request = cJSON_CreateObject();
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"B", r->shape.sequences},
                   {"Q", r->shape.queries},
                   {"L", r->shape.length},
                   {"H", s->H},
                   {"C", s->C},
                   {"k", s->k},
                   {"page", s->page},
                   {"pages", r->pages},
                   {"rotation_bytes", 2 * r->t->session.bench.device.l2_bytes},
                   {"repeats", timed->repeats},
                   {"launches", (int64_t)timed->launches}};
    cJSON_AddStringToObject(request, "op", "indexer");
    cJSON_AddStringToObject(request, "keys", s->layout == QUERN_INDEXER_FP8_SHARED ? "fp8" : "mxfp4");
    cJSON_AddStringToObject(request, "q", q[s->q]);
    for (size_t i = 0; i < QN_COUNT(numbers); i++)
        cJSON_AddNumberToObject(request, numbers[i].name, (double)numbers[i].value);
    return request;
}

// Quern's winners for the first set, and each row's length, beside the inputs.
static quern_status ask_peers(indexer_run *r, const qn_timing_request *timed, const qn_timing *own, cJSON **answer)
{
    const device *d = &r->t->session.bench.device;
    const quern_indexer_spec *s = r->spec;
    bool fp4 = s->q == QUERN_INDEXER_Q_MXFP4, fp8 = s->q == QUERN_INDEXER_Q_FP8;
    size_t heads = (size_t)(r->rows * s->H), places = (size_t)(r->rows * s->k) * 4;
    size_t head = (size_t)(fp4 ? s->C / 2 : fp8 ? s->C : 2 * s->C), scale = (size_t)(fp4 ? s->C / 32 : 4);
    int32_t *winners = malloc(places), *length = malloc((size_t)r->rows * 4);
    cJSON *request = request_of(r, timed), *where = cJSON_AddObjectToObject(request, "parts");
    quern_status status = winners && length ? QUERN_OK : qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    if (status == QUERN_OK) status = enqueue(r, 0, r->t->session.bench.stream);
    if (status == QUERN_OK)
        status = device_check(d, "cuStreamSynchronize", d->driver->cuStreamSynchronize(r->t->session.bench.stream));
    if (status == QUERN_OK)
        status = device_check(d, "cuMemcpyDtoH", d->driver->cuMemcpyDtoH(winners, r->indices, places));
    if (status == QUERN_OK)
        status = device_check(d, "cuMemcpyDtoH", d->driver->cuMemcpyDtoH(length, r->length, (size_t)r->rows * 4));
    if (status == QUERN_OK) {
        const part parts[] = {{"keys", r->host_keys, (size_t)(r->pages * r->page_bytes)},
                              {"table", r->host_table, (size_t)r->pages * 4},
                              {"q", r->host_q, heads * head},
                              {"q_scale", r->host_scale, heads * scale},
                              {"w", r->host_w, heads * 4},
                              {"length", length, (size_t)r->rows * 4},
                              {"indices", winners, places}};
        status = give_parts(r, parts, QN_COUNT(parts), where);
    }
    free(winners), free(length);
    if (status == QUERN_OK) return bench_peers_ask(r->t->session.peers, request, own, answer);
    cJSON_Delete(request);
    return status;
}

// ---- results

static const table_column columns[] = {
    {"sequences", "sequences", TABLE_INT, 0},
    {"length", "length", TABLE_INT, 0},
    {"queries", "queries", TABLE_INT, 0},
    {"us", "us_median", TABLE_REAL, 2},
    {"p10", "us_p10", TABLE_REAL, 2},
    {"p90", "us_p90", TABLE_REAL, 2},
    {"GB/s", "gb_per_s", TABLE_REAL, 0},
    {NULL, "sets", TABLE_INT, 0},
    {"best peer", "best_peer", TABLE_TEXT, 0},
    {"us", "best_peer_us", TABLE_REAL, 1},
    {"spec", "spec", TABLE_TEXT, 0},
    {"configuration", "configuration", TABLE_TEXT, 0},
    {NULL, "peers", TABLE_JSON, 0},
};

static quern_status time_run(indexer_run *r)
{
    const quern_indexer_spec *s = r->spec;
    char spec_text[512];
    qn_timing timing;
    quern_indexer_sizes sizes = QUERN_INDEXER_SIZES_INIT;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    bool fp8 = s->layout == QUERN_INDEXER_FP8_SHARED;
    r->rows = r->shape.sequences * r->shape.queries;
    r->page_bytes = s->page * (fp8 ? s->C + 4 : s->C / 2 + s->C / 32);
    r->pages = r->shape.sequences * ((r->shape.length + s->page - 1) / s->page);
    QN_TRY(quern_spec_format(&r->any.base, spec_text, sizeof spec_text));
    QN_TRY(make_keys(r));
    QN_TRY(make_queries(r));
    QN_TRY(make_rows(r));
    fill_args(r);
    QN_TRY(prepare(r));
    QN_TRY(check(r));
    qn_timing_request request = {enqueue, r, qn_timing_launches(r->sets, r->rows > 1000 ? 1 : LEAST_LAUNCHES),
                                 r->t->session.bench.repeats};
    QN_TRY(qn_timing_graph(r->t->session.bench.device.driver, &request, &timing));
    sizes.T = r->rows, sizes.max_length = r->shape.length;
    (void)quern_op_describe(r->op, quern_op_variant_for(r->op, &sizes), 0, &info);
    cJSON *answer = NULL;
    if (r->t->session.peers) QN_TRY(ask_peers(r, &request, &timing, &answer));
    const cJSON *best = bench_peers_best(answer);
    char *peers = answer ? cJSON_PrintUnformatted(answer) : NULL;
    table_add(r->t->session.table, r->shape.sequences, r->shape.length, r->shape.queries, timing.median_us,
              timing.low_us, timing.high_us, (double)(r->pages * r->page_bytes) / timing.median_us * 1e-3,
              (int64_t)r->sets, best ? best->string : NULL, bench_peers_number(best, "us_median"), spec_text,
              info.config, peers);
    cJSON_free(peers);
    cJSON_Delete(answer);
    return bench_session_save(&r->t->session);
}

static quern_status run_one(indexer_bench *t, const char *spec_text, indexer_shape shape)
{
    indexer_run r = {.t = t, .shape = shape, .state = 88172645463325252u, .args = QUERN_INDEXER_ARGS_INIT};
    QN_TRY(quern_spec_parse(spec_text, &r.any));
    if (strcmp(r.any.base.family, "indexer") != 0)
        return qn_fail(QUERN_WRONG_FAMILY, "--spec: '%s' is not of the family indexer", spec_text);
    r.spec = (quern_indexer_spec *)&r.any;
    r.spec->row_seq = 1, r.spec->scores = 1;
    if (!r.spec->page || r.spec->layout == QUERN_INDEXER_NVFP4_HEADS)
        return qn_fail(QUERN_UNSUPPORTED, "--spec: paged keys of a shared layout are timed");
    quern_status status = time_run(&r);
    release(&r);
    return status;
}

// Each of the configurations, which ';' divides.
static quern_status run_configs(indexer_bench *t, const char *spec_text, indexer_shape shape)
{
    const char *all = t->config_text;
    quern_status status = QUERN_OK;
    if (!all) return run_one(t, spec_text, shape);
    for (const char *at = all; *at && status == QUERN_OK; at += strcspn(at, ";"), at += *at == ';') {
        char one[128];
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ";"), at);
        t->config_text = one;
        status = run_one(t, spec_text, shape);
    }
    t->config_text = all;
    return status;
}

static quern_status run_all(void *user)
{
    indexer_bench *t = user;
    for (size_t c = 0; c < QN_COUNT(cases); c++) {
        const char *spec = t->spec_text ? t->spec_text : cases[c].spec;
        for (size_t i = 0; i < QN_COUNT(shapes); i++) {
            if (t->shape_text && i > 0) break;
            if (!t->shape_text && !t->spec_text && !(cases[c].shapes >> i & 1)) continue;
            indexer_shape one = t->shape_text ? (indexer_shape){t->shape[0], t->shape[1], t->shape[2]} : shapes[i];
            QN_TRY(run_configs(t, spec, one));
        }
        if (t->spec_text) break;
    }
    return QUERN_OK;
}

// "8,32768" or "8,32768,1", and nothing else.
static bool parse_shape(const char *words, int64_t shape[3])
{
    size_t count = 0;
    for (const char *at = words; at && count < 3; count++) {
        char number[24];
        size_t length = strcspn(at, ",");
        if (length >= sizeof number) return false;
        snprintf(number, sizeof number, "%.*s", (int)length, at);
        if (!qn_parse_int(number, &shape[count]) || shape[count] < 1) return false;
        at = at[length] ? at + length + 1 : NULL;
        if (at && count == 2) return false;
    }
    return count >= 2;
}

int bench_indexer(int argc, char **argv)
{
    static indexer_bench t = {.session = BENCH_SESSION("indexer", columns), .checked = 40000, .shape = {0, 0, 1}};
    const command_option options[] = {
        {"spec", 0, "SPEC", COMMAND_STRING, &t.spec_text, 0, 0,
         "this spec: 'indexer H=64 C=128 k=512 q=mxfp4 page=64'"},
        {"shape", 0, "B,L,Q", COMMAND_STRING, &t.shape_text, 0, 0, "sequences, entries, queries a sequence: 8,32768,1"},
        {"config", 0, "TEXT", COMMAND_STRING, &t.config_text, 0, 0,
         "configurations, divided by ';': 'plan=fused warps=12 shares=16'"},
        {"check", 0, "N", COMMAND_NUMBER, &t.checked, 0, INT32_MAX, "sequences of up to N entries are checked (40000)"},
        BENCH_SESSION_OPTIONS(&t.session),
    };
    const command_syntax syntax = {"quern bench indexer [options]", text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc > 1) return command_usage("unexpected operand '%s'", argv[1]);
    if (t.shape_text && !parse_shape(t.shape_text, t.shape))
        return command_usage("--shape: '%s' is not SEQUENCES,LENGTH,QUERIES", t.shape_text);
    quern_status status = t.spec_text ? bench_check_spec(t.spec_text, "indexer", NULL) : QUERN_OK;
    return status == QUERN_OK ? bench_session_run(&t.session, run_all, &t) : command_status(status);
}
