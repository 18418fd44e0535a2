// SPDX-License-Identifier: Apache-2.0
// Timing candidates on a device (measure.h).
#include "tune/measure.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reference/reference.h"
#include "tune/compiles.h"

enum { MAX_TENSORS = 32, LEAST_LAUNCHES = 20, TILE_ELEMENTS = 1 << 22, WORKSPACE_ALIGN = 256 };
static const double kReplayUs = 50000; // longer replays have fewer launches

typedef struct input {
    const qn_tensor *tensor;
    CUdeviceptr base;
    size_t bytes, pitch; // of one copy; from one to the next
} input;

struct qn_measure {
    const qn_measure_options *o;
    qn_compiles *compiles;
    CUstream stream;
    input inputs[MAX_TENSORS];
    size_t input_count;
    CUdeviceptr outputs[MAX_TENSORS];
    size_t output_count;
    size_t copies;
    quern_args *args;
    CUdeviceptr workspace;
    size_t workspace_bytes;
    const quern_op *op; // being timed
};

static quern_status driver_check(const qn_measure *m, const char *call, CUresult result)
{
    return result == CUDA_SUCCESS ? QUERN_OK : qn_driver_fail(m->o->driver, QUERN_DRIVER_ERROR, call, result);
}
#define TRY_DRIVER(m, call, ...) QN_TRY(driver_check((m), #call, (m)->o->driver->call(__VA_ARGS__)))

static quern_status allocate(const qn_measure *m, const char *what, size_t bytes, CUdeviceptr *address)
{
    CUresult result = m->o->driver->cuMemAlloc(address, bytes ? bytes : 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return qn_fail(QUERN_DRIVER_ERROR, "the device has no room for %zu bytes of %s: tune smaller sizes", bytes,
                       what);
    return driver_check(m, "cuMemAlloc", result);
}

// ---- extents

static int64_t size_value(const qn_measure *m, size_t i)
{
    int64_t value;
    memcpy(&value, (const char *)m->o->sizes + m->o->space->family->sizes[i].offset, sizeof value);
    return value;
}

static int64_t extent(const qn_measure *m, const char *axis)
{
    const qn_family *family = m->o->space->family;
    int64_t plus = 0;
    for (size_t i = 0; i < family->size_count; i++)
        if (qn_axis_is(axis, family->sizes[i].name, &plus)) return size_value(m, i) + plus;
    return qn_spec_number(family, m->o->space->spec, axis);
}

static size_t elements_of(const qn_measure *m, const qn_tensor *tensor)
{
    size_t count = 1;
    for (size_t a = 0; tensor->axes[a]; a++) count *= (size_t)extent(m, tensor->axes[a]);
    return count;
}

// ---- contents

// Normal numbers by the sum of twelve uniform ones, from a stream of SplitMix64.
static float normal(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t z = *state += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        for (int part = 0; part < 4; part++) sum += (float)(z >> 16 * part & 0xFFFF) * (1.0f / 65536.0f);
    }
    return sum - 6.0f;
}

static void put_float(quern_dtype dtype, void *host, size_t i, float x)
{
    if (dtype == QUERN_F32)
        ((float *)host)[i] = x;
    else
        ((uint16_t *)host)[i] = dtype == QUERN_F16 ? qn_f32_to_f16(x) : qn_f32_to_bf16(x);
}

static void fill_default(quern_dtype dtype, void *host, size_t elements)
{
    uint64_t state = 1;
    memset(host, 0, elements * qn_dtype_bytes(dtype));
    if (dtype != QUERN_F32 && dtype != QUERN_F16 && dtype != QUERN_BF16) return;
    for (size_t i = 0; i < elements; i++) put_float(dtype, host, i, 3.0f * normal(&state));
}

// A large input is a tile again and again, each time begun at another place.
static quern_status upload_tiled(const qn_measure *m, const input *in, size_t copy, const char *tile, size_t tile_bytes,
                                 size_t element)
{
    size_t start = (copy * 7919 * element) % tile_bytes;
    for (size_t at = 0; at < in->bytes;) {
        size_t bytes = tile_bytes - start < in->bytes - at ? tile_bytes - start : in->bytes - at;
        TRY_DRIVER(m, cuMemcpyHtoD, in->base + copy * in->pitch + at, tile + start, bytes);
        at += bytes;
        start = (at / tile_bytes * 104729 * element) % tile_bytes;
    }
    return QUERN_OK;
}

static quern_status fill_by_default(const qn_measure *m, const input *in, size_t elements, size_t element,
                                    quern_dtype dtype)
{
    size_t tile = elements < TILE_ELEMENTS ? elements : TILE_ELEMENTS;
    char *host = malloc(tile * element + 1);
    if (!host) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: %zu bytes", tile * element);
    quern_status status = QUERN_OK;
    fill_default(dtype, host, tile);
    for (size_t copy = 0; copy < m->copies && status == QUERN_OK; copy++)
        status = upload_tiled(m, in, copy, host, tile * element, element);
    free(host);
    return status;
}

static quern_status fill_input(const qn_measure *m, const input *in, size_t elements, size_t element, quern_dtype dtype)
{
    if (!m->o->fill || !m->o->fill(m->o->user, in->tensor, 0, NULL, 0))
        return fill_by_default(m, in, elements, element, dtype);
    char *host = malloc(in->bytes + 1);
    if (!host) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: %zu bytes of %s", in->bytes, in->tensor->name);
    quern_status status = QUERN_OK;
    for (size_t copy = 0; copy < m->copies && status == QUERN_OK; copy++) {
        m->o->fill(m->o->user, in->tensor, copy, host, elements);
        status =
            driver_check(m, "cuMemcpyHtoD", m->o->driver->cuMemcpyHtoD(in->base + copy * in->pitch, host, in->bytes));
    }
    free(host);
    return status;
}

// ---- tensors

static void set_pointer(qn_measure *m, const qn_tensor *tensor, CUdeviceptr address)
{
    void *pointer = (void *)(uintptr_t)address;
    memcpy((char *)m->args + tensor->pointer_offset, &pointer, sizeof pointer);
}

static quern_status make_output(qn_measure *m, const qn_tensor *tensor, size_t bytes)
{
    CUdeviceptr *output = &m->outputs[m->output_count];
    QN_TRY(allocate(m, tensor->name, bytes, output));
    m->output_count++;
    set_pointer(m, tensor, *output);
    return QUERN_OK;
}

static quern_status make_input(qn_measure *m, const qn_tensor *tensor, size_t elements)
{
    const qn_space *space = m->o->space;
    quern_dtype dtype = qn_tensor_dtype(space->family, space->spec, tensor);
    size_t element = qn_dtype_bytes(dtype);
    input *in = &m->inputs[m->input_count];
    *in = (input){.tensor = tensor, .bytes = elements * element, .pitch = (elements * element + 255) / 256 * 256};
    QN_TRY(allocate(m, tensor->name, m->copies * in->pitch, &in->base));
    m->input_count++;
    return fill_input(m, in, elements, element, dtype);
}

static quern_status count_copies(qn_measure *m)
{
    const qn_space *space = m->o->space;
    size_t bytes = 0;
    int l2 = 0;
    CUdevice device;
    for (size_t i = 0; i < space->family->tensor_count; i++) {
        const qn_tensor *tensor = &space->family->tensors[i];
        if (tensor->direction != QN_INPUT || !qn_tensor_is_given(space->family, space->spec, tensor)) continue;
        bytes += elements_of(m, tensor) * qn_dtype_bytes(qn_tensor_dtype(space->family, space->spec, tensor));
    }
    TRY_DRIVER(m, cuDeviceGet, &device, m->o->device);
    TRY_DRIVER(m, cuDeviceGetAttribute, &l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
    m->copies = qn_timing_copies(l2, bytes);
    if (m->o->most_copies > 1 && m->copies > m->o->most_copies) m->copies = m->o->most_copies;
    return QUERN_OK;
}

static quern_status make_tensors(qn_measure *m)
{
    const qn_family *family = m->o->space->family;
    const quern_spec *spec = m->o->space->spec;
    m->args = calloc(1, family->args_bytes);
    if (!m->args) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: an argument structure");
    m->args->size = family->args_bytes, m->args->family = family->name;
    for (size_t i = 0; i < family->size_count; i++) {
        int64_t value = size_value(m, i);
        memcpy((char *)m->args + family->size_args_offset[i], &value, sizeof value);
    }
    QN_TRY(count_copies(m));
    for (size_t i = 0; i < family->tensor_count && i < MAX_TENSORS; i++) {
        const qn_tensor *tensor = &family->tensors[i];
        size_t elements = elements_of(m, tensor);
        if (!qn_tensor_is_given(family, spec, tensor)) continue;
        if (tensor->direction == QN_INPUT)
            QN_TRY(make_input(m, tensor, elements));
        else
            QN_TRY(make_output(m, tensor, elements * qn_dtype_bytes(qn_tensor_dtype(family, spec, tensor))));
    }
    return QUERN_OK;
}

static quern_status make_workspace(qn_measure *m, const quern_op *op)
{
    const qn_family *family = m->o->space->family;
    size_t bytes = quern_workspace_size(op, m->o->sizes);
    if (bytes > m->workspace_bytes) {
        if (m->workspace) (void)m->o->driver->cuMemFree(m->workspace);
        m->workspace = 0, m->workspace_bytes = 0;
        QN_TRY(allocate(m, "workspace", bytes + WORKSPACE_ALIGN, &m->workspace));
        m->workspace_bytes = bytes;
    }
    void *pointer = bytes ? (void *)(uintptr_t)m->workspace : NULL;
    memcpy((char *)m->args + family->workspace_offset, &pointer, sizeof pointer);
    memcpy((char *)m->args + family->workspace_bytes_offset, &bytes, sizeof bytes);
    if (!bytes) return QUERN_OK;
    QN_TRY(quern_workspace_init(op, pointer, bytes, m->stream));
    TRY_DRIVER(m, cuStreamSynchronize, m->stream);
    return QUERN_OK;
}

// ---- the timer

static quern_status enqueue(void *user, size_t index, CUstream stream)
{
    qn_measure *m = user;
    size_t copy = index % m->copies;
    for (size_t i = 0; i < m->input_count; i++)
        set_pointer(m, m->inputs[i].tensor, m->inputs[i].base + copy * m->inputs[i].pitch);
    return quern_launch_args(m->op, m->args, stream);
}

static double now_seconds(void *self)
{
    struct timespec now;
    (void)self;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The first launches: whether it runs at all, and about how long.
static quern_status run_once(qn_measure *m, double *us)
{
    QN_TRY(enqueue(m, 0, m->stream));
    TRY_DRIVER(m, cuStreamSynchronize, m->stream);
    double began = now_seconds(NULL);
    QN_TRY(enqueue(m, 1, m->stream));
    TRY_DRIVER(m, cuStreamSynchronize, m->stream);
    *us = 1e6 * (now_seconds(NULL) - began);
    return QUERN_OK;
}

static quern_status time_op(qn_measure *m, int repeats, double limit_us, qn_timing *timing)
{
    enum { HOST_US = 100 }; // what a launch and a wait may take on the host's side
    double us = 0;
    QN_TRY(make_workspace(m, m->op));
    QN_TRY(run_once(m, &us));
    if (limit_us > 0 && us > limit_us + HOST_US) {
        *timing = (qn_timing){us, us, us};
        return QUERN_OK;
    }
    size_t least = us * LEAST_LAUNCHES > kReplayUs ? 2 : LEAST_LAUNCHES;
    qn_timing_request request = {enqueue, m, qn_timing_launches(m->copies, least), repeats};
    return qn_timing_graph(m->o->driver, &request, timing);
}

static quern_status with_op(qn_measure *m, const qn_config *config, quern_op **op)
{
    QN_TRY(qn_compiles_wait(m->compiles, config));
    return qn_prepare_config(m->o->q, m->o->space->spec, m->o->device, config, op);
}

static quern_status measure_config(void *self, const qn_config *config, int repeats, double limit_us, qn_timing *timing)
{
    qn_measure *m = self;
    quern_op *op;
    QN_TRY(with_op(m, config, &op));
    m->op = op;
    quern_status status = time_op(m, repeats, limit_us, timing);
    m->op = NULL;
    quern_op_release(op);
    return status;
}

static quern_status check_config(void *self, const qn_config *config)
{
    qn_measure *m = self;
    quern_op *op;
    QN_TRY(with_op(m, config, &op));
    quern_status status = m->o->check(m->o->user, op);
    quern_op_release(op);
    return status;
}

static quern_status announce(void *self, const qn_config *configs, size_t count)
{
    return qn_compiles_announce(((qn_measure *)self)->compiles, configs, count);
}

static bool is_stopped(void *self)
{
    const qn_measure *m = self;
    return m->o->stopped && m->o->stopped(m->o->user);
}

// An error that stays with the context (an illegal address) fails everything after it.
static bool is_lost(void *self)
{
    const qn_measure *m = self;
    return m->o->driver->cuStreamSynchronize(m->stream) != CUDA_SUCCESS;
}

qn_timer qn_measure_timer(qn_measure *measure)
{
    return (qn_timer){measure, announce, measure_config, check_config, now_seconds, is_stopped, is_lost};
}

// ---- open and close

static quern_status open_all(qn_measure *m)
{
    TRY_DRIVER(m, cuStreamCreate, &m->stream, CU_STREAM_NON_BLOCKING);
    QN_TRY(make_tensors(m));
    return qn_compiles_open(m->o->q, m->o->space, m->o->compile_threads, &m->compiles);
}

quern_status qn_measure_open(const qn_measure_options *options, qn_measure **out)
{
    qn_measure *m = calloc(1, sizeof *m);
    if (!m) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: a timer");
    m->o = options;
    quern_status status = open_all(m);
    if (status != QUERN_OK)
        qn_measure_close(m);
    else
        *out = m;
    return status;
}

void qn_measure_close(qn_measure *m)
{
    if (!m) return;
    const qn_driver *driver = m->o->driver;
    qn_compiles_close(m->compiles);
    for (size_t i = 0; i < m->input_count; i++) (void)driver->cuMemFree(m->inputs[i].base);
    for (size_t i = 0; i < m->output_count; i++) (void)driver->cuMemFree(m->outputs[i]);
    if (m->workspace) (void)driver->cuMemFree(m->workspace);
    if (m->stream) (void)driver->cuStreamDestroy(m->stream);
    free(m->args);
    free(m);
}
