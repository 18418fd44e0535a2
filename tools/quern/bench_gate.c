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

enum { MOST_TOKENS = 32, MOST_SPECS = 16, SMALL = 512, SETS = 64, CHECKED = 16, LEAST_LAUNCHES = 32, MOST_E = 1024 };

typedef struct gate_bench {
    bench bench;
    command_settings settings;
    const char *tokens, *spec_text, *config_text;
    int64_t N[MOST_TOKENS];
    size_t N_count;
    table *table;
    routing_peers peers;
} gate_bench;

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
    gate_bench *t;
    quern_any_spec any;
    const quern_gate_spec *spec;
    char spec_text[512];
    quern_op *op;
    bench_data data; // all sets one after another as one copy of [sets · N, E]
    size_t sets, set_bytes;
    quern_gate_args args;
    CUdeviceptr bias, given, weights, ids;
    float host_bias[MOST_E];
} gate_run;

static quern_status allocate_bias(gate_run *r)
{
    const bench *b = &r->t->bench;
    for (int e = 0; e < MOST_E; e++) r->host_bias[e] = (float)(e * 37 % 101 - 50) / 500.0f;
    QN_TRY(bench_allocate(b, sizeof r->host_bias, &r->bias));
    DEVICE_TRY(&b->device, cuMemcpyHtoD, r->bias, r->host_bias, sizeof r->host_bias);
    return QUERN_OK;
}

static quern_status allocate(gate_run *r, int64_t N)
{
    const bench *b = &r->t->bench;
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
    const bench *b = &r->t->bench;
    qn_config config;
    const qn_family *family;
    if (!r->t->config_text) return quern_prepare(b->q, &r->any.base, b->device.ordinal, &r->op);
    QN_TRY(qn_family_find("gate", &family));
    QN_TRY(qn_config_parse(family, r->t->config_text, &config));
    return qn_prepare_config(b->q, &r->any.base, b->device.ordinal, &config, &r->op);
}

static void release(gate_run *r)
{
    const qn_driver *driver = r->t->bench.device.driver;
    CUdeviceptr all[] = {r->bias, r->given, r->weights, r->ids};
    for (size_t i = 0; i < QN_COUNT(all); i++)
        if (all[i]) (void)driver->cuMemFree(all[i]);
    bench_data_free(&r->t->bench, &r->data);
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
    const device *d = &r->t->bench.device;
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
    const bench *b = &r->t->bench;
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
    gate_bench *t = r->t;
    const device *d = &t->bench.device;
    void *memory;
    QN_TRY(bench_peers_inputs(t->peers.peers, ++t->peers.number, r->sets * r->set_bytes, &memory));
    DEVICE_TRY(d, cuMemcpyDtoH, memory, r->data.base, r->sets * r->set_bytes);
    QN_TRY(enqueue(r, 0, t->bench.stream)); // the results of the first copy
    QN_TRY(device_check(d, "cuStreamSynchronize", d->driver->cuStreamSynchronize(t->bench.stream)));
    cJSON *request = cJSON_CreateObject();
    cJSON_AddStringToObject(request, "op", "gate");
    cJSON *inputs = cJSON_AddObjectToObject(request, "inputs");
    cJSON_AddStringToObject(inputs, "dtype", qn_dtype_name(r->spec->in));
    cJSON_AddNumberToObject(inputs, "rows", (double)r->args.N);
    cJSON_AddNumberToObject(inputs, "copies", (double)r->sets);
    cJSON_AddNumberToObject(inputs, "pitch_bytes", (double)r->set_bytes);
    const routing_case c = {&t->bench,  r->spec, r->spec_text, r->args.N, r->host_bias,
                            r->weights, r->ids,  launches,     *own};
    return routing_ask(&t->peers, &c, request, answer);
}

static quern_status time_run(gate_run *r, int64_t N)
{
    qn_timing timing;
    quern_gate_sizes sizes = QUERN_GATE_SIZES_INIT;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    QN_TRY(allocate(r, N));
    QN_TRY(prepare(r));
    QN_TRY(check(r));
    qn_timing_request request = {enqueue, r, qn_timing_launches(r->sets, LEAST_LAUNCHES), r->t->bench.repeats};
    QN_TRY(qn_timing_graph(r->t->bench.device.driver, &request, &timing));
    sizes.N = N;
    (void)quern_op_describe(r->op, quern_op_variant_for(r->op, &sizes), 0, &info);
    double peer_us, x_quern;
    cJSON *answer = NULL;
    if (r->t->peers.peers && !r->spec->given_ids) QN_TRY(ask_peers(r, &timing, request.launches, &answer));
    const char *best = routing_best(answer, &peer_us, &x_quern);
    char *peers = answer ? cJSON_PrintUnformatted(answer) : NULL;
    table_add(r->t->table, N, timing.median_us, timing.low_us, timing.high_us,
              (double)r->set_bytes / timing.median_us * 1e-3, (int64_t)r->sets, r->spec_text, best, peer_us, x_quern,
              info.config, peers);
    cJSON_free(peers);
    cJSON_Delete(answer);
    return QUERN_OK;
}

static quern_status run_spec(gate_bench *t, const char *spec_text)
{
    for (size_t i = 0; i < t->N_count; i++) {
        gate_run r = {.t = t};
        QN_TRY(quern_spec_parse(spec_text, &r.any));
        r.spec = (const quern_gate_spec *)&r.any;
        QN_TRY(quern_spec_format(&r.any.base, r.spec_text, sizeof r.spec_text));
        quern_status status = time_run(&r, t->N[i]);
        release(&r);
        QN_TRY(status);
    }
    return QUERN_OK;
}

static quern_status run_specs(gate_bench *t)
{
    if (t->spec_text) return run_spec(t, t->spec_text);
    for (size_t i = 0; i < QN_COUNT(specs); i++) {
        command_progress(i, QN_COUNT(specs), "gate");
        QN_TRY(run_spec(t, specs[i]));
    }
    command_progress_end();
    return QUERN_OK;
}

// "1,8,64"
static quern_status parse_tokens(gate_bench *t)
{
    for (size_t i = 0; !t->tokens && i < QN_COUNT(default_tokens); i++) t->N[t->N_count++] = default_tokens[i];
    for (const char *word = t->tokens; word && *word;) {
        char number[24];
        size_t length = strcspn(word, ",");
        snprintf(number, sizeof number, "%.*s", (int)length, word);
        if (t->N_count == MOST_TOKENS || length >= sizeof number || !qn_parse_int(number, &t->N[t->N_count]) ||
            t->N[t->N_count] < 1 || t->N[t->N_count] > INT32_MAX)
            return qn_fail(QUERN_BAD_VALUE, "--N: '%.*s' is not one of at most %d whole numbers from 1 on", (int)length,
                           word, MOST_TOKENS);
        t->N_count++;
        word += length + (word[length] == ',');
    }
    return t->N_count ? QUERN_OK : qn_fail(QUERN_BAD_VALUE, "--N: a list of numbers is needed");
}

static void print_results(const gate_bench *t)
{
    if (t->settings.json) {
        cJSON *document = bench_document("gate", &t->bench.device);
        cJSON_AddNumberToObject(document, "repeats", t->bench.repeats);
        if (t->peers.peers)
            cJSON_AddItemToObject(document, "peers", cJSON_Duplicate(bench_peers_hello(t->peers.peers), true));
        cJSON_AddItemToObject(document, "rows", table_json(t->table));
        json_print(document);
    } else {
        bench_print_head("gate", &t->bench.device);
        printf("%d repeats\n\n", t->bench.repeats);
        table_print(t->table);
    }
}

// What was measured before a failure is printed all the same.
static int run_bench(gate_bench *t, const char *where, int64_t repeats)
{
    int ordinal;
    if (!device_parse(where, &ordinal)) return command_usage("--device %s: gpu or gpu:N is needed", where);
    quern_status status = parse_tokens(t);
    for (size_t i = 0; status == QUERN_OK && !t->spec_text && t->config_text && i < QN_COUNT(specs); i++)
        status = bench_check_spec(specs[i], "gate", t->config_text);
    if (status == QUERN_OK && t->spec_text) status = bench_check_spec(t->spec_text, "gate", t->config_text);
    if (status == QUERN_OK) status = bench_open(&t->settings, ordinal, (int)repeats, &t->bench);
    if (status == QUERN_OK) status = routing_open(&t->peers, &t->bench);
    if (status != QUERN_OK) return command_status(status);
    t->table = table_create(columns, QN_COUNT(columns));
    status = run_specs(t);
    print_results(t);
    int exit_status = status == QUERN_OK ? COMMAND_OK : command_status(status);
    table_destroy(t->table);
    routing_close(&t->peers);
    bench_close(&t->bench);
    return exit_status;
}

int bench_gate(int argc, char **argv)
{
    static gate_bench t = {.peers.options.python = "python3"};
    const char *where = "gpu";
    int64_t repeats = 20;
    const command_option options[] = {
        {"N", 0, "LIST", COMMAND_STRING, &t.tokens, 0, 0, "tokens (default 1,64,512,4096,16384)"},
        {"spec", 0, "SPEC", COMMAND_STRING, &t.spec_text, 0, 0, "this spec: 'gate E=256 K=6 in=f32 bias=1'"},
        {"config", 0, "TEXT", COMMAND_STRING, &t.config_text, 0, 0, "this configuration: 'plan=lanes lanes=8 …'"},
        {"repeat", 0, "N", COMMAND_NUMBER, &repeats, 1, QN_TIMING_MAX_REPEATS, "measured replays of each graph (20)"},
        {"vs", 0, "PEERS", COMMAND_STRING, &t.peers.options.which, 0, 0, "torch: what Python has, timed beside"},
        {"python", 0, "FILE", COMMAND_STRING, &t.peers.options.python, 0, 0, "its interpreter (default python3)"},
        {"peers", 0, "FILE", COMMAND_STRING, &t.peers.options.script, 0, 0, "peers.py, where it is not found"},
        {"device", 0, "WHERE", COMMAND_STRING, &where, 0, 0, "gpu (default) or gpu:N"},
        COMMAND_OPTION_DB(&t.settings.db),
        COMMAND_OPTION_JSON(&t.settings.json),
        COMMAND_OPTION_VERBOSE(&t.settings.verbose),
        COMMAND_OPTION_END,
    };
    const command_syntax syntax = {"quern bench gate [options]", text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc > 1) return command_usage("unexpected operand '%s'", argv[1]);
    return run_bench(&t, where, repeats);
}
