# Sourced by demo.sh and test.sh: $root, $build, the set-up, and NVRTC and nvdisasm from the build folder where
# the wheels brought them.
umask 022 # whatever the caller's: a folder that others may write to is refused as a cache
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${QUERN_BUILD:-$root/build}
"$root/tools/deps.sh" "$build"
if [ -z "${QUERN_NVRTC:-}" ] && [ -e "$build/deps/lib/libnvrtc.so.13" ]; then
  export QUERN_NVRTC="$build/deps/lib/libnvrtc.so.13"
fi
if [ -z "${NVDISASM:-}" ] && [ -x "$build/deps/bin/nvdisasm" ]; then export NVDISASM="$build/deps/bin/nvdisasm"; fi
jobs=$(nproc 2>/dev/null || echo 2)

configure() { # folder, cmake arguments…
  local folder=$1
  shift
  local include=()
  [ -e "$build/deps/include/cuda.h" ] && include=(-DQUERN_CUDA_INCLUDE="$build/deps/include")
  [ -e "$build/deps/include/nvtx3" ] && include+=(-DQUERN_NVTX_INCLUDE="$build/deps/include")
  mkdir -p "$folder"
  cmake -S "$root" -B "$folder" "${include[@]}" "$@" >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log" >&2; return 1; }
}
