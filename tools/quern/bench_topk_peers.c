// SPDX-License-Identifier: Apache-2.0
// A case of softmax_topk as a message to the peers (bench_topk.h, tools/bench/peers.py).
#include <math.h>
#include <string.h>

#include "bench_topk.h"

// ---- the inputs: every copy, as the device has it

static quern_status give_inputs(bench_peers *peers, const topk_run *r)
{
    const bench_data *d = r->data;
    void *memory;
    QN_TRY(bench_peers_inputs(peers, r->inputs, d->copies * d->pitch_bytes, &memory));
    if (!memory) return QUERN_OK; // they have them from the case before
    DEVICE_TRY(&r->bench->device, cuMemcpyDtoH, memory, d->base, d->copies * d->pitch_bytes);
    return QUERN_OK;
}

static cJSON *inputs_json(const topk_run *r)
{
    const bench_data *d = r->data;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "number", (double)r->inputs);
    cJSON_AddStringToObject(json, "dtype", qn_dtype_name(d->dtype));
    cJSON_AddNumberToObject(json, "rows", (double)d->rows);
    cJSON_AddNumberToObject(json, "V", (double)d->V);
    cJSON_AddNumberToObject(json, "copies", (double)d->copies);
    cJSON_AddNumberToObject(json, "pitch_bytes", (double)d->pitch_bytes);
    return json;
}

// ---- optional inputs, and Quern's outputs for the first copy, one after another in one piece of memory

static size_t array_bytes(const topk_run *r, size_t i)
{
    return topk_has_tensor(r, i) ? (size_t)r->shape->rows * topk_row_bytes(r, i) : 0;
}

static size_t round_up(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static quern_status give_arrays(bench_peers *peers, topk_run *r, cJSON *arrays)
{
    size_t total = 0, offset = 0;
    void *memory;
    for (size_t i = 0; i < r->family->tensor_count; i++) total += round_up(array_bytes(r, i));
    QN_TRY(bench_peers_arrays(peers, total, &memory));
    QN_TRY(topk_run_once(r, 0));
    for (size_t i = 0; i < r->family->tensor_count; i++) {
        const qn_tensor *t = &r->family->tensors[i];
        size_t bytes = array_bytes(r, i);
        if (bytes == 0) continue;
        DEVICE_TRY(&r->bench->device, cuMemcpyDtoH, (char *)memory + offset, r->tensor[i], bytes);
        cJSON *array = cJSON_AddObjectToObject(arrays, t->name);
        cJSON_AddStringToObject(array, "dtype", qn_dtype_name(qn_tensor_dtype(r->family, &r->spec.base, t)));
        cJSON_AddNumberToObject(array, "offset", (double)offset);
        cJSON_AddNumberToObject(array, "row", (double)(t->axes[1] ? topk_row_elements(r, i) : 0)); // 0: no such axis
        offset += round_up(bytes);
    }
    return QUERN_OK;
}

// ---- the message

static const char *value_word(quern_value value)
{
    return value == QUERN_VALUE_LOGIT ? "logit" : value == QUERN_VALUE_LOGPROB ? "logprob" : "prob";
}

static quern_status build_request(bench_peers *peers, topk_run *r, const topk_measured *measured, cJSON *request)
{
    const quern_softmax_topk_spec *spec = (const quern_softmax_topk_spec *)&r->spec;
    cJSON_AddStringToObject(request, "op", "softmax_topk");
    cJSON_AddItemToObject(request, "inputs", inputs_json(r));
    cJSON_AddNumberToObject(request, "K", (double)spec->K);
    cJSON_AddStringToObject(request, "value", value_word(spec->value));
    cJSON_AddStringToObject(request, "norm", spec->norm == QUERN_NORM_TOPK ? "topk" : "all");
    cJSON_AddNumberToObject(request, "launches", (double)measured->launches);
    cJSON_AddNumberToObject(request, "repeats", r->bench->repeats);
    return give_arrays(peers, r, cJSON_AddObjectToObject(request, "arrays"));
}

// ---- the answer

quern_status topk_ask_peers(bench_peers *peers, topk_run *r, const topk_measured *measured, cJSON **answer)
{
    QN_TRY(give_inputs(peers, r));
    cJSON *request = cJSON_CreateObject();
    quern_status status = build_request(peers, r, measured, request);
    if (status != QUERN_OK) {
        cJSON_Delete(request);
        return status;
    }
    status = bench_peers_ask(peers, request, &measured->timing, answer);
    if (status != QUERN_OK)
        return qn_fail_in(status, "%s, %lld rows of %s", r->spec_text, (long long)r->shape->rows, r->shape->data);
    cJSON *peer;
    cJSON_ArrayForEach(peer, *answer)
    {
        double us = bench_peers_number(peer, "us_median");
        if (!isnan(us))
            cJSON_AddNumberToObject(peer, "gb_per_s", bench_rounded((double)r->data->copy_bytes / us * 1e-3));
    }
    return QUERN_OK;
}
