// SPDX-License-Identifier: Apache-2.0
// The plain read that benches compare with: how long the same bytes take when nothing is done with them but a maximum.
#include "bench.h"

// THREADS and UNROLL are put before it. A load is 16 bytes; the result is stored only when it equals a number that the
// compiler does not know, so that nothing is left out. The bytes past the last 16 are not read.
static const char source[] =
    "struct Params { const uint4 *from; unsigned long long count; unsigned *to; unsigned never; };\n"
    "static __device__ unsigned top(uint4 v) { return max(max(v.x, v.y), max(v.z, v.w)); }\n"
    "extern \"C\" __global__ void __launch_bounds__(THREADS) quern_bench_read(Params p)\n"
    "{\n"
    "    const unsigned long long step = (unsigned long long)gridDim.x * THREADS;\n"
    "    unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;\n"
    "    unsigned most = 0;\n"
    "    for (; i + (UNROLL - 1) * step < p.count; i += UNROLL * step) {\n"
    "        uint4 v[UNROLL];\n"
    "#pragma unroll\n"
    "        for (int u = 0; u < UNROLL; u++) v[u] = p.from[i + u * step];\n"
    "#pragma unroll\n"
    "        for (int u = 0; u < UNROLL; u++) most = max(most, top(v[u]));\n"
    "    }\n"
    "    for (; i < p.count; i += step) most = max(most, top(p.from[i]));\n"
    "    if (most == p.never) *p.to = most;\n"
    "}\n";

typedef struct read_params {
    const void *from;
    unsigned long long count;
    unsigned *to;
    unsigned never;
} read_params;

static const struct shape {
    int threads, ctas, unroll; // CTAs an SM
} shapes[] = {{512, 2, 8}, {512, 4, 4}, {1024, 2, 4}, {256, 8, 4}};

typedef struct read_case {
    const bench_data *data;
    const quern_kernel *kernel;
    read_params params;
    quern_geometry geometry;
} read_case;

static quern_status enqueue(void *user, size_t index, CUstream stream)
{
    read_case *c = user;
    c->params.from = (const void *)(uintptr_t)bench_data_copy(c->data, index);
    return quern_launch_packed(c->kernel, &c->geometry, &c->params, sizeof c->params, stream);
}

static quern_status prepare(const bench *b, const struct shape *shape, quern_kernel **kernel)
{
    qn_text text = QN_TEXT_INIT;
    quern_source custom = QUERN_SOURCE_INIT;
    qn_text_putf(&text, "#define THREADS %d\n#define UNROLL %d\n%s", shape->threads, shape->unroll, source);
    custom.source = qn_text_string(&text);
    custom.entry = "quern_bench_read";
    custom.threads = shape->threads;
    custom.parameter_bytes = sizeof(read_params);
    quern_status status = qn_text_check(&text);
    if (status == QUERN_OK) status = quern_prepare_source(b->q, &custom, b->device.ordinal, kernel);
    qn_text_fini(&text);
    return status;
}

static quern_status time_shape(const bench *b, const bench_data *data, const struct shape *shape, CUdeviceptr to,
                               qn_timing *timing)
{
    quern_kernel *kernel;
    unsigned long long count = data->copy_bytes / 16;
    uint32_t most = (uint32_t)(shape->ctas * b->device.sm_count);
    unsigned long long needed = (count + (unsigned)shape->threads - 1) / (unsigned)shape->threads;
    QN_TRY(prepare(b, shape, &kernel));
    read_case c = {data, kernel, {NULL, count, (unsigned *)(uintptr_t)to, 0xFEDCBA98u}, QUERN_GEOMETRY_INIT};
    c.geometry.grid[0] = needed == 0 ? 1 : needed < most ? (uint32_t)needed : most;
    qn_timing_request request = {enqueue, &c, qn_timing_launches(data->copies, 20), b->repeats};
    quern_status status = qn_timing_graph(b->device.driver, &request, timing);
    quern_kernel_release(kernel);
    return status;
}

quern_status bench_read(const bench *b, const bench_data *data, qn_timing *best)
{
    CUdeviceptr to;
    qn_timing timing;
    QN_TRY(bench_allocate(b, 16, &to));
    quern_status status = QUERN_OK;
    for (size_t i = 0; i < QN_COUNT(shapes) && status == QUERN_OK; i++) {
        status = time_shape(b, data, &shapes[i], to, &timing);
        if (status == QUERN_OK && (i == 0 || timing.median_us < best->median_us)) *best = timing;
    }
    (void)b->device.driver->cuMemFree(to);
    return status;
}
