// SPDX-License-Identifier: Apache-2.0
// Making a database smaller: damaged rows first, then what was not used for long, then the least recently used down to
// a cap; free pages go back to the file system. Called by the command.
// Each step is a transaction of its own, so that other processes get in between, and an interrupted prune is a smaller
// prune.
#include "cache/sqlite_private.h"

typedef struct pruning {
    qn_sqlite *store;
    int64_t not_used_since;
    int64_t removed, removed_bytes;
    quern_status status;
} pruning;

typedef int (*change_fn)(qn_use *use, pruning *to, int64_t number);

// One transaction around one change.
static quern_status change(pruning *to, change_fn apply, int64_t number, const char *doing)
{
    quern_status status = QUERN_OK;
    qn_use use;

    QN_TRY(qn_use_begin(to->store, &use));
    if (use.session->read_only) {
        status = qn_sqlite_refuse_write(to->store, use.session);
    } else {
        int code = qn_begin_immediate(&use);
        if (!code) code = qn_end_transaction(use.db, apply(&use, to, number));
        if (code) status = qn_sqlite_fail(to->store, use.db, code, doing);
    }
    qn_use_end(&use);
    return status;
}

static int apply_drop(qn_use *use, pruning *to, int64_t id)
{
    (void)to;
    return qn_drop_row(use->db, id);
}

static int apply_room(qn_use *use, pruning *to, int64_t limit)
{
    return qn_make_room(use, limit, &to->removed, &to->removed_bytes);
}

// An index that lost or kept a row after a damage is made anew from the table.
static int apply_reindex(qn_use *use, pruning *to, int64_t unused)
{
    (void)to, (void)unused;
    return qn_exec(use->db, "REINDEX kernel");
}

static int prune_row(void *user, const qn_row *row)
{
    pruning *to = user;
    bool old = to->not_used_since > 0 && row->record.used < to->not_used_since;

    if (!old && qn_row_fault(row) == QN_FAULT_NONE) return 0;
    to->status = change(to, apply_drop, row->id, "removing a row");
    if (to->status) return 1;
    to->removed++;
    to->removed_bytes += (int64_t)row->record.image_bytes;
    return 0;
}

static quern_status check_writable(qn_sqlite *store)
{
    qn_use use;

    QN_TRY(qn_use_begin(store, &use));
    quern_status status = use.session->read_only ? qn_sqlite_refuse_write(store, use.session) : QUERN_OK;
    qn_use_end(&use);
    return status;
}

static quern_status give_pages_back(qn_sqlite *store)
{
    quern_status status = QUERN_OK;
    qn_use use;

    QN_TRY(qn_use_begin(store, &use));
    int code = qn_exec(use.db, "PRAGMA incremental_vacuum");
    if (code) status = qn_sqlite_fail(store, use.db, code, "giving free pages back");
    qn_use_end(&use);
    return status;
}

quern_status qn_sqlite_prune(quern_store *store, int64_t cap_bytes, int64_t not_used_since, int64_t *removed,
                             int64_t *removed_bytes)
{
    pruning to = {.store = qn_sqlite_of(store), .not_used_since = not_used_since};
    qn_verify_report report;

    QN_TRY(check_writable(to.store));
    QN_TRY(qn_sqlite_verify(store, NULL, NULL, &report));
    if (!report.structure_ok) QN_TRY(change(&to, apply_reindex, 0, "rebuilding its indexes"));
    QN_TRY(qn_walk(to.store, true, prune_row, &to));
    QN_TRY(to.status);
    if (cap_bytes >= 0) QN_TRY(change(&to, apply_room, cap_bytes, "pruning to a cap"));
    QN_TRY(give_pages_back(to.store));
    *removed = to.removed;
    *removed_bytes = to.removed_bytes;
    return QUERN_OK;
}
