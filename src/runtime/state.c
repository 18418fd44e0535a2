// SPDX-License-Identifier: Apache-2.0
// What belongs to one process of a quern: its locks, flights and open stores. A forked child is recognised by its pid on
// the slow path and gets a new one with the same stores; the rest of its parent's is left alone, since a thread that no
// longer exists may hold its locks.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "runtime/private.h"

enum { RETRY_MS = 1000 };

static qn_process *process_new(void)
{
    qn_process *process = calloc(1, sizeof *process);
    pthread_condattr_t attributes;
    if (!process) return NULL;
    process->pid = getpid();
    pthread_mutex_init(&process->lock, NULL);
    pthread_mutex_init(&process->load_lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&process->landed, &attributes);
    pthread_condattr_destroy(&attributes);
    return process;
}

static void process_delete(qn_process *process)
{
    pthread_cond_destroy(&process->landed);
    pthread_mutex_destroy(&process->load_lock);
    pthread_mutex_destroy(&process->lock);
    free(process->lock_file);
    free(process);
}

// A child keeps the stores that were open: each makes a connection of its own, and refuses to where the fork happened
// inside the parent's (cache/sqlite_store.c), which a store opened anew could not know.
static void inherit_stores(const quern *q, qn_process *child, const qn_process *parent)
{
    if (!parent || parent->stores != QN_STORES_OPEN) return;
    for (size_t i = 0; i <= q->sealed_count; i++) child->is_open[i] = atomic_load(&parent->is_open[i]);
    memcpy(child->sealed, parent->sealed, sizeof child->sealed);
    if (child->is_open[q->sealed_count]) {
        child->user = parent->user;
        child->user_is_sqlite = parent->user_is_sqlite;
        child->user_is_writable = parent->user_is_writable;
        child->lock_file = qn_strdup(parent->lock_file);
    }
    child->stores = QN_STORES_OPEN;
    child->retry_ms = 1; // what is not open, this process tries for itself
}

qn_process *qn_process_of(quern *q)
{
    qn_process *current = atomic_load_explicit(&q->process, memory_order_acquire);
    if (current && current->pid == getpid()) return current;
    qn_process *fresh = process_new();
    if (!fresh) {
        qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: the state of a process needs %zu bytes", sizeof *fresh);
        return NULL;
    }
    bool forked = current != NULL;
    inherit_stores(q, fresh, current);
    if (!atomic_compare_exchange_strong(&q->process, &current, fresh)) {
        process_delete(fresh); // another thread of this process was first
        return current;
    }
    if (forked) qn_locks_inherited(q);
    return fresh;
}

// After a fork the parent's state stays as it is: its mutexes may be locked. Its stores are the child's by then.
void qn_process_free(quern *q, qn_process *process)
{
    if (process->pid != getpid()) return;
    for (size_t i = 0; i < q->sealed_count; i++)
        if (process->is_open[i]) qn_sqlite_close(&process->sealed[i]);
    if (process->is_open[q->sealed_count] && process->user_is_sqlite) qn_sqlite_close(&process->user);
    for (qn_bad *bad = process->bad, *next; bad; bad = next) {
        next = bad->next;
        free(bad);
    }
    process_delete(process);
}

// ---- stores

// The directory of the user's database, made when it may be written; and the file.
static quern_status prepare_directory(const quern *q, bool writable)
{
    const char *slash = strrchr(q->cache_file, '/');
    qn_text directory = QN_TEXT_INIT;
    qn_text_put(&directory, q->cache_file, slash == q->cache_file ? 1 : (size_t)(slash - q->cache_file));
    quern_status status = qn_text_check(&directory);
    if (status == QUERN_OK)
        status = writable ? qn_directory_prepare(directory.bytes) : qn_directory_check(directory.bytes);
    if (status == QUERN_OK) status = qn_file_check(q->cache_file);
    qn_text_fini(&directory);
    return status;
}

static void open_lock_file(const quern *q, qn_process *process)
{
    const char *kind;
    if (!process->user_is_writable || q->flight_timeout_ms < 0) return;
    if (!q->allow_network_fs && qn_is_network_fs(q->cache_file, &kind)) return;
    qn_text name = QN_TEXT_INIT;
    qn_text_puts(&name, q->cache_file);
    qn_text_puts(&name, ".lock");
    if (!name.failed) process->lock_file = qn_strdup(name.bytes);
    qn_text_fini(&name);
}

// A tier is open, or never will be: false only if trying again may help (no descriptors, no memory, a folder that others
// are about to make).
static bool is_settled(quern_status status)
{
    return status == QUERN_OK || status == QUERN_UNSAFE_PATH;
}

static void publish(qn_process *process, size_t tier)
{
    atomic_store_explicit(&process->is_open[tier], true, memory_order_release);
}

static bool open_user(quern *q, qn_process *process)
{
    bool writable = q->mode == QUERN_MODE_NORMAL;
    if (q->has_custom_store) {
        process->user = q->custom_store;
        process->user_is_writable = writable;
        publish(process, q->sealed_count);
        return true;
    }
    if (!q->cache_file || (!writable && !qn_file_exists(q->cache_file))) return true;
    quern_status status = prepare_directory(q, writable);
    qn_sqlite_options options = {
        .file = q->cache_file,
        .access = writable ? QN_SQLITE_READ_WRITE : QN_SQLITE_READ_ONLY,
        .busy_timeout_ms = q->busy_timeout_ms < 0 ? 0 : q->busy_timeout_ms,
        .cap_bytes = q->cap_bytes,
        .allow_network_fs = q->allow_network_fs,
        .log = &q->log,
    };
    if (status == QUERN_OK) status = qn_sqlite_open(&options, &process->user);
    if (status != QUERN_OK) {
        qn_warn_once(q, QN_WARN_CACHE, "cache", "%s is not used, kernels are kept in memory: %s", q->cache_file,
                     quern_message());
        return is_settled(status);
    }
    process->user_is_sqlite = true;
    process->user_is_writable = writable;
    open_lock_file(q, process);
    publish(process, q->sealed_count);
    return true;
}

static bool open_sealed(quern *q, qn_process *process, size_t index)
{
    qn_sqlite_options options = {
        .file = q->sealed[index],
        .access = QN_SQLITE_READ_ONLY,
        .busy_timeout_ms = q->busy_timeout_ms < 0 ? 0 : q->busy_timeout_ms,
        .cap_bytes = -1,
        .allow_network_fs = q->allow_network_fs,
        .log = &q->log,
    };
    quern_status status = qn_file_check_named(q->sealed[index]);
    if (status == QUERN_OK) status = qn_sqlite_open(&options, &process->sealed[index]);
    if (status == QUERN_OK)
        publish(process, index);
    else
        qn_warn_once(q, QN_WARN_SEALED, "cache", "%s is not used: %s", q->sealed[index], quern_message());
    return is_settled(status);
}

// By one thread at a time.
static void open_missing(quern *q, qn_process *process)
{
    qn_message_mark mark;
    bool settled = true;
    qn_message_save(&mark);
    for (size_t i = 0; i < q->sealed_count; i++)
        if (!process->is_open[i]) settled &= open_sealed(q, process, i);
    if (!process->is_open[q->sealed_count]) settled &= open_user(q, process);
    qn_message_restore(&mark);
    atomic_store(&process->retry_ms, settled ? 0 : qn_now_ms() + RETRY_MS);
}

static void retry(quern *q, qn_process *process)
{
    int64_t due = atomic_load_explicit(&process->retry_ms, memory_order_relaxed);
    if (!due || qn_now_ms() < due) return;
    if (atomic_compare_exchange_strong(&process->retry_ms, &due, 0)) open_missing(q, process);
}

void qn_process_open_stores(quern *q, qn_process *process)
{
    pthread_mutex_lock(&process->lock);
    while (process->stores == QN_STORES_OPENING) pthread_cond_wait(&process->landed, &process->lock);
    bool mine = process->stores == QN_STORES_CLOSED;
    if (mine) process->stores = QN_STORES_OPENING;
    pthread_mutex_unlock(&process->lock);
    if (!mine) {
        retry(q, process);
        return;
    }
    open_missing(q, process);
    pthread_mutex_lock(&process->lock);
    process->stores = QN_STORES_OPEN;
    pthread_cond_broadcast(&process->landed);
    pthread_mutex_unlock(&process->lock);
}
