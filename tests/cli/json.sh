# SPDX-License-Identifier: Apache-2.0
# --json is JSON, whatever else happens.
spec='softmax_topk V=16 K=4 in=f32'
logits logits.npy
printf '1\t"quoted \\" word"\n' >tokens.tsv
t_json quern ops --json
t_json quern ops softmax_topk --json
t_json quern doctor --json
t_json quern show plan "$spec" --arch sm_90a --json
t_json quern show source "$spec" --arch sm_90a --rows 1 --json
t_json quern show key "$spec" --arch sm_90a --rows 1 --json
t_json quern show resources "$spec" --arch sm_90a --rows 1 --json
t_json quern warm "$spec" --arch sm_90a --json
t_json quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy lse=lse.npy --device cpu --show 1 --tokens tokens.tsv --json
sqlite3 :memory: "SELECT json_extract(CAST(readfile('$TMPDIR/out') AS TEXT), '\$.winners[0].word')"
t_json quern run 'softmax_topk V=8 K=3 in=bf16' logits=logits.npy values=values.npy --device cpu --json
sqlite3 :memory: "SELECT json_extract(CAST(readfile('$TMPDIR/out') AS TEXT), '\$.outputs[0].shape[1]')"
t_json quern ops gate --json
sqlite3 :memory: "SELECT json_extract(CAST(readfile('$TMPDIR/out') AS TEXT), '\$.tensors[0].shape[1]')"
t_json quern cache list --json
sqlite3 :memory: "SELECT json_extract(CAST(readfile('$TMPDIR/out') AS TEXT), '\$.entries[0].configuration')"
