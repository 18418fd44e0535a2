// SPDX-License-Identifier: Apache-2.0
// What the benches of gate and router share (bench_routing.h). Called by bench_gate.c and bench_router.c.
#include "bench_routing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/family.h"

// ---- arrays: bias, weights, ids, one after another

static size_t round_up(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static void describe(cJSON *arrays, const char *name, quern_dtype dtype, size_t offset)
{
    cJSON *array = cJSON_AddObjectToObject(arrays, name);
    cJSON_AddStringToObject(array, "dtype", qn_dtype_name(dtype));
    cJSON_AddNumberToObject(array, "offset", (double)offset);
}

static quern_status give_arrays(bench_peers *peers, const routing_case *c, cJSON *arrays)
{
    const device *d = &c->bench->device;
    size_t places = (size_t)(c->N * c->gate->K), E = (size_t)c->gate->E;
    size_t weights = round_up(E * 4), ids = weights + round_up(places * 4), id_bytes = qn_dtype_bytes(c->gate->index);
    void *memory;
    QN_TRY(bench_peers_arrays(peers, ids + places * id_bytes, &memory));
    if (c->gate->bias) memcpy(memory, c->bias, E * 4);
    DEVICE_TRY(d, cuMemcpyDtoH, (char *)memory + weights, c->weights, places * 4);
    DEVICE_TRY(d, cuMemcpyDtoH, (char *)memory + ids, c->ids, places * id_bytes);
    if (c->gate->bias) describe(arrays, "bias", QUERN_F32, 0);
    describe(arrays, "weights", QUERN_F32, weights);
    describe(arrays, "ids", c->gate->index, ids);
    return QUERN_OK;
}

// ---- the message

static quern_status build_request(bench_peers *peers, const routing_case *c, cJSON *request)
{
    static const char *const acts[] = {"sqrt_softplus", "sigmoid", "softmax"};
    const quern_gate_spec *gate = c->gate;
    cJSON_AddNumberToObject(request, "E", (double)gate->E);
    cJSON_AddNumberToObject(request, "K", (double)gate->K);
    cJSON_AddStringToObject(request, "act", acts[gate->act]);
    cJSON_AddNumberToObject(request, "n_group", (double)gate->n_group);
    cJSON_AddNumberToObject(request, "topk_group", (double)gate->topk_group);
    cJSON_AddNumberToObject(request, "renormalize", gate->renormalize);
    cJSON_AddNumberToObject(request, "scale", gate->scale);
    cJSON_AddNumberToObject(request, "launches", (double)c->launches);
    cJSON_AddNumberToObject(request, "repeats", c->bench->repeats);
    return give_arrays(peers, c, cJSON_AddObjectToObject(request, "arrays"));
}

quern_status routing_ask(bench_peers *peers, const routing_case *c, cJSON *request, cJSON **answer)
{
    quern_status status = build_request(peers, c, request);
    if (status != QUERN_OK) {
        cJSON_Delete(request);
        return status;
    }
    status = bench_peers_ask(peers, request, &c->own, answer);
    return status == QUERN_OK ? QUERN_OK : qn_fail_in(status, "%s, %lld tokens", c->spec_text, (long long)c->N);
}

// ---- the bench

static quern_status run_spec(routing_bench *t, const char *text)
{
    quern_any_spec spec;
    char canonical[512];
    QN_TRY(quern_spec_parse(text, &spec));
    QN_TRY(quern_spec_format(&spec.base, canonical, sizeof canonical));
    for (size_t i = 0; i < t->N_count; i++) {
        QN_TRY(t->run(t, &spec, canonical, t->N[i]));
        QN_TRY(bench_session_save(&t->session));
    }
    return QUERN_OK;
}

static quern_status run_specs(void *user)
{
    routing_bench *t = user;
    const char *const *specs = t->spec_text ? &t->spec_text : t->specs;
    const size_t count = t->spec_text ? 1 : t->spec_count;
    for (size_t i = 0; i < count; i++) {
        command_progress(i, count, t->session.name);
        QN_TRY(run_spec(t, specs[i]));
    }
    return QUERN_OK;
}

// "1,8,64"
static quern_status parse_tokens(routing_bench *t)
{
    for (size_t i = 0; !t->tokens && i < t->default_count; i++) t->N[t->N_count++] = t->default_tokens[i];
    for (const char *word = t->tokens && *t->tokens ? t->tokens : NULL; word;) {
        char number[24];
        size_t length = strcspn(word, ",");
        snprintf(number, sizeof number, "%.*s", (int)length, word);
        if (t->N_count == ROUTING_MOST_TOKENS || length >= sizeof number || !qn_parse_int(number, &t->N[t->N_count]) ||
            t->N[t->N_count] < 1 || t->N[t->N_count] > INT32_MAX)
            return qn_fail(QUERN_BAD_VALUE, "--N: '%.*s' is not one of at most %d whole numbers from 1 on", (int)length,
                           word, ROUTING_MOST_TOKENS);
        t->N_count++;
        word = command_next_place(word, length);
    }
    return t->N_count ? QUERN_OK : qn_fail(QUERN_BAD_VALUE, "--N: a list of numbers is needed");
}

static quern_status check_specs(const routing_bench *t)
{
    if (t->spec_text) return bench_check_spec(t->spec_text, t->session.name, t->config_text);
    for (size_t i = 0; t->config_text && i < t->spec_count; i++)
        QN_TRY(bench_check_spec(t->specs[i], t->session.name, t->config_text));
    return QUERN_OK;
}

int routing_bench_main(routing_bench *t, int argc, char **argv)
{
    char usage[64];
    snprintf(usage, sizeof usage, "quern bench %s [options]", t->session.name);
    const command_option options[] = {
        {"N", 0, "LIST", COMMAND_STRING, &t->tokens, 0, 0, t->tokens_doc},
        {"spec", 0, "SPEC", COMMAND_STRING, &t->spec_text, 0, 0, t->spec_doc},
        {"config", 0, "TEXT", COMMAND_STRING, &t->config_text, 0, 0, t->config_doc},
        BENCH_SESSION_OPTIONS(&t->session),
    };
    const command_syntax syntax = {usage, t->text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    if (argc > 1) return command_usage("unexpected operand '%s'", argv[1]);
    quern_status status = parse_tokens(t);
    if (status == QUERN_OK) status = check_specs(t);
    return status == QUERN_OK ? bench_session_run(&t->session, run_specs, t) : command_status(status);
}
