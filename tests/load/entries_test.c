// SPDX-License-Identifier: Apache-2.0
// A database of 100,000 entries (QUERN_TEST_ENTRIES: another number). Times are printed; what is asserted is what makes
// them so: a look-up reads a handful of pages however many entries there are, and import, export, verify and prune hold
// a row at a time in memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/key.h"
#include "runtime/private.h"
#include "support/cache_fixture.h"
#include "support/fault_vfs.h"
#include "support/load.h"

enum { FEW = 100, IMAGE_BYTES = 600, LOOKS = 41, MOST_READS = 12, MOST_MORE_KIB = 24 * 1024 };

static char folder[64], few[128], many[128];
static int entries = 100000;

// ---- memory: no more than a few rows and SQLite's own cache, whatever the count

static int64_t began_kib, began_ns;

static void begin(void)
{
    load_peak_reset();
    began_kib = load_resident_kib();
    began_ns = load_now_ns();
}

static void end(const char *what, int64_t count)
{
    int64_t more = load_peak_kib() - began_kib;

    print_message("%s: %lld entries in %.2f s, memory + %lld KiB\n", what, (long long)count,
                  (double)(load_now_ns() - began_ns) / 1e9, (long long)more);
    if (!load_is_sanitized()) assert_true(more < MOST_MORE_KIB);
}

static void fill(const char *file, int count)
{
    quern_store store = cache_open(file);
    load_records records = {1, count, IMAGE_BYTES};
    quern_store from = load_store(&records);
    int64_t added, present, bad;

    assert_int_equal(qn_sqlite_import(&store, &from, &added, &present, &bad), QUERN_OK);
    assert_int_equal(added, count);
    qn_sqlite_close(&store);
}

// Both databases are made once; what changes one works on a copy.
static int set_up(void **state)
{
    (void)state;
    const char *wish = getenv("QUERN_TEST_ENTRIES");
    if (load_is_sanitized()) entries = 3000;
    if (wish) entries = atoi(wish);
    fault_vfs_install(); // counts reads; and its sync costs nothing
    cache_folder_make(folder);
    snprintf(few, sizeof few, "%s/few.db", folder);
    snprintf(many, sizeof many, "%s/many.db", folder);
    fill(few, FEW);
    begin();
    fill(many, entries);
    end("import", entries);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

static const char *copy_of_many(const char *name)
{
    const char *copy = cache_path(folder, name);
    quern_store store = cache_open_read(many);

    begin();
    assert_int_equal(qn_sqlite_export(&store, copy), QUERN_OK);
    end("export", entries);
    qn_sqlite_close(&store);
    assert_int_equal(cache_sql_int(copy, "SELECT count(*) FROM kernel"), entries);
    return copy;
}

// ---- look-ups

typedef struct looks {
    double first_us, median_us; // with opening, and of an open store
    int64_t reads;              // of the file, at the most
} looks;

static quern_status get(quern_store *store, int number)
{
    cache_sample sample;

    cache_sample_make(&sample, number, IMAGE_BYTES);
    quern_status status = cache_get_of(store, &sample, NULL);
    cache_sample_free(&sample);
    return status;
}

// Each look is at a file that is not in the system's cache, by a store that was never open.
static looks look_cold(const char *file, int count)
{
    int64_t first[LOOKS], open[LOOKS];
    looks l = {0};

    for (int i = 0; i < LOOKS; i++) {
        int number = 1 + (int)((int64_t)i * 7919 % count), other = 1 + (int)((int64_t)i * 104729 % count);
        load_make_cold(file);
        int64_t from = load_now_ns();
        quern_store store = cache_open(file);
        assert_int_equal(get(&store, number), QUERN_OK);
        first[i] = load_now_ns() - from;
        fault_vfs_count_reads();
        from = load_now_ns();
        assert_int_equal(get(&store, other), QUERN_OK);
        open[i] = load_now_ns() - from;
        int64_t reads = fault_vfs_count_reads();
        if (reads > l.reads) l.reads = reads;
        qn_sqlite_close(&store);
    }
    l.first_us = load_median_us(first, LOOKS), l.median_us = load_median_us(open, LOOKS);
    return l;
}

static void a_look_up_costs_the_same_however_many_entries_there_are(void **state)
{
    (void)state;
    looks small = look_cold(few, FEW), large = look_cold(many, entries);
    print_message("look-up, file not in memory: %d entries: open and find %.0f us, find %.0f us, %lld reads\n", FEW,
                  small.first_us, small.median_us, (long long)small.reads);
    print_message("look-up, file not in memory: %d entries: open and find %.0f us, find %.0f us, %lld reads\n", entries,
                  large.first_us, large.median_us, (long long)large.reads);
    assert_true(large.reads <= MOST_READS);
}

static quern_status put(quern_store *store, int number)
{
    cache_sample sample;

    cache_sample_make(&sample, number, IMAGE_BYTES);
    quern_status status = store->put(store->self, &sample.record);
    cache_sample_free(&sample);
    return status;
}

// A store at its cap evicts: a tenth at a time, not with every put.
static void storing_at_the_cap_stays_cheap(void **state)
{
    (void)state;
    int64_t ns[LOOKS];
    const char *file = copy_of_many("cap.db");
    qn_sqlite_options options = cache_options(file);
    quern_store store;

    options.cap_bytes = (int64_t)entries * IMAGE_BYTES;
    assert_int_equal(qn_sqlite_open(&options, &store), QUERN_OK);
    int64_t from = load_now_ns();
    assert_int_equal(put(&store, entries + 1), QUERN_OK);
    print_message("the put that evicts a tenth: %.3f s\n", (double)(load_now_ns() - from) / 1e9);
    int64_t most = 0;
    for (int i = 0; i < LOOKS; i++) {
        fault_vfs_count_reads();
        from = load_now_ns();
        assert_int_equal(put(&store, entries + 2 + i), QUERN_OK);
        ns[i] = load_now_ns() - from;
        int64_t reads = fault_vfs_count_reads();
        if (reads > most) most = reads;
    }
    print_message("puts after it: %.0f us, %lld reads\n", load_median_us(ns, LOOKS), (long long)most);
    assert_true(most <= 4 * MOST_READS);
    qn_sqlite_close(&store);
}

static void maintenance_holds_a_row_at_a_time(void **state)
{
    (void)state;
    const char *file = copy_of_many("maintain.db");
    qn_verify_report report;
    int64_t removed, bytes;

    quern_store store = cache_open(file);
    if (getenv("QUERN_TEST_LONG")) { // prune verifies and walks too
        begin();
        assert_int_equal(qn_sqlite_verify(&store, NULL, NULL, &report), QUERN_OK);
        assert_int_equal(report.entries, entries);
        end("verify", entries);
        begin();
        assert_int_equal(cache_count(&store), entries);
        end("list", entries);
    }
    int64_t before = cache_file_size(file);
    begin();
    assert_int_equal(qn_sqlite_prune(&store, (int64_t)entries / 10 * IMAGE_BYTES, 0, &removed, &bytes), QUERN_OK);
    assert_int_equal(removed, entries - entries / 10);
    end("prune to a tenth", removed);
    assert_true(cache_file_size(file) < before / 5);
    begin();
    assert_int_equal(qn_sqlite_seal(&store), QUERN_OK);
    end("seal", entries / 10);
    qn_sqlite_close(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_up_costs_the_same_however_many_entries_there_are),
        cmocka_unit_test(storing_at_the_cap_stays_cheap),
        cmocka_unit_test(maintenance_holds_a_row_at_a_time),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
