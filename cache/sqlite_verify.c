// SPDX-License-Identifier: Apache-2.0
// Looking at a database: its figures, and whether every row is what it says. Called by the command, seal, prune and repair.
// Changes nothing.
#include "cache/sqlite_private.h"

#include <string.h>

#include "cuda/nvrtc.h"

enum { KIND_CUBIN = 1, SPARE_BYTES = 1 << 20 };

qn_fault qn_row_fault(const qn_row *row)
{
    const quern_record *record = &row->record;

    if (!row->sound || !qn_key_is_right(record)) return QN_FAULT_KEY;
    if (!qn_image_is_right(record)) return QN_FAULT_SUM;
    if (record->kind == KIND_CUBIN && !qn_cubin_is_plausible(record->image, record->image_bytes)) return QN_FAULT_IMAGE;
    return QN_FAULT_NONE;
}

static int check_once(sqlite3 *db, bool *right)
{
    sqlite3_stmt *statement = NULL;

    *right = false;
    // Not "FROM pragma_integrity_check(1)": newer SQLite (seen: 3.46) takes the 1 for a table's name there.
    int code = qn_prepare(db, "PRAGMA integrity_check(1)", &statement);
    if (!code) code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        const char *said = (const char *)sqlite3_column_text(statement, 0);
        if (said) *right = !strcmp(said, "ok");
        if (!said) code = SQLITE_NOMEM;
    }
    sqlite3_finalize(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

int qn_check_integrity(sqlite3 *db, bool *right)
{
    int code = check_once(db, right);

    if (code != SQLITE_NOMEM) return code;
    void *spare = sqlite3_malloc64(SPARE_BYTES);
    sqlite3_free(spare);
    if (!spare) return code;
    code = check_once(db, right);
    return code == SQLITE_NOMEM ? SQLITE_CORRUPT : code;
}

static quern_status check_structure(qn_sqlite *store, bool *right)
{
    qn_use use;

    QN_TRY(qn_use_begin(store, &use));
    *right = true;
    int code = use.db ? qn_check_integrity(use.db, right) : SQLITE_OK;
    quern_status status = code ? qn_sqlite_fail(store, use.db, code, "checking it") : QUERN_OK;
    qn_use_end(&use);
    if (status != QUERN_STORE_CORRUPT) return status;
    *right = false;
    return QUERN_OK;
}

typedef struct verification {
    quern_record_fn each;
    void *user;
    qn_verify_report report;
} verification;

static int verify_row(void *user, const qn_row *row)
{
    verification *to = user;

    to->report.entries++;
    switch (qn_row_fault(row)) {
    case QN_FAULT_NONE:
        return 0;
    case QN_FAULT_KEY:
        to->report.bad_key++;
        break;
    case QN_FAULT_SUM:
        to->report.bad_sum++;
        break;
    case QN_FAULT_IMAGE:
        to->report.bad_image++;
        break;
    }
    return to->each ? to->each(to->user, &row->record) : 0;
}

quern_status qn_sqlite_verify(quern_store *store, quern_record_fn each, void *user, qn_verify_report *report)
{
    verification to = {each, user, {0}};
    qn_sqlite *self = qn_sqlite_of(store);

    QN_TRY(check_structure(self, &to.report.structure_ok));
    quern_status status = qn_walk(self, true, verify_row, &to);
    if (status == QUERN_STORE_CORRUPT)
        to.report.structure_ok = false;
    else if (status)
        return status;
    *report = to.report;
    return QUERN_OK;
}

static int read_info(sqlite3 *db, qn_sqlite_info *info)
{
    sqlite3_stmt *statement = NULL;
    int64_t pages = 0, schema = 0;
    int code = qn_prepare(
        db, "SELECT count(*),coalesce(sum(length(image)),0),coalesce(min(used),0),coalesce(max(used),0) FROM kernel",
        &statement);

    if (!code) code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        info->entries = sqlite3_column_int64(statement, 0);
        info->image_bytes = sqlite3_column_int64(statement, 1);
        info->oldest_used = sqlite3_column_int64(statement, 2);
        info->newest_used = sqlite3_column_int64(statement, 3);
    }
    sqlite3_finalize(statement);
    if (code != SQLITE_ROW) return code;
    code = qn_query_int(db, "PRAGMA page_count", &pages);
    if (!code) code = qn_query_int(db, "PRAGMA user_version", &schema);
    info->file_bytes = pages * QN_SCHEMA_PAGE_BYTES;
    info->schema = (int)schema;
    return code;
}

quern_status qn_sqlite_get_info(quern_store *store, qn_sqlite_info *info)
{
    qn_sqlite_info found = {0};
    qn_sqlite *self = qn_sqlite_of(store);
    quern_status status = QUERN_OK;
    qn_use use;

    QN_TRY(qn_use_begin(self, &use));
    int code = use.db ? read_info(use.db, &found) : SQLITE_OK;
    if (code) status = qn_sqlite_fail(self, use.db, code, "reading its figures");
    if (!use.db) found.schema = QN_SCHEMA_VERSION;
    found.sealed = use.session->sealed;
    found.read_only = use.session->read_only;
    qn_use_end(&use);
    if (!status) *info = found;
    return status;
}
