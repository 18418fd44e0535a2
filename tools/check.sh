#!/usr/bin/env bash
# tools/check.sh: the project's rules that a program can judge, each printed with where it is broken. Exit 1 if any is.
# Run by tools/test.sh and by hand; needs nothing built.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
broken=0
skipped=
skip() { # what was not judged, and why
  skipped+="check: not asked: $1"$'\n'
}
rule() { # title, findings
  if [ -n "$2" ]; then printf 'check: %s\n%s\n' "$1" "$2" >&2; broken=1; fi
}
# The tree's files of these patterns, in which * goes through folders: by git, or where this is no clone, as they lie.
if git ls-files --error-unmatch tools/check.sh >/dev/null 2>&1; then
  files() {
    git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do
      [ ! -e "$file" ] || printf '%s\n' "$file" # removed, and git was not told yet
    done
  }
else
  files() {
    for pattern in "$@"; do find . -path './build*' -prune -o -path "./$pattern" -type f -print; done | sed 's,^\./,,' | sort -u
  }
fi
[ -n "$(files 'src/*.c')" ] || { echo "check: no files were found" >&2; exit 1; }

# ---- format: clang-format 14 is the judge (other versions differ in details and are not asked)
if command -v clang-format >/dev/null && clang-format --version | grep -q ' 14\.'; then
  rule "not in the format of .clang-format (clang-format -i mends it)" \
    "$(files 'src/*.[ch]' 'cache/*.[ch]' 'tools/*.[ch]' 'tests/*.[ch]' 'kernel_templates/*.cu' 'kernel_templates/*.cuh' \
        'kernel_templates/*.h' 'kernel_templates/*.cpp' 'include/quern/*.h' 'examples/*.[ch]' |
      xargs -r -d '\n' clang-format --dry-run -Werror 2>&1 | grep -oE '^[^:]+:[0-9]+' | sort -u -t: -k1,1)"
else
  skip "the format of the sources (there is no clang-format 14)"
fi

# ---- layers: base < cuda, codegen, cache < ops, reference < runtime < tune
rank() {
  case "$1" in
    src/base/*) echo 0 ;; src/cuda/* | src/codegen/* | cache/*) echo 1 ;; src/ops/* | src/reference/*) echo 2 ;;
    src/runtime/*) echo 3 ;; src/tune/*) echo 4 ;; *) echo -1 ;;
  esac
}
layers=$(files 'src/*.[ch]' 'cache/*.[ch]' | while IFS= read -r file; do
  own=$(rank "$file")
  [ "$own" -ge 0 ] || continue
  sed -nE 's/^#include "([a-z_]+\/[^"]+)".*/\1/p' "$file" | while IFS= read -r include; do
    case "$include" in base/* | cuda/* | codegen/* | ops/* | reference/* | runtime/* | tune/*) include=src/$include ;; esac
    other=$(rank "$include")
    [ "$other" -le "$own" ] || echo "  $file includes $include"
  done
done)
rule "a lower layer includes a higher one" "$layers"

# ---- device code
rule "inline PTX outside kernel_templates/common/" \
  "$(files 'kernel_templates/*.cu' 'kernel_templates/*.cuh' | grep -v '/common/' | xargs -r grep -nE '\basm[[:space:]]*(volatile)?[[:space:]]*\(')"
rule "a family's text that is another one on the CPU model (kernel_templates/common/ alone has second bodies)" \
  "$(files 'kernel_templates/*.cu' 'kernel_templates/*.cuh' | grep -v '/common/' | xargs -r grep -nE '\bQN_MODEL\b')"
rule "shared memory not by QN_SHARED, or a CUDA or system header, in a template" \
  "$(files 'kernel_templates/*.cu' 'kernel_templates/*.cuh' | grep -v 'kernel_templates/common/device.cuh' |
    xargs -r grep -nE '__shared__|#include[[:space:]]*<|__activemask')"

# ---- the library is quiet and reads the environment in one place
library=$(files 'src/*.c' 'cache/*.c')
rule "output or exit in the library" \
  "$(xargs -r grep -nE '\b(printf|puts|putchar|fprintf|perror|abort|exit|_exit|atexit|setlocale|signal|sigaction|pthread_atfork)[[:space:]]*\(' <<<"$library")"
rule "the environment is read outside src/base/path.c" \
  "$(grep -v '^src/base/path.c$' <<<"$library" | xargs -r grep -nE '\b(secure_)?getenv[[:space:]]*\(')"

known=$(sed -n '/^const char \*const qn_environment_names/,/;$/p' src/base/path.c | grep -oE '"[A-Z0-9_]+"')
rule "a variable is read that qn_environment_names (src/base/path.c) lacks" \
  "$(files 'src/*.c' 'cache/*.c' 'tools/quern/*.c' | xargs -r -d '\n' grep -noE '"QUERN_[A-Z0-9_]+"' | grep -vF "$known")"
rule "a variable of qn_environment_names lacks its place in README.md" \
  "$(for name in $known; do grep -qwF "${name//\"/}" README.md || echo "  $name"; done)"

# ---- every prototype of the header has a comment above it (or shares one with the line before)
rule "a prototype without a comment in quern.h" "$(awk '
  /\*\/[[:space:]]*$/ { documented = 1; next }
  /^QUERN_API/ { if (!documented) print "  " FNR ": " $0; next }
  /^[[:space:]]*$/ { documented = 0 }' include/quern/quern.h)"

# ---- every family has all its parts
families=$(sed -nE 's/^#define QN_FAMILIES\(X\) (.*)/\1/p' src/ops/family.h | grep -oE 'X\([a-z_]+\)' | tr -d 'X()')
rule "a family lacks a part" "$(for f in $families; do
  for part in "src/ops/$f.c" "src/reference/$f.c" "kernel_templates/$f/ANALYSIS.md" "tests/gpu/${f}_test.c" "tests/simt/${f}*_test.c" "tests/unit/${f}_compile_test.c" "tools/quern/bench_$f.c"; do
    compgen -G "$part" >/dev/null || echo "  $f: $part"
  done
  if [ "$f" != softmax_topk ]; then # whose cases are the common ones, hostile.c and check.c
    for part in "tests/support/hostile_$f.c" "tests/support/check_$f.c"; do [ -e "$part" ] || echo "  $f: $part"; done
  fi
  grep -q "^- \*\*$f\*\*:" README.md || echo "  $f: its line in README.md, first page"
  grep -q "^| $f |" README.md || echo "  $f: its row in README.md, What has run where"
done)"

# ---- figures in the documents are those of the bench's report
if command -v python3 >/dev/null; then
  rule "a table differs from tools/bench/h200.json (tools/bench/tables.py mends it)" \
    "$(python3 tools/bench/tables.py --check 2>&1 >/dev/null | head -5)"
else
  skip "the documents' tables against tools/bench/h200.json (there is no python3)"
fi

# ---- marks and paths
rule "unfinished marks" "$(files '*.[ch]' '*.cu' '*.cuh' '*.cpp' '*.cmake' '*.sh' | grep -v '^tools/check.sh$' |
  xargs -r -d '\n' grep -nE '\b(TODO|FIXME|XXX|HACK)\b')"
rule "a source file without its licence line" \
  "$(files 'src/*.[ch]' 'cache/*.[ch]' 'include/*.h' 'kernel_templates/*.cu' 'kernel_templates/*.cuh' 'tools/*.[ch]' 'tests/*.[ch]' 'examples/*.[ch]' |
    xargs -r -d '\n' grep -L 'SPDX-License-Identifier' | sed 's/^/  /')"

printf '%s' "$skipped" >&2
[ $broken = 0 ] && echo "check: all rules hold${skipped:+ of those that were asked}"
exit $broken
