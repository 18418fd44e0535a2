# SPDX-License-Identifier: Apache-2.0
# A misspelt word: the message names what was probably meant. Far ones have no such hint (spec_errors.sh, usage.sh).
for spec in 'sotfmax_topk V=8' 'softmax-topk V=8' 'softmax_topk v=8 K=3 in=bf16' 'softmax_topk V=8 K=3 in=bf16 temprature=1' \
    'softmax_topk V=8 K=3 in=fp16' 'softmax_topk V=8 K=3 in=bf16 value=log_prob' 'attention d=64 batch-invariant=1'; do
    t quern show plan "$spec" --arch sm_90a
done
# Short forms; a missing letter is nearer than another one; another number is no slip.
t quern tun
for spec in 'attention d=64 inn=bf16' 'attention d=64 in=bfloat16' 'attention d=64 in=half' 'attn d=64' \
    'indexer H=64 C=128 k=2048 q=fp4' 'indexer H=64 C=128 k=2048 layout=fp8' 'indexer H=64 C=128 k=2048 layout=shared'; do
    t quern show plan "$spec" --arch sm_90a
done
t quern show plan 'gate E=8 K=2 in=f32' --arch sm_70
# A size of a launch is no field of a spec; a field that differs by case alone is meant before one.
for spec in 'attention d=64 Sq=1' 'attention d=64 sq=1' 'softmax_topk V=8 K=3 in=bf16 rows=4' 'gate e=8' 'indexer l=9'; do
    t quern show plan "$spec" --arch sm_90a
done
t quern show plan 'gate E=8 K=2 in=f32' --arch sm90a
t quern bench gate --config plan=lnaes
t quern bench gate --config lane=8
t quern run 'gate E=8 K=2 in=f32' bias=a.npy weigts=b.npy
t quern ops atention
t quern wram
t quern help dcotor
t quern warm --joobs 2
t quern warm --archs=sm_90a
t quern show plna 'gate E=8 K=2 in=f32'
t quern cache lst
t quern bench indxer
echo 'gate E=8 K=2 in=f32 [n 1..64]' >list
t quern warm @list --arch sm_90a
