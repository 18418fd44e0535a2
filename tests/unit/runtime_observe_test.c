// SPDX-License-Identifier: Apache-2.0
// What can be seen from outside: counters with the reason of each miss, log lines of a stable form that carry the spec,
// dumps of source and cubin, ranges for a tool.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "runtime/private.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/runtime_fixture.h"

static char folder[64];
static char database[128], log_file[128], dumps[128];
static const char spec_text[] = "softmax_topk V=1000 K=8 in=f32";

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90};
    runtime_machine_make(folder, database, cc, 1);
    snprintf(log_file, sizeof log_file, "%s/log", folder);
    snprintf(dumps, sizeof dumps, "%s/dumps", folder);
    fake_driver.param_bytes = 16;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unsetenv("QUERN_LOG");
    unsetenv("QUERN_LOG_FILE");
    unsetenv("QUERN_DUMP");
    unsetenv("QUERN_LINE_INFO");
    runtime_machine_remove(folder);
    return 0;
}

static void read_log(qn_text *text)
{
    quern_status status = qn_file_read(log_file, text);
    if (status != QUERN_OK) fail_msg("%s", quern_message());
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

// ---- counters

static void a_miss_that_no_store_has_is_absent(void **state)
{
    (void)state;
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    quern_op_release(runtime_prepare(q, 1000, 0));
    quern_counters first = runtime_counters(q);
    quern_close(q);
    q = runtime_open(&options);
    quern_op_release(runtime_prepare(q, 1000, 0));
    quern_counters second = runtime_counters(q);

    assert_true(first.miss > 0);
    assert_int_equal(first.miss_absent, first.miss);
    assert_int_equal(first.compiled, first.miss);
    assert_true(first.bytes_compiled > 0);
    assert_int_equal(first.bytes_stored, first.bytes_compiled);
    assert_int_equal(first.bytes_found, 0);
    assert_int_equal(second.miss, 0);
    assert_int_equal(second.hit_user, first.compiled);
    assert_int_equal(second.bytes_found, first.bytes_stored);
    quern_close(q);
}

static void a_miss_without_any_store_says_so(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    quern *q = runtime_open(&options);

    quern_op_release(runtime_prepare(q, 1000, 0));

    quern_counters counters = runtime_counters(q);
    assert_true(counters.miss > 0);
    assert_int_equal(counters.miss_no_store, counters.miss);
    assert_int_equal(counters.bytes_stored, 0);
    quern_close(q);
}

static void a_sealed_database_that_may_not_be_used_has_failed(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    options.sealed_files = database;
    int fd = open(database, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && fchmod(fd, 0666) == 0 && close(fd) == 0); // whoever may write to it decides what runs
    quern *q = runtime_open(&options);
    quern_op_release(runtime_prepare(q, 1000, 0));

    quern_counters counters = runtime_counters(q);
    assert_true(counters.miss > 0);
    assert_int_equal(counters.miss_failed, counters.miss);
    quern_close(q);
}

static void misses_of_damaged_rows_and_of_failing_stores_are_told_apart(void **state)
{
    (void)state;
    runtime_store store = RUNTIME_STORE_INIT;
    quern_store callbacks = runtime_store_callbacks(&store);
    quern_options options = runtime_options("", NULL);
    options.store = &callbacks;
    quern *q = runtime_open(&options);
    quern_op_release(runtime_prepare(q, 1000, 0));
    quern_close(q);
    for (size_t i = 0; i < store.rows; i++) runtime_store_spoil(&store, i, NULL);

    q = runtime_open(&options);
    quern_op_release(runtime_prepare(q, 1000, 0));
    quern_counters damaged = runtime_counters(q);
    quern_close(q);
    store.get_status = QUERN_STORE_IO;
    q = runtime_open(&options);
    quern_op_release(runtime_prepare(q, 1000, 0));
    quern_counters failed = runtime_counters(q);
    quern_close(q);

    assert_true(damaged.miss > 0 && failed.miss > 0);
    assert_int_equal(damaged.miss_damaged, damaged.miss);
    assert_int_equal(failed.miss_failed, failed.miss);
    runtime_store_fini(&store);
}

static void a_miss_after_the_drivers_refusal_is_refused(void **state)
{
    (void)state;
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    quern_op_release(runtime_prepare(q, 1000, 0));
    quern_close(q);
    q = runtime_open(&options);
    fake_driver.call.cuLibraryLoadData.fail = CUDA_ERROR_INVALID_IMAGE;
    fake_driver.call.cuLibraryLoadData.times = 1;

    quern_op_release(runtime_prepare(q, 1000, 0));

    quern_counters counters = runtime_counters(q);
    assert_int_equal(counters.miss, 1);
    assert_int_equal(counters.miss_refused, 1);
    quern_close(q);
}

static void a_strict_miss_and_a_failed_compile_are_counted(void **state)
{
    (void)state;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op = NULL;
    quern_options options = runtime_options(database, NULL);
    options.mode = QUERN_MODE_STRICT;
    quern *q = runtime_open(&options);
    assert_int_equal(quern_prepare(q, &spec.base, 0, &op), QUERN_WOULD_COMPILE);
    quern_counters strict = runtime_counters(q);
    quern_close(q);
    options.mode = QUERN_MODE_NORMAL;
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = 1;
    q = runtime_open(&options);
    assert_int_equal(quern_prepare(q, &spec.base, 0, &op), QUERN_COMPILE_FAILED);
    quern_counters failed = runtime_counters(q);

    assert_int_equal(strict.would_compile, 1);
    assert_int_equal(strict.miss, 1);
    assert_int_equal(strict.compiled, 0);
    assert_int_equal(failed.compile_failed, 1);
    quern_close(q);
}

static void an_older_shorter_structure_gets_what_it_has_room_for(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    quern *q = runtime_open(&options);
    quern_counters old = QUERN_COUNTERS_INIT;
    memset(&old, 0x55, sizeof old);
    old.size = offsetof(quern_counters, miss_absent);
    quern_op_release(runtime_prepare(q, 1000, 0));

    quern_get_counters(q, &old);

    assert_true(old.miss > 0 && old.miss < 100);
    assert_int_equal(old.miss_absent, 0x5555555555555555u);
    quern_close(q);
}

// ---- the log

static void the_variable_writes_the_parts_that_it_names_into_the_file(void **state)
{
    (void)state;
    qn_text text = QN_TEXT_INIT;
    quern_options options = runtime_options(database, NULL);
    options.ignore_environment = 0;
    setenv("QUERN_LOG", "compile,dispatch", 1);
    setenv("QUERN_LOG_FILE", log_file, 1);
    quern *q = runtime_open(&options);
    quern_op_release(runtime_prepare(q, 1000, 0));
    quern_counters counters = runtime_counters(q);
    quern_close(q);

    read_log(&text);
    assert_int_equal(count_of(text.bytes, ",compile,info,compiled ms="), counters.compiled);
    assert_int_equal(count_of(text.bytes, ",dispatch,info,ready ms="), 1);
    assert_int_equal(count_of(text.bytes, ",cache,"), 0);
    assert_int_equal(count_of(text.bytes, "\nquern,") + 1, count_of(text.bytes, "\n"));
    struct stat info;
    assert_int_equal(stat(log_file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    qn_text_fini(&text);
}

// Each event line ends in spec="…", whose text is parsed back to the spec.
static void every_event_carries_the_spec_in_parseable_text(void **state)
{
    (void)state;
    qn_text text = QN_TEXT_INIT;
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    quern_options options = runtime_options(database, NULL);
    static float data[4 * 1000];
    static int32_t indices[4 * 8];
    options.log_parts = "all", options.log_file = log_file;
    args.rows = 4, args.logits = data, args.values = data, args.indices = indices;
    for (int run = 0; run < 2; run++) {
        quern *q = runtime_open(&options);
        quern_op *op = runtime_prepare(q, 1000, 0);
        assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_OK);
        quern_op_release(op);
        quern_close(q);
    }

    read_log(&text);
    static const char *const events[] = {"compile,info,compiled ms=",
                                         "cache,info,miss reason=absent arch=sm_90a kernel=",
                                         "cache,info,hit tier=user arch=sm_90a kernel=",
                                         "dispatch,info,ready ms=",
                                         "load,debug,loaded device=0 arch=sm_90a kernel=",
                                         "launch,debug,run arch=sm_90a variant=0 config=\""};
    for (size_t i = 0; i < QN_COUNT(events); i++)
        if (!count_of(text.bytes, events[i])) fail_msg("no '%s' in\n%s", events[i], text.bytes);
    assert_int_equal(count_of(text.bytes, " rows=4 spec="), 2);
    int lines = 0;
    for (char *rest = text.bytes, *line; (line = strsep(&rest, "\n")) && *line; lines++) {
        char *spec = strstr(line, " spec=\"");
        if (!spec) fail_msg("no spec: %s", line);
        spec += strlen(" spec=\"");
        assert_int_equal(spec[strlen(spec) - 1], '"');
        spec[strlen(spec) - 1] = 0;
        quern_any_spec parsed;
        assert_int_equal(quern_spec_parse(spec, &parsed), QUERN_OK);
        assert_string_equal(spec, spec_text);
    }
    assert_true(lines >= 7);
    qn_text_fini(&text);
}

static void the_callback_hears_launches_only_when_they_are_asked_for(void **state)
{
    (void)state;
    quern_softmax_topk_args args = QUERN_SOFTMAX_TOPK_ARGS_INIT;
    static float data[1000];
    static int32_t indices[8];
    args.rows = 1, args.logits = data, args.values = data, args.indices = indices;
    for (int asked = 0; asked < 2; asked++) {
        runtime_log lines = RUNTIME_LOG_INIT;
        quern_options options = runtime_options("", &lines);
        options.log_parts = asked ? "launch" : NULL, options.log_file = log_file;
        quern *q = runtime_open(&options);
        quern_op *op = runtime_prepare(q, 1000, 0);
        assert_int_equal(quern_softmax_topk(op, &args, NULL), QUERN_OK);
        assert_int_equal(runtime_log_has(&lines, "launch,debug,run"), asked);
        assert_true(runtime_log_has(&lines, "compile,info,compiled"));
        quern_op_release(op);
        quern_close(q);
        runtime_log_fini(&lines);
    }
}

static void a_word_that_is_no_part_is_refused_with_the_parts(void **state)
{
    (void)state;
    quern *q = NULL;
    quern_options options = runtime_options("", NULL);
    options.log_parts = "compile,lunch";
    assert_int_equal(quern_open(&options, &q), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "\"lunch\""));
    assert_non_null(strstr(quern_message(), "launch"));
    options.log_parts = NULL, options.ignore_environment = 0;
    setenv("QUERN_LOG", "x", 1);
    assert_int_equal(quern_open(&options, &q), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "$QUERN_LOG"));
    setenv("QUERN_LOG", "", 1);
    setenv("QUERN_LINE_INFO", "yes", 1);
    assert_int_equal(quern_open(&options, &q), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "QUERN_LINE_INFO"));
    assert_null(q);
}

static void a_log_file_that_cannot_be_opened_stops_nothing(void **state)
{
    (void)state;
    runtime_log lines = RUNTIME_LOG_INIT;
    quern_options options = runtime_options("", &lines);
    options.log_parts = "launch", options.log_file = "/nowhere/log";

    quern *q = runtime_open(&options);

    assert_true(runtime_log_has(&lines, "dispatch,warning,log file '/nowhere/log'"));
    quern_close(q);
    runtime_log_fini(&lines);
}

// ---- dumps

static int count_files(const char *ending)
{
    int count = 0;
    DIR *directory = opendir(dumps);
    if (!directory) return 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        size_t length = strlen(entry->d_name), end = strlen(ending);
        count += length > end && !strcmp(entry->d_name + length - end, ending);
    }
    closedir(directory);
    return count;
}

static void read_dump(const char *ending, qn_text *text)
{
    char path[512] = "";
    DIR *directory = opendir(dumps);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strstr(entry->d_name, ending)) snprintf(path, sizeof path, "%s/%s", dumps, entry->d_name);
    closedir(directory);
    assert_int_equal(qn_file_read(path, text), QUERN_OK);
}

static void remove_dumps(void)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", dumps);
    assert_int_equal(system(command), 0);
}

static void source_cubin_and_options_are_dumped_when_compiled_and_when_found(void **state)
{
    (void)state;
    quern_options options = runtime_options(database, NULL);
    options.dump_dir = dumps;
    for (int found = 0; found < 2; found++) {
        qn_text source = QN_TEXT_INIT, cubin = QN_TEXT_INIT, notes = QN_TEXT_INIT;
        remove_dumps();
        quern *q = runtime_open(&options);
        quern_op *op = runtime_prepare(q, 1000, 0);
        quern_counters counters = runtime_counters(q);
        quern_image image = QUERN_IMAGE_INIT;
        int kernels = (int)(found ? counters.hit_user : counters.compiled);
        assert_int_equal(count_files(".cu"), kernels);
        assert_int_equal(count_files(".cubin"), kernels);
        assert_int_equal(count_files(".txt"), kernels);
        assert_int_equal(quern_op_image(op, 0, 0, &image), QUERN_OK);
        char name[200];
        snprintf(name, sizeof name, "%s.sm_90a.", image.entry);
        read_dump(".txt", &notes);
        assert_non_null(strstr(notes.bytes, spec_text));
        assert_non_null(strstr(notes.bytes, "--gpu-architecture=sm_90a"));
        assert_non_null(strstr(notes.bytes, found ? "the user's database" : "from       compiled"));
        read_dump(name, &source); // any of the three has the kernel's name
        read_dump(".cubin", &cubin);
        assert_true(qn_cubin_is_plausible(cubin.bytes, cubin.length));
        quern_op_release(op);
        quern_close(q);
        qn_text_fini(&source);
        qn_text_fini(&cubin);
        qn_text_fini(&notes);
    }
    assert_int_equal(count_files(".XXXXXX"), 0);
}

static void the_source_of_a_failed_compile_is_dumped_with_the_compilers_words(void **state)
{
    (void)state;
    qn_text notes = QN_TEXT_INIT;
    quern_softmax_topk_spec spec = runtime_spec(1000, 8);
    quern_op *op = NULL;
    quern_options options = runtime_options("", NULL);
    options.dump_dir = dumps, options.compile_threads = 1;
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = 1;
    quern *q = runtime_open(&options);

    assert_int_equal(quern_prepare(q, &spec.base, 0, &op), QUERN_COMPILE_FAILED);

    assert_non_null(strstr(quern_message(), "told to fail"));
    assert_int_equal(count_files(".cu"), 1);
    assert_int_equal(count_files(".cubin"), 0);
    read_dump(".txt", &notes);
    assert_non_null(strstr(notes.bytes, "told to fail"));
    qn_text_fini(&notes);
    quern_close(q);
}

static void a_dump_that_fails_is_one_warning(void **state)
{
    (void)state;
    runtime_log lines = RUNTIME_LOG_INIT;
    quern_options options = runtime_options("", &lines);
    options.dump_dir = "/proc/nowhere";
    quern *q = runtime_open(&options);

    quern_op_release(runtime_prepare(q, 1000, 0));

    assert_int_equal(lines.count[QUERN_LOG_WARNING], 1);
    assert_true(runtime_log_has(&lines, "/proc/nowhere"));
    quern_close(q);
    runtime_log_fini(&lines);
}

// ---- names

static void kernels_are_named_by_family_and_shape(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern *q = runtime_open(&options);
    quern_op *op = runtime_prepare(q, 1000, 0);

    for (size_t v = 0; v < quern_op_variants(op); v++) {
        assert_int_equal(quern_op_describe(op, v, 0, &info), QUERN_OK);
        assert_non_null(strstr(info.entry, "softmax_topk"));
        assert_non_null(strstr(info.entry, "V1000"));
        assert_non_null(strstr(info.entry, "K8"));
        assert_non_null(strstr(info.entry, "f32"));
    }

    quern_op_release(op);
    quern_close(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_miss_that_no_store_has_is_absent),
        TEST(a_miss_without_any_store_says_so),
        TEST(a_sealed_database_that_may_not_be_used_has_failed),
        TEST(misses_of_damaged_rows_and_of_failing_stores_are_told_apart),
        TEST(a_miss_after_the_drivers_refusal_is_refused),
        TEST(a_strict_miss_and_a_failed_compile_are_counted),
        TEST(an_older_shorter_structure_gets_what_it_has_room_for),
        TEST(the_variable_writes_the_parts_that_it_names_into_the_file),
        TEST(every_event_carries_the_spec_in_parseable_text),
        TEST(the_callback_hears_launches_only_when_they_are_asked_for),
        TEST(a_word_that_is_no_part_is_refused_with_the_parts),
        TEST(a_log_file_that_cannot_be_opened_stops_nothing),
        TEST(source_cubin_and_options_are_dumped_when_compiled_and_when_found),
        TEST(the_source_of_a_failed_compile_is_dumped_with_the_compilers_words),
        TEST(a_dump_that_fails_is_one_warning),
        TEST(kernels_are_named_by_family_and_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
