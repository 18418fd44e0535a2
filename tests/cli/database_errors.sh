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
rm -r *.db
# A full disk, here a limit on the size of files, is no fault of the database's: a run delivers, warm has nothing to.
logits logits.npy
t_full() {
    (ulimit -f 8 && t "$@")
}
t_full quern run 'softmax_topk V=8 K=2 in=bf16' --device cpu --db full.db logits=logits.npy indices=indices.npy
t_full quern warm "$spec" --arch sm_90a --db full.db
integers indices.npy
