# SPDX-License-Identifier: Apache-2.0
# Where warm's specs come from: manifests with ranges of sizes, a log, a model's configuration; shards; what is refused.
spec='softmax_topk V=16 K=4 in=f32'
cat >ranges.json <<END
{"specs": ["gate E=8 K=2 in=f32", {"spec": "$spec", "sizes": [{"rows": [1, 4]}, {"rows": [4096, 8192]}]}],
 "arch": ["sm_90a", "sm_80"], "sizes": {"N": [1, 64]}}
END
t quern warm @ranges.json --db ranges.db -j 1
t quern warm @ranges.json --db ranges.db --shard 1/2
t quern warm @ranges.json --list
t quern warm @ranges.json --N 3 --list                                # the command line's sizes win,
t quern warm @ranges.json --N 3 --rows 5 --arch sm_86 --list          # and make two ranges of a spec one
t quern warm @ranges.json --N 3 --rows 5 --arch sm_90a --db win.db -j 1
t quern warm @ranges.json --list --shard 1/4
t quern warm @ranges.json --list --shard 9/10
t quern warm @ranges.json --list --shard 10/10
t_json quern warm @ranges.json --list --shard 1/4 --json
sqlite3 :memory: "SELECT json_extract(CAST(readfile('$TMPDIR/out') AS TEXT), '\$.specs')"
t quern warm "$spec" --list --shard 0/2 # what is dealt out are pairs with architectures
quern warm @ranges.json --list >again.txt
t quern warm @again.txt --list # a list has its ranges; its architectures are a comment
for line in "$spec [rows 1..4" "$spec [rows 1..4] lse=1" "$spec [rows]" "$spec [rows 1..4, rows 5]" "$spec [rows 4..1]" "$spec [N 1]" "$spec [rows some]" \
    "$spec [rows 1 .. 4]" "$spec [rows 1 4]" "$spec [rows 1 - 4]" 'attention d=128 [Sq 1 Hq 32]' "$spec [ rows  1..4 ]"; do
    t quern warm "$line" --list
done
t quern warm "$spec" --arch sm_90a --rows 1..4 --db rows.db
t quern warm "$spec" --arch sm_90a --rows 5 --list --db rows.db
t quern warm "$spec" --arch sm_90a --rows 4..1 --db rows.db
t quern warm "$spec" --arch sm_90a --rows some --db rows.db
t quern warm "$spec" --arch sm_90a --N 4 --db rows.db
t quern warm "$spec" --arch sm_90a --rows -1 --list
t quern warm "$spec" --arch sm_90a --rows 2147483648 --list
t quern warm "$spec" --arch sm_90a --rows '1 .. 64' --list
bad() {
    printf '%s\n' "$1" >bad.json
    t quern warm @bad.json --arch sm_90a --list
}
bad '{"specs": [{"spec": "gate E=8 K=2 in=f32", "rows": [1, 2]}]}'
bad '{"specs": [{"spec": "gate E=8 K=2 in=f32", "sizes": {"rows": [1, 2]}}]}'
bad '{"specs": [{"spec": "gate E=8 K=2 in=f32", "sizes": {"N": [2, 1]}}]}'
bad '{"specs": [{"spec": "gate E=8 K=2 in=f32", "sizes": {"N": [1.5, 2]}}]}'
bad '{"specs": [{"spec": "gate E=8 K=2 in=f32", "sizes": 7}]}'
bad '{"specs": ["gate E=8 K=2 in=f32"], "sizes": {"rows": [1, 2]}}'
bad '{"specs": [7]}'
bad '{"specs": ["gate E=8 K=2 in=f32"], "specs": ["gate E=8 K=4 in=f32"]}'
bad '{"specs": [{"spec": "gate E=8 K=2 in=f32", "sizes": {"N": [1, 2], "N": [3, 4]}}]}'
bad '{"specs": ["gate E=8 K=2 in=f32"], "arch": ["sm_90a", "sm90a"]}' # though --arch wins
bad '{"specs": ["gate E=8 K=2 in=f32"], "arch": [90]}'
bad '{"specs": ["gate E=8 K=2 in=f32", "attention d=128"], "sizes": {"N": [1, 64], "Sq": 1}}' # a name of another family hides nothing
bad '{"specs": [{"spec": "gate E=8 K=2 in=f32", "sizes": {"N": [1, 2]}}], "sizes": {"N": [2, 1]}}' # nor do sizes of its own
bad '{"specs": [{"spec": "gate E=8 K=2 in=f32", "sizes": {"N": [1, 2]}}], "sizes": [7]}'
bad '{"specs": "gate"}'
bad '[]'
bad '{"specs": ["gate E=8 K=2 in=f32\u0000 bias=1"]}' # a zero byte would end the text
bad '{"specs": ["gate E=8 K=2 in=f32"], "note": "\\u0000 is a backslash and u0000"}'
for ends in '\r' '\r\n' '\r\r\n'; do # a list of an old Mac, of Windows, of a copy that went wrong
    printf "gate E=8 K=2 in=f32${ends}gate E=16 K=2 in=f32" >ends.txt
    t quern warm @ends.txt --arch sm_90a --list
done

# a log
t env QUERN_LOG=compile,cache QUERN_LOG_FILE=log quern warm "$spec" 'gate E=8 K=2 in=f32' --arch sm_90a --db log.db -j 1 # one at a time: the log's order is asserted
grep -c spec= log
printf 'host: quern,1,2,cache,info,hit kernel=x spec="source mine"\nhost: no spec\nspec="cut\n' >>log
t quern warm --from-log log --list
t quern warm @log --list
t quern warm --from-log log --db log.db
printf 'nothing\n' >empty
t quern warm --from-log empty --list

printf 'spec="cut\n\0\0\0\n%s\n' 'host: quern,1,2,cache,info,hit spec="gate E=16 K=2 in=f32"' >zeros # as a crash may leave it
t quern warm --from-log zeros --list

# Sizes of several families in one object; a list of such objects; as the command line's.
two() { printf '{"specs": ["gate E=8 K=2 in=f32", "%s"], "arch": ["sm_90a"], "sizes": %s}\n' "$spec" "$1" >two.json; }
two '{"rows": [1, 8], "N": [1, 64]}'
t quern warm @two.json --list
t quern warm @two.json --db two_families.db -j 1
two '[{"rows": [1, 8], "N": [1, 64]}, {"rows": [9, 16]}, {}]'
t quern warm @two.json --list

# Entries that are the same are one, however they are written and wherever they come from, so that no two shards do them.
printf '\357\273\277gate E=8 K=2 in=f32\ngate K=2 E=8 in=f32\ngate E=8 K=2 in=f32 [N 1]\ngate E=8 K=2 in=f32 [N 1..1]\n' >same.txt
t quern warm @same.txt @same.txt 'gate E=8 K=2 in=f32' --arch sm_90a,sm_80 --list
t quern warm @same.txt --arch sm_90a --shard 0/2 --list
t quern warm @same.txt --arch sm_90a --shard 1/2 --list
printf 'gate E=8 K=2 in=f32\n\0gate E=16 K=2 in=f32\n' >zero.txt # what stands behind it would be dropped
t quern warm @zero.txt --list
printf '{"specs": []}\0{' >zero.json
t quern warm @zero.json --list

# many machines, one database
t quern warm @ranges.json --db one.db --shard 0/2
t quern warm @ranges.json --db two.db --shard 1/2
t quern cache import one.db two.db --db all.db
t quern cache seal all.db
t env QUERN_SEALED=all.db QUERN_MODE=strict quern warm @ranges.json --db ''
t env QUERN_SEALED=all.db QUERN_MODE=strict quern warm "$spec" --arch sm_90a --db ''

# Sizes that a spec's layout does not have need not be given: a range inside one of the planner's is one variant.
variants() {
    t_json quern warm "$@" --arch sm_80 --db sizes.db --json
    sqlite3 :memory: "SELECT json_extract(CAST(readfile('$TMPDIR/out') AS TEXT), '\$.results[0].variants')"
}
variants 'attention d=16' --Sq 1 --Hq 8 --Hkv 8
variants 'attention d=16 layout=paged page=16' --Sq 20..99
variants 'indexer H=1 C=32 k=1 q=mxfp4 page=8' --T 1 --max_length 100

# a list without a spec is a mistake, an empty part of one is not; sizes that no launch may have
printf '# nothing yet\n\n' >none.txt
t quern warm @none.txt --arch sm_90a --db rows.db
t quern warm @none.txt --list
t quern warm "$spec" --arch sm_90a --shard 1/2 --db rows.db
t quern warm 'attention d=128' --arch sm_90a --Sq 1 --Hq 7 --Hkv 2 --db rows.db
t quern warm 'attention d=128' --arch sm_90a --Sq 1 --Hkv 2 --list # Hq is not given

# what would steer a terminal is shown as a question mark
printf 'soft\033]0;x\007max V=16 K=4 in=f32\n' >escape.txt
t quern warm @escape.txt --arch sm_90a --db rows.db

# A manifest's architectures are for its own specs, whatever stands beside it; so are a log's.
printf '{"specs": ["gate E=50 K=1 in=f32"], "arch": ["sm_90a"], "sizes": {"N": [1, 1]}}\n' >one.json
printf '{"specs": ["gate E=51 K=1 in=f32"], "arch": ["sm_80"], "sizes": {"N": [2, 2]}}\n' >other.json
t quern warm @one.json @other.json --list
t quern warm @one.json @other.json --shard 1/2 --list
t quern warm @one.json @other.json --db crossed.db -j 1
t quern warm @one.json @other.json --arch sm_86 --list # --arch is for all
t quern warm @one.json @log --list
printf '{"specs": ["gate E=50 K=1 in=f32"], "arch": ["sm_80", "sm_90a"], "sizes": {"N": [1, 1]}}\n' >same.json
t quern warm @one.json @same.json --list # the same entry has the architectures of both
printf 'gate E=52 K=1 in=f32\ngate E=50 K=1 in=f32 [N 1]\n' >beside.txt
t quern warm @one.json @beside.txt --list # the list says nothing of architectures, and gets none of the manifest's
t quern warm @one.json @beside.txt --db crossed.db
t quern warm @one.json @beside.txt --arch sm_90a --list
t quern warm "$spec" @one.json --shard 0/2 --list
bad '{"specs": ["gate E=8 K=2 in=f32"], "arch": []}'
bad '{"specs": ["gate E=8 K=2 in=f32"], "sizes": []}'
bad '{"specs": [{"spec": "gate E=8 K=2 in=f32", "sizes": []}]}'
bad '{"specs": ["gate E=8 K=2 in=f32 [N 1..4]"]}'
bad '{"specs": ["gate E=8 K=2 in=f32"], "sizes": {"N": [1, 9007199254740993]}}'
