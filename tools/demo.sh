#!/usr/bin/env bash
# tools/demo.sh: sets up what is missing (tools/deps.sh says what), builds into build/, and runs Quern's main job on real
# data: the 256 likeliest tokens of 64 rows of a small language model's logits. On a machine with a GPU it runs there;
# without one it says so, computes with the host reference, and still compiles and stores the kernels, so that a second
# run finds them in the cache (build/demo/quern-v1.db). Everything it writes is in build/.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
mkdir -p "$build" "$build/demo"
chmod go-w "$build/demo" # whatever the umask: a folder that others may write to is refused as a database's
echo "demo: building into $build (log: $build/build.log)" >&2
configure "$build"
cmake --build "$build" -j "$jobs" --target quern_command >"$build/build.log" 2>&1 || { tail -40 "$build/build.log" >&2; exit 1; }

data=$root/tests/data
exec "$build/quern" run 'softmax_topk V=49152 K=256 in=bf16' "$@" --db "$build/demo/quern-v1.db" \
  --show 4 --tokens "$data/tokens.tsv" \
  --expect "indices=$data/expected/softmax_topk_64x49152_k256.indices.i32.npy" \
  --expect "values=$data/expected/softmax_topk_64x49152_k256.values.f32.npy" \
  logits="$data/logits_64x49152.bf16.npy" values="$build/demo/values.npy" indices="$build/demo/indices.npy"
