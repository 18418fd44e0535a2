# SPDX-License-Identifier: Apache-2.0
# tune without a GPU: it refuses; results travel as text, are listed, explained, plotted, and used by show and warm.
spec='softmax_topk V=5000 K=8 in=f32'
results() { # LIBRARY CREATED BLOCK
    printf 'quern-tune 1\n# a comment\n'
    head=$(printf 'Some GPU\t90\t132\t233472\t62914560\t13\t%s\tsm_90a\t%s\trows 5..14\trows=8' "$1" "$spec")
    row='%s\tplan=stream block=%s ctas=1 local_k=%s unroll=2\t%s\t%s\t%s\t%s\t%s\n'
    printf "$row" "$head" "$3" 4 best 5000 40 "$2" '' "$head" 512 2 slower 6500 60 "$2" '30.0 % slower, 5 replays' \
        "$head" 512 1 wrong 0 0 "$2" 'row 3, place 7'
}
# The list without what comes with the library, columns one blank apart.
listed() { quern tune --list "$@" | grep -v ' built-in$' | tr -s ' '; }
version=$(quern --version | sed 's/quern //')-1
t quern tune "$spec"
t quern tune --list --db t.db
results "$version" 1000 256 >t.txt
t quern tune --import t.txt --db t.db
t quern tune --import t.txt --db t.db
t listed --db t.db
t quern tune --explain "$spec" --db t.db --plot t.svg
grep -c 'class="best"' t.svg
tail -n 1 t.svg
t quern tune --explain 'softmax_topk V=5001 K=8 in=f32' --db t.db
t quern tune --export - --db t.db
t quern tune --export out.txt --db t.db
t quern tune --import out.txt --db copy.db
t quern tune --export again.txt --db copy.db
cmp out.txt again.txt && echo same
t quern show plan "$spec" --arch sm_90a --rows 8 --db t.db
t env QUERN_TUNE=off quern show plan "$spec" --arch sm_90a --rows 8 --db t.db
results 0.0.1 2000 128 >old.txt
t quern tune --import old.txt --db t.db
t quern show plan "$spec" --arch sm_90a --rows 8 --db t.db
t listed --db t.db
t_json quern tune --list --db t.db --json
t_json quern tune --explain "$spec" --db t.db --json
# a sealed database serves its results, frozen or not, and takes none
t quern tune --import t.txt --db sealed.db
t quern cache seal sealed.db
t quern tune --import old.txt --db sealed.db
t env QUERN_TUNE=frozen QUERN_SEALED=sealed.db quern show plan "$spec" --arch sm_90a --rows 8
t env QUERN_TUNE=frozen quern show plan "$spec" --arch sm_90a --rows 8 --db t.db
# what is refused
t quern tune
t quern tune --list --export x
t quern tune "$spec" --list
t quern tune "$spec" --budget soon
t quern tune 'softmax_topk V=1 K=2 in=f32'
t quern tune --import absent.txt --db t.db
printf 'quern-tune 9\n' >new.txt
t quern tune --import new.txt --db t.db
printf 'quern-tune 1\nonly one field\n' >bad.txt
t quern tune --import bad.txt --db t.db

# Mistakes are told before a GPU is looked for.
t quern tune "$spec" --rows 1,x
t quern tune "$spec" --rows 1,
t quern tune "$spec" --rows 1,,8
t quern tune "$spec" --N 8
t quern tune 'gate E=64 K=4 in=f32' --rows 8
t quern tune "$spec batch_invariant=1"
t quern tune "$spec" 'gate E=64 K=4 in=f32' --rows 8 --N 8,64
t quern tune --compare --list
t quern tune --list --plot x.svg

# Gains over what the library itself would choose: of one range that was timed with it, and one that was not.
quern show plan "$spec" --arch sm_90a --rows 8 --json >plan.json
own=$(sqlite3 :memory: "SELECT json_extract(readfile('plan.json'), '$.kernels[0].configuration')")
{
    results "$version" 1000 256
    printf '%s\n' "$head	$own	slower	6000	30	1000	"
    results "$version" 1000 128 | sed -n '3p' | sed "s/rows 5..14	rows=8/rows 1..4	rows=1/"
} | grep -v '^$' >gains.txt
t quern tune --import gains.txt --db gains.db
t quern tune --compare --db gains.db
t quern tune --compare "$spec" --db gains.db --json >"$TMPDIR/whole"
json
sqlite3 :memory: "SELECT json_extract(CAST(readfile('$TMPDIR/out') AS TEXT), '$.gains.median_percent', '$.gains.above_25', '$.gains.own_not_timed')"
t quern tune --compare 'softmax_topk V=6000 K=8 in=f32' --db gains.db
t quern tune "$spec [rows 1..64]" --rows 8
# lines of a list that are the same spec are one, whatever range they have: else these would be too many ranges to tune
for n in 1 2 3 4 5 6 7 8 9; do seq -f "$spec [rows 1..%g]" 100; echo 'softmax_topk in=f32 K=8 V=5000'; done >many.txt
t quern tune @many.txt

# The built-in table: explained by its winners, and not compared.
t quern tune --explain 'gate E=384 K=6 in=f32 bias=1' --db t.db
t_json quern tune --explain 'gate E=384 K=6 in=f32 bias=1' --db t.db --json
printf 'quern-tune 1\n' >empty.txt
t quern tune --import empty.txt --db empty.db
t quern tune --compare --db empty.db
t quern tune --compare 'gate E=384 K=6 in=f32 bias=1' --db empty.db

# What could never be used is refused, and then nothing of the file is kept.
refused() { results "$version" 1000 256 | sed "$1" >refused.txt; t quern tune --import refused.txt --db refused.db; }
refused '4s/plan=stream/plan=nonsense/'
refused '4s/V=5000 K=8/K=8  V=5000/'
refused '4s/rows 5..14/rows 9..4/'
refused '4s/slower/slow/'
refused '4s/	1000	/	9999999999	/' | sed 's/says [0-9]*;/says N;/; s/([0-9]*)$/(N)/'
t quern tune --export - --db refused.db

# A database that is imported is judged in the same way: a range of sizes with such a result is left out, the rest comes.
{ results "$version" 1000 256; results "$version" 1000 128 | sed -n 3p | sed "s/rows 5..14	rows=8/rows 1..4	rows=1/"; } |
    grep . >two.txt
t quern tune --import two.txt --db two.db
sqlite3 two.db "UPDATE tune SET sizes='rows=64' WHERE bucket='rows 5..14' AND status='slower'"
t quern cache import two.db --db judged.db
t listed --db judged.db
t quern cache import two.db --db judged.db --json >"$TMPDIR/whole"
json
sqlite3 :memory: "SELECT json_extract(CAST(readfile('$TMPDIR/out') AS TEXT), '$.imported[0].tuned', '$.imported[0].tuned_left_out')"
# so is what prepare finds in one, and there it is a warning
sqlite3 two.db "UPDATE tune SET config='plan=stream' WHERE status='best'"
t quern show plan "$spec" --arch sm_90a --rows 8 --db two.db
# of borders that the range had before: the result serves the range that its sizes are in
sqlite3 judged.db "UPDATE tune SET bucket='rows 1..14'"
t quern show plan "$spec" --arch sm_90a --rows 1 --db judged.db
t quern show plan "$spec" --arch sm_90a --rows 8 --db judged.db
