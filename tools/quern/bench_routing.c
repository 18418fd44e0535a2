// SPDX-License-Identifier: Apache-2.0
// Peers of gate and router (bench_routing.h). Called by bench_gate.c and bench_router.c.
#include "bench_routing.h"

#include <math.h>
#include <string.h>

#include "ops/family.h"

quern_status routing_open(routing_peers *p, const bench *b)
{
    if (!p->options.which) return QUERN_OK;
    p->options.device = b->device.ordinal;
    return bench_peers_start(&p->options, &p->peers);
}

void routing_close(routing_peers *p)
{
    bench_peers_stop(p->peers);
    p->peers = NULL;
}

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

static quern_status give_arrays(routing_peers *p, const routing_case *c, cJSON *arrays)
{
    const device *d = &c->bench->device;
    size_t places = (size_t)(c->N * c->gate->K), E = (size_t)c->gate->E;
    size_t weights = round_up(E * 4), ids = weights + round_up(places * 4), id_bytes = qn_dtype_bytes(c->gate->index);
    void *memory;
    QN_TRY(bench_peers_arrays(p->peers, ids + places * id_bytes, &memory));
    if (c->gate->bias) memcpy(memory, c->bias, E * 4);
    DEVICE_TRY(d, cuMemcpyDtoH, (char *)memory + weights, c->weights, places * 4);
    DEVICE_TRY(d, cuMemcpyDtoH, (char *)memory + ids, c->ids, places * id_bytes);
    if (c->gate->bias) describe(arrays, "bias", QUERN_F32, 0);
    describe(arrays, "weights", QUERN_F32, weights);
    describe(arrays, "ids", c->gate->index, ids);
    return QUERN_OK;
}

// ---- the message

static quern_status build_request(routing_peers *p, const routing_case *c, cJSON *request)
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
    return give_arrays(p, c, cJSON_AddObjectToObject(request, "arrays"));
}

// ---- the answer

static double number_of(const cJSON *object, const char *name)
{
    const cJSON *number = cJSON_GetObjectItem(object, name);
    return cJSON_IsNumber(number) ? number->valuedouble : 0;
}

// How many of Quern's calls a peer's call takes: of the medians, and from the best for it to the worst.
static void add_ratios(cJSON *peer, const qn_timing *own)
{
    double us = number_of(peer, "us_median");
    if (us <= 0) return; // an error
    cJSON_AddNumberToObject(peer, "x_quern", bench_rounded(us / own->median_us));
    cJSON_AddNumberToObject(peer, "x_quern_low", bench_rounded(number_of(peer, "us_p10") / own->high_us));
    cJSON_AddNumberToObject(peer, "x_quern_high", bench_rounded(number_of(peer, "us_p90") / own->low_us));
}

quern_status routing_ask(routing_peers *p, const routing_case *c, cJSON *request, cJSON **answer)
{
    cJSON *whole = NULL, *peer;
    quern_status status = build_request(p, c, request);
    if (status != QUERN_OK) {
        cJSON_Delete(request);
        return status;
    }
    status = bench_peers_ask(p->peers, request, &whole);
    if (status != QUERN_OK) return qn_fail_in(status, "%s, %lld tokens", c->spec_text, (long long)c->N);
    *answer = cJSON_DetachItemFromObject(whole, "peers");
    cJSON_Delete(whole);
    cJSON_ArrayForEach(peer, *answer) add_ratios(peer, &c->own);
    return QUERN_OK;
}

const char *routing_best(const cJSON *answer, double *us, double *x_quern)
{
    const cJSON *peer, *best = NULL;
    cJSON_ArrayForEach(peer, answer)
    {
        double own = number_of(peer, "us_median");
        if (own > 0 && (!best || own < number_of(best, "us_median"))) best = peer;
    }
    *us = best ? number_of(best, "us_median") : NAN;
    *x_quern = best ? number_of(best, "x_quern") : NAN;
    return best ? best->string : NULL;
}
