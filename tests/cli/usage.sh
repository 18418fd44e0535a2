# SPDX-License-Identifier: Apache-2.0
# Mistakes on the command line: exit status 2, a message that names the word, nothing on standard output.
t quern frobnicate
t quern --frobnicate
t quern warm
t quern warm --frobnicate
t quern warm -x
t quern warm --arch
t quern warm --json=yes 'softmax_topk V=16 K=4 in=f32'
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
