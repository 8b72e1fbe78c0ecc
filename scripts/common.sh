# shellcheck shell=bash
# Sourced by the scripts beside it: where things are, and how they speak.

# What a script that sources this does not use is no mistake here.
# shellcheck disable=SC2034

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD="$ROOT/build/release"
TORCH_MINIMUM=$(sed -n 's/^set(AMPKIT_TORCH_MINIMUM \(.*\))$/\1/p' \
  "$ROOT/cmake/AmpkitTorch.cmake")
# What scripts/setup.sh installs where no LibTorch is given.
TORCH_INSTALLED=2.13.0

say() { printf '\n==> %s\n' "$*"; }

die() {
  printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# version_at_least HAVE WANTED
version_at_least() {
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# torch_config_in PREFIX: the folder of TorchConfig.cmake below a LibTorch
# package or a Python environment, or nothing.
torch_config_in() {
  local candidate
  for candidate in "$1" "$1/Torch" "$1/share/cmake/Torch" \
    "$1"/lib/python3*/site-packages/torch/share/cmake/Torch; do
    if [ -f "$candidate/TorchConfigVersion.cmake" ]; then
      echo "$candidate"
      return
    fi
  done
}

# torch_version CONFIG_FOLDER
torch_version() {
  sed -n 's/^set(PACKAGE_VERSION "\([0-9.]*\).*/\1/p' \
    "$1/TorchConfigVersion.cmake"
}

# find_torch: sets TORCH_CONFIG (empty if there is none) and TORCH_ORIGIN,
# in the order of cmake/AmpkitTorch.cmake: what the user gives, an active
# Python environment, the local .venv.
find_torch() {
  local prefix prefixes
  TORCH_CONFIG=""
  TORCH_ORIGIN=given
  IFS=: read -r -a prefixes <<<"${Torch_DIR:-}:${Torch_ROOT:-}:${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    [ -n "$prefix" ] || continue
    TORCH_CONFIG=$(torch_config_in "$prefix")
    [ -z "$TORCH_CONFIG" ] || return 0
  done
  TORCH_ORIGIN=environment
  for prefix in "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}"; do
    [ -n "$prefix" ] || continue
    TORCH_CONFIG=$(torch_config_in "$prefix")
    [ -z "$TORCH_CONFIG" ] || return 0
  done
  TORCH_ORIGIN=local
  TORCH_CONFIG=$(torch_config_in "$ROOT/.venv")
}

# test_python: the interpreter for the tests: that of the Python environment
# whose LibTorch the build uses, else .venv's.
test_python() {
  find_torch
  # CONFIG is PREFIX/lib/python3.x/site-packages/torch/share/cmake/Torch.
  local prefix=${TORCH_CONFIG%/lib/python3*/site-packages/torch/*}
  if [ "$prefix" != "$TORCH_CONFIG" ] && [ -x "$prefix/bin/python" ]; then
    echo "$prefix/bin/python"
  else
    echo "$ROOT/.venv/bin/python"
  fi
}

# cpp_tests BUILD_FOLDER: fails only if ctest itself did not finish; which
# tests failed stands in the results.
cpp_tests() {
  local results="$1/test-results"
  mkdir -p "$results"
  ctest --test-dir "$1" --show-only=json-v1 >"$results/ctest.json" || return
  ctest --test-dir "$1" --output-on-failure \
    --output-junit "$results/ctest.xml" || true
  [ -f "$results/ctest.xml" ]
}
