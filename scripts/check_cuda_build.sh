#!/usr/bin/env bash
# Compiles everything against a CUDA LibTorch; neither a GPU nor an installed
# CUDA toolkit is needed.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

CUDA_TORCH=2.14.1
ENVIRONMENT="$ROOT/build/cuda-venv"
CUDA_BUILD="$ROOT/build/cuda"

usage() {
  cat <<TEXT
Usage: scripts/check_cuda_build.sh [--no-tests]

Puts torch $CUDA_TORCH with CUDA and its compiler (from PyPI, 5.5 GB on disk)
into an environment of its own, build/cuda-venv, builds everything with it in
build/cuda, and runs the C++ tests; those that need a GPU skip themselves where
there is none. Results: build/cuda/test-results.

  --no-tests  only build
  --help      this text

AMPKIT_JOBS sets how many files are compiled at a time.
TEXT
}

TESTS=yes
case ${1:-} in
  "") ;;
  --no-tests) TESTS=no ;;
  --help | -h)
    usage
    exit 0
    ;;
  *)
    usage >&2
    die "unknown option $1"
    ;;
esac

has_cuda_torch() {
  local config
  config=$(torch_config_in "$ENVIRONMENT")
  [ -n "$config" ] && [ "$(torch_version "$config")" = "$CUDA_TORCH" ] &&
    [ -x "$(cuda_folder)/bin/nvcc" ]
}

cuda_folder() { echo "$ENVIRONMENT"/lib/python3*/site-packages/nvidia/cu13; }

# The packages hold libcudart.so.13 where linkers look for libcudart.so, and
# lib where CMake looks for lib64.
complete_toolkit() {
  local folder library
  folder=$(cuda_folder)
  ln -sfn lib "$folder/lib64"
  for library in "$folder"/lib/*.so.*; do
    ln -sf "$(basename "$library")" "${library%%.so.*}.so"
  done
}

install_cuda_torch() {
  local free_gb
  free_gb=$(df --output=avail -BG "$ROOT" | tail -n 1 | tr -dc 0-9)
  [ "$free_gb" -ge 12 ] ||
    die "needs 12 GB of free disk in $ROOT, found $free_gb GB"
  say "Installing torch $CUDA_TORCH with CUDA into build/cuda-venv"
  mkdir -p "$ROOT/build"
  python3 -m venv --clear "$ENVIRONMENT"
  "$ENVIRONMENT/bin/python" -m pip install --disable-pip-version-check -q \
    "torch==$CUDA_TORCH" "cuda-toolkit[nvcc,cccl]"
  complete_toolkit
}

has_cuda_torch || install_cuda_torch
CUDA=$(cuda_folder)
# Without the architecture, LibTorch's CMake files ask the GPU for it; without
# the folders, they find no cusparse.h and no nccl.h.
export TORCH_CUDA_ARCH_LIST=9.0
export CPLUS_INCLUDE_PATH="$CUDA/include:${CUDA%/cu13}/nccl/include"
export PATH="$CUDA/bin:$PATH"

say "Building against CUDA LibTorch $CUDA_TORCH"
cmake -S "$ROOT" -B "$CUDA_BUILD" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
  -DAMPKIT_WERROR=ON -DAMPKIT_INSTALL=OFF \
  -DTorch_DIR="$(torch_config_in "$ENVIRONMENT")" \
  -DCUDA_TOOLKIT_ROOT_DIR="$CUDA" -DCMAKE_CUDA_COMPILER="$CUDA/bin/nvcc"
cmake --build "$CUDA_BUILD" ${AMPKIT_JOBS:+-j "$AMPKIT_JOBS"}
[ "$TESTS" = yes ] || exit 0

say "Running the tests with CUDA LibTorch $CUDA_TORCH"
rm -rf "$CUDA_BUILD/test-results"
cpp_tests "$CUDA_BUILD" || die "ctest did not finish"
exec python3 "$ROOT/scripts/summarize_tests.py" "$CUDA_BUILD/test-results"
