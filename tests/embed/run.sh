#!/usr/bin/env bash
# tests/embed/run.sh BUILD: an outside project finds and uses the installed package (field report FR22). Installs to a
# prefix with a space in its name and LIBDIR=lib/x, moves the tree, then builds a C and a C++ program (a) by pkg-config,
# (b) by pkg-config --static against the archive, (c) by find_package, (d) by add_subdirectory, all without a warning,
# and runs each with no libcuda. Also: the example in quern.h's own text and README's first lines of C compile, no installed
# text file names an absolute path of this machine, the shared library exports quern_ symbols only, those of exports.txt, and
# the header's ABI is that of abi.txt. The examples are built against the package and run: on a fake libcuda, with the real NVRTC.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$1
work=$(mktemp -d "$build/embed.XXXXXX")
trap 'rm -rf "$work"' EXIT
strict=(-Wall -Wextra -Wpedantic -Werror)
fail() { printf 'embed: %s\n' "$*" >&2; exit 1; }
include=$(sed -nE 's/^QUERN_CUDA_INCLUDE:[A-Z]*=(.*)/\1/p' "$build/CMakeCache.txt")

cmake -S "$root" -B "$work/b" -DCMAKE_INSTALL_LIBDIR=lib/x -DQUERN_BUILD_TESTS=OFF -DQUERN_CUDA_INCLUDE="$include" >"$work/log"
cmake --build "$work/b" -j2 >"$work/log" || { cat "$work/log"; exit 1; }
cmake --install "$work/b" --prefix "$work/first place" >"$work/log"
mv "$work/first place" "$work/moved here"
prefix=$work/moved\ here

if grep -rIlE "$work|$root|/usr/lib|/usr/local" "$prefix/lib/x/cmake" "$prefix/lib/x/pkgconfig" "$prefix/include"; then
  fail "an installed text file names an absolute path"
fi
for family in $("$prefix/bin/quern" ops | awk 'NR > 1 {print $1}'); do
  [ -e "$prefix/share/quern/bench/$family.py" ] || fail "bench --vs lacks its peers of $family"
done

export PKG_CONFIG_PATH=$prefix/lib/x/pkgconfig
[ "$(pkg-config --libs quern | grep -o -- '-lquern' | wc -l)" = 1 ] || fail "-lquern is not there exactly once"
# a folder of libraries that is absolute stays where it is, whatever the prefix
cmake -S "$root" -B "$work/absolute" -DCMAKE_INSTALL_PREFIX=/opt/quern -DCMAKE_INSTALL_LIBDIR=/else/lib -DQUERN_BUILD_TESTS=OFF \
  -DQUERN_CUDA_INCLUDE="$include" >"$work/log" || { cat "$work/log"; exit 1; }
found=$(PKG_CONFIG_PATH=$work/absolute pkg-config --cflags --libs quern)
grep -q -- '-L/else/lib ' <<<"$found" && grep -q -- '-I/opt/quern/include ' <<<"$found" || fail "an absolute LIBDIR: pkg-config says $found"

cd "$work"
block() { awk -v wanted="$1" '/^```/ {if (inside) inside = 0; else inside = /^```c$/ && ++count == wanted; next} inside' "$root/README.md"; }
{ # README's lines of C, as they stand: the library in short, and a decode step's route in fifteen lines
  echo '#include <quern/quern.h>'
  echo 'void readme(const void *, float *, int *, struct CUstream_st *);'
  echo 'void readme(const void *logits, float *values, int *indices, struct CUstream_st *stream)'
  echo '{'
  block 1
  echo '}'
  echo 'int fail(const char *);'
  echo 'void *device_memory(size_t);'
  echo 'int route(quern *, int64_t, const void *, const void *, const float *, float *, int *, struct CUstream_st *);'
  echo 'int route(quern *q, int64_t tokens, const void *hidden, const void *router_weights, const float *bias, float *weights,'
  echo '          int *ids, struct CUstream_st *stream)'
  echo '{'
  block 2
  echo 'return 0;'
  echo '}'
} >readme.c
grep -q quern_softmax_topk <<<"$(block 1)" || fail "README's first block of C is not the one that is tried"
grep -q quern_router_args <<<"$(block 2)" || fail "README's second block of C is not the one that is tried"
[ "$(grep -c . <<<"$(block 2)")" -le 15 ] || fail "README's route of a decode step has more than fifteen lines"
eval cc -std=c11 "${strict[@]}" -c -o readme.o readme.c "$(pkg-config --cflags quern)" || fail "README's C does not compile"
eval cc -std=c11 "${strict[@]}" -o a_c "'$here/uses.c'" "$(pkg-config --cflags --libs quern)"
eval c++ -std=c++17 "${strict[@]}" -o a_cxx "'$here/uses.cpp'" "$(pkg-config --cflags --libs quern)"
private=$(pkg-config --static --libs quern | sed 's/-lquern//; s/-L[^ ]*\(\\ [^ ]*\)*//')
eval cc -std=c11 "${strict[@]}" -o b_c "'$here/uses.c'" "$(pkg-config --cflags quern)" "'$prefix/lib/x/libquern.a'" "$private"
eval c++ -std=c++17 "${strict[@]}" -o b_cxx "'$here/uses.cpp'" "$(pkg-config --cflags quern)" "'$prefix/lib/x/libquern.a'" "$private"
for program in a_c a_cxx b_c b_cxx; do LD_LIBRARY_PATH=$prefix/lib/x "./$program" || fail "$program failed"; done

for way in package subdirectory; do
  cmake -S "$here/$way" -B "$work/$way" -DQUERN_SOURCE="$root" -DQUERN_CUDA_INCLUDE="$include" \
    -DCMAKE_PREFIX_PATH="$prefix/lib/x/cmake" >"$work/log" || { cat "$work/log"; exit 1; }
  cmake --build "$work/$way" -j2 >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  for program in uses_c uses_cxx uses_static uses_static_cxx; do "$work/$way/$program" || fail "$way: $program failed"; done
done

# the examples, against the installed package; on a fake libcuda, whose kernels do nothing (status 2: the results differ)
fake=$build/tests/fake_cuda
libcuda=()
[ -e "$fake/libcuda.so" ] && libcuda=(-DQUERN_LIBCUDA="$fake/libcuda.so")
cmake -S "$root/examples" -B "$work/examples" -DCMAKE_C_FLAGS=-Werror -DQUERN_CUDA_INCLUDE="$include" "${libcuda[@]}" \
  -DCMAKE_PREFIX_PATH="$prefix/lib/x/cmake" >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/examples" -j2 >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
if "$prefix/bin/quern" warm 'gate E=8 K=2 in=f32' --arch sm_90a --db "$work/probe.db" --N 1 >"$work/log" 2>&1; then
  "$work/examples/custom_store" "$work/store" || fail "custom_store failed"
  for example in decode_graph several_devices own_kernel; do
    [ -n "${libcuda[*]}" ] || continue
    status=0
    FAKE_CUDA_DEVICES=90,90,100 QUERN_CACHE_DIR=$work/cache LD_LIBRARY_PATH=$fake "$work/examples/$example" \
      >"$work/log" 2>&1 || status=$?
    [ $status = 2 ] && grep -q differ "$work/log" || { cat "$work/log"; fail "$example: status $status"; }
  done
else
  echo "embed: nothing can be compiled here, so the examples were built and not run: $(head -n 1 "$work/log")"
fi

# the manual's program, from the header's own text
sed -n '/\[example\]/,/\[end\]/p' "$root/include/quern/quern.h" | sed '1d;$d; s/^ \*//' >"$work/example.c"
cc -std=c11 "${strict[@]}" -I "$prefix/include" -c -o "$work/example.o" "$work/example.c" || fail "quern.h's example does not compile"

# every INIT macro has an initialiser for each member, in C and in C++
header=$root/include/quern/quern.h
{ echo '#include <quern/quern.h>'; sed -nE 's/^#define QUERN_(\w+)_INIT\b.*/quern_\L\1\E \L\1\E = QUERN_\1_INIT;/p' "$header"; } >"$work/init.c"
[ "$(grep -c _INIT "$work/init.c")" -ge 20 ] || fail "the INIT macros were not found"
cc -std=c11 "${strict[@]}" -I "$prefix/include" -fsyntax-only "$work/init.c" || fail "an INIT macro does not fit its structure"
c++ -std=c++17 "${strict[@]}" -x c++ -I "$prefix/include" -fsyntax-only "$work/init.c" || fail "an INIT macro does not fit its structure in C++"

# the header in C++ of any standard
echo '#include <quern/quern.h>' >"$work/header.cpp"
for standard in 98 11 17 20; do
  c++ "-std=c++$standard" "${strict[@]}" -pedantic-errors -I "$prefix/include" -fsyntax-only "$work/header.cpp" ||
    fail "quern.h is no C++$standard"
done

# what find_package takes is what the soname stands for: every older version of the same major one
soname=$(readelf -d "$prefix/lib/x/libquern.so" | sed -nE 's/.*SONAME.*\[(.*)\]/\1/p')
major=${soname#libquern.so.}
takes() { # version that is asked for: TRUE or FALSE
  printf 'set(PACKAGE_FIND_VERSION %s)\nset(PACKAGE_FIND_VERSION_MAJOR %s)\ninclude("%s")\nmessage("${PACKAGE_VERSION_COMPATIBLE}")\n' \
    "$1" "${1%%.*}" "$prefix/lib/x/cmake/quern/quern-config-version.cmake" >"$work/takes.cmake"
  cmake -DCMAKE_SIZEOF_VOID_P=8 -P "$work/takes.cmake" 2>&1
}
[ "$(takes "$major.0")" = TRUE ] || fail "$soname is the library of all $major.x, and find_package does not take $major.0 for it"
[ "$(takes "$((major + 1)).0")" = FALSE ] || fail "find_package takes $((major + 1)).0 for $soname"

nm -D --defined-only "$prefix/lib/x/libquern.so" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort >"$work/exports"
diff -u "$here/exports.txt" "$work/exports" || fail "the exported symbols are not those of tests/embed/exports.txt"
[ "$(uname -m)" != x86_64 ] || "$here/abi.sh" "$prefix/include" || fail "the ABI is not that of tests/embed/abi.txt"
echo "embed: ok"
