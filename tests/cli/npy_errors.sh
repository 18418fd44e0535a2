# SPDX-License-Identifier: Apache-2.0
# .npy files that do not fit: exit status 1, a message that names the file and the fault, no output made.
spec='softmax_topk V=8 K=3 in=bf16'
logits good.npy
npy type.npy '<f8' False '(1, 1)' '\000\000\000\000\000\000\000\000'
npy dtype.npy '<f4' False '(1, 1)' '\000\000\000\000'
npy big.npy '>u2' False '(1, 8)' '\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000'
npy order.npy '<u2' True '(1, 8)' '\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000'
npy axis.npy '<u2' False '(2, 4)' '\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000'
npy rank.npy '<u2' False '(8,)' '\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000'
npy short.npy '<u2' False '(1, 8)' '\000\000\000\000'
npy long.npy '<u2' False '(1, 1)' '\000\000\000\000'
npy record.npy "x', ('a" False '(1, 8)' ''
npy wide.npy '<u2' False '(1, 2, 3, 4, 5, 6, 7, 8, 9)' ''
npy huge.npy '<u2' False '(4611686018427387904, 8)' ''
npy negative.npy '<u2' False '(-1, 8)' ''
head -c 60 good.npy >header.npy
head -c 5 good.npy >magic.npy
printf 'rows,V\n1,2\n3,4\n' >text.npy
printf '\223NUMPY\004\000\166\000' >version.npy
mkdir folder.npy
for file in absent type dtype big order axis rank short long record wide huge negative header magic text version folder; do
    t quern run "$spec" "logits=$file.npy" values=values.npy --device cpu
done
mkfifo pipe
t timeout 20 quern run "$spec" logits=pipe values=values.npy --device cpu # is not waited for
npy temperature.npy '<f4' False '(3,)' '\000\000\200\077\000\000\200\077\000\000\200\077'
t quern run "$spec" logits=good.npy temperature=temperature.npy values=values.npy --device cpu
ls values.npy* 2>/dev/null
