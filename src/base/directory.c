// SPDX-License-Identifier: Apache-2.0
// Making and checking a directory that holds files which become code. Called by runtime/state.c and the command.
//   (1) What is made has mode 0700, whatever the umask.
//   (2) A directory passes only if it is this user's, no other user may write into it, and not everyone could put
//       another one in its place. Whoever owns an ancestor, or shares the group of one that its group may write to, could.
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static quern_status file_error(const char *path, const char *doing, int error)
{
    return qn_fail(QUERN_FILE_ERROR, "%s '%s': %s", doing, path, strerror(error));
}

static bool is_ours_or_roots(const struct stat *info)
{
    return info->st_uid == geteuid() || info->st_uid == 0;
}

// One ancestor: `above` is the mode of the directory that it stands in (0 for "/", and behind a link).
static quern_status check_ancestor(const char *path, const struct stat *info, mode_t above)
{
    if ((above & S_IWOTH) && !is_ours_or_roots(info)) {
        return qn_fail(QUERN_UNSAFE_PATH,
                       "'%s' belongs to user %u and stands in a directory that everyone may write to; choose another "
                       "directory (QUERN_CACHE_DIR)",
                       path, (unsigned)info->st_uid);
    }
    if (S_ISLNK(info->st_mode)) return QUERN_OK; // where it leads is checked by the real path
    if (!S_ISDIR(info->st_mode)) return qn_fail(QUERN_FILE_ERROR, "'%s' is not a directory", path);
    if ((info->st_mode & S_IWOTH) && !(info->st_mode & S_ISVTX)) {
        return qn_fail(
            QUERN_UNSAFE_PATH,
            "'%s' is writable by everyone (mode %04o) and has no sticky bit, so anyone could replace what is "
            "in it; chmod o-w it or choose another directory (QUERN_CACHE_DIR)",
            path, (unsigned)(info->st_mode & 07777));
    }
    return QUERN_OK;
}

// Walks the prefixes of an absolute path but the whole of it: "/", "/a", "/a/b". path is changed and put back.
static quern_status check_ancestors(char *path)
{
    struct stat info;
    mode_t above = 0;

    for (char *slash = path; slash; slash = strchr(slash + 1, '/')) {
        char kept = slash[slash == path];
        quern_status status = QUERN_OK;
        slash[slash == path] = 0;
        if (lstat(path, &info))
            status = file_error(path, "looking at", errno);
        else
            status = check_ancestor(path, &info, above);
        slash[slash == path] = kept;
        QN_TRY(status);
        above = S_ISLNK(info.st_mode) ? 0 : info.st_mode;
    }
    return QUERN_OK;
}

// The directory itself: opened without following a link, so that what is checked is what has the name.
static quern_status check_last(const char *path)
{
    struct stat info;
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        int error = errno;
        if (!lstat(path, &info) && S_ISLNK(info.st_mode)) {
            return qn_fail(QUERN_UNSAFE_PATH, "'%s' is a symbolic link; name the directory it leads to", path);
        }
        return file_error(path, "opening the directory", error);
    }
    int failed = fstat(fd, &info), error = errno;
    close(fd);
    if (failed) return file_error(path, "looking at", error);
    if (info.st_uid != geteuid()) {
        return qn_fail(QUERN_UNSAFE_PATH,
                       "'%s' belongs to user %u, this process runs as user %u; choose a directory of its own "
                       "(QUERN_CACHE_DIR, or in the database's name)",
                       path, (unsigned)info.st_uid, (unsigned)geteuid());
    }
    if (info.st_mode & (S_IWGRP | S_IWOTH)) {
        return qn_fail(
            QUERN_UNSAFE_PATH,
            "'%s' is writable by others (mode %04o): kernels in it could be replaced; chmod go-w it, or choose a "
            "folder of your own",
            path, (unsigned)(info.st_mode & 07777));
    }
    return QUERN_OK;
}

// A copy that is absolute and ends in no slash. The caller frees it.
static quern_status clean_path(const char *directory, char **path)
{
    if (!directory || !*directory) return qn_fail(QUERN_UNSAFE_PATH, "the directory's name is empty");
    if (directory[0] != '/') {
        return qn_fail(QUERN_UNSAFE_PATH, "'%s' is relative: give the directory's whole path", directory);
    }
    char *copy = qn_strdup(directory);
    if (!copy) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a path");
    for (size_t length = strlen(copy); length > 1 && copy[length - 1] == '/'; length--) copy[length - 1] = 0;
    *path = copy;
    return QUERN_OK;
}

static quern_status check_clean(char *path)
{
    char real[PATH_MAX];

    QN_TRY(check_ancestors(path));
    QN_TRY(check_last(path));
    // The same for where links among the ancestors lead.
    if (!realpath(path, real)) return file_error(path, "resolving", errno);
    return strcmp(real, path) ? check_ancestors(real) : QUERN_OK;
}

// Makes what is missing of the path, outermost first. A component that exists is left as it is.
static quern_status make_missing(char *path)
{
    for (char *end = strchr(path + 1, '/');; end = strchr(end + 1, '/')) {
        if (end) *end = 0;
        int made = !mkdir(path, 0700), error = errno;
        // The umask can only have taken bits away; a fresh directory of ours gets them back.
        if (made && chmod(path, 0700)) made = 0, error = errno;
        quern_status status = QUERN_OK;
        struct stat info;
        if (!made && (stat(path, &info) || !S_ISDIR(info.st_mode))) {
            status = error == EEXIST ? qn_fail(QUERN_FILE_ERROR, "'%s' is not a directory", path)
                                     : file_error(path, "making the directory", error);
        }
        if (end) *end = '/';
        if (status != QUERN_OK || !end) return status;
    }
}

quern_status qn_directory_prepare(const char *directory)
{
    char *path = NULL;

    QN_TRY(clean_path(directory, &path));
    quern_status status = make_missing(path);
    if (status == QUERN_OK) status = check_clean(path);
    free(path);
    return status;
}

quern_status qn_directory_check(const char *directory)
{
    char *path = NULL;

    QN_TRY(clean_path(directory, &path));
    quern_status status = check_clean(path);
    free(path);
    return status;
}

static quern_status check_writers(const char *path, const struct stat *info)
{
    if (!S_ISREG(info->st_mode) || !(info->st_mode & (S_IWGRP | S_IWOTH))) return QUERN_OK;
    return qn_fail(QUERN_UNSAFE_PATH,
                   "'%s' is writable by others (mode %04o): kernels in it could be replaced; chmod go-w it, if you "
                   "trust what is in it",
                   path, (unsigned)(info->st_mode & 07777));
}

quern_status qn_file_check(const char *path)
{
    struct stat info;

    if (stat(path, &info)) return errno == ENOENT ? QUERN_OK : file_error(path, "looking at", errno);
    if (!is_ours_or_roots(&info)) {
        return qn_fail(QUERN_UNSAFE_PATH, "'%s' belongs to user %u, this process runs as user %u; choose another file",
                       path, (unsigned)info.st_uid, (unsigned)geteuid());
    }
    return check_writers(path, &info);
}

quern_status qn_file_check_named(const char *path)
{
    struct stat info;
    char *copy = NULL;

    if (stat(path, &info)) return errno == ENOENT ? QUERN_OK : file_error(path, "looking at", errno);
    QN_TRY(check_writers(path, &info));
    QN_TRY(clean_path(path, &copy));
    quern_status status = check_ancestors(copy);
    free(copy);
    return status;
}
