// SPDX-License-Identifier: Apache-2.0
// Outputs of `quern run` on their way to their places: until all of them are written and closed, none is changed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quern/npy.h"
#include "support/cache_fixture.h"

static char folder[64];
static const npy_shape shape = {1, {4}};
static const float numbers[4] = {1, 2, 3, 4};

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cache_folder_remove(folder);
    return 0;
}

// Whether a file still is what make_old wrote.
static bool is_old(const char *name)
{
    char bytes[8] = "";
    FILE *file = fopen(cache_path(folder, name), "r");
    bool read = file && fgets(bytes, sizeof bytes, file);
    if (file) fclose(file);
    return read && !strcmp(bytes, "old");
}

static void make_old(const char *name)
{
    cache_write_file(cache_path(folder, name), "old", 3);
}

static void no_output_is_changed_before_all_are_written(void **state)
{
    output_file a, b;
    npy_array array;
    (void)state;
    make_old("a.npy");
    make_old("b.npy");
    assert_int_equal(output_open(cache_path(folder, "a.npy"), OUTPUT_FILE, &a), QUERN_OK);
    assert_int_equal(output_open(cache_path(folder, "b.npy"), OUTPUT_FILE, &b), QUERN_OK);
    assert_int_equal(npy_write(&a, QUERN_F32, &shape, numbers), QUERN_OK);
    assert_int_equal(output_close(&a), QUERN_OK);
    assert_true(is_old("a.npy") && is_old("b.npy"));
    assert_int_equal(npy_write(&b, QUERN_F32, &shape, numbers), QUERN_OK);
    assert_int_equal(output_close(&b), QUERN_OK);
    assert_true(is_old("a.npy") && is_old("b.npy"));

    assert_int_equal(output_commit(&a), QUERN_OK);
    assert_int_equal(output_commit(&b), QUERN_OK);

    assert_int_equal(npy_read(cache_path(folder, "b.npy"), &array), QUERN_OK);
    assert_memory_equal(array.data, numbers, sizeof numbers);
    npy_fini(&array);
    assert_int_equal(cache_folder_count(folder), 2);
}

static void a_closed_output_can_be_given_up(void **state)
{
    output_file a;
    (void)state;
    make_old("a.npy");
    assert_int_equal(output_open(cache_path(folder, "a.npy"), OUTPUT_FILE, &a), QUERN_OK);
    assert_int_equal(npy_write(&a, QUERN_F32, &shape, numbers), QUERN_OK);
    assert_int_equal(output_close(&a), QUERN_OK);
    output_abort(&a);
    output_abort(&a);
    assert_true(is_old("a.npy"));
    assert_int_equal(cache_folder_count(folder), 1);
}

static void an_output_that_does_not_fit_changes_nothing(void **state)
{
    static const npy_shape large = {1, {100000}};
    static float zeros[100000];
    struct rlimit before, small;
    output_file a;
    (void)state;
    make_old("a.npy");
    assert_int_equal(output_open(cache_path(folder, "a.npy"), OUTPUT_FILE, &a), QUERN_OK);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before, small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    quern_status status = npy_write(&a, QUERN_F32, &large, zeros);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, QUERN_FILE_ERROR);
    output_abort(&a);
    assert_true(is_old("a.npy"));
    assert_int_equal(cache_folder_count(folder), 1);
}

static void a_place_that_went_away_is_told_by_the_move_and_leaves_nothing(void **state)
{
    output_file a;
    (void)state;
    assert_int_equal(output_open(cache_path(folder, "a.npy"), OUTPUT_FILE, &a), QUERN_OK);
    assert_int_equal(npy_write(&a, QUERN_F32, &shape, numbers), QUERN_OK);
    assert_int_equal(output_close(&a), QUERN_OK);
    assert_int_equal(mkdir(cache_path(folder, "a.npy"), 0700), 0);
    assert_int_equal(output_commit(&a), QUERN_FILE_ERROR);
    assert_int_equal(cache_folder_count(folder), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(no_output_is_changed_before_all_are_written),
        TEST(a_closed_output_can_be_given_up),
        TEST(an_output_that_does_not_fit_changes_nothing),
        TEST(a_place_that_went_away_is_told_by_the_move_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
