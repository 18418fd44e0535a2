#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh QUERN: nothing may write to registers that a wgmma still reads (tools/wgmma_registers.py). First the tool on
# reused.sass, a piece of a kernel of attention as ptxas 13.0 made it when the wait stood behind the loop's jump back:
# one case at a time on an H200, its results were wrong only now and then. Then on the kernels that QUERN makes now.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tool=$here/../../tools/wgmma_registers.py
scratch=$(mktemp -d "${TMPDIR:-/tmp}/quern-cubin-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
if "$tool" "$here/reused.sass" >"$scratch/seen"; then
  echo "the tool sees nothing in reused.sass" >&2
  exit 1
fi
grep -q "^2 products with an operand in registers, 1 writes to one before its wait" "$scratch/seen" || {
  cat "$scratch/seen" >&2
  exit 1
}

mkdir -m 700 "$scratch/dump" "$scratch/cache"
while read -r spec; do
  QUERN_DUMP=$scratch/dump QUERN_CACHE_DIR=$scratch/cache "$1" show resources "attention $spec" --arch sm_90a --B 2 \
    --Hq 8 --Hkv 4 --Sq 4096 --Sk 4096 --Tq 8192 --Tk 8192 --pages 64 --columns 32 >/dev/null
done <<'SPECS'
d=64 causal=1
d=64 causal=1 lse=1 window_left=5
d=128 causal=1
d=192 dv=128 in=f16 softcap=30
d=512 causal=1
d=576 dv=512 kv_alias=1 layout=paged page=64 causal=1
SPECS
"$tool" "$scratch"/dump/*_wgmma.*.cubin | tee "$scratch/seen"
[ "$(sed -n 's/^\([0-9]*\) products.*/\1/p' "$scratch/seen")" -ge 20 ]              # it looked at something
[ "$(sed -n 's/.*; \([0-9]*\) waits that leave.*/\1/p' "$scratch/seen")" -ge 5 ] # softmax beside products, in each
