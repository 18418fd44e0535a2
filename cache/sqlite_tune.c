// SPDX-License-Identifier: Apache-2.0
// The tuning table in SQLite (cache/tune.h). Called by runtime/stores.c, the command, import and repair.
//   (1) The table is made inside the transaction of the first put; a read never makes it.
//   (2) A problem's rows are replaced together: no reader sees half of them, nor two winners.
//   (3) No callback, and nothing of the caller's, runs while the database is in use.
#include "cache/tune.h"

#include <math.h>
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

// A text of a row that is read. What nobody could have put is kept so that qn_tune_check finds it: of one that is too long
// its beginning, and a zero byte, which would end it before its time, as another control character.
typedef struct read_text {
    char bytes[QN_TUNE_MAX_TEXT + 2];
} read_text;

static const char *take_text(sqlite3_stmt *statement, int column, read_text *out)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    size_t length = text ? (size_t)sqlite3_column_bytes(statement, column) : 0;

    if (length > QN_TUNE_MAX_TEXT) length = QN_TUNE_MAX_TEXT + 1;
    for (size_t i = 0; i < length; i++) out->bytes[i] = text[i] ? text[i] : 1;
    out->bytes[length] = 0;
    return out->bytes;
}

// Where the type is another one, or the number is too large for its place: a number that is out of range there as well.
static int64_t take_int(sqlite3_stmt *statement, int column, int64_t most)
{
    int64_t value = sqlite3_column_int64(statement, column);

    if (sqlite3_column_type(statement, column) != SQLITE_INTEGER || value < 0) return -1;
    return value < most ? value : most;
}

static double take_time(sqlite3_stmt *statement, int column)
{
    int type = sqlite3_column_type(statement, column);

    return type == SQLITE_FLOAT || type == SQLITE_INTEGER ? sqlite3_column_double(statement, column) : NAN;
}

enum { READ_TEXTS = 9 };

static qn_tune_row row_of(sqlite3_stmt *statement, read_text texts[READ_TEXTS])
{
    return (qn_tune_row){
        .device = {take_text(statement, 0, &texts[0]), (int32_t)take_int(statement, 1, INT32_MAX),
                   (int32_t)take_int(statement, 2, INT32_MAX), take_int(statement, 3, INT64_MAX),
                   take_int(statement, 4, INT64_MAX), (int32_t)take_int(statement, 5, INT32_MAX)},
        .library = take_text(statement, 6, &texts[1]),
        .arch = take_text(statement, 7, &texts[2]),
        .spec = take_text(statement, 8, &texts[3]),
        .bucket = take_text(statement, 9, &texts[4]),
        .config = take_text(statement, 10, &texts[5]),
        .sizes = take_text(statement, 11, &texts[6]),
        .status = take_text(statement, 12, &texts[7]),
        .note = take_text(statement, 13, &texts[8]),
        .ns = take_time(statement, 14),
        .spread_ns = take_time(statement, 15),
        .created = take_int(statement, 16, INT64_MAX),
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

// Rows that nobody could have put (a damaged or foreign table) come too: whoever asks judges them, and says so.
static int read_rows(sqlite3 *db, const char *spec, const char *status, qn_tune_list *list)
{
    sqlite3_stmt *statement = NULL;
    read_text texts[READ_TEXTS];
    int code =
        qn_prepare(db,
                   "SELECT " COLUMNS " FROM tune WHERE (?1 IS NULL OR spec=?1) AND (?2 IS NULL OR status=?2)"
                   " ORDER BY device,cc,sms,shared,l2,driver,library,arch,spec,bucket,status<>'best',ns=0,ns,config",
                   &statement);

    if (!code && spec) code = sqlite3_bind_text(statement, 1, spec, -1, SQLITE_STATIC);
    if (!code && status) code = sqlite3_bind_text(statement, 2, status, -1, SQLITE_STATIC);
    while (!code && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        qn_tune_row row = row_of(statement, texts);
        code = qn_tune_list_add(list, &row) == QUERN_OK ? SQLITE_OK : SQLITE_NOMEM;
    }
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

// How many problems one transaction takes: each that is synced costs as much as writing many.
enum { BATCH_PROBLEMS = 64 };

// From *at on; moves it past what was put. counts: problems kept, and passed over.
static int put_batch(sqlite3 *db, const qn_tune_row *rows, size_t count, size_t *at, int64_t counts[2])
{
    for (int problems = 0; *at < count && problems < BATCH_PROBLEMS; problems++) {
        bool kept = false;
        size_t next = qn_tune_next_problem(rows, count, *at);
        int code = put_problem(db, rows + *at, next - *at, true, &kept);
        if (code) return code;
        counts[!kept]++;
        *at = next;
    }
    return SQLITE_OK;
}

static quern_status put_sorted(qn_sqlite *self, const qn_tune_row *rows, size_t count, int64_t *kept,
                               int64_t *passed_over)
{
    for (size_t at = 0, next; at < count; at = next) {
        next = qn_tune_next_problem(rows, count, at);
        QN_TRY(check_rows(rows + at, next - at));
    }
    for (size_t at = 0; at < count;) {
        int64_t counts[2] = {0, 0};
        quern_status status = QUERN_OK;
        qn_use use;
        QN_TRY(qn_sqlite_cancelled(self));
        QN_TRY(qn_use_begin(self, &use));
        if (use.session->read_only) {
            status = qn_sqlite_refuse_write(self, use.session);
        } else {
            int code = qn_begin_immediate(&use);
            if (!code) code = qn_end_transaction(use.db, put_batch(use.db, rows, count, &at, counts));
            if (code) status = qn_sqlite_fail(self, use.db, code, "storing tuning results");
        }
        qn_use_end(&use);
        if (status) return status;
        *kept += counts[0], *passed_over += counts[1];
    }
    return QUERN_OK;
}

quern_status qn_sqlite_tune_merge(quern_store *store, const qn_tune_list *list, int64_t *kept, int64_t *passed_over)
{
    qn_sqlite *self;

    *kept = *passed_over = 0;
    QN_TRY(sqlite_of(store, &self));
    qn_tune_row *sorted = malloc((list->count + 1) * sizeof *sorted);
    if (!sorted) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for %zu tuning results", list->count);
    if (list->count) memcpy(sorted, list->row, list->count * sizeof *sorted);
    qsort(sorted, list->count, sizeof *sorted, by_problem);
    quern_status status = put_sorted(self, sorted, list->count, kept, passed_over);
    free(sorted);
    return status;
}

// Rows whose form is bad are not saved: nobody could have used them.
static quern_status copy_formed(const qn_tune_list *read, qn_tune_list *list)
{
    quern_status status = QUERN_OK;
    qn_message_mark mark;

    qn_message_save(&mark);
    for (size_t i = 0; i < read->count && !status; i++)
        if (qn_tune_check(&read->row[i]) == QUERN_OK) status = qn_tune_list_add(list, &read->row[i]);
    if (!status) qn_message_restore(&mark);
    return status;
}

quern_status qn_tune_copy(qn_sqlite *into, sqlite3 *from)
{
    quern_status status;
    qn_tune_list read = QN_TUNE_LIST_INIT, list = QN_TUNE_LIST_INIT;
    quern_store store = {.get = qn_sqlite_get, .self = into};
    int64_t kept, passed_over;
    int code = qn_tune_read(from, NULL, NULL, &read);

    status = code ? qn_sqlite_fail(into, from, code, "reading tuning results") : copy_formed(&read, &list);
    if (!status && list.count) status = qn_sqlite_tune_merge(&store, &list, &kept, &passed_over);
    qn_tune_list_fini(&read);
    qn_tune_list_fini(&list);
    return status;
}
