// SPDX-License-Identifier: Apache-2.0
// Reading: the look-up of one entry, the listing of all. Callbacks of quern_store, and the walk that maintenance uses.
//   (1) Whole keys are compared; a hash only finds candidates.
//   (2) A damaged row is a miss. Where the database may be written it is dropped, so that the next put takes its place.
//   (3) A hit writes nothing, but for `used` once a day; and that never waits and never fails the hit.
#include "cache/sqlite_private.h"

#include <string.h>
#include <time.h>

enum { SECONDS_A_DAY = 24 * 60 * 60, MAX_DAMAGED = 8 };

int64_t qn_now(void)
{
    return (int64_t)time(NULL);
}

// The n-th candidate of a hash, newest first. The inner query keeps the images out of the sorting.
static int read_candidate(qn_session *session, const quern_record *wanted, const char *toolchain, int n, qn_row *row)
{
    int code = SQLITE_OK;

    if (!session->get) {
        code = qn_prepare(session->db,
                          "SELECT " QN_ROW_ALL " FROM kernel WHERE id=(SELECT id FROM kernel WHERE hash=?1"
                          " AND (?2 IS NULL OR toolchain=?2) ORDER BY created DESC,id DESC LIMIT 1 OFFSET ?3)",
                          &session->get);
    }
    sqlite3_stmt *statement = session->get;
    if (!code) code = sqlite3_bind_blob(statement, 1, wanted->hash, sizeof wanted->hash, SQLITE_STATIC);
    if (!code) code = sqlite3_bind_text(statement, 2, toolchain, -1, SQLITE_STATIC);
    if (!code) code = sqlite3_bind_int(statement, 3, n);
    if (!code) code = sqlite3_step(statement);
    if (code == SQLITE_ROW && qn_row_read(row, statement)) code = SQLITE_NOMEM;
    int end = sqlite3_reset(statement); // the read transaction ends here, and with it the lock
    if (statement) sqlite3_clear_bindings(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE || !end ? code : end;
}

static bool is_wanted(const quern_record *wanted, const char *toolchain, const quern_record *found)
{
    if (wanted->key_bytes != found->key_bytes || memcmp(wanted->key, found->key, found->key_bytes)) return false;
    if (memcmp(wanted->hash, found->hash, sizeof found->hash)) return false;
    return !toolchain || !strcmp(toolchain, found->toolchain);
}

static int drop_damaged(qn_use *use, const int64_t *ids, int count)
{
    int code = count && !use->session->read_only ? qn_begin_immediate(use) : SQLITE_BUSY;

    if (code) return 0;
    for (int i = 0; i < count && !code; i++) code = qn_drop_row(use->db, ids[i]);
    return qn_end_transaction(use->db, code) ? 0 : count;
}

// The last use, to the day. A row of the future (a clock that was wrong) comes back to today.
static void touch(qn_use *use, const qn_row *row)
{
    int64_t now = qn_now(), age = now - row->record.used;
    sqlite3_stmt *statement = NULL;
    qn_message_mark mark;

    if (use->session->read_only || (age < SECONDS_A_DAY && age > -SECONDS_A_DAY)) return;
    qn_message_save(&mark);
    sqlite3_busy_timeout(use->db, 0);
    int code = qn_begin_immediate(use);
    if (!code) {
        code = qn_prepare(use->db, "UPDATE kernel SET used=?1 WHERE id=?2", &statement);
        if (!code) code = sqlite3_bind_int64(statement, 1, now);
        if (!code) code = sqlite3_bind_int64(statement, 2, row->id);
        if (!code) code = sqlite3_step(statement);
        sqlite3_finalize(statement);
        qn_end_transaction(use->db, code);
    }
    sqlite3_busy_timeout(use->db, use->store->busy_timeout_ms < 0 ? 0 : use->store->busy_timeout_ms);
    qn_message_restore(&mark);
}

static quern_status find(qn_use *use, const quern_record *wanted, const char *toolchain, qn_row *row, int *dropped)
{
    int64_t damaged[MAX_DAMAGED];
    int code, count = 0;
    bool found = false;

    for (int n = 0; !found; n++) {
        code = read_candidate(use->session, wanted, toolchain, n, row);
        if (code != SQLITE_ROW) break;
        found = row->sound && is_wanted(wanted, toolchain, &row->record); // else damaged, or a collision of hashes
        if (!row->sound && count < MAX_DAMAGED) damaged[count++] = row->id;
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return qn_sqlite_fail(use->store, use->db, code, "looking up a kernel");
    *dropped = drop_damaged(use, damaged, count);
    if (found) touch(use, row);
    return found ? QUERN_OK : QUERN_NOT_FOUND;
}

quern_status qn_sqlite_get(void *self, const quern_record *wanted, const char *toolchain, quern_record_fn found,
                           void *user)
{
    qn_sqlite *store = self;
    qn_row row = {.wanted = wanted};
    qn_use use;
    int dropped = 0;

    QN_TRY(qn_use_begin(store, &use));
    quern_status status = use.db ? find(&use, wanted, toolchain, &row, &dropped) : QUERN_NOT_FOUND;
    qn_use_end(&use);
    if (dropped) {
        qn_log_line(&store->log, "cache", QUERN_LOG_WARNING, "%s: %d damaged %s dropped", store->file, dropped,
                    dropped == 1 ? "row was" : "rows were");
    }
    if (status == QUERN_OK) found(user, &row.record);
    if (status == QUERN_NOT_FOUND) qn_fail(status, "%s: has no such entry", store->file);
    qn_row_fini(&row);
    return status;
}

// ---- all rows

// The first row behind `after`. The pages of a damaged table can lead to a row from before: taken, the walk would have no
// end.
static quern_status read_next(qn_sqlite *store, const char *sql, int64_t after, qn_row *row, bool *more)
{
    sqlite3_stmt *statement = NULL;
    qn_use use;

    QN_TRY(qn_use_begin(store, &use));
    int code = use.db ? qn_prepare(use.db, sql, &statement) : SQLITE_DONE;
    if (!code) code = sqlite3_bind_int64(statement, 1, after);
    if (!code) code = sqlite3_step(statement);
    if (code == SQLITE_ROW && qn_row_read(row, statement)) code = SQLITE_NOMEM;
    if (code == SQLITE_ROW && row->id <= after) code = SQLITE_CORRUPT;
    sqlite3_finalize(statement);
    *more = code == SQLITE_ROW;
    quern_status status = *more || code == SQLITE_DONE ? QUERN_OK : qn_sqlite_fail(store, use.db, code, "listing");
    qn_use_end(&use);
    return status;
}

quern_status qn_walk(qn_sqlite *store, bool with_images, qn_row_fn each, void *user)
{
    const char *sql = with_images ? "SELECT " QN_ROW_ALL " FROM kernel WHERE id>?1 ORDER BY id LIMIT 1"
                                  : "SELECT " QN_ROW_HEAD " FROM kernel WHERE id>?1 ORDER BY id LIMIT 1";
    quern_status status;
    qn_row row = {.id = INT64_MIN};
    bool more = false;

    for (;;) {
        status = read_next(store, sql, row.id, &row, &more);
        if (status || !more || each(user, &row)) break;
    }
    qn_row_fini(&row);
    return status;
}

typedef struct listing {
    quern_record_fn each;
    void *user;
} listing;

static int list_sound(void *user, const qn_row *row)
{
    listing *to = user;

    return row->sound ? to->each(to->user, &row->record) : 0;
}

quern_status qn_sqlite_list(void *self, int with_images, quern_record_fn each, void *user)
{
    listing to = {each, user};

    return qn_walk(self, with_images != 0, list_sound, &to);
}
