// SPDX-License-Identifier: Apache-2.0
// Where the cache may not or cannot be: no home, a home that may not be written, a user without passwd entry, odd names,
// links, folders that others write to. In each a process gets its kernel; either it is stored and the next process is
// served, or it is kept in memory and one warning says why.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/cache_fixture.h"
#include "support/fake_nvrtc.h"
#include "support/fault_count.h"
#include "support/runtime_fixture.h"

enum { NO_PASSWD = 54321 };

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    cache_folder_make(folder);
    fake_nvrtc_install(13, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_nvrtc_remove();
    cache_folder_remove(folder);
    return 0;
}

static const char *in(const char *name)
{
    return cache_path(folder, name);
}

// ---- places: made under the folder, and named in the environment

static void give(const char *name, mode_t mode)
{
    assert_int_equal(mkdir(in(name), 0700), 0);
    assert_int_equal(chmod(in(name), mode), 0);
    if (!geteuid()) assert_int_equal(chown(in(name), NO_PASSWD, NO_PASSWD), 0);
}

static void variable(const char *name, const char *under, const char *rest)
{
    char value[6000];

    snprintf(value, sizeof value, "%s/%s%s", folder, under, rest);
    assert_int_equal(setenv(name, value, 1), 0);
}

static void spaces_and_utf8(void)
{
    variable("QUERN_CACHE_DIR", "a b", "/naïve ☃ 漢字 100%?x=#&;'\"\\");
}

static void bytes_that_are_no_utf8(void)
{
    variable("QUERN_CACHE_DIR", "\xff\xfe", "/\x80");
}

static void a_new_line(void)
{
    variable("QUERN_CACHE_DIR", "one\ntwo", "");
}

static void link_on_the_way(void)
{
    give("real", 0700);
    assert_int_equal(symlink(in("real"), in("link")), 0);
    variable("QUERN_CACHE_DIR", "link", "/cache");
}

static void link_at_the_end(void)
{
    give("real", 0700);
    assert_int_equal(symlink(in("real"), in("link")), 0);
    variable("QUERN_CACHE_DIR", "link", "");
}

static void link_to_nowhere(void)
{
    assert_int_equal(symlink("/nowhere/at/all", in("link")), 0);
    variable("QUERN_CACHE_DIR", "link", "/cache");
}

static void link_to_itself(void)
{
    assert_int_equal(symlink(in("link"), in("link")), 0);
    variable("QUERN_CACHE_DIR", "link", "/cache");
}

static void link_into_a_shared_folder(void)
{
    give("shared", 0777);
    give("shared/mine", 0700);
    assert_int_equal(symlink(in("shared/mine"), in("link")), 0);
    variable("QUERN_CACHE_DIR", "link", "/cache");
}

static void shared_parent(void)
{
    give("shared", 0777);
    variable("QUERN_CACHE_DIR", "shared", "/cache");
}

static void shared_sticky_parent(void)
{
    give("shared", 01777);
    variable("QUERN_CACHE_DIR", "shared", "/cache");
}

static void shared_with_a_group(void)
{
    give("cache", 0770);
    variable("QUERN_CACHE_DIR", "cache", "");
}

static void a_file_on_the_way(void)
{
    cache_write_file(in("file"), "x", 1);
    variable("QUERN_CACHE_DIR", "file", "/cache");
}

static void a_name_too_long(void)
{
    char name[5000];

    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    variable("QUERN_CACHE_DIR", name, "");
}

static void a_place_without_files(void)
{
    setenv("QUERN_CACHE_DIR", "/proc/quern", 1);
}

static void a_folder_that_is_gone(void)
{
    give("here", 0700);
    assert_int_equal(chdir(in("here")), 0);
    assert_int_equal(rmdir(in("here")), 0);
    setenv("QUERN_CACHE_DIR", "cache", 1);
}

static void no_home(void)
{
    unsetenv("HOME");
    variable("XDG_CACHE_HOME", "cache", "");
}

static void a_home_that_is_not_there(void)
{
    variable("HOME", "not/there", "");
    variable("XDG_CACHE_HOME", "cache", "");
}

static void no_variables(void)
{
    unsetenv("HOME");
}

static void home_alone(void)
{
    give("home", 0700);
    variable("HOME", "home", ""); // of a user without passwd entry: another user's, for all we know
}

static void a_relative_cache_home(void)
{
    setenv("XDG_CACHE_HOME", "relative", 1);
}

static void a_cache_home_that_may_not_be_written(void)
{
    give("cache", 0555);
    variable("XDG_CACHE_HOME", "cache", "");
}

static void a_cache_home_that_may_not_be_entered(void)
{
    give("cache", 0000);
    variable("XDG_CACHE_HOME", "cache", "");
}

static void another_users_folder(void)
{
    assert_int_equal(mkdir(in("cache"), 0755), 0); // root's
    assert_int_equal(chmod(in("cache"), 0755), 0);
    variable("QUERN_CACHE_DIR", "cache", "");
}

typedef struct place {
    const char *name;
    void (*make)(void);
    bool as_stranger;    // as a user without passwd entry; only root can become one
    const char *warning; // NULL: the kernel is stored; else kept in memory, and this is part of the one warning
} place;

static const place places[] = {
    {"a path with spaces and UTF-8", spaces_and_utf8, false, NULL},
    {"a path that is no UTF-8", bytes_that_are_no_utf8, false, NULL},
    {"a path with a new line", a_new_line, false, NULL},
    {"a symbolic link on the way", link_on_the_way, true, NULL},
    {"a symbolic link at the end", link_at_the_end, true, "is a symbolic link"},
    {"a symbolic link to nowhere", link_to_nowhere, false, "link"},
    {"a symbolic link to itself", link_to_itself, false, "link"},
    {"a symbolic link into a world-writable folder", link_into_a_shared_folder, true, "writable by everyone"},
    {"a world-writable parent", shared_parent, true, "writable by everyone"},
    {"a world-writable parent with the sticky bit", shared_sticky_parent, true, NULL},
    {"a folder that its group may write", shared_with_a_group, true, "writable by others"},
    {"a file on the way", a_file_on_the_way, false, "not a directory"},
    {"a name that is too long", a_name_too_long, false, "too long"},
    {"a file system without such files", a_place_without_files, false, "/proc/quern"},
    {"a working directory that is gone", a_folder_that_is_gone, false, "no cache directory"},
    {"no HOME", no_home, false, NULL},
    {"a HOME that is not there", a_home_that_is_not_there, false, NULL},
    {"no passwd entry, no variables", no_variables, true, "no cache directory"},
    {"no passwd entry, HOME alone", home_alone, true, "no cache directory"},
    {"no passwd entry, a relative XDG_CACHE_HOME", a_relative_cache_home, true, "no cache directory"},
    {"no passwd entry, XDG_CACHE_HOME", no_home, true, NULL},
    {"a cache home that may not be written", a_cache_home_that_may_not_be_written, true, "Permission denied"},
    {"a cache home that may not be entered", a_cache_home_that_may_not_be_entered, true, "Permission denied"},
    {"another user's folder", another_users_folder, true, "belongs to user 0"},
};

// ---- a process in one of them: each thing that may be wrong has its number

static bool become_stranger(void)
{
    return !setgroups(0, NULL) && !setgid(NO_PASSWD) && !setuid(NO_PASSWD) && geteuid() == NO_PASSWD;
}

static int live(void *user)
{
    const place *p = user;
    runtime_log log = RUNTIME_LOG_INIT;
    quern_options options = runtime_options(NULL, &log);
    const qn_image *image, *again;
    quern *q = NULL;

    if (p->as_stranger && !geteuid() && !become_stranger()) return 99;
    options.ignore_environment = 0;
    if (quern_open(&options, &q)) return 1;
    if (runtime_obtain(q, 1, "sm_90a", &image)) return 2;
    if (runtime_obtain(q, 1, "sm_90a", &again) || again != image) return 3;
    int warnings = log.count[QUERN_LOG_WARNING];
    if (warnings != (p->warning ? 1 : 0)) return 4;
    if (p->warning && !runtime_log_has(&log, p->warning)) {
        print_message("%s: the log is: %s\n", p->name, qn_text_string(&log.lines));
        return 5;
    }
    if (runtime_counters(q).put_failed + runtime_counters(q).get_failed) return 6;
    quern_close(q);
    runtime_log_fini(&log);
    return fake_nvrtc.compiles ? 50 : 0; // 50: all right, and it was compiled
}

static bool is_possible(const place *p)
{
    return !p->as_stranger || (!geteuid() && !getpwuid(NO_PASSWD));
}

static void try_place(const place *p)
{
    char here[512];

    cache_folder_remove(folder);
    cache_folder_make(folder);
    if (p->as_stranger && !geteuid()) assert_int_equal(chown(folder, NO_PASSWD, NO_PASSWD), 0);
    unsetenv("QUERN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/", 1);
    assert_non_null(getcwd(here, sizeof here));
    p->make();
    int first = cache_in_child(live, (void *)(uintptr_t)p), next = cache_in_child(live, (void *)(uintptr_t)p);
    assert_int_equal(chdir(here), 0);
    if (first != 50) fail_msg("%s: the first process ended with %d", p->name, first);
    if (next != (p->warning ? 50 : 0)) fail_msg("%s: the next process ended with %d", p->name, next);
}

static void in_every_place_a_process_gets_its_kernel(void **state)
{
    (void)state;
    for (size_t i = 0; i < QN_COUNT(places); i++) {
        if (!is_possible(&places[i])) {
            print_message("skipped, needs root: %s\n", places[i].name);
            continue;
        }
        fault_tried("no home, no passwd entry, odd paths, links, folders of others");
        try_place(&places[i]);
        fault_survived("no home, no passwd entry, odd paths, links, folders of others");
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(in_every_place_a_process_gets_its_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
