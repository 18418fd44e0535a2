# SPDX-License-Identifier: Apache-2.0
# What `quern bench softmax_topk` refuses before it looks for a GPU.
t quern bench softmax_topk --only tables
t quern bench softmax_topk --only real
t quern bench softmax_topk --only table --rows 3
t quern bench softmax_topk --real nowhere.npy --K 8
t quern bench softmax_topk --K 8,x
t quern bench softmax_topk --data real:nowhere.npy
logits logits.npy
t quern bench softmax_topk --data real:logits.npy --V 16
t quern bench softmax_topk --sweep local_k --config plan=stream
t quern bench softmax_topk --vs
