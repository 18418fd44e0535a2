// SPDX-License-Identifier: Apache-2.0
// The model's device memory: a file in memory, mapped at one of a few fixed addresses in this process and in the runner.
// Buffers end as close to the end of a page as their alignment lets them, with unused pages around.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/protocol.h"
#include "model_private.h"

enum { PAGE = 4096, ROOM = 64 << 10, RESIDUE = 256 };

static void *map_window(int fd)
{
    for (unsigned i = 0; i < QN_MODEL_WINDOWS; i++) {
        void *address = (void *)(uintptr_t)(QN_MODEL_WINDOW + i * QN_MODEL_WINDOW_BYTES);
        void *p = mmap(address, QN_MODEL_WINDOW_BYTES, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, 0);
        if (p == address) return p;
        if (p != MAP_FAILED) munmap(p, QN_MODEL_WINDOW_BYTES); // a kernel that knows no NOREPLACE
    }
    return NULL;
}

quern_status model_memory_open(model_memory *memory)
{
    memset(memory, 0, sizeof *memory);
    memory->fd = memfd_create("quern model", MFD_CLOEXEC);
    if (memory->fd < 0 || ftruncate(memory->fd, (off_t)QN_MODEL_WINDOW_BYTES) != 0) {
        return qn_fail(QUERN_UNSUPPORTED, "the model's device memory: a file of %llu bytes in memory: %s",
                       QN_MODEL_WINDOW_BYTES, strerror(errno));
    }
    memory->begin = map_window(memory->fd);
    if (memory->begin) return QUERN_OK;
    return qn_fail(QUERN_UNSUPPORTED, "the model's device memory: none of the %d address ranges from 0x%llx on is free",
                   QN_MODEL_WINDOWS, QN_MODEL_WINDOW);
}

void model_memory_close(model_memory *memory)
{
    if (memory->begin) munmap(memory->begin, QN_MODEL_WINDOW_BYTES);
    if (memory->fd > 0) close(memory->fd);
    memset(memory, 0, sizeof *memory);
}

void *model_alloc(model *m, const char *name, size_t bytes, const void *like, bool input)
{
    model_memory *memory = &m->memory;
    size_t span = (bytes + RESIDUE + PAGE - 1) / PAGE * PAGE;
    if (memory->count == MODEL_MAX_BUFFERS || bytes > QN_MODEL_WINDOW_BYTES ||
        memory->used + span + 2 * ROOM > QN_MODEL_WINDOW_BYTES)
        return NULL;
    unsigned char *end = memory->begin + memory->used + ROOM + span;
    unsigned char *begin = end - bytes;
    begin -= ((uintptr_t)begin - (uintptr_t)like) % RESIDUE;
    model_buffer *b = &memory->buffer[memory->count++];
    snprintf(b->name, sizeof b->name, "%s", name);
    b->begin = begin, b->bytes = bytes, b->input = input;
    memory->used += ROOM + span;
    return begin;
}

void model_free(model *m)
{
    model_memory *memory = &m->memory;
    // Giving the file's pages back makes them zero for whoever comes next.
    if (memory->used) {
        if (ftruncate(memory->fd, 0) != 0 || ftruncate(memory->fd, (off_t)QN_MODEL_WINDOW_BYTES) != 0) {
            memset(memory->begin, 0, memory->used);
        }
    }
    memory->used = memory->count = 0;
}
