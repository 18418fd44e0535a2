# SPDX-License-Identifier: Apache-2.0
# The main job with the host reference: outputs, words, optional tensors by their files, zero rows, expected files.
spec='softmax_topk V=8 K=3 in=bf16'
logits logits.npy
printf 'id\ttext (JSON string)\n0\t"a"\n1\t" the"\n4\t"\\n"\n' >tokens.tsv

t quern run "$spec" logits=logits.npy values=values.npy indices=indices.npy --device cpu --show 2 --top 2 --tokens tokens.tsv
integers indices.npy
printf '0\t\033]0;x\007 evil\n1\t" the"\n4\t"\\n"\n' >words.tsv # no JSON string: no word
t quern run "$spec" logits=logits.npy --device cpu --show 2 --top 2 --tokens words.tsv

# Values that are no numbers are shown as what they are.
npy nan.npy '<u2' False '(2, 4)' '\200\077\300\177\000\100\000\000\200\377\200\377\200\377\200\377'
t quern run 'softmax_topk V=4 K=2 in=bf16 value=logit' logits=nan.npy --device cpu --show 2
t quern run 'softmax_topk V=4 K=2 in=bf16' logits=nan.npy --device cpu --show 1 --top 1 --json >"$TMPDIR/shown"
grep '"values"' "$TMPDIR/shown"

# lse, temperature, token and their outputs come with their files.
npy temperature.npy '<f4' False '(2,)' '\000\000\000\100\000\000\000\077'
npy token.npy '<i4' False '(2,)' '\002\000\000\000\007\000\000\000'
t quern run "$spec" --device=cpu logits=logits.npy temperature=temperature.npy lse=lse.npy token=token.npy \
    token_rank=rank.npy token_value=token_value.npy
integers rank.npy

# 64-bit indices.
t quern run "$spec index=i64" logits=logits.npy indices=wide.npy --device cpu
integers wide.npy 8

# Format versions 2 and 3, and bf16 as ml_dtypes saves it.
for version in 2 3; do
    printf '\223NUMPY\00'$version'\000\164\000\000\000%-115s\n' "{'descr': '<V2', 'fortran_order': False, 'shape': (2, 8), }" >v$version.npy
    tail -c +129 logits.npy >>v$version.npy
    t quern run "$spec" logits=v$version.npy --device cpu --expect indices=indices.npy >"$TMPDIR/shown"
    tail -n 1 "$TMPDIR/shown"
done

# No rows.
npy empty.npy '<u2' False '(0, 8)' ''
t quern run "$spec" logits=empty.npy values=none.npy indices=none_too.npy lse=nothing.npy --device cpu
head -c 127 none.npy | tail -c +11 | tr -d ' '
echo

# Expected files: what agrees, what does not, a longer last axis, another shape.
t quern run "$spec" logits=logits.npy --device cpu --expect indices=indices.npy,values=values.npy
t quern run 'softmax_topk V=8 K=2 in=bf16' logits=logits.npy --device cpu --expect indices=indices.npy
npy other.npy '<i4' False '(2, 3)' '\001\000\000\000\004\000\000\000\000\000\000\000\000\000\000\000\001\000\000\000\002\000\000\000'
t quern run "$spec" logits=logits.npy --device cpu --expect indices=other.npy
t quern run "$spec" logits=logits.npy --device cpu --expect indices=token.npy
t quern run "$spec" logits=logits.npy --device cpu --expect logits=logits.npy

# Real numbers that are off: beyond the family's accuracy, and within or beyond what --tolerance allows.
npy off.npy '<f4' False '(2, 3)' '\004\074\253\076\313\113\253\076\000\000\000\077\000\000\000\076\000\000\000\076\000\000\000\076'
t quern run "$spec" logits=logits.npy --device cpu --expect values=off.npy
t quern run "$spec" logits=logits.npy --device cpu --expect values=off.npy --tolerance 1e-3
t quern run "$spec" logits=logits.npy --device cpu --expect values=off.npy --tolerance 0,1
npy nan.npy '<f4' False '(2, 3)' '\000\000\300\177\000\000\300\177\000\000\300\177\000\000\000\076\000\000\000\076\000\000\000\076'
t quern run "$spec" logits=logits.npy --device cpu --expect values=nan.npy --tolerance 1e30
npy huge.npy '<f4' False '(1, 2)' '\377\377\177\177\000\000\300\177' # the largest f32, NaN
npy sums.npy '<f4' False '(1, 2)' '\000\000\200\377\000\000\000\000' # -inf, 0
t quern run 'softmax_topk V=2 K=2 in=f32' logits=huge.npy --device cpu --expect values=sums.npy
t_json quern run "$spec" logits=logits.npy --device cpu --expect values=off.npy --json
sqlite3 :memory: "SELECT json_extract(CAST(readfile('$TMPDIR/out') AS TEXT), '\$.expected[0].beyond')"

# Ids that differ: what may be the cause is said, of the family that has one.
npy two.npy '<f4' False '(1, 2)' '\000\000\200\077\000\000\000\000'
npy ids.npy '<i4' False '(1, 2)' '\001\000\000\000\000\000\000\000'
t quern run 'gate E=2 K=2 in=f32' logits=two.npy --device cpu --expect ids=ids.npy
