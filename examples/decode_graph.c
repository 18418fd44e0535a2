/* SPDX-License-Identifier: Apache-2.0
 * A decode loop in a CUDA graph: the sampler's step (softmax and the 50 largest of each row) is captured once and replayed
 * for every token, while the logits in the same buffer change. Nothing is compiled, loaded or allocated after the capture
 * began: quern_prepare did all of it. The last step is compared with the host reference. */
#include <string.h>

#include "example.h"

enum { ROWS = 4, V = 50257, K = 50, STEPS = 16 };

/* Stands for the model: other logits at each step. */
static void next_logits(float *logits, unsigned step)
{
    unsigned long long state = 0x9E3779B97F4A7C15u * (step + 1);
    for (size_t i = 0; i < (size_t)ROWS * V; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)(state >> 40) / 262144.0f - 32.0f;
    }
}

static int compare(const quern_spec *spec, const float *logits, const int32_t *indices)
{
    static float values[ROWS * K];
    static int32_t expected[ROWS * K];
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    args.rows = ROWS, args.logits = logits, args.values = values, args.indices = expected; /* host memory */
    QUERN(quern_reference(spec, &args.base));
    return memcmp(expected, indices, sizeof expected) != 0;
}

int main(void)
{
    static float logits[(size_t)ROWS * V];
    static int32_t indices[ROWS * K];
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUgraph graph;
    CUgraphExec replay;
    CUdeviceptr d_logits, d_values, d_indices, d_workspace = 0;
    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, 0));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxSetCurrent(context));
    CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    quern *q = NULL;
    quern_op *op = NULL;
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    spec.V = V, spec.K = K, spec.in = QUERN_F32;
    sizes.rows = ROWS;
    QUERN(quern_open(NULL, &q));
    QUERN(quern_prepare_sizes(q, &spec.base, &sizes, &sizes, QUERN_DEVICE_CURRENT, &op)); /* these rows only */

    size_t bytes = quern_workspace_size(op, &sizes);
    CUDA(cuMemAlloc(&d_logits, sizeof logits));
    CUDA(cuMemAlloc(&d_values, sizeof(float) * ROWS * K));
    CUDA(cuMemAlloc(&d_indices, sizeof indices));
    if (bytes) CUDA(cuMemAlloc(&d_workspace, bytes));
    QUERN(quern_workspace_init(op, (void *)d_workspace, bytes, stream));

    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    args.rows = ROWS, args.logits = (const void *)d_logits;
    args.values = (float *)d_values, args.indices = (void *)d_indices;
    args.workspace = (void *)d_workspace, args.workspace_bytes = bytes;
    CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    QUERN(quern_softmax_topk(op, &args, stream));
    CUDA(cuStreamEndCapture(stream, &graph));
    CUDA(cuGraphInstantiateWithFlags(&replay, graph, 0));

    for (unsigned step = 0; step < STEPS; step++) {
        next_logits(logits, step);
        CUDA(cuMemcpyHtoD(d_logits, logits, sizeof logits));
        CUDA(cuGraphLaunch(replay, stream));
        CUDA(cuStreamSynchronize(stream));
    }
    CUDA(cuMemcpyDtoH(indices, d_indices, sizeof indices));
    int differs = compare(&spec.base, logits, indices);
    printf("%d replays; the last step's indices %s the reference's\n", STEPS, differs ? "differ from" : "are");

    CUDA(cuGraphExecDestroy(replay));
    CUDA(cuGraphDestroy(graph));
    quern_op_release(op);
    quern_close(q);
    CUDA(cuMemFree(d_logits));
    CUDA(cuMemFree(d_values));
    CUDA(cuMemFree(d_indices));
    if (d_workspace) CUDA(cuMemFree(d_workspace));
    CUDA(cuStreamDestroy(stream));
    CUDA(cuDevicePrimaryCtxRelease(device));
    return differs ? 2 : 0;
}
