// SPDX-License-Identifier: Apache-2.0
// What `quern cache` does with a database: info, verify, prune, import, export, seal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/cache_fixture.h"

static char folder[64], file[128], second[128];
static quern_store store;

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    strcpy(file, cache_path(folder, "quern-v1.db"));
    strcpy(second, cache_path(folder, "second.db"));
    store = cache_open(file);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    qn_sqlite_close(&store);
    cache_folder_remove(folder);
    return 0;
}

static void fill(quern_store *to, int first, int last)
{
    for (int i = first; i <= last; i++) assert_int_equal(cache_put(to, i), QUERN_OK);
}

// ---- info

static void info_counts_entries_and_bytes(void **state)
{
    qn_sqlite_info info;
    (void)state;

    fill(&store, 1, 4);
    cache_sql(file, "UPDATE kernel SET used=1000+id");
    assert_int_equal(qn_sqlite_get_info(&store, &info), QUERN_OK);
    assert_int_equal(info.entries, 4);
    assert_int_equal(info.image_bytes, 20000);
    assert_int_equal(info.file_bytes, cache_file_size(file));
    assert_int_equal(info.schema, 1);
    assert_int_equal(info.oldest_used, 1001);
    assert_int_equal(info.newest_used, 1004);
    assert_false(info.sealed);
    assert_false(info.read_only);
}

// ---- verify

typedef struct seen {
    int calls;
    char entry[64];
} seen;

static int remember(void *user, const quern_record *record)
{
    seen *s = user;

    s->calls++;
    strncpy(s->entry, record->entry ? record->entry : "", sizeof s->entry - 1);
    return 0;
}

static void verify_names_each_bad_row_by_its_fault(void **state)
{
    static const struct {
        const char *sql;
        int key, sum, image;
    } damages[] = {
        {"UPDATE kernel SET image=zeroblob(5000) WHERE id=2", 0, 1, 0},
        {"UPDATE kernel SET key=x'00' WHERE id=2", 1, 0, 0},
        {"UPDATE kernel SET regs=regs+1 WHERE id=2", 1, 0, 0},
        {"UPDATE kernel SET arch='sm_80' WHERE id=2", 1, 0, 0},
    };
    qn_verify_report report;
    (void)state;

    for (size_t i = 0; i < QN_COUNT(damages); i++) {
        seen s = {0};
        fill(&store, 1, 3);
        assert_int_equal(qn_sqlite_verify(&store, NULL, NULL, &report), QUERN_OK);
        assert_int_equal(report.entries, 3);
        assert_int_equal(report.bad_key + report.bad_sum + report.bad_image, 0);
        assert_true(report.structure_ok);
        cache_sql(file, damages[i].sql);
        assert_int_equal(qn_sqlite_verify(&store, remember, &s, &report), QUERN_OK);
        assert_int_equal(report.bad_key, damages[i].key);
        assert_int_equal(report.bad_sum, damages[i].sum);
        assert_int_equal(report.bad_image, damages[i].image);
        assert_int_equal(s.calls, 1);
        assert_string_equal(s.entry, "quern_test_2");
        cache_sql(file, "DELETE FROM kernel");
    }
}

static void verify_finds_an_image_that_is_no_cubin_though_its_sum_is_right(void **state)
{
    qn_verify_report report;
    cache_sample sample, text;
    (void)state;

    cache_sample_make(&sample, 1, 5000);
    cache_sample_make(&text, 2, 5000);
    text.record.image = "only a text, which is no cubin, of a hundred bytes or so", text.record.image_bytes = 56;
    cache_sample_sum(&text);
    assert_int_equal(store.put(store.self, &sample.record), QUERN_OK);
    assert_int_equal(store.put(store.self, &text.record), QUERN_OK);
    assert_int_equal(qn_sqlite_verify(&store, NULL, NULL, &report), QUERN_OK);
    assert_int_equal(report.bad_image, 1);
    assert_int_equal(report.bad_sum + report.bad_key, 0);
    cache_sample_free(&sample);
    cache_sample_free(&text);
}

static void verify_sees_a_broken_index(void **state)
{
    qn_verify_report report;
    (void)state;

    fill(&store, 1, 3);
    cache_sql(file,
              "PRAGMA writable_schema=ON; UPDATE sqlite_master SET sql='CREATE INDEX kernel_used ON kernel(created)'"
              " WHERE name='kernel_used'");
    cache_sql(file, "UPDATE kernel SET used=used+7"); // the index on `used` does not hear of it
    cache_sql(file, "PRAGMA writable_schema=ON; UPDATE sqlite_master SET sql='CREATE INDEX kernel_used ON kernel(used)'"
                    " WHERE name='kernel_used'");
    assert_int_equal(qn_sqlite_verify(&store, NULL, NULL, &report), QUERN_OK);
    assert_false(report.structure_ok);
}

// ---- prune

static void prune_takes_bad_rows_then_old_ones_then_the_least_recently_used(void **state)
{
    int64_t removed = 0, bytes = 0;
    (void)state;

    fill(&store, 1, 10);
    cache_sql(file, "UPDATE kernel SET used=1000+id");
    cache_sql(file, "UPDATE kernel SET image=zeroblob(5000) WHERE id=10");
    assert_int_equal(qn_sqlite_prune(&store, -1, 0, &removed, &bytes), QUERN_OK);
    assert_int_equal(removed, 1);
    assert_int_equal(bytes, 5000);
    assert_int_equal(cache_get(&store, 10), QUERN_NOT_FOUND);

    assert_int_equal(qn_sqlite_prune(&store, -1, 1003, &removed, &bytes), QUERN_OK);
    assert_int_equal(removed, 2); // 1 and 2; what was used at that second stays
    assert_int_equal(qn_sqlite_prune(&store, 20000, 0, &removed, &bytes), QUERN_OK);
    assert_int_equal(removed, 3); // of seven, four fit
    assert_int_equal(bytes, 15000);
    assert_int_equal(cache_get(&store, 5), QUERN_NOT_FOUND);
    assert_int_equal(cache_get(&store, 6), QUERN_OK);
}

static void prune_gives_the_space_back(void **state)
{
    int64_t removed, bytes;
    (void)state;

    for (int i = 0; i < 20; i++) {
        cache_sample sample;
        cache_sample_make(&sample, i, 100000);
        assert_int_equal(store.put(store.self, &sample.record), QUERN_OK);
        cache_sample_free(&sample);
    }
    int64_t before = cache_file_size(file);
    assert_int_equal(qn_sqlite_prune(&store, 0, 0, &removed, &bytes), QUERN_OK);
    assert_int_equal(removed, 20);
    assert_true(before > 2000000);
    assert_true(cache_file_size(file) < 200000);
    assert_int_equal(cache_count(&store), 0);
}

static void prune_mends_an_index(void **state)
{
    qn_verify_report report;
    int64_t removed, bytes;
    (void)state;

    verify_sees_a_broken_index(state);
    assert_int_equal(qn_sqlite_prune(&store, -1, 0, &removed, &bytes), QUERN_OK);
    assert_int_equal(removed, 0);
    assert_int_equal(qn_sqlite_verify(&store, NULL, NULL, &report), QUERN_OK);
    assert_true(report.structure_ok);
    assert_int_equal(report.entries, 3);
}

// ---- import

static void import_merges_and_counts_what_was_new_there_and_bad(void **state)
{
    quern_store from = cache_open(second);
    int64_t added = 0, present = 0, bad = 0;
    (void)state;

    fill(&store, 1, 5);
    fill(&from, 4, 12);
    cache_sql(second, "UPDATE kernel SET image=zeroblob(5000) WHERE entry='quern_test_11'");
    cache_sql(second, "UPDATE kernel SET entry='x' WHERE entry='quern_test_12'");
    cache_sql(second, "UPDATE kernel SET used=1000");
    assert_int_equal(qn_sqlite_import(&store, &from, &added, &present, &bad), QUERN_OK);
    assert_int_equal(added, 5);   // 6 … 10
    assert_int_equal(present, 2); // 4, 5
    assert_int_equal(bad, 2);
    for (int i = 1; i <= 10; i++) assert_int_equal(cache_get(&store, i), QUERN_OK);
    assert_int_equal(cache_count(&store), 10);
    assert_int_equal(cache_count(&from), 8); // the source is as it was, its row of a wrong sum of columns too
    assert_int_equal(cache_sql_int(second, "SELECT count(*) FROM kernel"), 9);
    qn_sqlite_close(&from);
}

static void import_keeps_the_times_of_making_and_use(void **state)
{
    quern_store from = cache_open_read(second);
    int64_t added, present, bad;
    (void)state;

    cache_copy_file(cache_golden("sealed-v1.db"), second);
    assert_int_equal(qn_sqlite_import(&store, &from, &added, &present, &bad), QUERN_OK);
    assert_int_equal(added, 3);
    assert_int_equal(cache_sql_int(file, "SELECT min(created) FROM kernel"), 1700000001);
    assert_int_equal(cache_sql_int(file, "SELECT max(used) FROM kernel"), 1700000003);
    qn_sqlite_close(&from);
}

static int after_calls(void *user)
{
    int *calls = user;
    return --*calls < 0;
}

// Ended between two transactions: what is counted is what is there, and the next import goes on from it.
static void a_cancelled_import_keeps_what_it_counts(void **state)
{
    enum { ROWS = 150 };
    qn_sqlite_options options = cache_options(file);
    quern_store into, from = cache_open(second);
    int64_t added, present, bad;
    int calls = 1;
    (void)state;

    options.cancel = after_calls, options.cancel_user = &calls;
    assert_int_equal(qn_sqlite_open(&options, &into), QUERN_OK);
    for (int i = 1; i <= ROWS; i++) assert_int_equal(cache_put(&from, i), QUERN_OK);

    assert_int_equal(qn_sqlite_import(&into, &from, &added, &present, &bad), QUERN_CANCELLED);
    assert_true(added > 0 && added < ROWS);
    assert_int_equal(cache_count(&into), added);

    int64_t before = added;
    calls = ROWS;
    assert_int_equal(qn_sqlite_import(&into, &from, &added, &present, &bad), QUERN_OK);
    assert_int_equal(present, before);
    assert_int_equal(added, ROWS - before);
    qn_sqlite_close(&from);
    qn_sqlite_close(&into);
}

static void importing_a_database_into_itself_is_refused(void **state)
{
    int64_t added = -7, present, bad;
    (void)state;

    fill(&store, 1, 2);
    quern_store same = cache_open_read(file);
    assert_int_equal(qn_sqlite_import(&store, &same, &added, &present, &bad), QUERN_BAD_ARGUMENT);
    assert_int_equal(qn_sqlite_import(&store, &store, &added, &present, &bad), QUERN_BAD_ARGUMENT);
    assert_int_equal(added, 0);
    qn_sqlite_close(&same);
}

// A store of another make: a thousand rows of 100 kB, none of which exists before it is asked for.
enum { MANY = 1000, BIG = 100000 };
static quern_status list_many(void *self, int with_images, quern_record_fn each, void *user)
{
    (void)self, (void)with_images;
    for (int i = 0; i < MANY; i++) {
        cache_sample sample;
        cache_sample_make(&sample, i, BIG);
        if (i == 500) sample.record.sum[3] ^= 1;
        if (i == 501) sample.record.hash[3] ^= 1;
        if (i == 502) sample.record.entry = NULL;
        int stop = each(user, &sample.record);
        cache_sample_free(&sample);
        if (stop) break;
    }
    return QUERN_OK;
}

static long peak_kib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void import_of_a_hundred_megabytes_needs_no_more_memory_than_of_one(void **state)
{
    quern_store many = {.size = sizeof many, .list = list_many};
    int64_t added = 0, present = 0, bad = 0;
    (void)state;

    long before = peak_kib();
    assert_int_equal(qn_sqlite_import(&store, &many, &added, &present, &bad), QUERN_OK);
    assert_int_equal(added, MANY - 3);
    assert_int_equal(bad, 3);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // which keep what is freed
    assert_true(peak_kib() - before < 20000);
#else
    (void)before;
#endif
}

// ---- export

static void export_writes_a_compact_copy_to_a_new_file_only(void **state)
{
    struct stat found;
    (void)state;

    fill(&store, 1, 40);
    cache_sql(file, "DELETE FROM kernel WHERE id<=30");
    assert_int_equal(qn_sqlite_export(&store, second), QUERN_OK);
    assert_true(cache_file_size(second) < cache_file_size(file));
    assert_int_equal(stat(second, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0600);
    quern_store copy = cache_open(second);
    for (int i = 31; i <= 40; i++) assert_int_equal(cache_get(&copy, i), QUERN_OK);
    assert_int_equal(cache_put(&copy, 1), QUERN_OK);
    qn_sqlite_close(&copy);
    assert_int_equal(cache_sql_int(second, "PRAGMA application_id"), 0x51726e31);
    assert_int_equal(cache_sql_int(second, "PRAGMA page_size"), 16384);
    assert_int_equal(cache_sql_int(second, "PRAGMA auto_vacuum"), 2);

    uint32_t changes = cache_change_counter(second);
    assert_int_equal(qn_sqlite_export(&store, second), QUERN_FILE_ERROR);
    assert_non_null(strstr(quern_message(), "exists"));
    assert_int_equal(cache_change_counter(second), changes);
}

static void a_failed_export_leaves_nothing_behind(void **state)
{
    (void)state;
    fill(&store, 1, 2);
    quern_store text = cache_open(cache_golden("text.db"));

    assert_int_equal(qn_sqlite_export(&store, cache_path(folder, "no/such/x.db")), QUERN_FILE_ERROR);
    assert_int_equal(qn_sqlite_export(&text, second), QUERN_STORE_FOREIGN);
    assert_int_equal(cache_folder_count(folder), 1);
    qn_sqlite_close(&text);
}

static void export_of_a_sealed_database_is_an_ordinary_one(void **state)
{
    (void)state;
    cache_copy_file(cache_golden("sealed-v1.db"), second);
    quern_store sealed = cache_open_read(second);
    const char *name = cache_path(folder, "out?&#%.db");

    assert_int_equal(qn_sqlite_export(&sealed, name), QUERN_OK);
    quern_store copy = cache_open(name);
    assert_false(qn_sqlite_is_sealed(&copy));
    assert_int_equal(cache_put(&copy, 4), QUERN_OK);
    assert_int_equal(cache_count(&copy), 4);
    qn_sqlite_close(&copy);
    qn_sqlite_close(&sealed);
}

// ---- seal

static void a_sealed_database_is_never_written_again_not_even_by_who_has_it_open(void **state)
{
    quern_store other = cache_open(file);
    struct stat found;
    (void)state;

    fill(&store, 1, 3);
    assert_int_equal(cache_get(&other, 1), QUERN_OK); // open before the seal
    assert_int_equal(qn_sqlite_seal(&store), QUERN_OK);
    assert_true(qn_sqlite_is_sealed(&store));
    assert_int_equal(stat(file, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0444);
    assert_int_equal(cache_folder_count(folder), 1);

    uint32_t changes = cache_change_counter(file);
    assert_int_equal(cache_put(&store, 4), QUERN_STORE_READ_ONLY);
    assert_int_equal(cache_put(&other, 4), QUERN_STORE_READ_ONLY);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    assert_int_equal(cache_get(&other, 3), QUERN_OK);
    assert_int_equal(qn_sqlite_seal(&store), QUERN_OK); // sealed already
    assert_int_equal(cache_change_counter(file), changes);
    qn_sqlite_close(&other);
}

static void a_sealed_database_is_read_without_any_lock(void **state)
{
    (void)state;
    fill(&store, 1, 3);
    assert_int_equal(qn_sqlite_seal(&store), QUERN_OK);
    qn_sqlite_close(&store);
    cache_write_file(cache_path(folder, "quern-v1.db-journal"), "a journal that is none",
                     22); // immutable: not looked at
    store = cache_open_read(file);
    for (int i = 1; i <= 3; i++) assert_int_equal(cache_get(&store, i), QUERN_OK);
}

static void a_damaged_database_is_not_sealed(void **state)
{
    (void)state;
    fill(&store, 1, 3);
    cache_sql(file, "UPDATE kernel SET image=zeroblob(5000) WHERE id=2");
    assert_int_equal(qn_sqlite_seal(&store), QUERN_STORE_CORRUPT);
    assert_non_null(strstr(quern_message(), "1 of 3"));
    assert_false(qn_sqlite_is_sealed(&store));
    assert_int_equal(cache_put(&store, 4), QUERN_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(info_counts_entries_and_bytes),
        TEST(verify_names_each_bad_row_by_its_fault),
        TEST(verify_finds_an_image_that_is_no_cubin_though_its_sum_is_right),
        TEST(verify_sees_a_broken_index),
        TEST(prune_takes_bad_rows_then_old_ones_then_the_least_recently_used),
        TEST(prune_gives_the_space_back),
        TEST(prune_mends_an_index),
        TEST(import_merges_and_counts_what_was_new_there_and_bad),
        TEST(import_keeps_the_times_of_making_and_use),
        TEST(a_cancelled_import_keeps_what_it_counts),
        TEST(importing_a_database_into_itself_is_refused),
        TEST(import_of_a_hundred_megabytes_needs_no_more_memory_than_of_one),
        TEST(export_writes_a_compact_copy_to_a_new_file_only),
        TEST(a_failed_export_leaves_nothing_behind),
        TEST(export_of_a_sealed_database_is_an_ordinary_one),
        TEST(a_sealed_database_is_never_written_again_not_even_by_who_has_it_open),
        TEST(a_sealed_database_is_read_without_any_lock),
        TEST(a_damaged_database_is_not_sealed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
