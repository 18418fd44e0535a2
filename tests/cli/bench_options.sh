# SPDX-License-Identifier: Apache-2.0
# What `quern bench softmax_topk` refuses before it looks for a GPU.
t quern bench softmax_topk --only tables
t quern bench softmax_topk --only real
t quern bench softmax_topk --only table --rows 3
t quern bench softmax_topk --real nowhere.npy --K 8
t quern bench softmax_topk --K 8,x
t quern bench softmax_topk --K 8,
t quern bench softmax_topk --in f32,
t quern bench gate --N 8,
t quern bench softmax_topk --data real:nowhere.npy
logits logits.npy
t quern bench softmax_topk --data real:logits.npy --V 16
t quern bench softmax_topk --sweep local_k --config plan=stream
t quern bench softmax_topk --vs

# What the benches with one table refuse alike.
for family in gate router attention indexer; do
    t quern bench $family --device cpu
    t quern bench $family --spec 'softmax_topk V=8 K=3 in=bf16'
    t quern bench $family --spec "$family nothing=1"
    t quern bench $family --repeat 0
    t quern bench $family here
    quern bench $family --help | grep -E '^  --(repeat|vs|python|peers|out|device|db|json)'
done
# Without a GPU every bench says so in the same words and fails; compile times need none, but an architecture.
for bench in gate first-launch runtime; do t quern bench $bench; done
