// SPDX-License-Identifier: Apache-2.0
// Shared by the cache's unit and fault tests; see the header.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/cache_fixture.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/key.h"

// ---- folders and files

void cache_folder_make(char folder[64])
{
    const char *base = getenv("TMPDIR");

    assert_true(snprintf(folder, 64, "%s/quern-cache-XXXXXX", base && strlen(base) < 32 ? base : "/tmp") < 64);
    assert_non_null(mkdtemp(folder));
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

void cache_folder_remove(const char *folder)
{
    chmod(folder, 0700);
    assert_int_equal(nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *cache_path(const char *folder, const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];

    assert_true(snprintf(path, sizeof paths[0], "%s/%s", folder, name) < (int)sizeof paths[0]);
    return path;
}

int cache_folder_count(const char *folder)
{
    DIR *directory = opendir(folder);
    int count = -2; // "." and ".."

    assert_non_null(directory);
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

void cache_write_file(const char *file, const void *bytes, size_t count)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

void cache_overwrite(const char *file, int64_t offset, const void *bytes, size_t count)
{
    int fd = open(file, O_WRONLY);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, count, offset), count);
    close(fd);
}

void cache_read_at(const char *file, int64_t offset, void *bytes, size_t count)
{
    int fd = open(file, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, bytes, count, offset), count);
    close(fd);
}

void cache_copy_file(const char *from, const char *to)
{
    size_t count = (size_t)cache_file_size(from);
    void *bytes = malloc(count + 1);

    assert_non_null(bytes);
    cache_read_at(from, 0, bytes, count);
    cache_write_file(to, bytes, count);
    free(bytes);
}

uint32_t cache_change_counter(const char *file)
{
    unsigned char at[4];

    cache_read_at(file, 24, at, sizeof at);
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

const char *cache_golden(const char *name)
{
    const char *source = getenv("QUERN_TEST_SOURCE");
    char folder[200];

    assert_true(snprintf(folder, sizeof folder, "%s/tests/data/databases", source ? source : ".") < (int)sizeof folder);
    return cache_path(folder, name);
}

int64_t cache_file_size(const char *file)
{
    struct stat found;

    assert_int_equal(stat(file, &found), 0);
    return found.st_size;
}

// ---- records

// The smallest file that passes for a cubin: a head and one empty section.
static void make_cubin_head(unsigned char *image)
{
    Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0x41, 8}};

    head.e_machine = 190; // EM_CUDA
    head.e_shoff = sizeof head;
    head.e_shentsize = sizeof(Elf64_Shdr);
    head.e_shnum = 1;
    memcpy(image, &head, sizeof head);
    memset(image + sizeof head, 0, sizeof(Elf64_Shdr));
}

void cache_sample_make(cache_sample *sample, int number, size_t image_bytes)
{
    const size_t head = sizeof(Elf64_Ehdr) + sizeof(Elf64_Shdr);
    unsigned state = (unsigned)number * 2654435761u + 1;
    quern_record *record = &sample->record;

    memset(sample, 0, sizeof *sample);
    sample->image = malloc(image_bytes);
    if (image_bytes < head || !sample->image) abort();
    for (size_t i = 0; i < image_bytes; i++)
        sample->image[i] = (unsigned char)((state = state * 1664525u + 1013904223u) >> 24);
    make_cubin_head(sample->image);
    snprintf(sample->key, sizeof sample->key, "source of kernel %d, with options", number);
    snprintf(sample->entry, sizeof sample->entry, "quern_test_%d", number);
    snprintf(sample->spec, sizeof sample->spec, "softmax_topk V=%d K=5 in=bf16", 1000 + number);
    record->size = sizeof *record;
    record->key = sample->key, record->key_bytes = strlen(sample->key);
    record->image = sample->image, record->image_bytes = image_bytes;
    record->toolchain = "nvrtc 13.0 build 5e6f", record->arch = "sm_90a";
    record->entry = sample->entry, record->spec = sample->spec;
    record->kind = 1, record->registers = 40 + number % 100, record->shared_bytes = 2048, record->local_bytes = 0;
    record->compile_us = 345678;
    cache_sample_sum(sample);
}

void cache_sample_sum(cache_sample *sample)
{
    quern_record *record = &sample->record;
    qn_hash hash = qn_hash_bytes(record->key, record->key_bytes);
    qn_hash sum = qn_hash_bytes(record->image, record->image_bytes);

    memcpy(record->hash, hash.bytes, sizeof hash.bytes);
    memcpy(record->sum, sum.bytes, sizeof sum.bytes);
}

void cache_sample_free(cache_sample *sample)
{
    free(sample->image);
}

// ---- stores

qn_sqlite_options cache_options(const char *file)
{
    return (qn_sqlite_options){.file = file, .busy_timeout_ms = 1000, .cap_bytes = -1};
}

static quern_store open_with(qn_sqlite_options options)
{
    quern_store store;

    if (qn_sqlite_open(&options, &store)) abort(); // also called in forked children, where an assert would go on
    return store;
}

quern_store cache_open(const char *file)
{
    return open_with(cache_options(file));
}

quern_store cache_open_read(const char *file)
{
    qn_sqlite_options options = cache_options(file);

    options.access = QN_SQLITE_READ_ONLY;
    return open_with(options);
}

typedef struct comparison {
    const quern_record *wanted;
    int calls;
    bool equal;
} comparison;

static bool equal_bytes(const void *a, size_t a_count, const void *b, size_t b_count)
{
    return a_count == b_count && a && b && !memcmp(a, b, a_count);
}

static int compare(void *user, const quern_record *found)
{
    comparison *to = user;
    const quern_record *wanted = to->wanted;

    to->calls++;
    to->equal = equal_bytes(wanted->key, wanted->key_bytes, found->key, found->key_bytes) &&
                equal_bytes(wanted->image, wanted->image_bytes, found->image, found->image_bytes) &&
                !memcmp(wanted->hash, found->hash, 16) && !memcmp(wanted->sum, found->sum, 16) &&
                !strcmp(wanted->toolchain, found->toolchain) && !strcmp(wanted->arch, found->arch) &&
                !strcmp(wanted->entry, found->entry) && !strcmp(wanted->spec, found->spec) &&
                wanted->kind == found->kind && wanted->registers == found->registers &&
                wanted->shared_bytes == found->shared_bytes && wanted->local_bytes == found->local_bytes &&
                wanted->compile_us == found->compile_us && found->created > 0 && found->used > 0;
    return 0;
}

quern_status cache_get_of(quern_store *store, const cache_sample *sample, const char *toolchain)
{
    comparison to = {.wanted = &sample->record};
    quern_status status = store->get(store->self, &sample->record, toolchain, compare, &to);

    if (status) return to.calls ? QUERN_INTERNAL : status;
    return to.calls == 1 && to.equal ? QUERN_OK : QUERN_INTERNAL;
}

quern_status cache_put(quern_store *store, int number)
{
    cache_sample sample;

    cache_sample_make(&sample, number, 5000);
    quern_status status = store->put(store->self, &sample.record);
    cache_sample_free(&sample);
    return status;
}

quern_status cache_get(quern_store *store, int number)
{
    cache_sample sample;

    cache_sample_make(&sample, number, 5000);
    quern_status status = cache_get_of(store, &sample, NULL);
    cache_sample_free(&sample);
    return status;
}

static int count_one(void *user, const quern_record *record)
{
    (void)record;
    ++*(int *)user;
    return 0;
}

int cache_count(quern_store *store)
{
    int count = 0;

    return store->list(store->self, 0, count_one, &count) ? -1 : count;
}

// ---- SQL

void cache_sql(const char *file, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;

    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message)) fail_msg("%s: %s: %s", file, sql, message);
    sqlite3_close(db);
}

int64_t cache_sql_int(const char *file, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) || sqlite3_step(statement) != SQLITE_ROW)
        fail_msg("%s: %s: %s", file, sql, sqlite3_errmsg(db));
    int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

// ---- processes

int cache_child_end(pid_t child)
{
    int status = 0;

    while (waitpid(child, &status, 0) < 0) assert_int_equal(errno, EINTR);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int cache_in_child(int (*work)(void *user), void *user)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (!child) _exit(work(user));
    return cache_child_end(child);
}

void cache_wait_until(const _Atomic int *value, int least, int seconds)
{
    for (int i = 0; atomic_load(value) < least; i++) {
        if (i > seconds * 1000) fail_msg("waited %d s for %d", seconds, least);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}
