// SPDX-License-Identifier: Apache-2.0
// The tuning table of a database: made by the first put, read without it, replaced by problems, merged by age; sealed,
// read-only, exported, imported and repaired databases; rows that nobody could have put.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cache/tune.h"
#include "support/cache_fixture.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    cache_folder_make(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

static qn_tune_row row_of(const char *bucket, const char *config, const char *status, double ns)
{
    return (qn_tune_row){.device = {"NVIDIA H200", 90, 132, 233472, 62914560, 13},
                         .library = "0.1.0",
                         .arch = "sm_90a",
                         .spec = "softmax_topk V=50257 K=50 in=bf16",
                         .bucket = bucket,
                         .sizes = "rows=8",
                         .config = config,
                         .status = status,
                         .note = "",
                         .ns = ns,
                         .spread_ns = 0.125,
                         .created = 1000};
}

static void put(quern_store *store, const qn_tune_row *rows, size_t count)
{
    if (qn_sqlite_tune_put(store, rows, count, false, NULL) != QUERN_OK) fail_msg("%s", quern_message());
}

static size_t read_count(quern_store *store, const char *spec, const char *status)
{
    qn_tune_list list = QN_TUNE_LIST_INIT;
    if (qn_sqlite_tune_read(store, spec, status, &list) != QUERN_OK) fail_msg("%s", quern_message());
    size_t count = list.count;
    qn_tune_list_fini(&list);
    return count;
}

static void a_database_without_the_table_has_no_results_and_does_not_get_one_by_reading(void **state)
{
    (void)state;
    const char *file = cache_path(folder, "old.db");
    cache_copy_file(cache_golden("good-v1.db"), file);
    quern_store store = cache_open(file);
    int entries = cache_count(&store);

    assert_int_equal(read_count(&store, NULL, NULL), 0);

    assert_int_equal(cache_sql_int(file, "SELECT count(*) FROM sqlite_master WHERE name='tune'"), 0);
    const qn_tune_row row = row_of("rows 5..14", "plan=stream", QN_TUNE_BEST, 9.5);
    put(&store, &row, 1);
    assert_int_equal(read_count(&store, NULL, NULL), 1);
    assert_int_equal(cache_count(&store), entries);
    qn_sqlite_close(&store);
}

static void a_row_comes_back_as_it_was_put(void **state)
{
    (void)state;
    quern_store store = cache_open(cache_path(folder, "a.db"));
    qn_tune_list list = QN_TUNE_LIST_INIT;
    qn_tune_row row = row_of("rows 5..14", "plan=stream block=256", QN_TUNE_BEST, 9123.456789012345);
    row.note = "'); DROP TABLE kernel; --";
    put(&store, &row, 1);

    assert_int_equal(qn_sqlite_tune_read(&store, row.spec, QN_TUNE_BEST, &list), QUERN_OK);

    assert_int_equal(list.count, 1);
    const qn_tune_row *got = &list.row[0];
    assert_true(qn_tune_same_problem(got, &row));
    assert_string_equal(got->config, row.config);
    assert_string_equal(got->sizes, row.sizes);
    assert_string_equal(got->status, row.status);
    assert_string_equal(got->note, row.note);
    assert_true(got->ns == row.ns && got->spread_ns == row.spread_ns && got->created == row.created);
    qn_tune_list_fini(&list);
    qn_sqlite_close(&store);
}

static void a_put_replaces_its_problem_and_no_other(void **state)
{
    (void)state;
    quern_store store = cache_open(cache_path(folder, "a.db"));
    const qn_tune_row first[] = {row_of("rows 5..14", "a=1", QN_TUNE_BEST, 9),
                                 row_of("rows 5..14", "a=2", QN_TUNE_SLOWER, 10)};
    const qn_tune_row other = row_of("rows 1..4", "a=1", QN_TUNE_BEST, 5);
    const qn_tune_row second = row_of("rows 5..14", "a=3", QN_TUNE_BEST, 8);
    qn_tune_list list = QN_TUNE_LIST_INIT;
    put(&store, first, 2);
    put(&store, &other, 1);

    put(&store, &second, 1);

    assert_int_equal(qn_sqlite_tune_read(&store, NULL, NULL, &list), QUERN_OK);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.row[0].bucket, "rows 1..4");
    assert_string_equal(list.row[1].config, "a=3");
    qn_tune_list_fini(&list);
    qn_sqlite_close(&store);
}

static void an_older_import_does_not_replace_a_newer_result(void **state)
{
    (void)state;
    quern_store store = cache_open(cache_path(folder, "a.db"));
    qn_tune_list list = QN_TUNE_LIST_INIT;
    qn_tune_row here = row_of("rows 5..14", "a=1", QN_TUNE_BEST, 9), older = here, newer = here, elsewhere = here;
    int64_t kept, passed_over;
    here.created = 1000, older.created = 999, newer.created = 1001, elsewhere.device.name = "NVIDIA H100";
    older.config = "a=2", newer.config = "a=3";
    put(&store, &here, 1);

    assert_int_equal(qn_tune_list_add(&list, &older), QUERN_OK);
    assert_int_equal(qn_tune_list_add(&list, &elsewhere), QUERN_OK);
    assert_int_equal(qn_sqlite_tune_merge(&store, &list, &kept, &passed_over), QUERN_OK);
    assert_int_equal(kept, 1);
    assert_int_equal(passed_over, 1);
    qn_tune_list_fini(&list);
    assert_int_equal(qn_tune_list_add(&list, &newer), QUERN_OK);
    assert_int_equal(qn_sqlite_tune_merge(&store, &list, &kept, &passed_over), QUERN_OK);
    assert_int_equal(kept, 1);
    qn_tune_list_fini(&list);
    assert_int_equal(qn_sqlite_tune_read(&store, NULL, NULL, &list), QUERN_OK);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.row[1].config, "a=3");
    qn_tune_list_fini(&list);
    qn_sqlite_close(&store);
}

static void two_winners_and_mixed_problems_are_refused(void **state)
{
    (void)state;
    quern_store store = cache_open(cache_path(folder, "a.db"));
    const qn_tune_row two[] = {row_of("rows 5..14", "a=1", QN_TUNE_BEST, 9),
                               row_of("rows 5..14", "a=2", QN_TUNE_BEST, 9)};
    const qn_tune_row mixed[] = {row_of("rows 5..14", "a=1", QN_TUNE_BEST, 9),
                                 row_of("rows 1..4", "a=2", QN_TUNE_SLOWER, 9)};

    assert_int_equal(qn_sqlite_tune_put(&store, two, 2, false, NULL), QUERN_BAD_ARGUMENT);
    assert_int_equal(qn_sqlite_tune_put(&store, mixed, 2, false, NULL), QUERN_BAD_ARGUMENT);
    assert_int_equal(qn_sqlite_tune_put(&store, two, 0, false, NULL), QUERN_MISSING_ARGUMENT);

    assert_int_equal(read_count(&store, NULL, NULL), 0);
    qn_sqlite_close(&store);
}

static void a_bad_row_names_its_column(void **state)
{
    (void)state;
    quern_store store = cache_open(cache_path(folder, "a.db"));
    const struct {
        const char *column;
        qn_tune_row row;
    } cases[] = {
#define WITH(what)                                                                                                     \
    ({                                                                                                                 \
        qn_tune_row r = row_of("rows 5..14", "a=1", QN_TUNE_BEST, 9);                                                  \
        what;                                                                                                          \
        r;                                                                                                             \
    })
        {"device", WITH(r.device.name = "")},
        {"spec", WITH(r.spec = "a\tb")},
        {"config", WITH(r.config = NULL)},
        {"note", WITH(r.note = "two\nlines")},
        {"ns", WITH(r.ns = -1)},
        {"ns", WITH(r.ns = 0.0 / 0.0)},
        {"spread_ns", WITH(r.spread_ns = 1e300)},
        {"sms", WITH(r.device.sm_count = 0)},
        {"driver", WITH(r.device.driver = 0)},
        {"created", WITH(r.created = -1)},
#undef WITH
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(qn_sqlite_tune_put(&store, &cases[i].row, 1, false, NULL), QUERN_BAD_ARGUMENT);
        if (!strstr(quern_message(), cases[i].column)) fail_msg("%s is not in: %s", cases[i].column, quern_message());
    }
    qn_sqlite_close(&store);
}

static void rows_that_nobody_could_have_put_come_to_be_judged(void **state)
{
    (void)state;
    const char *file = cache_path(folder, "a.db");
    quern_store store = cache_open(file);
    const qn_tune_row row = row_of("rows 5..14", "a=1", QN_TUNE_BEST, 9);
    put(&store, &row, 1);
    static const char *const changes[] = {"device=device||char(10)",
                                          "device='A'||char(0)||'B'",
                                          "device=printf('%.*c',100000,'x')",
                                          "device=''",
                                          "cc=9999999999999",
                                          "sms=4294967296",
                                          "sms=0",
                                          "driver=0",
                                          "ns=-5",
                                          "ns=9e999",
                                          "ns=1e16",
                                          "ns=x'00'",
                                          "spread_ns=-1",
                                          "created=-5",
                                          "config=''",
                                          "bucket=''",
                                          "library=''"};
    for (size_t i = 0; i < QN_COUNT(changes); i++) {
        qn_tune_list list = QN_TUNE_LIST_INIT;
        char sql[256];
        snprintf(sql, sizeof sql, "UPDATE tune SET %s", changes[i]);
        put(&store, &row, 1);
        cache_sql(file, sql);

        assert_int_equal(qn_sqlite_tune_read(&store, NULL, NULL, &list), QUERN_OK);

        if (list.count != 1 || qn_tune_check(&list.row[0]) == QUERN_OK) fail_msg("%s", changes[i]);
        qn_tune_list_fini(&list);
        cache_sql(file, "DELETE FROM tune");
    }
    qn_sqlite_close(&store);
}

static int after_calls(void *user)
{
    int *calls = user;
    return --*calls < 0;
}

// An import of many ranges that is cancelled says how many are there, and they are.
static void a_cancelled_merge_keeps_what_it_counts(void **state)
{
    enum { RANGES = 300 };
    (void)state;
    static char bucket[RANGES][24];
    qn_tune_list list = QN_TUNE_LIST_INIT;
    int64_t kept, passed_over;
    int calls = 2;
    qn_sqlite_options options = cache_options(cache_path(folder, "a.db"));
    quern_store store;
    options.cancel = after_calls, options.cancel_user = &calls;
    for (int i = 0; i < RANGES; i++) {
        snprintf(bucket[i], sizeof bucket[i], "rows %d", i + 1);
        const qn_tune_row rows[] = {row_of(bucket[i], "a=1", QN_TUNE_BEST, 9),
                                    row_of(bucket[i], "a=2", QN_TUNE_SLOWER, 10)};
        for (int j = 0; j < 2; j++) assert_int_equal(qn_tune_list_add(&list, &rows[j]), QUERN_OK);
    }
    assert_int_equal(qn_sqlite_open(&options, &store), QUERN_OK);

    assert_int_equal(qn_sqlite_tune_merge(&store, &list, &kept, &passed_over), QUERN_CANCELLED);
    assert_true(kept > 0 && kept < RANGES);
    assert_int_equal(read_count(&store, NULL, NULL), 2 * kept);

    int64_t before = kept;
    calls = RANGES;
    assert_int_equal(qn_sqlite_tune_merge(&store, &list, &kept, &passed_over), QUERN_OK);
    assert_int_equal(passed_over, before);
    assert_int_equal(kept, RANGES - before);
    assert_true(calls > RANGES / 2); // many share a transaction
    assert_int_equal(read_count(&store, NULL, NULL), 2 * RANGES);
    qn_tune_list_fini(&list);
    qn_sqlite_close(&store);
}

static void a_table_of_another_shape_is_an_error_and_kernels_are_served(void **state)
{
    (void)state;
    const char *file = cache_path(folder, "a.db");
    quern_store store = cache_open(file);
    qn_tune_list list = QN_TUNE_LIST_INIT;
    assert_int_equal(cache_put(&store, 1), QUERN_OK);
    cache_sql(file, "CREATE TABLE tune(x)");

    assert_int_not_equal(qn_sqlite_tune_read(&store, NULL, NULL, &list), QUERN_OK);

    assert_int_equal(list.count, 0);
    assert_int_equal(cache_get(&store, 1), QUERN_OK);
    qn_sqlite_close(&store);
}

static void a_sealed_database_serves_its_results_and_takes_none(void **state)
{
    (void)state;
    const char *file = cache_path(folder, "a.db");
    quern_store store = cache_open(file);
    const qn_tune_row row = row_of("rows 5..14", "a=1", QN_TUNE_BEST, 9);
    put(&store, &row, 1);
    assert_int_equal(qn_sqlite_seal(&store), QUERN_OK);
    qn_sqlite_close(&store);

    store = cache_open_read(file);
    assert_int_equal(read_count(&store, row.spec, QN_TUNE_BEST), 1);
    assert_int_equal(qn_sqlite_tune_put(&store, &row, 1, false, NULL), QUERN_STORE_READ_ONLY);
    qn_sqlite_close(&store);
}

static void an_export_takes_results_along_and_an_import_leaves_them_to_be_judged(void **state)
{
    (void)state;
    char copy[128];
    snprintf(copy, sizeof copy, "%s", cache_path(folder, "copy.db"));
    quern_store store = cache_open(cache_path(folder, "a.db")), into = cache_open(cache_path(folder, "into.db"));
    const qn_tune_row row = row_of("rows 5..14", "a=1", QN_TUNE_BEST, 9);
    int64_t added, present, bad;
    assert_int_equal(cache_put(&store, 1), QUERN_OK);
    put(&store, &row, 1);

    assert_int_equal(qn_sqlite_export(&store, copy), QUERN_OK);
    quern_store exported = cache_open(copy);
    assert_int_equal(read_count(&exported, NULL, NULL), 1);
    assert_int_equal(qn_sqlite_import(&into, &exported, &added, &present, &bad), QUERN_OK);

    assert_int_equal(added, 1);
    assert_int_equal(read_count(&into, NULL, NULL), 0);
    qn_sqlite_close(&exported);
    qn_sqlite_close(&into);
    qn_sqlite_close(&store);
}

static void repair_saves_results_while_the_first_page_is_whole(void **state)
{
    (void)state;
    enum { KERNELS = 20, PAGE = 16384 };
    const char *file = cache_path(folder, "a.db");
    unsigned char garbage[PAGE];
    quern_store store = cache_open(file);
    const qn_tune_row row = row_of("rows 5..14", "a=1", QN_TUNE_BEST, 9);
    const qn_sqlite_options options = cache_options(file);
    qn_text aside = QN_TEXT_INIT;
    int64_t saved = 0;
    put(&store, &row, 1);
    for (int i = 0; i < KERNELS; i++) assert_int_equal(cache_put(&store, i), QUERN_OK);
    qn_sqlite_close(&store);
    memset(garbage, 0xFF, sizeof garbage);
    cache_overwrite(file, cache_file_size(file) - PAGE, garbage, sizeof garbage); // a page of kernels

    if (qn_sqlite_repair(&options, &saved, &aside) != QUERN_OK) fail_msg("%s", quern_message());

    assert_true(aside.length > 0);
    assert_true(saved > 0 && saved < KERNELS);
    store = cache_open(file);
    assert_int_equal(read_count(&store, row.spec, QN_TUNE_BEST), 1);
    qn_text_fini(&aside);
    qn_sqlite_close(&store);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(a_database_without_the_table_has_no_results_and_does_not_get_one_by_reading),
        TEST(a_row_comes_back_as_it_was_put),
        TEST(a_put_replaces_its_problem_and_no_other),
        TEST(an_older_import_does_not_replace_a_newer_result),
        TEST(two_winners_and_mixed_problems_are_refused),
        TEST(a_bad_row_names_its_column),
        TEST(rows_that_nobody_could_have_put_come_to_be_judged),
        TEST(a_cancelled_merge_keeps_what_it_counts),
        TEST(a_table_of_another_shape_is_an_error_and_kernels_are_served),
        TEST(a_sealed_database_serves_its_results_and_takes_none),
        TEST(an_export_takes_results_along_and_an_import_leaves_them_to_be_judged),
        TEST(repair_saves_results_while_the_first_page_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
