// SPDX-License-Identifier: Apache-2.0
// The store's four callbacks: get, put, list, remove, and the cap.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "support/cache_fixture.h"

typedef struct place {
    char folder[64];
    char file[128];
    quern_store store;
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);

    assert_non_null(p);
    cache_folder_make(p->folder);
    strcpy(p->file, cache_path(p->folder, "quern-v1.db"));
    p->store = cache_open(p->file);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    place *p = *state;

    qn_sqlite_close(&p->store);
    cache_folder_remove(p->folder);
    free(p);
    return 0;
}

static void what_is_put_comes_back_byte_for_byte(void **state)
{
    place *p = *state;
    cache_sample sample;

    for (size_t bytes = 128; bytes < 2000000; bytes *= 11) {
        cache_sample_make(&sample, (int)bytes, bytes);
        assert_int_equal(p->store.put(p->store.self, &sample.record), QUERN_OK);
        assert_int_equal(cache_get_of(&p->store, &sample, NULL), QUERN_OK);
        cache_sample_free(&sample);
    }
}

static void it_comes_back_from_another_connection(void **state)
{
    place *p = *state;

    assert_int_equal(cache_put(&p->store, 1), QUERN_OK);
    quern_store other = cache_open(p->file);
    assert_int_equal(cache_get(&other, 1), QUERN_OK);
    qn_sqlite_close(&other);
}

static void what_was_not_put_is_not_found(void **state)
{
    place *p = *state;

    assert_int_equal(cache_put(&p->store, 1), QUERN_OK);
    assert_int_equal(cache_get(&p->store, 2), QUERN_NOT_FOUND);
    assert_non_null(strstr(quern_message(), p->file));
}

static void another_key_of_the_same_hash_is_not_found_and_the_first_stays(void **state)
{
    place *p = *state;
    cache_sample one, two;

    cache_sample_make(&one, 1, 5000);
    cache_sample_make(&two, 2, 5000);
    memcpy(two.record.hash, one.record.hash, 16);
    assert_int_equal(p->store.put(p->store.self, &one.record), QUERN_OK);
    assert_int_equal(cache_get_of(&p->store, &two, NULL), QUERN_NOT_FOUND);
    assert_int_equal(p->store.put(p->store.self, &two.record), QUERN_OK);

    assert_int_equal(cache_count(&p->store), 1);
    assert_int_equal(cache_get_of(&p->store, &one, NULL), QUERN_OK);
    assert_int_equal(cache_get_of(&p->store, &two, NULL), QUERN_NOT_FOUND);
    cache_sample_free(&one);
    cache_sample_free(&two);
}

static void a_key_that_only_begins_alike_is_not_found(void **state)
{
    place *p = *state;
    cache_sample sample;

    cache_sample_make(&sample, 1, 5000);
    assert_int_equal(p->store.put(p->store.self, &sample.record), QUERN_OK);
    sample.record.key_bytes--;
    assert_int_equal(cache_get_of(&p->store, &sample, NULL), QUERN_NOT_FOUND);
    cache_sample_free(&sample);
}

static void a_toolchain_is_served_when_it_is_wanted_or_any_is(void **state)
{
    place *p = *state;
    cache_sample old, new;

    cache_sample_make(&old, 1, 5000);
    cache_sample_make(&new, 1, 6000);
    old.record.toolchain = "nvrtc 12.9 build 01", old.record.created = 1000;
    new.record.toolchain = "nvrtc 13.0 build 02", new.record.created = 2000;
    assert_int_equal(p->store.put(p->store.self, &new.record), QUERN_OK);
    assert_int_equal(p->store.put(p->store.self, &old.record), QUERN_OK);

    assert_int_equal(cache_count(&p->store), 2);
    assert_int_equal(cache_get_of(&p->store, &old, old.record.toolchain), QUERN_OK);
    assert_int_equal(cache_get_of(&p->store, &new, new.record.toolchain), QUERN_OK);
    assert_int_equal(cache_get_of(&p->store, &new, NULL), QUERN_OK); // the newest, though it was put first
    assert_int_equal(cache_get_of(&p->store, &new, "nvrtc 13.5 build 03"), QUERN_NOT_FOUND);
    cache_sample_free(&old);
    cache_sample_free(&new);
}

static void a_second_put_of_an_entry_changes_nothing(void **state)
{
    place *p = *state;
    cache_sample first, second;

    cache_sample_make(&first, 1, 5000);
    cache_sample_make(&second, 1, 7000);
    assert_int_equal(p->store.put(p->store.self, &first.record), QUERN_OK);
    assert_int_equal(p->store.put(p->store.self, &second.record), QUERN_OK);
    assert_int_equal(cache_count(&p->store), 1);
    assert_int_equal(cache_get_of(&p->store, &first, NULL), QUERN_OK);
    cache_sample_free(&first);
    cache_sample_free(&second);
}

static void remove_takes_the_one_entry_it_names(void **state)
{
    place *p = *state;
    cache_sample sample;

    for (int i = 1; i <= 3; i++) assert_int_equal(cache_put(&p->store, i), QUERN_OK);
    cache_sample_make(&sample, 2, 5000);
    sample.record.toolchain = "another";
    assert_int_equal(p->store.remove(p->store.self, &sample.record), QUERN_OK);
    assert_int_equal(cache_count(&p->store), 3);
    sample.record.toolchain = "nvrtc 13.0 build 5e6f";
    assert_int_equal(p->store.remove(p->store.self, &sample.record), QUERN_OK);
    assert_int_equal(p->store.remove(p->store.self, &sample.record), QUERN_OK); // gone already: success

    assert_int_equal(cache_count(&p->store), 2);
    assert_int_equal(cache_get(&p->store, 2), QUERN_NOT_FOUND);
    assert_int_equal(cache_get(&p->store, 3), QUERN_OK);
    cache_sample_free(&sample);
}

static void a_record_without_its_parts_is_refused_by_name(void **state)
{
    place *p = *state;
    cache_sample sample;

    cache_sample_make(&sample, 1, 5000);
    sample.record.entry = NULL;
    assert_int_equal(p->store.put(p->store.self, &sample.record), QUERN_MISSING_ARGUMENT);
    sample.record.entry = "e", sample.record.image_bytes = 0;
    assert_int_equal(p->store.put(p->store.self, &sample.record), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "image 0"));
    sample.record.image_bytes = 5000, sample.record.spec = NULL; // the spec is for people: it may be absent
    assert_int_equal(p->store.put(p->store.self, &sample.record), QUERN_OK);
    cache_sample_free(&sample);
}

// ---- list

typedef struct seen {
    quern_store *store;
    int calls, images, stop_after;
    size_t bytes;
} seen;

static int look(void *user, const quern_record *record)
{
    seen *s = user;

    s->calls++;
    s->images += record->image != NULL;
    s->bytes += record->image_bytes;
    return s->calls == s->stop_after;
}

static void list_gives_images_only_when_asked_and_stops_when_told(void **state)
{
    place *p = *state;
    seen without = {0}, with = {0}, stopped = {.stop_after = 2};

    for (int i = 1; i <= 5; i++) assert_int_equal(cache_put(&p->store, i), QUERN_OK);
    assert_int_equal(p->store.list(p->store.self, 0, look, &without), QUERN_OK);
    assert_int_equal(p->store.list(p->store.self, 1, look, &with), QUERN_OK);
    assert_int_equal(p->store.list(p->store.self, 1, look, &stopped), QUERN_OK);
    assert_int_equal(without.calls, 5);
    assert_int_equal(without.images, 0);
    assert_int_equal(without.bytes, 25000);
    assert_int_equal(with.images, 5);
    assert_int_equal(stopped.calls, 2);
}

static int remove_it(void *user, const quern_record *record)
{
    seen *s = user;

    s->calls += s->store->remove(s->store->self, record) == QUERN_OK;
    return 0;
}

static void a_listing_may_remove_what_it_is_shown(void **state)
{
    place *p = *state;
    seen s = {.store = &p->store};

    for (int i = 1; i <= 5; i++) assert_int_equal(cache_put(&p->store, i), QUERN_OK);
    assert_int_equal(p->store.list(p->store.self, 0, remove_it, &s), QUERN_OK);
    assert_int_equal(s.calls, 5);
    assert_int_equal(cache_count(&p->store), 0);
}

// ---- use and the cap

static void a_hit_writes_nothing_but_the_days_first_use(void **state)
{
    place *p = *state;

    assert_int_equal(cache_put(&p->store, 1), QUERN_OK);
    int64_t used = cache_sql_int(p->file, "SELECT used FROM kernel");
    cache_sql(p->file, "UPDATE kernel SET used=used-3600");
    uint32_t changes = cache_change_counter(p->file);
    assert_int_equal(cache_get(&p->store, 1), QUERN_OK);
    assert_int_equal(cache_get(&p->store, 2), QUERN_NOT_FOUND);
    assert_int_equal(cache_sql_int(p->file, "SELECT used FROM kernel"), used - 3600);
    assert_int_equal(cache_change_counter(p->file), changes);

    cache_sql(p->file, "UPDATE kernel SET used=used-90000");
    assert_int_equal(cache_get(&p->store, 1), QUERN_OK);
    assert_true(cache_sql_int(p->file, "SELECT used FROM kernel") >= used);
}

static void a_last_use_in_the_future_comes_back_to_today(void **state)
{
    place *p = *state;

    assert_int_equal(cache_put(&p->store, 1), QUERN_OK);
    int64_t used = cache_sql_int(p->file, "SELECT used FROM kernel");
    cache_sql(p->file, "UPDATE kernel SET used=used+9000000");
    assert_int_equal(cache_get(&p->store, 1), QUERN_OK);
    assert_true(cache_sql_int(p->file, "SELECT used FROM kernel") < used + 9000);
}

static void past_the_cap_the_least_recently_used_go(void **state)
{
    place *p = *state;
    qn_sqlite_options options = cache_options(p->file);
    quern_store capped;

    options.cap_bytes = 100000; // twenty samples of 5000 bytes
    assert_int_equal(qn_sqlite_open(&options, &capped), QUERN_OK);
    for (int i = 1; i <= 20; i++) assert_int_equal(cache_put(&capped, i), QUERN_OK);
    assert_int_equal(cache_count(&capped), 20);
    cache_sql(p->file, "UPDATE kernel SET used=1000+id");
    cache_sql(p->file, "UPDATE kernel SET used=500 WHERE entry='quern_test_7'");
    assert_int_equal(cache_put(&capped, 21), QUERN_OK);

    // Down to 90 %: 18 entries with the new one. The oldest went: 7, then 1 and 2.
    assert_int_equal(cache_count(&capped), 18);
    assert_int_equal(cache_get(&capped, 7), QUERN_NOT_FOUND);
    assert_int_equal(cache_get(&capped, 1), QUERN_NOT_FOUND);
    assert_int_equal(cache_get(&capped, 2), QUERN_NOT_FOUND);
    assert_int_equal(cache_get(&capped, 3), QUERN_OK);
    assert_int_equal(cache_get(&capped, 21), QUERN_OK);
    qn_sqlite_close(&capped);
}

// Whatever else happens to the images between two puts: the cap holds, and eviction leaves 90 %.
static void the_cap_holds_though_others_and_removals_change_the_sum(void **state)
{
    place *p = *state;
    qn_sqlite_options options = cache_options(p->file);
    quern_store capped, other;
    cache_sample sample;

    options.cap_bytes = 100000; // twenty samples of 5000 bytes
    assert_int_equal(qn_sqlite_open(&options, &capped), QUERN_OK);
    for (int i = 1; i <= 19; i++) assert_int_equal(cache_put(&capped, i), QUERN_OK);
    cache_sample_make(&sample, 3, 5000);
    assert_int_equal(capped.remove(capped.self, &sample.record), QUERN_OK);
    cache_sample_free(&sample);
    for (int i = 20; i <= 21; i++) assert_int_equal(cache_put(&capped, i), QUERN_OK);
    assert_int_equal(cache_count(&capped), 20);

    other = cache_open(p->file); // without a cap
    for (int i = 100; i < 110; i++) assert_int_equal(cache_put(&other, i), QUERN_OK);
    qn_sqlite_close(&other);
    assert_int_equal(cache_put(&capped, 22), QUERN_OK);
    assert_int_equal(cache_count(&capped), 18);
    for (int i = 23; i < 60; i++) {
        assert_int_equal(cache_put(&capped, i), QUERN_OK);
        int count = cache_count(&capped);
        assert_true(count >= 18 && count <= 20);
    }
    qn_sqlite_close(&capped);
}

static int sums; // of all images, that connections were asked for

static int count_sum(unsigned kind, void *user, void *statement, void *sql)
{
    (void)kind, (void)user, (void)statement;
    sums += strstr(sql, "sum(length(image))") != NULL;
    return 0;
}

static int watch(sqlite3 *db, char **message, const void *api)
{
    (void)message, (void)api;
    return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, count_sum, NULL);
}

static void near_the_cap_the_images_are_summed_once_and_not_at_every_put(void **state)
{
    place *p = *state;
    qn_sqlite_options options = cache_options(p->file);
    quern_store capped;

    options.cap_bytes = 200000;
    assert_int_equal(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
    sums = 0;
    assert_int_equal(qn_sqlite_open(&options, &capped), QUERN_OK);
    for (int i = 1; i <= 200; i++) assert_int_equal(cache_put(&capped, i), QUERN_OK);
    sqlite3_reset_auto_extension();
    assert_int_equal(sums, 1);
    qn_sqlite_close(&capped);
}

static void an_image_larger_than_the_cap_is_refused_and_evicts_nothing(void **state)
{
    place *p = *state;
    qn_sqlite_options options = cache_options(p->file);
    cache_sample big;
    quern_store capped;

    options.cap_bytes = 20000;
    assert_int_equal(qn_sqlite_open(&options, &capped), QUERN_OK);
    assert_int_equal(cache_put(&capped, 1), QUERN_OK);
    cache_sample_make(&big, 2, 30000);
    assert_int_equal(capped.put(capped.self, &big.record), QUERN_STORE_FULL);
    assert_non_null(strstr(quern_message(), "30000"));
    assert_int_equal(cache_get(&capped, 1), QUERN_OK);
    cache_sample_free(&big);
    qn_sqlite_close(&capped);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_put_comes_back_byte_for_byte),
        TEST(it_comes_back_from_another_connection),
        TEST(what_was_not_put_is_not_found),
        TEST(another_key_of_the_same_hash_is_not_found_and_the_first_stays),
        TEST(a_key_that_only_begins_alike_is_not_found),
        TEST(a_toolchain_is_served_when_it_is_wanted_or_any_is),
        TEST(a_second_put_of_an_entry_changes_nothing),
        TEST(remove_takes_the_one_entry_it_names),
        TEST(a_record_without_its_parts_is_refused_by_name),
        TEST(list_gives_images_only_when_asked_and_stops_when_told),
        TEST(a_listing_may_remove_what_it_is_shown),
        TEST(a_hit_writes_nothing_but_the_days_first_use),
        TEST(a_last_use_in_the_future_comes_back_to_today),
        TEST(past_the_cap_the_least_recently_used_go),
        TEST(the_cap_holds_though_others_and_removals_change_the_sum),
        TEST(near_the_cap_the_images_are_summed_once_and_not_at_every_put),
        TEST(an_image_larger_than_the_cap_is_refused_and_evicts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
