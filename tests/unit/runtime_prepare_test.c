// SPDX-License-Identifier: Apache-2.0
// From a spec to an op on a device: contexts, targets, loading, the table, life and end; with the fake driver.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/private.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/runtime_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#else
#define HAS_SANITIZER 0
#endif

static char folder[64];
static char database[128];
static runtime_log lines;

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90, 86};
    runtime_machine_make(folder, database, cc, 2);
    lines = (runtime_log)RUNTIME_LOG_INIT;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runtime_machine_remove(folder);
    runtime_log_fini(&lines);
    return 0;
}

static quern *open_in_memory(void)
{
    quern_options options = runtime_options("", &lines);
    return runtime_open(&options);
}

static quern_status try_prepare(quern *q, int device)
{
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op = (quern_op *)&spec;
    quern_status status = quern_prepare(q, &spec.base, device, &op);
    if (status != QUERN_OK)
        assert_ptr_equal(op, &spec); // untouched
    else
        quern_op_release(op);
    return status;
}

// ---- contexts

static void without_a_context_the_message_says_how_to_get_one(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    fake_driver_enter(NULL);

    assert_int_equal(try_prepare(q, QUERN_DEVICE_CURRENT), QUERN_NO_CONTEXT);
    assert_non_null(strstr(quern_message(), "cuCtxSetCurrent"));
    assert_int_equal(try_prepare(q, 0), QUERN_NO_CONTEXT);

    assert_int_equal(fake_nvrtc.compiles, 0);
    assert_int_equal(fake_driver.call.cuCtxGetDevice.count, 0); // an error of the API's, which its tools report
    quern_close(q);
}

static void a_context_of_another_device_is_named(void **state)
{
    (void)state;
    quern *q = open_in_memory();

    assert_int_equal(try_prepare(q, 1), QUERN_WRONG_CONTEXT);
    assert_non_null(strstr(quern_message(), "device = 1"));
    assert_non_null(strstr(quern_message(), "device 0"));
    assert_int_equal(try_prepare(q, 7), QUERN_NO_DEVICE);
    assert_non_null(strstr(quern_message(), "0 … 1"));
    assert_int_equal(try_prepare(q, -2), QUERN_NO_DEVICE);

    assert_int_equal(fake_driver.call.cuDeviceGet.count,
                     1); // of device 1: it is not asked for devices that are not there
    assert_ptr_equal(fake_driver_current(), fake_driver_context(0));
    quern_close(q);
}

static void a_context_that_is_not_the_primary_one_serves_and_stays(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    fake_driver_enter(fake_driver_other_context(0));

    quern_op *op = runtime_prepare(q, 1000, 0);

    assert_ptr_equal(fake_driver_current(), fake_driver_other_context(0));
    assert_int_equal(fake_driver.call.cuCtxSetCurrent.count, 0);
    assert_int_equal(fake_driver.call.cuDevicePrimaryCtxRetain.count, 0);
    quern_op_release(op);
    quern_close(q);
}

// A launch never loads: not in the second context of a device either.
static void a_hit_in_another_context_makes_the_op_ready_there(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_op *op = runtime_prepare(q, 1000, 0);
    const long loaded = fake_driver.call.cuKernelGetFunction.count;
    fake_driver_enter(fake_driver_other_context(0));

    quern_op *same = runtime_prepare(q, 1000, 0);
    assert_ptr_equal(same, op);
    const long there = fake_driver.call.cuKernelGetFunction.count;
    assert_int_equal(there, 2 * loaded);
    quern_op_release(runtime_prepare(q, 1000, 0));
    fake_driver_enter(fake_driver_context(0));
    quern_op_release(runtime_prepare(q, 1000, 0));
    assert_int_equal(fake_driver.call.cuKernelGetFunction.count, there); // known in both

    quern_op_release(same);
    quern_op_release(op);
    quern_close(q);
}

static void a_context_that_refuses_the_module_gets_no_op(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_op *op = runtime_prepare(q, 1000, 0);
    fake_driver_enter(fake_driver_other_context(0));

    fake_driver.call.cuKernelGetFunction.fail = CUDA_ERROR_OUT_OF_MEMORY;
    fake_driver.call.cuKernelGetFunction.times = 1;
    assert_int_equal(try_prepare(q, 0), QUERN_LOAD_FAILED);
    assert_int_equal(try_prepare(q, 0), QUERN_OK);

    quern_op_release(op);
    quern_close(q);
}

static void without_a_driver_the_status_says_so(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op;
    quern_options options = runtime_options("", NULL);
    options.driver_file = "/nowhere/libcuda.so.1";
    fake_driver_remove();
    quern *q = runtime_open(&options);

    assert_int_equal(quern_prepare(q, &spec.base, 0, &op), QUERN_DRIVER_NOT_FOUND);

    assert_non_null(strstr(quern_message(), "/nowhere/libcuda.so.1"));
    quern_close(q);
}

// ---- targets

static void a_kernel_is_of_the_best_target_of_the_device(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_op *op = runtime_prepare(q, 1000, QUERN_DEVICE_CURRENT);

    assert_int_equal(quern_op_describe(op, 0, 0, &info), QUERN_OK);

    assert_string_equal(info.arch, "sm_90a");
    assert_int_equal(info.origin, QUERN_ORIGIN_COMPILED);
    quern_op_release(op);
    quern_close(q);
}

static void each_device_gets_an_op_of_its_own(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_op *first = runtime_prepare(q, 1000, QUERN_DEVICE_CURRENT);
    fake_driver_enter(fake_driver_context(1));

    quern_op *second = runtime_prepare(q, 1000, QUERN_DEVICE_CURRENT);

    assert_ptr_not_equal(first, second);
    assert_int_equal(quern_op_describe(second, 0, 0, &info), QUERN_OK);
    assert_string_equal(info.arch, "sm_86");
    quern_op_release(first);
    quern_op_release(second);
    quern_close(q);
}

static void a_device_too_old_is_refused_with_its_name(void **state)
{
    (void)state;
    static const int cc[] = {70};
    fake_driver_install(1, cc);
    fake_driver_enter(fake_driver_context(0));
    quern *q = open_in_memory();

    assert_int_equal(try_prepare(q, 0), QUERN_NO_PLAN);

    assert_non_null(strstr(quern_message(), "7.0"));
    quern_close(q);
}

// ---- the table

static void the_same_spec_gives_the_same_op_and_no_further_work(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_op *first = runtime_prepare(q, 1000, 0);
    long compiles = fake_nvrtc.compiles, loads = fake_driver.call.cuLibraryLoadData.count;
    long attributes = fake_driver.call.cuDeviceGetAttribute.count;

    quern_op *second = runtime_prepare(q, 1000, QUERN_DEVICE_CURRENT);

    assert_ptr_equal(first, second);
    assert_int_equal(fake_nvrtc.compiles, compiles);
    assert_int_equal(fake_driver.call.cuLibraryLoadData.count, loads);
    assert_int_equal(fake_driver.call.cuDeviceGetAttribute.count, attributes);
    assert_int_equal(runtime_counters(q).hit_table, 1);
    quern_op_release(first);
    quern_op_release(second);
    quern_close(q);
}

static void a_spec_that_differs_in_one_field_is_another_op(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_softmax_topk_spec a = runtime_spec(1000, 8), b = a;
    quern_op *of_a, *of_b;
    b.lse = 1;

    assert_int_equal(quern_prepare(q, &a.base, 0, &of_a), QUERN_OK);
    assert_int_equal(quern_prepare(q, &b.base, 0, &of_b), QUERN_OK);

    assert_ptr_not_equal(of_a, of_b);
    quern_op_release(of_a);
    quern_op_release(of_b);
    quern_close(q);
}

// The family's name is compared as text, and a copy of the spec on other memory is the same spec.
static void the_callers_spec_may_go_away(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    char name[] = "softmax_topk";
    quern_softmax_topk_spec *spec = malloc(sizeof *spec);
    quern_op *first, *second;
    assert_non_null(spec);
    *spec = runtime_spec(1000, 8);
    spec->base.family = name;
    assert_int_equal(quern_prepare(q, &spec->base, 0, &first), QUERN_OK);
    memset(spec, 0x55, sizeof *spec);
    memset(name, 'x', sizeof name - 1);
    free(spec);

    second = runtime_prepare(q, 1000, 0);

    assert_ptr_equal(first, second);
    quern_op_release(first);
    quern_op_release(second);
    quern_close(q);
}

static void an_older_shorter_spec_is_the_same_as_the_full_one(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *full = runtime_prepare(q, 1000, 0), *shorter;
    memset((char *)&spec + offsetof(quern_softmax_topk_spec, lse), 0x55,
           sizeof spec - offsetof(quern_softmax_topk_spec, lse));
    spec.base.size = offsetof(quern_softmax_topk_spec, lse);

    assert_int_equal(quern_prepare(q, &spec.base, 0, &shorter), QUERN_OK);

    assert_ptr_equal(full, shorter);
    quern_op_release(full);
    quern_op_release(shorter);
    quern_close(q);
}

static void bytes_that_hit_before_are_no_hit_for_another_family_or_device(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op = runtime_prepare(q, 1000, 0), *other = NULL;
    spec.base.family = "no_such_family";

    assert_int_equal(quern_prepare(q, &spec.base, 0, &other), QUERN_UNKNOWN_FAMILY);
    spec.base.family = NULL;
    assert_int_equal(quern_prepare(q, &spec.base, 0, &other), QUERN_MISSING_ARGUMENT);
    fake_driver_enter(fake_driver_context(1));
    assert_int_equal(try_prepare(q, 0), QUERN_WRONG_CONTEXT);
    fake_driver_enter(NULL);
    assert_int_equal(try_prepare(q, QUERN_DEVICE_CURRENT), QUERN_NO_CONTEXT);

    assert_null(other);
    quern_op_release(op);
    quern_close(q);
}

// Trailing bytes of a newer header, all zero: other bytes, the same spec. However many forms there are, memory is bounded.
// Hits share a number with the references: neither disturbs the other when the hits' bits are full.
static void more_hits_than_their_bits_hold_are_counted_all_the_same(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_counters counters = QUERN_COUNTERS_INIT;
    const uint64_t most = UINT64_MAX >> QN_HIT_BIT;
    quern_op *op = runtime_prepare(q, 1000, 0);

    atomic_fetch_add(&q->references, most << QN_HIT_BIT);
    for (int i = 0; i < 3; i++) quern_op_release(runtime_prepare(q, 1000, 0));

    quern_get_counters(q, &counters);
    assert_int_equal(counters.hit_table, most + 3);
    assert_int_equal(QN_REFERENCES(atomic_load(&q->references)), 2); // the handle's and the op's
    quern_op_release(op);
    quern_close(q);
}

// A hit looks first at what was found for the same place in memory.
static void what_a_place_held_before_is_no_answer_for_what_it_holds_now(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op[2] = {runtime_prepare(q, 1000, 0), runtime_prepare(q, 1001, 0)};
    fake_driver_enter(fake_driver_context(1));
    quern_op *other = runtime_prepare(q, 1000, 1);
    fake_driver_enter(fake_driver_context(0));

    for (int turn = 0; turn < 8; turn++) {
        quern_op *again = NULL;
        int which = turn >> 1 & 1;
        spec.V = 1000 + which;
        assert_int_equal(quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &again), QUERN_OK);
        assert_ptr_equal(again, op[which]);
        quern_op_release(again);
        if (which) continue;
        fake_driver_enter(fake_driver_context(1));
        assert_int_equal(quern_prepare(q, &spec.base, QUERN_DEVICE_CURRENT, &again), QUERN_OK);
        assert_ptr_equal(again, other);
        quern_op_release(again);
        fake_driver_enter(fake_driver_context(0));
    }

    quern_op_release(op[0]), quern_op_release(op[1]), quern_op_release(other);
    quern_close(q);
}

static void the_same_spec_in_other_bytes_is_the_same_op(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_op *op = runtime_prepare(q, 1000, 0);
    quern_any_spec longer;

    for (int turn = 0; turn < 2; turn++)
        for (size_t size = sizeof(quern_softmax_topk_spec); size <= sizeof longer; size++) {
            quern_softmax_topk_spec spec = runtime_spec(1000, 8);
            quern_op *again = NULL;
            memset(&longer, 0, sizeof longer);
            memcpy(&longer, &spec, sizeof spec);
            longer.base.size = size;
            assert_int_equal(quern_prepare(q, &longer.base, 0, &again), QUERN_OK);
            assert_ptr_equal(again, op);
            quern_op_release(again);
        }

    quern_op_release(op);
    quern_close(q);
}

// Under the strictest seccomp mode, where anything but read, write and exit kills: a hit is not allowed to do more.
static void a_hit_makes_no_system_call(void **state)
{
    (void)state;
    if (HAS_SANITIZER) skip();
    quern *q = open_in_memory();
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op = runtime_prepare(q, 1000, 0);
    pid_t child = fork();
    if (child == 0) {
        long code = 9;
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) _exit(77);
        for (int i = 0; i < 1000; i++) {
            quern_op *again = NULL;
            if (quern_prepare(q, &spec.base, 0, &again) != QUERN_OK || again != op) break;
            quern_op_release(again);
            if (i == 999) code = 0;
        }
        syscall(SYS_exit, code);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    quern_op_release(op);
    quern_close(q);
    if (WIFEXITED(result) && WEXITSTATUS(result) == 77) skip();

    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

// ---- threads

enum { THREADS = 8, SPECS = 40 };

typedef struct crowd {
    quern *q;
    quern_op *op[THREADS][SPECS];
    _Atomic int next, errors;
    CUcontext context;
} crowd;

static void *prepare_many(void *user)
{
    crowd *c = user;
    int me = atomic_fetch_add(&c->next, 1);
    fake_driver_enter(c->context);
    for (int i = 0; i < SPECS; i++) {
        int number = (i * 7 + me * 5) % SPECS;
        quern_softmax_topk_spec spec = runtime_spec(100 + number, 8);
        if (quern_prepare(c->q, &spec.base, 0, &c->op[me][number]) != QUERN_OK) atomic_fetch_add(&c->errors, 1);
    }
    fake_driver_enter(NULL);
    return NULL;
}

static void threads_get_the_same_ops_and_each_kernel_is_compiled_once(void **state)
{
    (void)state;
    crowd *c = calloc(1, sizeof *c);
    pthread_t threads[THREADS];
    assert_non_null(c);
    c->q = open_in_memory();
    c->context = fake_driver_context(0);

    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, prepare_many, c), 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);

    assert_int_equal(c->errors, 0);
    for (int number = 0; number < SPECS; number++)
        for (int i = 1; i < THREADS; i++) assert_ptr_equal(c->op[i][number], c->op[0][number]);
    quern_counters counters = runtime_counters(c->q);
    assert_int_equal(counters.compiled, counters.miss);
    assert_int_equal(fake_nvrtc.compiles, counters.compiled);
    assert_int_equal(fake_driver.live_libraries, counters.compiled); // one library a kernel, whoever was first
    for (int i = 0; i < THREADS; i++)
        for (int number = 0; number < SPECS; number++) quern_op_release(c->op[i][number]);
    quern_close(c->q);
    assert_int_equal(fake_driver.live_libraries, 0);
    free(c);
}

// ---- loading

static void loading_exchanges_the_capture_mode_and_puts_it_back(void **state)
{
    (void)state;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, now = CU_STREAM_CAPTURE_MODE_GLOBAL;
    quern *q = open_in_memory();
    CUstream stream;
    qn_driver const *driver;
    assert_int_equal(qn_driver_load(NULL, &driver), QUERN_OK);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    assert_int_equal(driver->cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);

    // The fake refuses to load while a stream captures and the mode is not relaxed.
    quern_op *op = runtime_prepare(q, 1000, 0);

    driver->cuThreadExchangeStreamCaptureMode(&now);
    assert_int_equal(now, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CUgraph graph;
    driver->cuStreamEndCapture(stream, &graph);
    driver->cuGraphDestroy(graph);
    driver->cuStreamDestroy(stream);
    quern_op_release(op);
    quern_close(q);
}

static void a_driver_in_trouble_is_no_reason_to_compile_again(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    fake_driver.call.cuLibraryLoadData.fail = CUDA_ERROR_OUT_OF_MEMORY;
    fake_driver.call.cuLibraryLoadData.times = -1;

    assert_int_equal(try_prepare(q, 0), QUERN_LOAD_FAILED);

    long compiles = fake_nvrtc.compiles;
    assert_non_null(strstr(quern_message(), "OUT_OF_MEMORY"));
    fake_driver.call.cuLibraryLoadData.times = 0;
    assert_int_equal(try_prepare(q, 0), QUERN_OK);
    assert_int_equal(fake_nvrtc.compiles, compiles);
    quern_close(q);
}

static void a_stored_image_that_is_refused_and_cannot_be_made_anew_says_both(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_options options = runtime_options(database, &lines);
    quern *q = runtime_open(&options);
    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", NULL), QUERN_OK);
    fake_driver.call.cuLibraryLoadData.fail = CUDA_ERROR_INVALID_IMAGE;
    fake_driver.call.cuLibraryLoadData.times = 1;
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = -1;
    quern_close(q);
    q = runtime_open(&options);

    assert_int_equal(try_prepare(q, 0), QUERN_COMPILE_FAILED);

    assert_non_null(strstr(quern_message(), "CUDA_ERROR_INVALID_IMAGE"));
    assert_non_null(strstr(quern_message(), "NVRTC_ERROR_COMPILATION"));
    quern_close(q);
}

static void what_was_loaded_before_a_failure_is_unloaded(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    fake_driver.call.cuKernelGetFunction.fail = CUDA_ERROR_OUT_OF_MEMORY;
    fake_driver.call.cuKernelGetFunction.times = 1;

    assert_int_equal(try_prepare(q, 0), QUERN_LOAD_FAILED);

    assert_int_equal(fake_driver.live_libraries, 0);
    quern_close(q);
}

static void a_cache_filled_without_a_device_serves_without_an_nvrtc(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_options options = runtime_options(database, &lines);
    quern *q = runtime_open(&options);
    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", NULL), QUERN_OK);
    quern_close(q);
    fake_nvrtc_remove();
    options.nvrtc_file = "/nowhere/libnvrtc.so.13";
    q = runtime_open(&options);

    quern_op *op = runtime_prepare(q, 1000, 0);

    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    assert_int_equal(quern_op_describe(op, 0, 0, &info), QUERN_OK);
    assert_int_equal(info.origin, QUERN_ORIGIN_USER);
    assert_true(runtime_log_has(&lines, "dispatch,info,ready"));
    assert_true(runtime_log_has(&lines, "softmax_topk V=1000 K=8 in=f32"));
    quern_op_release(op);
    quern_close(q);
}

static void strict_prepare_names_the_best_targets_kernel(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    options.mode = QUERN_MODE_STRICT;
    options.nvrtc_file = "/nowhere/libnvrtc.so.13"; // is not even looked for
    fake_nvrtc_remove();
    quern *q = runtime_open(&options);

    assert_int_equal(try_prepare(q, 0), QUERN_WOULD_COMPILE);

    assert_non_null(strstr(quern_message(), "sm_90a"));
    assert_non_null(strstr(quern_message(), "softmax_topk V=1000 K=8 in=f32"));
    assert_int_equal(fake_nvrtc.compiles, 0);
    quern_close(q);
}

static void variants_are_compiled_side_by_side_up_to_the_limit(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(50257, 64);
    quern_options options = runtime_options("", NULL);
    quern_warm_report report = QUERN_WARM_REPORT_INIT;
    options.compile_threads = 2;
    fake_nvrtc.delay_ms = 60;
    quern *q = runtime_open(&options);

    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", &report), QUERN_OK);

    assert_true(report.kernels >= 2);
    assert_int_equal(report.compiled, report.kernels);
    assert_int_equal(fake_nvrtc.most_running, 2);
    quern_close(q);
}

// ---- life and end

static void an_op_outlives_its_quern(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_op *op = runtime_prepare(q, 1000, 0), *again = quern_op_retain(op);
    quern_image image = QUERN_IMAGE_INIT;
    assert_ptr_equal(op, again);

    quern_close(q);
    quern_op_release(again);

    assert_int_equal(quern_op_image(op, 0, 0, &image), QUERN_OK);
    assert_memory_equal(image.bytes, "\177ELF", 4);
    assert_true(fake_driver.live_libraries > 0);
    quern_op_release(op);
    assert_int_equal(fake_driver.live_libraries, 0);
}

static void the_log_is_not_called_after_close(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_op *op = runtime_prepare(q, 1000, 0);
    quern_close(q);
    qn_text_clear(&lines.lines);
    size_t before = lines.lines.length;

    quern_op_release(op);

    assert_int_equal(lines.lines.length, before);
}

static void a_driver_that_shut_down_first_is_no_trouble(void **state)
{
    (void)state;
    if (HAS_SANITIZER) skip(); // what the fake refuses to unload is leaked
    quern *q = open_in_memory();
    quern_op *op = runtime_prepare(q, 1000, 0);
    fake_driver.call.cuLibraryUnload.fail = CUDA_ERROR_DEINITIALIZED;
    fake_driver.call.cuLibraryUnload.times = -1;
    fake_driver.call.cuThreadExchangeStreamCaptureMode.fail = CUDA_ERROR_DEINITIALIZED;
    fake_driver.call.cuThreadExchangeStreamCaptureMode.times = -1;

    quern_op_release(op);
    quern_close(q);

    assert_true(fake_driver.call.cuLibraryUnload.count > 0);
}

static void two_querns_have_their_own_ops_and_libraries(void **state)
{
    (void)state;
    quern *a = open_in_memory(), *b = open_in_memory();
    quern_op *of_a = runtime_prepare(a, 1000, 0), *of_b = runtime_prepare(b, 1000, 0);
    assert_ptr_not_equal(of_a, of_b);
    long both = fake_driver.live_libraries;

    quern_op_release(of_a);
    quern_close(a);

    assert_int_equal(fake_driver.live_libraries * 2, both);
    quern_op_release(of_b);
    quern_close(b);
}

// ---- an op of a given configuration

static void an_op_of_a_given_configuration_is_not_shared_and_goes_with_its_release(void **state)
{
    (void)state;
    const qn_family *family;
    const qn_arch *arch;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_any_spec full;
    qn_config config = {0};
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern *q = open_in_memory();
    quern_op *chosen = runtime_prepare(q, 1000, 0), *given, *other;
    assert_int_equal(qn_spec_complete(&spec.base, &family, &full), QUERN_OK);
    assert_int_equal(qn_arch_find("sm_90a", &arch), QUERN_OK);
    family->choose(&full.base, arch, 0, &config);
    long before = fake_driver.live_libraries;

    assert_int_equal(qn_prepare_config(q, &spec.base, 0, &config, &given), QUERN_OK);
    assert_int_equal(qn_prepare_config(q, &spec.base, 0, &config, &other), QUERN_OK);

    assert_ptr_not_equal(given, chosen);
    assert_ptr_not_equal(given, other);
    assert_int_equal(quern_op_variants(given), 1);
    assert_int_equal(quern_op_describe(given, 0, 0, &info), QUERN_OK);
    assert_string_equal(info.chosen, "given");
    assert_int_equal(info.origin, QUERN_ORIGIN_MEMORY);
    quern_op_release(chosen);
    quern_op_release(quern_op_retain(given));
    quern_op_release(given);
    quern_op_release(other);
    assert_int_equal(fake_driver.live_libraries, before);
    quern_close(q);
}

// As a command line may give it: with it plan would divide by 0, or make a kernel of no threads.
static void a_given_configuration_without_a_knob_that_it_needs_is_refused(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    qn_config config;
    quern *q = open_in_memory();
    quern_op *op = NULL;
    assert_int_equal(qn_config_parse(&qn_family_softmax_topk, "plan=cluster", &config), QUERN_OK);

    assert_int_equal(qn_prepare_config(q, &spec.base, 0, &config, &op), QUERN_MISSING_FIELD);

    assert_non_null(strstr(quern_message(), "is needed and not given"));
    assert_null(op);
    quern_close(q);
}

// ---- looking inside

static void describe_refuses_an_index_that_is_none(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_op *op = runtime_prepare(q, 1000, 0);
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT, before = info;
    quern_image image = QUERN_IMAGE_INIT;
    size_t count = quern_op_variants(op);

    assert_int_equal(quern_op_describe(op, count, 0, &info), QUERN_BAD_ARGUMENT);
    assert_int_equal(quern_op_describe(op, 0, quern_op_stages(op, 0), &info), QUERN_BAD_ARGUMENT);
    assert_int_equal(quern_op_image(op, count, 0, &image), QUERN_BAD_ARGUMENT);

    assert_memory_equal(&info, &before, sizeof info);
    info.size = image.size = 0; // no INIT
    assert_int_equal(quern_op_describe(op, 0, 0, &info), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "info: size = 0"));
    assert_int_equal(quern_op_image(op, 0, 0, &image), QUERN_BAD_ARGUMENT);
    assert_int_equal(quern_op_stages(op, count), 0);
    quern_op_release(op);
    quern_close(q);
}

static void every_size_has_a_variant_and_its_text_says_which(void **state)
{
    (void)state;
    quern *q = open_in_memory();
    quern_op *op = runtime_prepare(q, 50257, 0);
    size_t last = 0;

    for (int64_t rows = 0; rows <= INT32_MAX; rows = rows * 2 + 1) {
        quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
        quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
        sizes.rows = rows;
        size_t variant = quern_op_variant_for(op, &sizes);
        assert_true(variant < quern_op_variants(op));
        assert_int_equal(quern_op_describe(op, variant, 0, &info), QUERN_OK);
        assert_true(!strncmp(info.sizes, "rows ", 5));
        assert_true(info.threads > 0 && info.cluster > 0 && info.registers > 0);
        assert_non_null(strchr(info.config, '='));
        last = variant;
    }
    assert_int_equal(last, quern_op_variants(op) - 1);
    quern_op_release(op);
    quern_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_context_the_message_says_how_to_get_one),
        TEST(a_context_of_another_device_is_named),
        TEST(a_context_that_is_not_the_primary_one_serves_and_stays),
        TEST(a_hit_in_another_context_makes_the_op_ready_there),
        TEST(a_context_that_refuses_the_module_gets_no_op),
        TEST(without_a_driver_the_status_says_so),
        TEST(a_kernel_is_of_the_best_target_of_the_device),
        TEST(each_device_gets_an_op_of_its_own),
        TEST(a_device_too_old_is_refused_with_its_name),
        TEST(the_same_spec_gives_the_same_op_and_no_further_work),
        TEST(a_spec_that_differs_in_one_field_is_another_op),
        TEST(the_callers_spec_may_go_away),
        TEST(an_older_shorter_spec_is_the_same_as_the_full_one),
        TEST(bytes_that_hit_before_are_no_hit_for_another_family_or_device),
        TEST(more_hits_than_their_bits_hold_are_counted_all_the_same),
        TEST(what_a_place_held_before_is_no_answer_for_what_it_holds_now),
        TEST(the_same_spec_in_other_bytes_is_the_same_op),
        TEST(a_hit_makes_no_system_call),
        TEST(threads_get_the_same_ops_and_each_kernel_is_compiled_once),
        TEST(loading_exchanges_the_capture_mode_and_puts_it_back),
        TEST(a_driver_in_trouble_is_no_reason_to_compile_again),
        TEST(a_stored_image_that_is_refused_and_cannot_be_made_anew_says_both),
        TEST(what_was_loaded_before_a_failure_is_unloaded),
        TEST(a_cache_filled_without_a_device_serves_without_an_nvrtc),
        TEST(strict_prepare_names_the_best_targets_kernel),
        TEST(variants_are_compiled_side_by_side_up_to_the_limit),
        TEST(an_op_outlives_its_quern),
        TEST(the_log_is_not_called_after_close),
        TEST(a_driver_that_shut_down_first_is_no_trouble),
        TEST(two_querns_have_their_own_ops_and_libraries),
        TEST(an_op_of_a_given_configuration_is_not_shared_and_goes_with_its_release),
        TEST(a_given_configuration_without_a_knob_that_it_needs_is_refused),
        TEST(describe_refuses_an_index_that_is_none),
        TEST(every_size_has_a_variant_and_its_text_says_which),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
