# SPDX-License-Identifier: Apache-2.0
# tools/built_in.sh: an exported table becomes the library's source: winners only, of one problem the last file's.
line() { # SPEC BUCKET SIZES CONFIG STATUS NS
    printf 'A "GPU"\t90\t132\t233472\t62914560\t13\t0.1.0-1\tsm_90a\t%s\t%s\t%s\t%s\t%s\t%s\t40\t1000\t\n' "$@"
}
built_in() { bash "$QUERN_CLI/../../tools/built_in.sh" "$@"; }
{
    echo 'quern-tune 1'
    line 'gate E=64 K=4 in=f32' 'N 1..64' 'N=1' 'plan=block ctas=8' best 1500
    line 'gate E=64 K=4 in=f32' 'N 1..64' 'N=1' 'plan=block ctas=4' slower 1600
} >first.txt
t quern tune --import first.txt --db t.db
t quern tune --export export.txt --db t.db
t built_in -o out.c export.txt
grep -c '^    {{"' out.c
grep '^    {{"' out.c
sed 's/ctas=8/ctas=6/' export.txt >second.txt
t built_in -o out.c export.txt second.txt
grep -o 'plan=block ctas=.' out.c
t built_in -o out.c
grep -c '^    {{"' out.c
printf 'device\n' >bad.txt
t built_in -o out.c bad.txt
t built_in -o out.c absent.txt
t built_in --frobnicate
t built_in -o
