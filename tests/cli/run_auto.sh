# SPDX-License-Identifier: Apache-2.0
# Without a GPU: one line says so, the reference computes, and the kernels are compiled and kept for the next run.
logits logits.npy
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy indices=indices.npy
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy indices=indices.npy
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy indices=indices.npy --device gpu
