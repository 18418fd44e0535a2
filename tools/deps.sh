#!/usr/bin/env bash
# tools/deps.sh [BUILD]: installs what Quern needs to be built and tested on Debian 12 or Ubuntu 24.04, and nothing that
# is there already. Two things only, both said before they are done:
#   1. distribution packages, by apt-get (as root, or through sudo without a password; otherwise it prints the command);
#   2. what no CUDA toolkit brought of NVRTC with the headers cuda.h and nvrtc.h, and of what single tests use (nvdisasm,
#      NVTX's header), from the wheels pinned in tools/wheels.txt, into BUILD/deps (default: build/deps beside this
#      folder). Nothing else on the machine is touched.
# QUERN_CUDA_INCLUDE and QUERN_NVRTC name a toolkit in an unusual place.
set -euo pipefail
case ${1:-} in
  -h | --help) echo "usage: tools/deps.sh [BUILD]: installs what is missing, and says what"; exit 0 ;;
  -*) printf "deps.sh: unknown argument '%s'\nusage: tools/deps.sh [BUILD]\n" "$1" >&2; exit 2 ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$root/build}
PATH=$PATH:/usr/sbin:/sbin # ldconfig, which users other than root do not have on theirs
say() { printf 'deps: %s\n' "$*" >&2; }

has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() { printf '#include <%s>\n' "$1" | cc -E -x c - >/dev/null 2>&1; }

# The package that brings each command or header, and its name in the distribution.
missing_packages() {
  local out=()
  has_command gcc && has_header stdio.h || out+=(gcc libc6-dev)
  has_command g++ || out+=(g++)
  has_command make || out+=(make)
  has_command cmake || out+=(cmake)
  has_command clang++ || out+=(clang)
  compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan*' >/dev/null || out+=(libclang-rt-dev)
  has_command clang-format || out+=(clang-format)
  has_command pkg-config || out+=(pkg-config)
  has_command sqlite3 || out+=(sqlite3)
  has_header sqlite3.h || out+=(libsqlite3-dev)
  has_header xxhash.h || out+=(libxxhash-dev)
  printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' |
    cc -E -x c - >/dev/null 2>&1 || out+=(libcmocka-dev)
  has_header cjson/cJSON.h || out+=(libcjson-dev)
  [ ${#out[@]} -eq 0 ] || printf '%s\n' "${out[@]}"
}

can_install() { [ "$(id -u)" -eq 0 ] || { has_command sudo && sudo -n true 2>/dev/null; }; }

apt_install() { # packages
  local run=(env DEBIAN_FRONTEND=noninteractive)
  if ! can_install; then
    say "missing: $*"
    say "this user can't install them; ask for: apt-get install -y --no-install-recommends $*"
    exit 1
  fi
  [ "$(id -u)" -eq 0 ] || run=(sudo -n "${run[@]}") # sudo takes no variables over
  has_command apt-get || { say "missing: $* (and no apt-get here: install them with this system's package manager)"; exit 1; }
  say "installing distribution packages: $*"
  apt-cache show "${@: -1}" >/dev/null 2>&1 || "${run[@]}" apt-get update -qq >&2
  "${run[@]}" apt-get install -y -qq --no-install-recommends "$@" >&2 || {
    "${run[@]}" apt-get update -qq >&2 # the lists were old
    "${run[@]}" apt-get install -y -qq --no-install-recommends "$@" >&2
  } || { say "apt-get could not (on Ubuntu some of these are in the component universe)"; exit 1; }
}

cuda_include() { # prints the folder that has both headers
  local d
  for d in "${QUERN_CUDA_INCLUDE:-}" "$build/deps/include" "${CUDA_HOME:+$CUDA_HOME/include}" "${CUDA_PATH:+$CUDA_PATH/include}" \
    /usr/local/cuda/include; do
    [ -n "$d" ] && [ -e "$d/cuda.h" ] && [ -e "$d/nvrtc.h" ] && { printf '%s\n' "$d"; return 0; }
  done
  return 1
}

nvrtc_library() { # prints where an NVRTC that the loader or Quern's search would find is
  local f
  for f in "${QUERN_NVRTC:-}" "$build"/deps/lib/libnvrtc.so.1[23] "${CUDA_HOME:-/nonexistent}"/lib64/libnvrtc.so.1[23] \
    "${CUDA_PATH:-/nonexistent}"/lib64/libnvrtc.so.1[23] /usr/local/cuda/lib64/libnvrtc.so.1[23]; do
    [ -n "$f" ] && [ -e "$f" ] && { printf '%s\n' "$f"; return 0; }
  done
  f=$(ldconfig -p 2>/dev/null | sed -nE 's/.*libnvrtc\.so\.1[23] .*=> (.*)/\1/p' | head -n 1)
  [ -n "$f" ] && printf '%s\n' "$f"
}

nvdisasm_tool() {
  local f
  for f in "${NVDISASM:-}" "$(command -v nvdisasm || true)" "$build/deps/bin/nvdisasm" /usr/local/cuda/bin/nvdisasm; do
    [ -n "$f" ] && [ -x "$f" ] && { printf '%s\n' "$f"; return 0; }
  done
  return 1
}

nvtx_header() {
  local d
  for d in "$(cuda_include || true)" "$build/deps/include"; do
    [ -e "$d/nvtx3/nvToolsExt.h" ] && { printf '%s\n' "$d/nvtx3/nvToolsExt.h"; return 0; }
  done
  return 1
}

has_pip() { has_command python3 && python3 -m pip --version >/dev/null 2>&1; }

wheels() { # packages of tools/wheels.txt; each step says itself what went wrong (set -e does not hold before a ||)
  say "not found, fetching into $build/deps: $* (wheels pinned in tools/wheels.txt)"
  local tmp wheel name
  mkdir -p "$build/deps/include" "$build/deps/lib" "$build/deps/bin"
  tmp=$(mktemp -d "$build/deps/fetch.XXXXXX")
  # shellcheck disable=SC2064 # the folder's name is wanted as it is now
  trap "rm -rf '$tmp'" EXIT
  for name in "$@"; do sed -n "/^$name==/,/[^\\\\]\$/p" "$root/tools/wheels.txt"; done >"$tmp/wanted.txt"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    -r "$tmp/wanted.txt" -d "$tmp" >&2 || return 1
  for wheel in "$tmp"/*.whl; do python3 -m zipfile -e "$wheel" "$tmp/x" || return 1; done
  local from=$tmp/x/nvidia/cu13
  [ ! -e "$from/include" ] || cp -R "$from/include/." "$build/deps/include/" || return 1
  [ ! -e "$from/lib/libnvrtc.so.13" ] ||
    cp "$from/lib/libnvrtc.so.13" "$from"/lib/libnvrtc-builtins.so.13.* "$build/deps/lib/" || return 1
  [ ! -e "$from/bin/nvdisasm" ] || install -m 755 "$from/bin/nvdisasm" "$build/deps/bin/" || return 1
  rm -rf "$tmp"
  trap - EXIT
}

mapfile -t packages < <(missing_packages)
needed=() useful=() # wheels
cuda_include >/dev/null && [ -n "$(nvrtc_library || true)" ] || needed=(nvidia-cuda-nvrtc nvidia-cuda-runtime)
nvdisasm_tool >/dev/null || useful+=(nvidia-cuda-nvdisasm)
nvtx_header >/dev/null || useful+=(nvidia-nvtx)
if ! has_pip && { [ ${#needed[@]} -gt 0 ] || { [ ${#useful[@]} -gt 0 ] && can_install; }; }; then
  packages+=(python3 python3-pip)
fi
[ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
[ ${#needed[@]} -eq 0 ] || wheels "${needed[@]}" || {
  say "these are needed: install a CUDA toolkit, or name the folder of cuda.h and nvrtc.h (QUERN_CUDA_INCLUDE) and the library (QUERN_NVRTC)"
  exit 1
}
[ ${#useful[@]} -eq 0 ] || wheels "${useful[@]}" || say "the tests that need them will be skipped"
say "ready: headers in $(cuda_include), NVRTC $(nvrtc_library), nvdisasm $(nvdisasm_tool || echo missing)," \
  "NVTX $(nvtx_header || echo missing)"
