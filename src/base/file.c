// SPDX-License-Identifier: Apache-2.0
// Whole files, and what kind of file system a path is on. Called by codegen, tools, runtime and cache. Writes nothing.
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

// Magic numbers of statfs(2), of file systems whose locks other hosts (or nobody) may see.
static const struct {
    unsigned magic;
    const char *kind;
} network_kinds[] = {
    {0x00006969, "nfs"},  {0x0000517B, "smb"},   {0xFF534D42, "cifs"},  {0xFE534D42, "smb2"},   {0x0BD00BD0, "lustre"},
    {0x47504653, "gpfs"}, {0x65735546, "fuse"},  {0x01021997, "9p"},    {0x5346414F, "afs"},    {0x6B414653, "afs"},
    {0x73757245, "coda"}, {0x0000564C, "ncp"},   {0x00C36400, "ceph"},  {0x19830326, "beegfs"}, {0x7461636F, "ocfs2"},
    {0x01161970, "gfs2"}, {0xAAD7AAEA, "panfs"}, {0x20030528, "pvfs2"}, {0x786F4256, "vboxsf"},
};

// statfs of the path, or of the nearest parent that exists.
static bool statfs_nearest(const char *path, struct statfs *info)
{
    char *copy = qn_strdup(path);
    bool found = false;

    if (!copy) return false;
    for (;;) {
        found = !statfs(*copy ? copy : "/", info);
        char *slash = strrchr(copy, '/');
        if (found || errno != ENOENT || !*copy) break;
        if (!slash) { // a relative name in the working directory
            found = !statfs(".", info);
            break;
        }
        *slash = 0;
    }
    free(copy);
    return found;
}

bool qn_is_network_fs(const char *path, const char **kind)
{
    struct statfs info;

    if (!statfs_nearest(path, &info)) return false;
    for (size_t i = 0; i < QN_COUNT(network_kinds); i++) {
        if ((unsigned)info.f_type != network_kinds[i].magic) continue;
        if (kind) *kind = network_kinds[i].kind;
        return true;
    }
    return false;
}

static bool read_all(int fd, qn_text *content)
{
    char block[16384];

    for (;;) {
        ssize_t count = read(fd, block, sizeof block);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return !count;
        qn_text_put(content, block, (size_t)count);
    }
}

quern_status qn_file_read(const char *path, qn_text *content)
{
    qn_text all = QN_TEXT_INIT;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) return qn_fail(QUERN_FILE_ERROR, "opening '%s': %s", path, strerror(errno));
    qn_text_put(&all, "", 0);
    bool done = read_all(fd, &all);
    int error = errno;
    close(fd);
    quern_status status =
        done ? qn_text_check(&all) : qn_fail(QUERN_FILE_ERROR, "reading '%s': %s", path, strerror(error));
    if (status != QUERN_OK) {
        qn_text_fini(&all);
        return status;
    }
    qn_text_fini(content);
    *content = all;
    return QUERN_OK;
}

bool qn_file_is_database(const char *path)
{
    static const char magic[] = "SQLite format 3"; // and a zero byte
    char head[sizeof magic];
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) return false;
    bool is = !fstat(fd, &info) && S_ISREG(info.st_mode) && pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head &&
              !memcmp(head, magic, sizeof magic);
    close(fd);
    return is;
}

// SQLite's own, and the compiles' locks (runtime/flight.c).
size_t qn_path_beside_database(const char *path)
{
    static const char *const endings[] = {"-wal", "-shm", "-journal", ".lock"};
    size_t length = strlen(path);

    for (size_t i = 0; i < QN_COUNT(endings); i++) {
        size_t end = strlen(endings[i]);
        if (length > end && !strcmp(path + length - end, endings[i])) return length - end;
    }
    return 0;
}

bool qn_file_is_beside_database(const char *path)
{
    size_t length = qn_path_beside_database(path);
    char *database = length ? strndup(path, length) : NULL;
    bool is = database && qn_file_is_database(database);

    free(database);
    return is;
}

bool qn_file_exists(const char *path)
{
    return !access(path, F_OK);
}
