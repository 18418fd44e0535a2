// SPDX-License-Identifier: Apache-2.0
// Dumps: what was compiled or taken from a store, as files of the folder that $QUERN_DUMP or options.dump_dir names.
// Called by obtain.c.
//
//   <entry>.<arch>.<8 digits of the key's hash>.cu      the text that the compiler gets
//                                              .cubin   the image
//                                              .txt     options, compiler, resources, where it came from, compiler's log
//
//   (1) A file is whole or not there: it is written beside its place and moved.
//   (2) A dump that fails is one warning, nobody's failure.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/write.h"
#include "runtime/private.h"

static bool put_file(const char *path, const void *bytes, size_t count)
{
    qn_text beside = QN_TEXT_INIT;
    bool done = false;
    qn_text_putf(&beside, "%s.XXXXXX", path);
    int fd = beside.failed ? -1 : mkostemp(beside.bytes, O_CLOEXEC);
    if (fd >= 0) {
        done = qn_write_all(fd, bytes, count);
        done &= close(fd) == 0;
        done = done && rename(beside.bytes, path) == 0;
        int error = errno;
        if (!done) unlink(beside.bytes);
        errno = error;
    }
    qn_text_fini(&beside);
    return done;
}

static void put_header_list(const qn_work *work, qn_text *text)
{
    const qn_extras *extras = work->extras;
    for (size_t i = 0; extras && i < extras->header_count; i++)
        qn_text_putf(text, "header     %s, %zu bytes\n", extras->header_names[i], strlen(extras->header_texts[i]));
    if (extras && extras->digest_bytes) qn_text_putf(text, "digest     %zu bytes\n", extras->digest_bytes);
}

static void describe(const quern *q, const qn_work *work, const char *log, qn_text *text)
{
    static const char *const origins[] = {"compiled", "memory", "a sealed database", "the user's database"};
    qn_options options;
    char hex[33];
    qn_hash_hex(&work->hash, hex);
    qn_compile_options(q, work->arch, work->extras, &options);
    qn_text_putf(text, "spec       %s\narch       %s\nkernel     %s\nkey        %s\noptions   ", work->spec_text,
                 work->arch->name, work->entry_name, hex);
    for (size_t i = 0; i < options.count; i++) qn_text_putf(text, " %s", options.item[i]);
    qn_text_puts(text, "\n");
    put_header_list(work, text);
    if (work->entry) {
        const qn_image *image = &work->entry->image;
        qn_text_putf(text, "compiler   %s\nfrom       %s\nregisters  %d\nshared     %d bytes\nlocal      %d bytes\n",
                     work->entry->toolchain, origins[work->origin], image->registers, image->shared_bytes,
                     image->local_bytes);
        qn_text_putf(text, "compiled   in %lld us\n", (long long)image->compile_us);
    }
    if (log && *log) qn_text_putf(text, "\n%s\n", log);
}

static bool dump(const quern *q, const qn_work *work, const char *log)
{
    char hex[33];
    qn_text base = QN_TEXT_INIT, path = QN_TEXT_INIT, text = QN_TEXT_INIT;
    if (mkdir(q->dump_dir, 0700) != 0 && errno != EEXIST) return false;
    qn_hash_hex(&work->hash, hex);
    qn_text_putf(&base, "%s/%s.%s.%.8s", q->dump_dir, work->entry_name, work->arch->name, hex);
    describe(q, work, log, &text);
    qn_text_putf(&path, "%s.cu", qn_text_string(&base));
    bool done = !base.failed && !path.failed && put_file(path.bytes, work->source, work->source_bytes);
    qn_text_clear(&path);
    qn_text_putf(&path, "%s.txt", qn_text_string(&base));
    done = done && !path.failed && !text.failed && put_file(path.bytes, text.bytes, text.length);
    qn_text_clear(&path);
    qn_text_putf(&path, "%s.cubin", qn_text_string(&base));
    if (work->entry && done) {
        const qn_text *image = &work->entry->image.bytes;
        done = !path.failed && put_file(path.bytes, image->bytes, image->length);
    }
    int error = errno;
    qn_text_fini(&base);
    qn_text_fini(&path);
    qn_text_fini(&text);
    errno = error;
    return done;
}

void qn_work_dump(quern *q, const qn_work *work, const char *log)
{
    if (!q->dump_dir || dump(q, work, log)) return;
    qn_warn_once(q, QN_WARN_DUMP, "compile", "%s: dumping %s: %s", q->dump_dir, work->entry_name, strerror(errno));
}
