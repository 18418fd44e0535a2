// SPDX-License-Identifier: Apache-2.0
// quern_open: options, environment, structures of other lengths, and that nothing is opened or made before it is needed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/cache_fixture.h"
#include "support/fake_nvrtc.h"
#include "support/runtime_fixture.h"

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    fake_nvrtc_install(13, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    static const char *const names[] = {"QUERN_MODE", "QUERN_CACHE_DIR", "QUERN_SEALED", "QUERN_TEMPLATES",
                                        "XDG_CACHE_HOME"};
    for (size_t i = 0; i < QN_COUNT(names); i++) unsetenv(names[i]);
    fake_nvrtc_remove();
    cache_folder_remove(folder);
    return 0;
}

static void each_option_out_of_range_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        int value;
    } cases[] = {
        {"mode", offsetof(quern_options, mode), 5},
        {"toolchain", offsetof(quern_options, toolchain), 2},
        {"busy_timeout_ms", offsetof(quern_options, busy_timeout_ms), -2},
        {"flight_timeout_ms", offsetof(quern_options, flight_timeout_ms), -2},
        {"compile_timeout_ms", offsetof(quern_options, compile_timeout_ms), -2},
        {"compile_threads", offsetof(quern_options, compile_threads), -1},
        {"line_info", offsetof(quern_options, line_info), 2},
        {"allow_network_fs", offsetof(quern_options, allow_network_fs), -1},
        {"ignore_environment", offsetof(quern_options, ignore_environment), 7},
    };
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        quern_options options = QUERN_OPTIONS_INIT;
        quern *q = (quern *)&options;
        char value[16];
        memcpy((char *)&options + cases[i].offset, &cases[i].value, sizeof(int));
        snprintf(value, sizeof value, "%d", cases[i].value);

        assert_int_equal(quern_open(&options, &q), QUERN_BAD_ARGUMENT);

        assert_non_null(strstr(quern_message(), cases[i].name));
        assert_non_null(strstr(quern_message(), value));
        assert_ptr_equal(q, &options); // untouched
    }
}

static void a_size_that_is_none_is_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 3, 8, 9, 20, (size_t)-1}; // 9, 20: half a pointer would be read
    quern *q = NULL;
    for (size_t i = 0; i < QN_COUNT(sizes); i++) {
        quern_options options = QUERN_OPTIONS_INIT;
        options.size = sizes[i];
        options.cache_file = "x";
        assert_int_equal(quern_open(&options, &q), QUERN_BAD_ARGUMENT);
        assert_null(q);
    }
}

static void an_older_shorter_structure_keeps_working(void **state)
{
    (void)state;
    quern_options options = QUERN_OPTIONS_INIT;
    quern *q = NULL;
    memset((char *)&options + offsetof(quern_options, mode), 0x7f, sizeof options - offsetof(quern_options, mode));
    options.size = offsetof(quern_options, mode); // the rest is not this caller's

    assert_int_equal(quern_open(&options, &q), QUERN_OK);

    quern_close(q);
}

static void a_newer_structure_is_taken_unless_it_sets_what_is_not_known(void **state)
{
    (void)state;
    struct {
        quern_options known;
        int64_t later;
    } newer = {QUERN_OPTIONS_INIT, 0};
    quern *q = NULL;
    newer.known.size = sizeof newer;

    assert_int_equal(quern_open(&newer.known, &q), QUERN_OK);
    quern_close(q);
    newer.later = 1;
    assert_int_equal(quern_open(&newer.known, &q), QUERN_BAD_ARGUMENT);
}

static void opening_and_closing_makes_no_file(void **state)
{
    (void)state;
    char file[128];
    snprintf(file, sizeof file, "%s/a/quern-v1.db", folder);
    quern_options options = runtime_options(file, NULL);

    quern_close(runtime_open(&options));

    assert_int_equal(cache_folder_count(folder), 0);
}

static void the_environment_fills_defaults_only(void **state)
{
    (void)state;
    const qn_image *image;
    quern_options options = runtime_options("", NULL);
    options.ignore_environment = 0;
    setenv("QUERN_MODE", "strict", 1);

    quern *by_environment = runtime_open(&options);
    assert_int_equal(runtime_obtain(by_environment, 1, "sm_90a", &image), QUERN_WOULD_COMPILE);
    options.mode = QUERN_MODE_NORMAL;
    quern *by_option = runtime_open(&options);
    assert_int_equal(runtime_obtain(by_option, 1, "sm_90a", &image), QUERN_OK);
    options.mode = QUERN_MODE_DEFAULT;
    options.ignore_environment = 1;
    quern *ignoring = runtime_open(&options);
    assert_int_equal(runtime_obtain(ignoring, 1, "sm_90a", &image), QUERN_OK);

    quern_close(by_environment);
    quern_close(by_option);
    quern_close(ignoring);
}

static void a_template_folder_comes_from_the_option_else_from_the_environment(void **state)
{
    (void)state;
    const qn_image *image;
    quern_options options = runtime_options("", NULL);
    options.ignore_environment = 0;
    setenv("QUERN_TEMPLATES", "/nowhere/environment", 1);

    quern *by_environment = runtime_open(&options);
    assert_int_equal(runtime_obtain(by_environment, 1, "sm_90a", &image), QUERN_BAD_TEMPLATE);
    assert_non_null(strstr(quern_message(), "/nowhere/environment"));
    options.template_dir = "/nowhere/option";
    quern *by_option = runtime_open(&options);
    assert_int_equal(runtime_obtain(by_option, 1, "sm_90a", &image), QUERN_BAD_TEMPLATE);
    assert_non_null(strstr(quern_message(), "/nowhere/option"));

    quern_close(by_environment);
    quern_close(by_option);
}

static void an_unknown_mode_in_the_environment_is_refused(void **state)
{
    (void)state;
    quern *q = NULL;
    setenv("QUERN_MODE", "stict", 1);

    assert_int_equal(quern_open(NULL, &q), QUERN_BAD_ARGUMENT);

    assert_non_null(strstr(quern_message(), "stict"));
    assert_non_null(strstr(quern_message(), "strict"));
}

static void the_cache_directory_comes_from_the_environment(void **state)
{
    (void)state;
    const qn_image *image;
    char directory[128], file[160];
    struct stat info;
    snprintf(directory, sizeof directory, "%s/made/here", folder);
    snprintf(file, sizeof file, "%s/quern-v1.db", directory);
    setenv("QUERN_CACHE_DIR", directory, 1);
    quern_options options = runtime_options(NULL, NULL);
    options.ignore_environment = 0;
    quern *q = runtime_open(&options);

    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_OK);

    assert_int_equal(stat(directory, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(stat(file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    quern_close(q);
}

static void an_unsafe_directory_is_one_warning_and_memory_only(void **state)
{
    (void)state;
    const qn_image *image;
    runtime_log log = RUNTIME_LOG_INIT;
    char directory[128], file[160];
    snprintf(directory, sizeof directory, "%s/open", folder);
    snprintf(file, sizeof file, "%s/x.db", directory);
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_int_equal(chmod(directory, 0777), 0);
    quern_options options = runtime_options(file, &log);
    quern *q = runtime_open(&options);

    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_OK);
    assert_int_equal(runtime_obtain(q, 2, "sm_90a", &image), QUERN_OK);

    assert_int_equal(log.count[QUERN_LOG_WARNING], 1);
    assert_true(runtime_log_has(&log, "cache,warning,"));
    assert_true(runtime_log_has(&log, directory));
    assert_int_equal(cache_folder_count(directory), 0);
    quern_close(q);
    runtime_log_fini(&log);
}

static void counters_fit_a_shorter_structure(void **state)
{
    (void)state;
    const qn_image *image;
    quern_options options = runtime_options("", NULL);
    quern *q = runtime_open(&options);
    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_OK);
    quern_counters counters;
    memset(&counters, 0x55, sizeof counters);
    counters.size = offsetof(quern_counters, compile_us);

    quern_get_counters(q, &counters);

    assert_int_equal(counters.compiled, 1);
    assert_int_equal(counters.miss, 1);
    assert_int_equal(counters.compile_us, 0x5555555555555555u);
    assert_int_equal(counters.size, offsetof(quern_counters, compile_us));
    quern_close(q);
}

static void null_arguments_have_a_status(void **state)
{
    (void)state;

    assert_int_equal(quern_open(NULL, NULL), QUERN_MISSING_ARGUMENT);
    quern_close(NULL);
    quern_op_release(NULL);
    quern_kernel_release(NULL);
    assert_null(quern_op_retain(NULL));
    quern_get_counters(NULL, NULL);
    assert_int_equal(quern_op_variants(NULL), 0);
    assert_int_equal(quern_op_stages(NULL, 0), 0);
    assert_int_equal(quern_workspace_size(NULL, NULL), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_option_out_of_range_is_named),
        TEST(a_size_that_is_none_is_refused),
        TEST(an_older_shorter_structure_keeps_working),
        TEST(a_newer_structure_is_taken_unless_it_sets_what_is_not_known),
        TEST(opening_and_closing_makes_no_file),
        TEST(the_environment_fills_defaults_only),
        TEST(a_template_folder_comes_from_the_option_else_from_the_environment),
        TEST(an_unknown_mode_in_the_environment_is_refused),
        TEST(the_cache_directory_comes_from_the_environment),
        TEST(an_unsafe_directory_is_one_warning_and_memory_only),
        TEST(counters_fit_a_shorter_structure),
        TEST(null_arguments_have_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
