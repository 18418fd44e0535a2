/* SPDX-License-Identifier: Apache-2.0
 * One quern, every device of the machine, contexts that the caller owns: Quern uses whichever is current and leaves it so.
 * Devices of one kind share what is compiled; devices of different kinds each get their own kernels. A mixture-of-experts
 * router's gate runs on each, and all of them must choose the same experts as the host reference. */
#include <string.h>

#include "example.h"

enum { TOKENS = 128, E = 256, K = 8, MAX_DEVICES = 16 };

typedef struct worker {
    CUdevice device;
    CUcontext context;
    quern_op *op;
} worker;

static void start(quern *q, const quern_spec *spec, int ordinal, worker *w)
{
    CUDA(cuDeviceGet(&w->device, ordinal));
    CUDA(cuDevicePrimaryCtxRetain(&w->context, w->device));
    CUDA(cuCtxSetCurrent(w->context));
    QUERN(quern_prepare(q, spec, ordinal, &w->op)); /* the ordinal must be that of the current context */
}

static void run(const worker *w, const float *logits, const float *bias, int32_t *ids)
{
    CUdeviceptr d_logits, d_bias, d_weights, d_ids;
    CUstream stream;
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    CUDA(cuCtxSetCurrent(w->context));
    CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA(cuMemAlloc(&d_logits, sizeof(float) * TOKENS * E));
    CUDA(cuMemAlloc(&d_bias, sizeof(float) * E));
    CUDA(cuMemAlloc(&d_weights, sizeof(float) * TOKENS * K));
    CUDA(cuMemAlloc(&d_ids, sizeof(int32_t) * TOKENS * K));
    CUDA(cuMemcpyHtoD(d_logits, logits, sizeof(float) * TOKENS * E));
    CUDA(cuMemcpyHtoD(d_bias, bias, sizeof(float) * E));

    args.N = TOKENS, args.logits = (const void *)d_logits, args.bias = (const float *)d_bias;
    args.weights = (float *)d_weights, args.ids = (void *)d_ids;
    QUERN(quern_gate(w->op, &args, stream));
    CUDA(cuStreamSynchronize(stream));
    CUDA(cuMemcpyDtoH(ids, d_ids, sizeof(int32_t) * TOKENS * K));

    CUDA(cuMemFree(d_logits));
    CUDA(cuMemFree(d_bias));
    CUDA(cuMemFree(d_weights));
    CUDA(cuMemFree(d_ids));
    CUDA(cuStreamDestroy(stream));
}

int main(void)
{
    static float logits[TOKENS * E], bias[E], weights[TOKENS * K];
    static int32_t expected[TOKENS * K], ids[TOKENS * K];
    static worker workers[MAX_DEVICES];
    int count = 0, different = 0;
    for (int i = 0; i < TOKENS * E; i++) logits[i] = (float)((unsigned)i * 2654435761u >> 8) / 4194304.0f - 2.0f;
    for (int i = 0; i < E; i++) bias[i] = (float)(i % 7) / 64.0f;

    quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
    quern_gate_args args = QUERN_GATE_ARGS_INIT;
    spec.E = E, spec.K = K, spec.in = QUERN_F32, spec.act = QUERN_ACT_SIGMOID, spec.bias = 1;
    args.N = TOKENS, args.logits = logits, args.bias = bias, args.weights = weights, args.ids = expected;
    QUERN(quern_reference(&spec.base, &args.base));

    quern *q = NULL;
    quern_counters counters = QUERN_COUNTERS_INIT;
    QUERN(quern_open(NULL, &q));
    CUDA(cuInit(0));
    CUDA(cuDeviceGetCount(&count));
    if (count > MAX_DEVICES) count = MAX_DEVICES;
    for (int i = 0; i < count; i++) start(q, &spec.base, i, &workers[i]);
    for (int i = 0; i < count; i++) {
        quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
        run(&workers[i], logits, bias, ids);
        int differs = memcmp(expected, ids, sizeof ids) != 0;
        QUERN(quern_op_describe(workers[i].op, 0, 0, &info));
        printf("device %d, %s: the experts %s the reference's\n", i, info.arch, differs ? "differ from" : "are");
        different += differs;
    }
    quern_get_counters(q, &counters);
    printf("%d devices, %llu kernels compiled, %llu found\n", count, (unsigned long long)counters.compiled,
           (unsigned long long)(counters.hit_memory + counters.hit_sealed + counters.hit_user));

    for (int i = 0; i < count; i++) quern_op_release(workers[i].op);
    quern_close(q);
    for (int i = 0; i < count; i++) CUDA(cuDevicePrimaryCtxRelease(workers[i].device));
    return different ? 2 : 0;
}
