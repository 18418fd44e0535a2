// SPDX-License-Identifier: Apache-2.0
// The folder of what the model compiled: it is bounded, the longest unused goes first, what is in use stays, folders of work
// last as long as their owner, and none is made below a cache folder that others may write to.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/path.h"
#include "quern/model_files.h"
#include "quern/model_work.h"
#include "support/cache_fixture.h"

static char folder[64];

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

// A file of this many bytes that was last used so many seconds ago.
static void make(const char *name, size_t bytes, time_t age)
{
    char *zeros = calloc(1, bytes);
    const struct timespec when[2] = {{time(NULL) - age, 0}, {time(NULL) - age, 0}};
    assert_non_null(zeros);
    cache_write_file(cache_path(folder, name), zeros, bytes);
    assert_int_equal(utimensat(AT_FDCWD, cache_path(folder, name), when, 0), 0);
    free(zeros);
}

static bool is_there(const char *name)
{
    return access(cache_path(folder, name), F_OK) == 0;
}

static void the_longest_unused_go_until_the_cap_holds(void **state)
{
    (void)state;
    make("old.so", 1000, 30000);
    make("older.runner", 1000, 40000);
    make("new.so", 1000, 20000);
    make("newest.o", 1000, 10000);
    assert_int_equal(model_files_bytes(folder), 4000);
    model_files_trim(folder, 4000);
    assert_int_equal(model_files_bytes(folder), 4000);
    model_files_trim(folder, 2500);
    assert_false(is_there("older.runner") || is_there("old.so"));
    assert_true(is_there("new.so") && is_there("newest.o"));
}

static void using_a_file_keeps_it(void **state)
{
    (void)state;
    make("a.so", 1000, 40000);
    make("b.so", 1000, 30000);
    model_files_use(cache_path(folder, "a.so"));
    model_files_trim(folder, 1000);
    assert_true(is_there("a.so"));
    assert_false(is_there("b.so"));
}

static void what_was_used_just_now_stays_whatever_the_cap(void **state)
{
    (void)state;
    make("a.so", 1000, 5);
    make("b.so", 1000, 30000);
    make("runner.lock", 0, 90000);
    model_files_trim(folder, 0);
    assert_true(is_there("a.so"));
    assert_true(is_there("runner.lock"));
    assert_false(is_there("b.so"));
}

static void two_names_of_one_object_count_once(void **state)
{
    (void)state;
    make("a.so", 1000, 40000);
    assert_int_equal(link(cache_path(folder, "a.so"), cache_path(folder, "b.so")), 0);
    assert_int_equal(model_files_bytes(folder), 1000);
}

// ---- folders of work

// A process that makes a folder of work, says so, and waits to be killed.
static pid_t start_owner(model_work *work)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t owner = fork();
    if (owner == 0) {
        bool ok = model_work_begin(folder, work) == QUERN_OK && write(ready[1], work, sizeof *work) == sizeof *work;
        while (ok) pause();
        _exit(1);
    }
    assert_true(owner > 0);
    assert_int_equal(read(ready[0], work, sizeof *work), sizeof *work);
    close(ready[0]), close(ready[1]);
    return owner;
}

static void kill_owner(pid_t owner)
{
    int state;
    assert_int_equal(kill(owner, SIGKILL), 0);
    assert_int_equal(waitpid(owner, &state, 0), owner);
}

static void age(const char *path)
{
    const struct timespec when[2] = {{time(NULL) - 9000000, 0}, {time(NULL) - 9000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, when, 0), 0);
}

static void folders_of_work_are_removed_when_their_owner_is_dead(void **state)
{
    (void)state;
    model_work dead, alive, own;
    pid_t owner = start_owner(&dead), other = start_owner(&alive);
    assert_int_equal(model_work_begin(folder, &own), QUERN_OK);
    assert_int_equal(model_files_write(dead.folder, "kernel.cu", "x", 1), QUERN_OK);
    model_work_clean(folder);
    assert_true(qn_file_exists(dead.folder) && qn_file_exists(alive.folder) && qn_file_exists(own.folder));

    kill_owner(owner);
    age(alive.folder), age(own.folder); // age says nothing
    model_files_trim(folder, 0);
    model_work_clean(folder);
    assert_false(qn_file_exists(dead.folder));
    assert_true(qn_file_exists(alive.folder) && qn_file_exists(own.folder));

    char gone[sizeof own.folder];
    memcpy(gone, own.folder, sizeof gone);
    model_work_end(&own);
    model_work_end(&own); // does nothing
    assert_false(qn_file_exists(gone));
    kill_owner(other);
}

static void cleaning_follows_no_link_and_takes_no_file(void **state)
{
    (void)state;
    assert_int_equal(mkdir(cache_path(folder, "kept"), 0700), 0);
    cache_write_file(cache_path(folder, "kept/file"), "x", 1);
    assert_int_equal(symlink("kept", cache_path(folder, "work-link")), 0);
    cache_write_file(cache_path(folder, "work-file"), "x", 1);
    model_work_clean(folder);
    assert_true(is_there("kept/file") && is_there("work-link") && is_there("work-file"));
}

static atomic_bool is_over;

static void *clean_for_ever(void *user)
{
    (void)user;
    while (!is_over) model_work_clean(folder);
    return NULL;
}

// A folder that is cleaned before it is locked is made again: who has one has it until the end.
static void a_folder_in_the_making_is_not_lost(void **state)
{
    (void)state;
    pthread_t cleaner;
    is_over = false;
    assert_int_equal(pthread_create(&cleaner, NULL, clean_for_ever, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        model_work work;
        assert_int_equal(model_work_begin(folder, &work), QUERN_OK);
        assert_int_equal(model_files_write(work.folder, "kernel.cu", "x", 1), QUERN_OK);
        model_work_end(&work);
    }
    is_over = true;
    pthread_join(cleaner, NULL);
}

static void nothing_is_kept_below_a_cache_folder_that_others_may_write_to(void **state)
{
    qn_text found = QN_TEXT_INIT;
    bool temporary = false;
    (void)state;
    assert_int_equal(chmod(folder, 0770), 0);
    assert_int_equal(setenv("QUERN_CACHE_DIR", folder, 1), 0);
    assert_int_equal(model_files_cache(NULL, &found, &temporary), QUERN_OK);
    assert_true(temporary);
    assert_false(is_there("model"));
    model_files_remove(qn_text_string(&found));
    qn_text_clear(&found);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(model_files_cache(NULL, &found, &temporary), QUERN_OK);
    assert_false(temporary);
    assert_string_equal(qn_text_string(&found), cache_path(folder, "model"));
    unsetenv("QUERN_CACHE_DIR");
    qn_text_fini(&found);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_longest_unused_go_until_the_cap_holds),
        TEST(using_a_file_keeps_it),
        TEST(what_was_used_just_now_stays_whatever_the_cap),
        TEST(two_names_of_one_object_count_once),
        TEST(folders_of_work_are_removed_when_their_owner_is_dead),
        TEST(cleaning_follows_no_link_and_takes_no_file),
        TEST(a_folder_in_the_making_is_not_lost),
        TEST(nothing_is_kept_below_a_cache_folder_that_others_may_write_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
