// SPDX-License-Identifier: Apache-2.0
// Folders and files of the model's host side (model_files.h).
#include "model_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/key.h"
#include "base/path.h"

enum { PATH_BYTES = 600, IN_USE_SECONDS = 600 };

// ---- the model's folder

static bool has_engine(const char *folder)
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/model/engine.h", folder);
    return qn_file_exists(path);
}

// The folder `up` levels above a file, with `below` added.
static void beside(const char *file, int up, const char *below, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s", file);
    for (; up > 0; up--) {
        char *slash = strrchr(path, '/');
        if (slash) *slash = 0;
    }
    size_t length = strlen(path);
    snprintf(path + length, PATH_BYTES - length, "%s", below);
}

quern_status model_files_folder(const char *templates, qn_text *folder)
{
    char installed[PATH_BYTES] = "", built[PATH_BYTES] = "", program[PATH_BYTES] = "";
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n > 0) beside(program, 2, "/share/quern/kernel_templates", installed);
    beside(__FILE__, 3, "/kernel_templates", built); // this file is tools/quern/model_files.c
    const char *named = templates ? templates : qn_environment("QUERN_TEMPLATES", false);
    const char *const tried[] = {named ? named : installed, named ? "" : built};
    for (size_t i = 0; i < QN_COUNT(tried); i++) {
        if (!*tried[i] || !has_engine(tried[i])) continue;
        qn_text_putf(folder, "%s/model", tried[i]);
        return qn_text_check(folder);
    }
    return qn_fail(QUERN_UNSUPPORTED,
                   "the functional model's files (model/engine.h) are not below %s%s%s; QUERN_TEMPLATES "
                   "names a folder that has them",
                   tried[0], *tried[1] ? " nor below " : "", tried[1]);
}

// ---- the cache

static quern_status make_temporary(qn_text *folder)
{
    const char *root = qn_environment("TMPDIR", false);
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/quern-model-XXXXXX", root ? root : "/tmp");
    if (!mkdtemp(path)) return qn_fail(QUERN_FILE_ERROR, "%s: %s", path, strerror(errno));
    qn_text_puts(folder, path);
    return qn_text_check(folder);
}

quern_status model_files_cache(const char *given, qn_text *folder, bool *temporary)
{
    *temporary = false;
    if (given) {
        qn_text_puts(folder, given);
        QN_TRY(qn_text_check(folder));
        return qn_directory_prepare(given);
    }
    qn_cache_directory(false, folder);
    if (folder->length) {
        // The cache folder first: who may write into it could put another folder in place of the model's.
        bool safe = qn_text_check(folder) == QUERN_OK && qn_directory_prepare(qn_text_string(folder)) == QUERN_OK;
        qn_text_puts(folder, "/model");
        if (safe && qn_text_check(folder) == QUERN_OK && qn_directory_prepare(qn_text_string(folder)) == QUERN_OK)
            return QUERN_OK;
        qn_text_clear(folder);
    }
    *temporary = true;
    return make_temporary(folder);
}

// ---- its bound

typedef struct kept {
    char name[256];
    time_t used;
    int64_t bytes; // a file of two names counts half under each
} kept;

typedef struct kept_list {
    kept *item;
    size_t count, capacity;
    int64_t bytes;
} kept_list;

static bool add_kept(kept_list *list, const char *name, const struct stat *info)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        kept *item = realloc(list->item, capacity * sizeof *item);
        if (!item) return false;
        list->item = item, list->capacity = capacity;
    }
    kept *added = &list->item[list->count++];
    snprintf(added->name, sizeof added->name, "%s", name);
    added->used = info->st_mtime;
    added->bytes = (int64_t)info->st_size / (info->st_nlink > 0 ? (int64_t)info->st_nlink : 1);
    list->bytes += added->bytes;
    return true;
}

// Objects and runners.
static void list_kept(const char *folder, kept_list *list)
{
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char path[PATH_BYTES + 256];
        struct stat info;
        size_t length = strlen(e->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (lstat(path, &info) != 0) continue;
        bool is_lock = length > 5 && !strcmp(e->d_name + length - 5, ".lock");
        if (S_ISREG(info.st_mode) && !is_lock && !add_kept(list, e->d_name, &info)) break;
    }
    if (d) closedir(d);
}

static int by_use(const void *a, const void *b)
{
    const kept *x = a, *y = b;
    return (x->used > y->used) - (x->used < y->used);
}

int64_t model_files_bytes(const char *folder)
{
    kept_list list = {NULL, 0, 0, 0};
    list_kept(folder, &list);
    free(list.item);
    return list.bytes;
}

void model_files_trim(const char *folder, int64_t cap_bytes)
{
    kept_list list = {NULL, 0, 0, 0};
    const time_t now = time(NULL);
    list_kept(folder, &list);
    if (list.count) qsort(list.item, list.count, sizeof *list.item, by_use);
    for (size_t i = 0; i < list.count && list.bytes > cap_bytes && list.item[i].used < now - IN_USE_SECONDS; i++) {
        char path[PATH_BYTES + 256];
        snprintf(path, sizeof path, "%s/%s", folder, list.item[i].name);
        if (unlink(path) == 0) list.bytes -= list.item[i].bytes;
    }
    free(list.item);
}

void model_files_use(const char *path)
{
    (void)utimensat(AT_FDCWD, path, NULL, 0);
}

// ---- lists of files

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

quern_status model_files_find(const char *folder, const char *suffix, model_files_list *list)
{
    DIR *d = opendir(folder);
    list->count = 0;
    if (!d) return qn_fail(QUERN_FILE_ERROR, "%s: %s", folder, strerror(errno));
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        size_t length = strlen(e->d_name), tail = strlen(suffix);
        if (length <= tail || length >= sizeof list->name[0] || strcmp(e->d_name + length - tail, suffix) != 0)
            continue;
        if (list->count == MODEL_FILES_MOST) {
            closedir(d);
            return qn_fail(QUERN_INTERNAL, "%s: more than %d files *%s", folder, MODEL_FILES_MOST, suffix);
        }
        memcpy(list->name[list->count++], e->d_name, length + 1);
    }
    closedir(d);
    qsort(list->name, list->count, sizeof list->name[0], by_name);
    return QUERN_OK;
}

quern_status model_files_put(const char *folder, const char *suffix, qn_text *key)
{
    model_files_list list;
    QN_TRY(model_files_find(folder, suffix, &list));
    for (size_t i = 0; i < list.count; i++) {
        char path[PATH_BYTES];
        qn_text content = QN_TEXT_INIT;
        snprintf(path, sizeof path, "%s/%s", folder, list.name[i]);
        quern_status status = qn_file_read(path, &content);
        if (status == QUERN_OK) {
            qn_key_put_string(key, 'n', list.name[i]);
            qn_key_put_bytes(key, 'f', content.bytes, content.length);
        }
        qn_text_fini(&content);
        if (status != QUERN_OK) return status;
    }
    return QUERN_OK;
}

// ---- files of a folder

quern_status model_files_write(const char *folder, const char *name, const char *bytes, size_t count)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wbe");
    bool ok = f && fwrite(bytes, 1, count, f) == count;
    if (f && fclose(f) != 0) ok = false;
    return ok ? QUERN_OK : qn_fail(QUERN_FILE_ERROR, "%s: %s", path, strerror(errno));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

void model_files_remove(const char *folder)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

quern_status model_files_complain(const char *folder, const char *what)
{
    char path[PATH_BYTES];
    qn_text log = QN_TEXT_INIT;
    snprintf(path, sizeof path, "%s/log", folder);
    quern_status read = qn_file_read(path, &log);
    while (log.length && log.bytes[log.length - 1] == '\n') log.bytes[--log.length] = 0;
    quern_status status =
        qn_fail(QUERN_COMPILE_FAILED, "%s: %.400s", what, read == QUERN_OK ? qn_text_string(&log) : "(no log)");
    qn_text_fini(&log);
    return status;
}
