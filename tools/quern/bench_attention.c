// SPDX-License-Identifier: Apache-2.0
// `quern bench attention`: microseconds a call, TFLOP/s and TB/s. Sampled rows are compared with f64 before anything is
// timed. Inputs rotate over more than twice the L2 (a set that is larger than that is one). With --vs torch, torch's
// scaled_dot_product_attention is timed on the same numbers (tools/bench/attention.py).
#include "bench_attention.h"
#include "bench_session.h"

#include <stdio.h>
#include <string.h>

enum { LEAST_LAUNCHES = 8, SHORT_US = 400 };

typedef struct attention_bench {
    bench_session session;
    const char *only, *spec_text, *config_text;
    int64_t B, Hq, Hkv, Sq, Sk;
} attention_bench;

static const char text[] =
    "Times graph replays; us are medians, with the tenth and ninetieth percentile. Masked pairs don't count as\n"
    "work. 'difference' is the largest of sampled rows to f64. Without --spec: head_dims 64 to 576, 16 × 1024 and\n"
    "2 × 8192 tokens, full and causal, and decode. --vs torch also times torch's back ends (tools/bench/peers.py).\n";

#define PREFILL(name, d, heads)                                                                                        \
    {name " full", "attention " d, 2, heads, heads, 8192, 8192, true},                                                 \
        {name " causal", "attention " d " causal=1", 2, heads, heads, 8192, 8192, true},                               \
        {name " full", "attention " d, 16, heads, heads, 1024, 1024, true},                                            \
    {                                                                                                                  \
        name " causal", "attention " d " causal=1", 16, heads, heads, 1024, 1024, true                                 \
    }
#define DECODE(d)                                                                                                      \
    {"decode d=" d, "attention d=" d, 32, 32, 8, 1, 8192, true},                                                       \
        {"decode d=" d, "attention d=" d, 1, 32, 8, 1, 32768, true},                                                   \
    {                                                                                                                  \
        "decode d=" d, "attention d=" d, 64, 64, 1, 1, 4096, true                                                      \
    }
static const attention_shape shapes[] = {
    PREFILL("prefill d=64", "d=64", 32),
    PREFILL("prefill d=128", "d=128", 16),
    PREFILL("prefill d=192", "d=192", 10),
    PREFILL("prefill d=192/128", "d=192 dv=128", 10),
    PREFILL("prefill d=256", "d=256", 8),
    PREFILL("prefill d=512", "d=512", 8),
    DECODE("64"),
    DECODE("128"),
    DECODE("256"),
    DECODE("512"),
    {"decode mla", "attention d=576 dv=512 kv_alias=1", 8, 64, 1, 1, 8192, false},
    {"decode mla", "attention d=576 dv=512 kv_alias=1", 1, 128, 1, 1, 131072, false},
};

// ---- one shape on the device

static quern_status parse_spec(attention_run *r)
{
    quern_any_spec given;
    const qn_family *family;
    QN_TRY(quern_spec_parse(r->shape->spec, &given));
    QN_TRY(quern_spec_format(&given.base, r->spec_text, sizeof r->spec_text));
    QN_TRY(qn_spec_complete(&given.base, &family, &r->any));
    r->spec = (const quern_attention_spec *)&r->any;
    if (strcmp(family->name, "attention") != 0 || r->spec->layout != QUERN_LAYOUT_DENSE || r->spec->length_k ||
        r->spec->sink || r->spec->lse || r->spec->softcap != 0)
        return qn_fail(QUERN_BAD_VALUE, "--spec: '%s' is not attention, dense, without length_k, sink, softcap and lse",
                       r->shape->spec);
    return QUERN_OK;
}

static quern_status prepare(attention_run *r, const char *config_text)
{
    const bench *b = r->bench;
    qn_config config;
    if (!config_text) return quern_prepare(b->q, &r->any.base, b->device.ordinal, &r->op);
    QN_TRY(qn_config_parse(&qn_family_attention, config_text, &config));
    return qn_prepare_config(b->q, &r->any.base, b->device.ordinal, &config, &r->op);
}

static quern_status fill_args(attention_run *r, quern_attention_sizes *sizes)
{
    const attention_shape *s = r->shape;
    r->args = (quern_attention_args)QUERN_ATTENTION_ARGS_INIT;
    r->args.B = s->B, r->args.Sq = s->Sq, r->args.Sk = s->Sk, r->args.Hq = s->Hq, r->args.Hkv = s->Hkv;
    r->args.out = (void *)(uintptr_t)r->tensor[3];
    qn_family_attention.sizes_of(&r->args.base, sizes);
    size_t bytes = quern_workspace_size(r->op, sizes);
    if (bytes == 0) return QUERN_OK;
    QN_TRY(bench_allocate(r->bench, bytes, &r->workspace));
    r->args.workspace = (void *)(uintptr_t)r->workspace, r->args.workspace_bytes = bytes;
    return quern_workspace_init(r->op, r->args.workspace, bytes, r->bench->stream);
}

static quern_status enqueue(void *user, size_t index, CUstream stream)
{
    attention_run *r = user;
    size_t copy = index % r->copies;
    const void *tensor[3];
    for (int i = 0; i < 3; i++) tensor[i] = (const void *)(uintptr_t)(r->tensor[i] + 2 * copy * r->elements[i]);
    r->args.q = tensor[0], r->args.k = tensor[1], r->args.v = tensor[2];
    return quern_attention(r->op, &r->args, stream);
}

static quern_status run_once(attention_run *r)
{
    const device *d = &r->bench->device;
    QN_TRY(enqueue(r, 0, r->bench->stream));
    return device_check(d, "cuStreamSynchronize", d->driver->cuStreamSynchronize(r->bench->stream));
}

// Long calls need few launches a replay; one launch alone tells which are.
static quern_status time_run(attention_run *r, qn_timing *timing, size_t *launches)
{
    qn_timing_request request = {enqueue, r, 1, 3};
    *launches = qn_timing_launches(r->copies, LEAST_LAUNCHES);
    QN_TRY(qn_timing_graph(r->bench->device.driver, &request, timing));
    if (timing->median_us > SHORT_US) *launches = qn_timing_launches(r->copies, 2);
    request.launches = *launches, request.repeats = r->bench->repeats;
    return qn_timing_graph(r->bench->device.driver, &request, timing);
}

// ---- peers

static cJSON *request_json(const attention_run *r, size_t launches)
{
    const attention_shape *s = r->shape;
    cJSON *request = cJSON_CreateObject();
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"B", (double)s->B},           {"Hq", (double)s->Hq},          {"Hkv", (double)s->Hkv},
                   {"Sq", (double)s->Sq},         {"Sk", (double)s->Sk},          {"d", (double)r->spec->d},
                   {"dv", (double)r->spec->dv},   {"causal", r->spec->causal},    {"piece", ATTENTION_PIECE},
                   {"copies", (double)r->copies}, {"launches", (double)launches}, {"repeats", r->bench->repeats}};
    cJSON_AddStringToObject(request, "op", "attention");
    cJSON_AddStringToObject(request, "dtype", r->spec->in == QUERN_F16 ? "f16" : "bf16");
    for (size_t i = 0; i < QN_COUNT(numbers); i++) cJSON_AddNumberToObject(request, numbers[i].name, numbers[i].value);
    cJSON *offsets = cJSON_AddArrayToObject(request, "offsets"); // [copy][q, k, v]
    for (size_t copy = 0; copy < r->copies; copy++)
        for (int i = 0; i < 3; i++)
            cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)attention_offset(i, copy)));
    cJSON *rows = cJSON_AddArrayToObject(request, "rows"); // [sample][sequence, query, head]
    for (int i = 0; i < ATTENTION_SAMPLES; i++) {
        int64_t at[3];
        attention_sample(r, i, at);
        for (int k = 0; k < 3; k++) cJSON_AddItemToArray(rows, cJSON_CreateNumber((double)at[k]));
    }
    return request;
}

static quern_status ask_peers(attention_bench *t, attention_run *r, size_t launches, const qn_timing *own,
                              cJSON **answer)
{
    void *memory;
    QN_TRY(bench_peers_inputs(t->session.peers, ++t->session.inputs, 2 * ATTENTION_PIECE, &memory));
    if (memory) memcpy(memory, attention_piece(r->spec->in), 2 * ATTENTION_PIECE);
    return bench_peers_ask(t->session.peers, request_json(r, launches), own, answer);
}

// ---- results

static const table_column columns[] = {
    {"shape", "shape", TABLE_TEXT, 0},
    {"us", "us_median", TABLE_REAL, 1},
    {"p10", "us_p10", TABLE_REAL, 1},
    {"p90", "us_p90", TABLE_REAL, 1},
    {"TFLOP/s", "tflop_per_s", TABLE_REAL, 0},
    {"TB/s", "tb_per_s", TABLE_REAL, 2},
    {"difference", "difference", TABLE_REAL, 5},
    {"best peer", "best_peer", TABLE_TEXT, 0},
    {"us", "best_peer_us", TABLE_REAL, 1},
    {"difference", "best_peer_difference", TABLE_REAL, 5},
    {"spec", "spec", TABLE_TEXT, 0},
    {"configuration", "configuration", TABLE_TEXT, 0},
    {NULL, "peers", TABLE_JSON, 0},
};

static void add_row(attention_bench *t, const attention_run *r, const qn_timing *timing, const char *config,
                    const cJSON *answer)
{
    char shape[96];
    const cJSON *best = bench_peers_best(answer);
    char *peers = answer ? cJSON_PrintUnformatted(answer) : NULL;
    const attention_shape *s = r->shape;
    snprintf(shape, sizeof shape, "%lld × %lld on %lld heads, %lld × %lld", (long long)s->B, (long long)s->Hq,
             (long long)s->Hkv, (long long)s->Sq, (long long)s->Sk);
    table_add(t->session.table, shape, timing->median_us, timing->low_us, timing->high_us,
              attention_flop(r) / timing->median_us * 1e-6, attention_bytes(r) / timing->median_us * 1e-6,
              r->difference, best ? best->string : NULL, bench_peers_number(best, "us_median"),
              bench_peers_number(best, "difference"), r->spec_text, config, peers);
    cJSON_free(peers);
}

static quern_status measure(attention_bench *t, attention_run *r)
{
    qn_timing timing;
    size_t launches;
    cJSON *answer = NULL;
    quern_attention_sizes sizes;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    QN_TRY(parse_spec(r));
    QN_TRY(prepare(r, t->config_text));
    QN_TRY(attention_make_inputs(r));
    QN_TRY(fill_args(r, &sizes));
    QN_TRY(run_once(r));
    QN_TRY(attention_check(r));
    QN_TRY(time_run(r, &timing, &launches));
    (void)quern_op_describe(r->op, quern_op_variant_for(r->op, &sizes), 0, &info);
    if (t->session.peers && r->shape->peers) QN_TRY(ask_peers(t, r, launches, &timing, &answer));
    add_row(t, r, &timing, info.config, answer);
    cJSON_Delete(answer);
    return bench_session_save(&t->session);
}

static quern_status run_shape(attention_bench *t, const attention_shape *shape)
{
    attention_run r = {.bench = &t->session.bench, .shape = shape};
    quern_status status = measure(t, &r);
    attention_free_inputs(&r);
    quern_op_release(r.op);
    return status;
}

static quern_status run_shapes(void *user)
{
    attention_bench *t = user;
    const attention_shape given = {"given", t->spec_text, t->B, t->Hq, t->Hkv, t->Sq, t->Sk, true};
    if (t->spec_text) return run_shape(t, &given);
    for (size_t i = 0; i < QN_COUNT(shapes); i++) {
        if (t->only && !strstr(shapes[i].name, t->only)) continue;
        command_progress(i, QN_COUNT(shapes), shapes[i].name);
        QN_TRY(run_shape(t, &shapes[i]));
    }
    return QUERN_OK;
}

int bench_attention(int argc, char **argv)
{
    static attention_bench t = {
        .session = BENCH_SESSION("attention", columns), .B = 1, .Hq = 16, .Hkv = 16, .Sq = 1024, .Sk = 1024};
    const int64_t most = INT32_MAX;
    const command_option options[] = {
        {"only", 0, "TEXT", COMMAND_STRING, &t.only, 0, 0,
         "rows whose name has this: 'prefill d=128', 'decode', 'mla'"},
        {"spec", 0, "SPEC", COMMAND_STRING, &t.spec_text, 0, 0, "this spec, with the sizes below"},
        {"B", 0, "N", COMMAND_NUMBER, &t.B, 1, most, "sequences (1)"},
        {"Hq", 0, "N", COMMAND_NUMBER, &t.Hq, 1, most, "query heads (16)"},
        {"Hkv", 0, "N", COMMAND_NUMBER, &t.Hkv, 1, most, "KV heads (16)"},
        {"Sq", 0, "N", COMMAND_NUMBER, &t.Sq, 1, most, "queries a sequence (1024)"},
        {"Sk", 0, "N", COMMAND_NUMBER, &t.Sk, 1, most, "keys a sequence (1024)"},
        {"config", 0, "TEXT", COMMAND_STRING, &t.config_text, 0, 0, "this configuration: 'plan=prefill rows=64 …'"},
        BENCH_SESSION_OPTIONS(&t.session),
    };
    const command_syntax syntax = {"quern bench attention [options]", text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc > 1) return command_usage("unexpected operand '%s'", argv[1]);
    quern_status status = t.spec_text ? bench_check_spec(t.spec_text, "attention", t.config_text) : QUERN_OK;
    return status == QUERN_OK ? bench_session_run(&t.session, run_shapes, &t) : command_status(status);
}
