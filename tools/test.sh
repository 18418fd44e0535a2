#!/usr/bin/env bash
# tools/test.sh [--quick]: sets up what is missing (tools/deps.sh), builds, and runs every test: the rules of
# tools/check.sh, the suite, the suite under ASan + UBSan, the threaded part under TSan, and a search by each fuzz
# target. --quick leaves the sanitizer builds out. GPU tests say "skipped" where there is no device. Everything it writes
# is in build/.
set -euo pipefail
usage="usage: tools/test.sh [--quick]
Sets up what is missing, builds into build/ (or \$QUERN_BUILD), runs every test. --quick: without the sanitizer builds."
quick=no
for word in "$@"; do
  case $word in
    --quick) quick=yes ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) printf "test.sh: unknown argument '%s'\n%s\n" "$word" "$usage" >&2; exit 2 ;;
  esac
done
# shellcheck source=tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
mkdir -p "$build"
started=$(date +%s)
step() { printf '\n== %s (%d s)\n' "$*" $(($(date +%s) - started)); }

run_build() { # folder, name, cmake arguments…; of a sanitizer build only the programs of $selection are made
  local folder=$1 name=$2
  shift 2
  step "build: $name"
  configure "$folder" -DQUERN_WERROR=ON "$@"
  local targets=()
  if [ ${#selection[@]} -gt 0 ]; then
    mapfile -t targets < <(ctest --test-dir "$folder" --show-only=json-v1 "${selection[@]}" |
      sed -nE 's,^ *"name" : "(unit|fault|load|fuzz)/(.*)".*,\1_\2,p; s,^ *"name" : "cli/.*,quern_command,p' | sort -u)
    [ ${#targets[@]} -gt 0 ] || { echo "no test is selected by: ${selection[*]}" >&2; return 1; }
    targets=(--target "${targets[@]}")
  fi
  cmake --build "$folder" -j "$jobs" "${targets[@]}" >"$folder/build.log" 2>&1 ||
    { tail -60 "$folder/build.log" >&2; return 1; }
}
selection=() # what ctest is asked for

has_fuzzer() {
  echo 'int LLVMFuzzerTestOneInput(const char *bytes, unsigned long count) { return !bytes && count; }' |
    clang -x c -fsanitize=fuzzer,address - -o "$build/has_fuzzer" 2>/dev/null
}

# Where the kernel randomises addresses by 32 bits (Ubuntu 24.04's), the sanitizers of gcc 13 do not find theirs free: most
# programs end at once. Tests then run without that.
run_tests() { "${fixed_addresses[@]}" ctest --output-on-failure -j "$jobs" --test-dir "$@"; }
fixed_addresses=()
find_addresses() {
  local without=(setarch "$(uname -m)" -R)
  echo 'int main(void) { return 0; }' | cc -x c -fsanitize=thread - -o "$build/has_addresses" 2>/dev/null || return 0
  for _ in 1 2 3 4 5; do
    "$build/has_addresses" 2>/dev/null && continue
    "${without[@]}" "$build/has_addresses" 2>/dev/null || return 0
    fixed_addresses=("${without[@]}")
    echo "the sanitizers need fixed addresses here: the tests run by '${without[*]}'"
    return 0
  done
}

step "rules"
"$root/tools/check.sh"

run_build "$build" "release" 
step "tests"
find_addresses
run_tests "$build"

if [ $quick = no ]; then
  export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
  # -O1 as the sanitizers' own manuals advise: the references compute in f64, several times slower without.
  selection=(-L 'unit|fault|fuzz' -LE heavy)
  run_build "$build/asan" "ASan + UBSan" -DQUERN_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS_DEBUG="-g -O1"
  step "tests under ASan + UBSan"
  # Twice at most: now and then LeakSanitizer's own tracer dies of a thread that ends at exit (seen: gcc 12).
  run_tests "$build/asan" "${selection[@]}" --repeat until-pass:2
  # Tests with the real NVRTC are left out: TSan does not see how that library synchronises itself.
  selection=(-R '^(unit|fault|load)/.*(runtime|flight|cache|threads)' -E 'runtime_nvrtc' -LE heavy)
  run_build "$build/tsan" "TSan" -DQUERN_SANITIZE=thread -DCMAKE_BUILD_TYPE=Debug
  step "threaded tests under TSan"
  run_tests "$build/tsan" "${selection[@]}"
  # The kept inputs of tests/fuzz were replayed by each build above; with clang's libFuzzer, new ones are looked for.
  if has_fuzzer; then
    step "fuzz targets"
    CC=clang CXX=clang++ configure "$build/fuzz" -DQUERN_FUZZ=ON -DQUERN_BUILD_TOOLS=OFF
    cmake --build "$build/fuzz" --target quern_fuzz -j "$jobs" >"$build/fuzz/build.log" 2>&1 ||
      { tail -60 "$build/fuzz/build.log" >&2; exit 1; }
    run_tests "$build/fuzz" -L fuzz
  else
    step "no libFuzzer here: the fuzz targets only replayed their kept inputs"
  fi
fi
step "done"
