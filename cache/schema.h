// SPDX-License-Identifier: Apache-2.0
// The format of a database, version 1, as SQL. cache/README.md explains it; a change here is a new version (and a new
// file name), never a migration.
#ifndef QN_CACHE_SCHEMA_H
#define QN_CACHE_SCHEMA_H

enum {
    QN_SCHEMA_APPLICATION_ID = 0x51726e31, // "Qrn1"
    QN_SCHEMA_VERSION = 1,
    QN_SCHEMA_PAGE_BYTES = 16384
};

// Before the first table: neither can be changed once a database has pages.
#define QN_SCHEMA_BEFORE "PRAGMA page_size=16384; PRAGMA auto_vacuum=INCREMENTAL;"

// Typed by CHECK: STRICT tables are unreadable to SQLite before 3.37. The image is last, so that everything before it
// is read without its overflow pages.
#define QN_SCHEMA_TABLES                                                                                               \
    "CREATE TABLE kernel("                                                                                             \
    "id INTEGER PRIMARY KEY,"                                                                                          \
    "hash BLOB NOT NULL CHECK(typeof(hash)='blob' AND length(hash)=16),"                                               \
    "key BLOB NOT NULL CHECK(typeof(key)='blob'),"                                                                     \
    "toolchain TEXT NOT NULL CHECK(typeof(toolchain)='text'),"                                                         \
    "arch TEXT NOT NULL CHECK(typeof(arch)='text'),"                                                                   \
    "entry TEXT NOT NULL CHECK(typeof(entry)='text'),"                                                                 \
    "spec TEXT NOT NULL CHECK(typeof(spec)='text'),"                                                                   \
    "kind INTEGER NOT NULL CHECK(typeof(kind)='integer'),"                                                             \
    "sum BLOB NOT NULL CHECK(typeof(sum)='blob' AND length(sum)=16),"                                                  \
    "regs INTEGER NOT NULL CHECK(typeof(regs)='integer'),"                                                             \
    "smem INTEGER NOT NULL CHECK(typeof(smem)='integer'),"                                                             \
    "lmem INTEGER NOT NULL CHECK(typeof(lmem)='integer'),"                                                             \
    "compile_us INTEGER NOT NULL CHECK(typeof(compile_us)='integer'),"                                                 \
    "created INTEGER NOT NULL CHECK(typeof(created)='integer'),"                                                       \
    "used INTEGER NOT NULL CHECK(typeof(used)='integer'),"                                                             \
    "rowsum BLOB NOT NULL CHECK(typeof(rowsum)='blob' AND length(rowsum)=16),"                                         \
    "image BLOB NOT NULL CHECK(typeof(image)='blob'),"                                                                 \
    "UNIQUE(hash,toolchain));"                                                                                         \
    "CREATE INDEX kernel_used ON kernel(used);"                                                                        \
    "CREATE TABLE meta(name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL);"                                          \
    "PRAGMA application_id=0x51726e31; PRAGMA user_version=1;"

// The seal mark is the row of meta that has this name.
#define QN_SCHEMA_SEAL "sealed"

#endif
