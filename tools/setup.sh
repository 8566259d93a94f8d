#!/usr/bin/env bash
# Makes a machine ready to build: Debian packages, and CUDA 13 headers + NVRTC + ptxas.  Installs only what is
# missing; says nothing when nothing is.  Writes the CUDA folder it chose to .deps/cuda_root.
#   MXFA_CUDA=wheels   take CUDA from the PyPI wheels even if a toolkit is installed
#   MXFA_CUDA=DIR      take CUDA from DIR and nowhere else
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

# ---- Debian packages ------------------------------------------------------------------------------
# A compiler and headers are looked for by use, not by package name, so that another distribution or a
# hand-made installation is accepted as it is.
has_header() { echo "#include <$1>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }
missing=()
command -v g++ >/dev/null || missing+=(build-essential)
command -v cmake >/dev/null || missing+=(cmake)
command -v ninja >/dev/null || missing+=(ninja-build)
has_header fmt/core.h || missing+=(libfmt-dev)
has_header catch2/catch.hpp || has_header catch2/catch_all.hpp || missing+=(catch2)
has_header CLI/CLI.hpp || missing+=(libcli11-dev)
has_header nlohmann/json.hpp || missing+=(nlohmann-json3-dev)

install_packages() {
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    die "missing: $*. Install with: sudo apt-get update && sudo apt-get install -y $*"
  fi
  say "installing $*"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2 || say "apt-get update failed; trying with the package lists there are"
  apt-get install -y -qq --no-install-recommends "$@" >&2 || die "apt-get could not install: $*"
}
[ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"

# ---- CUDA -----------------------------------------------------------------------------------------
# Usable: headers of CUDA 13 or later (those in crt/ come with nvcc), libnvrtc.so.13 beside them, and ptxas.
usable() {
  local root=$1 version
  for file in include/cuda.h include/nvrtc.h include/crt/host_defines.h bin/ptxas; do
    [ -n "$root" ] && [ -r "$root/$file" ] || return 1
  done
  version=$(sed -n 's/^#define CUDA_VERSION *\([0-9]*\).*/\1/p' "$root/include/cuda.h" | head -1)
  [ "${version:-0}" -ge 13000 ] || return 1
  for lib in "$root/lib64" "$root/lib" "$root/targets/x86_64-linux/lib"; do
    [ -r "$lib/libnvrtc.so.13" ] && return 0
  done
  return 1
}

# Four wheels of the 13.0 series hold all of it; unpacked, not installed: no Python environment is touched.
install_wheels() {
  usable .deps/cuda && return 0
  local python=python3 work
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    python=/usr/bin/python3
    "$python" -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  fi
  say "fetching CUDA 13.0 headers, NVRTC and ptxas from PyPI into .deps/cuda (about 130 MB)"
  mkdir -p .deps
  work=$(mktemp -d .deps/wheels.XXXXXX)
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d "$work" \
    'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-nvcc==13.0.*' \
    'nvidia-cuda-crt==13.0.*' >&2 ||
    die "pip could not fetch nvidia-cuda-{nvrtc,runtime,nvcc,crt} 13.0; install CUDA 13 and set CUDA_HOME"
  for wheel in "$work"/*.whl; do "$python" -m zipfile -e "$wheel" "$work/unpacked"; done
  chmod +x "$work/unpacked/nvidia/cu13/bin/"*
  rm -rf .deps/cuda
  mv "$work/unpacked/nvidia/cu13" .deps/cuda
  rm -rf "$work"
  usable .deps/cuda || die "the wheels in .deps/cuda are not complete; remove .deps and try again"
}

chosen() {
  mkdir -p .deps
  # A file that is left alone keeps its time, and the build is not configured anew.
  [ "$(cat .deps/cuda_root 2>/dev/null)" = "$1" ] || echo "$1" > .deps/cuda_root
}
choose_cuda() {
  local choice=${MXFA_CUDA:-} root tool
  if [ "$choice" = wheels ]; then
    install_wheels
    chosen "$PWD/.deps/cuda"
    return
  fi
  if [ -n "$choice" ]; then
    usable "$choice" ||
      die "MXFA_CUDA=$choice: need CUDA 13 there: include/{cuda,nvrtc}.h, lib64/libnvrtc.so.13, bin/ptxas"
    chosen "$choice"
    return
  fi
  tool=$(command -v nvcc || command -v ptxas || true)
  for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda \
              ${tool:+"$(dirname "$(dirname "$(readlink -f "$tool")")")"}; do
    if usable "$root"; then chosen "$root"; return; fi
  done
  install_wheels
  chosen "$PWD/.deps/cuda"
}
choose_cuda
