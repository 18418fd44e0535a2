// SPDX-License-Identifier: Apache-2.0
// Out of memory at each allocation of what the command does with a database: put, get, list, import, export, verify,
// prune, tuning results, seal, repair; and of reading texts: specs, tuning files. Each says OUT_OF_MEMORY or succeeds, leaves
// nothing allocated and no file behind, and works once memory is there again; rows that were there stay.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/key.h"
#include "cache/tune.h"
#include "support/cache_fixture.h"
#include "support/fault_count.h"
#include "support/fault_memory.h"
#include "support/fault_vfs.h"
#include "tune/export.h"

enum { ROWS = 3 };

static char folder[64], database[128], other[128], copy[128], aside[160];

static int set_up(void **state)
{
    (void)state;
    fault_vfs_install();
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    snprintf(other, sizeof other, "%s/other.db", folder);
    snprintf(copy, sizeof copy, "%s/copy.db", folder);
    snprintf(aside, sizeof aside, "%s.broken-1", database);
    quern_store store = cache_open(other);
    for (int i = ROWS + 1; i <= 2 * ROWS; i++) assert_int_equal(cache_put(&store, i), QUERN_OK);
    qn_sqlite_close(&store);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

// ---- operations; the arguments that a caller makes are made before memory runs out

static cache_sample sample;

static quern_status do_put(quern_store *store)
{
    return store->put(store->self, &sample.record);
}

static int look(void *user, const quern_record *record)
{
    (void)user;
    return record->key ? 0 : 1;
}

static quern_status do_get(quern_store *store)
{
    cache_sample wanted = sample;
    quern_record first = wanted.record;
    qn_hash hash = qn_hash_bytes("source of kernel 1, with options", 32);

    first.key = "source of kernel 1, with options", first.key_bytes = 32;
    memcpy(first.hash, hash.bytes, 16);
    return store->get(store->self, &first, NULL, look, NULL);
}

static quern_status do_list(quern_store *store)
{
    return store->list(store->self, 1, look, NULL);
}

static quern_status do_import(quern_store *store)
{
    qn_sqlite_options options = cache_options(other);
    int64_t added, present, bad;
    quern_store from;

    options.access = QN_SQLITE_READ_ONLY;
    quern_status status = qn_sqlite_open(&options, &from);
    if (status) return status;
    status = qn_sqlite_import(store, &from, &added, &present, &bad);
    qn_sqlite_close(&from);
    return status;
}

static quern_status do_export(quern_store *store)
{
    unlink(copy);
    quern_status status = qn_sqlite_export(store, copy);
    return status && !access(copy, F_OK) ? QUERN_INTERNAL : status; // a failed export leaves no file
}

static quern_status do_verify(quern_store *store)
{
    qn_verify_report report;
    quern_status status = qn_sqlite_verify(store, NULL, NULL, &report);

    if (status) return status;
    return report.bad_image + report.bad_key + report.bad_sum || !report.structure_ok ? QUERN_INTERNAL : QUERN_OK;
}

static quern_status do_prune(quern_store *store)
{
    int64_t removed = 0, bytes;
    quern_status status = qn_sqlite_prune(store, -1, 0, &removed, &bytes);

    return !status && removed ? QUERN_INTERNAL : status;
}

static quern_status do_tune(quern_store *store)
{
    const qn_tune_row row = {.device = {"a device", 90, 132, 233472, 52428800, 13},
                             .library = "0",
                             .arch = "sm_90a",
                             .spec = "gate E=16 K=1 in=f32",
                             .bucket = "N 1..1024",
                             .config = "plan=block ctas=12",
                             .status = QN_TUNE_BEST,
                             .sizes = "N=1",
                             .note = "",
                             .created = 7};
    qn_tune_list list = QN_TUNE_LIST_INIT;

    quern_status status = qn_sqlite_tune_put(store, &row, 1, false, NULL);
    if (!status) status = qn_sqlite_tune_read(store, NULL, NULL, &list);
    qn_tune_list_fini(&list);
    return status;
}

static quern_status do_texts(quern_store *store)
{
    static const char tuning[] =
        "quern-tune 1\nNVIDIA H200\t90\t132\t233472\t52428800\t13\t0\tsm_90a\tgate E=64 K=8 in=f32"
        "\tN 1..1024\tN=64\tplan=block ctas=12\tbest\t1520.5\t12.25\t1796018952\tnote\n";
    qn_tune_list list = QN_TUNE_LIST_INIT;
    qn_text text = QN_TEXT_INIT;
    quern_any_spec spec;
    (void)store;

    quern_status status = quern_spec_parse("gate E=256 K=8 in=f32 act=sigmoid bias=1 scale=2.5", &spec);
    if (!status) status = qn_tune_text_read("tuning", tuning, strlen(tuning), &list);
    if (!status) qn_tune_text_write(&list, &text);
    if (!status) status = qn_text_check(&text);
    qn_text_fini(&text);
    qn_tune_list_fini(&list);
    return status;
}

static quern_status do_seal(quern_store *store)
{
    return qn_sqlite_seal(store);
}

static const struct {
    const char *name;
    quern_status (*run)(quern_store *store);
} operations[] = {{"put", do_put},       {"get", do_get},       {"list", do_list},   {"import", do_import},
                  {"export", do_export}, {"verify", do_verify}, {"prune", do_prune}, {"tune", do_tune},
                  {"texts", do_texts},   {"seal", do_seal}};
static size_t operation;

static void check(bool right, const char *claim)
{
    if (right) return;
    fault_memory_end();
    fail_msg("%s, %s: not so: %s (%s)", operations[operation].name, fault_memory_name(), claim, quern_message());
}

// ---- one fault

static quern_status open_store(const char *file, quern_store *store)
{
    qn_sqlite_options options = cache_options(file);

    return qn_sqlite_open(&options, store);
}

static void check_rows(void)
{
    quern_store store = cache_open(database);

    check(do_verify(&store) == QUERN_OK, "the database is sound");
    for (int i = 1; i <= ROWS; i++) check(cache_get(&store, i) == QUERN_OK, "rows that existed are there");
    qn_sqlite_close(&store);
}

static int64_t run_with(unsigned whose, int64_t at, bool for_ever)
{
    quern_store store;
    sqlite3_int64 sqlite_bytes = sqlite3_memory_used();
    int entries = cache_folder_count("/proc/self/fd");

    unlink(database);
    cache_copy_file(cache_golden("good-v1.db"), database);
    fault_memory_begin(whose, at, for_ever);
    quern_status status = open_store(database, &store);
    if (!status) {
        status = operations[operation].run(&store);
        qn_sqlite_close(&store);
    }
    int64_t count = fault_memory_restore();
    if (status && status != QUERN_OUT_OF_MEMORY) print_message("%s\n", quern_status_name(status));
    check(!status || status == QUERN_OUT_OF_MEMORY, "it succeeds or says OUT_OF_MEMORY");
    check(open_store(database, &store) == QUERN_OK, "with memory, it opens");
    check(operations[operation].run(&store) == QUERN_OK, "with memory, it succeeds");
    qn_sqlite_close(&store);
    check(fault_memory_end() == 0, "nothing stays allocated");
    check(sqlite3_memory_used() == sqlite_bytes, "SQLite has nothing allocated");
    check(cache_folder_count("/proc/self/fd") == entries, "no descriptor stays open");
    check_rows();
    return count;
}

static void no_operation_is_harmed_by_a_failing_allocation(void **state)
{
    (void)state;
    cache_sample_make(&sample, ROWS + 1, 5000);
    for (operation = 0; operation < QN_COUNT(operations); operation++) {
        static const char kind[] = "out of memory in an operation of the cache, or reading a text";
        fault_memory_each(run_with, FAULT_LIBRARY, false, 1, kind);
        fault_memory_each(run_with, FAULT_SQLITE, false, 31, kind);
        fault_memory_each(run_with, FAULT_LIBRARY | FAULT_SQLITE, true, 37, kind);
    }
    cache_sample_free(&sample);
}

// ---- repair

static int64_t repair_with(unsigned whose, int64_t at, bool for_ever)
{
    static const char zeros[100];
    qn_sqlite_options options = cache_options(database);
    qn_text set_aside = QN_TEXT_INIT, again = QN_TEXT_INIT;
    int64_t saved = 0;

    unlink(aside);
    cache_copy_file(cache_golden("good-v1.db"), database);
    cache_overwrite(database, 0, zeros, sizeof zeros);
    fault_memory_begin(whose, at, for_ever);
    quern_status status = qn_sqlite_repair(&options, &saved, &set_aside);
    int64_t count = fault_memory_restore();
    if (status && status != QUERN_OUT_OF_MEMORY) print_message("%s\n", quern_status_name(status));
    check(!status || status == QUERN_OUT_OF_MEMORY, "repair succeeds or says OUT_OF_MEMORY");
    check(status || saved == ROWS, "a repair that succeeds saves every row");
    check(qn_sqlite_repair(&options, &saved, &again) == QUERN_OK, "with memory, it can be repeated");
    qn_text_fini(&set_aside);
    qn_text_fini(&again);
    check(fault_memory_end() == 0, "nothing stays allocated");
    check(!access(aside, F_OK) || status, "what was there is kept");
    quern_store store = cache_open(database);
    check(cache_put(&store, 77) == QUERN_OK && cache_get(&store, 77) == QUERN_OK, "the next process stores");
    qn_sqlite_close(&store);
    return count;
}

static void no_repair_is_harmed_by_a_failing_allocation(void **state)
{
    static const char kind[] = "out of memory in a repair";
    (void)state;

    operation = 0;
    fault_memory_each(repair_with, FAULT_LIBRARY, false, 1, kind);
    fault_memory_each(repair_with, FAULT_SQLITE, false, 61, kind);
    fault_memory_each(repair_with, FAULT_LIBRARY | FAULT_SQLITE, true, 61, kind);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_operation_is_harmed_by_a_failing_allocation),
        TEST(no_repair_is_harmed_by_a_failing_allocation),
    };
    fault_memory_hook_sqlite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
