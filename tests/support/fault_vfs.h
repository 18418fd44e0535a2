// SPDX-License-Identifier: Apache-2.0
// An SQLite file system that fails, kills or forks at a chosen call: full disks, dying disks and crashes by counting.
// Installed as the default, under the store's code as it is. Not thread-safe; forked children inherit the plan.
#ifndef TESTS_SUPPORT_FAULT_VFS_H
#define TESTS_SUPPORT_FAULT_VFS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fault_kind {
    FAULT_WRITE = 1,
    FAULT_SYNC = 2,
    FAULT_TRUNCATE = 4,
    FAULT_DELETE = 8, // of the journal: what commits a transaction
    FAULT_OPEN = 16,  // of a file to be written
    FAULT_EVERY = 31
} fault_kind;

typedef struct fault_plan {
    unsigned kinds; // calls that count
    int64_t at;     // the call, from 1, at which it happens; 0: never, calls are only counted
    bool for_ever;  // and at all calls after it
    bool torn;      // a write writes its first half before
    int code;       // what SQLite is told (SQLITE_FULL, SQLITE_IOERR_FSYNC …); 0: the call goes on after hook
    int error;      // and errno
    int signal;     // raised (SIGKILL: a crash)
    void (*hook)(void *user);
    void *user;
} fault_plan;

void fault_vfs_install(void);
void fault_vfs_set(fault_plan plan); // and counts from 0; fault_vfs_set((fault_plan){0}) = no fault
int64_t fault_vfs_count(void);
int64_t fault_vfs_count_reads(void); // of files, since the last call of this

#endif
