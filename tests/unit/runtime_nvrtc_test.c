// SPDX-License-Identifier: Apache-2.0
// End to end with the real NVRTC and no device: a spec becomes cubins in a database, which the next quern finds.
// Skipped, with a line that says so, where there is no NVRTC.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/nvrtc.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/runtime_fixture.h"

static char folder[64];
static char database[128];

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

static void need_nvrtc(void)
{
    const qn_nvrtc *nvrtc;
    if (qn_nvrtc_load(getenv("QUERN_NVRTC"), false, &nvrtc) == QUERN_OK) return;
    print_message("no NVRTC here: %s\n", quern_message());
    skip();
}

static quern *open_on_database(runtime_log *log)
{
    quern_options options = runtime_options(database, log);
    options.nvrtc_file = getenv("QUERN_NVRTC");
    return runtime_open(&options);
}

static void warm(quern *q, quern_warm_report *report)
{
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_status status = quern_warm(q, &spec.base, "sm_90a", report);
    if (status != QUERN_OK) fail_msg("%s: %s", quern_status_name(status), quern_message());
}

static void a_spec_becomes_cubins_that_the_next_quern_finds(void **state)
{
    (void)state;
    need_nvrtc();
    runtime_log log = RUNTIME_LOG_INIT;
    quern_warm_report first = QUERN_WARM_REPORT_INIT, second = QUERN_WARM_REPORT_INIT;
    qn_verify_report verified = {0};
    quern *q = open_on_database(&log);
    warm(q, &first);
    quern_close(q);
    q = open_on_database(&log);
    warm(q, &second);
    quern_close(q);

    assert_true(first.compiled > 0);
    assert_int_equal(first.stored, first.compiled);
    assert_true(first.compile_ms > 0);
    assert_int_equal(second.compiled, 0);
    assert_int_equal(second.cached, first.kernels);
    assert_int_equal(log.count[QUERN_LOG_WARNING] + log.count[QUERN_LOG_ERROR], 0);
    quern_store store = cache_open_read(database);
    assert_int_equal(qn_sqlite_verify(&store, NULL, NULL, &verified), QUERN_OK);
    assert_int_equal(verified.entries, first.kernels);
    assert_int_equal(verified.bad_sum + verified.bad_key + verified.bad_image, 0);
    qn_sqlite_close(&store);
    runtime_log_fini(&log);
}

// With the fake driver, so that the kernel comes through prepare as on a device.
static quern_status prepare_source(quern *q, const char *source)
{
    quern_source custom = QUERN_SOURCE_INIT;
    quern_kernel *kernel = NULL;
    custom.source = source, custom.entry = "mine", custom.threads = 32, custom.parameter_bytes = 8;
    quern_status status = quern_prepare_source(q, &custom, 0, &kernel);
    quern_kernel_release(kernel);
    return status;
}

static void a_compile_error_shows_the_compilers_log_and_the_options(void **state)
{
    (void)state;
    static const int cc[] = {90};
    need_nvrtc();
    fake_driver_install(1, cc);
    fake_driver_enter(fake_driver_context(0));
    quern *q = open_on_database(NULL);

    assert_int_equal(prepare_source(q, "extern \"C\" __global__ void mine(int *x) { *x = nonsense; }"),
                     QUERN_COMPILE_FAILED);
    static const char *const parts[] = {"nonsense", "--gpu-architecture=sm_90a", "source mine"};
    for (size_t i = 0; i < QN_COUNT(parts); i++) assert_non_null(strstr(quern_message(), parts[i]));
    assert_int_equal(prepare_source(q, "extern \"C\" __global__ void mine(int *x) { *x = 1; }"), QUERN_OK);

    quern_close(q);
    fake_driver_enter(NULL);
    fake_driver_remove();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_spec_becomes_cubins_that_the_next_quern_finds),
        TEST(a_compile_error_shows_the_compilers_log_and_the_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
