// SPDX-License-Identifier: Apache-2.0
// Measuring and filling for the load tests; see the header.
#include "support/load.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/cache_fixture.h"

int64_t load_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, two = *(const int64_t *)b;

    return (one > two) - (one < two);
}

double load_median_us(int64_t *ns, int count)
{
    qsort(ns, (size_t)count, sizeof *ns, compare);
    return (double)ns[count / 2] / 1000;
}

static int64_t status_kib(const char *name)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    int64_t kib = -1;

    while (file && kib < 0 && fgets(line, sizeof line, file)) {
        if (!strncmp(line, name, strlen(name))) kib = strtoll(line + strlen(name), NULL, 10);
    }
    if (file) fclose(file);
    return kib;
}

int64_t load_resident_kib(void)
{
    return status_kib("VmRSS:");
}

int64_t load_peak_kib(void)
{
    return status_kib("VmHWM:");
}

void load_peak_reset(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

    if (fd < 0) return;
    if (write(fd, "5", 1) != 1) abort();
    close(fd);
}

int load_open_files(void)
{
    return cache_folder_count("/proc/self/fd");
}

bool load_is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

static quern_status list(void *self, int with_images, quern_record_fn each, void *user)
{
    const load_records *records = self;
    (void)with_images;

    for (int i = 0; i < records->count; i++) {
        cache_sample sample;
        cache_sample_make(&sample, records->first + i, records->image_bytes);
        int stop = each(user, &sample.record);
        cache_sample_free(&sample);
        if (stop) break;
    }
    return QUERN_OK;
}

quern_store load_store(load_records *records)
{
    return (quern_store){.size = sizeof(quern_store), .self = records, .list = list};
}

void load_make_cold(const char *file)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);

    if (fd < 0) return;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}
