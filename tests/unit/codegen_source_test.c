// SPDX-License-Identifier: Apache-2.0
// Generated source: the prologue, includes put in place, what is refused, and that the same input gives the same bytes.
// Templates are written to a folder of their own; the embedded ones are only asked for a first look.
#include "codegen/source.h"

#include <limits.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static qn_text source;
static qn_kernel_plan plan;

static const char *const folders[] = {"common", "mill"};
static const char *const files[] = {"mill/kernel.cu",  "mill/part.cuh", "common/types.cuh",
                                    "common/part.cuh", "mill/deep.cuh", "outside.cuh"};

static void put_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    char path[256];

    (void)state;
    strcpy(dir, "/tmp/quern-source-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    for (size_t i = 0; i < QN_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
        if (mkdir(path, 0700)) return -1;
    }
    memset(&plan, 0, sizeof plan);
    plan.template_path = "mill/kernel.cu";
    strcpy(plan.entry, "mill_v5");
    plan.threads = 256, plan.min_ctas = 2, plan.cluster = 1, plan.dynamic_shared = 4096;
    source = (qn_text)QN_TEXT_INIT;
    return 0;
}

static int tear_down(void **state)
{
    char path[256];

    (void)state;
    for (size_t i = 0; i < QN_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    for (size_t i = 0; i < QN_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
        rmdir(path);
    }
    rmdir(dir);
    qn_text_fini(&source);
    return 0;
}

static void write_source(bool line_info)
{
    if (qn_source_write(&plan, 90, 'a', dir, line_info, &source) != QUERN_OK) fail_msg("%s", quern_message());
}

static void assert_bad_template(const char *word)
{
    qn_text_fini(&source);
    qn_text_puts(&source, "kept");
    assert_int_equal(qn_source_write(&plan, 90, 'a', dir, false, &source), QUERN_BAD_TEMPLATE);
    if (!strstr(quern_message(), word)) fail_msg("'%s' does not name %s", quern_message(), word);
    assert_string_equal(source.bytes, "kept");
}

// ---- the prologue

static void the_whole_text_is_as_expected(void **state)
{
    (void)state;
    put_file("mill/kernel.cu", "// kernel\n#include \"part.cuh\"\nint after;\n");
    put_file("mill/part.cuh", "#pragma once\nint part;\n");
    qn_plan_constant(&plan, "V", 50257);
    qn_plan_constant(&plan, "LOCAL_K", -3);
    write_source(false);
    assert_string_equal(source.bytes, "// mill_v5: made by Quern from mill/kernel.cu\n"
                                      "#define QN_ENTRY mill_v5\n"
                                      "#define QN_ARCH 90\n"
                                      "#define QN_ARCH_SUFFIX 'a'\n"
                                      "constexpr int THREADS = 256;\n"
                                      "constexpr int MIN_CTAS = 2;\n"
                                      "constexpr int CLUSTER = 1;\n"
                                      "constexpr int SHARED_BYTES = 4096;\n"
                                      "constexpr int V = 50257;\n"
                                      "constexpr int LOCAL_K = -3;\n"
                                      "// kernel\n"
                                      "\n"
                                      "int part;\n"
                                      "int after;\n");
}

static void constants_beyond_int_are_long_long(void **state)
{
    (void)state;
    put_file("mill/kernel.cu", "\n");
    qn_plan_constant(&plan, "A", INT_MAX);
    qn_plan_constant(&plan, "B", INT_MIN);
    qn_plan_constant(&plan, "C", (int64_t)INT_MAX + 1);
    qn_plan_constant(&plan, "D", INT64_MIN);
    qn_plan_constant(&plan, "E", INT64_MAX);
    write_source(false);
    assert_non_null(strstr(source.bytes, "constexpr int A = 2147483647;\n"));
    assert_non_null(strstr(source.bytes, "constexpr int B = -2147483648;\n"));
    assert_non_null(strstr(source.bytes, "constexpr long long C = 2147483648LL;\n"));
    assert_non_null(strstr(source.bytes, "constexpr long long D = -9223372036854775807LL - 1;\n"));
    assert_non_null(strstr(source.bytes, "constexpr long long E = 9223372036854775807LL;\n"));
}

static void no_suffix_is_the_number_0(void **state)
{
    (void)state;
    put_file("mill/kernel.cu", "\n");
    assert_int_equal(qn_source_write(&plan, 86, 0, dir, false, &source), QUERN_OK);
    assert_non_null(strstr(source.bytes, "#define QN_ARCH 86\n#define QN_ARCH_SUFFIX 0\n"));
}

static void only_names_get_into_the_prologue(void **state)
{
    static const char *const bad_entries[] = {"", "9k", "a b", "k;int x", "k\n", "k()", "ä", "a-b"};
    static const char *const bad_names[] = {"", "v", "V=1", "V;", "9V", "V W", "QN_ARCH", "V\nW", "THREADS"};

    (void)state;
    put_file("mill/kernel.cu", "\n");
    for (size_t i = 0; i < QN_COUNT(bad_entries); i++) {
        strcpy(plan.entry, bad_entries[i]);
        assert_int_equal(qn_source_write(&plan, 90, 'a', dir, false, &source), QUERN_INTERNAL);
    }
    memset(plan.entry, 'k', sizeof plan.entry); // no end
    assert_int_equal(qn_source_write(&plan, 90, 'a', dir, false, &source), QUERN_INTERNAL);
    strcpy(plan.entry, "k");
    for (size_t i = 0; i < QN_COUNT(bad_names); i++) {
        plan.constant_count = 0;
        qn_plan_constant(&plan, bad_names[i], 1);
        assert_int_equal(qn_source_write(&plan, 90, 'a', dir, false, &source), QUERN_INTERNAL);
    }
    plan.constant_count = 0;
    qn_plan_constant(&plan, "V", 1);
    qn_plan_constant(&plan, "V", 1);
    assert_int_equal(qn_source_write(&plan, 90, 'a', dir, false, &source), QUERN_INTERNAL);
    plan.constant_count = 0;
    assert_int_equal(qn_source_write(&plan, 90, '"', dir, false, &source), QUERN_INTERNAL);
    assert_int_equal(qn_source_write(&plan, -1, 'a', dir, false, &source), QUERN_INTERNAL);
    assert_int_equal(source.length, 0);
}

static void one_constant_too_many_is_refused(void **state)
{
    static char names[QN_MAX_CONSTANTS + 1][16];

    (void)state;
    put_file("mill/kernel.cu", "\n");
    for (int i = 0; i <= QN_MAX_CONSTANTS; i++) {
        snprintf(names[i], sizeof names[i], "C%d", i);
        if (i == QN_MAX_CONSTANTS) write_source(false);
        qn_plan_constant(&plan, names[i], i);
    }
    assert_int_equal(qn_source_write(&plan, 90, 'a', dir, false, &source), QUERN_INTERNAL);
}

// ---- includes

static void a_file_is_put_once_however_it_is_named(void **state)
{
    (void)state;
    put_file("mill/kernel.cu", "#include \"part.cuh\"\n#include \"mill/part.cuh\"\n  #  "
                               "include\t\"../mill/./part.cuh\" // why\n#include \"common/types.cuh\"\n");
    put_file("mill/part.cuh", "#include \"common/types.cuh\"\nint part;\n");
    put_file("common/types.cuh", "int types;");
    write_source(false);
    const char *types = strstr(source.bytes, "int types;\n"), *part = strstr(source.bytes, "int part;\n");
    assert_true(types && part && types < part);
    assert_null(strstr(types + 1, "int types;"));
    assert_null(strstr(part + 1, "int part;"));
    assert_null(strstr(source.bytes, "include"));
}

static void the_including_files_folder_comes_before_the_root(void **state)
{
    (void)state;
    put_file("mill/kernel.cu", "#include \"common/part.cuh\"\n#include \"part.cuh\"\n");
    put_file("mill/part.cuh", "int of_mill;\n");
    put_file("common/part.cuh", "int of_common;\n#include \"types.cuh\"\n");
    put_file("common/types.cuh", "int types;\n");
    write_source(false);
    assert_non_null(strstr(source.bytes, "int of_common;\nint types;\nint of_mill;\n"));
}

static void what_only_looks_like_an_include_stays(void **state)
{
    (void)state;
    put_file("mill/kernel.cu",
             "// #include <x>\nint a; // #include \"y\"\n#pragma once more\n#pragma unroll\n#define include 1\n");
    write_source(false);
    assert_non_null(
        strstr(source.bytes,
               "// #include <x>\nint a; // #include \"y\"\n#pragma once more\n#pragma unroll\n#define include 1\n"));
}

static void bad_includes_are_named(void **state)
{
    static const char *const bad[] = {"<cuda_fp16.h>",
                                      "\"nothing.cuh\"",
                                      "\"/etc/passwd\"",
                                      "\"../../../../../etc/passwd\"",
                                      "\"../../outside.cuh\"",
                                      "MACRO",
                                      "\"open",
                                      "\"\"",
                                      "\"..\"",
                                      "_next \"part.cuh\""};

    (void)state;
    put_file("mill/part.cuh", "\n");
    for (size_t i = 0; i < QN_COUNT(bad); i++) {
        char line[128];
        snprintf(line, sizeof line, "#include%s%s\n", bad[i][0] == '_' ? "" : " ", bad[i]);
        put_file("mill/kernel.cu", line);
        assert_bad_template(bad[i]);
        assert_non_null(strstr(quern_message(), "mill/kernel.cu"));
    }
    plan.template_path = "../etc/passwd";
    assert_bad_template("../etc/passwd");
    plan.template_path = "mill/missing.cu";
    assert_bad_template("mill/missing.cu");
}

static void a_circle_of_includes_is_named(void **state)
{
    (void)state;
    put_file("mill/kernel.cu", "#include \"part.cuh\"\n");
    put_file("mill/part.cuh", "#include \"deep.cuh\"\n");
    put_file("mill/deep.cuh", "#include \"part.cuh\"\n");
    assert_bad_template("mill/part.cuh");
    assert_non_null(strstr(quern_message(), "circle"));
    put_file("mill/kernel.cu", "#include \"kernel.cu\"\n");
    assert_bad_template("mill/kernel.cu");
}

// ---- line info

static void line_directives_count_as_the_files_do(void **state)
{
    (void)state;
    put_file("mill/kernel.cu", "// 1\n#include \"part.cuh\"\nint third;\n#include \"part.cuh\"\nint fifth;");
    put_file("mill/part.cuh", "#pragma once\nint second;\n");
    write_source(true);
    assert_non_null(strstr(source.bytes, "#line 1 \"/quern/mill/kernel.cu\"\n// 1\n"
                                         "#line 1 \"/quern/mill/part.cuh\"\n\nint second;\n"
                                         "#line 3 \"/quern/mill/kernel.cu\"\nint third;\n"
                                         "#line 5 \"/quern/mill/kernel.cu\"\nint fifth;\n"));
    assert_null(strstr(source.bytes, dir)); // where the templates are is not in the text
}

// ---- determinism, embedded templates

static void the_same_plan_gives_the_same_bytes_from_anywhere(void **state)
{
    char before[512];
    qn_text again = QN_TEXT_INIT;

    (void)state;
    put_file("mill/kernel.cu", "#include \"part.cuh\"\n");
    put_file("mill/part.cuh", "int part;\n");
    qn_plan_constant(&plan, "V", 7);
    write_source(false);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(qn_source_write(&plan, 90, 'a', dir, false, &again), QUERN_OK);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(again.length, source.length);
    assert_memory_equal(again.bytes, source.bytes, again.length);
    qn_text_fini(&again);
}

static void every_embedded_template_expands(void **state)
{
    (void)state;
    assert_true(qn_template_count > 0);
    for (size_t i = 0; i < qn_template_count; i++) {
        plan.template_path = qn_templates[i].path;
        assert_int_equal(strlen(qn_templates[i].bytes), qn_templates[i].length);
        assert_null(strstr(qn_templates[i].path, "model/"));
        if (qn_source_write(&plan, 90, 'a', NULL, false, &source) != QUERN_OK)
            fail_msg("%s: %s", plan.template_path, quern_message());
        assert_null(strstr(source.bytes, "\n#include"));
    }
    plan.template_path = "common/none.cuh";
    assert_int_equal(qn_source_write(&plan, 90, 'a', NULL, false, &source), QUERN_BAD_TEMPLATE);
    assert_null(strstr(quern_message(), "QUERN_TEMPLATES"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_whole_text_is_as_expected),
        CASE(constants_beyond_int_are_long_long),
        CASE(no_suffix_is_the_number_0),
        CASE(only_names_get_into_the_prologue),
        CASE(one_constant_too_many_is_refused),
        CASE(a_file_is_put_once_however_it_is_named),
        CASE(the_including_files_folder_comes_before_the_root),
        CASE(what_only_looks_like_an_include_stays),
        CASE(bad_includes_are_named),
        CASE(a_circle_of_includes_is_named),
        CASE(line_directives_count_as_the_files_do),
        CASE(the_same_plan_gives_the_same_bytes_from_anywhere),
        CASE(every_embedded_template_expands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
