// SPDX-License-Identifier: Apache-2.0
// Inputs of the benches, made on the device by a kernel of its own (quern_prepare_source), or tiled from a file.
#include <string.h>

#include "bench.h"
#include "ops/family.h"

static const char *const kind_names[] = {"random", "ties", "two", "sorted", "equal"};

// Element i of row r of copy c, as a function of its place alone. random: N(0, 3²); ties: whole numbers and a half of
// N(0, 2²); two: two values; sorted: ascending, the order that is worst for a filter; equal: one value.
static const char fill_source[] =
    "struct Params { void *to; unsigned long long count; long long V; int kind, bytes, is_bf16; unsigned seed; };\n"
    "static __device__ unsigned short bf16_bits(float f)\n"
    "{\n"
    "    const unsigned b = __float_as_uint(f);\n"
    "    return (unsigned short)((b + 0x7fff + (b >> 16 & 1)) >> 16);\n"
    "}\n"
    "static __device__ unsigned short f16_bits(float f) // |f| < 65504\n"
    "{\n"
    "    const unsigned b = __float_as_uint(f), sign = b >> 16 & 0x8000, a = b & 0x7fffffff;\n"
    "    if (a < 0x38800000) return (unsigned short)(sign | (unsigned)rintf(__uint_as_float(a) * 16777216.0f));\n"
    "    return (unsigned short)(sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);\n"
    "}\n"
    "static __device__ float normal(unsigned long long i, unsigned seed)\n"
    "{\n"
    "    unsigned long long z = i + seed * 0x9E3779B97F4A7C15ull;\n"
    "    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;\n"
    "    z = (z ^ z >> 27) * 0x94D049BB133111EBull;\n"
    "    z ^= z >> 31;\n"
    "    const float u = ((unsigned)(z >> 40) + 1) * (1.0f / 16777217.0f);\n"
    "    const float v = (unsigned)(z & 0xffffff) * (1.0f / 16777216.0f);\n"
    "    return sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);\n"
    "}\n"
    "static __device__ float value(int kind, unsigned long long i, const Params &p)\n"
    "{\n"
    "    if (kind == 0) return 3.0f * normal(i, p.seed);\n"
    "    if (kind == 1) return rintf(2.0f * normal(i, p.seed)) + 0.5f;\n"
    "    if (kind == 2) return normal(i, p.seed) > 0.0f ? 1.0f : 2.0f;\n"
    "    if (kind == 3) return 1.0f + (float)(long long)(i % p.V) * (8.0f / (float)p.V);\n"
    "    return 3.0f;\n"
    "}\n"
    "extern \"C\" __global__ void quern_bench_fill(Params p)\n"
    "{\n"
    "    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;\n"
    "    const unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    for (unsigned long long i = first; i < p.count; i += step) {\n"
    "        const float f = value(p.kind, i, p);\n"
    "        if (p.bytes == 4) ((float *)p.to)[i] = f;\n"
    "        else ((unsigned short *)p.to)[i] = p.is_bf16 ? bf16_bits(f) : f16_bits(f);\n"
    "    }\n"
    "}\n";

typedef struct fill_params {
    void *to;
    unsigned long long count;
    long long V;
    int kind, bytes, is_bf16;
    unsigned seed;
} fill_params;

static quern_status read_real(const char *file, bench_data *data)
{
    QN_TRY(npy_read(file, &data->real));
    bool floats = data->real.dtype == QUERN_F32 || data->real.dtype == QUERN_F16 || data->real.dtype == QUERN_BF16;
    if (data->real.shape.rank == 2 && data->real.count > 0 && floats) return QUERN_OK;
    npy_fini(&data->real);
    return qn_fail(QUERN_BAD_FILE, "%s: an array [rows, V] of f32, f16 or bf16 is needed", file);
}

quern_status bench_data_parse(const char *word, bench_data *data)
{
    memset(data, 0, sizeof *data);
    for (size_t i = 0; i < QN_COUNT(kind_names); i++) {
        if (strcmp(word, kind_names[i]) != 0) continue;
        data->kind = (bench_kind)i;
        return QUERN_OK;
    }
    if (strncmp(word, "real:", 5) != 0)
        return qn_fail(QUERN_BAD_VALUE, "--data %s: random, ties, two, sorted, equal and real:FILE.npy are known",
                       word);
    data->kind = BENCH_REAL;
    return read_real(word + 5, data);
}

static quern_status fill(const bench *b, const bench_data *data, const quern_kernel *kernel)
{
    for (size_t c = 0; c < data->copies; c++) {
        fill_params p = {(void *)(uintptr_t)bench_data_copy(data, c),
                         (unsigned long long)(data->rows * data->V),
                         data->V,
                         (int)data->kind,
                         (int)qn_dtype_bytes(data->dtype),
                         data->dtype == QUERN_BF16,
                         (unsigned)c + 1};
        quern_geometry geometry = QUERN_GEOMETRY_INIT;
        geometry.grid[0] = 4 * (uint32_t)b->device.sm_count;
        QN_TRY(quern_launch_packed(kernel, &geometry, &p, sizeof p, b->stream));
    }
    DEVICE_TRY(&b->device, cuStreamSynchronize, b->stream);
    return QUERN_OK;
}

static quern_status make_random(const bench *b, const bench_data *data)
{
    quern_source custom = QUERN_SOURCE_INIT;
    quern_kernel *kernel;
    custom.source = fill_source;
    custom.entry = "quern_bench_fill";
    custom.threads = 256;
    custom.parameter_bytes = sizeof(fill_params);
    QN_TRY(quern_prepare_source(b->q, &custom, b->device.ordinal, &kernel));
    quern_status status = fill(b, data, kernel);
    quern_kernel_release(kernel);
    return status;
}

// Copy c begins with the file's row c, so that copies differ.
static quern_status make_real(const bench *b, const bench_data *data)
{
    size_t row_bytes = data->copy_bytes / (size_t)data->rows;
    size_t file_rows = (size_t)data->real.shape.extent[0];
    for (size_t c = 0; c < data->copies; c++)
        for (size_t r = 0; r < (size_t)data->rows; r++)
            DEVICE_TRY(&b->device, cuMemcpyHtoD, bench_data_copy(data, c) + r * row_bytes,
                       (const char *)data->real.data + (c + r) % file_rows * row_bytes, row_bytes);
    return QUERN_OK;
}

quern_status bench_data_make(const bench *b, bench_data *data)
{
    data->copy_bytes = (size_t)data->rows * (size_t)data->V * qn_dtype_bytes(data->dtype);
    data->pitch_bytes = (data->copy_bytes + 255) / 256 * 256;
    data->copies = qn_timing_copies(b->device.l2_bytes, data->copy_bytes);
    QN_TRY(bench_allocate(b, data->copies * data->pitch_bytes, &data->base));
    quern_status status = data->kind == BENCH_REAL ? make_real(b, data) : make_random(b, data);
    if (status != QUERN_OK) bench_data_free(b, data);
    return status;
}

void bench_data_free(const bench *b, bench_data *data)
{
    if (data->base) (void)b->device.driver->cuMemFree(data->base);
    data->base = 0;
}

CUdeviceptr bench_data_copy(const bench_data *data, size_t index)
{
    return data->base + index % data->copies * data->pitch_bytes;
}
