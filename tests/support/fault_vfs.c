// SPDX-License-Identifier: Apache-2.0
// A shim around SQLite's default VFS; see the header. Called by the cache's fault tests.
#include "support/fault_vfs.h"

#include <errno.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct fault_file {
    sqlite3_file base;
    sqlite3_file *real; // behind this structure
} fault_file;

static sqlite3_vfs *real_vfs;
static fault_plan plan;
static int64_t count;
static _Atomic int64_t reads;

void fault_vfs_set(fault_plan new_plan)
{
    plan = new_plan;
    count = 0;
}

int64_t fault_vfs_count(void)
{
    return count;
}

int64_t fault_vfs_count_reads(void)
{
    return atomic_exchange(&reads, 0);
}

// Counts a call; true if it is one at which something happens.
static bool strikes(fault_kind kind)
{
    if (!(plan.kinds & kind)) return false;
    count++;
    return plan.at && (count == plan.at || (plan.for_ever && count > plan.at));
}

// What happens; 0: the call goes on.
static int strike(void)
{
    if (plan.signal) raise(plan.signal);
    if (plan.hook) plan.hook(plan.user);
    if (plan.code) errno = plan.error;
    return plan.code;
}

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((fault_file *)file)->real;
}

static int file_close(sqlite3_file *file)
{
    return real_of(file)->pMethods->xClose(real_of(file));
}

static int file_read(sqlite3_file *file, void *bytes, int n, sqlite3_int64 at)
{
    reads++;
    return real_of(file)->pMethods->xRead(real_of(file), bytes, n, at);
}

static int file_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 at)
{
    if (strikes(FAULT_WRITE)) {
        if (plan.torn) real_of(file)->pMethods->xWrite(real_of(file), bytes, n / 2, at);
        int code = strike();
        if (code) return code;
    }
    return real_of(file)->pMethods->xWrite(real_of(file), bytes, n, at);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int code = strikes(FAULT_TRUNCATE) ? strike() : 0;

    return code ? code : real_of(file)->pMethods->xTruncate(real_of(file), size);
}

// No power is cut here, only processes die: what was written needs no disk to survive, and the loops stay short.
static int file_sync(sqlite3_file *file, int flags)
{
    (void)file, (void)flags;
    return strikes(FAULT_SYNC) ? strike() : SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int file_lock(sqlite3_file *file, int kind)
{
    return real_of(file)->pMethods->xLock(real_of(file), kind);
}

static int file_unlock(sqlite3_file *file, int kind)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), kind);
}

static int file_check_lock(sqlite3_file *file, int *result)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), result);
}

static int file_control(sqlite3_file *file, int what, void *argument)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), what, argument);
}

static int file_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int file_device(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_device,
};

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    fault_file *shim = (fault_file *)file;
    int code = (flags & SQLITE_OPEN_READWRITE) && strikes(FAULT_OPEN) ? strike() : 0;

    (void)vfs;
    memset(shim, 0, sizeof *shim);
    shim->real = (sqlite3_file *)(shim + 1);
    if (!code) code = real_vfs->xOpen(real_vfs, name, shim->real, flags, out_flags);
    if (!code) shim->base.pMethods = &methods;
    return code;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync_directory)
{
    int code = strikes(FAULT_DELETE) ? strike() : 0;

    (void)vfs;
    return code ? code : real_vfs->xDelete(real_vfs, name, sync_directory);
}

void fault_vfs_install(void)
{
    static sqlite3_vfs vfs;

    if (real_vfs) return;
    if (sqlite3_initialize()) abort();
    real_vfs = sqlite3_vfs_find(NULL);
    vfs = *real_vfs;
    vfs.zName = "fault";
    vfs.szOsFile = (int)sizeof(fault_file) + real_vfs->szOsFile;
    vfs.xOpen = vfs_open;
    vfs.xDelete = vfs_delete;
    if (sqlite3_vfs_register(&vfs, 1)) abort();
}
