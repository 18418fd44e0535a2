// SPDX-License-Identifier: Apache-2.0
// A kernel of the caller's through the same path, and warm without a driver.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/runtime_fixture.h"

static const char source[] =
    "struct P { float *x; int n; };\nextern \"C\" __global__ void scale(P p) { p.x[0] = 1; }\n";
static char folder[64];
static char database[128];

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90, 86};
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    fake_nvrtc_install(13, 0);
    fake_driver_install(2, cc);
    fake_driver_enter(fake_driver_context(0));
    fake_driver.param_bytes = 16;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_driver_enter(NULL);
    fake_driver_remove();
    fake_nvrtc_remove();
    cache_folder_remove(folder);
    return 0;
}

static quern_custom good_custom(void)
{
    quern_custom custom = QUERN_CUSTOM_INIT;
    custom.source = source, custom.entry = "scale", custom.threads = 128, custom.parameter_bytes = 16;
    return custom;
}

static quern *open_on_database(void)
{
    quern_options options = runtime_options(database, NULL);
    return runtime_open(&options);
}

static quern_kernel *prepare(quern *q, const quern_custom *custom)
{
    quern_kernel *kernel = NULL;
    quern_status status = quern_prepare_custom(q, custom, 0, &kernel);
    if (status != QUERN_OK) fail_msg("%s: %s", quern_status_name(status), quern_message());
    return kernel;
}

static void a_custom_kernel_is_compiled_kept_and_launched(void **state)
{
    (void)state;
    static const uint32_t grid[3] = {5, 2, 1};
    quern_custom custom = good_custom();
    unsigned char parameters[16];
    quern *q = open_on_database();
    for (size_t i = 0; i < sizeof parameters; i++) parameters[i] = (unsigned char)i;
    quern_kernel *kernel = prepare(q, &custom);

    assert_int_equal(quern_launch_packed(kernel, grid, parameters, sizeof parameters, NULL), QUERN_OK);

    assert_memory_equal(fake_driver.last.params, parameters, sizeof parameters);
    assert_memory_equal(fake_driver.last.grid, grid, sizeof grid);
    assert_int_equal(fake_driver.last.block[0], 128);
    assert_string_equal(fake_driver.last.entry, "scale");
    quern_close(q); // before the kernel: it stays usable
    assert_int_equal(quern_launch_packed(kernel, grid, parameters, sizeof parameters, NULL), QUERN_OK);
    quern_kernel_release(kernel);
    assert_int_equal(fake_driver.live_libraries, 0);
    q = open_on_database();
    kernel = prepare(q, &custom);
    assert_int_equal(fake_nvrtc.compiles, 1);
    quern_kernel_release(kernel);
    quern_close(q);
}

static void shared_memory_above_48_kib_and_large_clusters_are_opted_into(void **state)
{
    (void)state;
    static const uint32_t grid[3] = {32, 1, 1}, odd[3] = {17, 1, 1};
    unsigned char parameters[16] = {0};
    quern_custom custom = good_custom();
    custom.dynamic_shared_bytes = 200 * 1024, custom.cluster = 16;
    quern *q = open_on_database();
    quern_kernel *large = prepare(q, &custom);
    custom.dynamic_shared_bytes = 100 * 1024;
    quern_kernel *small = prepare(q, &custom);

    assert_int_equal(quern_launch_packed(small, grid, parameters, sizeof parameters, NULL), QUERN_OK);
    assert_int_equal(quern_launch_packed(large, grid, parameters, sizeof parameters, NULL), QUERN_OK); // not taken back
    assert_int_equal(fake_driver.last.cluster, 16);
    assert_int_equal(fake_driver.last.shared, 200 * 1024);
    assert_int_equal(quern_launch_packed(large, odd, parameters, sizeof parameters, NULL), QUERN_BAD_SIZE);

    assert_int_equal(fake_nvrtc.compiles, 1);
    quern_kernel_release(large);
    quern_kernel_release(small);
    quern_close(q);
}

static void what_the_device_cannot_do_is_refused_before_a_compile(void **state)
{
    (void)state;
    quern_custom custom = good_custom();
    quern_kernel *kernel = NULL;
    quern *q = open_on_database();
    fake_driver_enter(fake_driver_context(1));

    custom.cluster = 2;
    assert_int_equal(quern_prepare_custom(q, &custom, 1, &kernel), QUERN_NO_PLAN);
    assert_non_null(strstr(quern_message(), "sm_86"));
    custom = good_custom(), custom.dynamic_shared_bytes = 200 * 1024;
    assert_int_equal(quern_prepare_custom(q, &custom, 1, &kernel), QUERN_NO_PLAN);

    assert_int_equal(fake_nvrtc.compiles, 0);
    assert_null(kernel);
    quern_close(q);
}

static void each_bad_member_is_named(void **state)
{
    (void)state;
    quern_kernel *kernel = NULL;
    quern *q = open_on_database();
    quern_custom custom = good_custom();
    custom.threads = 1025;
    assert_int_equal(quern_prepare_custom(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "custom.threads = 1025"));
    custom = good_custom(), custom.threads = 0;
    assert_int_equal(quern_prepare_custom(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.cluster = 17;
    assert_int_equal(quern_prepare_custom(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.parameter_bytes = 4097;
    assert_int_equal(quern_prepare_custom(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.entry = "not a name";
    assert_int_equal(quern_prepare_custom(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.entry = "1st";
    assert_int_equal(quern_prepare_custom(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.source = NULL;
    assert_int_equal(quern_prepare_custom(q, &custom, 0, &kernel), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_prepare_custom(q, NULL, 0, &kernel), QUERN_MISSING_ARGUMENT);

    assert_null(kernel);
    quern_close(q);
}

static void an_include_is_refused_for_its_text_would_not_be_in_the_key(void **state)
{
    (void)state;
    static const char *const sources[] = {"#include \"scale.h\"\n", "int a;\n\t#  include <scale.h>\nint b;\n"};
    quern_kernel *kernel = NULL;
    quern *q = open_on_database();

    for (size_t i = 0; i < QN_COUNT(sources); i++) {
        quern_custom custom = good_custom();
        custom.source = sources[i];
        assert_int_equal(quern_prepare_custom(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
        assert_non_null(strstr(quern_message(), i ? "line 2" : "line 1"));
        assert_non_null(strstr(quern_message(), "scale.h"));
    }

    assert_null(kernel);
    assert_int_equal(fake_nvrtc.compiles, 0);
    quern_close(q);
}

static void a_packed_launch_checks_grid_and_parameters(void **state)
{
    (void)state;
    static const uint32_t good[3] = {1, 1, 1}, none[3] = {1, 0, 1}, tall[3] = {1, 65536, 1};
    unsigned char parameters[16] = {0};
    quern_custom custom = good_custom();
    quern *q = open_on_database();
    quern_kernel *kernel = prepare(q, &custom);

    assert_int_equal(quern_launch_packed(kernel, none, parameters, 16, NULL), QUERN_BAD_SIZE);
    assert_int_equal(quern_launch_packed(kernel, tall, parameters, 16, NULL), QUERN_BAD_SIZE);
    assert_int_equal(quern_launch_packed(kernel, good, parameters, 8, NULL), QUERN_BAD_SIZE);
    assert_int_equal(quern_launch_packed(kernel, good, NULL, 16, NULL), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_launch_packed(kernel, NULL, parameters, 16, NULL), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_launch_packed(NULL, good, parameters, 16, NULL), QUERN_MISSING_ARGUMENT);
    fake_driver.call.cuLaunchKernelEx.fail = CUDA_ERROR_INVALID_VALUE;
    fake_driver.call.cuLaunchKernelEx.times = 1;
    assert_int_equal(quern_launch_packed(kernel, good, parameters, 16, NULL), QUERN_LAUNCH_FAILED);
    assert_non_null(strstr(quern_message(), "scale"));

    quern_kernel_release(kernel);
    quern_close(q);
}

// ---- warm

static void warm_needs_no_driver_and_reports_what_it_did(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(50257, 64);
    quern_warm_report first = QUERN_WARM_REPORT_INIT, second = QUERN_WARM_REPORT_INIT;
    quern_options options = runtime_options(database, NULL);
    fake_driver_remove();
    options.driver_file = "/nowhere/libcuda.so.1";
    quern *q = runtime_open(&options);
    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", &first), QUERN_OK);
    quern_close(q);

    q = runtime_open(&options);
    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", &second), QUERN_OK);

    assert_true(first.variants > 0 && first.kernels > 0);
    assert_int_equal(first.compiled, first.kernels);
    assert_int_equal(first.stored, first.kernels);
    assert_int_equal(first.cached, 0);
    assert_int_equal(second.cached, first.kernels);
    assert_int_equal(second.compiled + second.stored, 0);
    assert_true(second.compile_ms == 0.0);
    quern_close(q);
    quern_store store = cache_open_read(database);
    assert_int_equal(cache_count(&store), first.kernels);
    qn_sqlite_close(&store);
}

static void warm_says_when_the_store_took_nothing(void **state)
{
    (void)state;
    runtime_store store = RUNTIME_STORE_INIT;
    quern_store callbacks = runtime_store_callbacks(&store);
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_warm_report report = QUERN_WARM_REPORT_INIT;
    quern_options options = runtime_options("", NULL);
    options.store = &callbacks;
    store.put_status = QUERN_STORE_FULL;
    quern *q = runtime_open(&options);

    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", &report), QUERN_OK);

    assert_true(report.compiled > 0);
    assert_int_equal(report.stored, 0);
    quern_close(q);
    runtime_store_fini(&store);
}

static void warm_refuses_an_architecture_that_is_none(void **state)
{
    (void)state;
    static const char *const names[] = {"sm_60", "sm_131", "90a", "compute_90", ""};
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_warm_report report = QUERN_WARM_REPORT_INIT, before = report;
    quern *q = open_on_database();

    for (size_t i = 0; i < QN_COUNT(names); i++) {
        assert_int_equal(quern_warm(q, &spec.base, names[i], &report), QUERN_UNKNOWN_ARCH);
        assert_non_null(strstr(quern_message(), "sm_90a"));
    }
    assert_int_equal(quern_warm(q, &spec.base, NULL, &report), QUERN_MISSING_ARGUMENT);
    spec.K = 2000000;
    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", &report), QUERN_BAD_VALUE);

    assert_memory_equal(&report, &before, sizeof report);
    assert_int_equal(fake_nvrtc.compiles, 0);
    assert_int_equal(cache_folder_count(folder), 0);
    quern_close(q);
}

static void the_first_failing_kernel_is_told_and_the_rest_is_not_begun(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(50257, 64);
    quern_options options = runtime_options("", NULL);
    options.compile_threads = 1;
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = -1;
    quern *q = runtime_open(&options);

    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", NULL), QUERN_COMPILE_FAILED);

    assert_non_null(strstr(quern_message(), "softmax_topk V=50257 K=64 in=f32"));
    assert_int_equal(fake_nvrtc.compiles, 1);
    quern_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_custom_kernel_is_compiled_kept_and_launched),
        TEST(shared_memory_above_48_kib_and_large_clusters_are_opted_into),
        TEST(what_the_device_cannot_do_is_refused_before_a_compile),
        TEST(each_bad_member_is_named),
        TEST(an_include_is_refused_for_its_text_would_not_be_in_the_key),
        TEST(a_packed_launch_checks_grid_and_parameters),
        TEST(warm_needs_no_driver_and_reports_what_it_did),
        TEST(warm_says_when_the_store_took_nothing),
        TEST(warm_refuses_an_architecture_that_is_none),
        TEST(the_first_failing_kernel_is_told_and_the_rest_is_not_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
