# SPDX-License-Identifier: Apache-2.0
# --db fails on a file that is no usable database, and leaves it as it was.
spec='softmax_topk V=16 K=4 in=f32'
echo 'not a database, but long enough to be read as one by whoever does not look' >text.db
sqlite3 foreign.db 'PRAGMA application_id = 1234; CREATE TABLE t(x)'
sqlite3 newer.db 'PRAGMA application_id = 1366453809; PRAGMA user_version = 99; CREATE TABLE t(x)'
mkdir folder.db
for file in text foreign newer folder absent/new; do
    t quern warm "$spec" --arch sm_90a --db "$file.db"
    t quern cache info --db "$file.db"
done
cat text.db
sqlite3 foreign.db 'PRAGMA application_id; SELECT name FROM sqlite_master'
ls
