// SPDX-License-Identifier: Apache-2.0
// Opening a database: making it, its format and permissions, names, read-only and sealed files, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "support/cache_fixture.h"

// In place of the C library's: a test says of which kind the file system is (0: really ask).
static unsigned pretended_magic;

int statfs(const char *path, struct statfs *info)
{
    struct stat found;

    if (stat(path, &found)) return -1;
    memset(info, 0, sizeof *info);
    info->f_type = pretended_magic ? pretended_magic : 0xEF53;
    return 0;
}

static char folder[64], file[128];

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    strcpy(file, cache_path(folder, "quern-v1.db"));
    pretended_magic = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

static quern_status probe(const char *path, qn_sqlite_access access)
{
    qn_sqlite_options options = cache_options(path);
    quern_store store;

    options.access = access;
    assert_int_equal(qn_sqlite_open(&options, &store), QUERN_OK);
    quern_status status = qn_sqlite_probe(&store);
    qn_sqlite_close(&store);
    return status;
}

// ---- making a database

static void opening_touches_no_file_before_the_first_use(void **state)
{
    (void)state;
    quern_store store = cache_open(file);

    assert_int_equal(cache_folder_count(folder), 0);
    assert_int_equal(cache_get(&store, 1), QUERN_NOT_FOUND);
    assert_int_equal(cache_folder_count(folder), 1);
    qn_sqlite_close(&store);
}

static void a_new_database_has_the_format_of_the_format_page(void **state)
{
    (void)state;
    quern_store store = cache_open(file);

    assert_int_equal(cache_put(&store, 1), QUERN_OK);
    qn_sqlite_close(&store);
    assert_int_equal(cache_sql_int(file, "PRAGMA application_id"), 0x51726e31);
    assert_int_equal(cache_sql_int(file, "PRAGMA user_version"), 1);
    assert_int_equal(cache_sql_int(file, "PRAGMA page_size"), 16384);
    assert_int_equal(cache_sql_int(file, "PRAGMA auto_vacuum"), 2);
    assert_int_equal(cache_sql_int(file, "SELECT rootpage FROM sqlite_master WHERE name='kernel'"), 3);
    assert_int_equal(cache_sql_int(file, "SELECT count(*) FROM pragma_table_info('kernel')"), 17);
    assert_int_equal(cache_sql_int(file, "SELECT cid FROM pragma_table_info('kernel') WHERE name='image'"), 16);
    assert_int_equal(cache_sql_int(file, "SELECT count(*) FROM sqlite_master WHERE name='kernel_used'"), 1);
    assert_int_equal(cache_folder_count(folder), 1); // no journal, nothing else
}

static void a_new_file_is_0600_under_every_umask(void **state)
{
    (void)state;
    const mode_t umasks[] = {0, 022, 077, 0777};
    struct stat found;

    for (size_t i = 0; i < QN_COUNT(umasks); i++) {
        mode_t before = umask(umasks[i]);
        quern_store store = cache_open(file);
        assert_int_equal(cache_put(&store, 1), QUERN_OK);
        assert_int_equal(umask(before), umasks[i]); // and it is as it was
        qn_sqlite_close(&store);
        assert_int_equal(stat(file, &found), 0);
        assert_int_equal(found.st_mode & 0777, 0600);
        unlink(file);
    }
}

static void an_empty_file_is_a_new_database(void **state)
{
    (void)state;
    cache_copy_file(cache_golden("empty.db"), file);
    quern_store store = cache_open(file);

    assert_int_equal(cache_put(&store, 1), QUERN_OK);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    qn_sqlite_close(&store);
}

static void an_empty_file_that_is_only_read_has_no_entries_until_it_has(void **state)
{
    (void)state;
    cache_write_file(file, "", 0);
    quern_store reader = cache_open_read(file), writer = cache_open(file);

    assert_int_equal(qn_sqlite_probe(&reader), QUERN_OK);
    assert_int_equal(cache_get(&reader, 1), QUERN_NOT_FOUND);
    assert_int_equal(cache_count(&reader), 0);
    assert_int_equal(cache_put(&reader, 1), QUERN_STORE_READ_ONLY);
    assert_int_equal(cache_file_size(file), 0);
    assert_int_equal(cache_put(&writer, 1), QUERN_OK);
    assert_int_equal(cache_get(&reader, 1), QUERN_OK);
    qn_sqlite_close(&reader);
    qn_sqlite_close(&writer);
}

static void a_missing_directory_is_an_open_failure_that_says_so(void **state)
{
    (void)state;
    assert_int_equal(probe(cache_path(folder, "no/such/quern-v1.db"), QN_SQLITE_READ_WRITE), QUERN_STORE_OPEN);
    assert_non_null(strstr(quern_message(), "No such file or directory"));
}

static void a_missing_file_is_not_made_by_reading(void **state)
{
    (void)state;
    assert_int_equal(probe(file, QN_SQLITE_READ_ONLY), QUERN_STORE_OPEN);
    assert_non_null(strstr(quern_message(), file));
    assert_int_equal(cache_folder_count(folder), 0);
}

static void every_byte_may_stand_in_a_name(void **state)
{
    const char *names[] = {"a b.db",           "größe ✓.db", "what?.db",     "a#b.db",      "100%.db",      "%41.db",
                           "a&mode=memory.db", "file:x.db",  "?immutable=1", "\x01\xff.db", "new\nline.db", "+.db",
                           "a'b\"c.db",        "-.db"};
    (void)state;

    for (size_t i = 0; i < QN_COUNT(names); i++) {
        const char *path = cache_path(folder, names[i]);
        quern_store store = cache_open(path);
        assert_int_equal(cache_put(&store, 1), QUERN_OK);
        qn_sqlite_close(&store);
        assert_int_equal(access(path, F_OK), 0);
        store = cache_open_read(path);
        assert_int_equal(cache_get(&store, 1), QUERN_OK);
        qn_sqlite_close(&store);
        assert_int_equal(cache_folder_count(folder), (int)i + 1);
    }
}

static void a_relative_name_stays_the_same_file_when_the_directory_changes(void **state)
{
    char *before = getcwd(NULL, 0);
    (void)state;

    assert_int_equal(chdir(folder), 0);
    quern_store store = cache_open("file:relative?.db");
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(cache_put(&store, 1), QUERN_OK);
    assert_int_equal(access(cache_path(folder, "file:relative?.db"), F_OK), 0);
    qn_sqlite_close(&store);
    assert_int_equal(chdir(before), 0);
    free(before);
}

// ---- golden databases

static void the_golden_database_of_version_1_is_read_byte_for_byte(void **state)
{
    (void)state;
    cache_copy_file(cache_golden("good-v1.db"), file);
    quern_store store = cache_open(file);

    for (int i = 1; i <= 3; i++) assert_int_equal(cache_get(&store, i), QUERN_OK);
    assert_int_equal(cache_count(&store), 3);
    assert_int_equal(cache_put(&store, 4), QUERN_OK);
    assert_int_equal(cache_get(&store, 4), QUERN_OK);
    qn_sqlite_close(&store);
}

static void the_golden_sealed_database_is_read_and_never_written(void **state)
{
    (void)state;
    cache_copy_file(cache_golden("sealed-v1.db"), file);
    const qn_sqlite_access ways[] = {QN_SQLITE_READ_ONLY, QN_SQLITE_READ_WRITE};
    uint32_t changes = cache_change_counter(file);

    for (size_t i = 0; i < QN_COUNT(ways); i++) {
        qn_sqlite_options options = cache_options(file);
        quern_store store;
        cache_sample sample;
        options.access = ways[i];
        assert_int_equal(qn_sqlite_open(&options, &store), QUERN_OK);
        assert_true(qn_sqlite_is_sealed(&store));
        for (int number = 1; number <= 3; number++) assert_int_equal(cache_get(&store, number), QUERN_OK);
        assert_int_equal(cache_put(&store, 4), QUERN_STORE_READ_ONLY);
        assert_non_null(strstr(quern_message(), "sealed"));
        cache_sample_make(&sample, 1, 5000);
        assert_int_equal(store.remove(store.self, &sample.record), QUERN_STORE_READ_ONLY);
        cache_sample_free(&sample);
        qn_sqlite_close(&store);
    }
    assert_int_equal(cache_change_counter(file), changes);
}

// Every refusal, by both accesses: the status, the way out, and a file that is bit for bit what it was.
static void golden_databases_that_are_not_ours_are_refused_and_left_alone(void **state)
{
    static const struct {
        const char *name, *says;
        quern_status status;
    } refused[] = {
        {"foreign.db", "another program", QUERN_STORE_FOREIGN},
        {"unmarked.db", "another program", QUERN_STORE_FOREIGN},
        {"other_tables.db", "not its tables", QUERN_STORE_FOREIGN},
        {"text.db", "not an SQLite database", QUERN_STORE_FOREIGN},
        {"newer.db", "format 2", QUERN_STORE_NEWER},
        {"truncated.db", "repair", QUERN_STORE_CORRUPT},
    };
    char before[120000], after[120000];
    (void)state;

    for (size_t i = 0; i < QN_COUNT(refused); i++) {
        cache_copy_file(cache_golden(refused[i].name), file);
        size_t size = (size_t)cache_file_size(file);
        assert_true(size < sizeof before);
        cache_read_at(file, 0, before, size);
        for (int access = QN_SQLITE_READ_WRITE; access <= QN_SQLITE_READ_ONLY; access++) {
            quern_status status = probe(file, access);
            if (status != refused[i].status)
                fail_msg("%s: %s: %s", refused[i].name, quern_status_name(status), quern_message());
            if (!strstr(quern_message(), refused[i].says)) fail_msg("%s: %s", refused[i].name, quern_message());
        }
        quern_store store = cache_open(file);
        assert_int_equal(cache_put(&store, 1), refused[i].status);
        assert_int_equal(cache_get(&store, 1), refused[i].status);
        qn_sqlite_close(&store);
        assert_int_equal(cache_file_size(file), size);
        cache_read_at(file, 0, after, size);
        assert_memory_equal(before, after, size);
        assert_int_equal(cache_folder_count(folder), 1);
    }
}

static void a_verdict_on_a_file_stands_until_the_store_is_closed(void **state)
{
    (void)state;
    cache_copy_file(cache_golden("foreign.db"), file);
    quern_store store = cache_open(file);
    assert_int_equal(cache_get(&store, 1), QUERN_STORE_FOREIGN);
    cache_copy_file(cache_golden("good-v1.db"), file);
    qn_fail(QUERN_INTERNAL, "another message");
    assert_int_equal(cache_get(&store, 1), QUERN_STORE_FOREIGN);
    assert_non_null(strstr(quern_message(), "another program")); // and says why, each time
    qn_sqlite_close(&store);
    store = cache_open(file);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    qn_sqlite_close(&store);
}

static void a_wiped_header_is_damage_and_not_another_programs_file(void **state)
{
    const char zeros[100] = {0};
    (void)state;

    cache_copy_file(cache_golden("good-v1.db"), file);
    cache_overwrite(file, 0, zeros, sizeof zeros);
    assert_int_equal(probe(file, QN_SQLITE_READ_WRITE), QUERN_STORE_CORRUPT);
    cache_copy_file(cache_golden("good-v1.db"), file);
    cache_overwrite(file, 0, "garbage", 7);
    assert_int_equal(probe(file, QN_SQLITE_READ_WRITE), QUERN_STORE_CORRUPT); // the mark is still there
    assert_non_null(strstr(quern_message(), "quern cache repair"));
}

static void a_directory_is_an_open_failure(void **state)
{
    (void)state;
    assert_int_equal(probe(folder, QN_SQLITE_READ_WRITE), QUERN_STORE_OPEN);
    assert_int_equal(probe(folder, QN_SQLITE_READ_ONLY), QUERN_STORE_OPEN);
}

static void views_and_triggers_of_a_planted_database_do_nothing(void **state)
{
    (void)state;
    cache_copy_file(cache_golden("good-v1.db"), file);
    cache_sql(file, "CREATE TRIGGER planted AFTER INSERT ON kernel BEGIN DELETE FROM kernel WHERE id=1; END");
    quern_store store = cache_open(file);
    assert_int_equal(cache_put(&store, 4), QUERN_OK);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    qn_sqlite_close(&store);

    cache_sql(file, "DROP TRIGGER planted; ALTER TABLE kernel RENAME TO kernel2;"
                    "CREATE VIEW kernel AS SELECT * FROM kernel2");
    assert_int_equal(probe(file, QN_SQLITE_READ_ONLY), QUERN_STORE_FOREIGN);
}

static void a_database_that_someone_switched_to_wal_comes_back(void **state)
{
    (void)state;
    cache_copy_file(cache_golden("good-v1.db"), file);
    cache_sql(file, "PRAGMA journal_mode=WAL; UPDATE kernel SET used=used+1");
    quern_store store = cache_open(file);

    assert_int_equal(cache_put(&store, 4), QUERN_OK);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    qn_sqlite_close(&store);
    unsigned char version;
    cache_read_at(file, 18, &version, 1);
    assert_int_equal(version, 1); // a rollback journal
    assert_int_equal(cache_folder_count(folder), 1);
}

// ---- network file systems

static int warnings;
static void count_warnings(void *user, quern_log_level level, const char *line)
{
    (void)user;
    warnings += level == QUERN_LOG_WARNING && strstr(line, "nfs") != NULL;
}

static void on_a_network_file_system_a_database_is_read_with_one_warning(void **state)
{
    const qn_log log = {count_warnings, NULL};
    qn_sqlite_options options = cache_options(file);
    quern_store store;
    (void)state;

    options.log = &log;
    pretended_magic = 0x6969;
    warnings = 0;
    assert_int_equal(qn_sqlite_open(&options, &store), QUERN_OK);
    assert_int_equal(cache_get(&store, 1), QUERN_NOT_FOUND); // no file yet, and none is made
    assert_int_equal(cache_put(&store, 1), QUERN_STORE_READ_ONLY);
    assert_int_equal(cache_folder_count(folder), 0);
    cache_copy_file(cache_golden("good-v1.db"), file);
    uint32_t changes = cache_change_counter(file);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    assert_int_equal(cache_put(&store, 4), QUERN_STORE_READ_ONLY);
    assert_int_equal(cache_change_counter(file), changes);
    assert_int_equal(warnings, 1);
    qn_sqlite_close(&store);

    options.allow_network_fs = true;
    assert_int_equal(qn_sqlite_open(&options, &store), QUERN_OK);
    assert_int_equal(cache_put(&store, 4), QUERN_OK);
    assert_int_equal(warnings, 1);
    qn_sqlite_close(&store);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(opening_touches_no_file_before_the_first_use),
        TEST(a_new_database_has_the_format_of_the_format_page),
        TEST(a_new_file_is_0600_under_every_umask),
        TEST(an_empty_file_is_a_new_database),
        TEST(an_empty_file_that_is_only_read_has_no_entries_until_it_has),
        TEST(a_missing_directory_is_an_open_failure_that_says_so),
        TEST(a_missing_file_is_not_made_by_reading),
        TEST(every_byte_may_stand_in_a_name),
        TEST(a_relative_name_stays_the_same_file_when_the_directory_changes),
        TEST(the_golden_database_of_version_1_is_read_byte_for_byte),
        TEST(the_golden_sealed_database_is_read_and_never_written),
        TEST(golden_databases_that_are_not_ours_are_refused_and_left_alone),
        TEST(a_verdict_on_a_file_stands_until_the_store_is_closed),
        TEST(a_wiped_header_is_damage_and_not_another_programs_file),
        TEST(a_directory_is_an_open_failure),
        TEST(views_and_triggers_of_a_planted_database_do_nothing),
        TEST(a_database_that_someone_switched_to_wal_comes_back),
        TEST(on_a_network_file_system_a_database_is_read_with_one_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
