// SPDX-License-Identifier: Apache-2.0
// Databases that leave the machine: a compact copy in a new file, and the seal that makes a file read-only for good.
// Called by the command.
//   (1) Export never writes to a file that exists; what it made and could not finish it takes away.
//   (2) A file is sealed only after every row of it was verified; and afterwards no journal is beside it.
#include "cache/sqlite_private.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- export

static int vacuum_into(sqlite3 *db, const char *file)
{
    sqlite3_stmt *statement = NULL;
    int code = qn_prepare(db, "VACUUM INTO ?1", &statement);

    if (!code) code = sqlite3_bind_text(statement, 1, file, -1, SQLITE_STATIC);
    if (!code) code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

// The copy is an ordinary database, whatever the original was.
static quern_status break_seal(const qn_sqlite *store, const char *file)
{
    sqlite3 *db = NULL;

    QN_TRY(qn_connect(store, file, true, false, &db));
    int code = qn_exec(db, "DELETE FROM meta WHERE name='" QN_SCHEMA_SEAL "'");
    quern_status status = code ? qn_sqlite_fail(store, db, code, "finishing the export") : QUERN_OK;
    sqlite3_close(db);
    return status;
}

static quern_status copy_into(qn_sqlite *store, const char *uri_or_path, const char *file)
{
    quern_status status = QUERN_OK;
    sqlite3 *db = NULL;
    qn_use use;

    QN_TRY(qn_use_begin(store, &use));
    if (use.db) {
        int code = vacuum_into(use.db, uri_or_path);
        if (code) status = qn_sqlite_fail(store, use.db, code, "exporting");
        if (!status) status = break_seal(store, file);
    } else { // an empty database exports as an empty database
        status = qn_connect(store, file, true, false, &db);
        if (!status) status = qn_create_tables(store, db);
        sqlite3_close(db);
    }
    qn_use_end(&use);
    return status;
}

quern_status qn_sqlite_export(quern_store *store, const char *file)
{
    qn_sqlite *self = qn_sqlite_of(store);
    qn_text uri = QN_TEXT_INIT;

    QN_TRY(qn_sqlite_check_path(file));
    QN_TRY(qn_sqlite_probe(store)); // what cannot be read leaves no new file behind
    int error = qn_create_file(file);
    if (error == EEXIST) {
        return qn_fail(QUERN_FILE_ERROR, "'%s' exists and is not overwritten; export to a new name", file);
    }
    if (error) {
        return qn_fail(error == ENOMEM ? QUERN_OUT_OF_MEMORY : QUERN_FILE_ERROR, "'%s' could not be made: %s", file,
                       strerror(error));
    }
    qn_put_uri(&uri, file);
    quern_status status = qn_text_check(&uri);
    if (!status) status = copy_into(self, uri.bytes, file);
    qn_text_fini(&uri);
    if (status) unlink(file);
    return status;
}

// ---- seal

static quern_status write_mark(qn_sqlite *store)
{
    quern_status status = QUERN_OK;
    qn_use use;

    QN_TRY(qn_use_begin(store, &use));
    if (use.session->read_only) {
        status = qn_sqlite_refuse_write(store, use.session);
    } else {
        int code = qn_exec(use.db, "PRAGMA journal_mode=DELETE");
        if (!code) code = qn_begin_immediate(&use);
        if (!code) {
            code = qn_exec(use.db, "INSERT INTO meta VALUES('" QN_SCHEMA_SEAL "','1')");
            code = qn_end_transaction(use.db, code);
        }
        if (code) status = qn_sqlite_fail(store, use.db, code, "sealing");
        if (!status) qn_session_close(use.session); // the next use opens it as a sealed file
    }
    qn_use_end(&use);
    return status;
}

quern_status qn_sqlite_seal(quern_store *store)
{
    qn_sqlite *self = qn_sqlite_of(store);
    qn_verify_report report;

    QN_TRY(qn_sqlite_verify(store, NULL, NULL, &report));
    int64_t bad = report.bad_key + report.bad_sum + report.bad_image;
    if (bad || !report.structure_ok) {
        return qn_fail(QUERN_STORE_CORRUPT,
                       "%s: is not sealed: %lld of %lld rows are damaged%s; 'quern cache prune' "
                       "removes damaged rows, 'quern cache repair' mends the file",
                       self->file, (long long)bad, (long long)report.entries,
                       report.structure_ok ? "" : " and so is the file's structure");
    }
    if (qn_sqlite_is_sealed(store)) return QUERN_OK;
    QN_TRY(write_mark(self));
    // Shipped in an image, it is read by other users; nobody writes it any more.
    if (chmod(self->file, 0444)) {
        return qn_fail(QUERN_FILE_ERROR, "%s: is sealed, but its mode could not be set to 0444: %s", self->file,
                       strerror(errno));
    }
    return QUERN_OK;
}
