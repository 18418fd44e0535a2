// SPDX-License-Identifier: Apache-2.0
// What a caller's source may have: includes, options, headers and digest; each refusal names the member and what it has.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "runtime/private.h"

static const char kernel[] = "extern \"C\" __global__ void scale(float *x) { *x = 1; }\n";

static quern_source good(void)
{
    quern_source source = QUERN_SOURCE_INIT;
    source.source = kernel, source.entry = "scale", source.threads = 128, source.parameter_bytes = 8;
    return source;
}

static void must_refuse(const quern_source *source, const char *part)
{
    if (qn_source_check(source, false) != QUERN_BAD_ARGUMENT) fail_msg("accepted: %s", part);
    if (!strstr(quern_message(), part)) fail_msg("'%s' is not in: %s", part, quern_message());
}

static void must_take(const quern_source *source)
{
    quern_status status = qn_source_check(source, false);
    if (status != QUERN_OK) fail_msg("%s: %s", quern_status_name(status), quern_message());
}

// ---- includes

static void an_include_of_no_header_given_is_refused_wherever_it_hides(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line;
    } cases[] = {
        {"#include \"a.h\"\n", "line 1"},
        {"int x;\n\t#  include <a.h>\n", "line 2"},
        {"/* one\n two */ #include \"a.h\"\n", "line 1"}, // a comment is a blank: the line began where it did
        {"int x; // \\\n hidden\n#include \"a.h\"\n", "line 3"},
        {"#inc\\\nlude \"a.h\"\n", "line 1"},
        {"#/* */include/* */\"a.h\"\n", "line 1"},
        {"%:include \"a.h\"\n", "line 1"},
        {"#define H \"a.h\"\n#include H\n", "line 2"},
        {"#include_next <a.h>\n", "line 1"},
        {"#import \"a.h\"\n", "line 1"},
        {"#embed \"a.bin\"\n", "line 1"},
        {"#if __has_include(\"a.h\")\n#endif\n", "line 1"},
        {"const char *s = R\"x(\n)x\";\n#include \"a.h\"\n", "line 3"},
        {"const char *s = \"/*\";\n#include \"a.h\"\n", "line 2"},
        {"const int n = 1'000;\n#include \"a.h\"\n", "line 2"},
        {"const char c = '\\'';\n#include \"a.h\"\n", "line 2"},
        {"#include \"a.h", "line 1"},
        {"int x = L'R\"(';\n#include \"a.h\"\n//)\"", "line 2"}, // a prefix before a character, not a digit separator
        {"#if 0\ndon't /*\n#endif\n#include \"a.h\"\n//*/", "line 4"},
        {"const double n = 0x1.8p+3'0;\n#include \"a.h\"\n", "line 2"},
        {"#if 0\n8R\"(\n#endif\n#include \"a.h\"\n//)\"", "line 4"}, // numbers and words that end with R are no prefix
        {"#if 0\n1.uR\"(\n#endif\n#include \"a.h\"\n//)\"", "line 4"},
        {"#if 0\n1e+R\"(\n#endif\n#include \"a.h\"\n//)\"", "line 4"},
        {"#if 0\n1'uR\"(\n#endif\n#include \"a.h\"\n//)\"", "line 4"},
        {"#if 0\nUuR\"(\n#endif\n#include \"a.h\"\n//)\"", "line 4"},
        {"const char *s = u8R\"x(\n)\\\n)\")x\";\n#include \"a.h\"\n", "line 4"},
        {"int x; /\\\n/ R\"(\n#include \"a.h\"\n//)\"", "line 3"}, // splices inside //, /*, */ and an escape
        {"/\\\n* R\"( */\n#include \"a.h\"\n//)\"", "line 3"},
        {"/* *\\\n/\n#include \"a.h\"\n//*/", "line 3"},
        {"const char *s = \"\\\\\n/*\";\n#include \"a.h\"\n//*/", "line 3"},
        {"#include <a.h//>\n", "line 1"},
        {"#include_next /* */ \"a.h\"\n", "line 1"},
        {"#elif __has_in\\\nclude_next(<a.h>)\n", "line 1"},
        {"#if __has_embed(\"a.h\")\n", "line 1"},
        {"int x;\nconst char *at = __TIME__;\n", "line 2"},
        {"const char *at = __DATE__;\n", "line 1"},
        {"const char *at = __TIMESTAMP__;\n", "line 1"},
    };
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        quern_source source = good();
        source.source = cases[i].text;
        must_refuse(&source, cases[i].line);
        source.digest = "d", source.digest_bytes = 1; // the caller speaks for it
        must_take(&source);
    }
}

// Where standards or compilers read a text in two ways, an include could hide in one of them.
static void what_is_read_in_two_ways_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *option, *part;
        bool is_taken; // by C++17
    } cases[] = {
        {"int x;\n?\?=include \"a.h\"\n", "--std=c++14", "line 2", true}, // no directive from C++17 on
        {"int x; // ?\?/\n", "-std=c++03", "line 1", true},
        {"const int n = 1'000;\n", "--std=c++11", "line 1", true},
        {"int x;\nconst char *s = R\"(\n)\";\n", "--std=c++03", "line 2", true},
        {"int x;\nR\\\n\"()\"\n", "--std=c++20", "line 2", false},
        {"u\\\nR\"()\"\n", "--std=c++20", "line 1", false},
        {"\xc3\xa9R\"()\"\n", "--std=c++20", "line 1", false},
        {"1\xc3\xa9R\"()\"\n", "--std=c++20", "line 1", false},
        {"$R\"()\"\n", "--std=c++20", "line 1", false},
        {"R\"a b()a b\"\n", "--std=c++20", "delimiter", false},
        {"R\"01234567890123456()01234567890123456\"\n", "--std=c++20", "delimiter", false},
        {"R\"a(\n)\"\n", "--std=c++20", "no end", false},
        {"#if 0\n1''/*\n#endif\n//*/\n", "--std=c++20", "line 2", false},
        {"int x;\n\"\"R\"()\"\n", "--std=c++20", "line 2", false}, // a suffix of the string before, or not
        {"'a'R\"()\"\n", "--std=c++20", "line 1", false},
        {"\\u8R\"()\"\n", "--std=c++20", "line 1", false},
        {"R\"()\"R\"()\"\n", "--std=c++20", "line 1", false},
    };
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        const char *const options[] = {"--std=c++20", cases[i].option};
        quern_source source = good();
        source.source = cases[i].text, source.options = options, source.option_count = 2;
        must_refuse(&source, cases[i].part);
        must_refuse(&source, "source.digest");
        source.option_count = 1;
        if (cases[i].is_taken) must_take(&source);
        source.option_count = 0;
        if (cases[i].is_taken) must_take(&source);
        source.option_count = 2, source.digest = "d", source.digest_bytes = 1;
        must_take(&source);
    }
}

static void what_only_looks_like_an_include_is_taken(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "// #include \"a.h\"\n",
        "/*\n#include \"a.h\"\n*/\n",
        "int x; // \\\n#include \"a.h\"\n",
        "const char *s = R\"(\n#include \"a.h\"\n)\";\n",
        "const char *s = \"\\\n#include <a.h>\";\n",
        "#pragma once\n#if 1\n#endif\n",
        "int include;\n",
        "#included\n",
        "const char *s = LR\"a(\n#include \"a.h\"\n)\" )a\";\n",
        "const char *s = \"\\\\\n\\\n#include <a.h>\";\n",
        "/\\\n* \n#include \"a.h\"\n*\\\n/\n",
        "int MY__TIME__, __has_includes;\n",
        "const char *s = \"what?\?!\";\n",
    };
    for (size_t i = 0; i < QN_COUNT(texts); i++) {
        quern_source source = good();
        source.source = texts[i];
        must_take(&source);
    }
}

static void an_include_of_a_header_given_is_taken_and_headers_are_looked_into(void **state)
{
    (void)state;
    quern_header headers[] = {{"a.h", "#include <dir/b.h>\n"}, {"dir/b.h", "int b;\n"}};
    quern_source source = good();
    source.source = "#include \"a.h\"\n";
    source.headers = headers, source.header_count = 2;
    must_take(&source);

    headers[1].text = "int b;\n#include \"c.h\"\n";
    must_refuse(&source, "headers[1], line 2");
    source.header_count = 1;
    must_refuse(&source, "dir/b.h");
}

static void each_bad_header_is_named(void **state)
{
    (void)state;
    quern_header headers[] = {{"a.h", ""}, {"a.h", ""}};
    quern_source source = good();
    source.headers = headers, source.header_count = 2;
    must_refuse(&source, "twice");
    headers[1].name = "";
    must_refuse(&source, "headers[1].name");
    headers[1].name = "b\">h";
    must_refuse(&source, "headers[1].name");
    headers[1].name = NULL;
    assert_int_equal(qn_source_check(&source, false), QUERN_MISSING_ARGUMENT);
    headers[1] = (quern_header){"b.h", NULL};
    assert_int_equal(qn_source_check(&source, false), QUERN_MISSING_ARGUMENT);
    source.headers = NULL;
    assert_int_equal(qn_source_check(&source, false), QUERN_MISSING_ARGUMENT);
    source = good(), source.header_count = 257;
    must_refuse(&source, "at most 256");
}

static void a_byte_that_ends_the_text_is_refused_with_its_line(void **state)
{
    (void)state;
    quern_header header = {"a.h", "int x;\n// \xff\n"};
    quern_source source = good();
    source.source = "int y; // \xff";
    must_refuse(&source, "source.source, line 1");
    source.source = "int y; // \xc3\xbf \xe9";
    must_take(&source);
    source.headers = &header, source.header_count = 1;
    must_refuse(&source, "source.headers[0], line 2");
    source.digest = "d", source.digest_bytes = 1; // speaks for what is outside, not for what is lost
    must_refuse(&source, "source.headers[0], line 2");
}

// ---- options

static void options_that_depend_on_nothing_else_are_taken(void **state)
{
    (void)state;
    static const char *const options[] = {
        "-DN=4",
        "-UN",
        "--define-macro=N=4",
        "--std=c++20",
        "-std=c++17",
        "--use_fast_math",
        "--fmad=false",
        "--maxrregcount=64",
        "-lineinfo",
        "--split-compile=0",
        "--ptxas-options=-v",
        "--ptxas-options=-O2",
        "-Xptxas=--register-usage-level=10",
        "-default-device",
        "-w",
        "--diag-suppress=177",
    };
    quern_source source = good();
    source.options = options, source.option_count = QN_COUNT(options);
    must_take(&source);
}

static void options_with_side_effects_or_outside_content_need_a_digest(void **state)
{
    (void)state;
    static const char *const options[] = {
        "-I/usr/include",
        "--include-path=/x",
        "-I",
        "--pre-include=x.h",
        "-include=x.h",
        "--pch",
        "--create-pch=x",
        "--use-pch=x",
        "--pch-dir=/tmp",
        "--time=t.csv",
        "-time=t.csv",
        "--fdevice-time-trace=t.json",
        "--device-debug",
        "-G",
        "--no-such-option",
        "-DBUILT=__TIME__",
        "--define-macro=HAS=__has_include",
        "--ptxas-options=--output-file=x",
        "--ptxas-options=-v,-o=x",
        "--ptxas-options=",
        "-Xptxas",
        "-D",
    };
    for (size_t i = 0; i < QN_COUNT(options); i++) {
        quern_source source = good();
        source.options = &options[i], source.option_count = 1;
        must_refuse(&source, options[i]);
        must_refuse(&source, "source.digest");
        source.digest = "sum of the headers", source.digest_bytes = 18;
        must_take(&source);
    }
}

static void what_quern_decides_is_refused_with_a_digest_too(void **state)
{
    (void)state;
    static const char *const options[] = {"--gpu-architecture=sm_80",
                                          "-arch=sm_80",
                                          "--relocatable-device-code=true",
                                          "-rdc=true",
                                          "-dc",
                                          "--dlink-time-opt",
                                          "-dlto",
                                          "N=4",
                                          "",
                                          "-"};
    for (size_t i = 0; i < QN_COUNT(options); i++) {
        quern_source source = good();
        source.options = &options[i], source.option_count = 1;
        source.digest = "d", source.digest_bytes = 1;
        must_refuse(&source, "source.options[0]");
    }
    quern_source source = good();
    source.options = options, source.option_count = 49;
    must_refuse(&source, "at most 48");
}

static void with_line_information_names_are_absolute(void **state)
{
    (void)state;
    quern_source source = good();
    source.source = "int x;\n#line 7 \"here.cu\"\n";
    must_take(&source);
    assert_int_equal(qn_source_check(&source, true), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "line 2"));
    source.source = "# 7 \"here.cu\"\n";
    assert_int_equal(qn_source_check(&source, true), QUERN_BAD_ARGUMENT);
    source.source = "#line 7 \"/there/here.cu\"\n#line 8\n";
    assert_int_equal(qn_source_check(&source, true), QUERN_OK);
}

// Any bytes are looked at without harm, and with a digest they are not looked at.
static void random_texts_do_no_harm(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "#",  "include", " ",  "\"",    "<",   ">",  "a.h", "\n", "\\", "\\\n",  "\r\n",
        "/*", "*/",      "//", "'",     "R\"", "(",  ")",   "x",  "1",  "#line", "__has_include",
        "%:", "\t",      "R",  "u8R\"", "L",   "e+", ".",   "$",  "é",  "?\?/"};
    static const quern_header headers[] = {{"a.h", ""}};
    uint64_t seed = 1;
    size_t taken = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        char text[256] = "";
        size_t used = 0;
        for (int i = 0; i < 24 && used + 16 < sizeof text; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            used += (size_t)snprintf(text + used, sizeof text - used, "%s", pieces[(seed >> 33) % QN_COUNT(pieces)]);
        }
        quern_source source = good();
        source.source = text, source.headers = headers, source.header_count = 1;
        quern_status status = qn_source_check(&source, round % 2);
        assert_true(status == QUERN_OK || status == QUERN_BAD_ARGUMENT);
        taken += status == QUERN_OK;
        refused += status != QUERN_OK;
        source.digest = "d", source.digest_bytes = 1;
        must_take(&source);
    }
    assert_true(taken > 100 && refused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_include_of_no_header_given_is_refused_wherever_it_hides),
        cmocka_unit_test(what_is_read_in_two_ways_is_refused),
        cmocka_unit_test(what_only_looks_like_an_include_is_taken),
        cmocka_unit_test(an_include_of_a_header_given_is_taken_and_headers_are_looked_into),
        cmocka_unit_test(each_bad_header_is_named),
        cmocka_unit_test(a_byte_that_ends_the_text_is_refused_with_its_line),
        cmocka_unit_test(options_that_depend_on_nothing_else_are_taken),
        cmocka_unit_test(options_with_side_effects_or_outside_content_need_a_digest),
        cmocka_unit_test(what_quern_decides_is_refused_with_a_digest_too),
        cmocka_unit_test(with_line_information_names_are_absolute),
        cmocka_unit_test(random_texts_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
