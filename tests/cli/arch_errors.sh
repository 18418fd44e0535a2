# SPDX-License-Identifier: Apache-2.0
# Architectures: an unknown one, and none where there is no GPU, are usage errors that list the known ones.
t quern warm 'softmax_topk V=16 K=4 in=f32' --arch sm_1
t quern warm 'softmax_topk V=16 K=4 in=f32' --arch sm_90a,90a
t quern warm 'softmax_topk V=16 K=4 in=f32' --arch ''
t quern warm 'softmax_topk V=16 K=4 in=f32'
t quern show plan 'softmax_topk V=16 K=4 in=f32'
