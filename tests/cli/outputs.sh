# SPDX-License-Identifier: Apache-2.0
# Where text is written to: devices and pipes take it and stay what they are, links stay links, databases are never replaced,
# and a script can tell from the exit status whether a file was written. (Arrays: output_errors.sh.)
spec='softmax_topk V=5000 K=8 in=f32'
version=$(quern --version | sed 's/quern //')-1
{
    printf 'quern-tune 1\n'
    for range in '5..14 8' '529… 1024' '63..66 64' '1..4 1'; do
        printf 'Some GPU\t90\t132\t233472\t62914560\t13\t%s\tsm_90a\t%s\trows %s\trows=%s\t' "$version" "$spec" ${range% *} "${range#* }"
        printf 'plan=stream block=256 ctas=1 local_k=4 unroll=2\tbest\t5000\t40\t1000\t\n'
    done
} >results.txt
quern tune --import results.txt --db t.db >/dev/null
kind() { stat -c '%n: %F' "$@"; }

# both options that write text, at every place
mkfifo pipe
ln -s /dev/null null
ln -s t.db link.db
ln -s nowhere lost
printf 'old' >old.txt
chmod 640 old.txt
ln -s old.txt link.txt
for place in null t.db link.db t.db-wal t.db-journal lost . absent/file link.txt; do
    t quern tune --export $place --db t.db
    t quern tune --explain "$spec" --db t.db --plot $place >"$TMPDIR/whole"
    grep -v '^[^!=$]' "$TMPDIR/whole"
done
(timeout 20 cat pipe >taken) & # a pipe that was replaced gives nothing
t quern tune --export pipe --db t.db
wait
grep -c plan=stream taken
kind pipe null link.db link.txt
stat -c '%a' old.txt
ln -s /proc/self/fd/1 stdout # as /dev/stdout is; a fault here must not cost the machine its own
quern tune --export stdout --db t.db >shell.txt
kind stdout
tail -n 1 shell.txt
grep -c plan=stream shell.txt
ls | grep -v -x -e pipe -e null -e stdout -e link.db -e lost -e old.txt -e link.txt -e taken -e results.txt -e shell.txt

# sealed, the user's own, and the database that the option --db names
quern tune --import results.txt >/dev/null
cp t.db sealed.db
quern cache seal sealed.db >/dev/null
t quern tune --export "$QUERN_CACHE_DIR/quern-v1.db" --db t.db
t quern tune --export sealed.db --db t.db
for database in t.db sealed.db "$QUERN_CACHE_DIR/quern-v1.db"; do quern tune --export - --db "$database" | grep -c plan=stream; done
logits logits.npy
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy values=t.db --db t.db --device cpu >"$TMPDIR/whole"
grep '^[!=]' "$TMPDIR/whole"
quern cache verify t.db
# made by the command itself, meanwhile; not by one that looks for no kernel
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy values=new.db --db new.db >"$TMPDIR/whole"
grep '^! quern: new' "$TMPDIR/whole"
grep '^=' "$TMPDIR/whole"
quern cache verify new.db | grep -c 'structure ok'
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy values=v.npy --db none.db --device cpu >"$TMPDIR/whole"
grep '^=' "$TMPDIR/whole"
ls none.db 2>/dev/null
t quern tune --import - --db in.db <results.txt
t env QUERN_LOG=all QUERN_LOG_FILE=t.db quern warm 'gate E=8 K=2 in=f32' --arch sm_90a --db '' --N 1 >"$TMPDIR/whole"
grep '^!.*log file' "$TMPDIR/whole"
quern cache verify t.db
for file in t.db-journal ./t.db.lock "$PWD/fresh.db-journal" fresh.db; do # of a database that is there, and of one to come
    t env QUERN_LOG=all QUERN_LOG_FILE=$file quern warm 'gate E=8 K=2 in=f32' --arch sm_90a --db fresh.db --N 1 >"$TMPDIR/whole"
    grep '^!.*log file' "$TMPDIR/whole"
done
t quern tune --export t.db.lock --db t.db

# nothing to draw: nothing is written, and the status says it
t quern tune --explain 'softmax_topk V=5001 K=8 in=f32' --db t.db --plot none.svg
t quern tune --explain 'gate E=256 K=6 in=f32 bias=1' --db t.db --plot none.svg >"$TMPDIR/whole"
grep '^[!=]' "$TMPDIR/whole"
ls none.svg 2>/dev/null
