// SPDX-License-Identifier: Apache-2.0
// The refusing allocator; see the header. Linked into the tests that ask for it only, since it needs --wrap.
#include "support/fault_memory.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/fault_count.h"
#include "support/load.h"

enum { MAX_LIVE = 1 << 16 };

static struct {
    bool armed, for_ever, is_restored;
    unsigned whose;    // allocations that count
    int64_t at, count; // the one that is refused, from 1; those that were asked for
    size_t live;       // made while armed and not freed
    const void *block[MAX_LIVE];
} memory;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void __wrap_free(void *block);

// True inside SQLite's allocator, whose malloc comes through here too where SQLite is linked statically.
static bool in_sqlite;

static bool is_refused(unsigned whose)
{
    if (in_sqlite) return false;
    if (!memory.armed || !(memory.whose & whose)) return false;
    memory.count++;
    if (memory.is_restored) return false;
    if (memory.count != memory.at && !(memory.for_ever && memory.count > memory.at)) return false;
    errno = ENOMEM;
    return true;
}

static void *note(const void *block)
{
    if (!memory.armed || in_sqlite || !block) return (void *)(uintptr_t)block;
    if (memory.live == MAX_LIVE) abort();
    memory.block[memory.live++] = block;
    return (void *)(uintptr_t)block;
}

static void forget(const void *block)
{
    for (size_t i = memory.live; block && i-- > 0;) {
        if (memory.block[i] != block) continue;
        memory.block[i] = memory.block[--memory.live];
        return;
    }
}

void *__wrap_malloc(size_t bytes)
{
    return is_refused(FAULT_LIBRARY) ? NULL : note(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return is_refused(FAULT_LIBRARY) ? NULL : note(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *block, size_t bytes)
{
    if (is_refused(FAULT_LIBRARY)) return NULL;
    forget(block);
    return note(__real_realloc(block, bytes));
}

void __wrap_free(void *block)
{
    forget(block);
    __real_free(block);
}

// SQLite's are tracked by SQLite itself (sqlite3_memory_used).
static sqlite3_mem_methods sqlite_methods;

static void *sqlite_malloc(int bytes)
{
    if (is_refused(FAULT_SQLITE)) return NULL;
    in_sqlite = true;
    void *block = sqlite_methods.xMalloc(bytes);
    in_sqlite = false;
    return block;
}

static void *sqlite_realloc(void *old, int bytes)
{
    if (is_refused(FAULT_SQLITE)) return NULL;
    in_sqlite = true;
    void *block = sqlite_methods.xRealloc(old, bytes);
    in_sqlite = false;
    return block;
}

void fault_memory_hook_sqlite(void)
{
    sqlite3_mem_methods mine;

    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_methods)) abort();
    mine = sqlite_methods;
    mine.xMalloc = sqlite_malloc;
    mine.xRealloc = sqlite_realloc;
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &mine)) abort();
}

void fault_memory_begin(unsigned whose, int64_t at, bool for_ever)
{
    memory.whose = whose, memory.at = at, memory.for_ever = for_ever, memory.count = 0, memory.live = 0;
    memory.armed = true;
}

int64_t fault_memory_restore(void)
{
    memory.is_restored = true;
    return memory.count;
}

size_t fault_memory_end(void)
{
    memory.armed = memory.is_restored = false;
    return memory.live;
}

const char *fault_memory_name(void)
{
    static char name[64];

    snprintf(name, sizeof name, "allocation %lld%s", (long long)memory.at, memory.for_ever ? " and on" : "");
    return name;
}

void fault_memory_each(fault_memory_fn try, unsigned whose, bool for_ever, int64_t stride, const char *kind)
{
    bool reached = true;

    try(whose, FAULT_NEVER, for_ever); // what is made once a process is made
    if (load_is_sanitized()) stride *= 7;
    if (getenv("QUERN_TEST_LONG")) stride = 1;
    for (int64_t at = 1; reached; at += stride) {
        fault_tried(kind);
        reached = try(whose, at, for_ever) >= at;
        fault_survived(kind);
    }
}
