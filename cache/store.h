// SPDX-License-Identifier: Apache-2.0
// The SQLite store: the built-in implementation of quern_store (quern.h, section 12), and what the command does with a
// database file. The format is in cache/README.md. Numbered promises, attacked by tests/fault:
//   (1) A database that is busy, locked, read-only or full is not a broken one; nothing here unlinks or renames it.
//   (2) Nothing but SQLite opens the database file.
//   (3) A connection is not used after fork: the child opens its own.
//   (4) One put is one transaction; a reader sees the whole row or none.
//   (5) No failure leaves the file in a state the next process can't use.
#ifndef QN_CACHE_STORE_H
#define QN_CACHE_STORE_H

#include "base/log.h"
#include "base/text.h"

typedef enum qn_sqlite_access {
    QN_SQLITE_READ_WRITE, // made when it does not exist
    QN_SQLITE_READ_ONLY,  // mode=ro with locks, after a rollback for a writer that died; immutable=1 with the seal mark
} qn_sqlite_access;

typedef struct qn_sqlite_options {
    const char *file;
    qn_sqlite_access access;
    int busy_timeout_ms;
    int64_t cap_bytes; // -1: none
    bool allow_network_fs;
    const qn_log *log;
    int (*cancel)(void *user); // asked between the transactions of an import; nonzero ends it. NULL: never
    void *cancel_user;
} qn_sqlite_options;

// Opens lazily: the file is touched by the first get or put. out->self is owned; close with qn_sqlite_close.
quern_status qn_sqlite_open(const qn_sqlite_options *options, quern_store *out);
void qn_sqlite_close(quern_store *store);

// Opens now and says what is wrong (the command's --db): STORE_OPEN, _FOREIGN, _NEWER, _CORRUPT, _BUSY, …
quern_status qn_sqlite_probe(quern_store *store);
bool qn_sqlite_is_sealed(quern_store *store);

// ---- maintenance (quern cache …)

typedef struct qn_sqlite_info {
    int64_t entries, image_bytes, file_bytes;
    int schema;
    bool sealed, read_only;
    int64_t oldest_used, newest_used;
} qn_sqlite_info;
quern_status qn_sqlite_get_info(quern_store *store, qn_sqlite_info *info);

typedef struct qn_verify_report {
    int64_t entries, bad_sum, bad_key, bad_image;
    bool structure_ok; // SQLite's own integrity check
} qn_verify_report;
// Checks every row: key hashes to hash, image to sum, plausible cubin. each (may be NULL) gets the bad ones.
quern_status qn_sqlite_verify(quern_store *store, quern_record_fn each, void *user, qn_verify_report *report);
// Removes bad rows; least recently used first down to cap_bytes (-1: no limit), and rows not used since (0: any).
quern_status qn_sqlite_prune(quern_store *store, int64_t cap_bytes, int64_t not_used_since, int64_t *removed,
                             int64_t *removed_bytes);
// Copies every valid kernel of another store (a merge: rows that exist stay). Memory does not grow with the count.
// CANCELLED when into's cancel says so. Whatever is returned, the numbers are those of what is committed, and stays.
// Tuning results, which this layer cannot judge, are for tune/take.h.
quern_status qn_sqlite_import(quern_store *into, quern_store *from, int64_t *added, int64_t *present, int64_t *bad);
// Writes a compact copy to a new file (which must not exist). The copy is not sealed.
quern_status qn_sqlite_export(quern_store *store, const char *file);
// Verifies, writes the seal mark (a row), leaves no journal: then the file is opened immutable and never written. Its
// mode becomes 0444, for it is shipped to be read by others. STORE_CORRUPT if any row is bad.
quern_status qn_sqlite_seal(quern_store *store);
// Whether the file's path is short enough for SQLite, whoever may be to open it. STORE_OPEN with the limit.
quern_status qn_sqlite_check_path(const char *file);
// Sets a damaged file aside as FILE.broken-<n> (a copy: the file stays the same inode, for others have it open), empties
// it in place and saves what can be read, all under an exclusive lock of the side file FILE.lock (STORE_BUSY when it is
// held). A sound file is left as it is: *saved = 0, nothing put into set_aside. A file that was not
// evidently a database of Quern's, another program's and one of a newer format are refused.
quern_status qn_sqlite_repair(const qn_sqlite_options *options, int64_t *saved, qn_text *set_aside);

#endif
