# SPDX-License-Identifier: Apache-2.0
# Without NVRTC: a miss says which paths were tried; the reference still computes and delivers.
export QUERN_NVRTC=/nonexistent/libnvrtc.so
t quern warm 'softmax_topk V=16 K=4 in=f32' --arch sm_90a --db new.db
logits logits.npy
t quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy indices=indices.npy
integers indices.npy
