# SPDX-License-Identifier: Apache-2.0
# tools/bench/tables.py: documents are made from a bench report, checked against it, and never made from half of one.
# Without python3 there is nothing to test.
command -v python3 >/dev/null || { cat "$QUERN_CLI/bench_tables.expected"; return; }
tables() { python3 -B "$QUERN_CLI/../../tools/bench/tables.py" "$@"; }
marked() { printf '<!-- bench:%s -->\n<!-- /bench:%s -->\n' "$1" "$1"; }
cp "$QUERN_CLI/bench_tables.json" report.json

for name in machine softmax_topk softmax_topk_peers softmax_topk_plans softmax_topk_rows softmax_topk_data \
    softmax_topk_alignment softmax_topk_outputs; do
    marked "$name"
done >tables.md
printf 'Before.\n%s\nAfter.\n' "$(marked machine)" >short.md
t tables --check --report report.json short.md
t tables --report report.json short.md tables.md
cat short.md tables.md
t tables --check --report report.json short.md tables.md
t tables --report report.json short.md

# Gate and router have reports of their own, beside it.
cat >report_gate.json <<'JSON'
{"quern": "0.1.0", "date": "2026-01-03T01:02:03Z", "nvrtc": "nvrtc 13.0 build 1f2e", "driver": "580.2", "device":
"NVIDIA H200", "sm_count": 132, "l2_bytes": 62914560, "driver_cuda": "13.0", "repeats": 20, "complete": true,
"peers": {"peers": {"torch.gate": {"version": "2.11.0"}}}, "rows": [
{"N": 1, "us_median": 2.0, "us_p10": 1.9, "us_p90": 2.1, "spec": "gate E=256 K=6 in=f32 bias=1", "peers":
{"torch.gate": {"us_median": 20.0, "us_p10": 20.0, "us_p90": 20.0}, "flashinfer.gate": {"us_median": 4.0, "us_p10": 4.0,
"us_p90": 4.0}}},
{"N": 64, "us_median": 2.0, "us_p10": 2.0, "us_p90": 2.0, "spec": "gate E=256 K=6 in=f32 bias=1", "peers":
{"torch.gate": {"error": "no memory"}}},
{"N": 512, "us_median": 3.0, "us_p10": 3.0, "us_p90": 3.0, "spec": "gate E=256 K=6 in=f32 bias=1", "peers": null}]}
JSON
sed 's/"flashinfer.gate"/"torch.linear"/' report_gate.json >report_router.json
cat >report_local_k_random.json <<'JSON'
{"complete": true, "rows": [
{"rows": 4096, "K": 50, "repairs": 0, "quern": {"us_median": 260.0, "plan": "plan=stream block=256 local_k=4"}},
{"rows": 4096, "K": 50, "repairs": 12, "quern": {"us_median": 900.0, "plan": "plan=stream block=256 local_k=2"}},
{"rows": 4096, "K": 1024, "repairs": 0, "quern": {"us_median": 330.0, "plan": "plan=stream block=512 local_k=4"}}]}
JSON
sed 's/"N": 1,/"shape": "2 × 16 on 16 heads, 64 × 64", "tflop_per_s": 630.2, "tb_per_s": 0.2,/; s/"N": [0-9]*,/"shape": "decode",\
"tflop_per_s": 1.0, "tb_per_s": 3.9,/' report_gate.json >report_attention.json
sed 's/"N": \([0-9]*\),/"sequences": \1, "length": 8192, "queries": 1, "gb_per_s": 900.0,/' report_gate.json >report_indexer.json
# A spec without fields is named by its head_dim; the brief tables of README.md keep some rows.
sed -i 's/"spec": "gate E=256 K=6 in=f32 bias=1"/"spec": "attention"/; s/64 × 64"/8192 × 8192"/' report_attention.json
for name in machine_gate gate gate_brief router router_brief attention attention_brief indexer local_k_random; do marked "$name"; done >routing.md
t tables --report report.json routing.md
cat routing.md
t tables --check --report nowhere.json routing.md

sed -i 's/5.00 (4.90/4.00 (3.90/' tables.md
t tables --check --report report.json tables.md

marked weather >unknown.md
printf '<!-- bench:machine -->\n' >open.md
marked softmax_topk_batch_invariant >empty.md
printf 'No table.\n' >none.md
t tables --report report.json unknown.md open.md empty.md
t tables --check --report nowhere.json none.md
t tables --check --report nowhere.json short.md
sed 's/"complete": true/"complete": false/' report.json >half.json
t tables --check --report half.json short.md

# Parts of several runs, which must be of one machine and one version.
merge() { python3 -B "$QUERN_CLI/../../tools/bench/merge.py" "$@"; }
sed 's/"group": "table"/"group": "asked"/; s/"date": "/"date": "2/' half.json >more.json
t merge whole.json half.json more.json
t tables --check --report whole.json short.md
sed 's/"driver": "/"driver": "9/' more.json >other.json
t merge none.json half.json other.json
t merge none.json
# A part without peers comes first; the peers are those of the one that has some, and have one version.
sed 's/"N": 512/"N": 9/; s/"peers": {"peers".*/"bench": "gate",/; s/^"rows"/"rows"/; s/"date": "/"date": "3/' report_gate.json |
    awk '/"bench": "gate",/ { print; print "\"rows\": ["; next } { print }' >own.json
sed 's/{"quern"/{"bench": "gate", "quern"/; s/2.11.0/2.12.0/' report_gate.json >later.json
sed 's/{"quern"/{"bench": "gate", "quern"/' report_gate.json >gate.json
t merge report_gate.json own.json gate.json
t tables --report report.json routing.md
head -n 3 routing.md
t merge none.json own.json gate.json later.json
sed 's/"gate"/"gates"/' gate.json >unknown.json
t merge none.json unknown.json
# What is no report at all
printf '[]\n' >list.json
printf '{"bench": "gate", "date": "1"}\n' >rows.json
printf '{"bench": "gate", "rows": []}\n' >date.json
printf '{"bench": "gate", "date": "1", "rows": [{"N": 1}]}\n' >row.json
for part in list rows date row absent; do t merge none.json $part.json; done
t merge absent/none.json gate.json
# In the reports of all families a peer has its times, or an "error" that is a text.
python3 -B - "$QUERN_CLI"/../../tools/bench/h200*.json <<'PYTHON'
import json, sys

for name in sys.argv[1:]:
    for row in json.load(open(name))["rows"]:
        for peer, said in (row.get("peers") or {}).items():
            if ("us_median" in said) == ("error" in said) or not isinstance(said.get("error", ""), str):
                print(f"{name}: {peer}: {said}")
print("peers have times or errors")
PYTHON
