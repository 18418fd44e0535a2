# SPDX-License-Identifier: Apache-2.0
# warm: compiled, then cached; lists, manifests, shards; a bad line is named before anything is compiled.
spec='softmax_topk V=16 K=4 in=f32'
t quern warm "$spec" --arch sm_90a --db new.db -j 2
t quern warm "$spec" --arch sm_90a --db new.db
printf '# a comment\n\n%s   # another\n' "$spec" >specs.txt
t quern warm @specs.txt --arch sm_90a --db new.db
printf '{"specs": ["%s"], "arch": ["sm_90a"]}\n' "$spec" >specs.json
t quern warm @specs.json --db new.db
t quern warm "$spec" --arch sm_90a,sm_80,sm_90a --shard 0/2 --db new.db
printf '%s\nsoftmax_topk V=1 K=2 in=f32\n' "$spec" >bad.txt
t quern warm @bad.txt --arch sm_90a --db new.db
printf '{"specs": ["%s", "argmax"]}\n' "$spec" >bad.json
t quern warm @bad.json --arch sm_90a --db new.db
printf '{"spec": []}\n' >key.json
t quern warm @key.json --arch sm_90a --db new.db
printf '{"specs": [\n' >syntax.json
t quern warm @syntax.json --arch sm_90a --db new.db
t quern warm @absent.txt --arch sm_90a --db new.db
t env QUERN_MODE=read_only quern warm 'softmax_topk V=17 K=4 in=f32' --arch sm_80 --db new.db
t env QUERN_MODE=off quern warm "$spec" --arch sm_80
t quern warm "$spec" --arch sm_80 --db ''
quern warm "$spec" --arch sm_90a --db sealed.db >/dev/null && quern cache seal sealed.db
t quern warm "$spec" --arch sm_90a --db sealed.db
t env QUERN_SEALED=sealed.db QUERN_MODE=strict quern warm "$spec" --arch sm_90a --db ''
printf '%s\n' 'softmax_topk V=17 K=4 in=f32' >>specs.txt
t env QUERN_SEALED=sealed.db quern warm @specs.txt --arch sm_90a --db new.db
t env QUERN_CACHE_DIR=/dev/null/no quern warm "$spec" --arch sm_90a
