// SPDX-License-Identifier: Apache-2.0
// Timing by graph replay (timing.h).
#include "tune/timing.h"

#include <stdlib.h>

#define CHECK(driver, call, ...)                                                                                       \
    do {                                                                                                               \
        CUresult result_ = (driver)->call(__VA_ARGS__);                                                                \
        if (result_ != CUDA_SUCCESS) return qn_driver_fail((driver), QUERN_DRIVER_ERROR, #call, result_);              \
    } while (0)

typedef struct replay {
    const qn_driver *driver;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUevent start, end;
} replay;

size_t qn_timing_copies(int64_t l2_bytes, size_t input_bytes)
{
    size_t bytes = input_bytes ? input_bytes : 1;
    size_t copies = (size_t)(2 * l2_bytes) / bytes + 1;
    return copies < 2 ? 2 : copies;
}

size_t qn_timing_launches(size_t copies, size_t least)
{
    return copies * ((least + copies - 1) / copies);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

qn_timing qn_timing_summary(double *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, ascending);
    double median = 0.5 * (samples[(count - 1) / 2] + samples[count / 2]);
    return (qn_timing){median, samples[(count - 1) / 10], samples[count - 1 - (count - 1) / 10]};
}

// A failing enqueue ends the capture all the same: a stream left capturing would poison the context.
static quern_status capture(replay *r, const qn_timing_request *request)
{
    quern_status status = QUERN_OK;
    CHECK(r->driver, cuStreamBeginCapture, r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (size_t i = 0; i < request->launches && status == QUERN_OK; i++)
        status = request->enqueue(request->user, i, r->stream);
    CUresult result = r->driver->cuStreamEndCapture(r->stream, &r->graph);
    if (status == QUERN_OK && result != CUDA_SUCCESS)
        status = qn_driver_fail(r->driver, QUERN_DRIVER_ERROR, "cuStreamEndCapture", result);
    return status;
}

static quern_status build(replay *r, const qn_timing_request *request)
{
    CHECK(r->driver, cuStreamCreate, &r->stream, CU_STREAM_NON_BLOCKING);
    CHECK(r->driver, cuEventCreate, &r->start, CU_EVENT_DEFAULT);
    CHECK(r->driver, cuEventCreate, &r->end, CU_EVENT_DEFAULT);
    QN_TRY(capture(r, request));
    CHECK(r->driver, cuGraphInstantiateWithFlags, &r->exec, r->graph, 0);
    return QUERN_OK;
}

static quern_status measure(replay *r, double *us)
{
    float ms;
    CHECK(r->driver, cuEventRecord, r->start, r->stream);
    CHECK(r->driver, cuGraphLaunch, r->exec, r->stream);
    CHECK(r->driver, cuEventRecord, r->end, r->stream);
    CHECK(r->driver, cuEventSynchronize, r->end);
    CHECK(r->driver, cuEventElapsedTime, &ms, r->start, r->end);
    *us = 1e3 * (double)ms;
    return QUERN_OK;
}

static void release(replay *r)
{
    if (r->exec) (void)r->driver->cuGraphExecDestroy(r->exec);
    if (r->graph) (void)r->driver->cuGraphDestroy(r->graph);
    if (r->start) (void)r->driver->cuEventDestroy(r->start);
    if (r->end) (void)r->driver->cuEventDestroy(r->end);
    if (r->stream) (void)r->driver->cuStreamDestroy(r->stream);
}

static quern_status run(replay *r, const qn_timing_request *request, qn_timing *timing)
{
    enum { WARM_UP = 2 };
    double samples[QN_TIMING_MAX_REPEATS], us;
    QN_TRY(build(r, request));
    for (int i = 0; i < WARM_UP; i++) QN_TRY(measure(r, &us));
    for (int i = 0; i < request->repeats; i++) {
        QN_TRY(measure(r, &us));
        samples[i] = us / (double)request->launches;
    }
    *timing = qn_timing_summary(samples, (size_t)request->repeats);
    return QUERN_OK;
}

quern_status qn_timing_graph(const qn_driver *driver, const qn_timing_request *request, qn_timing *timing)
{
    if (request->launches == 0 || request->repeats < 1 || request->repeats > QN_TIMING_MAX_REPEATS)
        return qn_fail(QUERN_BAD_ARGUMENT, "timing: %zu launches, %d repeats: at least 1, and 1 to %d, are needed",
                       request->launches, request->repeats, QN_TIMING_MAX_REPEATS);
    replay r = {.driver = driver};
    quern_status status = run(&r, request, timing);
    release(&r);
    return status;
}
