#!/usr/bin/env bash
# tests/embed/abi.sh [--update] INCLUDE: the ABI of INCLUDE/quern/quern.h (sizes, offsets, values, prototypes) against the
# golden list abi.txt. What the list has must stay as it is: structures grow at their end only, which changes their size and
# adds members, and nothing else. --update writes what was added into the list, and refuses when something changed. x86-64.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
update=no
[ "${1:-}" = --update ] && { update=yes; shift; }
include=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -fpreprocessed -dD -E -P "$include/quern/quern.h" 2>/dev/null | awk -f "$here/abi.awk" >"$work/abi.c"
cc -std=c11 -Wall -Werror -I "$include" -include stddef.h -o "$work/abi" "$work/abi.c"
"$work/abi" | LC_ALL=C sort >"$work/now"
touch "$work/none"
golden=$here/abi.txt
[ -e "$golden" ] || { [ $update = yes ] && golden=$work/none; }

# a structure may be larger than it was: its size is compared apart
changed=$(LC_ALL=C comm -23 <(grep -v '^size ' "$golden") <(grep -v '^size ' "$work/now"))
smaller=$(awk 'FNR == NR { if ($1 == "size") now[$2] = $3; next } $1 == "size" && now[$2] < $3 { print }' "$work/now" "$golden")
if [ -n "$changed$smaller" ]; then
  printf 'abi: these are not what they were; code that was compiled before would break:\n%s\n%s\n' "$changed" "$smaller" >&2
  exit 1
fi
if [ $update = yes ]; then cp "$work/now" "$here/abi.txt"; echo "abi: $(wc -l <"$here/abi.txt") lines"; exit 0; fi
if ! cmp -s "$golden" "$work/now"; then
  printf 'abi: new; if that is as it should be, run tests/embed/abi.sh --update include:\n' >&2
  LC_ALL=C comm -13 "$golden" "$work/now" >&2
  exit 1
fi
echo "abi: $(wc -l <"$golden") lines hold"
