# SPDX-License-Identifier: Apache-2.0
# Which tables tune shows, in which order; that looking makes nothing; and that no option is passed over without a word.
spec='softmax_topk V=5000 K=8 in=f32'
version=$(quern --version | sed 's/quern //')-1
row() { # BUCKET ROWS BLOCK
    printf 'Some GPU\t90\t132\t233472\t62914560\t13\t%s\tsm_90a\t%s\t%s\trows=%s\t' "$version" "$spec" "$1" "$2"
    printf 'plan=stream block=%s ctas=1 local_k=4 unroll=2\tbest\t5000\t40\t1000\t\n' "$3"
}
{ echo 'quern-tune 1'; row 'rows 529…' 1024 256; row 'rows 63..66' 64 256; row 'rows 5..14' 8 256; row 'rows 1..4' 1 256; } >sealed.txt
{ echo 'quern-tune 1'; row 'rows 15..30' 16 512; } >own.txt
listed() { quern tune --list "$@" | grep -v ' built-in$' | tr -s ' '; }

# nothing is made by looking
t quern tune --list --json >/dev/null
t quern tune --explain "$spec"
t quern tune --export -
t quern tune --compare
t quern tune --list --db absent.db
ls "$QUERN_CACHE_DIR" . 2>/dev/null

# sealed databases are seen as prepare sees them, ranges in the order of sizes
quern tune --import sealed.txt --db sealed.db >/dev/null
quern cache seal sealed.db >/dev/null
export QUERN_SEALED=sealed.db
t quern show plan "$spec" --arch sm_90a --rows 8 --db ''
t quern tune --explain "$spec" --db ''
t listed --db ''
quern tune --import own.txt --db own.db >/dev/null
t listed --db own.db
t quern tune --explain "$spec" --db own.db
t quern tune --list --db own.db --json >/dev/null
sqlite3 :memory: "SELECT json_extract(value, '$.table', '$.bucket') FROM json_each(CAST(readfile('$TMPDIR/out') AS TEXT), '$.results') WHERE json_extract(value, '$.device') = 'Some GPU'"
t env QUERN_SEALED=:absent.db:own.txt quern tune --explain "$spec" --db ''
unset QUERN_SEALED
quern tune --list 2>/dev/null | sed -n 's/.*gate E=384 K=6 in=f32 bias=1 *\(N [^ ]*\) .*/\1/p'

# options that would change nothing
for words in '--list --budget 5s' '--compare --jobs 2' '--list --rows 8' '--export x.txt --N 8' '--import own.txt --json' \
    '--export x.txt --json' '--compare --device gpu:1' '--import own.txt --plot x.svg'; do
    t quern tune $words --db own.db
done
t quern tune --explain "$spec" --rows 1 --db own.db
ls x.* 2>/dev/null

# files that others wrote: a byte-order mark is no part of the text, words steer no terminal
{ printf '\357\273\277'; cat own.txt; } >mark.txt
t quern tune --import mark.txt --db mark.db
bad=$(printf 'b\377\033.db')
cp own.db "$bad"
quern cache info "$bad" | head -n 1
quern cache info "$bad" --json >"$TMPDIR/out"
json
LC_ALL=C.UTF-8 grep -axv '.*' "$TMPDIR/out"
quern tune --list --json --db "$bad" >"$TMPDIR/out"
LC_ALL=C.UTF-8 grep -axv '.*' "$TMPDIR/out"
t quern cache seal "$(printf 'absent\033[31m\302\233.db')" >"$TMPDIR/whole"
tail -n 2 "$TMPDIR/whole"
