# SPDX-License-Identifier: Apache-2.0
# show and ops: what a spec means, without a GPU.
spec='softmax_topk V=49152 K=256 in=bf16'
t quern ops
t quern ops softmax_topk
t quern show plan "$spec" --arch sm_90a --rows 1
t quern show plan "$spec" --arch sm_90a --rows 4096 >"$TMPDIR/plan"
wc -l <"$TMPDIR/plan" | tr -d ' '
t quern show key "$spec" --arch sm_90a --rows 4096
quern show source "$spec" --arch sm_90a --rows 4096 >kernel.cu
grep -c '__global__' kernel.cu
t quern show resources "$spec" --arch sm_90a --rows 4096
t quern show resources "$spec" --arch sm_90a --rows 4096 >"$TMPDIR/again"
grep -c ' user ' "$TMPDIR/again"
