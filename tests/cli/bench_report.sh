# SPDX-License-Identifier: Apache-2.0
# The start and the end of the benches with one table, on a fake driver whose kernels do nothing: what was measured is
# printed and written whole; where a check fails nothing is complete; peers have times or errors.
# Without that driver (sanitizer builds) or python3 there is nothing to test.
fake=$(dirname "$quern")/tests/fake_cuda
if ! [ -e "$fake/libcuda.so.1" ] || ! command -v python3 >/dev/null; then cat "$QUERN_CLI/bench_report.expected"; return; fi
bench() { FAKE_CUDA_DEVICES=90 LD_LIBRARY_PATH=$fake quern bench "$@" --db own.db --repeat 5; }
complete() { sqlite3 :memory: "SELECT json_extract(CAST(readfile('$1') AS TEXT), '\$.bench', '\$.complete', '\$.repeats')"; }

cat >peers.py <<'PYTHON'
import argparse, json, socket

parser = argparse.ArgumentParser()
for name in ("socket", "inputs", "arrays", "device"):
    parser.add_argument("--" + name, type=int)
parser.add_argument("--vs")
channel = socket.socket(fileno=parser.parse_args().socket).makefile("rw", encoding="utf-8")


def send(message):
    channel.write(json.dumps(message) + "\n")
    channel.flush()


send({"python": "3", "peers": {"slow": {"version": "1"}}, "missing": {}})
for line in channel:
    times = {"us_median": 50.0, "us_p10": 40.0, "us_p90": 60.0}
    send({"peers": {"slow": times, "none": {"error": "no memory"}}})
PYTHON
indexer='indexer H=8 C=32 k=2 q=mxfp4 page=16'
t bench indexer --shape 1,64,1 --check 0 --spec "$indexer" --vs torch --peers peers.py --out whole.json
complete whole.json
sqlite3 :memory: "SELECT json_extract(CAST(readfile('whole.json') AS TEXT), '\$.rows[0].best_peer', '\$.rows[0].peers.none', '\$.peers.peers')"
ls whole.json*
t bench indexer --shape 1,64,1 --check 0 --spec "$indexer" --out absent/whole.json
t bench indexer --shape 1,64,1 --check 0 --spec "$indexer" --out own.db >"$TMPDIR/whole"
tail -n 2 "$TMPDIR/whole"
ls own.db
ln -s /dev/null null
bench indexer --shape 1,64,1 --check 0 --spec "$indexer" --out null >/dev/null && stat -c %F null
t bench indexer --shape 1,64,1 --check 0 --spec "$indexer" --vs torch --peers absent.py

for words in 'gate --N 1 --spec' 'router --N 1 --spec' 'attention --Hq 1 --Hkv 1 --Sq 16 --Sk 16 --spec'; do
    family=${words%% *}
    case $family in
    gate) spec='gate E=8 K=2 in=f32' ;;
    router) spec='router D=64 E=8 K=2 in=bf16 w=bf16' ;;
    attention) spec='attention d=64' ;;
    esac
    t bench $words "$spec" --out $family.json
    ls $family.json*
    complete $family.json.partial
done
