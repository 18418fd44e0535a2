# SPDX-License-Identifier: Apache-2.0
# Mistakes on the command line: exit status 2, a message that names the word, nothing on standard output.
t quern frobnicate
t quern --frobnicate
t quern warm
t quern warm --frobnicate
t quern warm -x
t quern warm --arch
t quern warm 'gate E=8 K=2 in=f32' --N 1 --N 2
t quern warm 'gate E=8 K=2 in=f32' --arch sm_80 --arch sm_90a
t quern warm 'gate E=8 K=2 in=f32' -j 1 --jobs 2
t quern show plan 'gate E=8 K=2 in=f32' --N 1 --N=2
t quern warm --json=yes 'softmax_topk V=16 K=4 in=f32'
t quern warm 'gate E=8 K=2 in=f32' --arch sm_90a --list --verb # an option has one name
t quern warm --s 0/2 'gate E=8 K=2 in=f32'
t quern warm --arc=sm_90a 'gate E=8 K=2 in=f32'
t quern warm 'gate E=8 K=2 in=f32' --sample 5 --list
t quern warm 'gate E=8 K=2 in=f32' --page 64 --list
t quern warm -j 0 'softmax_topk V=16 K=4 in=f32'
t quern warm -j many 'softmax_topk V=16 K=4 in=f32'
t quern warm --arch sm_90a --shard 2/2 'softmax_topk V=16 K=4 in=f32'
t quern warm --arch sm_90a --shard half 'softmax_topk V=16 K=4 in=f32'
t quern run
t quern run 'softmax_topk V=8 K=3 in=bf16' --device tpu
t quern run 'softmax_topk V=8 K=3 in=bf16' logits.npy
t quern run 'softmax_topk V=8 K=3 in=bf16'
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=a.npy keys=b.npy
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=a.npy logits=b.npy
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=a.npy values=a.npy
t quern run 'softmax_topk V=8 K=3 in=bf16 lse=0' logits=a.npy lse=b.npy
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=a.npy token_rank=b.npy
t quern show plan
t quern show colour 'softmax_topk V=16 K=4 in=f32'
t quern ops softmax_topk softmax_topk
t quern doctor now
t quern bench
t quern bench weather
t quern bench softmax_topk --device cpu
t quern bench softmax_topk --rows 0
t quern bench softmax_topk --in f64
t quern bench softmax_topk --data noise
t quern show plan 'gate E=64 K=4 in=f32' --arch sm_90a --rows 8
t quern show plan 'softmax_topk V=16 K=4 in=f32' --arch sm_90a --N 8
t quern show plan 'softmax_topk V=16 K=4 in=f32' --arch sm_90a --rows many
t quern show plan 'softmax_topk V=16 K=4 in=f32' --arch sm_90a --rows -1
t quern bench gate --spec 'gate E=0 K=1 in=f32'
t quern bench gate --spec 'softmax_topk V=8 K=2 in=f32'
t quern bench gate --config plan=fast
for shape in 1,2,3junk 1,2,3,4 1,2, 1 0,1; do t quern bench indexer --shape $shape; done
t quern bench softmax_topk --V 8 --K 9
t quern bench softmax_topk --with colour=1
t quern bench softmax_topk --config plan=x
t quern bench first-launch 'gate E=8 K=1 in=f32'
t quern bench runtime nonsense
t quern run 'softmax_topk V=8 K=3 in=bf16' --tolerance much
t quern run 'softmax_topk V=8 K=3 in=bf16' --tolerance 1e-3,-1
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=a.npy --tolerance 1e-3
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=a.npy --top 2
t quern run 'attention d=64' q=a.npy --tokens nosuch
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=a.npy --device cpu --arch sm_90a
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=a.npy --arch sm_90a
t quern run 'gate E=8 K=2 in=bf16 given_ids=1' logits=a.npy given_ids=b.npy bias=c.npy
t quern run softmax_topk V=1000 K=5 in=f32 logits=a.npy
t quern run attention d=64 q=a.npy
t quern run 'gate E=8 K=2 in=f32' bias=a.npy weigts=b.npy
