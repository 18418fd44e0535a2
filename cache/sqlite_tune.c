// SPDX-License-Identifier: Apache-2.0
// The tuning table in SQLite (cache/tune.h). Called by runtime/stores.c, the command, import and repair.
//   (1) The table is made inside the transaction of the first put; a read never makes it.
//   (2) A problem's rows are replaced together: no reader sees half of them, nor two winners.
//   (3) No callback, and nothing of the caller's, runs while the database is in use.
#include "cache/tune.h"

#include <stdlib.h>
#include <string.h>

#include "cache/sqlite_private.h"

#define COLUMNS       "device,cc,sms,shared,l2,driver,library,arch,spec,bucket,config,sizes,status,note,ns,spread_ns,created"
#define IS_TEXT(name) #name " TEXT NOT NULL CHECK(typeof(" #name ")='text'),"
#define IS_INT(name)  #name " INTEGER NOT NULL CHECK(typeof(" #name ")='integer'),"
#define PROBLEM                                                                                                        \
    "device=?1 AND cc=?2 AND sms=?3 AND shared=?4 AND l2=?5 AND driver=?6 AND library=?7 AND arch=?8"                  \
    " AND spec=?9 AND bucket=?10"

static const char create_table[] = "CREATE TABLE IF NOT EXISTS tune(" IS_TEXT(device) IS_INT(cc) IS_INT(sms)
    IS_INT(shared) IS_INT(l2) IS_INT(driver) IS_TEXT(library) IS_TEXT(arch) IS_TEXT(spec) IS_TEXT(bucket)
        IS_TEXT(config) IS_TEXT(sizes) IS_TEXT(status) IS_TEXT(note) "ns REAL NOT NULL,spread_ns REAL NOT NULL," IS_INT(
            created) "PRIMARY KEY(spec,arch,device,cc,sms,shared,l2,driver,library,bucket,config))";

// ---- binding and reading

static int bind_texts(sqlite3_stmt *statement, int first, const char *const *texts, int count)
{
    int code = SQLITE_OK;
    for (int i = 0; i < count && !code; i++)
        code = sqlite3_bind_text(statement, first + i, texts[i], -1, SQLITE_STATIC);
    return code;
}

// Columns 1 to 10.
static int bind_problem(sqlite3_stmt *statement, const qn_tune_row *row)
{
    const qn_tune_device *d = &row->device;
    const char *const texts[] = {row->library, row->arch, row->spec, row->bucket};
    const int64_t numbers[] = {d->cc, d->sm_count, d->shared_bytes, d->l2_bytes, d->driver};
    int code = sqlite3_bind_text(statement, 1, d->name, -1, SQLITE_STATIC);

    for (int i = 0; i < 5 && !code; i++) code = sqlite3_bind_int64(statement, 2 + i, numbers[i]);
    return code ? code : bind_texts(statement, 7, texts, 4);
}

static int bind_row(sqlite3_stmt *statement, const qn_tune_row *row)
{
    const char *const texts[] = {row->config, row->sizes ? row->sizes : "", row->status, row->note ? row->note : ""};
    int code = bind_problem(statement, row);

    if (!code) code = bind_texts(statement, 11, texts, 4);
    if (!code) code = sqlite3_bind_double(statement, 15, row->ns);
    if (!code) code = sqlite3_bind_double(statement, 16, row->spread_ns);
    if (!code) code = sqlite3_bind_int64(statement, 17, row->created);
    return code;
}

static const char *text_of(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text ? text : "";
}

static qn_tune_row row_of(sqlite3_stmt *statement)
{
    return (qn_tune_row){
        .device = {text_of(statement, 0), sqlite3_column_int(statement, 1), sqlite3_column_int(statement, 2),
                   sqlite3_column_int64(statement, 3), sqlite3_column_int64(statement, 4),
                   sqlite3_column_int(statement, 5)},
        .library = text_of(statement, 6),
        .arch = text_of(statement, 7),
        .spec = text_of(statement, 8),
        .bucket = text_of(statement, 9),
        .config = text_of(statement, 10),
        .sizes = text_of(statement, 11),
        .status = text_of(statement, 12),
        .note = text_of(statement, 13),
        .ns = sqlite3_column_double(statement, 14),
        .spread_ns = sqlite3_column_double(statement, 15),
        .created = sqlite3_column_int64(statement, 16),
    };
}

// ---- reading

static int has_table(sqlite3 *db, bool *has)
{
    int64_t count = 0;
    int code = qn_query_int(db, "SELECT count(*) FROM sqlite_master WHERE type='table' AND name='tune'", &count);
    *has = count != 0;
    return code;
}

// Rows that nobody could have put (a damaged or foreign table) are passed over.
static int read_rows(sqlite3 *db, const char *spec, const char *status, qn_tune_list *list)
{
    sqlite3_stmt *statement = NULL;
    qn_message_mark mark;
    int code =
        qn_prepare(db,
                   "SELECT " COLUMNS " FROM tune WHERE (?1 IS NULL OR spec=?1) AND (?2 IS NULL OR status=?2)"
                   " ORDER BY device,cc,sms,shared,l2,driver,library,arch,spec,bucket,status<>'best',ns=0,ns,config",
                   &statement);

    if (!code && spec) code = sqlite3_bind_text(statement, 1, spec, -1, SQLITE_STATIC);
    if (!code && status) code = sqlite3_bind_text(statement, 2, status, -1, SQLITE_STATIC);
    qn_message_save(&mark);
    while (!code && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        qn_tune_row row = row_of(statement);
        code = SQLITE_OK;
        if (qn_tune_check(&row) == QUERN_OK && qn_tune_list_add(list, &row) != QUERN_OK) code = SQLITE_NOMEM;
    }
    qn_message_restore(&mark);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int qn_tune_read(sqlite3 *db, const char *spec, const char *status, qn_tune_list *list)
{
    bool has = false;
    int code = has_table(db, &has);

    return code || !has ? code : read_rows(db, spec, status, list);
}

static quern_status sqlite_of(quern_store *store, qn_sqlite **self)
{
    *self = qn_sqlite_of(store);
    return *self ? QUERN_OK : qn_fail(QUERN_UNSUPPORTED, "only an SQLite database keeps tuning results");
}

quern_status qn_sqlite_tune_read(quern_store *store, const char *spec, const char *status, qn_tune_list *list)
{
    quern_status result = QUERN_OK;
    qn_sqlite *self;
    qn_use use;

    QN_TRY(sqlite_of(store, &self));
    QN_TRY(qn_use_begin(self, &use));
    int code = use.db ? qn_tune_read(use.db, spec, status, list) : SQLITE_OK;
    if (code) result = qn_sqlite_fail(self, use.db, code, "reading tuning results");
    qn_use_end(&use);
    return result;
}

// ---- writing; inside a transaction

static int newest_of(sqlite3 *db, const qn_tune_row *problem, int64_t *newest)
{
    sqlite3_stmt *statement = NULL;
    int code = qn_prepare(db, "SELECT coalesce(max(created),-1) FROM tune WHERE " PROBLEM, &statement);

    if (!code) code = bind_problem(statement, problem);
    if (!code) code = sqlite3_step(statement);
    if (code == SQLITE_ROW) *newest = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return code == SQLITE_ROW ? SQLITE_OK : code;
}

static int remove_problem(sqlite3 *db, const qn_tune_row *problem)
{
    sqlite3_stmt *statement = NULL;
    int code = qn_prepare(db, "DELETE FROM tune WHERE " PROBLEM, &statement);

    if (!code) code = bind_problem(statement, problem);
    if (!code) code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int insert_rows(sqlite3 *db, const qn_tune_row *rows, size_t count)
{
    sqlite3_stmt *statement = NULL;
    int code = qn_prepare(db,
                          "INSERT OR REPLACE INTO tune(" COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,"
                          "?14,?15,?16,?17)",
                          &statement);

    for (size_t i = 0; i < count && !code; i++) {
        code = bind_row(statement, &rows[i]);
        if (!code) code = sqlite3_step(statement);
        if (code == SQLITE_DONE) code = sqlite3_reset(statement);
    }
    sqlite3_finalize(statement);
    return code;
}

static int put_problem(sqlite3 *db, const qn_tune_row *rows, size_t count, bool only_newer, bool *kept)
{
    int64_t newest = -1;
    int code = qn_exec(db, create_table);

    *kept = false;
    if (!code && only_newer) code = newest_of(db, rows, &newest);
    if (code || (only_newer && newest >= rows[0].created)) return code;
    code = remove_problem(db, rows);
    if (!code) code = insert_rows(db, rows, count);
    *kept = !code;
    return code;
}

static quern_status check_rows(const qn_tune_row *rows, size_t count)
{
    size_t best = 0;

    for (size_t i = 0; i < count; i++) {
        QN_TRY(qn_tune_check(&rows[i]));
        if (!qn_tune_same_problem(&rows[0], &rows[i]))
            return qn_fail(QUERN_BAD_ARGUMENT, "rows of several problems (\"%s\" and \"%s\") in one put", rows[0].spec,
                           rows[i].spec);
        best += !strcmp(rows[i].status, QN_TUNE_BEST);
    }
    return best < 2 ? QUERN_OK
                    : qn_fail(QUERN_BAD_ARGUMENT, "\"%s\", %s: %zu rows have the status %s, at most one may",
                              rows[0].spec, rows[0].bucket, best, QN_TUNE_BEST);
}

quern_status qn_tune_put(qn_sqlite *self, const qn_tune_row *rows, size_t count, bool only_newer, bool *kept)
{
    quern_status status = QUERN_OK;
    qn_use use;

    QN_TRY(qn_use_begin(self, &use));
    if (use.session->read_only) {
        status = qn_sqlite_refuse_write(self, use.session);
    } else {
        int code = qn_begin_immediate(&use);
        if (!code) code = qn_end_transaction(use.db, put_problem(use.db, rows, count, only_newer, kept));
        if (code) status = qn_sqlite_fail(self, use.db, code, "storing tuning results");
    }
    qn_use_end(&use);
    return status;
}

quern_status qn_sqlite_tune_put(quern_store *store, const qn_tune_row *rows, size_t count, bool only_newer, bool *kept)
{
    bool was_kept = false;
    qn_sqlite *self;

    QN_TRY(sqlite_of(store, &self));
    if (!count) return qn_fail(QUERN_MISSING_ARGUMENT, "no rows to put");
    QN_TRY(check_rows(rows, count));
    QN_TRY(qn_tune_put(self, rows, count, only_newer, &was_kept));
    if (kept) *kept = was_kept;
    return QUERN_OK;
}

// ---- many problems

// By problem; the winner first, so that rows[0] of a problem is it.
static int by_problem(const void *left, const void *right)
{
    const qn_tune_row *a = left, *b = right;
    int order = qn_tune_compare_problems(a, b);

    if (!order) order = !!strcmp(a->status, QN_TUNE_BEST) - !!strcmp(b->status, QN_TUNE_BEST);
    return order ? order : strcmp(a->config, b->config);
}

static quern_status put_sorted(qn_sqlite *self, const qn_tune_row *rows, size_t count, int64_t *kept,
                               int64_t *passed_over)
{
    for (size_t i = 0, next; i < count; i = next) {
        bool was_kept = false;
        for (next = i + 1; next < count && qn_tune_same_problem(&rows[i], &rows[next]);) next++;
        QN_TRY(check_rows(rows + i, next - i));
        QN_TRY(qn_tune_put(self, rows + i, next - i, true, &was_kept));
        ++*(was_kept ? kept : passed_over);
    }
    return QUERN_OK;
}

quern_status qn_sqlite_tune_merge(quern_store *store, const qn_tune_list *list, int64_t *kept, int64_t *passed_over)
{
    int64_t counts[2] = {0, 0};
    qn_sqlite *self;

    QN_TRY(sqlite_of(store, &self));
    qn_tune_row *sorted = malloc((list->count + 1) * sizeof *sorted);
    if (!sorted) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for %zu tuning results", list->count);
    if (list->count) memcpy(sorted, list->row, list->count * sizeof *sorted);
    qsort(sorted, list->count, sizeof *sorted, by_problem);
    quern_status status = put_sorted(self, sorted, list->count, &counts[0], &counts[1]);
    free(sorted);
    if (status) return status;
    *kept = counts[0], *passed_over = counts[1];
    return QUERN_OK;
}

quern_status qn_tune_copy(qn_sqlite *into, sqlite3 *from)
{
    quern_status status = QUERN_OK;
    qn_tune_list list = QN_TUNE_LIST_INIT;
    quern_store store = {.get = qn_sqlite_get, .self = into};
    int64_t kept, passed_over;
    int code = qn_tune_read(from, NULL, NULL, &list);

    if (code) status = qn_sqlite_fail(into, from, code, "reading tuning results");
    if (!status && list.count) status = qn_sqlite_tune_merge(&store, &list, &kept, &passed_over);
    qn_tune_list_fini(&list);
    return status;
}
