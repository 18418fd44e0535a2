// SPDX-License-Identifier: Apache-2.0
// Timing by graph replay, with a driver of counters in place of the real one.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tune/timing.h"

// ---- the driver: counts what is made and given back; replays take the times of a list

static struct {
    int objects; // streams, events, graphs that exist
    bool capturing;
    int captured, replays, elapsed_calls;
    float ms[16];
    CUresult instantiate;
} fake;

static CUresult stream_create(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = (CUstream)&fake;
    fake.objects++;
    return CUDA_SUCCESS;
}
static CUresult stream_destroy(CUstream stream)
{
    (void)stream;
    fake.objects--;
    return CUDA_SUCCESS;
}
static CUresult event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)&fake;
    fake.objects++;
    return CUDA_SUCCESS;
}
static CUresult event_destroy(CUevent event)
{
    (void)event;
    fake.objects--;
    return CUDA_SUCCESS;
}
static CUresult event_record(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult event_synchronize(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}
static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    (void)start, (void)end;
    *ms = fake.ms[fake.elapsed_calls++];
    return CUDA_SUCCESS;
}
static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
    (void)stream, (void)mode;
    fake.capturing = true;
    return CUDA_SUCCESS;
}
static CUresult end_capture(CUstream stream, CUgraph *graph)
{
    (void)stream;
    fake.capturing = false;
    *graph = (CUgraph)&fake;
    fake.objects++;
    return CUDA_SUCCESS;
}
static CUresult graph_destroy(CUgraph graph)
{
    (void)graph;
    fake.objects--;
    return CUDA_SUCCESS;
}
static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)graph, (void)flags;
    if (fake.instantiate != CUDA_SUCCESS) return fake.instantiate;
    *exec = (CUgraphExec)&fake;
    fake.objects++;
    return CUDA_SUCCESS;
}
static CUresult exec_destroy(CUgraphExec exec)
{
    (void)exec;
    fake.objects--;
    return CUDA_SUCCESS;
}
static CUresult graph_launch(CUgraphExec exec, CUstream stream)
{
    (void)exec, (void)stream;
    fake.replays++;
    return CUDA_SUCCESS;
}
static CUresult error_text(CUresult error, const char **text)
{
    (void)error;
    *text = "an error";
    return CUDA_SUCCESS;
}

static const qn_driver driver = {
    .cuGetErrorName = error_text,
    .cuGetErrorString = error_text,
    .cuStreamCreate = stream_create,
    .cuStreamDestroy = stream_destroy,
    .cuEventCreate = event_create,
    .cuEventDestroy = event_destroy,
    .cuEventRecord = event_record,
    .cuEventSynchronize = event_synchronize,
    .cuEventElapsedTime = elapsed,
    .cuStreamBeginCapture = begin_capture,
    .cuStreamEndCapture = end_capture,
    .cuGraphDestroy = graph_destroy,
    .cuGraphInstantiateWithFlags = instantiate,
    .cuGraphExecDestroy = exec_destroy,
    .cuGraphLaunch = graph_launch,
};

static int reset(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    return 0;
}

// Fails at the launch that *user names; -1: never.
static quern_status enqueue(void *user, size_t index, CUstream stream)
{
    (void)stream;
    assert_true(fake.capturing);
    assert_int_equal((int)index, fake.captured);
    fake.captured++;
    return *(int *)user == (int)index ? qn_fail(QUERN_BAD_SIZE, "refused") : QUERN_OK;
}

// ---- claims

static void copies_make_more_than_twice_the_l2(void **state)
{
    (void)state;
    const int64_t l2 = 60 << 20;
    const size_t inputs[] = {1, 256512, 60u << 20, 120u << 20, 1u << 30};

    for (size_t i = 0; i < QN_COUNT(inputs); i++) {
        size_t copies = qn_timing_copies(l2, inputs[i]);
        assert_true(copies >= 2);
        assert_true(copies * inputs[i] > 2 * (size_t)l2);
        assert_true(copies == 2 || (copies - 1) * inputs[i] <= 2 * (size_t)l2);
    }
}

static void launches_are_whole_rotations(void **state)
{
    (void)state;

    assert_int_equal(qn_timing_launches(2, 20), 20);
    assert_int_equal(qn_timing_launches(3, 20), 21);
    assert_int_equal(qn_timing_launches(491, 20), 491);
}

static void a_summary_is_median_and_tenths(void **state)
{
    (void)state;
    double eleven[] = {10, 0, 9, 1, 8, 2, 7, 3, 6, 4, 5};
    double four[] = {4, 1, 3, 2};
    double one[] = {7};

    qn_timing t = qn_timing_summary(eleven, QN_COUNT(eleven));
    assert_true(t.median_us == 5 && t.low_us == 1 && t.high_us == 9);
    t = qn_timing_summary(four, QN_COUNT(four));
    assert_true(t.median_us == 2.5 && t.low_us == 1 && t.high_us == 4);
    t = qn_timing_summary(one, QN_COUNT(one));
    assert_true(t.median_us == 7 && t.low_us == 7 && t.high_us == 7);
}

static void the_first_replays_are_not_counted(void **state)
{
    (void)state;
    int never = -1;
    const qn_timing_request request = {enqueue, &never, 10, 3};
    const float ms[] = {99, 77, 2, 1, 3};
    qn_timing timing;
    memcpy(fake.ms, ms, sizeof ms);

    assert_int_equal(qn_timing_graph(&driver, &request, &timing), QUERN_OK);

    assert_int_equal(fake.captured, 10);
    assert_int_equal(fake.replays, 5);
    assert_true(timing.median_us == 200 && timing.low_us == 100);
    assert_int_equal(fake.objects, 0);
}

static void a_refused_launch_ends_the_capture(void **state)
{
    (void)state;
    int third = 2;
    const qn_timing_request request = {enqueue, &third, 10, 3};
    qn_timing timing = {1, 2, 3};

    assert_int_equal(qn_timing_graph(&driver, &request, &timing), QUERN_BAD_SIZE);

    assert_string_equal(quern_message(), "refused");
    assert_false(fake.capturing);
    assert_int_equal(fake.captured, 3);
    assert_int_equal(fake.replays, 0);
    assert_int_equal(fake.objects, 0);
    assert_true(timing.median_us == 1 && timing.high_us == 3);
}

static void a_failing_driver_leaves_nothing_behind(void **state)
{
    (void)state;
    int never = -1;
    const qn_timing_request request = {enqueue, &never, 1, 1};
    qn_timing timing;
    fake.instantiate = CUDA_ERROR_OUT_OF_MEMORY;

    assert_int_equal(qn_timing_graph(&driver, &request, &timing), QUERN_DRIVER_ERROR);

    assert_int_equal(fake.objects, 0);
}

static void counts_out_of_range_are_refused(void **state)
{
    (void)state;
    int never = -1;
    const qn_timing_request bad[] = {
        {enqueue, &never, 0, 1}, {enqueue, &never, 1, 0}, {enqueue, &never, 1, QN_TIMING_MAX_REPEATS + 1}};
    qn_timing timing;

    for (size_t i = 0; i < QN_COUNT(bad); i++)
        assert_int_equal(qn_timing_graph(&driver, &bad[i], &timing), QUERN_BAD_ARGUMENT);
    assert_int_equal(fake.objects, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(copies_make_more_than_twice_the_l2, reset),
        cmocka_unit_test_setup(launches_are_whole_rotations, reset),
        cmocka_unit_test_setup(a_summary_is_median_and_tenths, reset),
        cmocka_unit_test_setup(the_first_replays_are_not_counted, reset),
        cmocka_unit_test_setup(a_refused_launch_ends_the_capture, reset),
        cmocka_unit_test_setup(a_failing_driver_leaves_nothing_behind, reset),
        cmocka_unit_test_setup(counts_out_of_range_are_refused, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
