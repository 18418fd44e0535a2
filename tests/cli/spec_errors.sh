# SPDX-License-Identifier: Apache-2.0
# Specs that are none: exit status 2, a message that names the field, its value and what is allowed.
for spec in 'softmax_topk V=8 K=9 in=bf16' 'softmax_topk V=8 K=0 in=bf16' 'softmax_topk V=0 K=1 in=bf16' \
    'softmax_topk V=2097153 K=1 in=bf16' 'softmax_topk V=4096 K=2049 in=bf16' 'softmax_topk V=-1 K=1 in=bf16' \
    'argmax V=8' 'softmax_topk V=8 K=3 in=bf16 colour=1' 'softmax_topk V=8 K=3 in=f64' 'softmax_topk V=8 K=3 V=9 in=bf16' \
    'softmax_topk V=8 in=bf16' 'softmax_topk V=8 K=3' 'softmax_topk V=8 K in=bf16' 'softmax_topk V=eight K=3 in=bf16' \
    'softmax_topk V=8 K=3 in=bf16 lse=2' 'softmax_topk V=8 K=3 in=bf16 value=odds' ''; do
    t quern show plan "$spec" --arch sm_90a
done
