// SPDX-License-Identifier: Apache-2.0
// Where the cache may be: the choice, the making, and every reason to refuse a directory. As root, cases about other
// users are made with chown, and those about missing rights run in a child with an unused uid.
#include "base/path.h"

#include <errno.h>
#include <ftw.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { UNUSED_UID = 54321 };

static char root[64]; // a fresh folder for each test, in /tmp

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)where;
    if (kind == FTW_D || kind == FTW_DNR) chmod(path, 0700);
    return 0;
}

static int delete_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/quern-path-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    nftw(root, remove_one, 8, FTW_PHYS);
    nftw(root, delete_one, 8, FTW_PHYS | FTW_DEPTH);
    return 0;
}

static const char *below(const char *name)
{
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", root, name);
    return path[next];
}

static unsigned mode_of(const char *path)
{
    struct stat info;
    return stat(path, &info) ? 0 : (unsigned)info.st_mode & 07777;
}

static void make(const char *path, unsigned mode)
{
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void assert_unsafe(const char *path, const char *why)
{
    assert_int_equal(qn_directory_prepare(path), QUERN_UNSAFE_PATH);
    if (!strstr(quern_message(), why)) fail_msg("'%s' does not say '%s'", quern_message(), why);
    assert_int_equal(qn_directory_check(path), QUERN_UNSAFE_PATH);
}

// ---- making

static void prepare_makes_0700_whatever_the_umask(void **state)
{
    static const unsigned masks[] = {0, 022, 0777};

    (void)state;
    for (size_t i = 0; i < QN_COUNT(masks); i++) {
        char name[32];
        snprintf(name, sizeof name, "%zu/b/c", i);
        const char *path = below(name);
        mode_t before = umask(masks[i]);
        quern_status status = qn_directory_prepare(path);
        umask(before);
        if (status != QUERN_OK) fail_msg("umask %o: %s", masks[i], quern_message());
        assert_int_equal(mode_of(path), 0700);
        name[3] = 0; // the parent
        assert_int_equal(mode_of(below(name)), 0700);
        assert_int_equal(qn_directory_check(path), QUERN_OK);
    }
}

static void prepare_leaves_what_exists_as_it_is(void **state)
{
    (void)state;
    make(below("a"), 0755);
    assert_int_equal(qn_directory_prepare(below("a")), QUERN_OK);
    assert_int_equal(mode_of(below("a")), 0755);
    assert_int_equal(qn_directory_prepare(below("a///")), QUERN_OK); // slashes at the end change nothing
}

static void check_makes_nothing(void **state)
{
    (void)state;
    assert_int_equal(qn_directory_check(below("none")), QUERN_FILE_ERROR);
    assert_non_null(strstr(quern_message(), "none"));
    assert_false(qn_file_exists(below("none")));
}

static void a_file_in_the_way_is_a_file_error(void **state)
{
    (void)state;
    FILE *file = fopen(below("f"), "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(qn_directory_prepare(below("f")), QUERN_FILE_ERROR);
    assert_int_equal(qn_directory_prepare(below("f/g")), QUERN_FILE_ERROR);
    assert_int_equal(qn_directory_check(below("f")), QUERN_FILE_ERROR);
    assert_non_null(strstr(quern_message(), "/f'"));
}

// ---- refusing

static void empty_and_relative_names_are_refused(void **state)
{
    (void)state;
    assert_int_equal(qn_directory_prepare(""), QUERN_UNSAFE_PATH);
    assert_int_equal(qn_directory_prepare(NULL), QUERN_UNSAFE_PATH);
    assert_int_equal(qn_directory_prepare("quern-cache"), QUERN_UNSAFE_PATH);
    assert_non_null(strstr(quern_message(), "relative"));
    assert_int_equal(qn_directory_check("./quern-cache"), QUERN_UNSAFE_PATH);
    assert_false(qn_file_exists("quern-cache"));
}

static void a_directory_that_others_write_to_is_unsafe(void **state)
{
    (void)state;
    make(below("g"), 0770);
    assert_unsafe(below("g"), "0770");
    make(below("o"), 0707);
    assert_unsafe(below("o"), "0707");
    make(below("s"), 01777); // the sticky bit saves an ancestor, not the directory itself
    assert_unsafe(below("s"), "1777");
}

static void a_world_writable_ancestor_needs_the_sticky_bit(void **state)
{
    (void)state;
    make(below("w"), 0777);
    assert_unsafe(below("w/a/b"), "sticky");
    assert_int_equal(chmod(below("w"), 01777), 0);
    assert_int_equal(qn_directory_prepare(below("w/a/b")), QUERN_OK);
}

static void a_link_as_last_part_is_unsafe(void **state)
{
    (void)state;
    make(below("real"), 0700);
    assert_int_equal(symlink(below("real"), below("link")), 0);
    assert_unsafe(below("link"), "symbolic link");
    assert_int_equal(symlink(below("nowhere"), below("dangling")), 0);
    assert_int_not_equal(qn_directory_prepare(below("dangling")), QUERN_OK);
    assert_false(qn_file_exists(below("nowhere")));
}

static void a_link_among_the_ancestors_is_followed_and_checked(void **state)
{
    (void)state;
    make(below("good"), 0755);
    make(below("bad"), 0777);
    make(below("bad/in"), 0755);
    assert_int_equal(symlink(below("good"), below("to_good")), 0);
    assert_int_equal(symlink(below("bad/in"), below("to_bad")), 0);
    assert_int_equal(qn_directory_prepare(below("to_good/cache")), QUERN_OK);
    assert_true(qn_file_exists(below("good/cache")));
    assert_unsafe(below("to_bad/cache"), "sticky");
}

static void another_users_directory_is_unsafe(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: no directory of another user can be made\n");
        skip();
    }
    make(below("theirs"), 0755);
    assert_int_equal(chown(below("theirs"), UNUSED_UID, UNUSED_UID), 0);
    assert_unsafe(below("theirs"), "54321");
    // As an ancestor it is trusted, as any shared project folder is; but not where anyone may have put it.
    assert_int_equal(qn_directory_prepare(below("theirs/mine")), QUERN_OK);
    make(below("tmp"), 01777);
    make(below("tmp/theirs"), 0755);
    assert_int_equal(chown(below("tmp/theirs"), UNUSED_UID, UNUSED_UID), 0);
    assert_unsafe(below("tmp/theirs/mine"), "54321");
}

// Runs in a child as a user without a passwd entry; the child's answer is its exit status.
static int as_unused_uid(int (*what)(void))
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        if (geteuid() == 0 && (setgid(UNUSED_UID) || setuid(UNUSED_UID))) _exit(99);
        _exit(what());
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static int prepare_in_locked(void)
{
    return (int)qn_directory_prepare(below("locked/cache"));
}

static void no_right_to_make_it_is_a_file_error(void **state)
{
    (void)state;
    assert_int_equal(chmod(root, 0755), 0);
    make(below("locked"), 0555);
    assert_int_equal(as_unused_uid(prepare_in_locked), QUERN_FILE_ERROR);
    assert_false(qn_file_exists(below("locked/cache")));
}

// ---- files

static int check_the_file(void)
{
    return (int)qn_file_check(below("file"));
}

static void a_file_that_others_may_write_or_own_is_refused(void **state)
{
    (void)state;
    assert_int_equal(qn_file_check(below("file")), QUERN_OK); // there is none
    FILE *file = fopen(below("file"), "w");
    assert_non_null(file);
    fclose(file);
    static const struct {
        mode_t mode;
        quern_status status;
    } cases[] = {
        {0600, QUERN_OK}, {0644, QUERN_OK}, {0444, QUERN_OK}, {0664, QUERN_UNSAFE_PATH}, {0606, QUERN_UNSAFE_PATH}};
    for (size_t i = 0; i < QN_COUNT(cases); i++) {
        assert_int_equal(chmod(below("file"), cases[i].mode), 0);
        assert_int_equal(qn_file_check(below("file")), cases[i].status);
    }
    if (geteuid()) return; // other owners need root
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(chmod(below("file"), 0644), 0);
    assert_int_equal(as_unused_uid(check_the_file), QUERN_OK); // root's
    assert_int_equal(chown(below("file"), UNUSED_UID, UNUSED_UID), 0);
    assert_int_equal(qn_file_check(below("file")), QUERN_UNSAFE_PATH);
}

// ---- choosing

static void assert_chosen(bool ignore, const char *wanted)
{
    qn_text directory = QN_TEXT_INIT;
    qn_cache_directory(ignore, &directory);
    assert_string_equal(qn_text_string(&directory), wanted);
    qn_text_fini(&directory);
}

static void the_variables_choose_in_order(void **state)
{
    char home[512];
    const struct passwd *entry = getpwuid(geteuid());

    (void)state;
    // A home that does not exist ("/nonexistent") gives none.
    bool has_home = entry && qn_file_exists(entry->pw_dir);
    snprintf(home, sizeof home, "%s%s", has_home ? entry->pw_dir : "", has_home ? "/.cache/quern" : "");
    setenv("QUERN_CACHE_DIR", "/a/b", 1);
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("HOME", "/never/asked", 1);
    assert_chosen(false, "/a/b");
    setenv("QUERN_CACHE_DIR", "", 1); // empty is unset
    assert_chosen(false, "/x/quern");
    unsetenv("QUERN_CACHE_DIR");
    assert_chosen(false, "/x/quern");
    if (entry) {
        setenv("XDG_CACHE_HOME", "relative/x", 1);
        assert_chosen(false, home);
        unsetenv("XDG_CACHE_HOME");
        assert_chosen(false, home);
        setenv("QUERN_CACHE_DIR", "/a/b", 1);
        assert_chosen(true, home);
    }
    unsetenv("QUERN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
}

static void a_relative_quern_cache_dir_becomes_absolute_at_once(void **state)
{
    char before[512];

    (void)state;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(root), 0);
    setenv("QUERN_CACHE_DIR", "mine/cache", 1);
    assert_chosen(false, below("mine/cache"));
    unsetenv("QUERN_CACHE_DIR");
    assert_int_equal(chdir(before), 0);
}

static int choose_without_passwd(void)
{
    qn_text directory = QN_TEXT_INIT;
    unsetenv("QUERN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", root, 1);
    qn_cache_directory(false, &directory);
    int length = (int)directory.length;
    qn_text_fini(&directory);
    return length;
}

static void a_uid_without_passwd_entry_has_no_directory(void **state)
{
    (void)state;
    if (geteuid() != 0 || getpwuid(UNUSED_UID)) {
        print_message("not root, or uid 54321 is in use: nothing to test\n");
        skip();
    }
    assert_int_equal(as_unused_uid(choose_without_passwd), 0);
}

static void the_environment_can_be_ignored(void **state)
{
    (void)state;
    setenv("QUERN_TEST_VARIABLE", "x", 1);
    assert_string_equal(qn_environment("QUERN_TEST_VARIABLE", false), "x");
    assert_null(qn_environment("QUERN_TEST_VARIABLE", true));
    setenv("QUERN_TEST_VARIABLE", "", 1);
    assert_null(qn_environment("QUERN_TEST_VARIABLE", false));
    unsetenv("QUERN_TEST_VARIABLE");
    assert_null(qn_environment("QUERN_TEST_VARIABLE", false));
}

// ---- files

static void a_file_is_read_whole(void **state)
{
    qn_text content = QN_TEXT_INIT;
    static char block[40000];

    (void)state;
    for (size_t i = 0; i < sizeof block; i++) block[i] = (char)(i * 7);
    FILE *file = fopen(below("f"), "w");
    assert_int_equal(fwrite(block, 1, sizeof block, file), sizeof block);
    fclose(file);
    qn_text_puts(&content, "what was there before");
    assert_int_equal(qn_file_read(below("f"), &content), QUERN_OK);
    assert_int_equal(content.length, sizeof block);
    assert_memory_equal(content.bytes, block, sizeof block);
    qn_text_fini(&content);
}

static void a_failed_read_leaves_the_content_and_says_why(void **state)
{
    qn_text content = QN_TEXT_INIT;

    (void)state;
    qn_text_puts(&content, "kept");
    assert_int_equal(qn_file_read(below("none"), &content), QUERN_FILE_ERROR);
    assert_non_null(strstr(quern_message(), strerror(ENOENT)));
    assert_int_equal(qn_file_read(root, &content), QUERN_FILE_ERROR); // a directory
    assert_non_null(strstr(quern_message(), strerror(EISDIR)));
    assert_string_equal(content.bytes, "kept");
    qn_text_fini(&content);
}

static void an_empty_file_is_an_empty_text(void **state)
{
    qn_text content = QN_TEXT_INIT;

    (void)state;
    fclose(fopen(below("empty"), "w"));
    assert_int_equal(qn_file_read(below("empty"), &content), QUERN_OK);
    assert_int_equal(content.length, 0);
    assert_string_equal(qn_text_string(&content), "");
    qn_text_fini(&content);
}

static void a_network_check_answers_for_names_that_do_not_exist_yet(void **state)
{
    const char *kind = NULL;

    (void)state;
    bool here = qn_is_network_fs(root, &kind);
    assert_int_equal(qn_is_network_fs(below("not/there/yet"), &kind), here);
    if (here) assert_non_null(kind);
    assert_false(qn_is_network_fs("/proc/self", &kind));
    qn_is_network_fs("relative-and-missing", NULL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(prepare_makes_0700_whatever_the_umask),
        CASE(prepare_leaves_what_exists_as_it_is),
        CASE(check_makes_nothing),
        CASE(a_file_in_the_way_is_a_file_error),
        CASE(empty_and_relative_names_are_refused),
        CASE(a_directory_that_others_write_to_is_unsafe),
        CASE(a_world_writable_ancestor_needs_the_sticky_bit),
        CASE(a_link_as_last_part_is_unsafe),
        CASE(a_link_among_the_ancestors_is_followed_and_checked),
        CASE(another_users_directory_is_unsafe),
        CASE(no_right_to_make_it_is_a_file_error),
        CASE(a_file_that_others_may_write_or_own_is_refused),
        CASE(the_variables_choose_in_order),
        CASE(a_relative_quern_cache_dir_becomes_absolute_at_once),
        CASE(a_uid_without_passwd_entry_has_no_directory),
        CASE(the_environment_can_be_ignored),
        CASE(a_file_is_read_whole),
        CASE(a_failed_read_leaves_the_content_and_says_why),
        CASE(an_empty_file_is_an_empty_text),
        CASE(a_network_check_answers_for_names_that_do_not_exist_yet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
