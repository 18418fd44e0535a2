// SPDX-License-Identifier: Apache-2.0
// A kernel of the caller's through the same path, and warm without a driver.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
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
    runtime_machine_make(folder, database, cc, 2);
    fake_driver.param_bytes = 16;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runtime_machine_remove(folder);
    return 0;
}

static quern_source good_custom(void)
{
    quern_source custom = QUERN_SOURCE_INIT;
    custom.source = source, custom.entry = "scale", custom.threads = 128, custom.parameter_bytes = 16;
    return custom;
}

static quern *open_on_database(void)
{
    quern_options options = runtime_options(database, NULL);
    return runtime_open(&options);
}

static quern_kernel *prepare(quern *q, const quern_source *custom)
{
    quern_kernel *kernel = NULL;
    quern_status status = quern_prepare_source(q, custom, 0, &kernel);
    if (status != QUERN_OK) fail_msg("%s: %s", quern_status_name(status), quern_message());
    return kernel;
}

static void a_custom_kernel_is_compiled_kept_and_launched(void **state)
{
    (void)state;
    static const quern_geometry grid = {sizeof grid, {5, 2, 1}, {0, 0, 0}, -1};
    quern_source custom = good_custom();
    unsigned char parameters[16];
    quern *q = open_on_database();
    for (size_t i = 0; i < sizeof parameters; i++) parameters[i] = (unsigned char)i;
    quern_kernel *kernel = prepare(q, &custom);

    assert_int_equal(quern_launch_packed(kernel, &grid, parameters, sizeof parameters, NULL), QUERN_OK);

    assert_memory_equal(fake_driver.last.params, parameters, sizeof parameters);
    assert_memory_equal(fake_driver.last.grid, grid.grid, sizeof grid.grid);
    assert_int_equal(fake_driver.last.block[0], 128);
    assert_string_equal(fake_driver.last.entry, "scale");
    quern_close(q); // before the kernel: it stays usable
    assert_int_equal(quern_launch_packed(kernel, &grid, parameters, sizeof parameters, NULL), QUERN_OK);
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
    static const quern_geometry grid = {sizeof grid, {32, 1, 1}, {0, 0, 0}, -1};
    static const quern_geometry odd = {sizeof odd, {17, 1, 1}, {0, 0, 0}, -1};
    unsigned char parameters[16] = {0};
    quern_source custom = good_custom();
    custom.dynamic_shared_bytes = 200 * 1024, custom.cluster = 16;
    quern *q = open_on_database();
    quern_kernel *large = prepare(q, &custom);
    custom.dynamic_shared_bytes = 100 * 1024;
    quern_kernel *small = prepare(q, &custom);

    assert_int_equal(quern_launch_packed(small, &grid, parameters, sizeof parameters, NULL), QUERN_OK);
    assert_int_equal(quern_launch_packed(large, &grid, parameters, sizeof parameters, NULL),
                     QUERN_OK); // not taken back
    assert_int_equal(fake_driver.last.cluster, 16);
    assert_int_equal(fake_driver.last.shared, 200 * 1024);
    assert_int_equal(quern_launch_packed(large, &odd, parameters, sizeof parameters, NULL), QUERN_BAD_SIZE);

    assert_int_equal(fake_nvrtc.compiles, 1);
    quern_kernel_release(large);
    quern_kernel_release(small);
    quern_close(q);
}

static void what_the_device_cannot_do_is_refused_before_a_compile(void **state)
{
    (void)state;
    quern_source custom = good_custom();
    quern_kernel *kernel = NULL;
    quern *q = open_on_database();
    fake_driver_enter(fake_driver_context(1));

    custom.cluster = 2;
    assert_int_equal(quern_prepare_source(q, &custom, 1, &kernel), QUERN_NO_PLAN);
    assert_non_null(strstr(quern_message(), "sm_86"));
    custom = good_custom(), custom.dynamic_shared_bytes = 200 * 1024;
    assert_int_equal(quern_prepare_source(q, &custom, 1, &kernel), QUERN_NO_PLAN);

    assert_int_equal(fake_nvrtc.compiles, 0);
    assert_null(kernel);
    quern_close(q);
}

static void each_bad_member_is_named(void **state)
{
    (void)state;
    quern_kernel *kernel = NULL;
    quern *q = open_on_database();
    quern_source custom = good_custom();
    custom.threads = 1025;
    assert_int_equal(quern_prepare_source(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "source.threads = 1025"));
    custom = good_custom(), custom.threads = 0;
    assert_int_equal(quern_prepare_source(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.cluster = 17;
    assert_int_equal(quern_prepare_source(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.parameter_bytes = 4097;
    assert_int_equal(quern_prepare_source(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.entry = "not a name";
    assert_int_equal(quern_prepare_source(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.entry = "1st";
    assert_int_equal(quern_prepare_source(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
    custom = good_custom(), custom.source = NULL;
    assert_int_equal(quern_prepare_source(q, &custom, 0, &kernel), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_prepare_source(q, NULL, 0, &kernel), QUERN_MISSING_ARGUMENT);
    quern_source listless = custom;
    listless.option_count = 1;
    assert_int_equal(quern_prepare_source(q, &listless, 0, &kernel), QUERN_MISSING_ARGUMENT);
    listless.option_count = (size_t)-1; // never set
    assert_int_equal(quern_warm_source(q, &listless, "sm_90a", NULL), QUERN_MISSING_ARGUMENT);

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
        quern_source custom = good_custom();
        custom.source = sources[i];
        assert_int_equal(quern_prepare_source(q, &custom, 0, &kernel), QUERN_BAD_ARGUMENT);
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
    static const quern_geometry good = QUERN_GEOMETRY_INIT;
    static const quern_geometry none = {sizeof none, {1, 0, 1}, {0, 0, 0}, -1};
    static const quern_geometry tall = {sizeof tall, {1, 65536, 1}, {0, 0, 0}, -1};
    unsigned char parameters[16] = {0};
    quern_source custom = good_custom();
    quern *q = open_on_database();
    quern_kernel *kernel = prepare(q, &custom);

    assert_int_equal(quern_launch_packed(kernel, &none, parameters, 16, NULL), QUERN_BAD_SIZE);
    assert_int_equal(quern_launch_packed(kernel, &tall, parameters, 16, NULL), QUERN_BAD_SIZE);
    assert_int_equal(quern_launch_packed(kernel, &good, parameters, 8, NULL), QUERN_BAD_SIZE);
    assert_int_equal(quern_launch_packed(kernel, &good, NULL, 16, NULL), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_launch_packed(kernel, NULL, parameters, 16, NULL), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_launch_packed(NULL, &good, parameters, 16, NULL), QUERN_MISSING_ARGUMENT);
    fake_driver.call.cuLaunchKernelEx.fail = CUDA_ERROR_INVALID_VALUE;
    fake_driver.call.cuLaunchKernelEx.times = 1;
    assert_int_equal(quern_launch_packed(kernel, &good, parameters, 16, NULL), QUERN_LAUNCH_FAILED);
    assert_non_null(strstr(quern_message(), "scale"));

    quern_kernel_release(kernel);
    quern_close(q);
}

// ---- the key is the complete content

static void every_part_of_the_source_is_in_the_key(void **state)
{
    (void)state;
    static const char *const options[] = {"-DN=1", "-DN=2"};
    static const quern_header one[] = {{"a.h", "1"}, {"b.h", "2"}}, turned[] = {{"b.h", "2"}, {"a.h", "1"}};
    static const quern_header renamed[] = {{"a.h", "1"}, {"c.h", "2"}}, other[] = {{"a.h", "1"}, {"b.h", "3"}};
    quern_source sources[8];
    long compiled = 0;
    quern *q = open_on_database();
    for (size_t i = 0; i < QN_COUNT(sources); i++) sources[i] = good_custom();
    sources[1].options = options, sources[1].option_count = 1;
    sources[2].options = options + 1, sources[2].option_count = 1;
    sources[3].headers = one, sources[3].header_count = 2;
    sources[4].headers = renamed, sources[4].header_count = 2;
    sources[5].headers = other, sources[5].header_count = 2;
    sources[6].digest = "1", sources[6].digest_bytes = 1;
    sources[7].digest = "2", sources[7].digest_bytes = 1;

    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < QN_COUNT(sources); i++) {
            quern_kernel_release(prepare(q, &sources[i]));
            compiled += !again;
            assert_int_equal(fake_nvrtc.compiles, compiled);
        }
    sources[3].headers = turned;                             // the order of headers means nothing
    sources[3].threads = 64, sources[3].parameter_bytes = 8; // nor do limits of the launch make another kernel
    quern_kernel_release(prepare(q, &sources[3]));

    assert_int_equal(fake_nvrtc.compiles, compiled);
    quern_close(q);
}

static void a_digest_stands_for_the_include_paths_wherever_they_are(void **state)
{
    (void)state;
    static const char *const here[] = {"-I/here", "-DN=1"}, *const there[] = {"--include-path=/there", "-DN=1"};
    static const char *const lines[] = {"-I/here", "-DN=1", "-lineinfo"}, *const moved[] = {"-I/x", "-DN=1",
                                                                                            "-lineinfo"};
    const struct {
        const char *const *options;
        size_t count;
        const char *digest;
        long compiles; // after it
    } steps[] = {{here, 2, "a", 1}, {there, 2, "a", 1}, {there, 2, "b", 2}, {lines, 3, "a", 3}, {moved, 3, "a", 4}};
    quern *q = open_on_database();

    for (size_t i = 0; i < QN_COUNT(steps); i++) {
        quern_source custom = good_custom();
        custom.options = steps[i].options, custom.option_count = steps[i].count;
        custom.digest = steps[i].digest, custom.digest_bytes = 1;
        quern_kernel_release(prepare(q, &custom));
        assert_int_equal(fake_nvrtc.compiles, steps[i].compiles);
    }

    quern_close(q);
}

static void the_compiler_gets_the_callers_options_after_the_architecture(void **state)
{
    (void)state;
    static const char *const options[] = {"-DN=1", "--use_fast_math"};
    quern_source custom = good_custom();
    custom.options = options, custom.option_count = 2;
    quern *q = open_on_database();

    quern_kernel_release(prepare(q, &custom));

    assert_string_equal(fake_nvrtc.last_options, " --gpu-architecture=sm_90a -DN=1 --use_fast_math");
    quern_close(q);
}

static void line_information_is_asked_for_once(void **state)
{
    (void)state;
    static const char *const options[] = {"-lineinfo"};
    quern_source custom = good_custom();
    quern_options open_options = runtime_options("", NULL);
    open_options.line_info = 1;
    custom.options = options, custom.option_count = 1;
    quern *q = runtime_open(&open_options);

    quern_kernel_release(prepare(q, &custom));

    assert_string_equal(fake_nvrtc.last_options, " --gpu-architecture=sm_90a -lineinfo");
    quern_close(q);
}

// ---- strict, warm, describe

static void a_warmed_source_serves_in_strict_mode_and_a_missing_one_is_named(void **state)
{
    (void)state;
    quern_source custom = good_custom();
    quern_kernel *kernel = NULL;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_warm_report first = QUERN_WARM_REPORT_INIT, second = QUERN_WARM_REPORT_INIT;
    quern_options options = runtime_options(database, NULL);
    quern *q = open_on_database();
    assert_int_equal(quern_warm_source(q, &custom, "sm_90a", &first), QUERN_OK);
    assert_int_equal(quern_warm_source(q, &custom, "sm_90a", &second), QUERN_OK);
    assert_int_equal(first.compiled + first.stored, 2);
    assert_int_equal(second.cached, 1);
    assert_int_equal(second.compiled, 0);
    quern_close(q);
    options.mode = QUERN_MODE_STRICT;
    q = runtime_open(&options);

    kernel = prepare(q, &custom);
    assert_int_equal(quern_kernel_describe(kernel, &info), QUERN_OK);
    assert_int_equal(info.origin, QUERN_ORIGIN_USER);
    assert_string_equal(info.entry, "scale");
    assert_string_equal(info.config, "");
    assert_int_equal(info.threads, 128);
    quern_kernel_release(kernel);
    kernel = NULL;
    custom.digest = "x", custom.digest_bytes = 1;
    assert_int_equal(quern_prepare_source(q, &custom, 0, &kernel), QUERN_WOULD_COMPILE);
    assert_non_null(strstr(quern_message(), "source scale"));
    assert_null(kernel);
    assert_int_equal(fake_nvrtc.compiles, 1);
    quern_close(q);
}

static void a_source_needs_no_driver_to_be_warmed_and_its_architecture_is_checked(void **state)
{
    (void)state;
    quern_source custom = good_custom();
    quern_options options = runtime_options("", NULL);
    fake_driver_remove();
    options.driver_file = "/nowhere/libcuda.so.1";
    quern *q = runtime_open(&options);

    assert_int_equal(quern_warm_source(q, &custom, "sm_100a", NULL), QUERN_OK);
    assert_int_equal(quern_warm_source(q, &custom, "sm_1", NULL), QUERN_UNKNOWN_ARCH);
    assert_int_equal(quern_warm_source(q, NULL, "sm_90a", NULL), QUERN_MISSING_ARGUMENT);
    custom.cluster = 4;
    assert_int_equal(quern_warm_source(q, &custom, "sm_86", NULL), QUERN_NO_PLAN);

    quern_close(q);
}

enum { THREADS = 8 };

static void *prepare_in_a_thread(void *user)
{
    quern_source custom = good_custom();
    quern_kernel *kernel = NULL;
    fake_driver_enter(fake_driver_context(0));
    if (quern_prepare_source(user, &custom, 0, &kernel) != QUERN_OK) return NULL;
    return kernel;
}

static void threads_that_ask_for_one_source_compile_it_once(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    void *kernels[THREADS];
    quern *q = open_on_database();
    fake_nvrtc.delay_ms = 30;

    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, prepare_in_a_thread, q), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], &kernels[i]);

    assert_int_equal(fake_nvrtc.compiles, 1);
    for (int i = 0; i < THREADS; i++) {
        assert_non_null(kernels[i]);
        quern_kernel_release(kernels[i]);
    }
    assert_int_equal(fake_driver.live_libraries, 0);
    quern_close(q);
}

static void the_image_is_there_for_other_loaders(void **state)
{
    (void)state;
    quern_source custom = good_custom();
    quern_image image = QUERN_IMAGE_INIT;
    quern *q = open_on_database();
    quern_kernel *kernel = prepare(q, &custom);

    assert_int_equal(quern_kernel_image(kernel, &image), QUERN_OK);
    assert_true(qn_cubin_is_plausible(image.bytes, image.byte_count));
    assert_string_equal(image.entry, "scale");
    assert_int_equal(image.parameter_bytes, 16);
    assert_int_equal(quern_kernel_image(NULL, &image), QUERN_MISSING_ARGUMENT);
    assert_int_equal(quern_kernel_describe(kernel, NULL), QUERN_MISSING_ARGUMENT);

    quern_kernel_release(kernel);
    quern_close(q);
}

// ---- geometry

static void a_launch_may_take_any_shape_inside_the_limits(void **state)
{
    (void)state;
    unsigned char parameters[16] = {7};
    quern_source custom = good_custom();
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    custom.dynamic_shared_bytes = 1024;
    quern *q = open_on_database();
    quern_kernel *kernel = prepare(q, &custom);
    geometry.grid[0] = 3, geometry.grid[2] = 2;
    geometry.threads[0] = 8, geometry.threads[1] = 4, geometry.threads[2] = 4;
    geometry.dynamic_shared_bytes = 100;

    assert_int_equal(quern_launch_packed(kernel, &geometry, parameters, 16, NULL), QUERN_OK);
    assert_memory_equal(fake_driver.last.grid, geometry.grid, sizeof geometry.grid);
    assert_memory_equal(fake_driver.last.block, geometry.threads, sizeof geometry.threads);
    assert_int_equal(fake_driver.last.shared, 100);
    assert_int_equal(fake_driver.last.param_bytes, 16);
    assert_memory_equal(fake_driver.last.params, parameters, 16);
    geometry.dynamic_shared_bytes = -1;
    assert_int_equal(quern_launch_packed(kernel, &geometry, parameters, 16, NULL), QUERN_OK);
    assert_int_equal(fake_driver.last.shared, 1024);
    geometry.dynamic_shared_bytes = 0;
    assert_int_equal(quern_launch_packed(kernel, &geometry, parameters, 16, NULL), QUERN_OK);
    assert_int_equal(fake_driver.last.shared, 0);

    quern_kernel_release(kernel);
    quern_close(q);
}

static void a_launch_is_a_line_of_the_log_when_that_part_is_asked_for(void **state)
{
    (void)state;
    runtime_log lines = RUNTIME_LOG_INIT;
    char file[160];
    unsigned char parameters[16] = {0};
    quern_source custom = good_custom();
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    quern_options options = runtime_options("", &lines);
    snprintf(file, sizeof file, "%s/log", folder);
    options.log_parts = "launch", options.log_file = file;
    quern *q = runtime_open(&options);
    quern_kernel *kernel = prepare(q, &custom);
    geometry.grid[1] = 7;

    assert_int_equal(quern_launch_packed(kernel, &geometry, parameters, 16, NULL), QUERN_OK);

    assert_true(runtime_log_has(&lines, "launch,debug,run arch=sm_90a kernel=scale grid=1x7x1 threads=128x1x1 shared=0 "
                                        "spec=\"source scale\""));
    quern_kernel_release(kernel);
    quern_close(q);
    runtime_log_fini(&lines);
}

static void a_launch_outside_the_limits_is_refused_with_them(void **state)
{
    (void)state;
    static const uint32_t threads[][3] = {{129, 1, 1}, {65, 2, 1},        {1, 1, 65},   {0, 1, 1},
                                          {1, 0, 1},   {65536, 65536, 1}, {1025, 1, 1}, {4, 8, 5}};
    unsigned char parameters[16] = {0};
    quern_source custom = good_custom();
    quern *q = open_on_database();
    quern_kernel *kernel = prepare(q, &custom);

    for (size_t i = 0; i < QN_COUNT(threads); i++) {
        quern_geometry geometry = QUERN_GEOMETRY_INIT;
        memcpy(geometry.threads, threads[i], sizeof geometry.threads);
        assert_int_equal(quern_launch_packed(kernel, &geometry, parameters, 16, NULL), QUERN_BAD_SIZE);
        assert_non_null(strstr(quern_message(), "at most 128"));
    }
    quern_geometry geometry = QUERN_GEOMETRY_INIT;
    geometry.dynamic_shared_bytes = 1;
    assert_int_equal(quern_launch_packed(kernel, &geometry, parameters, 16, NULL), QUERN_BAD_SIZE);
    geometry.dynamic_shared_bytes = -2;
    assert_int_equal(quern_launch_packed(kernel, &geometry, parameters, 16, NULL), QUERN_BAD_SIZE);
    geometry = (quern_geometry)QUERN_GEOMETRY_INIT, geometry.size = 3;
    assert_int_equal(quern_launch_packed(kernel, &geometry, parameters, 16, NULL), QUERN_BAD_ARGUMENT);
    assert_int_equal(fake_driver.call.cuLaunchKernelEx.count, 0);

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
    assert_int_equal(second.user, first.kernels);
    assert_int_equal(first.user + first.sealed + second.sealed, 0);
    assert_int_equal(second.compiled + second.stored, 0);
    assert_true(second.compile_ms == 0.0);
    quern_close(q);
    quern_store store = cache_open_read(database);
    assert_int_equal(cache_count(&store), first.kernels);
    qn_sqlite_close(&store);
}

static void warm_says_which_kernels_a_sealed_database_had(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(50257, 64);
    quern_warm_report first = QUERN_WARM_REPORT_INIT, second = QUERN_WARM_REPORT_INIT;
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", &first), QUERN_OK);
    quern_close(q);

    options = runtime_options("", NULL);
    options.sealed_files = database;
    q = runtime_open(&options);
    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", &second), QUERN_OK);
    assert_int_equal(second.sealed, first.kernels);
    assert_int_equal(second.cached, first.kernels);
    assert_int_equal(second.user, 0);
    quern_close(q);
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
    report.size = 8; // nothing could be reported
    assert_int_equal(quern_warm(q, &spec.base, "sm_90a", &report), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "report: size = 8"));
    report.size = sizeof report;
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
        TEST(every_part_of_the_source_is_in_the_key),
        TEST(a_digest_stands_for_the_include_paths_wherever_they_are),
        TEST(the_compiler_gets_the_callers_options_after_the_architecture),
        TEST(line_information_is_asked_for_once),
        TEST(a_warmed_source_serves_in_strict_mode_and_a_missing_one_is_named),
        TEST(a_source_needs_no_driver_to_be_warmed_and_its_architecture_is_checked),
        TEST(threads_that_ask_for_one_source_compile_it_once),
        TEST(the_image_is_there_for_other_loaders),
        TEST(a_launch_may_take_any_shape_inside_the_limits),
        TEST(a_launch_is_a_line_of_the_log_when_that_part_is_asked_for),
        TEST(a_launch_outside_the_limits_is_refused_with_them),
        TEST(warm_needs_no_driver_and_reports_what_it_did),
        TEST(warm_says_which_kernels_a_sealed_database_had),
        TEST(warm_says_when_the_store_took_nothing),
        TEST(warm_refuses_an_architecture_that_is_none),
        TEST(the_first_failing_kernel_is_told_and_the_rest_is_not_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
