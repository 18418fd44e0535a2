// SPDX-License-Identifier: Apache-2.0
// A caller's source with the real NVRTC: headers by name, nothing read from the working directory, cubins that do not
// depend on it, and the checks on what was compiled. Skipped where there is no NVRTC.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/nvrtc.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/runtime_fixture.h"

static char folder[64];
static char here[4096];

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90};
    const qn_nvrtc *nvrtc;
    if (qn_nvrtc_load(NULL, false, &nvrtc) != QUERN_OK) {
        print_message("skipped: no NVRTC\n");
        exit(0);
    }
    cache_folder_make(folder);
    assert_non_null(getcwd(here, sizeof here));
    fake_driver_install(1, cc);
    fake_driver_enter(fake_driver_context(0));
    fake_driver.param_bytes = 64;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(chdir(here), 0);
    fake_driver_enter(NULL);
    fake_driver_remove();
    cache_folder_remove(folder);
    return 0;
}

static quern *open_in_memory(void)
{
    quern_options options = runtime_options("", NULL);
    return runtime_open(&options);
}

static void write_file(const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static quern_kernel *prepare(quern *q, const quern_source *source)
{
    quern_kernel *kernel = NULL;
    quern_status status = quern_prepare_source(q, source, 0, &kernel);
    if (status != QUERN_OK) fail_msg("%s: %s", quern_status_name(status), quern_message());
    return kernel;
}

// A header given by name is used although the working directory has a file of that name.
static void headers_come_from_the_structure_not_from_the_working_directory(void **state)
{
    (void)state;
    static const quern_header headers[] = {
        {"dir/inner.h", "constexpr float factor = 2.0f;\n"},
        {"scale.h", "#pragma once\n#include \"dir/inner.h\"\n"},
    };
    quern_source source = QUERN_SOURCE_INIT;
    source.source =
        "#include \"scale.h\"\n#include <scale.h>\n"
        "extern \"C\" __global__ void scale(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= factor; }\n";
    source.entry = "scale", source.threads = 32, source.parameter_bytes = 12;
    source.headers = headers, source.header_count = 2;
    write_file("scale.h", "#error the file of the working directory was read\n");
    assert_int_equal(chdir(folder), 0);
    quern *q = open_in_memory();
    quern_kernel *kernel = prepare(q, &source);
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;

    assert_int_equal(quern_kernel_describe(kernel, &info), QUERN_OK);

    assert_string_equal(info.entry, "scale");
    assert_string_equal(info.arch, "sm_90a");
    assert_true(info.registers > 0 && info.local_bytes == 0);
    assert_int_equal(info.origin, QUERN_ORIGIN_COMPILED);
    quern_kernel_release(kernel);
    quern_close(q);
}

// Were the check of the text to miss an include, the compiler would not find the file either.
static void the_compiler_finds_no_file_of_the_working_directory(void **state)
{
    (void)state;
    static const char digest[] = "so that the text is not looked at";
    quern_source source = QUERN_SOURCE_INIT;
    quern_kernel *kernel = NULL;
    source.source = "#include \"stray.h\"\nextern \"C\" __global__ void scale(float *x) { *x = STRAY; }\n";
    source.entry = "scale", source.threads = 32, source.parameter_bytes = 8;
    source.digest = digest, source.digest_bytes = sizeof digest;
    write_file("stray.h", "#define STRAY 1\n");
    assert_int_equal(chdir(folder), 0);
    quern *q = open_in_memory();

    assert_int_equal(quern_prepare_source(q, &source, 0, &kernel), QUERN_COMPILE_FAILED);

    assert_non_null(strstr(quern_message(), "stray.h"));
    assert_non_null(strstr(quern_message(), "/quern/source/scale.cu(1)"));
    char include[80];
    snprintf(include, sizeof include, "-I%s", folder);
    const char *const options[] = {include};
    source.options = options, source.option_count = 1; // the caller's folder, with the digest that speaks for it
    quern_kernel_release(prepare(q, &source));
    quern_close(q);
}

// Ways to hide an include from a reader of the text (%s is a file outside): it is refused, or the compiler reads none.
static void no_text_brings_in_a_file_from_outside(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "#include \"%s\"",
        "?\?=include \"%s\"",
        "__device__ int x = L'R\"(';\n#include \"%s\"\n//)\"",
        "__device__ int x = 1'0 /*';\n#include \"%s\"\n//*/",
        "#if 0\ndon't /*\n#endif\n#include \"%s\"\n//*/",
        "#if 0\nR\"(\n#endif\n#include \"%s\"\n//)\"",
        "#if 0\n8R\"(\n#endif\n#include \"%s\"\n//)\"",
        "#if 0\n1.uR\"(\n#endif\n#include \"%s\"\n//)\"",
        "#if 0\n1e+R\"(\n#endif\n#include \"%s\"\n//)\"",
        "#if 0\nUuR\"(\n#endif\n#include \"%s\"\n//)\"",
        "#if 0\n\xc3\xa9R\"(\n#endif\n#include \"%s\"\n//)\"",
        "#if 0\nR\\\n\"(\n#endif\n#include \"%s\"\n//)\"",
        "#if 0\nR\"a b(\n#endif\n#include \"%s\"\n//)a b\"",
        "/* *\\\n/\n#include \"%s\"\n//*/",
        "/\\\n* R\"( */\n#include \"%s\"\n//)\"",
        "//\\\n\n#include \"%s\"",
        "#\vinclude \"%s\"",
        "#include_next \"%s\"",
        "#line 1 \"/x.h\"\n%%:include \"%s\"",
    };
    static const char *const standards[] = {"--std=c++20", "--std=c++14", "--std=c++11", "--std=c++03"};
    quern *q = open_in_memory();
    quern_source source = QUERN_SOURCE_INIT;
    source.entry = "scale", source.threads = 32, source.parameter_bytes = 8;
    write_file("outside.h", "static __device__ float outside() { return 1; }\n");

    for (size_t i = 0; i < QN_COUNT(texts) * QN_COUNT(standards); i++) {
        char path[160];
        qn_text text = QN_TEXT_INIT;
        snprintf(path, sizeof path, "%s/outside.h", folder);
        for (const char *at = texts[i / QN_COUNT(standards)]; *at; at++) {
            bool is_path = at[0] == '%' && at[1] == 's';
            qn_text_put(&text, is_path ? path : at, is_path ? strlen(path) : 1);
            at += is_path || (at[0] == '%' && at[1] == '%');
        }
        qn_text_puts(&text, "\nextern \"C\" __global__ void scale(float *x) { *x = outside(); }\n");
        source.source = text.bytes;
        source.options = &standards[i % QN_COUNT(standards)], source.option_count = 1;
        quern_status status = quern_warm_source(q, &source, "sm_90a", NULL);
        if (status != QUERN_BAD_ARGUMENT && status != QUERN_COMPILE_FAILED)
            fail_msg("%s: read from outside with %s:\n%s", quern_status_name(status), source.options[0], text.bytes);
        qn_text_fini(&text);
    }
    quern_close(q);
}

static void take_image(const quern_source *source, qn_text *bytes)
{
    quern *q = open_in_memory();
    quern_kernel *kernel = prepare(q, source);
    quern_image image = QUERN_IMAGE_INIT;
    assert_int_equal(quern_kernel_image(kernel, &image), QUERN_OK);
    qn_text_put(bytes, image.bytes, image.byte_count);
    quern_kernel_release(kernel);
    quern_close(q);
}

static void a_cubin_with_line_information_does_not_depend_on_the_folder(void **state)
{
    (void)state;
    static const char *const options[] = {"-lineinfo", "-DFACTOR=3"};
    static const quern_header headers[] = {
        {"scale.h", "static __device__ float scaled(float x) {\n return x * FACTOR + __fsqrt_rn(x); }\n"}};
    quern_source source = QUERN_SOURCE_INIT;
    qn_text first = QN_TEXT_INIT, second = QN_TEXT_INIT, without = QN_TEXT_INIT;
    source.source = "#include \"scale.h\"\nextern \"C\" __global__ void scale(float *x)\n{\n*x = scaled(*x);\n}\n";
    source.entry = "scale", source.threads = 32, source.parameter_bytes = 8;
    source.options = options, source.option_count = 2;
    source.headers = headers, source.header_count = 1;
    take_image(&source, &first);
    assert_int_equal(chdir(folder), 0);
    take_image(&source, &second);
    source.options = options + 1, source.option_count = 1;
    take_image(&source, &without);

    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.bytes, second.bytes, first.length);
    assert_true(without.length < first.length);
    assert_null(memmem(second.bytes, second.length, folder, strlen(folder)));
    assert_non_null(memmem(first.bytes, first.length, "/quern/source", 13));
    qn_text_fini(&first);
    qn_text_fini(&second);
    qn_text_fini(&without);
}

// The same for Quern's own kernels, with the option that asks for lines.
static void take_family_images(qn_text *bytes)
{
    quern_options options = runtime_options("", NULL);
    quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
    quern_op *op = NULL;
    options.line_info = 1;
    spec.E = 16, spec.K = 2, spec.in = QUERN_F32;
    quern *q = runtime_open(&options);
    if (quern_prepare(q, &spec.base, 0, &op) != QUERN_OK) fail_msg("%s", quern_message());
    for (size_t v = 0; v < quern_op_variants(op); v++) {
        quern_image image = QUERN_IMAGE_INIT;
        assert_int_equal(quern_op_image(op, v, 0, &image), QUERN_OK);
        qn_text_put(bytes, image.bytes, image.byte_count);
    }
    quern_op_release(op);
    quern_close(q);
}

static void a_familys_cubin_with_line_information_does_not_depend_on_the_folder(void **state)
{
    (void)state;
    qn_text first = QN_TEXT_INIT, second = QN_TEXT_INIT;
    take_family_images(&first);
    assert_int_equal(chdir(folder), 0);
    take_family_images(&second);

    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.bytes, second.bytes, first.length);
    assert_non_null(memmem(first.bytes, first.length, "/quern/gate", 11));
    qn_text_fini(&first);
    qn_text_fini(&second);
}

// Options are the caller's alone: contraction is on, as NVRTC has it, until it is switched off.
static void options_change_the_kernel(void **state)
{
    (void)state;
    static const char *const options[] = {"--fmad=false"};
    quern_source source = QUERN_SOURCE_INIT;
    qn_text plain = QN_TEXT_INIT, split = QN_TEXT_INIT;
    source.source = "extern \"C\" __global__ void scale(float *x, float a, float b) { *x = *x * a + b; }\n";
    source.entry = "scale", source.threads = 32, source.parameter_bytes = 16;
    take_image(&source, &plain);
    source.options = options, source.option_count = 1;
    take_image(&source, &split);

    assert_true(plain.length != split.length || memcmp(plain.bytes, split.bytes, plain.length));
    qn_text_fini(&plain);
    qn_text_fini(&split);
}

static void another_number_of_parameter_bytes_is_refused_with_the_kernels_own(void **state)
{
    (void)state;
    static const size_t bad[] = {0, 4, 8, 23, 28, 40};
    quern_source source = QUERN_SOURCE_INIT;
    quern_kernel *kernel = NULL;
    source.source = "extern \"C\" __global__ void scale(float *x, int n, double d) { x[n] = d; }\n"
                    "extern \"C\" __global__ void none() {}\n";
    source.entry = "scale", source.threads = 32;
    quern *q = open_in_memory();

    for (size_t i = 0; i < QN_COUNT(bad); i++) {
        source.parameter_bytes = bad[i];
        assert_int_equal(quern_prepare_source(q, &source, 0, &kernel), QUERN_BAD_SIZE);
        assert_non_null(strstr(quern_message(), "takes 24"));
    }
    source.parameter_bytes = 24;
    quern_kernel_release(prepare(q, &source));
    source.entry = "none";
    assert_int_equal(quern_prepare_source(q, &source, 0, &kernel), QUERN_BAD_SIZE);
    assert_int_equal(quern_warm_source(q, &source, "sm_90a", NULL), QUERN_BAD_SIZE); // without a device too
    source.parameter_bytes = 0;
    quern_kernel_release(prepare(q, &source)); // the second kernel of the text, with its own numbers
    quern_close(q);
}

// What sizeof may say of a structure whose last member ends where the kernel's last parameter does.
static void parameters_are_padded_as_a_structure_is(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        quern_status status;
    } cases[] = {
        {"(float *x) { *x = 1; }", 8, QUERN_OK},
        {"(float *x) { *x = 1; }", 16, QUERN_BAD_SIZE}, // no member is as large as such an alignment
        {"(float *x, int n) { *x = n; }", 12, QUERN_OK},
        {"(float *x, int n) { *x = n; }", 16, QUERN_OK},
        {"(float *x, int n) { *x = n; }", 20, QUERN_BAD_SIZE},
        {"(float4 v, float *x, int n) { *x = v.x + n; }", 32, QUERN_OK},
    };
    char text[128];
    quern_source source = QUERN_SOURCE_INIT;
    quern *q = open_in_memory();
    source.source = text, source.entry = "scale", source.threads = 32;

    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        snprintf(text, sizeof text, "extern \"C\" __global__ void scale%s", cases[i].text);
        source.parameter_bytes = cases[i].bytes;
        assert_int_equal(quern_warm_source(q, &source, "sm_90a", NULL), cases[i].status);
    }
    quern_close(q);
}

static void a_source_without_the_entry_is_told_when_it_is_compiled(void **state)
{
    (void)state;
    quern_source source = QUERN_SOURCE_INIT;
    source.source = "__global__ void scale(float *x) { *x = 1; }\n"; // its symbol is mangled
    source.entry = "scale", source.threads = 32, source.parameter_bytes = 8;
    quern *q = open_in_memory();

    assert_int_equal(quern_warm_source(q, &source, "sm_90a", NULL), QUERN_COMPILE_FAILED);

    assert_non_null(strstr(quern_message(), "extern \"C\""));
    quern_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(headers_come_from_the_structure_not_from_the_working_directory),
        TEST(the_compiler_finds_no_file_of_the_working_directory),
        TEST(no_text_brings_in_a_file_from_outside),
        TEST(a_cubin_with_line_information_does_not_depend_on_the_folder),
        TEST(a_familys_cubin_with_line_information_does_not_depend_on_the_folder),
        TEST(options_change_the_kernel),
        TEST(another_number_of_parameter_bytes_is_refused_with_the_kernels_own),
        TEST(parameters_are_padded_as_a_structure_is),
        TEST(a_source_without_the_entry_is_told_when_it_is_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
