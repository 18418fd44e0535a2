// SPDX-License-Identifier: Apache-2.0
// `quern bench gate`: microseconds a call. Results are checked against the host reference before anything is timed.
// Inputs of up to 512 tokens rotate over 64 sets, which an L2 keeps, as a decode step finds its logits there; larger ones
// over more than twice the L2.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_routing.h"
#include "runtime/runtime.h"

enum { SMALL = 512, SETS = 64, CHECKED = 16, LEAST_LAUNCHES = 32, MOST_E = 1024 };

static const char text[] =
    "Times graph replays of many launches; us are medians, with the tenth and ninetieth percentile. Results\n"
    "are checked against the host reference first. Without --spec: the shapes of the models that serve this way\n"
    "of routing. With --vs a Python process times other libraries on the same inputs: 'best peer' is the fastest,\n"
    "'x us' how many of our calls it takes.\n";

static const char *const specs[] = {
    "gate E=256 K=6 in=f32 bias=1",  "gate E=384 K=6 in=f32 bias=1",
    "gate E=256 K=8 in=f32 bias=1",  "gate E=256 K=8 in=f32 act=sigmoid bias=1 n_group=8 topk_group=4 scale=2.5",
    "gate E=256 K=6 in=bf16 bias=1", "gate E=128 K=8 in=bf16 act=softmax",
};
static const int64_t default_tokens[] = {1, 64, 512, 4096, 16384};

// ---- one spec and number of tokens on the device

typedef struct gate_run {
    routing_bench *t;
    quern_any_spec any;
    const quern_gate_spec *spec;
    const char *spec_text;
    quern_op *op;
    bench_data data; // all sets one after another as one copy of [sets · N, E]
    size_t sets, set_bytes;
    quern_gate_args args;
    CUdeviceptr bias, given, weights, ids;
    float host_bias[MOST_E];
} gate_run;

static quern_status allocate_bias(gate_run *r)
{
    const bench *b = &r->t->session.bench;
    for (int e = 0; e < MOST_E; e++) r->host_bias[e] = (float)(e * 37 % 101 - 50) / 500.0f;
    QN_TRY(bench_allocate(b, sizeof r->host_bias, &r->bias));
    DEVICE_TRY(&b->device, cuMemcpyHtoD, r->bias, r->host_bias, sizeof r->host_bias);
    return QUERN_OK;
}

static quern_status allocate(gate_run *r, int64_t N)
{
    const bench *b = &r->t->session.bench;
    size_t places = (size_t)N * (size_t)r->spec->K;
    QN_TRY(allocate_bias(r));
    QN_TRY(bench_allocate(b, 4 * places, &r->given));
    QN_TRY(bench_allocate(b, 4 * places, &r->weights));
    QN_TRY(bench_allocate(b, 8 * places, &r->ids));
    DEVICE_TRY(&b->device, cuMemsetD32Async, r->given, 0, places, b->stream);
    r->set_bytes = (size_t)(N * r->spec->E) * qn_dtype_bytes(r->spec->in);
    r->sets = N <= SMALL ? SETS : qn_timing_copies(b->device.l2_bytes, r->set_bytes);
    r->data = (bench_data){.kind = BENCH_RANDOM, .dtype = r->spec->in, .rows = N * (int64_t)r->sets, .V = r->spec->E};
    QN_TRY(bench_data_make(b, &r->data));
    r->args = (quern_gate_args)QUERN_GATE_ARGS_INIT;
    r->args.N = N;
    r->args.bias = (const float *)(uintptr_t)r->bias;
    r->args.given_ids = (const int32_t *)(uintptr_t)r->given;
    r->args.weights = (float *)(uintptr_t)r->weights;
    r->args.ids = (void *)(uintptr_t)r->ids;
    return QUERN_OK;
}

static quern_status prepare(gate_run *r)
{
    const bench *b = &r->t->session.bench;
    qn_config config;
    const qn_family *family;
    if (!r->t->config_text) return quern_prepare(b->q, &r->any.base, b->device.ordinal, &r->op);
    QN_TRY(qn_family_find("gate", &family));
    QN_TRY(qn_config_parse(family, r->t->config_text, &config));
    return qn_prepare_config(b->q, &r->any.base, b->device.ordinal, &config, &r->op);
}

static void release(gate_run *r)
{
    const qn_driver *driver = r->t->session.bench.device.driver;
    CUdeviceptr all[] = {r->bias, r->given, r->weights, r->ids};
    for (size_t i = 0; i < QN_COUNT(all); i++)
        if (all[i]) (void)driver->cuMemFree(all[i]);
    bench_data_free(&r->t->session.bench, &r->data);
    quern_op_release(r->op);
}

static quern_status enqueue(void *user, size_t index, CUstream stream)
{
    gate_run *r = user;
    r->args.logits = (const void *)(uintptr_t)(r->data.base + index % r->sets * r->set_bytes);
    return quern_gate(r->op, &r->args, stream);
}

// ---- the check: ids exactly, weights to 2e-5, which tells a wrong result from rounding

typedef struct checked_token {
    unsigned char logits[4 * MOST_E];
    float weights[32], want_weights[32];
    int64_t ids[32], want_ids[32]; // of either width
    int32_t given[32];
} checked_token;

static quern_status check_token(const gate_run *r, int64_t token, checked_token *c)
{
    const device *d = &r->t->session.bench.device;
    size_t K = (size_t)r->spec->K, row = (size_t)r->spec->E * qn_dtype_bytes(r->spec->in), at = (size_t)token;
    size_t width = qn_dtype_bytes(r->spec->index);
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    memset(c, 0, sizeof *c);
    DEVICE_TRY(d, cuMemcpyDtoH, c->logits, r->data.base + at * row, row);
    DEVICE_TRY(d, cuMemcpyDtoH, c->weights, r->weights + at * K * 4, K * 4);
    if (!r->spec->given_ids) DEVICE_TRY(d, cuMemcpyDtoH, c->ids, r->ids + at * K * width, K * width);
    args.N = 1, args.logits = c->logits, args.bias = r->host_bias, args.given_ids = c->given;
    args.weights = c->want_weights, args.ids = c->want_ids;
    QN_TRY(quern_reference(&r->any.base, &args.base));
    bool same = memcmp(c->ids, c->want_ids, K * width) == 0;
    for (size_t k = 0; k < K; k++) {
        double got = c->weights[k], want = c->want_weights[k];
        same = same && fabs(got - want) <= 2e-5 * fabs(want) + 1e-37;
    }
    return same ? QUERN_OK
                : qn_fail(QUERN_INTERNAL, "%s, %lld tokens: token %lld is not the reference's", r->spec_text,
                          (long long)r->args.N, (long long)token);
}

static quern_status check(gate_run *r)
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
    {NULL, "sets", TABLE_INT, 0},
    {"spec", "spec", TABLE_TEXT, 0},
    {"best peer", NULL, TABLE_TEXT, 0},
    {"us", NULL, TABLE_REAL, 2},
    {"x us", NULL, TABLE_REAL, 2},
    {"configuration", "configuration", TABLE_TEXT, 0},
    {NULL, "peers", TABLE_JSON, 0},
};

// ---- peers

static quern_status ask_peers(gate_run *r, const qn_timing *own, size_t launches, cJSON **answer)
{
    routing_bench *t = r->t;
    const device *d = &t->session.bench.device;
    void *memory;
    QN_TRY(bench_peers_inputs(t->session.peers, ++t->session.inputs, r->sets * r->set_bytes, &memory));
    DEVICE_TRY(d, cuMemcpyDtoH, memory, r->data.base, r->sets * r->set_bytes);
    QN_TRY(enqueue(r, 0, t->session.bench.stream)); // the results of the first copy
    QN_TRY(device_check(d, "cuStreamSynchronize", d->driver->cuStreamSynchronize(t->session.bench.stream)));
    cJSON *request = cJSON_CreateObject();
    cJSON_AddStringToObject(request, "op", "gate");
    cJSON *inputs = cJSON_AddObjectToObject(request, "inputs");
    cJSON_AddStringToObject(inputs, "dtype", qn_dtype_name(r->spec->in));
    cJSON_AddNumberToObject(inputs, "rows", (double)r->args.N);
    cJSON_AddNumberToObject(inputs, "copies", (double)r->sets);
    cJSON_AddNumberToObject(inputs, "pitch_bytes", (double)r->set_bytes);
    const routing_case c = {&t->session.bench, r->spec, r->spec_text, r->args.N, r->host_bias,
                            r->weights,        r->ids,  launches,     *own};
    return routing_ask(t->session.peers, &c, request, answer);
}

static quern_status time_run(gate_run *r, int64_t N)
{
    qn_timing timing;
    quern_gate_sizes sizes = QUERN_GATE_SIZES_INIT;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    QN_TRY(allocate(r, N));
    QN_TRY(prepare(r));
    QN_TRY(check(r));
    qn_timing_request request = {enqueue, r, qn_timing_launches(r->sets, LEAST_LAUNCHES), r->t->session.bench.repeats};
    QN_TRY(qn_timing_graph(r->t->session.bench.device.driver, &request, &timing));
    sizes.N = N;
    (void)quern_op_describe(r->op, quern_op_variant_for(r->op, &sizes), 0, &info);
    cJSON *answer = NULL;
    if (r->t->session.peers && !r->spec->given_ids) QN_TRY(ask_peers(r, &timing, request.launches, &answer));
    const cJSON *best = bench_peers_best(answer);
    char *peers = answer ? cJSON_PrintUnformatted(answer) : NULL;
    table_add(r->t->session.table, N, timing.median_us, timing.low_us, timing.high_us,
              (double)r->set_bytes / timing.median_us * 1e-3, (int64_t)r->sets, r->spec_text,
              best ? best->string : NULL, bench_peers_number(best, "us_median"), bench_peers_number(best, "x_quern"),
              info.config, peers);
    cJSON_free(peers);
    cJSON_Delete(answer);
    return QUERN_OK;
}

static quern_status run(routing_bench *t, const quern_any_spec *spec, const char *spec_text, int64_t N)
{
    gate_run r = {.t = t, .any = *spec, .spec_text = spec_text};
    r.spec = (const quern_gate_spec *)&r.any;
    quern_status status = time_run(&r, N);
    release(&r);
    return status;
}

int bench_gate(int argc, char **argv)
{
    static routing_bench t = {
        .session = BENCH_SESSION("gate", columns),
        .text = text,
        .specs = specs,
        .spec_count = QN_COUNT(specs),
        .default_tokens = default_tokens,
        .default_count = QN_COUNT(default_tokens),
        .tokens_doc = "tokens (default 1,64,512,4096,16384)",
        .spec_doc = "this spec: 'gate E=256 K=6 in=f32 bias=1'",
        .config_doc = "this configuration: 'plan=lanes lanes=8 …'",
        .run = run,
    };
    return routing_bench_main(&t, argc, argv);
}
