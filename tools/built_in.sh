#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/built_in.sh [-o OUT] [FILE...]: writes src/runtime/tuned_built_in.c (or OUT), the tuning results that come with the
# library, from tables that `quern tune --export` wrote. Only winners are taken; of one problem (device, spec, range of
# sizes) the last file's. No file: an empty table. `ctest -R runtime_tuned` then says whether each still has a plan.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/src/runtime/tuned_built_in.c
fail() { echo "built_in.sh: $2" >&2; exit "$1"; }
case ${1:-} in
  -o)
    [ -n "${2:-}" ] || fail 2 '-o needs a file'
    out=$2
    shift 2 ;;
  --help | -h)
    sed -n '3,6s/^# //p' "${BASH_SOURCE[0]}"
    exit 0 ;;
esac
for file in "$@"; do
  case $file in -*) fail 2 "unknown option '$file': see --help" ;; esac
  [ -f "$file" ] && [ -r "$file" ] || fail 1 "$file: there is no such file, or it cannot be read"
  [ "$(head -n 1 "$file")" = 'quern-tune 1' ] || fail 1 "$file is no table of version 1"
done
{
  cat <<'HEAD'
// SPDX-License-Identifier: Apache-2.0
// The built-in tuning table: results that come with the library. Made by tools/built_in.sh from what
// `quern tune --export` wrote; not edited by hand. Read by tuned.c.
#include "runtime/tuned.h"

// clang-format off
const qn_tune_row qn_tuned_built_in[] = {
HEAD
  awk -F '\t' '
    function quote(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
    NF < 16 || /^#/ || $13 != "best" { next }
    {
      key = $1 FS $2 FS $3 FS $8 FS $9 FS $10
      if (!(key in row)) order[++count] = key
      row[key] = sprintf("    {{%s, %d, %d, %s, %s, %d}, %s, %s, %s, %s, %s, %s, \"best\", \"\", %s, %s, %s},", quote($1),
                         $2, $3, $4, $5, $6, quote($7), quote($8), quote($9), quote($10), quote($11), quote($12), $14, $15, $16)
    }
    END { for (i = 1; i <= count; i++) print row[order[i]] }' "$@" </dev/null
  cat <<'TAIL'
    {{0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, // the end, not counted
};
// clang-format on
const size_t qn_tuned_built_in_count = QN_COUNT(qn_tuned_built_in) - 1;
TAIL
} >"$out.new"
mv "$out.new" "$out"
echo "$(grep -c '"best"' "$out") results in ${out#"$root"/}"
