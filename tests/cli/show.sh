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

# the kernels of one range of sizes, each with what it does of it
sizes() { # SPEC ARCH: the column "sizes"
    quern show plan "$1" --arch "$2" --json | sed -n 's/^.*"sizes":[[:space:]]*"\(.*\)",$/\1/p'
}
sizes 'attention d=128' sm_90a | grep -v '^Sq 1\.\.'
sizes 'attention d=128' sm_80 | grep -v '^Sq 1\.\.'
sizes 'indexer H=32 C=128 k=2048' sm_90a | sort -u | sed -n '1p;$p'
sizes 'router D=7168 E=256 K=8 in=bf16 w=bf16 batch_invariant=1' sm_90a
quern show plan 'attention d=128' --arch sm_90a | grep 'Sq 17' | grep -c ' -$' # takes of an SM: the configuration's own kernel only
quern ops attention | grep -E '^(scale|softcap|v +input +\[B|lse +output +\[B)' | tr -s ' '
quern ops router | grep '^slices' | tr -s ' '
t quern show plan 'attention d=128' --arch sm_90a --Sq 1 --Hq 7 --Hkv 2
sizes 'router D=7168 E=256 K=8 in=bf16 w=bf16' sm_90a | grep -E '^N (1\.\.1|65\.\.128):'
