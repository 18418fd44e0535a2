# SPDX-License-Identifier: Apache-2.0
# Where warm's specs come from: manifests with ranges of sizes, a log, a model's configuration; shards; what is refused.
spec='softmax_topk V=16 K=4 in=f32'
cat >ranges.json <<END
{"specs": ["gate E=8 K=2 in=f32", {"spec": "$spec", "sizes": [{"rows": [1, 4]}, {"rows": [4096, 8192]}]}],
 "arch": ["sm_90a", "sm_80"], "sizes": {"N": [1, 64]}}
END
t quern warm @ranges.json --db ranges.db -j 1
t quern warm @ranges.json --db ranges.db --shard 1/2
t quern warm @ranges.json --N 3 --list # the manifest's own ranges stay
t quern warm "$spec" --arch sm_90a --rows 1..4 --db rows.db
t quern warm "$spec" --arch sm_90a --rows 5 --list --db rows.db
t quern warm "$spec" --arch sm_90a --rows 4..1 --db rows.db
t quern warm "$spec" --arch sm_90a --rows some --db rows.db
t quern warm "$spec" --arch sm_90a --N 4 --db rows.db
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
bad '{"specs": "gate"}'
bad '[]'

# a log
t env QUERN_LOG=compile,cache QUERN_LOG_FILE=log quern warm "$spec" 'gate E=8 K=2 in=f32' --arch sm_90a --db log.db -j 1 # one at a time: the log's order is asserted
grep -c spec= log
printf 'host: quern,1,2,cache,info,hit kernel=x spec="source mine"\nhost: no spec\nspec="cut\n' >>log
t quern warm --from-log log --list
t quern warm @log --list
t quern warm --from-log log --db log.db
printf 'nothing\n' >empty
t quern warm --from-log empty --list

# many machines, one database
t quern warm @ranges.json --db one.db --shard 0/2
t quern warm @ranges.json --db two.db --shard 1/2
t quern cache import one.db two.db --db all.db
t quern cache seal all.db
t env QUERN_SEALED=all.db QUERN_MODE=strict quern warm @ranges.json --db ''
t env QUERN_SEALED=all.db QUERN_MODE=strict quern warm "$spec" --arch sm_90a --db ''
