// SPDX-License-Identifier: Apache-2.0
// One compile a key. Between the threads of a process by a list and a condition variable; between processes by an OFD
// lock on one byte of <database>.lock, at an offset made from the key's hash. Called by obtain.c,
// and by state.c in a forked child.
//   (1) Nobody needs it to be right: without the lock two processes compile the same kernel, and both results are good.
//   (2) The kernel drops a dead process's lock; a stopped process's is waited for up to the time limit.
//   (3) A failed flight leaves nothing behind; those who waited for it get its status and message.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/private.h"

enum { WAIT_SLICE_MS = 20, POLL_FIRST_US = 500, POLL_LAST_US = 20000 };

// ---- threads

struct qn_flight {
    qn_hash hash;
    size_t waiting;
    bool landed;
    quern_status status;
    char *message;
    qn_flight *next;
};

static qn_flight *find(qn_process *process, const qn_hash *hash)
{
    for (qn_flight *flight = process->flights; flight; flight = flight->next)
        if (!memcmp(flight->hash.bytes, hash->bytes, sizeof hash->bytes)) return flight;
    return NULL;
}

static void forget(qn_flight *flight)
{
    free(flight->message);
    free(flight);
}

// Waits for another thread's flight, in slices so that the caller's cancel is heard.
static quern_status wait_for(quern *q, qn_process *process, qn_flight *flight)
{
    quern_status status = QUERN_OK;
    flight->waiting++;
    while (!flight->landed && status == QUERN_OK) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += WAIT_SLICE_MS * 1000000L;
        if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
        pthread_cond_timedwait(&process->landed, &process->lock, &until);
        if (flight->landed || !q->cancel) continue;
        pthread_mutex_unlock(&process->lock);
        if (q->cancel(q->cancel_user))
            status = qn_fail(QUERN_CANCELLED, "cancelled by the caller while another thread compiled the kernel");
        pthread_mutex_lock(&process->lock);
    }
    if (status == QUERN_OK && flight->status != QUERN_OK) {
        status = flight->status;
        qn_fail(status, "%s", flight->message ? flight->message : quern_status_text(status));
    }
    if (!--flight->waiting && flight->landed) forget(flight);
    return status;
}

bool qn_flight_join(quern *q, qn_process *process, const qn_hash *hash, quern_status *status)
{
    *status = QUERN_OK;
    pthread_mutex_lock(&process->lock);
    qn_flight *flight = find(process, hash);
    if (flight) {
        QN_TALLY(q, flight_waits, 1);
        *status = wait_for(q, process, flight);
    } else if ((flight = calloc(1, sizeof *flight))) {
        flight->hash = *hash;
        flight->next = process->flights;
        process->flights = flight;
        pthread_mutex_unlock(&process->lock);
        return true;
    } else {
        *status = qn_fail(QUERN_OUT_OF_MEMORY, "out of memory: no room for a compile's record");
    }
    pthread_mutex_unlock(&process->lock);
    return false;
}

void qn_flight_land(qn_process *process, const qn_hash *hash, quern_status status)
{
    pthread_mutex_lock(&process->lock);
    qn_flight **at = &process->flights;
    while (*at && memcmp((*at)->hash.bytes, hash->bytes, sizeof hash->bytes)) at = &(*at)->next;
    qn_flight *flight = *at;
    if (flight) {
        *at = flight->next;
        flight->landed = true;
        flight->status = status;
        if (status != QUERN_OK && flight->waiting) flight->message = qn_strdup(quern_message());
        if (!flight->waiting) forget(flight);
        pthread_cond_broadcast(&process->landed);
    }
    pthread_mutex_unlock(&process->lock);
}

// ---- processes

// Lock bytes lie in the upper half of the offsets; the lower half is the store's own.
static off_t offset_of(const qn_hash *hash)
{
    uint64_t word;
    memcpy(&word, hash->bytes, sizeof word);
    return (off_t)(word >> 2 | (uint64_t)1 << 62);
}

static bool set_lock(int fd, off_t offset, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// Notes the descriptor where a forked child finds it. No free slot: the time limit covers the rest.
static int take_slot(quern *q, int fd, const struct stat *info)
{
    uint64_t owner = (uint64_t)(uint32_t)getpid() << 32 | (uint32_t)(fd + 1);
    for (int i = 0; i < QN_LOCK_SLOTS; i++) {
        qn_lock_slot *slot = &q->lock_slots[i];
        uint64_t none = 0;
        if (!atomic_compare_exchange_strong(&slot->owner, &none, owner)) continue;
        atomic_store(&slot->device, (uint64_t)info->st_dev);
        atomic_store(&slot->inode, (uint64_t)info->st_ino);
        return i;
    }
    return -1;
}

// OFD locks survive in a child, as it shares the description: it closes what other threads of the parent held, unless it
// has put the number to another use meanwhile.
void qn_locks_inherited(quern *q)
{
    for (int i = 0; i < QN_LOCK_SLOTS; i++) {
        qn_lock_slot *slot = &q->lock_slots[i];
        uint64_t owner = atomic_load(&slot->owner);
        if (!owner || (pid_t)(owner >> 32) == getpid()) continue;
        int fd = (int)(uint32_t)owner - 1;
        struct stat info;
        bool is_ours = fstat(fd, &info) == 0 && atomic_load(&slot->device) == (uint64_t)info.st_dev &&
                       atomic_load(&slot->inode) == (uint64_t)info.st_ino;
        if (atomic_compare_exchange_strong(&slot->owner, &owner, 0) && is_ours) close(fd);
    }
}

static int open_lock_file(const qn_process *process, struct stat *info)
{
    int fd = open(process->lock_file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return -1;
    if (fstat(fd, info) == 0 && S_ISREG(info->st_mode)) {
        bool is_strange = info->st_uid == geteuid() && (info->st_mode & 07777) != 0600; // an odd umask made it so
        if (!is_strange || fchmod(fd, 0600) == 0) return fd;
    }
    close(fd);
    return -1;
}

// Polls: a wait inside the system cannot be given a time limit, nor be cancelled.
static quern_status poll_lock(quern *q, int fd, off_t offset, const char *what, qn_lock *lock, bool *held)
{
    int64_t until = qn_now_ms() + q->flight_timeout_ms;
    long pause_us = POLL_FIRST_US;
    while (!(*held = set_lock(fd, offset, F_WRLCK))) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) return QUERN_OK; // no such locks here
        if (!lock->waited) {
            lock->waited = true;
            QN_TALLY(q, flight_waits, 1);
            qn_log_line(&q->log, "compile", QUERN_LOG_INFO, "waiting for another process's compile of %s", what);
        }
        if (q->cancel && q->cancel(q->cancel_user))
            return qn_fail(QUERN_CANCELLED, "cancelled by the caller while another process compiled %s", what);
        if (qn_now_ms() >= until) {
            QN_TALLY(q, flight_timeouts, 1);
            qn_warn_once(q, QN_WARN_FLIGHT, "compile",
                         "another process's compile of %s is not over after %d ms: compiling it here too", what,
                         q->flight_timeout_ms);
            return QUERN_OK;
        }
        nanosleep(&(struct timespec){0, pause_us * 1000}, NULL);
        if (pause_us < POLL_LAST_US) pause_us *= 2;
    }
    return QUERN_OK;
}

quern_status qn_lock_take(quern *q, qn_process *process, const qn_hash *hash, const char *what, qn_lock *lock)
{
    *lock = (qn_lock){.fd = -1, .slot = -1};
    if (!atomic_load_explicit(&process->is_open[q->sealed_count], memory_order_acquire)) return QUERN_OK;
    if (!process->lock_file || atomic_load(&process->put_fails)) return QUERN_OK;
    struct stat info;
    int fd = open_lock_file(process, &info);
    if (fd < 0) return QUERN_OK;
    bool held = false;
    lock->slot = take_slot(q, fd, &info);
    lock->fd = fd;
    lock->offset = offset_of(hash);
    quern_status status = poll_lock(q, fd, lock->offset, what, lock, &held);
    if (!held) qn_lock_drop(q, lock);
    return status;
}

void qn_lock_drop(quern *q, qn_lock *lock)
{
    if (lock->fd < 0) return;
    set_lock(lock->fd, lock->offset, F_UNLCK); // a forked child may share the description: closing is not enough
    if (lock->slot >= 0) atomic_store(&q->lock_slots[lock->slot].owner, 0);
    close(lock->fd);
    lock->fd = lock->slot = -1;
}
