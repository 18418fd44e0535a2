// SPDX-License-Identifier: Apache-2.0
// Repair: the damaged file's bytes are copied to FILE.broken-<n>, the file is made an empty database in its place, and
// what can be read of the copy goes back into it. Called by the command only, on a person's request.
//   (1) The file is never renamed or unlinked: other processes may have it open, and their journal has its name. It is
//       emptied by SQLite itself, under SQLite's locks (SQLITE_DBCONFIG_RESET_DATABASE), and stays the same inode.
//   (2) All of it happens under an exclusive lock of the whole side file FILE.lock: no repair beside another, none
//       while a compile is in flight.
//   (3) Nothing is changed before the copy is complete and on the disk.
//   (4) A file that is not damaged, was not evidently ours, or is of a newer format is left as it is.
//
//     FILE ──copy──► FILE.broken-1 ──copy with a mended first page──► FILE.broken-1.salvage ──good rows──► FILE
//
// In the first page of every database of this format, table kernel begins at page 3: that of the emptied database makes
// a copy readable whose own is destroyed. With another page count a copy is readable whose end is missing.
#include "cache/sqlite_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 16, MAX_BROKEN = 1000, LOCK_RETRY_MS = 20 };
enum {
    BEFORE_CHANGES = 24, // bytes of the file's header that are the same in every database of this format
    AT_PAGE_COUNT = 28   // in the header: 4 bytes, big endian
};

// ---- the lock

static bool lock_whole(int descriptor, int timeout_ms)
{
    const struct timespec pause = {0, LOCK_RETRY_MS * 1000000L};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};

    for (int waited = 0;; waited += LOCK_RETRY_MS) {
        if (!fcntl(descriptor, F_OFD_SETLK, &lock)) return true;
        if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || waited >= timeout_ms) return false;
        nanosleep(&pause, NULL);
    }
}

static quern_status lock_side_file(const qn_sqlite *store, int *descriptor)
{
    qn_text name = QN_TEXT_INIT;
    quern_status status = QUERN_OK;

    qn_text_putf(&name, "%s.lock", store->file);
    QN_TRY(qn_text_check(&name));
    int fd = open(name.bytes, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        status = qn_fail(QUERN_FILE_ERROR, "'%s' could not be opened: %s", name.bytes, strerror(errno));
    } else if (!lock_whole(fd, store->busy_timeout_ms)) {
        status = qn_fail(QUERN_STORE_BUSY,
                         "'%s' is locked: another process compiles into this database or repairs it; try again when it "
                         "is done",
                         name.bytes);
        close(fd);
    } else {
        *descriptor = fd;
    }
    qn_text_fini(&name);
    return status;
}

// ---- the copy

// SQLite's own descriptor reads the file: a second one, closed, would drop the locks of this process on it. The last
// block comes back short, with what is missing as zeros.
static bool copy_blocks(sqlite3 *db, int to, const unsigned char *first_page)
{
    sqlite3_file *file = NULL;
    sqlite3_int64 size = 0;
    char *block = malloc(BLOCK_BYTES);
    bool done = block && !sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) && file &&
                file->pMethods && !file->pMethods->xFileSize(file, &size);

    for (sqlite3_int64 at = 0; done && at < size; at += BLOCK_BYTES) {
        int count = size - at < BLOCK_BYTES ? (int)(size - at) : BLOCK_BYTES;
        int code = file->pMethods->xRead(file, block, count, at);
        done = code == SQLITE_OK || code == SQLITE_IOERR_SHORT_READ;
        if (done && !at && first_page) {
            memcpy(block, first_page, (size_t)(count < QN_SCHEMA_PAGE_BYTES ? count : QN_SCHEMA_PAGE_BYTES));
        }
        if (done) done = pwrite(to, block, (size_t)count, at) == count;
    }
    free(block);
    return done;
}

// A new file with the database's bytes, on the disk before this returns.
static quern_status copy_to(const qn_sqlite *store, sqlite3 *db, const char *name, const unsigned char *first_page)
{
    quern_status status = QUERN_OK;
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) return qn_fail(QUERN_FILE_ERROR, "'%s' could not be made: %s", name, strerror(errno));
    errno = 0;
    if (fchmod(fd, 0600) || !copy_blocks(db, fd, first_page) || fsync(fd)) {
        bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
        status = qn_fail(full              ? QUERN_STORE_FULL
                         : errno == ENOMEM ? QUERN_OUT_OF_MEMORY
                                           : QUERN_FILE_ERROR,
                         "%s: copying it to '%s' failed: %s; it was left as it is", store->file, name,
                         strerror(errno ? errno : EIO));
    }
    close(fd);
    if (status) unlink(name);
    return status;
}

static quern_status copy_aside(const qn_sqlite *store, sqlite3 *db, qn_text *name)
{
    struct stat found;

    for (int n = 1; n <= MAX_BROKEN; n++) {
        qn_text_clear(name);
        qn_text_putf(name, "%s.broken-%d", store->file, n);
        QN_TRY(qn_text_check(name));
        if (lstat(name->bytes, &found) && errno == ENOENT) return copy_to(store, db, name->bytes, NULL);
    }
    return qn_fail(QUERN_FILE_ERROR, "'%s' and all before it exist; remove some", name->bytes);
}

// ---- emptying in place

static quern_status empty_in_place(const qn_sqlite *store, sqlite3 *db)
{
    int64_t unused;

    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 0, (int *)NULL);
    qn_query_int(db, "SELECT count(*) FROM sqlite_master", &unused); // as the documentation of RESET_DATABASE asks
    sqlite3_db_config(db, SQLITE_DBCONFIG_RESET_DATABASE, 1, (int *)NULL);
    int code = qn_exec(db, "PRAGMA page_size=16384; PRAGMA auto_vacuum=INCREMENTAL; VACUUM");
    sqlite3_db_config(db, SQLITE_DBCONFIG_RESET_DATABASE, 0, (int *)NULL);
    if (code) return qn_sqlite_fail(store, db, code, "emptying it");
    return qn_create_tables(store, db);
}

// ---- saving rows

typedef struct saving {
    qn_sqlite *into;
    int64_t saved;
    quern_status status;
} saving;

static quern_status save_row(saving *to, const qn_row *row)
{
    quern_status status = QUERN_OK;
    bool added = false;
    qn_use use;

    if (qn_row_fault(row) != QN_FAULT_NONE) return QUERN_OK;
    QN_TRY(qn_use_begin(to->into, &use));
    int code = qn_begin_immediate(&use);
    if (!code) code = qn_end_transaction(use.db, qn_put_row(&use, &row->record, &added));
    if (code)
        status = qn_sqlite_fail(to->into, use.db, code, "saving a row");
    else
        to->saved += added;
    qn_use_end(&use);
    return status;
}

// Reads rows one way until the end or to where the damage is, the other way from the other end.
static quern_status save_rows(saving *to, sqlite3 *from, const char *order)
{
    sqlite3_stmt *statement = NULL;
    qn_text sql = QN_TEXT_INIT;
    quern_status status = QUERN_OK;
    qn_row row = {0};

    qn_text_putf(&sql, "SELECT " QN_ROW_ALL " FROM kernel NOT INDEXED ORDER BY id %s", order);
    QN_TRY(qn_text_check(&sql));
    int code = qn_prepare(from, sql.bytes, &statement);
    while (!code && !status && sqlite3_step(statement) == SQLITE_ROW) {
        code = qn_row_read(&row, statement);
        if (!code) status = save_row(to, &row);
    }
    sqlite3_finalize(statement);
    qn_row_fini(&row);
    qn_text_fini(&sql);
    return status;
}

// Which tables there were stands on the first page, and is lost with it. Measurements can be made again: what cannot be
// read of them is no failure.
static void save_tuning(qn_sqlite *store, sqlite3 *from)
{
    qn_message_mark mark;

    qn_message_save(&mark);
    qn_tune_copy(store, from);
    qn_message_restore(&mark);
}

static quern_status salvage(qn_sqlite *store, const char *file, int64_t *saved)
{
    saving to = {.into = store};
    sqlite3 *db = NULL;

    QN_TRY(qn_connect(store, file, false, true, &db));
    quern_status status = save_rows(&to, db, "ASC");
    if (!status) status = save_rows(&to, db, "DESC");
    if (!status) save_tuning(store, db);
    sqlite3_close(db);
    if (!status) *saved = to.saved;
    return status;
}

// ---- the whole

// OK with *readable, or the reason why the file is none of repair's business.
static quern_status check_ours(const qn_sqlite *store, sqlite3 *db, bool *readable)
{
    qn_verdict verdict;
    bool sealed, ours;
    int64_t tables;

    int code = qn_query_int(db, "SELECT count(*) FROM sqlite_master", &tables);
    quern_status status = qn_check_format(store, db, &verdict, &sealed);
    *readable = code != SQLITE_NOTADB && status != QUERN_STORE_CORRUPT;
    if (*readable || status == QUERN_OUT_OF_MEMORY) return status;
    QN_TRY(qn_was_ours(store, db, &ours));
    if (ours) return QUERN_OK;
    return qn_fail(QUERN_STORE_FOREIGN,
                   "%s: has neither Quern's mark nor a kernel of Quern's that could be saved, so it was left as it is; "
                   "if it was a database of Quern's, remove it",
                   store->file);
}

// Before anything is made beside the file, even a lock.
static quern_status check_ours_first(const qn_sqlite *store)
{
    sqlite3 *db = NULL;
    bool readable;

    QN_TRY(qn_refuse_foreign(store));
    QN_TRY(qn_connect(store, store->file, true, false, &db));
    quern_status status = check_ours(store, db, &readable);
    sqlite3_close(db);
    return status;
}

// Whether repair is called for.
static quern_status diagnose(const qn_sqlite *store, sqlite3 *db, bool *damaged)
{
    bool readable, right;

    *damaged = true;
    QN_TRY(check_ours(store, db, &readable));
    if (!readable) return QUERN_OK;
    int code = qn_check_integrity(db, &right);
    if (code && qn_sqlite_status(db, code) != QUERN_STORE_CORRUPT)
        return qn_sqlite_fail(store, db, code, "checking it");
    *damaged = code || !right;
    return QUERN_OK;
}

// ---- the header's versions

// Through SQLite's own descriptor and under its own locks, for others have the file open.
static quern_status mend_versions(const qn_sqlite *store, sqlite3 *db)
{
    static const int locks[] = {SQLITE_LOCK_SHARED, SQLITE_LOCK_RESERVED, SQLITE_LOCK_EXCLUSIVE};
    static const unsigned char versions[2] = {1, 1};
    sqlite3_file *file = NULL;
    int code = sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);

    if (code || !file || !file->pMethods)
        return qn_fail(QUERN_STORE_IO, "%s: its header could not be mended", store->file);
    for (size_t i = 0; i < QN_COUNT(locks) && !code; i++) code = file->pMethods->xLock(file, locks[i]);
    if (!code) code = file->pMethods->xWrite(file, versions, sizeof versions, QN_AT_VERSIONS);
    if (!code) code = file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
    file->pMethods->xUnlock(file, SQLITE_LOCK_NONE);
    if (!code) return QUERN_OK;
    return qn_fail(code == SQLITE_BUSY ? QUERN_STORE_BUSY : QUERN_STORE_IO, "%s: its header could not be mended: %s",
                   store->file, sqlite3_errstr(code));
}

// The connection is made anew: it remembers that the database was read-only.
static quern_status mend_header(const qn_sqlite *store, sqlite3 **db, qn_text *copy, int64_t *saved)
{
    quern_status status = copy_aside(store, *db, copy);

    if (!status) status = mend_versions(store, *db);
    sqlite3_close(*db);
    *db = NULL;
    if (!status) status = qn_connect(store, store->file, true, false, db);
    if (!status && qn_query_int(*db, "SELECT count(*) FROM kernel", saved)) *saved = 0;
    return status;
}

// ---- the whole repair

// Page count of a first page := that of the copy, which may have lost its end.
static quern_status fit_first_page(const char *copy, unsigned char *page)
{
    struct stat found;

    if (stat(copy, &found)) return qn_fail(QUERN_FILE_ERROR, "'%s': %s", copy, strerror(errno));
    uint32_t pages = (uint32_t)(found.st_size / QN_SCHEMA_PAGE_BYTES);
    for (int i = 0; i < 4; i++) page[AT_PAGE_COUNT + i] = (unsigned char)(pages >> (24 - 8 * i));
    return QUERN_OK;
}

static quern_status salvage_with(qn_sqlite *store, sqlite3 *copy, const char *name, const unsigned char *page,
                                 int64_t *saved)
{
    quern_status status = copy_to(store, copy, name, page);

    if (status) return status;
    status = salvage(store, name, saved);
    unlink(name);
    return status;
}

// Twice: with the copy's own first page, if it looks like one (it knows every table), then with an empty database's (it
// is whole). What the first saved is there already when the second comes.
static quern_status save_from_copy(qn_sqlite *store, const char *copy, unsigned char *empty_page, int64_t *saved)
{
    unsigned char *own_page = malloc(QN_SCHEMA_PAGE_BYTES);
    qn_text name = QN_TEXT_INIT;
    int64_t first = 0, second = 0;
    sqlite3 *db = NULL;

    qn_text_putf(&name, "%s.salvage", copy);
    quern_status status = qn_text_check(&name);
    if (!status && !own_page) status = qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a page");
    if (!status) status = qn_connect(store, copy, false, true, &db);
    if (!status && qn_read_raw(db, own_page, QN_SCHEMA_PAGE_BYTES, 0) &&
        !memcmp(own_page, empty_page, BEFORE_CHANGES)) {
        status = fit_first_page(copy, own_page);
        if (!status) status = salvage_with(store, db, name.bytes, own_page, &first);
    }
    if (!status) status = fit_first_page(copy, empty_page);
    if (!status) status = salvage_with(store, db, name.bytes, empty_page, &second);
    sqlite3_close(db);
    qn_text_fini(&name);
    free(own_page);
    if (!status) *saved = first + second;
    return status;
}

static quern_status repair_locked(qn_sqlite *store, int64_t *saved, qn_text *copy)
{
    unsigned char *first_page = malloc(QN_SCHEMA_PAGE_BYTES);
    bool damaged = false;
    sqlite3 *db = NULL;

    if (!first_page) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a page");
    quern_status status = qn_connect(store, store->file, true, false, &db);
    bool mended = !status && qn_is_made_read_only(db);
    if (mended) status = mend_header(store, &db, copy, saved);
    if (!status) status = diagnose(store, db, &damaged);
    if (!status && damaged) {
        if (!mended) status = copy_aside(store, db, copy);
        if (!status) status = empty_in_place(store, db);
        if (!status && !qn_read_raw(db, first_page, QN_SCHEMA_PAGE_BYTES, 0)) {
            status = qn_fail(QUERN_STORE_IO, "%s: its first page could not be read; what was in it is in '%s'",
                             store->file, copy->bytes);
        }
    }
    sqlite3_close(db);
    if (!status && damaged) status = save_from_copy(store, copy->bytes, first_page, saved);
    free(first_page);
    return status;
}

quern_status qn_sqlite_repair(const qn_sqlite_options *options, int64_t *saved, qn_text *set_aside)
{
    qn_text copy = QN_TEXT_INIT;
    int64_t count = 0;
    int descriptor = -1;
    quern_store store;
    qn_held_signals signals;

    QN_TRY(qn_sqlite_open(options, &store));
    quern_status status = check_ours_first(qn_sqlite_of(&store));
    if (!status) status = lock_side_file(qn_sqlite_of(&store), &descriptor);
    if (!status) {
        qn_signals_hold(&signals, false);
        status = repair_locked(qn_sqlite_of(&store), &count, &copy);
        qn_signals_release(&signals);
        close(descriptor);
    }
    qn_sqlite_close(&store);
    if (!status) {
        *saved = count;
        if (copy.length) qn_text_puts(set_aside, copy.bytes);
        status = qn_text_check(set_aside);
    }
    qn_text_fini(&copy);
    return status;
}
