// SPDX-License-Identifier: Apache-2.0
// Kernels of the caller's own on a device: parameters as packed bytes, geometry inside the limits, clusters, shared memory,
// capture and replay, what the second quern finds, refusals. And ops of a range of sizes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "support/gpu_cases.h"

enum { N = 4096 };

static gpu g;
static CUdeviceptr memory; // N words

static quern_source source_of(const char *text, const char *entry, size_t parameter_bytes)
{
    quern_source source = QUERN_SOURCE_INIT;
    source.source = text, source.entry = entry, source.threads = 256, source.parameter_bytes = parameter_bytes;
    return source;
}

static quern_kernel *prepare(const quern_source *source)
{
    quern_kernel *kernel = NULL;
    if (quern_prepare_source(g.q, source, QUERN_DEVICE_CURRENT, &kernel) != QUERN_OK)
        fail_msg("%s: %s", source->entry, quern_message());
    return kernel;
}

static void launch(const quern_kernel *kernel, const quern_geometry *geometry, const void *parameters, size_t bytes,
                   CUstream stream)
{
    if (quern_launch_packed(kernel, geometry, parameters, bytes, stream) != QUERN_OK) fail_msg("%s", quern_message());
}

static void read_back(unsigned out[N])
{
    GPU_MUST(&g, cuCtxSynchronize());
    GPU_MUST(&g, cuMemcpyDtoH(out, memory, sizeof(unsigned) * N));
}

static void clear(void)
{
    GPU_MUST(&g, cuMemsetD32Async(memory, 0xEEEEEEEEu, N, NULL));
    GPU_MUST(&g, cuCtxSynchronize());
}

// ---- parameters

// Every size and alignment of parameter, at the places that a C structure has them.
static void parameters_of_all_sizes_arrive_where_the_structure_has_them(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    static const char text[] =
        "struct three { unsigned char x, y, z; };\n"
        "extern \"C\" __global__ void spread(unsigned *out, char a, short b, double c, three d, int e, long long f, "
        "char g)\n"
        "{\n"
        "    out[0] = a; out[1] = b; out[2] = (unsigned)c; out[3] = d.x + 256u * d.y + 65536u * d.z;\n"
        "    out[4] = e; out[5] = (unsigned)(f >> 32); out[6] = (unsigned)f; out[7] = g;\n"
        "}\n";
    struct {
        CUdeviceptr out;
        char a;
        short b;
        double c;
        struct {
            unsigned char x, y, z;
        } d;
        int e;
        long long f;
        char g;
    } p;
    static const unsigned expected[] = {11, 2222, 333333, 0x030201, 5555, 66, 77, 88};
    static unsigned out[N];
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    memset(&p, 0x5A, sizeof p);
    p.out = memory, p.a = 11, p.b = 2222, p.c = 333333, p.d.x = 1, p.d.y = 2, p.d.z = 3, p.e = 5555;
    p.f = 66ll << 32 | 77, p.g = 88;
    geometry.threads[0] = geometry.threads[1] = geometry.threads[2] = 1;
    quern_source source = source_of(text, "spread", sizeof p);
    quern_kernel *kernel = prepare(&source);
    clear();

    launch(kernel, &geometry, &p, sizeof p, NULL);

    read_back(out);
    for (size_t i = 0; i < QN_COUNT(expected); i++) assert_int_equal(out[i], expected[i]);
    assert_int_equal(out[QN_COUNT(expected)], 0xEEEEEEEEu);
    quern_kernel_release(kernel);
}

static void a_kernel_without_parameters_runs(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    static const char text[] = "__device__ unsigned counter;\n"
                               "extern \"C\" __global__ void count() { atomicAdd(&counter, 1u); }\n";
    quern_source source = source_of(text, "count", 0);
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    quern_kernel *kernel = prepare(&source);

    launch(kernel, &geometry, NULL, 0, NULL);

    GPU_MUST(&g, cuCtxSynchronize());
    quern_kernel_release(kernel);
}

// ---- geometry

static const char places[] = "#include \"place.h\"\n"
                             "extern \"C\" __global__ void places(unsigned *out, int n)\n"
                             "{\n"
                             "    extern __shared__ unsigned words[];\n"
                             "    const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
                             "    const int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);\n"
                             "    const int i = t + b * blockDim.x * blockDim.y * blockDim.z;\n"
                             "    words[t] = PLACE(i);\n"
                             "    __syncthreads();\n"
                             "    if (i < n) out[i] = words[t];\n"
                             "}\n";

typedef struct place_parameters {
    CUdeviceptr out;
    int n;
} place_parameters;

static void any_shape_inside_the_limits_runs(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    static const struct {
        uint32_t grid[3], threads[3];
    } shapes[] = {
        {{4, 2, 2}, {0, 0, 0}}, {{16, 1, 1}, {16, 4, 4}}, {{1, 4, 16}, {32, 2, 1}}, {{128, 1, 1}, {1, 32, 1}}};
    static const quern_header headers[] = {{"place.h", "#define PLACE(i) (3u * (i) + OFFSET)\n"}};
    static const char *const options[] = {"-DOFFSET=7"};
    static unsigned out[N];
    quern_source source = source_of(places, "places", sizeof(place_parameters));
    source.headers = headers, source.header_count = 1;
    source.options = options, source.option_count = 1;
    source.dynamic_shared_bytes = 4 * 256;
    quern_kernel *kernel = prepare(&source);
    for (size_t s = 0; s < QN_COUNT(shapes); s++) {
        quern_geometry geometry = QUERN_GEOMETRY_INIT;
        place_parameters p = {memory, N};
        memcpy(geometry.grid, shapes[s].grid, sizeof geometry.grid);
        memcpy(geometry.threads, shapes[s].threads, sizeof geometry.threads);
        clear();

        launch(kernel, &geometry, &p, sizeof p, NULL);

        read_back(out);
        for (unsigned i = 0; i < N; i++)
            if (out[i] != 3 * i + 7) fail_msg("shape %zu: out[%u] = %u", s, i, out[i]);
    }
    quern_kernel_release(kernel);
}

static void large_shared_memory_and_clusters_run(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    static const char text[] = "extern \"C\" __global__ void wide(unsigned *out, int words)\n"
                               "{\n"
                               "    extern __shared__ unsigned shared[];\n"
                               "    for (int i = threadIdx.x; i < words; i += blockDim.x) shared[i] = i;\n"
                               "    __syncthreads();\n"
                               "    unsigned rank = 0;\n"
                               "#if __CUDA_ARCH__ >= 900\n"
                               "    asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(rank));\n"
                               "#endif\n"
                               "    if (threadIdx.x == 0) out[blockIdx.x] = shared[words - 1] + rank;\n"
                               "}\n";
    static unsigned out[N];
    bool has_clusters = g.arch->max_cluster > 1;
    int words = g.arch->shared_cta / 4 - 256;
    place_parameters p = {memory, words};
    quern_source source = source_of(text, "wide", sizeof p);
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    source.dynamic_shared_bytes = 4 * words;
    source.cluster = has_clusters ? 2 : 0;
    geometry.grid[0] = 8;
    quern_kernel *kernel = prepare(&source);
    clear();

    launch(kernel, &geometry, &p, sizeof p, NULL);

    read_back(out);
    for (unsigned i = 0; i < 8; i++) assert_int_equal(out[i], (unsigned)words - 1 + (has_clusters ? i % 2 : 0));
    quern_kernel_release(kernel);
}

// ---- capture

static void a_captured_launch_replays_with_the_parameters_of_the_capture(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    static const quern_header headers[] = {{"place.h", "#define PLACE(i) (5u * (i))\n"}};
    static unsigned out[N];
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    place_parameters p = {memory, N};
    quern_source source = source_of(places, "places", sizeof p);
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    source.headers = headers, source.header_count = 1, source.dynamic_shared_bytes = 4 * 256;
    geometry.grid[0] = N / 256;
    quern_kernel *kernel = prepare(&source);
    GPU_MUST(&g, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GPU_MUST(&g, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(kernel, &geometry, &p, sizeof p, stream);
    GPU_MUST(&g, cuStreamEndCapture(stream, &graph));
    GPU_MUST(&g, cuGraphInstantiateWithFlags(&exec, graph, 0));
    memset(&p, 0, sizeof p); // the graph has its own copy

    for (int replay = 0; replay < 3; replay++) {
        clear();
        GPU_MUST(&g, cuGraphLaunch(exec, stream));
        GPU_MUST(&g, cuStreamSynchronize(stream));
        read_back(out);
        for (unsigned i = 0; i < N; i++) assert_int_equal(out[i], 5 * i);
    }

    GPU_MUST(&g, cuGraphExecDestroy(exec));
    GPU_MUST(&g, cuGraphDestroy(graph));
    GPU_MUST(&g, cuStreamDestroy(stream));
    quern_kernel_release(kernel);
}

// ---- the cache

static void the_same_source_is_found_and_another_is_not(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_source source = source_of("extern \"C\" __global__ void found(int *x) { *x = 1; }", "found", 8);
    quern_kernel_release(prepare(&source));
    quern_kernel *again = prepare(&source);

    assert_int_equal(quern_kernel_describe(again, &info), QUERN_OK);

    assert_int_not_equal(info.origin, QUERN_ORIGIN_COMPILED);
    assert_string_equal(info.arch, g.arch->name);
    assert_true(info.registers > 0);
    quern_kernel_release(again);
}

static void a_wrong_number_of_parameter_bytes_never_reaches_the_device(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    quern_kernel *kernel = NULL;
    quern_source source = source_of("extern \"C\" __global__ void two(int *x, int y) { *x = y; }", "two", 8);

    assert_int_equal(quern_prepare_source(g.q, &source, QUERN_DEVICE_CURRENT, &kernel), QUERN_BAD_SIZE);

    assert_null(kernel);
}

// ---- ranges of sizes

static void an_op_of_a_range_gives_the_bits_of_the_op_of_all(void **state)
{
    (void)state;
    gpu_skip_without_device(&g);
    enum { ROWS = 3, V = 5000, K = 20 };
    static float logits[ROWS * V];
    static int32_t ids[2][ROWS * K];
    static float values[2][ROWS * K];
    quern_softmax_topk_spec spec = QUERN_SOFTMAX_TOPK_SPEC_INIT;
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    quern_op *ops[2] = {NULL, NULL};
    spec.V = V, spec.K = K, spec.in = QUERN_F32;
    sizes.rows = ROWS;
    for (int i = 0; i < ROWS * V; i++) logits[i] = (float)((unsigned)i * 2654435761u >> 10) / 65536.0f;
    assert_int_equal(quern_prepare(g.q, &spec.base, QUERN_DEVICE_CURRENT, &ops[0]), QUERN_OK);
    assert_int_equal(quern_prepare_sizes(g.q, &spec.base, &sizes, &sizes, QUERN_DEVICE_CURRENT, &ops[1]), QUERN_OK);
    size_t bytes = quern_workspace_size(ops[0], &sizes);
    CUdeviceptr input = gpu_alloc(&g, sizeof logits), d_values = gpu_alloc(&g, sizeof values[0]);
    CUdeviceptr d_ids = gpu_alloc(&g, sizeof ids[0]), workspace = gpu_alloc(&g, bytes + 256);
    GPU_MUST(&g, cuMemcpyHtoD(input, logits, sizeof logits));
    assert_int_equal(quern_workspace_size(ops[1], &sizes), bytes);
    for (int i = 0; i < 2; i++) {
        quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
        args.rows = ROWS, args.logits = (const void *)input;
        args.values = (float *)d_values, args.indices = (void *)d_ids;
        args.workspace = (void *)workspace, args.workspace_bytes = bytes;
        assert_int_equal(quern_workspace_init(ops[i], (void *)workspace, bytes, NULL), QUERN_OK);
        if (quern_softmax_topk(ops[i], &args, NULL) != QUERN_OK) fail_msg("%s", quern_message());
        GPU_MUST(&g, cuCtxSynchronize());
        GPU_MUST(&g, cuMemcpyDtoH(ids[i], d_ids, sizeof ids[0]));
        GPU_MUST(&g, cuMemcpyDtoH(values[i], d_values, sizeof values[0]));
        args.rows = 1 << 20;
        if (i) assert_int_equal(quern_softmax_topk(ops[i], &args, NULL), QUERN_BAD_SIZE);
        quern_op_release(ops[i]);
    }

    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    gpu_free(&g, input);
    gpu_free(&g, d_values);
    gpu_free(&g, d_ids);
    gpu_free(&g, workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_of_all_sizes_arrive_where_the_structure_has_them),
        cmocka_unit_test(a_kernel_without_parameters_runs),
        cmocka_unit_test(any_shape_inside_the_limits_runs),
        cmocka_unit_test(large_shared_memory_and_clusters_run),
        cmocka_unit_test(a_captured_launch_replays_with_the_parameters_of_the_capture),
        cmocka_unit_test(the_same_source_is_found_and_another_is_not),
        cmocka_unit_test(a_wrong_number_of_parameter_bytes_never_reaches_the_device),
        cmocka_unit_test(an_op_of_a_range_gives_the_bits_of_the_op_of_all),
    };
    if (gpu_open(&g)) memory = gpu_alloc(&g, sizeof(unsigned) * N);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (g.driver) gpu_free(&g, memory);
    gpu_close(&g);
    return failed;
}
