// SPDX-License-Identifier: Apache-2.0
// Promise (1): files and directories that this user may not write. They are read, under locks; writing is STORE_READ_ONLY;
// nothing is unlinked. Root may write everything, so as root each test runs in a child that has dropped to another user.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <grp.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/cache_fixture.h"
#include "support/fault_count.h"

enum { NOBODY = 65534 };

static char folder[64], file[128];

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    strcpy(file, cache_path(folder, "quern-v1.db"));
    cache_copy_file(cache_golden("good-v1.db"), file);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

static bool drop_root(void)
{
    if (geteuid()) return true;
    return !setgroups(0, NULL) && !setgid(NOBODY) && !setuid(NOBODY) && geteuid() == NOBODY;
}

// Gives folder and file these modes and, as root, to the other user.
static void set_modes(mode_t folder_mode, mode_t file_mode)
{
    if (!geteuid()) assert_int_equal(chown(folder, NOBODY, NOBODY), 0);
    if (!geteuid()) assert_int_equal(chown(file, NOBODY, NOBODY), 0);
    assert_int_equal(chmod(file, file_mode), 0);
    assert_int_equal(chmod(folder, folder_mode), 0);
}

// What may be expected of a store that can only be read. Each failure has a number of its own.
static int only_reads(void *user)
{
    qn_sqlite_options options = cache_options(file);
    cache_sample sample;
    quern_store store;

    if (!drop_root()) return 99;
    options.access = *(const qn_sqlite_access *)user;
    if (qn_sqlite_open(&options, &store)) return 1;
    for (int i = 1; i <= 3; i++) {
        if (cache_get(&store, i)) return strstr(quern_message(), "died") ? 9 : 2;
    }
    if (cache_get(&store, 4) != QUERN_NOT_FOUND) return 3;
    if (cache_count(&store) != 3) return 4;
    if (cache_put(&store, 4) != QUERN_STORE_READ_ONLY) return 5;
    if (!strstr(quern_message(), file)) return 6;
    cache_sample_make(&sample, 1, 5000);
    if (store.remove(store.self, &sample.record) != QUERN_STORE_READ_ONLY) return 7;
    cache_sample_free(&sample);
    if (cache_get(&store, 1)) return 8; // and reading goes on after a refused write
    qn_sqlite_close(&store);
    return 0;
}

static void expect_only_reads(void)
{
    const qn_sqlite_access accesses[] = {QN_SQLITE_READ_WRITE, QN_SQLITE_READ_ONLY};
    uint32_t changes = cache_change_counter(file);

    for (size_t i = 0; i < QN_COUNT(accesses); i++) {
        qn_sqlite_access access = accesses[i];
        assert_int_equal(cache_in_child(only_reads, &access), 0);
    }
    assert_int_equal(cache_change_counter(file), changes);
    assert_int_equal(cache_folder_count(folder), 1);
}

static int says_read_only(void *user)
{
    qn_sqlite_info info;

    (void)user;
    if (!drop_root()) return 99;
    quern_store store = cache_open(file);
    if (qn_sqlite_get_info(&store, &info)) return 1;
    qn_sqlite_close(&store);
    return info.read_only && !info.sealed ? 0 : 2;
}

static void a_read_only_file_is_read(void **state)
{
    (void)state;
    set_modes(0755, 0444);
    expect_only_reads();
    assert_int_equal(cache_in_child(says_read_only, NULL), 0);
}

static void a_read_only_directory_is_read(void **state)
{
    (void)state;
    set_modes(0555, 0644);
    expect_only_reads();
}

static void a_read_only_file_in_a_read_only_directory_is_read(void **state)
{
    (void)state;
    set_modes(0555, 0444);
    expect_only_reads();
}

static void a_sealed_file_of_another_user_is_read(void **state)
{
    (void)state;
    quern_store store = cache_open(file);
    assert_int_equal(qn_sqlite_seal(&store), QUERN_OK);
    qn_sqlite_close(&store);
    assert_int_equal(chmod(folder, 0755), 0); // the file is root's, 0444
    expect_only_reads();
}

static int opens_with(void *user)
{
    qn_sqlite_options options = cache_options(file);
    quern_store store;

    (void)user;
    if (!drop_root()) return 99;
    if (qn_sqlite_open(&options, &store)) return 98;
    quern_status status = qn_sqlite_probe(&store);
    if (!strstr(quern_message(), "Permission denied")) return 97;
    qn_sqlite_close(&store);
    return (int)status;
}

static void a_file_that_may_not_be_read_is_an_open_failure(void **state)
{
    (void)state;
    set_modes(0755, 0000);
    assert_int_equal(cache_in_child(opens_with, NULL), QUERN_STORE_OPEN);
}

static void a_directory_that_may_not_be_entered_is_an_open_failure(void **state)
{
    (void)state;
    set_modes(0000, 0644);
    assert_int_equal(cache_in_child(opens_with, NULL), QUERN_STORE_OPEN);
}

static void a_directory_where_no_file_can_be_made_is_an_open_failure(void **state)
{
    (void)state;
    assert_int_equal(unlink(file), 0); // before: only root could afterwards
    assert_int_equal(chmod(folder, 0555), 0);
    assert_int_equal(cache_in_child(opens_with, NULL), QUERN_STORE_OPEN);
    assert_int_equal(cache_folder_count(folder), 0);
}

// A writer died and left a journal; a reader that may not write cannot roll it back, and must not read past it.
static void a_journal_left_behind_is_never_read_past(void **state)
{
    const qn_sqlite_access access = QN_SQLITE_READ_ONLY;
    (void)state;

    unsigned char header[512] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7, 0, 0, 0, 1, 1,    2,
                                 3,    4,    0,    0,    0,    7,    0,    0,    2, 0, 0, 0, 0x40, 0};
    cache_write_file(cache_path(folder, "quern-v1.db-journal"), header, sizeof header);
    set_modes(0555, 0444);
    assert_int_equal(chmod(cache_path(folder, "quern-v1.db-journal"), 0444), 0);
    assert_int_equal(cache_in_child(only_reads, (void *)(uintptr_t)&access), 9); // and it says why
    assert_int_equal(cache_folder_count(folder), 2);
}

// Dies in the middle of a write: the file is half changed, and the journal knows what it was.
static int leaves_a_journal(void *user)
{
    sqlite3 *db;
    (void)user;
    if (sqlite3_open(file, &db)) return 1;
    if (sqlite3_exec(db, "PRAGMA cache_size=1; BEGIN IMMEDIATE; UPDATE kernel SET image=zeroblob(400000)", NULL, NULL,
                     NULL))
        return 2;
    return 0; // cache_in_child ends the process: nothing is closed
}

static int reads_all(void *user)
{
    const char *name = user;
    quern_store store = cache_open_read(name);
    if (!drop_root()) return 99;
    for (int i = 1; i <= 3; i++) {
        if (cache_get(&store, i)) return 1;
    }
    if (cache_count(&store) != 3) return 2;
    qn_sqlite_close(&store);
    return 0;
}

static void who_may_write_but_only_reads_rolls_a_journal_back(void **state)
{
    char link[160];
    (void)state;
    snprintf(link, sizeof link, "%s-link", folder);
    for (int by_link = 0; by_link < 2; by_link++) {
        assert_int_equal(cache_in_child(leaves_a_journal, NULL), 0);
        assert_int_equal(cache_folder_count(folder), 2);
        set_modes(0700, 0600);
        if (!geteuid()) assert_int_equal(chown(cache_path(folder, "quern-v1.db-journal"), NOBODY, NOBODY), 0);
        if (by_link) assert_int_equal(symlink(file, link), 0);

        assert_int_equal(cache_in_child(reads_all, by_link ? link : file), 0);

        if (by_link) assert_int_equal(unlink(link), 0);
        assert_int_equal(cache_folder_count(folder), 1);
    }
}

// The connection was there before the writer died.
static void an_open_reader_goes_on_after_a_writer_died(void **state)
{
    (void)state;
    quern_store store = cache_open_read(file);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    assert_int_equal(cache_in_child(leaves_a_journal, NULL), 0);

    for (int i = 1; i <= 3; i++) assert_int_equal(cache_get(&store, i), QUERN_OK);

    assert_int_equal(cache_folder_count(folder), 1);
    qn_sqlite_close(&store);
}

// Dies in the middle of a write to a database of its own.
static int another_program_leaves_a_journal(void *user)
{
    sqlite3 *db;
    if (sqlite3_open(file, &db)) return 1;
    if (sqlite3_exec(db, user, NULL, NULL, NULL)) return 2;
    return sqlite3_exec(db,
                        "PRAGMA cache_size=1; BEGIN IMMEDIATE; UPDATE theirs SET x=zeroblob(400000);"
                        "INSERT INTO theirs VALUES(zeroblob(400000))",
                        NULL, NULL, NULL)
               ? 3
               : 0;
}

static void read_whole(const char *name, qn_text *bytes)
{
    char block[4096];
    const int64_t size = cache_file_size(name);
    qn_text_clear(bytes);
    assert_true(size > 0);
    for (int64_t at = 0; at < size; at += (int64_t)sizeof block) {
        const size_t count = size - at < (int64_t)sizeof block ? (size_t)(size - at) : sizeof block;
        cache_read_at(name, at, block, count);
        qn_text_put(bytes, block, count);
    }
}

static void assert_is(const char *name, const qn_text *want)
{
    qn_text now = QN_TEXT_INIT;
    read_whole(name, &now);
    assert_int_equal(now.length, want->length);
    assert_memory_equal(now.bytes, want->bytes, now.length);
    qn_text_fini(&now);
}

// What another program left half done is for that program to mend: no byte of it changes.
static void another_programs_dead_writer_is_left_alone(void **state)
{
    static const char *const made[][2] = {
        {"-journal", "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(zeroblob(400000))"},
        {"-journal", "PRAGMA application_id=7; CREATE TABLE theirs(x); INSERT INTO theirs VALUES(zeroblob(400000))"},
        {"-wal",
         "PRAGMA journal_mode=WAL; CREATE TABLE theirs(x); INSERT INTO theirs VALUES(1); PRAGMA wal_checkpoint"},
    };
    (void)state;
    for (size_t i = 0; i < QN_COUNT(made); i++) {
        qn_text before = QN_TEXT_INIT, before_beside = QN_TEXT_INIT;
        char beside[160];
        int64_t saved;
        snprintf(beside, sizeof beside, "%s%s", file, made[i][0]);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(cache_in_child(another_program_leaves_a_journal, (void *)(uintptr_t)made[i][1]), 0);
        read_whole(file, &before), read_whole(beside, &before_beside);
        const int entries = cache_folder_count(folder);
        const qn_sqlite_options options = cache_options(file);
        quern_store reader = cache_open_read(file), writer = cache_open(file);

        assert_int_equal(cache_get(&reader, 1), QUERN_STORE_FOREIGN);
        assert_int_equal(cache_put(&writer, 1), QUERN_STORE_FOREIGN);
        assert_int_equal(qn_sqlite_repair(&options, &saved, NULL), QUERN_STORE_FOREIGN);

        qn_sqlite_close(&reader), qn_sqlite_close(&writer);
        assert_is(file, &before), assert_is(beside, &before_beside);
        assert_int_equal(cache_folder_count(folder), entries);
        qn_text_fini(&before), qn_text_fini(&before_beside);
        cache_folder_remove(folder);
        cache_folder_make(folder);
        strcpy(file, cache_path(folder, "quern-v1.db"));
        cache_write_file(file, "", 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_read_only_file_is_read),
        TEST(a_read_only_directory_is_read),
        TEST(a_read_only_file_in_a_read_only_directory_is_read),
        TEST(a_sealed_file_of_another_user_is_read),
        TEST(a_file_that_may_not_be_read_is_an_open_failure),
        TEST(a_directory_that_may_not_be_entered_is_an_open_failure),
        TEST(a_directory_where_no_file_can_be_made_is_an_open_failure),
        TEST(a_journal_left_behind_is_never_read_past),
        TEST(who_may_write_but_only_reads_rolls_a_journal_back),
        TEST(an_open_reader_goes_on_after_a_writer_died),
        TEST(another_programs_dead_writer_is_left_alone),
    };
    return fault_tests("files and folders that may not be written or read", QN_COUNT(tests),
                       cmocka_run_group_tests(tests, NULL, NULL));
}
