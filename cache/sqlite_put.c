// SPDX-License-Identifier: Apache-2.0
// Writing: one put or one remove is one immediate transaction (promise 4). Callbacks of quern_store; import and prune
// use the parts.
//   (1) An entry of the same hash and toolchain stays, even with another key; only a damaged one makes room.
//   (2) With a cap, images never exceed it: least recently used first, down to 90 %, in the same transaction. A put near
//       the cap costs no look at every row: their sum is kept.
//   (3) A damaged index cannot keep a damaged row alive: it is rebuilt and the row dropped.
#include "cache/sqlite_private.h"

#include <string.h>

enum { KEEP_OF_TEN = 9 }; // what eviction leaves, so that not every put evicts

static int delete_row(sqlite3 *db, int64_t id)
{
    sqlite3_stmt *statement = NULL;
    int code = qn_prepare(db, "DELETE FROM kernel WHERE id=?1", &statement);

    if (!code) code = sqlite3_bind_int64(statement, 1, id);
    if (!code) code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int qn_drop_row(sqlite3 *db, int64_t id)
{
    int code = delete_row(db, id);

    if (code != SQLITE_CORRUPT_INDEX) return code;
    // A flipped bit in an indexed column: the index still has the value from before.
    code = qn_exec(db, "REINDEX kernel");
    return code ? code : delete_row(db, id);
}

// ---- the cap

static int oldest(sqlite3 *db, int64_t *id, int64_t *bytes)
{
    sqlite3_stmt *statement = NULL;
    int code = qn_prepare(db, "SELECT id,length(image) FROM kernel ORDER BY used,id LIMIT 1", &statement);

    if (!code) code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        *id = sqlite3_column_int64(statement, 0);
        *bytes = sqlite3_column_int64(statement, 1);
    }
    sqlite3_finalize(statement);
    return code;
}

// The sum is taken once and kept up to date by the session's own puts; another connection's change makes it unknown.
static int sum_images(qn_use *use)
{
    int64_t version = 0;
    int code = qn_query_int(use->db, "PRAGMA data_version", &version);

    if (code || (use->image_bytes >= 0 && use->session->data_version == version)) return code;
    code = qn_query_int(use->db, "SELECT coalesce(sum(length(image)),0) FROM kernel", &use->image_bytes);
    if (code) use->image_bytes = -1;
    use->session->data_version = version;
    return code;
}

int qn_make_room(qn_use *use, int64_t limit, int64_t *removed, int64_t *removed_bytes)
{
    int64_t id = 0, bytes = 0;
    int code = sum_images(use);

    while (!code && use->image_bytes > limit) {
        code = oldest(use->db, &id, &bytes);
        if (code == SQLITE_DONE) return SQLITE_OK;
        if (code != SQLITE_ROW) return code;
        code = qn_drop_row(use->db, id);
        use->image_bytes -= bytes;
        if (!code) ++*removed, *removed_bytes += bytes;
    }
    return code;
}

// Pages bound the images from above, and cost nothing to count: the images are summed only near the cap.
static int keep_cap(qn_use *use, int64_t more)
{
    const int64_t cap = use->store->cap_bytes;
    int64_t pages = 0, free_pages = 0, removed = 0, removed_bytes = 0;

    if (cap < 0) return SQLITE_OK;
    if (more > cap) return SQLITE_FULL;
    int code = qn_query_int(use->db, "PRAGMA page_count", &pages);
    if (!code) code = qn_query_int(use->db, "PRAGMA freelist_count", &free_pages);
    if (code || (pages - free_pages) * QN_SCHEMA_PAGE_BYTES + more <= cap) return code;
    code = sum_images(use);
    if (code || use->image_bytes + more <= cap) return code;
    int64_t keep = cap - cap / 10 * (10 - KEEP_OF_TEN) - more;
    return qn_make_room(use, keep > 0 ? keep : 0, &removed, &removed_bytes);
}

// ---- put

quern_status qn_check_record(const quern_record *record)
{
    if (record->size < sizeof *record) {
        return qn_fail(QUERN_BAD_ARGUMENT, "a record of %zu bytes: %zu are needed", record->size, sizeof *record);
    }
    if (!record->key || !record->toolchain || !record->arch || !record->entry || !record->image) {
        return qn_fail(QUERN_MISSING_ARGUMENT, "a record needs key, toolchain, arch, entry and image");
    }
    if (!record->key_bytes || !record->image_bytes || record->key_bytes > INT32_MAX ||
        record->image_bytes > INT32_MAX) {
        return qn_fail(QUERN_BAD_ARGUMENT, "a record's key has %zu bytes, its image %zu: 1 … %d are allowed",
                       record->key_bytes, record->image_bytes, INT32_MAX);
    }
    return QUERN_OK;
}

// Is there an entry that stays? One that is damaged is dropped.
static int look_for_entry(qn_use *use, const quern_record *record, bool *stays)
{
    sqlite3 *db = use->db;
    sqlite3_stmt *statement = NULL;
    qn_row row = {0};
    int code = qn_prepare(db,
                          "SELECT " QN_ROW_ALL " FROM kernel"
                          " WHERE id=(SELECT id FROM kernel WHERE hash=?1 AND toolchain=?2)",
                          &statement);

    if (!code) code = sqlite3_bind_blob(statement, 1, record->hash, sizeof record->hash, SQLITE_STATIC);
    if (!code) code = sqlite3_bind_text(statement, 2, record->toolchain, -1, SQLITE_STATIC);
    if (!code) code = sqlite3_step(statement);
    bool found = code == SQLITE_ROW;
    if (found) code = qn_row_read(&row, statement);
    sqlite3_finalize(statement);
    if (found && !code) {
        *stays = row.sound && qn_image_is_right(&row.record);
        if (!*stays) {
            code = qn_drop_row(db, row.id);
            use->image_bytes = -1;
        }
    }
    qn_row_fini(&row);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int bind_record(sqlite3_stmt *statement, const quern_record *record, const qn_hash *rowsum)
{
    const char *texts[] = {record->toolchain, record->arch, record->entry, record->spec};
    const int64_t numbers[] = {record->registers,  record->shared_bytes, record->local_bytes,
                               record->compile_us, record->created,      record->used};
    int code = sqlite3_bind_blob(statement, 1, record->hash, sizeof record->hash, SQLITE_STATIC);

    if (!code) code = sqlite3_bind_blob(statement, 2, record->key, (int)record->key_bytes, SQLITE_STATIC);
    for (int i = 0; i < 4 && !code; i++) code = sqlite3_bind_text(statement, 3 + i, texts[i], -1, SQLITE_STATIC);
    if (!code) code = sqlite3_bind_int64(statement, 7, record->kind);
    if (!code) code = sqlite3_bind_blob(statement, 8, record->sum, sizeof record->sum, SQLITE_STATIC);
    for (int i = 0; i < 6 && !code; i++) code = sqlite3_bind_int64(statement, 9 + i, numbers[i]);
    if (!code) code = sqlite3_bind_blob(statement, 15, rowsum->bytes, sizeof rowsum->bytes, SQLITE_STATIC);
    if (!code) code = sqlite3_bind_blob(statement, 16, record->image, (int)record->image_bytes, SQLITE_STATIC);
    return code;
}

static int insert(sqlite3 *db, const quern_record *record)
{
    sqlite3_stmt *statement = NULL;
    quern_record full = *record;
    qn_hash rowsum;

    if (!full.spec) full.spec = "";
    if (!full.created) full.created = qn_now();
    if (!full.used) full.used = full.created;
    if (qn_row_sum(&full, &rowsum)) return SQLITE_NOMEM;
    int code = qn_prepare(db,
                          "INSERT INTO kernel(hash,key,toolchain,arch,entry,spec,kind,sum,regs,smem,lmem,compile_us,"
                          "created,used,rowsum,image) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)",
                          &statement);
    if (!code) code = bind_record(statement, &full, &rowsum);
    if (!code) code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    if (code == SQLITE_TOOBIG) return SQLITE_FULL; // of a row that is read it is a damage
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int qn_put_row(qn_use *use, const quern_record *record, bool *added)
{
    bool stays = false;
    int code = look_for_entry(use, record, &stays);

    *added = false;
    if (code || stays) return code;
    code = keep_cap(use, (int64_t)record->image_bytes);
    if (!code) code = insert(use->db, record);
    if (!code && use->image_bytes >= 0) use->image_bytes += (int64_t)record->image_bytes;
    *added = !code;
    return code;
}

quern_status qn_sqlite_put(void *self, const quern_record *record)
{
    qn_sqlite *store = self;
    quern_status status = QUERN_OK;
    qn_use use;
    bool added;

    QN_TRY(qn_check_record(record));
    if (store->cap_bytes >= 0 && (int64_t)record->image_bytes > store->cap_bytes) {
        return qn_fail(QUERN_STORE_FULL, "%s: an image of %zu bytes is larger than the cap of %lld", store->file,
                       record->image_bytes, (long long)store->cap_bytes);
    }
    QN_TRY(qn_use_begin(store, &use));
    if (use.session->read_only) {
        status = qn_sqlite_refuse_write(store, use.session);
    } else {
        int code = qn_begin_immediate(&use);
        if (!code) code = qn_end_transaction(use.db, qn_put_row(&use, record, &added));
        if (!code) use.session->image_bytes = use.image_bytes;
        if (code) status = qn_sqlite_fail(store, use.db, code, "storing a kernel");
    }
    qn_use_end(&use);
    return status;
}

// ---- remove

// The row's id, 0 when there is none.
static int find_exact(sqlite3 *db, const quern_record *record, int64_t *id)
{
    sqlite3_stmt *statement = NULL;
    int code = qn_prepare(db, "SELECT id FROM kernel WHERE hash=?1 AND key=?2 AND toolchain=?3", &statement);

    if (!code) code = sqlite3_bind_blob(statement, 1, record->hash, sizeof record->hash, SQLITE_STATIC);
    if (!code) code = sqlite3_bind_blob(statement, 2, record->key, (int)record->key_bytes, SQLITE_STATIC);
    if (!code) code = sqlite3_bind_text(statement, 3, record->toolchain, -1, SQLITE_STATIC);
    if (!code) code = sqlite3_step(statement);
    *id = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

quern_status qn_sqlite_remove(void *self, const quern_record *record)
{
    qn_sqlite *store = self;
    quern_status status = QUERN_OK;
    int64_t id = 0;
    qn_use use;

    if (!record->key || !record->toolchain) {
        return qn_fail(QUERN_MISSING_ARGUMENT, "removing a record needs its hash, key and toolchain");
    }
    QN_TRY(qn_use_begin(store, &use));
    if (use.session->read_only) {
        status = use.db ? qn_sqlite_refuse_write(store, use.session) : QUERN_OK;
    } else {
        int code = qn_begin_immediate(&use);
        if (!code) {
            code = find_exact(use.db, record, &id);
            if (!code && id) code = qn_drop_row(use.db, id);
            code = qn_end_transaction(use.db, code);
        }
        if (code) status = qn_sqlite_fail(store, use.db, code, "removing a kernel");
    }
    qn_use_end(&use);
    return status;
}
