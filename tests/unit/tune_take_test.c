// SPDX-License-Identifier: Apache-2.0
// Tuning results of one database into another: what can be used comes, a range of sizes with a row that cannot is left out
// whole and counted, and the newer of two stay.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/tuned.h"
#include "runtime/usable.h"
#include "support/cache_fixture.h"
#include "tune/take.h"

enum { NOW = 1800000000 };

static char folder[64], from_db[128], into_db[128];

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    snprintf(from_db, sizeof from_db, "%s/from.db", folder);
    snprintf(into_db, sizeof into_db, "%s/into.db", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

static qn_tune_row row_of(const char *bucket, const char *sizes, int block, const char *status)
{
    static char config[8][96];
    static int next;
    char *text = config[next++ % 8];
    snprintf(text, sizeof config[0], "plan=stream block=%d ctas=1 local_k=4 unroll=2", block);
    return (qn_tune_row){.device = {"NVIDIA H200", 90, 132, 233472, 62914560, 13},
                         .library = qn_tuned_library(),
                         .arch = "sm_90a",
                         .spec = "softmax_topk V=5000 K=8 in=f32",
                         .bucket = bucket,
                         .sizes = sizes,
                         .config = text,
                         .status = status,
                         .note = "",
                         .ns = 1000,
                         .spread_ns = 1,
                         .created = NOW};
}

static void put(const char *file, const qn_tune_row *rows, size_t count)
{
    quern_store store = cache_open(file);
    if (qn_sqlite_tune_put(&store, rows, count, false, NULL) != QUERN_OK) fail_msg("%s", quern_message());
    qn_sqlite_close(&store);
}

static void take(qn_tune_taken *taken)
{
    quern_store from = cache_open_read(from_db), into = cache_open(into_db);
    if (qn_tune_take(&into, &from, NOW, taken) != QUERN_OK) fail_msg("%s", quern_message());
    qn_sqlite_close(&into);
    qn_sqlite_close(&from);
}

static qn_tune_list read_all(void)
{
    qn_tune_list list = QN_TUNE_LIST_INIT;
    quern_store store = cache_open_read(into_db);
    if (qn_sqlite_tune_read(&store, NULL, NULL, &list) != QUERN_OK) fail_msg("%s", quern_message());
    qn_sqlite_close(&store);
    return list;
}

static void what_can_be_used_comes_and_the_rest_is_counted(void **state)
{
    (void)state;
    qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
    const qn_tune_row good[] = {row_of("rows 5..14", "rows=8", 128, QN_TUNE_BEST),
                                row_of("rows 5..14", "rows=8", 256, QN_TUNE_SLOWER)};
    qn_tune_row bad[] = {row_of("rows 1..4", "rows=1", 128, QN_TUNE_BEST),
                         row_of("rows 1..4", "rows=1", 256, QN_TUNE_SLOWER)};
    qn_tune_row future = row_of("rows 63..66", "rows=64", 128, QN_TUNE_BEST);
    const qn_tune_row former = row_of("rows 15..100", "rows=16", 128, QN_TUNE_BEST);
    bad[1].sizes = "rows=64";
    future.created = NOW + QN_TUNE_AHEAD_SECONDS + 1;
    put(from_db, good, 2), put(from_db, bad, 2), put(from_db, &future, 1), put(from_db, &former, 1);

    take(&taken);

    assert_int_equal(taken.kept, 2);
    assert_int_equal(taken.passed_over, 0);
    assert_int_equal(taken.left_out, 2);
    if (!strstr(qn_text_string(&taken.first), "rows 1..4: sizes = 'rows=64'"))
        fail_msg("%s", qn_text_string(&taken.first));
    qn_tune_list list = read_all();
    assert_int_equal(list.count, 3);
    for (size_t i = 0; i < list.count; i++)
        assert_true(!strcmp(list.row[i].bucket, "rows 5..14") || !strcmp(list.row[i].bucket, "rows 15..100"));
    qn_tune_list_fini(&list);
    qn_text_fini(&taken.first);
}

static void what_is_left_out_takes_nothings_place(void **state)
{
    (void)state;
    qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
    qn_tune_row own = row_of("rows 5..14", "rows=8", 128, QN_TUNE_BEST);
    qn_tune_row newer[] = {row_of("rows 5..14", "rows=8", 256, QN_TUNE_BEST),
                           row_of("rows 5..14", "rows=8", 512, QN_TUNE_SLOWER)};
    own.created = NOW - 1000;
    newer[0].config = "plan=stream block=100 ctas=1 local_k=4 unroll=2";
    put(into_db, &own, 1), put(from_db, newer, 2);

    take(&taken);

    assert_int_equal(taken.kept, 0);
    assert_int_equal(taken.left_out, 1);
    qn_tune_list list = read_all();
    assert_int_equal(list.count, 1);
    assert_string_equal(list.row[0].config, own.config);
    qn_tune_list_fini(&list);
    qn_text_fini(&taken.first);
}

static void two_winners_are_left_out_and_older_results_passed_over(void **state)
{
    (void)state;
    qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
    const qn_tune_row own = row_of("rows 5..14", "rows=8", 128, QN_TUNE_BEST);
    qn_tune_row older = row_of("rows 5..14", "rows=8", 256, QN_TUNE_BEST);
    const qn_tune_row two[] = {row_of("rows 1..4", "rows=1", 128, QN_TUNE_BEST),
                               row_of("rows 1..4", "rows=1", 256, QN_TUNE_SLOWER)};
    older.created = NOW - 1;
    put(into_db, &own, 1), put(from_db, &older, 1), put(from_db, two, 2);
    cache_sql(from_db, "UPDATE tune SET status='best' WHERE bucket='rows 1..4'");

    take(&taken);

    assert_int_equal(taken.kept, 0);
    assert_int_equal(taken.passed_over, 1);
    assert_int_equal(taken.left_out, 1);
    if (!strstr(qn_text_string(&taken.first), "2 rows")) fail_msg("%s", qn_text_string(&taken.first));
    qn_text_fini(&taken.first);
}

// What no program of Quern's puts, one column at a time: counted, and of the range nothing comes.
static void rows_that_nobody_could_have_put_are_counted(void **state)
{
    static const char *const changes[] = {"ns=-5",
                                          "ns=9e999",
                                          "ns=1e16",
                                          "spread_ns=-1",
                                          "created=-5",
                                          "config=''",
                                          "note=char(27)",
                                          "sizes=sizes||char(0)",
                                          "status='best '",
                                          "created=0",
                                          "note=CAST(x'c3' AS TEXT)"};
    const qn_tune_row rows[] = {row_of("rows 5..14", "rows=8", 128, QN_TUNE_BEST),
                                row_of("rows 5..14", "rows=8", 256, QN_TUNE_SLOWER)};
    (void)state;
    for (size_t i = 0; i < QN_COUNT(changes); i++) {
        qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
        char sql[160];
        snprintf(sql, sizeof sql, "UPDATE tune SET %s WHERE status='best'", changes[i]);
        put(from_db, rows, 2);
        cache_sql(from_db, sql);

        take(&taken);

        if (taken.left_out != 1 || taken.kept) fail_msg("%s: %s", changes[i], qn_text_string(&taken.first));
        qn_text_fini(&taken.first);
    }
}

// All rows of a range are of a device that is none, or whose name is no text.
static void a_range_of_no_device_is_left_out(void **state)
{
    static const char *const changes[] = {"l2=0", "shared=0", "device=CAST(x'48ff' AS TEXT)"};
    const qn_tune_row row = row_of("rows 5..14", "rows=8", 128, QN_TUNE_BEST);
    (void)state;
    for (size_t i = 0; i < QN_COUNT(changes); i++) {
        qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
        char sql[160];
        snprintf(sql, sizeof sql, "UPDATE tune SET %s", changes[i]);
        unlink(from_db);
        put(from_db, &row, 1);
        cache_sql(from_db, sql);

        take(&taken);

        if (taken.left_out != 1 || taken.kept) fail_msg("%s: %s", changes[i], qn_text_string(&taken.first));
        qn_text_fini(&taken.first);
    }
}

// A column that says which range a row is of is bad: the row is nobody's, and its range has lost its winner.
static void a_range_that_may_have_lost_a_row_is_left_out(void **state)
{
    static const char *const changes[] = {
        "cc=9999999999999", "sms=4294967296", "sms=0",      "driver=0",
        "device=''",        "bucket=''",      "library=''", "spec=printf('%.*c',100000,'x')"};
    const qn_tune_row rows[] = {row_of("rows 5..14", "rows=8", 128, QN_TUNE_BEST),
                                row_of("rows 5..14", "rows=8", 256, QN_TUNE_SLOWER)};
    const qn_tune_row other = row_of("rows 1..4", "rows=1", 128, QN_TUNE_BEST);
    (void)state;
    for (size_t i = 0; i < QN_COUNT(changes); i++) {
        qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
        char sql[160];
        bool names_range = !strncmp(changes[i], "bucket", 6); // any range may be the one then
        snprintf(sql, sizeof sql, "UPDATE tune SET %s WHERE status='best' AND bucket='rows 5..14'", changes[i]);
        unlink(from_db), unlink(into_db);
        put(from_db, rows, 2), put(from_db, &other, 1);
        cache_sql(from_db, sql);

        take(&taken);

        if (taken.left_out != (names_range ? 3 : 2) || taken.kept != !names_range)
            fail_msg("%s: left out %d, kept %d: %s", changes[i], (int)taken.left_out, (int)taken.kept,
                     qn_text_string(&taken.first));
        qn_text_fini(&taken.first);
    }
}

static void a_database_without_results_gives_none(void **state)
{
    (void)state;
    qn_tune_taken taken = QN_TUNE_TAKEN_INIT;
    quern_store store = cache_open(from_db);
    assert_int_equal(cache_put(&store, 1), QUERN_OK);
    qn_sqlite_close(&store);

    take(&taken);

    assert_int_equal(taken.kept + taken.passed_over + taken.left_out, 0);
    qn_text_fini(&taken.first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_can_be_used_comes_and_the_rest_is_counted),
        TEST(what_is_left_out_takes_nothings_place),
        TEST(two_winners_are_left_out_and_older_results_passed_over),
        TEST(rows_that_nobody_could_have_put_are_counted),
        TEST(a_range_of_no_device_is_left_out),
        TEST(a_database_without_results_gives_none),
        TEST(a_range_that_may_have_lost_a_row_is_left_out),
        TEST(a_database_without_results_gives_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
