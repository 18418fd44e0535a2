// SPDX-License-Identifier: Apache-2.0
// Reading cubins: the numbers are those that ptxas prints (-v), and no bytes whatever do harm. The hostile cases use
// buffers of exactly their length, so that ASan sees a read past the end.
#include "cuda/nvrtc.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/path.h"
#include "support/fake_nvrtc.h"

static const qn_nvrtc *real_nvrtc(void)
{
    const qn_nvrtc *nvrtc;
    if (qn_nvrtc_load(qn_environment("QUERN_NVRTC", false), false, &nvrtc) == QUERN_OK) return nvrtc;
    print_message("no NVRTC here: %s\n", quern_message());
    skip();
    return NULL;
}

static const char plain[] = "extern \"C\" __global__ void k(float *x) { x[threadIdx.x] *= 2; }";

static const char shared[] = "extern \"C\" __global__ void k(float *x) {\n"
                             "  __shared__ float s[1000]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();\n"
                             "  x[threadIdx.x] = s[threadIdx.x ^ 1]; }";

// 64 live values and 32 registers: it spills.
static const char spilling[] =
    "extern \"C\" __global__ void __launch_bounds__(1024, 2) k(float *x, int n) {\n"
    "  float a[64]; for (int i = 0; i < 64; i++) a[i] = x[i * n + threadIdx.x];\n"
    "  for (int j = 0; j < n; j++) {\n"
    "    _Pragma(\"unroll\") for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i * 7 + 1) % 64] + x[j]; }\n"
    "  float s = 0; for (int i = 0; i < 64; i++) s += a[i]; x[threadIdx.x] = s; }";

// A stack frame without spills, static and dynamic shared memory, and a second function.
static const char framed[] =
    "__device__ __noinline__ float f(float *a, int n) { float s = 0; for (int i = 0; i < n; i++) s += a[i]; return s; "
    "}\n"
    "extern \"C\" __global__ void k(float *x, int n) { float a[100]; for (int i = 0; i < n; i++) a[i] = x[i];\n"
    "  extern __shared__ float d[]; __shared__ double q[10]; d[threadIdx.x] = f(a, n); q[n] = 2; __syncthreads();\n"
    "  x[threadIdx.x] = d[n] + q[0]; }";

static void compile(const qn_nvrtc *nvrtc, const char *source, const char *arch, qn_compiled *compiled)
{
    char option[64];
    const char *options[] = {option, "--ptxas-options=-v"};
    qn_compile request = {source, "k.cu", options, 2, -1, NULL, NULL};

    snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
    if (qn_nvrtc_compile(nvrtc, &request, compiled) != QUERN_OK) fail_msg("%s: %s", arch, quern_message());
}

// The number before `unit` in ptxas's lines; 0 where it says nothing.
static int said(const char *log, const char *unit)
{
    const char *at = strstr(log, unit);
    if (!at) return 0;
    while (at > log && at[-1] == ' ') at--;
    while (at > log && at[-1] >= '0' && at[-1] <= '9') at--;
    return atoi(at);
}

static void the_numbers_are_those_of_ptxas(void **state)
{
    static const char *const sources[] = {plain, shared, spilling, framed};
    static const char *const archs[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    const qn_nvrtc *nvrtc = real_nvrtc();

    (void)state;
    for (size_t s = 0; s < QN_COUNT(sources); s++) {
        for (size_t a = 0; a < QN_COUNT(archs); a++) {
            const qn_arch *arch;
            qn_compiled compiled;
            assert_int_equal(qn_arch_find(archs[a], &arch), QUERN_OK);
            if (!qn_nvrtc_has_arch(nvrtc, arch)) continue;
            compile(nvrtc, sources[s], archs[a], &compiled);
            const char *log = qn_text_string(&compiled.log);
            assert_non_null(strstr(log, "registers"));
            assert_int_equal(compiled.registers, said(log, "registers"));
            assert_int_equal(compiled.shared_bytes, said(log, "bytes smem"));
            assert_int_equal(compiled.local_bytes, said(log, "bytes stack frame"));
            // Two CTAs of 1024 threads: a bound that only SMs with room for 2048 can keep.
            if (sources[s] == spilling && arch->max_threads_sm == 2048) {
                assert_true(compiled.local_bytes > 0 && compiled.registers <= 32);
            }
            if (sources[s] == shared) assert_int_equal(compiled.shared_bytes, 4000);
            qn_compiled_fini(&compiled);
        }
    }
}

static void an_entry_is_found_by_name(void **state)
{
    qn_text image = QN_TEXT_INIT;
    int registers, local, static_shared;

    (void)state;
    fake_nvrtc_install(13, 0);
    fake_cubin("some_entry", 90, "source", &image);
    qn_cubin_resources(image.bytes, image.length, "some_entry", &registers, &static_shared, &local);
    assert_int_equal(registers, 32);
    assert_int_equal(static_shared, 0);
    assert_int_equal(local, 0);
    qn_cubin_resources(image.bytes, image.length, "some_entr", &registers, &static_shared, &local);
    assert_int_equal(registers, -1);
    assert_int_equal(static_shared, -1);
    assert_int_equal(local, -1);
    qn_text_fini(&image);
    fake_nvrtc_remove();
}

// ---- hostile bytes

static void read_all(const void *bytes, size_t count)
{
    int a, b, c;
    qn_cubin_is_plausible(bytes, count);
    qn_cubin_resources(bytes, count, "k", &a, &b, &c);
    qn_cubin_resources(bytes, count, NULL, &a, &b, &c);
}

// A cubin to be damaged: the real compiler's where there is one.
static void sample(qn_text *image)
{
    const qn_nvrtc *nvrtc;
    qn_compiled compiled;

    fake_nvrtc_remove();
    if (qn_nvrtc_load(qn_environment("QUERN_NVRTC", false), false, &nvrtc) == QUERN_OK) {
        compile(nvrtc, framed, "sm_90a", &compiled);
        qn_text_put(image, compiled.image.bytes, compiled.image.length);
        qn_compiled_fini(&compiled);
    } else {
        fake_cubin("k", 90, "source", image);
    }
}

static void what_is_no_cubin_is_not_plausible(void **state)
{
    static const char text[256] = "not an ELF file";
    qn_text image = QN_TEXT_INIT;

    (void)state;
    assert_false(qn_cubin_is_plausible(NULL, 0));
    assert_false(qn_cubin_is_plausible(text, sizeof text));
    sample(&image);
    assert_true(qn_cubin_is_plausible(image.bytes, image.length));
    image.bytes[18] = 62; // x86-64
    assert_false(qn_cubin_is_plausible(image.bytes, image.length));
    qn_text_fini(&image);
}

static void every_truncation_is_seen_and_does_no_harm(void **state)
{
    qn_text image = QN_TEXT_INIT;

    (void)state;
    sample(&image);
    for (size_t length = 0; length < image.length; length++) {
        char *cut = malloc(length ? length : 1);
        assert_non_null(cut);
        memcpy(cut, image.bytes, length);
        if (qn_cubin_is_plausible(cut, length)) fail_msg("%zu of %zu bytes pass for a cubin", length, image.length);
        read_all(cut, length);
        free(cut);
    }
    qn_text_fini(&image);
}

static void damaged_bytes_do_no_harm(void **state)
{
    static const unsigned char patterns[] = {0x01, 0x80, 0xff, 0x7f};
    qn_text image = QN_TEXT_INIT;

    (void)state;
    sample(&image);
    char *copy = malloc(image.length);
    assert_non_null(copy);
    for (size_t at = 0; at < image.length; at++) {
        for (size_t p = 0; p < QN_COUNT(patterns); p++) {
            memcpy(copy, image.bytes, image.length);
            copy[at] = (char)(copy[at] ^ patterns[p]);
            read_all(copy, image.length);
            if (at + 8 > image.length) continue;
            memset(copy + at, patterns[p], 8); // whole offsets and lengths
            read_all(copy, image.length);
        }
    }
    free(copy);
    qn_text_fini(&image);
}

static void random_bytes_behind_a_good_head_do_no_harm(void **state)
{
    qn_text image = QN_TEXT_INIT;
    uint64_t seed = 88172645463325252u;

    (void)state;
    sample(&image);
    char *copy = malloc(image.length);
    assert_non_null(copy);
    for (int round = 0; round < 500; round++) {
        memcpy(copy, image.bytes, image.length);
        for (int i = 0; i < 40; i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            copy[64 + seed % (image.length - 64)] = (char)(seed >> 32);
        }
        read_all(copy, image.length);
    }
    free(copy);
    qn_text_fini(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_numbers_are_those_of_ptxas),
        cmocka_unit_test(an_entry_is_found_by_name),
        cmocka_unit_test(what_is_no_cubin_is_not_plausible),
        cmocka_unit_test(every_truncation_is_seen_and_does_no_harm),
        cmocka_unit_test(damaged_bytes_do_no_harm),
        cmocka_unit_test(random_bytes_behind_a_good_head_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
