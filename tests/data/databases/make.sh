#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the golden databases in this folder again: make.sh BUILD, where BUILD is a build folder with tests.
# Needed only when a format is added: a file of a format that has been released is never made again, since what it
# proves is that the library still reads what it wrote then.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)

cc -std=gnu11 -D_GNU_SOURCE -I"$root/include" -I"$root/src" -I"$root" -I"$root/tests" make.c \
    "$build/libquern_test_support.a" "$build/libquern.a" -lcmocka -lsqlite3 -lxxhash -lpthread -ldl -lm -o "$build/make_golden"
rm -f ./*.db

"$build/make_golden" good-v1.db                    # opens: three rows
cp good-v1.db sealed-v1.db                         # opens, read-only: the same with the seal mark
sqlite3 sealed-v1.db "INSERT INTO meta VALUES('sealed','1')"
head -c $(($(stat -c %s good-v1.db) / 2)) good-v1.db > truncated.db              # STORE_CORRUPT
sqlite3 newer.db "PRAGMA page_size=512; PRAGMA application_id=0x51726e31; PRAGMA user_version=2; CREATE TABLE kernel(hash)" # STORE_NEWER
sqlite3 foreign.db "PRAGMA page_size=512; PRAGMA application_id=0x0f055112; PRAGMA user_version=1; CREATE TABLE event(id)"  # STORE_FOREIGN
sqlite3 unmarked.db "PRAGMA page_size=512; CREATE TABLE kernel(hash,key,image)"  # STORE_FOREIGN: no application_id
sqlite3 other_tables.db "PRAGMA page_size=512; PRAGMA application_id=0x51726e31; PRAGMA user_version=1; CREATE TABLE kernel(a); CREATE TABLE meta(name,value)" # STORE_FOREIGN
printf 'This is a text of more than a hundred bytes, which somebody gave for a database by mistake; it is none, and it stays as it is.\n' > text.db # STORE_FOREIGN
chmod 644 ./*.db
: > empty.db                                       # opens: a new database
