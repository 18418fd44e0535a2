// SPDX-License-Identifier: Apache-2.0
// `quern bench router`: microseconds a call. Results are checked against the host reference before anything is timed.
// x and w are cold: they rotate over more than twice the L2. The workspace is one, as in service.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_routing.h"
#include "reference/reference.h"
#include "runtime/runtime.h"

enum { CHECKED = 6, LEAST_LAUNCHES = 32, MOST_E = 1024, MOST_K = 32 };

static const char text[] =
    "Times graph replays of many launches; us are medians, with the tenth and ninetieth percentile. Results\n"
    "are checked against the host reference first. Without --spec: two shapes of models with many experts.\n"
    "With --vs a Python process times other libraries on the same inputs: 'best peer' is the fastest, 'x us' how\n"
    "many of our calls it takes.\n";

static const char *const specs[] = {
    "router D=7168 E=384 K=6 in=bf16 w=bf16 bias=1",
    "router D=4096 E=256 K=6 in=bf16 w=bf16 bias=1",
};
static const int64_t default_tokens[] = {1, 2, 4, 8, 16, 32, 64, 512, 4096};

// ---- one spec and number of tokens on the device

typedef struct router_run {
    routing_bench *t;
    quern_any_spec any;
    const quern_router_spec *spec;
    const char *spec_text;
    quern_op *op;
    size_t sets, x_bytes, w_bytes;
    void *host_x, *host_w; // of every set
    CUdeviceptr x, w, bias, given, weights, ids, logits, workspace;
    quern_router_args args;
    float host_bias[MOST_E];
} router_run;

static double uniform(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

// A sum of uniform ones: near enough to normal.
static float draw(uint64_t *state, double size)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += uniform(state) - 0.5;
    return (float)(sum * sqrt(3.0) * size);
}

static void *draw_array(quern_dtype type, size_t count, double size, uint64_t seed)
{
    void *array = malloc(count * qn_dtype_bytes(type) + 1);
    for (size_t i = 0; array && i < count; i++) {
        float value = draw(&seed, size);
        if (type == QUERN_F32)
            ((float *)array)[i] = value;
        else
            ((uint16_t *)array)[i] = type == QUERN_F16 ? qn_f32_to_f16(value) : qn_f32_to_bf16(value);
    }
    return array;
}

// x of size 1 and w of 1.7 / sqrt(D), so that logits are what routers see.
static quern_status make_inputs(router_run *r, int64_t N)
{
    const bench *b = &r->t->session.bench;
    size_t x_count = (size_t)(N * r->spec->D), w_count = (size_t)(r->spec->E * r->spec->D);
    r->x_bytes = x_count * qn_dtype_bytes(r->spec->in), r->w_bytes = w_count * qn_dtype_bytes(r->spec->w);
    r->sets = qn_timing_copies(b->device.l2_bytes, r->x_bytes + r->w_bytes);
    r->host_x = draw_array(r->spec->in, x_count, 1.0, 1);
    r->host_w = draw_array(r->spec->w, w_count, 1.7 / sqrt((double)r->spec->D), 2);
    if (!r->host_x || !r->host_w) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    QN_TRY(bench_allocate(b, r->sets * r->x_bytes, &r->x));
    QN_TRY(bench_allocate(b, r->sets * r->w_bytes, &r->w));
    for (size_t i = 0; i < r->sets; i++) {
        DEVICE_TRY(&b->device, cuMemcpyHtoD, r->x + i * r->x_bytes, r->host_x, r->x_bytes);
        DEVICE_TRY(&b->device, cuMemcpyHtoD, r->w + i * r->w_bytes, r->host_w, r->w_bytes);
    }
    return QUERN_OK;
}

static quern_status allocate(router_run *r, int64_t N)
{
    const bench *b = &r->t->session.bench;
    size_t places = (size_t)N * (size_t)r->spec->K;
    for (int e = 0; e < MOST_E; e++) r->host_bias[e] = (float)(e * 37 % 101 - 50) / 500.0f;
    QN_TRY(make_inputs(r, N));
    QN_TRY(bench_allocate(b, sizeof r->host_bias, &r->bias));
    QN_TRY(bench_allocate(b, 4 * places, &r->given));
    QN_TRY(bench_allocate(b, 4 * places, &r->weights));
    QN_TRY(bench_allocate(b, 8 * places, &r->ids));
    QN_TRY(bench_allocate(b, 4 * (size_t)(N * r->spec->E), &r->logits));
    DEVICE_TRY(&b->device, cuMemcpyHtoD, r->bias, r->host_bias, sizeof r->host_bias);
    DEVICE_TRY(&b->device, cuMemsetD32Async, r->given, 0, places, b->stream);
    r->args = (quern_router_args)QUERN_ROUTER_ARGS_INIT;
    r->args.N = N;
    r->args.bias = (const float *)(uintptr_t)r->bias;
    r->args.given_ids = (const int32_t *)(uintptr_t)r->given;
    r->args.weights = (float *)(uintptr_t)r->weights;
    r->args.ids = (void *)(uintptr_t)r->ids;
    r->args.logits = (float *)(uintptr_t)r->logits;
    return QUERN_OK;
}

static quern_status prepare(router_run *r)
{
    const bench *b = &r->t->session.bench;
    quern_router_sizes sizes = QUERN_ROUTER_SIZES_INIT;
    qn_config config;
    if (r->t->config_text) {
        QN_TRY(qn_config_parse(&qn_family_router, r->t->config_text, &config));
        QN_TRY(qn_prepare_config(b->q, &r->any.base, b->device.ordinal, &config, &r->op));
    } else {
        QN_TRY(quern_prepare(b->q, &r->any.base, b->device.ordinal, &r->op));
    }
    sizes.N = r->args.N;
    r->args.workspace_bytes = quern_workspace_size(r->op, &sizes);
    QN_TRY(bench_allocate(b, r->args.workspace_bytes, &r->workspace));
    r->args.workspace = (void *)(uintptr_t)r->workspace;
    QN_TRY(quern_workspace_init(r->op, r->args.workspace, r->args.workspace_bytes, b->stream));
    return device_check(&b->device, "cuStreamSynchronize", b->device.driver->cuStreamSynchronize(b->stream));
}

static void release(router_run *r)
{
    const qn_driver *driver = r->t->session.bench.device.driver;
    CUdeviceptr all[] = {r->x, r->w, r->bias, r->given, r->weights, r->ids, r->logits, r->workspace};
    for (size_t i = 0; i < QN_COUNT(all); i++)
        if (all[i]) (void)driver->cuMemFree(all[i]);
    free(r->host_x);
    free(r->host_w);
    quern_op_release(r->op);
}

static quern_status enqueue(void *user, size_t index, CUstream stream)
{
    router_run *r = user;
    r->args.x = (const void *)(uintptr_t)(r->x + index % r->sets * r->x_bytes);
    r->args.w = (const void *)(uintptr_t)(r->w + index % r->sets * r->w_bytes);
    return quern_router(r->op, &r->args, stream);
}

// ---- the check: ids, but where the dots of two are closer than f32 tells apart, and weights

typedef struct checked_token {
    float weights[MOST_K], want_weights[MOST_K];
    int64_t ids[MOST_K], want_ids[MOST_K]; // of either width
    int32_t given[MOST_K];
    double dot[MOST_E];
} checked_token;

static int64_t id_at(const router_run *r, const int64_t *ids, int64_t k)
{
    return r->spec->index == QUERN_I64 ? ids[k] : ((const int32_t *)ids)[k];
}

static bool is_same(const router_run *r, const checked_token *c)
{
    for (int64_t k = 0; k < r->spec->K; k++) {
        int64_t id = id_at(r, c->ids, k), want = id_at(r, c->want_ids, k);
        if (id < 0 || id >= r->spec->E) return false;
        if (id != want && fabs(c->dot[id] - c->dot[want]) > 2e-5) return false;
        if (!(fabs((double)c->weights[k] - c->want_weights[k]) <= 1e-4 * fabs(c->want_weights[k]) + 1e-37))
            return false;
    }
    return true;
}

static quern_status check_token(const router_run *r, int64_t token, checked_token *c)
{
    const device *d = &r->t->session.bench.device;
    size_t K = (size_t)r->spec->K, at = (size_t)token, width = qn_dtype_bytes(r->spec->index);
    quern_router_args args = QUERN_ROUTER_ARGS_INIT;
    quern_router_spec spec = *r->spec;
    memset(c, 0, sizeof *c);
    DEVICE_TRY(d, cuMemcpyDtoH, c->weights, r->weights + at * K * 4, K * 4);
    if (!spec.given_ids) DEVICE_TRY(d, cuMemcpyDtoH, c->ids, r->ids + at * K * width, K * width);
    args.N = 1, args.w = r->host_w, args.bias = r->host_bias, args.given_ids = c->given;
    args.x = (const char *)r->host_x + at * (size_t)spec.D * qn_dtype_bytes(spec.in);
    args.weights = c->want_weights, args.ids = c->want_ids;
    spec.logits = 0;
    QN_TRY(quern_reference(&spec.base, &args.base));
    qn_router_dots(&spec, &args, 0, c->dot, NULL);
    return is_same(r, c) ? QUERN_OK
                         : qn_fail(QUERN_INTERNAL, "%s, %lld tokens: token %lld is not the reference's", r->spec_text,
                                   (long long)r->args.N, (long long)token);
}

static quern_status check(router_run *r)
{
    const bench *b = &r->t->session.bench;
    int64_t N = r->args.N, count = N < CHECKED ? N : CHECKED;
    checked_token *c = malloc(sizeof *c);
    if (!c) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    quern_status status = enqueue(r, 0, b->stream);
    if (status == QUERN_OK)
        status = device_check(&b->device, "cuStreamSynchronize", b->device.driver->cuStreamSynchronize(b->stream));
    for (int64_t i = 0; i < count && status == QUERN_OK; i++)
        status = check_token(r, count == 1 ? 0 : (N - 1) * i / (count - 1), c);
    free(c);
    return status;
}

// ---- results

static const table_column columns[] = {
    {"N", "N", TABLE_INT, 0},
    {"us", "us_median", TABLE_REAL, 2},
    {"p10", "us_p10", TABLE_REAL, 2},
    {"p90", "us_p90", TABLE_REAL, 2},
    {"GB/s", "gb_per_s", TABLE_REAL, 0},
    {"TFLOP/s", "tflop_per_s", TABLE_REAL, 1},
    {NULL, "sets", TABLE_INT, 0},
    {"spec", "spec", TABLE_TEXT, 0},
    {"best peer", NULL, TABLE_TEXT, 0},
    {"us", NULL, TABLE_REAL, 2},
    {"x us", NULL, TABLE_REAL, 2},
    {"configuration", "configuration", TABLE_TEXT, 0},
    {NULL, "peers", TABLE_JSON, 0},
};

// ---- peers

static quern_status ask_peers(router_run *r, const qn_timing *own, size_t launches, cJSON **answer)
{
    routing_bench *t = r->t;
    const quern_router_spec *s = r->spec;
    quern_gate_spec gate = QUERN_GATE_SPEC_INIT;
    size_t pitch = r->x_bytes + r->w_bytes;
    void *memory;
    QN_TRY(bench_peers_inputs(t->session.peers, ++t->session.inputs, r->sets * pitch, &memory));
    for (size_t i = 0; i < r->sets; i++) {
        memcpy((char *)memory + i * pitch, r->host_x, r->x_bytes);
        memcpy((char *)memory + i * pitch + r->x_bytes, r->host_w, r->w_bytes);
    }
    QN_TRY(enqueue(r, 0, t->session.bench.stream)); // the results of the first copy
    QN_TRY(device_check(&t->session.bench.device, "cuStreamSynchronize",
                        t->session.bench.device.driver->cuStreamSynchronize(t->session.bench.stream)));
    cJSON *request = cJSON_CreateObject();
    cJSON_AddStringToObject(request, "op", "router");
    cJSON *inputs = cJSON_AddObjectToObject(request, "inputs");
    cJSON_AddStringToObject(inputs, "x", qn_dtype_name(s->in));
    cJSON_AddStringToObject(inputs, "w", qn_dtype_name(s->w));
    cJSON_AddNumberToObject(inputs, "rows", (double)r->args.N);
    cJSON_AddNumberToObject(inputs, "D", (double)s->D);
    cJSON_AddNumberToObject(inputs, "transposed", s->w_layout == QUERN_W_DE);
    cJSON_AddNumberToObject(inputs, "copies", (double)r->sets);
    cJSON_AddNumberToObject(inputs, "pitch_bytes", (double)pitch);
    cJSON_AddNumberToObject(inputs, "w_offset", (double)r->x_bytes);
    gate.E = s->E, gate.K = s->K, gate.act = s->act, gate.bias = s->bias, gate.n_group = s->n_group;
    gate.topk_group = s->topk_group, gate.renormalize = s->renormalize, gate.scale = s->scale, gate.index = s->index;
    const routing_case c = {&t->session.bench, &gate,  r->spec_text, r->args.N, r->host_bias,
                            r->weights,        r->ids, launches,     *own};
    return routing_ask(t->session.peers, &c, request, answer);
}

static quern_status time_run(router_run *r, int64_t N)
{
    qn_timing timing;
    quern_router_sizes sizes = QUERN_ROUTER_SIZES_INIT;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    QN_TRY(allocate(r, N));
    QN_TRY(prepare(r));
    QN_TRY(check(r));
    qn_timing_request request = {enqueue, r, qn_timing_launches(r->sets, LEAST_LAUNCHES), r->t->session.bench.repeats};
    QN_TRY(qn_timing_graph(r->t->session.bench.device.driver, &request, &timing));
    sizes.N = N;
    (void)quern_op_describe(r->op, quern_op_variant_for(r->op, &sizes), 0, &info);
    double work = 2.0 * (double)(N * r->spec->D) * (double)r->spec->E;
    cJSON *answer = NULL;
    if (r->t->session.peers && !r->spec->given_ids) QN_TRY(ask_peers(r, &timing, request.launches, &answer));
    const cJSON *best = bench_peers_best(answer);
    char *peers = answer ? cJSON_PrintUnformatted(answer) : NULL;
    table_add(r->t->session.table, N, timing.median_us, timing.low_us, timing.high_us,
              (double)(r->x_bytes + r->w_bytes) / timing.median_us * 1e-3, work / timing.median_us * 1e-6,
              (int64_t)r->sets, r->spec_text, best ? best->string : NULL, bench_peers_number(best, "us_median"),
              bench_peers_number(best, "x_quern"), info.config, peers);
    cJSON_free(peers);
    cJSON_Delete(answer);
    return QUERN_OK;
}

static quern_status run(routing_bench *t, const quern_any_spec *spec, const char *spec_text, int64_t N)
{
    router_run r = {.t = t, .any = *spec, .spec_text = spec_text};
    r.spec = (const quern_router_spec *)&r.any;
    quern_status status = time_run(&r, N);
    release(&r);
    return status;
}

int bench_router(int argc, char **argv)
{
    static routing_bench t = {
        .session = BENCH_SESSION("router", columns),
        .text = text,
        .specs = specs,
        .spec_count = QN_COUNT(specs),
        .default_tokens = default_tokens,
        .default_count = QN_COUNT(default_tokens),
        .tokens_doc = "tokens (default 1,2,4,8,16,32,64,512,4096)",
        .spec_doc = "this spec: 'router D=4096 E=256 K=6 in=bf16 w=bf16'",
        .config_doc = "this configuration: 'plan=tiles sums=whole …'",
        .run = run,
    };
    return routing_bench_main(&t, argc, argv);
}
