// SPDX-License-Identifier: Apache-2.0
// Loading libcuda: what is said when it is missing, is no driver, or is one that lacks a function; and the fake driver
// that other tests rely on. Needs no GPU; where libcuda is present, the default load is not tried.
#include "cuda/driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"

static void a_missing_driver_lists_what_was_tried_and_why(void **state)
{
    const qn_driver *driver = (const qn_driver *)&driver;

    (void)state;
    assert_int_equal(qn_driver_load("/nowhere/libcuda.so.1", &driver), QUERN_DRIVER_NOT_FOUND);
    assert_ptr_equal(driver, (const qn_driver *)&driver);
    assert_non_null(strstr(quern_message(), "/nowhere/libcuda.so.1"));
    assert_non_null(strstr(quern_message(), "No such file"));
    assert_string_equal(qn_driver_path(), "");
}

static void a_file_that_is_no_library_is_said_to_be_none(void **state)
{
    char path[] = "/tmp/quern-driver-XXXXXX";
    const qn_driver *driver;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && write(fd, "not an ELF file", 15) == 15);
    close(fd);
    quern_status status = qn_driver_load(path, &driver);
    unlink(path);
    assert_int_equal(status, QUERN_DRIVER_NOT_FOUND);
    assert_non_null(strstr(quern_message(), path));
}

static void a_library_without_the_functions_is_too_old(void **state)
{
    const qn_driver *driver;

    (void)state;
    assert_int_equal(qn_driver_load("libc.so.6", &driver), QUERN_DRIVER_TOO_OLD);
    assert_non_null(strstr(quern_message(), "cuInit"));
    assert_non_null(strstr(quern_message(), "libc.so.6"));
    assert_non_null(strstr(quern_message(), "12.0"));
}

static void a_replacement_is_used_and_can_be_taken_back(void **state)
{
    const qn_driver *driver;
    int cc = 90, count = 0;

    (void)state;
    fake_driver_install(1, &cc);
    assert_int_equal(qn_driver_load("/nowhere/at/all", &driver), QUERN_OK);
    assert_int_equal(driver->cuDeviceGetCount(&count), CUDA_SUCCESS);
    assert_int_equal(count, 1);
    fake_driver_remove();
    assert_int_equal(qn_driver_load("/nowhere/at/all", &driver), QUERN_DRIVER_NOT_FOUND);
}

static void a_failed_call_is_named_with_its_error_and_a_hint(void **state)
{
    const qn_driver *driver;
    int cc = 90;

    (void)state;
    fake_driver_install(1, &cc);
    qn_driver_load(NULL, &driver);
    assert_int_equal(qn_driver_fail(driver, QUERN_LAUNCH_FAILED, "cuLaunchKernelEx", CUDA_ERROR_INVALID_VALUE),
                     QUERN_LAUNCH_FAILED);
    assert_string_equal(quern_message(), "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (invalid argument)");
    qn_driver_fail(driver, QUERN_LOAD_FAILED, "cuLibraryLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_non_null(strstr(quern_message(), "another architecture"));
    qn_driver_fail(driver, QUERN_LOAD_FAILED, "cuLibraryLoadData", CUDA_ERROR_INVALID_IMAGE);
    assert_non_null(strstr(quern_message(), "CUDA_ERROR_INVALID_IMAGE"));
    qn_driver_fail(driver, QUERN_DRIVER_ERROR, "cuInit", (CUresult)31415);
    assert_string_equal(quern_message(), "cuInit: CUDA error 31415");
    fake_driver_remove();
}

// ---- the fake driver's own promises

static const qn_driver *two_devices(void)
{
    static const int cc[] = {90, 120};
    const qn_driver *driver = NULL;
    fake_driver_install(2, cc);
    fake_nvrtc_install(13, 0);
    assert_int_equal(qn_driver_load(NULL, &driver), QUERN_OK);
    return driver;
}

static void the_fake_loads_and_launches_what_it_is_given(void **state)
{
    const qn_driver *driver = two_devices();
    qn_text image = QN_TEXT_INIT;
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    int params[4] = {1, 2, 3, 4}, registers = 0;
    void *parameters[] = {params};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {4, 1, 1}};
    CUlaunchConfig config = {8, 1, 1, 256, 1, 1, 1000, NULL, &attribute, 1};

    (void)state;
    fake_cubin("quern_x", 90, "source", &image);
    fake_driver.param_bytes = sizeof params;
    fake_driver_enter(fake_driver_context(0));
    assert_int_equal(driver->cuLibraryLoadData(&library, image.bytes, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuLibraryGetKernel(&kernel, library, "other"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(driver->cuLibraryGetKernel(&kernel, library, "quern_x"), CUDA_SUCCESS);
    assert_int_equal(driver->cuKernelGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0), CUDA_SUCCESS);
    assert_int_equal(registers, 32);
    assert_int_equal(driver->cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
    assert_int_equal(driver->cuLaunchKernelEx(&config, function, parameters, NULL), CUDA_SUCCESS);
    assert_int_equal(fake_driver.call.cuLaunchKernelEx.count, 1);
    assert_string_equal(fake_driver.last.entry, "quern_x");
    assert_int_equal(fake_driver.last.cluster, 4);
    assert_int_equal(fake_driver.last.grid[0], 8);
    assert_int_equal(fake_driver.last.arch, 90);
    assert_memory_equal(fake_driver.last.params, params, sizeof params);
    assert_int_equal(driver->cuLibraryUnload(library), CUDA_SUCCESS);
    assert_int_equal(fake_driver.live_libraries, 0);
    qn_text_fini(&image);
    fake_driver_remove();
    fake_nvrtc_remove();
}

static void the_fake_is_strict(void **state)
{
    const qn_driver *driver = two_devices();
    qn_text image = QN_TEXT_INIT;
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};

    (void)state;
    fake_cubin("k", 90, "source", &image);
    assert_int_equal(driver->cuLibraryLoadData(&library, image.bytes, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuLibraryGetKernel(&kernel, library, "k"), CUDA_SUCCESS);
    assert_int_equal(driver->cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_CONTEXT);
    fake_driver_enter(fake_driver_context(1)); // a 12.0 device
    assert_int_equal(driver->cuKernelGetFunction(&function, kernel), CUDA_ERROR_NO_BINARY_FOR_GPU);
    fake_driver_enter(fake_driver_other_context(0));
    assert_int_equal(driver->cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
    config.sharedMemBytes = 100000;
    assert_int_equal(driver->cuLaunchKernelEx(&config, function, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver->cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300000, kernel, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver->cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000, kernel, 0),
                     CUDA_SUCCESS);
    assert_int_equal(driver->cuLaunchKernelEx(&config, function, NULL, NULL), CUDA_SUCCESS);
    config.gridDimX = 0;
    assert_int_equal(driver->cuLaunchKernelEx(&config, function, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    driver->cuLibraryUnload(library);
    qn_text_fini(&image);
    fake_driver_remove();
    fake_nvrtc_remove();
}

static CUresult load(const qn_driver *driver, const void *bytes, CUlibrary *library)
{
    return driver->cuLibraryLoadData(library, bytes, NULL, NULL, 0, NULL, NULL, 0);
}

static void the_fake_refuses_images_lazily_or_eagerly(void **state)
{
    static const char junk[128] = "no cubin";
    const qn_driver *driver = two_devices();
    qn_text image = QN_TEXT_INIT;
    CUlibrary bad, other;
    CUkernel kernel;

    (void)state;
    fake_cubin("k", 120, "source", &image);
    fake_driver_enter(fake_driver_context(0)); // 9.0
    assert_int_equal(load(driver, junk, &bad), CUDA_SUCCESS);
    assert_int_equal(load(driver, image.bytes, &other), CUDA_SUCCESS);
    assert_int_equal(driver->cuLibraryGetKernel(&kernel, bad, "k"), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(driver->cuLibraryGetKernel(&kernel, other, "k"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    driver->cuLibraryUnload(bad);
    driver->cuLibraryUnload(other);
    fake_driver.eager = true;
    assert_int_equal(load(driver, junk, &bad), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(load(driver, image.bytes, &other), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(fake_driver.live_libraries, 0);
    qn_text_fini(&image);
    fake_driver_remove();
    fake_nvrtc_remove();
}

static void the_fake_refuses_to_load_while_a_stream_captures(void **state)
{
    const qn_driver *driver = two_devices();
    qn_text image = QN_TEXT_INIT;
    CUlibrary library;
    CUstream stream;
    CUgraph graph;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus status;

    (void)state;
    fake_cubin("k", 90, "source", &image);
    fake_driver_enter(fake_driver_context(0));
    assert_int_equal(driver->cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(driver->cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_int_equal(driver->cuLibraryLoadData(&library, image.bytes, NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(driver->cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(driver->cuLibraryLoadData(&library, image.bytes, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    assert_int_equal(driver->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    driver->cuGraphDestroy(graph);
    driver->cuStreamDestroy(stream);
    driver->cuLibraryUnload(library);
    qn_text_fini(&image);
    fake_driver_remove();
    fake_nvrtc_remove();
}

static void the_fake_fails_as_often_as_it_is_told(void **state)
{
    const qn_driver *driver = two_devices();
    int count;

    (void)state;
    fake_driver.call.cuDeviceGetCount.fail = CUDA_ERROR_DEINITIALIZED;
    fake_driver.call.cuDeviceGetCount.times = 2;
    assert_int_equal(driver->cuDeviceGetCount(&count), CUDA_ERROR_DEINITIALIZED);
    assert_int_equal(driver->cuDeviceGetCount(&count), CUDA_ERROR_DEINITIALIZED);
    assert_int_equal(driver->cuDeviceGetCount(&count), CUDA_SUCCESS);
    fake_driver.call.cuDeviceGetCount.times = -1;
    for (int i = 0; i < 5; i++) assert_int_equal(driver->cuDeviceGetCount(&count), CUDA_ERROR_DEINITIALIZED);
    assert_int_equal(fake_driver.call.cuDeviceGetCount.count, 8);
    fake_driver_remove();
    fake_nvrtc_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_driver_lists_what_was_tried_and_why),
        cmocka_unit_test(a_file_that_is_no_library_is_said_to_be_none),
        cmocka_unit_test(a_library_without_the_functions_is_too_old),
        cmocka_unit_test(a_replacement_is_used_and_can_be_taken_back),
        cmocka_unit_test(a_failed_call_is_named_with_its_error_and_a_hint),
        cmocka_unit_test(the_fake_loads_and_launches_what_it_is_given),
        cmocka_unit_test(the_fake_is_strict),
        cmocka_unit_test(the_fake_refuses_images_lazily_or_eagerly),
        cmocka_unit_test(the_fake_refuses_to_load_while_a_stream_captures),
        cmocka_unit_test(the_fake_fails_as_often_as_it_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
