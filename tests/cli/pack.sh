# SPDX-License-Identifier: Apache-2.0
# Index keys packed, unpacked and run: codes and scales as bytes, pages, what is refused; indexer on packed files.
one='\000\000\200\077' two='\000\000\000\100' none='\000\000\000\000'
eight="$one$one$two$none$one$two$two$none"
npy keys.npy '<f4' False '(2, 32)' "$eight$eight$eight$eight$none$none$none$none$none$none$none$none$eight$eight$eight"
t quern pack mxfp4_shared in=keys.npy keys=k.npy key_scale=s.npy
integers k.npy 1
integers s.npy 1
t quern unpack mxfp4_shared keys=k.npy key_scale=s.npy out=back.npy
cmp keys.npy back.npy && echo the same
t quern pack mxfp4_shared in=keys.npy keys=pages.npy --page 8
t quern pack nvfp4_heads in=keys.npy keys=hk.npy key_scale=hs.npy tensor_scale=ht.npy
t quern unpack nvfp4_heads keys=hk.npy key_scale=hs.npy tensor_scale=ht.npy out=back.npy
t quern pack fp8_shared in=keys.npy keys=fk.npy key_scale=fs.npy

# Both entries; the first has the larger sum.
npy q.npy '<f4' False '(1, 32)' "$eight$eight$eight$eight"
t quern pack mxfp4_shared in=q.npy keys=qk.npy key_scale=qs.npy
tail -c +129 qk.npy >bytes
npy q3.npy '|u1' False '(1, 1, 16)' ''
cat bytes >>q3.npy
npy qs3.npy '|u1' False '(1, 1, 1)' ''
tail -c +129 qs.npy >>qs3.npy
npy w.npy '<f4' False '(1, 1)' "$one"
npy length.npy '<i4' False '(1,)' '\002\000\000\000'
t quern run 'indexer H=1 C=32 k=3 q=mxfp4' --device cpu q=q3.npy q_scale=qs3.npy w=w.npy keys=k.npy key_scale=s.npy \
    length=length.npy indices=i.npy scores=score.npy
integers i.npy
npy table.npy '<i4' False '(1, 1)' '\000\000\000\000'
t quern run 'indexer H=1 C=32 k=3 q=mxfp4 page=8' --device cpu q=q3.npy q_scale=qs3.npy w=w.npy keys=pages.npy \
    block_table=table.npy length=length.npy indices=j.npy
cmp i.npy j.npy && echo the same
npy far.npy '<i4' False '(1, 1)' '\007\000\000\000'
t quern run 'indexer H=1 C=32 k=3 q=mxfp4 page=8' --device cpu q=q3.npy q_scale=qs3.npy w=w.npy keys=pages.npy \
    block_table=far.npy length=length.npy indices=never.npy
npy long.npy '<i4' False '(1,)' '\003\000\000\000'
t quern run 'indexer H=1 C=32 k=3 q=mxfp4' --device cpu q=q3.npy q_scale=qs3.npy w=w.npy keys=k.npy key_scale=s.npy \
    length=long.npy indices=never.npy
ls never.npy 2>/dev/null

t quern pack mxfp6 in=keys.npy keys=k.npy
t quern pack mxfp4_shared in=keys.npy keys=k.npy
t quern pack nvfp4_heads in=keys.npy keys=k.npy key_scale=s.npy tensor_scale=t.npy --page 8
t quern pack mxfp4_shared in=s.npy keys=k.npy key_scale=s4.npy
t quern pack mxfp4_shared in=keys.npy keys=keys.npy key_scale=s4.npy
t quern pack mxfp4_shared in=keys.npy keys=k4.npy key_scale=k4.npy
t quern unpack fp8_shared keys=k.npy key_scale=s.npy out=back.npy
# What a file holds is no mistake of the command line's: exit status 1, whatever is wrong with it.
zeros() { i=0; while [ $i -lt "$1" ]; do i=$((i + 1)); printf '\\000'; done; }
npy nan.npy '<f4' False '(1, 32)' '\000\000\300\177'"$(zeros 124)"
npy narrow.npy '<f4' False '(1, 8)' "$(zeros 32)"
t quern pack fp8_shared in=nan.npy keys=never.npy key_scale=never2.npy
t quern pack fp8_shared in=narrow.npy keys=never.npy key_scale=never2.npy
ls never.npy never2.npy 2>&1

# Expected scores are computed, asked for or not; winners are shown with their scores, or alone.
run() { # SPEC WORD...
    spec=$1
    shift
    t quern run "$spec" --device cpu q=q3.npy q_scale=qs3.npy w=w.npy length=length.npy "$@"
}
shared='indexer H=1 C=32 k=3 q=mxfp4'
run "$shared" keys=k.npy key_scale=s.npy --show 1 --expect scores=score.npy,indices=i.npy
run "$shared" keys=k.npy key_scale=s.npy --show 1 --top 2
run "$shared scores=0" keys=k.npy key_scale=s.npy --expect scores=score.npy
run "$shared" keys=k.npy key_scale=s.npy --expect score=score.npy
run "$shared" keys=k.npy key_scale=s.npy --expect keys=k.npy
run "$shared" keys=k.npy key_scale=s.npy --expect scores
npy half.npy '<u2' False '(1, 1, 1, 8)' '\200\077\200\077\200\077\200\077\200\077\200\077\200\077\200\077'
t quern run 'attention d=8' --device cpu q=half.npy k=half.npy v=half.npy --show 1

# Pages: what indexer cannot read is not written; a file that a spec without pages, or with them, does not have.
t quern pack mxfp4_shared in=keys.npy keys=never.npy --page 12
t quern pack mxfp4_shared in=keys.npy keys=never.npy --page 1
t quern pack fp8_shared in=keys.npy keys=never.npy --page 4104
run "$shared" keys=k.npy key_scale=s.npy block_table=table.npy
run "$shared page=8" keys=pages.npy key_scale=s.npy block_table=table.npy
run "$shared page=1" keys=pages.npy block_table=table.npy
ls never.npy 2>/dev/null
