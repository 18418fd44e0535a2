/* SPDX-License-Identifier: Apache-2.0
 * A store of one's own in place of the SQLite database: a folder with a file for each kernel, as an object store or a shared
 * file server would have. Quern checks what comes back (the whole key, the image's sum), so the store need not. Usage:
 *     custom_store FOLDER [ARCH]
 * Warms one spec twice, with two querns: the second finds what the first compiled. Needs no GPU. */
#include <errno.h>
#include <quern/quern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file: the numbers of the record, then key, image and the three strings. */
typedef struct head {
    uint64_t key_bytes, image_bytes;
    int32_t kind, registers, shared_bytes, local_bytes;
    int64_t compile_us;
    unsigned char hash[16], sum[16];
    char toolchain[96], arch[16], entry[96];
} head;

static void path_of(const char *folder, const unsigned char hash[16], char path[4096])
{
    int used = snprintf(path, 4000, "%s/", folder);
    for (int i = 0; i < 16; i++) used += snprintf(path + used, 4096 - (size_t)used, "%02x", hash[i]);
}

static quern_status get(void *self, const quern_record *wanted, const char *toolchain, quern_record_fn found,
                        void *user)
{
    char path[4096];
    head h;
    path_of(self, wanted->hash, path);
    FILE *file = fopen(path, "rb");
    if (!file) return errno == ENOENT ? QUERN_NOT_FOUND : QUERN_STORE_IO;
    quern_status status = QUERN_STORE_CORRUPT;
    void *key = NULL, *image = NULL;
    if (fread(&h, sizeof h, 1, file) == 1 && h.key_bytes < 1 << 28 && h.image_bytes < 1 << 28) {
        key = malloc(h.key_bytes + 1), image = malloc(h.image_bytes + 1);
        if (key && image && fread(key, 1, h.key_bytes, file) == h.key_bytes &&
            fread(image, 1, h.image_bytes, file) == h.image_bytes)
            status = QUERN_OK;
    }
    fclose(file);
    if (status == QUERN_OK && toolchain && strncmp(toolchain, h.toolchain, sizeof h.toolchain) != 0)
        status = QUERN_NOT_FOUND;
    if (status == QUERN_OK) {
        quern_record record = *wanted;
        record.key = key, record.key_bytes = h.key_bytes;
        record.image = image, record.image_bytes = h.image_bytes;
        record.toolchain = h.toolchain, record.arch = h.arch, record.entry = h.entry;
        record.kind = h.kind, record.registers = h.registers, record.shared_bytes = h.shared_bytes;
        record.local_bytes = h.local_bytes, record.compile_us = h.compile_us;
        memcpy(record.sum, h.sum, sizeof record.sum);
        found(user, &record);
    }
    free(key);
    free(image);
    return status;
}

/* Whole or not at all: written beside its place, then moved. */
static quern_status put(void *self, const quern_record *record)
{
    char path[4096], beside[4096 + 32];
    head h = {.key_bytes = record->key_bytes,
              .image_bytes = record->image_bytes,
              .kind = record->kind,
              .registers = record->registers,
              .shared_bytes = record->shared_bytes,
              .local_bytes = record->local_bytes,
              .compile_us = record->compile_us};
    memcpy(h.hash, record->hash, sizeof h.hash);
    memcpy(h.sum, record->sum, sizeof h.sum);
    snprintf(h.toolchain, sizeof h.toolchain, "%s", record->toolchain);
    snprintf(h.arch, sizeof h.arch, "%s", record->arch);
    snprintf(h.entry, sizeof h.entry, "%s", record->entry);
    path_of(self, record->hash, path);
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(beside, "wb");
    if (!file) return QUERN_STORE_READ_ONLY;
    int good = fwrite(&h, sizeof h, 1, file) == 1 && fwrite(record->key, 1, h.key_bytes, file) == h.key_bytes &&
               fwrite(record->image, 1, h.image_bytes, file) == h.image_bytes;
    good &= fclose(file) == 0;
    if (good && rename(beside, path) == 0) return QUERN_OK;
    remove(beside);
    return QUERN_STORE_FULL;
}

static quern_status drop(void *self, const quern_record *record)
{
    char path[4096];
    path_of(self, record->hash, path);
    return remove(path) == 0 || errno == ENOENT ? QUERN_OK : QUERN_STORE_IO;
}

static int warm(const quern_store *store, const char *arch, quern_warm_report *report)
{
    quern *q = NULL;
    quern_options options = QUERN_OPTIONS_INIT;
    quern_gate_spec spec = QUERN_GATE_SPEC_INIT;
    options.store = store;
    spec.E = 64, spec.K = 6, spec.in = QUERN_F32;
    quern_status status = quern_open(&options, &q);
    if (status == QUERN_OK) status = quern_warm(q, &spec.base, arch, report);
    if (status != QUERN_OK) fprintf(stderr, "%s: %s\n", quern_status_name(status), quern_message());
    quern_close(q);
    return status == QUERN_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc < 2) return fprintf(stderr, "usage: custom_store FOLDER [ARCH]\n"), 1;
    const char *arch = argc > 2 ? argv[2] : "sm_90a";
    if (mkdir(argv[1], 0700) != 0 && errno != EEXIST) return perror(argv[1]), 1;
    quern_store store = {sizeof store, argv[1], get, put, NULL, drop};
    quern_warm_report first = QUERN_WARM_REPORT_INIT, second = QUERN_WARM_REPORT_INIT;
    if (warm(&store, arch, &first) || warm(&store, arch, &second)) return 1;
    printf("first: %d compiled, %d kept, %d found; second: %d compiled, %d found\n", first.compiled, first.stored,
           first.cached, second.compiled, second.cached);
    return second.compiled || first.stored != first.compiled ? 2 : 0;
}
