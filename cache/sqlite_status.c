// SPDX-License-Identifier: Apache-2.0
// SQLite's result codes as statuses and messages. Called by every file of the store.
// Busy, locked, read-only, full and failing are told apart from damaged: only the last may lead to a repair (promise 1).
#include "cache/sqlite_private.h"

#include <errno.h>
#include <string.h>

static bool no_room(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

static bool no_permission(int error)
{
    return error == EACCES || error == EPERM || error == EROFS;
}

// The system's error behind SQLite's. The connection does not know it of a COMMIT that failed; the file does.
static int system_error(sqlite3 *db)
{
    int error = db ? sqlite3_system_errno(db) : 0;

    if (db && !error) sqlite3_file_control(db, "main", SQLITE_FCNTL_LAST_ERRNO, &error);
    return error;
}

quern_status qn_sqlite_status(sqlite3 *db, int code)
{
    int error = system_error(db);

    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return QUERN_OK;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
        return QUERN_STORE_BUSY;
    case SQLITE_FULL:
        return QUERN_STORE_FULL;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return QUERN_STORE_READ_ONLY;
    case SQLITE_CORRUPT:
    case SQLITE_TOOBIG:
    case SQLITE_SCHEMA:
    case SQLITE_MISMATCH:
    case SQLITE_ERROR:
        return QUERN_STORE_CORRUPT; // our SQL is right: the tables are not what they were
    case SQLITE_NOTADB:
        return QUERN_STORE_FOREIGN;
    case SQLITE_NOMEM:
        return QUERN_OUT_OF_MEMORY;
    case SQLITE_CONSTRAINT:
        return QUERN_BAD_ARGUMENT;
    case SQLITE_CANTOPEN:
        return no_permission(error) ? QUERN_STORE_READ_ONLY : QUERN_STORE_OPEN;
    case SQLITE_IOERR:
        if (code == SQLITE_IOERR_NOMEM) return QUERN_OUT_OF_MEMORY;
        return no_room(error) ? QUERN_STORE_FULL : QUERN_STORE_IO;
    default:
        return QUERN_STORE_IO;
    }
}

static const char *way_out(quern_status status)
{
    switch (status) {
    case QUERN_STORE_BUSY:
        return "another process holds it; wait, or raise the busy timeout";
    case QUERN_STORE_FULL:
        return "free space on the disk, raise the file size limit, or lower the cap";
    case QUERN_STORE_READ_ONLY:
        return "make the file and its directory writable, or choose another database";
    case QUERN_STORE_CORRUPT:
        return "'quern cache repair' sets it aside and saves what can be read";
    case QUERN_STORE_FOREIGN:
        return "choose another file name";
    case QUERN_STORE_OPEN:
        return "check the path, its permissions and the limit of open files";
    case QUERN_STORE_IO:
        return "check the disk and its file system";
    case QUERN_BAD_ARGUMENT:
        return "a record's fields are of wrong type or size";
    default:
        return "nothing was changed";
    }
}

// Read-only to SQLite, but it is not the write that fails.
static quern_status fail_journal(const qn_sqlite *store, const char *doing)
{
    return qn_fail(QUERN_STORE_READ_ONLY,
                   "%s: %s: a process that wrote to it died, and what it left half done must be undone first, from "
                   "%s-journal, which this process may not do: run 'quern cache info %s' once as a user who may write "
                   "all of these and their folder, and never take the journal away",
                   store->file, doing, store->file, store->file);
}

static bool is_damaged(sqlite3 *db)
{
    bool right;
    int code = qn_check_integrity(db, &right);

    return code == SQLITE_CORRUPT || (!code && !right);
}

quern_status qn_sqlite_fail(const qn_sqlite *store, sqlite3 *db, int code, const char *doing)
{
    if (code == SQLITE_READONLY_ROLLBACK) return fail_journal(store, doing);
    if (code == SQLITE_NOMEM && db && is_damaged(db)) code = SQLITE_CORRUPT;
    quern_status status = qn_sqlite_status(db, code);
    int error = system_error(db);
    bool with_error = (code & 0xff) == SQLITE_CANTOPEN || (code & 0xff) == SQLITE_IOERR;

    // A rollback may have come between: the connection's message counts only while it is about this code.
    const char *why = db && sqlite3_extended_errcode(db) == code ? sqlite3_errmsg(db) : sqlite3_errstr(code);

    return qn_fail(status, "%s: %s: %s%s%s (SQLite %d); %s", store->file, doing, why, with_error && error ? ": " : "",
                   with_error && error ? strerror(error) : "", code, way_out(status));
}

quern_status qn_sqlite_refuse_write(const qn_sqlite *store, const qn_session *session)
{
    const char *why = session->sealed ? "the database is sealed and never written; export it to a new file to add to it"
                                      : "the database was opened for reading only";

    if (!session->sealed && session->db && qn_is_made_read_only(session->db))
        why = "its header is damaged, so that SQLite only reads it; 'quern cache repair' mends it";
    return qn_fail(QUERN_STORE_READ_ONLY, "%s: %s", store->file, why);
}

// ---- statements

int qn_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **statement)
{
    return sqlite3_prepare_v2(db, sql, -1, statement, NULL);
}

int qn_exec(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

int qn_query_int(sqlite3 *db, const char *sql, int64_t *value)
{
    sqlite3_stmt *statement = NULL;
    int code = qn_prepare(db, sql, &statement);

    if (code) return code;
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW) *value = sqlite3_column_int64(statement, 0);
    int end = sqlite3_finalize(statement);
    if (code == SQLITE_ROW) return SQLITE_OK;
    return code == SQLITE_DONE ? SQLITE_ERROR : end;
}

int qn_begin_immediate(qn_use *use)
{
    int64_t sealed = 0;
    int code = qn_exec(use->db, "BEGIN IMMEDIATE");

    if (code) return code;
    code = qn_query_int(use->db, "SELECT count(*) FROM meta WHERE name='" QN_SCHEMA_SEAL "'", &sealed);
    use->image_bytes = use->session->image_bytes;
    use->session->image_bytes = -1;
    if (!code && !sealed) return SQLITE_OK;
    return qn_end_transaction(use->db, code ? code : SQLITE_READONLY);
}

int qn_end_transaction(sqlite3 *db, int code)
{
    if (code == SQLITE_OK || code == SQLITE_DONE) {
        code = qn_exec(db, "COMMIT");
        if (!code) return SQLITE_OK;
    }
    // Some errors have rolled back already; a COMMIT that found the file busy has not.
    if (!sqlite3_get_autocommit(db)) qn_exec(db, "ROLLBACK");
    return code;
}
