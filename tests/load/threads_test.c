// SPDX-License-Identifier: Apache-2.0
// Many threads, one quern: 64 threads ask for 1,000 kernels, each in an order of its own, and prepare the same specs.
// Each kernel is compiled once, all threads get the same image and the same op, and every kernel is stored. Run under
// TSan too. And: a hit in memory costs the same however many kernels there are.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/private.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/fake_nvrtc.h"
#include "support/fault_vfs.h"
#include "support/load.h"
#include "support/runtime_fixture.h"

enum { THREADS = 64, KEYS = 1000, SPECS = 24, STRIDE = 617 }; // STRIDE: no divisor of KEYS

static char folder[64], database[128];
static quern *shared;
static _Atomic(const qn_image *) image_of[KEYS];
static _Atomic(quern_op *) op_of[SPECS];
static _Atomic int different, failed;

static int set_up(void **state)
{
    (void)state;
    static const int cc[] = {90};
    fault_vfs_install();
    runtime_machine_make(folder, database, cc, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runtime_machine_remove(folder);
    return 0;
}

static void obtain_all(int me)
{
    for (int i = 0; i < KEYS; i++) {
        int number = (int)(((int64_t)i * STRIDE + (int64_t)me * 131) % KEYS);
        const qn_image *image = NULL, *first = NULL;
        if (runtime_obtain(shared, number, "sm_90a", &image) != QUERN_OK) {
            failed++;
            continue;
        }
        if (!atomic_compare_exchange_strong(&image_of[number], &first, image) && first != image) different++;
    }
}

static void prepare_all(int me)
{
    for (int i = 0; i < SPECS; i++) {
        int number = (i * 7 + me) % SPECS;
        quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
        quern_op *op = NULL, *first = NULL;
        spec.E = 16 + 4 * number, spec.K = 4, spec.in = QUERN_F32;
        if (quern_prepare(shared, &spec.base, QUERN_DEVICE_CURRENT, &op) != QUERN_OK) {
            failed++;
            continue;
        }
        if (!atomic_compare_exchange_strong(&op_of[number], &first, op) && first != op) different++;
        quern_op_release(op);
    }
}

static void *run(void *user)
{
    int me = (int)(intptr_t)user;

    fake_driver_enter(fake_driver_context(0));
    obtain_all(me);
    prepare_all(me);
    fake_driver_enter(NULL);
    return NULL;
}

static void each_of_a_thousand_kernels_is_compiled_once(void **state)
{
    pthread_t threads[THREADS];
    (void)state;

    quern_options options = runtime_options(database, NULL);
    options.busy_timeout_ms = 60000;
    options.compile_threads = 1;
    shared = runtime_open(&options);
    int64_t from = load_now_ns();
    for (intptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, run, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    print_message("%d threads, %d kernels and %d specs: %.2f s, %ld compiles, %ld at a time\n", THREADS, KEYS, SPECS,
                  (double)(load_now_ns() - from) / 1e9, (long)fake_nvrtc.compiles, (long)fake_nvrtc.most_running);

    assert_int_equal(failed, 0);
    assert_int_equal(different, 0);
    quern_counters counters = runtime_counters(shared);
    assert_int_equal(counters.compiled, fake_nvrtc.compiles);
    assert_int_equal(counters.put_failed + counters.get_failed + counters.bad_rows, 0);
    quern_close(shared);
    quern_store store = cache_open_read(database);
    assert_int_equal(cache_count(&store), fake_nvrtc.compiles); // so none was compiled twice
    assert_int_equal(cache_sql_int(database, "SELECT count(*) FROM kernel WHERE entry LIKE 'kernel\\_%' ESCAPE '\\'"),
                     KEYS);
    qn_sqlite_close(&store);
}

// ---- hits in memory

static qn_entry *entry_of(int number)
{
    qn_entry *entry = calloc(1, sizeof *entry);

    if (!entry) abort();
    qn_text_putf(&entry->key, "key of kernel %d, as long as a short source", number);
    entry->hash = qn_hash_bytes(entry->key.bytes, entry->key.length);
    return entry;
}

// The look-up of `looks` images that are there, spread over `count`.
static double find_ns(quern *q, int count)
{
    enum { LOOKS = 2000 };
    qn_entry *wanted[LOOKS];
    int missing = 0;

    for (int i = 0; i < LOOKS; i++) wanted[i] = entry_of((int)((int64_t)i * 7919 % count));
    int64_t from = load_now_ns();
    for (int i = 0; i < LOOKS; i++) missing += !qn_memory_find(q, &wanted[i]->hash, &wanted[i]->key);
    double ns = (double)(load_now_ns() - from) / LOOKS;
    for (int i = 0; i < LOOKS; i++) qn_entry_free(wanted[i]);
    assert_int_equal(missing, 0);
    return ns;
}

// The longest list is what a look-up may have to walk.
static int longest_list(quern *q)
{
    int longest = 0;

    for (size_t i = 0; i < QN_MEMORY_LISTS; i++) {
        int length = 0;
        for (qn_entry *entry = atomic_load(&q->entries[i]); entry; entry = entry->next) length++;
        if (length > longest) longest = length;
    }
    return longest;
}

static void a_hit_in_memory_costs_the_same_however_many_kernels_there_are(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    quern *q = runtime_open(&options);
    int most = load_is_sanitized() ? 10000 : 100000;

    for (int count = 100, made = 0; count <= most; count *= 10) {
        for (; made < count; made++) qn_memory_publish(q, entry_of(made));
        print_message("image in memory, %d kernels: %.0f ns, at most %d are compared\n", count, find_ns(q, count),
                      longest_list(q));
    }
    assert_true(longest_list(q) < 40); // of 100,000: 6 on average
    quern_close(q);
}

static void keep_value(void *value)
{
    (void)value;
}

static void a_hit_in_the_table_costs_the_same_however_many_ops_there_are(void **state)
{
    (void)state;
    qn_table table = {0};
    int most = load_is_sanitized() ? 10000 : 100000;
    static int values[100000];
    qn_descriptor d;

    for (int count = 100, made = 0; count <= most; count *= 10) {
        for (; made < count; made++) {
            void *kept;
            d.count = 2, d.word[0] = 7, d.word[1] = (uint64_t)made;
            qn_descriptor_seal(&d);
            assert_int_equal(qn_table_insert(&table, &d, &values[made], &kept), QUERN_OK);
        }
        int64_t from = load_now_ns();
        int wrong = 0;
        for (int i = 0; i < 20000; i++) {
            int number = (int)((int64_t)i * 7919 % count);
            d.count = 2, d.word[0] = 7, d.word[1] = (uint64_t)number;
            qn_descriptor_seal(&d);
            wrong += qn_table_find(&table, &d) != &values[number];
        }
        print_message("op in the table, %d ops: %.0f ns\n", count, (double)(load_now_ns() - from) / 20000);
        assert_int_equal(wrong, 0);
    }
    qn_table_fini(&table, keep_value);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_of_a_thousand_kernels_is_compiled_once),
        TEST(a_hit_in_memory_costs_the_same_however_many_kernels_there_are),
        TEST(a_hit_in_the_table_costs_the_same_however_many_ops_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
