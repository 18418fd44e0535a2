// SPDX-License-Identifier: Apache-2.0
// Folders of work (model_work.h). The lock is flock's on the folder itself: the kernel gives it back when its owner ends,
// however it ends, and no process number is trusted, which another container's process may have too.
//   (1) A folder is removed by whoever holds its lock.
//   (2) Between its making and its lock a folder may be taken for a dead one's: then it is gone, and another is made.
#include "model_work.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_files.h"

enum { MOST_TRIES = 1000 };

static int open_folder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Whether the folder at this path is the open one.
static bool is_at(const char *path, int fd)
{
    struct stat there, opened;
    return lstat(path, &there) == 0 && fstat(fd, &opened) == 0 && there.st_ino == opened.st_ino &&
           there.st_dev == opened.st_dev;
}

// Where a file system has no locks, folders are made all the same, and never cleaned.
static bool lock_folder(const char *path, int fd)
{
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR) continue;
    return is_at(path, fd);
}

quern_status model_work_begin(const char *cache, model_work *work)
{
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        snprintf(work->folder, sizeof work->folder, "%s/work-XXXXXX", cache);
        if (!mkdtemp(work->folder)) break;
        work->lock = open_folder(work->folder);
        if (work->lock < 0 && errno != ENOENT) break;
        if (work->lock < 0) continue;
        if (lock_folder(work->folder, work->lock)) return QUERN_OK;
        close(work->lock);
    }
    quern_status status = qn_fail(QUERN_FILE_ERROR, "%s: %s", work->folder, strerror(errno));
    work->folder[0] = 0;
    return status;
}

void model_work_end(model_work *work)
{
    if (!work->folder[0]) return;
    model_files_remove(work->folder);
    close(work->lock);
    work->folder[0] = 0;
}

static void clean_one(const char *path)
{
    int fd = open_folder(path);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_at(path, fd)) model_files_remove(path);
    close(fd);
}

void model_work_clean(const char *cache)
{
    DIR *d = opendir(cache);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char path[1024];
        int length = snprintf(path, sizeof path, "%s/%s", cache, e->d_name);
        if (!strncmp(e->d_name, "work-", 5) && length > 0 && (size_t)length < sizeof path) clean_one(path);
    }
    if (d) closedir(d);
}
