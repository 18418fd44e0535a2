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
# SQLite's limit of a path is the system interface's, far below the system's own: it is named, and nothing is made.
part=$(printf '%0150d' 0)
folder=$(pwd -P)/$part/$part
mkdir -p "$folder" && ln -s "$(pwd -P)/$part" short
name() { printf "%0$(($1 - ${#folder} - 1))d" 0; } # of a file whose path has so many bytes
(
    cd "$folder" || exit
    t quern warm "$spec" --arch sm_90a --db "$(name 504)"
    t quern warm "$spec" --arch sm_90a --db "$(name 505)"
    t quern cache export "$(name 505)" --db "$(name 504)"
    ls "$(name 505)"* 2>/dev/null | grep -c .
)
t quern warm "$spec" --arch sm_90a --db "short/$part/$(name 505)" # links are followed, as SQLite follows them
t quern doctor --db "short/$part/$(name 505)" >"$TMPDIR/shown"
awk '/^cache folder/ { lines = 2 } lines-- > 0 || /^=/' "$TMPDIR/shown"
t env QUERN_CACHE_DIR="$folder/$part/$part" quern doctor >"$TMPDIR/shown"
awk '/^cache folder/ { lines = 2 } lines-- > 0' "$TMPDIR/shown"
