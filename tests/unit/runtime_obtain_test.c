// SPDX-License-Identifier: Apache-2.0
// One kernel through its tiers: key, memory, sealed, user's store, compile; what stores do wrong is never the caller's.
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
#include "support/cache_fixture.h"
#include "support/fake_nvrtc.h"
#include "support/runtime_fixture.h"

static char folder[64];
static char database[128];
static runtime_log lines;
static runtime_store store;

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    snprintf(database, sizeof database, "%s/quern-v1.db", folder);
    fake_nvrtc_install(13, 0);
    lines = (runtime_log)RUNTIME_LOG_INIT;
    store = (runtime_store)RUNTIME_STORE_INIT;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_nvrtc_remove();
    runtime_log_fini(&lines);
    runtime_store_fini(&store);
    cache_folder_remove(folder);
    return 0;
}

// A quern on the store in memory.
static quern *open_on_store(quern_mode mode, quern_toolchain toolchain)
{
    quern_store callbacks = runtime_store_callbacks(&store);
    quern_options options = runtime_options("", &lines);
    options.store = &callbacks;
    options.mode = mode;
    options.toolchain = toolchain;
    return runtime_open(&options);
}

static void obtain_ok(quern *q, int number)
{
    const qn_image *image = NULL;
    quern_status status = runtime_obtain(q, number, "sm_90a", &image);
    if (status != QUERN_OK) fail_msg("%s: %s", quern_status_name(status), quern_message());
    assert_non_null(image);
    assert_string_equal(image->arch, "sm_90a");
}

// ---- the key

static void get_key(quern *q, const char *source, const char *entry, const char *arch_name, qn_text *key)
{
    const qn_arch *arch;
    assert_int_equal(qn_arch_find(arch_name, &arch), QUERN_OK);
    qn_text_clear(key);
    assert_int_equal(qn_kernel_key(q, source, entry, arch, key), QUERN_OK);
}

static bool is_equal(const qn_text *a, const qn_text *b)
{
    return a->length == b->length && !memcmp(a->bytes, b->bytes, a->length);
}

static void every_part_of_the_key_changes_it_and_nothing_else_does(void **state)
{
    (void)state;
    quern_options plain = runtime_options("", NULL), other = runtime_options(database, &lines), lined = plain;
    other.compile_threads = 3;
    other.toolchain = QUERN_TOOLCHAIN_EXACT;
    lined.line_info = 1;
    quern *a = runtime_open(&plain), *b = runtime_open(&other), *c = runtime_open(&lined);
    qn_text key = QN_TEXT_INIT, varied = QN_TEXT_INIT;
    get_key(a, "text", "entry", "sm_90a", &key);

    get_key(b, "text", "entry", "sm_90a", &varied);
    assert_true(is_equal(&key, &varied));
    get_key(a, "texu", "entry", "sm_90a", &varied);
    assert_false(is_equal(&key, &varied));
    get_key(a, "text", "entrz", "sm_90a", &varied);
    assert_false(is_equal(&key, &varied));
    get_key(a, "text", "entry", "sm_100a", &varied);
    assert_false(is_equal(&key, &varied));
    get_key(c, "text", "entry", "sm_90a", &varied);
    assert_false(is_equal(&key, &varied));

    qn_text_fini(&key);
    qn_text_fini(&varied);
    quern_close(a);
    quern_close(b);
    quern_close(c);
}

static void the_key_holds_its_parts_in_the_documented_order(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    quern *q = runtime_open(&options);
    qn_text key = QN_TEXT_INIT, tags = QN_TEXT_INIT;
    qn_key_item item;
    size_t at = 0;
    get_key(q, "the text", "entry", "sm_90a", &key);

    while (qn_key_next(key.bytes, key.length, &at, &item)) {
        qn_text_put(&tags, &item.tag, 1);
        if (item.tag == QN_KEY_TAG_SOURCE) assert_memory_equal(item.bytes, "the text", item.count);
        if (item.tag == QN_KEY_TAG_ARCH) assert_memory_equal(item.bytes, "sm_90a", item.count);
    }

    assert_int_equal(at, key.length);
    assert_string_equal(tags.bytes, "VGAKEOOOS");
    qn_text_fini(&key);
    qn_text_fini(&tags);
    quern_close(q);
}

static void options_reach_the_compiler_as_the_key_holds_them(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    options.line_info = 1;
    quern *q = runtime_open(&options);

    obtain_ok(q, 1);

    assert_string_equal(fake_nvrtc.last_options, " --gpu-architecture=sm_90a --std=c++17 --fmad=false -lineinfo");
    quern_close(q);
}

// ---- tiers

static void the_second_request_is_served_from_memory(void **state)
{
    (void)state;
    const qn_image *first, *second;
    quern_options options = runtime_options("", NULL);
    quern *q = runtime_open(&options);

    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &first), QUERN_OK);
    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &second), QUERN_OK);

    assert_ptr_equal(first, second);
    assert_int_equal(fake_nvrtc.compiles, 1);
    assert_int_equal(runtime_counters(q).hit_memory, 1);
    quern_close(q);
}

static void another_quern_is_served_from_the_database(void **state)
{
    (void)state;
    const qn_image *image;
    quern_options options = runtime_options(database, &lines);
    quern *q = runtime_open(&options);
    fake_nvrtc.registers = 77;
    obtain_ok(q, 1);
    quern_close(q);

    q = runtime_open(&options);
    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_OK);

    assert_int_equal(fake_nvrtc.compiles, 1);
    assert_int_equal(image->registers, 77);
    assert_int_equal(image->origin, QUERN_ORIGIN_USER);
    assert_int_equal(runtime_counters(q).hit_user, 1);
    assert_int_equal(lines.count[QUERN_LOG_WARNING], 0);
    quern_close(q);
}

static void a_sealed_database_is_asked_before_the_users(void **state)
{
    (void)state;
    const qn_image *image;
    char sealed[300];
    quern_options options = runtime_options(database, NULL);
    quern *q = runtime_open(&options);
    obtain_ok(q, 1);
    quern_close(q);
    quern_store file = cache_open(database);
    assert_int_equal(qn_sqlite_seal(&file), QUERN_OK);
    qn_sqlite_close(&file);
    snprintf(sealed, sizeof sealed, "%s/missing.db:%s", folder, database);
    options = runtime_options(cache_path(folder, "user.db"), &lines);
    options.sealed_files = sealed;
    q = runtime_open(&options);

    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_OK);
    obtain_ok(q, 2);

    assert_int_equal(image->origin, QUERN_ORIGIN_SEALED);
    assert_int_equal(runtime_counters(q).hit_sealed, 1);
    assert_int_equal(fake_nvrtc.compiles, 2);
    assert_true(lines.count[QUERN_LOG_WARNING] <= 1); // the file that is missing
    quern_close(q);
    file = cache_open_read(cache_path(folder, "user.db"));
    assert_int_equal(cache_count(&file), 1); // what the sealed one served is not copied
    qn_sqlite_close(&file);
}

static void a_hit_needs_no_nvrtc(void **state)
{
    (void)state;
    const qn_image *image;
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    quern_close(q);
    fake_nvrtc_remove();
    quern_store callbacks = runtime_store_callbacks(&store);
    quern_options options = runtime_options("", NULL);
    options.store = &callbacks;
    options.nvrtc_file = "/nowhere/libnvrtc.so.13";
    q = runtime_open(&options);

    obtain_ok(q, 1);
    assert_int_equal(runtime_obtain(q, 2, "sm_90a", &image), QUERN_NVRTC_NOT_FOUND);

    assert_non_null(strstr(quern_message(), "/nowhere/libnvrtc.so.13"));
    quern_close(q);
}

static void exact_serves_only_the_nvrtc_in_use(void **state)
{
    (void)state;
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    quern_close(q);
    fake_nvrtc.identity = "nvrtc 13.1 build other";
    fake_nvrtc_refresh();

    q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    assert_int_equal(fake_nvrtc.compiles, 1);
    quern_close(q);
    q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_EXACT);
    obtain_ok(q, 1);
    assert_int_equal(fake_nvrtc.compiles, 2);
    assert_int_equal(store.rows, 2);
    quern_close(q);
    q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_EXACT);
    obtain_ok(q, 1);
    assert_int_equal(fake_nvrtc.compiles, 2);
    quern_close(q);
}

// ---- modes

static void read_only_compiles_and_stores_nothing(void **state)
{
    (void)state;
    quern *q = open_on_store(QUERN_MODE_READ_ONLY, QUERN_TOOLCHAIN_ANY);

    obtain_ok(q, 1);

    assert_int_equal(store.puts, 0);
    assert_int_equal(runtime_counters(q).put_failed, 0);
    quern_close(q);
}

static void read_only_on_a_database_that_is_not_there_makes_none(void **state)
{
    (void)state;
    quern_options options = runtime_options(database, &lines);
    options.mode = QUERN_MODE_READ_ONLY;
    quern *q = runtime_open(&options);

    obtain_ok(q, 1);

    assert_int_equal(cache_folder_count(folder), 0);
    assert_int_equal(lines.count[QUERN_LOG_WARNING], 0);
    quern_close(q);
}

static void strict_names_the_parts_of_the_key_and_compiles_nothing(void **state)
{
    (void)state;
    const qn_image *image = NULL;
    quern *q = open_on_store(QUERN_MODE_STRICT, QUERN_TOOLCHAIN_ANY);

    assert_int_equal(runtime_obtain(q, 5, "sm_90a", &image), QUERN_WOULD_COMPILE);

    static const char *const parts[] = {"sm_90a", "kernel_5", "kernel number=5", "generator", "--fmad=false", "key "};
    for (size_t i = 0; i < QN_COUNT(parts); i++) assert_non_null(strstr(quern_message(), parts[i]));
    assert_null(image);
    assert_int_equal(fake_nvrtc.compiles, 0);
    assert_int_equal(runtime_counters(q).miss, 1);
    quern_close(q);
}

static void strict_serves_what_is_there(void **state)
{
    (void)state;
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    quern_close(q);
    q = open_on_store(QUERN_MODE_STRICT, QUERN_TOOLCHAIN_ANY);

    obtain_ok(q, 1);

    quern_close(q);
}

static void off_asks_no_store(void **state)
{
    (void)state;
    quern *q = open_on_store(QUERN_MODE_OFF, QUERN_TOOLCHAIN_ANY);

    obtain_ok(q, 1);

    assert_int_equal(store.gets + store.puts, 0);
    quern_close(q);
}

// ---- stores that fail

static void a_store_that_fails_is_counted_and_warned_of_once(void **state)
{
    (void)state;
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    store.get_status = QUERN_STORE_IO;
    store.put_status = QUERN_STORE_FULL;

    for (int number = 1; number <= 3; number++) obtain_ok(q, number);

    quern_counters counters = runtime_counters(q);
    assert_int_equal(counters.put_failed, 3);
    assert_true(counters.get_failed >= 3);
    assert_int_equal(counters.compiled, 3);
    assert_int_equal(counters.bad_rows, 0);
    assert_int_equal(lines.count[QUERN_LOG_WARNING], 1);
    assert_true(runtime_log_has(&lines, "cache,warning,"));
    quern_close(q);
}

static void a_failing_store_leaves_the_threads_message_alone(void **state)
{
    (void)state;
    quern *none = NULL;
    quern_options bad = runtime_options("", NULL);
    bad.compile_threads = -1;
    assert_int_equal(quern_open(&bad, &none), QUERN_BAD_ARGUMENT);
    char before[256];
    snprintf(before, sizeof before, "%s", quern_message());
    quern_options options = runtime_options(cache_path(folder, "x.db"), &lines);
    cache_write_file(cache_path(folder, "x.db"), "not a database, not a database, not a database", 46);
    quern *q = runtime_open(&options);

    obtain_ok(q, 1);

    assert_string_equal(quern_message(), before);
    assert_true(runtime_counters(q).get_failed > 0);
    quern_close(q);
}

static void a_busy_store_is_waited_for_once_not_once_a_kernel(void **state)
{
    (void)state;
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    store.get_status = QUERN_STORE_BUSY;

    for (int number = 1; number <= 3; number++) obtain_ok(q, number);

    assert_int_equal(store.gets, 1);
    assert_int_equal(store.puts, 0);
    assert_int_equal(runtime_counters(q).put_failed, 3);
    quern_close(q);
}

// A store built against another header: a record that ends before its image, one longer than any, one that is none.
static void a_record_whose_size_is_not_a_records_is_not_used(void **state)
{
    static const size_t sizes[] = {0, 7, offsetof(quern_record, image), 1 << 20};
    (void)state;
    for (size_t i = 0; i < QN_COUNT(sizes); i++) {
        quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
        obtain_ok(q, (int)i);
        quern_close(q);
        store.row[i].size = sizes[i];
        int before = fake_nvrtc.compiles;

        q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
        obtain_ok(q, (int)i);
        assert_int_equal(fake_nvrtc.compiles, before + 1);
        assert_int_equal(runtime_counters(q).bad_rows, 1);
        quern_close(q);
    }
}

static void answer_wrongly(quern_record *row, int which)
{
    if (which == 0) ((char *)row->entry)[0] ^= 1; // the store's own copy
    if (which == 1) row->registers = -5;
    if (which == 2) row->registers = 256;
    if (which == 3) row->shared_bytes = 1 << 30;
    if (which == 4) row->local_bytes = -2;
}

// Whole key and image are right, what is said of them is not.
static void a_record_of_another_entry_or_of_no_kernels_numbers_is_not_used(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
        obtain_ok(q, i);
        quern_close(q);
        answer_wrongly(&store.row[i], i);
        int before = fake_nvrtc.compiles;

        q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
        obtain_ok(q, i);
        assert_int_equal(fake_nvrtc.compiles, before + 1);
        assert_int_equal(runtime_counters(q).bad_rows, 1);
        quern_close(q);
    }
}

static void a_bad_sum_is_a_miss_that_is_made_good(void **state)
{
    (void)state;
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    quern_close(q);
    runtime_store_spoil(&store, 0, NULL);

    q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    assert_int_equal(fake_nvrtc.compiles, 2);
    assert_int_equal(store.removes, 1);
    assert_int_equal(runtime_counters(q).bad_rows, 1);
    assert_int_equal(lines.count[QUERN_LOG_WARNING], 1);
    quern_close(q);
    q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    assert_int_equal(fake_nvrtc.compiles, 2);
    quern_close(q);
}

static void an_image_that_is_no_cubin_is_a_miss(void **state)
{
    (void)state;
    qn_text junk = QN_TEXT_INIT;
    qn_text_puts(&junk, "#!/bin/sh\n# not a cubin, with a right sum all the same ........................");
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    quern_close(q);
    runtime_store_spoil(&store, 0, &junk);

    q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);

    assert_int_equal(fake_nvrtc.compiles, 2);
    quern_close(q);
    qn_text_fini(&junk);
}

static void another_kernels_row_under_our_hash_is_never_served_nor_removed(void **state)
{
    (void)state;
    const qn_image *image;
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    store.ignores_keys = true; // now any request is answered by that row

    assert_int_equal(runtime_obtain(q, 2, "sm_90a", &image), QUERN_OK);

    assert_string_equal(image->entry, "kernel_2");
    assert_int_equal(fake_nvrtc.compiles, 2);
    assert_int_equal(store.rows, 2);
    quern_close(q);
}

static void a_bad_row_that_cannot_be_removed_is_asked_for_once(void **state)
{
    (void)state;
    const qn_image *image;
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    obtain_ok(q, 1);
    quern_close(q);
    runtime_store_spoil(&store, 0, NULL);
    store.remove_status = QUERN_STORE_READ_ONLY;
    store.gets = 0;
    q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = 1;
    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_COMPILE_FAILED);

    obtain_ok(q, 1);

    assert_int_equal(store.gets, 1);
    assert_int_equal(runtime_counters(q).bad_rows, 1);
    quern_close(q);
}

static void a_structure_of_callbacks_without_get_is_refused(void **state)
{
    (void)state;
    quern *q = NULL;
    quern_store callbacks = runtime_store_callbacks(&store);
    quern_options options = runtime_options("", NULL);
    callbacks.get = NULL;
    options.store = &callbacks;

    assert_int_equal(quern_open(&options, &q), QUERN_MISSING_ARGUMENT);
}

// ---- failures are not remembered

static void a_failed_compile_is_tried_again(void **state)
{
    (void)state;
    const qn_image *image = NULL;
    quern *q = open_on_store(QUERN_MODE_NORMAL, QUERN_TOOLCHAIN_ANY);
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = 1;

    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_COMPILE_FAILED);
    assert_non_null(strstr(quern_message(), "kernel number=1"));
    assert_null(image);
    assert_int_equal(store.puts, 0);

    obtain_ok(q, 1);
    quern_close(q);
}

static void a_compile_past_its_limit_is_a_timeout(void **state)
{
    (void)state;
    const qn_image *image;
    quern_options options = runtime_options("", NULL);
    options.compile_timeout_ms = 20;
    fake_nvrtc.delay_ms = 60000;
    quern *q = runtime_open(&options);

    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_COMPILE_TIMEOUT);

    quern_close(q);
}

static int say_cancel(void *user)
{
    (*(int *)user)++;
    return 1;
}

static void the_caller_can_cancel_a_compile(void **state)
{
    (void)state;
    const qn_image *image;
    int asked = 0;
    quern_options options = runtime_options("", NULL);
    options.cancel = say_cancel;
    options.cancel_user = &asked;
    fake_nvrtc.delay_ms = 60000;
    quern *q = runtime_open(&options);

    assert_int_equal(runtime_obtain(q, 1, "sm_90a", &image), QUERN_CANCELLED);

    assert_true(asked > 0);
    quern_close(q);
}

static void an_architecture_that_nvrtc_lacks_is_named_with_the_list(void **state)
{
    (void)state;
    static const int old[] = {75, 80, 86, 87, 89, 90};
    const qn_image *image;
    quern_options options = runtime_options("", NULL);
    fake_nvrtc.archs = old;
    fake_nvrtc.arch_count = QN_COUNT(old);
    quern *q = runtime_open(&options);

    assert_int_equal(runtime_obtain(q, 1, "sm_100a", &image), QUERN_NVRTC_LACKS_ARCH);

    static const char *const parts[] = {"sm_100a", "13.0", "75, 80, 86, 87, 89, 90", "/fake/lib/libnvrtc.so.13"};
    for (size_t i = 0; i < QN_COUNT(parts); i++) assert_non_null(strstr(quern_message(), parts[i]));
    assert_int_equal(fake_nvrtc.compiles, 0);
    quern_close(q);
}

// ---- threads

enum { THREADS = 8, KERNELS = 6 };

static void *obtain_all(void *user)
{
    for (int number = 0; number < KERNELS; number++) {
        const qn_image *image;
        if (runtime_obtain(user, number, "sm_90a", &image) != QUERN_OK) return user;
    }
    return NULL;
}

static void threads_that_ask_for_the_same_kernels_compile_each_once(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    quern_options options = runtime_options("", NULL); // no database, whose lock would do the same
    fake_nvrtc.delay_ms = 10;
    quern *q = runtime_open(&options);

    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, obtain_all, q), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }

    assert_int_equal(fake_nvrtc.compiles, KERNELS);
    assert_true(runtime_counters(q).flight_waits > 0);
    quern_close(q);
}

static void *expect_failure(void *user)
{
    const qn_image *image;
    quern_status status = runtime_obtain(user, 1, "sm_90a", &image);
    return status == QUERN_COMPILE_FAILED && strstr(quern_message(), "kernel number=1") ? NULL : user;
}

static void those_who_wait_for_a_flight_that_fails_get_its_message(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    quern_options options = runtime_options("", NULL);
    fake_nvrtc.delay_ms = 30;
    fake_nvrtc.fail = NVRTC_ERROR_COMPILATION;
    fake_nvrtc.times = -1;
    quern *q = runtime_open(&options);

    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, expect_failure, q), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }

    fake_nvrtc.times = 0;
    obtain_ok(q, 1);
    quern_close(q);
}

static void two_querns_do_not_share_images(void **state)
{
    (void)state;
    quern_options options = runtime_options("", NULL);
    quern *a = runtime_open(&options), *b = runtime_open(&options);
    const qn_image *of_a, *of_b;

    assert_int_equal(runtime_obtain(a, 1, "sm_90a", &of_a), QUERN_OK);
    assert_int_equal(runtime_obtain(b, 1, "sm_90a", &of_b), QUERN_OK);
    assert_ptr_not_equal(of_a, of_b);
    quern_close(a);

    assert_int_equal(of_b->bytes.bytes[1], 'E'); // still there
    assert_int_equal(fake_nvrtc.compiles, 2);
    quern_close(b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_part_of_the_key_changes_it_and_nothing_else_does),
        TEST(the_key_holds_its_parts_in_the_documented_order),
        TEST(options_reach_the_compiler_as_the_key_holds_them),
        TEST(the_second_request_is_served_from_memory),
        TEST(another_quern_is_served_from_the_database),
        TEST(a_sealed_database_is_asked_before_the_users),
        TEST(a_hit_needs_no_nvrtc),
        TEST(exact_serves_only_the_nvrtc_in_use),
        TEST(read_only_compiles_and_stores_nothing),
        TEST(read_only_on_a_database_that_is_not_there_makes_none),
        TEST(strict_names_the_parts_of_the_key_and_compiles_nothing),
        TEST(strict_serves_what_is_there),
        TEST(off_asks_no_store),
        TEST(a_store_that_fails_is_counted_and_warned_of_once),
        TEST(a_failing_store_leaves_the_threads_message_alone),
        TEST(a_busy_store_is_waited_for_once_not_once_a_kernel),
        TEST(a_record_whose_size_is_not_a_records_is_not_used),
        TEST(a_record_of_another_entry_or_of_no_kernels_numbers_is_not_used),
        TEST(a_bad_sum_is_a_miss_that_is_made_good),
        TEST(an_image_that_is_no_cubin_is_a_miss),
        TEST(another_kernels_row_under_our_hash_is_never_served_nor_removed),
        TEST(a_bad_row_that_cannot_be_removed_is_asked_for_once),
        TEST(a_structure_of_callbacks_without_get_is_refused),
        TEST(a_failed_compile_is_tried_again),
        TEST(a_compile_past_its_limit_is_a_timeout),
        TEST(the_caller_can_cancel_a_compile),
        TEST(an_architecture_that_nvrtc_lacks_is_named_with_the_list),
        TEST(threads_that_ask_for_the_same_kernels_compile_each_once),
        TEST(those_who_wait_for_a_flight_that_fails_get_its_message),
        TEST(two_querns_do_not_share_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
