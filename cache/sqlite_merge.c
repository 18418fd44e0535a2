// SPDX-License-Identifier: Apache-2.0
// Import: every good row of another store, of whatever make, put into this one. Called by the command and by repair.
//   (1) Memory holds one row, however many there are.
//   (2) Rows go in by batches, each a transaction: what an interrupted import has committed stays, and starting again
//       goes on where it stopped, since rows that exist are passed over.
//   (3) A row is believed only after its key, sum and columns were checked.
#include "cache/sqlite_private.h"

#include <string.h>

enum { BATCH_ROWS = 64, BATCH_BYTES = 4 << 20 };

typedef struct merging {
    qn_sqlite *into;
    qn_use use;
    bool in_batch;
    int64_t rows, bytes; // of this batch
    int64_t batch_added, batch_present;
    int64_t added, present, bad; // committed, but bad
    quern_status status;
} merging;

static quern_status begin_batch(merging *to)
{
    QN_TRY(qn_sqlite_cancelled(to->into));
    QN_TRY(qn_use_begin(to->into, &to->use));
    quern_status status = QUERN_OK;
    if (to->use.session->read_only) {
        status = qn_sqlite_refuse_write(to->into, to->use.session);
    } else {
        int code = qn_begin_immediate(&to->use);
        if (code) status = qn_sqlite_fail(to->into, to->use.db, code, "beginning an import");
    }
    if (status) qn_use_end(&to->use);
    to->in_batch = !status;
    to->rows = to->bytes = to->batch_added = to->batch_present = 0;
    return status;
}

static quern_status end_batch(merging *to, int code)
{
    quern_status status = QUERN_OK;

    if (!to->in_batch) return QUERN_OK;
    code = qn_end_transaction(to->use.db, code);
    if (code)
        status = qn_sqlite_fail(to->into, to->use.db, code, "importing");
    else
        to->added += to->batch_added, to->present += to->batch_present;
    qn_use_end(&to->use);
    to->in_batch = false;
    return status;
}

static bool is_complete(const quern_record *record)
{
    qn_message_mark mark;

    qn_message_save(&mark);
    bool complete = qn_check_record(record) == QUERN_OK;
    qn_message_restore(&mark);
    return complete;
}

static int merge_record(merging *to, const quern_record *record)
{
    bool added = false;

    if (!is_complete(record) || !qn_key_is_right(record) || !qn_image_is_right(record)) {
        to->bad++;
        return 0;
    }
    if (!to->in_batch) to->status = begin_batch(to);
    if (to->status) return 1;
    int code = qn_put_row(&to->use, record, &added);
    if (code == SQLITE_OK) ++*(added ? &to->batch_added : &to->batch_present);
    to->rows++;
    to->bytes += added ? (int64_t)(record->image_bytes + record->key_bytes) : 0;
    if (code || to->rows >= BATCH_ROWS || to->bytes >= BATCH_BYTES) to->status = end_batch(to, code);
    return to->status != QUERN_OK;
}

static int merge_foreign(void *user, const quern_record *record)
{
    return merge_record(user, record);
}

static int merge_row(void *user, const qn_row *row)
{
    merging *to = user;

    if (row->sound) return merge_record(to, &row->record);
    to->bad++;
    return 0;
}

quern_status qn_sqlite_import(quern_store *into, quern_store *from, int64_t *added, int64_t *present, int64_t *bad)
{
    merging to = {.into = qn_sqlite_of(into)};
    qn_sqlite *source = qn_sqlite_of(from);

    *added = *present = *bad = 0;
    if (source && qn_sqlite_same_file(to.into, source)) {
        return qn_fail(QUERN_BAD_ARGUMENT, "%s: a database cannot be imported into itself", source->file);
    }
    quern_status status =
        source ? qn_walk(source, true, merge_row, &to) : from->list(from->self, 1, merge_foreign, &to);
    quern_status end = end_batch(&to, SQLITE_OK); // the rows up to a failure of the source are good
    *added = to.added;
    *present = to.present;
    *bad = to.bad;
    if (to.status) return to.status;
    return status ? status : end;
}
