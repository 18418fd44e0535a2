#!/usr/bin/env bash
# tools/demo.sh [--device WHERE]: sets up what is missing (tools/deps.sh says what), builds into build/, and runs Quern's
# main job on real data: the 256 likeliest tokens of 64 rows of a small language model's logits. On a machine with a GPU it
# runs there; without one it says so, computes with the host reference, and still compiles and stores the kernels, so that a
# second run finds them in the cache (build/demo/quern-v1.db). Everything it writes is in build/.
set -euo pipefail
usage="usage: tools/demo.sh [--device WHERE]
Sets up what is missing, builds into build/ (or \$QUERN_BUILD), runs the main job on real data. WHERE is that of 'quern run':
auto (default), gpu, cpu or model."
where=auto
while [ $# -gt 0 ]; do
  case $1 in
    --device=?*) where=${1#*=} ;;
    --device) where=${2:-}; shift ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) printf "demo.sh: unknown argument '%s'\n%s\n" "$1" "$usage" >&2; exit 2 ;;
  esac
  case $where in
    auto | gpu | gpu:[0-9]* | cpu | model) shift ;;
    *) printf "demo.sh: --device '%s'\n%s\n" "$where" "$usage" >&2; exit 2 ;;
  esac
done
# shellcheck source=tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
mkdir -p "$build" "$build/demo"
chmod go-w "$build/demo" # whatever the umask: a folder that others may write to is refused as a database's
echo "demo: building into $build (log: $build/build.log)" >&2
configure "$build"
cmake --build "$build" -j "$jobs" --target quern_command >"$build/build.log" 2>&1 || { tail -40 "$build/build.log" >&2; exit 1; }

data=$root/tests/data
exec "$build/quern" run 'softmax_topk V=49152 K=256 in=bf16' --device "$where" --db "$build/demo/quern-v1.db" \
  --show 4 --tokens "$data/tokens.tsv" \
  --expect "indices=$data/expected/softmax_topk_64x49152_k256.indices.i32.npy" \
  --expect "values=$data/expected/softmax_topk_64x49152_k256.values.f32.npy" \
  logits="$data/logits_64x49152.bf16.npy" values="$build/demo/values.npy" indices="$build/demo/indices.npy"
