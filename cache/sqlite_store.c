// SPDX-License-Identifier: Apache-2.0
// The store's life: opening and closing it, the session that belongs to one process, and its use by one thread at a
// time. Called by runtime/state.c and by the command.
//   (1) A session of another process is never used and never closed: it is left behind on purpose. Closing it would
//       roll back or delete the journal of a transaction that is the parent's.
//   (2) A child that was forked while its parent was inside SQLite goes without a database: SQLite's own record of
//       the locks on that file was copied in the middle of a change.
//   (3) No callback, log line or message to the outside while a lock is held.
#include "cache/sqlite_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"

// ---- sessions

static qn_session *session_create(void)
{
    qn_session *session = calloc(1, sizeof *session);

    if (!session) return NULL;
    session->pid = getpid();
    session->image_bytes = -1;
    pthread_mutex_init(&session->mutex, NULL);
    return session;
}

static void session_destroy(qn_session *session)
{
    qn_session_close(session);
    pthread_mutex_destroy(&session->mutex);
    free(session);
}

// This process's session, made when there is none yet or the one there is was inherited.
static qn_session *session_of_process(qn_sqlite *store)
{
    qn_session *found = atomic_load(&store->session);

    while (!found || found->pid != getpid()) {
        qn_session *mine = session_create();
        if (!mine) return NULL;
        if (found && atomic_load(&found->in_use)) {
            mine->refused = qn_fail(QUERN_STORE_OPEN,
                                    "%s: this process was forked while its parent was inside the database; it goes on "
                                    "without one (fork while no thread is in a call on the quern)",
                                    store->file);
            qn_message_save(&mine->refusal);
        }
        if (atomic_compare_exchange_strong(&store->session, &found, mine)) return mine;
        session_destroy(mine); // another thread of this process was faster
    }
    return found;
}

quern_status qn_use_begin(qn_sqlite *store, qn_use *use)
{
    quern_status status = QUERN_OK;
    qn_session *session = session_of_process(store);

    memset(use, 0, sizeof *use);
    if (!session) return qn_fail(QUERN_OUT_OF_MEMORY, "%s: no memory for a connection", store->file);
    use->store = store, use->session = session;
    qn_signals_hold(&use->signals, false);
    pthread_mutex_lock(&session->mutex);
    atomic_store(&session->in_use, true);
    if (session->refused) {
        status = session->refused;
        qn_message_restore(&session->refusal);
    } else if (!session->open) {
        status = qn_session_open(store, session, &use->network);
    } else if (session->db && session->read_only && !session->sealed) {
        qn_roll_back_dead_writer(store);
    }
    use->db = session->db;
    if (status) qn_use_end(use);
    return status;
}

void qn_use_end(qn_use *use)
{
    // An empty database that this process may not make is looked at again: another process may make it.
    if (!use->session->db) use->session->open = false;
    atomic_store(&use->session->in_use, false);
    pthread_mutex_unlock(&use->session->mutex);
    qn_signals_release(&use->signals);
    if (use->network && !atomic_exchange(&use->store->warned_network, true)) {
        qn_log_line(&use->store->log, "cache", QUERN_LOG_WARNING,
                    "%s is on a network file system (%s), where locks cannot be trusted: it is only read, and new "
                    "kernels stay in memory (allow_network_fs = 1 writes all the same)",
                    use->store->file, use->network);
    }
}

// ---- the public structure

quern_status qn_sqlite_open(const qn_sqlite_options *options, quern_store *out)
{
    if (!options->file || !*options->file) return qn_fail(QUERN_MISSING_ARGUMENT, "a database needs a file name");
    if (!sqlite3_threadsafe()) {
        return qn_fail(QUERN_UNSUPPORTED, "the SQLite library in use (%s) was built without thread safety",
                       sqlite3_libversion());
    }
    qn_sqlite *store = calloc(1, sizeof *store);
    if (!store) return qn_fail(QUERN_OUT_OF_MEMORY, "no memory for a store");
    qn_text file = QN_TEXT_INIT;
    qn_path_absolute(options->file, &file);
    quern_status status = qn_text_check(&file);
    if (!status && !file.length) {
        status = qn_fail(QUERN_STORE_OPEN, "%s: the current directory, from which this path starts, is not known",
                         options->file);
    }
    if (status) {
        free(store);
        qn_text_fini(&file);
        return status;
    }
    store->file = file.bytes;
    store->access = options->access;
    store->busy_timeout_ms = options->busy_timeout_ms;
    store->cap_bytes = options->cap_bytes;
    store->allow_network_fs = options->allow_network_fs;
    store->cancel = options->cancel, store->cancel_user = options->cancel_user;
    if (options->log) store->log = *options->log;
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->self = store;
    out->get = qn_sqlite_get;
    out->put = qn_sqlite_put;
    out->list = qn_sqlite_list;
    out->remove = qn_sqlite_remove;
    return QUERN_OK;
}

qn_sqlite *qn_sqlite_of(quern_store *store)
{
    return store->get == qn_sqlite_get ? store->self : NULL;
}

void qn_sqlite_close(quern_store *store)
{
    qn_sqlite *self = qn_sqlite_of(store);

    if (!self) return;
    qn_session *session = atomic_load(&self->session);
    if (session && session->pid == getpid()) session_destroy(session);
    free(self->file);
    free(self);
    memset(store, 0, sizeof *store);
}

quern_status qn_sqlite_probe(quern_store *store)
{
    qn_use use;

    QN_TRY(qn_use_begin(qn_sqlite_of(store), &use));
    qn_use_end(&use);
    return QUERN_OK;
}

bool qn_sqlite_is_sealed(quern_store *store)
{
    qn_message_mark mark;
    qn_use use;

    qn_message_save(&mark);
    if (qn_use_begin(qn_sqlite_of(store), &use)) {
        qn_message_restore(&mark);
        return false;
    }
    bool sealed = use.session->sealed;
    qn_use_end(&use);
    return sealed;
}

quern_status qn_sqlite_cancelled(const qn_sqlite *store)
{
    if (!store->cancel || !store->cancel(store->cancel_user)) return QUERN_OK;
    return qn_fail(QUERN_CANCELLED, "%s: cancelled; what was committed before stays", store->file);
}

bool qn_sqlite_same_file(const qn_sqlite *a, const qn_sqlite *b)
{
    struct stat one, two;

    if (a == b) return true;
    return !stat(a->file, &one) && !stat(b->file, &two) && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}
