// SPDX-License-Identifier: Apache-2.0
// Files that the command writes (output.h).
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"

// ---- what stands at a place

static quern_status refuse(const char *path, const char *why)
{
    return qn_fail(QUERN_FILE_ERROR, "%s: cannot be written: %s", path, why);
}

// The descriptor, 1 or 2, whose file this is: renaming over it would leave the rest of that output without a name.
static int own_output(const struct stat *at)
{
    struct stat own;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (fstat(fd, &own) == 0 && own.st_ino == at->st_ino && own.st_dev == at->st_dev) return fd;
    return -1;
}

static bool is_stream(const struct stat *at)
{
    return S_ISCHR(at->st_mode) || S_ISFIFO(at->st_mode) || (S_ISREG(at->st_mode) && own_output(at) >= 0);
}

bool output_is_stream(const char *path)
{
    struct stat at;
    return stat(path, &at) == 0 && is_stream(&at);
}

// "k.db-wal": SQLite would take what is put there for the last changes of k.db. "k.db.lock": who compiles holds locks on
// the file that is there, which nobody would find any more.
static quern_status check_database(const char *path, const char *target)
{
    if (qn_file_is_database(target)) return refuse(path, "it is a database, which would be lost; name another file");
    if (qn_file_is_beside_database(target))
        return refuse(path, "it belongs to the database beside it; name another file");
    return QUERN_OK;
}

// What stands there may be written to or replaced. *exists: something does.
static quern_status check_place(const char *path, output_kind kind, struct stat *at, bool *exists)
{
    struct stat link;
    *exists = stat(path, at) == 0;
    if (!*exists && errno != ENOENT) return refuse(path, strerror(errno));
    if (!*exists && lstat(path, &link) == 0) return refuse(path, "a symbolic link that leads nowhere");
    if (!*exists) return QUERN_OK;
    if (is_stream(at) && !S_ISREG(at->st_mode) && kind == OUTPUT_FILE) return refuse(path, "not a regular file");
    if (is_stream(at) && kind == OUTPUT_FILE) return refuse(path, "this command's output goes there");
    if (!is_stream(at) && !S_ISREG(at->st_mode)) return refuse(path, "not a regular file");
    return access(path, W_OK) == 0 ? QUERN_OK : refuse(path, strerror(errno));
}

// ---- opening

static mode_t current_umask(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return mask;
}

static quern_status open_stream(const char *path, const struct stat *at, output_file *out)
{
    int own = own_output(at);
    if (own >= 0) fflush(own == STDOUT_FILENO ? stdout : stderr);
    out->descriptor = own >= 0 ? fcntl(own, F_DUPFD_CLOEXEC, 3) : open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    struct stat now;
    if (out->descriptor < 0 || fstat(out->descriptor, &now)) return refuse(path, strerror(errno));
    if (own < 0 && (now.st_dev != at->st_dev || now.st_ino != at->st_ino))
        return refuse(path, "it was replaced meanwhile");
    return QUERN_OK;
}

// The mode of the file that is replaced, else what the umask gives a new one.
static quern_status open_temporary(const char *path, const struct stat *old, output_file *out)
{
    if (asprintf(&out->temporary, "%s.XXXXXX", out->target) < 0) {
        out->temporary = NULL;
        return qn_fail(QUERN_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    out->descriptor = mkostemp(out->temporary, O_CLOEXEC);
    if (out->descriptor >= 0) {
        (void)fchmod(out->descriptor, old ? old->st_mode & 0777 : 0666 & ~current_umask());
        return QUERN_OK;
    }
    quern_status status = qn_fail(QUERN_FILE_ERROR,
                                  "%s: cannot be written: %s (its folder must exist and allow new "
                                  "files)",
                                  path, strerror(errno));
    free(out->temporary);
    out->temporary = NULL;
    return status;
}

static void fini(output_file *file)
{
    free(file->temporary), free(file->target);
    *file = (output_file){NULL, NULL, -1};
}

quern_status output_open(const char *path, output_kind kind, output_file *out)
{
    struct stat at;
    bool exists, streams;
    QN_TRY(check_place(path, kind, &at, &exists));
    streams = exists && is_stream(&at);
    // An existing file through its links; /proc/self/fd/1 of a pipe leads to no path.
    char *real = exists && !streams ? realpath(path, NULL) : NULL;
    output_file file = {real ? real : qn_strdup(path), NULL, -1};
    if (!file.target) return qn_fail(QUERN_OUT_OF_MEMORY, "%s: out of memory", path);
    quern_status status = streams ? open_stream(path, &at, &file) : check_database(path, file.target);
    if (status == QUERN_OK && !streams) status = open_temporary(path, exists ? &at : NULL, &file);
    if (status == QUERN_OK)
        *out = file;
    else
        fini(&file);
    return status;
}

// ---- writing

quern_status output_write(output_file *file, const void *bytes, size_t count)
{
    for (const char *at = bytes; count > 0;) {
        ssize_t done = write(file->descriptor, at, count);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return qn_fail(QUERN_FILE_ERROR, "%s: %s", file->target, strerror(errno));
        at += done, count -= (size_t)done;
    }
    return QUERN_OK;
}

quern_status output_close(output_file *file)
{
    int failed = close(file->descriptor);
    file->descriptor = -1;
    return failed ? qn_fail(QUERN_FILE_ERROR, "%s: %s", file->target, strerror(errno)) : QUERN_OK;
}

// A database may have been made at the target since it was opened, by this command too.
quern_status output_commit(output_file *file)
{
    quern_status status = file->temporary ? check_database(file->target, file->target) : QUERN_OK;
    if (status == QUERN_OK && file->temporary && rename(file->temporary, file->target) != 0)
        status = qn_fail(QUERN_FILE_ERROR, "%s: %s", file->target, strerror(errno));
    if (status != QUERN_OK) (void)unlink(file->temporary);
    fini(file);
    return status;
}

void output_abort(output_file *file)
{
    if (!file->target) return;
    if (file->descriptor >= 0) close(file->descriptor);
    if (file->temporary) (void)unlink(file->temporary);
    fini(file);
}

// ---- whole texts

quern_status output_check(const char *path)
{
    struct stat at;
    bool exists;
    output_file file;
    QN_TRY(check_place(path, OUTPUT_TEXT, &at, &exists));
    if (exists && is_stream(&at)) return QUERN_OK;
    QN_TRY(output_open(path, OUTPUT_TEXT, &file));
    output_abort(&file);
    return QUERN_OK;
}

quern_status output_text(const char *path, const void *bytes, size_t count)
{
    output_file file;
    QN_TRY(output_open(path, OUTPUT_TEXT, &file));
    quern_status status = output_write(&file, bytes, count);
    if (status == QUERN_OK) status = output_close(&file);
    if (status == QUERN_OK) return output_commit(&file);
    output_abort(&file);
    return status;
}
