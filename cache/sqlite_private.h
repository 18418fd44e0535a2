// SPDX-License-Identifier: Apache-2.0
// What the files of the SQLite store share. Included by cache/sqlite_*.c only.
//
//   sqlite_store.c    qn_sqlite_open, close, probe; the session of this process; one use at a time
//   sqlite_file.c     from a path to a connection: creating the file, the URI, flags, read-only, seal, format checks
//   sqlite_path.c     how long a path may be
//   sqlite_status.c   SQLite's result codes → statuses and messages
//   sqlite_row.c      one row of table kernel: reading, copying, judging
//   sqlite_get.c      get, list            sqlite_put.c   put, remove, the cap
//   sqlite_verify.c   info, verify         sqlite_prune.c prune
//   sqlite_merge.c    import               sqlite_ship.c  export, seal        sqlite_repair.c repair
//   sqlite_trace.c    was a damaged file ours?
//   sqlite_tune.c     the tuning table (tune.h)
#ifndef QN_CACHE_SQLITE_PRIVATE_H
#define QN_CACHE_SQLITE_PRIVATE_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/key.h"
#include "base/signals.h"
#include "cache/schema.h"
#include "cache/store.h"
#include "cache/tune.h"

// A process's connection. A forked child finds another process's session and makes its own (promise 3).
typedef struct qn_session {
    pid_t pid;
    pthread_mutex_t mutex;
    atomic_bool in_use; // what a child may ask of the session it inherited, whose mutex it may not touch
    sqlite3 *db;        // NULL: not open yet, or an empty database that may not be written
    sqlite3_stmt *get;  // the look-up, prepared by the first one; reset while nobody is in use
    bool open;
    bool read_only, sealed;
    int64_t image_bytes, data_version; // the sum of all images, as of SQLite's data_version; -1: not known
    quern_status refused;              // a verdict on the file that trying again does not change
    qn_message_mark refusal;           // and its message
} qn_session;

typedef struct qn_sqlite {
    char *file; // absolute
    qn_sqlite_access access;
    int busy_timeout_ms;
    int64_t cap_bytes;
    bool allow_network_fs;
    int (*cancel)(void *user); // NULL: never
    void *cancel_user;
    qn_log log;
    atomic_bool warned_network;
    _Atomic(qn_session *) session;
} qn_sqlite;

// The only way to the connection: between begin and end this thread has it to itself, and SIGXFSZ is held back.
typedef struct qn_use {
    qn_sqlite *store;
    qn_session *session;
    sqlite3 *db; // NULL: there is nothing in this database and it cannot be written
    qn_held_signals signals;
    int64_t image_bytes; // the session's, which a transaction takes away and a put that is done gives back
    const char *network; // the kind of file system that made this store read-only, to be warned of without a lock held
} qn_use;
quern_status qn_use_begin(qn_sqlite *store, qn_use *use);
void qn_use_end(qn_use *use);

quern_status qn_sqlite_cancelled(const qn_sqlite *store); // between transactions: OK or CANCELLED
qn_sqlite *qn_sqlite_of(quern_store *store);              // NULL: a store of another make
bool qn_sqlite_same_file(const qn_sqlite *a, const qn_sqlite *b);

// ---- sqlite_file.c
typedef enum qn_verdict {
    QN_VERDICT_OURS,
    QN_VERDICT_EMPTY // no table at all: a database about to be made
} qn_verdict;

// *network is set when the file system makes it read-only.
quern_status qn_session_open(qn_sqlite *store, qn_session *session, const char **network);
void qn_session_close(qn_session *session); // and of what is prepared on its connection
// For a connection that only reads: if a writer died and left its journal, and this process may write file and folder,
// the file becomes what it was before that write. Does nothing in any other case, and sets no message.
void qn_roll_back_dead_writer(const qn_sqlite *store);
// FOREIGN, with its message, where another program's database has a journal of either kind beside it: before anything opens it
// that SQLite would recover it for. OK in any other case.
quern_status qn_refuse_foreign(const qn_sqlite *store);
// A plain connection with our settings and no look at the content. mode: "ro", "rw"; immutable for sealed files.
quern_status qn_connect(const qn_sqlite *store, const char *file, bool writable, bool immutable, sqlite3 **db);
void qn_put_uri(qn_text *uri, const char *file);
quern_status qn_check_format(const qn_sqlite *store, sqlite3 *db, qn_verdict *verdict, bool *sealed);
quern_status qn_create_tables(const qn_sqlite *store, sqlite3 *db);
// Makes an empty file, 0600 whatever the umask. errno, EEXIST included; 0 when made.
int qn_create_file(const char *file);
// Reads through the connection's own descriptor; false past the end or on an error.
bool qn_read_raw(sqlite3 *db, void *bytes, int count, int64_t offset);
enum { QN_AT_APPLICATION_ID = 68 }; // in the header: 4 bytes, big endian
// A write version in the header that SQLite does not know makes a database read-only to it, and does nothing else.
enum { QN_AT_VERSIONS = 18 }; // the write version, the read version: 1 (a rollback journal) or 2 (WAL)
bool qn_is_made_read_only(sqlite3 *db);

// ---- sqlite_trace.c
quern_status qn_was_ours(const qn_sqlite *store, sqlite3 *db, bool *ours); // of a file that SQLite cannot read

// ---- sqlite_status.c
quern_status qn_sqlite_status(sqlite3 *db, int code);
// The status of a failed call, with the message "FILE: doing: why; way out".
quern_status qn_sqlite_fail(const qn_sqlite *store, sqlite3 *db, int code, const char *doing);
quern_status qn_sqlite_refuse_write(const qn_sqlite *store, const qn_session *session);

// ---- statements
int qn_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **statement);
int qn_exec(sqlite3 *db, const char *sql);
int qn_query_int(sqlite3 *db, const char *sql, int64_t *value); // the first column of the first row
int qn_begin_immediate(qn_use *use); // SQLITE_READONLY when the file has been sealed meanwhile
// Commits if code is SQLITE_DONE or SQLITE_OK, else rolls back; the result of the whole.
int qn_end_transaction(sqlite3 *db, int code);
// SQLite's own check of pages, indexes and constraints; it does not see a flipped bit in a blob (sqlite_verify.c).
// SQLite says "out of memory" of a cell whose length is damaged to 2^31 bytes or more: where there is memory and it says
// so again, the result is SQLITE_CORRUPT.
int qn_check_integrity(sqlite3 *db, bool *right);

// ---- sqlite_row.c
#define QN_ROW_HEAD                                                                                                    \
    "id,hash,key,toolchain,arch,entry,spec,kind,sum,regs,smem,lmem,compile_us,created,used,rowsum,length(image)"
#define QN_ROW_ALL QN_ROW_HEAD ",image"

typedef struct qn_row {
    int64_t id;
    bool sound;          // types are right, and the row's own sum is (it covers all but image and used)
    quern_record record; // into bytes
    qn_text bytes;
    const quern_record *wanted; // NULL: any. A key equal to this one's is not copied: the record then has this one's
} qn_row;

int qn_row_read(qn_row *row, sqlite3_stmt *statement); // SQLITE_OK, SQLITE_NOMEM; copies everything
void qn_row_fini(qn_row *row);
quern_status qn_row_sum(const quern_record *record, qn_hash *sum);
bool qn_key_is_right(const quern_record *record);   // key hashes to hash
bool qn_image_is_right(const quern_record *record); // image hashes to sum

// What is wrong with a row that was read with its image. KEY stands for every column that is not the image (sqlite_verify.c).
typedef enum qn_fault { QN_FAULT_NONE, QN_FAULT_KEY, QN_FAULT_SUM, QN_FAULT_IMAGE } qn_fault;
qn_fault qn_row_fault(const qn_row *row);

// Every row in the order of ids, one read transaction a row: no lock is held while each runs, and it may change rows.
// Damaged rows come too (sound = false). Nonzero from each stops.
typedef int (*qn_row_fn)(void *user, const qn_row *row);
quern_status qn_walk(qn_sqlite *store, bool with_images, qn_row_fn each, void *user);

// ---- sqlite_put.c; inside a transaction
int qn_drop_row(sqlite3 *db, int64_t id);
int qn_put_row(qn_use *use, const quern_record *record, bool *added);
int qn_make_room(qn_use *use, int64_t limit, int64_t *removed, int64_t *removed_bytes); // least recently used first
quern_status qn_check_record(const quern_record *record);
int64_t qn_now(void);

// ---- sqlite_tune.c
int qn_tune_read(sqlite3 *db, const char *spec, const char *status, qn_tune_list *list);
quern_status qn_tune_put(qn_sqlite *self, const qn_tune_row *rows, size_t count, bool only_newer, bool *kept);
quern_status qn_tune_copy(qn_sqlite *into, sqlite3 *from); // what a connection can read; newer results stay

// ---- the callbacks of quern_store
quern_status qn_sqlite_get(void *self, const quern_record *wanted, const char *toolchain, quern_record_fn found,
                           void *user);
quern_status qn_sqlite_put(void *self, const quern_record *record);
quern_status qn_sqlite_list(void *self, int with_images, quern_record_fn each, void *user);
quern_status qn_sqlite_remove(void *self, const quern_record *record);

#endif
