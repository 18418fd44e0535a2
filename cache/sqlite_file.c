// SPDX-License-Identifier: Apache-2.0
// From a path to a usable connection: makes the file, opens it the right way, judges whose it is and of which version,
// makes the tables. Called by sqlite_store.c, and piecewise by sqlite_ship.c and sqlite_repair.c.
//   (1) Only SQLite opens a database file. A new file is made under another name and moved to its place without
//       replacing, so that no descriptor of ours ever pointed to a file that a connection of this process has open:
//       closing one would drop that connection's locks.
//   (2) Format and version are read in one transaction: a file that another process is just making is either empty
//       or ours.
//   (3) Immutable is only a file with the seal mark. Anything else that may not be written is read under locks.
//   (4) Who only reads rolls back what a dead writer left half done, where it may write, as SQLite does for writers: nothing
//       else is changed, nothing is made. Where it may not, reading fails and says so. What is not ours is refused before, as
//       it lies there: SQLite would roll back, or take over, what its own program left half done.
#include "cache/sqlite_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/path.h"

// ---- making the file

// Moves a file to a name that must not be taken. Where the file system lacks this rename, by a second name.
static int move_without_replacing(const char *from, const char *to)
{
    if (!syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    if (link(from, to)) return errno;
    unlink(from);
    return 0;
}

int qn_create_file(const char *file)
{
    qn_text name = QN_TEXT_INIT;
    int error = 0;

    qn_text_putf(&name, "%s.new-XXXXXX", file);
    if (name.failed) return ENOMEM;
    int descriptor = mkostemp(name.bytes, O_CLOEXEC);
    if (descriptor < 0) {
        error = errno;
    } else {
        if (fchmod(descriptor, 0600)) error = errno; // the umask may have taken bits away
        close(descriptor);
        if (!error) error = move_without_replacing(name.bytes, file);
        if (error) unlink(name.bytes);
    }
    qn_text_fini(&name);
    return error;
}

static quern_status create_when_missing(const qn_sqlite *store)
{
    struct stat found;

    if (!stat(store->file, &found) || errno != ENOENT) return QUERN_OK; // anything but absence, SQLite will meet too
    QN_TRY(qn_sqlite_check_path(store->file));
    int error = qn_create_file(store->file);
    if (!error || error == EEXIST) return QUERN_OK;
    quern_status status = error == ENOSPC || error == EDQUOT ? QUERN_STORE_FULL
                          : error == EROFS                   ? QUERN_STORE_READ_ONLY
                          : error == ENOMEM                  ? QUERN_OUT_OF_MEMORY
                                                             : QUERN_STORE_OPEN;
    return qn_fail(status, "%s: could not be made: %s; check that its directory exists and is writable", store->file,
                   strerror(error));
}

// ---- opening

// file:///… or file:…: every byte that could mean something else in a URI is written as %XX.
void qn_put_uri(qn_text *uri, const char *file)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";

    qn_text_puts(uri, *file == '/' ? "file://" : "file:");
    for (; *file; file++) {
        if (strchr(plain, *file))
            qn_text_put(uri, file, 1);
        else
            qn_text_putf(uri, "%%%02X", (unsigned)(unsigned char)*file);
    }
}

// What a database from elsewhere could hold to make reading it do more than read is switched off.
static int settle(const qn_sqlite *store, sqlite3 *db)
{
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_timeout(db, store->busy_timeout_ms < 0 ? 0 : store->busy_timeout_ms);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, (int *)NULL);
    // No mapping: a file that another process shortens would be a SIGBUS here. None of these reads the file.
    return qn_exec(db, "PRAGMA mmap_size=0; PRAGMA cell_size_check=ON");
}

quern_status qn_connect(const qn_sqlite *store, const char *file, bool writable, bool immutable, sqlite3 **db)
{
    const int flags = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    qn_text uri = QN_TEXT_INIT;
    sqlite3 *opened = NULL;

    qn_put_uri(&uri, file);
    if (immutable) qn_text_puts(&uri, "?immutable=1");
    if (uri.failed) {
        qn_text_fini(&uri);
        return qn_fail(QUERN_OUT_OF_MEMORY, "%s: no memory for its name", file);
    }
    int code =
        sqlite3_open_v2(uri.bytes, &opened, flags | (writable ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY), NULL);
    qn_text_fini(&uri);
    if (!code) code = settle(store, opened);
    if (!code) {
        *db = opened;
        return QUERN_OK;
    }
    int error = opened ? sqlite3_system_errno(opened) : 0;
    quern_status path = code == SQLITE_CANTOPEN ? qn_sqlite_check_path(file) : QUERN_OK;
    quern_status status = code == SQLITE_CANTOPEN ? QUERN_STORE_OPEN : qn_sqlite_status(opened, code);
    sqlite3_close(opened);
    QN_TRY(path);
    return qn_fail(status, "%s: could not be opened: %s%s%s; check the path and its permissions", file,
                   sqlite3_errstr(code), error ? ": " : "", error ? strerror(error) : "");
}

bool qn_read_raw(sqlite3 *db, void *bytes, int count, int64_t offset)
{
    sqlite3_file *file = NULL;

    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) || !file || !file->pMethods) return false;
    return file->pMethods->xRead(file, bytes, count, offset) == SQLITE_OK;
}

bool qn_is_made_read_only(sqlite3 *db)
{
    unsigned char versions[2];

    return qn_read_raw(db, versions, sizeof versions, QN_AT_VERSIONS) && versions[0] > 2 && versions[1] <= 2;
}

// ---- judging the content

typedef struct format {
    int64_t application, version, tables, ours, sealed;
} format;

static int read_format(sqlite3 *db, format *found)
{
    int code = qn_exec(db, "BEGIN");

    if (code) return code;
    code = qn_query_int(db, "PRAGMA application_id", &found->application);
    if (!code) code = qn_query_int(db, "PRAGMA user_version", &found->version);
    if (!code) code = qn_query_int(db, "SELECT count(*) FROM sqlite_master", &found->tables);
    if (!code && found->application == QN_SCHEMA_APPLICATION_ID && found->version == QN_SCHEMA_VERSION) {
        code = qn_query_int(db, "SELECT count(*) FROM sqlite_master WHERE type='table' AND name IN('kernel','meta')",
                            &found->ours);
        if (!code && found->ours == 2) {
            code = qn_query_int(db, "SELECT count(*) FROM meta WHERE name='" QN_SCHEMA_SEAL "'", &found->sealed);
        }
    }
    return qn_end_transaction(db, code);
}

// The columns are looked at by preparing the statement that reads them all.
static int check_columns(sqlite3 *db)
{
    sqlite3_stmt *statement = NULL;
    int code = qn_prepare(db, "SELECT " QN_ROW_ALL " FROM kernel", &statement);

    sqlite3_finalize(statement);
    return code;
}

static quern_status refuse_content(const qn_sqlite *store, sqlite3 *db, int code)
{
    bool ours;

    if (code != SQLITE_NOTADB) return qn_sqlite_fail(store, db, code, "reading its format");
    QN_TRY(qn_was_ours(store, db, &ours));
    if (ours) {
        return qn_fail(QUERN_STORE_CORRUPT,
                       "%s: its header is destroyed; 'quern cache repair' sets it aside and saves what can be read",
                       store->file);
    }
    return qn_fail(QUERN_STORE_FOREIGN, "%s: is not an SQLite database; choose another file name", store->file);
}

quern_status qn_check_format(const qn_sqlite *store, sqlite3 *db, qn_verdict *verdict, bool *sealed)
{
    format found = {0, 0, 0, 0, 0};
    int code = read_format(db, &found);

    if (code) return refuse_content(store, db, code);
    if (!found.application && !found.version && !found.tables) {
        *verdict = QN_VERDICT_EMPTY;
        *sealed = false;
        return QUERN_OK;
    }
    if (found.application != QN_SCHEMA_APPLICATION_ID) {
        return qn_fail(QUERN_STORE_FOREIGN,
                       "%s: is another program's database (application_id 0x%08llx, Quern's is 0x%08x); choose another "
                       "file name",
                       store->file, (unsigned long long)(found.application & 0xffffffff), QN_SCHEMA_APPLICATION_ID);
    }
    if (found.version > QN_SCHEMA_VERSION) {
        return qn_fail(QUERN_STORE_NEWER,
                       "%s: has format %lld, this library reads format %d; use a newer Quern or another file name",
                       store->file, (long long)found.version, QN_SCHEMA_VERSION);
    }
    if (found.version < QN_SCHEMA_VERSION) {
        return qn_fail(QUERN_STORE_CORRUPT, "%s: has format %lld, which never was; 'quern cache repair' sets it aside",
                       store->file, (long long)found.version);
    }
    if (found.ours != 2 || (code = check_columns(db)) == SQLITE_ERROR) {
        return qn_fail(QUERN_STORE_FOREIGN, "%s: has Quern's mark but not its tables; choose another file name",
                       store->file);
    }
    if (code) return refuse_content(store, db, code);
    *verdict = QN_VERDICT_OURS;
    *sealed = found.sealed != 0;
    return QUERN_OK;
}

quern_status qn_create_tables(const qn_sqlite *store, sqlite3 *db)
{
    int64_t tables = 0;
    int code = qn_exec(db, QN_SCHEMA_BEFORE);

    if (!code) code = qn_exec(db, "BEGIN IMMEDIATE");
    if (!code) {
        code = qn_query_int(db, "SELECT count(*) FROM sqlite_master", &tables);
        if (!code && !tables) code = qn_exec(db, QN_SCHEMA_TABLES);
        code = qn_end_transaction(db, code);
    }
    return code ? qn_sqlite_fail(store, db, code, "making its tables") : QUERN_OK;
}

// ---- a writer that died

// A file with something in it beside the database, as SQLite names it: of a symbolic link's end.
static bool lies_beside(const qn_sqlite *store, const char *ending, qn_text *path)
{
    struct stat found;
    char *file = realpath(store->file, NULL);
    qn_text_clear(path);
    if (file) qn_text_putf(path, "%s%s", file, ending);
    free(file);
    return path->length && !path->failed && !lstat(path->bytes, &found) && S_ISREG(found.st_mode) && found.st_size > 0;
}

// A journal that lies there and may be written: a rollback makes nothing, and what it could not finish it must not begin.
static bool may_roll_back(const qn_sqlite *store)
{
    const char *kind = NULL;
    qn_text path = QN_TEXT_INIT;
    bool may = lies_beside(store, "-journal", &path) && !access(path.bytes, W_OK) && !access(store->file, W_OK);
    if (may) { // the folder, from which the journal is taken away
        char *slash = strrchr(path.bytes, '/');
        *(slash == path.bytes ? slash + 1 : slash) = 0;
        may = !access(path.bytes, W_OK | X_OK) && (store->allow_network_fs || !qn_is_network_fs(store->file, &kind));
    }
    qn_text_fini(&path);
    return may;
}

static bool has_mark(sqlite3 *db)
{
    unsigned char mark[4];
    return qn_read_raw(db, mark, sizeof mark, QN_AT_APPLICATION_ID) &&
           ((uint32_t)mark[0] << 24 | (uint32_t)mark[1] << 16 | (uint32_t)mark[2] << 8 | mark[3]) ==
               QN_SCHEMA_APPLICATION_ID;
}

// The mark stands in the first write of a database of ours and in all later ones: a file that has tables and
// lacks it is no half of one. (Of a database whose tables are in its -wal still, nothing can be told.)
quern_status qn_refuse_foreign(const qn_sqlite *store)
{
    qn_message_mark mark;
    qn_verdict verdict;
    qn_text path = QN_TEXT_INIT;
    sqlite3 *db = NULL;
    bool sealed, foreign = false;
    const bool beside = lies_beside(store, "-journal", &path) || lies_beside(store, "-wal", &path);

    qn_text_fini(&path);
    if (!beside) return QUERN_OK;
    qn_message_save(&mark);
    if (!qn_connect(store, store->file, false, true, &db)) { // as it lies there, whatever is beside it
        foreign = qn_check_format(store, db, &verdict, &sealed) == QUERN_STORE_FOREIGN && !has_mark(db);
        sqlite3_close(db);
    }
    if (foreign) return QUERN_STORE_FOREIGN;
    qn_message_restore(&mark);
    return QUERN_OK;
}

void qn_roll_back_dead_writer(const qn_sqlite *store)
{
    qn_message_mark mark;
    sqlite3 *db = NULL;
    int64_t version;

    if (!may_roll_back(store)) return;
    qn_message_save(&mark);
    if (!qn_connect(store, store->file, true, false, &db)) {
        qn_query_int(db, "PRAGMA user_version", &version); // the first read rolls back, unless the writer lives
        sqlite3_close(db);
    }
    qn_message_restore(&mark);
}

// ---- the session's connection

void qn_session_close(qn_session *session)
{
    sqlite3_finalize(session->get);
    sqlite3_close(session->db);
    session->db = NULL, session->get = NULL;
    session->open = session->sealed = session->read_only = false;
    session->image_bytes = -1;
}

// Read-only: as an immutable file if the seal allows it, which needs no locks and no writable directory; else with
// locks, for there may be writers.
static quern_status open_for_reading(const qn_sqlite *store, qn_session *session)
{
    qn_message_mark mark;
    qn_verdict verdict;
    bool sealed = false;

    qn_roll_back_dead_writer(store);
    qn_message_save(&mark);
    if (!qn_connect(store, store->file, false, true, &session->db)) {
        if (!qn_check_format(store, session->db, &verdict, &sealed) && sealed) {
            session->sealed = session->read_only = true;
            return QUERN_OK;
        }
        qn_session_close(session);
    }
    qn_message_restore(&mark); // looked at without locks, a file in the middle of a change may seem to be anything
    QN_TRY(qn_connect(store, store->file, false, false, &session->db));
    QN_TRY(qn_check_format(store, session->db, &verdict, &sealed));
    if (verdict == QN_VERDICT_EMPTY) qn_session_close(session);
    session->read_only = true;
    session->sealed = sealed;
    return QUERN_OK;
}

static quern_status open_for_writing(const qn_sqlite *store, qn_session *session)
{
    qn_verdict verdict;
    bool sealed = false;

    QN_TRY(create_when_missing(store));
    QN_TRY(qn_connect(store, store->file, true, false, &session->db));
    QN_TRY(qn_check_format(store, session->db, &verdict, &sealed));
    session->read_only = sqlite3_db_readonly(session->db, "main") == 1; // SQLite falls back by itself
    if (verdict == QN_VERDICT_EMPTY && !session->read_only) {
        QN_TRY(qn_create_tables(store, session->db));
        QN_TRY(qn_check_format(store, session->db, &verdict, &sealed));
    }
    if (sealed || verdict == QN_VERDICT_EMPTY) {
        qn_session_close(session);
        return open_for_reading(store, session);
    }
    // Someone's tool may have left the file in WAL mode, which network file systems and read-only folders do not bear.
    if (!session->read_only) qn_exec(session->db, "PRAGMA synchronous=NORMAL; PRAGMA journal_mode=DELETE");
    return QUERN_OK;
}

// Verdicts on the file's content are kept for the process's life; what may pass (busy, no space, no permission) is not.
static bool is_final(quern_status status)
{
    return status == QUERN_STORE_FOREIGN || status == QUERN_STORE_NEWER || status == QUERN_STORE_CORRUPT;
}

quern_status qn_session_open(qn_sqlite *store, qn_session *session, const char **network)
{
    struct stat found;
    const char *kind = NULL;
    quern_status status;
    bool writable = store->access == QN_SQLITE_READ_WRITE;
    bool exists = !stat(store->file, &found);

    if (exists && !S_ISREG(found.st_mode)) {
        return qn_fail(QUERN_STORE_OPEN, "%s: is not a regular file; choose another file name", store->file);
    }
    if (writable && !store->allow_network_fs && qn_is_network_fs(store->file, &kind)) {
        writable = false;
        *network = kind;
        if (!exists) { // nothing there, and nothing will be made
            session->open = session->read_only = true;
            return QUERN_OK;
        }
    }
    status = exists ? qn_refuse_foreign(store) : QUERN_OK;
    if (!status) status = writable ? open_for_writing(store, session) : open_for_reading(store, session);
    if (!status) {
        session->open = true;
        return QUERN_OK;
    }
    qn_session_close(session);
    if (is_final(status)) {
        session->refused = status;
        qn_message_save(&session->refusal);
    }
    return status;
}
