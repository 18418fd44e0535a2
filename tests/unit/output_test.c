// SPDX-License-Identifier: Apache-2.0
// Outputs on their way to their places: until all arrays of `quern run` are written and closed, none is changed; and whole
// texts: to files, through links, to pipes and devices, and where they may not go.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
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

// Whether a file has this text and nothing else.
static bool has_text(const char *name, const char *text)
{
    char bytes[64] = "";
    FILE *file = fopen(cache_path(folder, name), "r");
    size_t count = file ? fread(bytes, 1, sizeof bytes - 1, file) : 0;
    if (file) fclose(file);
    return count == strlen(text) && !memcmp(bytes, text, count);
}

// Whether a file still is what make_old wrote.
static bool is_old(const char *name)
{
    return has_text(name, "old");
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

static struct rlimit file_limit;
static void limit_files(void)
{
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &file_limit), 0);
    struct rlimit small = file_limit;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
}

static void unlimit_files(void)
{
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &file_limit), 0);
    signal(SIGXFSZ, SIG_DFL);
}

static void an_output_that_does_not_fit_changes_nothing(void **state)
{
    static const npy_shape large = {1, {100000}};
    static float zeros[100000];
    output_file a;
    (void)state;
    make_old("a.npy");
    assert_int_equal(output_open(cache_path(folder, "a.npy"), OUTPUT_FILE, &a), QUERN_OK);
    limit_files();
    quern_status status = npy_write(&a, QUERN_F32, &large, zeros);
    unlimit_files();
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

// ---- whole texts

static quern_status text_to(const char *name, const char *text)
{
    return output_text(cache_path(folder, name), text, strlen(text));
}

static void assert_refused(const char *name, const char *why)
{
    assert_int_equal(output_check(cache_path(folder, name)), QUERN_FILE_ERROR);
    if (!strstr(quern_message(), why)) fail_msg("'%s' is not in: %s", why, quern_message());
    assert_int_equal(text_to(name, "new"), QUERN_FILE_ERROR);
    if (!strstr(quern_message(), why)) fail_msg("'%s' is not in: %s", why, quern_message());
}

static void a_text_takes_the_place_of_a_file_with_its_mode_through_links(void **state)
{
    struct stat before, after, link;
    (void)state;
    assert_int_equal(text_to("new.txt", "first"), QUERN_OK);
    assert_true(has_text("new.txt", "first"));
    make_old("a.txt");
    assert_int_equal(chmod(cache_path(folder, "a.txt"), 0640), 0);
    assert_int_equal(stat(cache_path(folder, "a.txt"), &before), 0);
    assert_int_equal(symlink("a.txt", cache_path(folder, "link")), 0);

    assert_int_equal(output_check(cache_path(folder, "link")), QUERN_OK);
    assert_true(is_old("a.txt")); // a check changes nothing
    assert_int_equal(text_to("link", "new"), QUERN_OK);

    assert_true(has_text("a.txt", "new"));
    assert_int_equal(lstat(cache_path(folder, "link"), &link), 0);
    assert_true(S_ISLNK(link.st_mode));
    assert_int_equal(stat(cache_path(folder, "a.txt"), &after), 0);
    assert_int_equal(after.st_mode & 0777, 0640);
    assert_true(after.st_ino != before.st_ino); // renamed over: a reader of the old file keeps all of it
    assert_int_equal(text_to("a.txt", ""), QUERN_OK);
    assert_true(has_text("a.txt", ""));
    assert_int_equal(cache_folder_count(folder), 3);
}

static void a_text_that_does_not_fit_changes_nothing(void **state)
{
    static char text[100000];
    (void)state;
    make_old("a.txt");
    limit_files();
    quern_status status = output_text(cache_path(folder, "a.txt"), text, sizeof text);
    unlimit_files();
    assert_int_equal(status, QUERN_FILE_ERROR);
    assert_true(is_old("a.txt"));
    assert_int_equal(cache_folder_count(folder), 1);
}

static void databases_folders_and_broken_links_are_refused(void **state)
{
    quern_store store = cache_open(cache_path(folder, "k.db"));
    (void)state;
    assert_int_equal(cache_put(&store, 1), QUERN_OK);
    qn_sqlite_close(&store);
    assert_int_equal(mkdir(cache_path(folder, "sub"), 0700), 0);
    assert_int_equal(symlink("nowhere", cache_path(folder, "broken")), 0);
    assert_int_equal(symlink("k.db", cache_path(folder, "to.db")), 0);
    int count = cache_folder_count(folder);

    assert_refused("k.db", "it is a database");
    assert_refused("to.db", "it is a database");
    assert_refused("k.db-wal", "it belongs to the database beside it");
    assert_refused("k.db-journal", "it belongs to the database beside it");
    assert_refused("k.db.lock", "it belongs to the database beside it");
    assert_refused("sub", "not a regular file");
    assert_refused("broken", "leads nowhere");
    assert_refused("absent/a.txt", "its folder must exist");
    assert_refused("k.db/a.txt", strerror(ENOTDIR));

    assert_int_equal(cache_folder_count(folder), count);
    assert_int_equal(text_to("other.db-wal", "new"), QUERN_OK); // beside no database
    assert_int_equal(text_to("other.db.lock", "new"), QUERN_OK);
}

static void a_device_or_a_pipe_is_written_to_and_no_array_goes_there(void **state)
{
    char read_back[8] = "";
    output_file a;
    (void)state;
    const char *pipe = cache_path(folder, "pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    make_old("a.txt");
    assert_true(output_is_stream(cache_path(folder, "pipe")) && output_is_stream("/dev/null"));
    assert_false(output_is_stream(cache_path(folder, "a.txt")) || output_is_stream(cache_path(folder, "absent")));

    assert_int_equal(output_check(cache_path(folder, "pipe")), QUERN_OK); // nobody reads: to open it would wait
    int reader = open(cache_path(folder, "pipe"), O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_int_equal(text_to("pipe", "new"), QUERN_OK);
    assert_int_equal(read(reader, read_back, sizeof read_back), 3);
    assert_string_equal(read_back, "new");
    close(reader);
    assert_int_equal(output_text("/dev/null", "new", 3), QUERN_OK);
    assert_int_equal(output_open("/dev/null", OUTPUT_FILE, &a), QUERN_FILE_ERROR);
    assert_int_equal(output_open(cache_path(folder, "pipe"), OUTPUT_FILE, &a), QUERN_FILE_ERROR);
    assert_int_equal(output_text("/dev/full", "new", 3), QUERN_FILE_ERROR);
    assert_int_equal(cache_folder_count(folder), 2);
}

// A text to the file that standard output goes to stands in it where it was said, before what follows.
static void a_text_to_where_standard_output_goes_keeps_its_place(void **state)
{
    output_file a;
    (void)state;
    fflush(stdout);
    int kept = dup(STDOUT_FILENO), file = open(cache_path(folder, "out"), O_WRONLY | O_CREAT, 0600);
    assert_true(kept >= 0 && file >= 0);
    assert_int_equal(dup2(file, STDOUT_FILENO), STDOUT_FILENO);
    printf("one "); // in the stream's buffer
    quern_status array = output_open(cache_path(folder, "out"), OUTPUT_FILE, &a);
    bool streams = output_is_stream(cache_path(folder, "out"));
    quern_status status = text_to("out", "two ");
    printf("three");
    fflush(stdout);
    assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
    close(kept), close(file);

    assert_int_equal(status, QUERN_OK);
    assert_int_equal(array, QUERN_FILE_ERROR);
    assert_true(streams);
    assert_true(has_text("out", "one two three"));
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
        TEST(a_text_takes_the_place_of_a_file_with_its_mode_through_links),
        TEST(a_text_that_does_not_fit_changes_nothing),
        TEST(databases_folders_and_broken_links_are_refused),
        TEST(a_device_or_a_pipe_is_written_to_and_no_array_goes_there),
        TEST(a_text_to_where_standard_output_goes_keeps_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
