// SPDX-License-Identifier: Apache-2.0
// One compile: every architecture of the table, what a failure says, the time limit and cancelling. Real NVRTC where
// there is one; the fake one for versions without a flow callback.
#include "cuda/nvrtc.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/path.h"
#include "support/fake_nvrtc.h"

static const char tiny[] = "extern \"C\" __global__ void tiny(float *x) { x[threadIdx.x] *= 2.0f; }\n";

static const qn_nvrtc *real_nvrtc(void)
{
    const qn_nvrtc *nvrtc;
    if (qn_nvrtc_load(qn_environment("QUERN_NVRTC", false), false, &nvrtc) == QUERN_OK) return nvrtc;
    print_message("no NVRTC here: %s\n", quern_message());
    skip();
    return NULL;
}

static quern_status compile(const qn_nvrtc *nvrtc, const char *source, const char *arch, qn_compile *request,
                            qn_compiled *compiled)
{
    char option[64];
    const char *options[] = {option};
    qn_compile made = *request;

    snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
    made.source = source;
    made.name = "test.cu";
    made.options = options;
    made.option_count = 1;
    memset(compiled, 0, sizeof *compiled);
    return qn_nvrtc_compile(nvrtc, &made, compiled);
}

static void a_tiny_kernel_compiles_for_every_architecture_of_the_table(void **state)
{
    const qn_nvrtc *nvrtc = real_nvrtc();
    qn_compile request = {.timeout_ms = -1};
    size_t count;
    const qn_arch *list = qn_arch_list(&count);
    int done = 0;

    (void)state;
    for (size_t i = 0; i < count; i++) {
        qn_compiled compiled;
        if (!qn_nvrtc_has_arch(nvrtc, &list[i])) {
            print_message("NVRTC %d.%d has no %s\n", nvrtc->major, nvrtc->minor, list[i].name);
            continue;
        }
        quern_status status = compile(nvrtc, tiny, list[i].name, &request, &compiled);
        if (status != QUERN_OK) fail_msg("%s: %s", list[i].name, quern_message());
        assert_true(qn_cubin_is_plausible(compiled.image.bytes, compiled.image.length));
        assert_true(compiled.registers >= 4 && compiled.registers <= 32);
        assert_int_equal(compiled.shared_bytes, 0);
        assert_int_equal(compiled.local_bytes, 0);
        assert_true(compiled.compile_us > 0);
        qn_compiled_fini(&compiled);
        done++;
    }
    assert_true(done >= 4);
}

static void the_same_text_gives_the_same_image(void **state)
{
    const qn_nvrtc *nvrtc = real_nvrtc();
    qn_compile request = {.timeout_ms = -1};
    qn_compiled one, two;

    (void)state;
    assert_int_equal(compile(nvrtc, tiny, "sm_90a", &request, &one), QUERN_OK);
    assert_int_equal(compile(nvrtc, tiny, "sm_90a", &request, &two), QUERN_OK);
    assert_int_equal(one.image.length, two.image.length);
    assert_memory_equal(one.image.bytes, two.image.bytes, one.image.length);
    qn_compiled_fini(&one);
    qn_compiled_fini(&two);
}

static void a_failed_compile_shows_log_options_and_compiler(void **state)
{
    const qn_nvrtc *nvrtc = real_nvrtc();
    qn_compile request = {.timeout_ms = -1};
    qn_compiled compiled, untouched;

    (void)state;
    memset(&untouched, 0, sizeof untouched);
    assert_int_equal(
        compile(nvrtc, "extern \"C\" __global__ void k() { undeclared = 1; }", "sm_90a", &request, &compiled),
        QUERN_COMPILE_FAILED);
    assert_memory_equal(&compiled, &untouched, sizeof compiled);
    assert_non_null(strstr(quern_message(), "undeclared"));
    assert_non_null(strstr(quern_message(), "test.cu(1)"));
    assert_non_null(strstr(quern_message(), "--gpu-architecture=sm_90a"));
    assert_non_null(strstr(quern_message(), nvrtc->path));
}

static void an_unknown_architecture_is_named(void **state)
{
    static const char *const bad[] = {"sm_60", "sm_131", "compute_90"};
    const qn_nvrtc *nvrtc = real_nvrtc();
    qn_compile request = {.timeout_ms = -1};
    qn_compiled compiled;

    (void)state;
    for (size_t i = nvrtc->major < 13 ? 1 : 0; i < QN_COUNT(bad); i++) { // 12.x still has sm_60
        assert_int_equal(compile(nvrtc, tiny, bad[i], &request, &compiled), QUERN_COMPILE_FAILED);
        assert_non_null(strstr(quern_message(), bad[i]));
        assert_non_null(strstr(quern_message(), nvrtc->path));
    }
}

// Takes seconds to compile: straight-line arithmetic that the optimiser has to look at as a whole.
static void put_slow_source(qn_text *source)
{
    qn_text_puts(source, "extern \"C\" __global__ void slow(float *x, int n) {\nfloat a0=x[0]");
    for (int i = 1; i < 64; i++) qn_text_putf(source, ",a%d=x[%d]", i, i);
    qn_text_puts(source, ";\n");
    for (int i = 0; i < 20000; i++) {
        qn_text_putf(source, "a%d=a%d*a%d+a%d; if (a%d > %d.0f) a%d += n;\n", i % 64, i * 7 % 64, i * 13 % 64,
                     (i * 29 + 1) % 64, i * 5 % 64, i, i * 11 % 64);
    }
    for (int i = 0; i < 64; i++) qn_text_putf(source, "x[%d]=a%d;\n", i, i);
    qn_text_puts(source, "}\n");
}

static void a_compile_past_its_limit_is_stopped(void **state)
{
    const qn_nvrtc *nvrtc = real_nvrtc();
    qn_compile request = {.timeout_ms = 20};
    qn_text source = QN_TEXT_INIT;
    qn_compiled compiled, untouched;

    (void)state;
    if (!nvrtc->nvrtcSetFlowCallback) {
        print_message("NVRTC %d.%d has no flow callback\n", nvrtc->major, nvrtc->minor);
        skip();
    }
    memset(&untouched, 0, sizeof untouched);
    put_slow_source(&source);
    assert_int_equal(compile(nvrtc, source.bytes, "sm_90a", &request, &compiled), QUERN_COMPILE_TIMEOUT);
    assert_memory_equal(&compiled, &untouched, sizeof compiled);
    assert_non_null(strstr(quern_message(), "20 ms"));
    assert_non_null(strstr(quern_message(), "compile_timeout_ms"));
    // The next compile on this thread is none the worse.
    request.timeout_ms = -1;
    assert_int_equal(compile(nvrtc, tiny, "sm_90a", &request, &compiled), QUERN_OK);
    qn_compiled_fini(&compiled);
    qn_text_fini(&source);
}

static int cancel_at_third(void *user)
{
    int *polls = user;
    return ++*polls >= 3;
}

static void a_compile_can_be_cancelled(void **state)
{
    const qn_nvrtc *nvrtc = real_nvrtc();
    int polls = 0;
    qn_compile request = {.timeout_ms = -1, .cancel = cancel_at_third, .cancel_user = &polls};
    qn_text source = QN_TEXT_INIT;
    qn_compiled compiled;

    (void)state;
    if (!nvrtc->nvrtcSetFlowCallback) {
        print_message("NVRTC %d.%d has no flow callback\n", nvrtc->major, nvrtc->minor);
        skip();
    }
    put_slow_source(&source);
    assert_int_equal(compile(nvrtc, source.bytes, "sm_90a", &request, &compiled), QUERN_CANCELLED);
    assert_int_equal(polls, 3); // once it has said stop it is not asked again
    qn_text_fini(&source);
}

// ---- without a flow callback (before 12.8), and other failures, by the fake

static void an_old_nvrtc_compiles_without_a_limit(void **state)
{
    const qn_nvrtc *nvrtc;
    int polls = 0;
    qn_compile request = {.timeout_ms = 5, .cancel = cancel_at_third, .cancel_user = &polls};
    qn_compiled compiled;

    (void)state;
    fake_nvrtc_install(12, 0);
    assert_int_equal(qn_nvrtc_load(NULL, false, &nvrtc), QUERN_OK);
    assert_null(nvrtc->nvrtcSetFlowCallback);
    fake_nvrtc.delay_ms = 50;
    assert_int_equal(compile(nvrtc, tiny, "sm_90a", &request, &compiled), QUERN_OK);
    qn_compiled_fini(&compiled);
    polls = 2; // cancelled before it begins
    assert_int_equal(compile(nvrtc, tiny, "sm_90a", &request, &compiled), QUERN_CANCELLED);
    assert_int_equal(fake_nvrtc.compiles, 1);
    assert_int_equal(fake_nvrtc.programs, 0);
    fake_nvrtc_remove();
}

static void the_fake_counts_fails_and_waits(void **state)
{
    const qn_nvrtc *nvrtc;
    qn_compile request = {.timeout_ms = -1};
    qn_compiled one, two;

    (void)state;
    fake_nvrtc_install(13, 0);
    assert_int_equal(qn_nvrtc_load(NULL, false, &nvrtc), QUERN_OK);
    fake_nvrtc.registers = 77;
    fake_nvrtc.shared_bytes = 640;
    fake_nvrtc.local_bytes = 16;
    assert_int_equal(compile(nvrtc, tiny, "sm_100f", &request, &one), QUERN_OK);
    assert_true(qn_cubin_is_plausible(one.image.bytes, one.image.length));
    assert_int_equal(one.registers, 77);
    assert_int_equal(one.shared_bytes, 640);
    assert_int_equal(one.local_bytes, 16);
    assert_string_equal(fake_nvrtc.last_options, " --gpu-architecture=sm_100f");
    assert_int_equal(compile(nvrtc, "#define QN_ENTRY other\n", "sm_100f", &request, &two), QUERN_OK);
    assert_true(one.image.length != two.image.length || memcmp(one.image.bytes, two.image.bytes, one.image.length));
    qn_compiled_fini(&one);
    qn_compiled_fini(&two);
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = 1;
    assert_int_equal(compile(nvrtc, tiny, "sm_80", &request, &one), QUERN_COMPILE_FAILED);
    assert_non_null(strstr(quern_message(), "told to fail"));
    fake_nvrtc.fail = NVRTC_ERROR_OUT_OF_MEMORY;
    fake_nvrtc.times = 1;
    assert_int_equal(compile(nvrtc, tiny, "sm_80", &request, &one), QUERN_OUT_OF_MEMORY);
    assert_int_equal(compile(nvrtc, tiny, "sm_80", &request, &one), QUERN_OK);
    qn_compiled_fini(&one);
    fake_nvrtc.delay_ms = 60000;
    request.timeout_ms = 10;
    assert_int_equal(compile(nvrtc, tiny, "sm_80", &request, &one), QUERN_COMPILE_TIMEOUT);
    assert_int_equal(fake_nvrtc.compiles, 6);
    assert_int_equal(fake_nvrtc.finished, 3);
    assert_int_equal(fake_nvrtc.programs, 0);
    fake_nvrtc_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tiny_kernel_compiles_for_every_architecture_of_the_table),
        cmocka_unit_test(the_same_text_gives_the_same_image),
        cmocka_unit_test(a_failed_compile_shows_log_options_and_compiler),
        cmocka_unit_test(an_unknown_architecture_is_named),
        cmocka_unit_test(a_compile_past_its_limit_is_stopped),
        cmocka_unit_test(a_compile_can_be_cancelled),
        cmocka_unit_test(an_old_nvrtc_compiles_without_a_limit),
        cmocka_unit_test(the_fake_counts_fails_and_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
