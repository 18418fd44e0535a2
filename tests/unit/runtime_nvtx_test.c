// SPDX-License-Identifier: Apache-2.0
// NVTX ranges as a tool sees them: tests/support/tools/nvtx_tool.c, which is made by NVTX's own header, hears the client
// of that header and Quern's alike.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#ifndef QUERN_HAS_NVTX
int main(void)
{
    printf("skipped: no nvtx3/nvToolsExt.h (tools/deps.sh brings it)\n");
    return 0;
}
#else

#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/nvtx.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/runtime_fixture.h"

static char file[512]; // the tool's library, beside this program
static void *library;
static const char *(*text)(void);
static void (*clear)(void);

static int set_up_tool(void **state)
{
    (void)state;
    ssize_t length = readlink("/proc/self/exe", file, 480);
    assert_true(length > 0);
    file[length] = 0;
    strcpy(strrchr(file, '/') + 1, "quern_nvtx_tool.so");
    library = dlopen(file, RTLD_NOW);
    if (!library) fail_msg("%s", dlerror());
    *(void **)&text = dlsym(library, "nvtx_tool_text");
    *(void **)&clear = dlsym(library, "nvtx_tool_clear");
    return setenv("NVTX_INJECTION64_PATH", file, 1);
}

static int tear_down_tool(void **state)
{
    (void)state;
    unsetenv("NVTX_INJECTION64_PATH");
    return dlclose(library);
}

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90};
    runtime_devices_make(cc, 1);
    fake_driver.param_bytes = 16;
    clear();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runtime_devices_remove();
    return 0;
}

static int count_of(const char *part)
{
    int count = 0;
    for (const char *at = text(); (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

// A tool is loaded once a process, so each of these is looked at in a process of its own.
static void check_no_tool(const char *path, const char *variable)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (!child) {
        if (variable) setenv(variable, "1", 1);
        const qn_nvtx *ranges = qn_nvtx_load(path);
        qn_nvtx_push(ranges, "quern:", "nobody listens");
        qn_nvtx_pop(ranges);
        _exit(ranges != NULL || *text());
    }
    assert_int_equal(cache_child_end(child), 0);
}

static void without_a_willing_tool_there_are_no_ranges(void **state)
{
    (void)state;
    check_no_tool(NULL, NULL);
    check_no_tool("", NULL);
    check_no_tool("/nonexistent/tool.so", NULL);
    check_no_tool("libm.so.6", NULL); // a library, but no tool
    check_no_tool(file, "NVTX_TOOL_REFUSES");
}

static void the_tool_hears_the_headers_own_client(void **state)
{
    (void)state;
    nvtxRangePushA("outer");
    nvtxRangePushA("inner");
    nvtxRangePop();
    nvtxRangePop();
    assert_string_equal(text(), "+outer;+inner;-;-;");
}

static void ranges_are_around_what_is_slow_and_none_around_launches(void **state)
{
    (void)state;
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    static float data[1000];
    static int32_t indices[8];
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    args.rows = 1, args.logits = data, args.values = data, args.indices = indices;
    quern_options options = runtime_options("", NULL);
    options.ignore_environment = 0, options.compile_threads = 1;
    quern *q = runtime_open(&options);
    quern_op *op = runtime_prepare(q, 1000, 0);

    assert_non_null(strstr(text(), "+quern:prepare softmax_topk V=1000 K=8 in=f32;"));
    assert_non_null(strstr(text(), "+quern:source softmax_topk_V1000_K8_f32"));
    assert_non_null(strstr(text(), "+quern:compile softmax_topk V=1000 K=8 in=f32;-;"));
    assert_non_null(strstr(text(), "+quern:load "));
    assert_int_equal(count_of("+"), count_of("-;"));
    clear();
    assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_OK);
    assert_string_equal(text(), "");
    assert_int_equal(quern_warm(q, &spec.base, "sm_80", NULL), QUERN_OK);
    assert_non_null(strstr(text(), "+quern:warm softmax_topk V=1000 K=8 in=f32;"));
    assert_int_equal(count_of("+"), count_of("-;"));
    quern_op_release(op);
    quern_close(q);
}

static void where_no_variable_is_read_there_are_no_ranges(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    options.ignore_environment = 1;
    quern *q = runtime_open(&options);
    quern_op_release(runtime_prepare(q, 1000, 0));
    assert_string_equal(text(), "");
    quern_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_willing_tool_there_are_no_ranges),
        TEST(the_tool_hears_the_headers_own_client),
        TEST(ranges_are_around_what_is_slow_and_none_around_launches),
        TEST(where_no_variable_is_read_there_are_no_ranges),
    };
    return cmocka_run_group_tests(tests, set_up_tool, tear_down_tool);
}
#endif
