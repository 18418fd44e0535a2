# SPDX-License-Identifier: Apache-2.0
# One judgement of tuning results: what prepare or an import leaves out, tune shows as that, and never exports; what a
# database has that nobody could have put there is counted. And small things that tune and cache say of results.
spec='gate E=40 K=6 in=f32'
version=$(quern --version | sed 's/quern //')-1
row() { # BUCKET N CTAS STATUS NS
    printf 'Some GPU\t90\t132\t233472\t62914560\t13\t%s\tsm_90a\t%s\t%s\tN=%s\t' "$version" "$spec" "$1" "$2"
    printf 'plan=block ctas=%s\t%s\t%s\t40\t1000\t\n' "$3" "$4" "$5"
}
{ echo 'quern-tune 1'; row 'N 1..64' 8 8 best 5000; row 'N 1..64' 8 4 slower 6000; row 'N 65..512' 128 8 best 7000; } >good.txt
t quern tune --import good.txt --db good.db
# change FILE SQL: a copy of good.db, changed by SQLite
change() { cp good.db "$1" && sqlite3 "$1" "UPDATE tune SET $2 WHERE bucket = 'N 1..64' AND status = 'best'"; }
shown() { quern tune --list --db "$1" 2>err | grep 'Some GPU' | tr -s ' '; sed 's/^/! /' err; }

# each column, of what is out of form or cannot be used
for what in cc=9999999999999 sms=4294967296 sms=0 driver=0 ns=-5 ns=9e999 ns=1e16 spread_ns=-1 created=-5 "device=''" \
    'device=char(27)' 'note=char(27)' "bucket=''" "config=''" "library=''" "spec=printf('%.*c',100000,'x')" \
    "config='plan=block ctas=9999'" "arch='sm_77'" "sizes='N=65'"; do
    change bad.db "$what"
    rm -f into.db out.txt
    quern cache import bad.db --db into.db >out 2>err
    echo "$what: import = $?, said in $(grep -c 'are not imported; the first' err) line"
    quern tune --export out.txt --db bad.db >out 2>err
    echo "    export = $?; what it wrote: $(quern tune --import out.txt --db into.db)"
done

# what is left out is shown, and marked
change bad.db "config='plan=block ctas=9999'"
t shown bad.db
t quern tune --explain "$spec" --db bad.db
t quern tune --compare --db bad.db
t_json quern tune --list --db bad.db --json
t quern show plan "$spec" --arch sm_90a --N 8 --db bad.db >shown
grep '^! ' shown
cp good.db two.db && sqlite3 two.db "UPDATE tune SET status = 'best'"
t quern show plan "$spec" --arch sm_90a --N 8 --db two.db >shown
grep '^! ' shown
t quern tune --compare --db two.db
change ahead.db "created=strftime('%s','now')+200000"
quern show plan "$spec" --arch sm_90a --N 8 --db ahead.db 2>&1 | grep -c ' tuned'
t shown ahead.db

# ranges as they are written; a range that does not hold the sizes is not the one to blame
for bucket in 'N 01..64' 'N 1..64 ' 'N 1..99999999999999999999' 'N 1..7'; do
    { echo 'quern-tune 1'; row "$bucket" 8 8 best 5000; } >range.txt
    t quern tune --import range.txt --db range.db
done

# sealed results are compared, and shown once however often they are named
cp good.db sealed.db && quern cache seal sealed.db >/dev/null
t env QUERN_SEALED=sealed.db quern tune --compare "$spec" --db ''
QUERN_SEALED=sealed.db:sealed.db:./sealed.db shown good.db
QUERN_SEALED=sealed.db:./sealed.db quern tune --explain "$spec" --db '' 2>/dev/null | grep -c best

# small things
t quern cache import good.db --db fresh.db
t quern cache import good.db --db fresh.db --json
t quern tune --export '' --db good.db
t quern tune --import '' --db good.db
t quern tune --explain "$spec" --plot '' --db good.db
quern tune --export table.txt --db good.db
sqlite3 good.db 'DELETE FROM tune'
t quern tune --export table.txt --db good.db
wc -l <table.txt
t quern tune --export new.txt --db good.db

# where the library would not look, nothing is put
mkdir -m 777 open
t quern tune --import good.txt --db open/a.db
t quern cache import fresh.db --db open/b.db
t quern cache export open/c.db --db fresh.db
ls open
