// SPDX-License-Identifier: Apache-2.0
// Files for targets whose subject reads files; see fuzz.h.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

static char folder[64], paths[8][128];
static size_t path_count;

static void remove_all(void)
{
    for (size_t i = 0; i < path_count; i++) {
        char journal[160];
        unlink(paths[i]);
        snprintf(journal, sizeof journal, "%.127s-journal", paths[i]);
        unlink(journal);
        snprintf(journal, sizeof journal, "%.127s.lock", paths[i]);
        unlink(journal);
    }
    rmdir(folder);
}

const char *fuzz_file(const char *suffix)
{
    if (!*folder) {
        struct stat info;
        const char *base = !stat("/dev/shm", &info) && !access("/dev/shm", W_OK) ? "/dev/shm" : "/tmp";
        snprintf(folder, sizeof folder, "%s/quern-fuzz-XXXXXX", base);
        if (!mkdtemp(folder)) abort();
        atexit(remove_all);
    }
    if (path_count == sizeof paths / sizeof paths[0]) abort();
    snprintf(paths[path_count], sizeof paths[0], "%s/f%zu%s", folder, path_count, suffix);
    return paths[path_count++];
}

void fuzz_write(const char *file, const void *bytes, size_t count)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, bytes, count) != (ssize_t)count) abort();
    close(fd);
}
