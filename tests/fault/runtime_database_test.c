// SPDX-License-Identifier: Apache-2.0
// What a database can do to the caller of the library: nothing. Its disk is full or fails at any call; it is cut, empty,
// another program's or a newer Quern's. Each time the kernel comes, right, with at most one warning; what is not ours or
// damaged stays as it is, byte for byte; and where the disk works again the same quern stores.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/cache_fixture.h"
#include "support/fake_nvrtc.h"
#include "support/fault_count.h"
#include "support/fault_vfs.h"
#include "support/runtime_fixture.h"

enum { FIRST = 1, SECOND = 2, LAST = 3, PAGE = 16384 };

static char folder[64], database[128];

static int set_up(void **state)
{
    (void)state;
    fault_vfs_install();
    fault_vfs_set((fault_plan){0});
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    fake_nvrtc_install(13, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fault_vfs_set((fault_plan){0});
    fake_nvrtc_remove();
    cache_folder_remove(folder);
    return 0;
}

static void check(const char *what, int64_t n, bool right, const char *claim)
{
    if (!right) fail_msg("%s, %lld: not so: %s (%s)", what, (long long)n, claim, quern_message());
}

// The image is what this source compiles to, whatever way it came.
static bool gets(quern *q, int number)
{
    const qn_image *image;
    char entry[32];

    snprintf(entry, sizeof entry, "kernel_%d", number);
    return runtime_obtain(q, number, "sm_90a", &image) == QUERN_OK && !strcmp(image->entry, entry) &&
           memmem(image->bytes.bytes, image->bytes.length, entry, strlen(entry)) && image->registers == 32;
}

static void check_next_process(const char *what, int64_t n)
{
    quern_options options = runtime_options(database, NULL);
    quern_store store = cache_open(database);
    qn_verify_report report;

    check(what, n, qn_sqlite_verify(&store, NULL, NULL, &report) == QUERN_OK && report.structure_ok, "it is sound");
    check(what, n, report.bad_key + report.bad_sum + report.bad_image == 0, "every row is whole");
    check(what, n, report.entries >= 1, "it has at least what was stored when the disk worked again");
    qn_sqlite_close(&store);
    quern *q = runtime_open(&options);
    for (int i = FIRST; i <= LAST; i++) check(what, n, gets(q, i), "the next process gets its kernels");
    quern_counters counters = runtime_counters(q);
    check(what, n, counters.compiled == 3 - (uint64_t)report.entries, "and compiles what was not stored");
    check(what, n, counters.put_failed + counters.get_failed + counters.bad_rows == 0, "and stores it");
    quern_close(q);
}

// ---- disks that fail

static const struct {
    const char *name;
    unsigned kinds;
    int code, error;
    bool for_ever, torn;
} faults[] = {
    {"a full disk", FAULT_WRITE, SQLITE_FULL, ENOSPC, true, false},
    {"a full disk in the middle of a write", FAULT_WRITE, SQLITE_FULL, ENOSPC, false, true},
    {"a write error", FAULT_WRITE, SQLITE_IOERR_WRITE, EIO, true, true},
    {"a file system that became read-only", FAULT_OPEN | FAULT_WRITE, SQLITE_READONLY, EROFS, true, false},
    {"an error anywhere", FAULT_EVERY, SQLITE_IOERR, EIO, false, false},
    {"errors from one call on", FAULT_EVERY, SQLITE_IOERR, EIO, true, false},
};

static bool run_with_fault(size_t f, int64_t n)
{
    const char *what = faults[f].name;
    runtime_log log = RUNTIME_LOG_INIT;
    quern_options options = runtime_options(database, &log);

    unlink(database);
    fault_vfs_set((fault_plan){.kinds = faults[f].kinds,
                               .at = n,
                               .for_ever = faults[f].for_ever,
                               .torn = faults[f].torn,
                               .code = faults[f].code,
                               .error = faults[f].error});
    quern *q = runtime_open(&options);
    check(what, n, gets(q, FIRST) && gets(q, SECOND), "kernels come all the same");
    bool reached = fault_vfs_count() >= n;
    fault_vfs_set((fault_plan){0});
    check(what, n, log.count[QUERN_LOG_WARNING] <= 1, "one warning, not one a kernel");
    check(what, n, runtime_counters(q).bad_rows == 0, "no row is called bad");
    uint64_t failed = runtime_counters(q).put_failed;
    check(what, n, gets(q, LAST) && runtime_counters(q).put_failed == failed, "the same quern stores again");
    quern_close(q);
    runtime_log_fini(&log);
    check_next_process(what, n);
    return reached;
}

static void no_failing_disk_is_the_callers_failure(void **state)
{
    static const char kind[] = "a file system call that fails, seen by a user of the library";
    (void)state;

    for (size_t f = 0; f < QN_COUNT(faults); f++) {
        bool reached = true;
        for (int64_t n = 1; reached; n++) {
            fault_tried(kind);
            reached = run_with_fault(f, n);
            fault_survived(kind);
        }
    }
}

static int live_under_a_size_limit(void *user)
{
    const rlim_t *bytes = user;
    struct rlimit limit, before;
    quern_options options = runtime_options(database, NULL);
    quern *q = NULL;

    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = *bytes;
    if (setrlimit(RLIMIT_FSIZE, &limit) || quern_open(&options, &q)) return 1;
    if (!gets(q, FIRST) || !gets(q, SECOND)) return 2;
    setrlimit(RLIMIT_FSIZE, &before);
    uint64_t failed = runtime_counters(q).put_failed;
    if (!gets(q, LAST) || runtime_counters(q).put_failed != failed) return 3;
    quern_close(q);
    return 0;
}

static void no_limit_on_the_file_size_is_the_callers_failure(void **state)
{
    static const char kind[] = "a limit on the file size, seen by a user of the library";
    static const rlim_t limits[] = {0, 1, 100, 512, 4096, 16384, 16385, 32768, 65536, 81920, 98304, 131072};
    (void)state;

    for (size_t i = 0; i < QN_COUNT(limits); i++) {
        rlim_t bytes = limits[i];
        fault_tried(kind);
        unlink(database);
        unlink(cache_path(folder, "quern-v1.db-journal"));
        int result = cache_in_child(live_under_a_size_limit, &bytes);
        check(kind, (int64_t)bytes, result == 0, "the process goes on");
        check_next_process(kind, (int64_t)bytes);
        fault_survived(kind);
    }
}

// ---- files that are no good

static void *bytes_of(const char *file, size_t *count)
{
    *count = (size_t)cache_file_size(file);
    void *bytes = malloc(*count + 1);
    assert_non_null(bytes);
    cache_read_at(file, 0, bytes, *count);
    return bytes;
}

// In memory, with one warning that names the way out; the file stays.
static void live_beside(const char *what, int64_t n, const char *warning)
{
    runtime_log log = RUNTIME_LOG_INIT;
    quern_options options = runtime_options(database, &log);
    size_t before_count, after_count;
    void *before = bytes_of(database, &before_count);

    for (int process = 0; process < 2; process++) {
        quern *q = runtime_open(&options);
        check(what, n, gets(q, FIRST) && gets(q, SECOND) && gets(q, FIRST), "kernels come all the same");
        quern_close(q);
    }
    check(what, n, log.count[QUERN_LOG_WARNING] == 2, "one warning a process");
    check(what, n, !warning || runtime_log_has(&log, warning), "it says what the file is");
    void *after = bytes_of(database, &after_count);
    check(what, n, before_count == after_count && !memcmp(before, after, after_count), "the file is as it was");
    free(before), free(after);
    runtime_log_fini(&log);
}

static void what_is_not_ours_is_left_alone(void **state)
{
    static const char kind[] = "another program's database, a newer one, no database";
    static const struct {
        const char *name, *warning;
    } files[] = {
        {"foreign.db", "STORE_FOREIGN"},      {"newer.db", "STORE_NEWER"},      {"text.db", "STORE_FOREIGN"},
        {"other_tables.db", "STORE_FOREIGN"}, {"unmarked.db", "STORE_FOREIGN"}, {"truncated.db", "STORE_CORRUPT"},
    };
    (void)state;

    for (size_t i = 0; i < QN_COUNT(files); i++) {
        fault_tried(kind);
        cache_copy_file(cache_golden(files[i].name), database);
        live_beside(files[i].name, 0, files[i].warning);
        fault_survived(kind);
    }
}

// Cut within its last page SQLite takes a database for whole: that page's rows are damaged, others are served.
static void live_with_a_damaged_page(int64_t length)
{
    quern_options options = runtime_options(database, NULL);
    qn_sqlite_options sqlite = cache_options(database);
    qn_text aside = QN_TEXT_INIT;
    int64_t saved;

    for (int process = 0; process < 2; process++) {
        quern *q = runtime_open(&options);
        check("cut in the last page", length, gets(q, FIRST) && gets(q, SECOND), "kernels come all the same");
        quern_close(q);
    }
    check("cut in the last page", length, qn_sqlite_repair(&sqlite, &saved, &aside) == QUERN_OK, "it can be repaired");
    qn_text_fini(&aside);
    quern *q = runtime_open(&options);
    check("cut in the last page", length, gets(q, LAST), "the next process gets its kernel");
    check("cut in the last page", length, runtime_counters(q).put_failed == 0, "and stores it");
    quern_close(q);
}

// Cut at any length: damaged and left alone; cut to nothing, which to SQLite a single byte is too, a new database.
static void a_database_cut_at_any_length_is_left_alone(void **state)
{
    static const char kind[] = "a database cut at some length";
    size_t count;
    void *bytes = bytes_of(cache_golden("good-v1.db"), &count);
    (void)state;

    for (size_t length = 2; length < count; length += length < 128 ? 13 : 1711) {
        fault_tried(kind);
        cache_write_file(database, bytes, length);
        if (length + PAGE <= count)
            live_beside("cut", (int64_t)length, NULL);
        else
            live_with_a_damaged_page((int64_t)length);
        fault_survived(kind);
    }
    free(bytes);
    fault_tried(kind);
    cache_write_file(database, "", 0);
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    assert_true(gets(q, FIRST));
    quern_close(q);
    check_next_process("cut to nothing", 0);
    fault_survived(kind);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_failing_disk_is_the_callers_failure),
        TEST(no_limit_on_the_file_size_is_the_callers_failure),
        TEST(what_is_not_ours_is_left_alone),
        TEST(a_database_cut_at_any_length_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
