// SPDX-License-Identifier: Apache-2.0
// The memory table: whole comparison, growth under readers, nothing moved before the end.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/table.h"

enum { MANY = 3000, READERS = 4 };

static void make(qn_descriptor *d, uint64_t number)
{
    memset(d, 0, sizeof *d);
    d->count = 12;
    for (size_t i = 0; i < d->count; i++) d->word[i] = number * (i + 1);
    qn_descriptor_seal(d);
}

static int values[MANY];
static size_t seen;

static void nothing(void *value)
{
    (void)value;
    seen++;
}

static void an_empty_table_finds_nothing(void **state)
{
    (void)state;
    qn_table table = {0};
    qn_descriptor d;
    make(&d, 1);

    assert_null(qn_table_find(&table, &d));
    qn_table_fini(&table, nothing);
}

static void equal_hashes_of_different_words_are_told_apart(void **state)
{
    (void)state;
    qn_table table = {0};
    qn_descriptor a, b;
    void *kept;
    make(&a, 1);
    make(&b, 2);
    b.hash = a.hash;

    assert_int_equal(qn_table_insert(&table, &a, &values[0], &kept), QUERN_OK);
    assert_null(qn_table_find(&table, &b));
    assert_int_equal(qn_table_insert(&table, &b, &values[1], &kept), QUERN_OK);

    assert_ptr_equal(qn_table_find(&table, &a), &values[0]);
    assert_ptr_equal(qn_table_find(&table, &b), &values[1]);
    qn_table_fini(&table, nothing);
}

static void a_longer_descriptor_with_the_same_start_is_another(void **state)
{
    (void)state;
    qn_table table = {0};
    qn_descriptor a, b;
    void *kept;
    make(&a, 7);
    b = a;
    b.word[b.count++] = 0;
    b.hash = a.hash;

    assert_int_equal(qn_table_insert(&table, &a, &values[0], &kept), QUERN_OK);

    assert_null(qn_table_find(&table, &b));
    qn_table_fini(&table, nothing);
}

static void a_second_insert_keeps_the_first_value(void **state)
{
    (void)state;
    qn_table table = {0};
    qn_descriptor d;
    void *kept = NULL;
    make(&d, 3);

    assert_int_equal(qn_table_insert(&table, &d, &values[0], &kept), QUERN_OK);
    assert_ptr_equal(kept, &values[0]);
    assert_int_equal(qn_table_insert(&table, &d, &values[1], &kept), QUERN_OK);
    assert_ptr_equal(kept, &values[0]);
    seen = 0;
    qn_table_fini(&table, nothing);
    assert_int_equal(seen, 1);
}

// ---- growth

typedef struct race {
    qn_table table;
    _Atomic size_t inserted;
    _Atomic int errors;
} race;

static void *read_all(void *user)
{
    race *r = user;
    for (size_t done = 0; done < MANY;) {
        done = atomic_load(&r->inserted);
        for (size_t i = done > 64 ? done - 64 : 0; i < done; i++) {
            qn_descriptor d;
            make(&d, i + 1);
            if (qn_table_find(&r->table, &d) != &values[i]) atomic_fetch_add(&r->errors, 1);
        }
    }
    return NULL;
}

static void growth_under_readers_loses_and_moves_nothing(void **state)
{
    (void)state;
    race r = {0};
    pthread_t readers[READERS];
    for (size_t i = 0; i < READERS; i++) assert_int_equal(pthread_create(&readers[i], NULL, read_all, &r), 0);

    for (size_t i = 0; i < MANY; i++) {
        qn_descriptor d;
        void *kept;
        make(&d, i + 1);
        assert_int_equal(qn_table_insert(&r.table, &d, &values[i], &kept), QUERN_OK);
        atomic_store(&r.inserted, i + 1);
    }
    for (size_t i = 0; i < READERS; i++) pthread_join(readers[i], NULL);

    assert_int_equal(atomic_load(&r.errors), 0);
    for (size_t i = 0; i < MANY; i++) {
        qn_descriptor d;
        make(&d, i + 1);
        assert_ptr_equal(qn_table_find(&r.table, &d), &values[i]);
    }
    seen = 0;
    qn_table_fini(&r.table, nothing);
    assert_int_equal(seen, MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_table_finds_nothing),
        cmocka_unit_test(equal_hashes_of_different_words_are_told_apart),
        cmocka_unit_test(a_longer_descriptor_with_the_same_start_is_another),
        cmocka_unit_test(a_second_insert_keeps_the_first_value),
        cmocka_unit_test(growth_under_readers_loses_and_moves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
